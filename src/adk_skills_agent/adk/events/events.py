"""The typed events of skills, for the owner: handed to every listener, with secrets removed (S4-25).

One listener is always there: spans and metrics through OpenTelemetry's API. google-adk opens a span
``execute_tool <name>`` around each tool call. What a skill adds to it goes onto that span, in the names of the GenAI
conventions, and each script run is a span of its own below it. Without a provider nothing of this costs anything. No
user, session or path of the host is in a metric.
"""

from __future__ import annotations

import asyncio
import codecs
import functools
import hashlib
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from adk_skills_agent.sandbox import MIN_SECRET_CHARS

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from opentelemetry.util.types import AttributeValue

    from adk_skills_agent.sandbox import SecretForms

logger = logging.getLogger(__name__)

MAX_NAMES = 100
"""Names one ``SkillDiscovered`` lists; ``count`` has the whole number."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The place where something happened. Unknown fields are empty."""

    app: str = ""  # the application's name
    user: str = ""  # the user's id
    session: str = ""  # the session's id
    invocation: str = ""  # the id of the invocation: one question of the user and what it led to
    agent: str = ""  # the agent's name
    call: str = ""  # the id of the tool call


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillEvent:
    """The fields of every event.

    Attributes:
        origin: Where it happened.
        skill: The skill's name, or empty.
        time: Seconds since 1970 (UTC).
    """

    origin: Origin = field(default_factory=Origin)
    skill: str = ""
    time: float = field(default_factory=time.time)

    def to_dict(self) -> dict[str, Any]:
        """The event as one flat JSON object; ``time`` in ISO 8601, UTC, with milliseconds."""
        record: dict[str, Any] = {
            "time": datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": type(self).__name__,
        }
        for own in fields(self):
            if own.name not in {"origin", "time"}:
                value = getattr(self, own.name)
                record[own.name] = list(value) if isinstance(value, tuple) else value
        record |= {own.name: getattr(self.origin, own.name) for own in fields(self.origin)}
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDiscovered(SkillEvent):
    """An agent was told of skills.

    Attributes:
        how: ``list`` (it asked for the list), ``search``, or ``catalogue`` (the list of every request changed).
        skills: Their names, at most 100.
        count: How many there were.
        query: What was searched for.
    """

    how: str
    skills: tuple[str, ...] = ()
    count: int = 0
    query: str = ""

    @classmethod
    def of(cls, origin: Origin, how: str, names: Iterable[str], query: str = "") -> SkillDiscovered:
        """The event for a list of any length."""
        found = tuple(names)
        return cls(origin=origin, how=how, skills=found[:MAX_NAMES], count=len(found), query=query)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillActivated(SkillEvent):
    """A skill's instructions came into force, or could not.

    Attributes:
        version: The sha256 of everything it can tell or run.
        tokens: Estimated tokens of its instructions.
        how: ``tool`` (the model called for it) or ``user`` (``$name`` in a message).
        again: Whether it was active already.
        error_code: Why it could not be activated, or empty.
    """

    version: str = ""
    tokens: int = 0
    how: str = "tool"
    again: bool = False
    error_code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDropped(SkillEvent):
    """A skill is no longer active.

    Attributes:
        reason: ``unloaded``, ``budget``, ``bounded``, ``expired`` or ``gone``.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRead(SkillEvent):
    """A file of a skill was read, or could not be.

    Attributes:
        path: Relative to the skill.
        bytes: How many the model got.
        error_code: Why it was not read, or empty.
        seconds: How long it took.
    """

    path: str
    bytes: int = 0
    error_code: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStarted(SkillEvent):
    """A script is about to run.

    Attributes:
        script: Relative to the skill.
        version: The skill's version.
        run: The id that the matching ``ScriptFinished`` has.
        executor: ``sandbox``, or the class of the foreign executor or environment.
    """

    script: str
    version: str = ""
    run: str = ""
    executor: str = "sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFinished(SkillEvent):
    """A script ended, or could not be started.

    Attributes:
        script: Relative to the skill.
        run: The id of the ``ScriptStarted``; empty when it was never started.
        status: ``success``, ``warning`` or ``error``.
        reason: Why it failed: ``timeout``, ``exit_code``, ``out_of_memory``...; empty otherwise.
        error_code: The code the model got, or empty.
        exit_code: The exit code, minus the signal's number when one ended it; None when there is none.
        seconds: Wall time.
        stdout_bytes: Of its output, all.
        stderr_bytes: Of its messages, all.
        files: How many files it left.
        level: The isolation level it ran at, or empty.
        executor: As :class:`ScriptStarted`.
    """

    script: str
    run: str = ""
    status: str = "success"
    reason: str = ""
    error_code: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    files: int = 0
    level: str = ""
    executor: str = "sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandStarted(SkillEvent):
    """A shell command is about to run; ``skill`` names the skill whose variables it gets, or is empty.

    Attributes:
        command: The command.
        run: The id that the matching ``CommandFinished`` has.
        job: The background job's id, or empty.
        executor: ``sandbox``, or the class of the foreign environment.
    """

    command: str
    run: str = ""
    job: str = ""
    executor: str = "sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFinished(SkillEvent):
    """A shell command ended, or could not be started.

    Attributes:
        command: The command.
        run: The id of the ``CommandStarted``.
        job: The background job's id, or empty.
        status: ``ok`` or ``error``.
        reason: Why it failed: ``timeout``, ``out_of_memory``, ``not_started``...; empty otherwise, a code above 0
            included.
        error_code: The code the model got, or empty.
        exit_code: The exit code, minus the signal's number when one ended it; None when there is none.
        seconds: Wall time.
        stdout_bytes: Of its output, all.
        stderr_bytes: Of its messages, all.
        files: How many files it left.
        level: The isolation level it ran at, or empty.
        executor: As :class:`CommandStarted`.
    """

    command: str
    run: str = ""
    job: str = ""
    status: str = "ok"
    reason: str = ""
    error_code: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    files: int = 0
    level: str = ""
    executor: str = "sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOutput(SkillEvent):
    """The output of a running script, a few times a second; only for listeners with ``output = True``.

    Attributes:
        script: Relative to the skill.
        run: The id of the ``ScriptStarted``.
        stream: ``stdout`` or ``stderr``.
        text: What came since the last one, at most 2,000 characters.
        last: Whether no more of this stream is told: it is longer than 64 KiB.
    """

    script: str
    run: str = ""
    stream: str = "stdout"
    text: str = ""
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReceived(SkillEvent):
    """A file of the user was put into the session's workspace, or could not be.

    Attributes:
        path: Where it is in the workspace.
        bytes: Its size.
        source: ``message`` or ``artifact``.
        problem: Why it was not copied, or empty.
    """

    path: str
    bytes: int = 0
    source: str = "message"
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceStored(SkillEvent):
    """The files of a session were fetched from its ``workspace_store`` or saved there, or could not be.

    Attributes:
        action: ``fetched``, ``saved``, ``not_saved``, ``lost`` (another server took the session over), ``withheld`` (a
            file holds a secret), ``busy`` (another server works on the session), ``unavailable`` or ``damaged``.
        files: How many files were moved.
        bytes: Their size.
        seconds: How long it took.
        problem: What is wrong and what to do, or empty.
    """

    action: str
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRefused(SkillEvent):
    """A script tried to connect to a host that it may not reach.

    Attributes:
        script: Relative to the skill.
        run: The id that the matching ``ScriptFinished`` has.
        host: As a grant would name it, such as ``api.example.org`` or ``db.example.org:5432``.
        verdict: ``not_granted``, ``ask`` (the user is asked before the next run), ``rejected`` (the user said no) or
            ``denied`` (by a rule).
        seen: ``proxy``, or ``output`` where only the script's own words name the host.
    """

    script: str
    run: str = ""
    host: str = ""
    verdict: str = "not_granted"
    seen: str = "proxy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested(SkillEvent):
    """The user was asked.

    Attributes:
        action: ``activate``, ``read``, ``run``, ``tool`` or ``packages``.
        target: The script or tool, the packages with their versions, or empty.
        version: The version the question is about; the digest of the lock of packages.
        subjects: What an approval would cover: ``skill``, ``script:<path>``, ``tool:<name>``, ``host:<name>``.
        rule: The rule that made it a question, in the words of the policy; empty for a default.
        reason: Why it is asked.
    """

    action: str
    target: str = ""
    version: str = ""
    subjects: tuple[str, ...] = ()
    rule: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided(SkillEvent):
    """An action was approved, rejected or denied, or an approval ended.

    Attributes:
        decision: ``approved``, ``rejected`` (by the user), ``denied`` (by a rule) or ``revoked`` (its bytes changed).
        by: ``user``, ``rule``, ``owner`` or ``change``.
        kept: How long an approval holds: ``once``, ``session`` or ``owner``; empty otherwise.
        action: As :class:`ApprovalRequested`.
        target: As :class:`ApprovalRequested`.
        version: The version it is about.
        subjects: As :class:`ApprovalRequested`.
        rule: As :class:`ApprovalRequested`.
        reason: Why.
    """

    decision: str
    by: str
    kept: str = ""
    action: str
    target: str = ""
    version: str = ""
    subjects: tuple[str, ...] = ()
    rule: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardTripped(SkillEvent):
    """The retry guard counted a failed call; ``skill`` is the skill that the call named, or empty.

    Attributes:
        kind: ``script``, ``resource``, ``skill``, ``registry``, ``executor``, ``run``, ``repeat`` or ``denied``.
        error_code: The code the model got.
        count: How many misses of this kind the invocation has had.
        fatal: Whether the tool refuses from now on.
        target: What was asked for.
    """

    kind: str
    error_code: str = ""
    count: int = 1
    fatal: bool = False
    target: str = ""


Listener = Callable[[Any], object]
"""Gets every event; may be ``async``."""


def origin_of(context: ReadonlyContext | None) -> Origin:
    """The place where a tool call happens."""
    if context is None:
        return Origin()
    session = getattr(context, "session", None)
    return Origin(
        app=_text(getattr(session, "app_name", "")),
        user=_text(getattr(session, "user_id", "")),
        session=_text(getattr(session, "id", "")),
        invocation=_text(getattr(context, "invocation_id", "")),
        agent=_text(getattr(context, "agent_name", "")),
        call=_text(getattr(context, "function_call_id", "")),
    )


class Events:
    """Hands each event to every listener. What a listener does wrong is logged and stops nobody.

    A plain function is called at once, on the thread of the tool, so it must be quick; a coroutine function runs as a
    task of the event loop. A listener with a ``close`` method is closed with the toolset. ``secrets`` are the owner's,
    which no event tells.
    """

    def __init__(self, listeners: Sequence[Listener] = (), secrets: SecretForms | None = None) -> None:
        self._listeners = tuple(listeners)
        self._redaction = EventRedaction(secrets)
        self._tasks: set[asyncio.Future[Any]] = set()
        self._with_output = tuple(one for one in self._listeners if getattr(one, "output", False) is True)

    @property
    def output_heard(self) -> bool:
        """Whether a listener wants what scripts print while they run; such a one says ``output = True``."""
        return bool(self._with_output)

    @property
    def heard(self) -> bool:
        """Whether a listener takes details now that cost something to find out; one may say ``idle = True``."""
        return any(getattr(listener, "idle", False) is not True for listener in self._listeners)

    def redacted(self, text: str, most: int) -> str:
        """The first so many characters of a text without the owner's secrets."""
        return self._redaction.beginning(text, most)[0]

    def emit(self, event: SkillEvent) -> None:
        """Tell everybody. Never raises and never waits."""
        if not self._listeners:
            return
        try:
            event = self._redaction.cleaned(event)
        except Exception:  # a secret may be in it, so it must not go on
            logger.exception("an event of type %s was lost: its secrets could not be taken out", type(event).__name__)
            return
        for listener in self._with_output if isinstance(event, ScriptOutput) else self._listeners:
            try:
                answer = listener(event)
                if answer is not None and inspect.isawaitable(answer):
                    self._start(answer)
            except Exception:  # the agent's work is worth more than its log
                logger.exception("a listener failed on %s", type(event).__name__)

    async def close(self) -> None:
        """Wait for asynchronous listeners, then close what can be closed."""
        loop = asyncio.get_running_loop()
        waiting = [task for task in self._tasks if task.get_loop() is loop]
        if waiting:
            await asyncio.gather(*waiting, return_exceptions=True)
        for listener in self._listeners:
            close = getattr(listener, "close", None)
            if callable(close) and not inspect.iscoroutinefunction(close):
                await asyncio.to_thread(close)

    def _start(self, answer: Any) -> None:
        try:
            task = asyncio.ensure_future(answer)
        except RuntimeError:  # emitted from a thread: there is no loop to run it on
            if inspect.iscoroutine(answer):
                answer.close()
            logger.error("an asynchronous listener was not called: the event did not happen on an event loop")  # noqa: TRY400 - nothing to trace
            return
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a listener failed", exc_info=error)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# What a script prints, as events: gathered, so that a flood of small writes is a few events a second.

