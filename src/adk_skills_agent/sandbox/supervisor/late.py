"""Late output: what threads of an earlier execution write while the code of another one runs.

Part of the program in the sandbox (:mod:`.program`). Each execution has pipes of its own at descriptors 1 and 2 of the
kernel's process, and all threads of a process share these numbers. So a thread is known by the execution that began it,
or began the thread that began it, and what a thread of an earlier one writes to 1 or 2 goes elsewhere: by ``print``,
``sys.stdout.buffer``, ``os.write`` and the like, or by a program it starts. What is not Python (a library's threads,
``ctypes``) or opens these numbers as files of its own (``open(1, "w")``) is not asked, and cannot be told apart.
"""

from __future__ import annotations

import _thread
import io
import os
import posix
import sys
from typing import Any, Callable

_STANDARD = (1, 2)
_OUT_AT, _ERR_AT = 9, 11  # c2pwrite and errwrite among the arguments of fork_exec, from Python 3.8 on


class Late:
    """Threads of earlier executions, and where what they write goes; changed and asked under its lock."""

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self._main = _thread.get_ident()
        self._execution = 0
        self._own: Any = _thread._local()  # the execution that began a thread
        self._alive: set[object] = set()  # one for each thread that was begun and has not ended
        self._unknown: set[int] = set()  # threads that something else than Python began
        self._descriptors: tuple[int, ...] = ()  # never closed: a thread may be writing
        self._write, self._dup, self._dup2, self._close = posix.write, posix.dup, posix.dup2, posix.close

    def begin(self, out: int, err: int) -> None:
        """Give descriptors 1 and 2 to a new execution, and those it takes over to threads that are still there."""
        with self.lock:
            self._execution += 1
            self._unknown = set(sys._current_frames()) - {_thread.get_ident()}
            left = bool(self._unknown or self._alive)
            if left and not self._descriptors:
                self._descriptors = (self._dup(1), self._dup(2))
            for old, number in zip(self._descriptors, _STANDARD if left else (0, 0)):
                self._dup2(number, old, False)
            for number, descriptor in zip(_STANDARD, (out, err)):
                self._dup2(descriptor, number)
                self._close(descriptor)

    def is_main(self) -> bool:
        """Whether this is the thread that runs the code; its output is never late."""
        return _thread.get_ident() == self._main

    def place(self, descriptor: int) -> int:
        """Where this thread writes that writes to a descriptor. Under the lock, except in the main thread."""
        if descriptor not in _STANDARD or self.is_main() or not self._descriptors:
            return descriptor
        return descriptor if self._begun_in() == self._execution else self._descriptors[descriptor - 1]

    def _begun_in(self) -> int:
        """The execution this thread is of."""
        unknown = self._execution - 1 if _thread.get_ident() in self._unknown else self._execution
        return self._execution if self.is_main() else getattr(self._own, "execution", unknown)

    def write(self, descriptor: int, data: bytes) -> int:
        """Write to 1 or 2 from any thread but the main one."""
        with self.lock:
            place = self.place(descriptor)
            try:
                return self._write(place, data)
            except OSError:
                if place == descriptor:
                    raise
                return len(data)  # nobody reads it any more

    # ---- Python's own ways to write without sys.stdout

    def watch(self) -> None:
        """Take the place of what writes by number, begins threads and starts programs in this process."""
        for name in ("write", "writev", "sendfile", "splice", "dup"):
            self._replace((posix, os), name, self._writing)
        for name in ("posix_spawn", "posix_spawnp"):
            self._replace((posix, os), name, self._spawn)
        self._replace((os,), "system", self._system)
        threading = sys.modules.get("threading")
        for name in ("start_new_thread", "start_new", "start_joinable_thread"):
            self._replace((_thread,), name, self._starting)
            if threading is not None and hasattr(threading, f"_{name}"):
                setattr(threading, f"_{name}", getattr(_thread, name))
        try:
            import _posixsubprocess
        except ImportError:
            pass
        else:
            self._replace((_posixsubprocess,), "fork_exec", self._fork_exec)
            subprocess = sys.modules.get("subprocess")
            if subprocess is not None and hasattr(subprocess, "_fork_exec"):
                subprocess._fork_exec = _posixsubprocess.fork_exec  # type: ignore[attr-defined]
        os.register_at_fork(after_in_child=self._forked)

    def _replace(self, modules: tuple[Any, ...], name: str, instead: Callable[[Any], Any]) -> None:
        original = getattr(modules[0], name, None)
        if original is None:
            return
        function = instead(original)
        function.__name__ = function.__qualname__ = name
        function.__module__, function.__doc__ = original.__module__, original.__doc__
        for module in modules:
            setattr(module, name, function)

    def _writing(self, original: Any) -> Any:
        get_ident = _thread.get_ident
        at = 1 if original.__name__ == "splice" else 0

        def function(*args: Any, **named: Any) -> Any:
            if get_ident() == self._main or len(args) <= at or args[at] not in _STANDARD:
                return original(*args, **named)
            with self.lock:
                place = self.place(args[at])
                try:
                    return original(*args[:at], place, *args[at + 1 :], **named)
                except BrokenPipeError:
                    if place == args[at] or original.__name__ != "write":
                        raise
                    return len(args[1])  # nobody reads it any more

        return function

    def _starting(self, original: Any) -> Any:
        def function(start: Any, *args: Any, **named: Any) -> Any:
            if not callable(start):
                return original(start, *args, **named)
            execution, token = self._begun_in(), object()

            def begin(*args: Any, **named: Any) -> None:
                try:
                    self._own.execution = execution
                    start(*args, **named)
                finally:
                    self._alive.discard(token)

            self._alive.add(token)
            try:
                return original(begin, *args, **named)
            except BaseException:
                self._alive.discard(token)
                raise

        return function

    def _fork_exec(self, original: Any) -> Any:
        def function(*args: Any) -> Any:
            if self.is_main() or len(args) <= _ERR_AT:
                return original(*args)
            given = list(args)
            with self.lock:
                for at, number in ((_OUT_AT, 1), (_ERR_AT, 2)):
                    wanted = number if args[at] == -1 else args[at]
                    place = self.place(wanted)
                    given[at] = args[at] if place == wanted else place
                return original(*given)

        return function

    def _spawn(self, original: Any) -> Any:
        def function(*args: Any, **named: Any) -> Any:
            if self.is_main():
                return original(*args, **named)
            with self.lock:
                first = [(posix.POSIX_SPAWN_DUP2, self.place(number), number) for number in _STANDARD]
                named["file_actions"] = [*first, *(named.get("file_actions") or ())]
                return original(*args, **named)

        return function

    def _system(self, original: Any) -> Any:
        def function(command: Any) -> Any:
            if self.is_main() or self.place(1) == 1:
                return original(command)
            import subprocess

            code = subprocess.call(command, shell=True)  # noqa: S602  # what os.system does
            return code << 8 if code >= 0 else -code

        return function

    def _forked(self) -> None:
        """In a process the code forked: its only thread is what it was, and its lock may have been held."""
        self.lock = _thread.allocate_lock()
        for number in _STANDARD:
            place = self.place(number)
            if place != number:
                self._dup2(place, number)
        self._main = _thread.get_ident()


