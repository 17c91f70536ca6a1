"""Finds skills for the commands: in the folders given, else in the scopes of the current directory."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from adk_skills_agent.cli.output import safe
from adk_skills_agent.errors import ConfigError, FormatError, SkillNotFound, SkillsError, nearest
from adk_skills_agent.format.models import Severity

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from adk_skills_agent.catalog import Skill, SkillsRegistry
    from adk_skills_agent.evals.cluster import Needs

a_path = click.Path(path_type=Path)

dirs_option = click.option(
    "--dir",
    "-d",
    "dirs",
    multiple=True,
    type=a_path,
    help="Folder to search (repeatable). Without it: the project, user, admin and package scopes.",
)
_CLUSTER = (
    click.option(
        "--cluster",
        default=None,
        metavar="ADDRESS",
        help="Run the trials on a Ray cluster: its address, or local[:NODES] for nodes on this machine.",
    ),
    click.option(
        "--trial-cpus",
        default=1.0,
        show_default=True,
        type=click.FloatRange(0.1),
        help="CPUs that a trial takes of a node.",
    ),
    click.option(
        "--trial-memory", default=0, type=click.IntRange(0), help="MiB of memory that a trial takes of a node."
    ),
    click.option("--trial-gpus", default=0.0, type=click.FloatRange(0), help="GPUs that a trial takes of a node."),
    click.option(
        "--trial-label", "labels", multiple=True, metavar="NAME", help="Only on nodes with this custom resource of Ray."
    ),
)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--cluster`` and what a trial takes of a node; :func:`needs_of` reads the latter."""
    for option in reversed(_CLUSTER):
        command = option(command)
    return command


def needs_of(cluster: str | None, cpus: float, memory: int, gpus: float, labels: Sequence[str]) -> Needs | None:
    """What a trial takes of a node of a cluster, as the options say it; None without one.

    Raises:
        ConfigError: A label is none, or an option means nothing without a cluster.
    """
    if cluster is None:
        source = click.get_current_context().get_parameter_source
        for name in ("trial_cpus", "trial_memory", "trial_gpus", "labels"):
            if source(name) is ParameterSource.COMMANDLINE:
                option = "--trial-label" if name == "labels" else f"--{name.replace('_', '-')}"
                raise ConfigError(f"{option} says what a trial takes of a cluster's node. Add --cluster.")
        return None
    from adk_skills_agent.evals.cluster import Needs

    if odd := {"CPU", "GPU", "memory", "object_store_memory"} & set(labels):
        raise ConfigError(f"--trial-label {odd.pop()}: that is no label of a node; see --trial-cpus and its kind.")
    return Needs(cpus, memory << 20, gpus, dict.fromkeys(labels, 1.0))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
trust_option = click.option(
    "--trust-project",
    is_flag=True,
    help="Also read skills of the current project although it is not on the trusted list.",
)


