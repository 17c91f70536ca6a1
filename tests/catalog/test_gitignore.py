"""The rules of a .gitignore, and that a scan follows them when asked to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
from adk_skills_agent.catalog.discovery import _rule


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
def test_the_wildcards_of_a_gitignore_mean_what_git_says_c6(rule: str, path: str, fits: bool) -> None:
    parts = _rule(rule)
    assert parts is not None
    assert parts.fits(path.split("/")) is fits


def discovered(root: Path, config: RegistryConfig) -> SkillsRegistry:
    registry = SkillsRegistry(config)
    registry.discover([root])
    return registry


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
