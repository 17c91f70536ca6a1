"""The owner's grants to skills and scripts: variables, network hosts, programs of this machine.

Nothing is granted by a skill itself. A grant opens what the toolset's policy leaves shut, for its skill and nobody
else: the scripts of another skill of the same session get none of it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from adk_skills_agent.catalog.skill import name_in_rules
from adk_skills_agent.errors import ConfigError, did_you_mean, nearest
from adk_skills_agent.sandbox import (
    EnvValue,
    Network,
    SandboxPolicy,
    Secret,
    SecretForms,
    check_env,
    forms_of,
    parse_host,
    secrets_of,
)
from adk_skills_agent.scripts.interpreters import SCRIPTS_FOLDER

HasFile = Callable[[str], bool]
NearestFiles = Callable[[str, str], Sequence[str] | None]
_NOTHING: Mapping[str, EnvValue] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Grant:
    """What one skill or script may use beyond what the policy gives all scripts.

    Args:
        hosts: Names it may connect to, through the checking proxy: ``api.example.org``, ``*.example.org`` (sub-domains
            at any depth), ``db.example.org:5432``. Without a port those of the policy's network hold (443). With
            ``=10.20.0.0/16`` behind it the server may be in that private network.
        env: Variables; a :class:`Secret` reaches this skill's scripts and nobody else.
        programs: Programs of this machine that lie outside the folders every script sees: a file, or the folder of an
            installation (its ``bin`` is searched, or the folder itself), as absolute paths, or a name that the agent's
            own PATH finds. They are readable, and at the end of the scripts' PATH.

    Raises:
        ConfigError: A host, a variable or a program cannot be used. No sentence shows the value of a variable.
    """

    hosts: Sequence[str] = ()
    env: Mapping[str, EnvValue] = field(default_factory=lambda: _NOTHING)
    programs: Sequence[str | Path] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "hosts", _hosts(self.hosts))
        object.__setattr__(self, "env", check_env(self.env, "a grant"))
        object.__setattr__(self, "programs", tuple(map(_program, _listed(self.programs, "programs"))))

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders in which its programs are found."""
        return tuple(dict.fromkeys(_searched(str(program)) for program in self.programs))

    def and_also(self, other: Grant) -> Grant:
        """Both together; the other one's variables win."""
        return Grant(
            tuple(dict.fromkeys((*self.hosts, *other.hosts))),
            {**self.env, **other.env},
            tuple(dict.fromkeys((*self.programs, *other.programs))),
        )


def grant_of(value: object, where: str) -> Grant:
    """The grant that a value of ``grants=`` means: a :class:`Grant`, or a plain mapping of variables.

    Raises ``ConfigError`` when it is neither.
    """
    if isinstance(value, Grant):
        return value
    if isinstance(value, Mapping) and (named := {"hosts", "programs"} & value.keys()):
        name = named.pop()
        raise ConfigError(f"{where}: a plain mapping holds variables. For {name} write Grant({name}=[...]).")
    return Grant(env=check_env(value, where))


@dataclass(frozen=True, slots=True)
class HostRules:
    """The rules and answers about the hosts of one call, beyond its grants. Entries as in :class:`Grant`."""

    allowed: tuple[str, ...] = ()  # by a rule, or by the user
    denied: tuple[str, ...] = ()  # never, whatever is granted; ``*`` for all
    asked: tuple[str, ...] = ()  # the user is asked once a script tried one; ``*`` for every host nobody granted


NO_HOST_RULES = HostRules()


def network_of(network: Network, granted: Sequence[str], rules: HostRules = NO_HOST_RULES) -> Network:
    """The network of a run: the policy's, what is granted, and never what is denied.

    Where the user can be asked about hosts, a run that may reach none still gets a proxy, which refuses all and knows
    their names. ``host`` stays as it is: nothing is checked there.
    """
    if network.mode == "host":
        return network
    listed = network.hosts if network.mode == "allow" else ()
    wanted = dict.fromkeys((*listed, *granted, *rules.allowed))
    hosts = tuple(host for host in wanted if not any(within(host, pattern) for pattern in rules.denied))
    approved = {parse_host(host).key for host in rules.allowed}
    asked = [one for one in rules.asked if one == "*" or parse_host(one).key not in approved]
    if not hosts and not asked:
        return Network.none() if network.mode == "allow" else network
    return replace(
        network, mode="allow", hosts=hosts, refused=tuple(dict.fromkeys((*network.refused, *rules.denied, *asked)))
    )


