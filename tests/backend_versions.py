"""What a backend of the conformance suite ran on, in a few words for the record: engine, runtime, library, kernel."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

import container_engines
from adk_skills_agent.sandbox.local.kernel import landlock

_ENGINES = {"container-docker": "docker", "container-podman": "podman", "container-gvisor": "gvisor"}
_LIBRARIES = {"kubernetes": "k8s-agent-sandbox", "remote": "google-adk"}


@functools.cache
def ran_on(backend: str) -> str:
    """One line, without commas at its ends: ``Podman 4.3.1, runc 1.1.5+ds1; Linux 6.18.44``.

    Args:
        backend: Its name in the suite; it can run here.
    """
    return f"{_software(backend)}; {platform.system()} {os.uname().release.partition('-')[0]}"


def _software(backend: str) -> str:
    if backend in _ENGINES:
        return _engine(_ENGINES[backend], runsc=backend == "container-gvisor")
    if backend in _LIBRARIES:
        library = _LIBRARIES[backend]
        return f"{library} {importlib.metadata.version(library)} over loopback"
    if backend == "ray":
        return f"Ray {importlib.metadata.version('ray')}, {_first_line('bwrap')}"
    if backend == "landlock":
        return f"Landlock ABI {landlock.abi()}"
    if backend == "process":
        return f"Python {platform.python_version()}"
    version = 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1
    return f"{_first_line('bwrap')}, cgroup v{version}" if "-cgroup-" in backend else _first_line("bwrap")


def _engine(name: str, *, runsc: bool) -> str:
    client = container_engines.client(container_engines.shared(name))
    try:
        told = client.version()
    finally:
        client.close()
    runtime = _first_line("runsc") if runsc else _first_line("runc")
    return f"{'Docker' if runsc else name.capitalize()} {told['Version']}, {runtime}"


def _first_line(program: str) -> str:
    found = shutil.which(program)
    if found is None:  # an engine that runs elsewhere
        return program
    done = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0].replace(" version ", " ").strip()
