"""deploy/kubernetes: what is shipped is what the docs say, and every field is one that the API server knows.

Write the config map anew with ``ADK_SKILLS_WRITE_DOCS=1 .venv/bin/python -m pytest <this file>``. With
``ADK_SKILLS_AGENT_SANDBOX_CRDS`` naming the ``k8s/crds`` folder of agent-sandbox, its own schemas are applied, too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adk_skills_agent.sandbox.contract import IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.remote.kubernetes import _FOLDERS, _HOME, NAMESPACE, WARM_POOL, pod_report
from loopback_cluster import DEPLOYED, SERVER, template

CONFIG_MAP = DEPLOYED / "pod-server.yaml"


def documents() -> Iterator[dict[str, Any]]:
    for path in sorted(DEPLOYED.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


def of_kind(kind: str) -> dict[str, Any]:
    return next(document for document in documents() if document["kind"] == kind)


def pod() -> dict[str, Any]:
    return template()["spec"]["podTemplate"]["spec"]


def config_map() -> str:
    program = "".join(f"    {line}".rstrip() + "\n" for line in SERVER.read_text().splitlines())
    return (
        "# Generated from src/adk_skills_agent/sandbox/remote/pod_server.py; a test keeps them the same.\n"
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: adk-skills-pod-server\n  namespace: adk-skills\n"
        f"data:\n  pod_server.py: |\n{program}"
    )


def test_the_config_map_has_the_shipped_program():
    if os.environ.get("ADK_SKILLS_WRITE_DOCS"):
        CONFIG_MAP.write_text(config_map())
    assert CONFIG_MAP.read_text() == config_map(), "run this test with ADK_SKILLS_WRITE_DOCS=1"
    assert of_kind("ConfigMap")["data"]["pod_server.py"] == SERVER.read_text()


def test_everything_is_listed_and_in_the_namespace_the_code_uses():
    listed = of_kind("Kustomization")["resources"]
    assert sorted(listed) == sorted(path.name for path in DEPLOYED.glob("*.yaml") if path.name != "kustomization.yaml")
    for document in documents():
        if document["kind"] not in {"Kustomization", "Namespace"}:
            assert document["metadata"]["namespace"] == NAMESPACE
    assert of_kind("Namespace")["metadata"]["name"] == NAMESPACE
    pool = of_kind("SandboxWarmPool")
    assert (pool["metadata"]["name"], pool["spec"]["replicas"] > 0) == (WARM_POOL, True)
    assert pool["spec"]["sandboxTemplateRef"]["name"] == template()["metadata"]["name"]


def test_the_template_is_as_strong_as_a_container():
    report = pod_report(pod(), SandboxPolicy())
    assert report.level is IsolationLevel.CONTAINER
    assert report.enforced["syscalls"] == "runtime class gvisor"
    said = {sentence.split(":")[0] for sentence in report.degraded}
    assert said <= {"network", "memory", "disk", "output", "processes"}


def test_nothing_goes_out_and_only_the_router_and_agents_come_in():
    policy = template()["spec"]["networkPolicy"]
    assert policy["egress"] == []
    (rule,) = policy["ingress"]
    assert all(peer["podSelector"]["matchLabels"] for peer in rule["from"])
    assert rule["ports"] == [{"port": 8888, "protocol": "TCP"}]
    assert set(of_kind("NetworkPolicy")["spec"]) == {"podSelector", "policyTypes"}


def test_what_can_be_written_to_is_what_a_run_uses_and_is_bounded():
    (container,) = pod()["containers"]
    writable = {m["mountPath"]: m["name"] for m in container["volumeMounts"] if not m.get("readOnly")}
    assert set(writable) == {*_FOLDERS, _HOME}
    sizes = {volume["name"]: volume.get("emptyDir", {}).get("sizeLimit") for volume in pod()["volumes"]}
    assert all(sizes[name] for name in writable.values())
    assert container["env"][0] == {"name": "SANDBOX_BASE_DIR", "value": _HOME}


def test_the_image_is_bytes_and_not_a_name():
    from adk_skills_agent.sandbox.container.image import DEFAULT_IMAGE

    image = pod()["containers"][0]["image"]
    assert re.fullmatch(r"[\w./:-]+@sha256:[0-9a-f]{64}", image)
    assert image == DEFAULT_IMAGE


def test_the_agent_may_do_no_more_than_it_does():
    rules = {resource: set(rule["verbs"]) for rule in of_kind("Role")["rules"] for resource in rule["resources"]}
    assert rules == {
        "sandboxclaims": {"create", "get", "list", "watch", "delete"},
        "sandboxes": {"get", "list", "watch"},
        "pods": {"get"},
    }


@pytest.mark.slow
def test_every_field_of_the_pod_and_of_the_policies_is_one_of_kubernetes():
    """By the models of its own client, which are made from the API's description."""
    from kubernetes import client

    api = client.ApiClient()

    def check(value: Any, kind: str, where: str) -> None:
        if kind.startswith("list["):
            for item in value:
                check(item, kind[5:-1], where)
        elif kind.startswith("dict(") or not hasattr(client, kind):
            return
        else:
            model = getattr(client, kind)
            names = {name: field for field, name in model.attribute_map.items()}
            for key, below in value.items():
                assert key in names, f"{where}.{key}: {kind} has no such field"
                check(below, model.openapi_types[names[key]], f"{where}.{key}")

            class Answer:
                data = json.dumps(value)

            if hasattr(api, "_ApiClient__deserialize"):
                api._ApiClient__deserialize(value, kind)  # required fields and types

    check(pod(), "V1PodSpec", "pod")
    check(of_kind("NetworkPolicy"), "V1NetworkPolicy", "policy")
    check(of_kind("Role"), "V1Role", "role")
    check(of_kind("RoleBinding"), "V1RoleBinding", "binding")
    for rule in template()["spec"]["networkPolicy"]["ingress"]:
        check(rule, "V1NetworkPolicyIngressRule", "ingress")


def test_the_custom_resources_have_the_fields_of_agent_sandbox():
    assert set(template()["spec"]) == {
        "envVarsInjectionPolicy",
        "volumeClaimTemplatesPolicy",
        "networkPolicyManagement",
        "networkPolicy",
        "podTemplate",
    }
    assert {d["apiVersion"] for d in documents() if d["kind"].startswith("Sandbox")} == {
        "extensions.agents.x-k8s.io/v1beta1"
    }


@pytest.mark.skipif("ADK_SKILLS_AGENT_SANDBOX_CRDS" not in os.environ, reason="needs the CRDs of agent-sandbox")
@pytest.mark.parametrize(
    ("kind", "plural"), [("SandboxTemplate", "sandboxtemplates"), ("SandboxWarmPool", "sandboxwarmpools")]
)
def test_the_custom_resources_fit_the_schemas_of_agent_sandbox(kind: str, plural: str):
    import jsonschema

    path = Path(os.environ["ADK_SKILLS_AGENT_SANDBOX_CRDS"]) / f"extensions.agents.x-k8s.io_{plural}.yaml"
    versions = yaml.safe_load(path.read_text())["spec"]["versions"]
    schema = next(version for version in versions if version["name"] == "v1beta1")["schema"]["openAPIV3Schema"]
    jsonschema.validate(of_kind(kind), strict(schema))


def strict(schema: Any) -> Any:
    """The same schema, refusing what the API server would drop silently: a field it does not know."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    below = {key: strict(value) for key, value in schema.items() if key != "format"}
    if "properties" in below and not schema.get("x-kubernetes-preserve-unknown-fields"):
        below.setdefault("additionalProperties", False)
    return below
