"""From an ExecutionResult to what a model gets and what the owner keeps (S0-61 to S0-70).

Every fact comes from the result's fields. Nothing is deduced from the script's own text, so a script cannot forge it;
:mod:`.outcome` says how its text can call for one more true sentence.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from adk_skills_agent.errors import ErrorCode
from adk_skills_agent.platforms import O_CLOEXEC, O_DIRECTORY, typed_path
from adk_skills_agent.sandbox import (
    ExecutionResult,
    HostNameError,
    IsolationLevel,
    SandboxPolicy,
    Status,
    normalise_host,
    parse_hosts,
)
from adk_skills_agent.scripts.error_text import (
    ScriptException,
    condense_tracebacks,
    error_line,
    shorten,
)
from adk_skills_agent.scripts.plan import ScriptPlan

MODEL_STREAM_CHARS = 20_000
"""Characters of one stream a model gets at most (C45); the rest is an artifact."""
ERROR_CHARS = 200
_LONG_STREAMS = 1 << 17  # bytes; more may take tens of milliseconds to go through
"""Length of the ``error`` sentence's quoted cause (S0-20)."""
HEAD_SHARE = 0.75
CANNOT_START = 126
"""The exit code with which a shell says that a program is there and cannot be started."""
PATH_CHARS, _NOTE_CHARS = 512, 2_000

_REASONS = {
    Status.TIMEOUT: "timeout",
    Status.OUT_OF_MEMORY: "out_of_memory",
    Status.OUTPUT_LIMIT: "output_limit",
    Status.DISK_LIMIT: "disk_limit",
    Status.CANCELLED: "cancelled",
    Status.SANDBOX_ERROR: "sandbox_error",
}


class ScriptStatus(StrEnum):
    """The three states a model sees (S0-61)."""

    SUCCESS = "success"
    WARNING = "warning"  # it worked, and it wrote to stderr
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """A finished script call."""

    plan: ScriptPlan  # what was asked
    result: ExecutionResult  # what happened, complete, for the owner
    status: ScriptStatus  # see :class:`ScriptStatus`
    # the cause when ``status`` is error: ``timeout``, ``out_of_memory``, ``output_limit``, ``disk_limit``,
    # ``exit_code``, ``signal``, ``cancelled``, ``sandbox_error``; else None
    reason: str | None
    return_code: int  # the exit code; minus the signal when one ended it; -1 after a timeout (S0-57)
    stdout: str  # text, whole
    stderr: str  # text, with tracebacks condensed (S0-59) and without the host's path of the interpreter
    error: str | None  # one sentence for the model when ``status`` is error; else None
    stderr_cut_at: int | None = None  # where in ``stderr`` the sandbox left bytes out, in characters; else None
    # what was not there, by what the script printed; ``error`` or a note tells the model
    missing: tuple[MissingThing, ...] = ()
    advice: str = ""  # what to do about a limit that the program met; in ``error``, or in a note where there is none

    def to_model(
        self,
        *,
        artifacts: Mapping[str, str] | None = None,
        streams: Mapping[str, str] | None = None,
        beginnings: Mapping[str, int] | None = None,
        notes: Sequence[str] = (),
        stream_chars: int = MODEL_STREAM_CHARS,
    ) -> dict[str, object]:
        """The tool response: short, structured, without a path of the host.

        ``artifacts`` maps output paths, ``streams`` ``stdout`` and ``stderr`` to the artifacts that hold them;
        ``beginnings`` those whose artifact does not hold all of it to the bytes it holds. ``stream_chars`` is the most
        of each stream.
        """
        artifacts, streams, beginnings = artifacts or {}, streams or {}, beginnings or {}
        result = self.result
        answer: dict[str, object] = {
            "skill_name": self.plan.skill_name,
            "file_path": self.plan.path,
            "status": self.status.value,
        }
        if self.reason is not None:
            answer |= {"reason": self.reason, "error": self.error, "error_code": ErrorCode.EXECUTION_ERROR.value}
        answer |= {
            "return_code": self.return_code,
            "timed_out": result.timed_out,
            "stdout": cut(
                self.stdout,
                stream_chars,
                missing_bytes=result.stdout_total - len(result.stdout) if result.stdout_truncated else 0,
                cut_at=_characters(result.stdout, result.stdout_cut_at),
                artifact=streams.get("stdout"),
                artifact_bytes=beginnings.get("stdout"),
            ),
            "stderr": cut(
                self.stderr,
                stream_chars,
                missing_bytes=result.stderr_total - len(result.stderr) if result.stderr_truncated else 0,
                cut_at=self.stderr_cut_at,
                artifact=streams.get("stderr"),
                artifact_bytes=beginnings.get("stderr"),
            ),
        }
        if result.files:
            answer["output_files"] = [
                {"name": file.path, "mime_type": file.mime_type, "size": file.size}
                | ({"artifact": artifacts[file.path]} if file.path in artifacts else {})
                for file in result.files
            ]
        if result.skipped_files:
            shown = [
                {"name": shorten(name, PATH_CHARS), "reason": reason} for name, reason in result.skipped_files[:20]
            ]
            answer["skipped_files"] = shown
            if len(result.skipped_files) > len(shown):
                answer["skipped_files_left_out"] = len(result.skipped_files) - len(shown)
        # A shell script goes on after a command that is not there, and may call what it did a success.
        unseen = self.told_beside() if self.error is None else []
        if self.plan.notes or result.notes or notes or unseen:
            told = [*self.plan.notes, *result.notes, *notes, *unseen]
            answer["notes"] = [
                note if len(note) <= _NOTE_CHARS else f"{note[: _NOTE_CHARS // 2]}...{note[-_NOTE_CHARS // 2 :]}"
                for note in told
            ]
        return answer

    def told_beside(self) -> list[str]:
        """What ``error`` says of missing things and limits, for an answer that has no ``error``."""
        return [*filter(None, [self.advice]), *(thing.for_model() for thing in self.missing)]


