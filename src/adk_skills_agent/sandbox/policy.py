"""Which limits hold: resolution over the places that can set them, and the check of every value.

A *layer* is a mapping from field names of :class:`SandboxPolicy` to values, the form a config file or keyword arguments
have. ``None`` in a layer means unlimited (where the field allows it) and 0 is a value like any other; only a missing
key or :data:`UNSET` leaves the decision to the next layer.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.contract import IsolationLevel, Network, SandboxPolicy
from adk_skills_agent.sandbox.network.hosts import parse_hosts
from adk_skills_agent.sandbox.secrets import EnvValue, FrozenMapping, Secret
from adk_skills_agent.settings import SettingsKind, read_settings


class _Unset(Enum):
    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset.UNSET
"""The value of a setting that was not given; needed because ``None`` means unlimited."""

_NETWORK_MODES = ("none", "loopback", "allow", "host")
_LEVELS = tuple(level.value for level in IsolationLevel)
_MAKERS = ("auto", "bubblewrap")
FORMER_LEVELS = {
    "cgroup": (
        "'cgroup' is no longer a level but a part of 'namespaces': say 'namespaces'. Where this machine offers control "
        "groups they bound memory and processes of each run of it; the isolation report and adk-skills doctor say so "
        "under memory and pids."
    ),
    "seccomp": (
        "'seccomp' is no longer a level but a part of 'namespaces' and 'landlock': say 'landlock', or 'process' for "
        "skills you trust, which filters nothing. The isolation report and adk-skills doctor say under syscalls who "
        "filters system calls."
    ),
}
"""Names of levels that earlier versions had, and what to say instead."""

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
            else:  # the forms a config file has: lists for tuples, a word or a mapping for the network
                convert = _CONVERTERS.get(key)
                values[key] = value if convert is None else convert(key, value, where)
    values["env"] = FrozenMapping(env)
    return check_policy(SandboxPolicy(**values))  # type: ignore[arg-type]  # each value is checked by check_policy


def check_policy(policy: SandboxPolicy) -> SandboxPolicy:
    """The same policy, when every value is possible.

    Raises:
        ConfigError: The first value that is not, in a sentence.
    """
    for name, optional in _SECONDS.items():
        value = getattr(policy, name)
        if value is None and optional:
            continue
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value <= _MOST_SECONDS:  # not a number is not in between
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
    if policy.isolation != "auto":
        check_level_name("isolation", policy.isolation, also="auto, ")
    check_level_name("min_isolation", policy.min_isolation)
    if policy.syscalls not in ("default", "strict"):
        raise ConfigError(f"syscalls must be 'default' or 'strict', not {policy.syscalls!r}.")
    if policy.maker not in _MAKERS:
        raise ConfigError(
            "maker must be 'auto' (the zygote forks sandboxes where it can, bubblewrap makes the others) or "
            f"'bubblewrap' (it makes all of them), not {policy.maker!r}."
        )
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
    return policy


def check_level_name(name: str, value: object, *, also: str = "") -> str:
    """The name of an isolation level; for one that earlier versions had a ConfigError with what to say instead."""
    if isinstance(value, str) and value in _LEVELS:
        return value
    if isinstance(value, str) and value in FORMER_LEVELS:
        raise ConfigError(f"{name}: {FORMER_LEVELS[value]}")
    raise ConfigError(f"{name} must be one of {also}{', '.join(_LEVELS)}, not {value!r}.")


def check_env(value: object, where: str | None) -> dict[str, EnvValue]:
    """The variables of a grant, when each name and value is possible.

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
        unknown = [name for name in value if name not in {"mode", "hosts", "ports", "refused"}]
        if unknown:
            raise ConfigError(f"{key}{_at(where)} has no {unknown[0]!r}; it has mode, hosts, ports and refused.")
        ports = value.get("ports", Network().ports)
        if isinstance(ports, str) or not isinstance(ports, Iterable):
            raise ConfigError(f"{key}{_at(where)}: ports must be a list of numbers, not {ports!r}.")
        mode = value.get("mode", "none")
        hosts = _strings("network: hosts", value.get("hosts", ()), where)
        refused = _strings("network: refused", value.get("refused", ()), where)
        return Network(mode, hosts, tuple(ports), refused)  # type: ignore[arg-type]  # checked by check_policy
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
    if network.mode not in _NETWORK_MODES:
        raise ConfigError(f"network must be one of {', '.join(_NETWORK_MODES)}, not {network.mode!r}.")
    if network.mode == "allow" and not network.hosts and not network.refused:
        raise ConfigError("network 'allow' needs at least one host; an empty list would have to mean no network.")
    for host in (*network.hosts, *network.refused):
        if not isinstance(host, str) or not host or not host.isprintable() or any(c.isspace() for c in host):
            raise ConfigError(f"network: {host!r} is not a host name.")
    if network.hosts or network.refused:
        parse_hosts(network.hosts, network.refused)
    for port in network.ports:
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise ConfigError(f"network: {port!r} is not a port; use a number from 1 to 65535.")


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
    close = difflib.get_close_matches(str(key), _FIELDS, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known settings: {', '.join(_FIELDS)}."


# A preset is a starting point like any other policy; ``resolve_policy`` and a policy file put single fields over it.
# No preset opens the network: that is always said on its own.

_MIB = 1 << 20
_GIB = 1 << 30

PresetName: TypeAlias = Literal["trusted", "default", "strict"]
PRESETS: Mapping[str, SandboxPolicy] = MappingProxyType(
    {
        # Scripts the developer has read or written: no isolation is demanded (the strongest that works is still used),
        # and there is room for real work.
        "trusted": SandboxPolicy(
            min_isolation=IsolationLevel.PROCESS.value,
            wall_seconds=300.0,
            memory_bytes=4 * _GIB,
            pids=512,
            open_files=1024,
            file_bytes=1 * _GIB,
            workspace_bytes=4 * _GIB,
            workspace_inodes=200_000,
            tmp_bytes=1 * _GIB,
            shm_bytes=256 * _MIB,
            output_bytes=1 * _MIB,
            output_flood_bytes=256 * _MIB,
            max_files=200,
            max_file_bytes=64 * _MIB,
            max_total_file_bytes=256 * _MIB,
        ),
        "default": SandboxPolicy(),
        # Scripts of strangers: file system, network and processes of their own, and little of everything.
        "strict": SandboxPolicy(
            min_isolation=IsolationLevel.NAMESPACES.value,
            wall_seconds=10.0,
            term_grace_seconds=0.5,
            drain_seconds=0.2,
            cpu_seconds=10,
            memory_bytes=256 * _MIB,
            pids=32,
            open_files=128,
            file_bytes=16 * _MIB,
            workspace_bytes=64 * _MIB,
            workspace_inodes=2_000,
            tmp_bytes=16 * _MIB,
            shm_bytes=4 * _MIB,
            output_bytes=64 << 10,
            output_flood_bytes=8 * _MIB,
            max_files=20,
            max_file_bytes=2 * _MIB,
            max_total_file_bytes=8 * _MIB,
            network=Network.none(),
            syscalls="strict",
        ),
    }
)


def preset(name: str) -> SandboxPolicy:
    """The policy of that name.

    Raises:
        ConfigError: No preset has that name; the sentence lists the names.
    """
    policy = PRESETS.get(name) if isinstance(name, str) else None
    if policy is None:
        close = difflib.get_close_matches(str(name), PRESETS, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(PRESETS)}."
        raise ConfigError(f"There is no sandbox policy called {name!r}. {hint} Load a file with load_policy(path).")
    return policy


def policy_of(choice: SandboxPolicy | str | None) -> SandboxPolicy:
    """What a ``policy=`` argument means: a policy itself, the name of a preset, or None for the default one.

    Raises:
        ConfigError: It is neither, or a limit of it is not possible; the sentence begins with ``policy``.
    """
    if choice is None:
        return PRESETS["default"]
    if isinstance(choice, str):
        return preset(choice)
    if not isinstance(choice, SandboxPolicy):
        raise ConfigError(
            f"policy must be a SandboxPolicy or the name of a preset ({', '.join(PRESETS)}), not "
            f"{type(choice).__name__}. Read a file with load_policy(path)."
        )
    try:
        return check_policy(choice)
    except ConfigError as error:
        raise ConfigError(f"policy: {error.message}") from None


# Names an environment grant must not have: they change how a process is started, not what it knows (attack row 34).

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Harmless settings of Python; everything else called PYTHON... decides which code it loads.
_HARMLESS_PYTHON = """
    PYTHONASYNCIODEBUG PYTHONCOERCECLOCALE PYTHONDONTWRITEBYTECODE PYTHONFAULTHANDLER PYTHONHASHSEED
    PYTHONINTMAXSTRDIGITS PYTHONIOENCODING PYTHONMALLOC PYTHONNOUSERSITE PYTHONOPTIMIZE PYTHONSAFEPATH
    PYTHONTRACEMALLOC PYTHONTZPATH PYTHONUNBUFFERED PYTHONUTF8
"""
_LOADERS = ("LD_", "DYLD_", "PYTHON", "BASH_FUNC_", "GIT_CONFIG", "GIT_SSH", "LUA_INIT", "MALLOC_", "NPM_CONFIG_")
_STARTERS = """
    BASH_ENV BASHOPTS CDPATH ENV GLOBIGNORE IFS PROMPT_COMMAND PS4 SHELLOPTS ZDOTDIR
    NODE_EXTRA_CA_CERTS NODE_OPTIONS NODE_PATH
    PERL5DB PERL5LIB PERL5OPT PERLLIB RUBYLIB RUBYOPT GEM_HOME GEM_PATH
    CLASSPATH JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS
    PHPRC PHP_INI_SCAN_DIR R_ENVIRON R_ENVIRON_USER R_PROFILE R_PROFILE_USER
    DOTNET_STARTUP_HOOKS CORECLR_PROFILER CORECLR_PROFILER_PATH COR_PROFILER COR_PROFILER_PATH
    GCONV_PATH GETCONF_DIR GLIBC_TUNABLES HOSTALIASES LOCALDOMAIN LOCPATH NLSPATH RES_OPTIONS
    OPENSSL_CONF OPENSSL_ENGINES OPENSSL_MODULES GIT_EXEC_PATH GIT_TEMPLATE_DIR LESSOPEN
"""
_HARMLESS = frozenset(_HARMLESS_PYTHON.split())
_REFUSED = frozenset(_STARTERS.split())
_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH(?!OR)|COOKIE|PRIVATE|DSN|DATABASE_URL|CONNECTION_STRING"
)


