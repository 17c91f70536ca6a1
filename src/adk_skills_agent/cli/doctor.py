"""``adk-skills doctor``: what isolation really works on this machine, why not more, and what would change that."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from typing import Any, NoReturn

import click

from adk_skills_agent.cli.output import Progress, isolation_as_json, print_json, safe
from adk_skills_agent.cli.sources import json_option
from adk_skills_agent.errors import ConfigError, SkillsError
from adk_skills_agent.platforms import SystemSupport, require_posix, system_support
from adk_skills_agent.sandbox import (
    MAX_RUNNING,
    NOBODY,
    SANDBOX_NAMES,
    IsolationLevel,
    IsolationReport,
    LocalLevel,
    Machine,
    Sandbox,
    SandboxChoice,
    SandboxPolicy,
    choose_sandbox,
    local_levels,
    local_sandbox,
    this_machine,
)

EXAMPLES = """\b
Exit codes:
  0  the default policy holds where scripts are sent: they run, isolated at least as it asks
  1  it does not, and scripts are refused until something is changed; with --serve: strangers must not be let in
  2  wrong usage
\b
Examples:
  adk-skills doctor
  adk-skills doctor --json
  adk-skills doctor --container
  adk-skills doctor --serve
"""
_NAME_WIDTH = 20


@click.command("doctor", epilog=EXAMPLES)
@click.option(
    "--container",
    is_flag=True,
    help="Look at the container engine instead: which one there is, and what holds in a container of it.",
)
@click.option(
    "--sandbox",
    default=None,
    type=click.Choice(SANDBOX_NAMES),
    help="Try this sandbox out and print what holds in it.",
)
@click.option(
    "--serve",
    is_flag=True,
    help="Say whether this machine may run strangers' scripts beside those of others, and what to change first.",
)
@json_option
def command(container: bool, sandbox: str | None, serve: bool, as_json: bool) -> None:
    """Print versions, and which isolation works.

    Runs each level to find out which ones work and why others do not, who enforces what, and one command for each
    thing that can be fixed.
    """
    if container and sandbox not in {None, "container"}:
        raise ConfigError(f"--container is --sandbox container; it does not go with --sandbox {sandbox}.")
    if serve or container or sandbox is not None:
        require_posix("Trying sandboxes")
    if serve and (container or sandbox is not None):
        raise ConfigError("--serve is about this machine; it does not go with --container or --sandbox.")
    if serve:
        _say_whether_to_serve(serve_checks(diagnose()), as_json=as_json)
        return
    if container or sandbox is not None:
        _try_sandbox("container" if container else str(sandbox), as_json)
        return

    if not can_be_diagnosed():
        _say_unsupported(as_json=as_json)
    found = diagnose()
    if as_json:
        print_json(found.as_json())
    else:
        _render(found)
    if not found.scripts_run:
        raise click.exceptions.Exit(1)


def can_be_diagnosed() -> bool:
    """Whether levels can be tried here: on Windows there are none, and nothing to try them with."""
    system: str = sys.platform
    return system != "win32"


def _say_unsupported(*, as_json: bool) -> NoReturn:
    """What holds on a system where nothing can be tried."""
    support = system_support()
    if as_json:
        print_json({"versions": versions(), "system": asdict(support), "scripts_run": False})
    else:
        for name, version in versions().items():
            _line(name, version)
        print(f"\nThis system: {support.name}")
        _line("works", support.works)
        _line("refused", support.refused)
        _line("instead", support.instead)
    raise click.exceptions.Exit(1)


def _try_sandbox(name: str, as_json: bool) -> None:
    """One sandbox by name: a trial run, and what the report says of it."""
    found = check_sandbox(name)
    if as_json:
        print_json(found.as_json())
    else:
        print(f"Sandbox {found.name}")
        for fact, text in found.facts:
            _line(fact, text)
        if found.report is not None:
            print(f"\nWhat holds in it, at level {found.report.level.value}")
            _render_enforcement(found.report)
            if found.report.maker:
                _line("maker", found.report.maker)
            if found.report.node:
                _line("node", found.report.node)
            for reason in found.report.reasons:
                _line("", f"because {reason}")
    if found.problem is not None:
        if not as_json:
            print(f"\n{safe(found.problem)}", file=sys.stderr)
        raise click.exceptions.Exit(1)


def _say_whether_to_serve(checks: Sequence[ServeCheck], *, as_json: bool) -> None:
    fit = all(check.holds is not False for check in checks)
    if as_json:
        print_json({"may_serve": fit, "checks": [asdict(check) | {"verdict": check.verdict} for check in checks]})
    else:
        print("Letting strangers in")
        for check in checks:
            _line(check.name, f"{check.verdict}: {check.found}")
            if check.change is not None:
                _line("", f"change: {check.change}")
        if fit:
            print("\nDemand it in code, because a default asks for less: SandboxPolicy(min_isolation='namespaces').")
            print("The page 'Threat model' of the documentation says what stays open.")
        else:
            print("\nDo not run strangers' scripts here until what fails is changed.", file=sys.stderr)
    if not fit:
        raise click.exceptions.Exit(1)


def _render(found: Diagnosis) -> None:
    for name, version in found.versions.items():
        _line(name, version)
    print(f"\nThis system: {found.system.name}")
    _line("works", found.system.works)
    if found.system.refused:
        _line("refused", found.system.refused)
        _line("instead", found.system.instead)
    print("\nThis machine")
    for name, text in found.machine_lines():
        _line(name, text)
    print("\nIsolation levels, strongest first")
    for check in found.levels:
        _line(check.level, _verdict(check, found))
        if check.fix is not None:
            _line("", f"{'fix' if check.reason else 'to enforce more'}: {check.fix}")
    if found.chosen is not None:
        here = "" if found.elsewhere is None else " on this machine"
        print(f"\nWhat holds for a script{here} under the default policy, at level {found.chosen.level}")
        _render_enforcement(found.chosen)
        if found.chosen.level == "namespaces":
            _line("maker", "bubblewrap; from the third sandbox of a process on, the zygote where it can fork them")
            _line("", "- SandboxPolicy(maker='bubblewrap') has bubblewrap make all of them.")
    print("\nScripts run in")
    _line("sandbox", f"{found.sandbox.name} ({found.sandbox.source})")
    elsewhere = found.elsewhere
    if elsewhere is not None and elsewhere.report is not None:
        _line("level", elsewhere.report.level.value)
    if found.sandbox.name in {"auto", "local"} and not found.default_policy_holds:
        _render_refusal(found)
    if elsewhere is not None and elsewhere.problem is not None:
        print(f"\nSandbox {elsewhere.name} cannot be used: {safe(elsewhere.problem)}", file=sys.stderr)


def _render_refusal(found: Diagnosis) -> None:
    """Why this machine does not run scripts under the default policy."""
    if found.trial_problem is not None:
        print(f"\nA trial run failed: {safe(found.trial_problem)}", file=sys.stderr)
    here = (
        "They run in a container instead."
        if found.scripts_run
        else (
            f"For scripts you trust, choose min_isolation='{found.best}' explicitly, or --min-isolation {found.best}."
        )
    )
    print(f"\nThe default policy asks for '{found.least}' and refuses to run scripts here. {here}", file=sys.stderr)


def _verdict(check: LevelCheck, found: Diagnosis) -> str:
    if check.reason is not None:
        return f"no: {check.reason}"
    if check is found.chosen:
        return "works; scripts get this one"
    return "works; only by explicit choice" if check.level == "process" else "works"


def _render_enforcement(check: LevelCheck | IsolationReport) -> None:
    left = list(check.degraded)
    for concern, mechanism in check.enforced.items():
        _line(concern, mechanism)
        for sentence in check.degraded:
            if sentence.startswith(f"{concern}: "):
                left.remove(sentence)
                _line("", f"- {sentence.removeprefix(f'{concern}: ')}")
    for sentence in left:
        _line("", f"- {sentence}")


def _line(name: str, text: str) -> None:
    print(f"  {name:<{_NAME_WIDTH}}{safe(text)}".rstrip())


# What ``adk-skills doctor`` finds out. Nothing that is missing here ends it: each thing is asked for on its own.


@dataclass(frozen=True, slots=True)
class LevelCheck:
    """One level on this machine."""

    level: str
    reason: str | None  # why it does not work here; None when it does
    fix: str | None = None  # the one command that would make it work, or enforce more, when one is known
    # concern to mechanism under the default policy; empty when it does not work
    enforced: Mapping[str, str] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()  # what is not, or only partly, enforced


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything about this machine."""

    versions: Mapping[str, str]
    machine: Machine
    levels: tuple[LevelCheck, ...]  # strongest first
    chosen: LevelCheck | None  # the one scripts get; None when not even a trial run at the weakest works
    least: str  # the default policy's ``min_isolation``
    trial_problem: str | None  # why a complete trial run did not work; None when it did
    sandbox: SandboxChoice  # what scripts get when no call and no code says otherwise, and where that was said
    # the trial of the place that scripts get instead of this machine; None when they run on it
    elsewhere: SandboxCheck | None = None

    @property
    def default_policy_holds(self) -> bool:
        """Whether scripts run on this machine without any setting."""
        if self.chosen is None or self.trial_problem is not None:
            return False
        return IsolationLevel(self.chosen.level).strength >= IsolationLevel(self.least).strength

    @property
    def scripts_run(self) -> bool:
        """Whether scripts run under the default policy where they are sent."""
        return self.default_policy_holds if self.elsewhere is None else self.elsewhere.problem is None

    @property
    def system(self) -> SystemSupport:
        """What the operating system is good for."""
        return system_support()

    @property
    def best(self) -> str:
        """The strongest level that works."""
        return IsolationLevel.PROCESS.value if self.chosen is None else self.chosen.level

    @property
    def scripts_user(self) -> int:
        """The user id of scripts: an agent that is root gives it up, but for the process level."""
        own = self.machine.user
        return NOBODY if own == 0 and self.best != IsolationLevel.PROCESS.value else own

    def machine_lines(self) -> Iterator[tuple[str, str]]:
        """The machine in names and texts, for people."""
        here = self.machine
        own, scripts = _user(here.user), _user(self.scripts_user)
        yield "runs as", f"{own}, and so do scripts" if own == scripts else f"{own}; scripts run as {scripts}"
        yield "kernel", here.system
        yield "landlock", f"ABI {here.landlock_abi}" if here.landlock_abi else f"no: {here.landlock_problem}"
        yield "seccomp", "yes" if here.seccomp else "no"
        spaces = here.user_namespaces
        yield "user namespaces", "allowed" if spaces.allowed else f"no: {spaces.reason}"
        groups = here.control_groups
        may = f"writable for {', '.join(groups.writable)}" if groups.writable else "not writable for this user"
        yield "cgroup", groups.version if groups.version == "none" else f"{groups.version}, {may}"
        path = f" ({here.bubblewrap_path})" if here.bubblewrap_path else ""
        yield "bubblewrap", f"{here.bubblewrap or 'does not run'}{path}" if here.bubblewrap_path else "not installed"
        yield "python", f"{here.python} ({here.python_path})"
        yield "bash", here.bash or "not installed: .sh scripts cannot run"

    def as_json(self) -> dict[str, object]:
        """The same for programs; the names of what is in here stay."""
        chosen = self.chosen
        return {
            "versions": dict(self.versions),
            "system": asdict(self.system),
            "machine": asdict(self.machine),
            "scripts_user": self.scripts_user,
            "levels": [
                {
                    "level": check.level,
                    "works": check.reason is None,
                    "reason": check.reason,
                    "fix": check.fix,
                    "enforced": dict(check.enforced),
                    "degraded": list(check.degraded),
                }
                for check in self.levels
            ],
            "isolation": None
            if chosen is None
            else {
                "level": chosen.level,
                "enforced": dict(chosen.enforced),
                "degraded": list(chosen.degraded),
                "reasons": [
                    f"{check.level}: {check.reason}"
                    for check in self.levels[: self.levels.index(chosen)]
                    if check.reason is not None
                ],
            },
            "min_isolation": self.least,
            "trial_problem": self.trial_problem,
            "default_policy_holds": self.default_policy_holds,
            "sandbox": {"name": self.sandbox.name, "source": self.sandbox.source},
            "elsewhere": None if self.elsewhere is None else self.elsewhere.as_json(),
            "scripts_run": self.scripts_run,
        }


