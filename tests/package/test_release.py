"""``make release``: what it builds, what it refuses, and that the workflow uploads nothing that was not checked."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import adk_skills_agent

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src" / "adk_skills_agent"
VERSION = adk_skills_agent.__version__


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("adk_skills_release", REPOSITORY / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A small wheel that passes: a package of two modules."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "__init__.py").write_text("")
    (source / "py.typed").write_text("")
    files = {
        "adk_skills_agent/__init__.py": "",
        "adk_skills_agent/py.typed": "",
        "adk_skills_agent/_examples/skills/csv-report/SKILL.md": "---\nname: csv-report\n---\n",
        "adk_skills_agent/_images/adk-code-executor/Dockerfile": "FROM scratch\n",
        "x-1.2.3.dist-info/METADATA": (
            "Metadata-Version: 2.4\nName: x\nVersion: 1.2.3\nLicense-Expression: Apache-2.0\nRequires-Python: >=3.11\n"
            "Description-Content-Type: text/markdown\n\n" + "What it is for. " * 100
        ),
        "x-1.2.3.dist-info/entry_points.txt": "[console_scripts]\nadk-skills = adk_skills_agent.cli:program\n",
        "x-1.2.3.dist-info/licenses/LICENSE": "Apache",
    }
    path = tmp_path / "x-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_a_wheel_with_all_of_the_source_and_nothing_else_passes(release: ModuleType, wheel: Path) -> None:
    release.check_wheel(wheel, "x", "1.2.3", wheel.parent / "source")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("adk_skills_agent/__pycache__/a.cpython-311.pyc", "which nobody should install"),
        ("tests/test_x.py", "which nobody should install"),
        ("adk_skills_agent/.env", "which nobody should install"),
        ("adk_skills_agent/left.txt", "files that are not in the source: adk_skills_agent/left.txt"),
        ("other_package/__init__.py", "files that are not in the source: other_package/__init__.py"),
    ],
)
def test_a_file_too_many_in_the_wheel_is_named(release: ModuleType, wheel: Path, change: str, said: str) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(change, "x")
    with pytest.raises(release.ReleaseError, match=said):
        release.check_wheel(wheel, "x", "1.2.3", wheel.parent / "source")


def test_a_module_that_is_missing_and_another_version_are_named(release: ModuleType, wheel: Path) -> None:
    (wheel.parent / "source" / "cli.py").write_text("")
    with pytest.raises(release.ReleaseError, match=r"lacks adk_skills_agent/cli\.py \(1 files\)"):
        release.check_wheel(wheel, "x", "1.2.3", wheel.parent / "source")
    with pytest.raises(release.ReleaseError, match=r"Version is '1\.2\.3', not '1\.2\.4'"):
        release.check_wheel(wheel, "x", "1.2.4", wheel.parent / "source")


def test_the_notes_are_the_versions_own_section_or_say_that_they_are_not(release: ModuleType) -> None:
    text = "# Changes\n\n## Unreleased\n\n- new\n\n## 1.2.3 - 2026-12-01\n\n### Added\n- this\n\n## 1.2.2\n- that\n"
    assert release.changelog_section(text, "1.2.3") == ("### Added\n- this\n", True)
    assert release.changelog_section(text, "1.3.0") == ("- new\n", False)
    with pytest.raises(release.ReleaseError, match="Write what changed"):
        release.changelog_section("# Changes\n\n## Unreleased\n\n## 1.2.2\n- that\n", "1.3.0")


@pytest.mark.parametrize("text", ["", '__version__ = "1.2"\n', '__version__ = "1.2.3"\n__version__ = "1.2.4"\n'])
def test_a_version_that_is_none_stops_the_release(release: ModuleType, tmp_path: Path, text: str) -> None:
    place = tmp_path / "src" / "adk_skills_agent"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text(text)
    with pytest.raises(release.ReleaseError, match="write one line __version__"):
        release.read_version(tmp_path)


def test_a_final_release_needs_its_section_and_its_tag(
    release: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_REF_NAME", "v99.0.0")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "before").write_text("the last release")
    assert release.main(["--final", "--out", str(tmp_path / "dist")]) == 1
    assert "release: --final: " in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]
    assert (tmp_path / "dist" / "before").read_text() == "the last release"
    with pytest.raises(release.ReleaseError, match=f"the tag is v99.0.0, the version {VERSION}. Tag the commit v"):
        release._check_final(VERSION, is_section=True)


def test_the_workflow_uploads_what_was_checked_with_no_token_and_no_more_rights_than_it_needs() -> None:
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "release.yml").read_text())
    jobs = workflow["jobs"]
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    assert {"run": "make release RELEASE=--final"} in jobs["build"]["steps"]
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in (REPOSITORY / ".github" / "workflows" / "release.yml").read_text()
    upload = jobs["publish"]["steps"][-1]
    assert upload["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert "password" not in upload["with"]


@pytest.mark.slow
def test_a_release_can_be_made(tmp_path: Path) -> None:
    """Builds, asks PyPI for twine and cyclonedx-bom, installs on the Python the tests run on, and uses it."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = [sys.executable, REPOSITORY / "tools" / "release.py", "--python", python, "--out", tmp_path / "dist"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Python {python}: installs" in done.stdout
    files = {path.name: path for path in (tmp_path / "dist").iterdir()}
    (wheel,) = (path for name, path in files.items() if name.endswith(".whl"))
    (archive,) = (path for name, path in files.items() if name.endswith(".tar.gz"))
    (sbom,) = (path for name, path in files.items() if name.endswith(".cdx.json"))
    assert set(files) == {wheel.name, archive.name, sbom.name, "RELEASE_NOTES.md", "SHA256SUMS"}
    sums = dict(reversed(line.split("  ")) for line in files["SHA256SUMS"].read_text().splitlines())
    assert sums == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items() if name != "SHA256SUMS"
    }
    content = json.loads(sbom.read_text())
    assert content["bomFormat"] == "CycloneDX"
    assert content["metadata"]["component"]["version"] == VERSION
    components = {one["name"]: one for one in content["components"]}
    assert {"google-adk", "click", "pyyaml"} <= {name.lower() for name in components}
    with tarfile.open(archive) as names:
        assert not any("/tests/" in name for name in names.getnames())


@pytest.mark.slow
def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    uv = Path(sys.executable).parent / "uv"
    copies = []
    for name in ("one", "two"):
        source = tmp_path / name
        source.mkdir()
        for part in ("src", "examples", "images"):
            shutil.copytree(REPOSITORY / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
            shutil.copy(REPOSITORY / part, source / part)
        subprocess.run(
            [uv, "build", "--quiet", "--out-dir", source / "dist", source],
            check=True, env={"SOURCE_DATE_EPOCH": "1700000000", "PATH": "/usr/bin:/bin", "UV_SYSTEM_CERTS": "1"},
        )  # fmt: skip
        copies.append({path.name: path.read_bytes() for path in (source / "dist").glob("*.*z*")})
        copies[-1] |= {path.name: path.read_bytes() for path in (source / "dist").glob("*.whl")}
    assert copies[0].keys() == copies[1].keys()
    assert len(copies[0]) == 2
    assert copies[0] == copies[1]
