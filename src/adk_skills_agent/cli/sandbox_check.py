"""What ``adk-skills doctor --sandbox NAME`` finds out: facts of the backend, and a trial run in it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from adk_skills_agent.errors import SkillsError
from adk_skills_agent.sandbox.choose import choose_sandbox
from adk_skills_agent.sandbox.contract import IsolationLevel, IsolationReport, Sandbox, SandboxPolicy


@dataclass(frozen=True, slots=True)
class SandboxCheck:
    """One sandbox.

    Attributes:
        name: As it was chosen.
        facts: What its backend says of itself, by name.
        report: What held in a trial run; None when there was none.
        problem: Why it does not run scripts under the default policy, with what to do; None when it does.
    """

    name: str
    facts: tuple[tuple[str, str], ...]
    report: IsolationReport | None
    problem: str | None

    def as_json(self) -> dict[str, object]:
        """The same for programs."""
        report = self.report
        return {
            "sandbox": self.name,
            "works": self.problem is None,
            "problem": self.problem,
            "facts": dict(self.facts),
            "isolation": None
            if report is None
            else {
                "level": report.level.value,
                "enforced": dict(report.enforced),
                "degraded": list(report.degraded),
                "reasons": list(report.reasons),
            },
        }


def check_sandbox(name: str) -> SandboxCheck:
    """Try a sandbox out. Raises nothing of its own but what a wrong name raises."""
    return asyncio.run(_check(name, choose_sandbox(name).sandbox))


async def _check(name: str, sandbox: Sandbox) -> SandboxCheck:
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
