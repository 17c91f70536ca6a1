"""Container mode with real engines, Docker and Podman; their base image is made of packages."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn, cast

import docker.errors
import pytest
import requests

import container_engines
from adk_skills_agent.errors import SandboxError, SandboxUnavailable
from adk_skills_agent.evals.skillsbench import container_image
from adk_skills_agent.evals.skillsbench.container_mode import ContainerMode, open_container_mode
from adk_skills_agent.evals.skillsbench.environment import BuildError, Phase, TaskEnvironment
from adk_skills_agent.evals.skillsbench.task import Task
from adk_skills_agent.evals.skillsbench.trial import grade
from evals.skillsbench.bench_tasks import carry_out, make_task, plan_of, settings_for
from evals.skillsbench.container_modes import opened_mode

pytestmark = pytest.mark.slow

BASE = "debian:12"
DOCKERFILE = f"FROM {BASE}\nENV WORD=hello\nWORKDIR /app\nCOPY skills /root/.claude/skills\nCOPY . /everything\n"


@pytest.fixture
async def containers(engine: container_engines.StartedEngine, store: Path) -> AsyncIterator[ContainerMode]:
    async with opened_mode(store) as mode:
        yield mode


async def opened(mode: ContainerMode, task: Task, *, with_skills: bool = True) -> TaskEnvironment:
    image = await mode.build(task, with_skills=with_skills, rebuild=False, say=lambda _: None)
    return await mode.open(task, image)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return make_task(tmp_path / "tasks", environment__Dockerfile=DOCKERFILE)


@pytest.mark.requirement("S0-130")
async def test_the_oracle_gets_one_and_nobody_gets_zero_in_containers(
    containers: ContainerMode, task: Task, tmp_path: Path
) -> None:
    settings = settings_for(containers, tmp_path / "out")
    state = await carry_out(plan_of([task], ("no-skill", "with-skill")), settings)
    assert sorted((one.agent, one.arm, one.reward, one.error) for one in state.results.values()) == [
        ("nop", "no-skill", 0.0, None),
        ("nop", "with-skill", 0.0, None),
        ("oracle", "no-skill", 1.0, None),
        ("oracle", "with-skill", 1.0, None),
    ]
    row = json.loads((tmp_path / "out" / "results.jsonl").read_text().splitlines()[0])
    assert row["sandbox"] == "container"


@pytest.mark.requirement("S0-128")
async def test_an_image_without_skills_has_none_and_each_is_built_once(containers: ContainerMode, task: Task) -> None:
    find = "find / -xdev -iname '*answering*' -not -path '/proc/*'; ls /everything"
    for with_skills in (False, True):
        image = await containers.build(task, with_skills=with_skills, rebuild=False, say=lambda _: None)
        again = await containers.build(task, with_skills=with_skills, rebuild=False, say=lambda _: None)
        assert image.handle == again.handle
        assert again.cached
        anew = await containers.build(task, with_skills=with_skills, rebuild=True, say=lambda _: None)
        assert not anew.cached
        assert (image.workdir, image.env["WORD"]) == ("/app", "hello")
        box = await containers.open(task, image)
        try:
            found = (await box.run(("bash", "-c", find), seconds=60)).text
        finally:
            await box.close()
        assert ("answering" in found) == with_skills
        assert "data.txt" in found


def with_settings_in_small_letters(image: bytes) -> bytes:
    """An image of which Go reads the same settings, as whoever pushes it to a registry may write them."""
    made = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(image)) as packed, tarfile.open(fileobj=made, mode="w") as out:
        [told] = json.load(packed.extractfile("manifest.json") or io.BytesIO())
        settings = packed.extractfile(told["Config"])
        assert settings is not None
        changed = settings.read().replace(b'"OnBuild"', b'"onbuild"')
        small = {"Config": f"{hashlib.sha256(changed).hexdigest()}.json", "RepoTags": ["adk-skills-test:small"]}
        for member in packed:
            if member.name not in {told["Config"], "manifest.json", "repositories", "index.json", "oci-layout"}:
                out.addfile(member, packed.extractfile(member) if member.isreg() else None)
        for name, data in ((str(small["Config"]), changed), ("manifest.json", json.dumps([told | small]).encode())):
            header = tarfile.TarInfo(name)
            header.size = len(data)
            out.addfile(header, io.BytesIO(data))
    return made.getvalue()


async def test_rows_472_and_487_neither_mounts_nor_a_bases_own_instructions_lead_out_of_a_build(
    containers: ContainerMode, tmp_path: Path
) -> None:
    """Seen with Podman 4.3: the cache was any folder of the machine, or another task's."""
    secret = tmp_path / "host"
    secret.mkdir(mode=0o777)
    up = f"{'../' * 20}{str(secret).lstrip('/')}"
    mount = f"RUN --mount=type=cache,id={up},target=/m mkdir -p /m && touch /m/planted"
    made = make_task(tmp_path / "mounting", environment__Dockerfile=f"FROM {BASE}\n{mount}\n")
    await containers.build(made, with_skills=True, rebuild=True, say=lambda _: None)
    assert not list(secret.iterdir())
    client = cast(Any, containers)._client
    built = f"skillsbench-{made.name}:latest"
    trigger = f"FROM {built}\nONBUILD RUN touch /triggered\n".encode()
    said = list(client.api.build(fileobj=io.BytesIO(trigger), tag="adk-skills-test:triggers", rm=True, decode=True))
    assert not any("error" in message for message in said), said
    try:
        container_image._check_base(client, "a task", built, "", time.monotonic() + 60)
        with pytest.raises(BuildError, match="has ONBUILD instructions"):  # which Podman's inspect does not tell
            container_image._check_base(client, "a task", "adk-skills-test:triggers", "", time.monotonic() + 60)
        client.images.load(with_settings_in_small_letters(b"".join(client.api.get_image("adk-skills-test:triggers"))))
        with pytest.raises(BuildError, match="has ONBUILD instructions"):
            container_image._check_base(client, "a task", "adk-skills-test:small", "", time.monotonic() + 60)
        with pytest.raises(BuildError, match=r"is for .* here, and not for linux/s390x"):
            container_image._check_base(client, "a task", built, "linux/s390x", time.monotonic() + 60)
    finally:
        for tag in ("triggers", "small"):
            with contextlib.suppress(docker.errors.ImageNotFound):
                client.images.remove(f"adk-skills-test:{tag}")


