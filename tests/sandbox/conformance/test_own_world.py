"""Rows 9, 11, 29, 36, 55, 61, 64: what a run with namespaces of its own can do to the machine."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from pathlib import PurePosixPath

import psutil
import pytest

from adk_skills_agent.sandbox.contract import Network, ReadOnlyMount, Status
from adk_skills_agent.sandbox.process.command import HIDDEN_OF_KERNEL
from adk_skills_agent.sandbox.process.watchdog import watchdog

MIB = 1 << 20


@pytest.mark.level("namespaces")
async def test_the_limit_of_processes_is_the_runs_own_and_exact(box):
    code = """
import os, signal
pids = []
try:
    while len(pids) < 100:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        pids.append(pid)
except BlockingIOError:
    print(len(pids))
"""
    first, second = await asyncio.gather(box.python(code, pids=12), box.python(code, pids=12))
    assert (first.stdout, second.stdout) == (b"11\n", b"11\n")


@pytest.mark.level("namespaces")
async def test_row_9_every_place_that_can_be_written_is_full_at_its_limit(box, tmp_path):
    code = """
import os
for folder in ("/work", "/tmp", "/dev/shm"):
    size = 0
    try:
        while True:
            with open(f"{folder}/{size}", "wb") as file:
                file.write(bytes(1 << 20))
            size += 1
    except OSError as error:
        print(folder, size, error.strerror)
for folder in ("/", "/dev", "/etc", "/run", "/usr", "/skill"):
    try:
        open(f"{folder}/x", "wb")
        print("could write", folder)
    except OSError:
        pass
"""
    result = await box.python(code, workspace_bytes=8 * MIB, tmp_bytes=4 * MIB, shm_bytes=2 * MIB)
    full = b"No space left on device"
    assert result.stdout.splitlines() == [b"/work 8 " + full, b"/tmp 4 " + full, b"/dev/shm 2 " + full]
    # Of this test's folders, which hold those of its runs: the disk itself is everybody's.
    assert sum(path.lstat().st_blocks * 512 for path in tmp_path.rglob("*")) < MIB


@pytest.mark.level("namespaces")
@pytest.mark.parametrize("folder", ["/work", "/tmp", "/dev/shm"])
async def test_row_11_files_without_content_are_counted_too(box, folder):
    code = f"""
import time
for i in range(1_000_000):
    open("{folder}/%d" % i, "w").close()
    if i % 500 == 0:
        time.sleep(0.01)
"""
    result = await box.python(code, workspace_inodes=3000)
    assert result.status is Status.DISK_LIMIT
    assert any("3,000 files" in note for note in result.notes)


@pytest.mark.level("namespaces")
async def test_row_29_nothing_inside_can_end_or_stop_process_1(box):
    code = """
import os, signal
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGHUP, signal.SIGSEGV, signal.SIGCHLD):
    os.kill(1, number)
print("still here")
os._exit(5)
"""
    result = await box.python(code)
    assert (result.stdout, result.exit_code, result.status) == (b"still here\n", 5, Status.ERROR)


@pytest.mark.level("namespaces")
async def test_row_29_nothing_inside_can_change_the_limits_of_process_1(box):
    code = """
import contextlib, os, resource, time
refused = 0
for which, value in ((resource.RLIMIT_CPU, 0), (resource.RLIMIT_AS, 1), (resource.RLIMIT_FSIZE, 0)):
    try:
        resource.prlimit(1, which, (value, value))
    except PermissionError:
        refused += 1
for attack in (
    lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
    lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
    lambda: os.sched_setaffinity(1, {0}),
):
    before = os.getpriority(os.PRIO_PROCESS, 1), os.sched_getscheduler(1), os.sched_getaffinity(1)
    with contextlib.suppress(PermissionError):
        attack()
    refused += before == (os.getpriority(os.PRIO_PROCESS, 1), os.sched_getscheduler(1), os.sched_getaffinity(1))
