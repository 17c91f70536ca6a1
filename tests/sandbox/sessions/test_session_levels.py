"""A little of every row on every local level: what the levels themselves could break."""

from __future__ import annotations

import asyncio

import pytest
from keeping import Host, Kept

import level_table
from adk_skills_agent.errors import TooManyRuns
from adk_skills_agent.sandbox.contract import IsolationLevel, Network
from adk_skills_agent.sandbox.local.sessions import LocalSessions
from adk_skills_agent.sandbox.sessions.sessions import SessionLimits
from adk_skills_agent.sandbox.threads import Share

LEVELS = ("namespaces", level_table.UNGROUPED, "landlock", "process")


@pytest.mark.parametrize("level", LEVELS)
async def test_a_session_lasts_is_interrupted_breaks_and_begins_anew_at_every_level(
    level: str, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = level_table.enter(level, monkeypatch)
    kept = Kept(Host(level, IsolationLevel(level), LocalSessions, lambda: None))
    try:
        await kept.run("kept = 41\nopen('made.txt', 'w').write('x')", id="a")
        assert await kept.value("'kept' in globals()", id="b") == "False"
        slow = await kept.run("import time\ntime.sleep(60)", wall_seconds=0.1)
        assert (slow.status, slow.interrupted) == ("timeout", True)
        assert await kept.value("kept + 1") == "42"
        broken = await kept.run("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nsignal.pause()")
        assert (broken.status, broken.isolation.level) == ("error", level)
        after = await kept.run("import os\nos.listdir()")
        assert (after.stdout, after.session_reset) == (b"[]\n", True)
    finally:
        await kept.sessions.close()


@pytest.mark.parametrize("level", LEVELS)
async def test_row_74_a_session_has_a_home_of_its_own_outside_of_its_workspace_at_every_level(
    level: str, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = level_table.enter(level, monkeypatch)
    kept = Kept(Host(level, IsolationLevel(level), LocalSessions, lambda: None))
    look = "import os, pathlib\nhome = pathlib.Path.home()\nprint(home, sorted(os.listdir(home)), os.listdir('.'))"
    try:
        assert await kept.value(look, id="a") == "/tmp/home [] []"
        await kept.run("(home / '.gitconfig').write_text('[core]\\n\\tfsmonitor = steal')", id="a")
        # What it keeps for itself stays for as long as the session does; another skill's session has none of it.
        assert await kept.value(look, id="a") == "/tmp/home ['.gitconfig'] []"
        assert await kept.value(look, id="b") == "/tmp/home [] []"
        assert await kept.value("import subprocess\n_ = subprocess.run(['sh', '-c', 'ls -A ~'])", id="b") == ""
    finally:
        await kept.sessions.close()


@pytest.mark.parametrize("level", LEVELS)
async def test_row_80_code_of_a_session_that_took_too_much_disk_and_ended_at_once_is_told_and_loses_it(
    level: str, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = level_table.enter(level, monkeypatch)
    kept = Kept(Host(level, IsolationLevel(level), LocalSessions, lambda: None))
    limits = {"workspace_bytes": 32 << 20, "file_bytes": None}
    code = "import os\nos.posix_fallocate(os.open('big', os.O_CREAT | os.O_WRONLY), 0, 200 << 20)"
    try:
        first = await kept.run(code, **limits)
        if level == "namespaces":  # its file system is full at once
            assert b"No space left on device" in first.stderr
            return
        assert first.status == "disk_limit"
        assert any("32 MiB are allowed" in note for note in first.notes), first.notes
        after = await kept.run("import os\nos.listdir()", **limits)
        assert (after.status, after.stdout, after.session_reset) == ("ok", b"[]\n", True)
    finally:
        await kept.sessions.close()


@pytest.mark.parametrize("level", ["namespaces", "landlock", "process"])
async def test_row_81_the_code_of_one_user_leaves_room_for_the_sessions_of_others_at_every_level(
    level: str, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = level_table.enter(level, monkeypatch)
    kept = Kept(Host(level, IsolationLevel(level), LocalSessions, lambda: None), SessionLimits(sessions=4))
    try:
        for number in range(4):  # all places are taken by sessions that live
            assert await kept.value("kept = 1\nkept", id=f"evil{number}", share=("evil", str(number))) == "1"
        started: list[bytes] = []
        slow = "import time\nprint('begun', flush=True)\ntime.sleep(80)"
        evil = [
            asyncio.create_task(
                kept.run(
                    slow,
                    id=f"evil{number}",
                    share=("evil", str(number)),
                    wall_seconds=80,
                    on_output=lambda _, data: started.extend([data] * data.count(b"begun")),
                )
            )
            for number in range(4)
        ]
        async with asyncio.timeout(30):
            while len(started) < 3:
                await asyncio.sleep(0.02)
        async with asyncio.timeout(30):  # all other code has a minute
            assert await kept.value("6 * 7", id="good", share=("good", "a")) == "42"
        assert len(started) == 3
        for task in evil:
            task.cancel()
        await asyncio.gather(*evil, return_exceptions=True)
        # The one that had to give up its place for it is told so.
        after = [await kept.run("kept", id=f"evil{number}", share=("evil", str(number))) for number in range(4)]
        assert any("its place was needed for another session" in note for one in after for note in one.notes)
    finally:
        await kept.sessions.close()


async def test_row_81_too_much_code_that_waits_for_one_session_is_refused(nothing_left: None) -> None:
    level_table.require("process")
    kept = Kept(Host("process", IsolationLevel.PROCESS, LocalSessions, lambda: None))
    tasks = [asyncio.create_task(kept.run("import time\ntime.sleep(20)", share=("evil", "a"))) for _ in range(70)]
    try:
        async with asyncio.timeout(30):
            while len(refused := [task for task in tasks if task.done()]) < 70 - 1 - 64:
                await asyncio.sleep(0.01)
        assert len(refused) == 70 - 1 - 64
        for task in refused:
            with pytest.raises(TooManyRuns, match="64 of this session already"):
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await kept.sessions.close()


async def test_row_353_what_a_session_looks_up_counts_for_its_user(
    nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: one user's sessions, with a name server that never answers, kept those of all users from any name."""
    level_table.require("namespaces")
    asked = []

    async def resolve(host: str, port: int, share: Share = ()) -> list[str]:
        asked.append((host, share))
        raise OSError("no such name")

    monkeypatch.setattr("adk_skills_agent.sandbox.network.run_network.system_resolve", resolve)
    kept = Kept(Host("namespaces", IsolationLevel.NAMESPACES, LocalSessions, lambda: None))
    look = (
        "import os, urllib.request\nfor name in ('a.example', 'b.example'):\n"
        "    try: urllib.request.urlopen(f'http://{name}/')\n    except OSError as error: print('no')\n"
    )
    try:
        network = Network.allow("a.example", "b.example", ports=(80,))
        result = await kept.run(look, share=("them", "theirs"), network=network)
        assert result.stdout == b"no\nno\n", result
        assert asked == [("a.example", ("them", "theirs")), ("b.example", ("them", "theirs"))]
    finally:
        await kept.sessions.close()
