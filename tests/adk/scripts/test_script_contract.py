"""One contract for ``run_skill_script``, whatever runs the script: our sandbox, executors, environments (part M)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.code_executors import UnsafeLocalCodeExecutor as GoogleExecutor
from tool_calls import agent_with, many_calls

from adk_skills_agent.adk.options import SkillLimits
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.executors import LocalSandboxCodeExecutor, RemoteCodeExecutor, UnsafeLocalCodeExecutor
from remote_services import ElsewhereEnvironment, ElsewhereExecutor

FILES: dict[str, str | bytes] = {
    "scripts/args.py": "import sys\nprint(sys.argv[1:])\n",
    "scripts/args.sh": 'printf "%s|" "$@"\n',
    "scripts/exit.py": "import sys\nprint('before')\nsys.exit(4)\n",
    "scripts/exit.sh": "echo before\nexit 4\n",
    "scripts/boom.py": "print('before')\nraise ValueError('bad value')\n",
    "scripts/warn.py": "import sys\nprint('careful', file=sys.stderr)\n",
    "scripts/warn.sh": "echo careful >&2\n",
    "scripts/left.py": "with open('report.csv', 'w') as file:\n    file.write('a,b')\n",
    "scripts/said.py": "import sys\nprint('done')\nsys.exit('no input')\n",
    "scripts/slow.py": "import time\nprint('started', flush=True)\ntime.sleep(12)\n",
    "scripts/slow.sh": "echo started\nsleep 60\necho never\n",
}
BACKENDS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "our sandbox": lambda _: {"policy": "trusted"},
    "google-adk's local executor": lambda _: {"code_executor": GoogleExecutor()},
    "our unsafe executor": lambda _: {"code_executor": UnsafeLocalCodeExecutor()},
    "in this process": lambda _: {"code_executor": UnsafeLocalCodeExecutor(in_process=True)},
    "a session": lambda _: {"code_executor": LocalSandboxCodeExecutor(stateful=True)},
    "remote": lambda _: {"code_executor": RemoteCodeExecutor(ElsewhereExecutor(honours_timeout=True))},
    "one that says no exit code": lambda _: {"code_executor": ElsewhereExecutor(says_exit_code=False)},
    "an environment": lambda folder: {"environment": ElsewhereEnvironment(folder / "elsewhere")},
}
pytestmark = pytest.mark.filterwarnings("ignore:(in_process|UnsafeLocal)")


def each(*, usually: set[str]) -> list[Any]:
    """The backends; the others than these are for `make test-slow`."""
    return [name if name in usually else pytest.param(name, marks=pytest.mark.slow) for name in BACKENDS]


EACH = each(usually={"our sandbox", "a session", "an environment"})
WAITING = each(usually={"our sandbox", "a session", "an environment"})
"""For tests that wait for seconds."""


@pytest.fixture
def tools(make_skill: Callable[..., Path]) -> Path:
    return make_skill("tools", files=FILES).parent


async def answers(ask: Any, rehearse: Any, toolset: SkillToolset, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    results = await asked(ask, rehearse, toolset, *calls)
    await toolset.close()
    close = getattr(toolset.runtime.code_executor, "close", None)
    if callable(close):
        close()
    return results


async def asked(ask: Any, rehearse: Any, toolset: SkillToolset, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    conversation = [("run_skill_script", {"skill_name": "tools", "file_path": path, **more}) for path, more in calls]
    answered = await ask(agent_with(rehearse(many_calls(*conversation)), toolset), "go")
    return [result for _, result in answered.results]


@pytest.mark.parametrize("backend", EACH)
@pytest.mark.requirement("S0-35", "S0-39", "S0-40", "S0-41", "S0-42")
async def test_arguments_follow_one_set_of_rules(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, backend: str
) -> None:
    """S0-35, S0-39 to S0-42."""
    toolset = SkillToolset.from_dirs([tools], **BACKENDS[backend](tmp_path))
    options = {"v": True, "q": False, "n": None, "l": [1, 2], "name": "a b"}
    given, shell, text, nested = await answers(
        ask,
        rehearse,
        toolset,
        ("args.py", {"args": options, "positional_args": ["x"]}),
        ("args.sh", {"args": options}),
        ("args.py", {"args": "--name 'John Doe' x"}),
        ("args.py", {"args": {"o": {"x": 1}}}),
    )
    assert given["stdout"] == "['--v', '--l', '1', '--l', '2', '--name', 'a b', 'x']\n", given
    assert shell["stdout"] == "--v|--l|1|--l|2|--name|a b|"
    assert text["stdout"] == "['--name', 'John Doe', 'x']\n"
    assert nested["error_code"] == "INVALID_ARGUMENTS"


@pytest.mark.requirement("S0-41")
async def test_google_adks_spelling_of_arguments_is_a_switch(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-41."""
    call = ("args.py", {"args": {"v": True, "l": [1, 2]}, "positional_args": ["x"]})
    text = ("args.py", {"args": "a b"})
    for more in ({"policy": "trusted"}, {"code_executor": GoogleExecutor()}):
        toolset = SkillToolset.from_dirs([tools], argument_style="google-adk", **more)
        result, refused = await answers(ask, rehearse, toolset, call, text)
        assert result["stdout"] == "['--v', 'True', '--l', '[1, 2]', '--', 'x']\n"
        assert refused["error_code"] == "INVALID_ARGUMENTS"


