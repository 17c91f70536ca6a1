"""Join a Ray cluster, and say in a sentence why that does not work.

Ray is an extra (``cluster``) and is imported here, when a cluster is asked for, and nowhere before.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.installation import install_hint
from adk_skills_agent.sandbox.ray.wire import package_version
from adk_skills_agent.sandbox.threads import OnePerProcess

_ANSWER_SECONDS = 10.0
_ACTION_BYTES = 512
"""More than what a system keeps of a signal's handler; the kernel's form of it differs from system to system."""
_ALIVE = 0
"""Of ``GcsNodeInfo.state``."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TRIES_VARIABLE = "RAY_gcs_server_port_wait_time_s"
"""How often Ray tries to join. Each try waits 40 s for who listens and says nothing, and its own number is 20."""


def load_ray(wanted_by: str) -> Any:
    """The module ``ray``; a ConfigError with the command that installs it, which ``wanted_by`` begins."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(f"{wanted_by} needs Ray. Run: {install_hint('cluster')}") from error


def join(ray: Any, address: str, **options: Any) -> None:
    """Connect this process with a cluster that is there. Blocks, for seconds.

    Args:
        ray: The module.
        address: ``HOST:PORT``, or ``auto`` for the one of ``RAY_ADDRESS`` or of this machine.
        options: More of ``ray.init``'s.

    Raises:
        ConfigError: Nobody answers, it has another version of Ray or Python, this machine is none of its nodes, or the
            address is one of Ray's client.
    """
    if address.startswith("ray://"):
        raise ConfigError(
            f"{address!r} is an address of Ray's client, which is not used: make this machine a node that runs "
            "nothing, with `ray start --address HOST:PORT --num-cpus 0`, and use HOST:PORT."
        )
    logging.getLogger("ray").setLevel(logging.ERROR)
    host_and_port = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    answers = _check_answers(host_and_port)
    if not answers and address not in {"auto", "local"}:
        raise ConfigError(f"{address!r} is no address of a Ray cluster. Write HOST:PORT, or auto for this machine's.")
    own = _TRIES_VARIABLE not in os.environ
    try:
        os.environ.setdefault(_TRIES_VARIABLE, "1")
        if answers:
            _check_is_node(host_and_port)
        with _own_sigterm():
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        with contextlib.suppress(Exception):
            ray.shutdown()  # half of a connection would be taken for one
        raise ConfigError(
            f"The cluster {address!r} cannot be joined: {sentence_of(error)} Check the address; `ray status` shows it."
        ) from error
    finally:
        if own:
            os.environ.pop(_TRIES_VARIABLE, None)


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep what SIGTERM does in this process. Works in any thread, which Python's own functions do not.

    Ray's handler prints a trace of the process, passes the signal on, and aborts the process three seconds later: a
    server could not answer the requests that it has.
    """
    import ctypes

    library = ctypes.CDLL(None)
    action = ctypes.create_string_buffer(_ACTION_BYTES)
    known = library.sigaction(signal.SIGTERM, None, action) == 0
    try:
        yield
    finally:
        if known:
            library.sigaction(signal.SIGTERM, action, None)


def sentence_of(error: BaseException) -> str:
    """An error of Ray's in one line, without its colours."""
    text = " ".join(_COLOUR.sub("", str(error)).split())
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__


def lacks_package(error: Exception) -> bool:
    """Whether a worker did not start because its node does not have this package, or has another version of it."""
    return re.search(r"No module named '?adk_skills_agent\b", str(error)) is not None


def address_of(error: Exception) -> str:
    """The address of the node that an error of Ray's came from; empty when it does not say."""
    found = re.search(r"\bip=([0-9a-fA-F.:]+)", str(error))
    return found[1] if found is not None else ""


def why_no_worker(error: Exception, node: str = "it") -> str:
    """Why a worker did not start, as a clause about ``node``."""
    if lacks_package(error):
        return f"{node} has no adk-skills-runtime {package_version()}: install the same version there as here"
    return f"a worker did not start ({sentence_of(error)})"


def _check_is_node(address: str) -> None:
    """Ray aborts the whole process where it finds no node of the cluster on this machine; a server with it.

    Raises ``ConfigError``, or what Ray raises when it cannot ask.
    """
    # Ray's public functions need the connection that this is asked for.
    nodes = importlib.import_module("ray._raylet").GcsClient(address=address).get_all_node_info(timeout=_ANSWER_SECONDS)
    if not any(node.state == _ALIVE and _listens(node.raylet_socket_name) for node in nodes.values()):
        raise ConfigError(
            f"The cluster {address!r} cannot be joined: this machine is none of its nodes. Make it one that runs "
            f"nothing, with `ray start --address {address} --num-cpus 0`, and try again."
        )


def _listens(path: str) -> bool:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as asking:
        try:
            asking.connect(path)
        except OSError:
            return False
        return True


def _check_answers(address: str) -> bool:
    """Ask early whether anybody listens: Ray itself waits for minutes. False where only Ray knows the address."""
    found = re.fullmatch(r"\[?([^\[\]/]+?)\]?:(\d{1,5})", address)
    if found is None:
        return False
    try:
        socket.create_connection((found[1], int(found[2])), timeout=_ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"The cluster {address!r} cannot be joined: {getattr(error, 'strerror', None) or error}. "
            "Check the address; `ray status` shows it."
        ) from error
    return True


class Connection:
    """The connection of this process with a cluster, of which Ray allows one; ended when nobody uses it any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._address: str | None = None  # None while there is none, or where the program has made it itself

    def acquire(self, address: str) -> Any:
        """The module ``ray``, connected. Blocks; call :meth:`release` once for each.

        A connection that the program has made itself (``ray.init``) is used as it is, and never ended.

        Raises:
            ConfigError: See :func:`join`; or this process uses another cluster already.
        """
        with self._lock:
            ray = load_ray("sandbox='ray'")
            if not ray.is_initialized():
                join(ray, address)
                self._address, self._users = address, 0
            elif self._address not in {None, address}:
                raise ConfigError(
                    f"This process uses the cluster {self._address!r} already, and Ray allows one. Use the same "
                    "address everywhere, or another process."
                )
            self._users += 1
            return ray

    def release(self) -> None:
        """It is not used here any more. Blocks."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._address is not None:
                self._address = None
                load_ray("sandbox='ray'").shutdown()


connection = OnePerProcess(Connection)
