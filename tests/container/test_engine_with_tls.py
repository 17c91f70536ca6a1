"""An engine on another machine, as far as one can have that here: by TCP with certificates of both sides."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import container_engines
from adk_skills_agent.errors import EngineUnavailable
from adk_skills_agent.sandbox.container import ContainerSandbox
from adk_skills_agent.sandbox.contract import ExecutionRequest, InputFile, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.sessions.session import SessionRequest
from adk_skills_agent.sandbox.sessions.sessions import Sessions
from certificates import Authority
from container_engines import StartedEngine

pytestmark = pytest.mark.slow
POLICY = SandboxPolicy(warm_slots=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    Authority(made).give_to_both("127.0.0.1")
    (made / "others").mkdir()
    Authority(made / "others").give_to_both("127.0.0.1")
    return made


@pytest.fixture(scope="module")
def secured(folder: Path) -> Iterator[tuple[StartedEngine, str]]:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        place = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    names = {"--tlscacert": "ca.pem", "--tlscert": "cert.pem", "--tlskey": "key.pem"}
    files = [part for option, name in names.items() for part in (option, str(folder / "server" / name))]
    with container_engines.private("docker", "-H", place, "--tlsverify", *files) as engine:
        yield engine, place


async def test_runs_sessions_and_files_work_by_tls(
    secured: tuple[StartedEngine, str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, url = secured
    monkeypatch.setenv("DOCKER_CERT_PATH", str(folder / "client"))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    (tmp_path / "SKILL.md").write_text("from the skill")
    box = ContainerSandbox(engine.image, base_url=url)
    data = bytes(range(256)) * (8 << 10)
    code = "cat /skill/SKILL.md; wc -c < in; tac -s '' in > out 2>/dev/null || cp in out; head -c 3M /dev/zero >&2"
    result = await box.run(
        ExecutionRequest(
            ("sh", "-c", code), POLICY, input_files=(InputFile("in", data),), mounts=(ReadOnlyMount(tmp_path),)
        )
    )
    assert result.stdout == b"from the skill%d\n" % len(data)
    assert result.stderr_total == 3 << 20
    assert [(file.path, len(file.content)) for file in result.files] == [("out", len(data))]
    sessions = Sessions(box.session_host())
    await sessions.execute("a", SessionRequest("x = 41", POLICY))
    assert (await sessions.execute("a", SessionRequest("x + 1", POLICY))).stdout == b"42\n"
    stopped = await sessions.execute("a", SessionRequest("while True: pass", SandboxPolicy(wall_seconds=1.0)))
    assert stopped.timed_out
    await sessions.close()
    await box.close()


@pytest.mark.parametrize(("whose", "said"), [("others/client", "certificate"), (None, "it wants TLS")])
async def test_an_engine_that_cannot_be_trusted_or_does_not_trust_us_is_said(
    secured: tuple[StartedEngine, str], folder: Path, monkeypatch: pytest.MonkeyPatch, whose: str | None, said: str
) -> None:
    engine, url = secured
    if whose is not None:
        monkeypatch.setenv("DOCKER_CERT_PATH", str(folder / whose))
    with pytest.raises(EngineUnavailable, match=said) as caught:
        await ContainerSandbox(engine.image, base_url=url).run(ExecutionRequest(("true",), POLICY))
    assert "DOCKER_CERT_PATH" in caught.value.message