async def test_mounts_and_platforms_of_usual_dockerfiles_are_built(containers: ContainerMode, tmp_path: Path) -> None:
    """Seen: refused. An engine of Docker's older kind knows none of them."""
    text = (
        f"ARG BASE={BASE}\nFROM --platform=$BUILDPLATFORM ${{BASE}} AS one\nWORKDIR /app\n"
        "RUN --network=none --mount=type=cache,target=/c \\\n  # why\n"
        "  --mount=type=bind,source=data.txt,target=found.txt cp found.txt copy.txt\n"
        "FROM --platform=linux ${BASE}\n"
        "RUN --mount=from=one,source=/app/copy.txt,target=/two.txt cp /two.txt /three.txt\n"
    )
    task = make_task(tmp_path / "usual", environment__Dockerfile=text)
    image = await containers.build(task, with_skills=True, rebuild=True, say=lambda _: None)
    box = await containers.open(task, image)
    try:
        assert (await box.run(("cat", "/three.txt"), seconds=60)).text == "data\n"
    finally:
        await box.close()


@pytest.mark.requirement("S0-131")
async def test_a_command_does_not_hold_the_event_loop_and_ends_at_its_time(
    containers: ContainerMode, task: Task
) -> None:
    box = await opened(containers, task)
    try:
        running = asyncio.create_task(box.run(("sleep", "600"), seconds=3))
        pauses, last = [], time.monotonic()
        while not running.done():
            await asyncio.sleep(0.05)
            pauses.append(time.monotonic() - last)
            last = time.monotonic()
        assert (await running).timed_out
        assert len(pauses) > 10
        assert max(pauses) < 1.0
    finally:
        await box.close()


