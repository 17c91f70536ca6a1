from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
from adk_skills_agent.format.models import Severity

MakeSkill = Callable[..., Path]


def discovered(*dirs: Path | str, config: RegistryConfig | None = None) -> SkillsRegistry:
    registry = SkillsRegistry(config or RegistryConfig(cache=False))
    registry.discover(dirs)
    return registry


def codes(registry: SkillsRegistry) -> list[str]:
    return [diagnostic.code for diagnostic in registry.diagnostics]


@pytest.mark.requirement("C4")
def test_skills_in_nested_folders_are_found_l9(make_skill: MakeSkill, tmp_path: Path) -> None:
    make_skill("top", root=tmp_path / "all")
    make_skill("below", root=tmp_path / "all" / "group" / "subgroup")
    (tmp_path / "all" / "README.md").write_text("no skill")
    registry = discovered(tmp_path / "all")
    assert list(registry) == ["below", "top"]
    assert registry.diagnostics == ()


def test_a_skill_folder_and_a_skill_file_can_be_named_directly(make_skill: MakeSkill, tmp_path: Path) -> None:
    folder = make_skill("one", root=tmp_path / "a")
    other = make_skill("two", root=tmp_path / "b")
    make_skill("inner", root=other)
    registry = SkillsRegistry(RegistryConfig(cache=False))
    assert registry.discover([folder]) == 1
    assert registry.discover([other / "SKILL.md"]) == 1
    assert list(registry) == ["one", "two"]


def test_a_tilde_is_the_home(make_skill: MakeSkill, private_home: Path) -> None:
    make_skill("mine", root=private_home / "my-skills")
    assert list(discovered("~/my-skills")) == ["mine"]