def script_outcome(
    plan: ScriptPlan, result: ExecutionResult, *, error_chars: int | None = ERROR_CHARS
) -> ScriptOutcome:
    """Interpret a result.

    ``error_chars`` is the longest quoted cause in ``error``; None for no bound (S0-20, S0-21).
    """
    stdout = _text(result.stdout)
    if result.status is Status.OK:
        # What a successful script says is its own business, a quoted traceback included.
        stderr = hide_interpreter(_text(result.stderr))
        status = ScriptStatus.WARNING if stderr.strip() else ScriptStatus.SUCCESS
        cut_at = result.stderr_cut_at
        if cut_at is not None:
            head = hide_interpreter(_text(result.stderr[:cut_at]))
            stderr, cut_at = head + hide_interpreter(_text(result.stderr[cut_at:])), len(head)
        missing = tuple(thing for thing in missing_things(plan, result) if thing.kind in _MISSED_BY_SHELLS)
        advice = not_started_sentence(result, stderr, stdout)
        if not advice and not stderr and _fetches(plan, result.exit_code):
            advice = no_network_sentence(plan.request.policy, result, said_nothing=True)
        if not advice and _CUT_OFF.search(stderr[-_LAST_CHARS:]):
            advice = limit_sentence(plan.request.policy, result)
        return ScriptOutcome(
            plan, result, status, None, result.exit_code or 0, stdout, stderr, None, cut_at, missing, advice
        )
    stderr, cut_at, exception = _condensed_stderr(plan, result)
    reason = _REASONS.get(result.status) or ("signal" if result.signal is not None else "exit_code")
    cause = str(exception) if exception else error_line(stderr)
    error, advice = _sentence(plan, result, reason, shorten(cause, error_chars)), ""
    if reason in {"exit_code", "signal"}:
        policy, printed = plan.request.policy, (_text(result.stderr), stdout)
        said_nothing = not result.stderr and _fetches(plan, result.exit_code)
        advice = no_network_sentence(policy, result, *printed, said_nothing=said_nothing)
        advice = advice or not_by_proxy_sentence(policy, result, *printed)
        advice = advice or no_semaphores_sentence(result) or not_started_sentence(result, *printed)
        advice = advice or limit_sentence(policy, result)
        error = f"{error.rstrip('.')}. {advice}" if advice else error
    elif reason == "timeout" and (advice := waiting_sentence(plan, result, stdout, stderr)):
        error = f"{error.partition(' Give it less work')[0]} {advice}"
    missing = missing_things(plan, result, exception) if reason == "exit_code" else ()
    if missing:
        error = f"{error.rstrip('.')}. {' '.join(thing.for_model() for thing in missing)}"
    if result.timed_out:
        stderr = _append(stderr, f"Timed out after {_seconds(plan.request.policy.wall_seconds)}")
    elif not stderr.strip():
        stderr = f"Signal {result.signal}" if result.signal is not None else f"Exit code {result.exit_code}"
    return ScriptOutcome(
        plan, result, ScriptStatus.ERROR, reason, _return_code(result), stdout, stderr, error, cut_at, missing, advice
    )


