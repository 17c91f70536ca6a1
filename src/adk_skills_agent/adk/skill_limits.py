"""The numbers an owner may change: how much of the context skills take, and how often a model may miss."""

from __future__ import annotations

from dataclasses import dataclass, fields

from adk_skills_agent.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SkillLimits:
    """Bounds of one toolset. ``None`` means unlimited where it is allowed.

    Attributes:
        skill_tokens: Most tokens of one active skill's instructions in a request; the rest is read in pages.
        active_tokens: Most tokens of all active skills of an agent; beyond it the oldest are released.
        manifest_files: Most files listed when a skill is activated; 0 leaves the list out.
        misses: How many wrong paths (or names, or runs without an executor) of a kind one turn gets a mild answer for;
            the next one is fatal (S2).
        identical_failures: How often one turn may repeat a run that failed the same way.
        cache_turns: For how many turns skills fetched from a registry are kept (S2-13).
        list_skills: Most skills in one answer of ``list_skills``; more are paged.
        search_results: Most skills in one answer of ``search_skills``.
    """

    skill_tokens: int | None = 5_000
    active_tokens: int | None = 25_000
    manifest_files: int = 60
    misses: int = 1
    identical_failures: int = 2
    cache_turns: int = 16
    list_skills: int = 200
    search_results: int = 10

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in {"skill_tokens", "active_tokens"}:
                continue
            least = 0 if field.name in {"manifest_files", "misses", "identical_failures"} else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"SkillLimits.{field.name} must be a whole number from {least} on, not {value!r}.")


def limits_of(limits: SkillLimits | None) -> SkillLimits:
    """What a ``limits=`` argument means.

    Raises:
        ConfigError: It is neither limits nor None.
    """
    if limits is None:
        return SkillLimits()
    if not isinstance(limits, SkillLimits):
        raise ConfigError(f"limits must be SkillLimits(...), not {limits!r}.")
    return limits