def test_a_relative_folder_is_taken_from_where_the_process_is(
    make_skill: MakeSkill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill("one", root=tmp_path / "x")
    monkeypatch.chdir(tmp_path)
    registry = discovered("x")
    monkeypatch.chdir("/")
    assert registry.load_skill("one").instructions.startswith("# Sample")


def test_one_path_in_place_of_a_list_is_that_path(make_skill: MakeSkill, tmp_path: Path) -> None:
    make_skill("one")
    registry = SkillsRegistry(RegistryConfig(cache=False))
    assert registry.discover(str(tmp_path / "skills")) == 1


@pytest.mark.parametrize("bad", ["", "a\0b", "\udce4", "~nobody-of-that-name/skills", "/dev/null", "x" * 5000])
def test_what_is_no_folder_leaves_an_error_and_keeps_the_rest(bad: str, make_skill: MakeSkill, tmp_path: Path) -> None:
    make_skill("one")
    registry = discovered(bad, tmp_path / "skills")
    assert list(registry) == ["one"]
    assert [diagnostic.severity for diagnostic in registry.diagnostics] == [Severity.ERROR]


def test_a_missing_folder_is_named_in_the_error_and_found_once_it_is_there(
    make_skill: MakeSkill, tmp_path: Path
) -> None:
    registry = discovered(tmp_path / "skills")
    assert codes(registry) == ["no-such-folder"]
    assert str(tmp_path / "skills") in registry.diagnostics[0].message
    make_skill("late")
    assert registry.refresh()
    assert list(registry) == ["late"]
    assert registry.diagnostics == ()


def test_a_skill_inside_a_skill_is_found_but_not_what_its_own_folders_hold(make_skill: MakeSkill) -> None:
    outer = make_skill("outer")
    make_skill("inner", root=outer)
    make_skill("deep", root=outer / "models" / "group")
    for name in ("scripts", "references", "assets"):
        make_skill(f"sample-{name}", root=outer / name)
    registry = discovered(outer.parent)
    assert list(registry) == ["deep", "inner", "outer"]
    assert codes(registry) == ["nested-skill", "nested-skill"]
    assert all(diagnostic.severity is Severity.INFO for diagnostic in registry.diagnostics)


@pytest.mark.parametrize("place", ["later", "link"])
def test_row_398_a_skill_inside_a_skill_takes_no_other_ones_name(
    make_skill: MakeSkill, tmp_path: Path, place: str
) -> None:
    """Seen: a stranger's installed skill brought one in its folder that had another one's name, and so its keys."""
    strangers, own = tmp_path / "strangers", tmp_path / "own"
    make_skill("tool", root=make_skill("a-two", root=strangers))
    wanted = make_skill("tool", root=own)
    folders = [strangers, own]
    if place == "link":
        (strangers / "tool").symlink_to(wanted)
        folders = [strangers]
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover(folders)
    assert registry.load_skill("tool").skill_dir.resolve() == wanted.resolve()
    assert "shadowed-skill" in codes(registry)


@pytest.mark.parametrize("name", ["SKILLS.md", "skill.txt", "Skill.markdown"])
def test_a_file_that_is_almost_called_skill_md_is_told(make_skill: MakeSkill, name: str) -> None:
    folder = make_skill("one", files={"scripts/run.py": ""})
    (folder / "SKILL.md").rename(folder / name)
    make_skill("two")
    (folder.parent / "SKILLS.md").write_text("- one\n- two\n")  # a list of them
    registry = discovered(folder.parent)
    assert list(registry) == ["two"]
    found = [(problem.code, problem.message) for problem in registry.diagnostics]
    assert [code for code, _ in found] == ["skill-file-name"]
    assert f"one/{name} is not called SKILL.md, so it is no skill. Rename it." in found[0][1]


@pytest.mark.requirement("C4")
def test_a_skill_file_in_lower_case_is_accepted_with_a_warning(make_skill: MakeSkill) -> None:
    folder = make_skill("one")
    (folder / "SKILL.md").rename(folder / "Skill.md")
    registry = discovered(folder.parent)
    assert list(registry) == ["one"]
    assert codes(registry) == ["skill-file-name"]
    assert registry.load_skill("one").files() == ()


@pytest.mark.requirement("C4")
def test_the_exact_spelling_wins_over_others(make_skill: MakeSkill) -> None:
    folder = make_skill("one")
    (folder / "skill.md").write_text("---\nname: other\ndescription: Other.\n---\n")
    registry = discovered(folder.parent)
    assert list(registry) == ["one"]
    assert [file.path for file in registry.load_skill("one").files()] == ["skill.md"]


@pytest.mark.parametrize("name", [".git", "node_modules", "__pycache__", ".venv", ".hg", ".tox"])
@pytest.mark.requirement("C5")
def test_folders_of_other_tools_are_not_searched_c5(name: str, make_skill: MakeSkill, tmp_path: Path) -> None:
    make_skill("hidden", root=tmp_path / "all" / name)
    make_skill("shown", root=tmp_path / "all" / ".github")
    assert list(discovered(tmp_path / "all")) == ["shown"]


def test_a_virtual_environment_is_known_by_its_mark(make_skill: MakeSkill, tmp_path: Path) -> None:
    make_skill("venv", root=tmp_path / "all")
    make_skill("hidden", root=tmp_path / "all" / "environment")
    (tmp_path / "all" / "environment" / "pyvenv.cfg").write_text("home = /usr\n")
    assert list(discovered(tmp_path / "all")) == ["venv"]


@pytest.mark.requirement("C7")
def test_bounds_cut_with_a_warning_and_the_upper_folders_come_first_c7(make_skill: MakeSkill, tmp_path: Path) -> None:
    for number in range(5):
        make_skill(f"deep-{number}", root=tmp_path / "all" / "a" / "b")
    for number in range(5):
        make_skill(f"top-{number}", root=tmp_path / "all")
    shallow = discovered(tmp_path / "all", config=RegistryConfig(cache=False, explicit_max_depth=1))
    assert len(shallow) == 5
    assert codes(shallow) == ["too-deep"]
    few = discovered(tmp_path / "all", config=RegistryConfig(cache=False, explicit_max_folders=8))
    assert list(few) == [f"top-{number}" for number in range(5)]
    assert codes(few) == ["too-many-folders"]
    assert str(tmp_path) in few.diagnostics[0].message


def test_named_folders_have_no_bounds_by_default(make_skill: MakeSkill, tmp_path: Path) -> None:
    make_skill("far", root=tmp_path.joinpath("all", *"abcdefghijklm"))
    assert list(discovered(tmp_path / "all")) == ["far"]


def test_a_linked_folder_is_followed_and_named(make_skill: MakeSkill, tmp_path: Path) -> None:
    target = make_skill("real", root=tmp_path / "elsewhere")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "alias").symlink_to(target)
    registry = discovered(tmp_path / "all")
    assert list(registry) == ["real"]
    assert "linked-folder" in codes(registry)


def test_an_alias_beside_its_skill_does_not_hide_it_row_14c(make_skill: MakeSkill) -> None:
    folder = make_skill("real")
    (folder.parent / "alias").symlink_to("real")
    registry = discovered(folder.parent)
    assert registry.get_metadata("real").location == folder / "SKILL.md"
    assert codes(registry) == ["same-folder"]


