"""What a newcomer meets: cheap imports, a public face, a version, a wheel that works anywhere."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

import adk_skills_agent

REPOSITORY = Path(__file__).resolve().parents[2]


def modules_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(' '.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    # Namespace packages of installed distributions are there before anything is imported.
    loaded = modules_after("import adk_skills_agent") - modules_after("pass")
    assert not any(name.startswith("google") for name in loaded)
    assert {name for name in loaded if name.startswith("adk_skills_agent")} == {"adk_skills_agent"}


@pytest.mark.parametrize("layer", ["format", "catalog", "sandbox.contract", "scripts", "cli.main"])
def test_the_layers_below_adk_import_nothing_heavy(layer: str) -> None:
    loaded = modules_after(f"import adk_skills_agent.{layer}")
    assert loaded.isdisjoint({"google.adk", "google.genai", "pydantic", "rich", "asyncio", "sqlite3", "httpx"})


def test_listing_skills_imports_neither_google_adk_nor_an_event_loop(tmp_path: Path) -> None:
    statement = (
        "from adk_skills_agent.catalog import SkillsRegistry; "
        f"registry = SkillsRegistry(); registry.discover([{str(tmp_path)!r}]); registry.list_metadata()"
    )
    assert modules_after(statement).isdisjoint({"google.adk", "pydantic", "asyncio", "sqlite3", "email"})


def test_every_public_name_is_there() -> None:
    for name in adk_skills_agent.__all__:
        assert getattr(adk_skills_agent, name) is not None
    assert sorted(adk_skills_agent.__all__) == list(adk_skills_agent.__all__)
    with pytest.raises(AttributeError):
        _ = adk_skills_agent.nothing_of_that_name


def test_the_version_stands_in_one_place_and_the_build_reads_it_there() -> None:
    pyproject = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert "version" not in pyproject["project"]
    assert pyproject["project"]["dynamic"] == ["version"]
    place = REPOSITORY / pyproject["tool"]["hatch"]["version"]["path"]
    assert place.samefile(adk_skills_agent.__file__)
    assert f'__version__ = "{adk_skills_agent.__version__}"' in place.read_text()


NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}


def python_for_anybody() -> Path:
    """An interpreter that a user without rights may start; one below /root is not."""
    for candidate in (Path(sys.executable).resolve(), Path("/usr/bin/python3")):
        if not candidate.exists():
            continue
        probe = "import sys; sys.exit(sys.version_info < (3, 11))"
        try:
            if subprocess.run([candidate, "-c", probe], check=False, **NOBODY).returncode == 0:
                return candidate
        except PermissionError:
            continue
    pytest.skip("no Python 3.11 here that a user without rights may start")


@pytest.mark.requirement("S0-87")
def test_nothing_runs_between_fork_and_exec() -> None:
    """S0-87, decision 0004: it is unsafe in an agent with threads, and costs a copy of the agent."""
    for module in (REPOSITORY / "src").rglob("*.py"):
        text = module.read_text()
        for call in ast.walk(ast.parse(text)) if "preexec_fn" in text else ():
            if isinstance(call, ast.Call):
                assert "preexec_fn" not in {word.arg for word in call.keywords}, module


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_directory_without_bubblewrap_and_without_root() -> None:
    """Item 1 of part A: the examples travel in the wheel."""
    uv = Path(sys.executable).parent / "uv"
    # Not pytest's tmp_path: nobody else may look into that.
    with tempfile.TemporaryDirectory(prefix="adk-skills-wheel-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        subprocess.run([uv, "build", "--wheel", "--quiet", "-o", folder / "dist"], check=True, cwd=REPOSITORY)
        wheel = next((folder / "dist").glob("*.whl"))
        venv = folder / "venv"
        subprocess.run([uv, "venv", "--quiet", "--python", python_for_anybody(), venv], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", venv / "bin" / "python", wheel], check=True)
        work = folder / "work"
        work.mkdir()
        if NOBODY:
            os.chown(work, NOBODY["user"], NOBODY["group"])
        run = subprocess.run(
            [venv / "bin" / "adk-skills", "demo"],
            capture_output=True,
            text=True,
            check=False,
            cwd=work,
            env={"PATH": "/usr/bin:/bin", "HOME": str(work)},
            **NOBODY,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert (work / "demo-output" / "report.md").is_file()
