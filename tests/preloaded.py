"""Command lines in a process of their own that need not import google-adk, which costs seconds of computing each time.

:func:`program` is a small program in place of ``adk-skills``, ``adk`` or ``python``. It passes its arguments, folder,
environment and streams to a server, one for all test processes, which has imported google-adk and forks: what runs is
the same ``main`` with the same exit, in a process that shares nothing with another but what imports leave. Signals
reach it, and it ends with the small program. Tests about the start itself (what is imported, the installed entry point,
closed streams, warnings while starting) use the real program.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import marshal
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NoReturn

_FOLDER = "ADK_SKILLS_TEST_PRELOADED"
_MAINS = {"adk-skills": "adk_skills_agent.cli.main:main", "adk": "google.adk.cli:main"}
_MODULES = (
    *("google.adk.agents", "google.adk.runners", "google.adk.apps", "google.adk.cli.cli_tools_click"),
    *("google.adk.sessions.sqlite_session_service", "adk_skills_agent.adk.skill_toolset", "adk_skills_agent.testing"),
    *("adk_skills_agent.executors", "adk_skills_agent.scripts.workspaces", "adk_skills_agent.sandbox.local"),
    *(f"adk_skills_agent.cli.{name}" for name in ("main", "skills", "run", "eval", "install", "bench", "demo.act")),
    *(f"adk_skills_agent.cli.{name}" for name in ("doctor", "packages", "serve", "trust", "usage", "workspaces")),
    *(f"adk_skills_agent.packages.{name}" for name in ("builds", "environments", "needs", "skill_environments")),
    *(f"adk_skills_agent.evals.{name}" for name in ("blind.comparison", "formats.yaml_file", "preparation")),
    *(f"adk_skills_agent.sandbox.local.levels.{name}" for name in ("landlock", "namespaces", "process")),
    *(f"adk_skills_agent.sources.{name}" for name in ("consent", "fetch", "other_installers", "requires")),
    *(f"adk_skills_agent.sources.{name}" for name in ("scan.rules", "signatures", "update")),
    *("adk_skills_agent.format.template", "adk_skills_agent.format.validator"),
    *("mcp.server.lowlevel", "mcp.client.extension", "ctypes", "resource", "tomlkit"),
    *("google.adk.evaluation.agent_evaluator", "google.adk.models.google_llm", "httpcore", "h11", "encodings.idna"),
    *("google.adk.cli.fast_api", "google.adk.cli.cli"),
)
_HEAD = 4
# Modules in C alone: with json, signal and socket it would take 30 ms of processor time instead of 10.
_CLIENT = f"""\
import _signal, _socket, marshal, posix, sys
signals = {{_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP}}
_signal.pthread_sigmask(_signal.SIG_BLOCK, signals)
server = _socket.socket(_socket.AF_UNIX)
server.connect(sys.path[0] + "/socket")
asked = marshal.dumps([sys.argv[0].rpartition("/")[2], sys.argv[1:], posix.getcwdb(), posix.environ])
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
server.sendmsg([len(asked).to_bytes({_HEAD}, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(asked)

def answered():
    line = b""
    while not line.endswith(b"\\n"):
        line += server.recv(1) or sys.exit("the server of tests/preloaded.py has ended")
    return int(line)

pid = answered()
for number in signals:
    _signal.signal(number, lambda number, _frame: posix.kill(pid, number))
_signal.pthread_sigmask(_signal.SIG_UNBLOCK, signals)
status = answered()
if status < 0:
    if -status in signals:
        _signal.signal(-status, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -status)
posix._exit(status)
"""


def program(name: str) -> Path:
    """What to start in place of ``adk-skills``, ``adk`` or ``python`` (that one: ``[-W filter] -c code`` or a file)."""
    folder = os.environ.get(_FOLDER)
    if folder is None:  # not Linux
        return Path(sys.executable) if name == "python" else Path(sys.executable).parent / name
    return Path(folder, "preloaded-python" if name == "python" else name)


@contextlib.contextmanager
def served() -> Iterator[None]:
    """The server, for this process and those it starts; it imports nothing before the first request."""
    folder = Path(tempfile.mkdtemp(prefix="preloaded-"))
    for name in (*_MAINS, "preloaded-python"):
        (folder / name).write_text(f"#!{sys.executable} -EsS\n{_CLIENT}")
        (folder / name).chmod(0o700)
    environment = {**os.environ, "HOME": str(folder)}
    # It leaves its parent at once: no test finds a child that is none of its own.
    subprocess.run([sys.executable, __file__, folder, str(os.getpid())], env=environment, check=True)
    os.environ[_FOLDER] = str(folder)
    try:
        yield
    finally:
        del os.environ[_FOLDER]
        shutil.rmtree(folder)


def _serve(folder: str, owner: int) -> None:
    """Fork for every request until the owner ends."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/socket")
    listener.listen(64)
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    os.close(null)
    selector = selectors.DefaultSelector()
    selector.register(os.pidfd_open(owner), selectors.EVENT_READ, None)
    selector.register(listener, selectors.EVENT_READ, None)
    programs: dict[int, tuple[int, int, socket.socket]] = {}  # by their pidfd and by their client's descriptor
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                _import_everything()
                client, _address = listener.accept()
                asked, streams = _request(client)
                pid = os.fork() if asked else None
                if pid == 0:
                    selector.close()
                    listener.close()
                    for ending, _pid, other in programs.values():
                        other.close()
                        with contextlib.suppress(OSError):
                            os.close(ending)
                    client.close()
                    _end_with(partial(_become, asked, streams))
                for stream in streams:
                    os.close(stream)
                if pid is None:
                    client.close()
                    continue
                client.sendall(f"{pid}\n".encode())
                ending = os.pidfd_open(pid)
                programs[ending] = programs[client.fileno()] = (ending, pid, client)
                selector.register(ending, selectors.EVENT_READ, ending)
                selector.register(client, selectors.EVENT_READ, client.fileno())
            elif key.data is None:
                shutil.rmtree(folder, ignore_errors=True)  # an owner that was killed has not done it
                return
            elif key.data in programs:
                ending, pid, client = programs[key.data]
                if key.data != ending:  # its client is gone
                    os.kill(pid, signal.SIGKILL)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                for descriptor in (ending, client):
                    selector.unregister(descriptor)
                del programs[ending], programs[client.fileno()]
                with contextlib.suppress(OSError):
                    client.sendall(f"{status}\n".encode())
                os.close(ending)
                client.close()


def _import_everything() -> None:
    if "google.adk.runners" in sys.modules:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in _MODULES:
            import_module(name)
        _run_an_agent()
    from adk_skills_agent.sources.scan.rules import scan_tree
    from adk_skills_agent.sources.tree import TreeFile, tree_of

    # Hundreds of patterns, which every command that adds skills would compile.
    text = b"---\nname: x\ndescription: x\n---\nRun it.\n"
    scan_tree(tree_of({"SKILL.md": TreeFile(text), "a.py": TreeFile(b"print()\n"), "b.sh": TreeFile(b"ls\n")}, "x"))
    import gc

    gc.collect()
    gc.freeze()  # what is there now is not looked at again when a fork ends, which would be half a second


def _run_an_agent() -> None:
    """google-adk imports six hundred modules when an agent takes its first turn, which would be each program's."""
    import asyncio

    from google.adk.agents import LlmAgent
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    def tool() -> str:
        """Do it."""
        return "done"

    said = [types.Part(text="Done."), types.Part(function_call=types.FunctionCall(name="tool", args={}))]

    def answer(callback_context: object, llm_request: object) -> LlmResponse:  # no model is asked
        return LlmResponse(content=types.Content(role="model", parts=[said.pop()]))

    async def turn() -> None:
        agent = LlmAgent(name="a", model="gemini-2.5-flash", tools=[tool], before_model_callback=answer)
        runner = InMemoryRunner(agent=agent)
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
        message = types.Content(role="user", parts=[types.Part(text="Go.")])
        async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=message):
            pass
        await runner.close()

    asyncio.run(turn())
    assert threading.enumerate() == [threading.main_thread()]  # a fork would have its locks and not the thread


def _request(client: socket.socket) -> tuple[list[object], list[int]]:
    head, streams, _flags, _address = socket.recv_fds(client, _HEAD, 3)
    reader = client.makefile("rb", buffering=0)
    text = b""
    while len(text) < int.from_bytes(head, "big"):
        text += (more := reader.read(1 << 20) or b"")
        if not more:
            return [], list(streams)
    return (marshal.loads(text) if text else []), list(streams)


def _become(asked: list[object], streams: list[int]) -> None:
    """The program that was asked for, in this process, to its end."""
    name, arguments, folder, environment = asked
    assert isinstance(name, str)
    assert isinstance(arguments, list)
    assert isinstance(folder, bytes)
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environb.update(environment)
    os.chdir(folder)
    for number, given in enumerate(streams):
        os.dup2(given, number)
        os.close(given)
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
    for number, stream_name in enumerate(("stdin", "stdout", "stderr")):
        strictness = "backslashreplace" if number == 2 else errors or "strict"
        buffering = 1 if number == 2 or (number == 1 and os.isatty(number)) else -1
        stream = open(number, "w" if number else "r", buffering, encoding, strictness, closefd=False)  # noqa: SIM115
        setattr(sys, stream_name, stream)
        setattr(sys, f"__{stream_name}__", stream)
    if os.environ.get("PYTHONWARNINGS"):
        warnings.simplefilter(os.environ["PYTHONWARNINGS"])
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if name in _MAINS:
        sys.argv = [name, *arguments]
        module, _, function = _MAINS[name].partition(":")
        sys.exit(getattr(import_module(module), function)())
    while arguments[0] == "-W":
        action, message, category, *_ = f"{arguments[1]}::".split(":")
        warnings.filterwarnings(action, message, getattr(builtins, category or "Warning"))
        arguments = arguments[2:]
    if arguments[0] != "-c":
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).parent)
        runpy.run_path(arguments[0], run_name="__main__")
        return
    sys.argv = ["-c", *arguments[2:]]
    sys.path[0] = ""
    exec(compile(arguments[1], "<string>", "exec", dont_inherit=True), main.__dict__)


def _end_with(program: Callable[[], None]) -> NoReturn:
    """Run a program and end as an interpreter does, but for the end of its modules: that touches each page of the fork.

    It would be two thirds of a short command's processor time.
    """
    status = 1
    try:
        program()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if status and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            status = -signal.SIGINT
    threading._shutdown()  # type: ignore[attr-defined]  # joins what is no daemon, as at an interpreter's end
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 120
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
