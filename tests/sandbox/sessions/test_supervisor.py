"""The program of a box against its host and against what runs in it: one command, files, frames that are wrong."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import direct_box
import psutil
import pytest
from direct_box import HANG_SECONDS, DirectBox

from adk_skills_agent.sandbox.supervisor import frames, process

ALL = {"count": 3, "each": 1000, "total": 2000}
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def box(tmp_path: Path) -> Iterator[DirectBox]:
    box = DirectBox(tmp_path)
    yield box
    box.close()


def test_a_greeting_is_answered_and_may_come_again(box: DirectBox) -> None:
    ready = box.hello()
    assert (ready["proto"], ready["python"]) == (frames.PROTOCOL, "{}.{}.{}".format(*sys.version_info[:3]))
    assert ready["guarded"] is True
    assert box.hello(limits={"NOFILE": 64})["pid"] == box.process.pid
    assert box.run("import resource\nresource.getrlimit(resource.RLIMIT_NOFILE)")["stdout"] == "(64, 64)\n"


def test_row_183_a_supervisor_may_have_more_descriptors_on_their_way_than_any_script(box: DirectBox) -> None:
    """Seen: a script in one container kept 256 of their common user, and sessions in all others lost their state."""
    box.hello(limits={"NOFILE": 64})
    assert resource.prlimit(box.process.pid, resource.RLIMIT_NOFILE)[0] > 64
    assert box.run("import resource\nresource.getrlimit(resource.RLIMIT_NOFILE)")["stdout"] == "(64, 64)\n"


def test_row_424_output_that_comes_a_byte_at_a_time_is_gathered(box: DirectBox) -> None:
    box.hello()
    box.send_code(
        "import os, time\nfor _ in range(2_000):\n    os.write(1, b'x')\n    time.sleep(0.0005)", deadline_ms=60_000
    )
    pieces = []
    while (frame := box.next()) is not None and frame["t"] == "out":
        pieces.append(frames.content(frame))
    assert frame is not None
    assert frame["t"] == "done"
    assert b"".join(pieces) == b"x" * 2_000
    assert len(pieces) < 1_000, len(pieces)


@pytest.mark.parametrize(
    "sent",
    [
        frames.encode({"t": "hello", "proto": frames.PROTOCOL + 1}),
        frames.encode({"t": "exec", "id": 1}),
        (1 << 30).to_bytes(4, "big"),
        b"GET / HTTP/1.1\r\n\r\n",
        frames.encode({"t": "hello", "proto": 1}) + frames.encode({"t": "nonsense"}),
        frames.encode({"t": "hello", "proto": 1}) + frames.encode({"t": "exec", "id": "x", "kind": "code"}),
        frames.encode({"t": "hello", "proto": 1}) + frames.encode({"t": "put", "path": 5}),
    ],
    ids=["version", "no-greeting", "gigabyte", "http", "unknown", "no-id", "no-path"],
)
def test_a_host_that_speaks_something_else_is_told_so_and_left(box: DirectBox, sent: bytes) -> None:
    box.send_bytes(sent)
    said = []
    while (frame := box.next()) is not None:
        said.append(frame)
    assert (said[-1]["t"], said[-1]["of"]) == ("failed", "frame")
    assert box.process.wait(HANG_SECONDS) == 2


def test_a_program_nobody_speaks_to_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = direct_box.program_text()
    sooner = text.replace("_GREETED_SECONDS = 60", "_GREETED_SECONDS = 1")
    assert sooner != text
    monkeypatch.setattr(direct_box, "program_text", lambda: sooner)
    alone, greeted = DirectBox(tmp_path), DirectBox(tmp_path)
    greeted.hello()
    assert alone.process.wait(HANG_SECONDS) == 3
    time.sleep(1)
    assert greeted.run("'still here'")["stdout"] == "'still here'\n"
    alone.close()
    greeted.close()


def test_who_closes_is_told_when_nothing_else_is_left(box: DirectBox) -> None:
    box.hello()
    box.run("1")
    box.send("close")
    assert box.next() == {"t": "bye"}
    assert box.next() is None
    assert box.process.wait(HANG_SECONDS) == 0


def test_everything_ends_with_the_channel(box: DirectBox) -> None:
    box.hello()
    box.run("import os, subprocess\nchild = subprocess.Popen(['sleep', '100'])")
    children = psutil.Process(box.process.pid).children(recursive=True)
    assert len(children) == 2
    box.close()
    _, alive = psutil.wait_procs(children, HANG_SECONDS)
    assert alive == []


def test_a_command_gets_arguments_variables_input_and_folder_and_tells_its_end(box: DirectBox) -> None:
    box.hello()
    (box.folder / "here").mkdir()
    box.send("part", of="stdin", b64=frames.base64(b"from stdin"))
    argv = ["sh", "-c", 'cat; echo " $1 $NAME $(basename $PWD)"; echo warning >&2; exit 7', "sh", "it's $HOME"]
    done = box.run(kind="argv", argv=argv, env={**ENVIRONMENT, "NAME": "value"}, cwd="here")
    assert (done["stdout"], done["stderr"], done["exit"]) == ("from stdin it's $HOME value here\n", "warning\n", 7)
    killed = box.run(kind="argv", argv=["sh", "-c", "kill -9 $$"], env=ENVIRONMENT)
    assert (killed["exit"], killed["signal"]) == (None, 9)
    missing = box.run(kind="argv", argv=["no-such-program"], env=ENVIRONMENT)
    assert (missing["started"], missing["reason"]) == (False, "No such file or directory")
    assert box.run(kind="argv", argv=["cat"], env=ENVIRONMENT)["stdout"] == ""


def test_a_command_is_asked_to_end_and_then_killed(box: DirectBox) -> None:
    box.hello()
    polite = box.run(
        kind="argv",
        argv=["sh", "-c", "trap 'echo ending; exit 5' TERM; while :; do sleep 0.01; done"],
        env=ENVIRONMENT,
        deadline_ms=1000,
        grace_ms=15_000,
    )
    assert (polite["stdout"], polite["exit"], polite["timed_out"]) == ("ending\n", 5, True)
    deaf = box.run(
        kind="argv",
        argv=["sh", "-c", "trap '' TERM; echo on; sleep 60"],
        env=ENVIRONMENT,
        deadline_ms=1000,
        grace_ms=100,
    )
    assert (deaf["stdout"], deaf["signal"], deaf["timed_out"]) == ("on\n", 9, True)


def test_a_daemon_that_holds_the_output_is_not_waited_for(box: DirectBox) -> None:
    box.hello()
    began = time.monotonic()
    done = box.run(kind="argv", argv=["sh", "-c", "setsid sleep 60 & echo gone"], env=ENVIRONMENT)
    assert (done["stdout"], done["exit"]) == ("gone\n", 0)
    assert time.monotonic() - began < 50


def test_row_246_what_is_left_of_a_command_is_ended_also_when_its_first_thread_has(box: DirectBox) -> None:
    box.hello(batch=True)
    code = """
