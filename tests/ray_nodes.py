"""A real Ray cluster of this machine for tests: a head that runs nothing, and nodes that can be added and killed."""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import psutil

LOOPBACK = "127.0.0.2"  # Ray takes 127.0.0.1 for the address that others see


class Nodes:
    """A cluster whose workers keep temporary files in a folder of its own, with this process connected to it."""

    def __init__(self, *cpus: float) -> None:
        self.temporary = Path(tempfile.mkdtemp(prefix="nodes-", dir="/tmp"))  # short: sockets are in it
        own = {"TMPDIR": str(self.temporary), "ADK_SKILLS_SANDBOX_CACHE": str(self.temporary / "cache")}
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            utilities: Any = importlib.import_module("ray.cluster_utils")
            here = {"node_ip_address": LOOPBACK}
            self._cluster = utilities.Cluster(
                initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **here}
            )
            self.nodes = [self._cluster.add_node(num_cpus=count, **here) for count in cpus]
        finally:
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
        self.address = str(self._cluster.address)
        self.ray: Any = importlib.import_module("ray")
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        self.ray.init(address=self.address, _node_ip_address=LOOPBACK, log_to_driver=False)
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def workers(self) -> list[psutil.Process]:
        """The processes of the actors."""
        found, own = [], str(self.temporary)
        for process in psutil.process_iter():
            try:
                if process.name().startswith("ray::RayWorker") and process.environ().get("TMPDIR") == own:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def left(self) -> list[str]:
        """What runs have left in the folder for temporary files of the nodes; the store of skills may stay."""
        return [path.name for path in self.temporary.iterdir() if path.name.startswith("adk-skills")]

    def close(self) -> None:
        """End it."""
        self.ray.shutdown()
        self._cluster.shutdown()
        shutil.rmtree(self.temporary, ignore_errors=True)


@functools.cache
def shared_nodes() -> Nodes:
    """One for all tests of a process, with a node of four processors."""
    made = Nodes(4)
    atexit.register(made.close)
    return made