print(refused, resource.prlimit(0, resource.RLIMIT_CPU) == resource.getrlimit(resource.RLIMIT_CPU), flush=True)
end = time.monotonic() + 0.3
while time.monotonic() < end:  # process 1 has to wait for each of these
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
os._exit(5)
"""
    result = await box.python(code)
    assert (result.stdout, result.exit_code, result.status) == (b"6 True\n", 5, Status.ERROR), result.stderr


@pytest.mark.level("namespaces")
async def test_row_36_only_the_runs_own_processes_and_no_path_of_the_host_are_seen(box, tmp_path):
    code = """
import os
pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
print(len(pids) <= 3, max(pids) < 20)
print(sorted(os.listdir("/proc/self/fd")))
print(open("/proc/self/mountinfo").read())
print(open("/proc/net/unix").read().count("\\n"))
print(os.listdir("/root") if os.path.isdir("/root") else [])
"""
    result = await box.python(code)
    lines = result.stdout.decode().splitlines()
    assert lines[0] == "True True"
    assert lines[1] == "['0', '1', '2', '3']"
    assert str(tmp_path) not in result.stdout.decode()
    assert lines[-2] == "1"


@pytest.mark.level("namespaces")
async def test_row_64_the_kernel_cannot_be_configured(box):
    code = """
import os
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/sysrq-trigger", "/sys/power/state"):
    try:
        os.open(path, os.O_WRONLY)
        print("open", path)
    except OSError:
        pass
try:
    os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-500")
    print("lowered")
except OSError:
    pass
print("end")
"""
    assert (await box.python(code)).stdout == b"end\n"


@pytest.mark.level("namespaces")
async def test_row_344_nobody_reads_what_all_of_the_machine_waits_for_meanwhile(box):
    """Seen: 25 readers of /proc/locks held every file lock of the machine for 20 s, and longer than the run."""
    code = f"""
for name in {HIDDEN_OF_KERNEL}:  # and the names of the agent's keys (row 297)
    try:
        assert open("/proc/" + name, "rb").read(1) == b"", name
    except OSError:
        pass
for name in ("cpuinfo", "meminfo", "stat", "uptime", "version", "filesystems", "mounts", "sys/vm/swappiness"):
    assert open("/proc/" + name).read(), name
print("end")
"""
    assert (await box.python(code)).stdout == b"end\n"


async def test_row_363_a_run_that_watches_so_many_files_that_telling_them_takes_the_processors_is_ended(box):
    """Seen: 819,672 watches of two terminals; a byte for each took both processors for 0.1 s, at nobody's cost."""
    code = """
import os, select, time
end, _ = os.pipe()
for _ in range(12):
    if os.fork() == 0:
        watching = [select.epoll() for _ in range(50)]
        for copy in [os.dup(end) for _ in range({copies})]:
            for one in watching:
                one.register(copy)
        time.sleep({seconds})
        os._exit(0)
for _ in range(12):
    os.wait()
print("end")
"""
    few = await box.python(code.format(copies=20, seconds=1), wall_seconds=60)
    many = await box.python(code.format(copies=60, seconds=40), wall_seconds=60)
    assert few.stdout == b"end\n"
    assert (many.status, many.timed_out) == (Status.ERROR, False)
    assert any("epoll" in note for note in many.notes)


@pytest.mark.level("namespaces")
async def test_row_61_two_runs_share_no_place(box):
    write = "touch /dev/shm/x /tmp/x x; ls /dev/shm /tmp . | grep -c x; sleep 0.3"
    read = "sleep 0.15; ls /dev/shm /tmp; ls -a . | grep x; echo end"
    first, second = await asyncio.gather(box.bash(write), box.bash(read))
    assert first.stdout == b"3\n"
    assert second.stdout.endswith(b"end\n")
    assert b"x" not in second.stdout.replace(b"end", b"").split()