def diagnose() -> Diagnosis:
    """Find out everything; runs each level, which takes some tenths of a second, and the place scripts are sent to.

    Raises ``ConfigError`` when the environment or a file names a sandbox that does not exist.
    """
    policy = SandboxPolicy()
    levels = local_levels()
    with Progress("trying levels:", len(levels)) as progress:
        checks = []
        for level in levels:
            progress.step(level.level.value)
            checks.append(_check_level(level, policy))
    chosen = next((check for check in checks if check.reason is None), None)
    trial_problem = None
    try:
        report = asyncio.run(local_sandbox().probe())
    except (SkillsError, OSError) as error:
        trial_problem = getattr(error, "message", None) or str(error)
    else:
        chosen = next((check for check in checks if check.level == report.level.value), chosen)
    sandbox = choose_sandbox()
    found = Diagnosis(versions(), this_machine(), tuple(checks), chosen, policy.min_isolation, trial_problem, sandbox)
    if sandbox.name in {"container", "kubernetes", "ray"}:
        return replace(found, elsewhere=check_sandbox(sandbox.name))
    if sandbox.name == "auto" and not found.default_policy_holds:
        return replace(found, elsewhere=check_sandbox("container"))
    return found


def versions() -> dict[str, str]:
    """Of this package and what it stands on."""
    import importlib.metadata
    import sqlite3

    import yaml

    from adk_skills_agent import __version__

    def installed(name: str) -> str:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    return {
        "adk-skills-runtime": __version__,
        "google-adk": installed("google-adk"),
        "google-genai": installed("google-genai"),
        "pyyaml": f"{installed('pyyaml')} ({'libyaml' if yaml.__with_libyaml__ else 'without libyaml: slower'})",
        "sqlite": f"{sqlite3.sqlite_version} ({'FTS5' if _has_fts5() else 'without FTS5'})",
    }


