"""Killed at every step, two at once, and random histories: store, lock and folders are always whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from repositories import PROGRAM, Repository, make_tree, skill_text

from adk_skills_agent.errors import SourceError
from adk_skills_agent.sources.fetch import FetchedSkill, fetch_skills
from adk_skills_agent.sources.lock_file import read_skill_lock
from adk_skills_agent.sources.origin import Origin, OriginKind, read_origin
from adk_skills_agent.sources.project import Project
from adk_skills_agent.sources.store import SkillStore, one_at_a_time
from adk_skills_agent.sources.tree import NOT_COMPARED, SkillTree, read_tree
from adk_skills_agent.sources.update import apply_updates, plan_updates

WRITES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.symlink", "os.link", "shutil.rmtree"}
OLD = make_tree("pdf", scripts__run="print('old')\n", notes="old\n")
NEW = make_tree("pdf", scripts__run="print('new')\n", guide="new\n")
MERGED = make_tree("pdf", scripts__run="print('new')\n", guide="new\n", mine="mine\n")


def fetched(tree: SkillTree) -> FetchedSkill:
    return FetchedSkill("pdf", "x", tree, Origin(OriginKind.FOLDER, "/src"))


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Run the work in a forked process that SIGKILLs itself at its n-th change of the disk; whether it came so far."""
    child = os.fork()
    if child == 0:
        count = 0

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if event in WRITES or writes:
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def check_whole(project: Project, known: set[str]) -> None:
    """Nothing is half: the lock can be read, the store has what it names, a folder has the bytes of a known tree."""
    lock = project.read_lock()
    for skill in lock.skills.values():
        assert project.store.is_whole(skill.tree)
    for digest in project.store.digests():
        assert project.store.is_whole(digest)
    folder = project.skills_folder / "pdf"
    if folder.exists():
        assert read_tree(folder, "x", skipped=NOT_COMPARED).digest in known


def operations(project: Project) -> dict[str, Callable[[], object]]:
    def update() -> None:
        """As apply_updates does it: local edits, merged."""
        (plan,) = plan_updates(project)
        apply_updates(project, [plan])

    return {
        "add": lambda: project.add([fetched(NEW)]),
        "force": lambda: project.add([fetched(NEW)], replace_edits=True),
        "link": lambda: project.add([fetched(NEW)], link=True),
        "remove": lambda: project.remove(["pdf"]),
        "sync": project.sync,
        "update": update,
    }


OPERATIONS = ["add", "force", "link", "remove", "sync", "update"]
EDITED = make_tree("pdf", scripts__run="print('old')\n", notes="old\n", mine="mine\n")
KNOWN = {tree.digest for tree in (OLD, NEW, MERGED, EDITED)}