@pytest.mark.parametrize("backend", EACH)
@pytest.mark.requirement("S0-34", "S0-58", "S0-59", "S0-62", "S0-69")
async def test_a_script_that_fails_is_told_with_its_code(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, backend: str
) -> None:
    """S0-34, S0-58, S0-59, S0-62, S0-69."""
    toolset = SkillToolset.from_dirs([tools], **BACKENDS[backend](tmp_path))
    calls = [("exit.py", {}), ("exit.sh", {}), ("boom.py", {}), ("said.py", {})]
    left, shell, raised, said = await answers(ask, rehearse, toolset, *calls)
    for result in (left, shell):
        assert (result["status"], result["reason"], result["return_code"]) == ("error", "exit_code", 4), result
        assert (result["error_code"], result["timed_out"]) == ("EXECUTION_ERROR", False)
        assert "exited with status 4" in result["error"]
        assert result["stdout"].startswith("before\n")
    assert (raised["return_code"], raised["error_code"]) == (1, "EXECUTION_ERROR")
    assert "ValueError: bad value (at scripts/boom.py, line 2" in raised["error"].replace("/skill/", "")
    assert (said["return_code"], said["stdout"]) == (1, "done\n")
    assert "no input" in said["error"]
    if backend != "an environment":  # there the skill lies in the environment's own folder
        told = str([left, shell, raised, said])
        assert "runpy" not in told
        assert "/tmp/" not in told


@pytest.mark.parametrize("backend", EACH)
@pytest.mark.requirement("S0-61", "S0-66")
async def test_error_output_alone_is_a_warning_and_files_are_listed(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, backend: str
) -> None:
    """S0-61, S0-66."""
    toolset = SkillToolset.from_dirs([tools], **BACKENDS[backend](tmp_path))
    python, shell, left = await answers(ask, rehearse, toolset, ("warn.py", {}), ("warn.sh", {}), ("left.py", {}))
    for result in (python, shell):
        assert (result["status"], result["stdout"], result["stderr"]) == ("warning", "", "careful\n"), result
        assert result["return_code"] == 0
    assert left["status"] == "success"
    if backend != "an environment":  # it has no way to say which files are new
        file = left["output_files"][0]
        assert (file["name"], file["mime_type"], file["size"]) == ("report.csv", "text/csv", 3)


@pytest.mark.parametrize("backend", WAITING)
@pytest.mark.requirement("S0-57", "S0-62", "S0-65", "S0-84", "S0-85", "S1-6")
async def test_a_script_that_takes_too_long_is_answered_at_its_time(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, backend: str
) -> None:
    """S0-57, S0-62, S0-65, S0-84, S0-85, S1-6."""
    toolset = SkillToolset.from_dirs([tools], script_timeout=3, **BACKENDS[backend](tmp_path))
    shell, python = await answers(ask, rehearse, toolset, ("slow.sh", {}), ("slow.py", {}))
    for result in (shell, python):
        assert (result["status"], result["reason"], result["return_code"]) == ("error", "timeout", -1), result
        assert (result["timed_out"], result["error_code"]) == (True, "EXECUTION_ERROR")
        assert "Timed out after 3s" in result["stderr"]
        assert "runpy" not in str(result)
    # A service that is asked for the result of what it has killed tells nothing; a shell script has its own end.
    if backend != "an environment":
        assert shell["stdout"] == "started\n"
    if backend not in {"an environment", "remote"}:
        assert python["stdout"] == "started\n"