def _check_level(level: LocalLevel, policy: SandboxPolicy) -> LevelCheck:
    name = level.level.value
    try:
        reason = level.problem()
        if reason is not None:
            return LevelCheck(name, reason, level.remedy())
        report = level.report(policy)
    except (SkillsError, OSError) as error:
        return LevelCheck(name, f"trying it failed: {getattr(error, 'message', None) or error}")
    return LevelCheck(name, None, level.remedy(), report.enforced, report.degraded)


def _user(number: int) -> str:
    return "root" if number == 0 else f"user {number}"


def _has_fts5() -> bool:
    import contextlib
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        return bool(connection.execute("SELECT sqlite_compileoption_used('ENABLE_FTS5')").fetchone()[0])


# What ``adk-skills doctor --serve`` finds out: what a server that lets strangers in needs of its machine.

_OLDEST_KERNEL = (5, 13)
_MOST_WATCHES = 1 << 17  # the kernel goes through so many in a thirtieth of a second


@dataclass(frozen=True, slots=True)
class ServeCheck:
    """One thing a server needs."""

    name: str
    # False when strangers must not be let in; None when they may, and something is weaker than it could be
    holds: bool | None
    found: str  # what was seen
    change: str | None = None  # what to do about it; None when nothing is to be done

    @property
    def verdict(self) -> str:
        """The same in a word."""
        return {True: "holds", False: "fails", None: "degraded"}[self.holds]


