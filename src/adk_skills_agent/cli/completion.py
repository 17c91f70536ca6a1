"""``adk-skills completion``: tab completion for a shell."""

from __future__ import annotations

import click

EXAMPLES = """\b
Examples:
  eval "$(adk-skills completion bash)"
  adk-skills completion fish | source
"""


@click.command("completion", epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print tab completion for a shell."""
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    if complete is None:  # the choice above lists what click has
        raise click.UsageError(f"No completion for {shell}.")
    root = ctx.find_root().command
    print(complete(root, {}, "adk-skills", "_ADK_SKILLS_COMPLETE").source())
