"""What a newcomer meets: cheap imports, a public face, a version, a wheel that works anywhere."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import adk_skills_agent

REPOSITORY = Path(__file__).resolve().parents[2]


def modules_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(' '.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    loaded = modules_after("import adk_skills_agent")
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


def test_the_version_stands_in_one_number() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["version"] == adk_skills_agent.__version__


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_directory_without_bubblewrap_and_without_root(tmp_path: Path) -> None:
    """Item 1 of part A: the examples travel in the wheel."""
    uv = Path(sys.executable).parent / "uv"
    subprocess.run([uv, "build", "--wheel", "--quiet", "-o", tmp_path / "dist"], check=True, cwd=REPOSITORY)
    wheel = next((tmp_path / "dist").glob("*.whl"))
    home = tmp_path / "elsewhere"
    home.mkdir()
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, home / "venv"], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", home / "venv/bin/python", wheel], check=True)
    work = home / "work"
    work.mkdir()
    command = [home / "venv/bin/adk-skills", "demo"]
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.owner() == "root" and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    import os

    if os.geteuid() == 0:
        os.chown(work, 65534, 65534)
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=work,
        env={"PATH": "/usr/bin:/bin", "HOME": str(work)},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert (work / "demo-output" / "report.md").is_file()
