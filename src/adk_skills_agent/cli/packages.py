"""``adk-skills needs`` and ``prepare``: what a skill needs to run, and the environment that supplies it."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.output import counted, for_command_line, print_json, safe
from adk_skills_agent.cli.sources import (
    a_path,
    complete_skill,
    dirs_option,
    json_option,
    open_skill,
    skill_argument,
    trust_option,
)
from adk_skills_agent.errors import ConfigError, SkillsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from adk_skills_agent.catalog import Skill
    from adk_skills_agent.packages import Dependencies, Lock, Need, Needs

_NEEDS_EXAMPLES = """\b
Examples:
  adk-skills needs ./skills/csv-report
  adk-skills needs csv-report -d ./skills --all
  adk-skills needs ./skills/csv-report --json

\b
Declared is what the author wrote for programs: PEP 723 blocks, requirements*.txt, pyproject.toml, package.json,
metadata.*.requires, install lines. Inferred is what the code does: imports, programs it calls, URLs, environment keys.
"""

_TITLES = {
    "interpreter": "Interpreters",
    "python-package": "Python packages",
    "python-module": "Python modules of unknown distributions",
    "node-package": "Node packages",
    "program": "Programs",
    "host": "Hosts",
    "environment-key": "Environment keys",
}


@click.command("needs", epilog=_NEEDS_EXAMPLES)
@skill_argument
@dirs_option
@click.option(
    "--all", "all_of_them", is_flag=True, help="Also show what the system has: programs such as cat and grep."
)
@click.option("--python", type=a_path, help="The Python that scripts get; without it the one that runs this.")
@json_option
@trust_option
def needs_command(
    skill: str, dirs: tuple[Path, ...], all_of_them: bool, python: Path | None, as_json: bool, trust_project: bool
) -> None:
    """Show what a skill needs to run.

    Interpreters, packages, programs, hosts and environment keys, each declared or inferred, present or missing, with
    the command or grant that would supply it. Nothing of the skill is run. SKILL is a name, or the path of the skill's
    folder. Exit code 1 when something is missing that the skill cannot do without.
    """
    found = open_skill(skill, dirs, trust_project=trust_project)
    needs = needs_here(found, str(python) if python is not None else None)
    if as_json:
        print_json(
            {
                "skill": needs.skill,
                "needs": [need.to_dict() for need in needs.needs],
                "missing": [need.name for need in needs.missing],
                "diagnostics": [problem.to_dict() for problem in needs.problems],
            }
        )
    else:
        _print_needs(needs, all_of_them=all_of_them)
    if needs.missing:
        raise click.exceptions.Exit(1)


def needs_here(skill: Skill, python: str | None = None) -> Needs:
    """The needs of a skill; the packages of the environment that was prepared for it are present.

    Raises ``SkillsError`` when the SKILL.md cannot be read.
    """
    from adk_skills_agent.packages import Dependencies, SkillEnvironments, read_needs

    environments = SkillEnvironments(Dependencies("locked"))
    try:
        environment = environments.environment_for(skill, python=python)
    except SkillsError:  # not prepared: what is missing is what is shown
        environment = None
    if environment is None:
        return environments.needs_of(skill, python=python)  # read already
    return read_needs(skill, python=python, site=environment.site)


def _print_needs(needs: Needs, *, all_of_them: bool) -> None:
    shown = [need for need in needs.needs if all_of_them or not _is_ordinary(need)]
    print(f"{safe(needs.skill)}: {safe(needs.summary())}")
    for kind, title in _TITLES.items():
        listed = [need for need in shown if need.kind == kind]
        if not listed:
            continue
        print(f"\n{title}")
        width = max(len(_name(need)) for need in listed)
        for need in listed:
            state = "ok      " if need.present else "optional" if need.optional else _state(need)
            origin = "declared" if need.declared else "inferred"
            print(f"  {state}  {_name(need):<{width}}  {origin}  {safe(', '.join(need.places[:2]))}")
            if need.supply and not need.present:
                print(f"            {'':<{width}}  -> {safe(for_command_line(need.supply))}")
    hidden = len(needs.needs) - len(shown)
    if hidden:
        click.echo(f"Not shown: {counted(hidden, 'program')} that the system has (--all shows them).", err=True)
    for problem in needs.problems:
        click.echo(safe(str(problem)), err=True)


def _state(need: Need) -> str:
    return "MISSING " if need.present is False else "grant?  "


def _name(need: Need) -> str:
    either = "".join(f" or {other}" for other in need.alternatives)
    return safe(f"{need.name}{' ' if need.spec else ''}{need.spec}{either}")


def _is_ordinary(need: Need) -> bool:
    """A program that was inferred and is here says nothing new."""
    return need.kind == "program" and bool(need.present) and not need.declared


# ``adk-skills prepare``: resolve what a skill needs, lock it, and make the environment its scripts get.

LARGE_BYTES = 300 << 20
"""Above this the size is told and confirmed before anything is fetched."""

_PREPARE_EXAMPLES = """\b
Examples:
  adk-skills prepare ./skills/csv-report
  adk-skills prepare csv-report -d ./skills --lock locks/csv-report.lock
  adk-skills prepare --environment office
  adk-skills prepare --collect

