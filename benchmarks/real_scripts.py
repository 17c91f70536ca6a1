"""How many scripts of real, published skills start: a seeded sample, each with ``--help`` through the tool.

    .venv/bin/python benchmarks/real_scripts.py FOLDER... [--python 300] [--shell 100] [--seed 7] [--dependencies off] \
        [--isolation process] [--at-once 4]

Each folder is a checkout of a public repository of skills (``git archive``); nothing of it is kept here. A script
counts as started when it exits with 0; one that came to its own code and wants arguments, a key or a file is counted
apart.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import dataclasses
import inspect
import json
import random
import re
import sys
import warnings
from pathlib import Path
from typing import Any, TextIO

from tool_calls import tool_contexts

from adk_skills_agent import SandboxPolicy, SkillToolset

_NOT_OURS = {"__init__.py", "conftest.py", "setup.py"}
_CAUSES = (
    ("module", re.compile(r"ModuleNotFoundError|No module named")),
    ("program", re.compile(r"command not found|needs .+, which this machine does not have|FileNotFoundError.*'(\w+)'")),
    ("network", re.compile(r"no network|gaierror|resolve host|ConnectionError")),
    ("read-only", re.compile(r"Read-only file system|PermissionError|Permission denied")),
)


def scripts_of(root: Path) -> list[tuple[Path, str]]:
    """Each script of each skill below a folder: the skill's folder and the script's path in it."""
    skills = sorted({found.parent for found in root.rglob("SKILL.md")}, key=lambda path: (-len(path.parts), str(path)))
    taken: set[Path] = set()
    found: list[tuple[Path, str]] = []
    for skill in skills:
        for file in sorted(skill.rglob("*")):
            if file.suffix not in {".py", ".sh"} or file in taken or not file.is_file():
                continue
            if file.name in _NOT_OURS or "test" in file.stem or "tests" in file.parts:
                continue
            taken.add(file)
            text = file.read_text("utf-8", "replace")
            if file.suffix == ".py" and "__main__" not in text:
                continue  # a module of another script
            found.append((skill, file.relative_to(skill).as_posix()))
    return found


async def start(skill: Path, script: str, dependencies: str, isolation: str) -> tuple[str, str]:
    """What became of a script with ``--help``, and a line that says so."""
    policy = SandboxPolicy(wall_seconds=60, memory_bytes=2 << 30, file_bytes=None, tmp_bytes=512 << 20)
    if isolation != "auto":
        policy = dataclasses.replace(policy, isolation=isolation, min_isolation=isolation)
    more: dict[str, Any] = {"permissions": {"default": "allow", "project_skills": "allow"}}
    if "dependencies" in inspect.signature(SkillToolset.__init__).parameters:
        more["dependencies"] = dependencies
    toolset = SkillToolset.from_dirs([skill], policy=policy, **more)
    try:
        (name,) = [listed.name for listed in toolset.runtime.source.listed()][:1] or [""]
        (context,) = await tool_contexts()
        tools = {tool.name: tool for tool in toolset._core}
        args = {"skill_name": name, "file_path": script, "args": ["--help"]}
        answer = await tools["run_skill_script"].run_async(args=args, tool_context=context)  # type: ignore[arg-type]
    except Exception as error:  # a measurement goes on
        return "crash", f"{type(error).__name__}: {error}"
    finally:
        await toolset.close()
    if answer.get("return_code") == 0:
        return "started", ""
    said = " ".join(str(answer.get(key) or "") for key in ("error", "stderr", "notes", "stdout"))
    for cause, pattern in _CAUSES:
        if pattern.search(said):
            return cause, said
    if "return_code" not in answer:
        return "refused", said
    return "own code", said


async def measure(arguments: argparse.Namespace) -> None:
    """Take the sample, start each, print the table."""
    chosen: list[tuple[Path, str]] = []
    everything = [found for folder in arguments.folders for found in scripts_of(folder)]
    dice = random.Random(arguments.seed)
    for suffix, count in ((".py", arguments.python), (".sh", arguments.shell)):
        those = [found for found in everything if found[1].endswith(suffix)]
        chosen += dice.sample(those, min(count, len(those)))
    counted: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    at_once = asyncio.Semaphore(arguments.at_once)

    async def one(skill: Path, script: str, output: TextIO) -> None:
        async with at_once:
            outcome, said = await start(skill, script, arguments.dependencies, arguments.isolation)
        counted[Path(script).suffix][outcome] += 1
        row = {"skill": str(skill), "script": script, "outcome": outcome, "said": said[:1200]}
        print(json.dumps(row), file=output, flush=True)
        print(f"\r{sum(map(collections.Counter.total, counted.values()))}/{len(chosen)}", end="", file=sys.stderr)

    with arguments.output.open("w") as output:
        await asyncio.gather(*(one(skill, script, output) for skill, script in chosen))
    print(file=sys.stderr)
    total: collections.Counter[str] = sum(counted.values(), collections.Counter())
    for name, counts in [*counted.items(), ("all", total)]:
        print(f"{name}: {counts['started']} of {sum(counts.values())} started; {dict(counts.most_common())}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--python", type=int, default=300)
    parser.add_argument("--shell", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--dependencies", default="off")
    parser.add_argument("--isolation", default="auto", help="an isolation level, such as process")
    parser.add_argument("--at-once", type=int, default=1, help="scripts that run at the same time")
    parser.add_argument("--output", type=Path, default=Path("real-scripts.jsonl"))
    warnings.simplefilter("ignore")
    asyncio.run(measure(parser.parse_args()))
