"""``adk-skills bench skillsbench``: how much do a task's skills help an agent?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from adk_skills_agent.cli.output import print_aligned, refuse_links, safe, share
from adk_skills_agent.cli.sources import a_path, cluster_options, json_option, needs_of
from adk_skills_agent.evals.skillsbench.results import BenchResult
from adk_skills_agent.evals.statistics import interval_text, signed, verdict_text

EXAMPLES = """\b
Examples:
  adk-skills bench skillsbench --tasks-dir skillsbench/tasks --self-test --filter 3d-scan
  adk-skills bench skillsbench --tasks-dir tasks --build-only --parallel 2
  adk-skills bench skillsbench --tasks-dir tasks --model gemini-3-flash-preview --trials 5 --out run-1
  adk-skills bench skillsbench --tasks-dir tasks --model gemini-3-flash-preview --trials 5 --out run-1 --resume
  adk-skills bench skillsbench --tasks-dir tasks --arm self-gen --arm no-skill --agent-network off
  adk-skills bench skillsbench --tasks-dir tasks --self-test --cluster 10.0.0.5:6379 --out run-2
  adk-skills bench skillsbench --tasks-dir tasks --self-test --sandbox container --build-arg https_proxy

\b
A task is a folder with instruction.md, task.toml, environment/Dockerfile, tests/test.sh and solution/solve.sh, or
with task.md, environment/, verifier/ and oracle/. Each trial is one row of OUT/results.jsonl:
task, arm, trial, agent, reward, passed, error, seconds, and more after these. A trial whose environment, verifier or
model failed has no reward: it is told as an error, counts in no rate, and --resume runs it again.

\b
Sandboxes:
  local      Debian's and Ubuntu's packages and the kernel's namespaces; needs mmdebstrap, bubblewrap, uidmap
  container  a Docker or Podman engine, and the extra container of adk-skills-runtime

