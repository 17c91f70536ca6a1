"""Prints what the first turn of a fresh process imports of google-adk and of us, while the agent's clock runs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from adk_skills_agent.evals.run import conversation
from adk_skills_agent.testing import GeminiServer
from evals.run.running import LOADS_AND_REPORTS, a_plan, carry_out

_say = conversation._say


async def watched(*arguments: Any) -> None:
    before = set(sys.modules)
    await _say(*arguments)
    new = sorted(name for name in set(sys.modules) - before if name.startswith(("google.adk", "adk_skills_agent")))
    print("imported:", *new)


if __name__ == "__main__":
    conversation._say = watched
    folder = Path(sys.argv[1])
    prepared = a_plan(folder, runs=1, pattern="totals", arms=("with_skill",))
    with GeminiServer(LOADS_AND_REPORTS) as server:
        asyncio.run(carry_out(prepared, server, folder / "out"))
