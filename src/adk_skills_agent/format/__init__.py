"""The file format: text in, values out. Reading, validation (strict and lenient), prompt XML, the template.

Loading is lenient (``parse_head``, ``parse_file``, ``parse_text``); ``validate_skill``, ``read_properties`` and
``to_prompt`` are strict and say what skills-ref 0.1.1 says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adk_skills_agent.lazy_names import names_on_first_use

if TYPE_CHECKING:
    from adk_skills_agent.format.models import (
        Diagnostic,
        ParsedSkill,
        Severity,
        SkillMetadata,
        YamlValue,
        normalise_name,
    )
    from adk_skills_agent.format.parser import parse_file, parse_head, parse_read, parse_text
    from adk_skills_agent.format.properties import SkillProperties, read_properties, to_available_skills_xml, to_prompt
    from adk_skills_agent.format.reading import (
        MAX_SKILL_BYTES,
        SkillFileText,
        decoded,
        find_skill_md,
        read_head,
        read_text,
    )
    from adk_skills_agent.format.template import create_skill_template
    from adk_skills_agent.format.validator import ValidationResult, validate_metadata, validate_skill

_NAMES = {
    "models": "Diagnostic ParsedSkill Severity SkillMetadata YamlValue normalise_name",
    "parser": "parse_file parse_head parse_read parse_text",
    "properties": "SkillProperties read_properties to_available_skills_xml to_prompt",
    "reading": "MAX_SKILL_BYTES SkillFileText decoded find_skill_md read_head read_text",
    "template": "create_skill_template",
    "validator": "ValidationResult validate_metadata validate_skill",
}
__getattr__, __all__ = names_on_first_use(__name__, _NAMES)
