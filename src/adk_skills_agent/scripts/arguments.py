"""The arguments of a script call, in every form a model or a person gives them, as one literal argv (S0-35 to S0-42).

Nothing here is ever interpreted by a shell: each result element reaches the script as one element of its argv.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adk_skills_agent.errors import InvalidArguments

POSITIONAL_KEY = "_positional"
"""Reserved key of an argument object: its list comes last, as positional arguments."""

MAX_ARGUMENT_BYTES = 131_071
"""Linux refuses a single argument of 128 KiB or more (MAX_ARG_STRLEN, with its closing NUL)."""
MAX_TOTAL_BYTES = 1 << 20
"""All arguments together; half of the kernel's usual 2 MiB, so that the environment fits as well."""
MAX_ARGUMENTS = 10_000


@dataclass(frozen=True, slots=True)
class ScriptArguments:
    """What a caller gave, not yet checked.

    Attributes:
        args: An object (long options), a list (the complete argv) or a string (split like a shell would, S0-35).
        short_options: An object of single-hyphen options.
        positional_args: A list that comes after all options.
    """

    args: object = None
    short_options: object = None
    positional_args: object = None


def build_argv(arguments: ScriptArguments) -> tuple[str, ...]:
    """Turn the arguments of a call into argv elements, checked before anything is started (S0-36).

    Objects follow S0-40: a string or number becomes ``--key value``, true becomes ``--key``, false and null are left
    out, a list repeats the option, ``_positional`` holds positional arguments, a nested object is an error.

    Raises:
        InvalidArguments: The form, a key, a value or the size cannot be passed; the sentence names which.
    """
    args = arguments.args
    check_types(arguments)
    if isinstance(args, str):
        argv = _split(args)
    elif isinstance(args, Sequence):
        argv = [_scalar(value, f"args[{index}]") for index, value in enumerate(args)]
    elif isinstance(args, Mapping):
        argv = _options(args, dashes="--", what="args")
    else:
        argv = []
    positional: list[str] = []
    if isinstance(args, Mapping) and args.get(POSITIONAL_KEY) is not None:
        positional = _positional(args[POSITIONAL_KEY], f"args.{POSITIONAL_KEY}")
    if isinstance(arguments.short_options, Mapping):
        argv += _options(arguments.short_options, dashes="-", what="short_options")
    if arguments.positional_args is not None:
        positional += _positional(arguments.positional_args, "positional_args")
    argv += positional
    _check_sizes(argv)
    return tuple(argv)


def check_text(value: str, what: str) -> str:
    """Return ``value`` when it can be passed to a process.

    Raises:
        InvalidArguments: It holds a NUL byte or a lone surrogate.
    """
    if "\0" in value:
        raise InvalidArguments(f"{what} holds a NUL byte, which no process can receive. Remove it.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArguments(
            f"{what} holds a character that is not valid Unicode (position {error.start}). Remove it."
        ) from None
    return value


def check_types(arguments: ScriptArguments) -> None:
    """Check the types of a call's arguments, not yet their values.

    Raises:
        InvalidArguments: One is wrong; the sentence names all that are.
    """
    args, short, positional = arguments.args, arguments.short_options, arguments.positional_args
    problems = []
    if args is not None and not isinstance(args, (str, list, tuple, Mapping)):
        problems.append(
            f"'args' must be a JSON object (dict), a list of strings or a string, got {type(args).__name__}."
        )
    if short is not None and not isinstance(short, Mapping):
        problems.append(f"'short_options' must be a JSON object (dict), got {type(short).__name__}.")
    if positional is not None and not isinstance(positional, (list, tuple)):
        problems.append(f"'positional_args' must be a list of strings, got {type(positional).__name__}.")
    if isinstance(args, (list, tuple)) and (short or positional):
        problems.append("Cannot specify 'short_options' or 'positional_args' when 'args' is a list.")
    if problems:
        raise InvalidArguments("\n".join(problems))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(check_text(text, "'args'"))
    except ValueError as error:
        raise InvalidArguments(
            f"'args' cannot be split into arguments: {str(error).lower()}. "
            "Close every quote, or pass a list of strings."
        ) from None


def _options(options: Mapping[object, object], *, dashes: str, what: str) -> list[str]:
    argv: list[str] = []
    for key, value in options.items():
        if key == POSITIONAL_KEY and dashes == "--":
            continue
        option = _option_name(key, dashes, what)
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if item is None or item is False:
                continue
            argv.append(option)
            if item is not True:
                argv.append(_scalar(item, f"{what}.{key}"))
    return argv


def _option_name(key: object, dashes: str, what: str) -> str:
    """``input`` -> ``--input``; a key that already has its hyphens keeps them."""
    if not isinstance(key, str) or not key.strip("-"):
        raise InvalidArguments(f"{what} has an option without a name: {key!r}. Use the option's name as the key.")
    check_text(key, f"The option name {key!r} in {what}")
    if any(character.isspace() or character in "=\"'" for character in key):
        raise InvalidArguments(
            f"{what} has the option name {key!r}, which holds a space, a quote or '='. "
            f"Use the bare name as the key and put the value beside it, or pass 'args' as a list."
        )
    return key if key.startswith("-") else dashes + key


def _positional(values: object, what: str) -> list[str]:
    if not isinstance(values, (list, tuple)):
        values = [values]
    return [_scalar(value, f"{what}[{index}]") for index, value in enumerate(values)]


def _scalar(value: object, what: str) -> str:
    if isinstance(value, str):
        return check_text(value, what)
    if isinstance(value, bool) or value is None or isinstance(value, (Mapping, list, tuple)):
        kind = {bool: "a boolean", type(None): "null"}.get(type(value), "a nested object or list")
        raise InvalidArguments(f"{what} is {kind}; give a string or a number (pass structured data as a JSON string).")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArguments(f"{what} is {value}, not a finite number. Give a finite number or a string.")
        return repr(value)
    if isinstance(value, int):
        try:
            return str(value)
        except ValueError:
            raise InvalidArguments(f"{what} is an integer with too many digits. Pass it as a string.") from None
    raise InvalidArguments(f"{what} has the type {type(value).__name__}; give a string or a number.")


def _check_sizes(argv: Sequence[str]) -> None:
    if len(argv) > MAX_ARGUMENTS:
        raise InvalidArguments(
            f"{len(argv):,} arguments are more than the {MAX_ARGUMENTS:,} allowed. Put the data into a file."
        )
    total = 0
    for index, element in enumerate(argv):
        size = len(element.encode())
        total += size + 9  # the kernel also counts the closing NUL and a pointer
        if size > MAX_ARGUMENT_BYTES:
            raise InvalidArguments(
                f"Argument {index + 1} has {size:,} bytes, more than the {MAX_ARGUMENT_BYTES:,} one argument may have. "
                "Put the data into a file."
            )
    if total > MAX_TOTAL_BYTES:
        raise InvalidArguments(
            f"The arguments have {total:,} bytes together, more than the {MAX_TOTAL_BYTES:,} allowed. "
            "Put the data into a file."
        )
