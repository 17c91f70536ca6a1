"""The page that a person sees before a skill of others is installed: who, where, what it brings, what it asks for."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adk_skills_agent.errors import SourceError, some_of
from adk_skills_agent.sandbox import temporary_prefix
from adk_skills_agent.sources.fetch import FetchedSkill
from adk_skills_agent.sources.origin import OriginKind
from adk_skills_agent.sources.scan.rules import Finding, Weight, scan_tree
from adk_skills_agent.sources.store import write_tree

if TYPE_CHECKING:
    from adk_skills_agent.packages import Needs
    from adk_skills_agent.sources.lock_file import LockedSkill

_PROGRAM_SUFFIXES = (".py", ".sh", ".bash", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".ps1", ".lua", ".php", ".r")


@dataclass(frozen=True, slots=True)
class ConsentPage:
    """What is known of a skill before it is installed."""

    skill: FetchedSkill  # as it was fetched
    scripts: tuple[str, ...]  # its files that are programs
    needs: Needs | None  # what it needs to run; None when that cannot be read
    findings: tuple[Finding, ...]  # what the scan found, the gravest first
    replaces: str = ""  # where the installed skill is from that it takes the place of; empty for none
    brings: tuple[str, ...] = ()  # names of skills in its folder, which agents see as well
    tools: tuple[str, ...] = ()  # its ``allowed-tools``, and those of the skills in its folder behind their names

    @property
    def stops(self) -> bool:
        """Whether a finding is one that a person has to accept by itself."""
        return any(finding.weight is Weight.STOP for finding in self.findings)

    @property
    def ignored_tools(self) -> str:
        """What ``allowed-tools`` of a skill of an MCP server asks for, which counts for nothing; empty for others."""
        return "; ".join(self.tools) if self.skill.origin.kind is OriginKind.MCP else ""

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        skill = self.skill
        return {
            "name": skill.name,
            "description": skill.description,
            "source": str(skill.origin),
            "kind": skill.origin.kind.value,
            "commit": skill.commit,
            "signer": skill.signer,
            "tree": skill.tree.digest,
            "license": skill.license,
            "files": len(skill.tree.files),
            "bytes": skill.tree.size,
            "scripts": list(self.scripts),
            "requires": list(skill.requires),
            "replaces": self.replaces,
            "brings": list(self.brings),
            "needs": [need.to_dict() for need in self.needs.needs] if self.needs else None,
            "allowed_tools": list(self.tools),
            "ignored_tools": self.ignored_tools,
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def lines(self) -> list[str]:
        """For a person, a line each."""
        skill = self.skill
        lines = [
            f"{skill.name}",
            f"  {skill.description[:300]}",
            f"  from      {skill.origin}",
            f"  at        {skill.commit or 'no version'}",
            f"  signed    {skill.signer or 'no'}",
            f"  licence   {skill.license or 'not said'}",
            f"  size      {len(skill.tree.files)} files, {skill.tree.size:,} bytes",
        ]
        if self.replaces:
            lines.append(f"  replaces  the one from {self.replaces}")
        lists = (("scripts", self.scripts), ("brings skills", self.brings), ("needs skills", skill.requires))
        for title, names in (*lists, *self._needed()):
            if names:
                # What a yes opens is there to its last name, for the author chooses which one that is (row 432).
                most = 12 if title in _CUT else len(names)
                lines.append(f"  {title:<9} {some_of(names, most)}")
        if self.ignored_tools:
            lines.append(f"  ignored   allowed-tools: {self.ignored_tools} (a server may not allow tools)")
        elif self.tools:
            lines.append(f"  tools     allowed-tools: {'; '.join(self.tools)} (need no question once it is approved)")
        lines += [f"  {finding}" for finding in self.findings]
        return [_one_line(line) for line in lines]

    def _needed(self) -> list[tuple[str, list[str]]]:
        if self.needs is None:
            return []
        titles = {
            "packages": ("python-package", "node-package", "python-module"),
            "programs": ("interpreter", "program"),
            "hosts": ("host",),
            "keys": ("environment-key",),
        }
        return [
            (title, [f"{need.name}{need.spec}" for need in self.needs.needs if need.kind in kinds])
            for title, kinds in titles.items()
        ]


_CUT = ("scripts", "packages", "programs")
"""Lists that may be long, and none of whose names gets anything by itself."""


def _one_line(text: str) -> str:
    """A stranger's text cannot begin a line of its own, nor command a terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def consent_page(skill: FetchedSkill, installed: LockedSkill | None = None) -> ConsentPage:
    """Look at a fetched skill: its needs and what the scan finds. Nothing of it is run.

    ``installed`` is what the lock has of that name.
    """
    replaces = ""
    if installed is not None and installed.source_tree != skill.tree.digest:
        replaces = " at ".join(filter(None, (str(installed.origin), installed.commit)))
    scripts = tuple(
        path
        for path, file in skill.tree.files.items()
        if file.executable or path.lower().endswith(_PROGRAM_SUFFIXES) or file.data[:2] == b"#!"
    )
    needs, brings, tools = _look(skill)
    return ConsentPage(skill, scripts, needs, tuple(scan_tree(skill.tree)), replaces, brings, tools)


def _look(skill: FetchedSkill) -> tuple[Needs | None, tuple[str, ...], tuple[str, ...]]:
    """What it needs, the names of the skills in its folder (row 398), and the tools that these allow (row 473)."""
    from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
    from adk_skills_agent.errors import SkillsError
    from adk_skills_agent.packages import read_needs

    with tempfile.TemporaryDirectory(prefix=temporary_prefix("look")) as place:
        folder = Path(place) / skill.name
        folder.mkdir()
        try:
            write_tree(folder, skill.tree)
        except OSError as error:
            raise SourceError(
                f"The temporary folder {place} cannot be written: {error.strerror}. Make room, or set TMPDIR."
            ) from error
        registry = SkillsRegistry(RegistryConfig(cache=False))
        registry.discover([Path(place)])
        inner = {Path(one.file).parent: one for one in registry.list_metadata() if one.file}
        own = inner.pop(folder, None)
        brings = sorted(inner.values(), key=lambda one: one.name)
        needs = None
        with contextlib.suppress(SkillsError):
            needs = read_needs(registry.load_skill(own.name)) if own else None
        asked = [
            own.allowed_tools if own else None,
            *(f"{one.name}: {one.allowed_tools}" for one in brings if one.allowed_tools),
        ]
        return needs, tuple(one.name for one in brings), tuple(filter(None, asked))


def grave(pages: Sequence[ConsentPage]) -> list[ConsentPage]:
    """The pages with a finding that stops."""
    return [page for page in pages if page.stops]
