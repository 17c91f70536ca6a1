"""Whether the policy's interpreter is there: said before anything starts, and not as a failure of a script."""

from __future__ import annotations

import os

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import SandboxPolicy


def check_interpreter(policy: SandboxPolicy) -> None:
    """Look for ``policy.python`` when it is a path; a bare name is looked up like any other command.

    Raises:
        ConfigError: It is no executable file. The path itself is only in a note: a model gets no host paths.
    """
    path = policy.python
    if path is None or not os.path.isabs(path):  # noqa: PTH117
        return
    if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
        return
    name = os.path.basename(path)  # noqa: PTH119
    error = ConfigError(f"The policy's python, {name!r}, is no executable file on this machine. Correct its path.")
    error.add_note(f"On the host: {path}")
    raise error
