"""Real container engines for tests: the one that runs here, or one started from Debian's packages, with an image.

Test processes of one run share an engine: the first that needs it starts it, the last one stops it. A test that breaks
its engine asks for a private one. Where no engine can be, tests skip with the reason.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

ENGINES = ("docker", "podman")
IMAGE = "localhost/adk-skills-test"
REPOSITORY = Path(__file__).resolve().parents[1]
SOURCES = REPOSITORY / "images" / "adk-code-executor"
PACKAGES = {
    "podman": ("podman", "runc", "conmon", "netavark", "uidmap"),
    "docker": ("docker.io", "runc"),
    "runsc": ("runsc",),
    "gvisor": ("docker.io", "runsc"),
    "debootstrap": ("debootstrap",),
}
PROGRAMS = {
    "podman": ("podman", "runc"),
    "docker": ("dockerd", "runc"),
    "runsc": ("runsc",),
    "gvisor": ("dockerd", "runsc"),  # Podman takes no runtime but its own over Docker's protocol
}
_KEPT_SECONDS = 86_400.0
_WATCHERS = ("containerd", "conmon")
_OWNER_LABEL = "adk-skills.owner"
_started: list[subprocess.Popen[bytes]] = []  # held, or Python warns that nobody waits for them
_RUNNING = {"docker": ("/var/run/docker.sock",), "podman": ("/run/podman/podman.sock",), "gvisor": ()}
# Podman's own default for open files may be above what it may set; crun refuses a hybrid hierarchy of cgroups.
_CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[engine.runtimes]
runsc = ["{runsc}"]
"""


@dataclass
class StartedEngine:
    """An engine that answers.

    Attributes:
        name: ``docker`` or ``podman``.
        url: Where it listens.
        image: An image with Python on it.
        folder: What it keeps; None when it ran before.
        more: Arguments it was started with besides the usual.
    """

    name: str
    url: str
    image: str
    folder: Path | None = None
    process: subprocess.Popen[bytes] | None = None
    more: tuple[str, ...] = ()

    def kill(self) -> None:
        """As if the machine's engine had crashed."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        if self.folder is not None:
            _forget_containerd(self.folder / "exec" / "containerd" / "containerd.pid")

    def restart(self) -> None:
        """Start it again over the same folder."""
        assert self.folder is not None
        if self.process is not None and self.process.poll() is None:
            self.kill()
        self.process = _launch(self.name, self.folder, self.more)
        _wait(self.name, self.url, self.process, self.folder)


def missing(name: str) -> str | None:
    """Why an engine (or ``runsc``) cannot be had here; None when it can."""
    if sys.platform != "linux":
        return "engines are started on Linux only"
    if any(shutil.which(program) is None for program in PROGRAMS[name]):
        wanted = " ".join(PACKAGES[name])
        return f"{name} is not installed: apt-get install {wanted} (make test-slow does it as root)"
    if name != "runsc" and not _running(name) and os.geteuid() != 0:
        return f"no {name} is running, and starting one for tests needs root"
    return None


def require(name: str) -> StartedEngine:
    """The shared engine, started when it has to be; skips the test where there can be none."""
    problem = missing(name)
    if problem is not None:
        pytest.skip(problem)
    return shared(name)


@functools.cache
def shared(name: str) -> StartedEngine:
    """One engine for all processes of this test run.

    Raises:
        OSError: It does not start.
    """
    url = _running(name)
    if url is not None:
        return StartedEngine(name, url, _image(url))
    _sweep()
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    folder = Path("/tmp") / f"adk-engine-{hashlib.sha256(run.encode()).hexdigest()[:8]}-{name}"
    with _locked(Path(f"{folder}.lock")):
        users = folder / "users"
        folder.mkdir(exist_ok=True)
        if not _alive(folder):
            process = _launch(name, folder)
            _started.append(process)
            (folder / "pid").write_text(str(process.pid))
            users.write_text(f"{os.getpid()}\n")
            _wait(name, _url(folder), process, folder)
        else:
            with users.open("a") as stream:
                stream.write(f"{os.getpid()}\n")
        image = _image(_url(folder))
    atexit.register(_leave, folder)
    return StartedEngine(name, _url(folder), image, folder)


@contextlib.contextmanager
def private(name: str, *more: str) -> Iterator[StartedEngine]:
    """An engine of the caller's own, to break; ``more`` are arguments of dockerd."""
    problem = missing(name)
    if problem is None and os.geteuid() != 0:
        problem = "an engine of its own needs root"
    if problem is not None:
        pytest.skip(problem)
    folder = Path(tempfile.mkdtemp(prefix=f"adk-{name}-", dir="/tmp"))
    engine = StartedEngine(name, _url(folder), "", folder, more=more)
    try:
        engine.restart()
        engine.image = _image(engine.url)
        yield engine
    finally:
        _stop(folder, engine.process.pid if engine.process else None)
        if engine.process is not None:
            engine.process.wait()


def client(engine: StartedEngine) -> Any:
    """The SDK's client of an engine; close it."""
    import docker

    return docker.DockerClient(base_url=engine.url, timeout=60)


