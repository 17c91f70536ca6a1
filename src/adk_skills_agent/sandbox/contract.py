"""The contract of every sandbox: run ONE command safely; request in, result out.

A backend is a subclass of :class:`Sandbox`. It knows nothing of skills or of google-adk. The conformance suite in
``tests/sandbox/conformance`` runs against every backend; a backend that does not pass it does not ship.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from adk_skills_agent.sandbox.secrets import EnvValue, FrozenMapping, Secret

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.sessions.session import SessionHost
    from adk_skills_agent.sandbox.streaming import ResourceSample, StreamEvent

_NO_ENV: Mapping[str, EnvValue] = FrozenMapping()

SKILL_DIR = PurePosixPath("/skill")
"""Where a skill's files are, as the script and the model see it."""
SKILL_VARIABLES = ("SKILL_DIR", "CLAUDE_SKILL_DIR", "CLAUDE_PLUGIN_ROOT")
"""Variables in which a skill's scripts find its folder: those that published skills ask for. With the value
:data:`SKILL_DIR` in a request, a backend sets them to where that folder is in its run."""
WORK_DIR = PurePosixPath("/work")
"""The writable workspace and working directory, as the script and the model see it."""
TMP_DIR = PurePosixPath("/tmp")  # noqa: S108  # as the sandbox sees it, not a folder of the host
"""The folder for temporary files: new and empty in every run, unless the request has one that lasts."""
HOME_DIR = TMP_DIR / "home"
"""The home folder, new and empty in every run. It is never in the workspace, which several skills may share: a program
reads its configuration from the home folder, and one skill must not configure what another one runs (attack row 74)."""


class IsolationLevel(StrEnum):
    """How a run is contained, strongest first. ``process`` is no isolation from the host's files or network.

    ``container`` is a container of an engine (Docker, Podman), ``remote`` another service's machine: the agent's own is
    out of its reach, what holds there cannot be checked from here. The others are this machine's own.
    """

    CONTAINER = "container"
    NAMESPACES = "namespaces"
    REMOTE = "remote"
    LANDLOCK = "landlock"
    PROCESS = "process"

    @property
    def strength(self) -> int:
        """How strong it is among the others: 0 for process."""
        return _STRENGTHS[self]


_STRENGTHS = {level: number for number, level in enumerate(reversed(IsolationLevel))}


class Status(StrEnum):
    """How a run ended. Facts, never deduced from an exit code or from text of the script."""

    OK = "ok"  # exit code 0
    ERROR = "error"  # another exit code, or a signal the script did not get from us
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "oom"
    OUTPUT_LIMIT = "output_limit"
    DISK_LIMIT = "disk_limit"
    CANCELLED = "cancelled"
    SANDBOX_ERROR = "sandbox_error"


@dataclass(frozen=True, slots=True)
class Network:
    """What a run may reach: ``none`` (default), ``loopback``, ``allow`` (hosts and ports) or ``host`` (opt-in).

    Attributes:
        mode: One of the four.
        hosts: For ``allow``: names and ``*.example.org``, with a port (``db.example.org:5432``) or on ``ports``. Their
            servers must be at public addresses, but for ``files.corp.example=10.20.0.0/16``: that one may be in this
            private network.
        ports: Of hosts that name none.
        refused: For ``allow``: names and wildcards that stay out of reach although a wider entry of ``hosts`` has them;
            ``*`` for everything that ``hosts`` does not have. With it ``hosts`` may be empty: then nothing can be
            reached, and the result says by name what was tried.
    """

    mode: str = "none"
    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = (443,)
    refused: tuple[str, ...] = ()

    @classmethod
    def none(cls) -> Network:
        """No network at all."""
        return cls("none")

    @classmethod
    def loopback(cls) -> Network:
        """A loopback interface of its own."""
        return cls("loopback")

    @classmethod
    def allow(cls, *hosts: str, ports: tuple[int, ...] = (443,)) -> Network:
        """Only these host names, through a checking proxy."""
        return cls("allow", hosts, ports)

    @classmethod
    def host(cls) -> Network:
        """The host's network, unrestricted. Only ever by explicit choice."""
        return cls("host")


