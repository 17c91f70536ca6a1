from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.catalog import RegistryConfig, Scope, SkillsRegistry, trust_project
from adk_skills_agent.catalog.scopes import project_root

MakeSkill = Callable[..., Path]
TRUSTING = RegistryConfig(cache=False, trust=True, packages=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "packages" / "web").mkdir(parents=True)
    return folder


def scoped(cwd: Path, config: RegistryConfig = TRUSTING) -> SkillsRegistry:
    registry = SkillsRegistry(config)
    registry.discover_scopes(cwd)
    return registry


@pytest.mark.parametrize("client", [".adk/skills", ".agents/skills", ".claude/skills"])
@pytest.mark.requirement("C2", "C3")
def test_each_client_folder_is_read_in_project_ancestors_and_home_c2_c3(
    client: str, make_skill: MakeSkill, project: Path, private_home: Path
) -> None:
    make_skill("near", root=project / "packages" / "web" / client)
    make_skill("middle", root=project / "packages" / client)
    make_skill("top", root=project / client)
    make_skill("above", root=project.parent / client)
    make_skill("mine", root=private_home / client)
    registry = scoped(project / "packages" / "web")
    assert {name: registry.scope_of(name) for name in registry} == {
        "near": Scope.PROJECT,
        "middle": Scope.ANCESTOR,
        "top": Scope.ANCESTOR,
        "mine": Scope.USER,
    }
    assert registry.diagnostics == ()


def test_without_a_git_root_only_the_folder_itself_is_the_project(make_skill: MakeSkill, tmp_path: Path) -> None:
    make_skill("above", root=tmp_path / ".agents" / "skills")
    make_skill("here", root=tmp_path / "a" / ".agents" / "skills")
    assert project_root(str(tmp_path / "a")) == str(tmp_path / "a")
    assert list(scoped(tmp_path / "a")) == ["here"]


def test_row_197_a_repository_in_a_folder_for_everybody_makes_no_project_of_what_lies_below(tmp_path: Path) -> None:
    """Seen: with another user's /tmp/.git and /tmp/.agents/skills, ``adk-skills trust`` in /tmp/mine trusted these."""
    mine = tmp_path / "shared" / "mine" / "deep"
    mine.mkdir(parents=True)
    (tmp_path / "shared" / ".git").mkdir()
    assert project_root(str(mine)) == str(tmp_path / "shared")
    (tmp_path / "shared").chmod(0o1777)
    assert project_root(str(mine)) == str(mine)
    assert project_root(str(tmp_path / "shared")) == str(tmp_path / "shared")
    (mine.parent / ".git").mkdir()
    assert project_root(str(mine)) == str(mine.parent)


def test_a_worktree_whose_git_is_a_file_is_a_root_too(make_skill: MakeSkill, tmp_path: Path) -> None:
    make_skill("top", root=tmp_path / "tree" / ".agents" / "skills")
    (tmp_path / "tree" / ".git").write_text("gitdir: ../repository\n")
    (tmp_path / "tree" / "sub").mkdir()
    assert list(scoped(tmp_path / "tree" / "sub")) == ["top"]


@pytest.mark.requirement("C1", "C8", "C10")
def test_precedence_goes_from_explicit_to_admin_and_each_shadow_names_both_places_c8_c10(
    make_skill: MakeSkill, project: Path, private_home: Path, tmp_path: Path
) -> None:
    places = {
        "explicit": tmp_path / "explicit",
        "adk": project / "packages" / ".adk" / "skills",
        "agents": project / "packages" / ".agents" / "skills",
        "claude": project / "packages" / ".claude" / "skills",
        "ancestor": project / ".adk" / "skills",
        "home": private_home / ".adk" / "skills",
        "xdg": private_home / ".config" / "adk-skills" / "skills",
        "admin": tmp_path / "admin",
    }
    for place, root in places.items():
        make_skill("same", description=f"From {place}.", root=root)
    config = RegistryConfig(cache=False, trust=True, packages=False, admin_folders=(tmp_path / "admin",))
    for place in list(places):
        registry = SkillsRegistry(config)
        registry.discover_scopes(project / "packages")
        if (tmp_path / "explicit").exists():
            registry.discover([tmp_path / "explicit"])
        assert registry.get_metadata("same").description == f"From {place}."
        shadows = [diagnostic for diagnostic in registry.diagnostics if diagnostic.code == "shadowed-skill"]
        assert len(shadows) == len(places) - 1
        for diagnostic in shadows:
            assert str(places[place] / "same" / "SKILL.md") in diagnostic.message
            assert str(diagnostic.file) in diagnostic.message
        subprocess.run(["rm", "-r", places.pop(place)], check=True)


