"""Containers are hardened by default; each default has a name, and switching it off is reported (S0-99 to S0-104)."""

from __future__ import annotations

import os
from dataclasses import replace
from unittest.mock import Mock

import pytest

import container_engines
from adk_skills_agent.errors import ConfigError, SandboxUnavailable
from adk_skills_agent.sandbox.container import ContainerOptions, ContainerSandbox
from adk_skills_agent.sandbox.container.container import check_runtime
from adk_skills_agent.sandbox.container.engine import EngineInfo, _info
from adk_skills_agent.sandbox.container.options import Plan
from adk_skills_agent.sandbox.contract import ExecutionRequest, Network, SandboxPolicy
from adk_skills_agent.sandbox.process.command import PENDING_SIGNALS, STACK_BYTES

DOCKER = EngineInfo("docker", "27", ("runc", "runsc"), "runc", "2")
PODMAN = EngineInfo("podman", "4.3", ("runc",), "runc", "2")


def settings(info: EngineInfo = DOCKER, policy: SandboxPolicy | None = None, **options: object) -> dict[str, object]:
    pytest.importorskip("docker")
    plan = Plan("sha256:1", ContainerOptions(**options), policy or SandboxPolicy())  # type: ignore[arg-type]
    return plan.settings(info, "program", {"a": "b"})


@pytest.mark.requirement("S0-100", "S0-101", "S0-102", "S0-103")
def test_the_defaults_are_hard() -> None:
    made = settings()
    assert made["user"] == "65534:65534"
    assert made["read_only"] is True
    assert made["network_mode"] == "none"
    assert made["cap_drop"] == ["ALL"]
    assert made["security_opt"] == ["no-new-privileges"]
    assert made["ipc_mode"] == "private"
    assert made["log_config"] == {"Type": "none"}
    assert made["nano_cpus"] == 1_000_000_000
    assert made["mem_limit"] == made["memswap_limit"] == (512 << 20) + (32 << 20)
    assert made["pids_limit"] == 66  # with the program that watches them, and its other thread
    assert made["tmpfs"]["/work"] == (  # type: ignore[index]
        "rw,exec,nosuid,nodev,size=268435456,nr_inodes=40016,mode=0700,uid=65534,gid=65534"
    )
    assert "size=67108864," in made["tmpfs"]["/tmp"]  # type: ignore[index]
    assert made["shm_size"] == 16 << 20
    assert made["tty"] is False
    assert "network_disabled" not in made  # Podman ignores it
    assert ContainerOptions().weakened() == ()


@pytest.mark.parametrize(
    ("option", "value", "setting"),
    [
        ("user", None, "user"),
        ("read_only_root", False, "read_only"),
        ("drop_capabilities", False, "cap_drop"),
        ("no_new_privileges", False, "security_opt"),
        ("private_ipc", False, "ipc_mode"),
        ("keep_logs", True, "log_config"),
    ],
)
def test_each_default_can_be_switched_off_by_name_and_that_is_reported(
    option: str, value: object, setting: str
) -> None:
    before, after = settings(), settings(**{option: value})
    assert before.get(setting) != after.get(setting)
    assert [sentence for sentence in ContainerOptions(**{option: value}).weakened() if sentence.startswith(option)]  # type: ignore[arg-type]


def test_limits_are_the_policys_and_none_is_none() -> None:
    made = settings(policy=SandboxPolicy(memory_bytes=None, pids=None, workspace_bytes=None, workspace_inodes=None))
    assert "mem_limit" not in made
    assert made["pids_limit"] == -1
    assert "size" not in made["tmpfs"]["/work"]  # type: ignore[index]


def test_podman_gets_what_it_knows() -> None:
    made = settings(PODMAN)
    assert "nr_inodes" not in str(made["tmpfs"])
    assert "uid=" not in str(made["tmpfs"])
    assert set(made["tmpfs"]) == {"/work", "/tmp", "/run", "/var/tmp"}  # type: ignore[call-overload]


def test_memory_that_no_control_group_counts_is_in_the_report_but_for_gvisor() -> None:
    def told(policy: SandboxPolicy, runtime: str | None = None) -> str:
        return " ".join(Plan("sha256:1", ContainerOptions(runtime=runtime), policy).uncharged(DOCKER))

    assert "more than 1,024 sockets, or with a quarter of memory_bytes" in told(SandboxPolicy())
    assert "nothing bounds the connections" in told(SandboxPolicy(network=Network.host()))
    assert told(SandboxPolicy(memory_bytes=None)) == told(SandboxPolicy(), "runsc") == ""


def test_row_333_what_sockets_may_hold_follows_from_the_memory() -> None:
    def told(policy: SandboxPolicy) -> tuple[object, object]:
        hello = Plan("sha256:1", ContainerOptions(), policy).hello(DOCKER)
        return hello["sockets"], hello["socket_bytes"]

    assert told(SandboxPolicy(memory_bytes=256 << 20)) == (1024, 64 << 20)
    assert told(SandboxPolicy(memory_bytes=None)) == (None, None)
    assert told(SandboxPolicy(network=Network.host()))[0] is None


