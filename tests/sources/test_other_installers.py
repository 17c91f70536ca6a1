"""Projects that use ``npx skills`` or ``gh skill``: their locks and marks are read, and what they name is installed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from repositories import Repository, Run, skill_text

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sources.origin import Origin, OriginKind
from adk_skills_agent.sources.other_installers import from_gh, read_other_lock


def test_the_lock_of_npx_skills_is_read(tmp_path: Path):
    path = tmp_path / "skills-lock.json"
    entry = {
        "source": "a/b",
        "sourceType": "github",
        "skillPath": "skills/x/SKILL.md",
        "computedHash": "0",
        "ref": "v1",
    }
    path.write_text(json.dumps({"version": 1, "skills": {"x": entry}}))
    assert read_other_lock(path) == {"x": Origin(OriginKind.GIT, "https://github.com/a/b", "v1", "skills/x")}
    path.write_text('{"version": 9, "skills": {}}')
    with pytest.raises(ConfigError, match="version"):
        read_other_lock(path)


def test_the_lock_of_npx_skills_is_written_on_request_and_read_again(repository: Repository, run: Run, tmp_path: Path):
    run("add", repository.bare, "--all", "--yes", "--ref", "main")
    assert not (tmp_path / "project/skills-lock.json").exists()
    assert run("sync", "--skills-lock").returncode == 0
    found = read_other_lock(tmp_path / "project/skills-lock.json")
    assert found["pdf"] == Origin(OriginKind.GIT, repository.url, "main", "skills/pdf")
    assert sorted(found) == ["csv", "pdf"]


def test_what_npx_skills_locked_stays_and_what_it_does_not_know_is_told(
    repository: Repository, run: Run, tmp_path: Path
):
    theirs = {"source": "a/b", "sourceType": "github", "skillPath": "x/SKILL.md", "computedHash": "0"}
    ours_before = {"source": "a/b", "sourceType": "github", "skillPath": "old/SKILL.md"}
    place = tmp_path / "project/skills-lock.json"
    place.write_text(json.dumps({"version": 1, "skills": {"theirs": theirs, "removed": ours_before}}))
    folder = tmp_path / "chart"
    folder.mkdir()
    (folder / "SKILL.md").write_text(skill_text("chart"))
    assert run("pack", folder).returncode == 0
    run("add", "chart.skill", "--yes")
    run("add", repository.bare, "--skill", "pdf", "--yes")
    done = run("sync", "--skills-lock")
    assert done.returncode == 0
    assert "does not know their sources: chart" in done.stderr
    assert sorted(read_other_lock(place)) == ["pdf", "theirs"]
    place.write_text("{")
    assert run("sync", "--skills-lock").returncode == 2
    assert place.read_text() == "{"


def test_a_copy_that_gh_installed_is_known_by_its_metadata(run: Run, tmp_path: Path):
    folder = tmp_path / "project/.agents/skills/pdf"
    folder.mkdir(parents=True)
    about = {"github_repo": "acme/skills", "github_ref": "v1.2", "github_path": "skills/pdf"}
    (folder / "SKILL.md").write_text(skill_text("pdf", **about))
    (listed,) = json.loads(run("list", "--installed", "--json").stdout)["skills"]
    assert listed["source"] == "git+https://github.com/acme/skills@v1.2#skills/pdf"
    assert listed["state"] == "not locked"


def npx_lock(repository: Repository, **more: str) -> str:
    """As npx skills writes it for a repository of its own git server."""
    skills = {
        name: {
            "source": repository.url,
            "sourceType": "git",
            "skillPath": f"skills/{name}/SKILL.md",
            "computedHash": "0" * 64,
            **more,
        }
        for name in ("csv", "pdf")
    }
    return json.dumps({"version": 1, "skills": skills})


def test_a_project_of_npx_skills_is_restored_and_pinned_from_its_lock(
    repository: Repository, run: Run, tmp_path: Path
) -> None:
    run("trust")
    project = tmp_path / "project"
    (project / "skills-lock.json").write_text(npx_lock(repository, ref="main"))
    shutil.copytree(repository.work / "skills/csv", project / ".agents/skills/csv")  # as npx skills leaves it
    looked = run("add", "skills-lock.json", "--dry-run", "--json")
    assert [page["name"] for page in json.loads(looked.stdout)["skills"]] == ["csv", "pdf"]
    done = run("add", "skills-lock.json", "--yes")
    assert done.returncode == 0, done.stderr
    assert (project / ".agents/skills/pdf/scripts/count.py").read_text() == "print('pages')\n"
    assert 'ref = "main"' in (project / "adk-skills.toml").read_text()
    assert repository.git("rev-parse", "HEAD") in (project / "adk-skills.lock").read_text()
    assert run("sync", "--frozen").returncode == 0
    assert run("verify").returncode == 0


def test_one_skill_of_the_lock_is_chosen_and_a_wrong_name_is_told(
    repository: Repository, run: Run, tmp_path: Path
) -> None:
    run("trust")
    project = tmp_path / "project"
    (project / "skills-lock.json").write_text(npx_lock(repository))
    wrong = run("add", "skills-lock.json", "--skill", "pdg", "--yes")
    assert wrong.returncode == 2
    assert "Did you mean 'pdf'?" in wrong.stderr
    assert run("add", "skills-lock.json", "--ref", "v1", "--yes").returncode == 2
    assert run("add", "skills-lock.json", "--skill", "pdf", "--yes").returncode == 0
    assert [place.name for place in (project / ".agents/skills").iterdir()] == ["pdf"]


def test_a_skill_that_its_source_has_no_more_stops_before_anything_is_written(
    repository: Repository, run: Run, tmp_path: Path
) -> None:
    run("trust")
    project = tmp_path / "project"
    (project / "skills-lock.json").write_text(npx_lock(repository))
    repository.write({"skills/csv/SKILL.md": None})
    done = run("add", "skills-lock.json", "--yes")
    assert done.returncode == 1
    assert "has no skill any more for: csv (skills/csv)" in done.stderr
    assert not (project / "adk-skills.lock").exists()
    assert not (project / ".agents").exists()


def test_the_lock_of_user_wide_installations_and_local_and_web_sources_are_read(tmp_path: Path) -> None:
    path = tmp_path / ".skill-lock.json"
    entries = {
        "one": {"source": "a/b", "sourceUrl": "https://github.com/a/b.git", "skillPath": "x/SKILL.md"},
        "two": {"source": "skills/two", "sourceType": "local", "skillPath": "SKILL.md"},
        "three": {"source": "https://example.com", "sourceType": "well-known", "skillPath": "three/SKILL.md"},
    }
    path.write_text(json.dumps({"version": 3, "skills": entries}))
    assert read_other_lock(path) == {
        "one": Origin(OriginKind.GIT, "https://github.com/a/b.git", "", "x"),
        "two": Origin(OriginKind.FOLDER, str(tmp_path / "skills/two")),
        "three": Origin(OriginKind.WELL_KNOWN, "https://example.com"),
    }


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"version": 1}',
        '{"version": 1, "skills": {"x": 3}}',
        '{"version": 1, "skills": {"x": {"source": "a/b", "skillPath": "../../y/SKILL.md"}}}',
        '{"version": 1, "skills": {"x": {"source": "https://me:secret@host/x.git"}}}',
        "[" * 100_000,
    ],
)
def test_a_hostile_or_broken_lock_is_one_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "skills-lock.json"
    path.write_text(content)
    with pytest.raises(ConfigError) as refused:
        read_other_lock(path)
    assert str(path) in refused.value.message
    assert "secret" not in refused.value.message


def as_gh_leaves_it(repository: Repository, project: Path, body: str = "Do it.\n") -> Path:
    """The copy of pdf with gh's keys in its frontmatter."""
    folder = project / ".agents/skills/pdf"
    shutil.copytree(repository.work / "skills/pdf", folder)
    about = {
        "version": "1.0",
        "github-repo": repository.url,
        "github-ref": "refs/heads/main",
        "github-tree-sha": repository.git("rev-parse", "HEAD:skills/pdf"),
        "github-path": "skills/pdf",
    }
    (folder / "SKILL.md").write_text(skill_text("pdf", body, **about).replace("github_", "github-"))
    return folder