def owned(engine: StartedEngine, owner: str | None = None) -> list[str]:
    """Containers of this package on an engine, of one agent; None is this process."""
    from adk_skills_agent.sandbox.container.removals import owner as own

    found = client(engine)
    try:
        label = f"{_OWNER_LABEL}={own() if owner is None else owner}"
        listed = found.api.containers(all=True, filters={"label": label})
        return [str(item["Id"]) for item in listed if item.get("State") != "dead" or _exists(found, item["Id"])]
    finally:
        found.close()


def _exists(found: Any, name: str) -> bool:
    """dockerd 20.10 goes on listing, as dead, what it was just removing when it was killed, and knows nothing of it."""
    import docker

    try:
        found.api.inspect_container(name)
    except docker.errors.NotFound:
        return False
    return True


def programs(engine: StartedEngine) -> list[str]:
    """What of ours runs in containers of a private engine, also in those that it has forgotten."""
    there = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if process.name().startswith(("containerd-shim", "conmon")) and f"{engine.folder}/" in line:
                there += [one.name() for one in process.children() if one.name().startswith("python")]
    return there


def _url(folder: Path) -> str:
    return f"unix://{folder}/engine.sock"


def _running(name: str) -> str | None:
    """An engine that runs anyway: named by ADK_SKILLS_TEST_DOCKER or ADK_SKILLS_TEST_PODMAN, or the machine's."""
    named = os.environ.get(f"ADK_SKILLS_TEST_{name.upper()}")
    if named:
        return named
    for path in _RUNNING[name]:
        if os.path.exists(path) and _answers(f"unix://{path}"):
            return f"unix://{path}"
    return None


def _answers(url: str) -> bool:
    from adk_skills_agent.errors import EngineUnavailable
    from adk_skills_agent.sandbox.container.engine import connect_now

    try:
        connect_now((url,)).close()  # the SDK itself leaves sockets open that it cannot connect
    except EngineUnavailable:
        return False
    return True


