"""Row 82: a sandbox is the same whoever makes it, the zygote or bubblewrap, for root and for a plain user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import level_table
from plain_user import PLAIN_USER, SOURCES, python_of_plain_user, readable_copy, readable_packages

# What a script sees of its sandbox: each file of /proc/1 and of its own by owner, mode and whether it can be used.
LOOK = r"""
import json, os, re, resource, signal, stat
def what(path):
    seen = []
    try:
        info = os.lstat(path)
        seen += [stat.filemode(info.st_mode)]  # owners have other numbers in another user namespace
    except OSError as error:
        return error.strerror
    if stat.S_ISLNK(info.st_mode):
        try:
            os.readlink(path)
            return [*seen, "read"]
        except OSError as error:
            return [*seen, error.strerror]
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            descriptor = os.open(path, flags | os.O_NONBLOCK)
        except OSError as error:
            seen.append(error.strerror)
            continue
        seen.append("open")
        if flags == os.O_RDONLY:
            try:
                os.listdir(descriptor) if stat.S_ISDIR(info.st_mode) else os.read(descriptor, 1)
                seen.append("read")
            except OSError as error:
                seen.append(error.strerror)
        os.close(descriptor)
    return seen
def entries(folder):
    return {f"{folder}/{name}": what(f"{folder}/{name}") for name in sorted(os.listdir(folder)) if name != "task"}
FIELDS = "Uid Gid Groups NSpid CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Seccomp_filters"
FIELDS += " SigBlk SigIgn SigCgt Umask"
def status(process):
    lines = dict(line.split(":", 1) for line in open(f"/proc/{process}/status") if ":" in line)
    return {name: lines[name].split() for name in FIELDS.split() if name in lines}
def mounts():
    found = {}
    for line in open("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        where, options = before.split()[4:6]
        kind, _, of_all = after.split()
        sizes = [option for option in of_all.split(",") if option.startswith("size=")]
        found[where] = [kind, sizes, sorted({"ro", "nosuid", "nodev", "noexec"} & set(options.split(",")))]
    return found
print(json.dumps({
    "process 1": entries("/proc/1"),
    "itself": entries("/proc/self"),
    "its descriptors": sorted(os.listdir("/proc/self/fd"))[:-1],
    "/": {name: what(f"/{name}") for name in sorted(os.listdir("/"))},
    "/dev": entries("/dev"),
    "/proc": {name: what(f"/proc/{name}") for name in sorted(os.listdir("/proc")) if not name.isdigit()},
    "rights": [status("1"), status("self")],
    "mounts": mounts(),
    "limits": [open("/proc/self/limits").read(), resource.getrlimit(resource.RLIMIT_NPROC)],
    "session": [os.getpgid(0) == os.getpid(), os.getsid(0)],
    "environment": {name: value for name, value in os.environ.items() if name != "ADK_SKILLS_RUN_ID"},
}))
"""
AGENT = """
import asyncio, json, sys
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.namespaces.zygote import zygote_life
async def main():
    seen = {}
    for maker in ("bubblewrap", "auto"):
        policy = SandboxPolicy(isolation="namespaces", min_isolation="namespaces", maker=maker, wall_seconds=60)
        for _ in range(12):
            result = await local_sandbox().run(ExecutionRequest(("python3", "-c", sys.argv[1]), policy))
            assert result.status == "ok", result
            if maker == "auto" and result.isolation.maker == "bubblewrap":
                zygote_life().wait(20)
                continue
            break
        seen[result.isolation.maker] = json.loads(result.stdout)
    print(json.dumps(seen))
asyncio.run(main())
"""


@pytest.fixture(params=[pytest.param("root", marks=pytest.mark.slow), "plain user"])
def seen(request: pytest.FixtureRequest) -> Iterator[dict[str, dict[str, object]]]:
    """What a script sees, by maker."""
    level_table.require("namespaces")
    command, options = [sys.executable], {}
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="both-makers-") as folder:
        environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
        if request.param == "plain user":
            if os.geteuid() != 0:
                pytest.skip("the agent of the other row is a plain user already")
            os.chown(folder, PLAIN_USER, PLAIN_USER)
            command = [python_of_plain_user()]
            modules = f"{readable_copy(SOURCES, Path(folder, 'src'))}:{readable_packages(Path(folder))}"
            environment = {"PATH": "/usr/bin:/bin", "HOME": folder, "PYTHONPATH": modules}
            options = {"user": PLAIN_USER, "group": PLAIN_USER, "extra_groups": []}
        elif os.geteuid() != 0:
            request.node.add_marker(pytest.mark.filterwarnings("default"))
        done = subprocess.run(
            [*command, "-W", "ignore", "-c", AGENT, LOOK],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            **options,  # type: ignore[call-overload]
        )
        assert done.returncode == 0, done.stderr[-3000:]
        yield json.loads(done.stdout)


def test_row_82_a_script_sees_the_same_sandbox_whoever_made_it(seen: dict[str, dict[str, object]]) -> None:
    assert set(seen) == {"bubblewrap", "zygote"}
    theirs_of, ours_of = seen["bubblewrap"].pop("mounts"), seen["zygote"].pop("mounts")
    assert isinstance(theirs_of, dict)
    assert isinstance(ours_of, dict)
    # The zygote may forbid more of a mount, and shows more of the kernel's settings read-only; nothing else.
    assert theirs_of.keys() <= ours_of.keys()
    for where, (kind, sizes, forbidden) in ours_of.items():
        if where in theirs_of:
            assert [kind, sizes] == theirs_of[where][:2], where
            assert set(forbidden) >= set(theirs_of[where][2]), where
        else:
            assert where.startswith("/proc/")
            assert "ro" in forbidden, where
    different = {
        what: {name: (theirs, ours[name]) for name, theirs in bubblewraps.items() if ours.get(name) != theirs}
        | {name: (None, ours[name]) for name in ours.keys() - bubblewraps.keys()}
        if isinstance(bubblewraps, dict) and isinstance(ours, dict)
        else (bubblewraps, ours)
        for what, bubblewraps in seen["bubblewrap"].items()
        if (ours := seen["zygote"][what]) != bubblewraps
    }
    assert not different, json.dumps(different, indent=1)


def test_row_82_process_1_belongs_to_nobody_inside(seen: dict[str, dict[str, object]]) -> None:
    for maker, world in seen.items():
        files = world["process 1"]
        assert isinstance(files, dict)
        for name in ("clear_refs", "fd", "environ", "mem", "maps", "cwd", "root"):
            assert "open" not in files[f"/proc/1/{name}"], (maker, name, files[f"/proc/1/{name}"])
        assert files["/proc/1/oom_score_adj"][-1] == "Permission denied"  # to write