if TYPE_CHECKING:

    class _NetworkField:
        """Tells type checkers what the field takes, and what it is then."""

        def __get__(self, policy: object, owner: Any = None) -> Network: ...
        def __set__(self, policy: object, value: Network | Literal["none", "loopback", "host"]) -> None: ...


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """Every limit of a run (SANDBOX.md 4.2). ``None`` means unlimited; 0 is legal where it makes sense.

    Attributes:
        isolation: ``auto`` takes the strongest level that works here; a level's name demands that one.
        min_isolation: Below this level a run is refused with the reasons (fail closed).
        wall_seconds: Deadline, in seconds of wall time from the start of the command.
        term_grace_seconds: Seconds between SIGTERM and SIGKILL at the deadline; 0 kills at once.
        drain_seconds: How long output is still read after the command itself has ended.
        cpu_seconds: CPU seconds per process; None means the deadline, rounded up. In a session also of all that an
            execution leaves running, until the next one.
        memory_bytes: Memory of the run, in bytes.
        pids: Processes and threads of the run. Chromium (Playwright, Puppeteer) needs 192, and ``--no-sandbox``.
        open_files: File descriptors per process.
        file_bytes: Largest single file the run may write.
        workspace_bytes: Everything in the workspace together.
        workspace_inodes: Files and directories in the workspace together.
        tmp_bytes: Size of the private /tmp, where the level has one.
        shm_bytes: Size of the private /dev/shm, where the level has one.
        output_bytes: Bytes kept per stream: three quarters from its start, one quarter from its end.
        output_flood_bytes: Bytes per stream at which the run is killed; also the bound of a spill file.
        max_files: Output files collected.
        max_file_bytes: Largest output file collected.
        max_total_file_bytes: Output files collected, together.
        network: See :class:`Network`; its words ``"none"``, ``"loopback"`` and ``"host"`` are taken too.
        env: Variables granted to the script; a :class:`Secret` among them is kept out of what comes out.
        inherit_env: Names of host variables passed on; names that look secret are refused unless ``allow_secrets``.
        allow_secrets: Permit secret-looking names in ``inherit_env``.
        python: Interpreter for Python; None is the one running the agent.
        extra_ro: Host paths readable besides the system, at the same path. Above level ``landlock`` a socket or pipe
            in them leads to its service: name folders that have none.
        run_as: Numeric user id for the run when the agent is root; None takes the backend's default.
        warm_slots: Sandboxes kept started for the next runs of the same kind, from the second run of a process on;
            each is used once. 0 for none.
        preload: Python modules such a sandbox has imported before its script begins; the developer's, never a skill's.
        maker: Who makes the sandboxes of the level ``namespaces``, waiting ones included: ``auto`` lets the zygote fork
            them where that is possible, with bubblewrap as the fall-back; ``bubblewrap`` allows that audited program
            alone, and no zygote is started.
        syscalls: Which system calls a run may make: ``default`` (what container engines allow, less what attacks used)
            or ``strict`` (less what few scripts need, too).
    """

    isolation: str = "auto"
    min_isolation: str = IsolationLevel.LANDLOCK.value
    wall_seconds: float | None = 30.0
    term_grace_seconds: float = 1.0
    drain_seconds: float = 0.5
    cpu_seconds: int | None = None
    memory_bytes: int | None = 512 << 20
    pids: int | None = 64
    open_files: int | None = 256
    file_bytes: int | None = 64 << 20
    workspace_bytes: int | None = 256 << 20
    workspace_inodes: int | None = 20_000
    tmp_bytes: int | None = 64 << 20
    shm_bytes: int | None = 16 << 20
    output_bytes: int = 256 << 10
    output_flood_bytes: int | None = 64 << 20
    max_files: int = 50
    max_file_bytes: int = 5 << 20
    max_total_file_bytes: int = 16 << 20
    if TYPE_CHECKING:
        network: _NetworkField = _NetworkField()
    else:
        network: Network = field(default_factory=Network.none)
    env: Mapping[str, EnvValue] = field(default_factory=lambda: _NO_ENV)
    inherit_env: tuple[str, ...] = ()
    allow_secrets: bool = False
    python: str | None = None
    extra_ro: tuple[str, ...] = ()
    run_as: int | None = None
    warm_slots: int = 2
    preload: tuple[str, ...] = ()
    maker: str = "auto"
    syscalls: str = "default"

    def __post_init__(self) -> None:
        network: object = self.network
        if isinstance(network, str):
            object.__setattr__(self, "network", Network(network))
        if isinstance(self.env, Mapping) and not isinstance(self.env, FrozenMapping):
            object.__setattr__(self, "env", FrozenMapping(self.env))


