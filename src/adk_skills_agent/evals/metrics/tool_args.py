"""Were the arguments that matter right? Triples of tool, argument and value (S0-145, S0-147)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adk_skills_agent.errors import InvalidArguments
from adk_skills_agent.evals.metrics.score import Score, TurnScore, not_evaluated, of_turns, paired
from adk_skills_agent.evals.trace import ToolCall, Trace
from adk_skills_agent.scripts.plan import script_path

SKILL_KEYS = ("skill_name", "file_path", "name", "skill", "path", "script_path", "script", "reference")
"""What a skill, a file and a script are called by the tools for skills: ours, google-adk's, and older ones."""
BIGQUERY_KEYS = ("project_id", "dataset_id", "table_id")
"""What names a table in google-adk's BigQuery tools; a query is worded differently each time and is not compared."""
DEFAULT_KEYS = (*SKILL_KEYS, *BIGQUERY_KEYS)
_RUNNING = ("run_skill_script", "execute_skill_script", "run_script")
_SCRIPT_KEYS = ("file_path", "script_path", "script")
ANY_TOOL = "*"
"""In a table of keys: the tools that have no line of their own."""

KeyArgs = Sequence[str] | Mapping[str, Sequence[str]]
_SHOWN_CHARS = 80


def score(actual: Trace, expected: Trace | None, *, key_args: KeyArgs = DEFAULT_KEYS, threshold: float = 1.0) -> Score:
    """The share of expected triples (tool, key argument, value) that occur in the calls, turn by turn.

    ``key_args`` names the arguments to compare, for every tool or by tool (``*``: those not named). Values are compared
    as JSON; an argument that the case does not mention is not compared.
    """
    if expected is None:
        return not_evaluated(actual, "The case has no expected calls to compare with.")
    turns = []
    for happened, wanted in paired(actual, expected):
        turns.append(_turn(_triples(happened.calls, key_args), _triples(wanted.calls, key_args)))
    return of_turns(turns, threshold)


def _turn(actual: Counter[tuple[str, str, str]], expected: Counter[tuple[str, str, str]]) -> TurnScore:
    wanted = expected.total()
    if not wanted:
        return TurnScore(None)
    missing = expected - actual
    shown = ", ".join(f"{tool}({key}={_shown(value)})" for tool, key, value in missing.elements())
    return TurnScore((wanted - missing.total()) / wanted, f"Not called with: {shown}." if shown else "")


def _triples(calls: Iterable[ToolCall], key_args: KeyArgs) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for call in calls:
        keys = key_args.get(call.name, key_args.get(ANY_TOOL, ())) if isinstance(key_args, Mapping) else key_args
        found.update(
            (call.name, key, _canonical(_same_script(call.name, key, call.args[key])))
            for key in dict.fromkeys(keys)
            if key in call.args
        )
    return found


def _same_script(tool: str, key: str, value: Any) -> Any:
    """A script's path in full: ``x.py`` and ``scripts/x.py`` are the same file for the tools that run one (S0-9)."""
    if not tool.endswith(_RUNNING) or key not in _SCRIPT_KEYS:
        return value
    try:
        return script_path(value)
    except InvalidArguments:
        return value


def _canonical(value: Any) -> str:
    return json.dumps(_whole(value), sort_keys=True, ensure_ascii=False)


def _whole(value: Any) -> Any:
    """1.0 as 1: JSON knows one kind of number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list | tuple) else value


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
