"""deploy/: each file is checked by a tool of its kind, and against what examples/serve reads and answers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY, SERVE = ROOT / "deploy", ROOT / "examples" / "serve"
READ = set(
    re.findall(
        r'(?:environ(?:\.get\(|\[)|_number\()"(\w+)"',
        (SERVE / "main.py").read_text() + (SERVE / "agents" / "desk" / "agent.py").read_text(),
    )
) | {"WORKSPACE_KEY", "GOOGLE_API_KEY", "ADK_SKILLS_WORKSPACE_STORE", "ADK_SKILLS_WORKSPACE_KEY"}


def documents(*names: str) -> Iterator[dict[str, Any]]:
    for name in names:
        yield from yaml.safe_load_all((DEPLOY / name).read_text())


GKE = ("gke/deployment.yaml", "gke/service.yaml")


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every description of a pod, wherever it is."""
    for document in documents(*GKE, "cloud-run/service.yaml", "kuberay/raycluster.yaml"):
        spec, kind = document.get("spec", {}), document["kind"]
        if kind in ("Deployment", "Service") and "template" in spec:
            yield kind, spec["template"]["spec"]
        elif kind == "CronJob":
            yield kind, spec["jobTemplate"]["spec"]["template"]["spec"]
        elif kind == "RayCluster":
            for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
                yield kind, group["template"]["spec"]


def test_only_variables_that_are_read_are_set() -> None:
    for kind, pod in pods():
        for container in pod["containers"]:
            names = {one["name"] for one in container.get("env", ())}
            assert names <= READ, kind
    for name, service in next(documents("compose/compose.yaml"))["services"].items():
        if name.startswith("desk"):
            assert set(service["environment"]) <= READ


def test_probes_ask_for_what_is_answered() -> None:
    answered = set(re.findall(r'@app\.get\("(/\w+)"\)', (SERVE / "main.py").read_text()))
    asked = {
        probe["httpGet"]["path"]
        for _, pod in pods()
        for container in pod["containers"]
        for name, probe in container.items()
        if name.endswith("Probe")
    }
    assert asked == {"/readyz", "/healthz"}
    assert asked <= answered
    assert "/readyz" in str(next(documents("compose/compose.yaml"))["services"]["desk-1"]["healthcheck"])


def test_the_platform_waits_longer_than_a_replica_drains() -> None:
    def seconds(variables: dict[str, str]) -> float:
        return float(variables["DRAIN_SECONDS"]) + float(variables["END_SECONDS"])

    deployment = next(one for one in documents(*GKE) if one["kind"] == "Deployment")["spec"]["template"]["spec"]
    env = {one["name"]: one.get("value", "") for one in deployment["containers"][0]["env"]}
    assert seconds(env) < deployment["terminationGracePeriodSeconds"]
    desk = next(documents("compose/compose.yaml"))["services"]["desk-1"]
    assert seconds(desk["environment"]) < float(desk["stop_grace_period"].removesuffix("s"))
    cloud_run = next(documents("cloud-run/service.yaml"))["spec"]["template"]["spec"]["containers"][0]
    assert seconds({one["name"]: one.get("value", "") for one in cloud_run["env"]}) < 10  # Cloud Run's own


def test_no_secret_is_written_down_and_no_replica_is_root() -> None:
    for kind, pod in pods():
        for container in pod["containers"]:
            for one in container.get("env", ()):
                if re.search("KEY|DB|PASSWORD|TOKEN", one["name"]):
                    assert "value" not in one, (kind, one["name"])
        if kind != "Service":  # Cloud Run has no such setting; its image says it
            assert pod["securityContext"]["runAsNonRoot"] is True
    assert re.search(r"^USER \d+$", (SERVE / "Dockerfile").read_text(), re.MULTILINE)


def test_the_image_has_what_it_copies() -> None:
    for copied in re.findall(r"^COPY (\S+)", (SERVE / "Dockerfile").read_text(), re.MULTILINE):
        assert (SERVE / copied).exists()
    listed = next(documents("gke/kustomization.yaml"))["resources"]
    assert {f"gke/{name}" for name in listed} == set(GKE)


def test_a_cluster_that_had_nothing_to_do_still_has_nodes_for_an_evaluation() -> None:
    """It shrank to none after two minutes, and `eval --cluster` starts no nodes."""
    cluster = next(one for one in documents("kuberay/raycluster.yaml") if one["kind"] == "RayCluster")
    assert all(group["minReplicas"] > 0 for group in cluster["spec"]["workerGroupSpecs"])


@pytest.mark.slow
def test_every_manifest_is_valid_by_the_schemas_of_kubernetes() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    version = validate.latest_version()
    plain = [one for one in documents(*GKE, "kuberay/raycluster.yaml") if one["kind"] != "RayCluster"]
    assert len(plain) == 6
    for document in plain:
        validate.validate(document, version, strict=True)
    for kind, pod in pods():  # of kinds that the API server itself does not have
        pod = {key: value for key, value in pod.items() if key not in ("containerConcurrency", "timeoutSeconds")}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}
        validate.validate(document, version, strict=True)
        assert kind
    broken = {**plain[0], "metadata": {"name": 7}}
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, version, strict=True)


@pytest.mark.slow
def test_the_compose_file_is_one() -> None:
    program = shutil.which("podman-compose", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("make test-slow installs podman-compose")
    done = subprocess.run(
        [program, "-f", str(DEPLOY / "compose" / "compose.yaml"), "config"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert services["desk-2"]["environment"]["WORKSPACE_STORE"] == "/workspaces"
    assert set(services) == {"database", "desk-1", "desk-2", "proxy"}
