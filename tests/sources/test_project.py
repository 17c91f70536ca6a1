"""Installing, pinning, restoring and comparing; the command line against a real repository."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import tomllib
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repositories import Repository, Run, make_tree, names_below, skill_text

from adk_skills_agent.errors import ConfigError, IntegrityError, SourceError
from adk_skills_agent.packages.lock import read_lock as read_package_lock
from adk_skills_agent.sources import lock_file
from adk_skills_agent.sources import project as project_module
from adk_skills_agent.sources.consent import consent_page
from adk_skills_agent.sources.fetch import FetchedSkill, fetch_skills
from adk_skills_agent.sources.git import checkout
from adk_skills_agent.sources.integrity import Integrity, IntegrityCheck, locked_skill_at
from adk_skills_agent.sources.lock_file import LockedSkill, changed_manifest, read_skill_lock
from adk_skills_agent.sources.origin import Origin, OriginKind, read_origin
from adk_skills_agent.sources.other_installers import read_other_lock
from adk_skills_agent.sources.project import Project, compare_all
from adk_skills_agent.sources.signatures import read_signature_policy
from adk_skills_agent.sources.store import SkillStore
from adk_skills_agent.sources.tree import SkillTree, TreeFile, tree_of


def fetched(tree: SkillTree, name: str = "pdf", **about: object) -> FetchedSkill:
    return FetchedSkill(name, "Does it.", tree, Origin(OriginKind.FOLDER, "/src"), **about)  # type: ignore[arg-type]


# The command line


def test_add_installs_pins_and_says_what_it_did(repository: Repository, run: Run, tmp_path: Path):
    done = run("add", repository.bare, "--skill", "pdf", "--yes")
    assert done.returncode == 0, done.stderr
    project = tmp_path / "project"
    assert names_below(project) == [
        ".agents/skills/pdf/SKILL.md",
        ".agents/skills/pdf/scripts/count.py",
        "adk-skills.lock",
        "adk-skills.toml",
    ]
    assert os.access(project / ".agents/skills/pdf/scripts/count.py", os.X_OK)
    (entry,) = tomllib.loads((project / "adk-skills.lock").read_text())["skill"]
    assert entry["commit"] == repository.git("rev-parse", "HEAD")
    assert entry["source"] == repository.url
    assert set(entry["files"]) == {"SKILL.md", "scripts/count.py"}
    assert f"Installed: {project / '.agents/skills/pdf'}" in done.stdout
    assert "scripts   scripts/count.py" in done.stdout
    assert run("verify").returncode == 0
    listed = json.loads(run("list", "--installed", "--json").stdout)["skills"]
    assert [(one["name"], one["state"], one["scope"]) for one in listed] == [("pdf", "as locked", "project")]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_add_says_how_the_other_commands_find_them_while_the_project_is_not_trusted(
    repository: Repository, run: Run, tmp_path: Path
):
    """Seen: "Next: SkillToolset.from_dirs", and then ``list`` and ``run`` do not find what was installed."""
    hint = "adk-skills trust . lets adk-skills list, run and prepare find them here"
    add = ("add", repository.bare, "--skill", "pdf", "--yes")
    assert hint in run(*add).stdout
    assert run("list").stdout == ""
    assert run("trust", ".").returncode == 0
    assert hint not in run(*add).stdout
    assert run("list").stdout.startswith("pdf ")


def test_nothing_is_written_where_skills_cannot_be_put(monkeypatch: pytest.MonkeyPatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, 65534, 65534)
        monkeypatch.setenv("XDG_DATA_HOME", folder)
        place = Path(folder, "project")
        (place / ".agents/skills").mkdir(parents=True)
        os.chown(place, 65534, 65534)
        os.seteuid(65534)
        try:
            project = Project(place, store=SkillStore(Path(folder, "store")))
            with pytest.raises(SourceError, match=r"skills cannot be written\. Give yourself the right to"):
                project.add([fetched(make_tree())])
        finally:
            os.seteuid(0)
        assert names_below(place) == []


def test_nothing_is_written_without_a_yes_where_nobody_can_be_asked(repository: Repository, run: Run, tmp_path: Path):
    done = run("add", repository.bare, "--skill", "pdf")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    shown = run("add", repository.bare, "--skill", "pdf", "--dry-run", "--json")
    assert json.loads(shown.stdout)["skills"][0]["commit"] == repository.git("rev-parse", "HEAD")
    assert names_below(tmp_path / "project") == []


def test_with_json_nothing_is_asked(repository: Repository, run: Run, tmp_path: Path):
    """Asked on a terminal, it was agreed to without the page, between the lines of the JSON."""
    assert "Leave out one of them" in run("add", repository.bare, "--skill", "pdf", "--all", "--dry-run").stderr
    done = run("add", repository.bare, "--skill", "pdf", "--json")
    assert done.returncode == 2
    assert "With --json nothing is asked" in done.stderr
    assert done.stdout == ""


def test_one_of_many_must_be_named_and_a_wrong_name_gets_the_nearest(repository: Repository, run: Run):
    many = run("add", repository.bare, "--yes")
    assert many.returncode == 1
    assert "csv, pdf" in many.stderr
    wrong = run("add", repository.bare, "--skill", "pdff", "--yes")
    assert "Did you mean pdf" in wrong.stderr
    everything = run("add", repository.bare, "--all", "--yes", "--json")
    assert json.loads(everything.stdout)["installed"] == ["csv", "pdf"]


def test_verify_names_each_changed_added_and_missing_file(repository: Repository, run: Run, tmp_path: Path):
    run("add", repository.bare, "--all", "--yes")
    skills = tmp_path / "project/.agents/skills"
    with (skills / "pdf/SKILL.md").open("a") as file:
        file.write("more\n")
    (skills / "pdf/__pycache__").mkdir()
    (skills / "pdf/__pycache__/count.cpython-311.pyc").write_bytes(b"planted")
    (skills / "csv/SKILL.md").unlink()
    (skills / "own").mkdir()
    (skills / "own/SKILL.md").write_text(skill_text("own"))
    done = run("verify")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "csv: missing: SKILL.md",
        "pdf: changed: SKILL.md",
        "pdf: added: __pycache__/count.cpython-311.pyc",
        "0 of 2 skills as locked.",
    ]
    assert "Not in the lock: own" in done.stderr


def test_a_mode_that_changed_is_a_change(repository: Repository, run: Run, tmp_path: Path):
    run("add", repository.bare, "--skill", "pdf", "--yes")
    (tmp_path / "project/.agents/skills/pdf/scripts/count.py").chmod(0o644)
    assert "pdf: changed: scripts/count.py" in run("verify").stdout


@pytest.mark.requirement("S4-29")
def test_sync_restores_from_the_commit_of_the_lock_and_not_from_the_newest(
    repository: Repository, run: Run, tmp_path: Path
):
    run("add", repository.bare, "--skill", "pdf", "--yes", "--ref", "main")
    lock = (tmp_path / "project/adk-skills.lock").read_bytes()
    repository.write({"skills/pdf/SKILL.md": skill_text("pdf", "Newer.\n")})
    shutil.rmtree(tmp_path / "project/.agents")
    shutil.rmtree(tmp_path / "home")  # another machine: no store
    (tmp_path / "home").mkdir()
    done = run("sync", "--frozen", "--allow-private")
    assert done.stdout == "1 skill installed, 0 unchanged.\n", done.stderr
    assert "Newer" not in (tmp_path / "project/.agents/skills/pdf/SKILL.md").read_text()
    assert (tmp_path / "project/adk-skills.lock").read_bytes() == lock
    assert run("verify").returncode == 0


def test_a_warm_store_needs_no_source(repository: Repository, run: Run, tmp_path: Path):
    run("add", repository.bare, "--all", "--yes")
    shutil.rmtree(tmp_path / "project/.agents")
    shutil.rmtree(repository.bare)
    assert run("sync", "--frozen").stdout == "2 skills installed, 0 unchanged.\n"


def test_frozen_fails_on_local_edits_and_on_a_manifest_that_wants_more(
    repository: Repository, run: Run, tmp_path: Path
):
    run("add", repository.bare, "--skill", "pdf", "--yes")
    manifest = tmp_path / "project/adk-skills.toml"
    was = manifest.read_text()
    manifest.write_text(was + 'csv = "a/b"\n')
    wants_more = run("sync", "--frozen")
    assert wants_more.returncode == 1
    assert "csv is wanted and not in the lock" in wants_more.stderr
    manifest.write_text(was.replace("skills/pdf", "skills/csv"))
    assert "pdf is wanted from" in run("sync", "--frozen").stderr
    manifest.write_text('[tool.adk-skills.skills]\npdf = {source = "a/b", ref = 5}\n')
    assert "the skill 'pdf' has a ref or a path that is no text" in run("sync", "--frozen").stderr
    manifest.write_text("[tool.adk-skills.skills]\n")
    assert "pdf is locked, and not wanted or needed any more" in run("sync", "--frozen").stderr
    assert "Differs: pdf is locked" in run("sync").stdout
    manifest.write_text(was)
    edited = tmp_path / "project/.agents/skills/pdf/SKILL.md"
    edited.write_text("mine")
    done = run("sync", "--frozen")
    assert done.returncode == 1
    assert "pdf: changed: SKILL.md" in done.stderr
    assert edited.read_text() == "mine"


def test_sync_keeps_local_edits_and_force_keeps_them_aside(repository: Repository, run: Run, tmp_path: Path):
    run("add", repository.bare, "--skill", "pdf", "--yes")
    edited = tmp_path / "project/.agents/skills/pdf/SKILL.md"
    edited.write_text(skill_text("pdf", "Mine.\n"))
    kept = run("sync")
    assert kept.returncode == 1
    assert "pdf has local edits" in kept.stdout
    assert "Mine." in edited.read_text()
    assert run("sync", "--force").returncode == 0
    assert "Mine." not in edited.read_text()
    aside = tmp_path / "home/.local/share/adk-skills/replaced"
    assert any("Mine." in path.read_text() for path in aside.rglob("SKILL.md"))


def test_bytes_that_are_not_those_of_the_lock_are_refused(repository: Repository, run: Run, tmp_path: Path):
    source = tmp_path / "source"
    shutil.copytree(repository.work / "skills/pdf", source)
    run("add", source, "--yes")
    shutil.rmtree(tmp_path / "project/.agents")
    shutil.rmtree(tmp_path / "home/.local")
    (source / "scripts/count.py").write_text("import evil\n")
    done = run("sync")
    assert done.returncode == 1
    assert "other bytes for 'pdf' than the lock says (scripts/count.py)" in done.stderr
    assert not (tmp_path / "project/.agents/skills/pdf").exists()


@pytest.mark.requirement("S4-29")
def test_a_skill_brings_what_it_needs_and_what_is_needed_is_not_removed(
    repository: Repository, run: Run, tmp_path: Path
):
    repository.write({"skills/report/SKILL.md": skill_text("report", requires_skills="pdf>=1.0, csv")})
    done = run("add", repository.bare, "--skill", "report", "--yes", "--json")
    assert json.loads(done.stdout)["installed"] == ["csv", "pdf", "report"], done.stderr
    wanted = tomllib.loads((tmp_path / "project/adk-skills.toml").read_text())["tool"]["adk-skills"]["skills"]
    assert list(wanted) == ["report"]
    refused = run("remove", "pdf")
    assert refused.returncode == 1
    assert "'pdf' is needed by 'report'" in refused.stderr
    assert json.loads(run("why", "pdf", "--json").stdout)["needed_by"] == ["report"]
    assert run("sync", "--frozen").returncode == 0
    removed = run("remove", "report")
    assert removed.returncode == 0
    assert "nothing needs csv, pdf any more. Remove too: adk-skills remove csv pdf" in removed.stderr
    assert run("sync", "--frozen").returncode == 1
    assert run("remove", "pdf", "csv").returncode == 0
    assert names_below(tmp_path / "project/.agents") == []


@pytest.mark.parametrize("file", ["adk-skills.lock", "adk-skills.toml"])
def test_what_cannot_be_written_leaves_lock_manifest_and_skills_as_they_were(
    file: str, repository: Repository, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run("add", repository.bare, "--all", "--yes")
    root = tmp_path / "project"
    before = {path: (root / path).read_bytes() for path in names_below(root)}
    whole = lock_file.write_aside

    def full(path: Path, data: bytes) -> None:
        if path.name == file and data != before[file]:
            raise OSError(28, "No space left on device", str(path))
        whole(path, data)

    monkeypatch.setattr(lock_file, "write_aside", full)
    monkeypatch.setattr(project_module, "write_aside", full)
    with pytest.raises(SourceError, match="No space left on device"):
        Project(root, store=SkillStore(tmp_path / "home/.local/share/adk-skills/store")).remove(["pdf", "csv"])
    assert {path: (root / path).read_bytes() for path in names_below(root)} == before


def test_a_project_file_that_comes_later_and_says_nothing_of_skills_hides_nothing(
    repository: Repository, run: Run, tmp_path: Path
):
    run("add", repository.bare, "--skill", "pdf", "--yes")
    root = tmp_path / "project"
    (root / "pyproject.toml").write_text("[project]\nname = 'x'\ndependencies = ['adk-skills-agent']\n")
    assert run("sync", "--frozen").returncode == 0
    run("add", repository.bare, "--skill", "csv", "--yes")
    assert "csv = " in (root / "adk-skills.toml").read_text()
    (root / "adk-skills.toml").write_text(
        (root / "adk-skills.toml").read_text() + "[tool.adk-skills]\nrequire-signature = true\n"
    )
    assert "A signature is required" in run("sync").stderr


def test_what_a_skill_needs_does_not_replace_what_the_user_has_from_elsewhere(
    repository: Repository, run: Run, tmp_path: Path
):
    other = Repository(tmp_path / "other")
    other.write({"pdf/SKILL.md": skill_text("pdf", "Evil.\n")})
    needs = {"one": f"pdf @ git+{other.url}#pdf", "two": "pdf"}
    repository.write({f"skills/{key}/SKILL.md": skill_text(key, requires_skills=value) for key, value in needs.items()})
    run("add", repository.bare, "--skill", "pdf", "--ref", "main", "--yes")
    lock = (tmp_path / "project/adk-skills.lock").read_bytes()
    refused = run("add", repository.bare, "--skill", "one", "--yes")
    assert refused.returncode == 1
    assert "'pdf' is needed from git+file:" in refused.stderr
    assert (tmp_path / "project/adk-skills.lock").read_bytes() == lock
    assert run("add", repository.bare, "--skill", "two", "--yes").returncode == 0
    assert run("sync", "--frozen").returncode == 0
    taken = run("add", f"git+{other.url}#pdf", "--yes")
    assert f"replaces  the one from git+{repository.url}@main#skills/pdf at " in taken.stdout
    assert run("add", repository.bare, "--skill", "one", "--yes").returncode == 0
    assert run("sync", "--frozen").returncode == 0


def test_what_a_skill_needs_does_not_replace_what_another_one_needs(repository: Repository, run: Run, tmp_path: Path):
    other = Repository(tmp_path / "other")
    other.write({"pdf/SKILL.md": skill_text("pdf", "Evil.\n")})
    needs = {"one": "pdf", "two": f"pdf @ git+{other.url}#pdf"}
    repository.write({f"skills/{key}/SKILL.md": skill_text(key, requires_skills=value) for key, value in needs.items()})
    assert run("add", repository.bare, "--skill", "one", "--yes").returncode == 0
    lock = (tmp_path / "project/adk-skills.lock").read_bytes()
    refused = run("add", repository.bare, "--skill", "two", "--yes")
    assert refused.returncode == 1
    assert "'pdf' is needed from git+file:" in refused.stderr
    assert (tmp_path / "project/adk-skills.lock").read_bytes() == lock
    changed = skill_text("one", requires_skills=needs["two"])  # who needs it may have it from elsewhere from now on
    repository.write({"skills/one/SKILL.md": changed})
    assert run("add", repository.bare, "--skill", "one", "--yes").returncode == 0
    assert other.url in (tmp_path / "project/adk-skills.lock").read_text()


def test_a_comment_of_the_project_file_stays(repository: Repository, run: Run, tmp_path: Path):
    project = tmp_path / "project/pyproject.toml"
    project.write_text("[project]\nname = 'x'  # ours\n\n[tool.ruff]\nline-length = 100  # wide\n")
    run("add", repository.bare, "--skill", "pdf", "--yes", "--ref", "main")
    text = project.read_text()
    assert "name = 'x'  # ours" in text
    assert "line-length = 100  # wide" in text
    wanted = tomllib.loads(text)["tool"]["adk-skills"]["skills"]["pdf"]
    assert wanted == {"source": f"git+{repository.url}", "ref": "main", "path": "skills/pdf"}
    run("remove", "pdf")
    assert "pdf" not in project.read_text()


def test_skills_of_the_user_are_in_the_home(repository: Repository, run: Run, tmp_path: Path):
    assert run("add", repository.bare, "--skill", "pdf", "--yes", "--scope", "user").returncode == 0
    assert (tmp_path / "home/.agents/skills/pdf/SKILL.md").is_file()
    assert (tmp_path / "home/.config/adk-skills/adk-skills.lock").is_file()
    assert names_below(tmp_path / "project") == []
    assert "pdf" in run("list").stdout


def test_a_link_shares_one_copy_that_nobody_may_write(repository: Repository, run: Run, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    for place in (tmp_path / "project", other):
        assert run("add", repository.bare, "--skill", "pdf", "--yes", "--link", cwd=place).returncode == 0
        assert run("verify", cwd=place).returncode == 0
    first, second = ((place / ".agents/skills/pdf").resolve() for place in (tmp_path / "project", other))
    assert first == second
    assert not (first / "SKILL.md").stat().st_mode & 0o222


# Without the command line


def test_row_382_what_is_only_called_ds_store_counts(repository: Repository, run: Run, tmp_path: Path):
    """Seen: `.DS_Store/x.py` beside locked files was no difference, and a script of the skill."""
    run("add", repository.bare, "--skill", "pdf", "--yes")
    skill = tmp_path / "project/.agents/skills/pdf"
    (skill / ".DS_Store").write_bytes(b"\0\0\0\1Bud1\0\0")
    assert run("verify").returncode == 0
    (skill / ".DS_Store").write_text("print('planted')\n")
    assert "pdf: added: .DS_Store\n" in run("verify").stdout
    (skill / ".DS_Store").unlink()
    (skill / ".DS_Store").mkdir()
    (skill / ".DS_Store/x.py").write_text("print('planted')\n")
    assert "pdf: added: .DS_Store/x.py\n" in run("verify").stdout


def test_row_385_no_script_gets_a_file_that_no_lock_names(repository: Repository, run: Run, tmp_path: Path):
    """Seen: a zip archive that began as such a file does was no difference, and `python3 .DS_Store` ran it."""
    repository.write(
        {"skills/pdf/scripts/look.py": "import os\nprint(sorted(os.listdir(os.path.dirname(__file__))))\n"}
    )
    run("add", repository.bare, "--skill", "pdf", "--yes")
    (tmp_path / "project/.agents/skills/pdf/scripts/.DS_Store").write_bytes(b"\0\0\0\1Bud1\nprint('planted')\n")
    assert run("verify").returncode == 0
    done = run("run", "pdf", "scripts/look.py", "--trust-project")
    assert "look.py" in done.stdout, done.stderr
    assert ".DS_Store" not in done.stdout


def test_an_update_leaves_a_link_a_link(repository: Repository, run: Run, tmp_path: Path):
    run("add", repository.bare, "--skill", "pdf", "--yes", "--link")
    repository.write({"skills/pdf/more.md": "More.\n"})
    assert run("update", "--yes").returncode == 0
    place = tmp_path / "project/.agents/skills/pdf"
    assert place.is_symlink()
    assert (place / "more.md").read_text() == "More.\n"


def test_a_link_to_a_store_that_is_gone_is_restored(repository: Repository, run: Run, tmp_path: Path):
    """On another machine, or after the store was removed; it was called a local edit, and nothing brought it back."""
    run("add", repository.bare, "--skill", "pdf", "--yes", "--link")
    shutil.rmtree(tmp_path / "home/.local")
    assert run("verify").stdout == "pdf: not installed\n0 of 1 skill as locked.\n"
    assert run("sync", "--frozen").stdout == "1 skill installed, 0 unchanged.\n"
    assert run("verify").returncode == 0


def test_a_folder_that_was_there_is_not_overwritten(project: Project):
    mine = project.skills_folder / "pdf"
    mine.mkdir(parents=True)
    (mine / "SKILL.md").write_text("mine")
    with pytest.raises(SourceError, match="was not installed by adk-skills"):
        project.add([fetched(make_tree())])
    assert (mine / "SKILL.md").read_text() == "mine"
    assert project.read_lock().skills == {}


def test_installing_the_same_again_changes_nothing(project: Project):
    project.add([fetched(make_tree())])
    before = project.lock_path.read_bytes()
    stamp = (project.skills_folder / "pdf/SKILL.md").stat().st_mtime_ns
    project.add([fetched(make_tree())])
    assert project.lock_path.read_bytes() == before
    assert (project.skills_folder / "pdf/SKILL.md").stat().st_mtime_ns == stamp


def test_a_damaged_tree_of_the_store_is_not_used(project: Project, tmp_path: Path, repository: Repository):
    project.add(fetch_skills(read_origin(str(repository.bare)), ["pdf"]))
    (digest,) = project.store.digests()
    place = project.store.path(digest) / "SKILL.md"
    place.chmod(0o644)
    place.write_text("damaged")
    shutil.rmtree(project.skills_folder)
    assert project.sync().installed == ("pdf",)
    assert all(state.is_same for state in project.verify())
    assert project.store.is_whole(digest)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("version = 1", "version = 7"), "version"),
        (lambda text: text.replace('tree = "sha256:', 'tree = "sha256:0'), "digests"),
        (lambda text: text.replace(".agents/skills/pdf", "../../pdf"), "no place"),
        (lambda text: text.replace('name = "pdf"', 'name = "../pdf"'), "no name"),
        (lambda text: text + text[text.index("[[skill]]") :], "twice"),
        (lambda text: text[:-30], "no TOML|cannot be used"),
        (lambda text: '{"format": 1}', "lock of packages"),
        (lambda text: text.replace('kind = "folder"', 'kind = "ftp"'), "cannot be used"),
        (lambda text: text.replace(".agents/skills/pdf", ".git/pdf"), "no place"),
        (lambda text: text.replace('source = "/src"', 'source = "--editable=/src"'), "no source"),
        (lambda text: text.replace('"folder"', '"pypi"'), "no name of a package"),
        (lambda text: text.replace('source = "/src"', 'source = "/src"\nsubpath = "../etc"'), "leaves the source"),
    ],
)
def test_a_lock_that_was_tampered_with_is_refused(project: Project, change, said: str):
    project.add([fetched(make_tree())])
    project.lock_path.write_text(change(project.lock_path.read_text()))
    with pytest.raises(ConfigError, match=said):
        project.verify()


@pytest.mark.parametrize("key", ["commit", "ref"])
def test_row_138_what_a_lock_says_is_no_option_of_git(key: str, repository: Repository, run: Run, tmp_path: Path):
    """The lock of a project may be anybody's: sync began what stood after ``--upload-pack=`` in it."""
    run("add", repository.bare, "--skill", "pdf", "--yes", "--ref", "main")
    shutil.rmtree(tmp_path / "home/.local")
    shutil.rmtree(tmp_path / "project/.agents")
    lock = tmp_path / "project/adk-skills.lock"
    option = f"--upload-pack=touch {tmp_path}/planted; git-upload-pack"
    was = next(line for line in lock.read_text().splitlines() if line.startswith(f"{key} = "))
    lock.write_text(lock.read_text().replace(was, f'{key} = "{option}"'))
    for command in ("sync", "outdated"):
        done = run(command)
        assert done.returncode == 2
        assert "is no branch, tag, commit or version" in done.stderr
    with pytest.raises(SourceError), checkout(repository.url, option):
        pass
    assert not (tmp_path / "planted").exists()


