"""Which session a call gets: how long one is kept, how many there are, and what is said when one is new."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from keeping import Host, Kept

import level_table
from adk_skills_agent.errors import ConfigError, SandboxError, SandboxUnavailable
from adk_skills_agent.sandbox.contract import IsolationLevel, SandboxPolicy
from adk_skills_agent.sandbox.local.sessions import LocalSessions
from adk_skills_agent.sandbox.sessions.session import PythonSession, SessionRequest, SessionState
from adk_skills_agent.sandbox.sessions.sessions import SessionLimits, _Place, sandbox_policy

Make = Callable[..., Kept]


@pytest.fixture
async def make(nothing_left: None) -> AsyncIterator[Make]:
    """Sessions with limits; at one level, because nothing here depends on it."""
    level_table.require("namespaces")
    made: list[Kept] = []

    def make_one(**limits: float) -> Kept:
        host = Host("namespaces", IsolationLevel.NAMESPACES, LocalSessions, lambda: None)
        made.append(Kept(host, SessionLimits(**limits)))  # type: ignore[arg-type]
        return made[-1]

    yield make_one
    for kept in made:
        await kept.sessions.close()


async def state_after(kept: Kept, name: str = "a") -> tuple[bool, str]:
    """Whether the next execution is told that it is in a new session, and what it is told."""
    result = await kept.run("'kept' in globals()", id=name)
    assert result.stdout == (b"False\n" if result.session_reset else b"True\n")
    return result.session_reset, result.notes[0] if result.session_reset else ""


async def test_a_session_that_is_not_used_ends_by_itself(make: Make) -> None:
    kept = make(idle_seconds=0.3)
    await kept.run("kept = 1")
    for _ in range(600):
        if kept.sessions.health()[0].state is SessionState.NEW:
            break
        await asyncio.sleep(0.05)
    assert kept.sessions.health()[0].lost == "it was not used for 0.3 s"
    assert (await state_after(kept))[0] is True


async def test_a_session_that_is_used_does_not_end_for_idleness_but_for_its_age(make: Make) -> None:
    kept = make(idle_seconds=60.0, age_seconds=3.0)
    await kept.run("kept = 1")
    assert (await state_after(kept))[0] is False
    await asyncio.sleep(3.1)
    reset, told = await state_after(kept)
    assert reset
    assert "it was older than 3 s" in told


async def test_a_session_ends_after_so_many_executions(make: Make) -> None:
    kept = make(executions=3)
    await kept.run("kept = 1")
    assert [(await state_after(kept))[0] for _ in range(3)] == [False, False, True]


async def test_the_session_not_used_longest_makes_room_and_its_next_code_is_told(make: Make) -> None:
    kept = make(sessions=2)
    for name in ("a", "b", "c"):
        await kept.run("kept = 1", id=name)
    states = {health.session_id: health.state for health in kept.sessions.health()}
    assert states == {"a": SessionState.NEW, "b": SessionState.READY, "c": SessionState.READY}
    reset, told = await state_after(kept, "a")
    assert reset
    assert "its place was needed for another session" in told


async def test_row_131_one_user_with_many_sessions_ends_their_own_and_not_those_of_others(make: Make) -> None:
    kept = make(sessions=3)
    await kept.run("kept = 1", id="theirs", share=("them", "theirs"))
    for number in range(4):
        await kept.run("kept = 1", id=f"greedy-{number}", share=("greedy", f"greedy-{number}"))
    states = {health.session_id: health.state for health in kept.sessions.health()}
    assert [name for name, state in states.items() if state is SessionState.READY] == ["theirs", "greedy-2", "greedy-3"]
    assert await kept.value("kept", id="theirs", share=("them", "theirs")) == "1"


async def test_row_445_sessions_of_one_user_that_run_end_none_of_those_who_have_fewer(make: Make) -> None:
    """Seen: 24 sessions of one user that slept ended the idle ones of all 28 others, with their variables."""
    kept = make(sessions=5)
    for user in ("ann", "bob", "eve"):
        await kept.run("kept = 1", id=user, share=(user, user))
    greedy = [
        asyncio.create_task(kept.run("import time\ntime.sleep(1.5)", id=f"g{number}", share=("greedy", f"g{number}")))
        for number in range(4)
    ]
    await asyncio.sleep(1.0)
    assert await kept.value("kept", id="ann", share=("ann", "ann")) == "1"
    assert await kept.value("1", id="new", share=("new", "new")) == "1"  # who has none gets one
    await asyncio.gather(*greedy)
    states = {health.session_id: health.state for health in kept.sessions.health()}
    assert [name for name in ("ann", "bob", "eve") if states.get(name) is not SessionState.READY] in (["bob"], [])
    assert sum(state is SessionState.READY for state in states.values()) <= 5


async def test_row_445_whoever_waits_goes_on_when_an_idle_session_of_another_ends(make: Make) -> None:
    """Seen: it waited until code of its own user ended, with a free place beside it."""
    kept = make(sessions=4)
    for user in ("ann", "bob"):
        await kept.run("kept = 1", id=user, share=(user, user))
    slow = [
        asyncio.create_task(
            kept.run("import time\ntime.sleep(80)", id=f"g{number}", share=("greedy", f"g{number}"), wall_seconds=80.0)
        )
        for number in range(2)
    ]
    async with asyncio.timeout(30):
        while sum(health.state is not SessionState.NEW for health in kept.sessions.health()) < 4:
            await asyncio.sleep(0.05)
    waits = asyncio.create_task(kept.run("1", id="g2", share=("greedy", "g2")))
    await asyncio.sleep(0.5)
    assert not waits.done()
    await kept.sessions.reset_state("ann")
    assert (await asyncio.wait_for(waits, 30)).status == "ok"
    assert not any(task.done() for task in slow)
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_sessions_that_run_are_not_ended_for_another_one_which_waits(make: Make) -> None:
    kept = make(sessions=1)
    slow = asyncio.create_task(kept.run("import time\ntime.sleep(0.5)\nkept = 1", id="a"))
    await asyncio.sleep(0.2)
    other = await kept.run("2", id="b")
    assert (await slow).status == "ok"
    assert other.stdout == b"2\n"


async def test_a_session_that_breaks_again_and_again_is_refused_for_a_while(make: Make) -> None:
    kept = make(restarts=2, restart_seconds=60.0)
    for _ in range(3):
        assert (await kept.run("import os; os._exit(1)")).status == "error"
    with pytest.raises(SandboxError, match=r"broke 3 times within 60 s .*exit code 1.*again in \d+ s"):
        await kept.run("1")
    assert kept.sessions.health()[0].restarts == 3
    # Another session is not concerned, and the owner can begin anew.
    assert await kept.value("1", id="b") == "1"
    await kept.sessions.reset_state("a")
    assert await kept.value("1") == "1"


async def test_a_reset_ends_what_runs_and_the_next_code_is_told(make: Make) -> None:
    kept = make()
    await kept.run("kept = 1")
    running = asyncio.create_task(kept.run("import time\ntime.sleep(60)"))
    await asyncio.sleep(0.2)
    await kept.sessions.reset_state("a")
    ended = await running
    assert (ended.status, ended.signal) == ("error", 9)
    assert "is lost: it was reset. Nothing was run again." in ended.notes[0]
    assert (await state_after(kept))[1].endswith("(it was reset).")
    await kept.sessions.reset_state("never seen")


async def test_closing_what_runs_is_not_the_fault_of_the_code(make: Make) -> None:
    kept = make(restarts=0)
    await kept.run("1")
    running = asyncio.create_task(kept.run("import time\ntime.sleep(60)"))
    await asyncio.sleep(0.3)
    await kept.sessions.close()
    assert "is lost: the sessions were closed." in (await running).notes[0]
    assert (kept.sessions.health()[0].lost, kept.sessions.health()[0].restarts) == ("the sessions were closed", 0)
    assert (await state_after(kept))[1].endswith("(the sessions were closed).")


async def test_closing_ends_a_session_that_is_only_starting(make: Make) -> None:
    kept = make()
    starting = asyncio.create_task(kept.run("import time\ntime.sleep(60)"))
    while not kept.sessions.health() or kept.sessions.health()[0].state is not SessionState.STARTING:
        await asyncio.sleep(0)
    await asyncio.wait_for(kept.sessions.close(), 15.0)  # a hang would be the code's 20 s
    with pytest.raises(SandboxError, match="ended before it was ready: the sessions were closed"):
        await starting
    assert await kept.value("1") == "1"


async def test_sessions_are_ended_together_and_a_slow_one_holds_up_no_other(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hanging engine takes its time for each of them."""
    kept = make()
    for name in ("a", "b", "c"):
        await kept.run("1", id=name)
    closing, all_are = 0, asyncio.Event()
    close = PythonSession.close

    async def close_with_all(session: PythonSession) -> None:
        nonlocal closing
        closing += 1
        if closing == 3:
            all_are.set()
        await asyncio.wait_for(all_are.wait(), 20.0)
        await close(session)

    monkeypatch.setattr(PythonSession, "close", close_with_all)
    await kept.sessions.close()
    assert closing == 3


