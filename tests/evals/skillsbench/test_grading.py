from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.evals.skillsbench import local_run
from adk_skills_agent.evals.skillsbench.container_mode import ContainerEnvironment
from adk_skills_agent.evals.skillsbench.engine_options import EngineOptions
from adk_skills_agent.evals.skillsbench.environment import BuiltImage, Phase
from adk_skills_agent.evals.skillsbench.trial import grade, reward_of
from adk_skills_agent.sandbox import what_is_scarce
from evals.skillsbench.bench_tasks import HostBox, make_task


@pytest.mark.parametrize(
    ("text", "named", "reward"),
    [
        (b"1", None, 1.0),
        (b" 1.000\n", None, 1.0),
        (b"0.25\n", b'{"reward": 1}', 0.25),
        (None, b'{"reward": 0.5}', 0.5),
        (None, b'{"reward": {"a": 1, "b": 0}}', 0.5),
        (None, b'{"tests": 1, "style": 0.5}', 0.75),
        (None, b"1", 1.0),
    ],
)
@pytest.mark.requirement("S0-135")
def test_a_reward_is_a_number_from_the_text_else_from_the_json(
    text: bytes | None, named: bytes | None, reward: float
) -> None:
    assert reward_of(text, named) == (reward, None)


@pytest.mark.parametrize(
    ("text", "named", "problem"),
    [
        (None, None, "neither"),
        (b"", None, "no number from 0 to 1"),
        (b"pass", None, "'pass'"),
        (b"nan", None, "'nan'"),
        (b"2", None, "'2'"),
        (b"-1", None, "'-1'"),
        (None, b"{", "is no JSON"),
        (None, b"{}", "names no reward"),
        (None, b'{"reward": true}', "no number"),
        (None, b'{"a": 1, "b": "x"}', "b in reward.json"),
        (None, b"[" * 100_000, "is no JSON"),
    ],
)
@pytest.mark.requirement("S0-135")
def test_what_is_no_reward_is_an_error_and_not_a_zero(text: bytes | None, named: bytes | None, problem: str) -> None:
    reward, said = reward_of(text, named)
    assert reward is None
    assert problem in (said or "")


@pytest.mark.requirement("S0-127")
async def test_a_verifier_out_of_time_keeps_the_reward_it_left(tmp_path: Path) -> None:
    late = "echo 1 > /logs/verifier/reward.txt; sleep 60\n"
    toml = "[verifier]\ntimeout_sec = 1\n"
    for name, script, reward in (("late", late, 1.0), ("never", "sleep 60\n", None)):
        task = make_task(tmp_path, name, tests__test_DOT_sh=script, task_DOT_toml=toml)
        given = await grade(task, HostBox(tmp_path / f"box-{name}", None), Phase())
        assert (given.reward, given.timed_out) == (reward, True)
        assert ("longer than 1 seconds" in (given.error or "")) == (reward is None)


async def test_the_report_and_the_last_words_of_a_verifier_are_kept(tmp_path: Path) -> None:
    script = "echo started; echo '{\"results\": {}}' > /logs/verifier/ctrf.json; echo 1 > /logs/verifier/reward.txt\n"
    task = make_task(tmp_path, tests__test_DOT_sh=script)
    given = await grade(task, HostBox(tmp_path / "box", None), Phase())
    assert (given.reward, given.output, given.report) == (1.0, "started\n", '{"results": {}}\n')
    assert given.passed is True


async def test_row_156_a_folder_in_place_of_a_reward_does_not_fill_the_memory() -> None:
    """Seen: of a folder with a sparse file of a terabyte in place of ``reward.txt`` all was taken, before a look."""
    sent = 0

    def folder() -> Iterator[bytes]:
        nonlocal sent
        while sent < 64 << 20:
            sent += 1 << 20
            yield bytes(1 << 20)

    container = SimpleNamespace(id="c", name="c", get_archive=lambda _: (folder(), {"size": 4096}))
    image = BuiltImage("i", {}, "/app", 0.0, (), None)
    box = ContainerEnvironment(None, container, image, None, EngineOptions())
    assert await box.read("/logs/verifier/reward.txt", 64 << 10) is None
    assert sent < 4 << 20


async def test_row_156_the_shell_of_a_task_that_prints_for_ever_does_not_fill_the_memory() -> None:
    said = _Endless()
    api = SimpleNamespace(
        exec_create=lambda *_, **__: {"Id": "e"},
        exec_start=lambda *_, **__: said,
        exec_inspect=lambda _: {"ExitCode": 0},
    )
    container = SimpleNamespace(id="c", name="c")
    image = BuiltImage("i", {}, "/app", 0.0, (), None)
    box = ContainerEnvironment(SimpleNamespace(api=api), container, image, None, EngineOptions())
    with pytest.raises(SandboxError, match="says too much"):
        await box.empty("/logs/verifier")
    assert said.closed


async def test_row_161_a_command_in_local_mode_ends_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: nothing bounded what a task writes, and its own settings said how much of the memory it gets."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: (100 << 30, 0, 1 << 29))
    process = await asyncio.create_subprocess_exec("sleep", "30", stdout=asyncio.subprocess.PIPE)
    with pytest.raises(SandboxError, match="nearly full"):
        await local_run._followed(process, None, 20.0, time.monotonic(), None, tmp_path)
    assert process.returncode == -signal.SIGKILL
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert local_run._of_this_machine(1 << 50) == machine * 3 // 4
    assert local_run._of_this_machine(1 << 20) == 1 << 20


@pytest.mark.parametrize(
    ("used", "said"),
    [("TCP: inuse 3 orphan 0 tw 0 alloc 4 mem 301\n", "memory that there is for TCP"), ("TCP: inuse 3 mem 5\n", None)],
)
def test_row_283_what_tcp_of_the_machine_has_is_looked_at(
    used: str, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "/proc/sys/net/ipv4/tcp_mem": "100\t400\t600\n",
        "/proc/net/sockstat": f"sockets: used 9\n{used}UDP: mem 9\n",
    }
    monkeypatch.setattr(Path, "read_text", lambda path: texts[str(path)])
    assert (what_is_scarce() or "").endswith(said or "")
    assert (what_is_scarce() is None) == (said is None)


class _Endless:
    """What the engine's client gives of an exec's output."""

    def __init__(self) -> None:
        self.closed = False
        self._response = SimpleNamespace(close=lambda: setattr(self, "closed", True))

    def __iter__(self) -> Iterator[bytes]:
        return itertools.repeat(bytes(1 << 16), 1 << 10)
