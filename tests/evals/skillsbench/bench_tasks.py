"""Tiny tasks, and a sandbox that runs them over this machine's own /usr: real processes, no root to make first."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from adk_skills_agent.evals.row_file import RowFile
from adk_skills_agent.evals.skillsbench.agents import BenchAgent, Nop, Oracle
from adk_skills_agent.evals.skillsbench.environment import (
    BuildError,
    BuiltImage,
    Images,
    Phase,
    Ran,
    TaskEnvironment,
    TaskSandbox,
)
from adk_skills_agent.evals.skillsbench.results import RunState
from adk_skills_agent.evals.skillsbench.runner import make_plan, run_bench
from adk_skills_agent.evals.skillsbench.task import Task, read_task
from adk_skills_agent.evals.skillsbench.trial import BenchSettings, BenchTrial, run_trial

GRADES = 'if [ "$(cat answer.txt 2>/dev/null)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'
SKILL = "---\nname: answering\ndescription: How to answer questions.\n---\nThe answer is 42; see answering.py.\n"


def make_task(folder: Path, name: str = "answer", **files: str) -> Task:
    """A task: write 42 to answer.txt. Keyword arguments replace its files; ``/`` is ``__`` and ``.`` is ``_DOT_``."""
    contents = {
        "instruction.md": "Write the answer to answer.txt.\n",
        "task.toml": '[metadata]\ncategory = "numbers"\n[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 30\n',
        "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\nCOPY skills /root/.claude/skills\nCOPY data.txt .\n",
        "environment/data.txt": "data\n",
        "environment/skills/answering/SKILL.md": SKILL,
        "environment/skills/answering/scripts/answer.py": "print(6 * 7)\n",
        "tests/test.sh": GRADES,
        "solution/solve.sh": "echo 42 > answer.txt\n",
    }
    contents |= {key.replace("__", "/").replace("_DOT_", "."): text for key, text in files.items()}
    for path, text in contents.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text)
    return read_task(folder / name)


class HostBox(TaskEnvironment):
    """Folders of its own for /app, /logs and what a phase brings; /usr is this machine's, read-only."""

    workdir = "/app"

    def __init__(self, folder: Path, skills: Path | None) -> None:
        self.folder = folder
        self._processes: set[asyncio.subprocess.Process] = set()
        for name in ("app", "logs/verifier", "logs/agent", "root"):
            (folder / name).mkdir(parents=True)
        if skills is not None:
            shutil.copytree(skills, folder / "root/.claude/skills")

    async def run(
        self,
        command: Sequence[str],
        *,
        seconds: float,
        phase: Phase | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> Ran:
        phase = phase or Phase()
        for path, given in phase.folders:
            shutil.copytree(given, self._host(path), dirs_exist_ok=True)
        tops = sorted(entry.name for entry in self.folder.iterdir())
        process = await asyncio.create_subprocess_exec(
            *("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--proc", "/proc"),
            *("--dev", "/dev", "--tmpfs", "/tmp"),
            *(word for name in ("bin", "lib", "lib64", "sbin") for word in ("--symlink", f"usr/{name}", f"/{name}")),
            *(word for name in tops for word in ("--bind", str(self.folder / name), f"/{name}")),
            *("--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/root"),
            *(word for name, value in phase.env for word in ("--setenv", name, value)),
            *("--chdir", cwd or self.workdir, "--", *command),
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._processes.add(process)
        try:
            async with asyncio.timeout(seconds):
                output, _ = await process.communicate(stdin)
        except TimeoutError:
            return Ran(None, b"", timed_out=True, seconds=seconds)
        finally:
            if process.returncode is None:
                # All of it: a child of bubblewrap's that has not yet asked to die with it would hold our pipe.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            self._processes.discard(process)
        if on_output is not None:
            on_output(output)
        return Ran(process.returncode, output)

    async def end_processes(self) -> None:
        assert not self._processes

    async def empty(self, path: str) -> None:
        shutil.rmtree(self._host(path), ignore_errors=True)
        self._host(path).mkdir(parents=True)

    async def read(self, path: str, most: int) -> bytes | None:
        place = self._host(path)
        return place.read_bytes()[:most] if place.is_file() and not place.is_symlink() else None

    async def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _host(self, path: str) -> Path:
        return self.folder / path.strip("/")


class HostSandbox(TaskSandbox):
    """Counts what is built and opened; fails to build what it is told to."""

    name = "host"

    def __init__(self, folder: Path, failing: dict[str, int] | None = None) -> None:
        self.folder = folder
        self.failing = failing or {}
        self.built: list[tuple[str, bool]] = []
        self.there: set[tuple[str, bool]] = set()
        self.opened: list[HostBox] = []
        self.pruned = 0

    def problem(self, task: Task) -> str | None:
        return None

    async def build(self, task: Task, *, with_skills: bool, rebuild: bool, say: Callable[[str], None]) -> BuiltImage:
        await asyncio.sleep(0)
        self.built.append((task.name, with_skills))
        if self.failing.get(task.name, 0) > 0:
            self.failing[task.name] -= 1
            raise BuildError(f"{task.name}: no such package", "E: Unable to locate package")
        skills = task.skills if with_skills else None
        cached = (task.name, with_skills) in self.there and not rebuild
        return BuiltImage(task.name, {"PATH": "/usr/bin:/bin"}, "/app", 0.01, (), skills, cached)

    async def open(self, task: Task, image: BuiltImage) -> TaskEnvironment:
        skills = image.handle
        assert skills is None or isinstance(skills, Path)
        box = HostBox(self.folder / f"box-{len(self.opened)}", skills)
        self.opened.append(box)
        return box

    async def prune(self) -> str:
        self.pruned += 1
        return "nothing to remove"

    def notes(self) -> tuple[str, ...]:
        return ()

    def without_secrets(self, text: str) -> str:
        return text.replace("pass-word", "[secret]")

    async def close(self) -> None:
        return


def settings_for(sandbox: TaskSandbox, out: Path, agents: Sequence[BenchAgent] = (), **more: Any) -> BenchSettings:
    state = more.pop("state", None) or RunState(0)
    by_name = {agent.name: agent for agent in (agents or (Oracle(), Nop()))}
    (out / "tools").mkdir(parents=True, exist_ok=True)
    options = {name: more.pop(name) for name in ("prune_interval", "rebuild") if name in more}
    images = Images(sandbox, state.builds, **options)
    return BenchSettings(sandbox, images, by_name, out, out / "tools", **more)


async def carry_out(
    plan: Sequence[BenchTrial], settings: BenchSettings, *, resume: bool = False, **more: Any
) -> RunState:
    state = RunState(len(plan), builds=settings.images.counts)
    with RowFile(settings.out, "results.jsonl", resume=resume) as rows:
        await run_bench(plan, partial(run_trial, settings=settings), rows, state, **more)
    return state


def plan_of(
    tasks: Sequence[Task],
    arms: Sequence[str] = ("with-skill",),
    agents: Sequence[str] = ("oracle", "nop"),
    trials: int = 1,
    **facts: Any,
) -> list[BenchTrial]:
    return make_plan(tasks, arms, agents, trials, facts)
