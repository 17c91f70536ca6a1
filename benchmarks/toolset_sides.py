"""The sides of ``toolset_rows.py``: a whole toolset, ours and google-adk's.

Options of the sessions: ``skills`` (folder of the skill ``sessions``), ``sessions``. Options of the tokens: ``corpus``
(folder, or empty for made-up skills).
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from answering import Sample, answer
from tool_calls import status_bytes, tool_contexts

HERE = Path(__file__).resolve().parent
SKILLS = 500
SERIAL_RUNS = 16


async def _sessions(options: dict[str, object], toolset: Any) -> Sample:
    """So many sessions run one script at the same time; each must see its own workspace and nothing of the others."""
    count = int(str(options["sessions"]))
    tool = next(one for one in await toolset.get_tools() if one.name == "run_skill_script")

    async def run(context: object) -> tuple[float, bool]:
        mine = uuid.uuid4().hex
        start = time.perf_counter()
        args = {"skill_name": "sessions", "file_path": "scripts/own.py", "args": [mine]}
        said = await tool.run_async(args=args, tool_context=context)
        return time.perf_counter() - start, said.get("stdout") == f"{mine} []\n"

    async def sample() -> dict[str, object]:
        serial = sorted([(await run(context))[0] for context in await tool_contexts(SERIAL_RUNS)])
        contexts = await tool_contexts(count)
        start = time.perf_counter()
        done = await asyncio.gather(*(run(context) for context in contexts))
        seconds = time.perf_counter() - start
        del contexts
        gc.collect()
        took = sorted(one for one, _ in done)
        return {
            "seconds": seconds,
            "serial": serial[len(serial) // 2],
            "p99": took[int(count * 0.99) - 1],
            "resident": status_bytes("VmRSS"),
            "mixed": sum(not right for _, right in done),
        }

    return sample


async def our_sessions(options: dict[str, object]) -> Sample:
    """``SkillToolset.from_dirs``, cold runs in the sandbox."""
    from adk_skills_agent import SandboxPolicy, SkillToolset

    slots = {"warm_slots": 0} if "warm_slots" in SandboxPolicy.__dataclass_fields__ else {}
    return await _sessions(options, SkillToolset.from_dirs([str(options["skills"])], policy=SandboxPolicy(**slots)))


async def adk_sessions(options: dict[str, object]) -> Sample:
    """google-adk's toolset with its local executor."""
    from google.adk.code_executors import UnsafeLocalCodeExecutor
    from google.adk.skills import load_skill_from_dir
    from google.adk.tools.skill_toolset import SkillToolset

    skill = load_skill_from_dir(Path(str(options["skills"])) / "sessions")
    return await _sessions(options, SkillToolset([skill], code_executor=UnsafeLocalCodeExecutor()))


async def tokens(options: dict[str, object]) -> Sample:
    """What each toolset adds to a request at 500 skills (characters by four, as a server received them), and recall."""
    from google.adk.code_executors import UnsafeLocalCodeExecutor
    from google.adk.tools import skill_toolset as theirs

    from adk_skills_agent import SkillToolset

    items, asked = _corpus_skills() if options["corpus"] else (_made_up_skills(), [])
    objects = [_skill_object(name, description) for name, description in items]
    executor = UnsafeLocalCodeExecutor()

    async def sample() -> dict[str, object]:
        said: dict[str, object] = {"skills": len(objects), "asked": len(asked)}
        makers: dict[str, Callable[[str], Any]] = {
            "adk": lambda mode: theirs.SkillToolset(
                objects, code_executor=executor, discovery_mode=theirs.SkillDiscoveryMode(mode)
            ),
            "our": lambda mode: SkillToolset(objects, code_executor=executor, discovery_mode=mode),
        }
        for side, make in makers.items():
            for mode in ("eager", "lazy"):
                said[f"{side}-{mode}-instruction"], said[f"{side}-{mode}"] = await _size(make(mode))
        tools = await makers["our"]("lazy").get_tools()
        search = next(tool for tool in tools if tool.name == "search_skills")
        found = 0
        for query, name, description in asked:
            (context,) = await tool_contexts()
            hits = (await search.run_async(args={"query": query}, tool_context=context))["skills"][:5]
            same = " ".join(description.split())[:100]
            found += any(hit["name"] == name or " ".join(hit["description"].split())[:100] == same for hit in hits)
        said["recall"] = found / len(asked) if asked else 0.0
        return said

    return sample


async def _size(toolset: Any) -> tuple[int, int]:
    """Tokens of the system instruction, and of it with the declarations."""
    from google.adk.agents import LlmAgent
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from adk_skills_agent.testing import GeminiServer, parse_conversation

    with GeminiServer(parse_conversation("turns: [{text: hi}]")) as server:
        agent = LlmAgent(name="agent", model=server.model(), tools=[toolset])
        runner = InMemoryRunner(agent=agent, app_name="bench")
        session = await runner.session_service.create_session(app_name="bench", user_id="user")
        hello = types.Content(role="user", parts=[types.Part(text="hi")])
        async for _ in runner.run_async(user_id="user", session_id=session.id, new_message=hello):
            pass
        request = server.requests[0]
    declared = sum(len(json.dumps(one, separators=(",", ":"))) for one in request.declarations)
    return len(request.system_text) // 4, (len(request.system_text) + declared) // 4


def _corpus_skills() -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """The skills that the held-out queries were written for and others, and those queries."""
    sys.path.insert(0, str(HERE / "recall"))
    from measure import CATALOG_SKILLS, CORPUS, corpus_skills, first_of_each_name, queries

    skills = corpus_skills(CORPUS, CATALOG_SKILLS)
    catalog = {item.name: item.description for item in first_of_each_name(skills)}
    asked = [(query, skills[path].name, skills[path].description) for query, path in queries("held-out")]
    wanted = {name: catalog[name] for _, name, _ in asked}
    for name, description in catalog.items():
        if len(wanted) == SKILLS:
            break
        wanted.setdefault(name, description)
    return sorted(wanted.items()), asked


def _made_up_skills() -> list[tuple[str, str]]:
    words = "Works with tables, charts, letters and plans of every kind. " * 4
    return [(f"skill-{number:03d}", f"Number {number}. {words}"[:200]) for number in range(SKILLS)]


def _skill_object(name: str, description: str) -> Any:
    """As google-adk would have loaded it; unchecked, because it refuses some real names and descriptions."""
    from google.adk.skills import models

    return models.Skill.model_construct(
        frontmatter=models.Frontmatter.model_construct(name=name, description=description, metadata={}),
        instructions="",
        resources=models.Resources(scripts={"run.py": models.Script(src="")}),
    )


if __name__ == "__main__":
    answer({"our-sessions": our_sessions, "adk-sessions": adk_sessions, "tokens": tokens})
