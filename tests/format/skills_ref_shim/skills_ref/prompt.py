from adk_skills_agent.format import to_prompt

__all__ = ["to_prompt"]
