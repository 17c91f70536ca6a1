from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from adk_skills_agent.errors import SandboxError, TooManyRuns
from adk_skills_agent.sandbox import MAX_WAITING
from adk_skills_agent.scripts import share_of, workspace_key, workspaces
from adk_skills_agent.scripts import workspaces as workspaces_module
from adk_skills_agent.scripts.workspaces import SessionWorkspaces


async def test_runs_of_one_session_take_turns_and_sessions_do_not_wait() -> None:
    workspaces = SessionWorkspaces()
    inside: list[str] = []
    both_sessions = asyncio.Event()

    async def use(key: str) -> None:
        async with workspaces.use(key):
            assert key not in inside
            inside.append(key)
            if len(inside) == 2:
                both_sessions.set()
            await asyncio.wait_for(both_sessions.wait(), 30)
            inside.remove(key)

    await asyncio.gather(*(use(key) for key in ("a", "b", "a", "b")))
    workspaces.close()


def test_two_event_loops_in_two_threads_take_turns_too() -> None:
    workspaces = SessionWorkspaces()

    def count() -> None:
        async def add() -> None:
            for _ in range(20):
                async with workspaces.use("a") as workspace:
                    file = workspace.path / "count"
                    value = int(file.read_text()) if file.exists() else 0
                    await asyncio.sleep(0.001)
                    file.write_text(str(value + 1))

        asyncio.run(add())

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def read() -> str:
        async with workspaces.use("a") as workspace:
            return (workspace.path / "count").read_text()

    assert asyncio.run(read()) == "60"
    workspaces.close()


async def test_a_session_finds_its_folder_again_until_the_last_owner_is_closed() -> None:
    workspaces = SessionWorkspaces()
    one, two = object(), object()
    async with workspaces.use("a", one) as folder:
        (folder.path / "kept.txt").write_text("x")
    async with workspaces.use("a", two) as again:
        assert (again.path / "kept.txt").read_text() == "x"
    workspaces.close(one)
    assert folder.path.exists()
    workspaces.close(two)
    assert not folder.path.exists()
    workspaces.close(two)


async def test_closing_during_a_run_waits_for_its_end() -> None:
    workspaces = SessionWorkspaces()
    async with workspaces.use("a") as folder:
        workspaces.close()
        (folder.path / "still.txt").write_text("x")
    assert not folder.path.exists()


async def test_the_least_recently_used_idle_folder_goes_first_and_its_session_is_told() -> None:
    workspaces = SessionWorkspaces(max_workspaces=2)
    async with workspaces.use("busy") as busy:
        async with workspaces.use("old") as old:
            assert old.note is None
        async with workspaces.use("other"):
            pass
        async with workspaces.use("new") as new:
            pass
        await until_removed(workspaces)
        assert busy.path.exists()
        assert not old.path.exists()
        assert new.path.exists()
        async with workspaces.use("old") as again:
            assert "are gone" in (again.note or "")
        async with workspaces.use("old") as once_more:
            assert once_more.note is None
    workspaces.close()


async def test_rows_81_and_108_many_sessions_of_one_user_take_no_folders_of_others() -> None:
    workspaces = SessionWorkspaces(max_workspaces=3)
    async with workspaces.use(workspace_key("app", "victim", "s")) as victim:
        pass
    for number in range(6):
        async with workspaces.use(workspace_key("app", "hostile", f"s{number}")) as last:
            pass
    await until_removed(workspaces)
    assert victim.path.exists()
    assert last.path.exists()
    assert sum(folder.is_dir() for folder in victim.path.parent.iterdir()) <= 4
    workspaces.close()


async def test_row_446_sessions_of_one_user_that_are_in_use_take_no_folders_of_others() -> None:
    """Seen: 300 calls of one user, each in a session of its own, and the idle files of all twenty others were gone."""
    workspaces = SessionWorkspaces(max_workspaces=7)
    others = []
    for number in range(5):
        async with workspaces.use(workspace_key("app", f"user-{number}", "s")) as other:
            others.append(other.path)
    async with contextlib.AsyncExitStack() as running:
        for number in range(9):
            await running.enter_async_context(workspaces.use(workspace_key("app", "hostile", f"s{number}")))
        async with workspaces.use(workspace_key("app", "user-0", "s")) as again:
            assert again.note is None
        assert all(path.exists() for path in others)
    async with workspaces.use(workspace_key("app", "new", "s")):
        pass
    await until_removed(workspaces)
    assert all(path.exists() for path in others)
    assert sum(folder.is_dir() for folder in others[0].parent.iterdir()) <= 8
    workspaces.close()


