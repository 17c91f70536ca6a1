"""Background jobs: they go on beside other commands, come back with their files, and end when they must."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

import preloaded
from adk_skills_agent import CommandFinished, SandboxPolicy, ScriptOutput, ShellSettings, ShellToolset, SkillEvent
from adk_skills_agent.adk.shell import jobs as jobs_module
from adk_skills_agent.adk.shell.jobs import MAX_JOBS, MAX_JOBS_OF_USER, Job, Jobs, bring_back, copy_workspace
from adk_skills_agent.adk.tools import shell as shell_module
from adk_skills_agent.errors import InvalidArguments, SandboxError
from adk_skills_agent.sandbox import WHOSE, Redactor, Secret, SecretForms


class Desk:
    """Calls the tools of a toolset in one session, as the Runner does."""

    def __init__(self, toolset: ShellToolset) -> None:
        self.toolset = toolset
        self.context: Any = None

    async def open(self) -> Desk:
        from google.adk.agents.invocation_context import InvocationContext
        from google.adk.tools.tool_context import ToolContext

        agent = LlmAgent(name="assistant", model="none", tools=[self.toolset])
        runner = InMemoryRunner(agent=agent, app_name="tests")
        session = await runner.session_service.create_session(app_name="tests", user_id="user")
        invocation = InvocationContext(
            session_service=runner.session_service,
            artifact_service=runner.artifact_service,
            invocation_id="i1",
            agent=agent,
            session=session,
            user_content=types.Content(role="user", parts=[types.Part(text="go")]),
        )
        self.context = ToolContext(invocation, function_call_id="c1")
        return self

    async def __call__(self, name: str, **args: Any) -> dict[str, Any]:
        tools = {tool.name: tool for tool in await self.toolset.get_tools()}
        return dict(await tools[name].run_async(args=args, tool_context=self.context))

    async def until(self, job: str, wanted: str) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        for _ in range(60):
            await self("job_output", id=job, offset=answer.get("next_offset", 0), wait=5)
            answer = await self("job_output", id=job)
            if wanted in answer["output"] or answer["status"] != "running":
                return answer
        raise AssertionError(answer)

    async def ended(self, job: str) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        for _ in range(60):
            answer = await self("job_output", id=job, offset=len(answer.get("output", "")) and 1 << 40, wait=5)
            if answer["status"] != "running":
                return await self("job_output", id=job)
        raise AssertionError(answer)


@pytest.fixture
async def desk() -> Any:
    toolset = ShellToolset(ShellSettings(jobs=2, job_seconds=60, job_output_bytes=10_000))
    yield await Desk(toolset).open()
    await toolset.close()


async def test_a_job_goes_on_beside_other_commands_and_its_files_come_back(desk: Desk) -> None:
    await desk("write_file", path="in.txt", content="input")
    started = await desk(
        "execute",
        command="echo began; cat in.txt; sleep 1; mkdir out; echo done > out/result.txt; rm in.txt; echo over",
        background=True,
    )
    assert started["job"] == "job-1"
    assert started["status"] == "running"
    first = await desk.until("job-1", "input")
    assert first["output"].startswith("began\ninput")
    beside = await desk("execute", command="ls; echo mine > other.txt")
    assert beside["stdout"] == "in.txt\n"
    last = await desk.ended("job-1")
    assert (last["status"], last["exit_code"], last["output"]) == ("ok", 0, "began\ninputover\n")
    assert "next_offset" not in last
    after = await desk("execute", command="cat out/result.txt other.txt; ls")
    assert after["stdout"] == "done\nmine\nother.txt\nout\n"


async def test_output_is_read_from_an_offset_on(desk: Desk) -> None:
    await desk("execute", command="echo one; sleep 0.3; echo two", background=True)
    first = await desk.until("job-1", "one")
    assert first["next_offset"] == len(first["output"])
    await desk.ended("job-1")
    rest = await desk("job_output", id="job-1", offset=first["next_offset"])
    assert first["output"] + rest["output"] == "one\ntwo\n"


async def test_a_job_that_prints_for_ever_is_bounded_and_can_be_stopped(desk: Desk) -> None:
    await desk("execute", command="echo start; while :; do echo 0123456789; sleep 0.001; done", background=True)
    await desk.until("job-1", "start")
    stopped = await desk("stop_job", id="job-1")
    assert stopped["status"] == "error"
    assert stopped["error"] == "job-1 was stopped; its files were not kept."
    whole = await desk("job_output", id="job-1")
    assert len(whole["output"]) <= 10_000
    again = await desk("stop_job", id="job-1")
    assert again["error"] == stopped["error"]


async def test_a_running_job_says_when_no_more_of_its_output_is_kept(desk: Desk) -> None:
    await desk("execute", command="head -c 20000 /dev/zero | tr '\\0' x; echo; sleep 60", background=True)
    while len((told := await desk("job_output", id="job-1", wait=1))["output"]) < 10_000:
        pass
    assert told["notes"] == ["No more of its output is kept. Commands that print much should write to a file."]
    await desk("stop_job", id="job-1")


async def test_a_job_that_has_no_room_for_its_files_says_so(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk("write_file", path="a.txt", content="x")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    await desk("execute", command="true", background=True)
    ended = await desk.ended("job-1")
    assert ended["error"] == (
        "job-1: the copy of the workspace that it works on cannot be made: No such file or directory"
    )


async def test_row_93_a_flood_ends_the_job(desk: Desk) -> None:
    await desk("execute", command="yes", background=True)
    ended = await desk.ended("job-1")
    assert ended["reason"] == "output_limit"
    assert len(ended["output"]) <= 10_000
    assert ended["left_out_bytes"] > 1 << 20


async def test_row_93_forks_end_with_their_job(desk: Desk) -> None:
    mark = f"7{os.getpid()}"
    await desk("execute", command=f"(setsid sleep {mark} &) ; sleep {mark} & echo forked; wait", background=True)
    await desk.until("job-1", "forked")
    assert begun(mark)
    await desk("stop_job", id="job-1")
    assert gone(mark)


async def test_a_listener_hears_what_a_job_prints_while_it_runs() -> None:
    heard: list[SkillEvent] = []

    def listen(event: SkillEvent) -> None:
        heard.append(event)

    listen.output = True  # type: ignore[attr-defined]
    toolset = ShellToolset(on_event=listen)
    desk = await Desk(toolset).open()
    await desk("execute", command="echo one; sleep 1; echo two >&2", background=True)
    await desk.ended("job-1")
    job = [event for event in heard if getattr(event, "run", "")]
    assert [type(event).__name__ for event in job] == [
        "CommandStarted",
        "ScriptOutput",
        "ScriptOutput",
        "CommandFinished",
    ]
    assert [(one.stream, one.text) for one in job if isinstance(one, ScriptOutput)] == [
        ("stdout", "one\n"),
        ("stderr", "two\n"),
    ]
    assert len({event.run for event in job}) == 1  # type: ignore[attr-defined]
    await toolset.close()


async def test_only_so_many_run_at_once(desk: Desk) -> None:
    for _ in range(2):
        assert (await desk("execute", command="sleep 30", background=True))["status"] == "running"
    third = await desk("execute", command="sleep 30", background=True)
    assert third["error"] == "2 jobs run already (job-1, job-2). Stop one, or wait for its end."


async def test_jobs_end_at_their_time_and_with_their_toolset() -> None:
    seen: list[CommandFinished] = []
    toolset = ShellToolset(
        ShellSettings(job_seconds=0.5), on_event=lambda event: isinstance(event, CommandFinished) and seen.append(event)
    )
    desk = await Desk(toolset).open()
    await desk("execute", command="sleep 30", background=True)
    ended = await desk.ended("job-1")
    assert ended["error"].startswith(
        "The command was stopped after 0.5s, its time limit. What it printed until then is in output."
    )
    toolset_of_long = ShellToolset(on_event=lambda event: isinstance(event, CommandFinished) and seen.append(event))
    other = await Desk(toolset_of_long).open()
    mark = f"8{os.getpid()}"
    await other("execute", command=f"echo up; sleep {mark}", background=True)
    await other.until("job-1", "up")
    await toolset_of_long.close()
    assert gone(mark)
    assert [(event.job, event.reason) for event in seen] == [("job-1", "timeout"), ("job-1", "cancelled")]
    await toolset.close()


def test_a_job_outlives_the_event_loop_of_its_turn() -> None:
    """Runner.run() gives each turn a loop of its own."""
    toolset = ShellToolset()
    desk = Desk(toolset)

    async def begin() -> None:
        await desk.open()
        await desk("execute", command="sleep 0.5; echo later", background=True)

    async def finish() -> dict[str, Any]:
        return await desk.ended("job-1")

    asyncio.run(begin())
    assert asyncio.run(finish())["output"] == "later\n"
    asyncio.run(toolset.close())


def test_row_93_jobs_end_when_the_agent_is_killed(tmp_path: Path) -> None:
    mark = f"9{os.getpid()}"
    program = tmp_path / "agent.py"
    here = [str(Path(__file__).parent), str(Path(preloaded.__file__).parent)]
    program.write_text(
        textwrap.dedent(f"""
        import asyncio, sys
        sys.path[:0] = {here!r}
        from test_jobs import Desk
        from adk_skills_agent import ShellSettings, ShellToolset
        async def main():
            desk = await Desk(ShellToolset(ShellSettings(keep_in={str(tmp_path / "kept")!r}))).open()
            await desk("write_file", path="a.txt", content="kept")
            await desk("execute", command="echo up; sleep {mark}", background=True)
            await desk.until("job-1", "up")
            print("ready", flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
        """)
    )
    with subprocess.Popen([preloaded.program("python"), str(program)], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"ready\n"
        assert begun(mark)
        agent.send_signal(signal.SIGKILL)
    assert gone(mark)
    (session,) = (tmp_path / "kept").iterdir()
    left = sorted(str(path.relative_to(session)) for path in session.rglob("*"))
    assert left == ["work", "work/a.txt"]  # nothing of the job, which nobody would delete


def test_what_a_job_brings_back(tmp_path: Path) -> None:
    work, copy = tmp_path / "work", tmp_path / "copy"
    (work / "deep").mkdir(parents=True)
    for name, text in {"same": "s", "changed": "old", "removed": "r", "both": "b", "deep/kept": "k"}.items():
        (work / name).write_text(text)
    (work / "link").symlink_to("/etc/passwd")
    before = copy_workspace(work, copy)
    assert not (copy / "link").exists()
    (copy / "changed").write_text("new")
    (copy / "added").mkdir()
    (copy / "added/file").write_text("a")
    (copy / "removed").unlink()
    (copy / "both").write_text("job")
    (work / "both").write_text("other")
    notes = bring_back(copy, before, work, SandboxPolicy())
    assert notes == ["'both' was changed by another command meanwhile; the job's version replaced it."]
    found = {path.relative_to(work).as_posix(): path.read_text() for path in work.rglob("*") if path.is_file()}
    found.pop("link")
    assert found == {"same": "s", "changed": "new", "both": "job", "deep/kept": "k", "added/file": "a"}


@pytest.mark.slow
def test_row_134_two_jobs_that_write_the_same_thousand_files_do_not_fill_the_conversation(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    copies = [(copy, copy_workspace(work, copy)) for copy in (tmp_path / "one", tmp_path / "two")]
    for copy, _ in copies:
        for number in range(1000):
            (copy / f"{'n' * 200}{number:04d}").write_text(copy.name)
    assert bring_back(*copies[0], work, SandboxPolicy()) == []
    notes = bring_back(*copies[1], work, SandboxPolicy())
    assert len(notes) == 51
    assert notes[-1] == "The same holds for 950 more files of the job."
    assert {path.read_text() for path in work.iterdir()} == {"two"}


def test_a_file_takes_the_place_of_a_folder_and_the_reverse(tmp_path: Path) -> None:
    work, copy = tmp_path / "work", tmp_path / "copy"
    (work / "a").mkdir(parents=True)
    (work / "a/x").write_text("1")
    (work / "b").write_text("1")
    (work / "gone/deep").mkdir(parents=True)
    before = copy_workspace(work, copy)
    (copy / "a/x").unlink()
    (copy / "a").rmdir()
    (copy / "a").write_text("new")
    (copy / "b").unlink()
    (copy / "b").mkdir()
    (copy / "b/y").write_text("deep")
    (copy / "gone/deep").rmdir()
    (copy / "gone").rmdir()
    assert bring_back(copy, before, work, SandboxPolicy()) == []
    assert sorted(path.relative_to(work).as_posix() for path in work.rglob("*")) == ["a", "b", "b/y"]
    assert (work / "a").read_text() == "new"


def test_what_has_no_room_is_said_and_a_lost_copy_deletes_nothing(tmp_path: Path) -> None:
    work, copy = tmp_path / "work", tmp_path / "copy"
    work.mkdir()
    (work / "keep").write_text("k")
    before = copy_workspace(work, copy)
    (copy / "big").write_bytes(b"x" * 20_000)
    (copy / "small").write_text("s")
    notes = bring_back(copy, before, work, SandboxPolicy(workspace_bytes=12_000))
    assert notes == ["'big' of the job was not kept: the workspace has no room for it."]
    assert sorted(os.listdir(work)) == ["keep", "small"]
    with pytest.raises(SandboxError, match="gone"):
        bring_back(tmp_path / "missing", before, work, SandboxPolicy())
    assert (work / "keep").read_text() == "k"


async def test_what_a_job_leaves_becomes_artifacts_and_its_own_time_holds(desk: Desk) -> None:
    await desk("execute", command="echo chart > chart.svg", background=True)
    ended = await desk.ended("job-1")
    assert ended["saved_artifacts"] == ["chart.svg"]
    await desk("execute", command="sleep 30", background=True, timeout=0.3)
    assert (await desk.ended("job-2"))["reason"] == "timeout"


async def test_the_end_of_one_toolset_leaves_the_jobs_of_another_alone() -> None:
    first, second = ShellToolset(), ShellToolset()
    desk = await Desk(first).open()
    other = Desk(second)
    other.context = desk.context
    await desk("execute", command="sleep 1; echo mine > mine.txt", background=True)
    await other("execute", command="true")
    await second.close()
    assert (await desk.ended("job-1"))["status"] == "ok"
    await first.close()


async def test_waiting_for_a_job_holds_no_thread(desk: Desk) -> None:
    await desk("execute", command="sleep 6", background=True)
    waiting = [asyncio.create_task(desk("job_output", id="job-1", wait=20)) for _ in range(40)]
    await asyncio.sleep(0.1)
    answer = await desk("execute", command="echo now")
    assert answer["stdout"] == "now\n"
    assert not any(task.done() for task in waiting)
    assert {one["status"] for one in await asyncio.gather(*waiting)} == {"ok"}


def test_characters_that_arrive_in_pieces_are_whole() -> None:
    job = Job("job-1", "true", 100)
    text = "grün 🙂\n".encode()
    for place in range(len(text)):
        job.take("stdout", text[place : place + 1])
    assert job.output(0, 100) == ("grün 🙂\n", 7)


def sleeping(mark: str) -> bool:
    return any(
        f"sleep\0{mark}\0".encode() in cmdline(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()
    )


def cmdline(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def begun(mark: str) -> bool:
    """Whether the command sleeps: the shell says something first, and is yet to become `sleep`."""
    return is_soon(mark, asleep=True)


def gone(mark: str) -> bool:
    return is_soon(mark, asleep=False)


def is_soon(mark: str, *, asleep: bool) -> bool:
    deadline = time.monotonic() + 20
    while sleeping(mark) is not asleep and time.monotonic() < deadline:
        time.sleep(0.05)
    return sleeping(mark) is asleep


async def test_row_79_what_ended_jobs_left_does_not_stay_in_the_agents_memory(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "MAX_HELD_BYTES", 25_000)
    for number in range(1, 6):
        await desk("execute", command=f"yes | head -c 20000 | tee {number}.txt", background=True)
        await desk.until(f"job-{number}", "never said")
    kept = [job for jobs in jobs_module.JOBS._sessions.values() for job in jobs]
    assert sum(job.held for job in kept) <= 35_000
    assert not any(job.outcome for job in kept)
    first = await desk("job_output", id="job-1")
    assert first["output"] == ""
    last = await desk("job_output", id="job-5")
    assert last["output"].startswith("y\ny\n")


def test_rows_81_and_108_one_user_does_not_take_all_places() -> None:
    jobs, owner = Jobs(), object()

    async def rest(job: Job) -> None:
        await asyncio.sleep(60)

    for number in range(MAX_JOBS_OF_USER):
        jobs.start(f"session-{number // 4}", "hostile", owner, "sleep", 4, 1_000, rest)
    with pytest.raises(InvalidArguments, match="of this user"):
        jobs.start("another session", "hostile", owner, "sleep", 4, 1_000, rest)
    assert jobs.start("a session", "victim", owner, "sleep", 4, 1_000, rest).name == "job-1"
    jobs.close(owner)


async def test_row_450_a_copy_of_a_job_is_removed_in_a_thread_that_counts_for_its_user(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: eight jobs of one user left 19,000 folders each, and `echo hi` of another user took 52 s."""
    threads: list[str] = []
    make = shell_module.temporary_folder

    def heard(*arguments: Any) -> tuple[Path, Callable[[], None]]:
        folder, remove = make(*arguments)

        def told() -> None:
            threads.append(threading.current_thread().name)
            remove()

        return folder, told

    monkeypatch.setattr(shell_module, "temporary_folder", heard)
    users: list[str] = []
    in_worker = shell_module.in_worker

    async def counted(work: Callable[..., object], *arguments: object) -> object:
        users.extend(WHOSE.get()[:1])
        return await in_worker(work, *arguments)

    monkeypatch.setattr(shell_module, "in_worker", counted)
    await desk("execute", command="echo hi", background=True)
    await desk.until("job-1", "never said")
    while not threads:
        await asyncio.sleep(0.01)
    assert [name.startswith("adk-skills-files") for name in threads] == [True]
    assert len(users) >= 5
    assert len(set(users)) == 1
    assert users[0]


def test_row_447_many_sessions_of_one_user_make_no_job_of_another_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: `true` in the background, once in each of 256 sessions, and nobody else's output was there any more."""
    monkeypatch.setattr(jobs_module, "MAX_SESSIONS", 4)
    monkeypatch.setattr(jobs_module, "MAX_HELD_BYTES", 1_000)
    jobs, owner = Jobs(), object()

    async def work(job: Job) -> None:
        job.take("stdout", b"x" * (200 if job.user == "victim" else 450))
        job.end({"status": "ok"})

    def run(session: str, user: str) -> None:
        jobs.start(session, user, owner, "work", 4, 1_000, work).future.result(10)  # type: ignore[union-attr]

    run("theirs", "victim")
    for number in range(9):
        run(f"session-{number}", "hostile")
    assert jobs.of("theirs", "job-1").held == 200
    assert jobs.of("session-8", "job-1").held == 450
    assert len(jobs._sessions) <= 5
    assert sum(job.held for others in jobs._sessions.values() for job in others) <= 1_500
    with pytest.raises(InvalidArguments, match="There is no job"):
        jobs.of("session-0", "job-1")
    monkeypatch.setattr(jobs_module, "MAX_JOBS_OF_USER", 0)
    busy = jobs.start("busy", "new", owner, "sleep", 4, 1_000, lambda _: asyncio.sleep(60))
    for number in range(9):  # nor do those that are refused
        with pytest.raises(InvalidArguments, match="of this user"):
            jobs.start(f"refused-{number}", "new", owner, "work", 4, 1_000, work)
    assert busy.ended is None
    monkeypatch.undo()
    monkeypatch.setattr(jobs_module, "MAX_SESSIONS", 4)
    run("another", "other")
    assert jobs.of("theirs", "job-1").held == 200
    jobs.close(owner)


def test_row_214_two_users_do_not_take_all_places() -> None:
    jobs, owner = Jobs(), object()

    async def rest(job: Job) -> None:
        await asyncio.sleep(60)

    for number in range(MAX_JOBS):
        with contextlib.suppress(InvalidArguments):
            user = f"hostile-{number // MAX_JOBS_OF_USER}"
            jobs.start(f"{user}-{number // 4}", user, owner, "sleep", 4, 1_000, rest)
    assert jobs.start("a session", "victim", owner, "sleep", 4, 1_000, rest).name == "job-1"
    jobs.close(owner)


def test_only_so_many_run_on_the_machine() -> None:
    jobs, owner = Jobs(), object()

    async def rest(job: Job) -> None:
        await asyncio.sleep(60)

    for number in range(MAX_JOBS):
        jobs.start(f"session-{number}", f"user-{number}", owner, "sleep", 4, 1_000, rest)
    with pytest.raises(InvalidArguments, match="Too many background jobs"):
        jobs.start("one more", "another", owner, "sleep", 4, 1_000, rest)
    jobs.close(owner)
    assert jobs.start("one more", "another", owner, "sleep", 4, 1_000, rest).name == "job-1"
    jobs.close(owner)


async def test_who_waits_for_the_end_of_a_stopped_job_holds_no_thread() -> None:
    """Row 269: a job ends late while its files are copied, and all tools of all users share the threads."""
    jobs, may_end = Jobs(), threading.Event()

    async def late(_job: Job) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            while not may_end.is_set():
                await asyncio.sleep(0.01)

    job = jobs.start("session", "user", None, "sleep", 4, 1_000, late)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    stopping = [asyncio.ensure_future(jobs.stop(job)) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 30) == "free"
    assert not any(one.done() for one in stopping)
    may_end.set()
    await asyncio.gather(*stopping)
    assert job.ended is not None


@pytest.mark.parametrize("between", [b"\xe2", b""])
def test_row_376_a_secret_of_which_each_stream_has_a_half_is_not_whole_in_the_output(between: bytes) -> None:
    """Seen: a byte that begins no character of the secret let the first half go, and the second one came behind it."""
    secret = "Zk4q9XbT7wLm2PdR"
    job = Job("job-1", "x", 1000, redactor=Redactor(SecretForms([("KEY", Secret(secret))])))
    job.take("stdout", b"A:" + secret[:8].encode() + between)
    job.take("stderr", secret[8:].encode() + b"...")
    job.take("stdout", b"\n\0" + secret[:8].encode())
    assert job.output(0, 100)[0].startswith("A:[secret KEY]...")
    assert secret[:8] not in job.output(0, 100)[0]  # it may go on
    job.end({"status": "ok"})
    assert job.output(0, 100)[0].endswith("\n\ufffd" + secret[:8])


async def test_row_422_output_wakes_only_those_whose_wait_is_over() -> None:
    """Seen: 600 calls that wait for a job that prints a byte at a time, and another user's turn takes 6 to 16 s."""
    woken: list[object] = []
    loop = asyncio.get_running_loop()
    wake = loop.call_soon_threadsafe

    def counted(call: Any, *args: Any) -> Any:
        woken.append(call)
        return wake(call, *args)

    job = Job("job-1", "x", 10_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_soon_threadsafe", counted)
        waits = [asyncio.create_task(job.wait(offset, 60)) for offset in [*range(1_000, 1_500), 3, 5]]
        given_up = asyncio.create_task(job.wait(2_000, 0.01))
        await given_up
        for _ in range(4):
            job.take("stdout", b".")
        await waits[-2]
        assert (len(woken), sum(wait.done() for wait in waits)) == (1, 1)
        for _ in range(500):
            job.take("stderr", b"\0")
        await waits[-1]
        assert (len(woken), sum(wait.done() for wait in waits)) == (2, 2)
        assert job.output(500, 10) == ("\ufffd" * 4, 504)
        await job.wait(503, 60)
        job.end({"status": "ok"})
        await asyncio.gather(*waits)
        await job.wait(10_000, 60)
        assert len(woken) == len(waits)
