"""What skills need beyond Python and a shell, and environments that have it.

:func:`read_needs` reads a skill's files and says what they need.
"""

from adk_skills_agent.packages.findings import NeedKind
from adk_skills_agent.packages.needs import Need, Needs, read_needs

__all__ = ["Need", "NeedKind", "Needs", "read_needs"]
