"""google-adk's classes for other machines under this package's contract (S0-82 to S0-84)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.adk.code_executors import BuiltInCodeExecutor, UnsafeLocalCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput as GoogleInput
from google.adk.code_executors.code_execution_utils import CodeExecutionResult as GoogleResult
from google.adk.code_executors.code_execution_utils import File as GoogleFile
from google.adk.environment import LocalEnvironment
from pydantic import Field

from adk_skills_agent import Secret
from adk_skills_agent.errors import ConfigError, SandboxError, SandboxUnavailable
from adk_skills_agent.executors import (
    CodeExecutionInput,
    File,
    LocalSandboxCodeExecutor,
    RemoteCodeExecutor,
    SandboxEnvironment,
    remote_sandbox,
)
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    InputFile,
    IsolationLevel,
    ReadOnlyMount,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.process.tree import machine_memory
from adk_skills_agent.sandbox.remote import remote
from adk_skills_agent.sandbox.remote.remote import (
    CLOSED_WITH_IT,
    MAY_GO_ON,
    Job,
    OnTheWay,
    RemoteAnswer,
    RemoteChannel,
    report_of,
)
from adk_skills_agent.sandbox.threads import acting_for
from own_process import give_back_free_memory
from remote_services import ElsewhereEnvironment, ElsewhereExecutor


@pytest.fixture(params=["environment", "executor"])
def box(request: pytest.FixtureRequest, tmp_path: Path):
    if request.param == "environment":
        return remote_sandbox(ElsewhereEnvironment(tmp_path / "there"))
    return remote_sandbox(ElsewhereExecutor())


def ask(*argv: str, wall: float | None = 20.0, **settings: object) -> ExecutionRequest:
    policy = {name: settings.pop(name) for name in list(settings) if name in SandboxPolicy.__dataclass_fields__}
    return ExecutionRequest(argv, SandboxPolicy(wall_seconds=wall, **policy), **settings)  # type: ignore[arg-type]


async def test_a_script_runs_there_with_its_skill_inputs_workspace_and_exit_code(box, tmp_path):
    skill = tmp_path / "skill"
    (skill / "scripts").mkdir(parents=True)
    (skill / "scripts" / "a.py").write_text(
        "import os, sys\nprint(open('in.csv').read(), os.getcwd(), __file__, os.environ.get('SERVICE'))\n"
        "open('made.txt', 'w').write(open('scripts/a.py').read()[:6])\nprint('trouble', file=sys.stderr)\nsys.exit(4)\n"
    )
    workspace = tmp_path / "session"
    workspace.mkdir()
    result = await box.run(
        ask(
            "python3",
            "/skill/scripts/a.py",
            mounts=(ReadOnlyMount(skill),),
            input_files=(InputFile("in.csv", b"1,2"),),
            workspace=workspace,
        )
    )
    assert (result.status, result.exit_code, result.stderr) == (Status.ERROR, 4, b"trouble\n"), result
    # The places of the contract, wherever they are there; and none of the service's own variables.
    assert result.stdout == b"1,2 /work /skill/scripts/a.py None\n"
    assert [(file.path, file.content) for file in result.files] == [("made.txt", b"import")]
    assert (workspace / "made.txt").read_text() == "import"


@pytest.mark.slow
async def test_row_2_the_deadline_holds_there_and_what_was_written_is_kept(box):
    code = "open('f','w').write('x'); print('before', flush=True); import time; time.sleep(60)"
    result = await box.run(ask("python3", "-c", code, wall=1.0))
    assert (result.status, result.timed_out, result.stdout) == (Status.TIMEOUT, True, b"before\n")
    assert [file.path for file in result.files] == ["f"]
    assert MAY_GO_ON not in result.notes


@pytest.mark.slow
async def test_row_12_output_is_bounded_there(box):
    result = await box.run(ask("yes", output_bytes=1000, output_flood_bytes=50_000))
    assert (result.status, len(result.stdout), result.stdout_truncated) == (Status.OUTPUT_LIMIT, 1000, True)


@pytest.mark.slow
async def test_row_41_a_large_file_comes_back_and_a_hostile_name_does_not_get_out(box, tmp_path):
    code = "import os\nopen('big','wb').write(b'z' * 1_500_000)\nos.symlink('/etc/passwd','link')\nopen('a:b','w')"
    result = await box.run(ask("python3", "-c", code))
    assert {file.path: file.size for file in result.files} == {"big": 1_500_000, "a_b": 0}
    assert [name for name, _ in result.skipped_files] == ["link"]


@pytest.mark.slow
async def test_what_is_known_of_the_place_is_reported_as_remote(box):
    report = await box.probe()
    assert report.level is IsolationLevel.REMOTE
    assert report.enforced["syscalls"].startswith("remote (Elsewhere")
    assert any(sentence.startswith("network: 'none' is not enforced from here") for sentence in report.degraded)
    assert any("all skills and users share it" in sentence for sentence in report.degraded)


async def test_row_288_secrets_on_a_machine_that_all_scripts_share_are_told_to_the_owner_once(box, caplog):
    """Seen: a script read the secret of another skill's, which ran at the same time, in /proc."""
    for _ in range(2):
        await box.run(ask("true", env={"TOKEN": Secret("a-secret-of-one-skill")}))
    assert len([record for record in caplog.records if "all skills and users share it" in record.message]) == 1


