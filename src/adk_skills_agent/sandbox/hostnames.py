"""Which host names a run may connect to: the one spelling of a name, and the patterns of an allow-list (row 58).

A name is normalised once and compared in that form only. What could be read in two ways is refused instead of guessed:
addresses in any notation, control bytes, spaces, anything that is not plain ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from adk_skills_agent.errors import ConfigError

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_NAME = 253  # RFC 1035, as text
_MAX_LABEL = 63


class HostNameError(ValueError):
    """A text that is no host name; the message completes the sentence "the host ..."."""


def normalise_host(text: str) -> str:
    """A host name in the one form that is compared, resolved and logged: lower case, no trailing dot.

    Args:
        text: What somebody wrote. Names in other scripts must be in their ``xn--`` form.

    Raises:
        HostNameError: It is an IP address in some notation, or no name at all.
    """
    if not text.isascii():
        raise HostNameError("is not ASCII; write it in its xn-- form")
    if text.startswith("["):
        raise HostNameError("is an IP address, not a name")
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not name or len(name) > _MAX_NAME or any(len(label) > _MAX_LABEL for label in labels):
        raise HostNameError("is empty or too long for a name")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise HostNameError("is no host name")
    # Whatever ends in a number is taken for an IPv4 address by some resolver: 127.1, 2130706433, 0x7f.1, 0177.0.0.1.
    if _NUMBER.fullmatch(labels[-1]):
        raise HostNameError("is an IP address, not a name")
    return name


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The names of an allow-list. An empty one allows nothing.

    Attributes:
        names: Exact names.
        suffixes: ``.example.org`` for each ``*.example.org``: its sub-domains at any depth, not the domain itself.
    """

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()

    def allows(self, name: str) -> bool:
        """Whether a name, as :func:`normalise_host` gave it, is in the list."""
        return name in self.names or name.endswith(self.suffixes)


def parse_hosts(patterns: Iterable[str]) -> AllowedHosts:
    """The allow-list of a policy: exact names and ``*.example.org``.

    Raises:
        ConfigError: A pattern that is neither; the sentence says what to write instead.
    """
    names: set[str] = set()
    suffixes: dict[str, None] = {}
    for pattern in patterns:
        wildcard = pattern.startswith("*.")
        if "*" in (pattern[2:] if wildcard else pattern):
            raise ConfigError(
                f"network: the host {pattern!r} has a * where none can be; '*.example.org' allows the sub-domains of "
                "example.org, and network 'host' allows everything."
            )
        try:
            name = normalise_host(pattern[2:] if wildcard else pattern)
        except HostNameError as error:
            raise ConfigError(f"network: the host {pattern!r} {error}.") from None
        if not wildcard:
            names.add(name)
        elif "." not in name:
            raise ConfigError(f"network: the host {pattern!r} is a whole top-level domain; name the domains you trust.")
        else:
            suffixes[f".{name}"] = None
    return AllowedHosts(frozenset(names), tuple(suffixes))