def _launch(name: str, folder: Path, more: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    socket = folder / "engine.sock"
    socket.unlink(missing_ok=True)
    environment = dict(os.environ)
    if name == "gvisor":
        more = ("--add-runtime", f"runsc={_runsc_wrapper(folder)}", *more)
    if name == "podman":
        settings = folder / "containers.conf"
        settings.write_text(_CONTAINERS_CONF.format(runsc=_runsc_wrapper(folder)))
        environment["CONTAINERS_CONF"] = str(settings)
        command = [*_podman(folder), "system", "service", "--time=0", f"unix://{socket}"]
    else:
        (folder / "docker.pid").unlink(missing_ok=True)
        command = [
            *("dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none"),
            *("--exec-opt", "native.cgroupdriver=cgroupfs", "--default-ulimit", "nofile=1024:1024"),
            *("-H", f"unix://{socket}", "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
            *("--pidfile", str(folder / "docker.pid"), "--config-file", str(folder / "none.json")),
            *more,
        ]
        (folder / "none.json").write_text("{}")
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )


def _forget_containerd(known: Path) -> None:
    """A dockerd waits for the containerd of the one before it, also when that is a zombie nobody reaps."""
    with contextlib.suppress(OSError, ValueError, psutil.Error):
        process = psutil.Process(int(known.read_text()))
        if process.name() == "containerd":
            process.kill()
    known.unlink(missing_ok=True)


def _podman(folder: Path) -> list[str]:
    return ["podman", "--root", str(folder / "root"), "--runroot", str(folder / "run"), "--storage-driver", _driver()]


def _runsc_wrapper(folder: Path) -> str:
    """runsc for containers without a network, on a machine without KVM."""
    wrapper = folder / "runsc"
    wrapper.write_text('#!/bin/sh\nexec runsc --network=none --platform=ptrace "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


@functools.cache
def _driver() -> str:
    """Overlays where they work, else copies, which take seconds for each container."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        for part in ("lower", "upper", "work", "merged"):
            (Path(folder) / part).mkdir()
        options = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
        done = subprocess.run(
            ["mount", "-t", "overlay", "overlay", "-o", options, f"{folder}/merged"], capture_output=True, check=False
        )
        if done.returncode == 0:
            subprocess.run(["umount", f"{folder}/merged"], check=True)
        return "overlay" if done.returncode == 0 else "vfs"


def _wait(name: str, url: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 60
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            said = (folder / "log").read_text(errors="replace").strip().splitlines()
            raise OSError(said[-1] if said else f"{name} ended")
        time.sleep(0.1)


def _alive(folder: Path) -> bool:
    try:
        return psutil.pid_exists(int((folder / "pid").read_text())) and _answers(_url(folder))
    except (OSError, ValueError):
        return False


def _sweep() -> None:
    """Engines of test runs that were killed."""
    for folder in Path("/tmp").glob("adk-engine-*-*"):
        if not folder.is_dir():
            continue
        with _locked(Path(f"{folder}.lock")), contextlib.suppress(OSError, ValueError):
            users = [int(line) for line in (folder / "users").read_text().split()]
            if not any(psutil.pid_exists(pid) for pid in users):
                _stop(folder, int((folder / "pid").read_text()))


def _leave(folder: Path) -> None:
    with _locked(Path(f"{folder}.lock")):
        users = [int(line) for line in (folder / "users").read_text().split()]
        others = [pid for pid in users if pid != os.getpid() and psutil.pid_exists(pid)]
        (folder / "users").write_text("".join(f"{pid}\n" for pid in others))
        if not others:
            _stop(folder, int((folder / "pid").read_text()))
            Path(f"{folder}.lock").unlink(missing_ok=True)


def _stop(folder: Path, pid: int | None) -> None:
    """End the engine, its containers and its mounts; remove what it kept."""
    with contextlib.suppress(Exception):
        import docker

        client = docker.DockerClient(base_url=_url(folder), timeout=30)
        for container in client.containers.list(all=True, ignore_removed=True):
            with contextlib.suppress(docker.errors.DockerException):
                container.remove(force=True, v=True)
        client.close()
    if pid is not None:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGTERM)
        _, alive = psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=15)
        for process in alive:
            process.kill()
    _end_what_is_left(folder)
    with contextlib.suppress(OSError):
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            place = line.split()[1]
            if place.startswith(f"{folder}/"):
                subprocess.run(["umount", "-l", place], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def _end_what_is_left(folder: Path) -> None:
    """What watches the containers of an engine that could not be asked to remove them, and what runs in those."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if process.name().startswith(_WATCHERS) and f"{folder}/" in line:
                for one in (*process.children(recursive=True), process):
                    with contextlib.suppress(psutil.Error):
                        one.kill()


def _image(url: str) -> str:
    import docker

    client = docker.DockerClient(base_url=url, timeout=300)
    try:
        name = os.environ.get("ADK_SKILLS_TEST_IMAGE") or f"{IMAGE}-{_content()[:12]}"
        tag = f"{name}:latest"  # Podman gives what it imports no other
        with contextlib.suppress(docker.errors.ImageNotFound):
            client.images.get(tag)
            return tag
        changes = ["USER 65534:65534", "WORKDIR /work", 'CMD ["python3"]', "ENV MPLBACKEND=agg"]
        client.api.import_image(src=str(rootfs()), repository=name, tag="latest", changes=changes)
        client.images.get(tag)
        return tag
    finally:
        client.close()


def _content() -> str:
    found = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        if path.name != "README.md":
            found.update(path.read_bytes())
    return found.hexdigest()


@functools.cache
def rootfs() -> Path:
    """The layers of ``images/adk-code-executor`` as one tar, made once for each content and kept for later runs.

    Raises:
        pytest.skip.Exception: It cannot be made here.
    """
    folder = Path("/var/tmp/adk-skills-test-images")
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / f"{_content()[:16]}.tar"
    with _locked(folder / "lock"):
        if made.exists():
            return made
        if shutil.which("debootstrap") is None:
            pytest.skip(
                "an image is made with debootstrap: apt-get install debootstrap (make test-slow does it as root)"
            )
        for old in folder.glob("*.tar"):  # not those of other checkouts, where tests may run now
            if time.time() - old.stat().st_mtime > _KEPT_SECONDS:
                old.unlink()
        done = subprocess.run(
            [str(SOURCES / "build_rootfs"), str(made)],
            env={**os.environ, "UV": str(Path(sys.executable).parent / "uv")},
            capture_output=True,
            check=False,
            timeout=900,
        )
        if done.returncode != 0:
            pytest.skip(f"the image cannot be made here: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return made


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def recorded() -> Iterator[tuple[str, dict[str, tuple[dict[str, str], dict[str, str], Any]]]]:
    """An engine on the loopback that builds and pulls anything and makes no container; its address, and what it was
    asked last by POST: by path the headers, the query and the body.
    """
    asked: dict[str, tuple[dict[str, str], dict[str, str], Any]] = {}
    answers = {
        "version": {"ApiVersion": "1.41", "Version": "20.10"},
        "info": {"MemTotal": 8 << 30, "DockerRootDir": "/nonexistent"},
        "networks": [],
        "containers/json": [],
        "volumes": {"Volumes": []},
        "build": {"stream": "done"},
        "images/create": {"status": "done"},
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, body: bytes) -> None:
            url = urllib.parse.urlsplit(self.path)
            path = url.path.strip("/").partition("/")[2] if url.path.startswith("/v1") else url.path.strip("/")
            if self.command == "POST":
                query = dict(urllib.parse.parse_qsl(url.query))
                asked[path] = dict(self.headers), query, json.loads(body) if body.startswith(b"{") else None
            found: Any = answers.get(path)
            if (
                path.startswith("images/")
                and path.endswith("/json")
                and ("images/create" in asked or "secret" not in path)
            ):
                found = {"Id": "sha256:1", "Config": {}, "RepoTags": []}
            data = json.dumps({"message": "No such image: it"} if found is None else found).encode()
            self.send_response(200 if found is not None else 500 if path == "containers/create" else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.answer(b"")

        def do_POST(self) -> None:
            body = b""
            if "chunked" in self.headers.get("Transfer-Encoding", ""):
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size + 2)[:size]
                self.rfile.readline()
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.answer(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"tcp://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
