"""A script that dies of a missing thing says which: to the model what to do, to the owner what would supply it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import preloaded
from adk_skills_agent import Grant, SandboxPolicy, Secret
from adk_skills_agent.catalog.skill import Skill
from adk_skills_agent.sandbox import local_sandbox
from adk_skills_agent.scripts import RunSettings, ScriptOutcome, plan_script, script_outcome
from adk_skills_agent.scripts.grants import Grants

PROGRAM = preloaded.program("adk-skills")
POLICY = SandboxPolicy(min_isolation="process")


async def outcome_of(skill: Skill, script: str, policy: SandboxPolicy = POLICY) -> ScriptOutcome:
    plan = plan_script(skill, script, settings=RunSettings(policy))
    return script_outcome(plan, await local_sandbox().run(plan.request))


@pytest.mark.parametrize(
    ("file", "code", "kind", "name"),
    [
        ("a.py", "import no_such_module_here.deep\n", "module", "no_such_module_here"),
        ("a.py", "import subprocess\nsubprocess.run(['no-such-program'])\n", "program", "no-such-program"),
        ("a.py", "import os\nos.environ['ACME_API_KEY']\n", "environment-key", "ACME_API_KEY"),
        ("a.sh", "no-such-program --version\n", "program", "no-such-program"),
        ("a.sh", "set -e\nx=$(no-such-program)\n", "program", "no-such-program"),
        ("a.sh", "env no-such-program\n", "program", "no-such-program"),
        ("a.sh", "python3 -c 'import no_such_module_here'\n", "module", "no_such_module_here"),
        ("a.mjs", "import x from 'no-such-package';\n", "node-package", "no-such-package"),
        ("a.cjs", "require('@acme/no-such-package/x');\n", "node-package", "@acme/no-such-package/x"),
    ],
)
async def test_what_is_missing_is_named_to_both(
    skill_with: Callable[..., Skill], file: str, code: str, kind: str, name: str
) -> None:
    if file.endswith("js") and shutil.which("node") is None:
        pytest.skip("no node here")
    outcome = await outcome_of(skill_with({f"scripts/{file}": code}), file)
    assert [(thing.kind, thing.name) for thing in outcome.missing] == [(kind, name)], outcome.stderr
    assert outcome.error is not None
    assert name in outcome.error
    assert "tell the user" in outcome.error
    assert "adk-skills" not in outcome.error  # the command is the owner's
    owner = outcome.missing[0].for_owner()
    assert owner.startswith("Skill 'sample' needs the ")
    assert {
        "module": "/sample",
        "program": 'grants={"sample": Grant(programs=[...])}',
        "environment-key": 'grants={"sample": Grant(env={"ACME_API_KEY": Secret(...)})}',
        "node-package": "adk-skills prepare",
    }[kind] in owner


GRANTS = Grants(by_name={"sample": Grant(env={"KEY": Secret("0123456789abcdef")})})
WRITES = "mkdir -p proj; echo 'V = 5' > proj/util.py; echo 'import util' > proj/main.py; mkdir pkg; touch pkg/a.py\n"


@pytest.mark.parametrize("made", ["in this run", "before it"])
@pytest.mark.parametrize(
    ("command", "name", "fails"),
    [
        ("python3 proj/main.py", "util", True),
        ("python3 -m pkg.a", "pkg", True),
        ("cd proj; python3 -m unittest util 2>&1", "util", True),
        ("python3 proj/main.py || true", "util", False),
        ("PYTHONPATH=$PWD/proj:$PYTHONPATH python3 proj/main.py", None, False),
    ],
)
async def test_a_module_of_the_working_directory_is_not_called_missing_where_keys_keep_python_from_it(
    skill_with: Callable[..., Skill], tmp_path: Path, made: str, command: str, name: str | None, fails: bool
) -> None:
    """Seen: "not installed here", and in the log ``adk-skills prepare``, which has nothing to install."""
    skill = skill_with({"scripts/make.sh": WRITES, "scripts/a.sh": (WRITES if made == "in this run" else "") + command})
    for script in ("make.sh", "a.sh") if made == "before it" else ("a.sh",):
        plan = plan_script(skill, script, settings=RunSettings(POLICY), grants=GRANTS, workspace=tmp_path)
        outcome = script_outcome(plan, await local_sandbox().run(plan.request))
    assert [(thing.kind, thing.name) for thing in outcome.missing] == ([("own-module", name)] if name else [])
    told = f"{outcome.error} {outcome.to_model().get('notes')}"
    assert ("imports nothing from the working directory" in told) == (name is not None), told
    assert (outcome.error is not None) == fails, outcome.stderr
    assert "not installed" not in told
    for thing in outcome.missing:
        owner = thing.for_owner()
        assert "Skill 'sample' imports the module" in owner
        assert "prepare" not in owner


async def test_a_module_that_is_nowhere_is_still_called_missing(
    skill_with: Callable[..., Skill], tmp_path: Path
) -> None:
    skill = skill_with({"scripts/a.sh": "python3 -c 'import no_such_module_here'"})
    plan = plan_script(skill, "a.sh", settings=RunSettings(POLICY), grants=GRANTS, workspace=tmp_path)
    outcome = script_outcome(plan, await local_sandbox().run(plan.request))
    assert [thing.kind for thing in outcome.missing] == ["module"]


async def test_a_program_that_is_missing_does_not_look_like_success(skill_with: Callable[..., Skill]) -> None:
    outcome = await outcome_of(skill_with({"scripts/a.sh": "no-such-program | cat\necho done\n"}), "a.sh")
    assert outcome.return_code == 0
    notes = outcome.to_model()["notes"]
    assert isinstance(notes, list)
    assert "The program 'no-such-program' is not on this machine" in notes[-1]


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nprint('sh: 1: python3: not found', file=sys.stderr)\nsys.exit(1)\n",
        "open('data')\n",
        "import sys\nprint(\"ModuleNotFoundError: No module named 'json'\", file=sys.stderr)\nsys.exit(1)\n",
        "import sys\nprint('sh: 1: $(boo): not found\\nx; rm /: command not found', file=sys.stderr)\nsys.exit(1)\n",
        "{}['SOME_KEY']\n",
    ],
    ids=["a program that is here", "a file", "a module that is here", "no name", "another key"],
)
async def test_what_is_not_missing_is_not_called_so(skill_with: Callable[..., Skill], code: str) -> None:
    outcome = await outcome_of(skill_with({"scripts/a.py": code}), "a.py")
    assert outcome.status == "error"
    assert outcome.missing == ()


async def test_a_stream_of_claims_is_read_quickly_and_cut(skill_with: Callable[..., Skill]) -> None:
    code = "import sys\nfor n in range(20000):\n    print(f'sh: 1: nope{n}: not found', file=sys.stderr)\nsys.exit(1)\n"
    outcome = await outcome_of(skill_with({"scripts/a.py": code}), "a.py")
    assert len(outcome.missing) == 5


def test_the_command_tells_the_owner_what_to_do(skill_with: Callable[..., Skill], tmp_path: Path) -> None:
    skill = skill_with({"scripts/a.py": "import no_such_module_here\n"})
    run = subprocess.run(
        [PROGRAM, "run", str(skill.skill_dir), "a.py", "--min-isolation", "process"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 1
    assert re.search(
        r"Skill 'sample' needs the module no_such_module_here: adk-skills prepare \S*/sample'?\.", run.stderr
    )
