"""Projects, stores and repositories on disk; the command line in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import preloaded
from adk_skills_agent.sources.project import Project
from adk_skills_agent.sources.store import SkillStore
from adk_skills_agent.sources.tree import SkillTree, TreeFile, tree_of

PROGRAM = preloaded.program("adk-skills")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def skill_text(name: str, body: str = "Do it.\n", **metadata: str) -> str:
    lines = "".join(f"  {key.replace('_', '-')}: {value!r}\n" for key, value in metadata.items())
    return f"---\nname: {name}\ndescription: Does {name}. Use it for tests.\n" + (
        f"metadata:\n{lines}---\n{body}" if lines else f"---\n{body}"
    )


def make_tree(name: str = "pdf", **files: str) -> SkillTree:
    content = {"SKILL.md": TreeFile(skill_text(name).encode())}
    content |= {path.replace("__", "/"): TreeFile(text.encode()) for path, text in files.items()}
    return tree_of(content, "the skill")


def names_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class Repository:
    """A git repository with skills, and the bare one that is fetched from."""

    def __init__(self, folder: Path) -> None:
        self.work, self.bare = folder / "work", folder / "bare.git"
        self.work.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main", ".")
        subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(self.bare)], check=True)
        self.git("remote", "add", "origin", str(self.bare))

    def copied(self, folder: Path) -> Repository:
        """One of its own with the same commits, without ten processes of git."""
        copy = Repository.__new__(Repository)
        copy.work, copy.bare = folder / "work", folder / "bare.git"
        shutil.copytree(self.work.parent, folder, symlinks=True)
        config = copy.work / ".git" / "config"
        config.write_text(config.read_text().replace(str(self.bare), str(copy.bare)))
        return copy

    @property
    def url(self) -> str:
        return self.bare.as_uri()

    def git(self, *arguments: str) -> str:
        who = {
            f"GIT_{role}_{key}": f"{role.lower()}@x" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")
        }
        # Else a commit and a push start one program more each, which may still work when the repository is copied.
        for number, key in enumerate(("maintenance.auto", "receive.autogc")):
            who |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": "false"}
        who["GIT_CONFIG_COUNT"] = "2"
        done = subprocess.run(
            ["git", *arguments], cwd=self.work, env={**os.environ, **who}, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def write(self, files: Mapping[str, str | bytes | None], *, executable: tuple[str, ...] = ()) -> str:
        """Commit and push files (None removes one); return the commit."""
        for path, content in files.items():
            target = self.work / path
            if content is None:
                target.unlink()
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
            target.chmod(0o755 if path in executable else 0o644)
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "-m", "change")
        self.git("push", "--quiet", "--tags", "origin", "main")
        return self.git("rev-parse", "HEAD")


@pytest.fixture(scope="session")
def first_commit(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """What each :func:`repository` begins as; nobody changes it."""
    made = Repository(tmp_path_factory.mktemp("remote"))
    made.write(
        {
            "README.md": "# Skills\n",
            "skills/pdf/SKILL.md": skill_text("pdf", version="1.0"),
            "skills/pdf/scripts/count.py": "print('pages')\n",
            "skills/csv/SKILL.md": skill_text("csv"),
        },
        executable=("skills/pdf/scripts/count.py",),
    )
    return made


@pytest.fixture
def repository(first_commit: Repository, tmp_path: Path) -> Repository:
    """A repository with the skills pdf (a script) and csv."""
    return first_commit.copied(tmp_path / "remote")


@pytest.fixture
def store(tmp_path: Path) -> SkillStore:
    return SkillStore(tmp_path / "data" / "store")


@pytest.fixture
def project(tmp_path: Path, store: SkillStore) -> Project:
    root = tmp_path / "project"
    root.mkdir()
    return Project(root, store=store)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """``run("add", source, cwd=...)``: the command line with a home of its own."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GIT_", "UV_"))}
    environment |= {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
    (tmp_path / "project").mkdir(exist_ok=True)

    def command(*arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None):
        return subprocess.run(
            [PROGRAM, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd or tmp_path / "project",
            env=environment | dict(env or {}),
            stdin=subprocess.DEVNULL,
        )

    return command