@pytest.mark.parametrize(
    "limits",
    [{"sessions": 0}, {"executions": 0}, {"idle_seconds": 0}, {"age_seconds": float("nan")}, {"restarts": -1}],
)
def test_limits_with_which_no_session_could_run_or_end_are_refused(limits: dict[str, float]) -> None:
    (name,) = limits
    with pytest.raises(ConfigError, match=f"SessionLimits: {name}="):
        SessionLimits(**limits)  # type: ignore[arg-type]


async def test_other_limits_of_the_box_need_another_box(make: Make) -> None:
    kept = make()
    await kept.run("kept = 1")
    assert (await kept.run("kept", wall_seconds=5.0, output_bytes=100)).session_reset is False
    changed = await kept.run("'kept' in globals()", memory_bytes=128 << 20)
    assert (changed.session_reset, changed.stdout) == (True, b"False\n")
    assert "the limits of its sandbox were changed" in changed.notes[0]


async def test_a_box_that_dies_while_it_is_idle_costs_the_state_and_not_the_next_execution(make: Make) -> None:
    kept = make()
    dying = "import os, subprocess\nkept = 1\nsubprocess.Popen(['sh', '-c', f'sleep 0.1; kill -9 {os.getppid()}'])"
    assert (await kept.run(dying)).status == "ok"
    await asyncio.sleep(0.5)
    reset, told = await state_after(kept)
    assert reset
    assert "ended while it was idle" in told


