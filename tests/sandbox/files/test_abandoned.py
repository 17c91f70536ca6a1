"""Row 31: the folders of an agent that was killed go with the next agent's first run, and nobody else's do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import level_table
import preloaded
from adk_skills_agent.sandbox.files import removal
from adk_skills_agent.sandbox.files.removal import folder_name, sweep_abandoned

RUN_ID = "0123456789abcdef"

AGENT = """
import asyncio, json, os, sys, tempfile, warnings
warnings.simplefilter("ignore")
tempfile.tempdir = sys.argv[2]
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
policy = SandboxPolicy(isolation=sys.argv[1], min_isolation=sys.argv[1])
def run(code, **more):
    return local_sandbox().run(ExecutionRequest(("bash", "-c", code), policy, **more))
"""
KILLED = """
def tell(name, data):
    print(json.dumps(os.listdir(sys.argv[2])), flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(run("mkdir -p a/b/c; chmod 0 a/b; touch made; echo up; sleep 60", on_output=tell))
"""
NEXT = """
asyncio.run(run("true"))
import threading
for thread in threading.enumerate():
    if thread.name == "adk-skills-sweeper":
        thread.join()
print(json.dumps(os.listdir(sys.argv[2])))
"""


@pytest.fixture(autouse=True)
def nothing_was_swept(monkeypatch):
    for thread in threading.enumerate():  # an earlier test's, which may still have to tell its last folder
        if thread.name == "adk-skills-sweeper":
            thread.join()
    monkeypatch.setattr(removal, "_swept", set())


def agent(program: str, level: str, folder: Path) -> list[str]:
    line = [preloaded.program("python"), "-c", AGENT + program, level, str(folder)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert done.stderr == ""
    told: list[str] = json.loads(done.stdout)
    return told


def soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def of_a_dead_agent(place: Path) -> Path:
    name = subprocess.run(
        [
            sys.executable,
            "-c",
            f"from adk_skills_agent.sandbox.files.removal import folder_name; print(folder_name({RUN_ID!r}))",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    folder = place / name
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "file").write_text("left")
    return folder


@pytest.mark.parametrize("level", ["landlock", "process"])
def test_what_a_killed_agent_left_goes_with_the_next_run(level, private_tmp):
    level_table.require(level)
    (left,) = agent(KILLED, level, private_tmp)
    assert os.listdir(private_tmp) == [left]
    assert agent(NEXT, level, private_tmp) == []


def test_what_is_not_surely_a_dead_agents_stays(private_tmp):
    gone = of_a_dead_agent(private_tmp)
    world, pid, start, _ = gone.name.removeprefix(removal.PREFIX).split("-")
    stay = {
        folder_name(RUN_ID),  # our own
        f"{removal.PREFIX}{'0' * 8}-{pid}-{start}-{RUN_ID}",  # of another boot or container
        f"{removal.PREFIX}{world}-{os.getppid()}-1-{RUN_ID}x",
        f"{removal.PREFIX}{RUN_ID}",
        f"somebodys-{gone.name}",
    }
    for name in stay:
        (private_tmp / name).mkdir()
    link = private_tmp / f"{removal.PREFIX}{world}-{pid}-{int(start) + 1}-{RUN_ID}"
    link.symlink_to(gone)
    if os.geteuid() == 0:
        strangers = private_tmp / f"{removal.PREFIX}{world}-{pid}-{int(start) + 2}-{RUN_ID}"
        strangers.mkdir()
        os.chown(strangers, 65534, 65534)
        stay.add(strangers.name)
    stay.add(link.name)
    other = private_tmp / f"{removal.PREFIX}{world}-{pid}-{int(start) + 3}-{RUN_ID[::-1]}"
    other.mkdir()
    gone.rename(private_tmp / f"{removal.PREFIX}{world}-{pid}-{start}-{RUN_ID[1:]}f")
    sweep_abandoned(str(private_tmp))
    assert soon(lambda: set(os.listdir(private_tmp)) == stay)


def test_a_process_that_got_the_id_of_a_dead_agent_is_another(private_tmp):
    world, pid, start, _ = folder_name(RUN_ID).removeprefix(removal.PREFIX).split("-")
    (private_tmp / f"{removal.PREFIX}{world}-{pid}-{int(start) - 1}-{RUN_ID}").mkdir()
    sweep_abandoned(str(private_tmp))
    assert soon(lambda: os.listdir(private_tmp) == [])


@pytest.mark.parametrize("kind", ["sessions", "memory", "test-cache"])
def test_other_folders_and_files_of_a_dead_agent_go_too_and_each_is_told(kind, private_tmp, caplog):
    caplog.set_level("INFO")
    owner = of_a_dead_agent(private_tmp).name.removeprefix(removal.PREFIX).removesuffix(f"-{RUN_ID}")
    (private_tmp / f"adk-skills-{kind}-{owner}-tmp_4f0z").mkdir()
    (private_tmp / f"adk-skills-{kind}-{owner}-tmp_4f1z").write_text("a file")
    names = os.listdir(private_tmp)
    mine = tempfile.mkdtemp(prefix=removal.temporary_prefix(kind))  # looks for what was left, too

    def told() -> list[str]:  # by the sweeper: other threads of this process say other things
        return [record.getMessage() for record in caplog.records if record.name == removal.__name__]

    assert soon(lambda: len(told()) == len(names))
    assert sorted(message.split()[1] for message in told()) == sorted(f"{name}," for name in names)
    assert list(private_tmp.iterdir()) == [Path(mine)]
    os.rmdir(mine)


def test_an_agent_that_sees_the_processes_of_another_namespace_claims_and_sweeps_nothing(private_tmp):
    new = ["unshare", "--pid", "--fork"]
    if subprocess.run([*new, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to make a process id namespace")
    left = of_a_dead_agent(private_tmp)
    program = (
        "import sys; from adk_skills_agent.sandbox.files.removal import folder_name, sweep_abandoned\n"
        "sweep_abandoned(sys.argv[1]); print(folder_name(sys.argv[2]))"
    )
    line = [*new, sys.executable, "-c", program, str(private_tmp), RUN_ID]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout == f"{removal.PREFIX}{RUN_ID}\n"
    assert os.listdir(private_tmp) == [left.name]
    shutil.rmtree(left)


def test_a_place_is_looked_at_once(private_tmp):
    sweep_abandoned(str(private_tmp))
    left = of_a_dead_agent(private_tmp)
    sweep_abandoned(str(private_tmp))
    assert os.listdir(private_tmp) == [left.name]


def test_several_that_sweep_at_once_do_not_get_in_each_others_way(private_tmp, caplog):
    names = []
    for number in range(20):
        folder = of_a_dead_agent(private_tmp) if number == 0 else private_tmp / f"{names[0][:-2]}{number:02x}"
        folder.mkdir(exist_ok=True)
        names.append(folder.name)

    def sweep(_: int) -> None:
        removal._swept.clear()
        sweep_abandoned(str(private_tmp))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(sweep, range(8)))
    assert soon(lambda: os.listdir(private_tmp) == [])
    assert [record.getMessage() for record in caplog.records if record.module == "removal"] == []


def test_a_place_that_cannot_be_listed_is_no_problem(private_tmp):
    sweep_abandoned(str(private_tmp / "gone"))
