"""``sandbox="ray"`` beside the local sandbox, on a Ray cluster of this machine; prints JSON.

One process starts a cluster of one node, takes warm runs of a trivial script from both sandboxes in turns, then lets
many sessions run scripts at the same time and counts what each got.

    python benchmarks/ray_side.py RUNS SESSIONS SECONDS
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from adk_skills_agent.sandbox import ExecutionRequest, RaySandbox, ReadOnlyMount, Sandbox, SandboxPolicy, local_sandbox

LOOPBACK = "127.0.0.2"
_PAUSE = 0.1
"""Between two runs: a sandbox for the next one is started meanwhile, as with an agent that thinks."""


async def timed(sandbox: Sandbox, request: ExecutionRequest) -> tuple[float, bool]:
    """Seconds of one run, and whether it used a sandbox that was started before it."""
    began = time.perf_counter()
    result = await sandbox.run(request)
    seconds = time.perf_counter() - began
    assert result.stdout == b"hello\n", result
    await asyncio.sleep(_PAUSE)
    return seconds, result.warm


async def latencies(ray: Sandbox, request: ExecutionRequest, runs: int) -> dict[str, Any]:
    """Warm runs of both, in turns."""
    local = local_sandbox()
    found: dict[str, list[float]] = {"ray": [], "local": []}
    for name, sandbox in (("ray", ray), ("local", local)) * (runs + 5):
        seconds, warm = await timed(sandbox, request)
        if warm:
            found[name].append(seconds)
    await local.close()
    return {name: sorted(times[3:]) for name, times in found.items()}


async def sessions(ray: Sandbox, request: ExecutionRequest, count: int, seconds: float) -> dict[str, Any]:
    """How many runs each of many sessions got in a time, and how long they waited."""
    done: Counter[int] = Counter()
    waits: list[float] = []
    until = time.monotonic() + seconds

    async def one(number: int) -> None:
        while time.monotonic() < until:
            began = time.perf_counter()
            await ray.run(replace(request, share=(f"user{number // 5}", f"session{number}")))
            waits.append(time.perf_counter() - began)
            done[number] += 1

    await asyncio.gather(*(one(number) for number in range(count)))
    each = [done[number] for number in range(count)]
    return {"fewest": min(each), "most": max(each), "runs": sum(each), "wait": sorted(waits)[int(0.99 * len(waits))]}


async def measure(runs: int, count: int, seconds: float) -> dict[str, Any]:
    """Everything."""
    with tempfile.TemporaryDirectory() as folder:
        skill = Path(folder, "skill")
        (skill / "scripts").mkdir(parents=True)
        (skill / "SKILL.md").write_text("---\nname: skill\ndescription: trivial\n---\n")
        (skill / "scripts" / "trivial.py").write_text("print('hello')\n")
        argv = (sys.executable, "/skill/scripts/trivial.py")
        request = ExecutionRequest(argv, SandboxPolicy(wall_seconds=60.0), mounts=(ReadOnlyMount(skill),))
        ray = RaySandbox(max_workers=1, runs_per_worker=8)
        try:
            found = await latencies(ray, request, runs)
            found["sessions"] = await sessions(ray, request, count, seconds)
        finally:
            await ray.close()
    return {**found, "load": os.getloadavg()[0]}


def main() -> None:
    """Start the cluster, measure, print."""
    runs, count, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    ray: Any = importlib.import_module("ray")
    here = {"node_ip_address": LOOPBACK}
    head = {"num_cpus": 0, "include_dashboard": False, **here}
    cluster = importlib.import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=os.cpu_count(), **here)
    ray.init(address=cluster.address, _node_ip_address=LOOPBACK, log_to_driver=False)
    try:
        print(json.dumps(asyncio.run(measure(runs, count, seconds))))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
