"""How many documented uses of real, published skills work: whole command lines, with files the model writes first.

    .venv/bin/python benchmarks/documented_uses.py FOLDER [--isolation process] [--only pptx] [--output uses.jsonl]

The folder has the repositories that ``documented_uses.yaml`` names, each at ``owner+name`` (``git archive``); nothing
of them is kept here. Each use has a toolset of its own with ``shell=True`` and ``dependencies="install"`` and is done
by the tools as a model does that follows the toolset's instructions: it loads the skill, writes the files, and runs
each line by ``run_skill_script`` where it only calls one script, else by ``execute``, a bundled file at its place below
``/skills``.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import re
import shlex
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tool_calls import tool_contexts

from adk_skills_agent import SandboxPolicy, SkillToolset

_USES = Path(__file__).with_suffix(".yaml")
_MORE_THAN_WORDS = re.compile(r"[|<>;&$*`]|\buv run\b|\s-m\s")
_INTERPRETERS = {"python", "python3", "bash", "sh", "node"}


class Failed(Exception):
    """A use does not work, and why."""


class Use:
    """One documented use, done through the tools of a toolset.

    Args:
        folder: The folder of repositories.
        use: The use, as the data file has it.
        policy: For everything that runs.
    """

    def __init__(self, folder: Path, use: Mapping[str, Any], policy: SandboxPolicy) -> None:
        self._use = use
        self._skills = [folder / use["skill"], *(folder / beside for beside in use.get("beside", ()))]
        self._toolset = SkillToolset.from_dirs(
            self._skills,
            policy=policy,
            shell=True,
            dependencies="install",
            permissions={"default": "allow", "project_skills": "allow"},
        )
        self._printed = ""

    async def work(self) -> None:
        """Do it.

        Raises:
            Failed: Something that must be true is not.
        """
        (self._context,) = await tool_contexts()
        try:
            names = [listed.name for listed in self._toolset.runtime.source.listed()]
            for name in names:
                await self._call("load_skill", skill_name=name)
            self._name = next((name for name in names if name == self._skills[0].name), names[0])
            for path, content in self._use.get("files", {}).items():
                await self._call("write_file", path=path, content=content)
            if "before" in self._use:
                await self._execute(self._use["before"], {0})
            then = self._use.get("then", {})
            exits = then.get("exit", 0)
            for line in self._use["run"]:
                await self._line(line, set(exits if isinstance(exits, list) else [exits]))
            if str(then.get("prints", "")) not in self._printed:
                raise Failed(f"{then['prints']!r} was not printed: {self._printed[-300:]}")
            for path in then.get("files", ()):
                await self._execute(f"test -s {shlex.quote(path)}", {0})
        finally:
            await self._toolset.close()

    async def _line(self, line: str, exits: set[int]) -> None:
        words = shlex.split(line)
        at = 1 if words[0] in _INTERPRETERS else 0
        script = self._bundled(words[at])
        if script and not _MORE_THAN_WORDS.search(line):
            arguments = {"skill_name": self._name, "file_path": script, "args": words[at + 1 :]}
            await self._ended(line, await self._call("run_skill_script", **arguments), "return_code", exits)
            return
        for word in line.split():
            if bundled := self._bundled(word):
                line = line.replace(word, f"/skills/{self._name}/{bundled}", 1)
        await self._execute(line, exits)

    def _bundled(self, word: str) -> str:
        """The skill's own file that a word of a document names, whatever stands for the skill's folder in it."""
        root = self._skills[0]
        parts = word.split("/")
        for start in range(len(parts)):
            path = "/".join(parts[start:])
            if (root / path).is_file():
                return path
        found = sorted(root.glob(f"scripts/{word}")) if re.fullmatch(r"[\w-]+\.\w+", word) else []
        return f"scripts/{word}" if found else ""

    async def _execute(self, command: str, exits: set[int]) -> None:
        await self._ended(command, await self._call("execute", command=command, skill=self._name), "exit_code", exits)

    async def _ended(self, line: str, answer: Mapping[str, Any], code: str, exits: set[int]) -> None:
        said = " ".join(str(answer.get(key) or "") for key in ("error", "notes", "stderr", "stdout"))
        self._printed += f"{answer.get('stdout') or ''}\n"
        if answer.get(code) not in exits:
            raise Failed(f"{line}\n    {code} {answer.get(code)}: {said[:1200]}")

    async def _call(self, tool: str, **arguments: object) -> Mapping[str, Any]:
        tools = {one.base_name: one for one in (*self._toolset._core, *self._toolset._shell_tools)}
        answer = await tools[tool].run_async(args=arguments, tool_context=self._context)
        if answer.get("error") and "return_code" not in answer and "exit_code" not in answer:
            raise Failed(f"{tool}: {answer['error']}")
        return answer


async def measure(arguments: argparse.Namespace) -> None:
    """Do each use, and print what works."""
    policy = SandboxPolicy(wall_seconds=300, memory_bytes=4 << 30, file_bytes=None, tmp_bytes=1 << 30)
    if arguments.isolation != "auto":
        policy = dataclasses.replace(policy, isolation=arguments.isolation, min_isolation=arguments.isolation)
    uses = [use for use in yaml.safe_load(_USES.read_text())["uses"] if arguments.only in use["skill"]]
    works = 0
    with arguments.output.open("w") as output:
        for use in uses:
            why = ""
            try:
                await Use(arguments.folder, use, policy).work()
            except Failed as error:
                why = str(error)
            except Exception as error:  # a measurement goes on
                why = f"crash: {type(error).__name__}: {error}"
            works += not why
            about = f" (documented wrongly: {use['wrong']})" if "wrong" in use else ""
            print(f"{'works' if not why else 'FAILS'} {use['skill']}{about}", flush=True)
            if why:
                print(f"    {why}", flush=True)
            print(json.dumps({"skill": use["skill"], "works": not why, "why": why}), file=output, flush=True)
    print(f"{works} of {len(uses)} documented uses work")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--isolation", default="auto", help="an isolation level, such as process")
    parser.add_argument("--only", default="", help="uses of skills whose path has this in it")
    parser.add_argument("--output", type=Path, default=Path("documented-uses.jsonl"))
    warnings.simplefilter("ignore")
    sys.exit(asyncio.run(measure(parser.parse_args())))