def within(host: str, pattern: str) -> bool:
    """Whether everything that a host or wildcard means is meant by a pattern, too; ports aside."""
    if pattern == "*":
        return True
    name, wide = parse_host(host).key, parse_host(pattern).key
    return name == wide or (wide.startswith(".") and name.endswith(wide))


class Grants:
    """All grants of a toolset, by whom they are for.

    A script gets what is granted to all, to its skill and to itself; of a variable the narrower grant wins. What is a
    :class:`Secret` anywhere here is kept out of the output of every script, because the scripts of a session share a
    workspace. ``env`` is for every script, ``by_name`` for a skill (``"weather"``) or one script
    (``"weather/scripts/forecast.py"``); it wins over ``also``, such as those of a permissions file.

    Raises:
        ConfigError: A key, a variable's name or a value cannot be used. No sentence shows a value.
    """

    def __init__(
        self,
        env: Mapping[str, EnvValue] | None = None,
        by_name: GrantsByName | None = None,
        also: GrantsByName | None = None,
    ) -> None:
        self._all = check_env(env or _NOTHING, "env")
        self._by_name = _by_name(by_name)
        for name, grant in _by_name(also).items():
            own = self._by_name.get(name)
            self._by_name[name] = grant.and_also(own) if own is not None else grant
        self.empty = not self._all and not self._by_name
        self.for_scripts = any("/" in name for name in self._by_name)  # whether a single script has some

    def opened(
        self,
        skill: str,
        script: str,
        policy: SandboxPolicy,
        env: Mapping[str, EnvValue],
        hosts: HostRules | None = None,
        has: HasFile = lambda _path: False,
    ) -> tuple[SandboxPolicy, dict[str, EnvValue]]:
        """The policy and the variables of one run: the toolset's, with what is granted to it.

        ``skill`` is empty for what is granted to all only, ``script`` for a command. ``env`` comes before granted
        variables; ``hosts`` is what rules and answers say of hosts, ``has`` as :meth:`of`.
        """
        granted = self.of(skill, script, has) | dict(env)
        return self.policy_of(skill, script, policy, hosts, has), self.with_programs(
            skill, script, policy, granted, has
        )

    def of(self, skill: str, script: str, has: HasFile = lambda _path: False) -> dict[str, EnvValue]:
        """The variables of one script.

        ``has`` says whether the skill has a file, and may block: a key without ``scripts/`` is for the file it spells
        out where the skill has that, else for the one of its scripts folder, as a call is.
        """
        variables = dict(self._all)
        for grant in self._for(skill, script, has):
            variables.update(grant.env)
        return variables

    def has(self, skill: str) -> bool:
        """Whether commands of a skill get more than those of no skill."""
        return name_in_rules(skill) in self._by_name

    def names(self, skill: str) -> bool:
        """Whether anything is granted to a skill or to one of its scripts by its name."""
        return any(key.partition("/")[0] == name_in_rules(skill) for key in self._by_name)

    def hosts_of(self, skill: str, script: str, has: HasFile = lambda _path: False) -> tuple[str, ...]:
        """The hosts one script may connect to besides those of the policy."""
        return tuple(dict.fromkeys(host for grant in self._for(skill, script, has) for host in grant.hosts))

    def policy_of(
        self,
        skill: str,
        script: str,
        policy: SandboxPolicy,
        hosts: HostRules | None = None,
        has: HasFile = lambda _path: False,
    ) -> SandboxPolicy:
        """The policy of one script: the toolset's, opened as far as is granted to it.

        ``hosts`` is what rules and answers say of hosts, ``has`` as :meth:`of`.
        """
        network = network_of(policy.network, self.hosts_of(skill, script, has), hosts or NO_HOST_RULES)
        programs = [str(program) for grant in self._for(skill, script, has) for program in grant.programs]
        if network == policy.network and not programs:
            return policy
        return replace(policy, network=network, extra_ro=tuple(dict.fromkeys((*policy.extra_ro, *programs))))

    def with_programs(
        self,
        skill: str,
        script: str,
        policy: SandboxPolicy,
        env: dict[str, EnvValue],
        has: HasFile = lambda _path: False,
    ) -> dict[str, EnvValue]:
        """The variables of one script with its granted programs at the end of PATH: they shadow nothing.

        The PATH of ``policy`` holds where ``env`` has none.
        """
        folders = [folder for grant in self._for(skill, script, has) for folder in grant.folders]
        if not folders:
            return env
        from adk_skills_agent.sandbox import search_path  # only where programs are granted, as it brings asyncio

        given = env.get("PATH", policy.env.get("PATH"))
        before = given.reveal() if isinstance(given, Secret) else given or search_path(policy.python)
        return env | {"PATH": ":".join(dict.fromkeys((*before.split(":"), *folders)))}

    def _for(self, skill: str, script: str, has: HasFile) -> list[Grant]:
        """The widest first."""
        skill = name_in_rules(skill)
        short = script.removeprefix(f"{SCRIPTS_FOLDER}/")
        other = self._by_name.get(f"{skill}/{short}") if short != script else None
        if other is not None and has(short):
            other = None  # that key is for the file it spells out
        found = (self._by_name.get(skill), other, self._by_name.get(f"{skill}/{script}"))
        return [grant for grant in found if grant is not None]

    @cached_property
    def secrets(self) -> tuple[tuple[str, Secret], ...]:
        """All secrets and their names."""
        return secrets_of(self._all, *(grant.env for grant in self._by_name.values()))

    @cached_property
    def forms(self) -> SecretForms | None:
        """The matcher of these values; None if there are none."""
        return forms_of(self.secrets)

    def unknown(self, skills: Iterable[str], like: NearestFiles = lambda _skill, _path: None) -> list[str]:
        """One sentence for each key that is for nothing.

        ``like`` tells which scripts of a skill are most like a path; None when it has that very script, or when its
        files are not known. It may block.
        """
        names = {name_in_rules(name): name for name in skills}
        sentences = []
        for key in self._by_name:
            skill, _, path = key.partition("/")
            if skill not in names:
                sentences.append(_unknown(key, f"this agent has no skill {skill!r}", nearest(skill, names)))
            elif path and (close := like(names[skill], path)) is not None:
                full = _full(key)
                missing = full.partition("/")[2]
                sentences.append(_unknown(full, f"the skill has no such script {missing!r}", close))
        return sentences


