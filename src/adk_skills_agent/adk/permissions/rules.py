"""What an agent may do with skills without asking: rules of the owner, and how they are weighed (S4-21, C25, C26).

A rule gives ``allow``, ``ask`` or ``deny`` to a skill, a script or a tool; names may have wildcards. They are weighed
like this:

1. A skill that is denied does not exist for the agent, and no narrower rule brings a part of it back.
2. Among the rules of one kind that match, the most specific wins: one without wildcards beats one with, then the one
   with more fixed characters; between equals ``deny`` beats ``ask``, and ``ask`` beats ``allow``. Names are compared
   without regard to letter case and Unicode normal form; a tool has the toolset's prefix or not, as the rule likes.
3. For a script, a rule under ``scripts`` beats one under ``tools``. A rule for a script or tool comes on top of the
   skill's own: both must let it pass. Only an ``allow`` that names its skill without wildcards stands alone.
4. Where no rule speaks: a skill of the project asks the first time (``project_skills``), any other follows ``default``.
   What a skill brings along follows the skill: once the skill may be used, its files may be read and its scripts may
   run in the sandbox. A tool that a skill brings is asked for by itself when the skill was, except when the skill's
   ``allowed-tools`` names it: that request counts once this very version of the skill was approved.

To read a skill's SKILL.md is to load it. A tool that is denied for one active skill is denied, whoever else brings it.
``allowed-tools`` never beats a rule, and nothing here changes a limit of the sandbox.
"""

from __future__ import annotations

import copy
import functools
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from adk_skills_agent.catalog.scopes import Scope
from adk_skills_agent.errors import ConfigError, nearest
from adk_skills_agent.settings import SettingsKind, read_settings

if TYPE_CHECKING:
    from adk_skills_agent.adk.skills.known import KnownSkill
    from adk_skills_agent.scripts.plan import NearestFiles


Action = Literal["activate", "read", "run", "tool"]
"""Loading instructions, reading a file, running a script, calling a tool that a skill brings."""

OWN_TOOLS: Mapping[Action, tuple[str, ...]] = {
    "activate": ("load_skill", "use_skill"),
    "read": ("load_skill_resource", "read_reference"),
    "run": ("run_skill_script", "execute_skill_script", "run_script"),
}
"""The toolset's tools, by what they do; a rule names them in full and without a prefix."""
SKILL = "skill"
"""The subject of an approval that covers a version of a skill as a whole."""
_PROJECT_SCOPES = frozenset({Scope.PROJECT, Scope.ANCESTOR})
_WILDCARD = re.compile(r"[*?\[]")
_Word = TypeVar("_Word", bound=StrEnum)