@pytest.mark.parametrize(
    "operation", [one if one == "update" else pytest.param(one, marks=pytest.mark.slow) for one in OPERATIONS]
)
def test_killed_at_some_steps_everything_is_whole_and_sync_completes_it(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kill_at_steps(operation, tmp_path, monkeypatch, stride=7)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_every_step_everything_is_whole_and_sync_completes_it(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kill_at_steps(operation, tmp_path, monkeypatch, stride=1)


def kill_at_steps(operation: str, folder: Path, monkeypatch: pytest.MonkeyPatch, stride: int) -> None:
    """Do the operation in processes that are killed at their n-th change of the disk, until one comes through."""
    source = folder / "source"
    for step in range(1, 400, stride):
        place = folder / str(step)
        project = Project(place / "project", store=SkillStore(place / "data/store"))
        project.root.mkdir(parents=True)
        monkeypatch.setenv("XDG_DATA_HOME", str(place / "home"))
        if operation == "update":
            shutil.rmtree(source, ignore_errors=True)
            write(source, OLD)
            project.add(fetch_skills(read_origin(str(source))))
            (project.skills_folder / "pdf/mine").write_text("mine\n")
            shutil.rmtree(source)
            write(source, NEW)
        else:
            project.add([fetched(OLD)])
        if operation == "sync":
            shutil.rmtree(project.skills_folder)
        was_killed = killed_at(step, operations(project)[operation])
        check_whole(project, KNOWN)
        state = project.sync()  # what was begun is completed, or was not begun
        check_whole(project, KNOWN)
        assert not state.kept or operation == "update"
        assert not list(project.skills_folder.glob(".aside-*"))
        if operation == "update":  # the edits are in the folder, or among what was replaced
            places = [project.skills_folder / "pdf", *project.replaced.folder.glob("sha256-*")]
            assert any((one / "mine").is_file() for one in places)
        shutil.rmtree(place, ignore_errors=True)
        if not was_killed:
            assert step > 1
            return
    raise AssertionError("it never came through")


def write(folder: Path, tree: SkillTree) -> None:
    for path, file in tree.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(file.data)


def test_two_processes_at_once_leave_both_skills(repository: Repository, tmp_path: Path):
    project = tmp_path / "project"
    project.mkdir()
    environment = {**os.environ, "HOME": str(tmp_path)}
    running = [
        subprocess.Popen(
            [PROGRAM, "add", str(repository.bare), "--skill", name, "--yes"],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        for name in ("pdf", "csv") * 3
    ]
    assert [process.wait(120) for process in running] == [0] * 6
    assert list(read_skill_lock(project / "adk-skills.lock").skills) == ["csv", "pdf"]
    done = subprocess.run(
        [PROGRAM, "verify"], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "2 of 2 skills as locked.\n"


def test_a_process_that_waits_for_another_says_so(repository: Repository, project: Project, tmp_path: Path):
    """It was silent, for as long as the other took."""
    key = hashlib.sha256(os.fsencode(project.root.resolve())).hexdigest()[:32]
    guard = tmp_path / f".local/share/adk-skills/projects/{key}.guard"
    with contextlib.ExitStack() as stack:
        stack.enter_context(one_at_a_time(guard, "it"))
        waiting = subprocess.Popen(
            [PROGRAM, "add", str(repository.bare), "--skill", "pdf", "--yes"],
            cwd=project.root,
            env={**os.environ, "HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == f"Another process is changing {project.root}; waiting until it ends.\n"
    with waiting:
        assert waiting.wait(60) == 0
    assert list(read_skill_lock(project.lock_path).skills) == ["pdf"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_kills_at_random_moments(seed: int, repository: Repository, tmp_path: Path):
    """Ten times a hundred. A moment is a part of the time that the command took lately, however fast the machine is."""
    project = tmp_path / "project"
    project.mkdir()
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment.pop("XDG_DATA_HOME", None)
    store = SkillStore(tmp_path / ".local/share/adk-skills/store")
    dice = random.Random(seed)
    add = ["add", str(repository.bare), "--all", "--yes"]
    seconds = dict.fromkeys(("add", "update", "sync", "remove"), 0.5)
    killed = dict.fromkeys(seconds, 0)
    for turn in range(1_000):
        repository.write({"skills/pdf/SKILL.md": skill_text("pdf", f"Turn {turn}.\n")})
        command = dice.choice([add, ["update", "--yes"], ["sync"], ["remove", "csv"]])
        name = command[0]
        if name == "remove" and not (project / ".agents/skills/csv").is_dir():
            subprocess.run([PROGRAM, *add], cwd=project, env=environment, capture_output=True, check=True)
        if name == "sync":
            shutil.rmtree(project / ".agents/skills", ignore_errors=True)
        start = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "adk_skills_agent", *command],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(dice.uniform(0.1, 1.0) * seconds[name])
            seconds[name] += 0.3 * (time.monotonic() - start - seconds[name])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
            killed[name] += 1
            seconds[name] *= 1.01  # else the end of a command would be met less and less
        for skill in read_skill_lock(project / "adk-skills.lock").skills.values():
            assert store.is_whole(skill.tree)
        assert all(store.is_whole(digest) for digest in store.digests())
        for folder in (project / ".agents/skills").glob("[!.]*"):
            assert read_tree(folder, "x", skipped=NOT_COMPARED).digest in store
        if sum(killed.values()) == 100:
            break
    assert sum(killed.values()) == 100, killed
    assert min(killed.values()) >= 5, killed
    for command in ("sync", "verify"):
        done = subprocess.run(
            [PROGRAM, command], cwd=project, env=environment, capture_output=True, text=True, check=False
        )
        assert "local edits" not in done.stdout, done.stdout
    assert done.returncode == 0, done.stdout
    print(killed)


# Random histories

STEP = st.one_of(
    st.tuples(st.just("edit"), st.sampled_from(["SKILL.md", "scripts/count.py", "own.md"]), st.integers(0, 9)),
    st.tuples(st.just("upstream"), st.sampled_from(["SKILL.md", "scripts/count.py", "new.md"]), st.integers(0, 9)),
    st.tuples(st.just("update"), st.sampled_from([None, "ours", "theirs"]), st.just(0)),
    st.tuples(st.just("sync"), st.just(""), st.just(0)),
    st.tuples(st.just("pin"), st.just(""), st.just(0)),
)
LINES = [f"Line {number}.\n" for number in range(10)]


def changed(text: str, line: int, by: str) -> str:
    lines = text.splitlines(keepends=True)
    at = len(lines) - 1 - line
    if at > 5:  # the frontmatter stays
        lines[at] = f"{by} changed line {line}.\n"
    return "".join(lines) if at > 5 else text + f"{by} added {line}.\n"


def live(history: list[tuple[str, str | None, int]], place: Path) -> None:
    """Go through a history, then check that another machine gets the same bytes and the same lock."""
    repository = Repository(place / "remote")
    body = "".join(LINES)
    repository.write({"skills/pdf/SKILL.md": skill_text("pdf", body), "skills/pdf/scripts/count.py": body * 2})
    here = Project(place / "here", store=SkillStore(place / "here-data/store"))
    here.root.mkdir()
    here.add(fetch_skills(read_origin(repository.url)))
    folder = here.skills_folder / "pdf"
    for action, what, line in history:
        if action == "edit":
            target = folder / str(what)
            target.write_text(changed(target.read_text() if target.is_file() else "", line, "I"))
        elif action == "upstream":
            target = repository.work / "skills/pdf" / str(what)
            repository.write(
                {f"skills/pdf/{what}": changed(target.read_text() if target.is_file() else "", line, "They")}
            )
        elif action == "sync":
            before = read_tree(folder, "x", skipped=NOT_COMPARED).digest
            here.sync()
            assert read_tree(folder, "x", skipped=NOT_COMPARED).digest == before  # edits are kept
        else:
            (plan,) = plan_updates(here, prefer=what if action == "update" else None)  # type: ignore[arg-type]
            before = read_tree(folder, "x", skipped=NOT_COMPARED).digest
            apply_updates(here, [plan])
            after = read_tree(folder, "x", skipped=NOT_COMPARED).digest
            assert after == (plan.merged.digest if plan.merged is not None else before)
    (plan,) = plan_updates(here, prefer="ours")
    apply_updates(here, [plan])
    assert all(state.is_same for state in here.verify())
    there = Project(place / "there", store=SkillStore(place / "there-data/store"))
    there.root.mkdir()
    for path in (here.lock_path, here.manifest):
        shutil.copy(path, there.root)
    (locked,) = there.read_lock().skills.values()
    if locked.base:  # edits live in the project, which is committed
        with pytest.raises(SourceError, match="has local edits that are not on this machine"):
            there.sync(frozen=True)
        shutil.copytree(folder, there.skills_folder / "pdf")
    there.sync(frozen=True)
    assert all(state.is_same for state in there.verify())
    assert there.lock_path.read_bytes() == here.lock_path.read_bytes()
    assert read_tree(there.skills_folder / "pdf", "x").digest == read_tree(folder, "x").digest == locked.tree


@pytest.mark.slow
@given(st.lists(STEP, max_size=8))
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
def test_histories_end_in_the_same_bytes_on_another_machine(tmp_path_factory: pytest.TempPathFactory, history):
    live(history, tmp_path_factory.mktemp("history"))


@pytest.mark.slow
@given(st.lists(STEP, max_size=12))
@settings(suppress_health_check=list(HealthCheck))
def test_two_hundred_histories(tmp_path_factory: pytest.TempPathFactory, history):
    live(history, tmp_path_factory.mktemp("history"))
