"""``adk-skills``: the commands in one place, errors in one line, nothing imported before it is needed."""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_skills_agent import __version__
from adk_skills_agent.cli.terminal import EndedBySignal, end_in_order, exit_code_of, protect_terminals
from adk_skills_agent.errors import (
    CatalogError,
    ConfigError,
    InvalidArguments,
    ScriptNotFound,
    SkillsError,
    UnsupportedScriptType,
    ValidationError,
    nearest,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

FINDINGS, USAGE, INTERRUPTED = 1, 2, 130

COMMANDS = {
    "init": ("init:command", "Make an agent project that runs under adk web."),
    "examples": ("init:examples_command", "Copy the example skills and agents of this package here."),
    "list": ("skills:list_command", "List the skills of folders or scopes."),
    "info": ("skills:info_command", "Show everything about one skill."),
    "validate": ("skills:validate_command", "Check skills against the specification."),
    "new": ("skills:new_command", "Make a new skill to start from."),
    "search": ("skills:search_command", "Find skills by what they are for."),
    "add": ("install:add_command", "Install skills from elsewhere and pin them."),
    "remove": ("install:remove_command", "Uninstall skills and take them out of the lock."),
    "outdated": ("install:outdated_command", "Say which installed skills have changed at their sources."),
    "update": ("install:update_command", "Update installed skills from their sources."),
    "sync": ("install:sync_command", "Install exactly what adk-skills.lock says."),
    "verify": ("install:verify_command", "Compare every installed skill with adk-skills.lock, byte by byte."),
    "why": (
        "install:why_command",
        "Say why a skill is installed: who wants it, which skills need it, where it came from.",
    ),
    "pack": ("install:pack_command", "Pack a skill's folder into an archive."),
    "serve": ("serve:serve_command", "Offer the local skills to other agents."),
    "needs": ("packages:needs_command", "Show what a skill needs to run."),
    "prepare": ("packages:prepare_command", "Prepare the packages of a skill."),
    "run": ("run:command", "Run a skill's script in the sandbox."),
    "eval": ("eval:command", "Measure skills: run eval cases with and without them."),
    "report": ("eval:report_command", "Make the HTML report of a run: lift, triggering, tokens, time, every trace."),
    "bench": ("bench:command", "Run benchmarks of skills; see: adk-skills bench skillsbench --help."),
    "trust": ("trust:trust_command", "Trust a project's skills."),
    "approvals": ("trust:approvals_command", "List, give or take back approvals of skills."),
    "usage": ("usage:command", "Show how skills are used: activations, failures, latency, tokens."),
    "workspaces": ("workspaces:command", "List and remove the files of sessions in a store."),
    "doctor": ("doctor:command", "Print versions, and which isolation works."),
    "demo": ("demo.act:command", "Show the whole job with an example agent."),
    "completion": ("main:completion_command", "Print tab completion for a shell."),
}
"""Each command's module in this package, the name of its click command there, and its line in the help."""

_ELSEWHERE = {
    "build": "pack",
    "check": "validate",
    "create": "new",
    "delete": "remove",
    "find": "search",
    "get": "add",
    "help": "",
    "install": "add",
    "lint": "validate --lint",
    "lock": "sync",
    "ls": "list",
    "package": "pack",
    "publish": "serve",
    "rm": "remove",
    "show": "info",
    "status": "verify",
    "test": "eval",
    "uninstall": "remove",
    "upgrade": "update",
}
"""What other tools call our commands; by their letters some are near to others (test to trust, create to prepare)."""

_CALLER_IS_WRONG = (CatalogError, ConfigError, InvalidArguments, ScriptNotFound, UnsupportedScriptType, ValidationError)


class _Commands(click.Group):
    """Imports a command's module when the command is used: starting up costs the same with ten commands or fifty."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(f"adk_skills_agent.cli.{module}"), name)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help, without importing what the commands need."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click, with the nearest name where there is no such command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            called = _ELSEWHERE.get(args[0].casefold())
            close = (called,) if called is not None else nearest(args[0], COMMANDS, 1)
            hint = f" Did you mean {close[0]!r}?" if close and close[0] else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of the commands with their lines, and the options."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExit codes: 0 done, 1 findings or a failed script, 2 wrong usage.\n"
    "Commands that print data have --json.",
)
@click.option(
    "--no-color",
    is_flag=True,
    expose_value=False,  # see _run, which takes it before the command or behind it
    help="Print no colour on a terminal. The variable NO_COLOR does the same.",
)
@click.version_option(__version__, prog_name="adk-skills", message="%(prog)s %(version)s")
def app() -> None:
    """Find, check and run Agent Skills (folders with a SKILL.md) for agents on Google's ADK."""


def main() -> None:
    """Run the command line; every failure ends in one sentence and an exit code."""
    warnings.formatwarning = _warning_line
    _make_streams_safe()
    end_in_order()
    code = _run()
    gc.freeze()  # the program ends: what it has is not looked through once more
    sys.exit(code)


_CLICKS_KINDS = (("float range", "number"), ("integer range", "whole number"))
"""What click calls a number with limits."""


def _run() -> int:
    arguments = sys.argv[1:]
    ours = arguments.index("--") if "--" in arguments else len(arguments)
    if "--no-color" in arguments[:ours]:
        arguments.remove("--no-color")  # the variable is what libraries and programs that are started know, too
        os.environ["NO_COLOR"] = "1"
    try:
        result = app.main(arguments, prog_name="adk-skills", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        said = error.format_message().replace("\n", " ")
        for kind, name in _CLICKS_KINDS:
            said = said.replace(f"is not a valid {kind}", f"is not a {name}")
        if not said.endswith((".", "?", "!", "?)")):
            said += "."
        hint = f" See: {context.command_path} --help" if context is not None else ""
        return _say(said + hint, error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        cause = error.__cause__ if isinstance(error, click.Abort) else error  # click makes one of the other
        if isinstance(cause, EndedBySignal):
            return _say(f"ended by {signal.Signals(cause.number).name}", exit_code_of(cause))
        return _say("interrupted", INTERRUPTED)
    except SkillsError as error:
        # Notes are for whoever owns the agent, and here that is who reads this.
        from adk_skills_agent.cli.output import for_command_line

        return _say(
            for_command_line(" ".join([error.message, *getattr(error, "__notes__", ())])),
            USAGE if isinstance(error, _CALLER_IS_WRONG) else FINDINGS,
        )
    except BrokenPipeError:  # whoever read the output has read enough (... | head)
        _stop_writing()
        return FINDINGS  # as click has it when a command itself notices
    except UnicodeEncodeError as error:  # a name for the file system
        return _say(
            f"The locale's encoding, {sys.getfilesystemencoding()}, has no {error.object[error.start : error.end]!a}. "
            "Set LC_ALL=C.UTF-8.",
            FINDINGS,
        )
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not _has_working_directory():
            return _say("The working directory is not there any more. Change to a folder that is.", USAGE)
        where = f"{error.filename}: " if error.filename else ""
        advice = _ADVICE.get(error.errno or 0, "")
        return _say(f"{where}{error.strerror or error}{advice and '. '}{advice}", FINDINGS)
    return result if isinstance(result, int) else 0


_FULL = "Make room on the disk, or choose a folder on another one."
_DENIED = "Check who may read and write it, or choose another folder."
_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: "Choose a folder that can be written to.",
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
}


def _has_working_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:
        return False
    return True


def _stop_writing() -> None:
    """Redirect stdout to nowhere, so that the interpreter's last flush does not fail on the closed pipe."""
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
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
@click.pass_context
def completion_command(ctx: click.Context, shell: str | None) -> None:
    """Print tab completion for a shell."""
    if shell is None:
        raise click.UsageError("Name the shell: bash, zsh or fish.", ctx)
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    if complete is None:  # the choice above lists what click has
        raise click.UsageError(f"No completion for {shell}.")
    root = ctx.find_root().command
    print(complete(root, {}, "adk-skills", "_ADK_SKILLS_COMPLETE").source())
