"""The images a Dockerfile begins its stages from: found, and replaced by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adk_skills_agent.evals.skillsbench.dockerfile import Instruction, environment_pairs, expanded, parse_dockerfile


def images_of(text: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """The images behind every FROM, each once; a stage of the same file and ``scratch`` are none.

    Args:
        text: The Dockerfile.
        given: Build arguments, over the defaults of an ``ARG`` before the first FROM.

    Raises:
        ConfigError: It is no Dockerfile.
    """
    return tuple(dict.fromkeys(image for _, image in _from_images(parse_dockerfile(text), given) if image is not None))


def with_bases(text: str, given: Mapping[str, str], bases: Mapping[str, str], arguments: Sequence[str]) -> str:
    """The Dockerfile with other images behind FROM, and ARG lines at the beginning of each of its stages.

    Args:
        text: The Dockerfile.
        given: As for :func:`images_of`.
        bases: Image to the one that takes its place.
        arguments: ``NAME=VALUE`` each: a variable of the RUNs of the stage that no image keeps.

    Raises:
        ConfigError: It is no Dockerfile.
    """
    lines = text.splitlines(keepends=True)
    declared = "".join(f"ARG {argument}\n" for argument in arguments)
    for instruction, image in reversed(_from_images(parse_dockerfile(text), given)):
        flags = "".join(f"--{name}={value} " for name, value in instruction.flags.items())
        rest = instruction.value.split()[1:]
        start = " ".join([bases.get(image, image) if image is not None else instruction.value.split()[0], *rest])
        lines[instruction.line - 1 : instruction.last_line] = [f"FROM {flags}{start}\n{declared}"]
    return "".join(lines)


def _from_images(instructions: Sequence[Instruction], given: Mapping[str, str]) -> list[tuple[Instruction, str | None]]:
    """Each FROM with its image; None for a stage of the same file and for ``scratch``."""
    arguments: dict[str, str] = {}
    stages = {"scratch"}
    found: list[tuple[Instruction, str | None]] = []
    for instruction in instructions:
        if instruction.keyword == "ARG" and not found:
            arguments.update(environment_pairs(instruction, arguments))
            arguments.update({name: value for name, value in given.items() if name in arguments})
        if instruction.keyword != "FROM" or not instruction.value:
            continue
        image, *rest = expanded(instruction.value, arguments).split() or [""]
        found.append((instruction, None if not image or image.lower() in stages else image))
        if len(rest) == 2 and rest[0].upper() == "AS":
            stages.add(rest[1].lower())
    return found
