"""Which variables which script gets: for all scripts, for one skill's, for one script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from adk_skills_agent.catalog.suggestions import nearest
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.policy import check_env
from adk_skills_agent.sandbox.secret_forms import SecretForms, forms_of
from adk_skills_agent.sandbox.secrets import EnvValue, Secret, secrets_of
from adk_skills_agent.scripts.location import SCRIPTS_FOLDER

NearestFiles = Callable[[str, str], Sequence[str] | None]
_NOTHING: Mapping[str, EnvValue] = MappingProxyType({})


class Grants:
    """Environment variables by whom they are for.

    A script gets what is granted to all, to its skill and to itself; the narrower grant wins. What is a
    :class:`Secret` anywhere here is kept out of the output of every script, because the scripts of a session share a
    workspace.

    Args:
        env: For every script.
        by_name: For a skill (``"weather"``) or one script (``"weather/scripts/forecast.py"``).

    Raises:
        ConfigError: A key, a variable's name or a value cannot be used. No sentence shows a value.
    """

    def __init__(
        self,
        env: Mapping[str, EnvValue] | None = None,
        by_name: Mapping[str, Mapping[str, EnvValue]] | None = None,
    ) -> None:
        self._all = check_env(env or _NOTHING, "env")
        if by_name is not None and not isinstance(by_name, Mapping):
            raise ConfigError(
                f"grants must map skills or scripts to their variables, not be of type {type(by_name).__name__}."
            )
        self._by_name: dict[str, dict[str, EnvValue]] = {}
        for key, variables in (by_name or {}).items():
            name = _key(key)
            if name in self._by_name:
                raise ConfigError(f"grants: {key!r} and another key mean the same script {name!r}. Join them.")
            self._by_name[name] = check_env(variables, f"grants for {key!r}")

    def of(self, skill: str, script: str) -> dict[str, EnvValue]:
        """The variables of one script.

        Args:
            skill: The skill's name.
            script: The script, relative to the skill's root (``scripts/run.py``).
        """
        return self._all | self._by_name.get(skill, {}) | self._by_name.get(f"{skill}/{script}", {})

    @cached_property
    def secrets(self) -> tuple[tuple[str, Secret], ...]:
        """All secrets and their names."""
        return secrets_of(self._all, *self._by_name.values())

    @cached_property
    def forms(self) -> SecretForms | None:
        """What recognises them; None when there are none."""
        return forms_of(self.secrets)

    def unknown(self, skills: Iterable[str], like: NearestFiles = lambda _skill, _path: None) -> list[str]:
        """One sentence for each key that is for nothing.

        Args:
            skills: The skills there are.
            like: Tells which scripts of a skill are most like a path; None when it has that very script, or when its
                files are not known. May block.
        """
        names = list(skills)
        sentences = []
        for key in self._by_name:
            skill, _, path = key.partition("/")
            if skill not in names:
                sentences.append(_unknown(key, f"this agent has no skill {skill!r}", nearest(skill, names)))
            elif path and (close := like(skill, path)) is not None:
                sentences.append(_unknown(key, f"the skill has no such script {path!r}", close))
        return sentences


def _unknown(key: str, problem: str, close: Sequence[str]) -> str:
    hint = f" Nearest: {', '.join(close)}." if close else ""
    return f"A grant is for {key!r}, and {problem}.{hint}"


def _key(key: object) -> str:
    wish = "Write a skill's name, such as 'weather', or a script's, such as 'weather/scripts/forecast.py'."
    if not isinstance(key, str) or not key:
        raise ConfigError(f"grants: {key!r} names no skill and no script. {wish}")
    skill, slash, path = key.partition("/")
    parts = path.split("/")
    if not skill or "\\" in key or (slash and any(part in {"", ".", ".."} for part in parts)):
        raise ConfigError(f"grants: {key!r} names no skill and no script. {wish}")
    if not slash:
        return skill
    if parts[0] != SCRIPTS_FOLDER:
        parts.insert(0, SCRIPTS_FOLDER)
    return "/".join([skill, *parts])
