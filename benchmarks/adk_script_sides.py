"""google-adk's side of the measurements of scripts: its SkillToolset with its UnsafeLocalCodeExecutor.

Options: ``skills`` (folder), ``skill``, ``script``.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from answering import Sample, answer
from tool_calls import all_at_once, peak_growth, tool_contexts

PARALLEL = 32


async def _tool(options: dict[str, object]) -> Any:
    from google.adk.code_executors import UnsafeLocalCodeExecutor
    from google.adk.skills import load_skill_from_dir
    from google.adk.tools.skill_toolset import SkillToolset

    skill = load_skill_from_dir(Path(str(options["skills"])) / str(options["skill"]))
    toolset = SkillToolset(skills=[skill], code_executor=UnsafeLocalCodeExecutor())
    return next(tool for tool in await toolset.get_tools() if tool.name == "run_skill_script")


def _args(options: dict[str, object]) -> dict[str, object]:
    return {"skill_name": options["skill"], "file_path": options["script"]}


async def through_the_tool(options: dict[str, object]) -> Sample:
    """A call of ``run_skill_script``."""
    tool = await _tool(options)
    (context,) = await tool_contexts()

    async def sample() -> dict[str, object]:
        start = time.perf_counter()
        said = await tool.run_async(args=_args(options), tool_context=context)
        seconds = time.perf_counter() - start
        assert said.get("stdout") == "hello\n", said
        return {"seconds": seconds}

    return sample


async def at_once(options: dict[str, object]) -> Sample:
    """32 calls in 32 sessions at the same time."""
    tool = await _tool(options)
    contexts = await tool_contexts(PARALLEL)

    async def call(context: object) -> None:
        said = await tool.run_async(args=_args(options), tool_context=context)
        assert said.get("stdout") == "hello\n", said

    async def sample() -> dict[str, object]:
        return await all_at_once([lambda context=context: call(context) for context in contexts])

    return sample


async def flood(options: dict[str, object]) -> Sample:
    """``bytes`` on stdout: what the agent's memory grows by."""
    tool = await _tool(options)
    (context,) = await tool_contexts()

    async def call(count: int) -> None:
        args = {"skill_name": options["skill"], "file_path": "scripts/flood.sh", "args": [str(count)]}
        await tool.run_async(args=args, tool_context=context)

    await call(1000)

    async def sample() -> dict[str, object]:
        start = time.perf_counter()
        grown = await peak_growth(lambda: call(int(str(options["bytes"]))))
        return {"grown": grown, "seconds": time.perf_counter() - start}

    return sample


if __name__ == "__main__":
    answer({"adk-tool": through_the_tool, "adk-parallel": at_once, "adk-flood": flood})
