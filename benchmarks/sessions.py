"""Many sessions on one toolset at once: ``python benchmarks/sessions.py [--sessions N] [--rounds N]`` prints a table.

Every session runs one script in our sandbox, with a workspace of its own; serial runs of the same kind, alternating
with the burst, say what the machine can do. Cold means that the toolset is new in every round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

SCRIPT = """
import pathlib, sys
pathlib.Path(sys.argv[1]).touch()
print(sorted(path.name for path in pathlib.Path('.').glob('mine-*')))
"""
WANTED_SHARE = 0.7


def _resident_mb() -> float:
    import psutil

    return float(psutil.Process().memory_info().rss) / (1 << 20)


async def _contexts(service: Any, agent: Any, count: int, round_: int) -> list[Any]:
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.tools.tool_context import ToolContext

    found = []
    for number in range(count):
        session = await service.create_session(app_name="bench", user_id=f"u{number}", session_id=f"s{round_}-{number}")
        invocation = InvocationContext(
            session_service=service, invocation_id=f"i{round_}-{number}", agent=agent, session=session
        )
        found.append(ToolContext(invocation, function_call_id=f"c{number}"))
    return found


async def _one(tool: Any, context: Any) -> float:
    mine = f"mine-{context.session.id}"
    began = time.perf_counter()
    result = await tool.run_async(
        args={"skill_name": "worker", "file_path": "run.py", "args": [mine]}, tool_context=context
    )
    seconds = time.perf_counter() - began
    assert result["stdout"] == f"['{mine}']\n", result  # no file of another session
    return seconds


async def measure(sessions: int, rounds: int, folder: Path) -> dict[str, float]:
    """Serial runs and bursts in turn."""
    from google.adk.agents import LlmAgent
    from google.adk.sessions import InMemorySessionService

    from adk_skills_agent.adk.skill_toolset import SkillToolset

    service, agent = InMemorySessionService(), LlmAgent(name="bench", model="none")
    serial: list[float] = []
    shares: list[float] = []
    latencies: list[float] = []
    memory: list[float] = []
    cores = len(os.sched_getaffinity(0))
    for number in range(rounds):
        toolset = SkillToolset.from_dirs([folder])
        tool = next(tool for tool in await toolset.get_tools() if tool.name == "run_skill_script")
        alone = [await _one(tool, context) for context in await _contexts(service, agent, 20, 2 * number)]
        serial.append(statistics.median(alone))
        contexts = await _contexts(service, agent, sessions, 2 * number + 1)
        began = time.perf_counter()
        latencies += await asyncio.gather(*(_one(tool, context) for context in contexts))
        burst = time.perf_counter() - began
        shares.append((sessions / burst) / (cores / serial[-1]))
        await toolset.close()
        memory.append(_resident_mb())
    return {
        "sessions": sessions,
        "cores": cores,
        "serial_ms": statistics.median(serial) * 1000,
        "share_of_serial_x_cores": statistics.median(shares),
        "p50_ms": statistics.median(latencies) * 1000,
        "p99_ms": sorted(latencies)[int(len(latencies) * 0.99) - 1] * 1000,
        "memory_first_mb": memory[0],
        "memory_last_mb": memory[-1],
    }


def main() -> int:
    """Print the figures; 1 when the throughput is below the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        scripts = Path(name) / "worker" / "scripts"
        scripts.mkdir(parents=True)
        (scripts / "run.py").write_text(SCRIPT)
        (scripts.parent / "SKILL.md").write_text(
            "---\nname: worker\ndescription: Works. Use it here.\n---\n\n# Worker\n"
        )
        figures = asyncio.run(measure(given.sessions, given.rounds, Path(name)))
    held = figures["share_of_serial_x_cores"] >= WANTED_SHARE
    if given.json:
        print(json.dumps(figures | {"held": held}))
    else:
        for key, value in figures.items():
            print(f"{key:26} {value:10.2f}")
        print(f"{'bar':26} {'>= 0.70':>10} {'held' if held else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
