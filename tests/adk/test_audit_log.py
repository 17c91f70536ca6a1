"""The audit log: complete lines, private, rotated, off the event loop, safe with several processes (S4-25)."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import preloaded
from adk_skills_agent.adk.events.audit_log import AuditLog
from adk_skills_agent.adk.events.events import (
    MAX_ID_CHARS,
    MAX_TEXT_CHARS,
    ApprovalDecided,
    Events,
    Origin,
    ResourceRead,
    ScriptFinished,
    SkillActivated,
    SkillDiscovered,
    SkillEvent,
)
from adk_skills_agent.adk.runtime import events_for
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.secrets import Secret, SecretForms, forms_of


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def event(number: int = 0) -> SkillEvent:
    return SkillActivated(skill="reporter", tokens=number)


@pytest.mark.requirement("S4-25")
def test_an_event_is_one_flat_line_with_the_time_in_utc(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "logs" / "audit.jsonl")
    log(
        ScriptFinished(
            origin=Origin(app="a", user="u", session="s", invocation="i", agent="g", call="c"),
            skill="reporter",
            time=1_700_000_000.1234,
            script="scripts/x.py",
            run="r1",
            status="error",
            reason="exit_code",
            exit_code=3,
            seconds=0.5,
        )
    )
    log.close()
    assert records(log.path) == [
        {
            "time": "2023-11-14T22:13:20.123Z",
            "event": "ScriptFinished",
            "skill": "reporter",
            "script": "scripts/x.py",
            "run": "r1",
            "status": "error",
            "reason": "exit_code",
            "error_code": "",
            "exit_code": 3,
            "seconds": 0.5,
            "stdout_bytes": 0,
            "stderr_bytes": 0,
            "files": 0,
            "level": "",
            "executor": "sandbox",
            "app": "a",
            "user": "u",
            "session": "s",
            "invocation": "i",
            "agent": "g",
            "call": "c",
        }
    ]


def test_only_the_owner_can_read_it_whatever_the_umask_and_the_file_said_before(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    before = os.umask(0)
    try:
        log = AuditLog(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    log(event())
    log.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_is_appended_to_and_a_closed_log_opens_again(tmp_path: Path) -> None:
    for number in range(3):
        log = AuditLog(tmp_path / "audit.jsonl")
        log(event(number))
        log.close()
        log(event(number + 10))
        log.close()
        log.close()
    assert [record["tokens"] for record in records(log.path)] == [0, 10, 1, 11, 2, 12]


def log_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "adk-skills-audit-log"}


def test_the_thread_starts_with_the_first_event_and_ends_with_close(tmp_path: Path) -> None:
    before = log_threads()
    log = AuditLog(tmp_path / "audit.jsonl")
    assert log_threads() <= before
    for number in range(500):
        log(event(number))
    assert len(log_threads() - before) == 1
    assert log.flush()
    assert len(records(log.path)) == 500
    log.close()
    assert log_threads() <= before


def test_a_full_file_is_rotated_and_only_so_many_are_kept(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", max_bytes=2_000, keep=2)
    for number in range(60):
        log(event(number))
    log.close()
    names = sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock"))
    assert names == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    tokens = []
    for name in reversed(names):
        assert (tmp_path / name).stat().st_size <= 2_000
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
        tokens += [record["tokens"] for record in records(tmp_path / name)]
    assert tokens == list(range(tokens[0], 60))  # in order, and nothing of what is kept is missing


def test_a_file_that_somebody_moved_away_is_made_anew(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log(event(1))
    log.flush()
    (tmp_path / "audit.jsonl").rename(tmp_path / "moved")
    log(event(2))
    log.close()
    assert [record["tokens"] for record in records(tmp_path / "moved")] == [1]
    assert [record["tokens"] for record in records(log.path)] == [2]


def test_events_that_do_not_fit_into_the_queue_are_counted_in_the_log(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", queued=10)
    with log._changed:  # the writer cannot take anything meanwhile
        for number in range(25):
            log(event(number))
    log(event(99))
    log.close()
    found = records(log.path)
    assert [record["tokens"] for record in found if record["event"] == "SkillActivated"] == [*range(10), 99][
        : len(found) - 1
    ]
    assert sum(record["count"] for record in found if record["event"] == "EventsLost") >= 15
    assert len(found) - 1 + sum(record.get("count", 0) for record in found) == 26


def test_a_disk_that_refuses_loses_events_but_says_so_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "logs"
    log = AuditLog(folder / "audit.jsonl")
    (folder / "audit.jsonl").unlink()
    folder.rmdir()
    log(event(1))
    log(event(2))
    assert log.flush()
    assert "cannot be written" in caplog.text
    folder.mkdir()
    log(event(3))
    log.close()
    found = records(folder / "audit.jsonl")
    assert found[0]["tokens"] == 3
    assert (found[1]["event"], found[1]["count"]) == ("EventsLost", 2)


def test_a_line_that_a_full_disk_cut_off_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:20]))
    log(event(1))
    log.flush()
    monkeypatch.undo()
    log(event(2))
    log.close()
    lines = log.path.read_text().splitlines()
    assert len(lines[0]) == 20
    assert json.loads(lines[1])["tokens"] == 2
    assert json.loads(lines[2]) | {"time": ""} == {"time": "", "event": "EventsLost", "count": 1}


WRITES_MANY = """
import sys
from adk_skills_agent.adk.events.audit_log import AuditLog
from adk_skills_agent.adk.events.events import Origin, SkillDiscovered
path, number = sys.argv[1:]
log = AuditLog(path, max_bytes=20_000, keep=50)
for index in range(300):
    log(SkillDiscovered.of(Origin(), f"{number}-{index}", ["x" * (index % 97)] * 3))
