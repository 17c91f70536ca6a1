"""Bad images and Dockerfiles: typed, in seconds, with what to do."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from adk_skills_agent.errors import ImageUnavailable, SandboxError, SandboxUnavailable
from adk_skills_agent.sandbox.container import ContainerOptions, ContainerSandbox, container, shipped_image
from adk_skills_agent.sandbox.contract import ExecutionRequest, Network, SandboxPolicy, Status
from adk_skills_agent.sandbox.supervisor import frames
from container_engines import StartedEngine, client, owned

pytestmark = pytest.mark.slow
TRUE = ExecutionRequest(("true",), SandboxPolicy(warm_slots=0))


@pytest.fixture
def no_python(engine: StartedEngine) -> str:
    """An image with nothing but one empty file."""
    name = f"localhost/adk-skills-test-empty-{engine.name}"
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    found = client(engine)
    try:
        found.api.import_image_from_data(stream.getvalue(), repository=name, tag="latest")
    finally:
        found.close()
    return f"{name}:latest"


async def refusal(sandbox: ContainerSandbox, kind: type[SandboxError]) -> str:
    try:
        with pytest.raises(kind) as caught:
            await sandbox.run(TRUE)
    finally:
        await sandbox.close()
    return caught.value.message


async def test_an_image_that_is_not_there_is_said_with_what_to_do(engine: StartedEngine) -> None:
    missing = ContainerSandbox("localhost/adk-skills-no-such-image:1", base_url=engine.url)
    said = await refusal(missing, ImageUnavailable)
    assert "could not pull it" in said
    assert "ADK_SKILLS_CONTAINER_IMAGE=NAME" in said
    assert str(shipped_image()) in said  # it is in the wheel


async def test_an_image_without_python_is_said_with_what_to_do(engine: StartedEngine, no_python: str) -> None:
    said = await refusal(ContainerSandbox(no_python, base_url=engine.url), ImageUnavailable)
    assert "has no 'python3'" in said
    assert "ContainerOptions(python=...)" in said
    assert owned(engine) == []


async def test_an_image_whose_python_is_something_else_is_said(engine: StartedEngine) -> None:
    options = ContainerOptions(python="/bin/cat")  # reads our arguments as files, and ends
    said = await refusal(ContainerSandbox(engine.image, base_url=engine.url, options=options), SandboxError)
    assert "ended before anything in it answered" in said
    assert owned(engine) == []


async def test_a_container_that_never_answers_is_given_up(
    engine: StartedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "READY_SECONDS", 1.0)
    monkeypatch.setattr(container, "program_text", lambda: "import time; time.sleep(600)")
    said = await refusal(ContainerSandbox(engine.image, base_url=engine.url), SandboxError)
    assert "nothing in it answered within 1 s" in said
    assert owned(engine) == []


async def test_another_version_of_the_protocol_is_said(engine: StartedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    older = container.program_text().replace(f"PROTOCOL = {frames.PROTOCOL}", f"PROTOCOL = {frames.PROTOCOL + 1}")
    monkeypatch.setattr(container, "program_text", lambda: older)
    said = await refusal(ContainerSandbox(engine.image, base_url=engine.url), SandboxError)
    assert "protocol" in said
    assert owned(engine) == []


async def test_what_is_no_program_of_ours_cannot_lead_the_agent_astray(
    engine: StartedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = "import sys; sys.stdin.buffer.read(1); sys.stdout.buffer.write(b'\\xff' * 100); sys.stdout.flush()"
    monkeypatch.setattr(container, "program_text", lambda: forged)
    said = await refusal(ContainerSandbox(engine.image, base_url=engine.url), SandboxError)
    assert "cannot be understood" in said


async def test_a_folder_without_a_dockerfile_and_a_bad_one_are_said(engine: StartedEngine, tmp_path: Path) -> None:
    nothing = ContainerSandbox(docker_path=str(tmp_path), base_url=engine.url)
    assert "has no Dockerfile" in await refusal(nothing, ImageUnavailable)
    (tmp_path / "Dockerfile").write_text(f"FROM {engine.image}\nNONSENSE here\n")
    bad = ContainerSandbox("adk-skills-test-bad", docker_path=str(tmp_path), base_url=engine.url)
    assert "NONSENSE" in (await refusal(bad, ImageUnavailable)).upper()


async def test_an_image_is_built_with_progress(docker_engine: StartedEngine, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {docker_engine.image}\nENV BUILT=here\nLABEL a=b\n")
    lines: list[str] = []
    built = ContainerSandbox(
        "adk-skills-test-built", docker_path=str(tmp_path), base_url=docker_engine.url, on_progress=lines.append
    )
    try:
        assert (await built.run(TRUE)).status is Status.OK
    finally:
        await built.close()
    assert any("FROM" in line for line in lines)


@pytest.mark.requirement("S0-99", "S0-104")
def test_the_shipped_image_is_found_and_pinned() -> None:
    text = (shipped_image() / "Dockerfile").read_text()
    assert "FROM python:3.13-slim@sha256:" in text
    assert "USER 65534:65534" in text


async def test_policies_a_container_cannot_keep_are_refused(sandbox: ContainerSandbox) -> None:
    for policy in (SandboxPolicy(network=Network.allow("pypi.org")), SandboxPolicy(isolation="landlock")):
        with pytest.raises(SandboxUnavailable) as caught:
            await sandbox.run(ExecutionRequest(("true",), policy))
        assert caught.value.reasons
