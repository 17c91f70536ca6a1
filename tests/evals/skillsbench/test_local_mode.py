"""Local mode over a real Debian root. Making that takes half a minute, so these are slow."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.evals.skillsbench.environment import BuildError, Phase, TaskEnvironment
from adk_skills_agent.evals.skillsbench.local_image import LocalImage
from adk_skills_agent.evals.skillsbench.local_mode import LocalMode
from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.evals.skillsbench.trial import grade
from adk_skills_agent.sandbox import control_groups_problem
from evals.skillsbench.bench_tasks import make_task

pytestmark = pytest.mark.slow

DOCKERFILE = """FROM debian:12
ARG GREETING=hello
ENV WORD=${GREETING} OTHER="two words"
WORKDIR /app
RUN echo "$WORD" > said.txt
COPY data.txt ./copied/
COPY --chmod=600 data.txt /app/secret.txt
COPY <<EOF /app/here.txt
$WORD
EOF
COPY skills /root/.claude/skills
COPY skills/answering /root/.agents/skills/answering
COPY . /everything
"""


async def opened(mode: LocalMode, task: Task, *, with_skills: bool = True) -> TaskEnvironment:
    image = await mode.build(task, with_skills=with_skills, rebuild=False, say=lambda _: None)
    return await mode.open(task, image)


async def output(box: TaskEnvironment, script: str, seconds: float = 60, phase: Phase | None = None) -> str:
    ran = await box.run(("bash", "-c", script), seconds=seconds, phase=phase)
    assert ran.exit_code == 0, ran.text
    return ran.text


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path, environment__Dockerfile=DOCKERFILE)


async def test_a_dockerfile_becomes_files_variables_and_a_working_directory(local: LocalMode, task: Task) -> None:
    box = await opened(local, task)
    try:
        said = await output(
            box,
            'pwd; cat said.txt copied/data.txt here.txt; echo "$OTHER"; stat -c %a secret.txt; id -u; ls /root/.claude',
        )
        assert said == "/app\nhello\ndata\nhello\ntwo words\n600\n0\nskills\n"
    finally:
        await box.close()


async def test_without_skills_they_are_nowhere_in_the_box(local: LocalMode, task: Task) -> None:
    find = (
        "find / -xdev -iname '*answering*' -not -path '/proc/*'; ls -d /root/.claude /root/.agents 2>/dev/null; "
        "ls /everything"
    )
    for with_skills, expected in ((False, "data.txt\n"), (True, None)):
        box = await opened(local, task, with_skills=with_skills)
        try:
            found = (await box.run(("bash", "-c", find), seconds=60)).text
        finally:
            await box.close()
        if expected is None:
            assert {"/root/.claude/skills/answering", "/everything/skills/answering"} <= set(found.split())
        else:
            assert found == expected


async def test_copying_keeps_the_folders_that_are_there_as_they_are(local: LocalMode, tmp_path: Path) -> None:
    task = make_task(
        tmp_path,
        environment__Dockerfile="FROM debian:12\nCOPY data.txt /usr/bin/\nCOPY data.txt /tmp/\nCOPY data.txt /bin/\n",
    )
    box = await opened(local, task)
    try:
        assert (
            await output(box, "stat -L -c %a /usr/bin /tmp; test -L /bin && cat /bin/data.txt") == "755\n1777\ndata\n"
        )
    finally:
        await box.close()


@pytest.mark.requirement("S0-129")
async def test_tasks_share_the_layers_of_what_they_begin_with(local: LocalMode, tmp_path: Path) -> None:
    mark = time.time_ns()
    begin = f"FROM debian:12\nRUN echo {mark} > /mark\n"
    keys = []
    for name in (f"one-{mark}", f"two-{mark}"):
        task = make_task(tmp_path, name, environment__Dockerfile=f"{begin}RUN echo {name} > /name\n")
        image = await local.build(task, with_skills=True, rebuild=False, say=lambda _: None)
        assert isinstance(image.handle, LocalImage)
        assert not image.cached
        keys.append(image.handle.layers)
    assert keys[0][1:] == keys[1][1:]
    assert keys[0][0] != keys[1][0]
    again = await local.build(task, with_skills=True, rebuild=False, say=lambda _: None)
    assert isinstance(again.handle, LocalImage)
    assert (again.handle.layers, again.cached) == (keys[1], True)
    anew = await local.build(task, with_skills=True, rebuild=True, say=lambda _: None)
    assert isinstance(anew.handle, LocalImage)
    assert not set(anew.handle.layers[:-1]) & set(keys[1])
    assert not anew.cached


async def test_packages_are_installed_in_the_root_and_never_on_the_host(local: LocalMode, tmp_path: Path) -> None:
    # Its installation makes a group, which asks the kernel for an audit socket.
    task = make_task(
        tmp_path,
        environment__Dockerfile="FROM debian:12\nRUN apt-get update\nRUN apt-get install -y -qq openssh-client\n",
    )
    before = Path("/var/lib/dpkg/status").stat().st_mtime_ns
    box = await opened(local, task)
    try:
        assert "_ssh" in await output(box, "getent group _ssh; dpkg -s openssh-client | grep Status")
    finally:
        await box.close()
    assert Path("/var/lib/dpkg/status").stat().st_mtime_ns == before


async def test_a_step_that_fails_names_its_line_and_keeps_its_last_words(local: LocalMode, tmp_path: Path) -> None:
    task = make_task(tmp_path, environment__Dockerfile="FROM debian:12\nRUN true\nRUN echo because >&2; exit 9\n")
    with pytest.raises(BuildError, match="code 9: line 3") as failed:
        await opened(local, task)
    assert "because" in failed.value.output


@pytest.mark.requirement("S0-128")
async def test_a_build_out_of_time_ends_and_leaves_no_layer(local: LocalMode, store: Path, tmp_path: Path) -> None:
    task = make_task(
        tmp_path,
        environment__Dockerfile="FROM debian:12\nRUN sleep 600\n",
        task_DOT_toml="[environment]\nbuild_timeout_sec = 20\n",
    )
    with pytest.raises(BuildError, match="longer than 20 seconds"):
        await opened(local, task)
    assert not list((store / "layers").glob(f"new-{os.getpid()}-*"))


@pytest.fixture
async def box(local: LocalMode, task: Task) -> TaskEnvironment:
    return await opened(local, task)


async def test_a_command_out_of_time_is_ended_with_what_it_left_behind(box: TaskEnvironment) -> None:
    try:
        ran = await box.run(("bash", "-c", "setsid sleep 98765 & sleep 98765 & sleep 98765"), seconds=1)
        assert (ran.exit_code, ran.timed_out) == (None, True)
        await box.run(("bash", "-c", "setsid nohup sleep 98765 >/dev/null 2>&1 & disown"), seconds=30)
        left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _command(path) == b"sleep\x0098765\x00"]
        assert not left
    finally:
        await box.close()


async def test_files_stay_from_command_to_command_and_go_with_the_box(
    local: LocalMode, task: Task, box: TaskEnvironment
) -> None:
    await output(box, "echo kept > /app/kept; rm /app/said.txt")
    assert await output(box, "cat /app/kept; ls /app") == "kept\ncopied\nhere.txt\nkept\nsecret.txt\n"
    await box.close()
    await box.close()
    other = await opened(local, task)
    try:
        assert "said.txt" in await output(other, "ls /app")
    finally:
        await other.close()


async def test_memory_is_limited(local: LocalMode, tmp_path: Path) -> None:
    if missing := control_groups_problem():
        pytest.skip(missing)
    task = make_task(
        tmp_path, environment__Dockerfile="FROM debian:12\n", task_DOT_toml='[environment]\nmemory = "64M"\n'
    )
    box = await opened(local, task)
    try:
        ran = await box.run(("bash", "-c", "head -c 400M /dev/zero | tail; echo survived"), seconds=60)
        assert "survived" not in ran.text or "Killed" in ran.text
        ran = await box.run(("tail", "/dev/zero"), seconds=60)
        assert ran.exit_code in (None, 137)
        assert await output(box, "echo still here") == "still here\n"
    finally:
        await box.close()


async def test_a_network_is_there_when_the_phase_says_so(box: TaskEnvironment) -> None:
    devices = "cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' ' | sort"
    try:
        assert await output(box, devices) == "lo\n"
        assert len((await output(box, devices, phase=Phase(network=True))).split()) > 1
    finally:
        await box.close()


async def test_the_host_is_not_in_the_box(box: TaskEnvironment) -> None:
    try:
        assert (await output(box, "cat /etc/debian_version; ls /work 2>&1 || true")).startswith("12.")
        assert "No such file" in await output(box, "ls /work 2>&1 || true")
        assert int(await output(box, "ls -d /proc/[0-9]* | wc -l")) < 10
        assert "denied" in await output(box, "mount -t tmpfs x /mnt 2>&1 || true")
    finally:
        await box.close()


@pytest.mark.parametrize(
    "plants",
    [
        "rm -rf /tests /logs/verifier; ln -s /etc /tests; ln -s /root /logs/verifier",
        "rm -rf /logs; ln -s /root /logs; mkdir -p /tests; echo 'echo 1 >/logs/verifier/reward.txt' > /tests/test.sh",
        "rm -rf /tests; mkfifo /tests; rm -rf /logs/verifier; echo 1 > /logs/verifier",
        "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; chattr +i /logs/verifier/reward.txt || true",
    ],
)
async def test_what_an_agent_plants_where_the_tests_go_does_not_count(
    local: LocalMode, task: Task, box: TaskEnvironment, plants: str
) -> None:
    try:
        await box.run(("bash", "-c", plants), seconds=30)
        given = await grade(task, box, Phase())
        assert (given.reward, given.error) == (0.0, None)
        await output(box, "ls /etc/passwd")
    finally:
        await box.close()


async def test_a_reward_that_is_a_link_to_a_secret_is_not_read(local: LocalMode, tmp_path: Path) -> None:
    task = make_task(
        tmp_path,
        environment__Dockerfile="FROM debian:12\nWORKDIR /app\n",
        tests__test_DOT_sh="ln -s /etc/shadow /logs/verifier/reward.txt; mkfifo /logs/verifier/reward.json\n",
    )
    box = await opened(local, task)
    try:
        given = await grade(task, box, Phase())
        assert given.reward is None
        assert "left no reward" in (given.error or "")
    finally:
        await box.close()


async def test_a_cancelled_command_leaves_nothing_running_and_the_box_usable(box: TaskEnvironment) -> None:
    try:
        nap = f"876.{os.getpid()}"
        running = asyncio.create_task(box.run(("sleep", nap), seconds=600))
        await _until(
            lambda: any(_command(path) == f"sleep\0{nap}\0".encode() for path in Path("/proc").glob("[0-9]*/cmdline"))
        )
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not any(_command(path) == f"sleep\0{nap}\0".encode() for path in Path("/proc").glob("[0-9]*/cmdline"))
        assert await output(box, "echo usable") == "usable\n"
    finally:
        await box.close()


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.05)


def _command(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
