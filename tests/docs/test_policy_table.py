"""docs/reference/scripts.md has every field of SandboxPolicy, isolation.md every variable a script has.

Write the table anew with ``ADK_SKILLS_WRITE_DOCS=1 .venv/bin/python -m pytest tests/docs/test_policy_table.py``.
"""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import fields
from pathlib import Path

from adk_skills_agent.sandbox.contract import Network, SandboxPolicy
from adk_skills_agent.sandbox.local.levels.landlock import landlock_report
from adk_skills_agent.sandbox.local.levels.namespaces import namespaces_report
from adk_skills_agent.sandbox.local.levels.process import process_report
from adk_skills_agent.sandbox.process.command import build_environment

DOCS = Path(__file__).resolve().parents[2] / "docs"
START, END = "| field | default | meaning |\n|---|---|---|\n", "\n\n"


def meanings() -> dict[str, str]:
    """Field to what the docstring of the class says of it."""
    text = (inspect.getdoc(SandboxPolicy) or "").partition("Attributes:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in found}


def shown(name: str, value: object) -> str:
    if isinstance(value, Network):
        return "`Network.none()`"
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value >> 20} MiB" if value >= 1 << 20 else f"{value >> 10} KiB"
    if name.endswith("_seconds") and isinstance(value, (int, float)):
        return f"{value:g} s"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"`{value!r}`".replace('"', "'")


def table() -> str:
    policy = SandboxPolicy()
    said = meanings()
    rows = []
    for field in fields(SandboxPolicy):
        value = getattr(policy, field.name)
        default = "`{}`" if field.name == "env" else shown(field.name, value)
        meaning = re.sub(r":\w+:`~?(\w+)`", r"`\1`", said[field.name]).replace("``", "`")
        rows.append(f"| `{field.name}` | {default} | {meaning} |")
    return START + "\n".join(rows) + END


def test_every_field_of_the_policy_is_in_the_table() -> None:
    page = DOCS / "reference" / "scripts.md"
    text = page.read_text(encoding="utf-8")
    first = text.index(START)
    present = text[first : text.index(END, first) + len(END)]
    if os.environ.get("ADK_SKILLS_WRITE_DOCS"):
        page.write_text(text.replace(present, table()), encoding="utf-8")
        present = table()
    assert present == table(), "run this test with ADK_SKILLS_WRITE_DOCS=1"


def test_every_variable_of_a_script_is_named() -> None:
    variables = build_environment(SandboxPolicy(), {}, home="/tmp/home", tmp="/tmp", run_id="x")
    page = (DOCS / "explanation" / "isolation.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, re.MULTILINE)
    assert {*variables, "PWD"} - set(re.findall(r"`(\w+)`", " ".join(rows))) == set()


def test_a_report_says_what_an_attacker_reached_as_the_table_of_levels_does():
    """Row 79: what a level only watches is in its report, with the factor seen."""
    text = (DOCS / "explanation" / "isolation.md").read_text()
    rows = dict(
        re.findall(r"^\| (`\w+`[\w ]*) \| .*? \| (.*?) \| .*? \|$", text.partition("| sure |")[2], re.MULTILINE)
    )
    policy = SandboxPolicy()
    bounded, watched = rows["`namespaces` with a control group"], rows["`namespaces` without one"]
    of_landlock, of_process = (
        rows[f"`{name}`"].replace("memory as above", watched) for name in ("landlock", "process")
    )
    reports = {
        bounded: namespaces_report(policy, 2),
        watched: namespaces_report(policy, "none here"),
        of_landlock: landlock_report(policy, 7),
        of_process: process_report(policy),
    }
    for row, report in reports.items():
        assert set(re.findall(r"[\d.]+ times", row)) == set(re.findall(r"[\d.]+ times", " ".join(report.degraded))), row
