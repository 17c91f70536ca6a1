"""``adk-skills usage`` and ``adk-skills approvals``, as a person starts them (S4-30, S4-21)."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import preloaded
from adk_skills_agent.cli.usage import EVENTS, UNKNOWN, SkillFigures, duration, figures_of

PROGRAM = preloaded.program("adk-skills")
NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


def line(event: str, age: timedelta = timedelta(0), **values: Any) -> str:
    time = (NOW - age).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"time": time, "event": event, **values}) + "\n"


def finished(seconds: float, reason: str = "", **values: Any) -> str:
    status = "error" if reason else "success"
    return line("ScriptFinished", skill="reporter", run="r", seconds=seconds, status=status, reason=reason, **values)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "audit.jsonl"
    path.write_text(
        line("SkillDiscovered", how="list", count=2, skills=["reporter", "other"])
        + line("SkillActivated", timedelta(days=9), skill="reporter", tokens=1200, session="s1")
        + line("SkillActivated", skill="reporter", tokens=1300, session="s2")
        + line("SkillActivated", skill="reporter", tokens=1300, session="s2", again=True)
        + line("SkillActivated", skill="invented", error_code="SKILL_NOT_FOUND")
        + line("SkillDropped", skill="reporter", reason="budget")
        + line("ResourceRead", skill="reporter", path="references/guide.md")
        + line("ResourceRead", skill="reporter", path="x", error_code="RESOURCE_NOT_FOUND")
        + line("ScriptStarted", skill="reporter", run="r", script="scripts/x.py")
        + "".join(finished(number / 100) for number in range(1, 20))
        + finished(30, "timeout")
        + finished(0.5, "exit_code")
        + line("ScriptFinished", skill="reporter", run="", status="error", error_code="SCRIPT_NOT_FOUND")
        + line("ApprovalRequested", skill="other")
        + line("ApprovalDecided", skill="other", decision="approved")
        + line("GuardTripped", skill="other", kind="script")
        + line("GuardTripped", skill="", kind="run")
        + line("SkillActivated", skill="other", tokens=80, session="s2")
    )
    return path


def run(*arguments: object, status: int = 0, **more: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False, env=dict(os.environ), **more
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.requirement("S4-30")
def test_the_table_has_a_row_for_each_skill_the_most_used_first(log: Path) -> None:
    done = run("usage", log)
    assert done.stdout.splitlines() == [
        "skill      act.  dropped  reads  runs  failed  median     p95  tokens  failures",
        "reporter      2        1      1    21       2  110 ms  500 ms   1,300  "
        "RESOURCE_NOT_FOUND 1, timeout 1, exit_code 1, SCRIPT_NOT_FOUND 1",
        "other         1        0      0     0       0       -       -      80",
        "(unknown)     0        0      0     0       0       -       -       0  SKILL_NOT_FOUND 1",
    ]
    assert done.stderr == ""


def test_json_says_everything(log: Path) -> None:
    found = json.loads(run("usage", log, "--json").stdout)
    assert (found["events"], found["lost_events"], found["skipped_lines"]) == (36, 0, 0)
    assert found["by_event"]["GuardTripped"] == 2
    assert found["by_event"]["ScriptFinished"] == 22
    reporter = found["skills"][0]
    assert reporter == {
        "skill": "reporter",
        "activations": 2,
        "sessions": 2,
        "drops": {"budget": 1},
        "reads": 1,
        "runs": 21,
        "failed_runs": 2,
        "failures": {"RESOURCE_NOT_FOUND": 1, "timeout": 1, "exit_code": 1, "SCRIPT_NOT_FOUND": 1},
        "median_seconds": 0.11,
        "p95_seconds": 0.5,
        "tokens": 1300,
        "tokens_total": 2500,
        "approvals": {},
        "guard_trips": 0,
    }
    assert found["skills"][1]["approvals"] == {"requested": 1, "approved": 1}
    assert found["skills"][1]["guard_trips"] == 1


def test_since_takes_an_age_or_a_date(log: Path) -> None:
    found = json.loads(run("usage", log, "--since", "2026-11-15", "--json").stdout)
    assert found["skills"][0]["activations"] == 1
    with log.open("a") as file:
        now = datetime.now(UTC).isoformat()
        file.write(json.dumps({"time": now, "event": "SkillActivated", "skill": "new"}) + "\n")
    recent = json.loads(run("usage", log, "--since", "30m", "--json").stdout)["skills"]
    assert "new" in [one["skill"] for one in recent]
    assert run("usage", log, "--since", "soon", status=2).stderr == (
        "adk-skills: --since 'soon' is no time. Write 30m, 24h, 7d, 2w, or a date: 2026-11-01.\n"
    )
    assert "no event in the log since then" in run("usage", log, "--since", "2100-01-01", status=1).stderr


def test_torn_and_foreign_lines_are_counted_and_named_with_their_line(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b'{"time":"2026-11-21T09:00:00Z","event":"Skill\n[1]\nhello \xff\n')
        file.write(line("SomethingElse").encode() + b'{"event":"SkillActivated","skill":"x"}\n')
        file.write(line("EventsLost", count=7).encode() + b"[" * 100_000 + b"\n" + b"x" * (3 << 20) + b"\n")
        file.write(line("SkillActivated", skill="last").encode() + b'{"torn')
    done = run("usage", log, "--json")
    found = json.loads(done.stdout)
    assert (found["skipped_lines"], found["lost_events"]) == (8, 7)
    assert "last" in [one["skill"] for one in found["skills"]]
    named = [note.rpartition(", line ")[2] for note in done.stderr.splitlines() if "skipped" in note]
    assert named == [
        "37: it is torn or no JSON",
        "38: it is no event",
        "39: it is torn or no JSON",
        "40: there is no event 'SomethingElse'",
        "41: it has no time",
        "43: it is torn or no JSON",
        "44: it is torn or no JSON",
        "46: it is torn or no JSON",
    ]
    assert "7 events are missing" in done.stderr


def test_rotated_files_are_found_and_read_oldest_first(log: Path) -> None:
    log.with_name("audit.jsonl.10").write_text(line("SkillActivated", skill="old", tokens=1))
    log.with_name("audit.jsonl.2").write_text(line("SkillActivated", skill="old", tokens=2))
    log.with_name("audit.jsonl.bak").write_text(line("SkillActivated", skill="no"))
    found = json.loads(run("usage", log, log.with_name("audit.jsonl.2"), "--json").stdout)
    assert [Path(path).name for path in found["logs"]] == ["audit.jsonl.10", "audit.jsonl.2", "audit.jsonl"]
    found_skills = {one["skill"]: (one["activations"], one["tokens"]) for one in found["skills"]}
    assert found_skills["old"] == (2, 2)  # each file once, the newest last
    assert found_skills["reporter"] == (2, 1300)
    assert "no" not in found_skills


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_is_one_file_with_charts_that_fetches_nothing(log: Path, tmp_path: Path) -> None:
    with log.open("a") as file:
        file.write(line("SkillActivated", skill="<script>alert(1)</script>", tokens=5))
    done = run("usage", log, "--html", tmp_path / "out" / "usage.html")
    assert "Written: " in done.stderr
    text = (tmp_path / "out" / "usage.html").read_text()
    page = _Page()
    page.feed(text)
    names = [tag for tag, _ in page.tags]
    assert "script" not in names
    assert "link" not in names
    assert "img" not in names
    assert not re.search(r"https?://|url\(|@import", text)
    attributes = {name for _, attrs in page.tags for name in attrs}
    assert attributes.isdisjoint({"src", "href", "onclick", "onload"})
    metas = [attrs for tag, attrs in page.tags if tag == "meta"]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in metas
    assert any("default-src 'none'" in str(attrs.get("content")) for attrs in metas)
    titles = [text for text in page.texts if text in {"Activations", "Script runs", "Latency", "Failures"}]
    assert titles[:4] == ["Activations", "Script runs", "Failures", "Latency"]
    labels = [str(attrs["aria-label"]) for tag, attrs in page.tags if tag == "svg"]
    assert "reporter: 21, 2 failed" in labels
    assert "reporter: 110 ms, p95 500 ms" in labels
    assert "<script>alert(1)</script>: 1" in labels
    for tag, attrs in page.tags:
        if tag == "rect":
            assert 0 <= float(str(attrs["x"])) + float(str(attrs["width"])) <= 100.001


def test_a_page_that_cannot_be_written_is_one_sentence(log: Path, tmp_path: Path) -> None:
    assert "is a folder" in run("usage", log, "--html", tmp_path, status=2).stderr
    assert "is not a folder" in run("usage", log, "--html", log / "x.html", status=2).stderr


def test_a_log_that_is_not_there_or_empty_is_said(tmp_path: Path) -> None:
    assert "does not exist" in run("usage", tmp_path / "none.jsonl", status=2).stderr
    assert "is no file" in run("usage", tmp_path, status=2).stderr
    (tmp_path / "empty.jsonl").write_text("")
    done = run("usage", tmp_path / "empty.jsonl", status=1)
    assert "There is no event in the log." in done.stderr
    page = tmp_path / "page.html"
    run("usage", tmp_path / "empty.jsonl", "--html", page, status=1)
    assert "There is no event in the log." in page.read_text()


def test_a_terminal_gets_no_control_characters_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(line("SkillActivated", skill="\x1b[31mred\n\x07", tokens=1))
    assert "\x1b" not in run("usage", tmp_path / "log").stdout


def test_values_of_the_wrong_type_do_not_end_the_command(tmp_path: Path) -> None:
    events = [
        {"skill": 3},
        {"skill": "a", "tokens": "many", "seconds": None, "run": 1, "status": ["x"], "reason": {}, "error_code": 4},
        {"skill": "a", "seconds": 1e400, "run": "r", "status": "error", "decision": 1},
        {"skill": "a", "seconds": -1, "tokens": -5, "run": "r"},
    ]
    (tmp_path / "log").write_text("".join(line(name, **event) for name in sorted(EVENTS) for event in events))
    found = json.loads(run("usage", tmp_path / "log", "--json", "--html", tmp_path / "x.html").stdout)
    assert found["skills"][0]["skill"] == "a"


def test_every_event_the_runtime_knows_is_one_the_command_knows() -> None:
    from adk_skills_agent.adk.events import events

    own = {cls.__name__ for cls in events.SkillEvent.__subclasses__()}
    assert own == EVENTS


def test_p95_is_the_time_that_95_of_100_runs_stay_within() -> None:
    figures = SkillFigures("a", seconds=[float(number) for number in range(100, 0, -1)])
    assert (figures.median_seconds, figures.p95_seconds) == (50.5, 95.0)
    assert SkillFigures("a", seconds=[2.0]).p95_seconds == 2.0
    assert [duration(value) for value in (None, 0.0851, 2.44, 0.9996, 250.4)] == [
        "-",
        "85 ms",
        "2.4 s",
        "1.0 s",
        "250 s",
    ]
    assert figures_of([{"event": "SkillActivated", "skill": "", "error_code": "X"}])[0].name == UNKNOWN


@pytest.fixture
def skill(make_skill: Callable[..., Path]) -> Path:
    return make_skill("deploy", files={"scripts/go.py": "print(1)"})


def test_approvals_are_given_listed_and_taken_back(skill: Path) -> None:
    assert run("approvals").stdout == "No skill is approved.\n"
    approved = run("approvals", "--approve", "deploy", "-d", skill.parent)
    assert re.fullmatch(r"Approved: deploy, version [0-9a-f]{12}\n", approved.stdout)
    assert re.fullmatch(r"deploy  skill  [0-9a-f]{12}\n", run("approvals").stdout)
    (skill / "scripts/go.py").write_text("print(2)")
    run("approvals", "--approve", skill)
    listed = json.loads(run("approvals", "--json").stdout)
    assert len(listed) == 1  # the old version is gone
    assert (listed[0]["skill"], listed[0]["approves"]) == ("deploy", "skill")
    assert run("approvals", "--revoke", "deploy").stdout == "No longer approved: deploy\n"
    assert run("approvals").stdout == "No skill is approved.\n"
    assert "No approval of 'deploy'" in run("approvals", "--revoke", "deploy", status=2).stderr
    assert "not both" in run("approvals", "--revoke", "a", "--approve", "b", status=2).stderr


@pytest.mark.parametrize(
    "record",
    [
        '"ScriptFinished","skill":"x","run":"r","status":"success","seconds":1' + "0" * 400,
        '"ScriptFinished","skill":"x","run":"r","status":"success","seconds":1.5e308',
        '"ScriptFinished","skill":"x","run":"r","status":"success","seconds":Infinity',
        '"ScriptFinished","skill":"x","run":"r","status":"success","seconds":NaN',
        '"SkillActivated","skill":"x","tokens":' + "9" * 4_299,
        '"SkillActivated","skill":"x","tokens":9' + "0" * 4_000,
        '"SkillActivated","skill":"\\ud800<b>","tokens":1',
        '"EventsLost","count":' + "9" * 4_299,
    ],
)
def test_numbers_that_no_event_has_are_left_out_and_the_rest_is_counted(record: str, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    hostile = f'{{"time":"2026-11-21T09:00:00Z","event":{record}}}\n'
    log.write_text(hostile * 20 + line("SkillActivated", skill="good", tokens=7), encoding="utf-8")
    run("usage", log)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    summary = json.loads(run("usage", log, "--json").stdout, parse_constant=refuse)
    good = next(one for one in summary["skills"] if one["skill"] == "good")
    assert good["tokens"] == 7
    run("usage", log, "--html", tmp_path / "u.html")


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_times_at_the_ends_of_the_calendar_end_nothing(time: str, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    log.write_text(f'{{"time":"{time}","event":"SkillActivated","skill":"x"}}\n' + line("SkillActivated", skill="x"))
    for more in ([], ["--json"], ["--html", tmp_path / "u.html"], ["--since", "2020-01-01"]):
        run("usage", log, *more)


def test_calls_the_guard_counted_are_in_the_row_of_their_skill_and_made_up_names_in_one() -> None:
    def trip(skill: str, kind: str, error_code: str) -> dict[str, object]:
        return {"event": "GuardTripped", "skill": skill, "kind": kind, "error_code": error_code}

    figures = figures_of(
        [
            trip("reporter", "resource", "RESOURCE_NOT_FOUND"),
            trip("reporter", "run", "EXECUTION_ERROR_FATAL"),
            trip("no-such", "skill", "SKILL_NOT_FOUND_FATAL"),
            trip("far", "registry", "REGISTRY_ERROR"),
            trip("", "repeat", "REPEATED_CALL"),
        ]
    )
    assert [(one.name, one.guard) for one in figures] == [("reporter", 2), (UNKNOWN, 2)]