import ctypes, os, sys, threading, time
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 3)
    threading.Thread(target=time.sleep, args=(60,)).start()
    ctypes.CDLL(None).syscall(int(sys.argv[1]), 0)
time.sleep(0.3)
"""
    number = {"x86_64": "60", "aarch64": "93"}[os.uname().machine]  # exit() of one thread
    done = box.run(kind="argv", argv=[sys.executable, "-c", code, number], env=ENVIRONMENT)
    assert (done["exit"], done["killed"]) == (0, 1)


def test_files_are_put_whole_and_only_what_changed_comes_back(box: DirectBox) -> None:
    os.mkfifo(box.folder / "pipe")
    box.hello()
    large = bytes(range(256)) * 5000
    for piece, more in frames.pieces(large):
        box.send("put", path="in/large.bin", mode=0o640, b64=frames.base64(piece), more=more)
    box.send("put", path="in/tool.sh", mode=0o700, b64=frames.base64(b"#!/bin/sh\necho ran\n"))
    box.send("put", path="link", kind="link", target="in/tool.sh")
    box.send("put", path="empty", kind="folder", mode=0o700)
    code = (
        "import hashlib, os, subprocess\nopen('new.txt', 'w').write('new')\nos.symlink('/etc/passwd', 'passwd')\n"
        "os.link('new.txt', 'twin.txt')\nopen('big.txt', 'w').write('x' * 1001)\n"
        "for n in range(4): open(f'{n}.txt', 'w').write('x' * 600)\n"
        "subprocess.run(['./link']), os.path.getsize('in/large.bin'), oct(os.stat('in/large.bin').st_mode & 0o777), "
        "os.listdir('empty')"
    )
    limits = {"count": 10, "each": 1000, "total": 2000}
    done = box.run(code, files=limits)
    assert done["stdout"] == f"ran\n(CompletedProcess(args=['./link'], returncode=0), {len(large)}, '0o640', [])\n"
    sizes = {name: len(content) for name, content in done["files"].items()}
    assert sizes == {"0.txt": 600, "1.txt": 600, "2.txt": 600, "new.txt": 3, "twin.txt": 3}
    skipped = done["skipped"]
    assert skipped["passwd"] == "is a symbolic link"
    assert skipped["big.txt"].startswith("larger than max_file_bytes")
    assert skipped["3.txt"].startswith("the output files together are larger")
    assert {name for name in skipped if name.startswith("in/") or name in {"link", "pipe", "empty"}} == set()
    assert box.run("1", files=limits)["files"] == {}
    os.link(box.folder / "new.txt", box.folder.parent / "elsewhere.txt")
    assert box.run("open('new.txt', 'a').write('x')", files=limits)["skipped"]["new.txt"] == "has several hard links"


def test_of_many_files_that_are_not_taken_the_rest_is_counted_and_all_that_are_gone_are_told(box: DirectBox) -> None:
    box.hello()
    limits = {"count": 10, "each": 1000, "total": 2000}
    done = box.run("import os\nfor n in range(150): os.mkfifo(f'{n:03}')", files=limits)
    assert list(done["skipped"]) == [f"{n:03}" for n in range(100)]
    assert done["skipped"]["098"] == "is a named pipe"
    assert done["skipped"]["099"] == "is a named pipe"
    assert done["unlisted"] == 50
    done = box.run("for n in range(150): os.remove(f'{n:03}')", files=limits)
    assert sorted(done["gone"]) == [f"{n:03}" for n in range(150)]


def test_an_input_that_cannot_be_written_stops_the_execution_and_no_later_one(box: DirectBox) -> None:
    box.hello()
    (box.folder / "file").write_text("no folder")
    box.send("put", path="file/inside.txt", b64=frames.base64(b"x"))
    failed = box.next()
    assert failed is not None
    assert (failed["t"], failed["of"]) == ("failed", "put")
    done = box.run("print('ran')")
    assert (done["started"], done["stdout"]) == (False, "")
    assert "file/inside.txt" in done["reason"]
    assert box.run("print('ran')")["stdout"] == "ran\n"


def test_too_many_files_end_what_runs(box: DirectBox) -> None:
    box.hello(inodes={str(box.folder): 0})
    done = box.run("import time\ntime.sleep(30)", deadline_ms=20_000)
    assert done["disk"] == str(box.folder)
    assert done["lost"] is not None


def test_row_160_sockets_beyond_their_bound_end_what_runs(box: DirectBox) -> None:
    """Seen: 60,000 connections that nobody accepts were 280 MiB beside a container's limit of 96 MiB, and ``ok``."""
    box.hello(sockets=1)
    held = "import socket, time\nheld = [socket.socketpair() for _ in range(3)]\ntime.sleep(30)"
    done = box.run(held, deadline_ms=20_000)
    assert done["oom"] is True
    assert "sockets" in done["lost"]