class Machines:
    """A service that makes a machine whenever it is asked to."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder, self.settings = folder, settings
        self.made: list[ElsewhereEnvironment] = []

    def __call__(self) -> ElsewhereEnvironment:
        machine = ElsewhereEnvironment(self.folder / str(len(self.made)), **self.settings)  # type: ignore[arg-type]
        self.made.append(machine)
        return machine

    @property
    def used(self) -> list[ElsewhereEnvironment]:
        """Those on which something ran."""
        return [machine for machine in self.made if machine.commands]


async def test_row_288_a_function_in_place_of_an_environment_gives_each_run_a_machine_of_its_own(tmp_path, caplog):
    machines = Machines(tmp_path)
    box = remote_sandbox(machines)
    folders = [
        result.stdout
        for result in await asyncio.gather(
            *(
                box.run(ask("sh", "-c", "echo $TOKEN", env={"TOKEN": Secret(f"a-secret-of-skill-{number}")}))
                for number in range(2)
            )
        )
    ]
    assert folders == [b"[secret TOKEN]\n"] * 2
    assert [len(machine.commands) for machine in machines.used] == [1, 1]
    assert all(machine.closed for machine in machines.used)
    assert "share it" not in caplog.text
    report = await box.probe()
    assert "share it" not in " ".join(report.degraded)
    assert report.enforced["processes"].endswith("a machine of ElsewhereEnvironment for each run")


async def test_row_288_the_machine_of_a_run_that_fails_or_is_cancelled_is_closed(tmp_path):
    machines = Machines(tmp_path)
    box = remote_sandbox(machines)
    with pytest.raises(SandboxError, match="'nosuch' could not be started"):
        await box.run(ask("nosuch"))
    running = asyncio.create_task(box.run(ask("sleep", "60", wall=None)))
    while len(machines.used) < 2:
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [machine.closed for machine in machines.used] == [1, 1]
    await box.close()


async def test_row_288_a_machine_that_cannot_be_closed_is_told_and_the_result_stays(tmp_path, caplog):
    class Sticky(ElsewhereEnvironment):
        async def close(self) -> None:
            raise OSError("the service is away")

    result = await remote_sandbox(lambda: Sticky(tmp_path / "there")).run(ask("true"))
    assert result.status is Status.OK
    assert "A machine of Sticky could not be closed after its run (OSError)" in caplog.text


async def test_row_301_a_machine_that_comes_when_its_run_was_cancelled_is_closed(tmp_path):
    """Seen with E2B: each call that was cancelled at once left a machine, for five minutes."""
    there = asyncio.Event()
    machines = Machines(tmp_path, starts=there)
    box = remote_sandbox(machines)
    running = asyncio.create_task(box.run(ask("true")))
    while len(machines.made) < 2:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    there.set()
    await box.close()
    assert [(machine.is_initialized, machine.closed) for machine in machines.made[1:]] == [(False, 1)]


async def test_row_301_a_machine_that_comes_too_late_is_closed(tmp_path):
    there = asyncio.Event()
    machines = Machines(tmp_path, starts=there)
    box = remote_sandbox(machines, most_services_seconds=0.05)
    with pytest.raises(SandboxError, match=r"could not be made ready \(TimeoutError: it did not answer in time"):
        await box.run(ask("true"))
    there.set()
    await box.close()
    assert [machine.closed for machine in machines.made[1:]] == [1]


async def test_row_433_who_leaves_while_a_machine_is_made_has_no_further_one_until_it_is_gone(tmp_path):
    """Seen: who came and left fifty times a second had a hundred machines, and the account none for anybody else."""
    there = asyncio.Event()
    machines = Machines(tmp_path, starts=there)
    box = remote_sandbox(machines, most_runs=4)
    for _ in range(20):
        leaving = asyncio.create_task(box.run(ask("true", share=("ann", "1"))))
        await asyncio.sleep(0.01)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    assert 1 < len(machines.made) - 1 < 4
    there.set()
    assert (await box.run(ask("true", share=("bob", "1")))).status is Status.OK
    assert (await box.run(ask("true", share=("ann", "1")))).status is Status.OK  # the places are there again
    await box.close()
    assert all(machine.closed for machine in machines.made[1:])


async def test_row_302_one_user_does_not_have_all_machines(tmp_path):
    """Seen: two hundred sessions of one user were two hundred machines, and the service made none for anybody else."""
    machines = Machines(tmp_path)
    box = remote_sandbox(machines, most_runs=4)
    long = [asyncio.create_task(box.run(ask("sleep", "60", share=("ann", str(each))))) for each in range(9)]
    while len(machines.used) < 3:
        await asyncio.sleep(0.01)
    assert (await box.run(ask("true", share=("bob", "1")))).status is Status.OK
    assert len(machines.used) == 4
    for run in long:
        run.cancel()
    await asyncio.gather(*long, return_exceptions=True)
    with pytest.raises(ConfigError, match="most_runs=0"):
        remote_sandbox(machines, most_runs=0)


@pytest.mark.parametrize(
    "hostile", ["head -c 200000000 /dev/zero; sleep 20", "echo {nonce} file 1000; truncate -s 400M {answer}"]
)
async def test_row_300_an_answer_that_takes_the_agents_memory_is_given_up(hostile, tmp_path, monkeypatch):
    """Seen: with E2B, three lines that a script left in its machine's profile took all memory of the agent."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.write_text(
        '#!/bin/sh\nnonce=${2##*-}; answer="${2%/*}/answer-$nonce.frames"\n'
        + hostile.replace("{nonce}", "$nonce").replace("{answer}", '"$answer"')
    )
    python.chmod(0o755)
    few = replace(machine_memory(), available=256 << 20)
    monkeypatch.setattr("adk_skills_agent.sandbox.remote.remote.machine_memory", lambda: few)
    box = remote_sandbox(ElsewhereEnvironment(tmp_path / "there", path=f"{python.parent}:/bin:/usr/bin"))
    give_back_free_memory()
    with pytest.raises(SandboxError, match="was given up: while it answered, this process took 64 MiB more"):
        await box.run(ask("true"))
    await box.close()