async def outcome_aside(plan: ScriptPlan, result: ExecutionResult, error_chars: int | None) -> ScriptOutcome:
    """:func:`script_outcome`; long streams are gone through in a worker thread, while the loop goes on (row 355)."""
    if len(result.stdout) + len(result.stderr) <= _LONG_STREAMS:
        return script_outcome(plan, result, error_chars=error_chars)
    from adk_skills_agent.sandbox import in_worker  # with it comes asyncio, which a plan does without

    return await in_worker(functools.partial(script_outcome, plan, result, error_chars=error_chars))


def cut(
    text: str,
    limit: int,
    *,
    missing_bytes: int = 0,
    cut_at: int | None = None,
    artifact: str | None = None,
    artifact_bytes: int | None = None,
) -> str:
    """Keep the start and the end of a long text and say between them what is missing and where it is.

    ``missing_bytes`` is what the sandbox left out already, at ``cut_at`` characters. ``artifact`` holds all of the
    text, or its first ``artifact_bytes``.
    """
    if len(text) <= limit:
        if missing_bytes <= 0:
            return text
        head_to = tail_from = cut_at if cut_at is not None else int(len(text) * HEAD_SHARE)
    else:
        head_to = int(limit * HEAD_SHARE)
        tail_from = len(text) - (limit - head_to)
    left_out = max(missing_bytes, 0) + len(text[head_to:tail_from].encode("utf-8", "replace"))
    held = "full text is" if artifact_bytes is None else f"first {artifact_bytes:,} bytes are"
    where = f"; the {held} the artifact '{artifact}'" if artifact else ""
    return f"{text[:head_to]}\n[... {left_out:,} bytes left out{where} ...]\n{text[tail_from:]}"


def _text(stream: bytes) -> str:
    """Bytes as text a model can get: undecodable bytes and NUL become U+FFFD (attack row 53)."""
    return stream.decode("utf-8", "replace").replace("\0", "\ufffd")


def _condensed_stderr(plan: ScriptPlan, result: ExecutionResult) -> tuple[str, int | None, ScriptException | None]:
    """Stderr with its tracebacks condensed; never across the place where the sandbox left bytes out.

    The lines that go may have stood between the parts of a secret, so secrets are looked for once more.
    """
    from adk_skills_agent.sandbox import secrets_of_run  # with it comes asyncio, which a plan does without

    secrets = secrets_of_run(plan.request, plan.request.policy)

    def condensed(stream: bytes) -> tuple[str, ScriptException | None]:
        told = hide_interpreter(_text(stream))
        text, exception = condense_tracebacks(told, skill_prefix=plan.skill_prefix)
        return (text if secrets is None or text == told else secrets.text(text)), exception

    cut_at = result.stderr_cut_at
    if cut_at is None:
        text, exception = condensed(result.stderr)
        return text, None, exception
    head, early = condensed(result.stderr[:cut_at])
    tail, late = condensed(result.stderr[cut_at:])
    return head + tail, len(head), late or early


def _characters(stream: bytes, offset: int | None) -> int | None:
    """An offset in bytes as one in the decoded text."""
    return None if offset is None else len(_text(stream[:offset]))


def _return_code(result: ExecutionResult) -> int:
    if result.timed_out:
        return -1
    if result.signal is not None:
        return -result.signal
    return result.exit_code if result.exit_code is not None else -1


def _sentence(plan: ScriptPlan, result: ExecutionResult, reason: str, cause: str) -> str:
    policy = plan.request.policy
    what = {
        "timeout": f"{plan.called} was stopped after {_seconds(policy.wall_seconds)}, its time limit. "
        "What it printed until then is in stdout. Give it less work, or tell the user.",
        "out_of_memory": f"{plan.called} was stopped: it needed more {_needed(policy)}. Give it less data.",
        "output_limit": f"{plan.called} was stopped: it printed {_printed(policy)}. Make it write to a file instead.",
        "disk_limit": f"{plan.called} was stopped: {_filled(policy, result)}.",
        "cancelled": f"{plan.called} was cancelled.",
        "sandbox_error": f"{plan.called} could not be run to its end; this is not the script's fault.",
        "signal": _signal_sentence(plan, result),
        "exit_code": f"{plan.called} exited with status {result.exit_code}.",
    }[reason]
    return f"{what} {cause}" if cause and reason in {"exit_code", "signal"} else what


def _signal_sentence(plan: ScriptPlan, result: ExecutionResult) -> str:
    """Two signals are limits of the policy that the kernel enforces; a third one often is where files are in memory."""
    policy, number = plan.request.policy, result.signal
    if number == signal.SIGXCPU:
        return f"{plan.called} was stopped: it used up its CPU time. Give it less work."
    if number == signal.SIGXFSZ:
        larger = _size(policy.file_bytes) or "there is room for"
        return f"{plan.called} was stopped: it wrote a file larger than {larger}."
    rooms = _size(policy.workspace_bytes), _size(policy.shm_bytes)
    if number == signal.SIGBUS and all(rooms) and result.isolation.level is IsolationLevel.NAMESPACES:
        return (
            f"{plan.called} was ended by signal {number}, as when a mapped file has no room: it has {rooms[0]} in "
            f"the working directory and {rooms[1]} in /dev/shm."
        )
    return f"{plan.called} was ended by signal {number}."


