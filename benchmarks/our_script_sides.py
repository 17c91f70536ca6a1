"""Our side of the measurements of scripts: through the sandbox alone and through the ``run_script`` tool.

Options: ``skills`` (folder), ``skill``, ``script``, ``level`` (``auto`` or a level's name), ``warm_slots``.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

from answering import Sample, answer
from google.adk.tools.base_tool import BaseTool
from tool_calls import all_at_once, peak_growth, tool_contexts

from adk_skills_agent import (
    ExecutionRequest,
    ExecutionResult,
    IsolationReport,
    Sandbox,
    SandboxPolicy,
    ShellToolset,
    SkillsRegistry,
    create_run_script_tool,
    local_sandbox,
)

PARALLEL = 32
HAS_WARM_SLOTS = "warm_slots" in SandboxPolicy.__dataclass_fields__
_REFILL_SECONDS = 10.0
_PAUSE_SECONDS = 0.25  # in this side's own turn, so that filling slots up disturbs nobody else's sample


class Remembering(Sandbox):
    """The local sandbox; the last result can be asked for."""

    name = "remembering"

    def __init__(self) -> None:
        self._sandbox = local_sandbox()
        self.last: ExecutionResult | None = None

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        self.last = await self._sandbox.run(request)
        return self.last

    async def probe(self) -> IsolationReport:
        return await self._sandbox.probe()

    def warm(self) -> bool:
        """Whether the last run was on a warm slot."""
        return bool(getattr(self.last, "warm", False))


def _policy(options: dict[str, object]) -> SandboxPolicy:
    level = str(options.get("level", "auto"))
    slots = {"warm_slots": options.get("warm_slots", 0)} if HAS_WARM_SLOTS else {}
    return SandboxPolicy(
        isolation=level,
        min_isolation="landlock" if level == "auto" else level,
        **slots,  # type: ignore[arg-type]
    )


def _registry(options: dict[str, object]) -> SkillsRegistry:
    registry = SkillsRegistry()
    registry.discover([Path(str(options["skills"]))])
    return registry


async def sandboxed(options: dict[str, object]) -> Sample:
    """The run alone, as the tool would ask for it."""
    from adk_skills_agent.scripts import RunSettings, plan_script

    skill = _registry(options).view().load_skill(str(options["skill"]))
    request = plan_script(skill, options["script"], settings=RunSettings(_policy(options))).request
    sandbox = local_sandbox()

    async def sample() -> dict[str, object]:
        start = time.perf_counter()
        result = await sandbox.run(request)
        seconds = time.perf_counter() - start
        assert result.stdout == b"hello\n", result
        return {"seconds": seconds, "level": result.isolation.level.value}

    return sample


async def through_the_tool(options: dict[str, object]) -> Sample:
    """A call of ``run_script``; with ``warm_slots`` a sample waits, unmeasured, until a slot may be ready."""
    sandbox = Remembering()
    tool = create_run_script_tool(_registry(options), policy=_policy(options), sandbox=sandbox)
    return await _calls(tool, {"skill": options["skill"], "script": options["script"]}, sandbox, options)


async def through_execute(options: dict[str, object]) -> Sample:
    """A call of ``execute`` that prints what the script prints; see :func:`through_the_tool`."""
    sandbox = Remembering()
    toolset = ShellToolset(policy=_policy(options), sandbox=sandbox)
    (tool,) = [each for each in await toolset.get_tools() if each.name == "execute"]
    return await _calls(tool, {"command": "echo hello"}, sandbox, options)


async def _calls(tool: BaseTool, args: dict[str, object], sandbox: Remembering, options: dict[str, object]) -> Sample:
    (context,) = await tool_contexts()
    wants_warm = bool(options.get("warm_slots"))
    pause = float(str(options.get("pause", _PAUSE_SECONDS)))

    async def once() -> float:
        start = time.perf_counter()
        said = await tool.run_async(args=args, tool_context=context)
        seconds = time.perf_counter() - start
        assert said["stdout"] == "hello\n", said
        return seconds

    async def sample() -> dict[str, object]:
        seconds = await once()
        assert sandbox.last is not None
        found = {"seconds": seconds, "warm": sandbox.warm(), "level": sandbox.last.isolation.level.value}
        if wants_warm and pause:
            await asyncio.sleep(pause)
        return found

    if wants_warm and HAS_WARM_SLOTS:
        deadline = time.monotonic() + _REFILL_SECONDS
        while not (await sample())["warm"] and time.monotonic() < deadline:
            pass
    return sample


async def back_to_back(options: dict[str, object]) -> Sample:
    """``count`` calls of ``run_script``, one right after the other; the median is a sample's time."""
    once = await through_the_tool(options | {"pause": 0.0})

    async def sample() -> dict[str, object]:
        found = [await once() for _ in range(int(str(options["count"])))]
        seconds = [float(str(one["seconds"])) for one in found]
        return {
            "seconds": statistics.median(seconds),
            "mean": statistics.fmean(seconds),
            "warm": sum(bool(one["warm"]) for one in found),
        }

    return sample


async def at_once(options: dict[str, object]) -> Sample:
    """32 calls of ``run_script`` in 32 sessions at the same time."""
    tool = create_run_script_tool(_registry(options), policy=_policy(options))
    contexts = await tool_contexts(PARALLEL)
    args = {"skill": options["skill"], "script": options["script"]}

    async def call(context: object) -> None:
        said = await tool.run_async(args=args, tool_context=context)  # type: ignore[arg-type]
        assert said["stdout"] == "hello\n", said

    async def sample() -> dict[str, object]:
        return await all_at_once([lambda context=context: call(context) for context in contexts])

    return sample


async def flood(options: dict[str, object]) -> Sample:
    """``bytes`` on stdout: what the agent's memory grows by at most, and how the run ends.

    ``tool``: through ``run_script``, which keeps long output as an artifact of the session; else the run alone.
    """
    from adk_skills_agent.scripts import RunSettings, ScriptArguments, plan_script

    sandbox = Remembering()
    registry, policy = _registry(options), _policy(options)
    tool = create_run_script_tool(registry, policy=policy, sandbox=sandbox)
    (context,) = await tool_contexts()
    skill = registry.view().load_skill(str(options["skill"]))

    async def call(count: object) -> None:
        arguments = [str(count)]
        if options["tool"]:
            args = {"skill": skill.name, "script": "scripts/flood.sh", "args": arguments}
            await tool.run_async(args=args, tool_context=context)  # type: ignore[arg-type]
        else:
            given = ScriptArguments(arguments)
            await sandbox.run(plan_script(skill, "flood.sh", given, settings=RunSettings(policy)).request)

    await call(1000)

    async def sample() -> dict[str, object]:
        start = time.perf_counter()
        grown = await peak_growth(lambda: call(options["bytes"]))
        assert sandbox.last is not None
        return {"grown": grown, "seconds": time.perf_counter() - start, "status": sandbox.last.status.value}

    return sample


if __name__ == "__main__":
    answer(
        {
            "our-sandbox": sandboxed,
            "our-tool": through_the_tool,
            "our-execute": through_execute,
            "our-burst": back_to_back,
            "our-parallel": at_once,
            "our-flood": flood,
        }
    )