OUTPUT_SECONDS = 0.25
"""Between two events of one run."""
MAX_OUTPUT_CHARS = 64 << 10
"""Of one stream of one run."""


class OutputEvents:
    """Gathers what one run prints; every method is called on the event loop."""

    def __init__(self, events: Events, about: ScriptOutput) -> None:
        self._events = events
        self._about = about
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {stream: decoder("replace") for stream in ("stdout", "stderr")}
        self._waiting: dict[str, str] = {}
        self._told = dict.fromkeys(self._decoders, 0)
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, stream: str, chunk: bytes) -> None:
        """Take a piece of output; for ``ExecutionRequest.on_output``."""
        if self._told[stream] >= MAX_OUTPUT_CHARS:
            return
        self._waiting[stream] = self._waiting.get(stream, "") + self._decoders[stream].decode(chunk)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(OUTPUT_SECONDS, self.flush)

    def flush(self) -> None:
        """Tell what waits; at the end of the run, too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for stream, text in waiting.items():
            room = MAX_OUTPUT_CHARS - self._told[stream]
            self._told[stream] += len(text)
            shown = self._events.redacted(text, room)
            for start in range(0, len(shown), MAX_TEXT_CHARS):
                piece = shown[start : start + MAX_TEXT_CHARS]
                last = start + len(piece) >= room
                self._events.emit(replace(self._about, stream=stream, text=piece, last=last, time=time.time()))


# An event as listeners may see it: no secret in any of its texts, and none of any length.

MAX_TEXT_CHARS = 2_000
"""Of any text in an event: a path or a query may come from a model and be of any length."""
MAX_ID_CHARS = 1_000
"""Of an id of a user or session; a longer one is told by its SHA-256."""
_REMEMBERED = 512
_NAME_CHARS = 200


class EventRedaction:
    """Makes events that may be told. It happens on the event loop, so no text is gone through in full (row 347)."""

    def __init__(self, secrets: SecretForms | None) -> None:
        self._secrets = secrets
        # the names of sessions, skills and agents come again with every event
        self._redact_name = functools.lru_cache(maxsize=_REMEMBERED)(secrets.text) if secrets is not None else None

    def cleaned(self, event: SkillEvent) -> SkillEvent:
        """The event, or another one when something in it must not be told."""
        changes = _changes(event, self._clean)
        if of_origin := _changes(event.origin, self._clean_id):
            changes["origin"] = replace(event.origin, **of_origin)
        return replace(event, **changes) if changes else event

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            text, more = self.beginning(value, MAX_TEXT_CHARS)
            return f"{text}…" if more else text
        if isinstance(value, tuple) and value:
            return tuple(self._clean(item) for item in value)
        return value

    def _clean_id(self, value: str) -> str:
        """An id: a client may choose that of its session, of any length."""
        return _digest(value) if len(value) > MAX_ID_CHARS else self.beginning(value, MAX_ID_CHARS)[0]

    def beginning(self, text: str, most: int) -> tuple[str, bool]:
        """The first so many characters of a text with the names of secrets in their places; whether there are more."""
        if self._secrets is None or self._redact_name is None or len(text) < MIN_SECRET_CHARS:
            return text[:most], len(text) > most
        if len(text) > _NAME_CHARS:
            return self._secrets.beginning(text, most)
        clean = self._redact_name(text)
        return clean[:most], len(clean) > most


def _changes(record: SkillEvent | Origin, clean: Callable[[Any], Any]) -> dict[str, Any]:
    """The texts of a record that must not be as they are."""
    cleaned = {own.name: clean(getattr(record, own.name)) for own in fields(record)}
    return {name: value for name, value in cleaned.items() if value is not getattr(record, name)}


@functools.lru_cache(maxsize=4)  # each may have megabytes
def _digest(text: str) -> str:
    """A long id, so that two of them are not taken for the same."""
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


SCOPE = "adk_skills_agent"
_SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
"""google-adk's bounds for tool durations, so that both can be put side by side."""
_TOKENS = [64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384]


