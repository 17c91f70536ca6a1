from adk_skills_agent.format import validate_metadata, validate_skill

__all__ = ["validate", "validate_metadata"]


def validate(skill_dir):
    return validate_skill(skill_dir).errors