log.close()
"""


def test_several_processes_append_to_one_file_without_tearing_or_losing_a_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    line = [preloaded.program("python"), "-W", "ignore", "-c", WRITES_MANY, path]
    workers = [subprocess.Popen([*line, str(number)]) for number in range(3)]
    for worker in workers:
        assert worker.wait(60) == 0
    files = [file for file in tmp_path.iterdir() if not file.name.endswith(".lock")]
    assert len(files) > 3
    found = [record["how"] for file in files for record in records(file)]
    assert sorted(found) == sorted(f"{number}-{index}" for number in range(3) for index in range(300))


def test_a_fork_writes_its_own_events_and_none_twice(tmp_path: Path) -> None:
    source = """
import os, sys, threading
from adk_skills_agent.adk.events.audit_log import AuditLog
from adk_skills_agent.adk.events.events import SkillActivated
log = AuditLog(sys.argv[1])
log(SkillActivated(skill="parent-before"))
with log._changed:  # forked while a thread holds the lock, with an event waiting
    log(SkillActivated(skill="parent-waiting"))
    child = os.fork()
if child == 0:
    log(SkillActivated(skill="child"))
    log.close()
    os._exit(0)
os.waitpid(child, 0)
log(SkillActivated(skill="parent-after"))
"""
    path = tmp_path / "audit.jsonl"
    run = subprocess.run([preloaded.program("python"), "-W", "ignore", "-c", source, path], check=False, timeout=60)
    assert run.returncode == 0
    found = sorted(record["skill"] for record in records(path))  # the last one was written at exit, without close()
    assert found == ["child", "parent-after", "parent-before", "parent-waiting"]


@pytest.mark.parametrize("kind", ["folder", "link", "fifo"])
def test_what_is_no_plain_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "audit.jsonl"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(path)
    with pytest.raises(ConfigError, match=r"audit\.jsonl cannot be written"):
        AuditLog(path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_slow_disk_does_not_hold_up_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    go_on = threading.Event()
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: (go_on.wait(30), write(fd, data))[1])
    for number in range(100):
        log(event(number))  # would never return if it waited for the disk
    assert not log.flush(timeout=0.01)
    go_on.set()
    log.close()
    assert len(records(log.path)) == 100


def test_secrets_are_taken_out_of_every_text_before_anybody_sees_it(tmp_path: Path) -> None:
    seen: list[Any] = []
    secrets = forms_of((("TOKEN", Secret("hunter2-hunter2")),))
    events = events_for(seen.append, tmp_path / "audit.jsonl", secrets)
    events.emit(
        ResourceRead(origin=Origin(user="hunter2-hunter2"), skill="a", path="x/aHVudGVyMi1odW50ZXIy/hunter2-hunter2")
    )
    events.emit(SkillDiscovered.of(Origin(), "search", ["hunter2-hunter2"], "say hunter2-hunter2"))
    events.emit(ApprovalDecided(decision="approved", by="user", action="run", subjects=("script:hunter2-hunter2",)))
    assert seen[0].path == "x/[secret TOKEN]/[secret TOKEN]"
    assert seen[0].origin.user == "[secret TOKEN]"
    assert seen[1].skills == ("[secret TOKEN]",)
    assert seen[2].subjects == ("script:[secret TOKEN]",)


def test_row_347_a_long_text_in_an_event_is_not_gone_through_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: with a session's id of 25 MB, which a client chose, each event stopped the event loop for seconds."""
    looked_at: list[int] = []
    spans = SecretForms._spans

    def noted(self: SecretForms, data: bytes, *, references: bool = True) -> Any:
        looked_at.append(len(data))
        return spans(self, data, references=references)

    monkeypatch.setattr(SecretForms, "_spans", noted)
    secrets = SecretForms([("TOKEN", Secret("hunter2-hunter2"))])
    seen: list[Any] = []
    events = Events([seen.append], secrets)
    long = "&lt" * 500_000
    origin = Origin(user=f"{long}a", session=f"{long}b")
    for _ in range(3):
        events.emit(ResourceRead(origin=origin, path=long, skill="reporter"))
    assert sum(looked_at) < 10 * (MAX_TEXT_CHARS + secrets.reach)
    assert seen[0].path == long[:MAX_TEXT_CHARS] + "…"
    ids = {seen[0].origin.user, seen[0].origin.session}
    assert len(ids) == 2
    assert {(one[:7], len(one)) for one in ids} == {("sha256:", 71)}
    plain: list[Any] = []
    Events([plain.append]).emit(ResourceRead(origin=replace(origin, agent="a" * MAX_ID_CHARS), path="a"))
    assert {plain[0].origin.user, plain[0].origin.session} == ids
    assert plain[0].origin.agent == "a" * MAX_ID_CHARS