def test_a_link_in_the_way_does_not_lead_an_installation_out_of_the_project(project: Project, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (project.root / ".agents").symlink_to(outside)
    with pytest.raises(SourceError, match="leads out"):
        project.add([fetched(make_tree())])
    assert list(outside.iterdir()) == []


def test_row_188_nor_into_its_version_control(project: Project):
    """Seen: .agents/skills -> ../.git and a skill 'modules' with m/hooks/post-checkout, which git runs for m."""
    (project.root / ".git").mkdir()
    (project.root / ".agents").mkdir()
    (project.root / ".agents/skills").symlink_to("../.git")
    with pytest.raises(SourceError, match="version control"):
        project.add([fetched(make_tree())])
    assert list((project.root / ".git").iterdir()) == []


@pytest.mark.parametrize("place", [".venv/lib/python3.11/site-packages", "env/lib", "node_modules"])
def test_row_202_nor_to_packages_that_are_installed_in_it(place: str, project: Project):
    """Seen: .agents/skills -> ../.venv/lib/python3.11/site-packages, and a skill 'sitecustomize', which Python runs."""
    (project.root / place).mkdir(parents=True)
    (project.root / "env").mkdir(exist_ok=True)
    (project.root / "env/pyvenv.cfg").touch()
    (project.root / ".agents").mkdir()
    (project.root / ".agents/skills").symlink_to(f"../{place}")
    with pytest.raises(SourceError, match="installed packages"):
        project.add([fetched(make_tree())])
    assert list((project.root / place).iterdir()) == []
    (project.root / ".agents/skills").unlink()
    (project.root / "pyvenv.cfg").touch()  # an environment that was made in the project's own folder
    project.add([fetched(make_tree())])
    assert (project.skills_folder / "pdf/SKILL.md").is_file()


@pytest.mark.parametrize("read", [read_skill_lock, read_package_lock, read_other_lock])
def test_row_201_a_lock_that_is_no_file_is_not_read(read: Callable[[Path], object], tmp_path: Path):
    """Seen: a repository has adk-skills.lock -> /dev/ptmx, and adk-skills verify, sync and add wait for ever."""
    (tmp_path / "lock").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="no regular file"):
        read(tmp_path / "lock")


