"""``adk-skills run``: where its limits and its secrets come from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import preloaded

PROGRAM = preloaded.program("adk-skills")
SHOW = 'echo "{\\"files\\": $(ulimit -n), \\"key\\": ${#API_KEY}}"; echo "$API_KEY"\n'


@pytest.fixture
def run(make_skill: Callable[..., Path], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    skill = make_skill("shows", files={"scripts/show.sh": SHOW})

    def call(*options: object, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, "run", skill, "show.sh", *map(str, options)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            timeout=60,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100", **env},
        )

    return call


def test_a_policy_by_name(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    trusted = run("--policy", "trusted", "--min-isolation", "process")
    assert json.loads(trusted.stdout.splitlines()[0])["files"] == 1024
    unknown = run("--policy", "stric")
    assert (unknown.returncode, "strict" in unknown.stderr) == (2, True)


def test_a_policy_from_a_file_with_options_over_it(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("preset: trusted\nopen_files: 77\n")
    assert json.loads(run("--policy-file", file).stdout.splitlines()[0])["files"] == 77
    file.write_text("open_file: 77\n")
    wrong = run("--policy-file", file)
    assert wrong.returncode == 2
    assert "line 1" in wrong.stderr
    assert "open_files" in wrong.stderr
    assert run("--policy-file", file, "--policy", "strict").returncode == 2


def test_the_folders_own_pyproject_is_never_read_by_itself(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.adk-skills.policy]\nopen_files = 66\npreset = 'trusted'\n")
    assert json.loads(run("--min-isolation", "process").stdout.splitlines()[0])["files"] == 256
    assert json.loads(run("--policy-file", "pyproject.toml").stdout.splitlines()[0])["files"] == 66


def test_a_level_that_earlier_versions_had_is_refused_with_its_new_name(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    for refused in (run("--min-isolation", "cgroup"), run(ADK_SKILLS_MIN_ISOLATION="cgroup")):
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "say 'namespaces'" in " ".join(refused.stderr.split())
    assert "say 'landlock'" in " ".join(run("--min-isolation", "seccomp").stderr.split())


def test_a_variable_set_long_ago_does_not_weaken_a_policy_named_now(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("isolation: process\nmin_isolation: landlock\n")
    refused = run("--policy-file", file, ADK_SKILLS_MIN_ISOLATION="process")
    assert refused.returncode != 0
    assert refused.stdout == ""
    assert run("--policy-file", file, "--min-isolation", "process").returncode == 0


def test_a_secret_is_named_not_written_and_is_not_in_the_output(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    for mode in ((), ("--json",)):
        done = run("--min-isolation", "process", "--secret", "API_KEY", *mode, API_KEY="value-8c1-hunter2")
        assert done.returncode == 0, done.stderr
        assert "[secret API_KEY]" in done.stdout
        assert "hunter2" not in done.stdout + done.stderr
    written = run("--secret", "API_KEY=value-8c1-hunter2")
    assert written.returncode == 2
    assert "hunter2" not in written.stderr
    assert "not set" in run("--secret", "NO_SUCH_KEY").stderr
    assert "LD_PRELOAD" in run("--env", "LD_PRELOAD=x").stderr


def test_what_cannot_be_expressed_is_one_sentence(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "notes").write_text("x")
    for options, said in (("--env", "PATH=rel"), "'rel'"), (("-i", "notes", "-i", "notes"), "given twice"):
        done = run(*options)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_long_output_says_what_is_left_out_and_shows_its_end(make_skill: Callable[..., Path], tmp_path: Path) -> None:
    source = "import os\nos.write(1, b'x' * 400_000 + b'the end')\n[open(f'{n}.txt', 'w') for n in range(23)]\n"
    skill = make_skill("long", files={"scripts/long.py": source})
    done = subprocess.run(
        [PROGRAM, "run", skill, "long.py"], capture_output=True, check=False, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout == b"x" * ((256 + 64 << 10) - 7) + b"the end"
    said = done.stderr.decode()
    assert f"... {400_007 - (320 << 10):,} bytes of stdout not shown ..." in said
    assert (said.count("wrote "), said.count("and 3 more files")) == (20, 1)


def test_interpreters_and_the_python_of_the_command_line(make_skill: Callable[..., Path], tmp_path: Path) -> None:
    skill = make_skill(
        "tools",
        files={
            "a.list": 'printf "%s|" "$-" "$@"',
            "tools/where.py": "import sys; print(sys.prefix, sys.flags.isolated)",
        },
    )
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        line = [PROGRAM, "run", skill, *map(str, arguments)]
        return subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)

    listed = run("a.list", "--interpreter", ".list=bash -eu", "--", "x")
    flags, *words = listed.stdout.split("|")
    assert ({"e", "u"} <= set(flags), words) == (True, ["x", ""]), listed.stderr
    python = tmp_path / "venv" / "bin" / "python"
    assert run("tools/where.py", "--python", python).stdout == f"{tmp_path / 'venv'} 0\n"
    assert run("tools/where.py", "--interpreter", ".py=python3 -I").stdout.endswith(f"{sys.prefix} 1\n")
    for wrong in (("--interpreter", "js=node"), ("--interpreter", ".js"), ("--interpreter", ".js='x")):
        refused = run("a.list", *wrong)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1), refused.stderr
    refused = run("tools/where.py", "--python", tmp_path / "no-python")
    assert (refused.returncode, "--python" in refused.stderr) == (2, True)