GrantsByName = Mapping[str, Grant | Mapping[str, EnvValue]]
"""What ``grants=`` takes."""


def _by_name(given: object) -> dict[str, Grant]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"grants must map skills or scripts to their variables, not be of type {type(given).__name__}."
        )
    found: dict[str, Grant] = {}
    for key, value in given.items():
        name = _key(key)
        if _full(name) in map(_full, found):
            raise ConfigError(f"grants: {key!r} and another key mean the same script {name!r}. Join them.")
        found[name] = grant_of(value, f"grants for {key!r}")
    return found


def _unknown(key: str, problem: str, close: Sequence[str]) -> str:
    hint = f" Nearest: {', '.join(close)}." if close else ""
    return f"A grant is for {key!r}, and {problem}.{hint}"


def _key(key: object) -> str:
    wish = "Write a skill's name, such as 'weather', or a script's, such as 'weather/scripts/forecast.py'."
    if not isinstance(key, str) or not key:
        raise ConfigError(f"grants: {key!r} names no skill and no script. {wish}")
    skill, slash, path = key.partition("/")
    parts = path.split("/")
    if not skill or "\\" in key or (slash and any(part in {"", ".", ".."} for part in parts)):
        raise ConfigError(f"grants: {key!r} names no skill and no script. {wish}")
    if not slash:
        return skill
    return "/".join([skill, *parts])