def test_copies_of_gh_are_pinned_and_their_marks_are_no_local_edit(
    repository: Repository, run: Run, tmp_path: Path
) -> None:
    run("trust")
    project = tmp_path / "project"
    folder = as_gh_leaves_it(repository, project)
    done = run("add", "gh:", "--yes")
    assert done.returncode == 0, done.stderr
    assert (folder / "SKILL.md").read_bytes() == (repository.work / "skills/pdf/SKILL.md").read_bytes()
    assert run("verify").returncode == 0
    assert run("outdated").returncode == 0


def test_a_copy_of_gh_with_local_edits_is_not_replaced(repository: Repository, run: Run, tmp_path: Path) -> None:
    run("trust")
    project = tmp_path / "project"
    folder = as_gh_leaves_it(repository, project, "Do it my way.\n")
    done = run("add", "gh:", "--yes")
    assert done.returncode == 1
    assert "was not installed by adk-skills" in done.stderr
    assert "my way" in (folder / "SKILL.md").read_text()
    shutil.rmtree(folder)
    assert run("add", "gh:", "--yes").returncode == 2, "nothing of gh is there"


def test_the_keys_of_gh_are_a_source_only_when_they_name_one() -> None:
    assert from_gh({"github-repo": "a/b", "github-pinned": "true", "github-ref": "refs/tags/v2"}) == Origin(
        OriginKind.GIT, "https://github.com/a/b", "v2"
    )
    assert from_gh({"github-repo": "a/b", "github-ref": "--upload-pack=x"}) is None
    assert from_gh({"github-repo": "ext::sh -c x://"}) is None
    assert from_gh({"github-repo": "a/b", "github-path": "../../etc"}) is None
    assert from_gh({"local-path": "/x"}) is None