class Telemetry:
    """A listener that records every event.

    A provider that is None is the global one.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._activations = meter.create_counter("skill.activations", "{activation}", "Skills activated.")
        self._tokens = meter.create_histogram(
            "skill.instructions.tokens",
            "{token}",
            "Estimated tokens of the instructions of an activated skill.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._drops = meter.create_counter("skill.drops", "{drop}", "Skills released, by reason.")
        self._searches = meter.create_counter("skill.discoveries", "{discovery}", "Lists and searches of skills.")
        self._reads = meter.create_counter("skill.resource.reads", "{read}", "Files of skills that were read.")
        self._runs = meter.create_counter("skill.script.runs", "{run}", "Scripts of skills that were run.")
        self._seconds = meter.create_histogram(
            "skill.script.duration",
            "s",
            "Wall time of scripts.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._commands = meter.create_counter("skill.shell.commands", "{command}", "Commands that agents ran.")
        self._hosts = meter.create_counter("skill.hosts.refused", "{host}", "Hosts that scripts might not reach.")
        self._approvals = meter.create_counter("skill.approvals", "{decision}", "Questions to the user, and decisions.")
        self._stored = meter.create_counter("skill.workspace.stored", "{action}", "Files of sessions moved, by action.")
        self._guard = meter.create_counter("skill.guard.trips", "{miss}", "Calls that missed, by kind.")

    @property
    def idle(self) -> bool:
        """Whether no span is recorded here: metrics carry no version."""
        return not trace.get_current_span().is_recording()

    def __call__(self, event: SkillEvent) -> None:
        """Record one event on the current span and in the metrics."""
        names = _common(event)
        match event:
            case SkillActivated():
                # An unknown name is the model's invention: it would give each metric a series of its own.
                counted = names if not event.error_code else _without_skill(names) | _error(event.error_code)
                self._activations.add(1, counted | {"skill.activation.how": event.how})
                if not event.error_code:
                    self._tokens.record(event.tokens, names)
                _on_current_span(event, {"skill.version": event.version, "skill.instructions.tokens": event.tokens})
            case SkillDropped():
                # Its name is from the session's state, which a client may have filled (row 236).
                self._drops.add(1, _without_skill(names) | {"skill.drop.reason": event.reason})
            case SkillDiscovered():
                self._searches.add(1, _without_skill(names) | {"skill.discovery.how": event.how})
                _on_current_span(event, {"skill.discovery.count": event.count})
            case ResourceRead():
                counted = names if not event.error_code else _without_skill(names) | _error(event.error_code)
                self._reads.add(1, counted)
                _on_current_span(event, {"gen_ai.skill.resource.name": event.path, "skill.resource.bytes": event.bytes})
            case ScriptStarted():
                _on_current_span(event, {"gen_ai.skill.resource.name": event.script, "skill.version": event.version})
            case HostRefused():  # no host in a metric: a script may make up any number of names
                self._hosts.add(1, names | {"skill.host.verdict": event.verdict, "skill.host.seen": event.seen})
                _on_current_span(event, {"skill.host.name": event.host, "skill.host.verdict": event.verdict})
            case ScriptFinished():
                self._finished(event, names)
            case CommandFinished():
                failure = _error(event.error_code or event.reason) if event.status == "error" else {}
                self._commands.add(1, names | failure)
                _on_current_span(event, {"skill.shell.seconds": event.seconds, "skill.shell.job": event.job})
            case ApprovalRequested():
                self._approvals.add(1, names | {"skill.approval.decision": "requested"})
                _on_current_span(event, {"skill.approval.decision": "requested", "skill.approval.rule": event.rule})
            case ApprovalDecided():
                self._approvals.add(1, names | {"skill.approval.decision": event.decision})
                _on_current_span(event, {"skill.approval.decision": event.decision, "skill.approval.by": event.by})
            case WorkspaceStored():
                self._stored.add(1, _without_skill(names) | {"skill.workspace.action": event.action})
                _on_current_span(event, {"skill.workspace.action": event.action, "skill.workspace.bytes": event.bytes})
            case GuardTripped():
                attributes: dict[str, AttributeValue] = {
                    "skill.guard.kind": event.kind,
                    "skill.guard.fatal": event.fatal,
                }
                self._guard.add(1, _without_skill(names) | attributes)
                _on_current_span(event, attributes | {"skill.guard.count": event.count})

    def _finished(self, event: ScriptFinished, names: dict[str, AttributeValue]) -> None:
        failure = _error(event.error_code or event.reason) if event.status == "error" else {}
        if not event.run:  # never started: a name that does not exist must not become a series
            self._runs.add(1, _without_skill(names) | {"skill.script.status": event.status} | failure)
            return
        measured = names | {"skill.script.status": event.status} | failure
        if event.level:
            measured["skill.sandbox.level"] = event.level
        self._runs.add(1, measured)
        self._seconds.record(event.seconds, measured)
        end = int(event.time * 1e9)
        span = self._tracer.start_span(
            f"run_skill_script {event.skill} {event.script}",
            kind=SpanKind.INTERNAL,
            start_time=end - int(event.seconds * 1e9),
            attributes=_span_attributes(event)
            | measured
            | {
                "gen_ai.skill.resource.name": event.script,
                "skill.script.run": event.run,
                "skill.script.executor": event.executor,
                "skill.script.stdout_bytes": event.stdout_bytes,
                "skill.script.stderr_bytes": event.stderr_bytes,
                "skill.script.files": event.files,
            }
            | ({"skill.script.reason": event.reason} if event.reason else {})
            | ({"process.exit.code": event.exit_code} if event.exit_code is not None else {}),
        )
        if event.status == "error":
            span.set_status(Status(StatusCode.ERROR, event.reason or event.error_code))
        span.end(end_time=end)


def _common(event: SkillEvent) -> dict[str, AttributeValue]:
    names: dict[str, AttributeValue] = {}
    if event.skill:
        names["gen_ai.skill.name"] = event.skill
    if event.origin.agent:
        names["gen_ai.agent.name"] = event.origin.agent
    return names


def _span_attributes(event: SkillEvent) -> dict[str, AttributeValue]:
    attributes = _common(event)
    if event.origin.session:
        attributes["gen_ai.conversation.id"] = event.origin.session
    if event.origin.call:
        attributes["gen_ai.tool.call.id"] = event.origin.call
    return attributes


def _without_skill(names: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
    return {name: value for name, value in names.items() if name != "gen_ai.skill.name"}


def _error(kind: str) -> dict[str, AttributeValue]:
    return {"error.type": kind or "_OTHER"}


def _on_current_span(event: SkillEvent, attributes: Mapping[str, AttributeValue]) -> None:
    span = trace.get_current_span()
    if span.is_recording():
        code = getattr(event, "error_code", "")
        span.set_attributes(_span_attributes(event) | dict(attributes) | (_error(code) if code else {}))


# What this package logs quotes strangers: names in a session's state, what a model wrote, what a script printed. Most
# handlers write it to a terminal as it is.


class PrintableLines(logging.Handler):
    """Makes a record of the log printable before the handlers of the application see it.

    Control characters become their escapes, so that a terminal obeys none, and a line after the first begins with
    blanks, so that it cannot pose as another record. It is a handler of this package's logger, because records of the
    loggers below it pass its handlers, and not its filters.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Change the record; tell it where the application has set up no logging, as Python would without this."""
        try:
            message = record.getMessage()
            if not message.isprintable():
                record.msg, record.args = _printable(message), ()
            if record.exc_info and not record.exc_text:
                record.exc_text = _printable(_FORMATTER.formatException(record.exc_info))
        except Exception:  # noqa: BLE001 - as every handler
            self.handleError(record)
        heard = logging.root.handlers or [one for one in _PACKAGE.handlers if one is not self]
        last = logging.lastResort
        if not heard and last is not None and record.levelno >= last.level:
            last.handle(record)


def _printable(text: str) -> str:
    if len(text) > _MOST_LOGGED_CHARS:  # the message of an exception may be what a client sent
        half = _MOST_LOGGED_CHARS // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"
    lines = (
        "".join(one if one.isprintable() or one == "\t" else one.encode("unicode_escape").decode() for one in line)
        for line in text.split("\n")
    )
    return "\n    ".join(lines)


_MOST_LOGGED_CHARS = 1 << 16
_FORMATTER = logging.Formatter()
_PACKAGE = logging.getLogger("adk_skills_agent")
_PACKAGE.addHandler(PrintableLines())