def serve_checks(found: Diagnosis) -> list[ServeCheck]:
    """Judge a diagnosis of this machine."""
    here = found.machine
    level = next(check for check in found.levels if check.level == IsolationLevel.NAMESPACES.value)
    problem = level.reason
    if problem is None and found.chosen is not level:
        problem = f"a trial run got another level: {found.trial_problem or found.best}"
    checks = [
        ServeCheck("level", True, "namespaces, tried by a run")
        if problem is None
        else ServeCheck(
            "level", False, f"not namespaces: {problem}", level.fix or "adk-skills doctor says what is missing"
        )
    ]
    spaces = here.user_namespaces
    if spaces.allowed:
        checks.append(ServeCheck("user namespaces", True, "allowed for this user"))
    else:
        holds = None if problem is None else False
        checks.append(ServeCheck("user namespaces", holds, f"not allowed: {spaces.reason}", spaces.fix))
    path = f"bubblewrap {here.bubblewrap} at {here.bubblewrap_path}"
    checks.append(
        ServeCheck("maker", True, f"{path}, then the zygote; maker='bubblewrap' in a policy leaves the zygote out")
        if here.bubblewrap
        else ServeCheck("maker", False, "bubblewrap does not run or is not installed", level.fix)
    )
    checks += _kernel_enforced(level, works=problem is None)
    if here.user == 0:
        told = "the agent is root; scripts are users without rights, each run another"
        checks.append(
            ServeCheck("user", None, told, "run the agent as a user of its own, with a delegated control group")
        )
    else:
        checks.append(ServeCheck("user", True, f"the agent is user {here.user}, which should own nothing else"))
    checks += [_kernel_check(here.system, level), _watches_check(here), _tasks_check(here)]
    if found.sandbox.name not in {"auto", "local"}:
        name, source = found.sandbox.name, found.sandbox.source
        told = f"scripts are sent to {name!r} ({source}), and the rest of this list is about this machine"
        checks.append(ServeCheck("sandbox", None, told, f"look there, too: adk-skills doctor --sandbox {name}"))
    return checks


