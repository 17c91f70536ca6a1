"""What goes wrong with an engine, as typed errors that say what to do."""

from __future__ import annotations

import errno
import re
import shutil
import ssl
from collections.abc import Iterator, Sequence

from adk_skills_agent.errors import EngineUnavailable, ImageUnavailable, SandboxError, SkillsError

_INSTALL = (
    "Install one: Debian or Ubuntu: sudo apt-get install podman, then systemctl --user start podman.socket; or Docker: "
    "https://docs.docker.com/engine/install/."
)
_START = (
    "{}: systemctl --user start podman.socket, or sudo systemctl start docker; elsewhere: podman system service "
    "--time=0, or dockerd."
)
_MOST_CHARS = 300
_WANTS_TLS = "it wants TLS"
_NO_TLS = "TLS with it failed"


def unreachable(reasons: Sequence[tuple[str, BaseException]], why: str = "") -> EngineUnavailable:
    """No engine answered.

    Args:
        reasons: What each place that was tried answered.
        why: What to say when no place was tried.
    """
    if not reasons:
        there = [name for name, program in (("Podman", "podman"), ("Docker", "dockerd")) if shutil.which(program)]
        verb, start = ("are", "Start one") if len(there) > 1 else ("is", "Start it")
        waiting = f"{' and '.join(there)} {verb} installed but not running. {_START.format(start)}"
        advice = waiting if there else _INSTALL
        return EngineUnavailable(f"There is no container engine here: {why}. {advice}", (why,))
    said = tuple(f"{url}: {_clause(error)}" for url, error in reasons)
    return EngineUnavailable(f"No container engine can be used: {'; '.join(said)}. {_advice(reasons)}", said)


def translated(error: BaseException, engine: str, doing: str, url: str) -> SkillsError:
    """An error of the SDK or of the transport as one of this package.

    Args:
        error: What was raised.
        engine: Who was asked, for the sentence.
        doing: Completes "could not".
        url: Where it listens.
    """
    from docker import errors

    if isinstance(error, SkillsError):
        return error
    if isinstance(error, errors.ImageNotFound):
        return ImageUnavailable(f"{engine} could not {doing}: {_said(error)}.")
    if isinstance(error, errors.APIError):
        said = _said(error)
        if _means_full(said):
            return SandboxError(
                f"{engine} could not {doing}: its disk is full. Free space where it keeps its data (docker system "
                "prune, podman system prune) and try again."
            )
        if "no such image" in said.lower() or "image not known" in said.lower():
            return ImageUnavailable(f"{engine} could not {doing}: {said}.")
        return SandboxError(f"{engine} could not {doing}: {said}.")
    return EngineUnavailable(
        f"{engine} could not {doing}: {_clause(error)}. {_advice([(url, error)])}", (f"{url}: {_clause(error)}",)
    )


def is_gone(error: BaseException) -> bool:
    """Whether the engine says that what is to be removed is not there."""
    from docker import errors

    return any(
        isinstance(cause, errors.NotFound)
        or (isinstance(cause, errors.APIError) and "no such container" in _said(cause).lower())
        for cause in _causes(error)
    )


def is_going(error: BaseException) -> bool:
    """Whether the engine says that it is just removing it."""
    from docker import errors

    return any(
        isinstance(cause, errors.APIError) and "already in progress" in _said(cause).lower() for cause in _causes(error)
    )


def _said(error: BaseException) -> str:
    text = str(getattr(error, "explanation", None) or error)
    text = re.sub(r"\s+", " ", text).strip(" .")
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}..."


def _means_full(said: str) -> bool:
    return any(text in said.lower() for text in ("no space left on device", "disk quota exceeded"))


def _clause(error: BaseException) -> str:
    """The innermost cause that means something to a person."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not one of DOCKER_CERT_PATH's authority ({cause.verify_message})"
        if isinstance(cause, ssl.SSLError):
            return f"{_NO_TLS} ({cause.reason or 'no reason given'})"
        if "HTTP request to an HTTPS server" in str(cause):
            return _WANTS_TLS
        if isinstance(cause, PermissionError):
            return "permission denied"
        if isinstance(cause, FileNotFoundError):
            return "there is no such socket"
        if isinstance(cause, ConnectionRefusedError):
            return "nobody listens there"
        if isinstance(cause, TimeoutError) or "timed out" in str(cause).lower():
            return "it does not answer"
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            return "the disk is full"
        if isinstance(cause, OSError) and cause.errno in {errno.EMFILE, errno.ENFILE}:
            return "this process has too many open files"
        if isinstance(cause, (ConnectionResetError, BrokenPipeError)) or "connection aborted" in str(cause).lower():
            return "the connection was closed"
    return _said(error)


def _advice(reasons: Sequence[tuple[str, BaseException]]) -> str:
    clauses = [_clause(error) for _, error in reasons]
    if "permission denied" in clauses:
        return (
            "This user may not use that socket: use a rootless engine (systemctl --user start podman.socket), or let "
            "an administrator give access. Who is in the group docker is as good as root."
        )
    if any(
        clause in {"nobody listens there", "there is no such socket", "the connection was closed"} for clause in clauses
    ):
        return _START.format("Start it")
    if any(clause == _WANTS_TLS or clause.startswith((_NO_TLS, "its certificate")) for clause in clauses):
        return "Let DOCKER_CERT_PATH name the folder with ca.pem, cert.pem and key.pem for this engine."
    if "it does not answer" in clauses:
        return "Look at the engine's log, or restart it."
    return "Look at base_url and DOCKER_HOST."


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it wraps in its arguments, and what it came from; innermost last but one's kinds first."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        nested = [item for item in current.args if isinstance(item, BaseException)]
        nested += [item for item in (current.__cause__, current.__context__) if item is not None]
        reason = getattr(current, "reason", None)
        if isinstance(reason, BaseException):
            nested.append(reason)
        waiting.extend(reversed(nested))