@dataclass(frozen=True, slots=True)
class ReadOnlyMount:
    """A host folder the run may read at ``target``.

    ``linked`` also makes each of its top-level entries appear in the workspace under the same name (as a symbolic
    link, when the workspace has nothing of that name), so that the working directory looks like the folder's root
    (C40, S0-43) while everything new is written to the workspace. Such links are never collected as output. With
    ``first`` the workspace's own entries of these names are not in the run, and stay as they are: another run that
    shares the workspace replaces no file of the folder (attack row 338).

    ``copied`` gives the run a read-only copy of the folder as it is at the start, at most 1 GiB and 20,000 files, which
    is made once and shared by all runs until the folder changes. False gives it the folder itself: for large data, and
    with whatever happens to it meanwhile.

    ``without`` names folders below ``source`` that the copy leaves out, with ``/``. ``digest``, when not empty, is what
    the copy must hold (SHA-256, as the copy counts it): with other bytes nothing runs
    (:class:`~adk_skills_agent.errors.SkillChanged`). Both need ``copied``.
    """

    source: Path
    target: PurePosixPath = SKILL_DIR
    linked: bool = True
    copied: bool = True
    without: tuple[str, ...] = ()
    digest: str = ""
    first: bool = False


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file put into the workspace before the run. ``path`` is relative to it, with forward slashes."""

    path: str
    content: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class ExecutionRequest:
    """One command to run.

    Attributes:
        argv: The command and its arguments, as separate elements; never a shell string. Paths use the sandbox's
            view (``/skill/...``, ``/work/...``): a backend without a file system of its own translates elements that
            are, or start with, a mount's target or the workspace.
        policy: The limits that hold.
        env: Variables granted to this run, over ``policy.env``. What is a :class:`Secret` in either is replaced by
            ``[secret NAME]`` in streams, spill files, notes and errors; a file that contains it is not collected.
        share: Whose run it is, the widest first: an id of the user, then one of the session. All who wait for a turn
            get one after the other, and nobody has all turns (attack row 81). Empty for the owner's own.
        redact: Names and values of more secrets, not granted to this run, that must not come out of it: what another
            run of the same session may have left in the workspace.
        stdin: Bytes for standard input; None closes it (a read sees end of file at once, C43).
        mounts: Read-only folders.
        input_files: Files written into the workspace first.
        workspace: A host folder that lasts over several runs: its files are copied in before the run and what the run
            added or changed is copied back after it (what it removed is removed), also when the run was stopped by a
            limit. The caller lets runs that share one take turns. None starts from an empty workspace.
        tmp: The same for ``/tmp``, within ``tmp_bytes``; made when there is something to keep. The home folder
            in it is new in every run all the same. None starts from an empty one.
        cwd: Working directory, in the sandbox's view; under ``/work`` or ``/skill``.
        on_output: Called in the event loop with ``("stdout" | "stderr", chunk)`` as output arrives, for streaming to a
            terminal. Gets at most the first ``output_bytes`` of each stream.
        on_sample: Called in the event loop with what the run uses, about ten times a second and never after ``run`` has
            returned. A backend that cannot tell never calls it.
        spill_dir: Host folder for the full text of a stream that outgrew ``output_bytes``, made when it is missing and
            there is such a stream; None keeps none.
        label: What this is, for logs; no secrets.
    """

    argv: tuple[str, ...]
    policy: SandboxPolicy = field(default_factory=SandboxPolicy)
    env: Mapping[str, EnvValue] = field(default_factory=lambda: _NO_ENV)
    stdin: bytes | None = None
    mounts: tuple[ReadOnlyMount, ...] = ()
    input_files: tuple[InputFile, ...] = ()
    workspace: Path | None = None
    tmp: Path | None = None
    cwd: PurePosixPath = WORK_DIR
    on_output: Callable[[str, bytes], None] | None = None
    on_sample: Callable[[ResourceSample], None] | None = None
    spill_dir: Path | None = None
    label: str = ""
    redact: tuple[tuple[str, Secret], ...] = ()
    share: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A regular file the run added to or changed in the workspace. ``path`` is relative and sanitised."""

    path: str
    content: bytes
    mime_type: str

    @property
    def size(self) -> int:
        """Bytes of content."""
        return len(self.content)