async def test_row_449_whoever_opens_a_session_waits_for_no_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: what one user had left, 19,000 folders each, was deleted in another user's call, which took 82 s."""
    workspaces = SessionWorkspaces(max_workspaces=2)
    removed, may_remove, delete = [], threading.Event(), workspaces_module._delete

    def slow(*folders: Path) -> None:
        may_remove.wait(20)
        delete(*folders)
        removed.extend(folders)

    monkeypatch.setattr(workspaces_module, "_delete", slow)
    for number in range(4):
        async with workspaces.use(workspace_key("app", "hostile", f"s{number}")):
            pass
    async with workspaces.use(workspace_key("app", "victim", "s")) as mine:
        assert mine.path.exists()
    assert (removed, len(workspaces._leaving)) == ([], 3)
    may_remove.set()
    await until_removed(workspaces)
    assert len(removed) == 3
    workspaces.close()


async def test_a_folder_that_is_deeper_than_python_goes_is_deleted_and_those_behind_it_too() -> None:
    """Seen: RecursionError in a thread nobody hears of, and the folder counted as free space from then on."""
    workspaces = SessionWorkspaces(max_workspaces=2, idle_seconds=0.5)
    paths = []
    for number in range(2):
        async with workspaces.use(workspace_key("app", "hostile", f"s{number}")) as workspace:
            paths.append(workspace.path)
    here = os.open(paths[0], os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    await asyncio.sleep(0.6)
    async with workspaces.use(workspace_key("app", "victim", "s")):
        await until_removed(workspaces)
    assert not any(path.exists() for path in paths)
    workspaces.close()


async def until_removed(workspaces: SessionWorkspaces) -> None:
    """What was forgotten is deleted in a thread of its own."""
    async with asyncio.timeout(30):
        while workspaces._leaving:  # a thread says nothing
            await asyncio.sleep(0.01)


_FULL = (100 << 20, 0, 1 << 20)


async def _with_bytes(workspaces: SessionWorkspaces, user: str, session: str, size: int = 0) -> Path:
    async with workspaces.use(workspace_key("app", user, session)) as workspace:
        (workspace.path / "data").write_bytes(bytes(size))
    return workspace.path


async def test_row_158_the_sessions_of_one_user_do_not_fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: 256 sessions of one user, each within its limits, kept 80 GiB for an hour."""
    workspaces = SessionWorkspaces()
    victim = await _with_bytes(workspaces, "victim", "s", 1)
    for number in range(8):
        await _with_bytes(workspaces, "hostile", f"s{number}", 1 << 20)
    await until_removed(workspaces)
    assert sum(folder.is_dir() for folder in victim.parent.iterdir()) == 9
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _FULL)
    for number in range(8, 11):
        last = await _with_bytes(workspaces, "hostile", f"s{number}", 1 << 20)
        await until_removed(workspaces)
    assert victim.exists()
    assert last.exists()
    assert sum(folder.is_dir() for folder in victim.parent.iterdir()) <= 6
    workspaces.close()


async def test_row_410_sessions_in_use_that_fill_the_disk_cost_no_idle_sessions_of_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen: with each new session of a user whose scripts had filled the disk, a quarter of all idle ones went."""
    workspaces = SessionWorkspaces()
    victims = [await _with_bytes(workspaces, f"victim{number}", "s", 1) for number in range(8)]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _FULL)
    async with workspaces.use(workspace_key("app", "hostile", "in use")) as busy:
        (busy.path / "data").write_bytes(bytes(6 << 20))
        for number in range(4):
            with pytest.raises(SandboxError, match=r"Nothing was started\. Try again when they have ended"):
                await _with_bytes(workspaces, "hostile", f"new{number}")
        other = await _with_bytes(workspaces, "other", "s")  # who is not to blame gets one
        assert all(victim.exists() for victim in victims)
    async with workspaces.use(workspace_key("app", "victim0", "s")) as again:  # now it is idle, and goes first
        assert again.note is None
    await until_removed(workspaces)
    assert not busy.path.exists()
    assert other.exists()
    assert all(victim.exists() for victim in victims)
    assert caplog.messages[-1] == "the disk is nearly full: 1 idle workspaces of sessions are deleted"
    workspaces.close()


