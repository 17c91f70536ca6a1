"""``adk-skills list``: which skills there are."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from adk_skills_agent.cli.output import (
    Progress,
    print_columns,
    print_diagnostics,
    print_json,
    print_table,
    printable,
    safe,
    say_state,
)
from adk_skills_agent.cli.sources import (
    a_path,
    dirs_option,
    json_option,
    open_registry,
    open_skill,
    skill_argument,
    skill_folders_here,
    trust_option,
    untrusted,
)
from adk_skills_agent.errors import ConfigError, SkillsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adk_skills_agent.catalog import SkillsRegistry
    from adk_skills_agent.format import Diagnostic, ValidationResult
    from adk_skills_agent.sources import SkillState


_LIST_EXAMPLES = """\b
Examples:
  adk-skills list ./skills
  adk-skills list --json
  adk-skills list ./skills --long
  adk-skills list ./skills --diagnostics
  adk-skills list --installed
"""


@click.command("list", epilog=_LIST_EXAMPLES)
@click.argument("dirs", nargs=-1, type=a_path)
@json_option
@click.option("--long", "-l", is_flag=True, help="Also print scope, tokens, scripts and folder, descriptions whole.")
@click.option("--xml", is_flag=True, help="Print the <available_skills> block a model gets, with locations.")
@click.option("--diagnostics", is_flag=True, help="Print everything that was repaired or refused.")
@click.option("--installed", is_flag=True, help="List what adk-skills add installed here and for the user.")
@trust_option
def list_command(
    dirs: tuple[Path, ...],
    as_json: bool,
    long: bool,
    xml: bool,
    diagnostics: bool,
    installed: bool,
    trust_project: bool,
) -> None:
    """List the skills of folders or scopes.

    Without folders: the project, user, admin and package scopes.
    """
    if installed:
        if dirs or xml or diagnostics or long:
            raise click.UsageError("--installed goes with --json only.")
        _list_installed(as_json=as_json)
        return
    registry = open_registry(dirs, trust_project=trust_project)
    skills = registry.list_metadata()
    if as_json:
        print_json(
            {
                "skills": [
                    {"name": item.name, "description": item.description, "location": item.file} for item in skills
                ],
                "diagnostics": [diagnostic.to_dict() for diagnostic in registry.diagnostics],
            }
        )
        return
    if xml:
        print(printable(registry.to_available_skills_xml(location=True)))
    else:
        if long:
            _print_long(registry)
        else:
            print_columns((item.name, item.description) for item in skills)
        if not diagnostics:  # which has it
            _print_untrusted(registry)
        if not skills and not untrusted(registry):
            print(_none_found(dirs), file=sys.stderr)
    print_diagnostics(registry.diagnostics, all_of_them=diagnostics)


def _print_untrusted(registry: SkillsRegistry) -> None:
    for message in untrusted(registry):
        print(safe(message), file=sys.stderr)


def _none_found(dirs: Sequence[Path]) -> str:
    if not dirs and skill_folders_here():
        return "No skills in .agents/skills, your home folder or packages. This folder has skills: adk-skills list ."
    return "No skills found. Make one with: adk-skills new my-skill"


def _print_long(registry: SkillsRegistry) -> None:
    """One table with what can be counted, and below each skill its whole description."""
    from adk_skills_agent.catalog.budget import estimate_tokens
    from adk_skills_agent.scripts import list_scripts

    rows, below = [], []
    names = list(registry)
    with Progress("reading", len(names)) as progress:
        for name in names:
            progress.step(name)
            skill = registry.load_skill(name)
            try:
                counts = (f"{estimate_tokens(skill.instructions):,}", f"{len(list_scripts(skill)):,}")
            except SkillsError:
                counts = ("?", "?")
            rows.append((name, registry.scope_of(name).value, *counts, str(skill.skill_dir)))
            below.append((skill.description,))
    print_table(("NAME", "SCOPE", "TOKENS", "SCRIPTS", "FOLDER"), rows, below)


def _list_installed(*, as_json: bool) -> None:
    from adk_skills_agent.sources import open_project
    from adk_skills_agent.sources.other_installers import origin_by_gh

    found = []
    for project in (open_project(Path.cwd()), open_project(Path.cwd(), "user")):
        lock = project.read_lock().skills
        for state in project.verify(forks=True):
            locked = lock.get(state.name)
            origin = locked.origin if locked is not None else origin_by_gh(state.folder)
            found.append(
                {
                    "name": state.name,
                    "scope": project.scope,
                    "folder": str(state.folder),
                    "source": str(origin) if origin else None,
                    "commit": locked.commit if locked else None,
                    "state": _state_of(state),
                }
            )
    if as_json:
        print_json({"skills": found})
        return
    print_columns((str(one["name"]), f"{one['state']}, {one['scope']}, {one['source'] or 'unknown'}") for one in found)
    if not found:
        click.echo("Nothing is installed. Install with: adk-skills add SOURCE", err=True)


def _state_of(state: SkillState) -> str:
    if state.unlocked:
        return "not locked"
    if state.is_same:
        return "as locked"
    return "not installed" if state.is_gone else "unreadable" if state.problem else "changed"


# ``adk-skills info``: everything known about one skill.

_INFO_EXAMPLES = """\b
Examples:
  adk-skills info ./skills/csv-report
  adk-skills info csv-report -d ./skills --json