async def test_an_engine_that_forgot_a_killed_command_answers_for_its_end(
    containers: ContainerMode, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with Podman 4.3: the command that was ended at its time was an error of the container."""
    box = await opened(containers, task)

    def forgotten(name: str) -> NoReturn:
        response = requests.Response()
        response.status_code = 500
        said = f"retrieving exec session {name}: no such exec session"
        raise docker.errors.APIError("forgotten", response=response, explanation=said)

    try:
        monkeypatch.setattr(cast(Any, box)._client.api, "exec_inspect", forgotten)
        ran = await box.run(("true",), seconds=60)
        assert (ran.exit_code, ran.timed_out) == (None, False)
    finally:
        await box.close()


@pytest.mark.requirement("S0-130")
async def test_a_command_has_a_time_an_exit_code_and_an_input(containers: ContainerMode, task: Task) -> None:
    box = await opened(containers, task)
    try:
        ran = await box.run(("bash", "-c", "cat; echo $WORD $MORE; pwd; exit 3"), seconds=60, stdin=b"in\n")
        assert (ran.exit_code, ran.text) == (3, "in\nhello\n/app\n")
        ran = await box.run(("env",), seconds=60, phase=Phase(env=(("MORE", "x y"),)))
        assert "MORE=x y\n" in ran.text
        ran = await box.run(("bash", "-c", "echo kept > kept; setsid sleep 600 & echo begun; sleep 600"), seconds=3)
        assert (ran.exit_code, ran.timed_out, ran.text) == (None, True, "begun\n")
        ran = await box.run(("bash", "-c", "cat kept; grep -l [s]leep.600 /proc/[0-9]*/cmdline | wc -l"), seconds=60)
        assert ran.text == "kept\n0\n"
    finally:
        await box.close()


async def test_a_command_ends_when_its_process_does_whatever_becomes_of_its_output(
    containers: ContainerMode, task: Task
) -> None:
    box = await opened(containers, task)
    try:
        ran = await box.run(("bash", "-c", "exec >/dev/null 2>&1; sleep 3; echo late > late; exit 5"), seconds=60)
        assert (ran.exit_code, ran.text) == (5, "")
        ran = await box.run(("bash", "-c", "cat late; sleep 300 & exit 6"), seconds=120)
        assert (ran.exit_code, ran.text, ran.timed_out) == (6, "late\n", False)
    finally:
        await box.close()


async def test_processes_an_agent_left_are_ended_before_grading(containers: ContainerMode, tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "tasks",
        environment__Dockerfile=DOCKERFILE,
        tests__test_DOT_sh="sleep 2; ls /proc/[0-9]*/cmdline | wc -l; [ -e /app/answer.txt ] && r=1 || r=0\n"
        "echo $r > /logs/verifier/reward.txt\n",
    )
    box = await opened(containers, task)
    try:
        cheat = "(while true; do echo 1 > /logs/verifier/reward.txt; echo 42 > /app/answer.txt; sleep 0.1; done) &"
        await box.run(("bash", "-c", f"setsid bash -c '{cheat}' >/dev/null 2>&1 </dev/null"), seconds=30)
        await box.end_processes()
        await box.run(("rm", "-f", "/app/answer.txt"), seconds=30)
        assert (await grade(task, box, Phase())).reward == 0.0
    finally:
        await box.close()


@pytest.mark.parametrize(
    "plants",
    [
        "rm -rf /tests /logs/verifier; ln -s /etc /tests; ln -s /root /logs/verifier",
        "rm -rf /logs; ln -s /root /logs; mkdir -p /tests; echo 'echo 1 >/logs/verifier/reward.txt' > /tests/test.sh",
    ],
)
async def test_links_an_agent_plants_are_not_followed(containers: ContainerMode, task: Task, plants: str) -> None:
    box = await opened(containers, task)
    try:
        await box.run(("bash", "-c", plants), seconds=30)
        given = await grade(task, box, Phase())
        assert (given.reward, given.error) == (0.0, None)
        assert (await box.run(("ls", "/etc/passwd"), seconds=30)).exit_code == 0
    finally:
        await box.close()


async def test_a_reward_that_is_a_link_is_not_read_in_a_container(containers: ContainerMode, tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "tasks",
        environment__Dockerfile=DOCKERFILE,
        tests__test_DOT_sh="echo 1 > /one; ln -s /one /logs/verifier/reward.txt\n",
    )
    box = await opened(containers, task)
    try:
        assert (await grade(task, box, Phase())).reward is None
    finally:
        await box.close()


async def test_a_dockerfile_that_fails_says_what_the_engine_said(containers: ContainerMode, tmp_path: Path) -> None:
    task = make_task(tmp_path / "tasks", environment__Dockerfile=f"FROM {BASE}\nRUN echo because; exit 9\n")
    with pytest.raises(BuildError, match="the engine could not build it") as failed:
        await opened(containers, task)
    assert "because" in failed.value.output
    assert "freed" in await containers.prune()


async def test_row_283_a_build_and_a_container_end_when_the_machine_has_next_to_nothing_left(
    containers: ContainerMode, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await opened(containers, task)
    with monkeypatch.context() as patch:
        patch.setattr("adk_skills_agent.evals.skillsbench.environment.what_is_scarce", lambda _: "the disk is full")
        with pytest.raises(SandboxError, match="was removed, because the disk is full"):
            await box.run(("sleep", "60"), seconds=60)
    await box.close()
    long = make_task(tmp_path / "tasks", "long", environment__Dockerfile=f"FROM {BASE}\nRUN echo because; sleep 60\n")
    monkeypatch.setattr("adk_skills_agent.evals.skillsbench.container_image.what_is_scarce", lambda _: "it is full")
    with pytest.raises(BuildError, match="the build was ended, because it is full"):
        await opened(containers, long)


@pytest.mark.requirement("S0-125")
def test_an_engine_that_does_not_answer_ends_with_a_sentence_and_code_1(tmp_path: Path) -> None:
    pytest.importorskip("docker")
    make_task(tmp_path / "tasks")
    done = subprocess.run(
        [
            *(Path(sys.executable).parent / "adk-skills", "bench", "skillsbench", "--tasks-dir", tmp_path / "tasks"),
            *("--sandbox", "container", "--agent", "nop", "--out", tmp_path / "out"),
        ],
        env={**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/nothing.sock"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no engine answers" in done.stderr
    assert "--sandbox local" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.requirement("S0-125")
def test_without_an_engine_the_mode_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    with pytest.raises(SandboxUnavailable, match="Start Docker or Podman"):
        open_container_mode()
