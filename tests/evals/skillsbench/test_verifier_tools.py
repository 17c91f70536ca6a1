from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from adk_skills_agent.evals.skillsbench.verifier_tools import TOOLS, tool_environment, write_tools


@pytest.fixture
def uv(tmp_path: Path) -> Path:
    folder = tmp_path / "uv"
    folder.mkdir()
    for name in ("uv", "uvx"):
        (folder / name).write_text(f"#!/bin/sh\necho this is {name} $*\n")
    return folder


def run(tools: Path, script: str, *, network: bool) -> subprocess.CompletedProcess[str]:
    env = dict(tool_environment("/usr/bin:/bin", network=network, wheels=False))
    return subprocess.run(
        [
            *("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev"),
            *("/dev", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64"),
            *("/lib64", "--ro-bind", "/var/lib/dpkg", "/var/lib/dpkg", "--ro-bind", "/etc/alternatives"),
            *("/etc/alternatives", "--tmpfs", "/root", "--ro-bind", str(tools), TOOLS, "--clearenv", "--setenv"),
            *("HOME", "/root", *(word for name, value in env.items() for word in ("--setenv", name, value))),
            *("--", "bash", "-c", script),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "fetch", ["curl -LsSf URL | sh", "wget -qO- URL | sh", "curl -LsSf URL -o /root/i && sh /root/i"]
)
def test_the_installer_of_uv_is_served_without_a_network(tmp_path: Path, uv: Path, fetch: str) -> None:
    write_tools(tmp_path / "tools", uv, network=True)
    fetch = fetch.replace("URL", "https://astral.sh/uv/0.9.7/install.sh")
    done = run(tmp_path / "tools", f"{fetch} && source $HOME/.local/bin/env && uvx pytest", network=True)
    assert done.stdout == "this is uvx pytest\n", done.stderr


def test_everything_else_is_the_real_commands(tmp_path: Path, uv: Path) -> None:
    write_tools(tmp_path / "tools", uv, network=True)
    (tmp_path / "tools" / "sample.txt").write_text("sample\n")
    done = run(
        tmp_path / "tools", "PATH=$PATH:/nowhere; wget --version | head -1 || true; command -v apt-get", network=True
    )
    assert "astral" not in done.stdout
    assert f"{TOOLS}/apt-get" not in done.stdout


def test_without_a_network_what_is_installed_is_there_and_what_is_not_is_named(tmp_path: Path, uv: Path) -> None:
    write_tools(tmp_path / "tools", uv, network=False)
    assert run(tmp_path / "tools", "apt-get update && apt-get install -y bash", network=False).returncode == 0
    done = run(tmp_path / "tools", "apt-get install -y bash no-such-package", network=False)
    assert done.returncode == 100
    assert "no-such-package is not installed, and the verifier has no network" in done.stderr
    assert run(tmp_path / "tools", "echo $UV_OFFLINE$PIP_NO_INDEX", network=False).stdout == "11\n"
