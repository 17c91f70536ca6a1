"""Which sandbox a run needs: the key of a warm one, or how a new one is started."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping

from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local import bubblewrap
from adk_skills_agent.sandbox.local.first_process import first_process
from adk_skills_agent.sandbox.local.guest_start import start_guest
from adk_skills_agent.sandbox.local.live_stdin import LiveStdin
from adk_skills_agent.sandbox.local.newborn import Birth
from adk_skills_agent.sandbox.local.own_interpreter import USUAL_FLAGS
from adk_skills_agent.sandbox.local.python_view import shown_at
from adk_skills_agent.sandbox.local.sandbox_start import FirstProcess, SandboxSpec, Started, start_sandbox
from adk_skills_agent.sandbox.local.slots import SlotKey, identities
from adk_skills_agent.sandbox.local.zygote_life import zygote_life


def slot_key(
    request: ExecutionRequest,
    policy: SandboxPolicy,
    spec: SandboxSpec,
    command: tuple[str, ...],
    script: int | None,
    birth: Birth,
) -> SlotKey | None:
    """What a warm sandbox for this run is known by; None when it cannot use one.

    Args:
        request: What to run.
        policy: Its checked policy.
        spec: What its sandbox is made from.
        command: The command as the sandbox sees it.
        script: Where in it a script is that a guest runs itself.
        birth: How such a sandbox is born.

    Raises:
        OSError: A folder to be shown is gone.
    """
    if policy.warm_slots == 0 or policy.network.mode == "allow" or policy.python not in {None, sys.executable}:
        return None
    return _one_key(
        spec,
        identities([*(str(mount.source) for mount in request.mounts), *policy.extra_ro]),
        shown_at(sys.executable) if script is None else command[0],
        USUAL_FLAGS if script is None else command[1:script],
        policy.preload,
        birth,
        request.mounts,
    )


_one_key = functools.lru_cache(maxsize=64)(SlotKey)  # the same object is found sooner


def new_sandbox(
    request: ExecutionRequest,
    policy: SandboxPolicy,
    spec: SandboxSpec,
    command: tuple[str, ...],
    script: int | None,
    environment: Mapping[str, str],
) -> Started:
    """A sandbox in which the command, or what becomes it, is held back. Blocking; arguments as for :func:`slot_key`.

    Raises:
        SandboxError: It could not be made.
        OSError: No descriptor or memory is left.
    """
    if script is not None:
        return start_guest(spec, command[0], command[1:script])
    if isinstance(request.stdin, LiveStdin):  # bubblewrap can only copy what is there already
        return start_guest(spec, shown_at(sys.executable), USUAL_FLAGS)
    return zygote_life().start(spec, None, (), (), lambda: _behind_a_shell(request, policy, spec, command, environment))


def _behind_a_shell(
    request: ExecutionRequest,
    policy: SandboxPolicy,
    spec: SandboxSpec,
    command: tuple[str, ...],
    environment: Mapping[str, str],
) -> Started:
    stdin = bubblewrap.STDIN_PATH if request.stdin is not None else "/dev/null"
    line = first_process(policy, stdin, str(request.cwd), list(command))
    if spec.uid is not None:
        line = [*bubblewrap.drop_prefix(spec.uid), *line]
    return start_sandbox(spec, FirstProcess(line, dict(environment), stdin=request.stdin))