@pytest.mark.level("namespaces")
@pytest.mark.local("a container has its image's interpreter")
async def test_row_55_the_agents_interpreter_and_its_packages_work_wherever_they_are(box):
    # As a plain user the suite's packages come by PYTHONPATH, which is not the scripts'.
    module = "psutil" if psutil.__file__.startswith(sys.prefix) else "json"
    result = await box.python(f"import sys, {module}; print({module}.__name__, *sys.version_info[:2])")
    expected = f"{module} {sys.version_info.major} {sys.version_info.minor}\n".encode()
    assert result.stdout == expected
    code = f"import sys, {module}; print({module}.__name__, *sys.version_info[:2])"
    assert (await box.run(sys.executable, "-c", code)).stdout == expected
    assert (await box.bash(f"python3 -c '{code}'")).stdout == expected


@pytest.mark.level("namespaces")
@pytest.mark.local("a container has its image's interpreter")
async def test_row_55_another_interpreter_is_shown_too(box, tmp_path):
    import venv

    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (tmp_path / "venv" / ".env").write_text("SECRET=hunter2")
    python = str(tmp_path / "venv" / "bin" / "python3")
    code = f"import sys, os; print(sys.prefix); print(os.path.exists({str(tmp_path / 'venv' / '.env')!r}))"
    kept = tmp_path / "kept"
    result = await box.run(python, "-c", f"{code}; open('/tmp/mine', 'w')", python=python, tmp=kept)
    assert result.stdout.decode().splitlines() == [str(tmp_path / "venv"), "False"]
    # It is below /tmp here, and nothing of it is a file of the session.
    assert result.notes == ()
    assert [path.name for path in kept.rglob("*") if path.is_file()] == ["mine"]


