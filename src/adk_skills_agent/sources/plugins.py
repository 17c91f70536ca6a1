"""Marketplaces and plugins: Agent Plugins, Claude, Codex and Gemini; only their skills matter here.

The skills of a plugin in the same repository are found by their SKILL.md like any others. What a manifest adds are the
names of plugins, and plugins that live in other repositories.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sources.origin import Origin, OriginKind, strangers_origin

MARKETPLACES = (".claude-plugin/marketplace.json", ".agents/plugins/marketplace.json", "marketplace.json")
MANIFESTS = ("plugin.json", ".claude-plugin/plugin.json", ".codex-plugin/plugin.json", "gemini-extension.json")
MAX_PLUGINS = 2_000
_MAX_JSON = 4 << 20


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin of a marketplace."""

    name: str
    folder: str = ""  # where it is in the same source; empty for its root
    external: Origin | None = None  # where it is instead
    skills: tuple[str, ...] = ("",)  # the folders in it whose skills are the plugin's

    def places(self) -> list[str]:
        """Where its skills are in the source."""
        return ["/".join(filter(None, (self.folder, one))) for one in self.skills]


@dataclass(frozen=True, slots=True)
class Marketplace:
    """The plugins of a source by name."""

    plugins: Mapping[str, Plugin] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # entries that cannot be used, a sentence each


def read_marketplace(read: Callable[[str], bytes | None]) -> Marketplace:
    """The plugins that a source says it has."""
    plugins: dict[str, Plugin] = {}
    problems: list[str] = []
    for place in MARKETPLACES:
        table = _json(read(place))
        listed = table.get("plugins")
        base = str(_mapping(table.get("metadata")).get("pluginRoot") or "")
        for one in listed[:MAX_PLUGINS] if isinstance(listed, list) else ():
            plugin = _plugin(_mapping(one), base)
            if isinstance(plugin, Plugin):
                plugins.setdefault(plugin.name, plugin)
            else:
                problems.append(f"{place}: {plugin}")
    for place in MANIFESTS:
        name = _json(read(place)).get("name")
        if isinstance(name, str) and name:
            plugins.setdefault(name, Plugin(name))
    return Marketplace(plugins, tuple(problems))


def _plugin(one: Mapping[str, Any], base: str) -> Plugin | str:
    name, source = one.get("name"), one.get("source")
    if not isinstance(name, str) or not name:
        return "an entry has no name."
    if isinstance(source, str):
        plugin = _inside(name, source if source.startswith(("./", "/")) or not base else f"{base}/{source}")
        listed = one.get("skills")
        if isinstance(plugin, str) or one.get("strict") is not False or listed is None:
            return plugin
        inside = [_inside(name, str(path)) for path in (listed if isinstance(listed, list) else [listed])]
        folders = tuple(found.folder for found in inside if isinstance(found, Plugin))
        outside = next((found for found in inside if isinstance(found, str)), "")
        return outside or Plugin(name, plugin.folder, skills=folders)
    table = _mapping(source)
    kind = str(table.get("source") or table.get("type") or "")
    ref = str(table.get("sha") or table.get("ref") or "")
    try:
        match kind:
            case "github" if isinstance(table.get("repo"), str):
                found = strangers_origin(str(table["repo"]), ref=ref or None)
                if found.kind is not OriginKind.GIT:
                    return f"the plugin {name[:80]!r} names no repository of GitHub."
                return Plugin(name, external=found)
            case "url" | "git" if isinstance(table.get("url"), str):
                return Plugin(name, external=strangers_origin(f"git+{table['url']}", ref=ref or None))
            case "git-subdir" if isinstance(table.get("url"), str):
                found = strangers_origin(f"git+{table['url']}#{table.get('path', '')}", ref=ref or None)
                return Plugin(name, external=found)
            case "local" | "path" if isinstance(table.get("path"), str):
                return _inside(name, str(table["path"]))
            case "pip" | "pypi" if isinstance(table.get("package"), str):
                return Plugin(name, external=strangers_origin(f"pypi:{table['package']}", ref=ref or None))
    except ConfigError as error:
        return f"the plugin {name[:80]!r}: {error.message}"
    return f"the plugin {name[:80]!r} is at {kind[:40] or 'no place'!r}, which skills are not fetched from."


def _inside(name: str, path: str) -> Plugin | str:
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts or path.startswith("/"):
        return f"the plugin {name[:80]!r} is outside the source."
    return Plugin(name, "/".join(parts))


def _json(data: bytes | None) -> Mapping[str, Any]:
    if data is None or len(data) > _MAX_JSON:
        return {}
    try:
        return _mapping(json.loads(data))
    except (ValueError, RecursionError):
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