async def test_a_supervisor_that_is_stopped_while_idle_is_found_out_by_asking_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adk_skills_agent.sandbox.sessions.sessions._LONG_IDLE_SECONDS", 0.0)
    kept = make()
    stopping = (
        "import os, subprocess\nkept = 1\nsubprocess.Popen(['sh', '-c', f'sleep 0.1; kill -STOP {os.getppid()}'])"
    )
    assert (await kept.run(stopping)).status == "ok"
    await asyncio.sleep(0.5)
    reset, told = await state_after(kept)
    assert reset
    assert "did not answer any more" in told


async def test_a_policy_that_cannot_be_met_is_refused_and_nothing_is_kept(make: Make) -> None:
    kept = make()
    impossible = replace(kept.policy, run_as=0)
    with pytest.raises(SandboxUnavailable, match="run_as=0"):
        await kept.sessions.execute("a", SessionRequest("1", impossible))
    with pytest.raises(ConfigError):
        await kept.sessions.execute("a", SessionRequest("1", replace(kept.policy, wall_seconds=-1)))
    for request in (
        SessionRequest("1", kept.policy, env={"A": "nul\0"}),
        SessionRequest("1", kept.policy, env={"PATH": "bin:/bin"}),
        SessionRequest("1", kept.policy, cwd="../outside"),
        SessionRequest("1", kept.policy, cwd="/etc"),
    ):
        with pytest.raises(ValueError, match=r"NUL|inside|absolute folders"):
            await kept.sessions.execute("a", request)
    # A request that could not be expressed has not touched the session.
    assert await kept.value("1 + 1") == "2"