@pytest.mark.requirement("C9")
def test_within_a_scope_the_first_in_sorted_order_wins_c9(make_skill: MakeSkill, tmp_path: Path) -> None:
    for folder in ("b", "a", "c"):
        make_skill("same", root=tmp_path / "all" / folder, description=f"From {folder}.")
    registry = SkillsRegistry(RegistryConfig(cache=False))
    assert registry.discover([tmp_path / "all"]) == 1
    assert registry.get_metadata("same").description == "From a."
    assert len(registry.diagnostics) == 2


def test_overlapping_and_repeated_folders_shadow_nothing(make_skill: MakeSkill, tmp_path: Path) -> None:
    make_skill("one", root=tmp_path / "all" / "group")
    (tmp_path / "alias").symlink_to("all")
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover([tmp_path / "all", tmp_path / "all" / "group", tmp_path / "all", tmp_path / "alias"])
    assert list(registry) == ["one"]
    assert registry.diagnostics == ()


@pytest.mark.requirement("C11")
def test_project_skills_wait_for_trust_and_one_diagnostic_says_how_c11(
    make_skill: MakeSkill, project: Path, private_home: Path
) -> None:
    make_skill("theirs", root=project / ".claude" / "skills")
    make_skill("near", root=project / "packages" / ".agents" / "skills")
    make_skill("mine", root=private_home / ".agents" / "skills")
    registry = scoped(project / "packages", RegistryConfig(cache=False, packages=False))
    assert list(registry) == ["mine"]
    (diagnostic,) = registry.diagnostics
    assert diagnostic.code == "untrusted-project"
    assert f"adk-skills trust {project}" in diagnostic.message
    assert str(project) in diagnostic.message
    trust_project(project)
    assert registry.refresh()
    assert list(registry) == ["mine", "near", "theirs"]
    assert registry.diagnostics == ()


def test_never_trusting_wins_over_the_list(make_skill: MakeSkill, project: Path) -> None:
    make_skill("theirs", root=project / ".claude" / "skills")
    trust_project(project)
    registry = scoped(project, RegistryConfig(cache=False, trust=False, packages=False))
    assert list(registry) == []
    assert [diagnostic.code for diagnostic in registry.diagnostics] == ["untrusted-project"]


def test_a_project_without_skills_says_nothing_about_trust(project: Path) -> None:
    registry = scoped(project, RegistryConfig(cache=False, packages=False))
    assert registry.diagnostics == ()


def test_working_in_the_home_needs_no_trust(make_skill: MakeSkill, private_home: Path) -> None:
    make_skill("mine", root=private_home / ".claude" / "skills")
    registry = scoped(private_home, RegistryConfig(cache=False, packages=False))
    assert registry.scope_of("mine") is Scope.USER


def test_links_may_lead_around_in_the_project_but_not_out_of_it(
    make_skill: MakeSkill, project: Path, tmp_path: Path
) -> None:
    outside = make_skill("outside", root=tmp_path / "elsewhere")
    make_skill("shared", root=project / "skills")
    scope = project / ".agents" / "skills"
    scope.mkdir(parents=True)
    (scope / "shared").symlink_to("../../skills/shared")
    (scope / "outside").symlink_to(outside)
    (project / ".claude").mkdir()
    (project / ".claude" / "skills").symlink_to("../.agents/skills")
    (project / ".adk").mkdir()
    (project / ".adk" / "skills").symlink_to(outside.parent)
    registry = scoped(project)
    assert list(registry) == ["shared"]
    refused = [diagnostic for diagnostic in registry.diagnostics if diagnostic.code == "link-leaves-scope"]
    assert {diagnostic.file for diagnostic in refused} == {
        str(project / ".adk" / "skills"),
        str(scope / "outside"),
        str(project / ".claude" / "skills" / "outside"),
    }


