"""Rows 17, 25, 26, 56, 57, 59 to 63: other processes, sockets, and the parts of the kernel no script needs."""

from __future__ import annotations

import errno
import os
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adk_skills_agent.sandbox.contract import Network, Status

REFUSED = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT, errno.ENETUNREACH, errno.ESRCH, errno.ENOENT}

# The script tells for each attempt the error number it met, or 0 when it got through.
ATTEMPTS = """
import ctypes, errno, json, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
seen = {}
def system_call(name, number, *arguments):
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    seen[name] = 0 if libc.syscall(ctypes.c_long(number), *passed) >= 0 else ctypes.get_errno()
def attempt(name, what):
    try:
        what()
        seen[name] = 0
    except OSError as error:
        seen[name] = error.errno
def report():
    print(json.dumps(seen))
"""

# Number on x86_64 and on aarch64.
CALLS = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "setns": (308, 268),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "open_by_handle_at": (304, 265),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "init_module": (175, 105),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
    "clock_settime": (227, 112),
    "fsopen": (430, 430),
    "pidfd_getfd": (438, 438),
}


async def attempts(box, code: str, *arguments: str, **settings: object) -> dict[str, int]:
    result = await box.python(f"{ATTEMPTS}\n{code}\nreport()\n", *arguments, **settings)
    assert result.status is Status.OK, result.stderr.decode()
    seen: dict[str, int] = __import__("json").loads(result.stdout)
    return seen


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the agent's user that must live through the test."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.level("landlock")
async def test_row_17_limits_cannot_be_raised_nor_those_of_others_changed(box, victim):
    code = f"""
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
def beyond():
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    except ValueError:
        raise PermissionError(errno.EPERM, "") from None
attempt("raise", beyond)
attempt("other", lambda: resource.prlimit({victim.pid}, resource.RLIMIT_NOFILE, (3, 3)))
attempt("parent", lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE) if os.getppid() > 1
        else (_ for _ in ()).throw(PermissionError(errno.EPERM, "")))
def changes(call, state):  # some sandboxes answer with success and do nothing
    before = state()
    call()
    if state() == before:
        raise PermissionError(errno.EPERM, "")
own, others = (lambda: os.getpriority(os.PRIO_PROCESS, 0)), (lambda: os.getpriority(os.PRIO_PROCESS, {victim.pid}))
realtime = lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
attempt("realtime", lambda: changes(realtime, lambda: os.sched_getscheduler(0)))
attempt("nice", lambda: changes(lambda: os.setpriority(os.PRIO_PROCESS, 0, -10), own))
attempt("others nice", lambda: changes(lambda: os.setpriority(os.PRIO_PROCESS, {victim.pid}, 10), others))
processors = lambda: os.sched_getaffinity({victim.pid})
attempt("others processor", lambda: changes(lambda: os.sched_setaffinity({victim.pid}, {{0}}), processors))
"""
    seen = await attempts(box, code)
    assert {name: number for name, number in seen.items() if number not in REFUSED} == {}
    assert os.getpriority(os.PRIO_PROCESS, victim.pid) == os.getpriority(os.PRIO_PROCESS, 0)
    assert os.sched_getaffinity(victim.pid) == os.sched_getaffinity(0)


@pytest.mark.level("landlock")
async def test_row_25_neither_the_agent_nor_another_process_can_be_signalled(box, victim):
    code = f"""
attempt("agent", lambda: os.kill({os.getpid()}, 0))
attempt("other", lambda: os.kill({victim.pid}, signal.SIGKILL))
attempt("other group", lambda: os.killpg({os.getpgid(victim.pid)}, 0))
def by_descriptor():
    signal.pidfd_send_signal(os.pidfd_open({victim.pid}), signal.SIGKILL)
attempt("descriptor", by_descriptor)
"""
    seen = await attempts(box, code)
    assert {name: number for name, number in seen.items() if number not in REFUSED} == {}
    assert victim.poll() is None