def _needed(policy: SandboxPolicy) -> str:
    limit = _size(policy.memory_bytes)
    return f"than {limit} of memory" if limit else "memory than this machine has"


def _printed(policy: SandboxPolicy) -> str:
    limit = _size(policy.output_flood_bytes)
    return f"more than {limit}" if limit else "too much"


def _filled(policy: SandboxPolicy, result: ExecutionResult) -> str:
    """Which folder was full; where the backend does not tell, what the workspace has room for."""
    if result.limit_note:
        return f"{result.limit_note.partition(': ')[2].rstrip('.')}. Write less, or fewer files"
    files = f"{policy.workspace_inodes:,} files" if policy.workspace_inodes is not None else ""
    room = " and ".join(filter(None, (_size(policy.workspace_bytes), files)))
    return "it filled its workspace" + (f", which has room for {room}. Write less, or fewer files" if room else "")


def _size(limit: int | None) -> str:
    """A limit in bytes as a model reads it; "" for none."""
    if limit is None:
        return ""
    return f"{limit >> 20:,} MiB" if limit >= 1 << 20 else f"{limit:,} bytes"


def _seconds(value: float | None) -> str:
    return f"{value:g}s" if value is not None else "its deadline"


def _append(text: str, line: str) -> str:
    return f"{text.rstrip()}\n{line}" if text.strip() else line


# The library of an interpreter, wherever it is installed; never a folder of the skill itself.
# No character that may stand before a path may stand in it, so that a long text is read once.
_LIBRARY = re.compile(r"""(?<![^\s"'(\[=:,])/(?!skill/|/)(?:[^\s"'=:;,()[<>]+/)?lib(?:64)?/python3[.\d]*t?/""")
_PIECE_CHARS = 1 << 16
_PACKAGES = re.compile(r"""(?<![^\s"'(\[=:,])/(?:[^\s"'=:;,()[<>]+/)?environments/[0-9a-f]{64}/""")


def hide_interpreter(text: str) -> str:
    """Paths in a Python's library, as ``<python>/socket.py``: where the host has it is not for a model.

    So is a command of prepared packages: ``<packages>/bin/ruff``.
    """
    pieces: list[str] = []
    begin = 0
    while begin < len(text):  # nothing else of Python goes on while a pattern is looked for
        line_end = text.find("\n", begin + _PIECE_CHARS, begin + 2 * _PIECE_CHARS) + 1
        piece = text[begin : line_end or begin + 2 * _PIECE_CHARS]
        pieces.append(_PACKAGES.sub("<packages>/", _LIBRARY.sub("<python>/", piece)))
        begin += len(piece)
    return "".join(pieces)


# A sentence for a model whose script failed because there is no network: without it, it tries again.
#
# Whether there was a network is a fact of the policy and of the isolation report. The script's own text only decides
# whether the sentence is of any use, so a script that lies gains a true sentence.

NO_NETWORK: Final = "Scripts have no network here. Do not retry; do it without the network, or tell the user."
_LAST_CHARS = 8_000
_SIGNS = re.compile(
    r"gaierror|Name or service not known|NameResolutionError|name resolution|resolve host|nodename nor servname"
    r"|Network is unreachable|ENETUNREACH|ENOTFOUND|EAI_AGAIN|Failed to establish a new connection"
    r"|urlopen error \[Errno (?:-\d|1|13|101|111)\]"
)
_REFUSED = re.compile(r"Permission denied|Operation not permitted|Errno 1\b|EACCES|EPERM")


_NAMED_HOST = re.compile(
    r"(?i:resolve host(?:name| address)?:? )['\"‘]?(?P<a>[\w.-]+)"
    r"|host='(?P<b>[\w.-]+)', port=\d+"
    r"|getaddrinfo (?:ENOTFOUND|EAI_AGAIN) (?P<c>[\w.-]+)"
    r"|Cannot connect to host (?P<d>[\w.-]+):\d+"
    r"|dial tcp: lookup (?P<e>[\w.-]+)"
    r"|Failed to resolve '(?P<f>[\w.-]+)'"
)
"""How curl, wget, git, ssh, urllib3, Node.js, aiohttp and Go name the host that they did not reach."""
_MOST_HOSTS = 20


