"""The rules of a .gitignore, and that a scan follows them when asked to."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
from adk_skills_agent.catalog.discovery import GitIgnore, _rule


@pytest.mark.parametrize("rule", ["*a*a*a*a*a*a*ab", "**/a/**/a/**/a/**/a/**/a/**/b"])
def test_a_gitignore_of_many_stars_takes_no_exponential_time(rule: str) -> None:
    parts = _rule(rule)
    assert parts is not None
    assert not parts.fits(["a" * 200] * 20)
    assert not parts.fits(["a"] * 200)


@pytest.mark.parametrize(
    ("rule", "path", "fits"),
    [
        ("*.egg*", "x.egg-info", True),
        ("a*b*c", "aXbXbc", True),
        ("a*b*c", "aXbXbcd", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**", "a", False),
        ("a/**", "a/b/c", True),
        ("**/b", "a/b", True),
        ("[!a]?", "bc", True),
        ("[*]x", "*x", True),
        ("\\*x", "yx", False),
        ("/a*", "b/ab", False),
    ],
)
@pytest.mark.requirement("C6")
def test_the_wildcards_of_a_gitignore_mean_what_git_says_c6(rule: str, path: str, fits: bool) -> None:
    parts = _rule(rule)
    assert parts is not None
    assert parts.fits(path.split("/")) is fits


def discovered(root: Path, config: RegistryConfig) -> SkillsRegistry:
    registry = SkillsRegistry(config)
    registry.discover([root])
    return registry


@pytest.mark.requirement("C6")
def test_gitignore_is_followed_only_when_asked_for_c6(make_skill: Callable[..., Path], tmp_path: Path) -> None:
    root = tmp_path / "all"
    make_skill("kept", root=root)
    make_skill("built", root=root / "build")
    make_skill("again", root=root / "out" / "keep")
    make_skill("dropped", root=root / "out" / "drop")
    make_skill("local", root=root / "pkg" / "tmp")
    (root / ".gitignore").write_text("# comment\n/build/\nout/*\n!out/keep\n**/nothing\n")
    (root / "pkg" / ".gitignore").write_text("tmp/\n")
    assert len(discovered(root, RegistryConfig(cache=False))) == 5
    config = RegistryConfig(cache=False, respect_gitignore=True)
    registry = discovered(root, config=config)
    assert list(registry) == ["again", "kept"]
    (root / "pkg" / ".gitignore").write_text("")
    assert registry.refresh()
    assert list(registry) == ["again", "kept", "local"]


def git(folder: Path, *arguments: str, given: str = "") -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], input=given, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@needs_git
@pytest.mark.requirement("C6")
def test_a_gitignore_above_the_scanned_folder_counts_as_for_git_c6(
    make_skill: Callable[..., Path], tmp_path: Path
) -> None:
    top = tmp_path / "project"
    skills = top / "agents" / "skills"
    for name in ("kept", "draft", "private"):
        make_skill(name, root=skills)
    git(tmp_path, "init", "-q", str(top))
    (top / ".gitignore").write_text("draft/\n/agents/other\n")
    (top / ".git" / "info" / "exclude").write_text("private\n")
    config = RegistryConfig(cache=False, respect_gitignore=True)
    registry = discovered(skills, config)
    assert list(registry) == ["kept"]
    passed_over = sorted(str(found.file) for found in registry.diagnostics if found.code == "ignored-by-git")
    assert passed_over == [str(skills / "draft"), str(skills / "private")]
    # A folder in an ignored one has no skills either, and that is said.
    (top / ".gitignore").write_text("agents\n")
    registry = discovered(skills, config)
    assert (list(registry), [found.code for found in registry.diagnostics]) == ([], ["ignored-by-git"])


@needs_git
@pytest.mark.requirement("C6")
def test_folders_are_ignored_exactly_where_git_check_ignore_says_so_c6(tmp_path: Path) -> None:
    chosen = random.Random(13)
    pieces = ["a", "b", "ab", "*", "a*", "*b", "?", "**", "[ab]", "x.y", "*.y"]
    folders = sorted({"/".join(chosen.choices(["a", "b", "ab", "x.y", "c"], k=depth)) for depth in (1, 2, 3) * 9})
    for number in range(40):
        top = tmp_path / str(number)
        git(tmp_path, "init", "-q", str(top))
        for folder in folders:
            (top / folder).mkdir(parents=True, exist_ok=True)
        for place in (".", "a"):
            lines = [
                chosen.choice(["", "", "!"])
                + chosen.choice(["", "/"])
                + "/".join(chosen.choices(pieces, k=chosen.choice([1, 1, 2, 3])))
                + chosen.choice(["", "/"])
                for _ in range(4)
            ]
            (top / place).mkdir(exist_ok=True)
            (top / place / ".gitignore").write_text("\n".join(lines) + "\n")
        theirs = set(git(top, "check-ignore", "--stdin", given="".join(f"{one}\n" for one in folders)).splitlines())
        ours = {one for one in folders if GitIgnore(str(top)).excludes_root(f"{top}/{one}")}
        assert ours == theirs, [(top / place / ".gitignore").read_text() for place in (".", "a")]


def test_row_313_rules_of_blanks_and_brackets_are_read_in_linear_time() -> None:
    for line in ("a" + " " * 250_000 + "b", "[" * 250_000):
        assert _rule(line) is None
        assert _rule(line[:4096]) is not None
    assert _rule("build   ") == _rule("build")
    assert _rule("build\\   ") == _rule("build\\ ") != _rule("build")
