"""``adk-skills demo``: the whole job once, on this machine, without a key."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.files import check_output_folder, write_files
from adk_skills_agent.cli.interruption import run_interruptible
from adk_skills_agent.cli.output import print_json, printable, safe
from adk_skills_agent.cli.sources import a_path, json_option

if TYPE_CHECKING:
    from google.adk.models import BaseLlm

    from adk_skills_agent.cli.demo_agent import DemoRun, DemoStep
    from adk_skills_agent.cli.demo_attack import Attempt


EXAMPLES = """\b
Examples:
  adk-skills demo
  adk-skills demo --model gemini-2.5-flash --question 'Report on the sample sales'
  adk-skills demo --json
"""


@click.command("demo", epilog=EXAMPLES)
@click.option(
    "--model",
    default="rehearsed",
    show_default=True,
    help="'rehearsed' (no key, no network), a Gemini model, or a LiteLLM provider/model.",
)
@click.option("--question", help="Ask something else (real models).")
@click.option(
    "--output", "-o", default="demo-output", show_default=True, type=a_path, help="Where the produced files are put."
)
@json_option
def command(model: str, question: str | None, output: Path, as_json: bool) -> None:
    """Show the whole job with an example agent.

    An agent discovers a skill, loads it, reads a reference, runs a script and produces a file. Then, with the
    rehearsed model, it runs a skill whose scripts attack this machine, and the host says what came of each attempt;
    that act is left out where scripts cannot be isolated. Exit code 1 when an attempt was not contained.
    """
    import logging
    import warnings
    from dataclasses import asdict

    from adk_skills_agent.cli.demo_agent import REHEARSED, DemoRun, demo_model
    from adk_skills_agent.errors import ConfigError, SecurityWarning

    if question is not None and model == REHEARSED:
        raise ConfigError("The rehearsed model knows one question only. Give --question together with --model.")
    check_output_folder(output)
    # The demo chooses the process level for its own examples, and says so itself.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    # google-adk announces each of its experimental features; that is not what this command is about.
    warnings.filterwarnings("ignore", category=UserWarning, message=r"\[EXPERIMENTAL\]")
    logging.getLogger("google_adk").setLevel(logging.CRITICAL)  # it logs tracebacks of what is shown as a sentence
    run = DemoRun()
    steps: list[DemoStep] = []
    if not as_json:
        _introduce(rehearsed=model == REHEARSED, model=model)
    with demo_model(model) as chosen:
        run_interruptible(_collect(chosen, run, steps, question, show=not as_json))
    written = write_files(output, {Path(name).name: content for name, content in run.files.items()})
    failed = any(step.kind == "error" for step in steps)
    if not as_json:
        _conclude(run, written)
    attempts: list[Attempt] = []
    if model == REHEARSED and not failed:
        attempts = run_interruptible(_second_act(show=not as_json))
        failed = not all(attempt.contained for attempt in attempts)
    if as_json:
        print_json(
            {
                "model": model,
                "skills": run.skills,
                "catalog_tokens": run.catalog_tokens,
                "prompt_tokens": run.prompt_tokens,
                "steps": [{"kind": step.kind, "name": step.name, "content": step.content} for step in steps],
                "files": written,
                "attempts": [asdict(attempt) for attempt in attempts],
            }
        )
    if failed:
        raise click.exceptions.Exit(1)


async def _collect(
    model: BaseLlm | str, run: DemoRun, steps: list[DemoStep], question: str | None, *, show: bool
) -> None:
    from adk_skills_agent.cli.demo_agent import QUESTION, run_demo

    asked = question or QUESTION
    if show:
        print(f"\nyou        {asked}")
    async for step in run_demo(model, run, asked):
        steps.append(step)
        if show:
            _show(step)


async def _second_act(*, show: bool) -> list[Attempt]:
    """A hostile skill, where this machine can contain one."""
    from adk_skills_agent.cli.demo_attack import QUESTION, attack
    from adk_skills_agent.sandbox.contract import IsolationLevel
    from adk_skills_agent.sandbox.local import local_sandbox

    report = await local_sandbox().probe()
    if report.level.strength < IsolationLevel.LANDLOCK.strength:
        if show:
            print(
                f"\nThe second act, a hostile skill, is left out: this machine isolates at level '{report.level}' only."
            )
            print("adk-skills doctor says why.")
        return []
    if show:
        print("\n--- Second act: a skill from a stranger, with scripts that attack this machine ---")
        print(f"\nyou        {QUESTION}")
    attempts = await attack(report, _show if show else _silent)
    if show:
        print(f"\nisolation  level '{report.level}'; what the host saw of each attempt:\n")
        for attempt in attempts:
            verdict = "contained" if attempt.contained else "NOT CONTAINED"
            print(f"  {verdict:<13} {attempt.what:<30} {attempt.how}  [{attempt.mechanism}]")
    return attempts


def _silent(step: DemoStep) -> None:
    """For ``--json``: the attempts say it all."""


def _introduce(*, rehearsed: bool, model: str) -> None:
    if rehearsed:
        print("The model in this demo is REHEARSED: its turns are written in a file, and a loopback server that speaks")
        print("Gemini's protocol plays them. All else is real: google-adk's Runner, the google-genai client, the")
        print("skills, the script and the file it writes. --model gemini-2.5-flash (with a key) takes a real model.")
    else:
        print(f"Model: {model}")


def _show(step: DemoStep) -> None:
    if step.kind == "catalog":
        print(f"\ncatalogue  the model is told of these skills: {_brief(step.content, 400)}")
    elif step.kind == "call":
        print(f"\nmodel      calls {step.name}({_brief(step.content, 160)})")
    elif step.kind == "result":
        print(f"tool       {_brief(step.content, 400)}")
    elif step.kind == "error":
        print(f"error      {step.name}: {safe(str(step.content))}", file=sys.stderr)
    else:
        print(f"\nmodel      {printable(str(step.content))}")
    sys.stdout.flush()


def _brief(value: object, limit: int) -> str:
    import json as encoder

    text = safe(encoder.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def _conclude(run: DemoRun, written: list[str]) -> None:
    print()
    for path in written:
        print(f"file       {path}")
    print(
        f"catalogue  {run.skills} skills cost {run.catalog_tokens} tokens of each request; the model read "
        f"{run.prompt_tokens:,} tokens in all"
    )
