from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.skillsbench.agents import Assignment, BenchAgent, Nop, Oracle, Worked
from adk_skills_agent.evals.skillsbench.environment import TaskEnvironment
from adk_skills_agent.evals.skillsbench.results import FIRST, BenchResult, self_test_problems, summarise
from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.evals.skillsbench.trial import BenchTrial
from evals.skillsbench.bench_tasks import GRADES, HostSandbox, carry_out, make_task, plan_of, settings_for


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


@pytest.mark.requirement("S0-135")
async def test_the_oracle_gets_one_and_nobody_gets_zero(tmp_path: Path) -> None:
    settings = settings_for(HostSandbox(tmp_path), tmp_path / "out")
    state = await carry_out(plan_of([make_task(tmp_path / "tasks")]), settings)
    assert {result.agent: result.reward for result in state.results.values()} == {"oracle": 1.0, "nop": 0.0}
    assert self_test_problems(list(state.results.values())) == []


async def test_a_row_begins_with_the_eight_fields_in_their_order(tmp_path: Path) -> None:
    settings = settings_for(HostSandbox(tmp_path), tmp_path / "out")
    await carry_out(plan_of([make_task(tmp_path / "tasks")], trials=2), settings)
    found = rows(tmp_path / "out")
    assert len(found) == 4
    for row in found:
        assert tuple(row)[:8] == FIRST
        assert row["error"] is None
        assert row["arm"] == "with-skill"
        assert row["skills_available"] == ["answering"]


async def test_the_solution_is_gone_when_the_tests_run_and_the_tests_are_absent_before(tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "tasks",
        solution__solve_DOT_sh="[ ! -e /tests ] && [ -e /solution/solve.sh ] && echo 42 > answer.txt\n",
        tests__test_DOT_sh='[ -z "$(ls /solution)" ] && echo 1 > /logs/verifier/reward.txt\n',
    )
    state = await carry_out(plan_of([task], agents=("oracle",)), settings_for(HostSandbox(tmp_path), tmp_path / "out"))
    assert [result.reward for result in state.results.values()] == [1.0]


async def test_row_153_a_task_gets_no_variable_of_the_host_that_its_owner_has_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: each key of the environment that a task's own settings name was there for its scripts, with a network."""
    monkeypatch.setenv("OTHER_API_KEY", "sk-never-given-1234")
    given = {"GIVEN_API_KEY": "sk-was-given-123456"}
    says = "echo ${ONE:-none} ${TWO:-none}"
    tables = "".join(
        f"[{of}.env]\nONE = '${{OTHER_API_KEY}}'\nTWO = '${{GIVEN_API_KEY}}'\n" for of in ("verifier", "solution")
    )
    task = make_task(
        tmp_path / "tasks",
        solution__solve_DOT_sh=f"{says} > said\n",
        tests__test_DOT_sh=f"cat said; {says}; [ ${{#TWO}} = 19 ] && echo 1 > /logs/verifier/reward.txt\n",
        task_DOT_toml=tables,
    )
    settings = settings_for(HostSandbox(tmp_path), tmp_path / "out", variables=given)
    await carry_out(plan_of([task], agents=("oracle",)), settings)
    (row,) = rows(tmp_path / "out")
    assert row["reward"] == 1.0
    assert row["verifier_output"] == "none [secret GIVEN_API_KEY]\n" * 2
    assert row["notes"] == ["The task asks for OTHER_API_KEY of the host, which it was not given; see --env."]


@pytest.mark.requirement("S0-135")
async def test_a_reward_that_was_left_before_the_tests_does_not_count(tmp_path: Path) -> None:
    cheats = "mkdir -p /logs/verifier /tests; echo 1 > /logs/verifier/reward.txt; echo 'echo 1' > /tests/test.sh\n"
    task = make_task(tmp_path / "tasks", solution__solve_DOT_sh=cheats)
    silent = make_task(tmp_path / "tasks", "silent", solution__solve_DOT_sh=cheats, tests__test_DOT_sh="exit 3\n")
    state = await carry_out(
        plan_of([task, silent], agents=("oracle",)), settings_for(HostSandbox(tmp_path), tmp_path / "out")
    )
    graded, ungraded = state.results.values()
    assert (graded.reward, graded.error) == (0.0, None)
    assert (ungraded.reward, ungraded.passed, ungraded.error_kind) == (None, None, "verifier")
    assert "code 3 and left no reward" in (ungraded.error or "")


