from adk_skills_agent.format import SkillProperties

__all__ = ["SkillProperties"]
