"""The same script with google-adk's toolset and with ours: rows 2, 4, 6 to 8, 10, 11, 15, 23 of GOOGLE_ADK.md.

google-adk's runs it with its own local executor, ours in the sandbox of ``from_dirs``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.code_executors import UnsafeLocalCodeExecutor as GoogleExecutor
from google.adk.skills import load_skill_from_dir
from google.adk.tools import skill_toolset as theirs
from tool_calls import agent_with, one_call

from adk_skills_agent import SkillToolset

FILES: dict[str, str | bytes] = {
    "scripts/three.py": "import sys; print('out'); sys.exit(3)",
    "scripts/warn.py": "import sys; print('out'); print('careful', file=sys.stderr)",
    "scripts/only.sh": "echo careful >&2\n",
    "scripts/argv.py": "import sys; print(sys.argv[1:])",
    "scripts/tool.pl": "#!/bin/sh\necho ran\n",
    "scripts/tool": "#!/bin/sh\necho ran\n",
    "scripts/latin.py": "# -*- coding: latin-1 -*-\nprint('gr\xfc\xdfe')\n".encode("latin-1"),
    "scripts/env.py": "import os; print(dict(os.environ))",
    "scripts/beside.py": "import os; print(sorted(os.listdir('.')))",
    "scripts/flood.py": "print('x' * 5_000_000)",
    "templates/letter.txt": "Dear",
    "forms.md": "a form",
}

Both = Callable[..., Awaitable[tuple[dict[str, Any], dict[str, Any]]]]


@pytest.fixture
def skill(make_skill: Callable[..., Path]) -> Path:
    folder = make_skill("tools", files=FILES)
    (folder / "scripts" / "tool").chmod(0o755)
    return folder


@pytest.fixture
def both(skill: Path, rehearse: Any, ask: Any) -> Both:
    """Run a script on both sides: ``google, ours = await both("three.py", args=...)``."""

    async def run(script: str, *, settings: dict[str, Any] | None = None, **args: Any) -> Any:
        answers = []
        executor = GoogleExecutor(timeout_seconds=20)
        for toolset in (
            theirs.SkillToolset([load_skill_from_dir(skill)], code_executor=executor),
            SkillToolset.from_dirs([skill.parent], **(settings or {})),
        ):
            server = rehearse(one_call("run_skill_script", skill_name="tools", file_path=f"scripts/{script}", **args))
            answered = await ask(agent_with(server, toolset), "go")
            answers.append(answered.results[0][1])
        return tuple(answers)

    return run


@pytest.mark.behaviour("better", "The exit code of a script", google="only in a sentence", ours="`return_code`")
async def test_row_7_the_exit_code_is_a_number(both: Both) -> None:
    google, ours = await both("three.py")
    assert (google["status"], google["stdout"], 3 in google.values()) == ("error", "out\n", False)
    assert (ours["status"], ours["stdout"], ours["return_code"]) == ("error", "out\n", 3)


@pytest.mark.behaviour(
    "better", "stderr of a Python script that worked", google="dropped", ours="kept, `status` is `warning`", readme=15
)
async def test_rows_8_and_e6_stderr_is_kept(both: Both) -> None:
    google, ours = await both("warn.py")
    assert (google["status"], google["stderr"]) == ("success", "")
    assert (ours["status"], ours["stderr"]) == ("warning", "careful\n")


@pytest.mark.behaviour(
    "better", "A shell script that only writes to stderr and succeeds", google="an error", ours="a warning"
)
async def test_row_8_a_shell_script_that_only_warns_is_no_error(both: Both) -> None:
    google, ours = await both("only.sh")
    assert google["status"] == "error"
    assert (ours["status"], ours["return_code"], ours["stderr"]) == ("warning", 0, "careful\n")


@pytest.mark.behaviour(
    "better",
    "Arguments `true`, `null` and lists",
    google="`--verbose True`, `None`, `['a', 'b']` as text",
    ours="a flag, nothing, the option once for each",
)
async def test_row_e7_arguments_are_passed_as_they_are_meant(both: Both) -> None:
    google, ours = await both("argv.py", args={"verbose": True, "quiet": False, "n": None, "items": ["a", "b"]})
    assert "'--verbose', 'True'" in google["stdout"]
    assert "'None'" in google["stdout"]
    assert ours["stdout"] == "['--verbose', '--items', 'a', '--items', 'b']\n"


@pytest.mark.behaviour(
    "better",
    "Scripts in other languages, or without an extension",
    google="refused",
    ours="run by their shebang line, the executable bit kept, or with `interpreters=`",
    readme=12,
)
async def test_rows_10_and_15_other_languages_run(both: Both) -> None:
    google, ours = await both("tool")
    assert google["error_code"] == "UNSUPPORTED_SCRIPT_TYPE"
    assert ours.get("stdout") == "ran\n", ours
    google, ours = await both("tool.pl", settings={"interpreters": {".pl": ["sh"]}})
    assert google["error_code"] == "UNSUPPORTED_SCRIPT_TYPE"
    assert ours["stdout"] == "ran\n"


@pytest.mark.behaviour("better", "A Python script in Latin-1", google="not found", ours="runs")
async def test_row_11_a_script_in_another_encoding_is_there(both: Both) -> None:
    google, ours = await both("latin.py")
    assert google["error_code"] == "SCRIPT_NOT_FOUND"
    assert ours["stdout"] == "grüße\n"


@pytest.mark.behaviour(
    "better",
    "Secrets in the agent's environment",
    google="every script reads them",
    ours="no script sees them",
    readme=17,
)
async def test_rows_2_and_e5_a_script_does_not_see_the_agents_secrets(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "hunter2")
    google, ours = await both("env.py")
    assert "hunter2" in google["stdout"]
    assert ours["return_code"] == 0
    assert "hunter2" not in str(ours)


@pytest.mark.behaviour(
    "better",
    "Files of the host",
    google="a script reads and writes all the agent can",
    ours="neither read nor written",
    readme=18,
)
async def test_row_4_a_script_does_not_reach_the_hosts_files(both: Both, skill: Path, tmp_path: Path) -> None:
    (tmp_path / "id_rsa").write_text("canary")
    (skill / "scripts" / "steal.py").write_text(
        f"print(open({str(tmp_path / 'id_rsa')!r}).read())\nopen({str(tmp_path / 'left')!r}, 'w').close()\n"
    )
    google, ours = await both("steal.py")
    assert google["stdout"] == "canary\n"
    assert (tmp_path / "left").exists()
    assert (ours["status"], ours["reason"]) == ("error", "exit_code")
    assert "canary" not in str(ours)


@pytest.mark.behaviour(
    "better",
    "What a script sees beside it",
    google="`references`, `assets` and `scripts`",
    ours="every file of its skill",
    readme=11,
)
async def test_rows_23_and_e11_the_whole_skill_is_there(both: Both) -> None:
    google, ours = await both("beside.py")
    assert "forms.md" not in google["stdout"]
    assert "templates" not in google["stdout"]
    assert ours["stdout"] == "['SKILL.md', 'forms.md', 'scripts', 'templates']\n"


@pytest.mark.behaviour(
    "better",
    "5 MB on stdout",
    google="5 MB for the model",
    ours="20,000 characters; the rest is an artifact",
    readme=16,
)
async def test_rows_6_and_e4_a_flood_does_not_reach_the_model(both: Both) -> None:
    google, ours = await both("flood.py")
    assert len(google["stdout"]) > 5_000_000
    assert len(ours["stdout"]) < 21_000
    assert ours["saved_artifacts"]
