from __future__ import annotations

from adk_skills_agent.evals.skillsbench.dockerfile import images_of, with_bases

STAGES = """\
# syntax=docker/dockerfile:1
ARG VERSION=24.04
ARG REGISTRY
FROM --platform=linux/amd64 ubuntu:${VERSION} AS Build
RUN make
FROM scratch AS empty
FROM build AS more
FROM ${REGISTRY:-docker.io}/python:3.11-slim
COPY --from=build /a /a
"""


def test_images_are_found_behind_every_stage_but_not_stages_themselves() -> None:
    assert images_of(STAGES, {}) == ("ubuntu:24.04", "docker.io/python:3.11-slim")
    assert images_of(STAGES, {"VERSION": "22.04", "REGISTRY": "mirror", "OTHER": "x"}) == (
        "ubuntu:22.04",
        "mirror/python:3.11-slim",
    )


def test_other_images_take_their_places_and_every_stage_gets_the_arguments() -> None:
    text = with_bases(STAGES, {}, {"ubuntu:24.04": "mirror/ubuntu:24.04"}, ("A=1", "B=2"))
    assert text.splitlines() == [
        "# syntax=docker/dockerfile:1",
        "ARG VERSION=24.04",
        "ARG REGISTRY",
        "FROM --platform=linux/amd64 mirror/ubuntu:24.04 AS Build",
        "ARG A=1",
        "ARG B=2",
        "RUN make",
        "FROM scratch AS empty",
        "ARG A=1",
        "ARG B=2",
        "FROM build AS more",
        "ARG A=1",
        "ARG B=2",
        "FROM docker.io/python:3.11-slim",
        "ARG A=1",
        "ARG B=2",
        "COPY --from=build /a /a",
    ]


def test_a_continued_from_without_an_image_stays_for_the_engine_to_judge() -> None:
    assert images_of("FROM $NOTHING\nRUN true\n", {}) == ()
    assert with_bases("FROM $NOTHING\nRUN true\n", {}, {"a": "b"}, ()) == "FROM $NOTHING\nRUN true\n"
    assert with_bases("FROM \\\n  debian:12\nRUN true\n", {}, {"debian:12": "own"}, ()) == "FROM own\nRUN true\n"