async def test_row_423_sessions_with_many_empty_files_do_not_fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: 33 sessions of one user, each within its limits, have all files that a disk of 20 GB can hold."""
    workspaces = SessionWorkspaces()
    victim = await _with_bytes(workspaces, "victim", "s", 1 << 20)

    async def with_files(session: str) -> Path:
        async with workspaces.use(workspace_key("app", "hostile", session)) as workspace:
            for number in range(100):
                (workspace.path / str(number)).touch()
        return workspace.path

    idle = [await with_files(str(number)) for number in range(8)]
    free = [20]  # of 1,000, of which 50 are left for others

    def disk(folder: Path) -> object:
        used = sum(len(files) for place in (victim, *idle) for _, _, files in os.walk(place))
        return SimpleNamespace(f_files=1_000, f_favail=free[0] + 801 - used)

    monkeypatch.setattr(os, "statvfs", disk)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: (100 << 30, 0, 50 << 30))
    last = await with_files("last")
    await until_removed(workspaces)
    assert [path.exists() for path in (victim, last, *idle)] == [True, True, False, *[True] * 7]
    async with workspaces.use(workspace_key("app", "hostile", "busy")) as busy:
        for number in range(900):
            (busy.path / str(number)).touch()
        free[0] = -1_000
        with pytest.raises(SandboxError, match=r"Nothing was started\. Try again when they have ended"):
            await with_files("one more")
        assert (await _with_bytes(workspaces, "other", "s")).exists()
    assert victim.exists()
    workspaces.close()


async def test_row_431_looking_at_what_sessions_hold_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: 20 sessions in use with 39,600 files each, and each call of anybody took 7 to 23 s."""
    spaces = SessionWorkspaces()
    looks: list[Path] = []

    def usage_of(folder: Path) -> workspaces.Usage:
        looks.append(folder)
        time.sleep(0.05)
        return workspaces.Usage(1 << 20, 1)

    monkeypatch.setattr(workspaces, "usage_of", usage_of)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _FULL)
    async with contextlib.AsyncExitStack() as busy:
        for number in range(20):
            workspace = await busy.enter_async_context(spaces.use(workspace_key("app", str(number), "s")))
            assert workspace.path.is_dir()
        looks.clear()
        for number in range(20, 26):
            await _with_bytes(spaces, str(number), "s")
            assert len(looks) < 15  # each workspace has three folders
            looks.clear()
        assert sum(one.usage.size > 0 for one in spaces._open.values()) >= 20  # in the end all that are in use
        with spaces._measuring:
            await _with_bytes(spaces, "other", "s")
        assert looks == []
    spaces.close()


async def test_what_frees_nothing_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else fills the disk: sessions without files would be lost for nothing."""
    workspaces = SessionWorkspaces()
    async with workspaces.use(workspace_key("app", "user", "s")) as first:
        pass
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _FULL)
    async with workspaces.use(workspace_key("app", "user", "t")):
        assert first.path.exists()
    workspaces.close()


async def test_row_409_whom_an_a2a_server_did_not_authenticate_is_one_user() -> None:
    """Seen: each context was a user of its own, and a client has as many as it likes."""
    workspaces = SessionWorkspaces(max_workspaces=4)
    victim = await _with_bytes(workspaces, "victim", "s")
    for number in range(6):
        await _with_bytes(workspaces, f"A2A_USER_{number}", "s")
    await until_removed(workspaces)
    assert victim.exists()
    assert share_of("app", "A2A_USER_1", "s")[0] == share_of("app", "A2A_USER_2", "t")[0]
    assert share_of("app", "A2A_USER_1", "s") != share_of("app", "A2A_USER_1", "t")
    workspaces.close()


async def test_a_session_that_was_idle_for_long_is_forgotten_when_another_comes() -> None:
    workspaces = SessionWorkspaces(idle_seconds=0)
    async with workspaces.use("a") as first:
        pass
    async with workspaces.use("b"):
        await until_removed(workspaces)
        assert not first.path.exists()
    workspaces.close()


async def test_folders_that_a_cleaner_took_are_made_again_and_said() -> None:
    workspaces = SessionWorkspaces()
    async with workspaces.use("a") as first:
        pass
    shutil.rmtree(first.path.parent)
    async with workspaces.use("a") as second:
        assert second.path.is_dir()
        assert second.note
    async with workspaces.use("b") as third:
        assert third.path.is_dir()
    workspaces.close()


def test_a_forked_child_leaves_the_folders_of_its_parent_alone() -> None:
    workspaces = SessionWorkspaces()

    async def use() -> str:
        async with workspaces.use("a") as workspace:
            return str(workspace.path)

    path = asyncio.run(use())
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        code = 1
        try:
            code = 0 if asyncio.run(use()) != path else 2
            workspaces.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asyncio.run(use()) == path
    workspaces.close()


async def test_no_room_for_files_is_a_sandbox_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack row 73, in the layer above the sandbox."""
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    with pytest.raises(SandboxError, match="cannot be made"):
        async with SessionWorkspaces().use("a"):
            pass


