"""Row 65: whatever runs do and however they end, the agent and the machine are afterwards as they were before."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
import time
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path

import psutil
import pytest

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    InputFile,
    ReadOnlyMount,
    Sandbox,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.local import local_sandbox

AT_A_TIME = 8
SETTLE_SECONDS = 10.0
CGROUPS = "/sys/fs/cgroup"


@dataclass(frozen=True)
class Census:
    """What an agent holds of the machine."""

    descriptors: Counter[str]
    threads: int
    children: tuple[str, ...]
    mounts: tuple[str, ...]
    temporary: tuple[str, ...]
    cgroups: int

    def more_than(self, before: Census) -> dict[str, object]:
        """What there is now and was not before, by kind; idle machinery may have gone meanwhile."""
        found: dict[str, object] = {}
        for field in fields(self):
            now, then = getattr(self, field.name), getattr(before, field.name)
            if isinstance(now, int):
                if now > then:
                    found[field.name] = f"{then} -> {now}"
            elif more := Counter(now) - Counter(then):
                found[field.name] = more
        return found


def census(temporary: Path) -> Census:
    gc.collect()
    children = []
    for child in psutil.Process().children(recursive=True):
        try:
            children.append(f"{child.status()} {' '.join(child.cmdline()[:3])[:80]}")
        except psutil.Error:
            continue
    targets = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            targets.append(re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{descriptor}")))
        except OSError:  # the one that lists
            continue
    # Of a sandbox, or in the temporary folder; other tests mount things of their own meanwhile.
    ours = re.compile(rf"{re.escape(str(temporary))}|adk-skills-run|bwrap|newroot|oldroot")
    mine = re.compile(rf"adk.*\b{os.getpid()}\b")
    return Census(
        Counter(targets),
        len(os.listdir("/proc/self/task")),
        tuple(children),
        tuple(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if ours.search(line)),
        tuple(path.name for path in temporary.iterdir()),
        sum(1 for folder, _, _ in os.walk(CGROUPS) if mine.search(os.path.basename(folder))),
    )


@dataclass
class Soak:
    """Runs of every kind, each checked, a few at a time."""

    sandbox: Sandbox
    skill: Path
    policy: dict[str, object]

    def __post_init__(self) -> None:
        self.chance = random.Random(20_260_000)
        self.kinds = (self.ok, self.file, self.script, self.error, self.timeout, self.cancelled, self.flood, self.stray)
        self.kinds += (self.unknown, self.thrown)

    async def run(self, code: str, **settings: object) -> ExecutionResult:
        return await self.sandbox.run(self.request("bash", "-c", code, **settings))

    def request(self, *argv: str, **settings: object) -> ExecutionRequest:
        # Below namespaces the kernel counts all processes of a plain user together, those of other tests included.
        limits: dict[str, object] = {"pids": 1000, **self.policy}
        rest = {}
        for key, value in settings.items():
            (limits if key in SandboxPolicy.__dataclass_fields__ else rest)[key] = value
        return ExecutionRequest(argv, SandboxPolicy(**limits), **rest)  # type: ignore[arg-type]

    async def ok(self) -> None:
        result = await self.run("cat; echo fine", stdin=b"in ")
        assert (result.status, result.stdout) == (Status.OK, b"in fine\n")

    async def file(self) -> None:
        result = await self.run("cat given > made", input_files=(InputFile("given", b"x" * 1000),))
        assert [(file.path, file.size) for file in result.files] == [("made", 1000)]

    async def script(self) -> None:
        request = self.request("python3", "/skill/scripts/run.py", "a", mounts=(ReadOnlyMount(self.skill),))
        result = await self.sandbox.run(request)
        assert (result.status, result.stdout) == (Status.OK, b"ran a\n")

    async def error(self) -> None:
        result = await self.run("echo no >&2; exit 3")
        assert (result.status, result.exit_code, result.stderr) == (Status.ERROR, 3, b"no\n")

    async def timeout(self) -> None:
        result = await self.run(
            "sleep 60 & sleep 60", wall_seconds=0.1, term_grace_seconds=self.chance.choice((0, 0.1))
        )
        assert result.status is Status.TIMEOUT

    async def cancelled(self) -> None:
        task = asyncio.create_task(self.run("sleep 60 & sleep 60"))
        await asyncio.sleep(self.chance.random() * 0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def flood(self) -> None:
        result = await self.run("yes >&2 & exec yes", output_flood_bytes=1 << 20)
        assert result.status is Status.OUTPUT_LIMIT

    async def stray(self) -> None:
        result = await self.run("setsid sleep 60 & (setsid sleep 60 &) ; exit 0", drain_seconds=0.05)
        assert (result.status, result.survivors) == (Status.OK, 0)

    async def unknown(self) -> None:
        with pytest.raises(SandboxError, match="no-such-command"):
            await self.sandbox.run(self.request("no-such-command"))

    async def thrown(self) -> None:
        def fail(stream: str, chunk: bytes) -> None:
            raise LookupError(stream)

        with pytest.raises(LookupError, match="stdout"):
            await self.run("echo x; sleep 60", on_output=fail)

    async def all(self, runs: int) -> None:
        places = asyncio.Semaphore(AT_A_TIME)

        async def one(number: int) -> None:
            async with places:
                await self.kinds[number % len(self.kinds)]()

        await asyncio.gather(*(one(number) for number in range(runs)))


async def assert_nothing_is_left(soak: Soak, runs: int, temporary: Path) -> None:
    await soak.all(5 * AT_A_TIME)  # threads and pools are made at the first use
    await soak.sandbox.close()
    before = census(temporary)
    while (await asyncio.sleep(0.3), now := census(temporary))[1] != before:  # pools are filled in the background
        before = now
    await soak.all(runs)
    await soak.sandbox.close()
    deadline = time.monotonic() + SETTLE_SECONDS
    while (left := census(temporary).more_than(before)) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert left == {}


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    folder = tmp_path / "soaked"
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "run.py").write_text("import sys\nprint('ran', *sys.argv[1:])\n")
    return folder


@pytest.mark.slow
async def test_row_65_sixty_runs_that_end_in_every_way_leave_nothing(box, skill, private_tmp):
    await assert_nothing_is_left(Soak(box.sandbox, skill, box.policy), 60, private_tmp)


@pytest.mark.slow
async def test_row_65_five_hundred_runs_at_each_level_leave_nothing(box, skill, private_tmp):
    await assert_nothing_is_left(Soak(box.sandbox, skill, box.policy), 500, private_tmp)


@pytest.mark.slow
async def test_row_65_two_thousand_runs_at_the_default_level_leave_nothing(skill, private_tmp, nothing_left):
    await assert_nothing_is_left(Soak(local_sandbox(), skill, {}), 2000, private_tmp)