\b
The lock has exact versions and the hash of every file; nothing else is ever installed, and nothing is built
without --build, which builds in the sandbox. Packages of npm are prepared if npm is installed; their
install scripts are never run.
Skills that resolve alike share one environment, which is read-only and needs no network afterwards.
"""


@click.command("prepare", epilog=_PREPARE_EXAMPLES)
@click.argument("skill", required=False, shell_complete=complete_skill)
@dirs_option
@click.option("--environment", "preset", type=click.Choice(["office"]), help="Also, or only, this set of packages.")
@click.option(
    "--lock", "lock_file", type=a_path, help="Where the lock is; without it adk-skills.lock beside the skill."
)
@click.option("--upgrade", is_flag=True, help="Resolve again although there is a lock.")
@click.option("--optional", is_flag=True, help="Also prepare packages that the skill can do without.")
@click.option("--python", type=a_path, help="The Python that scripts get; without it the one that runs this.")
@click.option("--index", "indexes", multiple=True, metavar="URL", help="Package index (repeatable); without it PyPI.")
@click.option("--find-links", multiple=True, metavar="FOLDER", help="Also look for wheels in this folder (repeatable).")
@click.option("--npm-registry", default="", metavar="URL", help="Registry of npm packages; without it npm's own.")
@click.option(
    "--build", "builds", multiple=True, metavar="NAME", help="Build this package in the sandbox if it has no wheel."
)
@click.option("--exclude-newer", metavar="DATE", help="Ignore releases from this date on, such as 2026-11-01.")
@click.option("--offline", is_flag=True, help="Use only what was fetched before.")
@click.option(
    "--store",
    metavar="URL",
    help="A store that servers share, as Dependencies(store=) has it: fetch from it what is there, put what is made.",
)
@click.option("--yes", "-y", is_flag=True, help="Fetch large packages without asking.")
@click.option("--collect", is_flag=True, help="Remove environments that were not used for a while, and stop.")
@click.option("--unused-days", default=30.0, show_default=True, type=click.FloatRange(0), help="For --collect.")
@json_option
@trust_option
def prepare_command(
    skill: str | None,
    dirs: tuple[Path, ...],
    preset: str | None,
    lock_file: Path | None,
    upgrade: bool,
    optional: bool,
    python: Path | None,
    indexes: tuple[str, ...],
    find_links: tuple[str, ...],
    npm_registry: str,
    builds: tuple[str, ...],
    exclude_newer: str | None,
    offline: bool,
    store: str | None,
    yes: bool,
    collect: bool,
    unused_days: float,
    as_json: bool,
    trust_project: bool,
) -> None:
    """Prepare the packages of a skill.

    Resolves what it needs to exact versions with hashes, writes the lock, and makes the environment that its scripts
    get. SKILL is a name, or the path of the skill's folder.
    """
    from adk_skills_agent.packages import Dependencies

    dependencies = Dependencies(
        "install",
        preset,
        indexes,
        find_links,
        exclude_newer=_date(exclude_newer),
        offline=offline,
        npm_registry=npm_registry,
        builds=builds,
        store=store,
        store_key=os.environ.get("ADK_SKILLS_WORKSPACE_KEY") or None if store is not None else None,
    )
    if collect:
        _collect(dependencies, unused_days, as_json=as_json)
        return
    if skill is None and preset is None:
        raise click.UsageError("Name a skill, or --environment office.")
    own = python is not None
    interpreter = str(python.absolute()) if python is not None and own else None
    found = open_skill(skill, dirs, trust_project=trust_project) if skill is not None else None
    place = lock_file
    requirements: tuple[str, ...] = ()
    what = f"the environment {preset!r}"
    node_lock = None
    if found is not None:
        from adk_skills_agent.packages import LOCK_FILE, NeedKind, read_needs
        from adk_skills_agent.packages.npm import node_requirement, npm_program
        from adk_skills_agent.packages.skill_environments import author_node_lock

        needs = read_needs(found, python=interpreter)
        for_node = needs.node_requirements(optional=optional)
        if for_node and npm_program() is None:
            click.echo(f"note: no npm here, so without {safe(', '.join(for_node))}: apt-get install npm", err=True)
            for_node = ()
        for need in needs.of(NeedKind.NODE_PACKAGE):
            if not need.optional and node_requirement(need.name, need.spec) is None:
                message = f"note: {need.name}: {need.spec!r} names a place of its own; only the registry is asked"
                click.echo(safe(message), err=True)
        requirements = (*needs.requirements(optional=optional), *for_node)
        node_lock = author_node_lock(found) if for_node else None
        what = f"the packages of skill '{found.name}'"
        place = lock_file or _outside_of_installed(found) or found.skill_dir / LOCK_FILE
        for need in needs.missing:
            if need.kind == "python-module" or (need.kind == "interpreter" and need.name == "python"):
                click.echo(f"note: {safe(need.name)}: {safe(need.supply)}", err=True)
    lock = _locked(dependencies, requirements, place, interpreter, what, node_lock, upgrade=upgrade)
    if not lock.packages:
        _say_nothing_needed(what, as_json=as_json)
        return
    from adk_skills_agent.packages import SkillEnvironments, find_environment

    is_there = find_environment(lock, cache=SkillEnvironments(dependencies).cache, python=interpreter) is not None
    _show(lock, is_there=is_there, quiet=as_json)
    if not is_there and not yes:
        _confirm(lock)
    _make(lock, dependencies, interpreter, place, what, as_json=as_json)


def _outside_of_installed(skill: Skill) -> Path | None:
    """Where the lock of a skill goes that ``adk-skills add`` installed: beside it, it would be a local edit."""
    from adk_skills_agent.sources.integrity import locked_skill_at

    found = locked_skill_at(skill.skill_dir)
    if found is None:
        return None
    folder = found[1].parent / "locks"
    click.echo(
        f"note: {safe(skill.name)} is installed from elsewhere, so its packages are locked outside of its folder. "
        f"An agent finds that with Dependencies('locked', lock=Path({folder.name!r})).",
        err=True,
    )
    return folder / f"{skill.name}.lock"


def _date(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise ConfigError(f"--exclude-newer {text!r} is no date. Write it like 2026-11-01.") from None


def _locked(
    dependencies: Dependencies,
    requirements: tuple[str, ...],
    place: Path | None,
    python: str | None,
    what: str,
    node_lock: bytes | None,
    *,
    upgrade: bool,
) -> Lock:
    """The lock there is, when it answers; else a new one."""
    from adk_skills_agent.packages import SkillEnvironments, preset_requirements, read_lock, resolve
    from adk_skills_agent.packages.lock import python_of, this_platform

    wanted = tuple(sorted({*(preset_requirements(dependencies.preset) if dependencies.preset else ()), *requirements}))
    old = read_lock(place) if place is not None and not upgrade else None
    if (
        old is not None
        and old.answers(wanted)
        and (old.python, old.platform)
        == (
            python_of(python).minor,
            this_platform(),
        )
    ):
        return old
    environments = SkillEnvironments(dependencies)
    lock = resolve(
        wanted,
        cache=environments.cache / "uv",
        python=python,
        index=dependencies.index,
        exclude_newer=dependencies.exclude_newer,
        what=what,
        node_lock=node_lock,
    )
    if lock.packages:
        environments.keep(lock, wanted, python, node_lock)
    return lock


def _say_nothing_needed(what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"packages": [], "environment": None})
    else:
        print(f"Nothing to prepare: {safe(what.removeprefix('the packages of '))} needs no packages.")


def _show(lock: Lock, *, is_there: bool, quiet: bool) -> None:
    if quiet:
        return
    for package in lock.packages:
        print(f"  {safe(str(package))}  {_size(package.size)}")
    size = _size(lock.download_bytes)
    size = "prepared before" if is_there else f"{size} to fetch at most" if size else "size not known"
    print(f"{counted(len(lock.packages), 'package')}, {size}", flush=True)  # before the progress on stderr


def _size(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else f"{size / 1024:.0f} KiB" if size else ""


def _confirm(lock: Lock) -> None:
    """Nobody fetches gigabytes by mistake. Raises ``ConfigError`` when there is nobody to ask."""
    if lock.download_bytes <= LARGE_BYTES:
        return
    large = ", ".join(f"{one.name} {_size(one.size)}" for one in sorted(lock.packages, key=lambda one: -one.size)[:4])
    question = f"This fetches up to {_size(lock.download_bytes)} ({large})."
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Say --yes to fetch it.")
    click.confirm(f"{question} Go on?", abort=True, err=True)


def _make(
    lock: Lock, dependencies: Dependencies, python: str | None, place: Path | None, what: str, *, as_json: bool
) -> None:
    from adk_skills_agent.packages import SkillEnvironments, prepare
    from adk_skills_agent.packages.lock import write_lock

    cache, shared = SkillEnvironments(dependencies).cache, dependencies.shared
    environment = shared.fetch(lock, cache=cache, python=python, what=what) if shared is not None else None
    if environment is None:
        environment = prepare(
            lock, cache=cache, python=python, index=dependencies.index, what=what, progress=_progress()
        )
    if shared is not None and not shared.save(environment, python=python):
        raise ConfigError(f"The environment is ready here, but {dependencies.store} did not take it; see the log.")
    if place is not None:
        write_lock(place, lock)
    if as_json:
        print_json(
            lock.to_dict()
            | {
                "environment": str(environment.folder),
                "interpreter": str(environment.python),
                "lock": str(place) if place is not None else None,
                "notes": list(environment.notes),
            }
        )
        return
    for note in environment.notes:
        click.echo(f"note: {safe(note)}", err=True)
    print(f"Prepared: {safe(str(environment.folder))}")
    if place is not None:
        print(f"Locked:   {safe(str(place))}")


def _progress() -> Callable[[str], None] | None:
    """The progress of a look-up: one line for each step."""
    if not sys.stderr.isatty():
        return None
    return lambda line: click.echo(f"  {safe(line)}", err=True) if line.strip() else None


def _collect(dependencies: Dependencies, unused_days: float, *, as_json: bool) -> None:
    from adk_skills_agent.packages import SkillEnvironments, collect

    done = collect(SkillEnvironments(dependencies).cache, unused_days=unused_days)
    if as_json:
        print_json({"removed": list(done.environments), "bytes": done.bytes, "kept": done.kept})
    else:
        print(
            f"Removed {len(done.environments)} environments ({_size(done.bytes) or '0 KiB'}); {done.kept} are in use."
        )