@dataclass(frozen=True, slots=True)
class RefusedHost:
    """A host that a run tried to reach and might not."""

    host: str  # as a grant would name it: with a port when it is none of the policy's
    certain: bool = True  # whether the proxy saw it; else the script's own words say so


def refused_hosts(policy: SandboxPolicy, result: ExecutionResult) -> tuple[RefusedHost, ...]:
    """The hosts that a run was refused because nobody granted them, at most 20.

    Where the proxy was asked it knows them. A run without any network has no proxy: when it failed, its own words may
    name a host, which is worth a hint and no more.
    """
    found: dict[str, RefusedHost] = {}
    for decision in result.network:
        if not decision.allowed and not decision.listed and decision.host:
            usual = decision.port is None or decision.port in policy.network.ports
            host = decision.host if usual else f"{decision.host}:{decision.port}"
            found.setdefault(host, RefusedHost(host))
    without = policy.network.mode in {"none", "loopback"} and result.isolation.enforced.get("network") != "none"
    if without and result.status is Status.ERROR:
        for host in _named_hosts(_text(result.stderr), _text(result.stdout)):
            if "." in host:
                found.setdefault(host, RefusedHost(host, certain=False))
    return tuple(found.values())[:_MOST_HOSTS]


def _named_hosts(*streams: str) -> list[str]:
    """The hosts that the end of what a program printed names as not reached."""
    named: dict[str, None] = {}
    for stream in streams:
        for match in _NAMED_HOST.finditer(stream[-_LAST_CHARS:]):
            with contextlib.suppress(HostNameError):
                named[normalise_host(str(match[match.lastgroup or 0]))] = None
    return list(named)


def no_network_sentence(
    policy: SandboxPolicy, result: ExecutionResult, *streams: str, said_nothing: bool = False
) -> str:
    """:data:`NO_NETWORK` when the run had no network and what it printed speaks of that; else "".

    ``said_nothing``: it fetched something with a program that was told to be quiet.
    """
    if policy.network.mode not in {"none", "loopback"} or result.isolation.enforced.get("network") == "none":
        return ""
    if said_nothing:
        return NO_NETWORK
    for stream in streams:
        text = stream[-_LAST_CHARS:]
        # The system call itself may be refused; then only the place in the program says that it was about a socket.
        if _SIGNS.search(text) or ("socket" in text and _REFUSED.search(text)):
            return NO_NETWORK
    return ""


_FETCH = re.compile(r"(?:^|[|;&(`\n])[ \t]*(?:curl|wget)[ \t][^|;&()`\n]*?https?://(?!localhost\b|127\.|\[::1)")


_NO_CONNECTION = frozenset({4, 5, 6, 7, 28, 35, 52, 56})  # of wget the first, of curl the others
_BEFORE = re.compile(r"(?:\s*(?:cd|echo|export|mkdir|set)\b[^;|&\n]*&)*")  # what rarely fails, in front of &&


def _fetches(plan: ScriptPlan, exit_code: int | None) -> bool:
    """Whether a command line fetched from another machine with curl or wget, which say nothing with -s and -q.

    Not one with a text in it, which may only be about them (a here-document), and not behind another command (&&, ||)
    that may be the one that failed.
    """
    *_, option, line = ("", "", *plan.request.argv)  # an environment's run has none
    found = _FETCH.search(line) if option == "-c" and "<<" not in line else None
    if found is None or exit_code in _NO_CONNECTION:
        return found is not None
    before = line[: found.start() + 1]
    return not before.endswith(("&&", "||")) or _BEFORE.fullmatch(before.replace("&&", "&")) is not None


NOT_BY_PROXY: Final = (
    "Granted hosts are reached only through the proxy that HTTPS_PROXY names, which this program did not use: curl "
    "does, Node.js from 22.21 on, aiohttp with trust_env=True, urllib3 with ProxyManager, Java with "
    "-Dhttps.proxyHost and -Dhttps.proxyPort."
)
_UNRESOLVED = re.compile(
    r"gaierror|Name or service not known|NameResolutionError|name resolution|resolve host|nodename nor servname"
    r"|ENOTFOUND|EAI_AGAIN|UnresolvedAddressException|UnknownHostException|dial tcp: lookup"
)


def not_by_proxy_sentence(policy: SandboxPolicy, result: ExecutionResult, *streams: str) -> str:
    """:data:`NOT_BY_PROXY` when a failed run with hosts did not find a name that is granted; else "".

    Names are known to the proxy alone. A client that says no name may have meant any.
    """
    if not policy.network.hosts or not result.isolation.enforced.get("network", "").endswith("proxy"):
        return ""
    if not any(_UNRESOLVED.search(stream[-_LAST_CHARS:]) for stream in streams):
        return ""
    allowed, named = parse_hosts(policy.network.hosts, policy.network.refused), _named_hosts(*streams)
    return NOT_BY_PROXY if not named or any(allowed.allows(host) for host in named) else ""


