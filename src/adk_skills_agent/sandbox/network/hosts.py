"""Which host names a run may connect to: the one spelling of a name, and the patterns of an allow-list (row 58).

A name is normalised once and compared in that form only. What could be read in two ways is refused instead of guessed:
addresses in any notation, control bytes, spaces, anything that is not plain ASCII.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from adk_skills_agent.errors import ConfigError

AddressNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
_Of = TypeVar("_Of")

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
MAX_NAME = 253
"""Characters of the longest name (RFC 1035, as text)."""
_MAX_LABEL = 63


class HostNameError(ValueError):
    """A text that is not a host name; the message completes the sentence "the host ..."."""


def normalise_host(text: str) -> str:
    """A host name in the one form that is compared, resolved and logged: lower case, no trailing dot.

    Raises:
        HostNameError: It is an IP address in some notation, or no name at all.
    """
    if not text.isascii():
        raise HostNameError("is not ASCII; write it in its xn-- form")
    if text.startswith("["):
        raise HostNameError("is an IP address, not a name")
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not name or len(name) > MAX_NAME or any(len(label) > _MAX_LABEL for label in labels):
        raise HostNameError("is empty or too long for a name")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise HostNameError("is not a host name")
    # Whatever ends in a number is taken for an IPv4 address by some resolver: 127.1, 2130706433, 0x7f.1, 0177.0.0.1.
    if _NUMBER.fullmatch(labels[-1]):
        raise HostNameError("is an IP address, not a name")
    return name


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The names of an allow-list, to their ports, and what is refused although a wider entry allows it.

    A key is an exact name, ``.example.org`` for ``*.example.org`` (its sub-domains at any depth, not the domain
    itself), or empty for ``*``, which only a refusal can be. None among ports stands for those of the policy.
    ``networks`` are the private ones in which a name's server may be.
    """

    entries: Mapping[str, frozenset[int | None]] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    networks: Mapping[str, tuple[AddressNetwork, ...]] = field(default_factory=dict)

    def allows(self, name: str) -> bool:
        """Whether a name, as :func:`normalise_host` gave it, is in the list."""
        return bool(self._matching(name, self.entries))

    def ports_of(self, name: str, usual: Collection[int]) -> frozenset[int]:
        """The ports on which a normalised name may be reached, of which some are the policy's; none when it is not
        listed.
        """
        given = frozenset().union(*self._matching(name, self.entries))
        return frozenset(port for port in given if port is not None) | (frozenset(usual) if None in given else set())

    def networks_of(self, name: str) -> tuple[AddressNetwork, ...]:
        """The private networks in which the server of a normalised name may be."""
        return tuple(chain.from_iterable(self._matching(name, self.networks)))

    def _matching(self, name: str, entries: Mapping[str, _Of]) -> list[_Of]:
        """What the entries say that hold for a name: those narrower than every refusal it falls under."""
        narrowest = max((_width(key, name) for key in self.refused), default=-1)
        return [of for key, of in entries.items() if _width(key, name) > narrowest]


def _width(key: str, name: str) -> int:
    """How narrowly a key means a name: -1 not at all, 0 as everything, most when it spells it out."""
    if key == name:
        return MAX_NAME + 1
    return len(key) if (not key or key.startswith(".")) and name.endswith(key) else -1


def parse_hosts(patterns: Iterable[str], refused: Iterable[str] = ()) -> AllowedHosts:
    """The allow-list of a policy: exact names and ``*.example.org``, each with a port of its own or without.

    Args:
        patterns: What is allowed: ``api.example.org``, ``*.example.org``, ``db.example.org:5432``,
            ``files.corp.example=10.20.0.0/16`` for one whose server is in that private network.
        refused: What is not although a wider pattern allows it; ``*`` for all that is not spelled out more narrowly.

    Raises:
        ConfigError: A pattern has another form; the sentence says what to write instead.
    """
    entries: dict[str, frozenset[int | None]] = {}
    networks: dict[str, tuple[AddressNetwork, ...]] = {}
    for key, port, network in map(parse_host, patterns):
        entries[key] = entries.get(key, frozenset()) | {port}
        if network is not None:
            networks[key] = (*networks.get(key, ()), network)
    keys = frozenset("" if pattern == "*" else parse_host(pattern).key for pattern in refused)
    return AllowedHosts(entries, keys, networks)


class HostEntry(NamedTuple):
    """An entry of an allow-list."""

    key: str  # see AllowedHosts
    port: int | None = None  # None for the policy's
    network: AddressNetwork | None = None  # the private one in which its server may be


def parse_host(pattern: str) -> HostEntry:
    """One entry of an allow-list.

    Raises:
        ConfigError: It is not a host name and no ``*.example.org``; the sentence says what to write instead.
    """
    host, mark, behind = pattern.partition("=")
    key, port = _parse_name(host)
    return HostEntry(key, port, _private_network(pattern, behind) if mark else None)


def _private_network(pattern: str, text: str) -> AddressNetwork:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigError(
            f"network: what follows = in {pattern!r} is no network: {error}. Write it as in '=10.20.0.0/16'."
        ) from None
    if not any(network.subnet_of(private) for private in _PRIVATE if private.version == network.version):  # type: ignore[arg-type]  # of one version
        raise ConfigError(
            f"network: {text} in {pattern!r} is no private network; only parts of "
            f"{', '.join(map(str, _PRIVATE))} can be opened. A server at a public address needs no network."
        )
    return network