def _kernel_enforced(level: LevelCheck, *, works: bool) -> Iterator[ServeCheck]:
    """System calls, memory and processes: whether the kernel bounds them for a whole run."""
    seccomp = "seccomp" in level.enforced.get("syscalls", "")
    yield (
        ServeCheck("system calls", True, level.enforced["syscalls"])
        if works and seccomp
        else ServeCheck(
            "system calls", False, "no filter", "use a kernel with CONFIG_SECCOMP_FILTER, and allow seccomp"
        )
    )
    for concern in ("memory", "pids"):
        mechanism = level.enforced.get(concern, "nothing")
        if works and mechanism.startswith("cgroup"):
            yield ServeCheck(concern, True, f"{mechanism}, by the kernel for a whole run")
            continue
        why = next((text for text in level.degraded if text.startswith(f"{concern}: ")), f"{concern}: {mechanism}")
        yield ServeCheck(
            concern,
            None if works else False,
            f"only watched, and a script can be faster: {why.partition(': ')[2]}",
            "delegate a control group to the agent (systemd: Delegate=yes; docs/explanation/decisions/0009-cgroups.md)",
        )


def _kernel_check(system: str, level: LevelCheck) -> ServeCheck:
    import re

    number = re.search(r"(\d+)\.(\d+)", system)
    version = (int(number[1]), int(number[2])) if number else (0, 0)
    for text in level.degraded:
        if text.startswith("syscalls: "):
            return ServeCheck("kernel", None, f"{system}; {text.partition(': ')[2]}", "sysctl -w kernel.modprobe=")
    if version >= _OLDEST_KERNEL:
        return ServeCheck("kernel", True, f"{system}; its security updates are yours to install")
    least = ".".join(map(str, _OLDEST_KERNEL))
    return ServeCheck("kernel", None, f"{system} is older than {least}", f"use {least} or later, with security updates")


