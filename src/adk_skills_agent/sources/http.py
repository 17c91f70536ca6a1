"""Bytes from web servers of strangers: bounded while they stream, no redirect into a private network unasked."""

from __future__ import annotations

import functools
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from adk_skills_agent.errors import SourceError, said_by

if TYPE_CHECKING:
    import httpx

MAX_REDIRECTS = 5
SECONDS = 60.0
"""Between two bytes; the whole answer may take ten times that."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class WebClient:
    """Gets what a user named, and what that refers to.

    Certificates are checked against the system's authorities, or those of ``SSL_CERT_FILE``; proxies are taken from
    the environment. A host the user named may be private; one that others name may not. ``named`` is the URL the
    user wrote, or empty. With ``allow_private`` a server may send us to private addresses.
    """

    def __init__(self, named: str, *, allow_private: bool = False) -> None:
        import httpx

        self._named = authority(named)
        self._allow_private = allow_private
        self._was_public = False
        self._client = httpx.Client(
            verify=ssl.create_default_context(), timeout=SECONDS, follow_redirects=False, trust_env=True
        )

    def __enter__(self) -> WebClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, url: str, most: int, *, headers: Mapping[str, str] | None = None) -> bytes:
        """The body of a URL.

        Raises ``SourceError`` when the answer is no 200, is larger, leads into a private network, or does not come.
        """
        import time

        import httpx

        deadline = time.monotonic() + 10 * SECONDS
        try:
            with self._answer(url, headers or {}) as answer:
                if answer.status_code != 200:
                    raise MissingPage(
                        f"{_plain(url)} answers {answer.status_code}. Check the address.", answer.status_code
                    )
                parts: list[bytes] = []
                total = 0
                for part in answer.iter_raw(1 << 16):  # as it was sent: what is unpacked here has no bound (row 140)
                    total += len(part)
                    if total > most:
                        raise SourceError(f"{_plain(url)} sends more than {most:,} bytes, so it is not taken.")
                    if time.monotonic() > deadline:
                        raise SourceError(f"{_plain(url)} takes too long to send its answer.")
                    parts.append(part)
                return b"".join(parts)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:  # ValueError: an address that is none
            raise SourceError(_not_fetched(url, error)) from error

    def moved_to(self, url: str) -> str:
        """The URL to which a URL leads in the end; its body is not read.

        Raises ``SourceError`` as :meth:`get` does.
        """
        import httpx

        try:
            with self._answer(url, {}) as answer:
                return str(answer.url)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise SourceError(_not_fetched(url, error)) from error

    @contextmanager
    def _answer(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        for _ in range(MAX_REDIRECTS + 1):
            private_is_fine = self._allow_private or authority(url) == self._named
            if urlsplit(url).scheme not in {"https", "http"}:
                raise SourceError(f"{_plain(url)} is no web address, so it is not followed.")
            watched: dict[str, Any] = {}
            if not private_is_fine:
                refuse_private(url)
            if not _has_proxy(url):  # which looks the name up itself, and is at a private address often
                if authority(url) == self._named:
                    watched["trace"] = functools.partial(self._note_peer, url)
                elif not private_is_fine:
                    watched["trace"] = functools.partial(_refuse_peer, url)
            wanted = {**headers, "Accept-Encoding": "identity"}
            with self._client.stream("GET", url, headers=wanted, extensions=watched) as answer:
                if answer.status_code not in _REDIRECTS:
                    yield answer
                    return
                target = urljoin(url, answer.headers.get("location", ""))
            if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
                raise SourceError(f"{_plain(url)} leads from https to {_plain(target)}, which is not followed.")
            url = target
        raise SourceError(f"{_plain(url)} redirects more than {MAX_REDIRECTS} times.")

    def _note_peer(self, url: str, event: str, about: Mapping[str, Any]) -> None:
        """Look where the host is that the user named: what came from a public address may not lead inside (row 486)."""
        if event != "connection.connect_tcp.complete":
            return
        is_private = _is_private(str(about["return_value"].get_extra_info("server_addr")[0]))
        if is_private and self._was_public and not self._allow_private:
            about["return_value"].close()
            raise SourceError(
                f"{_plain(url)} had a public address and has a private one now, so it is not asked again. "
                "Allow it with --allow-private if that is meant."
            )
        self._was_public = not is_private
        note_place(url, inside=is_private)


class MissingPage(SourceError):
    """A server answered, but not with the page; ``status`` is its code."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def authority(url: str) -> tuple[str, int | None]:
    """The host and the port of a URL."""
    parts = urlsplit(url)
    return (parts.hostname or "", parts.port)


def _plain(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return repr(url[:300])
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:300]


