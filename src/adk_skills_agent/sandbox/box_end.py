"""The end of Python code that ran in a fork of the supervisor: what an interpreter does then, for what is the code's.

Part of the program in a box (:mod:`.box_program`). An interpreter takes apart all it has. In a fork each object it
touches on the way is first copied by the kernel, page by page: 9 ms, where all else of a run takes 5.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

_MOST = 1 << 63  # of what the interpreter takes for an exit code


class QuickEnd:
    """Made before the code runs; then its exit functions come before this one, which ends the process."""

    def __init__(self) -> None:
        import atexit
        import gc

        self._exit = _exit_of_c()
        self._before = frozenset(sys.modules)
        self._code: int | None = None
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
        self._kept = frame.f_globals  # all of the supervisor, which would be taken apart when its last frame ends
        atexit.register(self)
        gc.freeze()

    def ended(self, error: BaseException | None) -> None:
        """The code's last line is done; what is not said here is left to the interpreter."""
        code = error.code if isinstance(error, SystemExit) else error
        if code is None:
            self._code = 0
        elif isinstance(error, SystemExit):
            if not isinstance(code, int):
                self._code = 1
            elif -_MOST <= code < _MOST:
                self._code = code & 0xFF

    def __call__(self) -> None:
        """Do what ``Py_FinalizeEx`` does; return to leave it to that."""
        if self._code is None or self._exit is None:
            return
        import _weakref
        import gc

        if not _flushed():
            return  # the interpreter says so, with an exit code of its own
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        for name in ("last_type", "last_value", "last_traceback", "path_hooks", "path_importer_cache"):
            setattr(sys, name, None)
        # Without our hold on them, so that most go with all they need still there.
        own = [sys.modules.pop(name) for name in list(sys.modules) if name not in self._before or name == "__main__"]
        left = [_weakref.ref(module) for module in own if type(module) is ModuleType]
        own.clear()
        gc.collect()
        for reference in reversed(left):
            _empty(reference())
        gc.collect()
        if _flushed():
            self._exit(self._code)


def _exit_of_c() -> Any:
    """The C library's ``exit``, with its own buffers and exit functions; None where it cannot be had."""
    try:
        import ctypes

        return ctypes.PyDLL(None).exit  # other threads stay where they are
    except (ImportError, OSError, AttributeError):
        return None


def _flushed() -> bool:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001  # whatever the code has put there
        return False
    return True


def _empty(module: Any) -> None:
    """Let go of what is in a module that something still holds, private names first, as the interpreter does."""
    names = {} if module is None else vars(module)  # type: dict[str, Any]
    for private in (True, False):
        for name in list(names):
            if name != "__builtins__" and (name[:1] == "_" and name[1:2] != "_") is private:
                names[name] = None
