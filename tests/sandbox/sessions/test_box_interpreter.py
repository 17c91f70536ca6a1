"""Python code that a fork of the supervisor runs ends, prints and sees what it would with an interpreter of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from direct_box import HANG_SECONDS, DirectBox
from ways_to_end import WAYS_TO_END

from adk_skills_agent.sandbox.supervisor import frames
from adk_skills_agent.sandbox.supervisor.python_program import program_text

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "MINE": "1"}
FILES = {"count": 9, "each": 10_000, "total": 20_000}

CODES = {
    **WAYS_TO_END,
    "a destructor": "import os\nclass A:\n  def __del__(self): print('del', os.getpid() > 0)\na = A()",
    "a destructor in a module that was there": (
        "import json\nclass A:\n  def __del__(self): print('del')\nb = A(); b.me = b"
    ),
    "an open file": "f = open('x', 'w'); f.write('data')",
    "what the interpreter says of itself": (
        "import sys\nprint(sys.flags, sys.argv, sys.path, __name__, sorted(globals()), sys.warnoptions, sys._xoptions)"
    ),
    "standard input": "import sys; print(sys.stdin.read(), sys.stdin, sys.stdin.isatty(), sys.__stdin__ is sys.stdin)",
    "the usual streams": (
        "import sys; o = sys.stdout\n"
        "print(o, sys.stderr, sys.stderr.errors, o.line_buffering, o.write_through, sys.stderr.line_buffering)"
    ),
    "its environment": "import os\nprint(sorted(os.environ.items()), os.getenv('MINE'), os.system('echo $MINE'))",
    "its environment as the kernel shows it": "print(sorted({*open('/proc/self/environ').read().split(chr(0)), ''}))",
    "its mask and signals": (
        "import os, signal\nprint(oct(os.umask(0)), [(s, signal.getsignal(s)) for s in (2, 13, 14, 15, 17, 25)])\n"
        "print(signal.pthread_sigmask(0, []), signal.set_wakeup_fd(-1))"
    ),
    "its descriptors": "import os; print(sorted(os.listdir('/proc/self/fd'))[:4], os.path.exists('/proc/self/fd/60'))",
    "its group": "import os; print(os.getpid() == os.getpgid(0) == os.getsid(0))",
    "its limits": "import resource as r; print(r.getrlimit(r.RLIMIT_FSIZE), r.getrlimit(r.RLIMIT_CPU))",
    "a fork": "import os, sys\nif os.fork() == 0: print('child'); sys.exit(4)\nprint(os.wait()[1]); print('parent')",
    "another interpreter": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(5)'])",
    "a signal": "import os; os.kill(os.getpid(), 11)",
    "an interrupting signal": "import os; os.kill(os.getpid(), 2)",
    "an error of syntax": "def f(:\n",
    "another process": (
        "import multiprocessing as m\nm.set_start_method('fork'); p = m.Process(target=print, args=('mp',))\n"
        "p.start(); p.join()"
    ),
    "an unfinished line": "import sys; print('unflushed', end=''); print('err', file=sys.stderr)",
    "an event loop": "import asyncio\nasync def m(): print(1)\nasyncio.run(m())",
    "a pool": "import concurrent.futures as c\nwith c.ThreadPoolExecutor() as e: print(list(e.map(abs, [-1])))",
    "no module of ours": "import sys; print([name for name in sys.modules if 'adk' in name], dir())",
    "logging at its end": "import logging, atexit\natexit.register(logging.warning, 'late')",
    "pickling its class": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectBox]:
    box = DirectBox(tmp_path_factory.mktemp("box"), LANG="C.UTF-8")
    box.hello()
    yield box
    box.close()


def run(box: DirectBox, code: str, *, own: bool, **fields: Any) -> dict[str, Any]:
    # With another text it is any command, for which an interpreter is started.
    program = program_text() if own else program_text() + "\n"
    box.send("part", of="stdin", b64=frames.base64(code.encode()))
    argv = [sys.executable, "-I", "-c", program, ".", "-", "-", "import:"]
    fields = {"env": ENVIRONMENT, "files": FILES, **fields}
    return box.run(kind="argv", argv=argv, cwd="", **fields)


def facts(done: dict[str, Any]) -> dict[str, Any]:
    return {name: done[name] for name in ("exit", "signal", "stdout", "stderr", "files", "skipped", "lost")}


IS_FORK = "import os; print(b'supervisor' in open('/proc/self/cmdline', 'rb').read())"


@pytest.mark.parametrize("name", CODES)
def test_code_ends_as_with_an_interpreter_of_its_own(box: DirectBox, name: str) -> None:
    assert facts(run(box, CODES[name], own=True)) == facts(run(box, CODES[name], own=False))


def test_only_the_own_program_in_an_equal_surrounding_is_run_by_a_fork(box: DirectBox, tmp_path: Path) -> None:
    assert run(box, IS_FORK, own=True)["stdout"] == "True\n"
    assert run(box, IS_FORK, own=False)["stdout"] == "False\n"
    for name in ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ", "MALLOC_ARENA_MAX"):
        assert run(box, IS_FORK, own=True, env={**ENVIRONMENT, name: "C"})["stdout"] == "False\n", name
    link = tmp_path / "python3"  # in the box's folder it would be a file of later tests
    link.symlink_to(sys.executable)
    argv = [str(link), "-I", "-c", program_text(), ".", "-", "-", "import:"]
    box.send("part", of="stdin", b64=frames.base64(IS_FORK.encode()))
    assert box.run(kind="argv", argv=argv, cwd="", env=ENVIRONMENT)["stdout"] == "False\n"


def test_a_supervisor_that_did_not_start_like_that_starts_an_interpreter(tmp_path: Path) -> None:
    without = DirectBox(tmp_path)  # no LANG: its interpreter has chosen its own encoding
    without.hello()
    assert run(without, IS_FORK, own=True)["stdout"] == "False\n"
    without.close()


def test_a_fork_has_its_deadline_and_its_limits(box: DirectBox) -> None:
    late = run(box, "import time; print('begun', flush=True); time.sleep(60)", own=True, deadline_ms=1000, grace_ms=100)
    assert (late["stdout"], late["timed_out"], late["exit"]) == ("begun\n", True, None)
    flood = run(box, "while True: print('x' * 1000)", own=True, flood=10_000)
    assert flood["flood"] == 1
    busy = run(box, "while True: pass", own=True, cpu_seconds=1)
    assert busy["signal"] in {9, 24}
    assert run(box, "print('after')", own=True)["stdout"] == "after\n"


def test_what_a_fork_cannot_start_with_is_said(box: DirectBox) -> None:
    box.send("part", of="stdin", b64=frames.base64(b"print(1)"))
    argv = [sys.executable, "-I", "-c", program_text(), ".", "-", "-", "import:"]
    done = box.run(kind="argv", argv=argv, cwd="missing", env=ENVIRONMENT)
    assert (done["started"], done["reason"]) == (False, "there is no such folder to start it in")
    assert run(box, "print('after')", own=True)["stdout"] == "after\n"


def test_nothing_of_the_supervisor_is_in_a_fork(box: DirectBox) -> None:
    code = """