FULL = {
    "connections": """
there = socket.socket(family)
there.bind((address, 0))
there.listen(100)
held = []
for number in range(100):
    held.append(socket.create_connection(there.getsockname()[:2]))
    held[-1].setblocking(False)
    try:
        while True:
            held[-1].send(bytes(1 << 16))
    except BlockingIOError:
        pass
""",
    "datagrams": """
held = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(100)]
for one in held:
    one.bind((address, 0))
    for _ in range(100):
        one.sendto(bytes(60_000), one.getsockname())
""",
}


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("what", FULL)
def test_row_333_much_memory_in_few_sockets_ends_what_runs(box: DirectBox, what: str, address: str) -> None:
    """Seen: 960 sockets held 1.3 GiB beside a container's limit of 256 MiB, and ``ok``."""
    family = "socket.AF_INET6" if ":" in address else "socket.AF_INET"
    box.hello(sockets=1_000_000, socket_bytes=8 << 20)
    code = f"import socket, time\naddress, family = {address!r}, {family}\n{FULL[what]}\ntime.sleep(30)"
    done = box.run(code, deadline_ms=20_000)
    assert (done["oom"], done["sockets"]) == (True, 1_000_000), done
    assert box.run("1")["lost"] is None


def test_row_333_what_runs_does_not_keep_its_supervisor_from_the_processor(box: DirectBox) -> None:
    box.hello(nice=3)
    box.hello()  # as for each run in a container that was made ahead
    assert box.run("import os\nos.nice(0)")["stdout"] == f"{os.nice(0) + 3}\n"
    assert psutil.Process(box.process.pid).nice() == os.nice(0)


