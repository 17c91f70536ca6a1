"""Many scripts at once, and one that writes without end."""

from __future__ import annotations

from accounts import this_user
from script_rows import adk_side, our_side
from script_skills import FLOOD_BYTES, SLEEP_SECONDS
from subjects import Effort, in_turns
from table import Row, duration, memory_row, say, share_of

_PARALLEL = 32
_PARALLEL_BARS = {".py": 4.0, ".sh": 2.5}
_MIB = 1 << 20
_ADK_PART = 20
"""google-adk keeps all output several times over; it gets one part in so many, to stay below 2 GB of memory."""


def parallel_rows(effort: Effort) -> list[Row]:
    """32 scripts that sleep 0.2 s at the same time; what an unrelated ``asyncio.to_thread`` waits meanwhile."""
    rows: list[Row] = []
    with this_user() as account:
        for suffix in (".py", ".sh"):
            say(f"{_PARALLEL} parallel runs of a {SLEEP_SECONDS} s sleep ({suffix})")
            script = f"scripts/sleep{suffix}"
            with (
                our_side(account, "our-parallel", "trivial", suffix, script=script) as our,
                adk_side(account, "adk-parallel", "trivial", suffix, script=script) as adk,
            ):
                ours, theirs = in_turns(our, adk, effort=Effort(max(3, effort.rounds // 8), effort.quantile), warm_up=1)
            what = f"{_PARALLEL} parallel {suffix} of {SLEEP_SECONDS} s, all of them"
            rows.append(share_of(what, ours.typical(), SLEEP_SECONDS, _PARALLEL_BARS[suffix], against="ideal"))
            rows.append(share_of(what, ours.typical(), theirs.typical(), None))
            waits = (ours.typical("wait"), theirs.typical("wait"))
            what = f"{_PARALLEL} parallel {suffix}, longest wait of an unrelated asyncio.to_thread"
            rows.append(share_of(what, *waits, None))
    return rows


def flood_rows(effort: Effort) -> list[Row]:
    """1 GB on stdout: memory of the agent, and how the run ends."""
    del effort  # one run says it
    say("1 GB on stdout")
    with (
        this_user() as account,
        our_side(account, "our-flood", "trivial", ".sh", bytes=FLOOD_BYTES, tool=False) as our,
        our_side(account, "our-flood", "trivial", ".sh", bytes=FLOOD_BYTES, tool=True) as our_tool,
        adk_side(account, "adk-flood", "trivial", ".sh", bytes=FLOOD_BYTES // _ADK_PART) as adk,
    ):
        alone, tool, theirs = our.sample(), our_tool.sample(), adk.sample()
    grown, grown_tool, others = (float(str(side["grown"])) / _MIB for side in (alone, tool, theirs))
    part = f"google-adk got {FLOOD_BYTES // _ADK_PART // 1_000_000} MB, one part in {_ADK_PART}, to stay below 2 GB"
    kept = "the artifact with what was written until the run was stopped is part of it (InMemoryArtifactService)"
    status = str(alone["status"])
    return [
        memory_row("1 GB on stdout, memory of the agent", grown, others, 10, note=part),
        memory_row("1 GB on stdout, memory of the agent, through the tool", grown_tool, others, None, note=kept),
        Row(
            "1 GB on stdout, how the run ends",
            f"{status} after {duration(float(str(alone['seconds'])))}",
            "no limit",
            "",
            "output_limit",
            status == "output_limit",
        ),
    ]
