"""How many runs a second one kind of sandbox gives this machine, and what each costs; prints JSON.

    python benchmarks/capacity_side.py cold|warm|environment|container|ray SECONDS

First single runs with pauses between them, for their time; then as many at once as keep every core busy.
The processor time of a run is that of this process and all below it. A container's processes are the engine's: there it
is what the whole machine used meanwhile, less what it used before and after, which is exact only on a quiet machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from adk_skills_agent.sandbox import (
    ContainerSandbox,
    ExecutionRequest,
    RaySandbox,
    ReadOnlyMount,
    Sandbox,
    SandboxPolicy,
    local_sandbox,
)

KINDS = ("cold", "warm", "environment", "container", "ray")
_SINGLES = 60
_PAUSE = 0.1
_LOOK_SECONDS = 3.0
_AT_ONCE = 2  # for each core: one waits for the disk or a process while the other computes
_TICK = os.sysconf("SC_CLK_TCK")
_SCRIPT = "# /// script\n# dependencies = ['inflection==0.5.1']\n# ///\nprint('hello')\n"


def busy_seconds() -> float:
    """Processor seconds that this machine has used since its start, by all processes."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, irq, softirq = map(int, words[:7])
    return (user + nice + system + irq + softirq) / _TICK


def tree_seconds() -> float:
    """Processor seconds of this process and of all below it, those that have ended among them."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


async def background() -> float:
    """Cores that others use now."""
    began, busy = time.monotonic(), busy_seconds()
    await asyncio.sleep(_LOOK_SECONDS)
    return (busy_seconds() - busy) / (time.monotonic() - began)


@contextlib.asynccontextmanager
async def sandbox_of(kind: str, skill: Path) -> AsyncIterator[tuple[Sandbox, SandboxPolicy, str]]:
    """What runs the scripts of a kind, the policy, and the interpreter."""
    policy = SandboxPolicy(wall_seconds=60.0)
    if kind == "container":
        sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
        import container_engines

        if (problem := container_engines.missing("docker")) is not None:
            raise SystemExit(problem)
        engine = container_engines.shared("docker")
        sandbox: Sandbox = ContainerSandbox(engine.image, base_url=engine.url)
        yield sandbox, policy, "python3"
    elif kind == "ray":
        ray: Any = importlib.import_module("ray")
        here = {"node_ip_address": "127.0.0.2"}
        head = {"num_cpus": 0, "include_dashboard": False, **here}
        cluster = importlib.import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=head)
        cluster.add_node(num_cpus=os.cpu_count(), **here)
        ray.init(address=cluster.address, _node_ip_address="127.0.0.2", log_to_driver=False)
        sandbox = RaySandbox(max_workers=1, runs_per_worker=64)
        yield sandbox, policy, sys.executable
        await sandbox.close()
        ray.shutdown()
        cluster.shutdown()
        return
    else:
        sandbox = local_sandbox()
        if kind == "cold":
            policy = replace(policy, warm_slots=0)
        if kind == "environment":
            from adk_skills_agent.catalog import SkillsRegistry
            from adk_skills_agent.packages import Dependencies, SkillEnvironments
            from adk_skills_agent.scripts.plan import within

            found = SkillsRegistry.of_folders([skill.parent]).load_skill("trivial")
            ready = SkillEnvironments(Dependencies("install")).ready_for(found, "scripts/trivial.py")
            if ready.environment is None:
                raise SystemExit(ready.problem.message if ready.problem is not None else "the skill needs no packages")
            policy = within(policy, ready.environment)
        yield sandbox, policy, policy.python or sys.executable
    await sandbox.close()


async def measure(kind: str, seconds: float) -> dict[str, Any]:
    """Singles, then all cores."""
    with tempfile.TemporaryDirectory() as folder:
        skill = Path(folder, "trivial")
        (skill / "scripts").mkdir(parents=True)
        (skill / "SKILL.md").write_text("---\nname: trivial\ndescription: A trivial script.\n---\n")
        (skill / "scripts" / "trivial.py").write_text(_SCRIPT)
        async with sandbox_of(kind, skill) as (sandbox, policy, python):
            argv = (python, "/skill/scripts/trivial.py")
            request = ExecutionRequest(argv, policy, mounts=(ReadOnlyMount(skill),))
            singles, level, warm = [], "", 0
            for _ in range(_SINGLES):
                began = time.perf_counter()
                result = await sandbox.run(request)
                singles.append((time.perf_counter() - began) * 1000)
                warm += result.warm
                assert result.stdout == b"hello\n", result
                level = result.isolation.level.value
                await asyncio.sleep(_PAUSE)
            before = await background()
            began, busy, own, tree = time.monotonic(), busy_seconds(), time.process_time(), tree_seconds()
            runs, until, peak = 0, time.monotonic() + seconds, 0

            async def keep_running() -> None:
                nonlocal runs, peak
                while time.monotonic() < until:
                    done = await sandbox.run(request)
                    assert done.stdout == b"hello\n", done
                    runs += 1
                    peak = max(peak, done.max_rss_bytes or 0)

            await asyncio.gather(*(keep_running() for _ in range(_AT_ONCE * (os.cpu_count() or 1))))
            took, used, own = time.monotonic() - began, busy_seconds() - busy, time.process_time() - own
            tree = tree_seconds() - tree
            after = await background()
    others = (before + after) / 2
    return {
        "kind": kind,
        "level": level,
        "warm": warm / _SINGLES,
        "runs": runs,
        "seconds": took,
        "cpu_ms": (max(0.0, used - others * took) if kind == "container" else tree) / runs * 1000,
        "machine_ms": used / runs * 1000,
        "own_ms": own / runs * 1000,
        "singles_ms": sorted(singles[5:]),
        "rss_bytes": peak,
        "others": others,
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], float(sys.argv[2])))))
