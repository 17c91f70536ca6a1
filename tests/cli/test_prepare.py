"""``adk-skills prepare`` and what the other commands say afterwards, with an index on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import preloaded
from local_index import LocalIndex, serving

PROGRAM = preloaded.program("adk-skills")


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with serving(LocalIndex()) as made:
        made.add("pypdf", "5.0", requires=["tabulate"], files={"pypdf.py": "VERSION = '5.0'\n"})
        made.add("tabulate", "0.9")
        made.add("xlrd", "2.0")
        yield made


@pytest.fixture
def skill(make_skill: Callable[..., Path]) -> Path:
    code = (
        "import pypdf\nprint('pages by', pypdf.VERSION)\ntry:\n    import xlrd\nexcept ImportError:\n    xlrd = None\n"
    )
    return make_skill("pages", files={"scripts/count.py": code})


@pytest.fixture
def run(tmp_path: Path, index: LocalIndex) -> Callable[..., subprocess.CompletedProcess[str]]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "home-cache"), "UV_DEFAULT_INDEX": index.url}

    def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
        )

    return command


Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_skill_is_prepared_locked_and_then_runs_offline(skill: Path, run: Run, index: LocalIndex) -> None:
    before = run("run", skill, "count.py")
    assert before.returncode == 1
    assert "not installed here: pypdf. Prepare them: adk-skills prepare ./skills/pages" in before.stderr
    done = run("prepare", skill)
    assert done.returncode == 0, done.stderr
    assert "pypdf==5.0 (sha256 " in done.stdout
    assert "2 packages" in done.stdout
    lock = json.loads((skill / "adk-skills.lock").read_text())
    assert [(one["name"], one["version"]) for one in lock["packages"]] == [("pypdf", "5.0"), ("tabulate", "0.9")]
    assert lock["requirements"] == ["pypdf"]
    assert index.url not in json.dumps(lock)
    asked = len(index.requests)
    index.hangs.set()
    after = run("run", skill, "count.py")
    assert after.stdout == "pages by 5.0\n", after.stderr
    assert "2 packages, prepared before" in run("prepare", skill).stdout
    again = run("prepare", skill, "--json")
    assert json.loads(again.stdout)["interpreter"].endswith("/bin/python")
    assert len(index.requests) == asked
    needs = run("needs", skill)
    assert needs.returncode == 0, needs.stdout
    assert "ok        pypdf" in needs.stdout


def test_the_lock_may_be_in_the_project_and_the_skill_stays_as_it_is(skill: Path, run: Run, tmp_path: Path) -> None:
    done = run("prepare", skill, "--lock", tmp_path / "locks" / "pages.lock", "--optional")
    assert done.returncode == 0, done.stderr
    assert not (skill / "adk-skills.lock").exists()
    names = [one["name"] for one in json.loads((tmp_path / "locks" / "pages.lock").read_text())["packages"]]
    assert names == ["pypdf", "tabulate", "xlrd"]


def test_a_lock_is_kept_until_it_is_upgraded_or_no_longer_answers(skill: Path, run: Run, index: LocalIndex) -> None:
    run("prepare", skill)
    index.add("pypdf", "6.0", files={"pypdf.py": "VERSION = '6.0'\n"})
    assert "pypdf==5.0" in run("prepare", skill).stdout
    assert "pypdf==6.0" in run("prepare", skill, "--upgrade").stdout
    (skill / "scripts" / "more.py").write_text("import xlrd\n")
    assert "xlrd==2.0" in run("prepare", skill).stdout


def test_a_skill_that_needs_nothing_is_said_and_asks_no_index(
    make_skill: Callable[..., Path], run: Run, index: LocalIndex
) -> None:
    done = run("prepare", make_skill("plain", files={"scripts/a.py": "import json\n"}))
    assert (done.returncode, done.stdout) == (0, "Nothing to prepare: skill 'plain' needs no packages.\n")
    assert index.requests == []


def test_a_failure_is_one_line_with_what_to_do(
    make_skill: Callable[..., Path], run: Run, index: LocalIndex, skill: Path
) -> None:
    nowhere = make_skill("nowhere", files={"requirements.txt": "nobody-made-this==1\n"})
    done = run("prepare", nowhere)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Check the name" in done.stderr
    assert run("prepare").returncode == 2
    assert "is no date" in run("prepare", skill, "--exclude-newer", "yesterday").stderr
    refused = run("prepare", skill, "--index", "pypi.example.com")
    assert (refused.returncode, "is no URL of a package index" in refused.stderr) == (2, True)


def test_a_lock_that_is_damaged_is_said_and_made_again(skill: Path, run: Run) -> None:
    run("prepare", skill)
    lock = skill / "adk-skills.lock"
    lock.write_text(f"<<<<<<< HEAD\n{lock.read_text()}")
    ran = run("run", skill, "count.py")
    assert "The lock of skill 'pages' is not used" in ran.stderr
    refused = run("prepare", skill)
    assert refused.returncode == 2
    assert refused.stderr.endswith("is not a lock of packages. Make it again: adk-skills prepare --upgrade.\n")
    assert run("prepare", skill, "--upgrade").returncode == 0
    assert "is not used" not in run("run", skill, "count.py").stderr


def test_a_python_that_the_skill_does_not_want_is_said(make_skill: Callable[..., Path], run: Run) -> None:
    block = "# /// script\n# requires-python = '>=3.99'\n# dependencies = ['xlrd']\n# ///\n"
    done = run("prepare", make_skill("newer", files={"scripts/a.py": f"{block}import xlrd\n"}))
    assert "note: python: a Python >=3.99" in done.stderr


def test_what_is_large_is_not_fetched_without_a_yes(skill: Path, run: Run, index: LocalIndex, tmp_path: Path) -> None:
    run("prepare", skill)
    lock = json.loads((skill / "adk-skills.lock").read_text())
    lock["packages"][0]["size"] = 3 << 30
    (skill / "adk-skills.lock").write_text(json.dumps(lock))
    run("prepare", "--collect", "--unused-days", "0")
    fetched = len(index.downloads)
    refused = run("prepare", skill)
    assert refused.returncode == 2
    assert "This fetches up to 3072.0 MiB (pypdf 3072.0 MiB" in refused.stderr
    assert "--yes" in refused.stderr
    assert len(index.downloads) == fetched
    assert run("prepare", skill, "--yes").returncode == 0


def test_environments_are_collected(skill: Path, run: Run, tmp_path: Path) -> None:
    run("prepare", skill)
    assert "Removed 0 environments" in run("prepare", "--collect").stdout
    folder = tmp_path / "home-cache" / "adk-skills" / "environments"
    long_ago = time.time() - 31 * 86_400
    for one in folder.iterdir():
        os.utime(one, (long_ago, long_ago))
    collected = json.loads(run("prepare", "--collect", "--json").stdout)
    assert len(collected["removed"]) == 1
    assert collected["bytes"] > 0
    assert not [one for one in folder.iterdir() if one.is_dir()]