async def test_row_438_an_answer_of_any_number_of_lines_is_not_made_a_list_of(tmp_path):
    """Seen: 100 MB of line ends on a machine's output, and the agent's event loop stood still for 14 s at each call."""
    answer = RemoteAnswer(1, "\n" * 20_000_000, "first\nlast\n")
    job = Job("0123abcd", "/h", "/w", (), (), 1000)
    tracemalloc.start()
    try:
        with pytest.raises(SandboxError, match="gave no result: exit code 1: last"):
            remote._found("A service", job, answer)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20  # as a list it is a gigabyte; other threads have some, too
    finally:
        tracemalloc.stop()
    failed = f"{job.nonce} failed " + json.dumps([1, "x\n" * 50_000])
    with pytest.raises(SandboxError, match="did not run: no reason is known"):
        remote._found("A service", job, replace(answer, stdout=failed, stderr="", exit_code=0))
    threads: list[bool] = []
    found, loop = remote._found, threading.current_thread()

    def looked(*arguments: Any) -> Any:
        threads.append(threading.current_thread() is loop)
        return found(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "_found", looked)
        assert (await remote_sandbox(ElsewhereEnvironment(tmp_path / "there")).run(ask("true"))).status is Status.OK
    assert threads == [False]


async def test_row_439_what_one_answer_takes_ends_no_other_call(monkeypatch):
    """Seen: 150 MB of one user's files, and the runs of everybody who waited for a service were given up."""
    used = [0]
    monkeypatch.setattr(remote, "private_memory", lambda _: used[0])
    monkeypatch.setattr(remote, "machine_memory", lambda: replace(machine_memory(), available=400 << 20))
    over = asyncio.Event()

    async def large() -> None:
        used[0] += 150 << 20
        try:
            await asyncio.sleep(60)
        finally:
            used[0] -= 150 << 20

    waiting = [asyncio.create_task(remote.within_memory("One", over.wait())) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(SandboxError, match="Another was given up: while it answered, this process took 100 MiB more"):
        await remote.within_memory("Another", large(), 150 << 20)
    await asyncio.sleep(0.3)
    over.set()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert remote._waiting == []


async def test_row_300_an_answer_of_code_that_takes_the_agents_memory_is_given_up(monkeypatch):
    """It was bounded where a service runs commands, and not where it runs Python code only."""
    used = [0]
    monkeypatch.setattr(remote, "private_memory", lambda _: used[0])
    monkeypatch.setattr(remote, "machine_memory", lambda: replace(machine_memory(), available=400 << 20))

    class Endless:
        name, most_code_bytes = "A service", None

        async def run_code(self, code: str, seconds: float | None) -> RemoteAnswer:
            used[0] += 150 << 20
            await asyncio.sleep(60)
            return RemoteAnswer(0, "")

    job = Job("0123abcd", "/h", "/w", (), (), None)
    with pytest.raises(SandboxError, match="A service was given up: while it answered"):
        await remote._ask_python(Endless(), job, b"", 60.0)


async def test_row_440_what_is_on_the_way_to_services_is_bounded_and_small_requests_pass(monkeypatch):
    """Seen: four runs with files of 200 MiB each, within the policy, took 2.4 GB of the agent's memory; 48 take all."""
    monkeypatch.setattr(remote, "machine_memory", lambda: replace(machine_memory(), available=80 << 20))  # ten of it
    way = OnTheWay()

    def channel(user: str) -> RemoteChannel:
        with acting_for((user, "session")):
            return RemoteChannel(report_of("x", SandboxPolicy()), lambda *_: asyncio.sleep(0, b""))

    first, second, small, other = channel("ann"), channel("ann"), channel("ann"), channel("bob")
    await way.add(first, 40 << 20)  # the oldest always goes on
    waiting = asyncio.create_task(way.add(second, 2 << 20))
    await way.add(small, 1 << 20)
    also = asyncio.create_task(way.add(other, 2 << 20))
    await asyncio.sleep(0.25)
    assert not waiting.done()
    await also  # row 453: what others have counts as an equal part at most
    way.release(first)
    await waiting
    for one in (second, small, other):
        way.release(one)
        way.release(one)
    assert not way._held


def test_a_function_that_makes_no_new_environment_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="a function that returns a ElsewhereExecutor"):
        remote_sandbox(ElsewhereExecutor)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="LocalEnvironment is no remote service"):
        remote_sandbox(LocalEnvironment)
    used = ElsewhereEnvironment(tmp_path)
    used.is_initialized = True
    with pytest.raises(ConfigError, match="has to return a new one"):
        remote_sandbox(lambda: used)