def test_row_233_a_manifest_that_is_a_link_out_of_the_project_is_not_copied_into_it(project: Project, tmp_path: Path):
    """Seen: adk-skills.toml -> ../.cargo/credentials.toml of a repository is a file with the token after an add."""
    (tmp_path / "credentials.toml").write_text('[registry]\ntoken = "private"\n')
    project.root.mkdir(exist_ok=True)
    project.manifest.symlink_to(tmp_path / "credentials.toml")
    with pytest.raises(ConfigError, match="leads out of the project"):
        project.add([fetched(make_tree())])
    assert project.manifest.is_symlink()
    project.manifest.unlink()
    (project.root / "own.toml").write_text("# ours\n")
    project.manifest.symlink_to("own.toml")
    project.add([fetched(make_tree())])
    assert "# ours" in project.manifest.read_text()


def test_row_201_a_long_lock_that_nothing_of_ours_wrote_is_not_parsed(tmp_path: Path):
    """Seen: adk-skills verify takes minutes and gigabytes for 63 MB of ``[],[],``."""
    (tmp_path / "lock").write_text(f"version = 1\na = [{'[],' * 3_000_000}]\n")
    with pytest.raises(ConfigError, match="not as adk-skills writes it"):
        read_skill_lock(tmp_path / "lock")


