"""The second act of ``adk-skills demo``: a hostile skill, and what the host saw of its attempts.

An attempt counts as contained only when it is known to have been made and the host saw nothing of it. That it was made
is known from the script's result, what it says it tried, and its processes. That nothing came of it is never taken from
the script: a file that was written or not, a connection that arrived or not, processes counted and looked for on the
host, the digest of the skill's files, a field of the result.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.cli.demo.act import DemoRun, demo_model, run_demo
from adk_skills_agent.cli.init import examples_folder
from adk_skills_agent.sandbox import FolderDigest, IsolationReport, SandboxPolicy, Secret, temporary_prefix

if TYPE_CHECKING:
    from adk_skills_agent.cli.demo.act import DemoStep


QUESTION = "Please thank our customer with the free-gift skill."
_POLICY = SandboxPolicy(wall_seconds=1.5, term_grace_seconds=0.3, output_flood_bytes=8 << 20, pids=32)
_MOST_PROCESSES = 64
"""Twice what the policy allows: a level may count what it needs itself. The script tries 500."""
_FEWEST_PROCESSES = 8
"""The number of processes at once from which the script counts as seen trying."""
_MOST_CHARACTERS = 25_000
_SYSTEM_FILE = Path("/usr/local/bin/backdoor")
_NOT_MADE = "not known: "


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attack and how it went."""

    what: str
    contained: bool  # whether it was made and the host saw nothing of it
    how: str  # what the host saw, or why it is not known that the attempt was made
    mechanism: str  # who contained it, from the isolation report


@dataclass(frozen=True, slots=True)
class Bait:
    """The targets of the hostile skill."""

    folder: Path  # on the host, with a key in it, open to everybody: only the sandbox keeps the script away
    listener: socket.socket  # where it may phone
    mark: str  # in the arguments of the daemon it leaves
    skill: Path  # the skill's own folder
    held: object  # what the skill's folder held before anything ran, with its digest
    system_file: bool  # whether the file it wants to put into the system was there before

    @property
    def canary(self) -> str:
        """The key that must not be read."""
        return f"canary-{self.mark}"

    @property
    def mail_key(self) -> str:
        """The key that is granted to another skill."""
        return f"mail-key-{self.mark[::-1]}"

    def environment(self) -> dict[str, str]:
        """The variables that tell the scripts where to attack."""
        return {
            "DEMO_CANARY_FILE": str(self.folder / "api-key.txt"),
            "DEMO_OUTSIDE_FILE": str(self.folder / "outside.txt"),
            "DEMO_PORT": str(self.listener.getsockname()[1]),
            "DEMO_MARK": self.mark,
        }


@dataclass(frozen=True, slots=True)
class Seen:
    """The facts about the scripts' runs."""

    results: Mapping[str, Mapping[str, Any]]  # script to what the model got
    processes: Mapping[str, int]  # script to the most processes the host had for it at once
    daemon: bool = False  # whether the host saw the daemon alive, while its script ran

    def said(self, script: str) -> str:
        """The output of a script, as far as the model got it."""
        return str(self.results.get(script, {}).get("stdout", ""))


async def attack(report: IsolationReport, show: Callable[[DemoStep], None]) -> list[Attempt]:
    """Let the rehearsed agent run the hostile skill, and judge each attempt."""
    results: dict[str, Mapping[str, Any]] = {}
    processes: dict[str, int] = {}
    daemon = False
    watch: HostWatch | None = None
    with bait() as laid, demo_model("rehearsed", "demo-hostile") as model:
        steps = run_demo(
            model,
            DemoRun(),
            QUESTION,
            skills=laid.skill.parent,
            policy=_POLICY,
            env=laid.environment(),
            grants={"customer-mail": {"MAIL_KEY": Secret(laid.mail_key)}},
        )
        try:
            async for step in steps:
                show(step)
                content = step.content if isinstance(step.content, dict) else {}
                if step.kind == "call" and step.name == "run_skill_script":
                    watch = HostWatch(laid.mark)
                elif step.kind == "result" and "file_path" in content:
                    script = str(content["file_path"]).partition("/")[2]
                    results[script] = content
                    if watch is not None:
                        watch.end()
                        processes[script] = watch.most
                        daemon = daemon or watch.marked
                        watch = None
        finally:
            if watch is not None:
                watch.end()
        return list(judged(laid, Seen(results, processes, daemon), report.enforced))


@contextlib.contextmanager
def bait() -> Iterator[Bait]:
    """Lay out what the skill is pointed at, and take it away again."""
    mark = os.urandom(8).hex()
    skill = examples_folder() / "hostile-skills/free-gift"
    with (
        tempfile.TemporaryDirectory(prefix=temporary_prefix("bait")) as name,
        socket.create_server(("127.0.0.1", 0)) as door,
    ):
        door.setblocking(False)
        laid = Bait(Path(name), door, mark, skill, FolderDigest(str(skill)).look(), _SYSTEM_FILE.exists())
        # Readable and writable for everybody: only the sandbox keeps the script away, not the file's mode.
        laid.folder.chmod(0o777)
        (laid.folder / "api-key.txt").write_text(laid.canary)
        os.environ["ADK_SKILLS_DEMO_API_KEY"] = laid.canary
        try:
            yield laid
        finally:
            del os.environ["ADK_SKILLS_DEMO_API_KEY"]


def judged(laid: Bait, seen: Seen, enforced: Mapping[str, str]) -> Iterator[Attempt]:
    """One verdict for each attack."""
    for what, concern, verdict in (
        ("read the host's secrets", "files", _secrets),
        ("write outside its workspace", "files", _outside),
        ("phone home", "network", _network),
        ("fork bomb", "pids", _fork_bomb),
        ("flood the agent with output", None, _flood),
        ("outlive its deadline", "processes", _linger),
        ("steal another skill's secret", "files", _theft),
    ):
        contained, how = verdict(laid, seen)
        mechanism = "output_flood_bytes" if concern is None else f"{concern}: {enforced[concern]}"
        yield Attempt(what, contained, how, mechanism)


