"""Which limits hold: resolution over the places that can set them, and the check of every value.

A *layer* is a mapping from field names of :class:`SandboxPolicy` to values, the form a config file or keyword arguments
have. ``None`` in a layer means unlimited (where the field allows it) and 0 is a value like any other; only a missing
key or :data:`UNSET` leaves the decision to the next layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from enum import Enum
from pathlib import PurePath
from types import MappingProxyType
from typing import Final

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import IsolationLevel, Network, SandboxPolicy
from adk_skills_agent.sandbox.env_names import check_env_name, check_search_path
from adk_skills_agent.sandbox.hostnames import parse_hosts
from adk_skills_agent.sandbox.secrets import EnvValue, Secret


class _Unset(Enum):
    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset.UNSET
"""The value of a setting that was not given; needed because ``None`` means unlimited."""

_NETWORK_MODES = ("none", "loopback", "allow", "host")
_LEVELS = tuple(level.value for level in IsolationLevel)

_MEBIBYTE = 1 << 20
_MOST_SECONDS = 1_000_000_000
_MOST_BYTES = 1 << 50
_MOST_PIDS = 4_000_000  # the kernel has few more
_MOST_IDS = (1 << 32) - 2  # the last one means "none" to the kernel
_MANY = 1_000_000_000
# Smallest and largest value of each number, and whether None (unlimited) is legal. Where 0 would only mean "cannot
# start at all" the smallest useful value is the bound: a run needs one process, some memory, and the descriptors an
# interpreter opens while it starts. The largest ones are far above any machine, and every level can express them.
_SECONDS: Mapping[str, bool] = {"wall_seconds": True, "term_grace_seconds": False, "drain_seconds": False}
_COUNTS: Mapping[str, tuple[int, int, bool]] = {
    "cpu_seconds": (0, _MOST_SECONDS, True),
    "memory_bytes": (_MEBIBYTE, _MOST_BYTES, True),
    "pids": (1, _MOST_PIDS, True),
    "open_files": (16, 1 << 30, True),
    "file_bytes": (0, _MOST_BYTES, True),
    "workspace_bytes": (0, _MOST_BYTES, True),
    "workspace_inodes": (0, _MANY, True),
    "tmp_bytes": (0, _MOST_BYTES, True),
    "shm_bytes": (0, _MOST_BYTES, True),
    "output_bytes": (0, _MOST_BYTES, False),
    "output_flood_bytes": (0, _MOST_BYTES, True),
    "max_files": (0, _MANY, False),
    "max_file_bytes": (0, _MOST_BYTES, False),
    "max_total_file_bytes": (0, _MOST_BYTES, False),
    "warm_slots": (0, 1024, False),
}
_SHOWN_BITS = 256
_MOST_KNOWN = 64
# Policies that were checked, which the runs of a toolset share, held so that no other gets their ids. None with what
# may be different the next time (modules to preload, a list of hosts) or must not be held (secrets).
_known: dict[int, SandboxPolicy] = {}
_FIELDS = tuple(field.name for field in fields(SandboxPolicy))

Layer = Mapping[str, object]


def resolve_policy(
    call: Layer | None = None,
    toolset: Layer | None = None,
    executor: Layer | None = None,
    *,
    default: SandboxPolicy | None = None,
) -> SandboxPolicy:
    """The policy of one run: per call, then toolset, then executor, then default (ARCHITECTURE, SANDBOX.md 4.2).

    Args:
        call: What this call asks for; the strongest.
        toolset: What the toolset was given.
        executor: What the executor was given.
        default: What holds otherwise; None takes ``SandboxPolicy()``.

    Returns:
        A checked policy. ``env`` is merged name by name over all layers; every other field comes whole from the
        strongest layer that sets it.

    Raises:
        ConfigError: An unknown key, or a value its field cannot have; the sentence names the layer.
    """
    base = SandboxPolicy() if default is None else default
    values: dict[str, object] = {name: getattr(base, name) for name in _FIELDS}
    env = dict(base.env)
    for where, layer in (("executor", executor), ("toolset", toolset), ("call", call)):
        if layer is None:
            continue
        for key, value in layer.items():
            if key not in _FIELDS:
                raise ConfigError(f"Sandbox setting {key!r} ({where}) does not exist. {_nearest(key)}")
            if value is UNSET:
                continue
            if key == "env":
                env.update(check_env(value, where))
            else:
                values[key] = _convert(key, value, where)
    values["env"] = MappingProxyType(env)
    return check_policy(SandboxPolicy(**values))  # type: ignore[arg-type]  # each value is checked by check_policy


def check_policy(policy: SandboxPolicy) -> SandboxPolicy:
    """The same policy, when every value is possible.

    Raises:
        ConfigError: The first value that is not, in a sentence.
    """
    if _known.get(id(policy)) is policy and not policy.env:
        return policy
    for name, optional in _SECONDS.items():
        value = getattr(policy, name)
        if value is None and optional:
            continue
        if not _is_number(value) or not 0 <= value <= _MOST_SECONDS:  # not a number is not in between
            raise ConfigError(
                f"{name} must be a number of seconds from 0 to {_MOST_SECONDS:,}{_or_none(optional)}, not "
                f"{_shown(value)}."
            )
    for name, (least, most, optional) in _COUNTS.items():
        value = getattr(policy, name)
        if value is None and optional:
            continue
        if not _is_whole(value) or not least <= value <= most:
            raise ConfigError(
                f"{name} must be a whole number from {least:,} to {most:,}{_or_none(optional)}, not {_shown(value)}."
            )
    if policy.run_as is not None and not (_is_whole(policy.run_as) and 0 <= policy.run_as <= _MOST_IDS):
        raise ConfigError(
            f"run_as must be a user id, a whole number from 0 to {_MOST_IDS:,}, or None for the default, not "
            f"{_shown(policy.run_as)}."
        )
    _check_choice("isolation", policy.isolation, ("auto", *_LEVELS))
    _check_choice("min_isolation", policy.min_isolation, _LEVELS)
    _check_network(policy.network)
    check_env(policy.env, None)
    for name in ("inherit_env", "extra_ro", "preload"):
        items = getattr(policy, name)
        if not isinstance(items, tuple) or not all(isinstance(item, str) and item for item in items):
            raise ConfigError(f"{name} must be a list of non-empty strings, not {items!r}.")
    for variable in policy.inherit_env:
        try:
            check_env_name(variable)
        except ConfigError as error:
            raise ConfigError(f"inherit_env: {error.message}") from None
    for path in policy.extra_ro:
        if not PurePath(path).is_absolute() or "\0" in path:
            raise ConfigError(f"extra_ro must name absolute host paths, not {path!r}.")
    for module in policy.preload:
        if not all(part.isidentifier() for part in module.split(".")):
            raise ConfigError(f"preload must name Python modules, such as 'json', not {module!r}.")
        if policy.python is None and not _is_installed(module.partition(".")[0]):
            raise ConfigError(
                f"preload: there is no module {module!r} in this agent's Python. Install it, or remove it."
            )
    if not isinstance(policy.allow_secrets, bool):
        raise ConfigError(f"allow_secrets must be true or false, not {policy.allow_secrets!r}.")
    if policy.python is not None and (not isinstance(policy.python, str) or not policy.python or "\0" in policy.python):
        raise ConfigError(f"python must be the path of an interpreter or None, not {policy.python!r}.")
    if not policy.preload and not policy.env and policy.network.mode != "allow":
        _known[id(policy)] = policy
        for oldest in list(_known)[:-_MOST_KNOWN]:
            _known.pop(oldest, None)
    return policy


def check_env(value: object, where: str | None) -> dict[str, EnvValue]:
    """The variables of a grant, when each name and value is possible.

    Args:
        value: The mapping.
        where: Whose it is, for the sentence.

    Raises:
        ConfigError: It is no mapping, a name is refused, or a value is no text and no :class:`Secret`.
    """
    # No sentence here shows a value: what stands in an environment may be a secret.
    if not isinstance(value, Mapping):
        raise ConfigError(f"env{_at(where)} must map names to strings, not be of type {type(value).__name__}.")
    for name, content in value.items():
        check_env_name(name)
        if isinstance(content, Secret):
            continue
        if not isinstance(content, str) or "\0" in content:
            raise ConfigError(f"env{_at(where)}: the value of {name!r} must be a string without NUL, or a Secret.")
        if name == "PATH":
            check_search_path(content)
    return dict(value)


def _convert(key: str, value: object, where: str) -> object:
    """Accept the forms a config file has: lists for tuples, a word or a mapping for the network."""
    converter = _CONVERTERS.get(key)
    return value if converter is None else converter(key, value, where)


def _strings(key: str, value: object, where: str) -> tuple[object, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"{key}{_at(where)} must be a list of strings, not {value!r}.")
    return tuple(value)


def _network(key: str, value: object, where: str) -> object:
    if isinstance(value, str):
        if value == "allow":
            raise ConfigError(f"{key}{_at(where)}: 'allow' needs hosts; give a mapping with mode, hosts and ports.")
        return Network(value)
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in {"mode", "hosts", "ports"}]
        if unknown:
            raise ConfigError(f"{key}{_at(where)} has no setting {unknown[0]!r}; it has mode, hosts and ports.")
        ports = value.get("ports", Network().ports)
        if isinstance(ports, str) or not isinstance(ports, Iterable):
            raise ConfigError(f"{key}{_at(where)}: ports must be a list of numbers, not {ports!r}.")
        mode = value.get("mode", "none")
        return Network(mode, _strings("network: hosts", value.get("hosts", ()), where), tuple(ports))  # type: ignore[arg-type]
    return value


def _text_path(_key: str, value: object, _where: str) -> object:
    return str(value) if isinstance(value, PurePath) else value


_CONVERTERS: Mapping[str, Callable[[str, object, str], object]] = {
    "inherit_env": _strings,
    "extra_ro": _strings,
    "preload": _strings,
    "network": _network,
    "python": _text_path,
}


def _check_network(network: object) -> None:
    if not isinstance(network, Network):
        raise ConfigError(f"network must be none, loopback, allow or host, not {network!r}.")
    _check_choice("network", network.mode, _NETWORK_MODES)
    if network.mode == "allow" and not network.hosts:
        raise ConfigError("network 'allow' needs at least one host; an empty list would have to mean no network.")
    for host in network.hosts:
        if not isinstance(host, str) or not host or not host.isprintable() or any(c.isspace() for c in host):
            raise ConfigError(f"network: {host!r} is no host name.")
    parse_hosts(network.hosts)
    for port in network.ports:
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise ConfigError(f"network: {port!r} is no port; use a number from 1 to 65535.")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_installed(module: str) -> bool:
    import sys
    from importlib.util import find_spec

    try:
        return module in sys.modules or find_spec(module) is not None
    except (ImportError, ValueError):  # a broken finder, or a module without a specification
        return False


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """A value in a sentence; Python refuses to write out a number of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"a number of {value.bit_length():,} bits"
    return repr(value)


def _or_none(optional: bool) -> str:
    return ", or None for no limit" if optional else ""


def _at(where: str | None) -> str:
    return f" ({where})" if where else ""


def _nearest(key: object) -> str:
    import difflib

    close = difflib.get_close_matches(str(key), _FIELDS, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known settings: {', '.join(_FIELDS)}."