async def test_row_72_it_is_refused_where_more_is_asked_for_than_a_remote_place_gives(box):
    with pytest.raises(SandboxUnavailable, match="weaker than min_isolation='namespaces'"):
        await box.run(ask("true", min_isolation="namespaces"))
    with pytest.raises(SandboxUnavailable, match="isolation='landlock' is required"):
        await box.run(ask("true", isolation="landlock"))


@pytest.mark.slow
async def test_a_secret_goes_there_and_does_not_come_back(box):
    result = await box.run(ask("sh", "-c", "echo $KEY; echo $KEY > f", env={"KEY": Secret("very-secret-value")}))
    assert result.stdout == b"[secret KEY]\n"
    assert (result.files, len(result.skipped_files)) == ((), 1)


@pytest.mark.slow
async def test_a_command_that_is_not_there_is_no_result(box):
    with pytest.raises(SandboxError, match="'nosuch' could not be started: No such file"):
        await box.run(ask("nosuch"))


@pytest.mark.slow
@pytest.mark.requirement("S0-83")
@pytest.mark.parametrize("note", [MAY_GO_ON, CLOSED_WITH_IT], ids=["one machine", "a machine for each run"])
async def test_a_service_that_never_answers_is_given_up_with_a_warning(note, tmp_path, caplog):
    """S0-83: the client's own clock, and the word that the remote side may go on, or is closed (row 288)."""
    # Its python3 hangs before it does anything, as a service that queues the command does.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    machines = Machines(tmp_path, deaf=True, path=f"{tmp_path / 'bin'}:/bin:/usr/bin")
    policy = {"workspace_bytes": 1 << 20, "max_total_file_bytes": 1 << 20, "output_flood_bytes": 1 << 20}
    box = remote_sandbox(machines if note == CLOSED_WITH_IT else machines(), most_services_seconds=0.1)
    before = time.monotonic()
    with caplog.at_level(logging.WARNING), pytest.MonkeyPatch.context() as patch:
        patch.setattr("adk_skills_agent.sandbox.supervisor.command._ENVELOPE_SECONDS", 0.2)
        result = await box.run(ask("true", wall=0.2, **policy))
    assert (result.status, result.timed_out) == (Status.TIMEOUT, True)
    assert [said for said in result.notes if said in {MAY_GO_ON, CLOSED_WITH_IT}] == [note]
    assert note in caplog.text
    assert time.monotonic() - before < 30
    await box.close()
    assert [machine.closed for machine in machines.used] == [1]