def test_row_334_a_limit_may_have_a_lower_one_at_first(box: DirectBox) -> None:
    box.hello(limits={"STACK": [1 << 20, 2 << 20], "SIGPENDING": 4096})
    code = "import resource\nresource.getrlimit(resource.RLIMIT_STACK), resource.getrlimit(resource.RLIMIT_SIGPENDING)"
    assert box.run(code)["stdout"] == f"(({1 << 20}, {2 << 20}), (4096, 4096))\n"


def test_row_170_terminals_beyond_their_bound_end_what_runs(box: DirectBox) -> None:
    """Seen: one container took all 3,071 terminals that the machine does not reserve."""
    terminals = len(os.listdir("/dev/pts"))  # others of this machine, and the place they come from
    box.hello(terminals=terminals)
    held = "import os, time\nheld = [os.openpty() for _ in range(8)]\ntime.sleep(30)"
    done = box.run(held, deadline_ms=20_000)
    assert done["terminals"] == terminals
    assert "terminals" in done["lost"]
    assert box.run("1")["lost"] is None


@pytest.mark.slow
def test_rows_363_and_369_watches_and_locks_beyond_their_bound_end_what_runs(box: DirectBox) -> None:
    """Those of this machine count here, too; in a container there are no others."""
    box.hello(watches=20_000)
    watched = """
import os, select, threading, time
end, _ = os.pipe()
if os.fork() == 0:
    held = [select.epoll() for _ in range(150)]
    for copy in [os.dup(end) for _ in range(80 * {factor})]:
        for one in held:
            one.register(copy)
    threading.Thread(target=time.sleep, args=({seconds},)).start()
    import ctypes
    ctypes.CDLL(None).pthread_exit(None)  # its list of open files seems to be empty
os.wait()
"""
    done = box.run(watched.format(factor=2, seconds=30), deadline_ms=25_000)
    assert done["watches"] == 20_000
    assert "watched" in done["lost"]
    done = box.run(watched.format(factor=1, seconds=1), deadline_ms=25_000)
    assert done["lost"] is None
    locked = """
import fcntl, os, time
if os.fork() == 0:
    file = open("/etc/passwd")
    for place in range(30_000):
        fcntl.lockf(file, fcntl.LOCK_SH, 1, 60_000 - 2 * place)
    time.sleep(20)
os.wait()
"""
    assert box.run(locked, deadline_ms=25_000)["watches"] == 20_000