"""


@click.command("info", epilog=_INFO_EXAMPLES)
@skill_argument
@dirs_option
@click.option("--body", is_flag=True, help="Print the instructions as well.")
@json_option
@trust_option
def info_command(skill: str, dirs: tuple[Path, ...], body: bool, as_json: bool, trust_project: bool) -> None:
    """Show everything about one skill.

    Its metadata, files, scripts and diagnostics. SKILL is a name, or the path of the skill's folder.
    """
    from adk_skills_agent.catalog.budget import estimate_tokens
    from adk_skills_agent.cli.packages import needs_here
    from adk_skills_agent.scripts import list_scripts

    found = open_skill(skill, dirs, trust_project=trust_project)
    metadata = found.metadata
    needs = needs_here(found)
    diagnostics = [*found.diagnostics, *found.file_diagnostics(), *needs.problems]
    facts: dict[str, object] = {
        "name": metadata.name,
        "description": metadata.description,
        "location": metadata.file,
        "license": metadata.license,
        "compatibility": metadata.compatibility,
        "allowed_tools": metadata.allowed_tools,
        "metadata": dict(metadata.metadata),
        "extra": dict(metadata.extra),
        "tokens": estimate_tokens(found.instructions),
        "scripts": list(list_scripts(found)),
        "needs": [need.to_dict() for need in needs.needs],
        "files": [{"path": file.path, "size": file.size} for file in found.files()],
        "diagnostics": [diagnostic.to_dict() for diagnostic in diagnostics],
    }
    if as_json:
        print_json(facts | ({"instructions": found.instructions} if body else {}))
        return
    for key in ("name", "description", "location", "license", "compatibility", "allowed_tools", "metadata", "extra"):
        if facts[key]:
            print(f"{key + ':':<15}{safe(str(facts[key]))}")
    print(f"{'tokens:':<15}about {facts['tokens']} when activated")
    print(f"{'needs:':<15}{safe(needs.summary())}")
    print(f"{'files:':<15}{len(found.files())}")
    for file in found.files():
        print(f"  {safe(file.path)}  {file.size:,} bytes")
    if body:
        print(f"\n{printable(found.instructions)}")
    for diagnostic in diagnostics:
        click.echo(safe(str(diagnostic)), err=True)


# ``adk-skills search``: find a skill by what it is for.

_SEARCH_EXAMPLES = """\b
Examples:
  adk-skills search 'fill a pdf form' -d ./skills
  adk-skills search kubernetes --limit 3 --json
