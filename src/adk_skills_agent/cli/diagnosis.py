"""What ``adk-skills doctor`` finds out. Nothing that is missing here ends it: each thing is asked for on its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

from adk_skills_agent.cli.sandbox_check import SandboxCheck, check_sandbox
from adk_skills_agent.errors import SkillsError
from adk_skills_agent.sandbox.choose import SandboxChoice, choose_sandbox
from adk_skills_agent.sandbox.contract import IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.bubblewrap import NOBODY
from adk_skills_agent.sandbox.local.levels import Level, levels
from adk_skills_agent.sandbox.local.machine import Machine, this_machine


@dataclass(frozen=True, slots=True)
class LevelCheck:
    """One level on this machine.

    Attributes:
        level: Its name.
        reason: Why it does not work here; None when it does.
        fix: The one command that would make it work, when one is known.
        enforced: Concern to mechanism under the default policy; empty when it does not work.
        degraded: What is not, or only partly, enforced.
    """

    level: str
    reason: str | None
    fix: str | None = None
    enforced: Mapping[str, str] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything about this machine.

    Attributes:
        versions: Name to version of what matters.
        machine: Facts of the kernel, the user and programs.
        levels: Strongest first.
        chosen: The one scripts get; None when not even a trial run at the weakest works.
        least: The default policy's ``min_isolation``.
        trial_problem: Why a complete trial run did not work; None when it did.
        sandbox: What scripts get when no call and no code says otherwise, and where that was said.
        elsewhere: The trial of the place that scripts get instead of this machine; None when they run on it.
    """

    versions: Mapping[str, str]
    machine: Machine
    levels: tuple[LevelCheck, ...]
    chosen: LevelCheck | None
    least: str
    trial_problem: str | None
    sandbox: SandboxChoice
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

    Raises:
        ConfigError: The environment or a file names a sandbox that does not exist.
    """
    policy = SandboxPolicy()
    checks = tuple(_check(level, policy) for level in levels())
    chosen = next((check for check in checks if check.reason is None), None)
    trial_problem = None
    try:
        report = asyncio.run(local_sandbox().probe())
    except (SkillsError, OSError) as error:
        trial_problem = getattr(error, "message", None) or str(error)
    else:
        chosen = next((check for check in checks if check.level == report.level.value), chosen)
    sandbox = choose_sandbox()
    found = Diagnosis(versions(), this_machine(), checks, chosen, policy.min_isolation, trial_problem, sandbox)
    if sandbox.name in {"container", "kubernetes"}:
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
        "adk-skills-agent": __version__,
        "google-adk": installed("google-adk"),
        "google-genai": installed("google-genai"),
        "pyyaml": f"{installed('pyyaml')} ({'libyaml' if yaml.__with_libyaml__ else 'without libyaml: slower'})",
        "sqlite": f"{sqlite3.sqlite_version} ({'FTS5' if _has_fts5() else 'without FTS5'})",
    }


def _check(level: Level, policy: SandboxPolicy) -> LevelCheck:
    name = level.level.value
    try:
        reason = level.problem()
        if reason is not None:
            return LevelCheck(name, reason, level.remedy())
        report = level.report(policy)
    except (SkillsError, OSError) as error:
        return LevelCheck(name, f"trying it failed: {getattr(error, 'message', None) or error}")
    return LevelCheck(name, None, None, report.enforced, report.degraded)


def _user(number: int) -> str:
    return "root" if number == 0 else f"user {number}"


def _has_fts5() -> bool:
    import contextlib
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        return bool(connection.execute("SELECT sqlite_compileoption_used('ENABLE_FTS5')").fetchone()[0])