@pytest.mark.requirement("S0-74", "S1-6")
async def test_an_executors_own_shorter_time_does_not_beat_the_toolsets(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-74, S1-6: seen, an executor's 1 s ended a script that had 6."""
    (tools / "tools" / "scripts" / "two.py").write_text("import time\ntime.sleep(2)\nprint('done')\n")
    executor = GoogleExecutor(timeout_seconds=1)
    toolset = SkillToolset.from_dirs([tools], code_executor=executor, script_timeout=20)
    (result,) = await answers(ask, rehearse, toolset, ("two.py", {}))
    assert (result.get("reason"), result["return_code"], result["stdout"]) == (None, 0, "done\n"), result
    assert executor.timeout_seconds == 1
    # Where the toolset has none, the executor's holds.
    (result,) = await answers(ask, rehearse, SkillToolset.from_dirs([tools], code_executor=executor), ("slow.py", {}))
    assert (result["timed_out"], "1s" in result["error"]) == (True, True)


class Lazy(ElsewhereExecutor):
    """Makes something at its first call and keeps it, as AgentEngineSandboxCodeExecutor does."""

    resource: str | None = None

    def execute_code(self, invocation_context: Any, code_execution_input: Any) -> Any:
        self.resource = f"{self.resource or ''}made "
        return super().execute_code(invocation_context, code_execution_input)


async def test_what_an_executor_keeps_in_itself_is_kept(tools: Path, rehearse: Any, ask: Any) -> None:
    executor = Lazy()
    toolset = SkillToolset.from_dirs([tools], code_executor=executor, script_timeout=20)
    await answers(ask, rehearse, toolset, ("left.py", {}), ("left.py", {}))
    assert executor.resource == "made made "
    assert executor.timeout_seconds is None


@pytest.mark.requirement("S0-84")
async def test_a_script_that_cannot_be_stopped_is_said_to_go_on(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-84: in this process nothing can end a Python script, and the answer says so."""
    executor = UnsafeLocalCodeExecutor(in_process=True)
    (tools / "tools" / "scripts" / "nap.py").write_text("import time\ntime.sleep(3)\n")
    toolset = SkillToolset.from_dirs([tools], code_executor=executor, script_timeout=1)
    (result,) = await answers(ask, rehearse, toolset, ("nap.py", {}))
    assert result["timed_out"] is True
    assert "goes on in a thread of the agent" in str(result["notes"])


@pytest.mark.requirement("S0-20", "S0-21")
async def test_the_threshold_of_short_errors_is_the_owners(tools: Path, rehearse: Any, ask: Any) -> None:
    """S0-20, S0-21."""
    (tools / "tools" / "scripts" / "long.py").write_text(f"raise ValueError({'x' * 600!r})\n")
    for more in ({"policy": "trusted"}, {"code_executor": GoogleExecutor()}):
        lengths = []
        for limits in (SkillLimits(), SkillLimits(error_chars=500), SkillLimits(error_chars=None)):
            toolset = SkillToolset.from_dirs([tools], limits=limits, **more)
            (result,) = await answers(ask, rehearse, toolset, ("long.py", {}))
            lengths.append(result["error"].count("x"))
        assert lengths[0] < 210
        assert 400 < lengths[1] <= 510
        assert lengths[2] >= 600


STREAMS = {
    "close.py": "import sys\nprint('one')\nsys.stdout.close()\nsys.stderr.close()\nsys.exit(3)\n",
    "none.py": "import sys\nprint('one')\nsys.stdout = sys.stderr = None\nsys.exit(3)\n",
    "detach.py": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\nprint('one')\nsys.exit(3)\n",
    "rewrap.py": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint('one')\n"
    "sys.exit(3)\n",
    "bytes.py": "import sys\nsys.stdout.buffer.write(b'one\\n')\nsys.stderr.buffer.write(b'two\\n')\n",
}


@pytest.mark.parametrize("backend", EACH)
@pytest.mark.requirement("S0-58", "S0-61", "S0-69")
async def test_a_script_that_closes_or_replaces_its_streams_keeps_its_answer(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, backend: str
) -> None:
    """Seen: in the agent's process ``sys.stdout.close()`` closed the agent's own, for everything that came after."""
    for name, text in STREAMS.items():
        (tools / "tools" / "scripts" / name).write_text(text)
    toolset = SkillToolset.from_dirs([tools], **BACKENDS[backend](tmp_path))
    calls = [(name, {}) for name in (*STREAMS, "args.py")]
    *ended, wrote, after = await answers(ask, rehearse, toolset, *calls)
    for (name, _), result in zip(calls, ended, strict=False):
        # Python itself adds its own status, 120, when it ends and finds its stream detached.
        codes = {3, 120} if name == "detach.py" else {3}
        assert (result["status"], result["stdout"], result["return_code"] in codes) == ("error", "one\n", True), result
    assert (wrote["status"], wrote["stdout"], wrote["stderr"]) == ("warning", "one\n", "two\n"), wrote
    assert after["stdout"] == "[]\n", str(after)
    assert not sys.stdout.closed
    assert not sys.stderr.closed


LANGUAGES = {
    "shell.py": '#!/bin/bash\nprintf "%s|" bash "$@"\n',
    "python.sh": "#!/usr/bin/env python3\nimport sys\nprint('|'.join(['bash', *sys.argv[1:]]), end='|')\n",
    "noext": '#!/bin/sh\nprintf "%s|" bash "$@"\n',
    "perl.py": '#!/usr/bin/env -S perl -w\nprint join("|", "bash", @ARGV), "|"\n',
    "text.txt": '#!/usr/bin/perl\nprint join("|", "bash", @ARGV), "|"\n',
    "absent.py": "#!/usr/bin/env no-such-program\nimport sys\nprint('|'.join(['bash', *sys.argv[1:]]), end='|')\n",
    "fetched.py": "#!/usr/bin/env -S uv run --script\nimport sys\nprint('|'.join(['bash', *sys.argv[1:]]), end='|')\n",
}


@pytest.mark.parametrize("backend", EACH)
@pytest.mark.requirement("S0-5", "S0-6", "S0-8")
async def test_the_first_line_decides_before_the_suffix(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, backend: str
) -> None:
    """S0-5, S0-6, S0-8; a program that is not there leaves it to the suffix."""
    for name, text in LANGUAGES.items():
        (tools / "tools" / "scripts" / name).write_text(text)
    toolset = SkillToolset.from_dirs([tools], **BACKENDS[backend](tmp_path))
    results = await answers(ask, rehearse, toolset, *((name, {"args": ["a b", "$x"]}) for name in LANGUAGES))
    for name, result in zip(LANGUAGES, results, strict=True):
        assert (result["status"], result.get("stdout")) == ("success", "bash|a b|$x|"), (name, result)


@pytest.mark.parametrize("backend", EACH)
@pytest.mark.requirement("S0-7")
async def test_the_owners_interpreters_hold_everywhere(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, backend: str
) -> None:
    """S0-7; with arguments of their own, and over the suffix that is built in."""
    (tools / "tools" / "scripts" / "a.list").write_text('set -- "$@"; printf "%s|" "$-" "$@"\n')
    toolset = SkillToolset.from_dirs([tools], interpreters={".list": ["bash", "-eu"]}, **BACKENDS[backend](tmp_path))
    (result,) = await answers(ask, rehearse, toolset, ("a.list", {"args": ["x"]}))
    flags, *words = result["stdout"].split("|")
    assert ({"e", "u"} <= set(flags), words) == (True, ["x", ""]), result


@pytest.mark.parametrize("backend", EACH)
@pytest.mark.requirement("S0-69")
async def test_an_interrupt_and_an_odd_exception_are_what_python_makes_of_them(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, backend: str
) -> None:
    """S0-69: Python ends by SIGINT after a KeyboardInterrupt, and with 1 after any other exception."""
    (tools / "tools" / "scripts" / "interrupt.py").write_text("print('before')\nraise KeyboardInterrupt\n")
    (tools / "tools" / "scripts" / "odd.py").write_text("print('before')\nraise BaseException('odd')\n")
    toolset = SkillToolset.from_dirs([tools], **BACKENDS[backend](tmp_path))
    interrupted, odd = await answers(ask, rehearse, toolset, ("interrupt.py", {}), ("odd.py", {}))
    told = (interrupted["reason"], interrupted["return_code"], interrupted["stdout"])
    # An environment tells what its shell does.
    assert told == (("exit_code", 130, "before\n") if backend == "an environment" else ("signal", -2, "before\n"))
    assert "KeyboardInterrupt (at scripts/interrupt.py, line 2" in interrupted["error"].replace("/skill/", "")
    assert (odd["reason"], odd["return_code"], odd["stdout"]) == ("exit_code", 1, "before\n"), odd
    assert "BaseException: odd (at scripts/odd.py, line 2" in odd["error"].replace("/skill/", "")


UNCONTAINED = [
    "our unsafe executor",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("google-adk's local executor", "remote", "one that says no exit code")
    ),
]
"""Where a child can write outside of the sandbox; in one it ends with it (``tests/sandbox/conformance``)."""
CHILDREN = {
    "child.py": "import subprocess, sys\nprint('started', flush=True)\n"
    "subprocess.Popen([sys.executable, '-c', sys.argv[1]], start_new_session=True).wait()\n",
    "child.sh": 'echo started\nsetsid "$1" -c "$2" &\nwait\n',
}


@pytest.mark.parametrize("backend", UNCONTAINED)
@pytest.mark.requirement("S0-84", "S0-85")
async def test_what_a_script_has_started_ends_with_its_time(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, backend: str
) -> None:
    """S0-84, S0-85: also a child that left the script's process group."""
    for name, text in CHILDREN.items():
        (tools / "tools" / "scripts" / name).write_text(text)
    alive = tmp_path / "alive"
    alive.mkdir()
    beat = f"import time\nwhile True:\n    open('{alive}/beat', 'a').write('.')\n    time.sleep(0.02)"
    toolset = SkillToolset.from_dirs([tools], script_timeout=4, **BACKENDS[backend](tmp_path))
    python, shell = await answers(
        ask,
        rehearse,
        toolset,
        ("child.py", {"args": [beat]}),
        ("child.sh", {"args": [os.path.realpath(sys.executable), beat]}),
    )
    for result in (python, shell):
        assert (result.get("reason"), result.get("timed_out")) == ("timeout", True), str(result)
    size = (alive / "beat").stat().st_size
    assert size > 0
    await asyncio.sleep(0.3)
    assert (alive / "beat").stat().st_size == size


@pytest.mark.parametrize("backend", WAITING)
@pytest.mark.requirement("S0-74", "S1-6")
async def test_calls_at_the_same_time_have_each_their_own_time(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, backend: str
) -> None:
    """S0-74, S1-6: one executor, two toolsets; the longer call ends by itself, whichever began first."""
    (tools / "tools" / "scripts" / "nap.sh").write_text("echo started\nsleep 2.5\necho done\n")
    more = BACKENDS[backend](tmp_path)
    short = SkillToolset.from_dirs([tools], script_timeout=1, **more)
    long = SkillToolset.from_dirs([tools], script_timeout=30, **more)
    (late,), (done,) = await asyncio.gather(
        asked(ask, rehearse, short, ("nap.sh", {})), asked(ask, rehearse, long, ("nap.sh", {}))
    )
    await answers(ask, rehearse, short)
    await long.close()
    assert (late["reason"], late["return_code"]) == ("timeout", -1), late
    assert (done["status"], done["stdout"]) == ("success", "started\ndone\n"), done


@pytest.mark.parametrize("backend", EACH)
async def test_a_script_finds_its_skill_by_the_variables_and_paths_that_instructions_name(
    tools: Path, tmp_path: Path, rehearse: Any, ask: Any, backend: str
) -> None:
    """What the instructions show as the skill's folder works as an argument, wherever the script runs."""
    (tools / "tools" / "scripts" / "find.py").write_text(
        "import os, pathlib, sys\n"
        "names = ('SKILL_DIR', 'CLAUDE_SKILL_DIR', 'CLAUDE_PLUGIN_ROOT')\n"
        "print([pathlib.Path(os.environ[name], 'assets/a.txt').read_text() for name in names])\n"
        "print([pathlib.Path(word).read_text() for word in sys.argv[1:]])\n"
    )
    (tools / "tools" / "scripts" / "find.sh").write_text('cat "$CLAUDE_SKILL_DIR/assets/a.txt" "$1"\n')
    (tools / "tools" / "assets").mkdir()
    (tools / "tools" / "assets" / "a.txt").write_text("here")
    before = os.environ.get("SKILL_DIR")
    toolset = SkillToolset.from_dirs([tools], **BACKENDS[backend](tmp_path))
    words = ["/skill/assets/a.txt", "/skill/scripts/../assets/a.txt"]
    python, shell = await answers(
        ask, rehearse, toolset, ("find.py", {"args": words}), ("find.sh", {"args": words[:1]})
    )
    assert python["stdout"] == "['here', 'here', 'here']\n['here', 'here']\n", str(python)
    assert shell["stdout"] == "herehere", str(shell)
    assert os.environ.get("SKILL_DIR") == before