def _not_fetched(url: str, error: Exception) -> str:
    """The sentence about an address that did not answer, with what to do."""
    import httpx

    hint = ""
    if "CERTIFICATE" in str(error):
        hint = " For a company's own authority set SSL_CERT_FILE."
    elif isinstance(error, httpx.TransportError) and (proxy := _proxy_of(url)):
        where = _plain(proxy).rstrip("/")
        hint = f" It was asked for at the proxy {where} of the environment; NO_PROXY names hosts that need none."
    elif isinstance(error, (httpx.NetworkError, httpx.TimeoutException)):
        hint = " Check the address and the network."
    return f"{_plain(url)} cannot be fetched: {_ERRNO.sub('', said_by(error)).rstrip('.')}.{hint}"


_ERRNO = re.compile(r"^\[Errno -?\d+\] ")


def refuse_private(url: str) -> tuple[str, ...]:
    """The addresses of the host of a URL that the user did not name; none where only a proxy may know it.

    Raises ``SourceError`` when it is in a private network, or has the name of one, which a proxy may know (row 475).
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").removesuffix(".")
    if not re.fullmatch(r"[a-z0-9._:-]+", host):  # others may read 127.0.0.%31 otherwise
        raise SourceError(f"{_plain(url)} names a host by more than letters, digits, dots and hyphens.")
    try:
        found = socket.getaddrinfo(host, parts.port or 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        if _is_inner_name(host):
            raise SourceError(
                f"{_plain(url)} has a name of an inner network, and not you but others named it, so it is not fetched. "
                "Allow it with --allow-private if that is meant."
            ) from None
        return ()  # nobody reaches it from here, but perhaps a proxy
    addresses = tuple(dict.fromkeys(str(address[0]) for *_, address in found))
    for address in addresses:
        _refuse_address(address, url)
    return addresses


def _is_inner_name(host: str) -> bool:
    return "." not in host or host.rpartition(".")[2] in _INNER


_INNER = frozenset(
    [
        "arpa",
        "corp",
        "home",
        "internal",
        "intranet",
        "invalid",
        "lan",
        "local",
        "localdomain",
        "localhost",
        "private",
        "test",
    ]
)
"""Last parts of names that the Internet does not have."""


def _has_proxy(url: str) -> bool:
    """Whether a URL is asked for at a proxy that the environment names."""
    return bool(_proxy_of(url))


def _proxy_of(url: str) -> str:
    proxies, parts = getproxies_environment(), urlsplit(url)
    named = proxies.get(parts.scheme) or proxies.get("all") or ""
    return "" if proxy_bypass(parts.netloc.rpartition("@")[2]) else named


_inside: set[str] = set()
"""Hosts that the user named and that answered at a private address: what their skills need may be there, too."""
_outside: set[str] = set()
"""Those that answered, or may have, at a public one: what they said once may not lead inside later."""


def is_inside(url: str) -> bool:
    """Whether the user named something on a URL's host, and this process has had all of it from private addresses.

    So it is with a proxy, too, where the host has a name that nobody outside can give an address (row 486).
    """
    host = authority(url)[0]
    return host in _inside - _outside or (_has_proxy(url) and _is_inner_name(host.removesuffix(".")))


def addresses_inside(url: str) -> tuple[str, ...]:
    """The addresses of a URL that the user named, if all of them are private; else none.

    Whoever connects to these alone has what it gets from the private network.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or _has_proxy(url):
        return ()
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    addresses = tuple(dict.fromkeys(str(address[0]) for *_, address in found))
    # One of a link (fe80::1%eth0) cannot be given to git.
    return tuple(one for one in addresses if "%" not in one) if all(map(_is_private, addresses)) else ()


def note_place(url: str, *, inside: bool) -> None:
    """Remember whether a host which the user named answered at a private address."""
    (_inside if inside else _outside).add(authority(url)[0])


def _refuse_peer(url: str, event: str, about: Mapping[str, Any]) -> None:
    """Look at the address that was connected to, before anything is sent: a name may have a new one (row 147)."""
    if event != "connection.connect_tcp.complete":
        return
    try:
        _refuse_address(str(about["return_value"].get_extra_info("server_addr")[0]), url)
    except SourceError:
        about["return_value"].close()
        raise


def _is_private(address: str) -> bool:
    from adk_skills_agent.sandbox import address_refusal  # the proxy of runs asks the same

    return address_refusal(address) is not None


def _refuse_address(text: str, url: str) -> None:
    if _is_private(text):
        raise SourceError(
            f"{_plain(url)} is at a private address, and not you but others named it, so it is not fetched. "
            "Allow it with --allow-private if that is meant."
        )
