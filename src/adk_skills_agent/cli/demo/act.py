"""``adk-skills demo``: the whole job once, on this machine, without a key."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adk_skills_agent.cli.init import examples_folder
from adk_skills_agent.cli.output import check_output_folder, print_json, printable, safe, write_files
from adk_skills_agent.cli.sources import a_path, json_option
from adk_skills_agent.cli.terminal import run_interruptible
from adk_skills_agent.errors import ConfigError, SkillsError
from adk_skills_agent.installation import install_hint
from adk_skills_agent.sandbox import IsolationLevel, SandboxPolicy

if TYPE_CHECKING:
    from google.adk.events import Event
    from google.adk.models import BaseLlm

    from adk_skills_agent.cli.demo.attack import Attempt
    from adk_skills_agent.sandbox import EnvValue


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

    An agent discovers a skill, loads it, reads a reference, runs a script and produces a file; it writes a program of
    its own and runs that beside the skill's. Then, with the
    rehearsed model, it runs a skill whose scripts attack this machine, and the host says what came of each attempt;
    that act is left out where scripts cannot be isolated. Exit code 1 when an attempt was not contained.
    """
    import logging
    import warnings
    from dataclasses import asdict

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
    broken = any(step.kind == "error" for step in steps)
    failed = broken or len(written) < len(run.files)
    if not as_json:
        _conclude(run, written)
    attempts: list[Attempt] = []
    if model == REHEARSED and not broken:
        attempts = run_interruptible(_second_act(show=not as_json))
        failed = failed or not all(attempt.contained for attempt in attempts)
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

    asked = question or QUESTION
    if show:
        print(f"\nyou        {asked}")
    async for step in run_demo(model, run, asked):
        steps.append(step)
        if show:
            _show(step)


async def _second_act(*, show: bool) -> list[Attempt]:
    """A hostile skill, where this machine can contain one."""
    from adk_skills_agent.cli.demo.attack import QUESTION, attack
    from adk_skills_agent.sandbox import IsolationLevel, local_sandbox

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


# The agent of ``adk-skills demo``: example skills, a real google-adk Runner, a rehearsed or a real model.

QUESTION = (
    "Summarise the sample sales by region and write a report; then tell me what the parts of the report mean, and "
    "which regions reached their targets: North 28,000, South 30,000, East 20,000, West 30,000."
)
REHEARSED = "rehearsed"


@dataclass(slots=True)
class DemoStep:
    """One thing that happened: ``catalog``, ``call``, ``result``, ``text`` or ``error``."""

    kind: str
    name: str
    content: object


@dataclass(slots=True)
class DemoRun:
    """The facts of a demo run, filled while it runs."""

    skills: int = 0
    catalog_tokens: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    prompt_tokens: int = 0


@contextlib.contextmanager
def demo_model(name: str, conversation: str = "demo") -> Iterator[BaseLlm | str]:
    """The model behind ``--model``: rehearsed on a loopback server, Gemini by name, or LiteLLM by ``provider/model``.

    Raises:
        ConfigError: The extra for LiteLLM is not installed, google-adk knows no such model, or it has no key.
    """
    if name == REHEARSED:
        from adk_skills_agent.testing import GeminiServer, load_conversation

        with GeminiServer(load_conversation(_conversation(conversation))) as server:
            yield server.model()
    elif "/" in name:
        try:
            from google.adk.models.lite_llm import LiteLlm
        except ImportError as error:
            raise ConfigError(f"The model {name!r} needs LiteLLM. Install it: {install_hint('litellm')}") from error
        yield LiteLlm(model=name)
    else:
        yield _real_model(name)


