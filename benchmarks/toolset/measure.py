"""SkillToolset at scale: tokens of a request at 500 real skills, recall of its search, 200 sessions at once.

    python benchmarks/toolset/measure.py [--sessions N]

Tokens are characters by four of the system instruction and the function declarations that the server received. The
500 skills are those that the held-out queries of benchmarks/recall ask for, and others of the same corpus.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import sys
import tempfile
import time
import uuid
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "recall"))
warnings.simplefilter("ignore")

from google.adk.agents import LlmAgent  # noqa: E402
from google.adk.agents.invocation_context import InvocationContext  # noqa: E402
from google.adk.code_executors.unsafe_local_code_executor import UnsafeLocalCodeExecutor  # noqa: E402
from google.adk.runners import InMemoryRunner  # noqa: E402
from google.adk.sessions import InMemorySessionService  # noqa: E402
from google.adk.skills import models  # noqa: E402
from google.adk.tools import skill_toolset as theirs  # noqa: E402
from google.adk.tools.tool_context import ToolContext  # noqa: E402
from google.genai import types  # noqa: E402
from measure import CORPUS, corpus_skills, first_of_each_name, queries  # noqa: E402

from adk_skills_agent import SkillToolset  # noqa: E402
from adk_skills_agent.format.models import SkillMetadata  # noqa: E402
from adk_skills_agent.testing import GeminiServer, parse_conversation  # noqa: E402

COUNT = 500
CORPUS_SKILLS = 1_530


def chosen() -> tuple[list[SkillMetadata], list[tuple[str, SkillMetadata]]]:
    """500 skills, and the held-out queries with the skill each was written for."""
    skills = corpus_skills(CORPUS, CORPUS_SKILLS)
    catalog = {item.name: item for item in first_of_each_name(skills)}
    asked = [(query, skills[path]) for query, path in queries("held-out")]
    wanted = {target.name: catalog[target.name] for _, target in asked}
    for name, item in catalog.items():
        if len(wanted) == COUNT:
            break
        wanted.setdefault(name, item)
    return sorted(wanted.values(), key=lambda item: item.name), asked


async def tokens(toolset: Any) -> int:
    with GeminiServer(parse_conversation("turns: [{text: hi}]")) as server:
        runner = InMemoryRunner(agent=LlmAgent(name="a", model=server.model(), tools=[toolset]), app_name="t")
        session = await runner.session_service.create_session(app_name="t", user_id="u")
        hello = types.Content(role="user", parts=[types.Part(text="hi")])
        async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=hello):
            pass
        request = server.requests[0]
    declarations = sum(len(json.dumps(one, separators=(",", ":"))) for one in request.declarations)
    return (len(request.system_text) + declarations) // 4


async def context() -> ToolContext:
    service = InMemorySessionService()
    session = await service.create_session(app_name="t", user_id=uuid.uuid4().hex)
    agent = LlmAgent(name="a", model="gemini-2.5-flash")
    return ToolContext(
        InvocationContext(session_service=service, invocation_id=uuid.uuid4().hex, agent=agent, session=session)
    )


async def at_500() -> None:
    items, asked = chosen()
    objects = [
        models.Skill.model_construct(
            frontmatter=models.Frontmatter.model_construct(name=item.name, description=item.description, metadata={}),
            instructions="",
            resources=models.Resources(scripts={"run.py": models.Script(src="")}),
        )
        for item in items
    ]
    executor = UnsafeLocalCodeExecutor()
    eager = await tokens(
        theirs.SkillToolset(objects, code_executor=executor, discovery_mode=theirs.SkillDiscoveryMode.EAGER)
    )
    print(f"google-adk EAGER, {len(items)} skills: {eager} tokens")
    print(f"google-adk LAZY: {await tokens(theirs.SkillToolset(objects, code_executor=executor))} tokens")
    for mode in ("eager", "lazy", "search"):
        own = await tokens(SkillToolset(objects, code_executor=executor, discovery_mode=mode))
        print(f"ours {mode.upper()}: {own} tokens ({own / eager:.1%} of google-adk EAGER)")
    toolset = SkillToolset(objects, code_executor=executor)
    search = next(tool for tool in await toolset.get_tools() if tool.name == "search_skills")
    found = 0
    for query, target in asked:
        answer = await search.run_async(args={"query": query}, tool_context=await context())
        hits = answer["skills"][:5]
        found += any(
            hit["name"] == target.name or hit["description"].split() == target.description[:300].split() for hit in hits
        )
    print(f"search_skills: recall@5 {found / len(asked):.3f} on {len(asked)} held-out queries")


async def one_run(tool: Any, name: str) -> tuple[float, str]:
    began = time.perf_counter()
    own = await context()
    token = own.session.id
    answer = await tool.run_async(
        args={"skill_name": name, "file_path": "scripts/go.py", "args": [token]}, tool_context=own
    )
    assert answer["stdout"].split() == [name, token, "1"], answer
    return time.perf_counter() - began, token


async def at_once(sessions: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(5):
            scripts = Path(folder, f"skill-{number}", "scripts")
            scripts.mkdir(parents=True)
            (scripts.parent / "SKILL.md").write_text(f"---\nname: skill-{number}\ndescription: x\n---\nbody\n")
            # The number of files in the workspace shows whether another session's are there.
            (scripts / "go.py").write_text(
                f"import os, sys\nopen('mine', 'w').write(sys.argv[1])\n"
                f"print('skill-{number}', sys.argv[1], len([f for f in os.listdir('.') if f == 'mine']))\n"
            )
        toolset = SkillToolset.from_dirs([folder])
        tool = next(one for one in await toolset.get_tools() if one.name == "run_skill_script")
        load = next(one for one in await toolset.get_tools() if one.name == "load_skill")
        await one_run(tool, "skill-0")
        serial = [(await one_run(tool, f"skill-{n % 5}"))[0] for n in range(20)]
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        cores = len(os.sched_getaffinity(0))
        began = time.perf_counter()
        done = await asyncio.gather(*(one_run(tool, f"skill-{n % 5}") for n in range(sessions)))
        whole = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        assert len({token for _, token in done}) == sessions
        contexts = [await context() for _ in range(sessions)]
        await asyncio.gather(
            *(load.run_async(args={"skill_name": f"skill-{n % 5}"}, tool_context=own) for n, own in enumerate(contexts))
        )
        assert [toolset.list_active_skills(own) for own in contexts] == [[f"skill-{n % 5}"] for n in range(sessions)]
        rate, base = sessions / whole, cores / statistics.median(serial)
        p99 = sorted(seconds for seconds, _ in done)[int(sessions * 0.99) - 1]
        print(
            SimpleNamespace(
                sessions=sessions,
                serial_ms=round(statistics.median(serial) * 1000),
                runs_per_second=round(rate, 1),
                of_serial_by_cores=round(rate / base, 2),
                p99_seconds=round(p99, 2),
                peak_rss_mb=(rss, after),
            )
        )
        await toolset.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    arguments = parser.parse_args()
    asyncio.run(at_500())
    asyncio.run(at_once(arguments.sessions))
