"""Stopped at a random point and continued: the same table, no trial lost, none run twice."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.judge_model import JudgeCache
from adk_skills_agent.evals.row_file import Stopped, read_rows
from adk_skills_agent.evals.run.result import Ledger
from adk_skills_agent.evals.run.schedule import RunState
from adk_skills_agent.evals.summary import Summary, summarise
from adk_skills_agent.testing import GeminiServer
from evals.run.running import LOADS_AND_REPORTS, a_plan, carry_out


def figures(summary: Summary) -> Any:
    """The table without what a clock decides."""
    cells = {place: cell.to_json() for place, cell in summary.cells.items()}
    for cell in cells.values():
        del cell["seconds"]
    return cells, summary.lifts(), summary.trigger(), summary.notes()


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
async def test_cancelled_at_a_random_point_and_resumed_it_gives_the_same_table(seed: int, tmp_path: Path) -> None:
    prepared = a_plan(tmp_path, runs=4)
    draw = random.Random(seed)
    with GeminiServer(LOADS_AND_REPORTS) as server:
        whole = await carry_out(prepared, server, tmp_path / "whole")
        for stops in itertools.count():  # noqa: B007 - counted for the assertion below
            state = RunState(len(prepared.trials))
            running: list[asyncio.Future[Any]] = []
            left = draw.randrange(1, 6)

            def stop(state: RunState, _: object, running: list[Any] = running, left: int = left) -> None:
                if len(state.results) - state.resumed == left:
                    asyncio.get_running_loop().call_later(draw.random() * 0.05, running[0].cancel)

            arguments = {"state": state, "resume": True, "on_change": stop, "parallel": 3}
            running.append(asyncio.ensure_future(carry_out(prepared, server, tmp_path / "parts", **arguments)))
            try:
                await running[0]
            except asyncio.CancelledError:
                assert state.stopped in (Stopped.INTERRUPTED, None)
                continue
            break
    assert stops >= 2
    assert figures(summarise(prepared.trials, state.results)) == figures(summarise(prepared.trials, whole.results))
    rows = Counter((row["case"], row["arm"], row["run"]) for row in read_rows(tmp_path / "parts/trials.jsonl"))
    assert rows == Counter(trial.key for trial in prepared.trials)


async def test_a_torn_last_row_is_cut_off_and_said(tmp_path: Path) -> None:
    prepared = a_plan(tmp_path, runs=1)
    path = tmp_path / "out/trials.jsonl"
    with GeminiServer(LOADS_AND_REPORTS) as server:
        await carry_out(prepared, server, tmp_path / "out")
        whole = path.read_bytes()
        path.write_bytes(whole[:-40])
        assert len(list(read_rows(path))) == len(prepared.trials) - 1
        state = await carry_out(prepared, server, tmp_path / "out", resume=True)
    assert state.resumed == len(prepared.trials) - 1
    assert len(list(read_rows(path))) == len(state.results) == len(prepared.trials)
    path.write_bytes(whole + b'{"torn')
    with Ledger(tmp_path / "out", resume=True) as ledger:
        assert len(ledger.finished({trial.key: trial for trial in prepared.trials})) == len(prepared.trials)
        (note,) = ledger.notes
    assert "was cut off (6 bytes)" in note
    assert path.read_bytes() == whole


async def test_results_of_trials_not_asked_for_are_kept_and_not_counted(tmp_path: Path) -> None:
    with GeminiServer(LOADS_AND_REPORTS) as server:
        await carry_out(a_plan(tmp_path, runs=2), server, tmp_path / "out")
        fewer = a_plan(tmp_path, runs=1, pattern="poem")
        asked = len(server.requests)
        state = await carry_out(fewer, server, tmp_path / "out", resume=True)
        assert len(server.requests) == asked
    assert len(state.results) == 1
    assert len(list(read_rows(tmp_path / "out/trials.jsonl"))) == 8
    with Ledger(tmp_path / "out", resume=True) as ledger:
        ledger.finished({trial.key: trial for trial in fewer.trials})
        assert "7 rows" in ledger.notes[0]


def test_two_runs_do_not_write_into_one_folder(tmp_path: Path) -> None:
    with Ledger(tmp_path / "out"), pytest.raises(ConfigError, match="Another run writes to"):
        Ledger(tmp_path / "out")
    Ledger(tmp_path / "out").close()


def test_row_186_rows_are_not_appended_to_what_a_link_leads_to(tmp_path: Path) -> None:
    """Seen: a repository has adk-skills-eval/trials.jsonl -> ~/.bash_aliases, and a shell runs what a row says."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trials.jsonl").symlink_to(tmp_path / "aliases")
    with pytest.raises(ConfigError, match="Results cannot be written"):
        Ledger(tmp_path / "out")
    (tmp_path / "out" / "judge.jsonl").symlink_to(tmp_path / "aliases")
    with pytest.raises(OSError, match="symbolic links"):
        JudgeCache(tmp_path / "out" / "judge.jsonl").put("key", ["$(touch planted)"])
    assert not (tmp_path / "aliases").exists()


def test_a_folder_that_is_none_and_rows_that_are_none_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="Results cannot be written to"):
        Ledger(tmp_path / "file")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe/trials.jsonl")
    with pytest.raises(ConfigError, match="it is no file"):
        Ledger(tmp_path / "pipe", resume=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/trials.jsonl").write_text(json.dumps({"schema": 99}) + "\n")
    with (
        Ledger(tmp_path / "out", resume=True) as ledger,
        pytest.raises(ConfigError, match=r"trials.jsonl:1: it has schema 99"),
    ):
        ledger.finished({})
    with pytest.raises(ConfigError, match="No such file"):
        list(read_rows(tmp_path / "gone.jsonl"))