def test_row_201_a_manifest_without_end_does_not_fill_the_memory(tmp_path: Path):
    """Seen: adk-skills list --installed reads a sparse file of a terabyte, or /proc/kcore behind a link."""
    with (tmp_path / "adk-skills.toml").open("wb") as file:
        file.truncate(200 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="larger than"):
            read_signature_policy(tmp_path / "adk-skills.toml")
        with pytest.raises(ConfigError, match="more than 32 MiB"):
            changed_manifest(tmp_path / "adk-skills.toml", {"pdf": None})
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_the_lock_of_an_installed_skill_is_found_and_no_other(project: Project):
    project.add([fetched(make_tree())])
    found = locked_skill_at(project.skills_folder / "pdf")
    assert found is not None
    assert found[0].name == "pdf"
    assert locked_skill_at(project.skills_folder / "other") is None
    assert locked_skill_at(project.root) is None


@pytest.mark.parametrize("link", [".claude/skills", "elsewhere/pdf"])
def test_row_358_the_lock_of_an_installed_skill_is_found_by_a_link_to_it_and_to_its_folder(project: Project, link: str):
    """Seen: a skill that ``integrity="require"`` refuses was used by way of ``.claude/skills -> ../.agents/skills``."""
    project.add([fetched(make_tree())])
    place = project.root / link
    place.parent.mkdir()
    place.symlink_to(project.skills_folder / "pdf" if place.name == "pdf" else project.skills_folder)
    found = locked_skill_at(place if place.name == "pdf" else place / "pdf")
    assert found is not None
    assert found == locked_skill_at(project.skills_folder / "pdf")


