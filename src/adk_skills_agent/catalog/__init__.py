"""Which skills exist: scopes, discovery, the index on disk, trust, search and the token budget.

Start with :class:`~adk_skills_agent.catalog.registry.SkillsRegistry`. To add a scope see ``scopes.py``; to pass over
more folders see ``ignore.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adk_skills_agent.errors import nearest
from adk_skills_agent.lazy_names import names_on_first_use

if TYPE_CHECKING:
    from adk_skills_agent.catalog.budget import CatalogText, catalog_budget_tokens, estimate_tokens, fit_catalog
    from adk_skills_agent.catalog.files import FileListing, SkillFile
    from adk_skills_agent.catalog.registry import SkillsRegistry
    from adk_skills_agent.catalog.scopes import Scope
    from adk_skills_agent.catalog.search import SearchHit, SearchIndex
    from adk_skills_agent.catalog.settings import RegistryConfig
    from adk_skills_agent.catalog.skill import Skill
    from adk_skills_agent.catalog.trust import is_trusted, trust_project, untrust_project
    from adk_skills_agent.catalog.view import CatalogReader, SkillsView

_NAMES = {
    "budget": "CatalogText catalog_budget_tokens estimate_tokens fit_catalog",
    "files": "FileListing SkillFile",
    "registry": "SkillsRegistry",
    "scopes": "Scope",
    "search": "SearchHit SearchIndex",
    "settings": "RegistryConfig",
    "skill": "Skill",
    "trust": "is_trusted trust_project untrust_project",
    "view": "CatalogReader SkillsView",
}
__getattr__, __all__ = names_on_first_use(__name__, _NAMES)
