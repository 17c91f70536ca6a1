from __future__ import annotations

from pathlib import Path

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.skillsbench.engine_options import TRUSTED, EngineOptions, read_engine_options

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