import gc, os
held = [o for o in gc.get_objects() if type(o).__name__ in ("Supervisor", "Outgoing", "FrameReader", "Running")]
print(held, [fd for fd in os.listdir("/proc/self/fd") if int(fd) > 3])
"""
    assert run(box, code, own=True)["stdout"] == "[] []\n"


def test_what_the_box_was_started_with_is_shown_to_no_code_whatever_its_own_environment(tmp_path: Path) -> None:
    code = "import os\nprint(open('/proc/self/environ').read().strip(chr(0)), os.environ['LONG'][:2])\n"
    box = DirectBox(tmp_path, LANG="C.UTF-8", OF_THE_BOX="secret")
    box.hello()
    long = run(box, code, own=True, env={**ENVIRONMENT, "LONG": "x" * 50_000})
    short = run(box, code + IS_FORK, own=True, env={"PATH": "/bin", "LANG": "C.UTF-8", "LONG": "yy"})
    box.close()
    assert long["stdout"] == " xx\n"
    assert short["stdout"] == "PATH=/bin\0LANG=C.UTF-8\0LONG=yy yy\nTrue\n"


def test_the_last_command_of_a_box_is_followed_by_goodbye(tmp_path: Path) -> None:
    box = DirectBox(tmp_path, LANG="C.UTF-8")
    box.hello()
    done = run(box, "print('last')", own=True, last=True)
    assert (done["stdout"], box.next()) == ("last\n", {"t": "bye"})
    assert box.process.poll() is None  # until the channel is closed
    assert psutil.Process(box.process.pid).children() == []
    assert box.close() == 0
    assert box.process.wait(HANG_SECONDS) == 0


@pytest.mark.slow
def test_without_a_way_to_the_c_library_the_interpreter_ends_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import atexit
    import gc

    from adk_skills_agent.sandbox.supervisor.script_end import QuickEnd

    registered: list[Any] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    monkeypatch.setitem(sys.modules, "_ctypes", None)
    end = QuickEnd()
    gc.unfreeze()
    end.ended(None)
    assert registered == [end]
    end()  # and the test goes on
