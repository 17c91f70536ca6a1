"""``adk-skills``: the commands in one place, errors in one line, nothing heavy imported before it is needed."""

from __future__ import annotations

import sys

import typer

from adk_skills_agent.cli import demo, doctor, info, new, run, search, validate
from adk_skills_agent.cli import list as list_command
from adk_skills_agent.errors import (
    CatalogError,
    ConfigError,
    InvalidArguments,
    ScriptNotFound,
    SkillsError,
    UnsupportedScriptType,
)

OK, FINDINGS, USAGE, INTERRUPTED = 0, 1, 2, 130

_CALLER_IS_WRONG = (CatalogError, ConfigError, InvalidArguments, ScriptNotFound, UnsupportedScriptType)

app = typer.Typer(
    name="adk-skills",
    help="Find, check and run Agent Skills (folders with a SKILL.md) for agents on Google's ADK.",
    epilog="Exit codes: 0 done, 1 findings or a failed script, 2 wrong usage. Commands that print data have --json.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (list_command, info, validate, new, search, run, doctor, demo):
    app.command(module.NAME, help=module.HELP, epilog=module.EPILOG)(module.command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from adk_skills_agent import __version__

        print(f"adk-skills {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run the command line; every failure ends in one sentence and an exit code."""
    try:
        app()
    except SkillsError as error:
        print(f"adk-skills: {error.message}", file=sys.stderr)
        sys.exit(USAGE if isinstance(error, _CALLER_IS_WRONG) else FINDINGS)
    except BrokenPipeError:
        # The reader (head, less) has gone; the interpreter must not try to flush to it again.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FINDINGS)
    except KeyboardInterrupt:
        print("adk-skills: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:
        print(f"adk-skills: {error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        sys.exit(FINDINGS)