NO_SEMAPHORES: Final = (
    "Processes cannot share locks, queues or pools here. Do not retry; do the work in one process or with threads."
)


def no_semaphores_sentence(result: ExecutionResult) -> str:
    """:data:`NO_SEMAPHORES` when a failed run at Landlock asked for a semaphore of ``multiprocessing``; else "".

    Only Landlock has no shared memory of the run's own (docs/explanation/isolation.md).
    """
    asked = "SemLock" in _text(result.stderr[-_LAST_CHARS:])
    return NO_SEMAPHORES if asked and result.isolation.level is IsolationLevel.LANDLOCK else ""


NO_KEYS: Final = (
    "It drew on a screen and waited for keys, which nobody presses here. Write files with the tools for files or with "
    "sed, and give programs the options that ask nothing."
)
NO_OFFICE: Final = (
    "LibreOffice waits for ever at this level of isolation, because it needs UNIX sockets. Do not retry; do it another "
    "way, or tell the user that it needs the level 'namespaces' or a container."
)
_SCREEN = re.compile("\x1b\\[(?:\\?1049h|H\x1b\\[2?J)")
_OFFICE = re.compile(r"\b(?:soffice|libreoffice|lowriter|localc|unoconv)\b")
_READ_OF_SCRIPT = 1 << 16


def waiting_sentence(plan: ScriptPlan, result: ExecutionResult, *streams: str) -> str:
    """What a run that met its deadline waited for, where it is known: :data:`NO_KEYS` or :data:`NO_OFFICE`; else "".

    LibreOffice tells nobody: it shows its error in a dialog without a display, and waits until that is answered.
    """
    if any(_SCREEN.search(stream) for stream in streams):
        return NO_KEYS
    if result.isolation.level is not IsolationLevel.LANDLOCK:
        return ""
    words = [*plan.request.argv, *streams]
    if plan.folder is not None:
        with contextlib.suppress(OSError, ValueError), (plan.folder / plan.path).open("rb") as script:
            words.append(script.read(_READ_OF_SCRIPT).decode(errors="replace"))
    return NO_OFFICE if any(_OFFICE.search(text) for text in words) else ""


NOT_STARTED: Final = (
    "chmod changes nothing here, so a file that was made in the run cannot be started by its path. Start a script by "
    "its interpreter (bash tool.sh, python3 tool.py), and a program in a copy of an executable file: "
    "cp /bin/true run; cat ./program > run; ./run"
)
_REFUSED_START = re.compile(
    r"^\S+: (?:line )?\d+: (?!/skill/)(?=\S*/)\S+: Permission denied"  # bash and dash
    r"|^make(?:\[\d+\])?: (?!/skill/)(?=\S*/)\S+: Permission denied"
    r"|_execute_child\n(?:.*\n){0,2}PermissionError: .*Permission denied: '(?!/skill/)"
    r"|spawn (?!/skill/)(?=\S*/)\S+ EACCES",
    re.MULTILINE,
)


def not_started_sentence(result: ExecutionResult, *streams: str) -> str:
    """:data:`NOT_STARTED` where ``chmod`` does nothing and a file that the run made was not started for it; else "".

    Compilers make a file and then executable; so do ``venv`` and whoever writes a script (decision 0007).
    """
    pretends = any(sentence.startswith("files: chmod,") for sentence in result.isolation.degraded)
    if not pretends or result.isolation.level is not IsolationLevel.LANDLOCK:
        return ""
    ends = [stream[-_LAST_CHARS:] for stream in streams]
    refused = result.exit_code == CANNOT_START and any("Permission denied" in end for end in ends)
    return NOT_STARTED if refused or any(_REFUSED_START.search(end) for end in ends) else ""


