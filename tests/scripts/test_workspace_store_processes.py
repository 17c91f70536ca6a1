"""The store of sessions between real processes: racing, killed at every step of a save."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from plain_user import PLAIN_USER

CALLS = """
import asyncio, json, os, signal, sys
from pathlib import Path
from adk_skills_agent.scripts.stored_workspace import SessionStore
from adk_skills_agent.scripts.workspace_store import Owner, WorkspaceStore
from adk_skills_agent.scripts.workspaces import SessionWorkspaces

KEY = "app:a:user:u:session:s"

def store(url, lease=0.4, wait=60.0):
    return WorkspaceStore(url, lease_seconds=lease, wait_seconds=wait)

class Server:
    def __init__(self, kept):
        self.workspaces, self.notes, self.reports = SessionWorkspaces(), [], []
        self.about = SessionStore(kept, Owner("a", "u", "s"), tell=self.reports.append)

    async def call(self, do, name="a call"):
        async with self.workspaces.claim(KEY, self, None, self.about) as claim:
            opened = await asyncio.to_thread(claim.open)
            try:
                async with claim.turn(call=name):
                    return do(opened.path)
            finally:
                self.notes = claim.notes

def files(work):
    return {str(path.relative_to(work)): path.read_text() for path in work.rglob("*") if path.is_file()}
"""

RACE = (
    CALLS
    + """
async def main():
    server = Server(store(sys.argv[1], lease=5))
    for _ in range(int(sys.argv[2])):
        def add(work):
            count = work / "count"
            count.write_text(str(int(count.read_text()) + 1 if count.exists() else 1))
        await server.call(add)
    print(json.dumps([report.problem for report in server.reports if report.problem]))
asyncio.run(main())
"""
)

# One process forks a server for each step, kills it there, and looks at the session with a new server.
KILLED = (
    CALLS
    + """
place = sys.argv[1]

def change(work):
    (work / "a").write_text("2" * 100)
    (work / "c").write_text("2" * 50)
    (work / "b").unlink()

OLD = {"a": "1", "b": "1"}
NEW = {"a": "2" * 100, "c": "2" * 50}

def place_of(argument):
    if not isinstance(argument, int) or argument < 3:
        return str(argument)
    try:
        return os.readlink(f"/proc/self/fd/{argument}")
    except OSError:
        return ""

def killed_at(step, url):
    count = 0
    def hook(event, args):
        nonlocal count
        writes = event in ("os.link", "os.rename", "os.remove", "os.mkdir", "os.scandir")
        if writes or (event == "open" and args[2] & os.O_CREAT):
            below = event == "open" and "/" not in str(args[0])  # what it is below is not told of this one
            if below or any(url in place_of(one) for one in args):
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

step, told, ends = 0, 0, 0
while True:
    step += 1
    url = f"{place}/{step}"
    def first(work):
        (work / "a").write_text("1")
        (work / "b").write_text("1")
    asyncio.run(Server(store(url)).call(first))
    child = os.fork()
    if child == 0:
        try:
            server = Server(store(url))
            server.about.store.ready()
            killed_at(step, url)
            asyncio.run(server.call(change, "changing the files"))
        finally:
            os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    server = Server(store(url))
    seen = asyncio.run(server.call(files))
    assert seen in (OLD, NEW), (step, seen)
    cut_off = any("changing the files" in note for note in server.notes)
    told += cut_off
    ends += seen == NEW
    assert not (cut_off and seen == NEW), step  # a call that was saved is not told as unknown
    asyncio.run(server.call(lambda work: (work / "after").write_text("x")))
    assert asyncio.run(Server(store(url)).call(files)) == seen | {"after": "x"}, step
    assert not [report.problem for report in server.reports if report.problem], server.reports
    if ended == 0:
        break
print(json.dumps({"steps": step, "told": told, "saved": ends}))
"""
)


def started(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_processes_that_race_for_a_session_each_see_what_the_other_did(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    racing = [started(RACE, store, "12") for _ in range(3)]
    for process in racing:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert json.loads(out) == []
    # 36 = 3 x 12: no call was lost, and none saw another's half.
    program = CALLS + "print(asyncio.run(Server(store(sys.argv[1])).call(files))['count'])"
    looked = subprocess.run([sys.executable, "-c", program, store], capture_output=True, text=True, check=True)
    assert looked.stdout.strip() == "36"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_row_114_a_server_killed_at_any_step_leaves_the_old_files_or_the_new_ones(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path)], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["steps"] > 15  # the steps there are: each was died at once
    assert seen["told"] >= 5
    assert seen["saved"] >= 2


READ_ONLY = (
    CALLS
    + """
import adk_skills_agent.scripts.stored_workspace, fsspec
if os.geteuid() == 0:
    os.setuid(int(sys.argv[2]))
server = Server(store(sys.argv[1]))
try:
    asyncio.run(server.call(lambda work: print("started")))
except Exception as error:
    print(json.dumps([type(error).__name__, str(error), server.reports[-1].action, server.reports[-1].problem]))
"""
)


def test_a_store_that_may_not_be_written_to_starts_nothing_and_says_so() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "store"
        Path(folder).chmod(0o755)
        place.mkdir()
        place.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", READ_ONLY, str(place), str(PLAIN_USER)],
            capture_output=True,
            text=True,
            cwd="/",
        )
    kind, message, action, problem = json.loads(done.stdout.splitlines()[-1])
    assert (kind, action) == ("WorkspaceUnavailable", "unavailable"), done.stderr
    assert "nothing was started" in message
    assert str(place) not in message
    assert f"{place} cannot be written: Permission denied" in problem