\b
Exit codes: 0 every trial was measured (with --self-test: oracle 1 and nop 0 everywhere); 1 one was not;
2 wrong usage; 130 interrupted. Tasks that cannot run here are listed at the start and do not change the code.
"""


@click.group("bench")
def command() -> None:
    """Run benchmarks of skills; see: adk-skills bench skillsbench --help."""


@command.command("skillsbench", epilog=EXAMPLES)
@click.option("--tasks-dir", required=True, type=a_path, help="Folder of task folders.")
@click.option("--filter", "containing", default="", help="Only tasks whose name contains this text.")
@click.option(
    "--agent",
    default="adk",
    show_default=True,
    type=click.Choice(["adk", "oracle", "nop"]),
    help="A google-adk agent with bash; the task's own solution; or nobody.",
)
@click.option(
    "--model",
    default="gemini-3-flash-preview",
    show_default=True,
    help="Of the adk agent: a name google-adk knows, provider/model (LiteLLM), module:attribute, or scripted:FILE.",
)
@click.option(
    "--arm",
    "arms",
    multiple=True,
    type=click.Choice(["no-skill", "with-skill", "self-gen"]),
    help="Which skills there are (repeatable).  [default: no-skill and with-skill; with-skill for oracle and nop]",
)
@click.option("--trials", default=1, show_default=True, type=click.IntRange(1), help="Repetitions of each.")
@click.option(
    "--parallel",
    default=None,
    type=click.IntRange(1),
    help="Trials at once.  [default: 1, or as many as the --cluster has room for]",
)
@cluster_options
@click.option("--timeout", default=None, type=click.FloatRange(0.1), help="Seconds for the agent, over the task's own.")
@click.option(
    "--sandbox", default="local", show_default=True, type=click.Choice(["local", "container"]), help="See below."
)
@click.option("--rebuild", is_flag=True, help="Build every environment anew.")
@click.option("--build-only", is_flag=True, help="Build the environments; run nothing.")
@click.option("--prune-interval", default=0, type=click.IntRange(0), help="Clean up after every N builds.")
@click.option("--skip-tests", is_flag=True, help="Judge by whether a skill was used and an answer given; no tests.")
@click.option("--self-test", is_flag=True, help="Run oracle and nop: every oracle must get 1, every nop 0.")
@click.option(
    "--agent-network",
    default="on",
    show_default=True,
    type=click.Choice(["on", "off"]),
    help="Of the agent's commands; a task that allows no internet has none.",
)
@click.option(
    "--verifier-network",
    default="on",
    show_default=True,
    type=click.Choice(["on", "off"]),
    help="Of the tests, most of which install packages first.",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME",
    help="A variable of this machine's environment that the tasks may ask for (repeatable); they get no others.",
)
@click.option("--wheels", default=None, type=a_path, help="Folder of wheels for verifiers without a network.")
@click.option("--out", default="adk-skills-bench", show_default=True, type=a_path, help="Folder of the results.")
@click.option("--resume", is_flag=True, help="Continue the results in --out: only what is missing is run.")
@click.option(
    "--cache-dir",
    default=None,
    type=a_path,
    help="Folder of the built environments.  [default: skillsbench in the user's cache folder]",
)
@click.option(
    "--base-image",
    "base_images",
    multiple=True,
    metavar="NAME=IMAGE",
    help="Container mode: the image to take for FROM NAME, e.g. of a mirror (repeatable).",
)
@click.option(
    "--bases",
    default="registry",
    show_default=True,
    type=click.Choice(["registry", "packages"]),
    help="Container mode: whether the engine gets bases, or they are made of packages as in local mode.",
)
@click.option("--build-network", default=None, metavar="NAME", help="Container mode: network of builds, e.g. host.")
@click.option(
    "--build-arg",
    "build_arguments",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Container mode: of every build (repeatable); NAME alone takes the environment's value. Proxies "
    "(http_proxy, https_proxy, no_proxy ...) are given to commands with a network, too, and kept in no image.",
)
@click.option(
    "--ca-certificates",
    default=None,
    type=a_path,
    help="Container mode: PEM file that builds and commands with a network trust, e.g. behind a proxy that opens TLS.",
)
@json_option
def skillsbench(
    tasks_dir: Path,
    agent: str,
    arms: tuple[str, ...],
    cluster: str | None,
    trial_cpus: float,
    trial_memory: int,
    trial_gpus: float,
    labels: tuple[str, ...],
    self_test: bool,
    agent_network: str,
    verifier_network: str,
    **others: Any,
) -> None:
    """Run SkillsBench tasks with and without their skills, each graded by its own tests."""
    from adk_skills_agent.cli.bench_run import Options, run

    refuse_links(others["out"], "--out")
    agents = ("oracle", "nop") if self_test else (agent,)
    options = Options(
        tasks_dir=tasks_dir.expanduser(),
        agents=agents,
        arms=tuple(dict.fromkeys(arms)) or (("with-skill",) if "adk" not in agents else ("no-skill", "with-skill")),
        self_test=self_test,
        agent_network=agent_network == "on",
        verifier_network=verifier_network == "on",
        cluster=cluster,
        needs=needs_of(cluster, trial_cpus, trial_memory, trial_gpus, labels),
        **others,
    )
    raise click.exceptions.Exit(run(options))


# What a benchmark run prints for a person: a line for each trial, tables at the end (S0-139).

_SAID = {True: "PASS", False: "FAIL", None: "ERROR"}


def trial_line(number: int, planned: int, result: BenchResult, row: Mapping[str, Any], *, alone: bool) -> str:
    """``[i/n] name PASS/FAIL (skills, secs | error)``.

    With ``alone`` there is one arm only, which need not be named.
    """
    which = "" if alone else f" {result.arm}"
    partial = f" {result.reward:g}" if result.reward is not None and 0 < result.reward < 1 else ""
    skills = ", ".join(map(safe, result.skills_used)) or f"{len(result.skills_available)} skills"
    seconds = result.seconds + float(row.get("verifier_seconds") or 0)
    problem = f" | {safe(result.error)[:200]}" if result.error else ""
    return (
        f"[{number}/{planned}] {safe(result.task)}{which} {result.agent} {_SAID[result.passed]}{partial} "
        f"({skills}, {seconds:.1f} s{problem})"
    )


def print_builds(builds: Mapping[str, Any]) -> None:
    """One line of how the builds went, and one for each that failed."""
    print(
        f"environments: {builds['built']} built, {builds['cached']} from the cache, {len(builds['failed'])} failed, "
        f"{builds['retried']} tried again, {builds['seconds']:.0f} s"
    )
    for task, reason in builds["failed"].items():
        print(f"  {safe(task)}: {safe(reason)}")


def print_summary(content: Mapping[str, Any]) -> None:
    """Print what a person wants to know after a run."""
    head = ("agent", "arm", "tasks", "trials", "not measured", "score", "mean reward", "skill used", "time")
    print()
    print_aligned([head, *(_cells(side)[:9] for side in content["arms"])])
    if len(content["domains"]) > len(content["arms"]):
        print()
        rows = [(safe(side["domain"]), *_cells(side)) for side in content["domains"]]
        print_aligned([("domain", *head), *rows])
    print()
    for lift in content["lift"]:
        interval = interval_text(lift["low"], lift["high"], lift["no_interval"], signed)
        said = verdict_text(lift["better"], lift["worse"], lift["equal"], unit="task")
        print(
            f"lift of {lift['arm']} over {lift['baseline']}: {lift['mean']:+.1%}{interval}, mean of {lift['tasks']} "
            f"tasks; it {said}"
        )
    for problem in content["not_measured"]:
        print(f"not measured: {safe(problem['task'])} {problem['arm']} {problem['trial']}: {safe(problem['error'])}")
    for problem in content["self_test"] or ():
        print(f"self-test: {safe(problem)}")
    if content["self_test"] == [] and content["finished"] == content["planned"]:
        print("self-test: every oracle got 1 and every nop 0")
    print_builds(content["builds"])
    model = f"{safe(content['model'])}, " if content["model"] else ""
    loadable = max((side["tasks_with_skills"] for side in content["arms"]), default=0)
    print(
        f"{model}{content['framework']}, {content['sandbox']} sandbox: {content['finished']} of {content['planned']} "
        f"trials, skills loadable in {loadable} tasks, {content['elapsed_seconds']:.0f} s"
    )
    if content["left_out"]:
        print(f"{len(content['left_out'])} tasks were left out, see the start")
    print(f"results: {safe(content['results'])}")


def _cells(side: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        side["agent"],
        side["arm"],
        str(side["tasks"]),
        str(side["trials"]),
        str(side["errors"]),
        share(side["pass_rate"]),
        "-" if side["mean_reward"] is None else f"{side['mean_reward']:.3f}",
        share(side["skill_used"]),
        "-" if side["mean_seconds"] is None else f"{side['mean_seconds']:.1f} s",
    )