@pytest.mark.level("landlock")
@pytest.mark.requirement("S0-87")
async def test_row_25_the_agent_is_not_signalled_through_its_group_or_a_thread_it_has(box):
    """``kill`` takes the id of any thread for its process."""
    over, ready = threading.Event(), threading.Event()
    numbers: list[int] = []

    def wait() -> None:
        numbers.append(threading.get_native_id())
        ready.set()
        over.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    code = f"""
for target in ({os.getpid()}, -{os.getpid()}, -{os.getpgrp()}, {numbers[0]}):
    attempt(f"to {{target}}", lambda: os.kill(target, 0))
"""
    try:
        seen = await attempts(box, code)
    finally:
        over.set()
        thread.join()
    assert {name: number for name, number in seen.items() if number not in REFUSED} == {}


@pytest.mark.level("landlock")
async def test_row_25_the_parent_survives_an_attack_and_the_result_is_right(box):
    code = """
import os, signal
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGSTOP, signal.SIGKILL):
    if os.getppid() > 1:
        try:
            os.kill(os.getppid(), number)
        except OSError:
            pass
print("still here")
raise SystemExit(7)
"""
    result = await box.python(code)
    assert (result.exit_code, result.signal, result.stdout) == (7, None, b"still here\n")


@pytest.mark.level("landlock")
async def test_row_26_no_other_process_can_be_read(box):
    code = f"""
def read(path):
    with open(path, "rb") as file:
        file.read(1)
for name in ("mem", "environ", "maps", "fd/0", "root/etc/passwd"):
    attempt(f"agent {{name}}", lambda: read(f"/proc/{os.getpid()}/{{name}}"))
    attempt(f"parent {{name}}", lambda: read(f"/proc/{{os.getppid()}}/{{name}}") if os.getppid() > 1
            else (_ for _ in ()).throw(PermissionError(errno.EPERM, "")))
"""
    seen = await attempts(box, code)
    assert {name: number for name, number in seen.items() if number not in REFUSED} == {}


@pytest.mark.level("landlock")
@pytest.mark.requirement("S0-96")
async def test_row_56_no_network_is_reached_and_refusal_is_immediate(box):
    """S0-96."""
    servers = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
    servers[1].bind(("127.0.0.1", 0))
    tcp, udp = (server.getsockname()[1] for server in servers)
    code = f"""
import time
began = time.monotonic()
def connect(family, kind, where):
    with socket.socket(family, kind) as made:
        made.settimeout(15)
        made.connect(where)
        made.send(b"breach")
attempt("tcp", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {tcp})))
attempt("udp", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", {udp})))
attempt("metadata", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)))
attempt("ipv6", lambda: connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", {tcp})))
attempt("metadata over ipv6", lambda: connect(socket.AF_INET6, socket.SOCK_STREAM, ("fd00:ec2::254", 80)))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("sctp", lambda: connect(socket.AF_INET, socket.SOCK_STREAM | 0, ("10.0.0.1", 443)))
seen["seconds"] = int(time.monotonic() - began)
"""
    try:
        seen = await attempts(box, code)
        servers[1].settimeout(0.1)
        with pytest.raises(TimeoutError):
            servers[1].recv(10)
        servers[0].settimeout(0.1)
        with pytest.raises(TimeoutError):
            servers[0].accept()
    finally:
        for server in servers:
            server.close()
    assert seen.pop("seconds") < 12
    # In a network namespace of its own nobody listens at its loopback.
    allowed = REFUSED | {errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT}
    assert {name: number for name, number in seen.items() if number not in allowed and name != "udp"} == {}


@pytest.mark.level("landlock")
async def test_row_56_a_name_cannot_be_looked_up(box):
    result = await box.python("import socket; socket.getaddrinfo('example.org', 443)", wall_seconds=10)
    assert result.status is Status.ERROR


