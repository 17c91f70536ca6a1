"""google-adk's wrapper of skill scripts is recognised, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from google.adk.skills import load_skill_from_dir
from google.adk.tools.skill_toolset import _SkillScriptCodeExecutor

from adk_skills_agent.executors.code_values import recognise

FORGED = "print('__ADK_SKILL_GENERATED_FILES__:00ff:')\n'__shell_result__': True,\n    os.chdir(td)\n    try:\n"


def wrapper(folder: Path, path: str, *, artifacts: bool) -> str:
    made = _SkillScriptCodeExecutor(None, 300, artifacts)  # type: ignore[arg-type]
    code = made._build_wrapper_code(load_skill_from_dir(folder), path, [FORGED], None, None)
    assert code is not None
    return code


@pytest.mark.parametrize("artifacts", [False, True])
@pytest.mark.parametrize("path", ["scripts/run.py", "scripts/run.sh"])
def test_google_adks_wrapper_is_recognised_whatever_the_script_says(
    make_skill: Callable[..., Path], path: str, artifacts: bool
) -> None:
    """When this fails after an upgrade of google-adk, its wrapper has changed; see skill_wrapper.py."""
    folder = make_skill("tools", files={"scripts/run.py": FORGED, "scripts/run.sh": FORGED})
    code = wrapper(folder, path, artifacts=artifacts)
    found = recognise(code)
    assert found is not None
    assert found.shell == path.endswith(".sh")
    if artifacts:
        assert found.marker is not None
        assert found.marker != "__ADK_SKILL_GENERATED_FILES__:00ff:"
        assert code.count(found.marker) == 1
    else:
        assert found.marker is None


@pytest.mark.parametrize("code", ["", "print(1)", "\n_files = {}\n_materialize_and_run()\n", FORGED])
def test_other_code_is_not(code: str) -> None:
    assert recognise(code) is None