def test_loops_of_links_end(make_skill: MakeSkill) -> None:
    folder = make_skill("one")
    root = folder.parent
    (root / "up").symlink_to("..")
    (root / "self").symlink_to("self")
    (root / "ping").symlink_to("pong")
    (root / "pong").symlink_to("ping")
    (folder / "back").symlink_to("..")
    registry = discovered(root)
    assert list(registry) == ["one"]
    assert {"same-folder", "unreadable-folder"} <= set(codes(registry))


def test_a_broken_link_is_reported_until_it_is_repaired(make_skill: MakeSkill, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "alias").symlink_to(tmp_path / "elsewhere" / "late")
    registry = discovered(tmp_path / "all")
    assert codes(registry) == ["broken-link"]
    make_skill("late", root=tmp_path / "elsewhere")
    assert registry.refresh()
    assert list(registry) == ["late"]
    assert codes(registry) == ["linked-folder", "name-mismatch"]


def test_a_skill_file_that_leads_out_of_its_skill_is_refused_row_9(make_skill: MakeSkill, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("---\nname: secret\ndescription: Secret.\n---\n")
    folder = make_skill("leak")
    (folder / "SKILL.md").unlink()
    (folder / "SKILL.md").symlink_to(tmp_path / "secret.md")
    make_skill("fine")
    registry = discovered(folder.parent)
    assert list(registry) == ["fine"]
    assert codes(registry) == ["link-leaves-skill"]


def test_a_skill_file_may_be_a_link_inside_its_skill(make_skill: MakeSkill) -> None:
    folder = make_skill("one")
    (folder / "SKILL.md").rename(folder / "README.md")
    (folder / "SKILL.md").symlink_to("README.md")
    registry = discovered(folder.parent)
    assert list(registry) == ["one"]
    (folder / "README.md").write_text("---\nname: one\ndescription: Changed behind the link.\n---\nNew body\n")
    assert registry.refresh()
    assert registry.get_metadata("one").description == "Changed behind the link."
    assert registry.load_skill("one").instructions == "New body"


@pytest.mark.requirement("C19")
def test_hostile_skill_files_leave_a_diagnostic_each_and_the_catalog_stays_row_14(
    make_skill: MakeSkill, tmp_path: Path
) -> None:
    make_skill("fine")
    root = tmp_path / "skills"
    names = ("fifo", "folder", "huge", "empty", "loop", "dangling", "socket")
    for name in names:
        (root / name).mkdir()
    os.mkfifo(root / "fifo" / "SKILL.md")
    (root / "folder" / "SKILL.md").mkdir()
    with (root / "huge" / "SKILL.md").open("wb") as file:
        file.truncate(100 << 20)
    (root / "empty" / "SKILL.md").touch()
    (root / "loop" / "SKILL.md").symlink_to("SKILL.md")
    (root / "dangling" / "SKILL.md").symlink_to("nothing.md")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(root / "socket")  # a socket's path must be short
        listener.bind("SKILL.md")
        os.chdir(here)
        registry = discovered(root)
    assert list(registry) == ["fine"]
    files = {diagnostic.file for diagnostic in registry.diagnostics}
    assert files == {str(root / name / "SKILL.md") for name in names}
    assert all(diagnostic.severity is Severity.ERROR for diagnostic in registry.diagnostics)


def test_text_that_is_not_utf8_loads_with_a_diagnostic(make_skill: MakeSkill) -> None:
    folder = make_skill("one")
    (folder / "SKILL.md").write_bytes(b"---\nname: one\ndescription: Caf\xe9 tables.\n---\nbody\n")
    registry = discovered(folder.parent)
    assert list(registry) == ["one"]
    assert registry.diagnostics


def test_a_name_with_dots_and_slashes_stays_a_plain_name(make_skill: MakeSkill) -> None:
    folder = make_skill("one")
    (folder / "SKILL.md").write_text("---\nname: ../../etc/passwd\ndescription: Bad.\n---\nbody\n")
    registry = discovered(folder.parent)
    (name,) = registry
    assert "/" not in name
    assert ".." not in name
    assert registry.get_metadata(name).original_name == "../../etc/passwd"


def test_a_folder_name_that_is_not_utf8_is_reported(make_skill: MakeSkill, tmp_path: Path) -> None:
    make_skill("fine")
    bad = os.fsencode(tmp_path / "skills") + b"/caf\xe9"
    os.mkdir(bad)
    registry = discovered(tmp_path / "skills")
    assert list(registry) == ["fine"]
    (diagnostic,) = registry.diagnostics
    assert diagnostic.code == "undecodable-name"
    diagnostic.message.encode("utf-8")


def test_unreadable_folders_and_files_leave_a_diagnostic_each(make_skill: MakeSkill, tmp_path: Path) -> None:
    root = make_skill("fine").parent
    make_skill("closed-file")
    make_skill("closed-folder")
    script = tmp_path / "as_nobody.py"
    script.write_text(
        textwrap.dedent("""
            import os, sys
            from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
            root = sys.argv[1]
            SkillsRegistry(RegistryConfig(cache=False)).discover([root])  # import everything while that is allowed
            os.chmod(f"{root}/closed-file/SKILL.md", 0)
            os.chmod(f"{root}/closed-folder", 0)
            if os.geteuid() == 0:
                os.setegid(65534)
                os.seteuid(65534)
            registry = SkillsRegistry(RegistryConfig(cache=False))
            registry.discover([root])
            print(*registry)
            print(*sorted((d.code, d.file.rsplit("/skills/")[1]) for d in registry.diagnostics))
        """)
    )
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder.is_relative_to("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    done = subprocess.run([sys.executable, script, root], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "fine",
        "('unreadable-folder', 'closed-folder') ('unreadable-skill', 'closed-file/SKILL.md')",
    ], done.stderr


def test_a_folder_that_vanishes_during_the_scan_is_an_information(tmp_path: Path, make_skill: MakeSkill) -> None:
    from adk_skills_agent.catalog.discovery import scan
    from adk_skills_agent.catalog.scopes import explicit_root

    for number in range(3):
        make_skill(f"s{number}", root=tmp_path / "all" / "group")
    root = explicit_root(tmp_path / "all", RegistryConfig())
    assert not hasattr(root, "code")
    first = scan(root, {})  # type: ignore[arg-type]
    # what a removal between listing "group" and visiting it looks like: the listing still has the name
    subprocess.run(["rm", "-r", tmp_path / "all" / "group" / "s1"], check=True)
    folder = first.folders[str(tmp_path / "all" / "group")]
    from adk_skills_agent.catalog.untrusted_files import stamp_of

    folder.settled = True
    folder.stamp = stamp_of((tmp_path / "all" / "group").stat())
    second = scan(root, first.folders)  # type: ignore[arg-type]
    assert [skill.name for skill in second.skills] == ["s0", "s2"]
    assert [problem.code for problem in second.problems] == ["vanished"]


def test_scans_survive_a_tree_that_is_built_and_removed_meanwhile(tmp_path: Path) -> None:
    root = tmp_path / "all"
    root.mkdir()
    churn = textwrap.dedent("""
        import os, shutil, sys, itertools
        print("ready", flush=True)
        for number in itertools.count():
            folder = f"{sys.argv[1]}/s{number % 7}"
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder + "/deep/er", exist_ok=True)
            open(folder + "/SKILL.md", "w").write(f"---\\nname: s{number % 7}\\ndescription: d{number}.\\n---\\nb")
    """)
    with subprocess.Popen([sys.executable, "-c", churn, root], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            registry = SkillsRegistry(RegistryConfig(cache=False))
            registry.discover([root])
            for _ in range(200):
                registry.refresh()
                for metadata in registry.list_metadata():
                    assert metadata.name.startswith("s")
        finally:
            process.kill()


@pytest.mark.requirement("S4-23")
def test_trusted_roots_let_only_skills_inside_them_load_s4_23(make_skill: MakeSkill, tmp_path: Path) -> None:
    make_skill("inside", root=tmp_path / "good")
    outside = make_skill("outside", root=tmp_path / "bad")
    (tmp_path / "good" / "alias").symlink_to(outside)
    config = RegistryConfig(cache=False, trusted_roots=(tmp_path / "good",))
    registry = discovered(tmp_path / "good", tmp_path / "bad", config=config)
    assert list(registry) == ["inside"]
    assert codes(registry).count("outside-trusted-roots") == 2
    whole = discovered(tmp_path, config=config)
    assert list(whole) == ["inside"]


@pytest.mark.slow
def test_links_that_change_during_a_scan_never_end_it(make_skill: MakeSkill, tmp_path: Path) -> None:
    folder = make_skill("one", files={"real.md": "---\nname: one\ndescription: d\n---\n"})
    make_skill("other")
    away = make_skill("away", root=tmp_path / "elsewhere")
    stop = threading.Event()

    def swap() -> None:
        aside, link = folder / ".aside", tmp_path / "skills" / "link"
        while not stop.is_set():
            aside.symlink_to("real.md")
            aside.replace(folder / "SKILL.md")
            aside.write_text("---\nname: one\ndescription: d\n---\n")
            aside.replace(folder / "SKILL.md")
            link.symlink_to(away)
            link.unlink()

    registry = discovered(tmp_path / "skills")
    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(1500):
            registry.refresh()
            assert "other" in registry
    finally:
        stop.set()
        thread.join()