async def test_what_a_listener_raises_ends_the_session_and_comes_out(make: Make) -> None:
    kept = make()

    def listener(stream: str, data: bytes) -> None:
        raise LookupError("no screen")

    with pytest.raises(LookupError, match="no screen"):
        await kept.run("print(1)\nimport time\ntime.sleep(60)", on_output=listener)
    assert (await kept.run("1")).session_reset


def test_sessions_end_with_their_loop_and_the_next_loop_begins_anew(nothing_left: None) -> None:
    level_table.require("namespaces")
    kept = Kept(Host("namespaces", IsolationLevel.NAMESPACES, LocalSessions, lambda: None))
    assert asyncio.run(kept.run("kept = 1", share=("ann", "a"))).status == "ok"

    async def later() -> tuple[bool, str]:
        try:
            return await state_after(kept)
        finally:
            await kept.sessions.close()

    reset, told = asyncio.run(later())
    assert kept.sessions._places["a"].user == "ann"  # or all that began anew were one user's, who has most
    assert reset
    assert "event loop it lived in was closed" in told


async def test_an_eviction_that_a_closed_loop_cut_off_promises_no_place_of_the_next_one() -> None:
    class Endless:
        async def close(self) -> None:
            await asyncio.Event().wait()

    sessions = Kept(Host("none", IsolationLevel.NAMESPACES, LocalSessions, lambda: None), SessionLimits(sessions=1))
    places = sessions.sessions._places
    places["idle"] = _Place("bob", session=Endless())  # type: ignore[arg-type]  # all that is asked of it
    evicting = sessions.sessions._make_room("ann")
    evicting.send(None)
    assert sessions.sessions._promised.total() == 1
    sessions.sessions._begin_anew("the event loop it lived in was closed")
    evicting.close()  # as when it is collected as garbage
    assert sessions.sessions._promised.total() == 0


async def test_sessions_of_a_loop_that_goes_on_cannot_be_used_from_another(make: Make) -> None:
    kept = make()
    await kept.run("1")

    def elsewhere() -> None:
        with pytest.raises(SandboxError, match="belong to another event loop"):
            asyncio.run(kept.run("1"))

    await asyncio.to_thread(elsewhere)
    assert await kept.value("2") == "2"


@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
async def test_a_forked_child_has_sessions_of_its_own(make: Make) -> None:
    kept = make()
    await kept.run("kept = 1")
    pid = os.fork()
    if pid == 0:
        try:
            asyncio._set_running_loop(None)
            reset, _ = asyncio.run(in_child(kept))
            os._exit(10 if reset else 11)
        finally:
            os._exit(12)
    assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1]) == 11
    assert await kept.value("kept") == "1"


async def in_child(kept: Kept) -> tuple[bool, str]:
    told = await kept.run("kept = 2")
    assert "the process this one was forked from" in told.notes[0]
    try:
        return await state_after(kept)
    finally:
        await kept.sessions.close()


async def test_limits_that_belong_to_one_execution_do_not_belong_to_the_box(make: Make) -> None:
    policy = SandboxPolicy(wall_seconds=1, output_bytes=1, max_files=1, memory_bytes=1 << 28)
    assert sandbox_policy(policy) == SandboxPolicy(memory_bytes=1 << 28)
