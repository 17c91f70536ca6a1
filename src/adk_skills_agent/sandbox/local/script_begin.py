"""How a Python script begins in an interpreter that runs already: what ``python script`` does before its first line.

It is not imported: its text comes before that of :mod:`.stub`, which says why, and of what is added to that.
"""

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FILE_INPUT = 257  # a whole file, as the parser numbers it


def _script(job: dict) -> tuple:  # type: ignore[type-arg]
    """What ``python script`` does before the first line: a fresh ``__main__``, its folder on the path, its argv."""
    import _frozen_importlib_external as external
    import os

    known: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]  # name by name takes ten times as long
    for name in known:
        posix.unsetenv(name)
    known.clear()
    known.update(job["env"])
    for name, value in known.items():
        posix.putenv(name, value)
    command = [os.fsdecode(part) for part in job["argv"]]
    arguments = command[job["script"] :]
    path = arguments[0]
    if path[:1] != "/":  # a script that changes its folder still finds itself
        path = f"{posix.getcwd()}/{path}"
    sys.orig_argv[:] = command
    sys.argv[:] = arguments
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    main_module = type(sys)("__main__")
    main_module.__loader__ = external.SourceFileLoader("__main__", path)
    names = main_module.__dict__
    names.update(__file__=path, __cached__=None, __builtins__=sys.modules["builtins"], __annotations__={})
    sys.modules["__main__"] = main_module
    try:
        with open(path, "rb") as stream:
            source = stream.read()
    except OSError as error:
        problem = f"can't open file {os.path.abspath(path)!r}: [Errno {error.errno}] {error.strerror}"  # noqa: PTH100
        sys.stderr.write(f"{sys.executable}: {problem}\n")
        raise SystemExit(2) from None
    try:
        return _compiled(source, os.fsencode(path)), names
    except BaseException as error:  # noqa: BLE001  # shown as the interpreter shows what it cannot compile
        error.__traceback__ = None
        sys.excepthook(type(error), error, None)
        raise SystemExit(1) from None


def _compiled(source: bytes, path: bytes) -> "Any":
    """Compiled as by the interpreter: ``compile()`` first makes the types of ``ast``, longer than most scripts take."""
    if not _compilers:
        _compilers.append(_interpreters_own())
    compiler = _compilers[0]
    if compiler is None or b"\0" in source:
        return compile(source, path, "exec", dont_inherit=True)
    return compiler(source, path, _FILE_INPUT, None, -1)


def _interpreters_own() -> "Any":
    """The interpreter's function; None where it hides it."""
    import _ctypes

    result = type("Code", (_ctypes._SimpleCData,), {"_type_": "O"})
    flags = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI
    function = type("Compile", (_ctypes.CFuncPtr,), {"_flags_": flags, "_restype_": result})
    try:
        return function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "Py_CompileStringExFlags"))  # type: ignore[arg-type]
    except OSError:
        return None


_compilers: "list[Any]" = []  # made once, before there is a script where its process waits for one