@pytest.mark.requirement("S0-136")
async def test_what_an_agent_left_is_graded_after_its_time_is_over_and_marked(tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "tasks",
        solution__solve_DOT_sh="echo 42 > answer.txt; sleep 100\n",
        task_DOT_toml="[agent]\ntimeout_sec = 0.5\n",
    )
    await carry_out(plan_of([task], agents=("oracle",)), settings_for(HostSandbox(tmp_path), tmp_path / "out"))
    (row,) = rows(tmp_path / "out")
    assert (row["reward"], row["passed"], row["error_kind"], row["agent_timed_out"]) == (1.0, True, "timeout", True)
    assert "stopped after 0.5 s" in row["error"]


@pytest.mark.requirement("S0-136")
async def test_an_oracle_that_fails_is_graded_and_its_last_words_kept(tmp_path: Path) -> None:
    task = make_task(tmp_path / "tasks", solution__solve_DOT_sh="echo no internet; exit 7\n")
    state = await carry_out(plan_of([task], agents=("oracle",)), settings_for(HostSandbox(tmp_path), tmp_path / "out"))
    (result,) = state.results.values()
    assert (result.reward, result.error_kind) == (0.0, "agent")
    assert "ended with code 7" in (result.error or "")
    assert "no internet" in (result.error or "")
    assert self_test_problems([result])[0].startswith("answer: oracle got 0 instead of 1")


