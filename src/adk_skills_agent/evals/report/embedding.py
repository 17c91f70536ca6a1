"""Trials as data within the page: compressed, in parts that are unpacked when somebody looks, below a size."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.report.run_folder import RunFolder
from adk_skills_agent.evals.run.plan import Key
from adk_skills_agent.evals.run.result import TrialResult
from adk_skills_agent.evals.trace import ToolCall, Trace

BUDGET_BYTES = 4_000_000
"""Of all traces within the page; with figures and charts of 1,000 trials it stays below 5 MB (issue 6)."""
LIMITS = (50_000, 16_000, 6_000, 2_500, 1_000, 400)
"""Characters of one text, tried in this order until the traces fit."""
_PART_CHARACTERS = 300_000
"""JSON of one part: unpacked within milliseconds."""
_LEVEL = 6
"""Of gzip: 9 takes twice as long for one percent."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The data of a page."""

    html: str = field(repr=False)
    clipped: int
    left_out: int  # characters left out by that
    limit: int  # characters of the longest text; 0 when none was shortened
    without_trace: int  # trials whose trace had no room at all

    @property
    def notes(self) -> list[str]:
        """What a reader of the page has to know, one sentence each."""
        said = []
        if self.clipped:
            said.append(
                f"To keep this page small, {self.clipped:,} texts longer than {self.limit:,} characters are shortened "
                f"({self.left_out:,} characters); each place is marked. trials.jsonl has them whole."
            )
        if self.without_trace:
            said.append(
                f"The traces of {self.without_trace:,} trials had no room in this page (failed trials come first); "
                "their figures are here, and trials.jsonl has them whole."
            )
        return said


def embed(runs: Sequence[RunFolder], *, budget: int = BUDGET_BYTES) -> Embedded:
    """Put the trials of the runs into data blocks. Raises ``ConfigError`` when a row has a malformed trace."""
    repeated = RepeatedTexts()
    for run in runs:
        for key, row in run.rows(list(run.results)):
            try:
                repeated.count(texts_of(row))
            except (ValueError, AttributeError, TypeError) as error:
                raise ConfigError(f"{run.path}/trials.jsonl:{run.places[key].line}: {error}") from error
    # What went wrong is what a reader wants to see: should room run out, it runs out for what went well.
    wanted = [(number, key) for number, run in enumerate(runs) for key in run.results]
    wanted.sort(key=lambda one: (one[0], bool(runs[one[0]].results[one[1]].passed)))
    for limit in LIMITS:
        packed = _Packed(runs, TextTable(repeated, limit), budget)
        if packed.fill(wanted, stop=limit != LIMITS[-1]):
            break
    table = packed.texts
    index = (
        _json(_entry(result, number, run.places[key].line, packed.places.get((number, key))))
        for number, run in enumerate(runs)
        for key, result in run.results.items()
    )
    blocks = [("index", _packed(_object("trials", index))), ("shared", _packed([_json(table.shared)]))]
    blocks += [(f"part-{number}", part) for number, part in enumerate(packed.parts)]
    html = "".join(f'<script type="text/plain" id="data-{name}">{data}</script>\n' for name, data in blocks)
    return Embedded(
        html, table.clipped, table.left_out, limit if table.clipped else 0, len(wanted) - len(packed.places)
    )


class _Packed:
    """Traces, packed in parts as long as there is room."""

    def __init__(self, runs: Sequence[RunFolder], texts: TextTable, budget: int) -> None:
        self._runs, self._budget = runs, budget
        self.texts = texts
        self.parts: list[str] = []
        self.places: dict[tuple[int, Key], tuple[int, int]] = {}
        self._size = 0
        self._open: list[str] = []
        self._open_size = 0

    def fill(self, wanted: Sequence[tuple[int, Key]], *, stop: bool) -> bool:
        """Pack these trials.

        ``wanted`` is in order of importance. ``stop`` gives up when they do not fit; else those that do not are left
        out. Returns whether it is done, all of them packed or not.
        """
        for number, run in enumerate(self._runs):
            for key, row in run.rows([key for of, key in wanted if of == number]):
                shown = _json(viewed(row, self.texts.text))
                self.places[number, key] = (len(self.parts), len(self._open))
                self._open.append(shown)
                self._open_size += len(shown)
                if self._open_size >= _PART_CHARACTERS:
                    self._close()
                    if self._size + self.texts.shared_bytes > self._budget:
                        return not stop
        self._close()
        return not stop or self._size + self.texts.shared_bytes <= self._budget

    def _close(self) -> None:
        if self._open:
            part = _packed([f"[{','.join(self._open)}]"])
            self.parts.append(part)
            self._size += len(part)
            self._open, self._open_size = [], 0


def _entry(result: TrialResult, run: int, line: int, place: tuple[int, int] | None) -> list[Any]:
    return [
        run, result.case, result.arm, result.run, result.kind, result.passed, result.score, result.seconds,
        result.usage.total, result.tool_calls, result.error.get("kind"), line, *(place or (-1, -1)),
    ]  # fmt: skip


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _object(name: str, items: Iterable[str]) -> Iterator[str]:
    """A JSON object of one list, in parts: of 100,000 trials the whole is 50 MB before it is compressed."""
    yield f'{{"{name}":['
    for number, item in enumerate(items):
        yield f",{item}" if number else item
    yield "]}"


def _packed(texts: Iterable[str]) -> str:
    data = io.BytesIO()
    with gzip.GzipFile("", "wb", _LEVEL, data, mtime=0) as file:
        file.writelines(text.encode() for text in texts)
    return base64.b64encode(data.getbuffer()).decode("ascii")