@pytest.mark.parametrize(
    ("link", "real"),
    [(".agents/skills", ".claude/skills"), (".agents", ".claude"), (".agents/skills/pdf", "store/pdf-1.2")],
)
def test_row_495_the_lock_holds_where_the_installed_place_is_the_link(project: Project, link: str, real: str):
    """Seen: with ``.agents/skills -> ../.claude/skills`` an agent over the real folder ran changed bytes."""
    project.add([fetched(make_tree(scripts__run="1"))])
    place, target = project.root / link, project.root / real
    target.parent.mkdir(parents=True, exist_ok=True)
    place.rename(target)
    place.symlink_to(target)
    folder = (project.skills_folder / "pdf").resolve()
    assert folder.is_relative_to(target)
    found = locked_skill_at(folder)
    assert found is not None
    assert (found[0].name, found[2]) == ("pdf", project.skills_folder / "pdf")
    check = IntegrityCheck("require")
    check.check("pdf", folder, lambda: "1")
    if link != ".agents/skills/pdf":  # beside it are installed skills, and the name is that of the lock's folder only
        with pytest.raises(IntegrityError):
            check.check("pdf", folder.parent / "other", lambda: "1")
    (folder / "scripts/run").write_text("2")
    with pytest.raises(IntegrityError):
        check.check("pdf", folder, lambda: "2")
    (folder / "inner").mkdir()
    inner = locked_skill_at(folder / "inner")
    assert inner is not None
    assert inner[0].name == "pdf"
    (project.root / "skills" / "x").mkdir(parents=True)
    assert locked_skill_at(project.root / "skills" / "x") is None


