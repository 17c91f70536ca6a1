"""One command in stacked layers of files, with namespaces, a system call filter and limits of its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.evals.skillsbench.engine_options import TRUST_VARIABLES, TRUSTED, proxies_of
from adk_skills_agent.evals.skillsbench.environment import MAX_OUTPUT_BYTES, Ran, until_scarce
from adk_skills_agent.evals.skillsbench.user_range import UserRange
from adk_skills_agent.sandbox import (
    Capture,
    ControlGroup,
    container_filter,
    control_group,
    kept_group,
    require_bubblewrap,
)

_SET_UP_FAILED = 125
_DRAIN_SECONDS = 2.0
_HOST_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_CAPABILITIES = (
    # What Docker leaves to root of a container, less those over the network and devices.
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"),
    *("CAP_SETPCAP", "CAP_SETFCAP", "CAP_NET_BIND_SERVICE", "CAP_AUDIT_WRITE"),
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Layers:
    """A stack of folders, all below one, seen as one; their names must be words without ``:`` and ``,``."""

    store: Path  # the folder they are in; it need not be reachable for other users, but must be open to them (0711)
    below: tuple[str, ...]  # read-only, the topmost first; at least one
    top: str  # takes what is written
    scratch: str  # an empty folder beside ``top``, for the kernel


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of everything one command starts. Memory and processes are the control group's, where there are any."""

    seconds: float
    memory_bytes: int | None = None
    pids: int | None = 4096


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and how."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    network: bool
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes | None = None


async def run_in_layers(
    command: Command,
    layers: Layers,
    users: UserRange,
    limits: Limits,
    on_output: Callable[[bytes], None] | None = None,
) -> Ran:
    """Run one command; when this returns, or raises, everything it started has ended.

    Raises ``SandboxUnavailable`` when bubblewrap is missing or too old, or ``SandboxError`` when the environment could
    not be set up.
    """
    bubblewrap = require_bubblewrap("Tasks cannot run in local mode")
    started = time.monotonic()
    with contextlib.ExitStack() as open_files, control_group() as group, kept_group() as dies_with_us:
        alive, keeps_alive = os.pipe()
        open_files.callback(os.close, alive)
        go, gives = os.pipe()
        order, descriptors = _order(bubblewrap, command, layers, users, keeps_alive, go, open_files)
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", entry_program(), json.dumps(order)),
                stdin=asyncio.subprocess.PIPE if command.stdin else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(*descriptors, keeps_alive, go),
                env={},
                cwd="/",
                process_group=dies_with_us,
            )
        except OSError as error:  # a command, with its variables, that is longer than the kernel takes
            raise SandboxError(f"The command could not be started: {error.strerror}.") from error
        finally:
            os.close(keeps_alive)
            os.close(go)
        try:
            try:
                if group is not None:
                    group.take_in(process.pid)
                    group.limit(_of_this_machine(limits.memory_bytes), limits.pids)
                os.write(gives, b"g")
            finally:
                os.close(gives)
            return await _followed(process, command.stdin, limits.seconds, started, on_output, layers.store)
        finally:
            await _ended(process, alive, group)


def _of_this_machine(memory_bytes: int | None) -> int | None:
    """What a task's settings want, and no more than leaves room for others (row 161)."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4
    return None if memory_bytes is None else min(memory_bytes, most)


async def _followed(
    process: asyncio.subprocess.Process,
    stdin: bytes | None,
    seconds: float,
    started: float,
    on_output: Callable[[bytes], None] | None,
    store: Path,
) -> Ran:
    capture = Capture(MAX_OUTPUT_BYTES)

    async def feed() -> None:
        if process.stdin is not None:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(stdin or b"")
                await process.stdin.drain()
            process.stdin.close()

    async def drain() -> None:
        assert process.stdout is not None  # noqa: S101  # it was started with a pipe
        while data := await process.stdout.read(1 << 16):
            capture.add(data)
            if on_output is not None:
                on_output(data)

    async def watch() -> str:  # nothing else bounds what a task writes, or has of the memory of TCP
        found = await until_scarce(store)
        process.kill()
        return found

    feeding = asyncio.create_task(feed())
    draining = asyncio.create_task(drain())
    watching = asyncio.create_task(watch())
    timed_out = False
    try:
        try:
            async with asyncio.timeout(max(0.0, seconds - (time.monotonic() - started))):
                await process.wait()
        except TimeoutError:
            timed_out = True
            process.kill()
            await process.wait()
        await asyncio.wait([draining], timeout=_DRAIN_SECONDS)
    finally:
        scarce = watching.result() if watching.done() and watching.exception() is None else None
        for task in (feeding, draining, watching):
            task.cancel()
        await asyncio.gather(feeding, draining, watching, return_exceptions=True)
    if scarce is not None:
        raise SandboxError(f"The command was ended, because {scarce}; for the disk see --cache-dir.")
    code = process.returncode
    output = bytes(capture.kept())
    if code == _SET_UP_FAILED and not timed_out and output.count(b"\n") <= 1:  # only a sentence
        raise SandboxError(f"The environment could not be set up: {output.decode('utf-8', 'replace').strip()[-500:]}")
    failed = code is None or code < 0
    return Ran(
        exit_code=None if failed or timed_out else code,
        output=output,
        timed_out=timed_out,
        truncated=capture.truncated,
        seconds=time.monotonic() - started,
    )


async def _ended(process: asyncio.subprocess.Process, alive: int, group: ControlGroup | None) -> None:
    """Whatever happened: nothing of it runs any more. The pipe ends with process 1 of the environment, the last."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if group is not None:
        group.end_all()
    await asyncio.to_thread(os.read, alive, 1)