async def test_a_claim_that_is_not_opened_leaves_nothing_on_the_disk(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    workspaces = SessionWorkspaces()
    async with workspaces.claim("a"):
        pass
    assert not list(tmp_path.iterdir())
    async with workspaces.claim("a") as claim:
        opened = await asyncio.to_thread(claim.open)
        assert claim.open() is opened
        assert opened.note is None
    workspaces.close()


async def test_a_place_for_long_output_is_made_only_by_who_needs_it_and_goes_with_the_claim() -> None:
    workspaces = SessionWorkspaces()
    async with workspaces.use("a") as first:
        assert not first.spill.exists()
        first.spill.mkdir()
        (first.spill / "stdout.txt").write_text("long")
    assert not first.spill.exists()
    assert first.path.is_dir()
    async with workspaces.use("a") as second:
        assert second.spill != first.spill
    workspaces.close()


async def test_nothing_runs_in_a_thread_for_a_claim_that_made_nothing(monkeypatch) -> None:
    workspaces = SessionWorkspaces()
    async with workspaces.use("a"):
        pass
    hops: list[object] = []
    real = asyncio.to_thread

    async def counted(function, *args, **named):
        hops.append(function)
        return await real(function, *args, **named)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    async with workspaces.claim("a") as claim:
        claim.open()
        async with claim.turn():
            pass
    assert hops == []
    workspaces.close()


async def test_a_call_that_is_cancelled_while_its_folder_is_made_leaves_no_claim_behind(monkeypatch) -> None:
    workspaces = SessionWorkspaces()
    making, go_on = threading.Event(), threading.Event()
    real = tempfile.mkdtemp
    made: list[str] = []

    def slow(*args, **named):
        making.set()
        assert go_on.wait(10)
        made.append(real(*args, **named))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", slow)

    async def use() -> None:
        async with workspaces.use("a"):
            raise AssertionError("it was cancelled before")

    call = asyncio.create_task(use())
    await asyncio.to_thread(making.wait, 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go_on.set()
    async with workspaces.use("a") as folder:  # waits for the thread that makes it
        assert folder.path.is_dir()
    assert len(made) == 2  # the folder of all, and that of the session: once
    workspaces.close()
    assert not folder.path.exists()


async def test_a_folder_made_after_its_call_was_cancelled_and_its_owner_closed_is_deleted(monkeypatch) -> None:
    workspaces = SessionWorkspaces()
    async with workspaces.use("other") as other:
        pass
    making, go_on = threading.Event(), threading.Event()
    real = tempfile.mkdtemp

    def slow(*args, **named):
        making.set()
        assert go_on.wait(10)
        return real(*args, **named)

    monkeypatch.setattr(tempfile, "mkdtemp", slow)
    owner = object()
    async with workspaces.claim("a", owner) as claim:
        thread = threading.Thread(target=claim.open)
        thread.start()
        await asyncio.to_thread(making.wait, 10)
    workspaces.close(owner)
    go_on.set()
    thread.join()
    await until_removed(workspaces)
    assert list(other.path.parent.iterdir()) == [other.path]
    workspaces.close()


async def test_row_81_too_many_runs_of_one_session_are_refused_and_those_of_others_are_not() -> None:
    workspaces = SessionWorkspaces()
    ended: list[str] = []

    async def use(key: str) -> None:
        async with workspaces.use(key):
            ended.append(key)

    async with workspaces.use("a"):
        waiting = [asyncio.create_task(use("a")) for _ in range(MAX_WAITING[1])]
        while workspaces._open["a"].turn._all.waiting < MAX_WAITING[1]:
            await asyncio.sleep(0.01)
        with pytest.raises(TooManyRuns, match="64 of this session already"):
            await use("a")
        await use("b")
        assert ended == ["b"]
    await asyncio.gather(*waiting)
    await use("a")
    assert ended == ["b", *["a"] * (MAX_WAITING[1] + 1)]
    workspaces.close()
