from adk_skills_agent.errors import ParseError, ValidationError
from adk_skills_agent.format import find_skill_md, read_properties
from adk_skills_agent.format.frontmatter import parse_strict as parse_frontmatter

__all__ = ["ParseError", "ValidationError", "find_skill_md", "parse_frontmatter", "read_properties"]
