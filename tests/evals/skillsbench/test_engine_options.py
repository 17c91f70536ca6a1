from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

import container_engines
from adk_skills_agent.errors import ConfigError, SandboxError
from adk_skills_agent.evals.skillsbench import container_image
from adk_skills_agent.evals.skillsbench.container_mode import open_container_mode
from adk_skills_agent.evals.skillsbench.dockerfile import copied_images, for_engine
from adk_skills_agent.evals.skillsbench.engine_options import TRUSTED, EngineOptions, read_engine_options
from adk_skills_agent.evals.skillsbench.environment import BuildError
from adk_skills_agent.sandbox import ContainerSandbox, ExecutionRequest, SandboxPolicy
from evals.skillsbench.bench_tasks import make_task

PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"base_images": ["ubuntu:24.04"]}, "--base-image 'ubuntu:24.04' is not NAME=IMAGE"),
        ({"build_arguments": ["=x"]}, "--build-arg is neither NAME=VALUE nor"),
        ({"build_arguments": ["HAS_NO_VALUE_HERE"]}, "HAS_NO_VALUE_HERE names a variable that is not set"),
        ({"certificates": Path("/nonexistent.pem")}, "--ca-certificates /nonexistent.pem cannot be read"),
        ({"certificates": Path("/dev/null")}, "has no certificate in PEM"),
    ],
)
def test_what_cannot_be_used_is_named(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_engine_options(**options)  # type: ignore[arg-type]


def test_a_bad_build_argument_is_not_repeated_for_it_may_be_a_secret() -> None:
    with pytest.raises(ConfigError) as failed:
        read_engine_options(build_arguments=["pass word=s3cret"])
    assert "s3cret" not in failed.value.message


def test_commands_with_a_network_get_proxies_and_trust_but_what_the_image_sets_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    (tmp_path / "ca.pem").write_text(PEM)
    options = read_engine_options(
        base_images=["a=b=c"], build_arguments=["https_proxy", "VERSION=1=2"], certificates=tmp_path / "ca.pem"
    )
    assert options.base_images == {"a=b": "c"}
    assert options.kept_arguments == {"VERSION": "1=2"}
    env = options.environment({"PIP_CERT": "/own.pem"})
    assert env["https_proxy"] == "http://proxy:3128"
    assert env["SSL_CERT_FILE"] == TRUSTED
    assert not {"PIP_CERT", "VERSION"} & set(env)
    assert EngineOptions().environment({}) == {}


def test_user_and_password_of_a_proxy_are_told_nowhere() -> None:
    options = read_engine_options(
        build_arguments=["http_proxy=http://some%20body:pass%2Fword@proxy:3128/", "KEPT=http://a:kept-here@b"]
    )
    said = options.without_secrets(
        "via http://some%20body:pass%2Fword@proxy:3128/ with pass/word, twice pass%2Fword; http://a:kept-here@b"
    )
    assert "word" not in said
    assert "proxy:3128" in said
    assert "kept-here" in said
    assert EngineOptions().without_secrets(said) == said


async def test_tasks_get_nothing_of_the_users_settings_of_the_engine_and_not_all_of_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen (rows 281 and 282): the login of a proxy was in each task's environment, a FROM got private images with the
    user's login, a build could have any memory, and a trial as much as its task says.
    """
    pytest.importorskip("docker")
    login = base64.b64encode(b"owner:word-of-the-registry").decode()
    proxies = {"default": {"httpProxy": "http://owner:word-of-the-proxy@proxy.example:3128"}}
    settings = {"proxies": proxies, "auths": {"registry.example": {"auth": login}}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    named = "registry.example/secret:1"
    task = make_task(
        tmp_path / "tasks",
        environment__Dockerfile=f"FROM {named}\nCOPY --from=registry.example/other / /\n",
        task_DOT_toml='[environment]\nmemory = "1000G"\n',
    )
    with container_engines.recorded() as (url, asked):
        monkeypatch.setenv("DOCKER_HOST", url)
        mode = open_container_mode(read_engine_options(base_images=[f"{named}={named}"]))
        try:
            image = await mode.build(task, with_skills=True, rebuild=True, say=lambda _: None)
            with pytest.raises(SandboxError, match="could not be started"):
                await mode.open(task, image)
        finally:
            await mode.close()
        headers, query, _ = asked["build"]
        sent = json.loads(base64.urlsafe_b64decode(headers["X-Registry-Config"]))  # without one Podman takes its files
        assert sent == {"nobody.invalid": {"username": "-", "password": "-"}}
        assert "word-of-the-proxy" not in json.dumps(query)
        assert query["memory"] == query["memswap"] == str(6 << 30)
        assert "X-Registry-Auth" in asked["images/create"][0], "what the owner names is fetched with the owner's login"
        made = asked["containers/create"][2]
        assert not made.get("Env")
        assert made["HostConfig"]["Memory"] == made["HostConfig"]["MemorySwap"] == 6 << 30
        assert made["HostConfig"]["CapDrop"] == ["NET_RAW", "MKNOD"]
        assert made["Cmd"][0] == "sleep"
        assert made["Cmd"][1].isdigit(), "a container whose runner was killed ends"
        assert "adk-skills.owner" in made["Labels"]

        sandbox = ContainerSandbox("image", base_url=url)
        with pytest.raises(SandboxError):
            await sandbox.run(ExecutionRequest(("true",), SandboxPolicy()))
        await sandbox.close()
        assert "proxy" not in json.dumps(asked["containers/create"][2]["Env"]).lower()


def test_row_490_podman_gets_no_private_image_for_a_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen with Podman 4.3: a task's FROM was fetched with the login in the user's files, whatever a request says."""
    for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for place, key in (
        ("XDG_RUNTIME_DIR/containers/auth.json", "a.example:5000"),
        ("XDG_CONFIG_HOME/containers/auth.json", "B.example/team"),
        ("DOCKER_CONFIG/config.json", "https://index.docker.io/v1/"),
    ):
        file = tmp_path / place
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"auths": {key: {"auth": "x"}}, "credHelpers": {"c.example": "x"}}))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "broken"))
    for odd in ("[1]", '{"auths": 5}', "{"):
        (tmp_path / "broken").write_text(odd)
        assert container_image._logins() == {"a.example:5000", "b.example", "c.example", "docker.io"}
    fine = ("debian:12", "library/debian", "docker.io/debian", "docker.io/library/debian", "d.example/x", "a.example/x")
    container_image._refuse_logins("a task", fine)
    for image in (
        "a.example:5000/x",
        "A.example:5000/x:1",
        "b.example/x",
        "c.example/x/y",
        "some-body/x",
        "docker.io/u/x",
        "index.docker.io/u/x",
    ):
        with pytest.raises(BuildError, match=f"with your login for .* --base-image {image}={image}. Else: podman log"):
            container_image._refuse_logins("a task", [image])