@pytest.mark.level("landlock")
async def test_row_57_local_services_are_out_of_reach(box, backend):
    # Below /tmp itself, because the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as by_path:
        path = f"{folder}/docker.sock"
        by_path.bind(path)
        os.chmod(folder, 0o777)
        os.chmod(path, 0o777)
        by_path.listen()
        with socket.socket(socket.AF_UNIX) as abstract:
            name = f"adk-skills-{os.getpid()}-{backend.name}"
            abstract.bind(f"\0{name}")
            abstract.listen()
            open_to_all, abstract_too = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
            datagrams = f"{folder}/log"
            open_to_all.bind(datagrams)
            os.chmod(datagrams, 0o777)
            abstract_too.bind(f"\0{name}-datagrams")
            code = f"""
def connect(where):
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(where)
attempt("path", lambda: connect({path!r}))
attempt("abstract", lambda: connect("\\0" + {name!r}))
attempt("datagram", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", {path!r}))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    attempt(f"pair to a path, {{kind!r}}", lambda: socket.socketpair(type=kind)[0].sendto(b"x", {datagrams!r}))
    attempt(f"pair, {{kind!r}}", lambda: socket.socketpair(type=kind)[0].connect("\\0" + {name!r} + "-datagrams"))
for name, family in {{"vsock": 40, "netlink": 16, "alg": 38, "packet": 17, "bluetooth": 31, "xdp": 44}}.items():
    attempt(name, lambda: socket.socket(family, socket.SOCK_RAW if family in (16, 17) else socket.SOCK_SEQPACKET))
"""
            with open_to_all, abstract_too:
                seen = await attempts(box, code)
                hosts_network = await box.python(
                    f"import socket\nsocket.socketpair(type=socket.SOCK_DGRAM)[0].sendto(b'x', '\\0{name}-datagrams')",
                    network=Network.host(),
                )
            assert hosts_network.status is Status.ERROR
    allowed = REFUSED | {errno.ECONNREFUSED, errno.ESOCKTNOSUPPORT, errno.EPROTONOSUPPORT, errno.EOPNOTSUPP}
    assert {name: number for name, number in seen.items() if number not in allowed} == {}


@pytest.mark.level("landlock")
async def test_connected_pairs_still_work_because_asyncio_and_multiprocessing_need_them(box):
    code = """
import asyncio, multiprocessing, socket
a, b = socket.socketpair()
a.send(b"x")
c, d = socket.socketpair(type=socket.SOCK_SEQPACKET)
c.send(b"y")
print(b.recv(1), d.recv(1), asyncio.run(asyncio.sleep(0, "done")))
reader, writer = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=lambda: writer.send("from the child"))
process.start()
print(reader.recv())
process.join()
"""
    result = await box.python(code)
    assert result.stdout == b"b'x' b'y' done\nfrom the child\n", result.stderr.decode()


@pytest.mark.level("landlock")
async def test_rows_59_and_62_what_reaches_deep_into_the_kernel_is_refused(box):
    column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
    lines = [f"system_call({name!r}, {numbers[column]}, 0, 0, 0, 0, 0)" for name, numbers in CALLS.items()]
    seen = await attempts(box, "\n".join(lines))
    assert {name: number for name, number in seen.items() if number not in {errno.EPERM, errno.ENOSYS}} == {}


@pytest.mark.level("landlock")
async def test_row_59_no_namespace_can_be_made(box):
    unshare, clone = {"x86_64": (272, 56), "aarch64": (97, 220)}[platform.machine()]
    code = f"""
for name, flag in {{"user": 0x10000000, "net": 0x40000000, "mount": 0x20000, "pid": 0x20000000}}.items():
    system_call(f"unshare {{name}}", {unshare}, flag)
    system_call(f"clone {{name}}", {clone}, flag | 17, 0, 0, 0, 0)
system_call("clone3", 435, 0, 0)
"""
    seen = await attempts(box, code)
    assert {name: number for name, number in seen.items() if number not in {errno.EPERM, errno.ENOSYS}} == {}


@pytest.mark.level("landlock")
async def test_threads_and_processes_can_still_be_made(box):
    code = """
import subprocess, threading
done = []
thread = threading.Thread(target=lambda: done.append("thread"))
thread.start()
thread.join()
done.append(subprocess.run(["echo", "process"], capture_output=True, text=True).stdout.strip())
print(done)
"""
    assert (await box.python(code)).stdout == b"['thread', 'process']\n"