CONCERNS = ("files", "network", "processes", "memory", "pids", "disk", "cpu", "syscalls")
"""What an isolation report has an answer for, each: who enforces it."""


STRICT_ELSEWHERE = "syscalls: 'strict' holds on this machine's own levels only; there the usual list holds."
"""What a backend elsewhere says of ``SandboxPolicy.syscalls``."""

SERVED_FOLDERS = (
    "files: a socket or pipe in a folder that is shown as it is (extra_ro) leads to its service, whatever the network."
)
"""What levels with a mount namespace say of ``extra_ro``: a read-only mount does not stop that (attack row 341)."""


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """Which mechanism enforced each concern in one run.

    Attributes:
        level: The level that ran it.
        enforced: Each of :data:`CONCERNS` to the mechanisms that enforce it, joined by ``+``, or ``none``; e.g.
            ``{"memory": "cgroup v2", "files": "mount namespace", "syscalls": "seccomp"}``.
        degraded: One sentence per policy limit that is not, or only partly, enforced here.
        reasons: Why stronger levels were not used.
        maker: Who made the sandbox of a run at the level ``namespaces``: ``bubblewrap`` or ``zygote``; empty elsewhere.
        node: The machine of a cluster that ran it; empty where there is no cluster.
    """

    level: IsolationLevel
    enforced: Mapping[str, str]
    degraded: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    maker: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class NetworkDecision:
    """One decision of a run's network proxy, for the operator; not for the model.

    Attributes:
        host: The name that was asked for, normalised, or as far as it could be read; empty when it could not.
        port: The port that was asked for; None when it could not be read.
        allowed: Whether a connection was tried.
        reason: Why, in words.
        address: The numeric address that was connected to, or that was the reason to refuse.
        listed: False when the host, or the host on this port, is not in the run's allow-list: granting it would help.
    """

    host: str
    port: int | None
    allowed: bool
    reason: str
    address: str | None = None
    listed: bool = True


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """The outcome of one run. A script's failure is a result, not an exception.

    ``exit_code`` is None exactly when a signal ended the command (``signal`` is set) or it never started.
    ``signal_inferred`` marks a signal deduced from a backend's 128+n convention. ``stdout``/``stderr`` are what was
    kept (head and tail); ``*_total`` count what was written; ``*_cut_at`` is the offset in the kept bytes at which
    bytes are missing, None when nothing is. ``processes_killed`` counts what was still alive at the end; ``survivors``
    what could not be killed (only possible at the ``process`` level, best effort). ``cpu_ms`` is of every
    process of the run, killed ones included, to about 10 ms each; at the ``process`` level only the command's and its
    waited-for children's. ``notes`` has a sentence for everything the run asked for and did not get, and everything
    that was cut, renamed or left out without a field of its own; ``limit_note`` is the one of them that says which
    limit ended the run, where the backend tells. ``network`` has the decisions of the network proxy.
    ``warm`` says that a sandbox started beforehand was used (``SandboxPolicy.warm_slots``).
    """

    status: Status
    exit_code: int | None
    isolation: IsolationReport
    signal: int | None = None
    signal_inferred: bool = False
    timed_out: bool = False
    oom_killed: bool = False
    interrupted: bool = False
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_total: int = 0
    stderr_total: int = 0
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    stdout_spill: Path | None = None
    stderr_spill: Path | None = None
    wall_ms: float = 0.0
    setup_ms: float = 0.0
    cpu_ms: float | None = None
    max_rss_bytes: int | None = None
    processes_killed: int = 0
    survivors: int = 0
    files: tuple[OutputFile, ...] = ()
    skipped_files: tuple[tuple[str, str], ...] = ()
    session_id: str | None = None
    session_reset: bool = False
    stdout_cut_at: int | None = None
    stderr_cut_at: int | None = None
    notes: tuple[str, ...] = ()
    network: tuple[NetworkDecision, ...] = ()
    warm: bool = False
    limit_note: str = ""