@pytest.mark.parametrize("beside", [".a/skill.md", "a/SKILL.md", "a/b/SKILL.md"])
def test_row_399_a_folder_beside_a_locked_skill_does_not_take_its_name(project: Project, beside: str):
    """Seen: it had the keys of the locked skill, and ``integrity="require"`` looked at no folder without a lock."""
    project.add([fetched(make_tree())])
    place = project.skills_folder / beside
    place.parent.mkdir(parents=True)
    place.write_text(skill_text("pdf"))
    check = IntegrityCheck("require")
    check.check("pdf", project.skills_folder / "pdf", lambda: "1")
    check.check("other", place.parent, lambda: "1")
    with pytest.raises(IntegrityError):
        check.check("pdf", place.parent, lambda: "1")


def test_row_459_a_skill_in_the_folder_of_a_locked_one_is_locked_with_it(project: Project):
    """Seen: it was changed, and ran with its own keys while ``integrity="require"`` refused the outer one."""
    inner = {"forms__SKILL.md": skill_text("forms"), "forms__run.py": "1"}
    project.add([fetched(make_tree(**inner))])
    folder = project.skills_folder / "pdf"
    found = locked_skill_at(folder / "forms")
    assert found is not None
    assert (found[0].name, found[2]) == ("pdf", folder)
    check = IntegrityCheck("require")
    assert check.check("forms", folder / "forms", lambda: "1") == "1"
    (folder / "forms/run.py").write_text("2")
    with pytest.raises(IntegrityError, match="not what its lock says"):
        check.check("forms", folder / "forms", lambda: "2")