# Texts of a page: each kept once however often it occurs, and shortened, visibly, when all would be too much.

Text = str | int | list[str | int]
"""A text as the page's script reads it: the text; its number among the shared texts; or [start, number of characters
left out, end].
"""
SHARED_FROM = 160
"""Characters from which a text is worth a number: skills' instructions come back in every trial."""


class RepeatedTexts:
    """Counts long texts, so that those that occur more than once are written once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._again: set[int] = set()

    def count(self, texts: Iterable[str]) -> None:
        """Take note of these."""
        for digest in (_digest(text) for text in texts if len(text) >= SHARED_FROM):
            (self._again if digest in self._seen else self._seen).add(digest)

    def repeated(self, text: str) -> bool:
        """Whether it occurs more than once."""
        return len(text) >= SHARED_FROM and _digest(text) in self._again


class TextTable:
    """Puts texts into the form of the page."""

    def __init__(self, repeated: RepeatedTexts, limit: int) -> None:
        self._repeated = repeated
        self._numbers: dict[int, int] = {}
        self.limit = limit
        self.shared: list[Text] = []
        self.clipped = 0  # how many texts were shortened (a shared one counts once)
        self.left_out = 0  # characters that are not in the page for it
        self.shared_bytes = 0  # about the size of the shared texts in the page, compressed

    def text(self, text: str) -> Text:
        """The form of one text."""
        if not self._repeated.repeated(text):
            return self._clip(text)
        digest = _digest(text)
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = len(self.shared)
            kept = self._clip(text)
            self.shared.append(kept)
            self.shared_bytes += len(gzip.compress(repr(kept).encode("utf-8", "replace"), 1)) * 4 // 3
        return number

    def _clip(self, text: str) -> Text:
        over = len(text) - self.limit
        if over <= 0:
            return text
        self.clipped += 1
        self.left_out += over
        # Errors and results stand at the end of an output, what it is at its start.
        end = self.limit // 3
        return [text[: self.limit - end], over, text[len(text) - end :]]


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).digest())


# A row of results as the trace viewer shows it: every value a text, in the order of reading.

JsonObject = dict[str, Any]
TextOf = Callable[[str], Text]

_FIRST = ("error", "error_code", "message", "status", "return_code", "timed_out", "stdout", "stderr")
"""Of a tool's answer, what a reader looks for first; the rest follows as it came."""


def viewed(row: Mapping[str, Any], text: TextOf) -> JsonObject:
    """What the viewer shows of a trial. Raises ``ValueError`` when its trace is malformed."""
    trace = Trace.from_json(row.get("trace") or {"turns": []})
    error = row.get("error") or None
    return {
        "source": row.get("source"),
        "started": row.get("started"),
        "available": list(row.get("skills_available") or ()),
        "loaded": list(row.get("skills_loaded") or ()),
        "activated": list(trace.activated),
        "trigger": row.get("expected_trigger"),
        "overhead": row.get("overhead_seconds"),
        "usage": row.get("usage"),
        "cost": row.get("cost_usd"),
        "judgeUsage": row.get("judge_usage"),
        "judgeCost": row.get("judge_cost_usd"),
        "error": None if error is None else {"kind": error.get("kind"), "message": text(str(error.get("message")))},
        "scores": [
            {
                "metric": str(score.get("metric")),
                "value": score.get("value"),
                "passed": score.get("passed"),
                "threshold": score.get("threshold"),
                "outcome": score.get("outcome"),
                "turns": [turn.get("value") for turn in score.get("per_turn") or ()],
                "detail": text(str(score.get("detail") or "")),
            }
            for score in row.get("scores") or ()
        ],
        "verdicts": [
            {
                "turn": verdict.get("turn"),
                "rubric": verdict.get("rubric"),
                "text": text(str(verdict.get("text") or "")),
                "met": verdict.get("met"),
                "agreement": verdict.get("agreement"),
                "samples": verdict.get("samples"),
                "rationale": text(str(verdict.get("rationale") or "")),
            }
            for verdict in row.get("verdicts") or ()
        ],
        "turns": [
            {
                "user": text(turn.user_text),
                "calls": [_call(call, text) for call in turn.calls],
                "final": text(turn.final_text),
                "tokens": None if turn.usage is None else turn.usage.to_json(),
                "seconds": turn.seconds,
                "error": text(turn.error),
            }
            for turn in trace.turns
        ],
        "files": [
            {"name": name, "size": file.size, "text": None if file.content is None else _content(file.content, text)}
            for name, file in trace.output_files.items()
        ],
    }


def texts_of(row: Mapping[str, Any]) -> Iterator[str]:
    """Every text the viewer shows of a trial, for finding those that come back."""
    found: list[str] = []

    def keep(text: str) -> Text:
        found.append(text)
        return text

    viewed(row, keep)
    yield from found


def _call(call: ToolCall, text: TextOf) -> JsonObject:
    response = call.response
    order = [] if response is None else [key for key in _FIRST if key in response]
    return {
        "name": call.name,
        "about": _about(call),
        "failed": call.failed,
        "args": [[key, text(_as_text(value))] for key, value in call.args.items()],
        "response": None
        if response is None
        else [[key, text(_as_text(response[key]))] for key in (*order, *(key for key in response if key not in order))],
    }


def _about(call: ToolCall) -> str:
    file = call.args.get("file_path") or call.args.get("path")
    return " ".join(part[:120] for part in (call.skill, file if isinstance(file, str) else "") if part)


def _content(content: bytes, text: TextOf) -> Text | None:
    try:
        return text(content.decode())
    except UnicodeDecodeError:
        return None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