class Sandbox(ABC):
    """Runs commands under a policy.

    What every implementation guarantees:

    - ``run`` returns an :class:`ExecutionResult` for everything the command can do, and raises only
      :class:`~adk_skills_agent.errors.SandboxUnavailable` (the policy cannot be met here),
      :class:`~adk_skills_agent.errors.SandboxError` (the sandbox itself failed, or ``argv[0]`` cannot be started here:
      there is no such command, it is not executable, its ``#!`` interpreter is missing; never a script's failure),
      :class:`~adk_skills_agent.errors.ConfigError` (a policy with impossible values), ``ValueError`` for a request
      that cannot be expressed (a NUL byte in an argument, arguments too large for the system) and ``CancelledError``.
      What ``on_output`` or ``on_sample`` raises ends the run and comes out as it is.
    - The command gets a fixed small environment plus what was granted, closed stdin, no terminal, no descriptor but
      0, 1 and 2, and its own session.
    - Whatever ends the run (exit, deadline, output flood, cancellation) ends its processes and removes its temporary
      files before ``run`` returns; at the ``process`` level a process that left the session may survive and is
      counted in ``survivors`` when it can be seen.
    - A process that keeps the pipes open after the command has ended delays the result by at most ``drain_seconds``.
    - Agent memory does not grow with the script's output.
    - Nothing of the caller's environment, files or descriptors is used implicitly.
    - The event loop is never blocked, and no thread is used per run.
    """

    name: str
    filters_secrets = False
    """Whether results come without the secrets of the request; those of other sandboxes are filtered by the caller."""
    keeps_tmp = False
    """Whether ``ExecutionRequest.tmp`` lasts; elsewhere ``/tmp`` is empty in every run."""
    runs_here = False
    """Whether commands find the interpreters and folders of this machine (``policy.python``, ``policy.extra_ro``)."""

    @abstractmethod
    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one command to its end."""

    def stream(self, request: ExecutionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Run one command and yield events while it runs.

        Yields pieces of output in the order they arrived, a :class:`~.streaming.ResourceSample` from time to time, and
        finally an :class:`~.streaming.EndEvent` with the result. When a stream is longer than ``output_bytes``, its
        middle is dropped, and its end is yielded just before the last event (``OutputEvent.left_out``). Nothing starts
        before the first event is requested. The request's own ``on_output`` and ``on_sample`` are called as well. The
        iteration raises what :meth:`run` raises. Breaking out of the loop, ``aclose()`` and a cancellation kill the run
        and leave nothing behind. After a ``break`` the event loop does that in its next steps; ``contextlib.aclosing``
        waits for it.
        """
        from adk_skills_agent.sandbox.streaming import stream

        return stream(self, request)

    @abstractmethod
    async def probe(self) -> IsolationReport:
        """What this backend can enforce here, found by really running it; cached per process."""

    def session_host(self) -> SessionHost | None:
        """What starts Python sessions in this backend; None when it cannot keep state."""
        return None

    async def close(self) -> None:  # noqa: B027  # most backends hold nothing
        """Release what the backend holds. Safe to call twice."""
