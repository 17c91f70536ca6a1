"""``sandbox="kubernetes"``: the contract's meaning of everything, over the real client and the shipped pod program."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from adk_skills_agent.errors import SandboxError, SandboxUnavailable
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    InputFile,
    IsolationLevel,
    ReadOnlyMount,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.secrets import Secret
from loopback_cluster import Cluster

pytestmark = pytest.mark.slow  # the client library alone takes seconds to import


def request(*argv: str, wall: float = 20.0, **settings: object) -> ExecutionRequest:
    policy = {name: settings.pop(name) for name in list(settings) if name in SandboxPolicy.__dataclass_fields__}
    return ExecutionRequest(argv, SandboxPolicy(wall_seconds=wall, **policy), **settings)  # type: ignore[arg-type]


async def test_a_skills_script_gets_its_skill_its_inputs_and_its_workspace(cluster: Cluster, tmp_path: Path):
    skill = tmp_path / "skill"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: skill\ndescription: x\n---\n")
    (skill / "scripts" / "sum.py").write_text(
        "import os, sys\nprint(sum(map(int, open('in.csv').read().split(','))), os.getcwd(), os.listdir('/skill'))\n"
        "open('out/a.txt', 'w').write(open('kept.txt').read() + sys.argv[1])\nsys.exit(3)\n"
    )
    workspace = tmp_path / "session"
    (workspace / "out").mkdir(parents=True)
    (workspace / "kept.txt").write_text("kept ")
    result = await cluster.sandbox().run(
        request(
            "python3",
            "/skill/scripts/sum.py",
            "$(id) ü",
            mounts=(ReadOnlyMount(skill),),
            input_files=(InputFile("in.csv", b"1,2,3"),),
            workspace=workspace,
        )
    )
    assert (result.status, result.exit_code) == (Status.ERROR, 3), result
    assert result.stdout.startswith(b"6 /work ")
    assert b"SKILL.md" in result.stdout
    assert {file.path: file.content.decode() for file in result.files} == {"out/a.txt": "kept $(id) ü"}
    assert (workspace / "out" / "a.txt").read_text() == "kept $(id) ü"
    assert (cluster.claims, cluster.pods) == ({}, {})


async def test_row_2_a_deadline_is_a_fact_and_what_was_written_before_it_is_kept(cluster: Cluster):
    # S0-83, S0-84
    code = "open('f.txt','w').write('half'); print('before', flush=True); import time; time.sleep(60)"
    result = await cluster.sandbox().run(request("python3", "-c", code, wall=1.0))
    assert (result.status, result.timed_out, result.stdout) == (Status.TIMEOUT, True, b"before\n")
    assert [file.path for file in result.files] == ["f.txt"]
    assert result.notes == ()


async def test_row_12_a_flood_is_ended_and_bounded(cluster: Cluster):
    result = await cluster.sandbox().run(request("yes", output_bytes=4000, output_flood_bytes=200_000))
    assert result.status is Status.OUTPUT_LIMIT
    assert result.stdout_truncated
    assert len(result.stdout) == 4000
    assert result.stdout_total >= 200_000


async def test_a_large_answer_comes_by_a_file_and_is_complete(cluster: Cluster):
    code = "import os; open('big', 'wb').write(os.urandom(3 << 20)); print('x' * 100_000)"
    result = await cluster.sandbox().run(request("python3", "-c", code))
    assert (result.status, result.stdout_total, result.files[0].size) == (Status.OK, 100_001, 3 << 20)


async def test_row_22_a_grandchild_that_holds_the_output_is_not_waited_for(cluster: Cluster):
    result = await cluster.sandbox().run(request("sh", "-c", "setsid sleep 100 & echo done", wall=15.0))
    assert (result.status, result.stdout) == (Status.OK, b"done\n")
    assert result.wall_ms < 10_000


async def test_row_27_a_signal_is_a_signal(cluster: Cluster):
    result = await cluster.sandbox().run(request("sh", "-c", "kill -SEGV $$"))
    assert (result.status, result.exit_code, result.signal) == (Status.ERROR, None, 11)


async def test_row_28_exit_124_and_137_are_exit_codes(cluster: Cluster):
    results = await asyncio.gather(*(cluster.sandbox().run(request("sh", "-c", f"exit {n}")) for n in (124, 137)))
    assert [(r.exit_code, r.timed_out, r.oom_killed, r.signal) for r in results] == [
        (124, False, False, None),
        (137, False, False, None),
    ]


async def test_row_34_the_environment_is_the_runs_own_and_a_secret_stays_in_it(cluster: Cluster, monkeypatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "hunter2-hunter2")
    result = await cluster.sandbox().run(request("env", env={"TOKEN": Secret("s3cret-value-123"), "A": "1"}))
    assert b"hunter2" not in result.stdout
    assert b"TOKEN=[secret TOKEN]" in result.stdout
    assert b"A=1" in result.stdout
    assert b"HOME=/tmp/home" in result.stdout


async def test_row_29_a_script_that_kills_its_supervisor_is_an_error_of_the_sandbox(cluster: Cluster):
    code = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time; time.sleep(60)"
    with pytest.raises(SandboxError, match="ended without saying"):
        await cluster.sandbox().run(request("python3", "-c", code))
    assert (cluster.claims, cluster.pods) == ({}, {})


async def test_row_38_only_its_own_folders_can_be_written_to(cluster: Cluster):
    tries = "for f in /usr/x /etc/x /opt/adk-skills/x; do touch $f 2>/dev/null && echo $f; done"
    code = f"{tries}; touch /work/y /tmp/y && echo ok"
    result = await cluster.sandbox().run(request("sh", "-c", code))
    assert result.stdout == b"ok\n"


async def test_row_33_a_cancelled_run_takes_its_pod_along(cluster: Cluster):
    run = asyncio.ensure_future(cluster.sandbox().run(request("sleep", "60")))
    while not cluster.pods:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (cluster.claims, cluster.pods) == ({}, {})


async def test_runs_at_once_have_a_pod_each(cluster: Cluster):
    box = cluster.sandbox()
    results = await asyncio.gather(*(box.run(request("sh", "-c", f"echo {n} > f; sleep 0.3; cat f")) for n in range(4)))
    assert [int(result.stdout) for result in results] == list(range(4))
    assert cluster.requests.count(("POST", next(path for verb, path in cluster.requests if verb == "POST"))) == 4


async def test_a_claim_ends_by_itself_should_the_agent_be_killed(cluster: Cluster):
    run = asyncio.ensure_future(cluster.sandbox().run(request("sleep", "1")))
    while not cluster.claims:
        await asyncio.sleep(0.01)
    claim = next(iter(cluster.claims.values()))
    await run
    assert claim["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"
    assert claim["spec"]["lifecycle"]["shutdownTime"]
    assert claim["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "adk-skills-runtime"
    assert "env" not in claim["spec"]


async def test_the_report_says_what_the_pods_description_says(cluster: Cluster):
    report = await cluster.sandbox().probe()
    assert report.level is IsolationLevel.CONTAINER
    assert report.enforced["syscalls"] == "runtime class gvisor"
    assert report.enforced["memory"] == "pod (768Mi), rlimit"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("automountServiceAccountToken", True, "token of the cluster"),
        ("hostNetwork", True, "hostNetwork"),
        ("volumes", [{"name": "root", "hostPath": {"path": "/"}}], "folders of the node"),
    ],
)
async def test_row_72_a_weaker_template_is_said_and_not_what_a_strict_policy_gets(cluster: Cluster, key, value, said):
    cluster.spec[key] = value
    result = await cluster.sandbox().run(request("true"))
    assert result.isolation.level is IsolationLevel.REMOTE
    assert any(said in sentence for sentence in result.isolation.degraded)
    with pytest.raises(SandboxUnavailable, match="remote: weaker than min_isolation='namespaces'") as refused:
        await cluster.sandbox().run(request("true", min_isolation="namespaces"))
    assert said in refused.value.reasons[0]
    assert (cluster.claims, cluster.pods) == ({}, {})


PRIVILEGED = {"name": "side", "securityContext": {"privileged": True}}


@pytest.mark.parametrize(
    ("of_container", "of_pod", "said"),
    [
        ({"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}}, {}, r"added \(SYS_ADMIN\)"),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, {}, "Unconfined"),
        ({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, {}, "AppArmor profile is Unconfined"),
        ({"securityContext": {"procMount": "Unmasked"}}, {}, "procMount"),
        ({"env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}, {}, "environment"),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, {}, "environment"),
        ({}, {"containers": [PRIVILEGED]}, r"privileged \(side\)"),
        ({}, {"initContainers": [PRIVILEGED]}, r"privileged \(side\)"),
        ({}, {"shareProcessNamespace": True}, "share their processes"),
        ({}, {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]}, r"not the pod's alone.*\(v\)"),
        ({}, {"volumes": [{"name": "v", "secret": {"secretName": "x"}}]}, r"hold keys.*\(v\)"),
        (
            {},
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]},
            r"hold keys.*\(v\)",
        ),
    ],
)
async def test_row_497_what_a_pod_is_given_besides_is_said(cluster: Cluster, of_container, of_pod, said):
    """Seen: such pods were called a container, with nothing degraded."""
    container = cluster.spec["containers"][0]
    security = container.get("securityContext", {}) | of_container.pop("securityContext", {})
    container |= of_container | {"securityContext": security}
    cluster.spec["containers"] += of_pod.pop("containers", [])
    cluster.spec |= of_pod
    report = await cluster.sandbox().probe()
    assert report.level is IsolationLevel.REMOTE
    assert re.search(said, " ".join(report.degraded))


async def test_row_497_volumes_of_the_pods_own_are_fine(cluster: Cluster):
    own = [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "x"}}, {"name": "c", "projected": {}}]
    cluster.spec["volumes"] = [*cluster.spec.get("volumes", []), *own]
    assert (await cluster.sandbox().probe()).level is IsolationLevel.CONTAINER


async def test_row_72_a_shared_kernel_is_said(cluster: Cluster):
    del cluster.spec["runtimeClassName"]
    result = await cluster.sandbox().run(request("true"))
    assert result.isolation.enforced["syscalls"] == "shared"
    assert any(sentence.startswith("syscalls: ") for sentence in result.isolation.degraded)


@pytest.mark.parametrize(
    ("size", "said"),
    [(1000, "did not give the result's file"), (1 << 40, "says that the result has 1,099,511,627,776")],
)
async def test_row_285_of_an_answer_that_was_exchanged_only_its_size_is_read(
    size: int, said: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Seen: a file of 3 GiB in its place took 6 GiB of the agent's memory."""
    monkeypatch.setattr("adk_skills_agent.sandbox.remote.remote._found", lambda *_: size)
    large = "open('a.bin', 'wb').write(__import__('os').urandom(1 << 20))"
    with pytest.raises(SandboxError, match=said):
        await cluster.sandbox().run(request("python3", "-c", large, workspace=tmp_path))