def test_row_368_who_keeps_the_list_of_terminals_from_being_looked_at_is_told_and_no_answer_is_of_another_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = process.Watch()
    assert watch.beyond() == ""  # nothing to look at, and no thread
    answer = threading.Event()
    monkeypatch.setattr(process, "_entries", lambda _: answer.wait(30) and 100)
    watch.terminals = 10
    watch.prepare()
    watch.begin(of_command=False)
    said = [watch.beyond() for _ in range(20)]
    assert (said[0], said[-1]) == ("", "waits")

    watch.begin(of_command=False)  # that one was ended, and its last look comes to an end only now
    answer.set()
    for expected in ("", "terminals"):
        while watch._is_looking:
            time.sleep(0.01)
        assert watch.beyond() == expected


def test_a_batch_finishes_what_runs_before_it_heeds_the_end(box: DirectBox) -> None:
    box.send("hello", proto=frames.PROTOCOL, batch=True)
    box.send("exec", id=1, kind="argv", argv=["sh", "-c", "sleep 0.2; echo all"], env=ENVIRONMENT, files=ALL)
    box.send("close")
    assert box.process.stdin is not None
    box.process.stdin.close()
    assert box.next() is not None
    assert box.answer()["stdout"] == "all\n"
    assert box.next() is None
    assert box.process.wait(HANG_SECONDS) == 0


def test_a_host_that_does_not_read_does_not_stop_the_clock(box: DirectBox) -> None:
    box.hello()
    box.send("exec", id=1, kind="code", code="while True: print('x' * 10000)", deadline_ms=300, grace_ms=300)
    time.sleep(1.0)  # nothing is read meanwhile: the channel is full
    done = box.answer()
    assert done["timed_out"] is True
    assert done["ms"] < 20_000


def test_the_supervisor_heeds_no_interrupt_of_a_terminal(box: DirectBox) -> None:
    box.hello()
    os.kill(box.process.pid, signal.SIGINT)
    assert box.run("1")["stdout"] == "1\n"


def test_the_program_can_be_one_argument_and_runs_on_python_3_8() -> None:
    import ast
    from importlib.resources import files

    from adk_skills_agent.sandbox.supervisor import program

    assert len(program.program_text()) < 110_000
    for part in program._PARTS:
        source = files("adk_skills_agent.sandbox.supervisor").joinpath(f"{part}.py").read_text()
        tree = ast.parse(source, feature_version=(3, 8))
        # Without this, annotations such as "int | None" would be evaluated.
        assert any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body), part
        short = ast.parse(program._without_words(source))
        for node in ast.walk(tree):  # nothing but its words is missing, and each line is where it was
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                node.value.value = ""
        assert ast.dump(short) == ast.dump(tree), part
        lines = [[node.lineno for node in ast.walk(one) if isinstance(node, ast.stmt)] for one in (short, tree)]
        assert lines[0] == lines[1], part


def test_output_comes_while_code_runs_and_after_it_from_what_it_has_left(tmp_path: Path) -> None:
    box = DirectBox(tmp_path)
    box.hello()
    box.send_code("import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)")
    frame = box.next()
    assert frame is not None
    assert (frame["t"], frame["id"]) == ("out", 1)
    (tmp_path / "go").touch()
    assert box.answer()["exit"] == 0
    left = "import os, time\nif os.fork() == 0:\n  time.sleep(1); os.write(1, b'left behind'); os._exit(0)\nprint('x')"
    assert box.run(left)["stdout"] == "x\n"
    box.send_code("import time; time.sleep(1.5)")
    assert box.answer()["stdout"] == ""
    assert box.late == b"left behind"
    box.close()


def test_a_pipe_that_is_full_before_it_is_watched_makes_code_wait_and_loses_nothing(tmp_path: Path) -> None:
    box = DirectBox(tmp_path)
    box.hello()
    done = box.run("import sys; sys.stdout.write('x' * 300_000); sys.stderr.write('y' * 300_000); None")
    assert (len(done["stdout"]), len(done["stderr"]), done["exit"]) == (300_000, 300_000, 0)
    box.close()