@pytest.mark.parametrize("before", [*range(MAX_TEXT_CHARS - 45, MAX_TEXT_CHARS + 3, 5)])
def test_row_347_a_cut_shows_nothing_of_a_secret_that_it_cuts_in_two(before: int) -> None:
    value = "sk-" + "".join(f"{number:03d}." for number in range(30))
    secrets = SecretForms([("K", Secret(value))])
    seen: list[Any] = []
    events = Events([seen.append], secrets)
    events.emit(ResourceRead(path="." * before + value + "." * 100_000))
    assert seen[0].path == ("." * before + "[secret K]" + "." * MAX_TEXT_CHARS)[:MAX_TEXT_CHARS] + "…"
    # So many of them that all that is looked at is short without them, and its end lies in the middle of one.
    events.emit(ResourceRead(path="." * (before % 60) + value * 5_000))
    shown = seen[1].path.removeprefix("." * (before % 60)).removesuffix("…")
    assert shown == "[secret K]" * (len(shown) // 10)
    assert 500 < len(shown) < MAX_TEXT_CHARS


def test_an_event_stays_small_whatever_a_model_wrote() -> None:
    seen: list[Any] = []
    events = Events([seen.append])
    events.emit(ResourceRead(skill="a" * 100_000, path="p" * 100_000))
    events.emit(SkillDiscovered.of(Origin(), "list", (f"skill-{number}" for number in range(5_000))))
    assert len(seen[0].path) == len(seen[0].skill) == MAX_TEXT_CHARS + 1
    assert (len(seen[1].skills), seen[1].count) == (100, 5_000)


async def test_a_listener_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    def fails(_event: Any) -> None:
        raise ValueError("broken listener")

    async def fails_later(_event: Any) -> None:
        raise ValueError("broken later")

    async def works_later(event: Any) -> None:
        seen.append(event)

    events = Events([fails, fails_later, works_later, seen.append])
    with caplog.at_level(logging.ERROR):
        events.emit(event())
        await events.close()
    assert len(seen) == 2
    assert "broken listener" in caplog.text
    assert "broken later" in caplog.text


def test_an_asynchronous_listener_without_a_loop_is_said_and_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    async def listener(_event: Any) -> None: ...

    Events([listener]).emit(event())
    assert "no event loop" in caplog.text or "not happen on an event loop" in caplog.text


def test_what_is_no_listener_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="on_event takes functions, not int"):
        events_for([3])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="at least 1"):
        AuditLog(tmp_path / "a", keep=0)


def test_a_thread_with_nothing_to_do_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adk_skills_agent.adk.events.audit_log._IDLE_SECONDS", 0.05)
    before = log_threads()
    log = AuditLog(tmp_path / "audit.jsonl")
    log(event(1))
    deadline = time.monotonic() + 30
    while (more := log_threads() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert more == set()
    log(event(2))
    log.close()
    assert [record["tokens"] for record in records(log.path)] == [1, 2]


def test_an_event_that_cannot_be_written_is_counted_and_the_ones_after_it_are(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    for time_ in (float("nan"), float("inf"), 1e300):
        log(SkillActivated(skill="bad", time=time_))
        assert log.flush(10)
    log(event(1))
    assert log.flush(10)
    log(event(2))
    log.close()
    found = records(log.path)
    assert [one["tokens"] for one in found if one["event"] == "SkillActivated"] == [1, 2]
    assert sum(one["count"] for one in found if one["event"] == "EventsLost") == 3


def test_the_writer_outlives_any_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(SkillActivated):
        def to_dict(self) -> dict[str, object]:
            raise RuntimeError("odd")

    log = AuditLog(tmp_path / "audit.jsonl")
    log(Odd(skill="odd"))
    assert log.flush(10)
    log(event(7))
    log.close()
    assert [one.get("tokens", one.get("count")) for one in records(log.path)] == [1, 7]
    assert "odd" in caplog.text