"""


@click.command("search", epilog=_SEARCH_EXAMPLES)
@click.argument("query")
@dirs_option
@click.option("--limit", "-n", default=10, show_default=True, type=click.IntRange(1, 100), help="Most results.")
@json_option
@trust_option
def search_command(query: str, dirs: tuple[Path, ...], limit: int, as_json: bool, trust_project: bool) -> None:
    """Find skills by what they are for.

    Searches names, descriptions and headings, best match first; exit code 1 when nothing matches.
    """
    registry = open_registry(dirs, trust_project=trust_project)
    hits = registry.search(query, limit)
    if as_json:
        print_json([{"name": hit.name, "description": hit.description, "score": round(hit.score, 4)} for hit in hits])
    else:
        print_columns((hit.name, hit.description) for hit in hits)
    _print_untrusted(registry)
    if not hits:
        if len(registry):
            click.echo(f"No skill matches {query!r}. Try other words, or adk-skills list.", err=True)
        elif not untrusted(registry):
            click.echo(_none_found(dirs), err=True)
        raise click.exceptions.Exit(1)


# ``adk-skills new``: start a skill that is valid from its first minute.

_NEW_EXAMPLES = """\b
Examples:
  adk-skills new csv-report
  adk-skills new deploy-check -o ./skills --script bash
"""


@click.command("new", epilog=_NEW_EXAMPLES)
@click.argument("name")
@click.option("--output", "-o", default=".", type=a_path, help="Folder to make it in.")
@click.option("--description", help="What it does and when to use it.")
@click.option(
    "--script",
    default="python",
    show_default=True,
    type=click.Choice(["python", "bash", "none"]),
    help="The script to start with.",
)
def new_command(name: str, output: Path, description: str | None, script: Literal["python", "bash", "none"]) -> None:
    """Make a new skill to start from.

    A folder with a SKILL.md, a script named after the skill, a reference, and eval cases in evals/. NAME has lower-case
    letters, digits and single hyphens.
    """
    from adk_skills_agent.format import create_skill_template

    folder = create_skill_template(output, name, description=description, script=None if script == "none" else script)
    place = shlex.quote(str(folder))
    print(f"Made {folder}")
    print(f"Next: edit {folder / 'SKILL.md'}, then: adk-skills validate {place}")
    print(f"To measure it: edit {folder / 'evals/cases.yaml'}, then: adk-skills eval {place} --dry-run")


# ``adk-skills validate``: the specification's rules, with the reference library's messages.

_VALIDATE_EXAMPLES = """\b
Examples:
  adk-skills validate ./skills/csv-report
  adk-skills validate ./skills --lint --json