@pytest.mark.parametrize(
    ("change", "said", "advice"),
    [
        ({"pool": "another"}, "no pod from warm pool 'adk-skills'", "kubectl apply -k deploy/kubernetes"),
        ({"refusal": 403}, "Forbidden", "rbac.yaml"),
        ({"never_ready": True}, "within 1 seconds", "Is agent-sandbox installed"),
    ],
)
async def test_row_72_a_cluster_that_cannot_is_a_typed_refusal_that_says_what_to_do(cluster, change, said, advice):
    for name, value in change.items():
        setattr(cluster, name, value)
    with pytest.raises(SandboxUnavailable) as refused:
        await cluster.sandbox(ready_seconds=1).run(request("true"))
    assert said in refused.value.message
    assert advice in refused.value.message
    assert cluster.pods == {}


async def test_row_72_a_level_that_no_pod_has_is_refused_before_anything_is_claimed(cluster: Cluster):
    with pytest.raises(SandboxUnavailable, match="isolation='namespaces' is required"):
        await cluster.sandbox().run(request("true", isolation="namespaces"))
    assert cluster.requests == []


async def test_a_pod_that_dies_of_its_memory_limit_is_out_of_memory(cluster: Cluster):
    cluster.out_of_memory = True
    run = asyncio.ensure_future(cluster.sandbox().run(request("sleep", "60")))
    while not cluster.pods:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.7)
    next(iter(cluster.pods.values())).end()
    result = await run
    assert (result.status, result.oom_killed) == (Status.OUT_OF_MEMORY, True)
    assert "The pod was ended by its memory limit." in result.notes


