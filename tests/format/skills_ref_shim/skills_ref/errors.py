from adk_skills_agent.errors import FormatError as SkillError
from adk_skills_agent.errors import ParseError, ValidationError

__all__ = ["ParseError", "SkillError", "ValidationError"]
