"""The file system of a sandbox as steps, from the same description bubblewrap gets as its arguments."""

from __future__ import annotations

import functools
import marshal
import os
from collections.abc import Iterable

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.local import bubblewrap
from adk_skills_agent.sandbox.local.sandbox_start import SandboxSpec, file_system_arguments, filter_of
from adk_skills_agent.sandbox.local.system_view import etc_files

Step = tuple[object, ...]
_MODE = 0o755


@functools.lru_cache(maxsize=64)
def described(spec: SandboxSpec) -> bytes:
    """What :mod:`.zygote` is told to make."""
    before, after = file_system_arguments(spec)
    uid = bubblewrap.NOBODY if spec.uid is None else spec.uid
    files: list[Step] = [
        ("file", made.content, os.fsencode(made.path)) for made in etc_files(uid, network=spec.network)
    ]
    return marshal.dumps(
        {
            "steps": [*_steps(before), *files, *_steps(after)],
            "uid": spec.uid,
            "filter": filter_of(spec),
            "shown": [os.fsencode(source) for source, _ in spec.shown],
        }
    )


def _steps(arguments: Iterable[str]) -> list[Step]:
    words = iter(arguments)
    size: int | None = None
    mode = _MODE
    steps: list[Step] = []
    for word in words:
        match word:
            case "--ro-bind":
                source, target = next(words), next(words)
                steps.append(("bind", os.fsencode(source), os.fsencode(target)))
            case "--symlink":
                source, target = next(words), next(words)
                steps.append(("link", os.fsencode(source), os.fsencode(target)))
            case "--size":
                size = int(next(words))
            case "--perms":
                mode = int(next(words), 8)
            case "--tmpfs":
                steps.append(("tmpfs", size, mode, os.fsencode(next(words))))
                size, mode = None, _MODE
            case "--dir" | "--proc" | "--dev":
                steps.append((word[2:], os.fsencode(next(words))))
            case "--remount-ro":
                steps.append(("seal", os.fsencode(next(words))))
            case _:
                raise SandboxError(f"The sandbox's file system cannot be described: {word!r} is not known.")
    return steps