@pytest.mark.level("namespaces")
async def test_folders_named_by_the_policy_are_readable_at_their_own_path(box, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("rows")
    result = await box.bash(f"cat {data}/x; touch {data}/y; echo", extra_ro=(str(data),))
    assert result.stdout == b"rows\n"
    assert b"Read-only file system" in result.stderr


@pytest.mark.level("namespaces")
async def test_a_loopback_of_its_own_is_up_and_nobody_elses(box):
    code = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    with socket.create_connection(server.getsockname()) as client:
        client.sendall(b"to myself")
        print(server.accept()[0].recv(20).decode())
"""
    result = await box.python(code, network=Network.loopback())
    assert result.stdout == b"to myself\n"


@pytest.mark.level("namespaces")
async def test_the_sandboxs_user_has_a_name_and_nobody_of_the_host_is_listed(box):
    """Its home, where ssh looks for settings, is not the workspace of all skills (row 203)."""
    code = """
import getpass, os, pwd
print(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_dir, len(pwd.getpwall()), os.getuid() != 0)
"""
    result = await box.python(code)
    assert result.stdout == b"sandbox /tmp/home 2 True\n"


@pytest.mark.level("namespaces")
async def test_how_a_command_ended_is_exact_where_the_kernel_tells(box):
    by_signal = await box.bash("kill -9 $$")
    by_code = await box.bash("exit 137")
    assert by_signal.signal == 9
    assert by_code.exit_code == 137 or by_code.signal_inferred
    if not by_code.signal_inferred:
        assert (by_code.exit_code, by_code.signal, by_signal.signal_inferred) == (137, None, False)


@pytest.mark.local("what the kernel counts for the user of an engine's containers is the engine's to bound")
@pytest.mark.level("namespaces")
async def test_row_76_watches_and_terminals_are_bounded_for_each_run(box, backend):
    """Seen: 128 inotify instances charged to the agent's user, so that nobody else had any; 3,071 terminals.

    And what is typed into each of them is a thread's work of the kernel, at nobody's cost (row 383).
    """
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
watches = 0
while watches < 128 and libc.inotify_init1(0) >= 0:
    watches += 1
terminals = 0
try:
    while terminals < 100:
        os.openpty()
        terminals += 1
except OSError:
    pass
print(watches, terminals, flush=True)
if terminals > 8:
    import time
    time.sleep(20)
"""
    result = await box.python(code, open_files=1024)
    watches, terminals = map(int, result.stdout.split())
    assert watches == 0
    if backend.forked:
        assert terminals == 8, result.stderr
    else:  # bubblewrap cannot bound them, so that a look ends it (row 137)
        assert (result.status, result.timed_out) == (Status.ERROR, False)
        assert any("terminals" in note for note in result.notes)


USES_UP = """
import array, os, socket, sys, time
left, right = socket.socketpair()
word = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))]
count, refused = 0, ""
left.setblocking(False)
try:
    while count < int(sys.argv[1]):
        left.sendmsg([b"x"], word)
        count += 1
except OSError as error:
    refused = type(error).__name__ + " " + error.strerror
own, reached = os.getpid(), 0
for pid in range(max(2, own - 3000), own + 3000):
    try:
        os.kill(pid, 0)
        reached += pid != own and os.getpgid(pid) != os.getpgid(own)
    except OSError:
        pass
print(count, reached, refused, flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.level("landlock")
@pytest.mark.local("user ids of this machine")
async def test_row_77_a_run_uses_up_what_the_kernel_counts_for_a_user_for_itself_only(box):
    """Seen: descriptors on their way in one run were charged to all runs, whose own could not be passed any more."""
    begun = asyncio.Event()

    def heard(_stream: str, _data: bytes) -> None:
        begun.set()

    greedy = asyncio.create_task(box.python(USES_UP, "60", "3", open_files=64, on_output=heard))
    await asyncio.wait_for(begun.wait(), 20)
    other = await box.python(USES_UP, "60", "0", open_files=64)
    first = await greedy
    for result in (first, other):
        assert result.status is Status.OK, result.stderr
        sent, reached, *refused = result.stdout.decode().split()
        assert int(sent) >= 60 or os.geteuid() != 0, (sent, refused)
        # Processes of another run are no more to be signalled than the agent's.
        assert reached == "0" or os.geteuid() != 0


@pytest.mark.local("an environment is of this machine")
@pytest.mark.parametrize("preload", [(), ("decimal",)])
@pytest.mark.warm_pool
async def test_row_95_code_that_an_environment_runs_at_its_start_has_no_more_than_a_script(box, tmp_path, preload):
    """Row 103: a ``.pth`` file ran as process 1 with root's user id, which may write /proc/sys without a capability."""
    import venv

    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    site = next((tmp_path / "venv" / "lib").glob("python3*/site-packages"))
    site.joinpath("first.pth").write_text("import first\n")
    evil = tmp_path / "venv" / "evil" / "encodings"
    evil.mkdir(parents=True)
    evil.joinpath("__init__.py").write_text("import posix; posix._exit(66)\n")
    for name in ("python", "python3", f"python3.{sys.version_info.minor}"):
        (tmp_path / "venv" / "bin" / f"{name}._pth").write_text("../evil\n")
    if not box.has_own_file_system:  # there the interpreter starts by itself, in the sandbox
        shutil.rmtree(tmp_path / "venv" / "evil")
        for path in (tmp_path / "venv" / "bin").glob("*._pth"):
            path.unlink()
    site.joinpath("first.py").write_text(
        "import os, resource\n"
        "seen = [os.getuid() == 0, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]\n"
        "for name in ('kernel/core_pattern', 'fs/file-max', 'vm/drop_caches'):\n"
        "    try: os.close(os.open('/proc/sys/' + name, os.O_WRONLY)); seen.append(name)\n"
        "    except OSError: pass\n"
    )
    tmp_path.chmod(0o755)
    python = str(tmp_path / "venv" / "bin" / "python3")
    waits = {"preload": preload, "warm_slots": 1} if preload else {}
    code = box.script("import first, os; import json; print(json.dumps([*first.seen, os.getuid() == 0]))")
    for _ in range(2 if preload else 1):
        result = await box.run(python, code, python=python, open_files=77, **waits)
        assert result.status is Status.OK, result.stderr
        was_root, limit, *opened, is_root = json.loads(result.stdout)
        assert was_root == is_root
        assert limit == 77 or preload
        assert not opened or box.policy["isolation"] == "process"
        if preload:
            await asyncio.sleep(0.5)  # the next one waits with the module


def python_with(folder, module, text):
    """The interpreter of an environment that has a module with this text."""
    import venv

    venv.create(folder / "venv", with_pip=False, symlinks=True)
    next((folder / "venv" / "lib").glob("python3*/site-packages")).joinpath(f"{module}.py").write_text(text)
    folder.chmod(0o755)
    return str(folder / "venv" / "bin" / "python3")


GREEDY = {
    "memory": "x = bytearray(300 << 20)",
    "shared memory": "import mmap; x = mmap.mmap(-1, 300 << 20); x.write(bytes(300 << 20))",
    "files in memory": "x = [os.memfd_create('x') for _ in 'abcdef']; [os.write(file, bytes(50 << 20)) for file in x]",
    "open files": "x = [os.open('/dev/null', os.O_RDONLY) for _ in range(400)]",
    "processes": "if os.fork() == 0: time.sleep(60)",
    "nothing": "",
}
SLOW_GREEDY = frozenset({"memory", "shared memory", "open files"})


@pytest.mark.local("a sandbox that waits with modules")
@pytest.mark.level("namespaces")
@pytest.mark.parametrize(
    "what",
    [pytest.param(one, marks=pytest.mark.slow) if one in SLOW_GREEDY else one for one in GREEDY],
)
@pytest.mark.warm_pool
async def test_row_95_a_module_that_is_imported_ahead_has_the_limits_of_a_run(box, backend, tmp_path, what):
    """Row 104. Seen: 6.3 GiB and 150 processes in sandboxes that waited, with 512 MiB and 64 allowed."""
    if backend.waiting and what != "nothing":
        pytest.skip("no sandbox waits with such a module, and all of this backend's do")
    python = python_with(tmp_path, "greedy", f"import os, time\nif os.getpid() == 1:\n    {GREEDY[what] or 'pass'}\n")
    code = box.script("import greedy, os; print(len([name for name in os.listdir('/proc') if name.isdigit()]))")
    settings = {"python": python, "preload": ("greedy",), "warm_slots": 1, "memory_bytes": 128 << 20}
    warm, tries, deadline = False, 0, time.monotonic() + 90
    while tries < 8 or (what == "nothing" and time.monotonic() < deadline):  # the machine may be busy
        tries += 1
        result = await box.run(python, code, **settings)
        assert result.stdout == b"2\n", result.stderr
        if warm := result.warm:
            break
        await asyncio.sleep(0.3)
    assert warm is (what == "nothing")


@pytest.mark.local("a sandbox that waits with modules")
@pytest.mark.level("namespaces")
@pytest.mark.warm_pool
async def test_row_255_memory_that_no_process_shows_counts_beside_a_sandbox_that_waits(box, backend, tmp_path):
    """Seen: it counts only while there is no other run, and a sandbox that waits with modules was one for minutes."""
    if backend.waiting or not backend.forked:
        pytest.skip("none waits with modules, or all of this backend's do")
    python = python_with(tmp_path, "modest", "")
    settings = {"python": python, "preload": ("modest",), "warm_slots": 1}
    async with asyncio.timeout(60):  # on a busy machine none waits
        while not any(run.limits is not None and run.limits.waits for run in tuple(watchdog()._runs)):
            await box.run(python, box.script("print(1)"), **settings)
            await asyncio.sleep(0.3)
    code = """
import mmap, time
kept = []
for _ in range(16):
    kept.append(mmap.mmap(-1, 30 << 20, flags=mmap.MAP_SHARED))
    for _ in range(30):
        kept[-1].write(bytes(1 << 20))
        kept[-1].madvise(mmap.MADV_DONTNEED)
time.sleep(20)
"""
    result = await box.python(code, memory_bytes=128 << 20, wall_seconds=30)
    assert result.status is Status.OUT_OF_MEMORY, result


SPINS_IN_WAIT = """\
import os, posix

def wait(pid, flags, real=posix.waitpid):
    while not flags:
        pass
    return real(pid, flags)

if os.getpid() == 1:
    posix.waitpid = wait
"""


@pytest.mark.local("a sandbox that waits with modules")
@pytest.mark.level("namespaces")
@pytest.mark.warm_pool
@pytest.mark.slow
async def test_row_223_a_module_imported_ahead_does_not_keep_a_processor_busy(
    box, backend, tmp_path, monkeypatch, caplog
):
    """Seen: a processor for each of two waiting sandboxes, for five minutes after each run of the skill."""
    if backend.waiting:
        pytest.skip("no sandbox waits with such a module, and all of this backend's do")
    from adk_skills_agent.sandbox.local.namespaces.sandbox import WatchedImports

    monkeypatch.setattr(WatchedImports, "MOST_CPU_SECONDS", 1.0)
    python = python_with(tmp_path, "spins", SPINS_IN_WAIT)
    for _ in range(2):
        await box.run(python, box.script("print(1)"), python=python, preload=("spins",), warm_slots=1, wall_seconds=60)
    async with asyncio.timeout(60):
        while "processor time" not in caplog.text:
            await asyncio.sleep(0.05)


LIES_IN_WAIT = """\
import os, posix

def wait(pid, flags, real=posix.waitpid):
    if flags:
        return real(pid, flags)
    for _ in range(1_000_000):
        try:
            os.rename("/work/d", "/work/e")
            os.symlink({outside!r}, "/work/d")
            break
        except OSError:
            pass
    posix.waitpid = real
    return real(pid, flags)

if os.getpid() == 1:
    posix.waitpid = wait
"""


@pytest.mark.local("a sandbox that waits with modules")
@pytest.mark.level("namespaces")
@pytest.mark.warm_pool
async def test_row_118_a_module_imported_ahead_leads_no_file_of_the_session_out_of_the_sandbox(box, backend, tmp_path):
    """Seen: 400 files with a script's content in a folder of root's, given to the user of the run."""
    if backend.waiting:
        pytest.skip("no sandbox waits with such a module, and all of this backend's do")
    outside = tmp_path / "outside"
    outside.mkdir()
    python = python_with(tmp_path, "lies", LIES_IN_WAIT.format(outside=str(outside)))
    code = box.script("import os; print(len(os.listdir('/work/d')))")
    cold = 0
    for turn in range(3):
        workspace = tmp_path / f"workspace-{turn}"
        (workspace / "d").mkdir(parents=True)
        for number in range(400):
            workspace.joinpath("d", f"{number:03}").write_text("of a script")
        result = await box.run(
            python, code, python=python, preload=("lies",), warm_slots=1, workspace=workspace, wall_seconds=60
        )
        assert not list(outside.iterdir())
        if not result.warm:  # else it moved the folder after the last file came, and harmed its own run only
            cold += 1
            assert (result.status, result.stdout) == (Status.OK, b"400\n"), result.stderr
        await asyncio.sleep(0.8)
    assert cold


@pytest.mark.local("a mount in the workspace")
@pytest.mark.level("namespaces")
@pytest.mark.parametrize("is_folder", [True, False])
async def test_row_119_a_link_in_place_of_the_folders_of_a_mount_deletes_nothing_outside(box, tmp_path, is_folder):
    """After the run the agent removed these folders by their paths, and followed the link."""
    outside, shown = tmp_path / "outside", tmp_path / "shown"
    outside.mkdir()
    shown.mkdir()
    tmp_path.chmod(0o755)
    shown.chmod(0o755)
    if is_folder:
        outside.joinpath("models").mkdir()
    else:
        outside.joinpath("models").write_text("of the host")
    mounts = (ReadOnlyMount(box.skill), ReadOnlyMount(shown, PurePosixPath("/work/data/models"), linked=False))
    code = f"import os; os.rename('/work/data', '/work/old'); os.symlink({str(outside)!r}, '/work/data')"
    result = await box.run("python3", box.script(code), mounts=mounts)
    assert result.status is Status.OK, result.stderr
    assert outside.joinpath("models").exists()