async def test_a_pod_that_dies_otherwise_is_an_error_of_the_sandbox(cluster: Cluster):
    run = asyncio.ensure_future(cluster.sandbox().run(request("sleep", "60")))
    while not cluster.pods:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.7)
    next(iter(cluster.pods.values())).end()
    with pytest.raises(SandboxError, match="The pod did not run the command"):
        await run


async def test_a_claim_that_cannot_be_deleted_is_a_note(cluster: Cluster):
    cluster.keeps_claims = True
    result = await cluster.sandbox().run(request("true"))
    assert result.status is Status.OK
    assert any("could not be deleted; its shutdown time will end it" in note for note in result.notes)


async def test_without_a_configuration_of_a_cluster_it_is_refused_in_words(monkeypatch, tmp_path):
    from adk_skills_agent.sandbox.remote.kubernetes import KubernetesSandbox

    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SandboxUnavailable, match="Set KUBECONFIG, or run inside of a cluster"):
        await KubernetesSandbox().run(request("true"))


async def test_row_433_who_leaves_while_a_pod_is_made_has_no_further_one_until_it_is_gone(cluster: Cluster):
    """Seen: a hundred pods where four may run, for one who came and left, and a thread of the agent for each."""
    sandbox, cluster.never_ready = cluster.sandbox(most_runs=4), True
    for _ in range(20):
        leaving = asyncio.create_task(sandbox.run(request("true", share=("ann", "1"))))
        await asyncio.sleep(0.05)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    assert 1 < sum(method == "POST" for method, _ in cluster.requests) < 4
    cluster.never_ready = False
    assert (await sandbox.run(request("true", share=("bob", "1")))).status is Status.OK
    assert (await sandbox.run(request("true", share=("ann", "1")))).status is Status.OK  # the places are there again
    async with asyncio.timeout(20):
        while cluster.claims:
            await asyncio.sleep(0.05)
