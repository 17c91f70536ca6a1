"""Named policies: ``trusted``, ``default`` and ``strict``.

A preset is a starting point like any other policy; ``resolve_policy`` and a policy file put single fields over it.
No preset opens the network: that is always said on its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import IsolationLevel, Network, SandboxPolicy

_MIB = 1 << 20
_GIB = 1 << 30

PRESETS: Mapping[str, SandboxPolicy] = MappingProxyType(
    {
        # Scripts the owner has read or written: no isolation is demanded (the strongest that works is still used), and
        # there is room for real work.
        "trusted": SandboxPolicy(
            min_isolation=IsolationLevel.PROCESS.value,
            wall_seconds=300.0,
            memory_bytes=4 * _GIB,
            pids=512,
            open_files=1024,
            file_bytes=1 * _GIB,
            workspace_bytes=4 * _GIB,
            workspace_inodes=200_000,
            tmp_bytes=1 * _GIB,
            shm_bytes=256 * _MIB,
            output_bytes=1 * _MIB,
            output_flood_bytes=256 * _MIB,
            max_files=200,
            max_file_bytes=64 * _MIB,
            max_total_file_bytes=256 * _MIB,
        ),
        "default": SandboxPolicy(),
        # Scripts of strangers: file system, network and processes of their own, and little of everything.
        "strict": SandboxPolicy(
            min_isolation=IsolationLevel.NAMESPACES.value,
            wall_seconds=10.0,
            term_grace_seconds=0.5,
            drain_seconds=0.2,
            cpu_seconds=10,
            memory_bytes=256 * _MIB,
            pids=32,
            open_files=128,
            file_bytes=16 * _MIB,
            workspace_bytes=64 * _MIB,
            workspace_inodes=2_000,
            tmp_bytes=16 * _MIB,
            shm_bytes=4 * _MIB,
            output_bytes=64 << 10,
            output_flood_bytes=8 * _MIB,
            max_files=20,
            max_file_bytes=2 * _MIB,
            max_total_file_bytes=8 * _MIB,
            network=Network.none(),
        ),
    }
)


def preset(name: str) -> SandboxPolicy:
    """The policy of that name.

    Raises:
        ConfigError: There is none; the sentence has the names.
    """
    policy = PRESETS.get(name) if isinstance(name, str) else None
    if policy is None:
        close = difflib.get_close_matches(str(name), PRESETS, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(PRESETS)}."
        raise ConfigError(f"There is no sandbox policy called {name!r}. {hint} Load a file with load_policy(path).")
    return policy


def policy_of(choice: SandboxPolicy | str | None) -> SandboxPolicy:
    """What a ``policy=`` argument means: a policy itself, the name of a preset, or None for the default one.

    Raises:
        ConfigError: It is neither.
    """
    if choice is None:
        return PRESETS["default"]
    if isinstance(choice, SandboxPolicy):
        return choice
    return preset(choice)