def test_row_490_what_is_copied_of_another_image_is_seen() -> None:
    text = "FROM debian AS one\nFROM debian\nCOPY --from=one / /\nCOPY --from=0 / /\nCOPY --from=a.example/x / /\n"
    assert copied_images(text) == ("a.example/x",)


@pytest.mark.parametrize(
    "text",
    [
        "RUN <<EOF\nCOPY --from=corp.example/x / /x\nEOF\n",
        "RUN <<EOF\nCOPY \\\n  --from=corp.example/x / /x\nEOF\n",
        "RUN <<EOF\nRUN --mount=from=corp.example/x,source=/,target=/x cat /x/key\nEOF\n",
        "ONBUILD COPY --from=corp.example/x / /x\nFROM first\n",
    ],
)
def test_row_490_what_only_some_engines_copy_is_seen_too(text: str) -> None:
    """Seen: Podman 4.3 takes the lines of a here-document for instructions, and got the image with the user's login."""
    assert copied_images(for_engine(f"FROM debian AS first\n{text}")) == ("corp.example/x",)


def test_an_image_that_is_copied_from_can_be_named_by_the_owner() -> None:
    """Seen: the sentence of row 490 advises it, and it counted for FROM alone."""
    text = "FROM debian:12\nCOPY --from=ghcr.io/astral-sh/uv:0.9 /uv /bin/\n"
    named = (("debian:12", ""),)
    uv = "ghcr.io/astral-sh/uv:0.9"
    assert container_image._of_strangers(text, named, (), EngineOptions()) == ("debian:12", uv)
    assert container_image._of_strangers(text, named, ["debian:12"], EngineOptions(base_images={uv: uv})) == ()