"""


@click.command("validate", epilog=_VALIDATE_EXAMPLES)
@click.argument("paths", nargs=-1, required=True, type=a_path)
@json_option
@click.option("--lint", is_flag=True, help="Also print advice beyond the rules (length, deep references).")
def validate_command(paths: tuple[Path, ...], as_json: bool, lint: bool) -> None:
    """Check skills against the specification.

    Strict, with the messages of the reference library; exit code 1 when one is not valid. PATHS are skill
    folders, SKILL.md files, or folders full of skills.
    """
    from adk_skills_agent.format import validate_skill

    unread: list[Diagnostic] = []
    folders = [skill for path in paths for skill in _skills_at(path, unread)]
    results = []
    with Progress("checking", len(folders)) as progress:
        for folder in folders:
            progress.step(folder.name)
            results.append(validate_skill(folder))
    failed = [result for result in results if result.errors]
    if as_json:
        print_json(
            [_as_json(result) for result in results]
            + [{"path": found.file, "valid": False, "errors": [found.message]} for found in unread]
        )
    else:
        _print_validation(results, unread, lint=lint)
    if failed or unread:
        raise click.exceptions.Exit(1)


def _print_validation(results: Sequence[ValidationResult], unread: Sequence[Diagnostic], *, lint: bool) -> None:
    """What fails first, with lines; of what is valid a line where it is one skill, else how many they are."""
    failed = [result for result in results if result.errors]
    for result in failed:
        say_state(f"Validation failed for {safe(str(result.path))}:", good=False)
        lines = _lines_of(result)
        for error in result.errors:
            line = lines(error)
            print(f"  - {safe(error)}{f' (line {line})' if line else ''}", file=sys.stderr)
        if any(_UNREADABLE.search(error) for error in result.errors):
            for cause in result.diagnostics:
                if cause.code in _CAUSES:
                    print(f"    {safe(cause.message)}{f' (line {cause.line})' if cause.line else ''}", file=sys.stderr)
    for found in unread:
        say_state(f"Not read: {safe(found.message)}", good=False)
    valid = [result for result in results if not result.errors]
    if len(results) == 1 and valid:
        print(f"Valid skill: {safe(str(valid[0].path))}")
        _print_missing(valid[0].path)
    for result in results if lint else ():
        for advice in result.lints:
            print(f"  {safe(str(advice))}", file=sys.stderr)
    if len(results) > 1:
        say_state(f"{len(valid)} of {len(results)} skills are valid.", good=not failed and not unread)


_UNREADABLE = re.compile(r"YAML|frontmatter (?:not|must)|Missing required file")
_CAUSES = {
    "broken-quotes",
    "byte-order-mark",
    "leading-blank-lines",
    "skill-file-name",
    "tab-indentation",
    "unquoted-colon",
    "unusual-closing-fence",
    "unusual-opening-fence",
}
"""What the lenient reader repaired, and what the strict one means by the words of a YAML parser."""
_FIELD_OF_ERROR = re.compile(r"(?i)\b(name|description|compatibility|license|metadata|allowed-tools)\b")
_LINE_IN_ERROR = re.compile(r"\bline \d+")


def _lines_of(result: ValidationResult) -> Callable[[str], int | None]:
    """Says of an error which line of the SKILL.md it is about; None where it names one itself or has none."""
    from adk_skills_agent.format import find_skill_md

    try:
        skill_md = find_skill_md(result.path)
        text = skill_md.read_text(encoding="utf-8", errors="replace") if skill_md is not None else ""
    except OSError:
        text = ""
    keys: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if number > 1 and line.strip() == "---":
            break
        key, colon, _ = line.partition(":")
        if colon and key == key.strip():
            keys.setdefault(key.strip("'\"").lower(), number)

    def line_of(error: str) -> int | None:
        if not keys or _LINE_IN_ERROR.search(error):
            return None
        if error.startswith("Unexpected fields"):
            named = error.partition(": ")[2].partition(". Only")[0].split(", ")
            return next((keys[name.lower()] for name in named if name.lower() in keys), None)
        if error.startswith("Missing required field"):
            return 1
        found = _FIELD_OF_ERROR.search(error)
        return keys.get(found[1].lower()) if found else None

    return line_of


def _skills_at(path: Path, unread: list[Diagnostic]) -> list[Path]:
    """The path itself when it is, or may be meant as, one skill; else every skill below it.

    What could not even be looked at is added to ``unread``.
    """
    from adk_skills_agent.catalog.registry import skills_below
    from adk_skills_agent.format import find_skill_md

    if not path.is_dir() or find_skill_md(path) is not None:
        return [path]
    below = skills_below(path)
    unread += below.unread
    return list(below.skills) or ([] if below.unread else [path])


def _print_missing(path: Path) -> None:
    """One line on stderr when a valid skill needs what this machine does not have; to be valid it need not."""
    from adk_skills_agent.cli.packages import needs_here

    try:
        needs = needs_here(open_skill(str(path), ()))
    except ConfigError:  # Windows: the text of a skill can be checked there, and no more
        return
    if needs.missing:
        place = safe(shlex.quote(str(path)))
        click.echo(f"  It needs: {safe(needs.summary())}. Details: adk-skills needs {place}", err=True)


def _as_json(result: ValidationResult) -> dict[str, object]:
    return {
        "path": str(result.path),
        "valid": not result.errors,
        "errors": list(result.errors),
        "diagnostics": [diagnostic.to_dict() for diagnostic in result.diagnostics],
        "lints": [advice.to_dict() for advice in result.lints],
    }
