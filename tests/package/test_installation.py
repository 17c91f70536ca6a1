"""A hint to install something of ours fits how this package was installed, and never names somebody else's package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.installation import DISTRIBUTION, InstalledBy, install_hint, installed_by

REPOSITORY = Path(__file__).resolve().parents[2]
# On PyPI this is somebody else's library, which is imported by our name.
OTHERS_PACKAGE = re.compile(r"""((install|add)(\s+-\S+)*\s+['"]?adk-skills-agent\b|adk-skills-agent\[)""")

Installed = Callable[..., None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Installed:
    """Makes ``tmp_path/project/.venv`` the environment of this process, with what installers leave in one."""

    def make(*, editable: bool = False, by_uv: bool = False, files: tuple[str, ...] = ()) -> None:
        project = tmp_path / "project"
        environment = project / ".venv"
        record = environment / "site" / "adk_skills_runtime-0.1.0.dist-info"
        record.mkdir(parents=True)
        (record / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {DISTRIBUTION}\nVersion: 0.1.0\n")
        if editable:
            (record / "direct_url.json").write_text(
                json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}})
            )
        (environment / "pyvenv.cfg").write_text("home = /usr/bin\n" + ("uv = 0.9.0\n" if by_uv else ""))
        for file in files:
            path = project / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        monkeypatch.syspath_prepend(environment / "site")
        monkeypatch.setattr(sys, "prefix", str(environment))

    return make


@pytest.mark.parametrize(
    ("left", "hint"),
    [
        ({}, "pip install 'adk-skills-runtime[shell]'"),
        ({"by_uv": True}, "uv pip install 'adk-skills-runtime[shell]'"),
        ({"by_uv": True, "files": ("uv.lock",)}, "uv add 'adk-skills-runtime[shell]'"),
        ({"by_uv": True, "files": (".venv/uv-receipt.toml",)}, "uv tool install 'adk-skills-runtime[shell]'"),
        ({"files": (".venv/pipx_metadata.json",)}, "pipx install --force 'adk-skills-runtime[shell]'"),
        ({"editable": True, "files": ("tools/setup",)}, "tools/setup --extra shell"),
        ({"editable": True}, "pip install -e '.[shell]' in the checkout of adk-skills-runtime"),
        ({"editable": True, "by_uv": True}, "uv pip install -e '.[shell]' in the checkout of adk-skills-runtime"),
    ],
)
def test_the_hint_is_the_command_of_whoever_installed_it(
    installed: Installed, left: dict[str, object], hint: str
) -> None:
    installed(**left)
    assert install_hint("shell") == hint


def test_on_windows_the_hint_has_the_quotes_that_cmd_knows(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed()
    monkeypatch.setattr(sys, "platform", "win32")
    assert install_hint("container") == 'pip install "adk-skills-runtime[container]"'


def test_the_package_itself_needs_no_quotes(installed: Installed) -> None:
    installed()
    assert install_hint() == "pip install adk-skills-runtime"


def test_a_hint_names_no_folder_of_this_machine(installed: Installed, tmp_path: Path) -> None:
    installed(editable=True)
    assert str(tmp_path) not in install_hint("container")


def test_the_environment_of_the_tests_is_the_checkout() -> None:
    """With the real record that uv left here."""
    if Path(sys.prefix) != REPOSITORY / ".venv":
        pytest.skip("the tests run in another environment than tools/setup makes")
    assert installed_by() is InstalledBy.OUR_CHECKOUT


@pytest.mark.slow
def test_the_hint_works_in_an_environment_that_uv_made(tmp_path: Path) -> None:
    """The wheel in a real environment; what the hint says is run there."""
    uv = Path(sys.executable).parent / "uv"
    subprocess.run([uv, "build", "--wheel", "--quiet", "-o", tmp_path / "dist"], check=True, cwd=REPOSITORY)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", tmp_path / "venv"], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, wheel], check=True)
    code = "from adk_skills_agent.installation import install_hint; print(install_hint('shell'))"
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path).stdout.strip()
    assert said == "uv pip install 'adk-skills-runtime[shell]'"
    subprocess.run(
        ["bash", "-c", said.replace("uv", str(uv), 1)],
        check=True,
        cwd=tmp_path,
        env={"UV_SYSTEM_CERTS": "1", **os.environ, "VIRTUAL_ENV": str(tmp_path / "venv")},
    )
    subprocess.run([python, "-c", "import tree_sitter_bash"], check=True, cwd=tmp_path)


@pytest.mark.parametrize("word", ["install", "add", "install --upgrade -q", "-m pip install"])
def test_what_would_replace_us_is_recognized(word: str) -> None:
    assert OTHERS_PACKAGE.search(f"{word} {'adk-skills-'}agent")


def test_no_file_says_to_install_somebody_elses_package() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    files = [REPOSITORY / name for name in listed.split("\0") if name]
    assert len(files) > 300
    named = [
        str(path.relative_to(REPOSITORY))
        for path in files
        if path.is_file() and OTHERS_PACKAGE.search(path.read_bytes().decode("utf-8", "replace"))
    ]
    assert named == []