def _full(name: str) -> str:
    """A script's key with the folder that may be left out."""
    skill, slash, path = name.partition("/")
    return name if not slash or path.startswith(f"{SCRIPTS_FOLDER}/") else f"{skill}/{SCRIPTS_FOLDER}/{path}"


def _listed(values: object, what: str) -> Sequence[object]:
    if isinstance(values, (str, Path)) or not isinstance(values, Sequence):
        raise ConfigError(f"{what} of a grant must be a list, not {type(values).__name__}.")
    return values


def _hosts(values: object) -> tuple[str, ...]:
    hosts: list[str] = []
    for host in _listed(values, "hosts"):
        if not isinstance(host, str):
            raise ConfigError(f"hosts of a grant must be names, such as 'api.example.org', not {host!r}.")
        parse_host(host)
        hosts.append(host)
    return tuple(hosts)


def _program(value: object) -> str:
    """The path of a program or an installation."""
    if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
        raise ConfigError(f"programs of a grant must be names or absolute paths, not {value!r}.")
    text = str(value)
    if "/" not in text:
        found = shutil.which(text)
        if found is None:
            raise ConfigError(
                f"programs: there is no {text!r} on the agent's PATH. Install it, or write its full path."
            )
        return os.path.abspath(found)  # noqa: PTH100  # a link stays a link: its name may decide what it does
    if not os.path.isabs(text):  # noqa: PTH117
        raise ConfigError(f"programs: {text!r} is no absolute path. Write one, or a name that the agent's PATH finds.")
    path = os.path.normpath(text)
    if path == "/":
        raise ConfigError("programs: '/' would show scripts the whole machine. Name the program or its folder.")
    if os.path.isdir(path):  # noqa: PTH112
        return path
    if not os.access(path, os.X_OK):
        raise ConfigError(f"programs: {path!r} is no program that can be run here. Check the path and its mode.")
    return path


def _searched(program: str) -> str:
    """The folder that PATH gets for a granted program or installation."""
    if not os.path.isdir(program):  # noqa: PTH112
        return os.path.dirname(program)  # noqa: PTH120
    inner = os.path.join(program, "bin")  # noqa: PTH118
    return inner if os.path.isdir(inner) else program  # noqa: PTH112


# Grants in a permissions file.


def written_grants(grants: object) -> dict[str, Grant]:
    """Grants as a file has them: plain values, and ``{secret: NAME}`` for a variable of the agent's environment.

    Raises ``ConfigError`` when something of it is no grant; the sentence says whose.
    """
    if grants is None:
        return {}
    if not isinstance(grants, Mapping):
        raise ConfigError(f"grants must map skills or scripts to grants, not be of type {type(grants).__name__}.")
    return {str(name): _written_grant(value, f"grants: {name}") for name, value in grants.items()}


def _written_grant(value: object, where: str) -> Grant:
    if isinstance(value, Grant):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: a grant has hosts, env and programs, not {type(value).__name__}.")
    for key in value:
        if key not in _GRANT_KEYS:
            hint = did_you_mean(key, _GRANT_KEYS, f"It has {', '.join(_GRANT_KEYS)}.")
            raise ConfigError(f"{where}: a grant has no {str(key)!r}. {hint}")
    env = value.get("env") or {}
    if not isinstance(env, Mapping):
        raise ConfigError(f"{where}: env maps names to values, not {type(env).__name__}.")
    variables = {name: _written_value(name, content, where) for name, content in env.items()}
    try:
        return Grant(value.get("hosts") or (), variables, value.get("programs") or ())
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}") from None


def _written_value(name: object, content: object, where: str) -> EnvValue:
    if isinstance(content, Mapping):
        source = content.get("secret")
        if set(content) != {"secret"} or not isinstance(source, str):
            wish = "text, or {secret: NAME} with the name of a variable in the agent's environment"
            raise ConfigError(f"{where}: {name!r} must be {wish}.")
        return Secret.from_env(source)
    if isinstance(content, Secret):
        return content
    if not isinstance(content, str):
        raise ConfigError(f"{where}: the value of {name!r} must be a text. Put it in quotes.")
    return content


_GRANT_KEYS = ("hosts", "env", "programs")
