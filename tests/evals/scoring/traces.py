"""Short ways to write traces, and strategies that draw them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from adk_skills_agent.evals.trace import OutputFile, ToolCall, Trace, Turn, Usage

Written = str | tuple[str, dict[str, Any]]


def turn(*calls: Written, says: str = "", user: str = "") -> Turn:
    made = [ToolCall(one) if isinstance(one, str) else ToolCall(one[0], one[1]) for one in calls]
    return Turn(user, tuple(made), says)


def trace(*turns: Turn) -> Trace:
    return Trace(turns)


names = st.sampled_from(["list_skills", "load_skill", "run_skill_script", "search_skills", "get_table_info"])
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
arguments = st.dictionaries(
    st.sampled_from(["skill_name", "file_path", "dataset_id", "table_id", "query", "args"]), json_values, max_size=4
)
tool_calls = st.builds(
    ToolCall,
    names,
    arguments,
    st.none() | st.dictionaries(st.text(max_size=5), json_values, max_size=2),
    st.text(max_size=4),
)
usages = st.builds(Usage, *[st.integers(0, 9999)] * 4)
turns = st.builds(
    Turn,
    st.text(max_size=10),
    st.lists(tool_calls, max_size=5).map(tuple),
    st.text(max_size=20),
    st.none() | usages,
    st.none() | st.floats(0, 100),
    st.text(max_size=5),
)
output_files = st.dictionaries(
    st.text(max_size=5),
    st.builds(OutputFile, st.integers(0, 99)) | st.binary(max_size=20).map(OutputFile.of),
    max_size=3,
)
traces = st.builds(
    Trace, st.lists(turns, max_size=4).map(tuple), output_files, st.lists(st.text(max_size=5), max_size=2).map(tuple)
)