def _order(
    bubblewrap: str,
    command: Command,
    layers: Layers,
    users: UserRange,
    keeps_alive: int,
    go: int,
    open_files: contextlib.ExitStack,
) -> tuple[dict[str, object], list[int]]:
    def opened(path: Path, flags: int = os.O_RDONLY | os.O_DIRECTORY) -> int:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        open_files.callback(os.close, descriptor)
        return descriptor

    def memory(data: bytes) -> int:
        descriptor = os.memfd_create("adk-skills", os.MFD_CLOEXEC)
        open_files.callback(os.close, descriptor)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    store = opened(layers.store)
    namespace = opened(Path(users.namespace), os.O_RDONLY)
    filter_file = memory(container_filter())
    files = dict(command.files)
    env = {"PATH": PATH, "HOME": "/root", "TERM": "dumb", **command.env}
    if command.network:
        with contextlib.suppress(OSError):
            files["/etc/resolv.conf"] = Path("/etc/resolv.conf").read_bytes()
        with contextlib.suppress(OSError):
            files[TRUSTED] = Path(_HOST_CERTIFICATES).read_bytes()
            env = {**dict.fromkeys(TRUST_VARIABLES, TRUSTED), **env}
        env = {**proxies_of(os.environ), **env}
    given = {path: memory(content) for path, content in files.items()}
    arguments = [
        *("bwrap", "--bind", "/tmp", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run"),  # noqa: S108
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "task"),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *(word for name in _CAPABILITIES for word in ("--cap-add", name)),
        *(() if command.network else ("--unshare-net",)),
        *(word for path, number in given.items() for word in ("--perms", "0644", "--ro-bind-data", str(number), path)),
        *("--seccomp", str(filter_file), "--sync-fd", str(keeps_alive), "--clearenv"),
        *(word for name, value in env.items() for word in ("--setenv", name, value)),
        *("--chdir", command.cwd, "--", *command.argv),
    ]
    options = f"lowerdir={':'.join(layers.below)},upperdir={layers.top},workdir={layers.scratch},userxattr"
    order: dict[str, object] = {
        "verb": "run",
        "wait": go,
        "users": namespace,
        "store": store,
        "layers": options,
        "kept": [filter_file, keeps_alive, *given.values()],
        "program": bubblewrap,
        "arguments": arguments,
    }
    return order, [store, namespace, filter_file, *given.values()]


@functools.lru_cache(maxsize=1)
def entry_program() -> str:
    """The text of ``local_entry.py``."""
    return resources.files(__package__).joinpath("local_entry.py").read_text("utf-8")


async def in_folder(
    users: UserRange, root: Path, verb: str, *, path: str = "", most: int = 0, tar: Path | None = None
) -> bytes | None:
    """Do one verb of ``local_entry.py`` to a folder of the range: ``empty``, ``unpack``, ``read`` or ``remove``.

    Returns what ``read`` found, None when there is no such file; else nothing. Raises ``SandboxError`` when it fails.
    """
    with contextlib.ExitStack() as open_files:
        descriptors = []
        for place, flags in ((root, os.O_RDONLY | os.O_DIRECTORY), (Path(users.namespace), os.O_RDONLY)):
            descriptors.append(os.open(place, flags | os.O_CLOEXEC))
            open_files.callback(os.close, descriptors[-1])
        order = {"verb": verb, "root": descriptors[0], "users": descriptors[1], "path": path, "most": most}
        source = open_files.enter_context(tar.open("rb")) if tar is not None else asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", entry_program(), json.dumps(order)),
            stdin=source,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=descriptors,
            env={},
            cwd="/",
        )
        try:
            output, problem = await process.communicate()
        except BaseException:
            process.kill()
            await process.wait()
            raise
    if verb == "read":
        return output if process.returncode == 0 else None
    if process.returncode:
        why = problem.decode("utf-8", "replace").strip()[-300:]
        raise SandboxError(f"{verb} of {path or 'a layer'} in the environment failed: {why}")
    return None