def check_env_name(name: str) -> None:
    """Refuse what is no portable variable name (a shell would drop it silently), and what would start other code.

    Raises:
        ConfigError: ``name`` is not letters, digits and underscores, or changes how processes are started.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of an environment variable: use letters, digits and underscores."
        )
    upper = name.upper()
    if upper in _REFUSED or (upper.startswith(_LOADERS) and upper not in _HARMLESS):
        raise ConfigError(
            f"The variable {name!r} is not granted to scripts: it changes which code a process loads when it starts. "
            "Give the script what it needs under another name, or as an argument."
        )


def check_search_path(value: str) -> None:
    """Refuse a PATH with an empty or relative entry: it would mean whatever the script's working directory holds."""
    for entry in value.split(":"):
        if not entry.startswith("/"):
            raise ConfigError(f"PATH granted to scripts must hold absolute folders only, not {entry!r}.")


def looks_secret(name: str) -> bool:
    """Whether a variable's name suggests that its value is a secret."""
    return _SECRET.search(name.upper()) is not None


# A policy file is read only where its path is given: the ``pyproject.toml`` of the folder somebody happens to stand in
# may come with the very skills it would set limits for.

_POLICY = SettingsKind("tool.adk-skills.policy", "policy file", "a policy")
_PRESET = "preset"
_SIZES = frozenset(name for name in _FIELDS if name.endswith("_bytes"))
_UNLIMITED = frozenset(
    field.name for field in fields(SandboxPolicy) if field.type in {"int | None", "float | None"}
) - {"run_as"}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def load_policy(path: Path) -> SandboxPolicy:
    """The policy a file describes.

    The file names fields of :class:`SandboxPolicy` and may name a preset they are put over (``preset = "strict"``; the
    default policy otherwise). Sizes are whole numbers of bytes or text such as ``"512 MiB"``; ``"unlimited"`` (in YAML
    also ``null``) takes a limit away where that is legal; ``network`` is a word or ``{mode, hosts, ports}``.

    Args:
        path: A ``.toml`` file with the table ``[tool.adk-skills.policy]``, or a ``.yaml``/``.yml`` file.

    Raises:
        ConfigError: The file cannot be read or has no policy, a key is not known, or a value is not possible; the
            sentence has the file, the line and the key, and for a key the nearest known one. Values under ``env``
            are never shown.
    """
    settings = read_settings(Path(path), _POLICY)
    settings.check_keys((_PRESET, *_FIELDS))
    values = dict(settings.values)
    base = PRESETS["default"]
    if _PRESET in values:
        try:
            base = preset(values.pop(_PRESET))
        except ConfigError as error:
            raise ConfigError(f"{settings.place(_PRESET)}, key {_PRESET!r}: {error.message}") from None
    layer: dict[str, object] = {}
    for key, value in values.items():
        try:  # one at a time, so that the sentence has the line
            layer[key] = _value(key, value)
            resolve_policy({key: layer[key]}, default=base)
        except ConfigError as error:
            sentence = error.message.replace(" (call)", "")
            raise ConfigError(f"{settings.place(key)}, key {key!r}: {sentence}") from None
    return resolve_policy(layer, default=base)


def _value(key: str, value: object) -> object:
    if isinstance(value, str) and value.strip().lower() == "unlimited":
        if key not in _UNLIMITED:
            raise ConfigError(f"{key} cannot be unlimited.")
        return None
    if key in _SIZES and isinstance(value, str):
        return _bytes(key, value)
    return value


def _bytes(key: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    factor = _UNITS.get(match.group(2).upper()) if match else None
    if match is None or factor is None:
        raise ConfigError(
            f"{key} must be a whole number of bytes or a size such as '512 MiB' (B, KB, MB, GB, KiB, MiB, GiB), not "
            f"{text!r}."
        )
    return round(float(match.group(1)) * factor)
