"""macOS and Windows: what works, what is refused, and that nothing breaks before it is refused (issue 17, item 4)."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import preloaded

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "adk_skills_agent"
PROGRAMS_OF_LINUX = (
    "sandbox/local/init/",  # assembled from parts and run inside a sandbox
    "sandbox/network/netns_helper.py",
    "sandbox/ray/worker.py",  # runs on nodes of a cluster
    "sandbox/remote/pod_server.py",
    "sandbox/supervisor/",  # runs in containers and pods
    "evals/adk_evaluators.py",  # needs the extra eval
)
"""What only ever runs on Linux, or not without an extra."""


def run_on(system: str, code: str, *arguments: str, fails: int = 0) -> subprocess.CompletedProcess[str]:
    """Run code in a process that says it is another system."""
    program = Path(__file__).with_name("other_system.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", program, system, code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=REPOSITORY,
    )
    assert done.returncode == fails, done.stderr
    return done


def command_on(system: str, *arguments: str | Path, fails: int = 0) -> subprocess.CompletedProcess[str]:
    """Run ``adk-skills`` there."""
    code = f"import sys; sys.argv = ['adk-skills', *{list(map(str, arguments))!r}]\n"
    return run_on(system, code + "from adk_skills_agent.cli.main import main; main()", fails=fails)


@pytest.mark.parametrize("system", [pytest.param("darwin", marks=pytest.mark.slow), "win32"])
def test_every_module_can_be_imported(system: str) -> None:
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative.parts[0].startswith("_") or str(relative).startswith(PROGRAMS_OF_LINUX):
            continue
        names.append(".".join(("adk_skills_agent", *relative.with_suffix("").parts)).removesuffix(".__init__"))
    code = f"""
import importlib
for name in {names!r}:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(name, type(error).__name__, error)
"""
    assert len(names) > 200
    if system != "win32":
        assert run_on(system, code).stdout == ""
        return
    # What is refused there is tried in the same process, which has google-adk imported: two seconds of computing.
    refused = "import sys; sys.argv = ['adk-skills', 'list', 'examples/skills']\n"
    done = run_on(system, f"{code}{refused}from adk_skills_agent.cli.main import main; main()", fails=2)
    assert done.stdout == ""
    assert_windows_refuses(done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_every_public_name_is_there(system: str) -> None:
    code = "import adk_skills_agent as a; print(len([getattr(a, name) for name in a.__all__]) == len(a.__all__))"
    assert run_on(system, code).stdout.strip() == "True"


@pytest.mark.slow
def test_macos_finds_skills_and_makes_a_toolset() -> None:
    code = """
from adk_skills_agent import SkillToolset
print(sorted(SkillToolset.from_dirs(["examples/skills"]).runtime.source))
"""
    assert "csv-report" in run_on("darwin", code).stdout
    assert "csv-report" in command_on("darwin", "list", "examples/skills").stdout


@pytest.mark.slow
def test_macos_refuses_scripts_and_names_the_container(make_skill: Callable[..., Path]) -> None:
    skill = make_skill("runner", files={"scripts/go.py": "print('ran')\n"})
    said = command_on("darwin", "run", skill, "go.py", fails=1).stderr
    assert "nothing that strong works here" in said
    assert "container" in said
    assert "apt-get" not in said
    assert "systemctl" not in said


@pytest.mark.slow
def test_macos_runs_scripts_of_ones_own_where_that_was_chosen(make_skill: Callable[..., Path], tmp_path: Path) -> None:
    skill = make_skill("runner", files={"scripts/go.py": "print('ran')\n"})
    done = command_on("darwin", "run", skill, "go.py", "--min-isolation", "process", "-o", tmp_path / "out")
    assert done.stdout == "ran\n"


@pytest.mark.slow
def test_doctor_says_what_macos_is_good_for() -> None:
    told = command_on("darwin", "doctor", fails=1).stdout
    section = told[told.index("This system: macOS") : told.index("This machine")]
    assert "Scripts are refused on the machine itself" in section
    assert "sandbox='container'" in section
    assert "Docker Desktop" in section
    facts = json.loads(command_on("darwin", "doctor", "--json", fails=1).stdout)
    assert facts["system"]["name"] == "macOS"
    assert facts["default_policy_holds"] is False


@pytest.mark.slow
def test_doctor_says_what_windows_is_good_for_and_tries_nothing() -> None:
    told = command_on("win32", "doctor", fails=1).stdout
    assert "This system: Windows" in told
    assert "WSL 2" in told
    assert "Linux container" in told
    facts = json.loads(command_on("win32", "doctor", "--json", fails=1).stdout)
    assert facts["scripts_run"] is False


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("list", "examples/skills"), ("info", "x"), ("doctor", "--serve")])
def test_windows_refuses_the_rest_in_one_sentence_with_the_way_out(arguments: tuple[str, ...]) -> None:
    assert_windows_refuses(command_on("win32", *arguments, fails=2).stderr)


def assert_windows_refuses(said: str) -> None:
    assert said.count("\n") == 1
    assert "is refused on Windows itself. Run the agent in WSL 2, or in a Linux container" in said


@pytest.mark.slow
def test_windows_checks_the_text_of_a_skill() -> None:
    assert "Valid skill" in command_on("win32", "validate", "examples/skills/csv-report").stdout


@pytest.mark.slow
def test_windows_refuses_a_toolset_and_a_sandbox_before_anything_runs() -> None:
    code = """
from adk_skills_agent import SkillToolset, local_sandbox
from adk_skills_agent.errors import SkillsError
for make in (lambda: SkillToolset.from_dirs(["examples/skills"]), local_sandbox):
    try:
        make()
    except SkillsError as error:
        print(error.message)
"""
    first, second = run_on("win32", code).stdout.splitlines()
    assert "WSL 2" in first
    assert "WSL 2" in second


def test_here_everything_works() -> None:
    told = subprocess.run([preloaded.program("adk-skills"), "doctor"], capture_output=True, text=True, check=False)
    assert "This system: Linux\n  works               Everything; scripts at the isolation levels below." in told.stdout


def test_the_classifiers_name_the_systems_the_tests_run_on() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    systems = [one for one in project["classifiers"] if one.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