# What a program says when it meets a limit that does not end it, and what to tell a model then, which else tries again.
_LIMITS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"can't start new thread|BlockingIOError.*\[Errno 11\]|fork: (?:retry|Resource)|spawn \S+ EAGAIN"
            r"|unable to create (?:new )?native thread|failed to (?:create new OS|spawn) thread|can't create Thread"
            r"|(?:pthread_create|fork/exec)[^\n]* [Rr]esource temporarily unavailable"
        ),
        "It may have {pids} processes and threads here, and each thread's stack counts as memory, of which it may use "
        "{memory_bytes}. Start fewer at a time.",
    ),
    (re.compile(r"Too many open files|\bEMFILE\b"), "It may have {open_files} files open here. Close some of them."),
    (
        re.compile(
            r"MemoryError|[Oo]ut of memory|std::bad_alloc|(?i:cannot allocate)|OutOfMemoryError"
            r"|memory allocation of \d+ bytes failed|insufficient memory"
        ),
        "It may use {memory_bytes} of memory here. Work on less at a time.",
    ),
    (
        re.compile(r"No space left on device|\bENOSPC\b"),
        "There is room for {workspace_bytes} in the working directory and for {tmp_bytes} in /tmp. Write less.",
    ),
    (
        re.compile(r"File too large|File size limit exceeded|\bEFBIG\b"),
        "A file may have {file_bytes} here. Write less, or several files.",
    ),
    (
        re.compile(r"(?:Read-only file system|Permission denied|EROFS|EACCES)[^\n]*/skill/"),
        "The folder of a skill cannot be changed. Write to the working directory.",
    ),
    (
        re.compile(r"EOFError: EOF when reading a line"),
        "Nobody answers what it asks. Give it what it needs as arguments or files.",
    ),
)


_CUT_OFF = re.compile(r"File size limit exceeded|: No space left on device$", re.MULTILINE)
"""What bash or a program of a line says of a file that is not whole, though the line itself ends with 0."""

_LIMIT_FIELDS = {
    "pids": "pids",
    "open_files": "pids",
    "memory_bytes": "memory",
    "file_bytes": "disk",
    "workspace_bytes": "disk",
    "tmp_bytes": "disk",
}
"""Fields of the policy, with the concern of the isolation report that says who enforces each."""


def limit_sentence(policy: SandboxPolicy, result: ExecutionResult) -> str:
    """What to do about a limit of the policy that a program speaks of; else "".

    As with the network, the program's text only decides whether the sentence is of any use: what it says is the policy.
    """
    text = _text(result.stderr[-_LAST_CHARS:])
    for pattern, sentence in _LIMITS:
        if pattern.search(text):
            limits = {name: getattr(policy, name) for name in _LIMIT_FIELDS if f"{{{name}}}" in sentence}
            who = {result.isolation.enforced.get(_LIMIT_FIELDS[name], "none").partition(" ")[0] for name in limits}
            if None in limits.values() or not who.isdisjoint({"none", "remote"}):
                continue  # the limit it met is somebody else's
            sizes = {name: _size(limit) if name.endswith("bytes") else f"{limit:,}" for name, limit in limits.items()}
            return sentence.format(**sizes)
    return ""


# What a script wanted and did not find: which, for the model, and how to supply it, for the owner.
#
# The script's own text only says where to look. A program that this machine has is not called missing, whatever a
# script prints; the fix for the owner never takes a name from it into a command.

_NAME_CHARS = r"[A-Za-z0-9_@][A-Za-z0-9_.@/+-]{0,79}"
_NO_MODULE = re.compile(rf"^(?:ModuleNotFoundError|ImportError): No module named ['\"]?({_NAME_CHARS})", re.MULTILINE)
_NO_OWN_MODULE = re.compile(rf"No module named ['\"]?({_NAME_CHARS})")
_NO_PROGRAM = re.compile(
    rf"(?:line \d+: |sh: (?:\d+: )?|^|: )({_NAME_CHARS}): (?:command )?not found\s*$"
    rf"|\[Errno 2\] No such file or directory: '({_NAME_CHARS})'"
    rf"|^env: [\'\"‘]?({_NAME_CHARS}?)[\'\"’]?: No such file or directory",
    re.MULTILINE,
)
_NO_NODE_PACKAGE = re.compile(rf"Cannot find (?:module|package) '({_NAME_CHARS})'")
_NO_KEY = re.compile(r"^KeyError: '([A-Z][A-Z0-9_]{2,79})'")
_MOST_MISSING = 5
_MOST_NAMES, _MOST_LOOKED_AT, _LOOKED_SECONDS = 20, 1_000, 0.1  # modules, and entries of a workspace: milliseconds
_MISSED_BY_SHELLS = frozenset({"program", "own-module"})  # a shell script goes on after these


_NOT_FROM_WORK: Final = "In a run with keys, hosts or programs Python imports nothing from the working directory"