@pytest.mark.slow
async def test_a_machine_without_python_is_said_to_lack_it(tmp_path):
    box = remote_sandbox(ElsewhereEnvironment(tmp_path / "there", path="/nowhere"))
    with pytest.raises(SandboxError, match="no python3 there"):
        await box.run(ask("true"))


@pytest.mark.slow
async def test_nothing_is_left_there(tmp_path):
    there = ElsewhereEnvironment(tmp_path / "there")
    box = remote_sandbox(there)
    await box.run(ask("python3", "-c", "open('big','wb').write(b'z' * 900_000)"))
    await box.run(ask("sh", "-c", "mkdir d && touch d/f && chmod 0 d"))
    assert os.listdir(there.folder) == []


@pytest.mark.slow
async def test_a_cancelled_run_is_over_at_once(tmp_path):
    there = ElsewhereEnvironment(tmp_path / "there")
    run = asyncio.ensure_future(remote_sandbox(there).run(ask("sleep", "60")))
    while not there.commands:
        await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await there.close()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (BuiltInCodeExecutor(), "tool of the model's own service"),
        (UnsafeLocalCodeExecutor(), "Use LocalSandboxCodeExecutor"),
        (LocalSandboxCodeExecutor(), "in a sandbox already"),
        (LocalEnvironment(), "Use SandboxEnvironment"),
        (object(), "not a object"),
    ],
    ids=["built-in", "unsafe", "ours", "local", "else"],
)
def test_what_is_no_other_machine_is_refused_with_the_reason(target, said):
    for make in (remote_sandbox, RemoteCodeExecutor) if not isinstance(target, LocalEnvironment) else (remote_sandbox,):
        with pytest.raises((ConfigError, ValueError), match=said):
            make(target)


async def test_our_environment_is_refused_too():
    environment = SandboxEnvironment()
    with pytest.raises(ConfigError, match="in a sandbox already"):
        remote_sandbox(environment)
    await environment.close()


def test_code_goes_there_as_it_is_and_files_come_back():
    executor = RemoteCodeExecutor(ElsewhereExecutor())
    result = executor.execute_code(None, GoogleInput(code="import os; print(os.environ['SERVICE'])"))
    assert (result.stdout, result.stderr, result.exit_code) == ("yes\n", "", 0)
    assert [(file.name, file.content) for file in result.output_files] == [("plot.png", b"png")]
    assert result.execution.isolation.level is IsolationLevel.REMOTE


class Keeping(ElsewhereExecutor):
    """Keeps what it was given, as a service that places files by their names does."""

    inputs: list[GoogleInput] = Field(default_factory=list)

    def execute_code(self, invocation_context: object, code_execution_input: GoogleInput) -> GoogleResult:
        self.inputs.append(code_execution_input)
        return super().execute_code(invocation_context, code_execution_input)


@pytest.mark.requirement("S0-24")
def test_files_known_by_their_names_are_left_to_the_service():
    service = Keeping()
    asked = CodeExecutionInput(code="print(1)", input_files=[GoogleFile(name="b.txt", content="plain")])
    assert RemoteCodeExecutor(service).execute_code(None, asked).stdout == "1\n"
    assert [(given.code, [file.name for file in given.input_files]) for given in service.inputs] == [
        ("print(1)", ["b.txt"])
    ]


