"""The program that carries a skill into an executor of others: it unpacks the files, runs the script and reports on it.

An executor of google-adk's takes Python source and nothing else. So everything is in the source: the skill's files as
literals (S0-43 to S0-45), the call, and the text of this file. What the program tells stands on the last line of its
standard output, behind a number used once: exit code, timeout, the script's error output where the executor drops it,
and the files the script left. An executor that reports none of these still gets the one answer (S0-57 to S0-66).
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

MAX_FILE_BYTES = 5 << 20
MAX_TOTAL_BYTES = 16 << 20
MAX_FILES = 50
ERROR_CHARS = 20_000
OVERDUE = 124
"""Exit status of a program whose script did not end in time, as ``timeout(1)`` has it."""
INTERRUPTED = -2
"""End the process by SIGINT after a KeyboardInterrupt, as Python itself does."""
NOT_FOUND = 127
"""Exit status of a shell whose program is not there."""


class ErrorBytes(io.RawIOBase):
    """The same for a script that writes bytes."""

    def __init__(self, copy: ErrorCopy) -> None:
        super().__init__()
        self.copy = copy

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """Pass it on and keep it."""
        self.copy.stream.buffer.write(data)
        self.copy.stream.buffer.flush()
        self.copy.keep(bytes(data).decode("utf-8", "replace"))
        return len(data)


class ErrorCopy:
    """Standard error, and its beginning for the report: google-adk's local executor drops it after a success."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.parts: list[str] = []
        self.room = ERROR_CHARS

    def write(self, text: str) -> int:
        """Pass it on and keep it."""
        self.keep(text)
        return int(self.stream.write(text) or 0)

    def keep(self, text: str) -> None:
        """The next piece for the report."""
        if self.room > 0:
            self.parts.append(text[: self.room])
            self.room -= len(text)

    @property
    def buffer(self) -> Any:
        """For bytes, where the stream takes them."""
        self.stream.buffer  # noqa: B018 - an AttributeError, as the stream itself would have it
        self.stream.flush()
        return ErrorBytes(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def run_skill_script(files: dict[str, str | bytes], call: dict[str, Any]) -> None:
    """Run one script of a skill whose files are given.

    Args:
        files: Content by path relative to the skill's root; text is written as UTF-8.
        call: ``path`` and ``argv`` of the script, ``commands`` of which the first whose program is there runs it
            (``python3`` stands for this very interpreter), ``seconds`` it may take, ``watch``
            whether a Python script that takes longer may end this process, ``executable`` paths, ``agent`` the
            agent's process id, ``contents`` whether the report has the files' content, ``folder`` and ``marker``,
            ``skill_dir`` what the arguments call the skill's folder, and ``variables`` that name it to the script.

    Raises:
        SystemExit: The script failed; with its exit code.
    """
    import shutil
    import tempfile
    import threading
    import traceback

    before, out, own = working_folder(), sys.stdout, call["watch"] and os.getpid() != call["agent"]
    command = chosen(call["commands"])
    spare = kept_open(out) if own else None
    root = os.path.realpath(tempfile.mkdtemp(prefix=call["folder"]))
    sys.stderr = errors = ErrorCopy(sys.stderr)
    once, ended = threading.Lock(), threading.Event()

    def report(code: int | None, *, late: bool = False) -> None:
        if not once.acquire(blocking=False):
            return
        told = left_files(root, known, contents=call["contents"])
        told.update(return_code=code, timed_out=late, stderr="".join(errors.parts))
        tell(out, spare, call["marker"], told)

    def end_overdue() -> None:
        if not ended.wait(call["seconds"]):
            report(-1, late=True)
            end_children()
            os._exit(OVERDUE)

    argv = [placed(word, call["skill_dir"], root) for word in call["argv"]]
    variables = {name: os.environ.get(name) for name in call["variables"]}
    code: int | None = None
    late = False
    try:
        os.environ.update(dict.fromkeys(variables, root))
        known = write_files(files, root, call["executable"])
        os.chdir(root)
        if own and not command:
            threading.Thread(target=end_overdue, daemon=True).start()
        try:
            if command:
                code, late = run_command([*command, call["path"], *argv], root, call["seconds"])
            else:
                code = run_python(call["path"], argv)
        except KeyboardInterrupt:
            code = INTERRUPTED
            if not own:  # a session that is interrupted has to see it
                raise
            traceback.print_exc()
        finally:
            ended.set()
            if os.getpid() != call["agent"]:  # a thread of the agent may come here when others have put in their own
                sys.stdout = out
            if sys.stderr is errors or os.getpid() != call["agent"]:
                sys.stderr = errors.stream
            report(code, late=late)
            os.chdir(before)
    finally:
        if sys.stderr is errors:
            sys.stderr = errors.stream
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        shutil.rmtree(root, ignore_errors=True)
    if code:
        sys.exit(OVERDUE if late else code)


def working_folder() -> str:
    """The working directory of this process; the root if that folder was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


def placed(word: str, seen: str, root: str) -> str:
    """An argument with the folder of the skill where it is here; also behind the ``=`` of an option."""
    option, equals, value = word.rpartition("=") if word.startswith("-") else ("", "", word)
    if value == seen or value.startswith(seen + "/"):
        return option + equals + root + value[len(seen) :]
    return word


def chosen(commands: list[list[str]]) -> list[str]:
    """The first command whose program is here, or the last; empty for Python, which this program runs itself."""
    import shutil

    for command in commands:
        if command == ["python3"]:
            return []
        if shutil.which(command[0]):
            return command
    return commands[-1]


def write_files(files: dict[str, str | bytes], root: str, executable: list[str]) -> dict[str, tuple[int, int]]:
    """Write the skill; size and time of every file by its path."""
    known = {}
    for name, content in files.items():
        path = os.path.normpath(os.path.join(root, name))
        if os.path.commonpath([root, path]) != root or path == root:
            raise PermissionError("Path outside of the skill: " + repr(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
        if name in executable:
            os.chmod(path, 0o755)
        status = os.lstat(path)
        known[path] = (status.st_size, status.st_mtime_ns)
    return known


def run_python(path: str, argv: list[str]) -> int:
    """Run a Python script in this interpreter; its exit code. An interrupt comes through."""
    import runpy
    import traceback

    folder, arguments = os.path.dirname(os.path.abspath(path)), sys.argv
    sys.argv = [path, *argv]
    sys.path.insert(0, folder)
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        raise
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.argv = arguments
        if folder in sys.path:
            sys.path.remove(folder)
    return 0


def run_command(command: list[str], root: str, seconds: float) -> tuple[int, bool]:
    """Run a script by its interpreter and pass on what it prints while it runs; its exit code, and if it was ended.

    Whatever it started ends with it, as far as the system lists it as its. A background process that keeps the pipes
    open after the script's end is ended half a second later.
    """
    import codecs
    import selectors
    import signal
    import subprocess
    import time

    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except FileNotFoundError:
        print(command[0] + " is not installed where this script runs", file=sys.stderr)
        return NOT_FOUND, False
    until, late, over = time.monotonic() + seconds, False, False
    try:
        with selectors.DefaultSelector() as selector:
            for source, name in ((process.stdout, "stdout"), (process.stderr, "stderr")):
                decoder = codecs.getincrementaldecoder("utf-8")("replace")
                selector.register(source, selectors.EVENT_READ, (decoder, getattr(sys, name)))  # type: ignore[arg-type]
            while selector.get_map():
                for key, _ in selector.select(max(0.0, min(0.1, until - time.monotonic()))):
                    data = os.read(key.fd, 65536)
                    decoder, sink = key.data
                    sink.write(decoder.decode(data, not data))
                    sink.flush()
                    if not data:
                        selector.unregister(key.fileobj)
                if not over and process.poll() is not None:
                    over, until = True, min(until, time.monotonic() + 0.5)
                if time.monotonic() >= until:
                    break
        late = not over and process.poll() is None and time.monotonic() >= until
        if not late:
            process.wait(max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        late = True
    finally:
        end_children(process.pid)  # first: what is below a process that is gone is not found any more
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass
        process.wait()
        for stream in (process.stdout, process.stderr):
            stream.close()  # type: ignore[union-attr]
    return (-1, True) if late else (process.returncode, False)


def left_files(root: str, known: dict[str, tuple[int, int]], *, contents: bool) -> dict[str, Any]:
    """The files that are new or changed, within the bounds, and the paths of the others."""
    import base64
    import mimetypes
    import stat

    left: list[dict[str, Any]] = []
    skipped: list[str] = []
    total = 0
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in sorted(names):
            full = os.path.join(folder, name)
            path = os.path.relpath(full, root)
            try:
                status = os.lstat(full)
                if not stat.S_ISREG(status.st_mode) or name.endswith(".pyc"):
                    continue
                if known.get(full) == (status.st_size, status.st_mtime_ns):
                    continue
                if (
                    status.st_size > MAX_FILE_BYTES
                    or total + status.st_size > MAX_TOTAL_BYTES
                    or len(left) >= MAX_FILES
                ):
                    skipped.append(path)
                    continue
                data = b""
                if contents:
                    with open(full, "rb") as file:
                        data = file.read()
            except OSError:
                skipped.append(path)
                continue
            total += status.st_size
            kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
            told: dict[str, Any] = {"path": path, "mime_type": kind, "size": status.st_size}
            if contents:
                told["content_b64"] = base64.b64encode(data).decode()
            left.append(told)
    return {"files": left, "skipped_paths": skipped[:MAX_FILES]}


def kept_open(out: Any) -> int | None:
    """A second descriptor of standard output, for a script that closes its own; None where it has none."""
    try:
        return os.dup(out.fileno())
    except (AttributeError, OSError, ValueError):
        return None


def tell(out: Any, spare: int | None, marker: str, report: dict[str, Any]) -> None:
    """Write the report; a script that has closed every stream leaves it to the executor to tell of it."""
    import json

    text = "\n" + marker + json.dumps(report) + "\n"
    try:
        out.write(text)
        out.flush()
    except (OSError, ValueError):
        rest = b"" if spare is None else text.encode()
        try:
            while rest and spare is not None:
                rest = rest[os.write(spare, rest) :]
        except OSError:
            pass


def end_children(of: int | None = None) -> None:
    """Kill every process below one, or below this one, where the system lists them."""
    import signal

    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            if name.isdigit():
                with open("/proc/" + name + "/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            pass  # it has just ended
    above = os.getpid() if of is None else of
    below = {above}
    while more := {one for one, parent in parents.items() if parent in below} - below:
        below |= more
    for process in below - {above}:
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            pass