@dataclass(frozen=True, slots=True)
class MissingThing:
    """A thing that a script wanted and did not find."""

    # ``module``, ``own-module`` (in the working directory), ``program``, ``node-package`` or ``environment-key``;
    # hosts are :func:`refused_hosts`
    kind: str
    name: str  # what it is called
    skill: str  # whose script wanted it
    folder: Path | None = None  # of the skill, where it is known

    def for_model(self) -> str:
        """A sentence that says what is missing and what to do."""
        if self.kind == "own-module":
            return (
                f"{_NOT_FROM_WORK}, so '{self.name}' was not found: the skill has to bring it, or its script to add "
                "the folder to PYTHONPATH. Do it another way, or tell the user."
            )
        what = {
            "module": f"The Python module '{self.name}' is not installed here",
            "program": f"The program '{self.name}' is not on this machine, so what depends on it was not done",
            "node-package": f"The Node package '{self.name}' is not installed here",
            "environment-key": f"The environment variable {self.name} is not granted to this script",
        }[self.kind]
        return f"{what}: do it another way, or tell the user that the owner has to add it."

    def for_owner(self) -> str:
        """A sentence that names what is missing and the command or grant that supplies it."""
        if self.kind == "own-module":
            return (
                f"Skill '{self.skill}' imports the module {self.name} from the working directory. {_NOT_FROM_WORK}: "
                "put the module into the skill, or let the skill's script add its folder to PYTHONPATH or sys.path."
            )
        prepare = f"adk-skills prepare {typed_path(self.folder) if self.folder is not None else self.skill}"
        fix = {
            "module": prepare,
            "program": "install it where the agent runs, or where it is elsewhere, grant it: "
            f'grants={{"{self.skill}": Grant(programs=[...])}}',
            "node-package": prepare,
            "environment-key": f'grants={{"{self.skill}": Grant(env={{"{self.name}": Secret(...)}})}}',
        }[self.kind]
        return f"Skill '{self.skill}' needs the {self.kind.replace('-', ' ')} {self.name}: {fix}."


def missing_things(
    plan: ScriptPlan, result: ExecutionResult, exception: ScriptException | None = None
) -> tuple[MissingThing, ...]:
    """The things that a finished script did not find, each once."""
    text = _text(result.stderr[-4 * _LAST_CHARS :])
    found: dict[tuple[str, str], None] = {}
    own = _modules_of_work(plan, result, f"{text}\n{_text(result.stdout[-_LAST_CHARS:])}")
    for match in _NO_MODULE.finditer(text):
        name = match[1].partition(".")[0]
        if name not in own and not _is_importable(name, plan):
            found["module", name] = None
    found |= {("own-module", name): None for name in own}
    for match in _NO_NODE_PACKAGE.finditer(text):
        if not match[1].startswith(("/", ".")):
            found["node-package", match[1]] = None
    for match in _NO_PROGRAM.finditer(text):
        name = match[1] or match[2] or match[3]
        if match[2] and "subprocess.py" not in text:
            continue  # a file of the script's own
        if "/" not in name and not _is_on_this_machine(name, plan):
            found["program", name] = None
    if exception is not None and "environ" in exception.source and (key := _NO_KEY.match(exception.text)):
        found["environment-key", key[1]] = None
    return tuple(MissingThing(kind, name, plan.skill_name, plan.folder) for kind, name in list(found)[:_MOST_MISSING])


def _modules_of_work(plan: ScriptPlan, result: ExecutionResult, text: str) -> list[str]:
    """The modules of the working directory that a program did not find because it takes none from there (row 372)."""
    if "PYTHONSAFEPATH" not in plan.request.env:
        return []
    said = dict.fromkeys(match[1].partition(".")[0] for match in _NO_OWN_MODULE.finditer(text))
    names = {name for name in list(said)[:_MOST_NAMES] if not _is_importable(name, plan)}
    if not names:
        return []
    there = {part.removesuffix(".py") for file in result.files for part in file.path.split("/")}
    if not names <= there and plan.request.workspace is not None:
        there |= _names_in(plan.request.workspace)
    return sorted(names & there)


def _names_in(folder: Path) -> set[str]:
    """What the first entries of a workspace are called, without ``.py``; no link is followed."""
    from adk_skills_agent.sandbox import Walk

    try:
        top = os.open(folder, os.O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    except OSError:
        return set()
    try:
        with contextlib.closing(Walk(_MOST_LOOKED_AT, max_seconds=_LOOKED_SECONDS).entries(top)) as entries:
            return {entry.name.removesuffix(".py") for entry in entries}
    finally:
        os.close(top)


def _is_on_this_machine(program: str, plan: ScriptPlan) -> bool:
    from adk_skills_agent.sandbox import Secret, search_path

    request = plan.request
    given = request.env.get("PATH", request.policy.env.get("PATH"))
    path = given.reveal() if isinstance(given, Secret) else given or search_path(request.policy.python)
    return shutil.which(program, path=path) is not None


def _is_importable(module: str, plan: ScriptPlan) -> bool:
    """Whether the Python of the run has a module, where that is known without starting it."""
    if plan.request.policy.python not in {None, sys.executable}:
        return False
    from adk_skills_agent.packages.needs import is_importable

    return is_importable(module)
