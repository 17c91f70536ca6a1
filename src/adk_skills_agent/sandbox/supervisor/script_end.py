"""What an interpreter does at its end, for what is a script's only, in a fork of a process that holds much more.

An interpreter takes apart all it has. In a fork each object it touches on the way is first copied by the kernel, page
by page, which takes longer than all else of a short run; and nobody can notice whether what was there before the script
is taken apart. Part of the program in a sandbox (:mod:`.program`) and, as text, of the init process in a local sandbox.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_CODE = 1 << 63  # of what the interpreter takes for an exit code


class QuickEnd:
    """Ends the interpreter after a script without taking apart what was there before it, which takes milliseconds.

    What a script can notice is as always: its threads are waited for, its exit functions run, its streams are flushed,
    its modules and objects are destroyed, libraries' exit functions run. Registered before all of the script's exit
    functions it is called after them.
    """

    def __init__(self) -> None:
        import atexit
        import gc

        self._exit = exit_of_c()
        self._before = frozenset(sys.modules)
        self._code: int | None = None
        atexit.register(self)
        gc.freeze()

    def ended(self, error: BaseException | None, around: dict[str, Any] | None = None) -> None:
        """The script's last line is done, with this error, in a program with the names ``around``, or the caller's."""
        # Held, or they would be taken apart piece by piece, which takes longer than all of this; but nothing of the
        # script's, which must go.
        self._kept = names = sys._getframe(1).f_globals if around is None else around
        for name in ("_code", "_script"):
            names.pop(name, None)
        self._code = exit_code_of(error)
        ordinary = error is not None and not isinstance(error, (SystemExit, KeyboardInterrupt))
        if ordinary and sys.excepthook is sys.__excepthook__:
            self._code = 1

    def __call__(self) -> None:
        """Do what ``Py_FinalizeEx`` does, for what is the script's; return to leave all of it to that."""
        if self._code is not None and self._exit is not None and _take_apart(self._before):
            self._exit(self._code)


def exit_of_c() -> Any:
    """The C library's ``exit``, with its own buffers and exit functions; None where it cannot be had."""
    try:
        import _ctypes

        flags = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI  # other threads stay where they are
        kind = type("Exit", (_ctypes.CFuncPtr,), {"_flags_": flags})
        return kind(_ctypes.dlsym(_ctypes.dlopen(None, 0), "exit"))  # type: ignore[arg-type]
    except (ImportError, OSError, AttributeError):
        return None


def exit_code_of(error: BaseException | None) -> int | None:
    """How a script ends whose last line was left with this; None when only the interpreter can say that."""
    if error is None:
        return 0
    # Exactly: of a subclass the code may be the script's own function, which the interpreter alone asks, and only once.
    if type(error) is not SystemExit:
        return None
    code: Any = error.code
    if code is None:
        return 0
    if not issubclass(type(code), int):
        return 1
    code = int.__int__(code)  # as the interpreter reads it, whatever its class makes of "&" and "<="
    return code & 0xFF if -_MOST_CODE <= code < _MOST_CODE else None


def _take_apart(before: frozenset[str]) -> bool:
    """Do what ``Py_FinalizeEx`` does after the exit functions, for what is the script's.

    False when not all that was written is out: the interpreter says so, with an exit code of its own.
    """
    import _weakref
    import gc

    if not _flushed():
        return False
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    for name in ("last_type", "last_value", "last_traceback", "path_hooks", "path_importer_cache"):
        setattr(sys, name, None)
    # Without our hold on them, so that most go with all they need still there.
    own = [sys.modules.pop(name) for name in list(sys.modules) if name not in before or name == "__main__"]
    left = [_weakref.ref(module) for module in own if type(module) is type(sys)]
    own.clear()
    gc.collect()
    for reference in reversed(left):
        _empty(reference())
    gc.collect()
    return _flushed()


def _flushed() -> bool:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001  # whatever the script has put there
        return False
    return True


def _empty(module: Any) -> None:
    """Let go of what is in a module that something still holds, private names first, as the interpreter does."""
    names = {} if module is None else vars(module)
    for private in (True, False):
        for name in list(names):
            if name != "__builtins__" and (name[:1] == "_" and name[1:2] != "_") is private:
                names[name] = None