def _real_model(name: str) -> BaseLlm:
    """google-adk's model of that name, with its client.

    The client is made here, outside of the event loop: google-genai's (2.34) raises in its constructor when it has no
    key, and what is left of it, when it is collected, starts its ``aclose()`` as a task of the running loop, where it
    fails again (AttributeError: '_http_options') and nobody takes the exception. Without a loop there is no task.
    """
    from google.adk.models import Gemini, LLMRegistry

    try:
        model = LLMRegistry.new_llm(name)
        if isinstance(model, Gemini):
            _ = model.api_client  # made once and kept
    except Exception as error:
        from adk_skills_agent.evals.models import unusable_model

        raise unusable_model(name, error) from error
    return model


async def run_demo(
    model: BaseLlm | str,
    run: DemoRun,
    question: str = QUESTION,
    *,
    skills: Path | None = None,
    policy: SandboxPolicy | None = None,
    env: Mapping[str, str] | None = None,
    grants: Mapping[str, Mapping[str, EnvValue]] | None = None,
) -> AsyncIterator[DemoStep]:
    """Ask one question and yield what happens, as it happens.

    ``skills`` None takes the examples, ``policy`` None the one for them.
    """
    from google.adk.agents import LlmAgent
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from adk_skills_agent.adk import SkillDiscoveryMode, SkillToolset

    toolset = SkillToolset.from_dirs(
        [skills or examples_folder() / "skills"],
        discovery_mode=SkillDiscoveryMode.EAGER,  # few skills: the model is told of all of them at once
        # The examples are our own, so the demo also works where nothing stronger is available.
        policy=policy or SandboxPolicy(min_isolation=IsolationLevel.PROCESS.value),
        env=env,
        shell=True,  # the agent's, in the sandbox
        grants=grants,
    )
    agent = LlmAgent(
        name="assistant",
        model=model,
        instruction="Answer briefly. Use a skill when one fits the task.",
        tools=[toolset],
    )
    listing = toolset.runtime.listing
    run.skills, run.catalog_tokens = len(listing.skills), listing.text.tokens
    yield DemoStep("catalog", "load_skill", {"skills": list(listing.skills), "tokens": listing.text.tokens})
    runner = InMemoryRunner(agent=agent, app_name="adk-skills-demo")
    try:
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="you")
        message = types.Content(role="user", parts=[types.Part(text=question)])
        async for event in _answered(runner.run_async(user_id="you", session_id=session.id, new_message=message)):
            run.prompt_tokens += (event.usage_metadata and event.usage_metadata.prompt_token_count) or 0
            for step in _steps(event):
                yield step
        artifacts = runner.artifact_service
        if artifacts is not None:
            app, user = runner.app_name, session.user_id
            for name in await artifacts.list_artifact_keys(app_name=app, user_id=user, session_id=session.id):
                part = await artifacts.load_artifact(app_name=app, user_id=user, session_id=session.id, filename=name)
                if part is not None and part.inline_data is not None and part.inline_data.data is not None:
                    run.files[name] = part.inline_data.data
    finally:
        await runner.close()


async def _answered(events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """The events; what a model's service raises (no key, no network, a refusal) ends them with one sentence."""
    told = False
    try:
        async for event in events:
            told = told or bool(event.error_message)
            yield event
    except SkillsError:
        raise
    except Exception as error:
        if told:
            return  # google-adk has already made an event of it
        cause = getattr(error, "error", error)
        raise ConfigError(
            f"The model did not answer: {type(cause).__name__}: {' '.join(str(cause).split())}"
        ) from error


def _steps(event: Event) -> Iterator[DemoStep]:
    if event.error_code or event.error_message:
        yield DemoStep("error", str(event.error_code), event.error_message or "")
    for part in (event.content.parts if event.content else None) or ():
        if part.function_call is not None:
            yield DemoStep("call", part.function_call.name or "", part.function_call.args or {})
        elif part.function_response is not None:
            yield DemoStep("result", part.function_response.name or "", part.function_response.response or {})
        elif part.text:
            yield DemoStep("text", event.author, part.text)


def _conversation(name: str) -> Path:
    return Path(str(files("adk_skills_agent.testing"))) / "conversations" / f"{name}.yaml"