@pytest.mark.parametrize("says", [True, False])
def test_a_failure_is_one_whether_the_service_says_an_exit_code_or_not(says):
    executor = RemoteCodeExecutor(ElsewhereExecutor(says_exit_code=says))
    failed = executor.execute_code(None, GoogleInput(code="print('some'); raise SystemExit('broken')"))
    assert (failed.exit_code, failed.stdout) == (1, "some\n")
    assert "broken" in failed.stderr


@pytest.mark.requirement("S0-82", "S0-84")
def test_every_executor_has_a_deadline_and_the_calls_own_comes_first():
    """S0-82, S0-84: the wrapped executor has no limit at all."""
    slow = GoogleInput(code="import time; time.sleep(4)")
    executor = RemoteCodeExecutor(ElsewhereExecutor(), timeout_seconds=1)
    result = executor.execute_code(None, slow)
    assert (result.exit_code, result.execution.status) == (-1, Status.TIMEOUT)
    assert "timed out after 1 s" in result.stderr
    assert MAY_GO_ON in result.stderr
    quick = RemoteCodeExecutor(ElsewhereExecutor(honours_timeout=True), timeout_seconds=60)
    told = quick.execute_code(None, CodeExecutionInput(code="import time; time.sleep(30)", timeout_seconds=1))
    assert (told.exit_code, told.execution.timed_out) == (-1, True)


def test_output_is_bounded_and_the_whole_of_it_is_a_file():
    executor = RemoteCodeExecutor(ElsewhereExecutor(), max_output_chars=100)
    result = executor.execute_code(None, GoogleInput(code="print('x' * 5000)"))
    assert len(result.stdout) < 400
    assert {file.name: len(file.content) for file in result.output_files} == {"plot.png": 3, "stdout.txt": 5001}


def test_what_the_executor_raises_is_an_error_of_the_sandbox():
    class Broken(ElsewhereExecutor):
        def execute_code(self, *_: object) -> None:
            raise RuntimeError("no quota")

    with pytest.raises(SandboxError, match=r"Broken failed \(RuntimeError: no quota\)"):
        RemoteCodeExecutor(Broken()).execute_code(None, GoogleInput(code="1"))


def test_settings_of_the_wrapped_executor_stay():
    executor = RemoteCodeExecutor(ElsewhereExecutor(stateful=True, error_retry_attempts=7, timeout_seconds=9))
    assert (executor.stateful, executor.error_retry_attempts, executor.timeout_seconds) == (True, 7, 9)


def test_code_of_an_executor_over_a_remote_sandbox_knows_whose_turn_it_is():
    inner = ElsewhereExecutor(seen=[])
    executor = LocalSandboxCodeExecutor(sandbox=remote_sandbox(inner), default_timeout_seconds=7)
    turn = object()
    result = executor.execute_code(turn, GoogleInput(code="print(6 * 7)"))
    assert (result.stdout, result.exit_code) == ("42\n", 0)
    assert inner.seen[0][0] is turn
    assert inner.seen[0][1] >= 7


@pytest.mark.requirement("S0-22", "S0-23", "S0-24")
def test_files_are_where_the_code_looks_for_them_although_the_service_knows_names_only(tmp_path: Path) -> None:
    """S0-22 to S0-24. Seen: ``working_dir`` and ``path`` went to a class that reads neither, and were lost."""
    executor = RemoteCodeExecutor(ElsewhereExecutor())
    code = "import os\nprint(open('data/a.csv').read(), open('b.csv', 'rb').read(), os.path.basename(os.getcwd()))"
    files = [File(name="x", content=b"1,2", path="data/a.csv"), File(name="b.csv", content=b"\0")]
    folder = f"{tmp_path.name}-analysis"
    try:
        found = executor.execute_code(None, CodeExecutionInput(code=code, input_files=files, working_dir=folder))
        assert (found.stdout, found.stderr) == (f"1,2 b'\\x00' {folder}\n", "")
        failed = executor.execute_code(None, CodeExecutionInput(code="\n1 / 0", working_dir=folder))
        assert 'File "<code>", line 2' in failed.stderr
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    with pytest.raises(ValueError, match="must be inside"):
        executor.execute_code(None, CodeExecutionInput(code="1", working_dir="../up"))
    outside = [File(name="a", content=b"", path="../a")]
    with pytest.raises(ValueError, match="must be relative"):
        executor.execute_code(None, CodeExecutionInput(code="1", input_files=outside))