def test_a_users_own_links_may_lead_anywhere(make_skill: MakeSkill, private_home: Path, tmp_path: Path) -> None:
    target = make_skill("mine", root=tmp_path / "src")
    (private_home / ".claude" / "skills").mkdir(parents=True)
    (private_home / ".claude" / "skills" / "mine").symlink_to(target)
    registry = scoped(tmp_path)
    assert list(registry) == ["mine"]
    assert [diagnostic.code for diagnostic in registry.diagnostics] == ["linked-folder"]


def test_a_scope_folder_made_later_is_seen(make_skill: MakeSkill, project: Path) -> None:
    registry = scoped(project)
    assert len(registry) == 0
    make_skill("new", root=project / ".agents" / "skills")
    assert registry.refresh()
    assert list(registry) == ["new"]


def test_scanned_scopes_are_bounded(make_skill: MakeSkill, project: Path) -> None:
    make_skill("far", root=project.joinpath(".agents", "skills", *"abcdefgh"))
    registry = scoped(project)
    assert list(registry) == []
    assert [diagnostic.code for diagnostic in registry.diagnostics] == ["too-deep"]


def test_a_process_without_a_home_still_works(
    make_skill: MakeSkill, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill("near", root=project / ".agents" / "skills")
    monkeypatch.setenv("HOME", "no/home")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it is without HOME and without an account
    registry = scoped(project, RegistryConfig(trust=True, packages=False))
    assert list(registry) == ["near"]


@pytest.mark.requirement("C3")
def test_xdg_folders_are_honoured(make_skill: MakeSkill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    make_skill("mine", root=tmp_path / "settings" / "adk-skills" / "skills")
    (tmp_path / "empty").mkdir()
    assert list(scoped(tmp_path / "empty")) == ["mine"]


def test_a_home_reached_by_a_link_is_still_the_home(
    make_skill: MakeSkill, private_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill("mine", root=private_home / ".claude" / "skills")
    (tmp_path / "home").symlink_to(private_home)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    registry = scoped(private_home, RegistryConfig(cache=False, packages=False))
    assert registry.scope_of("mine") is Scope.USER
    assert registry.diagnostics == ()


def test_a_working_folder_behind_a_link_does_not_borrow_trust(
    make_skill: MakeSkill, project: Path, tmp_path: Path
) -> None:
    evil = tmp_path / "evil"
    (evil / "sub").mkdir(parents=True)
    make_skill("bad", root=evil / "sub" / ".agents" / "skills")
    (project / "link").symlink_to(evil / "sub")
    trust_project(project)
    registry = scoped(project / "link", RegistryConfig(cache=False, packages=False))
    assert list(registry) == []
    assert [diagnostic.code for diagnostic in registry.diagnostics] == ["untrusted-project"]


def test_a_working_folder_that_is_gone_leaves_the_user_scope(
    make_skill: MakeSkill, private_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill("mine", root=private_home / ".agents" / "skills")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    registry = SkillsRegistry(RegistryConfig(cache=False, packages=False))
    registry.discover_scopes()
    monkeypatch.undo()
    assert "no-such-folder" in [diagnostic.code for diagnostic in registry.diagnostics]


def test_a_working_folder_reached_by_a_link_has_its_ancestors(
    make_skill: MakeSkill, project: Path, tmp_path: Path
) -> None:
    (project / "deep" / "er").mkdir(parents=True)
    make_skill("above", root=project / ".agents" / "skills")
    (tmp_path / "short").symlink_to(project / "deep" / "er")
    registry = scoped(tmp_path / "short", RegistryConfig(trust=True, cache=False, packages=False))
    assert "above" in registry