@pytest.mark.level("landlock")
async def test_row_60_no_privilege_can_be_gained(box):
    code = """
seen["no_new_privs"] = libc.prctl(39, 0, 0, 0, 0)
attempt("root", lambda: os.setuid(0))
attempt("root group", lambda: os.setgroups([0]))
import subprocess
for command in (["su", "-c", "id"], ["sudo", "-n", "id"]):
    try:
        seen[command[0]] = int("uid=0" in subprocess.run(command, capture_output=True, text=True).stdout)
    except OSError:
        seen[command[0]] = 0
seen["effective"] = int(os.geteuid() == 0)
"""
    seen = await attempts(box, code)
    assert seen["no_new_privs"] == 1
    assert (seen["su"], seen["sudo"], seen["effective"]) == (0, 0, 0)
    assert seen["root"] in REFUSED | {errno.EINVAL}  # no such user in the namespace
    assert seen["root group"] in REFUSED | {errno.EINVAL}


@pytest.mark.level("landlock")
async def test_row_61_nothing_is_left_in_the_kernel_for_the_next_run(box):
    # Shared memory of System V outlives its processes: in a namespace of its own it is gone, else it cannot be made.
    key = 0x5A5A0000 | os.getpid() & 0xFFFF
    code = f"""
found = libc.shmget({key}, 4096, 0)
made = libc.shmget({key}, 4096, 0o1600 if "w" in sys.argv else 0)
print(found >= 0)
"""
    for argument in ("w", "r"):
        result = await box.python(ATTEMPTS + code, argument)
        assert result.stdout == b"False\n"


@pytest.mark.level("landlock")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86_64 has other call tables")
@pytest.mark.parametrize("kind", ["x32", "i386"])
async def test_row_62_calls_by_another_table_do_not_go_through(box, kind):
    # getpid by the x32 table, and by the 32-bit gate (int 0x80) from a page of machine code.
    code = {
        "x32": "print(ctypes.get_errno() if libc.syscall(ctypes.c_long(0x40000000 + 39)) < 0 else 'went through')",
        "i386": """
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
answer = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
print(-answer if answer < 0 else "went through")
""",
    }[kind]
    result = await box.python(f"{ATTEMPTS}\n{code}")
    if result.signal in {31, 11} or result.exit_code in {128 + 31, 128 + 11}:  # 11: a kernel without that gate
        return
    assert result.stdout == b"%d\n" % errno.ENOSYS


@pytest.mark.level("landlock")
async def test_row_63_nothing_can_be_typed_into_a_terminal(box):
    code = """
import fcntl, termios
attempt("stdin", lambda: fcntl.ioctl(0, termios.TIOCSTI, b"x"))
attempt("terminal", lambda: os.open("/dev/tty", os.O_RDWR))
"""
    seen = await attempts(box, code)
    assert seen["stdin"] in {errno.EPERM, errno.ENOTTY}
    assert seen["terminal"] in {errno.ENXIO, errno.EACCES, errno.ENOENT, errno.EPERM}


@pytest.mark.level("landlock")
async def test_row_24_a_signal_to_everything_reaches_only_the_run(box, victim):
    result = await box.python("import os; os.kill(-1, 9); print('alone')")
    time.sleep(0.05)
    assert victim.poll() is None
    alone = b"ProcessLookupError" in result.stderr  # in a namespace of its own there is nobody else
    assert result.exit_code == 0 or result.signal == 9 or result.exit_code == 137 or alone
    assert Path(f"/proc/{os.getpid()}").exists()


@pytest.mark.level("landlock")
@pytest.mark.local("another machine's kernel may be older, or its engine's own filter")
async def test_row_135_a_table_for_locks_of_any_size_cannot_be_had(box):
    """Seen: one call took 1 GiB of the kernel for each process, below a limit of 512 MiB; nothing counted it."""
    code = """
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
seen["table"] = 0 if libc.prctl(78, 1, 16, 0, 0) == 0 else ctypes.get_errno()
"""
    assert (await attempts(box, code))["table"] == errno.EINVAL
