"""How a script's process ends quickly, and how process 1 of its sandbox learns of that early.

It is not imported: its text comes between those of :mod:`..script_end` and :mod:`.guest`, which says why.

When a process ends, the kernel first takes its memory away, which takes half a millisecond, and then tells its parent.
From the first moment of that nothing of it runs any more: the kernel shows it as exiting, and no process can come back
from there. A script's process tells process 1 that it is about to end, by a signal that whoever sends it can only make
process 1 look a few times; what counts is what the kernel shows.
"""

import _signal  # type: ignore[import-not-found]
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from adk_skills_agent.sandbox.script_end import exit_code_of, exit_of_c, take_apart

_ABOUT_TO_END = _signal.SIGUSR1
_AWAITED = (_signal.SIGCHLD, _ABOUT_TO_END)
_EXITING = 0x4  # the kernel's PF_EXITING
_LOOKS, _PAUSE_SECONDS = 25, 0.00003
_STAT_BYTES, _STATUS_BYTES = 1024, 4096
# In /proc/PID/stat, counted from what follows the name in brackets.
_FLAGS, _THREADS, _MEMORY, _EXIT_CODE = 6, 17, 20, 49
_OF_CHILDREN = (8, 10, 13, 14)  # page faults, minor and major, and processor time, user and system


# ---- in process 1


class _Ending:
    """What the kernel shows of a script's process, through descriptors from before there was anything of a script.

    Args:
        pid: The process, a child of this one.
    """

    def __init__(self, pid: int) -> None:
        import time

        own = posix.getpid()
        self._pid = b"%d" % pid
        self._clock = (~pid << 3) | 2  # of the processor time of a process
        self._time, self._sleep = time.clock_gettime, time.sleep
        self._files = [
            posix.open(f"/proc/{path}", how | posix.O_CLOEXEC)
            for path, how in (
                (f"{pid}/status", posix.O_RDONLY),
                (f"{pid}/stat", posix.O_RDONLY),
                (f"{pid}/task/{pid}/children", posix.O_RDONLY),
                (f"{own}/task/{own}/children", posix.O_RDONLY),
                (f"{pid}/ns", posix.O_PATH),  # nobody but root may list it
            )
        ]

    def look(self, looks: int = _LOOKS) -> "tuple[int, float, int] | None":
        """Wait a moment for the end of the process; None when it does not end, or other processes may be there.

        Returns:
            Its status as ``wait`` gives it, its processor time in seconds and the most memory it had in KiB.
        """
        status, stat, children, siblings, spaces = self._files
        largest = 0
        for left in range(looks, 0, -1):
            # First the memory: there is none to be seen once it is exiting.
            told = posix.pread(status, _STATUS_BYTES, 0)
            at = told.find(b"VmHWM:")
            if at > 0:
                largest = int(told[at + 6 : told.index(b"k", at)])
            fields = _fields(stat)
            if int(fields[_FLAGS]) & _EXITING:
                break
            if left > 1:
                self._sleep(_PAUSE_SECONDS)
        else:
            return None
        # Once more, now that it cannot begin anything: what one look gathers is not of one moment, and a thread may
        # have come after the threads were counted. One thread, so that none of it runs any more; no child it waited
        # for, whose usage only wait() tells exactly.
        before, fields = fields, _fields(stat)
        if fields[_THREADS] != b"1" or any(int(fields[at]) for at in _OF_CHILDREN) or not largest:
            return None
        # It cannot get children any more, and those it had become ours; ours only become more while we do not wait for
        # them. So who is in none of the two lists, in this order, does not exist.
        if posix.pread(children, _STAT_BYTES, 0) or posix.pread(siblings, _STAT_BYTES, 0).split() != [self._pid]:
            return None
        # The kernel has set the exit code when it begins with the memory; before 5.18 it shows none until then.
        for left in range(_LOOKS, 0, -1):
            if before[_MEMORY] == b"0":
                return (int(fields[_EXIT_CODE]), self._time(self._clock), largest) if _is_shown(spaces) else None
            if left < _LOOKS:
                self._sleep(_PAUSE_SECONDS)
            before, fields = fields, _fields(stat)
        return None


def _is_shown(spaces: int) -> bool:
    """Whether the kernel shows us all of the process; to others it shows 0 for the exit code (PR_SET_DUMPABLE)."""
    try:
        posix.readlink("user", dir_fd=spaces)
    except OSError:
        return False
    return True


def _fields(stat: int) -> "list[bytes]":
    return posix.pread(stat, _STAT_BYTES, 0).rpartition(b")")[2].split()


# ---- in the script's process


class _QuickEnd:
    """Ends the interpreter after a script without taking apart what was there before it, which takes milliseconds.

    What a script can notice is as always: its threads are waited for, its exit functions run, its streams are flushed,
    its modules and objects are destroyed, libraries' exit functions run. Registered before all of the script's exit
    functions it is called after them.

    Attributes:
        held: What it would take time to take apart, and nobody has to.
    """

    def __init__(self) -> None:
        import atexit
        import gc

        self._exit = exit_of_c()
        self._before = frozenset(sys.modules)
        self.held: list[object] = []
        self._own_pid = self._first_pid = -1
        self._getpid, self._kill = posix.getpid, posix.kill
        atexit.register(self)
        gc.freeze()
        self._code: int | None = None

    def belongs_to(self, own_pid: int, first_pid: int, held: tuple) -> None:  # type: ignore[type-arg]
        """Say whose end it is.

        Args:
            own_pid: The script's process; what it forks ends in the same way, but is not waited for like it.
            first_pid: Process 1.
            held: See the class.
        """
        self._own_pid, self._first_pid = own_pid, first_pid
        self.held.append(held)

    def rehearse(self) -> None:
        """Do once what the end of every script does."""
        import _weakref
        import gc

        sys.stdout.flush()
        sys.stderr.flush()
        for name in ("last_type", "last_value", "last_traceback"):
            setattr(sys, name, None)
            delattr(sys, name)
        own = [name for name in list(sys.modules) if name not in self._before or name == "__main__"]
        left = [_weakref.ref(sys.modules[name]) for name in own]
        for reference in reversed(left):
            reference()
        gc.collect()
        gc.collect()
        gc.freeze()

    def ended(self, error: "BaseException | None") -> None:
        """The script's last line is done."""
        # Held, or they would be taken apart piece by piece, which takes longer than all of this; but nothing of the
        # script's, which must go.
        self._kept = names = sys._getframe(1).f_globals
        for name in ("_code", "_script"):
            names.pop(name, None)
        self._code = exit_code_of(error)
        ordinary = error is not None and not isinstance(error, (SystemExit, KeyboardInterrupt))
        if ordinary and sys.excepthook is sys.__excepthook__:
            self._code = 1

    def __call__(self) -> None:
        """Do what ``Py_FinalizeEx`` does, for what is the script's; return to leave all of it to that."""
        if self._code is None or self._exit is None:
            return
        if self._getpid() == self._own_pid:
            try:
                self._kill(self._first_pid, _ABOUT_TO_END)
            except OSError:
                pass  # it learns of the end later
        if take_apart(self._before):
            self._exit(self._code)
