"""What the init programs share: system calls, limits, a user without rights, and the beginning and end of a command.

It is not imported: the host compiles its text together with :mod:`.landlock` or :mod:`.program` and hands the code to
an interpreter through a descriptor. So it imports only what is built in or a small extension module; ``os``,
``signal`` and ``ctypes`` would cost several milliseconds a run.
"""

import _signal  # type: ignore[import-not-found]
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_CAPBSET_DROP = 1, 4, 8, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAP_AMBIENT = 36, 38, 22, 47
_PR_SET_SECUREBITS, _NO_SETUID_FIXUP = 28, 4
_SECCOMP_MODE_FILTER, _PR_CAP_AMBIENT_RAISE = 2, 2
_CAP_DAC_READ_SEARCH, _LAST_CAPABILITY = 2, 63
_CAPABILITY_HEADER = (0x20080522).to_bytes(4, sys.byteorder) + bytes(4)
_EPERM, _EINVAL = 1, 22
_NOT_STARTED = 127


class _Library:
    """The C library, as far as it is needed. ``ctypes`` itself would cost four milliseconds; this costs one."""

    def __init__(self) -> None:
        import _ctypes

        class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
            _type_ = "l"

        class Char(_ctypes._SimpleCData):  # type: ignore[type-arg]
            _type_ = "c"

        class Function(_ctypes.CFuncPtr):
            _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
            _restype_ = Long

        self._errno = _ctypes.get_errno
        self._address = _ctypes.addressof
        self._long = Long
        self._char: Any = Char
        handle = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
        names = ("syscall", "prctl", "capset", "setrlimit", "getrusage", "mount", "umount2", "unshare")
        self._functions = {name: Function(_ctypes.dlsym(handle, name)) for name in names}

    def call(self, name: str, *arguments: "int | bytes | None", step: str = "") -> int:
        """Call a function; whole numbers are passed as long. Raises OSError with the step when it gave -1."""
        passed = [self._long(value) if isinstance(value, int) else value for value in arguments]
        # What the C library's functions give is an int, and only its low half is defined.
        result = self._functions[name](*passed)
        if result & 0xFFFFFFFF == 0xFFFFFFFF:
            raise OSError(self._errno(), step or name)
        return int(result)

    def prctl(self, option: int, value: int = 0, more: int = 0, step: str = "") -> None:
        self.call("prctl", option, value, more, 0, 0, step=step or f"prctl({option})")

    def install_filter(self, program: bytes) -> None:
        buffer = (self._char * len(program))()
        buffer.raw = program
        length = (len(program) // 8).to_bytes(2, sys.byteorder)
        pointer = self._address(buffer).to_bytes(8, sys.byteorder)
        packed = (self._char * 16)()
        packed.raw = length + bytes(6) + pointer
        self.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, self._address(packed), "install the system call filter")


# ---- rights and limits


def _give_up_root(library: _Library, uid: int, *, search: bool) -> None:
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            if not (search and capability == _CAP_DAC_READ_SEARCH):
                library.prctl(_PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno in {_EINVAL, _EPERM}:
                break  # the last one the kernel has; or nothing to drop with, and no_new_privs makes it irrelevant
            raise
    if search:
        library.prctl(_PR_SET_KEEPCAPS, 1)
        # Without this access() does not count the capability, and bash finds another Python than the agent's.
        try:
            library.prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP)
        except OSError as error:
            if error.errno != _EPERM:  # an agent without CAP_SETPCAP
                raise
    try:
        posix.setgroups([])
        posix.setresgid(uid, uid, uid)
        posix.setresuid(uid, uid, uid)
    except OSError as error:
        raise OSError(error.errno, "give up root") from None
    kept = (1 << _CAP_DAC_READ_SEARCH) if search else 0
    one = kept.to_bytes(4, sys.byteorder)
    library.call("capset", _CAPABILITY_HEADER, one * 3 + bytes(12), step="drop capabilities")
    if search:  # ambient, so that what the script starts can still read the interpreter
        library.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, "keep the search capability")


def _limit(library: _Library, limits: "list[tuple[int, int, int]]") -> None:
    for which, soft, hard in limits:
        pair = soft.to_bytes(8, sys.byteorder) + hard.to_bytes(8, sys.byteorder)
        library.call("setrlimit", which, pair, step="set its limits")


def _one_word(text: "str | None") -> str:
    return (text or "?").replace(" ", "_")


# ---- the command


def _exec(job: dict) -> None:  # type: ignore[type-arg]
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them; other programs must not
        _signal.signal(number, _signal.SIG_DFL)
    posix.execve(job["argv"][0], job["argv"], job["env"])


def _script(job: dict) -> tuple:  # type: ignore[type-arg]
    """What ``python script`` does before the first line: a fresh ``__main__``, its folder on the path, its argv."""
    import _frozen_importlib_external as external
    import os

    os.environb.clear()
    os.environb.update(job["env"])
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
        return compile(source, os.fsencode(path), "exec", dont_inherit=True), names
    except BaseException as error:  # noqa: BLE001  # shown as the interpreter shows what it cannot compile
        error.__traceback__ = None
        sys.excepthook(type(error), error, None)
        raise SystemExit(1) from None