class Verdict(StrEnum):
    """What a rule says; the later one is stricter."""

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
        kind: ``skills``, ``scripts`` or ``tools``.
        pattern: As written: ``db-*``, ``reporter/scripts/*.sh``, ``send_mail``, ``reporter/send_mail``.
        verdict: What it says.
    """

    kind: str
    pattern: str
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.kind}: {self.pattern}: {self.verdict.value}"

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Larger for the rule that wins (rule 2 above)."""
        fixed = re.sub(r"\[[^\]]*\]|[*?]", "", self.pattern)
        return (not _WILDCARD.search(self.pattern), len(fixed), self.verdict.strictness)

    @property
    def names_its_skill(self) -> bool:
        """Whether it is for a script or tool of one skill that is spelled out."""
        skill, slash, _ = self.pattern.partition("/")
        return bool(slash) and not _WILDCARD.search(skill)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rules say of one call.

    Attributes:
        verdict: ``allow``, ``ask`` or ``deny``.
        action: What is to be done.
        target: The script or tool, or empty.
        reason: Why, in words for a person.
        rule: The rule that decided, or None for a default.
        subjects: What must be approved when ``verdict`` is ``ask``: ``skill``, ``script:<path>``, ``tool:<name>``.
        requested: Of these, those that the skill's ``allowed-tools`` asks for: approving ``skill`` covers them.
    """

    verdict: Verdict
    action: Action
    target: str = ""
    reason: str = ""
    rule: Rule | None = None
    subjects: tuple[str, ...] = ()
    requested: frozenset[str] = frozenset()


class Permissions:
    """The owner's rules.

    Args:
        default: For skills that no rule names.
        project_skills: For skills that came with a project, where no rule names them.
        skills: Patterns of skill names to verdicts: ``{"db-*": "ask"}``.
        scripts: Patterns of ``skill/path``: ``{"reporter/scripts/publish.py": "ask", "*.sh": "deny"}``; a pattern
            without ``/`` is for a file name in any skill, and the folder ``scripts/`` may be left out.
        tools: Patterns of tools that skills bring, of one skill when written ``skill/tool``; and the toolset's own
            tools (``load_skill``, ``load_skill_resource``, ``run_skill_script``), which only their full name means.
        remember: How long the approval of the user in the conversation holds at most. ``owner`` writes it into the
            owner's list for all sessions: only for an agent whose user is its owner.
        approvals: The file with the owner's approvals; None for the one in the user's settings.

    Raises:
        ConfigError: A verdict or pattern cannot be used.
    """

    def __init__(
        self,
        *,
        default: Verdict | str = Verdict.ALLOW,
        project_skills: Verdict | str = Verdict.ASK,
        skills: Mapping[str, Verdict | str] | None = None,
        scripts: Mapping[str, Verdict | str] | None = None,
        tools: Mapping[str, Verdict | str] | None = None,
        remember: Keep | str = Keep.SESSION,
        approvals: Path | None = None,
    ) -> None:
        self.default = _word(Verdict, default, "default")
        self.project_skills = _word(Verdict, project_skills, "project_skills")
        self.remember = _word(Keep, remember, "remember")
        self.approvals = approvals
        self.rules = (*_rules("skills", skills), *_rules("scripts", scripts), *_rules("tools", tools))
        self._matchers = [(rule, _pattern(rule).match) for rule in self.rules]
        self._prefix = ""

    def __repr__(self) -> str:
        rules = ", ".join(map(str, self.rules))
        return f"Permissions(default={self.default.value}, project_skills={self.project_skills.value}, rules=[{rules}])"

    @classmethod
    def from_file(cls, path: str | Path) -> Permissions:
        """The rules of a YAML file, or of the table ``[tool.adk-skills.permissions]`` of a TOML file.

        Raises:
            ConfigError: The file cannot be read, or has a key or value that is not possible; with file and line.
        """
        return load_permissions(path)

    def with_prefix(self, prefix: str) -> Permissions:
        """The same rules where the model sees tools with a prefix: a rule may name them with it or without.

        Args:
            prefix: With its underscore, or empty.
        """
        prefixed = copy.copy(self)
        prefixed._prefix = prefix
        return prefixed

    def hides(self, name: str, scope: Scope = Scope.EXPLICIT) -> bool:
        """Whether the agent must not know that this skill exists."""
        return self._of_skill(name, scope)[0] is Verdict.DENY

    def decide(self, skill: KnownSkill, action: Action, target: str = "") -> Decision:
        """What the rules say of one call; nothing is asked and nothing is read.

        Args:
            skill: Whose it is.
            action: What is to be done.
            target: The path of the file or script, as the skill has it; the name of the tool.
        """
        verdict, rule, reason = self._of_skill(skill.name, skill.scope)
        if verdict is Verdict.DENY:
            return Decision(Verdict.DENY, action, target, reason, rule)
        own = self._of_target(skill.name, action, target)
        if own is not None and own.verdict is Verdict.DENY:
            return Decision(Verdict.DENY, action, target, f"the rule '{own}' says so", own)
        if own is not None and own.verdict is Verdict.ALLOW and own.names_its_skill:
            return Decision(Verdict.ALLOW, action, target, f"the rule '{own}' says so", own)
        subjects = [SKILL] if verdict is Verdict.ASK else []
        requested: set[str] = set()
        subject = subject_of(action, target)
        if own is not None and own.verdict is Verdict.ASK:
            subjects.append(subject)
            rule, reason = own, f"the rule '{own}' says so"
        elif own is None and action == "tool" and verdict is Verdict.ASK:
            subjects.append(subject)
            if target in skill.allowed_tools:
                requested.add(subject)
        if subjects:
            return Decision(Verdict.ASK, action, target, reason, rule, tuple(subjects), frozenset(requested))
        return Decision(Verdict.ALLOW, action, target, reason, own or rule)

    def _of_skill(self, name: str, scope: Scope) -> tuple[Verdict, Rule | None, str]:
        rule = self._best("skills", name)
        if rule is not None:
            return rule.verdict, rule, f"the rule '{rule}' says so"
        if scope in _PROJECT_SCOPES and self.project_skills.strictness > self.default.strictness:
            return self.project_skills, None, "it came with the project"
        return self.default, None, "no rule is about it"

    def _of_target(self, skill: str, action: Action, target: str) -> Rule | None:
        if not self.rules:
            return None
        if action == "tool":
            return self._best("tools", f"{skill}/{target}", f"{skill}/{self._prefix}{target}")
        if action == "run":
            script = self._best("scripts", f"{skill}/{target}", f"{skill}/{target.removeprefix('scripts/')}")
            if script is not None:
                return script
        own = {*OWN_TOOLS[action], *(folded(self._prefix + name) for name in OWN_TOOLS[action])}
        named = [rule for rule in self.rules if rule.kind == "tools" and folded(rule.pattern) in own]
        return max(named, key=lambda rule: rule.rank, default=None)

    def unknown(self, skills: Iterable[str], like: NearestFiles = lambda _skill, _path: None) -> list[str]:
        """One sentence for each rule that spells out what is not there."""
        names = list(skills)
        known = {folded(name): name for name in names}
        sentences = []
        for rule in self.rules:
            skill, slash, path = rule.pattern.partition("/")
            spelled_out = (slash or rule.kind == "skills") and not _WILDCARD.search(skill)
            if spelled_out and folded(skill) not in known:
                close = nearest(skill, names)
                hint = f" Nearest: {', '.join(close)}." if close else ""
                sentences.append(f"The rule '{rule}' is for a skill this agent does not have.{hint}")
            elif spelled_out and rule.kind == "scripts" and not _WILDCARD.search(path):
                files = like(known[folded(skill)], path)
                if files is not None:
                    hint = f" Nearest: {', '.join(files)}." if files else ""
                    sentences.append(f"The rule '{rule}' is for a script the skill does not have.{hint}")
        return sentences

    def _best(self, kind: str, *names: str) -> Rule | None:
        texts = list(map(folded, names))
        matching = [rule for rule, matches in self._matchers if rule.kind == kind and any(map(matches, texts))]
        return max(matching, key=lambda rule: rule.rank, default=None)


@functools.lru_cache(maxsize=1024)
def folded(name: str) -> str:
    """A name as it is compared: a "deny" must not miss what it is for by a capital letter or a normal form."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def subject_of(action: Action, target: str) -> str:
    """What an approval of one call covers."""
    if action == "run":
        return f"script:{target}"
    return f"tool:{target}" if action == "tool" else action


def permissions_of(value: Permissions | Mapping[str, object] | str | Path | None) -> Permissions:
    """The permissions an owner gave in one of the forms a toolset takes: an object, its arguments, or a file.

    Raises:
        ConfigError: It is none of these, or cannot be used.
    """
    if value is None:
        return Permissions()
    if isinstance(value, Permissions):
        return value
    if isinstance(value, Mapping):
        try:
            return Permissions(**value)  # type: ignore[arg-type]  # checked there
        except TypeError as error:
            raise ConfigError(f"permissions: {error}.") from None
    return Permissions.from_file(value)


def _pattern(rule: Rule) -> re.Pattern[str]:
    """For the skill's name, or for ``skill/path`` and ``skill/tool``, where a name alone means any skill."""
    pattern = folded(rule.pattern)
    return re.compile(translate(pattern if rule.kind == "skills" or "/" in pattern else f"*/{pattern}"))


