"""The lines of an owner's rules: how they are written, checked and compared (C25, C26).

:mod:`.permissions` weighs them. A pattern is compared without regard to letter case and Unicode normal form; what is
not allowed without regard to any difference that a reader may miss (``\u00df`` and ``ss``).
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from importlib.util import find_spec
from typing import TypeVar

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.installation import install_hint
from adk_skills_agent.sandbox import parse_host

_OF_THE_SHELL = frozenset({"execute", "read_file", "write_file", "edit_file", "job_output", "stop_job"})
WILDCARD = re.compile(r"[*?\[]")
_Word = TypeVar("_Word", bound=StrEnum)


class Verdict(StrEnum):
    """The verdict of a rule; the later one is stricter."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    @property
    def strictness(self) -> int:
        """0 for ``allow``, 2 for ``deny``."""
        return list(Verdict).index(self)


class Keep(StrEnum):
    """How long an approval holds; it always ends when a byte of the skill changes."""

    ONCE = "once"
    SESSION = "session"
    OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the owner's rules.

    Attributes:
        kind: ``skills``, ``scripts``, ``tools``, ``hosts`` or ``commands``.
        pattern: As written: ``db-*``, ``reporter/scripts/*.sh``, ``send_mail``, ``reporter/send_mail``.
    """

    kind: str
    pattern: str
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.kind}: {self.pattern}: {self.verdict.value}"

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Larger for the rule that wins (rule 2 of :mod:`.permissions`)."""
        fixed = re.sub(r"\[[^\]]*\]|[*?]", "", self.pattern)
        return (not WILDCARD.search(self.pattern), len(fixed), self.verdict.strictness)

    @property
    def skill(self) -> str:
        """The skills it is for, by name or wildcards; empty when it is for any."""
        if self.kind == "skills":
            return self.pattern
        # a host has no "/", so that the name of a skill is written as it is; paths have some
        parts = self.pattern.rpartition("/") if self.kind == "hosts" else self.pattern.partition("/")
        return parts[0] if parts[1] else ""

    @property
    def target(self) -> str:
        """The script, tool or host it is for; empty when it is for the skill as a whole."""
        return "" if self.kind == "skills" else self.pattern.removeprefix(f"{self.skill}/")

    def is_for(self, skill: str) -> bool:
        """Whether it is for a skill of this name, or for any."""
        return not self.skill or self._covers(self.skill, skill)

    def covers(self, *names: str) -> bool:
        """Whether it is about one of these: a skill, ``skill/path`` or ``skill/tool``."""
        # a script or tool without a skill is that of any
        pattern = self.pattern if self.kind == "skills" or "/" in self.pattern else f"*/{self.pattern}"
        return any(self._covers(pattern, name) for name in names)

    def _covers(self, pattern: str, name: str) -> bool:
        compared = _lower if self.verdict is Verdict.ALLOW else folded
        return _compiled(compared(pattern)).match(compared(name)) is not None

    @property
    def names_its_skill(self) -> bool:
        """Whether it is for one skill that is spelled out."""
        return bool(self.skill) and not WILDCARD.search(self.skill)


@functools.lru_cache(maxsize=1024)
def folded(name: str) -> str:
    """A name as it is compared: a "deny" must not miss what it is for by a capital letter or a normal form."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


@functools.lru_cache(maxsize=1024)
def _lower(name: str) -> str:
    """A name with all its own letters: ``folded`` makes ``busine\u00df`` the name of another skill (row 364)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).lower())


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def rules_of(kind: str, patterns: Mapping[str, Verdict | str] | None) -> list[Rule]:
    """The rules of one kind, from patterns and their verdicts. Raises ``ConfigError`` for what is neither."""
    if patterns is None:
        return []
    of_commands = kind == "commands"
    if not isinstance(patterns, Mapping):
        raise ConfigError(
            f"{kind} must map {'patterns' if of_commands else 'names or wildcards'} to verdicts, not be of type "
            f"{type(patterns).__name__}."
        )
    rules = []
    for pattern, verdict in patterns.items():
        written = isinstance(pattern, str) and bool(pattern.strip())
        if of_commands and not written:
            raise ConfigError(f"commands: {pattern!r} is no pattern of a command. Write one such as 'git push *'.")
        if not of_commands and (not written or "\\" in pattern or pattern.startswith("/")):
            raise ConfigError(f"{kind}: {pattern!r} is no name and no wildcard. Write one such as 'db-*'.")
        text = " ".join(pattern.split()) if of_commands else pattern.strip()
        if kind == "tools" and text in _OF_THE_SHELL:
            raise ConfigError(
                f"tools: {text!r} is a tool of the shell, and these rules are for tools that skills bring. Rules for "
                f"what the shell runs are under 'commands' ('*' for all); a tool of a skill is written '*/{text}'."
            )
        rules.append(Rule(kind, text, one_of(Verdict, verdict, f"{kind}: {pattern}")))
    return rules


def require_grammar() -> None:
    """Check that rules for commands can be kept, before an agent starts with them."""
    for module in ("tree_sitter", "tree_sitter_bash"):
        if find_spec(module) is None:
            raise ConfigError(
                "commands: rules for commands need the grammar of bash, which is not installed. "
                f"Run: {install_hint('shell')}"
            )


def check_host_rule(rule: Rule) -> None:
    """Hosts have the wildcards of the network policy, so that a rule can be kept by the proxy."""
    if "=" in rule.pattern:
        raise ConfigError(f"{rule}: a rule opens no private network. Write the host with its network in a grant.")
    host = rule.target
    if host == "*" and rule.verdict is Verdict.ALLOW:
        raise ConfigError(
            f"{rule}: every host is too much to allow. Name the hosts, or give the policy network 'host'."
        )
    if host != "*":
        parse_host(host)
        if rule.verdict is not Verdict.ALLOW and ":" in host:
            raise ConfigError(f"{rule}: only 'allow' can be for one port. Write the host alone.")


def one_of(words: type[_Word], value: object, where: str) -> _Word:
    """One of the words that are possible at a place. Raises ``ConfigError`` for any other."""
    if isinstance(value, str) and value in set(words):
        return words(value)
    raise ConfigError(f"{where} must be {', '.join(words)}, not {value!r}.")