@pytest.mark.parametrize("mode", get_args(Integrity))
def test_row_459_a_skill_in_the_folder_of_a_restored_one_can_be_used_again(
    project: Project, mode: Integrity, caplog: pytest.LogCaptureFixture
):
    project.add([fetched(make_tree(**{"forms__SKILL.md": skill_text("forms")}))])
    folder, check = project.skills_folder / "pdf", IntegrityCheck(mode)
    (folder / "more.txt").touch()
    for _ in range(2):
        with pytest.raises(IntegrityError) if mode == "require" else contextlib.nullcontext():
            check.check("forms", folder / "forms", lambda: "1")
    assert len(caplog.records) == (mode == "warn")  # said once
    (folder / "more.txt").unlink()
    assert check.check("forms", folder / "forms", lambda: "1") == ("1" if mode == "require" else "")


def test_row_459_a_lock_in_the_folder_of_a_locked_skill_is_a_part_of_it(project: Project):
    project.add([fetched(make_tree())])
    folder = project.skills_folder / "pdf"
    inner = Project(folder, store=project.store)
    inner.add([fetched(make_tree())])
    found = locked_skill_at(inner.skills_folder / "pdf")
    assert found is not None
    assert found[2] == folder


def test_row_406_what_was_found_as_locked_is_what_may_run(project: Project):
    """Seen: bytes that were exchanged while a run waited for its turn, or during the look, had the skill's keys."""
    project.add([fetched(make_tree())])
    folder = project.skills_folder / "pdf"
    assert IntegrityCheck("require").check("pdf", folder, lambda: "1") == "1"
    assert IntegrityCheck("warn").check("pdf", folder, lambda: "1") == ""
    assert IntegrityCheck("require").check("other", folder.parent / "other", lambda: "1") == ""
    check, versions = IntegrityCheck("require"), iter("1211")
    for _ in range(2):  # nor is it remembered
        with pytest.raises(IntegrityError):
            check.check("pdf", folder, lambda: next(versions))


def test_row_400_a_skill_file_in_utf_16_is_read_as_agents_read_it():
    """Seen: the lock called it by its folder, and agents by the name of another installed skill."""
    tree = tree_of({"SKILL.md": TreeFile(skill_text("tool").encode("utf-16"))}, "the skill")
    assert tree.parsed("a-two").metadata.name == "tool"


def test_row_398_who_is_asked_is_told_of_skills_in_the_folder_of_one():
    assert consent_page(fetched(make_tree())).brings == ()
    texts = {"SKILL.md": skill_text("pdf"), "aa/SKILL.md": skill_text("weather")}
    page = consent_page(fetched(tree_of({path: TreeFile(text.encode()) for path, text in texts.items()}, "x")))
    assert page.brings == ("weather",)
    assert "  brings skills weather" in page.lines()


def test_row_473_who_is_asked_is_told_of_the_tools_that_need_no_question():
    """Seen: an update brought ``allowed-tools: Bash(*)``, and nobody was told."""
    assert not any("allowed-tools" in line for line in consent_page(fetched(make_tree())).lines())
    texts = {
        "SKILL.md": skill_text("pdf").replace("---\n", "---\nallowed-tools: Bash(*) Read\n", 1),
        "aa/SKILL.md": skill_text("weather").replace("---\n", "---\nallowed-tools: send_mail\n", 1),
    }
    page = consent_page(fetched(tree_of({path: TreeFile(text.encode()) for path, text in texts.items()}, "x")))
    assert page.to_dict()["allowed_tools"] == ["Bash(*) Read", "weather: send_mail"]
    said = "  tools     allowed-tools: Bash(*) Read; weather: send_mail (need no question once it is approved)"
    assert said in page.lines()


