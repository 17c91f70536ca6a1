"""One side of one measurement, in a process of its own: ``python benchmarks/sides.py SIDE FOLDER`` prints JSON.

Times are taken around the work, after the imports it needs, so that neither side pays for the other's; memory is what
the work added to the process. Every side ends with an assertion that the work was really done.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


def resident_mb() -> float:
    """Resident memory of this process, in MiB."""
    import psutil

    return float(psutil.Process().memory_info().rss) / (1 << 20)


def measured(work: Callable[[], int], expected: int) -> None:
    """Run the work once and print its time and memory."""
    import gc

    gc.collect()
    before = resident_mb()
    start = time.perf_counter()
    count = work()
    seconds = time.perf_counter() - start
    added = resident_mb() - before
    assert count == expected, f"{count} skills instead of {expected}"
    print(json.dumps({"seconds": seconds, "added_mb": added}))


def our_list(root: Path, count: int) -> None:
    """Level 1 of every skill, from a new registry."""
    from adk_skills_agent.catalog import SkillsRegistry

    SkillsRegistry().discover([])  # imports
    kept: list[object] = []

    def work() -> int:
        registry = SkillsRegistry()
        registry.discover([root])
        skills = registry.list_metadata()
        kept.extend((registry, skills))
        return len(skills)

    measured(work, count)


def adk_list(root: Path, count: int) -> None:
    """google-adk's own listing."""
    from google.adk.skills import list_skills_in_dir

    kept: list[object] = []

    def work() -> int:
        skills = list_skills_in_dir(root)
        kept.append(skills)
        return len(skills)

    measured(work, count)


def our_toolset(root: Path, count: int) -> None:
    """A toolset that is ready: skills found, tools handed out, the first declaration made."""
    import asyncio

    from adk_skills_agent import SandboxPolicy, SkillsRegistry, SkillTools
    from adk_skills_agent.scripts import RunSettings

    settings = RunSettings(SandboxPolicy(min_isolation="process"))
    empty = SkillTools(SkillsRegistry().view(), settings=settings)
    asyncio.run(empty.get_tools())
    kept: list[object] = [empty]

    def work() -> int:
        registry = SkillsRegistry()
        registry.discover([root])
        toolset = SkillTools(registry.view(), settings=settings)
        tools = asyncio.run(toolset.get_tools())
        declarations = [tool._get_declaration() for tool in tools]
        assert any("available_skills" in str(declaration.description) for declaration in declarations if declaration)
        kept.append(toolset)
        return len(toolset.listing.skills)

    measured(work, count)


def adk_toolset(root: Path, count: int) -> None:
    """google-adk's toolset, which takes loaded skills only."""
    import asyncio

    from google.adk.skills import load_skills_from_dir
    from google.adk.tools.skill_toolset import SkillToolset

    empty = SkillToolset(skills=[])
    asyncio.run(empty.get_tools())
    kept: list[object] = [empty]

    def work() -> int:
        skills = load_skills_from_dir(root)
        toolset = SkillToolset(skills=list(skills.values()) if isinstance(skills, dict) else skills)
        asyncio.run(toolset.get_tools())
        kept.append(toolset)
        return len(skills)

    measured(work, count)


SIDES = {"our-list": our_list, "adk-list": adk_list, "our-toolset": our_toolset, "adk-toolset": adk_toolset}

if __name__ == "__main__":
    SIDES[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