def _rules(kind: str, patterns: Mapping[str, Verdict | str] | None) -> list[Rule]:
    if patterns is None:
        return []
    if not isinstance(patterns, Mapping):
        raise ConfigError(f"{kind} must map names or wildcards to verdicts, not be of type {type(patterns).__name__}.")
    rules = []
    for pattern, verdict in patterns.items():
        if not isinstance(pattern, str) or not pattern.strip() or "\\" in pattern or pattern.startswith("/"):
            raise ConfigError(f"{kind}: {pattern!r} is no name and no wildcard. Write one such as 'db-*'.")
        rules.append(Rule(kind, pattern.strip(), _word(Verdict, verdict, f"{kind}: {pattern}")))
    return rules


def _word(words: type[_Word], value: object, where: str) -> _Word:
    if isinstance(value, str) and value in set(words):
        return words(value)
    raise ConfigError(f"{where} must be {', '.join(words)}, not {value!r}.")


# Permissions written in a file: YAML, or ``[tool.adk-skills.permissions]`` of a TOML file such as ``pyproject.toml``.
#
# Like a policy, permissions belong to whoever owns the agent: a file is read only where its path is given.

_PERMISSIONS = SettingsKind("tool.adk-skills.permissions", "permissions file", "permissions", "are")
_WORDS = ("default", "project_skills", "remember")
_TABLES = ("skills", "scripts", "tools")


def load_permissions(path: str | Path) -> Permissions:
    """The permissions a file describes.

    Args:
        path: A ``.yaml`` or ``.yml`` file, or a ``.toml`` file with the table ``[tool.adk-skills.permissions]``.

    Raises:
        ConfigError: The file cannot be read or says nothing, a key is not known, or a value is not possible; the
            sentence has the file, the line and, for a key, the nearest known one.
    """
    settings = read_settings(Path(path), _PERMISSIONS)
    settings.check_keys((*_WORDS, *_TABLES))
    for key, value in settings.values.items():
        if key in _TABLES and not isinstance(value, Mapping):
            raise ConfigError(f"{settings.place(key)}: {key!r} maps names to verdicts.")
        names = [(key, name) for name in value] if key in _TABLES else [(key,)]
        for place in names:  # one at a time, so that the sentence has the line
            given: dict[str, Any] = {key: {place[1]: value[place[1]]} if len(place) > 1 else value}
            try:
                Permissions(**given)
            except ConfigError as error:
                raise ConfigError(f"{settings.place(*place)}: {error.message}") from None
    return Permissions(**settings.values)