def test_row_432_what_a_yes_opens_is_named_to_the_last():
    """Seen: "aa, ab, ... al and 1 more", which was the name of a skill that had a key."""
    names = [f"a{letter}" for letter in "abcdefghijkl"] + ["weather"]
    texts = {"SKILL.md": skill_text("pdf")} | {f"{name}/SKILL.md": skill_text(name) for name in names}
    texts |= {f"scripts/{number}.py": "" for number in range(20)}
    page = consent_page(fetched(tree_of({path: TreeFile(text.encode()) for path, text in texts.items()}, "x")))
    lines = page.lines()
    assert f"  brings skills {', '.join(names)}" in lines
    assert any(line.startswith("  scripts ") and line.endswith(" and 8 more") for line in lines)


def test_a_lock_is_the_same_text_for_the_same_skills(project: Project, tmp_path: Path):
    project.add([fetched(make_tree("b"), "b"), fetched(make_tree("a"), "a")])
    again = read_skill_lock(project.lock_path)
    assert again.text() == project.lock_path.read_text()
    assert list(again.skills) == ["a", "b"]


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.text(max_size=6),
                "requires": st.lists(st.text(max_size=6), min_size=1),
                "files": st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=3),
            }
        ),
        max_size=3,
    )
)
def test_the_lock_s_own_reader_and_writer_say_what_tomllib_says(tables: list[dict[str, object]]) -> None:
    start = f"{lock_file._HEAD}version = 1\n"
    text = "\n".join([start, *map(lock_file._written, tables)])
    wanted = {"version": 1, "skill": tables} if tables else {"version": 1}
    assert tomllib.loads(text) == wanted
    quick = lock_file._as_written(text)
    assert quick is None or quick == {"version": 1, "skill": tables}
    if all('"' not in repr(one) and "\\" not in repr(one) for one in tables):
        assert quick is not None, "the plain form is read without tomllib"


def test_a_key_that_is_there_twice_is_left_to_tomllib(project: Project) -> None:
    project.add([fetched(make_tree("a"), "a")])
    text = project.lock_path.read_text()
    project.lock_path.write_text(text.replace('name = "a"\n', 'name = "a"\nname = "b"\n', 1))
    with pytest.raises(ConfigError, match="is no TOML"):
        project.read_lock()


# Comparing with two processes


def many_installed(folder: Path) -> tuple[Project, list[tuple[LockedSkill, Path]]]:
    """A project of 120 skills, some of them changed, with what is compared."""
    project = Project(folder / "many", store=SkillStore(folder / "many-data/store"))
    project.root.mkdir()
    names = [f"skill-{number}" for number in range(120)]
    project.add([fetched(make_tree(name, notes=name), name) for name in names])
    for name in names[10:20]:
        (project.skills_folder / name / "notes").write_text("other")
    for name in names[30:36]:
        (project.skills_folder / name / "new\udcff").write_text("")
        (project.skills_folder / name / "SKILL.md").unlink()
    shutil.rmtree(project.skills_folder / names[41])
    (project.skills_folder / names[43] / "out").symlink_to("/etc/passwd")
    return project, [(skill, project.folder_of(skill)) for skill in project.read_lock().skills.values()]


@pytest.mark.slow
def test_two_processes_say_what_one_says(tmp_path: Path):
    project, pairs = many_installed(tmp_path)
    said = compare_all(pairs)
    assert [state.name for state in said if not state.is_same] == sorted(
        f"skill-{number}" for number in (*range(10, 20), *range(30, 36), 41, 43)
    )
    assert compare_all(pairs, forks=True) == said == project.verify(forks=True)


def test_when_the_second_process_is_killed_the_first_compares_everything(tmp_path: Path):
    _, pairs = many_installed(tmp_path)
    said = compare_all(pairs)
    main = os.fork()
    if main == 0:  # an audit hook cannot be taken away, so it lives in a process of its own
        here, opened = os.getpid(), 0

        def kill_the_second(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal opened
            opened += event == "open"
            if os.getpid() != here and opened > 40:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill_the_second)
        try:
            os._exit(0 if compare_all(pairs, forks=True) == said else 1)
        finally:
            os._exit(2)
    assert os.waitpid(main, 0)[1] == 0


def test_packages_of_an_installed_skill_are_locked_outside_of_it(repository: Repository, run: Run, tmp_path: Path):
    repository.write({"skills/pdf/requirements.txt": "pyyaml==6.0.2\n"})
    added = run("add", repository.bare, "--skill", "pdf", "--yes")
    assert "SkillToolset.from_dirs(['.agents/skills'])" in added.stdout
    prepared = run("prepare", "./.agents/skills/pdf")
    if prepared.returncode:
        pytest.skip(f"no package index here: {prepared.stderr[-200:]}")
    assert (tmp_path / "project/locks/pdf.lock").is_file()
    assert "Dependencies('locked', lock=Path('locks'))" in prepared.stderr
    assert run("verify").returncode == 0


def test_a_folder_of_a_repository_is_told_how_to_pin_a_commit(run: Run, tmp_path: Path):
    make = tmp_path / "work/skills/pdf"
    make.mkdir(parents=True)
    (make / "SKILL.md").write_text(skill_text("pdf"))
    (tmp_path / "work/.git").mkdir()
    url = (tmp_path / "work").as_uri()
    assert f"its repository has: adk-skills add {url}" in run("add", str(make), "--yes").stderr
    assert f"or name its repository: {url}" in run("add", str(make), "--ref", "main").stderr