def test_row_334_a_container_is_among_the_first_that_the_kernel_ends_and_has_the_limits_of_local_runs() -> None:
    assert settings()["oom_score_adj"] == settings(PODMAN)["oom_score_adj"] == 500
    rootless = replace(PODMAN, rootless=True)
    assert "oom_score_adj" not in settings(rootless)  # nobody but root can keep a script from lowering it
    plan = Plan("sha256:1", ContainerOptions(), SandboxPolicy(memory_bytes=200 << 20))
    assert any("oom_score_adj" in sentence for sentence in plan.uncharged(rootless))
    limits = plan.hello(DOCKER)["limits"]
    assert (limits["SIGPENDING"], limits["STACK"]) == (PENDING_SIGNALS, [STACK_BYTES, 200 << 20])
    gvisor = Plan("sha256:1", ContainerOptions(runtime="runsc"), SandboxPolicy(memory_bytes=None)).hello(DOCKER)
    assert {"SIGPENDING", "STACK"}.isdisjoint(gvisor["limits"])


@pytest.mark.parametrize("told", [{"SecurityOptions": ["name=rootless"]}, {"SecurityOptions": [], "Rootless": True}])
def test_an_engine_of_a_plain_user_is_known_as_docker_and_podman_say_it(told: dict[str, object]) -> None:
    """Seen: Podman 4.3 of a plain user was taken for root's."""
    client = Mock()
    client.version.return_value, client.info.return_value = {"Version": "4.3"}, told
    assert _info(client).rootless
    client.info.return_value = {"SecurityOptions": ["name=seccomp,profile=default"], "Rootless": False}
    assert not _info(client).rootless


def test_a_network_and_a_runtime_are_choices() -> None:
    made = settings(policy=SandboxPolicy(network=Network.host()), runtime="runsc", network="agents", cpus=None)
    assert made["network_mode"] == "agents"
    assert made["runtime"] == "runsc"
    assert "nano_cpus" not in made


@pytest.mark.parametrize("info", [DOCKER, replace(DOCKER, default_runtime="runsc-kvm")])
def test_gvisors_own_threads_do_not_use_up_a_runs_processes(info: EngineInfo) -> None:
    """Seen: it has some 50 threads on the host and 8 more for each process; at ``pids=48`` every run was ended."""
    plan = Plan("sha256:1", ContainerOptions(runtime="runsc" if info is DOCKER else None), SandboxPolicy(pids=48))
    assert plan.settings(info, "program", {})["pids_limit"] > 50 + 8 * 48
    assert plan.hello(info)["tasks"] == 48
    assert plan.report_of(info)["pids"].endswith("supervisor, cgroup")
    assert Plan("sha256:1", ContainerOptions(runtime="runc"), SandboxPolicy(pids=48)).hello(info)["tasks"] is None


@pytest.mark.slow
async def test_gvisor_runs_a_script_with_few_processes_and_ends_one_that_has_more() -> None:
    engine = container_engines.require("gvisor")
    box = ContainerSandbox(engine.image, base_url=engine.url, options=ContainerOptions(runtime="runsc"))
    policy = SandboxPolicy(pids=16, wall_seconds=20.0)
    many = "import os, time\nfor _ in range(40):\n    if not os.fork(): time.sleep(15); os._exit(0)\ntime.sleep(15)"
    try:
        fine = await box.run(ExecutionRequest(("python3", "-c", "print('there')"), policy))
        ended = await box.run(ExecutionRequest(("python3", "-c", many), policy))
    finally:
        await box.close()
    assert (fine.status, fine.stdout) == ("ok", b"there\n")
    assert any("more processes and threads than pids, 16" in note for note in ended.notes)
    assert not ended.timed_out


@pytest.mark.parametrize("options", [{"cpus": 0}, {"user": "nobody"}, {"python": ""}, {"cpus": float("nan")}])
def test_impossible_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"\.$"):
        ContainerOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("info", [DOCKER, PODMAN])
def test_row_182_a_container_that_another_runtime_would_run_is_refused(info: EngineInfo) -> None:
    """Seen: Podman took ``runsc`` and ran the script on the host's kernel, and the report said gVisor."""
    client = Mock()
    client.api.base_url = "http://engine"
    client.api.inspect_container.return_value = {"HostConfig": {"Runtime": "runc"}}
    client.api.get.return_value.json.return_value = {"OCIRuntime": "runc"}
    check_runtime(client, info, "one", "runc")
    with pytest.raises(SandboxUnavailable, match="'runc' and not with 'runsc'"):
        check_runtime(client, info, "one", "runsc")


@pytest.mark.slow
async def test_row_182_podman_does_not_run_a_script_in_another_runtime_than_the_one_asked_for() -> None:
    engine = container_engines.require("podman")
    box = ContainerSandbox(engine.image, base_url=engine.url, options=ContainerOptions(runtime="runsc"))
    request = ExecutionRequest(("python3", "-c", "import os; print(os.uname().release)"), SandboxPolicy())
    try:
        result = await box.run(request)
    except SandboxUnavailable:
        return
    finally:
        await box.close()
    assert result.stdout.decode().strip() != os.uname().release