class Stream(io.TextIOWrapper):
    """Standard output or error as ``python -u`` has it: what was printed before a kill is not lost in a buffer."""

    def __init__(self, number: int, late: Late) -> None:
        raw: Any = io.FileIO(number, "w", closefd=False)
        errors = "surrogateescape" if number == 1 else "backslashreplace"
        super().__init__(raw, "utf-8", errors, write_through=True)
        self._number, self._late = number, late
        self._binary = _Binary(number, late)

    @property
    def buffer(self) -> Any:
        """For bytes."""
        return self._binary

    @property
    def is_usable(self) -> bool:
        """Whether code has closed and detached nothing of it."""
        try:
            return not (self.closed or self._binary.closed)
        except ValueError:  # detached
            return False

    def write(self, text: str) -> int:
        """To the execution that runs, or to the one this thread is of."""
        if self._late.is_main():
            return super().write(text)
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        data = text.encode(self.encoding, self.errors or "strict")
        while data:
            data = data[self._late.write(self._number, data) :]
        return len(text)


class _Binary(io.FileIO):
    def __init__(self, number: int, late: Late) -> None:
        super().__init__(number, "w", closefd=False)
        self._number, self._late = number, late

    def write(self, data: Any) -> int:
        if self._late.is_main() or self.closed:
            return super().write(data) or 0
        return self._late.write(self._number, bytes(data))
