"""ContainerCodeExecutor next to google-adk's class of that name, on the same engine (GOOGLE_ADK rows 16, 17)."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.executors import CodeExecutionInput, ContainerCodeExecutor, SessionLimits
from adk_skills_agent.sandbox.container import ContainerSandbox
from container_engines import StartedEngine, owned

pytestmark = pytest.mark.slow

CONTEXT: Any = SimpleNamespace(session=SimpleNamespace(id="session"), app_name="app", user_id="user")
OTHER: Any = SimpleNamespace(session=SimpleNamespace(id="other"), app_name="app", user_id="user")


@pytest.fixture
def google(docker_engine: StartedEngine) -> Iterator[Any]:
    from google.adk.code_executors.container_code_executor import ContainerCodeExecutor as Google

    executor = Google(base_url=docker_engine.url, image=docker_engine.image)
    yield executor
    executor.close()
    executor._client.close()


@pytest.fixture
def ours(engine: StartedEngine) -> Iterator[ContainerCodeExecutor]:
    with ContainerCodeExecutor(base_url=engine.url, image=engine.image) as executor:
        yield executor
    assert owned(engine) == []


@pytest.fixture
def stateful(engine: StartedEngine) -> Iterator[ContainerCodeExecutor]:
    with ContainerCodeExecutor(
        base_url=engine.url, image=engine.image, stateful=True, session_limits=SessionLimits(sessions=4)
    ) as executor:
        yield executor
    assert owned(engine) == []


def run(executor: Any, code: str, context: Any = CONTEXT, **settings: Any) -> Any:
    return executor.execute_code(context, CodeExecutionInput(code=code, **settings))


LONG = f"# {'x' * 150_000}\nprint('arrived')"


def test_row_16_a_program_of_any_length_arrives(ours: ContainerCodeExecutor) -> None:
    result = run(ours, LONG)
    assert (result.stdout, result.stderr) == ("arrived\n", "")


def test_row_16_in_google_adk_a_long_program_does_not_start(google: Any) -> None:
    result = run(google, LONG)
    assert "arrived" not in result.stdout
    assert "argument list too long" in result.stdout + result.stderr


def test_row_17_nothing_of_one_execution_is_there_in_the_next(ours: ContainerCodeExecutor) -> None:
    run(ours, "open('/tmp/left', 'w').write('secret'); open('left', 'w').write('secret')")
    result = run(ours, "import os; print(os.path.exists('/tmp/left'), os.listdir('.'))", OTHER)
    assert result.stdout == "False []\n"


def test_row_17_in_google_adk_all_sessions_share_one_container(google: Any) -> None:
    run(google, "open('/tmp/left', 'w').write('secret')")
    assert run(google, "print(open('/tmp/left').read())", OTHER).stdout == "secret\n"


@pytest.mark.requirement("S0-77", "S1-5")
def test_row_17_the_timeout_of_a_call_holds(ours: ContainerCodeExecutor) -> None:
    result = run(ours, "import time; print('begun', flush=True); time.sleep(60)", timeout_seconds=1.0)
    assert result.stdout in {"", "begun\n"}
    assert "timed out after 1 s" in result.stderr
    assert result.execution.timed_out


def test_exit_124_is_an_exit_code(ours: ContainerCodeExecutor, google: Any) -> None:
    assert not run(ours, "raise SystemExit(124)").execution.timed_out
    assert "timed out" in run(google, "raise SystemExit(124)").stderr


def test_it_is_hardened_where_google_adks_is_not(ours: ContainerCodeExecutor, google: Any) -> None:
    code = (
        "import os\n"
        "def may(path):\n"
        "    try:\n"
        "        open(path, 'w').close()\n"
        "        return True\n"
        "    except OSError:\n"
        "        return False\n"
        "print(os.getuid(), may('/usr/x'), may('/etc/x'), may('x'))"
    )
    assert run(ours, code).stdout == "65534 False False True\n"
    limits = google._client.api.inspect_container(google._container.id)["HostConfig"]
    assert (limits["Memory"], limits["PidsLimit"], limits["ReadonlyRootfs"]) == (0, None, False)


@pytest.mark.requirement("S0-104")
def test_libraries_of_the_image_are_there(ours: ContainerCodeExecutor) -> None:
    """S0-104."""
    code = "import pandas, numpy, matplotlib, openpyxl, pypdf, shutil; print(shutil.which('bash'), shutil.which('uv'))"
    result = run(ours, code, timeout_seconds=120)
    assert "None" not in result.stdout, result
    assert result.stderr == ""


def test_running_out_of_memory_is_told_from_a_kill(engine: StartedEngine) -> None:
    with ContainerCodeExecutor(base_url=engine.url, image=engine.image, max_memory_mb=64) as executor:
        shared = "import mmap\nm = mmap.mmap(-1, 400 << 20)\nfor at in range(0, len(m), 4096): m[at] = 1"
        full = run(executor, shared)
        assert full.execution.oom_killed, full
        assert "out of memory" in full.stderr
        refused = run(executor, "x = bytearray(400 << 20)")  # one process for itself is told when it asks
        assert "MemoryError" in refused.stderr
        assert not refused.execution.oom_killed
        killed = run(executor, "import os; os.kill(os.getpid(), 9)")
        assert not killed.execution.oom_killed
        assert killed.execution.signal == 9


def test_output_files_of_megabytes_and_inputs_come_and_go(ours: ContainerCodeExecutor) -> None:
    from adk_skills_agent.executors import File

    data = bytes(range(256)) * (12 << 10)
    result = run(
        ours,
        "data = open('in.bin', 'rb').read(); open('out.bin', 'wb').write(data[::-1])",
        input_files=[File(name="in.bin", content=data, mime_type="application/octet-stream")],
    )
    assert [(file.name, file.content) for file in result.output_files] == [("out.bin", data[::-1])]


@pytest.mark.requirement("S0-109", "S0-110", "S0-112", "S0-113")
def test_state_lasts_is_each_sessions_own_and_is_never_replayed(stateful: ContainerCodeExecutor) -> None:
    """Neither after a failure nor after a crash."""
    run(stateful, "import os\nx = 41\nos.environ['A'] = 'b'\nopen('kept', 'w').write('k')\nprint('once')")
    assert run(stateful, "x += 1\nprint(x, os.environ['A'], open('kept').read())").stdout == "42 b k\n"
    assert "NameError" in run(stateful, "print(x)", OTHER).stderr
    failed = run(stateful, "x = 'poisoned'\n1 / 0")
    assert "ZeroDivisionError" in failed.stderr
    assert run(stateful, "print(x)").stdout == "42\n"
    crashed = run(stateful, "import os; os._exit(7)")
    assert "lost" in crashed.stderr
    after = run(stateful, "print('x' in globals())")
    assert after.execution.session_reset
    assert after.stdout.endswith("False\n")
    assert "once" not in after.stdout


@pytest.mark.requirement("S0-114")
def test_a_state_can_be_reset(stateful: ContainerCodeExecutor) -> None:
    """S0-114."""
    run(stateful, "x = 1")
    stateful.reset_state()
    assert "NameError" in run(stateful, "print(x)").stderr


@pytest.mark.requirement("S0-81")
def test_it_can_begin_anew(ours: ContainerCodeExecutor) -> None:
    """S0-81."""
    assert ours.healthy
    run(ours, "pass")
    ours.reinitialize()
    assert run(ours, "print('again')").stdout == "again\n"


@pytest.mark.requirement("S0-99")
def test_nothing_is_asked_of_an_engine_before_the_first_execution() -> None:
    executor = ContainerCodeExecutor(base_url="unix:///nowhere/engine.sock")
    assert executor.healthy
    with pytest.raises(ConfigError, match="ContainerSandbox"):
        ContainerCodeExecutor(image="x", sandbox=ContainerSandbox())