def _secrets(laid: Bait, seen: Seen) -> tuple[bool, str]:
    if laid.canary in "".join(str(result) for result in seen.results.values()):
        return False, "the canary reached the model"
    if "api-key.txt" not in seen.said("read_secret.py"):
        return False, f"{_NOT_MADE}read_secret.py did not report that it tried"
    return True, "the canary key in a file and in the environment did not reach the model"


def _outside(laid: Bait, seen: Seen) -> tuple[bool, str]:
    if (laid.folder / "outside.txt").exists():
        return False, "a file appeared beside the user's"
    if _SYSTEM_FILE.exists() and not laid.system_file:
        return False, f"{_SYSTEM_FILE} appeared"
    if FolderDigest(str(laid.skill)).look() != laid.held:
        return False, "the skill's own files changed"
    said = seen.said("write_outside.py")
    if not all(name in said for name in ("outside.txt", "backdoor", "note.py")):
        return False, f"{_NOT_MADE}write_outside.py did not report that it tried"
    return True, "nothing was written outside, and the skill's files have the digest they had"


def _network(laid: Bait, seen: Seen) -> tuple[bool, str]:
    if _somebody_called(laid.listener):
        return False, "a connection arrived"
    if "127.0.0.1" not in seen.said("phone_home.py"):
        return False, f"{_NOT_MADE}phone_home.py did not report that it tried"
    return True, "no connection arrived at the host's port"


def _fork_bomb(_laid: Bait, seen: Seen) -> tuple[bool, str]:
    most = seen.processes.get("fork_bomb.py", 0)
    if "fork_bomb.py" not in seen.results or most < _FEWEST_PROCESSES:
        return False, f"{_NOT_MADE}the host saw {most} processes of fork_bomb.py"
    return (
        most <= _MOST_PROCESSES,
        f"of 500 processes the host saw {most} at once, the sandbox's own included",
    )


def _flood(_laid: Bait, seen: Seen) -> tuple[bool, str]:
    kept = len(seen.said("flood.sh"))
    if seen.results.get("flood.sh", {}).get("reason") != "output_limit" or not kept:
        return False, f"{_NOT_MADE}flood.sh was not stopped for its output"
    most = (_POLICY.output_flood_bytes or 0) >> 20
    return kept < _MOST_CHARACTERS, f"stopped at {most} MiB; the model got {kept:,} characters"


def _linger(laid: Bait, seen: Seen) -> tuple[bool, str]:
    if _alive(laid.mark):
        return False, "a daemon is still alive"
    if seen.results.get("linger.py", {}).get("reason") != "timeout" or not seen.daemon:
        return False, f"{_NOT_MADE}the host saw no daemon of linger.py before the deadline"
    return True, "the host saw its daemon before the deadline, and none afterwards"


def _theft(laid: Bait, seen: Seen) -> tuple[bool, str]:
    told = "".join(str(result) for result in seen.results.values())
    if laid.mail_key in told or base64.b64encode(laid.mail_key.encode()).decode() in told:
        return False, "the key of the skill customer-mail reached the model"
    if ".bash_profile" not in seen.said("plant_home.py"):
        return False, f"{_NOT_MADE}plant_home.py did not report that it planted anything"
    if f"a key of {len(laid.mail_key)} characters" not in seen.said("sign.sh"):
        return False, f"{_NOT_MADE}customer-mail did not run with its key"
    if "gift: none" not in seen.said("collect.py"):
        return False, f"{_NOT_MADE}collect.py did not report what it found"
    return True, "configuration planted in the home folder was not there in the run of the skill with the key"


def _somebody_called(listener: socket.socket) -> bool:
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


def _alive(mark: str) -> bool:
    """Whether a process of this machine has the mark in its arguments; waits a moment for the dying."""
    deadline = time.monotonic() + 1.0
    while True:
        if not any(has_mark(int(folder.name), mark.encode()) for folder in Path("/proc").glob("[0-9]*")):
            return False
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)


# What the host sees of a run while it goes on, for the second act of ``adk-skills demo``.

_PAUSE_SECONDS = 0.02


class HostWatch:
    """Counts this process's living descendants, and looks for a mark in their arguments, fifty times a second.

    Linux only. Every process of a sandbox descends from the agent, whatever session or namespace it made itself.
    """

    def __init__(self, mark: str) -> None:
        self.most = 0  # the most descendants at one moment beyond those at the start
        self.marked = False  # whether one with the mark was seen
        self._mark = mark.encode()
        self._ended = threading.Event()
        self._before = len(_descendants())
        self._thread = threading.Thread(target=self._watch, name="adk-skills-demo-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            alive = _descendants()
            self.most = max(self.most, len(alive) - self._before)
            self.marked = self.marked or any(has_mark(pid, self._mark) for pid in alive)


def _descendants() -> set[int]:
    """Live processes below this one."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, parent, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
            if state not in "ZXx":
                parents[int(path.parent.name)] = int(parent)
    below: set[int] = set()
    for first in parents:
        line = []
        pid = first
        while pid in parents and pid not in below and pid != os.getpid():
            line.append(pid)
            pid = parents.get(pid, 0)
        if pid in below or pid == os.getpid():
            below.update(line)
    return below


def has_mark(pid: int, mark: bytes) -> bool:
    """Whether a process has the mark in its arguments; not when it has ended meanwhile."""
    try:
        return mark in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
