"""What container mode gives builds of the way to the network is there for builds, and not in what is graded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import container_engines
from adk_skills_agent.evals.skillsbench.engine_options import TRUSTED
from adk_skills_agent.evals.skillsbench.environment import BuildError, Phase
from evals.skillsbench.bench_tasks import make_task
from evals.skillsbench.container_modes import opened_mode

pytestmark = pytest.mark.slow

PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
PROXY = "http://somebody:pass-word@proxy.example:3128"


async def test_builds_trust_and_pass_the_proxy_and_the_image_knows_nothing_of_it(
    engine: container_engines.StartedEngine, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    monkeypatch.setenv("https_proxy", PROXY)
    task = make_task(
        tmp_path / "tasks",
        environment__Dockerfile="FROM debian:12 AS first\nFROM first\nARG WORD=none\nENV CURL_CA_BUNDLE=/own\n"
        'RUN test "$https_proxy" && test "$CURL_CA_BUNDLE" = /own && cp "$SSL_CERT_FILE" /seen && echo $WORD >>/seen\n',
    )
    async with opened_mode(
        store, build_arguments=["https_proxy", "WORD=given"], certificates=tmp_path / "ca.pem"
    ) as mode:
        image = await mode.build(task, with_skills=True, rebuild=True, say=lambda _: None)
        client = container_engines.client(engine)
        try:
            kept = json.dumps([client.api.inspect_image(image.name), client.api.history(image.name)])
        finally:
            client.close()
        assert "pass-word" not in kept
        assert not {"https_proxy", "SSL_CERT_FILE"} & set(image.env)
        box = await mode.open(task, image)
        try:
            look = ("bash", "-c", "env; ls -d /run/adk-skills; cat /seen $SSL_CERT_FILE; rm -rf /run/adk-skills")
            without = await box.run(look, seconds=60, phase=Phase())
            assert PEM + "given\n" in without.text
            assert not {"https_proxy", "SSL_CERT_FILE", "/run/adk-skills"} & set(
                without.text.replace("=", "\n").split()
            )
            for _ in range(2):  # a command before may have removed them
                ran = await box.run(look, seconds=60, phase=Phase(network=True))
                assert f"https_proxy={PROXY}\n" in ran.text
                assert f"SSL_CERT_FILE={TRUSTED}\n" in ran.text
                assert "CURL_CA_BUNDLE=/own\n" in ran.text
                assert ran.text.endswith(PEM + "given\n" + PEM)
        finally:
            await box.close()


async def test_a_build_that_tells_the_login_of_the_proxy_is_reported_without_it(
    engine: container_engines.StartedEngine, store: Path, tmp_path: Path
) -> None:
    task = make_task(tmp_path / "tasks", environment__Dockerfile='FROM debian:12\nRUN echo "via $http_proxy"; exit 3\n')
    said: list[str] = []
    async with opened_mode(store, build_arguments=[f"http_proxy={PROXY}"]) as mode:
        with pytest.raises(BuildError) as failed:
            await mode.build(task, with_skills=True, rebuild=False, say=said.append)
        assert "proxy.example" in failed.value.output
        assert "pass-word" not in "\n".join([failed.value.message, failed.value.output, *said])


async def test_another_image_stands_for_the_one_the_dockerfile_names(
    engine: container_engines.StartedEngine, store: Path, tmp_path: Path
) -> None:
    name = "registry.example/nobody/has:this"
    task = make_task(tmp_path / "tasks", environment__Dockerfile=f"FROM {name}\nWORKDIR /else\n")
    async with opened_mode(store, packages=None, base_images=[f"{name}={engine.image}"]) as mode:
        image = await mode.build(task, with_skills=True, rebuild=False, say=lambda _: None)
        assert (image.workdir, image.env["MPLBACKEND"]) == ("/else", "agg")
        assert image.notes == (f"{engine.image} stands for {name}.",)
