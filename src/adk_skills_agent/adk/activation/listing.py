"""Which skills one agent is told about, and within how many tokens (S4-4, C22 to C29)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from adk_skills_agent.catalog.budget import CatalogText, catalog_budget_tokens, estimate_tokens, fit_catalog

if TYPE_CHECKING:
    from adk_skills_agent.adk.skills.source import SkillSource


SEARCH_TOOL = "search_skills"
ENUM_SHARE = 0.25
"""The names are repeated in the enums of the tools; beyond this share of the budget they are not."""


class SkillListing:
    """The catalogue as one agent's tools show it; rendered again only when the catalogue changed.

    ``budget_tokens`` includes names in enums; None takes 2 % of the model's context.
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


# What a toolset tells the model in the system instruction: when to load a skill, what not to do (C24, S0-15).

TOOLS = ("list_skills", "load_skill", "load_skill_resource", "run_skill_script")
_BANNABLE = ("run_skill_script", "load_skill_resource", "load_skill", "list_skills", "unload_skill")


def toolset_instruction(
    name: Callable[[str], str] = str, offered: Collection[str] = TOOLS, filtered: Collection[str] = ()
) -> str:
    """The instruction for the tools of one request.

    ``filtered`` are those that the owner's ``tool_filter`` took away; a model that knows google-adk would try them.
    """
    steps = []
    if "load_skill" in offered:
        steps += [
            f"When a skill fits the task, call `{name('load_skill')}` before anything else.",
            "Follow the instructions of a loaded skill exactly, step by step. Loading a skill does NOT complete your "
            "turn: go on in the same turn with the tools its steps need, then answer. Never end with an empty "
            "response.",
        ]
    if "load_skill_resource" in offered:
        steps.append(
            f"`{name('load_skill_resource')}` reads files of a skill, such as `references/guide.md`; not files of "
            "the user."
        )
    if "run_skill_script" in offered:
        steps.append(f"`{name('run_skill_script')}` runs a script of a skill.")
    elif "load_skill_resource" in offered:
        steps.append("Scripts of skills cannot be run here; read them and follow them yourself.")
    tried = [f"`{name(tool)}`" for tool in ("load_skill_resource", "run_skill_script") if tool in offered]
    if tried:
        steps.append(
            f"Use only paths that a skill names or lists. If {' or '.join(tried)} returns an error, do not retry and "
            "do not guess another path: tell the user and stop."
        )
    numbered = "".join(f"{number}. {step}\n" for number, step in enumerate(steps, start=1))
    text = (
        "You can use skills: folders of instructions (SKILL.md), references, assets and scripts for one kind of task."
        f"\n\n{numbered}"
    )
    # What search and unload need is said where they are of use, so that this text is the same in every request.
    banned = [f"`{name(tool)}`" for tool in _BANNABLE if tool in filtered]
    if banned:
        text += (
            f"\nThe following tools are NOT available: {', '.join(banned)}. Do NOT call them. Write your answer as "
            "normal text, never inside a tool call.\n"
        )
    return text


DEFAULT_SKILL_SYSTEM_INSTRUCTION = toolset_instruction()
"""The instruction of a toolset without prefix and filter; google-adk uses the same name for its own."""
