"""A toolset in google-adk's YAML agents: the keyword arguments of ``SkillToolset`` as plain values.

    tools:
      - name: adk_skills_agent.SkillToolset
        args:
          dirs: [skills]
          policy: strict
          grants:
            weather: {hosts: [api.example.org], env: {KEY: {secret: WEATHER_KEY}}}

Paths start at the YAML file. What only Python can give (functions, executors, registries) has no key here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from adk_skills_agent.adk.options import SkillLifecycleConfig, SkillLimits
from adk_skills_agent.adk.permissions import Permissions
from adk_skills_agent.adk.shell.commands import ShellSettings
from adk_skills_agent.errors import ConfigError, did_you_mean
from adk_skills_agent.packages import Dependencies
from adk_skills_agent.sandbox import load_policy, resolve_policy
from adk_skills_agent.scripts.grants import written_grants

_FILES = (".yaml", ".yml", ".toml")


def toolset_arguments(args: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The arguments of ``SkillToolset.from_dirs`` that a YAML agent writes.

    Raises ``ConfigError`` when a key does not exist or is for Python alone, ``dirs`` is missing, or a value cannot be
    used; with the file and the key.
    """
    if not args.get("dirs"):
        raise ConfigError(f"{file}: SkillToolset needs args with dirs: a list of folders, such as dirs: [skills].")
    found: dict[str, Any] = {"relative_to": str(file)}
    for key, value in args.items():
        read = _READERS.get(key)
        if read is None:
            hint = did_you_mean(key, _READERS, f"There are {', '.join(_READERS)}.")
            if key in _PYTHON_ONLY:
                hint = "It takes a Python object; write the agent in Python (agent.py) for it."
            raise ConfigError(f"{file}: args of SkillToolset: there is no key {key!r} here. {hint}")
        try:
            found[key] = read(value, file)
        except ConfigError as error:
            raise ConfigError(f"{file}: args of SkillToolset: {key}: {error.message}") from error
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{file}: args of SkillToolset: {key}: {error}.") from error
    return found


def _plain(value: Any, _file: Path) -> Any:
    return value


def _folders(value: Any, _file: Path) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise ConfigError(f"must be a list of folders, such as [skills], not {value!r}.")
    return list(value)


def _path(value: Any, file: Path) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"must be a path, not {value!r}.")
    return str(file.parent / Path(value).expanduser())


def _policy(value: Any, file: Path) -> Any:
    if isinstance(value, Mapping):
        return resolve_policy(value)
    if isinstance(value, str) and value.endswith(_FILES):
        return load_policy(Path(_path(value, file)))
    return value


def _permissions(value: Any, file: Path) -> Any:
    return Permissions.from_file(_path(value, file)) if isinstance(value, str) else value


def _variables(value: Any, _file: Path) -> Any:
    """Variables for every script, ``{secret: NAME}`` among them."""
    return dict(written_grants({"all": {"env": value}})["all"].env)


def _grants(value: Any, _file: Path) -> Any:
    return written_grants(value)


def _store(value: Any, file: Path) -> Any:
    """A URL, ``artifacts``, or a path that starts at the file; or a mapping with ``url`` and the store's settings."""
    from adk_skills_agent.adk.running.workspace_stores import ARTIFACTS, check_word
    from adk_skills_agent.scripts.workspace_store import WorkspaceStore

    if isinstance(value, Mapping):
        known = ("url", "key", "max_bytes", "lease_seconds", "wait_seconds", "options")
        wrong = next((str(name) for name in value if name not in known), None)
        if wrong is not None or "url" not in value:
            raise ConfigError(f"there is no {wrong!r}. It has {', '.join(known)}." if wrong else "url is missing.")
        settings = {name: given for name, given in value.items() if name not in ("url", "key", "options")}
        if "key" in value:
            key = _variables({"KEY": value["key"]}, file)["KEY"]
            settings["key"] = key
        return WorkspaceStore(_store(value["url"], file), **settings, **(value.get("options") or {}))
    check_word(value)
    if isinstance(value, str) and "://" not in value and value != ARTIFACTS:
        return _path(value, file)
    return value


def _made_of(kind: type[Any]) -> Callable[[Any, Path], Any]:
    """The function that makes a settings object from a mapping of its fields."""
    known = tuple(field.name for field in fields(kind) if field.init and not field.name.startswith("_"))

    def read(value: Any, _file: Path) -> Any:
        if not isinstance(value, Mapping):
            return value
        for name in value:
            if name not in known:
                hint = did_you_mean(name, known, f"It has {', '.join(known)}.")
                raise ConfigError(f"there is no {name!r}. {hint}")
        return kind(**value)

    return read


def _dependencies(value: Any, file: Path) -> Any:
    """As Python has it; ``store_key`` as ``{secret: NAME}``, and a ``store`` that is a folder starts at the file."""
    if isinstance(value, Mapping):
        own = dict(value)
        if isinstance(own.get("store_key"), Mapping):
            own["store_key"] = _variables({"KEY": own["store_key"]}, file)["KEY"]
        if "store" in own:
            own["store"] = _store(own["store"], file)
        value = own
    return _made_of(Dependencies)(value, file)


_READERS: Mapping[str, Callable[[Any, Path], Any]] = {
    "dirs": _folders,
    "missing": _plain,
    "policy": _policy,
    "sandbox": _plain,
    "permissions": _permissions,
    "grants": _grants,
    "env": _variables,
    "interpreters": _plain,
    "shell": _made_of(ShellSettings),
    "dependencies": _dependencies,
    "limits": _made_of(SkillLimits),
    "lifecycle_config": _made_of(SkillLifecycleConfig),
    "discovery_mode": _plain,
    "audit_log": _path,
    "script_timeout": _plain,
    "tool_name_prefix": _plain,
    "tool_filter": _plain,
    "script_tool_name": _plain,
    "require_activation": _plain,
    "budget_tokens": _plain,
    "model": _plain,
    "file_list": _plain,
    "argument_style": _plain,
    "workspace": _plain,
    "workspace_store": _store,
    "integrity": _plain,
    "trust_allowed_tools": _plain,
}
_PYTHON_ONLY = (
    "skills",
    "registry",
    "code_executor",
    "environment",
    "skills_folder",
    "save_output_artifacts",
    "additional_tools",
    "on_event",
    "relative_to",
)
