"""A PostgreSQL server from Debian's package, of a user without privileges, on the loopback interface alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from replicas import free_port


def _program(name: str) -> str:
    for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True):
        return str(path)
    found = shutil.which(name)
    if found is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    return found


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """The URL of an empty database, for google-adk."""
    initdb, server, createdb = map(_program, ("initdb", "postgres", "createdb"))
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    if user is not None:
        shutil.chown(folder, user)
    port, data = free_port(), folder / "data"
    try:
        options = ["-D", str(data), "-U", "adk", "--auth=trust", "--no-sync", "-E", "UTF8"]
        subprocess.run([initdb, *options], user=user, check=True, capture_output=True)
        started = subprocess.Popen(
            [server, "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(folder), "-c", "fsync=off"],
            user=user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(100):
                made = subprocess.run(
                    [createdb, "-h", "127.0.0.1", "-p", str(port), "-U", "adk", "sessions"],
                    capture_output=True,
                    check=False,
                )
                if made.returncode == 0:
                    break
                assert started.poll() is None
            else:
                raise AssertionError(made.stderr.decode())
            yield f"postgresql+asyncpg://adk@127.0.0.1:{port}/sessions"
        finally:
            started.terminate()
            started.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
