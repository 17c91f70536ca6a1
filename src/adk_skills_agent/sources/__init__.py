"""Skills from elsewhere: fetched, looked at, pinned by digest, kept once, updated with local edits, and served.

:func:`read_origin` reads what a user writes for a source, :func:`fetch_skills` gets skills into memory, a
:class:`Project` installs and pins them, :class:`SkillStore` keeps each tree of files once. Each name is imported on
first use: a process that only lists skills pays for nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adk_skills_agent.lazy_names import names_on_first_use

if TYPE_CHECKING:
    from adk_skills_agent.sources.consent import ConsentPage, consent_page
    from adk_skills_agent.sources.fetch import FetchedSkill, fetch_skills
    from adk_skills_agent.sources.lock_file import LockedSkill, SkillLock, read_skill_lock
    from adk_skills_agent.sources.origin import Origin, OriginKind, read_origin
    from adk_skills_agent.sources.project import Project, SkillState, SyncResult, open_project
    from adk_skills_agent.sources.scan.rules import Finding, Weight, scan_tree
    from adk_skills_agent.sources.skill_sources import FolderSource, FsspecSource, OriginSource, TreeSource
    from adk_skills_agent.sources.store import SkillStore
    from adk_skills_agent.sources.tree import SkillTree, TreeFile, read_tree

_NAMES = {
    "consent": "ConsentPage consent_page",
    "fetch": "FetchedSkill fetch_skills",
    "lock_file": "LockedSkill SkillLock read_skill_lock",
    "origin": "Origin OriginKind read_origin",
    "project": "Project SkillState SyncResult open_project",
    "scan.rules": "Finding Weight scan_tree",
    "skill_sources": "FolderSource FsspecSource OriginSource TreeSource",
    "store": "SkillStore",
    "tree": "SkillTree TreeFile read_tree",
}
__getattr__, _ = names_on_first_use(__name__, _NAMES)

__all__ = [
    "ConsentPage",
    "FetchedSkill",
    "Finding",
    "FolderSource",
    "FsspecSource",
    "LockedSkill",
    "Origin",
    "OriginKind",
    "OriginSource",
    "Project",
    "SkillLock",
    "SkillState",
    "SkillStore",
    "SkillTree",
    "SyncResult",
    "TreeFile",
    "TreeSource",
    "Weight",
    "consent_page",
    "fetch_skills",
    "open_project",
    "read_origin",
    "read_skill_lock",
    "read_tree",
    "scan_tree",
]