async def test_the_login_of_a_proxy_that_commands_tell_is_in_no_file_of_the_results(tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "tasks",
        solution__solve_DOT_sh="echo 'via pass-word@proxy'; exit 7\n",
        tests__test_DOT_sh=GRADES + 'echo \'{"proxy": "pass-word"}\' | tee /logs/verifier/ctrf.json\n',
    )
    await carry_out(plan_of([task], agents=("oracle",)), settings_for(HostSandbox(tmp_path), tmp_path / "out"))
    (row,) = rows(tmp_path / "out")
    assert "[secret]@proxy" in row["error"]
    assert row["verifier_output"] == '{"proxy": "[secret]"}\n'
    written = [path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(written) >= 3
    assert not [text for text in written if "pass-word" in text]


@pytest.mark.requirement("S0-129")
async def test_a_failed_build_is_tried_twice_more_and_then_an_error_apart_from_zero(tmp_path: Path) -> None:
    sandbox = HostSandbox(tmp_path, {"lucky": 2, "broken": 99})
    tasks = [make_task(tmp_path / "tasks", name) for name in ("lucky", "broken")]
    state = await carry_out(plan_of(tasks, trials=2, agents=("oracle",)), settings_for(sandbox, tmp_path / "out"))
    by_task = {(one.task, one.trial): one for one in state.results.values()}
    assert by_task["lucky", 1].reward == by_task["lucky", 2].reward == 1.0
    assert by_task["broken", 1].reward is None
    assert by_task["broken", 2].error_kind == "build"
    assert sandbox.built.count(("broken", True)) == 3
    assert sandbox.pruned == 4
    assert (state.builds.built, state.builds.retried) == (1, 4)
    assert state.builds.failed == {"broken": "broken: no such package"}
    summary = summarise(list(state.results.values()), ("with-skill",), ("oracle",))["arms"][0]
    assert (summary["errors"], summary["pass_rate"]) == (2, 1.0)


@pytest.mark.requirement("S0-124", "S0-128", "S0-129")
async def test_an_environment_is_built_once_for_all_trials_of_an_arm_and_pruned_by_the_interval(tmp_path: Path) -> None:
    sandbox = HostSandbox(tmp_path)
    tasks = [make_task(tmp_path / "tasks", f"t{number}") for number in range(3)]
    plan = plan_of(tasks, ("no-skill", "with-skill"), ("nop",), trials=2)
    await carry_out(plan, settings_for(sandbox, tmp_path / "out", prune_interval=3), parallel=5)
    assert len(sandbox.built) == len(set(sandbox.built)) == 6
    assert sandbox.pruned == 2
    assert not [box for box in sandbox.opened if box.folder.exists()]


@pytest.mark.requirement("S0-129")
@pytest.mark.parametrize(("rebuild", "counts"), [(False, (1, 3, 0)), (True, (4, 0, 2))])
async def test_builds_are_counted_by_what_was_done_and_not_by_their_time(
    tmp_path: Path, rebuild: bool, counts: tuple[int, int, int]
) -> None:
    """Seen: what took less than 0.5 s was called cached, so that --rebuild said 0 built and nothing was pruned."""
    sandbox = HostSandbox(tmp_path)
    tasks = [make_task(tmp_path / "tasks", f"t{number}") for number in range(4)]
    sandbox.there = {(task.name, True) for task in tasks[1:]}
    settings = settings_for(sandbox, tmp_path / "out", prune_interval=2, rebuild=rebuild)
    state = await carry_out(plan_of(tasks, agents=("nop",)), settings)
    assert (state.builds.built, state.builds.cached, sandbox.pruned) == counts


class Interrupts(BenchAgent):
    """Does as the oracle; asked once more than it is told, it has the run cancelled, as Ctrl-C does."""

    name = "oracle"

    def __init__(self, after: int) -> None:
        self.left = after
        self.run: asyncio.Task[Any] | None = None

    async def work(self, task: Task, box: TaskEnvironment, assignment: Assignment) -> Worked:
        self.left -= 1
        if self.left < 0:
            assert self.run is not None
            self.run.cancel()
            await asyncio.sleep(60)
        return await Oracle().work(task, box, assignment)


def table(results: list[BenchResult]) -> Any:
    return summarise([*results], ("no-skill", "with-skill"), ("oracle",)), sorted(
        (one.key, one.reward, one.error_kind) for one in results
    )


def without_times(content: Any) -> str:
    summary, trials = content
    for side in (*summary["arms"], *summary["domains"]):
        side.pop("mean_seconds")
    return json.dumps([summary, trials])


async def test_interrupted_anywhere_and_resumed_it_ends_in_the_same_table_and_runs_no_trial_twice(
    tmp_path: Path,
) -> None:
    tasks = [
        make_task(tmp_path / "tasks", "one"),
        make_task(tmp_path / "tasks", "two", solution__solve_DOT_sh="true\n"),
    ]
    plan = plan_of(tasks, ("no-skill", "with-skill"), ("oracle",), trials=2)
    whole = await carry_out(plan, settings_for(HostSandbox(tmp_path / "a"), tmp_path / "whole"))
    draw = random.Random(5)
    for number in range(3):
        out = tmp_path / f"out-{number}"
        agent = Interrupts(draw.randrange(1, len(plan)))
        agent.run = asyncio.create_task(
            carry_out(plan, settings_for(HostSandbox(tmp_path / f"b{number}"), out, [agent]), parallel=2)
        )
        with pytest.raises(asyncio.CancelledError):
            await agent.run
        kept = len(rows(out))
        with (out / "results.jsonl").open("a") as file:
            file.write('{"task": "one", "ar')  # as a killed process leaves it
        resumed = await carry_out(
            plan, settings_for(HostSandbox(tmp_path / f"c{number}"), out, [Oracle()]), resume=True
        )
        assert resumed.resumed == kept
        assert len(rows(out)) == len(plan)
        assert without_times(table([*resumed.results.values()])) == without_times(table([*whole.results.values()]))


async def test_trials_that_were_not_measured_run_again_and_the_last_row_counts(tmp_path: Path) -> None:
    plan = plan_of([make_task(tmp_path / "tasks")], agents=("oracle",))
    first = await carry_out(plan, settings_for(HostSandbox(tmp_path, {"answer": 3}), tmp_path / "out"))
    assert not [result for result in first.results.values() if result.measured]
    second = await carry_out(plan, settings_for(HostSandbox(tmp_path), tmp_path / "out"), resume=True)
    assert [result.reward for result in second.results.values()] == [1.0]
    third = await carry_out(plan, settings_for(HostSandbox(tmp_path), tmp_path / "out"), resume=True)
    assert third.resumed == 1
    assert len(rows(tmp_path / "out")) == 2


async def test_results_of_other_settings_or_of_a_changed_task_are_not_continued(tmp_path: Path) -> None:
    task = make_task(tmp_path / "tasks")
    await carry_out(plan_of([task], model="a"), settings_for(HostSandbox(tmp_path), tmp_path / "out"))
    with pytest.raises(ConfigError, match="other settings"):
        await carry_out(plan_of([task], model="b"), settings_for(HostSandbox(tmp_path), tmp_path / "out"), resume=True)
    changed = make_task(tmp_path / "tasks", tests__test_DOT_sh=GRADES + "true\n")
    with pytest.raises(ConfigError, match="answer"):
        await carry_out(
            plan_of([changed], model="a"), settings_for(HostSandbox(tmp_path), tmp_path / "out"), resume=True
        )


async def test_results_that_are_there_are_never_mixed_in_unasked(tmp_path: Path) -> None:
    plan: list[BenchTrial] = plan_of([make_task(tmp_path / "tasks")], agents=("nop",))
    await carry_out(plan, settings_for(HostSandbox(tmp_path), tmp_path / "out", [Nop()]))
    with pytest.raises(ConfigError, match="--resume"):
        await carry_out(plan, settings_for(HostSandbox(tmp_path), tmp_path / "out", [Nop()]))
