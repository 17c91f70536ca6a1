"""The needs of skills beyond Python and a shell, and environments that meet them.

:func:`read_needs` reads a skill's files and says what they need; :func:`resolve` finds exact versions with hashes;
:func:`prepare` makes an environment of them; :meth:`SkillEnvironments.environment_for` does all three as the owner's
:class:`Dependencies` allow. Each name is imported on first use: planning a run must not wait for what it may not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adk_skills_agent.lazy_names import names_on_first_use

if TYPE_CHECKING:
    from adk_skills_agent.packages.environments import Collected, Environment, collect, find_environment, prepare
    from adk_skills_agent.packages.findings import NeedKind
    from adk_skills_agent.packages.inference import parsed_python
    from adk_skills_agent.packages.lock import (
        Lock,
        LockedPackage,
        preset_requirements,
        read_lock,
        resolve,
    )
    from adk_skills_agent.packages.needs import Need, Needs, read_needs
    from adk_skills_agent.packages.skill_environments import (
        LOCK_FILE,
        Dependencies,
        DependencyMode,
        PackagesNotApproved,
        SkillEnvironments,
        dependencies_of,
    )
    from adk_skills_agent.packages.uv import Index

_NAMES = {
    "environments": "Collected Environment collect find_environment prepare",
    "findings": "NeedKind",
    "inference": "parsed_python",
    "lock": "Lock LockedPackage preset_requirements read_lock resolve",
    "needs": "Need Needs read_needs",
    "skill_environments": "LOCK_FILE Dependencies DependencyMode PackagesNotApproved SkillEnvironments dependencies_of",
    "uv": "Index",
}
__getattr__, __all__ = names_on_first_use(__name__, _NAMES)