def _watches_check(here: Machine) -> ServeCheck:
    """Whether the kernel bounds what a user watches: of an instance that a script hides nobody sees it (row 373)."""
    name, most = "fs.epoll.max_user_watches", here.user_watches
    if most <= _MOST_WATCHES:
        return ServeCheck("watches", True, f"{name} is {most}" if most else "no epoll here")
    if here.user == 0:
        change = f"sysctl -w {name}=65536: each run is another user, for which it counts"
    else:
        change = f"give each tenant a machine of its own; a lower {name} is for all runs and the agent together"
    return ServeCheck(
        "watches", None, f"{name} is {most}, so a script that hides its watches can keep the processors busy", change
    )


def _tasks_check(here: Machine) -> ServeCheck:
    """Whether a limit of processes around the agent, as of a container, leaves fewer runs their places (row 411)."""
    if here.most_tasks is None:
        return ServeCheck("places", True, f"{here.most_runs} scripts run at a time")
    told = f"{here.most_runs} scripts of {SandboxPolicy().pids} processes run at a time: this container or service may "
    change = "raise its limit for more of them (--pids-limit, podPidsLimit, TasksMax)"
    holds = True if here.most_runs == MAX_RUNNING else None
    return ServeCheck("places", holds, f"{told}have {here.most_tasks:,} processes", None if holds else change)


# What ``adk-skills doctor --sandbox NAME`` finds out: facts of the backend, and a trial run in it.


@dataclass(frozen=True, slots=True)
class SandboxCheck:
    """One sandbox."""

    name: str
    facts: tuple[tuple[str, str], ...]  # what its backend says of itself, by name
    report: IsolationReport | None  # what held in a trial run; None when there was none
    problem: str | None  # why it does not run scripts under the default policy, with what to do; None when it does

    def as_json(self) -> dict[str, object]:
        """The same for programs."""
        report = self.report
        return {
            "sandbox": self.name,
            "works": self.problem is None,
            "problem": self.problem,
            "facts": dict(self.facts),
            "isolation": None if report is None else isolation_as_json(report) | {"maker": report.maker},
        }


def check_sandbox(name: str) -> SandboxCheck:
    """Try a sandbox out. Raises nothing of its own but what a wrong name raises."""
    return asyncio.run(_check_sandbox(name, choose_sandbox(name).sandbox))


async def _check_sandbox(name: str, sandbox: Sandbox) -> SandboxCheck:
    facts: tuple[tuple[str, str], ...] = ()
    try:
        describe = getattr(sandbox, "describe", None)
        if describe is not None:
            facts = tuple(_facts(await describe()))
        report = await sandbox.probe()
        return SandboxCheck(name, facts, report, _too_weak(report))
    except (SkillsError, OSError) as error:
        sentence = getattr(error, "message", None) or str(error)
        return SandboxCheck(name, facts, None, " ".join([sentence, *getattr(error, "__notes__", ())]))
    finally:
        await sandbox.close()


def _too_weak(report: IsolationReport) -> str | None:
    least = IsolationLevel(SandboxPolicy().min_isolation)
    if report.level.strength >= least.strength:
        return None
    return (
        f"The default policy asks for '{least.value}', and scripts get only '{report.level.value}' in it. For scripts "
        f"you trust, choose min_isolation='{report.level.value}' explicitly."
    )


def _facts(description: Any) -> list[tuple[str, str]]:
    """A backend's description, which is a dataclass of plain values, as lines."""
    if not is_dataclass(description) or isinstance(description, type):
        return []
    return [
        (key.replace("_", " "), _shown(value)) for key, value in asdict(description).items() if value not in ("", ())
    ]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