def complete_skill(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of skills that begin so, from ``--dir`` or the scopes; folders where none does, or a path is begun."""
    from click.shell_completion import CompletionItem

    if "/" in incomplete or incomplete.startswith((".", "~")):
        return [CompletionItem(incomplete, type="dir")]
    try:
        registry = open_registry(ctx.params.get("dirs") or (), trust_project=bool(ctx.params.get("trust_project")))
    except (SkillsError, OSError):
        return []
    names = [
        CompletionItem(skill.name, help=safe(skill.description)[:_HELP_CHARS])
        for skill in registry.list_metadata()
        if skill.name.startswith(incomplete)
    ]
    return names or ([] if ctx.params.get("dirs") else [CompletionItem(incomplete, type="dir")])


def complete_installed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of installed skills that begin so."""
    from click.shell_completion import CompletionItem

    from adk_skills_agent.sources import open_project

    try:
        installed = open_project(Path.cwd(), ctx.params.get("scope") or "project").read_lock().skills
    except (SkillsError, OSError):
        return []
    return [CompletionItem(name) for name in installed if name.startswith(incomplete)]


def complete_source(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and folders of this machine; what is elsewhere nobody can guess."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_script(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The scripts of the skill that was named, as they may be called: with their folder or without.

    Not those that a shell takes for more than a word: bash puts what is found into the command line as it is, and the
    next Enter runs the ``$(...)`` in a stranger's file name (row 196).
    """
    from click.shell_completion import CompletionItem

    from adk_skills_agent.scripts import list_scripts

    try:
        skill = open_skill(
            str(ctx.params.get("skill") or ""),
            ctx.params.get("dirs") or (),
            trust_project=bool(ctx.params.get("trust_project")),
        )
        names = [name.removeprefix("scripts/") for name in list_scripts(skill) if shlex.quote(name) == name]
    except (SkillsError, OSError):
        return []
    full = incomplete.startswith("scripts/")
    shown = [f"scripts/{name}" if full else name for name in names]
    return [CompletionItem(name) for name in shown if name.startswith(incomplete)]


_HELP_CHARS = 80

skill_argument = click.argument("skill", shell_complete=complete_skill)


def open_registry(dirs: Sequence[Path], *, trust_project: bool = False) -> SkillsRegistry:
    """The registry a command works on. Raises ``ConfigError`` when a folder that was named does not exist."""
    from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry

    registry = SkillsRegistry(RegistryConfig(trust=True) if trust_project else None)
    if dirs:
        for folder in dirs:
            place = folder.expanduser()
            if not place.exists():
                raise ConfigError(f"No such folder: {safe(str(folder))}. Give the folder that holds your skills.")
            if not place.is_dir() and place.name.lower() != "skill.md":
                raise ConfigError(f"{safe(str(folder))} is no folder and no SKILL.md. Give the folder of your skills.")
        registry.discover(dirs)
    else:
        registry.discover_scopes(Path.cwd())
    return registry


def open_skill(name: str, dirs: Sequence[Path], *, trust_project: bool = False) -> Skill:
    """The skill a command is about: a path to its folder (or SKILL.md), or a name from the registry.

    Raises ``SkillNotFound`` when nothing of that name; the sentence has the nearest names.
    """
    from adk_skills_agent.format import find_skill_md

    path = Path(name).expanduser()
    folder = path.parent if path.name.lower() == "skill.md" and path.is_file() else path
    if ("/" in name or not dirs) and folder.is_dir() and find_skill_md(folder) is not None:
        registry = open_registry([folder])
        for item in registry.list_metadata():
            if item.file is not None and folder.samefile(Path(item.file).parent):  # not one in it (row 460)
                return registry.load_skill(item.name)
        for problem in registry.diagnostics:
            if problem.severity is Severity.ERROR:
                raise FormatError(problem.message)
    if "/" in name or name in {".", ".."}:
        raise SkillNotFound(no_skill_there(name, folder))
    registry = open_registry(dirs, trust_project=trust_project)
    try:
        return registry.load_skill(name)
    except SkillNotFound as error:
        if error.suggestions:
            raise
        if not dirs and folder.is_dir():
            raise SkillNotFound(no_skill_there(name, folder)) from None
        where = "".join(f" {shlex.quote(str(folder))}" for folder in dirs)
        place = "there" if dirs else "in the scopes of this folder; name a folder with --dir"
        unseen = untrusted(registry)
        hint = unseen[0] if unseen else f"List them with: adk-skills list{where}" if len(registry) else ""
        none = "" if len(registry) or unseen else f" There are no skills {place}."
        near = () if dirs else nearest(name, [one.name for one in skill_folders_here() if one.parent == Path()], 1)
        hint = f"Did you mean the folder ./{safe(near[0])}?" if near else hint
        raise SkillNotFound(" ".join(filter(None, [f"There is no skill {name!r}.{none}", hint]))) from None


def untrusted(registry: SkillsRegistry) -> list[str]:
    """What to say of the skills that were left out because their project is not trusted."""
    return [one.message for one in registry.diagnostics if one.code == "untrusted-project"]


def no_skill_there(name: str, folder: Path) -> str:
    """The sentence about a path that is no skill's folder, with the nearest one that is."""
    if folder.is_dir():
        inside = f" Its skills: adk-skills list {shlex.quote(name)}" if _skills_below(folder) else ""
        return f"The folder {safe(name)} has no SKILL.md.{inside}"
    beside = [one.name for one in _skills_below(folder.parent) if one.parent == folder.parent]
    near = nearest(folder.name, beside, 1)
    hint = f" Did you mean {safe(name[: len(name) - len(folder.name)] + near[0])}?" if near else ""
    return f"There is no folder {safe(name)}.{hint}"


def skill_folders_here() -> list[Path]:
    """The folders with a SKILL.md in the current folder and those in it, relative to it."""
    return _skills_below(Path())


_MOST_LOOKED_AT = 1_000


def _skills_below(folder: Path) -> list[Path]:
    from itertools import islice

    found = (*folder.glob("*/SKILL.md"), *folder.glob("*/*/SKILL.md"))
    return sorted(path.parent for path in islice(found, _MOST_LOOKED_AT))
