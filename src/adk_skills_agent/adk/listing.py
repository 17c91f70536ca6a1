"""Which skills one agent is told about, and within how many tokens (S4-4, C22 to C29)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adk_skills_agent.catalog.budget import CatalogText, catalog_budget_tokens, fit_catalog
from adk_skills_agent.catalog.tokens import estimate_tokens

if TYPE_CHECKING:
    from adk_skills_agent.adk.skill_source import SkillSource

SEARCH_TOOL = "search_skills"
ENUM_SHARE = 0.25
"""The names are repeated in the enums of the tools; beyond this share of the budget they are not."""


class SkillListing:
    """The catalogue as one agent's tools show it; rendered again only when the catalogue changed.

    Args:
        skills: The agent's skills.
        budget_tokens: Most tokens of the catalogue, names in enums included; None takes 2 % of the model's context.
        model: The agent's model, for the default budget.
        search_hint: Name of the search tool, when the agent has it.
    """

    def __init__(
        self,
        skills: SkillSource,
        *,
        budget_tokens: int | None = None,
        model: str | None = None,
        search_hint: str | None = SEARCH_TOOL,
    ) -> None:
        self.skills = skills
        self.budget_tokens = budget_tokens if budget_tokens is not None else catalog_budget_tokens(model)
        self._search_hint = search_hint
        self._rendered: tuple[int, CatalogText, tuple[str, ...] | None] | None = None

    def for_skills(self, skills: SkillSource) -> SkillListing:
        """The same budget for other skills."""
        return SkillListing(skills, budget_tokens=self.budget_tokens, search_hint=self._search_hint)

    @property
    def empty(self) -> bool:
        """True when the agent has no skill; then nothing is registered (C27)."""
        return len(self.skills) == 0

    @property
    def text(self) -> CatalogText:
        """The catalogue, never over the budget."""
        return self._render()[0]

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names for enums, or None when the catalogue does not list every skill."""
        return self._render()[1]

    @property
    def complete(self) -> bool:
        """Whether every skill is listed with its whole description; else the model is pointed at the search tool."""
        return not self.text.dropped and not self.text.shortened

    def _render(self) -> tuple[CatalogText, tuple[str, ...] | None]:
        version = self.skills.version
        if self._rendered is None or self._rendered[0] != version:
            self._rendered = (version, *self._fit())
        return self._rendered[1:]

    def _fit(self) -> tuple[CatalogText, tuple[str, ...] | None]:
        items = self.skills.list_metadata()
        names = tuple(item.name for item in items)
        enum_tokens = estimate_tokens('","'.join(names)) + 2
        # An enum would keep a model from the names that only the registry knows.
        if self.skills.registry is None and enum_tokens <= self.budget_tokens * ENUM_SHARE:
            text = fit_catalog(items, self.budget_tokens - enum_tokens, search_hint=self._search_hint)
            if not text.dropped:
                return text, names
        return fit_catalog(items, self.budget_tokens, search_hint=self._search_hint), None