def _parse_name(pattern: str) -> tuple[str, int | None]:
    text, _, digits = pattern.partition(":")
    port = None
    if digits.isascii() and digits.isdigit():
        port = int(digits) if len(digits) < 6 else 0
        if not 0 < port < 65536:
            raise ConfigError(f"network: the host {pattern!r} has no possible port; use a number from 1 to 65535.")
    else:
        text = pattern
    wildcard = text.startswith("*.")
    if "*" in (text[2:] if wildcard else text):
        raise ConfigError(
            f"network: the host {pattern!r} has a * where none can be; '*.example.org' allows the sub-domains of "
            "example.org, and network 'host' allows everything."
        )
    try:
        name = normalise_host(text[2:] if wildcard else text)
    except HostNameError as error:
        inside = urlsplit(pattern if "://" in pattern else f"//{pattern}").hostname if "/" in pattern else None
        hint = f" Did you mean {inside!r}?" if inside else ""
        raise ConfigError(f"network: the host {pattern!r} {error}.{hint}") from None
    if not wildcard:
        return name, port
    if "." not in name:
        raise ConfigError(f"network: the host {pattern!r} is a whole top-level domain; name the domains you trust.")
    return f".{name}", port


# Which addresses the proxy may connect to: public ones, never this machine or a network around it (row 58).
#
# An allow-list names hosts; whoever runs a name's DNS chooses its address. So the address is checked as well, and the
# connection goes to the checked address.

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_V4_REFUSED: tuple[tuple[ipaddress.IPv4Network, str], ...] = tuple(
    (ipaddress.IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this machine"),
        ("10.0.0.0/8", "a private network"),
        ("100.100.100.200/32", "a cloud platform's own service"),  # Alibaba's metadata
        ("100.64.0.0/10", "a carrier's private network"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud platform's own service"),  # Azure's, a public address only in form
        ("169.254.0.0/16", "link-local"),  # with 169.254.169.254, the metadata of most clouds
        ("172.16.0.0/12", "a private network"),
        ("192.0.0.0/24", "reserved"),  # with 192.0.0.192, Oracle's metadata
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "a private network"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_V6_REFUSED: tuple[tuple[ipaddress.IPv6Network, str], ...] = tuple(
    (ipaddress.IPv6Network(network), what)
    for network, what in (
        ("::1/128", "loopback"),
        ("::/128", "this machine"),
        ("fd00:ec2::/32", "a cloud platform's own service"),  # metadata of AWS
        ("fd20:ce::/32", "a cloud platform's own service"),  # and of Google
        ("fc00::/7", "a private network"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "a private network"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),  # with Teredo, which carries an IPv4 address of anybody's choice
        ("2001:db8::/32", "reserved"),
        ("3fff::/20", "reserved"),
    )
)
_PRIVATE_KINDS = frozenset({"a private network", "a carrier's private network"})
_PRIVATE = tuple(network for network, kind in _V4_REFUSED if kind in _PRIVATE_KINDS) + tuple(
    network for network, kind in _V6_REFUSED if kind in _PRIVATE_KINDS
)
"""Only these can be opened by the entry of a host: never this machine, and no service of the cloud under it."""
_V6_PUBLIC = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
_ISATAP_MARKS = (0x00005EFE, 0x02005EFE)


def parse_networks(texts: Sequence[str]) -> tuple[AddressNetwork, ...]:
    """Addresses and networks in the usual notation."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def address_refusal(
    text: str, *, allowed: Sequence[AddressNetwork] = (), private: Sequence[AddressNetwork] = ()
) -> str | None:
    """Why the proxy may not connect to a numeric address, in words like "loopback"; None when it may.

    ``private`` are the private networks that its name may lead into. ``allowed`` are networks that are allowed whatever
    they are; for tests.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "no address"
    if any(address in network for network in allowed):
        return None
    if isinstance(address, ipaddress.IPv4Address):
        reason = _refuse_v4(address)
    elif address.scope_id is not None:
        reason = "link-local"
    else:
        reason = _refuse_v6(address)
    if reason in _PRIVATE_KINDS and any(address in network for network in private):
        reason = None
    if reason is None and is_own(address):
        return "this machine"
    return reason


def is_own(address: Address) -> bool:
    """Whether an address is one of this machine's: only those can be bound."""
    if not _can_bind(address):
        return False
    documentation: Address = ipaddress.ip_address("192.0.2.1" if address.version == 4 else "2001:db8::1")
    if not _can_bind(documentation):
        return True
    # net.ipv4.ip_nonlocal_bind is on (load balancers): everything can be bound. Ask the routing table instead.
    with _probe(address) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False  # no route there at all
        return ipaddress.ip_address(probe.getsockname()[0]) == address


def _refuse_v4(address: ipaddress.IPv4Address) -> str | None:
    return next((what for network, what in _V4_REFUSED if address in network), None)


def _refuse_v6(address: ipaddress.IPv6Address) -> str | None:
    if address in _MAPPED or address in _NAT64:
        return _refuse_v4(_low_bits(int(address)))
    for network, what in _V6_REFUSED:
        if address in network:
            return what
    if address not in _V6_PUBLIC:
        return "reserved"
    if address in _SIX_TO_FOUR:
        return _refuse_v4(_low_bits(int(address) >> 80))
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP_MARKS:
        return _refuse_v4(_low_bits(int(address)))
    return None


def _low_bits(number: int) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(number & 0xFFFFFFFF)


def _probe(address: Address) -> socket.socket:
    return socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)


def _can_bind(address: Address) -> bool:
    try:
        probe = _probe(address)
    except OSError:
        if address.version == 6 and not socket.has_ipv6:
            return False
        raise
    with probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
        return True
