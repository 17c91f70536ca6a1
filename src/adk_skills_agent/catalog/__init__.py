"""Which skills exist: scopes, discovery, the index on disk, trust, search and the token budget.

Start with :class:`~adk_skills_agent.catalog.registry.SkillsRegistry`. To add a scope see ``scopes.py``; to pass over
more folders see ``ignore.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adk_skills_agent.catalog.files import FileListing, SkillFile
from adk_skills_agent.catalog.registry import CatalogReader, SkillsRegistry, SkillsView
from adk_skills_agent.catalog.scopes import Scope
from adk_skills_agent.catalog.settings import RegistryConfig
from adk_skills_agent.catalog.skill import Skill
from adk_skills_agent.errors import nearest

if TYPE_CHECKING:
    from adk_skills_agent.catalog.budget import CatalogText, catalog_budget_tokens, estimate_tokens, fit_catalog
    from adk_skills_agent.catalog.search import SearchHit, SearchIndex
    from adk_skills_agent.catalog.trust import is_trusted, trust_project, untrust_project

__all__ = [
    "CatalogReader",
    "CatalogText",
    "FileListing",
    "RegistryConfig",
    "Scope",
    "SearchHit",
    "SearchIndex",
    "Skill",
    "SkillFile",
    "SkillsRegistry",
    "SkillsView",
    "catalog_budget_tokens",
    "estimate_tokens",
    "fit_catalog",
    "is_trusted",
    "nearest",
    "trust_project",
    "untrust_project",
]

_ON_FIRST_USE = {
    "CatalogText": "budget",
    "SearchHit": "search",
    "SearchIndex": "search",
    "catalog_budget_tokens": "budget",
    "estimate_tokens": "budget",
    "fit_catalog": "budget",
    "is_trusted": "trust",
    "trust_project": "trust",
    "untrust_project": "trust",
}


def __getattr__(name: str) -> Any:
    module = _ON_FIRST_USE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{module}"), name)
