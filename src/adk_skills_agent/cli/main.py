"""``adk-skills``: the commands in one place, errors in one line, nothing imported before it is needed."""

from __future__ import annotations

import io
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path

import click

from adk_skills_agent import __version__
from adk_skills_agent.cli.terminal import protect_terminals
from adk_skills_agent.errors import (
    CatalogError,
    ConfigError,
    InvalidArguments,
    ScriptNotFound,
    SkillsError,
    UnsupportedScriptType,
    ValidationError,
)

FINDINGS, USAGE, INTERRUPTED = 1, 2, 130

COMMANDS = {
    "list": "skills:list_command",
    "info": "skills:info_command",
    "validate": "skills:validate_command",
    "new": "skills:new_command",
    "search": "skills:search_command",
    "add": "install:add_command",
    "remove": "install:remove_command",
    "outdated": "updates:outdated_command",
    "update": "updates:update_command",
    "sync": "install:sync_command",
    "verify": "install:verify_command",
    "why": "install:why_command",
    "pack": "install:pack_command",
    "serve": "serve:serve_command",
    "needs": "needs:command",
    "prepare": "prepare:command",
    "run": "run:command",
    "eval": "eval:command",
    "report": "report:command",
    "bench": "bench:command",
    "trust": "trust:trust_command",
    "approvals": "trust:approvals_command",
    "usage": "usage:command",
    "doctor": "doctor:command",
    "demo": "demo:command",
    "completion": "main:completion_command",
}
"""Each command's module in this package, and the name of its click command there."""

_CALLER_IS_WRONG = (CatalogError, ConfigError, InvalidArguments, ScriptNotFound, UnsupportedScriptType, ValidationError)


class _Commands(click.Group):
    """Imports a command's module when the command is used: starting up costs the same with ten commands or fifty."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(f"adk_skills_agent.cli.{module}"), name)
        return command if isinstance(command, click.Command) else None


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExit codes: 0 done, 1 findings or a failed script, 2 wrong usage.\n"
    "Commands that print data have --json.",
)
@click.version_option(__version__, prog_name="adk-skills", message="%(prog)s %(version)s")
def app() -> None:
    """Find, check and run Agent Skills (folders with a SKILL.md) for agents on Google's ADK."""


def main() -> None:
    """Run the command line; every failure ends in one sentence and an exit code."""
    warnings.formatwarning = _warning_line
    _make_streams_safe()
    sys.exit(_run())


def _run() -> int:
    try:
        result = app.main(prog_name="adk-skills", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" See: {context.command_path} --help" if context is not None else ""
        return _say(error.format_message().replace("\n", " ") + hint, error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", INTERRUPTED)
    except SkillsError as error:
        # Notes are for whoever owns the agent, and here that is who reads this.
        return _say(
            " ".join([error.message, *getattr(error, "__notes__", ())]),
            USAGE if isinstance(error, _CALLER_IS_WRONG) else FINDINGS,
        )
    except BrokenPipeError:  # whoever read the output has read enough (... | head)
        _stop_writing()
        return FINDINGS  # as click has it when a command itself notices
    except OSError as error:
        return _say(": ".join(filter(None, [str(error.filename or ""), error.strerror or str(error)])), FINDINGS)
    return result if isinstance(result, int) else 0


def _stop_writing() -> None:
    """Nothing more reaches the closed pipe, also not what the interpreter flushes at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _make_streams_safe() -> None:
    """No text ends the program or commands the terminal: it is escaped, and a closed stream swallows it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    protect_terminals()


def _warning_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Warnings are for the user too: one line, without the place in our code."""
    del filename, lineno, line
    return f"adk-skills: {category.__name__}: {message}\n"


def _say(sentence: str, code: int) -> int:
    print(f"adk-skills: {sentence}", file=sys.stderr)
    return code


# ``adk-skills completion``: tab completion for a shell.

_COMPLETION_EXAMPLES = """\b
Examples:
  eval "$(adk-skills completion bash)"
  adk-skills completion fish | source
"""


@click.command("completion", epilog=_COMPLETION_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print tab completion for a shell."""
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    if complete is None:  # the choice above lists what click has
        raise click.UsageError(f"No completion for {shell}.")
    root = ctx.find_root().command
    print(complete(root, {}, "adk-skills", "_ADK_SKILLS_COMPLETE").source())
