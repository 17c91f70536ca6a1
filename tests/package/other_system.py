"""A program that pretends to be macOS or Windows, then runs code: ``python other_system.py darwin CODE``.

No interpreter of another system is at hand. What the standard library and other packages need of Linux is imported
first; then the names are taken away that the other system's Python does not have, and only then is anything of ours
imported. What a real machine would do beyond missing names is not shown by this.
"""

from __future__ import annotations

import importlib
import os
import platform
import select
import signal
import socket
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec

BEFORE = """
asyncio concurrent.futures ctypes ctypes.util http.client importlib.metadata importlib.resources json logging
multiprocessing random shutil sqlite3 ssl subprocess tempfile tomllib urllib.request uuid zipfile
click click.shell_completion google.adk.agents google.adk.apps google.adk.code_executors google.adk.environment
google.adk.models google.adk.runners google.adk.tools.skill_toolset google.genai opentelemetry.metrics
opentelemetry.trace packaging.requirements yaml
"""
OF_LINUX = """
copy_file_range eventfd getrandom getresgid getresuid getxattr listxattr memfd_create pidfd_open posix_fadvise
sched_getaffinity sched_setaffinity setns setresgid setresuid setxattr splice unshare O_PATH O_TMPFILE
"""
OF_POSIX = """
chown chroot confstr fchdir fchmod fchown fork forkpty fstatvfs getegid geteuid getgid getgroups getloadavg getpgid
getsid getuid killpg lchown mkfifo mknod nice openpty posix_spawn pread pwrite register_at_fork set_blocking setgid
setgroups setpgid setsid setuid statvfs sysconf ttyname uname wait3 wait4 waitid
O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC
"""
POSIX_SIGNALS = """
SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGSYS SIGTSTP SIGUSR1 SIGUSR2 SIGXCPU SIGXFSZ alarm
pthread_sigmask setitimer sigwait
"""
POSIX_MODULES = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")


class _Absent:
    """An import hook: modules the other system does not have."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if name in POSIX_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def pretend(system: str) -> None:
    """Be ``darwin`` or ``win32`` from now on."""
    for module in BEFORE.split():
        importlib.import_module(module)
    sys.platform = system
    platform.system = lambda: {"darwin": "Darwin", "win32": "Windows"}[system]
    _take_away(os, OF_LINUX)
    _take_away(select, "epoll")
    if system == "win32":
        for module in POSIX_MODULES:
            sys.modules.pop(module, None)
        sys.meta_path.insert(0, _Absent())
        _take_away(os, OF_POSIX)
        _take_away(signal, POSIX_SIGNALS)
        _take_away(socket, "AF_UNIX recv_fds send_fds")
        os.supports_dir_fd.clear()
        os.supports_fd.clear()


def _take_away(module: object, names: str) -> None:
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)


if __name__ == "__main__":
    pretend(sys.argv[1])
    sys.path.pop(0)
    exec(compile(sys.argv[2], "<code>", "exec"), {"__name__": "__main__"})
