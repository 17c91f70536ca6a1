"""What code finds in a session, and what it leaves there: state, values that are shown, interrupts, limits."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import direct_box
import pytest
from direct_box import DirectBox

from adk_skills_agent.sandbox.supervisor import frames

ALL = {"count": 10, "each": 1 << 20, "total": 1 << 21}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectBox]:
    """One session for tests that leave nothing in it."""
    box = DirectBox(tmp_path_factory.mktemp("shared"))
    box.hello()
    yield box
    assert box.close() == 0


@pytest.fixture
def box(tmp_path: Path) -> Iterator[DirectBox]:
    box = DirectBox(tmp_path)
    box.hello()
    yield box
    assert box.close() == 0


def test_names_imports_and_definitions_last(box: DirectBox) -> None:
    box.run("import math as m\nx = 20\ndef double(n):\n    return 2 * n\nclass Thing:\n    size = 1")
    assert box.run("double(x) + m.floor(1.5) + Thing().size")["stdout"] == "42\n"
    assert box.run("__name__, __import__('pickle').loads(__import__('pickle').dumps(Thing())).size")["stdout"] == (
        "('__main__', 1)\n"
    )


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("1 + 1", "2\n"),
        ("'text'", "'text'\n"),
        ("x = 3", ""),
        ("None", ""),
        ("print('a')\n'b'", "a\n'b'\n"),
        ("for n in range(2):\n    n", ""),
        ("", ""),
        ("# only a comment", ""),
        ("if True:\n    5", ""),
        ("4; 5", "5\n"),
    ],
)
def test_the_value_of_a_last_expression_is_shown_and_no_other(shared: DirectBox, code: str, shown: str) -> None:
    done = shared.run(code)
    assert (done["exit"], done["stdout"], done["stderr"]) == (0, shown, "")


def test_await_outside_of_a_function_works_as_in_a_notebook(box: DirectBox) -> None:
    box.run("import asyncio\nasync def double(n):\n    await asyncio.sleep(0)\n    return 2 * n")
    done = box.run("x = await double(20)\ny = [await double(n) for n in (1, 2)]\nawait double(x + 1)")
    assert (done["exit"], done["stdout"], done["stderr"]) == (0, "82\n", "")
    assert box.run("x, y, asyncio.run(double(3))")["stdout"] == "(40, [2, 4], 6)\n"
    done = box.run("async with asyncio.timeout(5):\n    z = await asyncio.gather(double(1), double(2))\nz")
    assert done["stdout"] == "[2, 4]\n"
    failed = box.run("x = await double(1)\nasync def fails():\n    1 / 0\nawait fails()")
    assert failed["exit"] == 1
    assert 'File "<execution 5>", line 4, in <module>\n    await fails()' in failed["stderr"]
    assert "asyncio" not in failed["stderr"]
    interrupted = box.run("await asyncio.sleep(60)", deadline_ms=100, grace_ms=2000)
    assert "KeyboardInterrupt" in interrupted["stderr"]
    assert "supervisor/kernel.py" not in interrupted["stderr"]
    assert box.run("x")["stdout"] == "40\n"


def test_a_failure_leaves_names_variables_and_folder_as_they_were(box: DirectBox) -> None:
    box.run("import os\nitems = [1]\ncount = 1\ndef add():\n    global count\n    count += 1\nos.makedirs('in')")
    failed = box.run(
        "add()\nitems.append(2)\nitems = None\nnew = 1\nos.environ['NEW'] = '1'\ndel add\nos.chdir('in')\n1 / 0"
    )
    assert (failed["exit"], failed["lost"]) == (1, None)
    # What it did inside of an object is done: the list has a second item.
    state = (
        "items, count, 'new' in globals(), 'NEW' in os.environ, callable(add), os.path.basename(os.getcwd()) == 'in'"
    )
    assert box.run(state)["stdout"] == "([1, 2], 1, False, False, True, False)\n"


@pytest.mark.requirement("S0-112")
def test_a_failing_block_is_not_run_again_and_earlier_output_does_not_come_back(box: DirectBox) -> None:
    box.run("print('first')\nopen('count.txt', 'a').write('x')")
    box.run("print('second')\nopen('count.txt', 'a').write('x')\nraise SystemExit(3)")
    done = box.run("open('count.txt').read()")
    assert done["stdout"] == "'xx'\n"


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        ("import sys; sys.exit()", 0, ""),
        ("exit(0)", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("import sys; sys.exit('goodbye')", 1, "goodbye\n"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("def f(:", 1, "SyntaxError"),
        ("x = 'a\\0b'\n'\0'", 1, "null bytes"),
        ("raise BaseException('odd')", 1, "BaseException: odd"),
        ("class Odd(Exception):\n    def __str__(self):\n        raise ValueError\nraise Odd", 1, "Odd"),
        ("def f():\n    f()\nf()", 1, "RecursionError"),
        ("input()", 1, "EOFError"),
    ],
)
def test_every_end_has_its_exit_code_and_the_session_goes_on(
    shared: DirectBox, code: str, exit_code: int, said: str
) -> None:
    done = shared.run(code)
    assert (done["exit"], done["lost"]) == (exit_code, None)
    assert said in done["stderr"]
    assert shared.run("1")["stdout"] == "1\n"


def test_a_traceback_shows_the_code_and_nothing_of_ours(box: DirectBox) -> None:
    box.run("def fails():\n    return {}['missing']")
    text = box.run("print('before')\nfails()")["stderr"]
    assert 'File "<execution 2>", line 2, in <module>\n    fails()' in text
    assert "File \"<execution 1>\", line 2, in fails\n    return {}['missing']" in text
    assert "adk_skills_agent" not in text
    interrupted = box.run("while True: pass", deadline_ms=100, grace_ms=2000)
    assert "KeyboardInterrupt" in interrupted["stderr"]
    assert "adk_skills_agent" not in interrupted["stderr"]
    unprintable = box.run("class Bad:\n    def __str__(self):\n        return '\\ud800'\nprint(Bad())")["stderr"]
    assert "line 4, in <module>\n    print(Bad())" in unprintable
    assert unprintable.rstrip().endswith("surrogates not allowed")
    assert "adk_skills_agent" not in unprintable


def test_what_code_does_to_the_interpreter_does_not_reach_the_next_execution(box: DirectBox) -> None:
    box.run(
        "import os, posix, sys, builtins, signal\nsys.stdout.close()\nsys.stderr = None\nos.close(0)\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nos.dup2 = posix.dup2 = None\nsys.displayhook = None"
    )
    assert box.run("print('still here')")["stdout"] == "still here\n"
    assert box.run("1 + 1")["stdout"] == "2\n"
    assert box.run("import time\ntime.sleep(30)", deadline_ms=100, grace_ms=5000)["interrupted"] is True


def test_a_process_forked_by_code_ends_with_it_and_answers_nothing(box: DirectBox) -> None:
    done = box.run("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('here')")
    assert (done["stdout"], done["exit"]) == ("here\nhere\n", 0)
    assert box.run("1")["stdout"] == "1\n"


def test_variables_and_folder_of_one_execution_are_its_own(box: DirectBox) -> None:
    show = "import os\nos.environ.get('ONE'), os.path.basename(os.getcwd())"
    assert box.run(show, env={"ONE": "1"}, cwd="some/folder")["stdout"] == "('1', 'folder')\n"
    assert box.run(show)["stdout"] == f"(None, {box.folder.name!r})\n"
    # What the code itself changed lasts.
    box.run("os.environ['ONE'] = '2'", env={"ONE": "1"})
    assert box.run(show)["stdout"].startswith("('2', ")


@pytest.mark.slow
def test_processor_time_is_counted_for_each_execution(box: DirectBox) -> None:
    spin = "import time\nwhile time.process_time() < {}: pass"
    assert box.run(spin.format(0.6), cpu_seconds=1)["exit"] == 0
    over = box.run("while True: pass", cpu_seconds=1)
    assert (over["out_of_cpu"], over["interrupted"], over["lost"]) == (True, True, None)
    assert "out of CPU time" in over["stderr"]
    assert box.run("1 + 1", cpu_seconds=1)["stdout"] == "2\n"


def test_fewer_builtins_hold_for_the_executions_that_ask_for_it(box: DirectBox) -> None:
    assert "not allowed" in box.run("import os", restrict=True)["stderr"]
    assert box.run("import os")["exit"] == 0


def test_a_thread_that_goes_on_prints_late_and_a_new_one_does_not(box: DirectBox) -> None:
    say = "def say(word):\n    for _ in range(20):\n        print(word)\n        time.sleep(0.01)\n"
    box.run(f"import threading, time\n{say}old = threading.Thread(target=say, args=['old'])\nold.start()")
    done = box.run("new = threading.Thread(target=say, args=['new'])\nnew.start()\nnew.join()\nold.join()")
    assert done["stdout"] == "new\n" * 20
    box.run("1")
    assert b"old\n" in box.late
    assert b"new" not in box.late


WAYS_TO_WRITE = {
    "os.write": "os.write(1, b'{word}\\n'); os.write(2, b'{word}\\n')",
    "os.writev": "os.writev(1, [b'{word}', b'\\n']); os.writev(2, [b'{word}\\n'])",
    "a copy of the descriptor": "copy = os.dup(1); os.write(copy, b'{word}\\n'); os.close(copy)",
    "bytes": "sys.stdout.buffer.write(b'{word}\\n'); sys.stderr.buffer.write(b'{word}\\n')",
    "a program": "subprocess.call(['echo', '{word}']); subprocess.call(['echo', '{word}'], stdout=sys.stderr)",
    "a program, spawned": "subprocess.call(['/bin/echo', '{word}'], close_fds=False)",
    "a program's error output": "subprocess.call('echo {word}; echo {word} >&2', shell=True, stderr=subprocess.STDOUT)",
    "os.system": "os.system('echo {word}')",
    "os.posix_spawn": "os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'echo {word} >&2'], os.environ), 0)",
    "a process": "fork('{word}')",
    "a thread of its own": "begin(os.write, 1, b'{word}\\n'); begin(print, '{word}')",
}
WAYS = """
import os, subprocess, sys, threading, time
def begin(function, *args):
    thread = threading.Thread(target=function, args=args)
    thread.start()
    thread.join()
def fork(word):
    pid = os.fork()
    if not pid:
        print(word)
        os.write(1, word.encode() + b"\\n")
        os.system("echo " + word)
        os._exit(0)
    os.waitpid(pid, 0)
def old():
    {old}
def new():
    {new}
go = threading.Event()
ended = threading.Event()
def wait():
    go.wait()
    for _ in range(5):
        old()
    ended.set()
threading.Thread(target=wait, daemon=True).start()
"""


@pytest.mark.parametrize("way", WAYS_TO_WRITE.values(), ids=WAYS_TO_WRITE)
def test_row_88_a_thread_of_an_earlier_execution_writes_late_in_every_way_of_python(box: DirectBox, way: str) -> None:
    assert box.run(WAYS.format(old=way.format(word="old"), new=way.format(word="new")))["stderr"] == ""
    done = box.run(f"go.set(); ended.wait(20); new(); begin(new)\n{way.format(word='new')}\nfork('new')")
    assert "old" not in done["stdout"] + done["stderr"]
    assert (done["stdout"] + done["stderr"]).count("new") >= 6
    assert set((done["stdout"] + done["stderr"]).split()) == {"new"}
    box.run("1")
    assert box.late.split().count(b"old") >= 5
    assert b"new" not in box.late


def test_row_88_while_executions_take_turns_no_byte_of_a_thread_is_told_as_anothers(box: DirectBox) -> None:
    busy = """
import os, threading, time
def chatter(number):
    while not stop.is_set():
        os.write(1, b"<%d>" % number)
        os.write(2, b"<%d>" % number)
stop = threading.Event()
"""
    box.run(busy)
    for number in range(2, 7):
        code = f"for _ in range(2): threading.Thread(target=chatter, args=[{number}], daemon=True).start()\n"
        code += "time.sleep(0.01)"
        done = box.run("stop.set(); stop = threading.Event()\n" + code if number % 5 == 0 else code)
        assert set(f"{done['stdout']}{done['stderr']}".replace("><", "> <").split()) <= {f"<{number}>"}
    assert set(box.run("stop.set(); time.sleep(0.1); print('end')")["stdout"].split()) == {"end"}


def test_row_88_a_thread_that_takes_the_identity_of_an_old_one_is_not_taken_for_it(box: DirectBox) -> None:
    begin = "thread = threading.Thread(target={})\nthread.start()\n"
    box.run("import os, threading, time\ngo = threading.Event()\n" + begin.format("go.wait"))
    code = (
        "old = thread.ident\ngo.set(); thread.join()\nsame = 0\ndef new():\n    os.write(1, b'new\\n'); print('new')\n"
    )
    code += (
        "for _ in range(50):\n    "
        + begin.format("new").replace("\n", "\n    ")
        + "same += thread.ident == old; thread.join()\n"
    )
    done = box.run(code + "print(same > 0)")
    assert done["stdout"] == "new\n" * 100 + "True\n"


def test_row_88_what_takes_the_place_of_pythons_functions_behaves_like_them(box: DirectBox) -> None:
    code = """
import os, _thread, subprocess, sys, threading
assert os.write.__name__ == "write" and os.write is __import__("posix").write
for function, *wrong in ((os.write, "1", b""), (os.write, 1), (os.write, 99, b"x"), (_thread.start_new_thread, 1, ())):
    try:
        function(*wrong)
    except (TypeError, OSError) as error:
        print(type(error).__name__)
assert os.write(1, b"abc\\n") == 4 and os.writev(1, [b"d", b"\\n"]) == 2
assert sys.stdout.buffer.write(b"e\\n") == 2
assert os.WEXITSTATUS(os.system("exit 3")) == 3
statuses = []
thread = threading.Thread(target=lambda: statuses.append(os.system("exit 5")))
thread.start(); thread.join()
assert [os.WEXITSTATUS(status) for status in statuses] == [5]
assert subprocess.run(["echo", "f"], capture_output=True).stdout == b"f\\n"
"""
    done = box.run(code)
    assert (done["stderr"], done["stdout"]) == ("", "TypeError\nTypeError\nOSError\nTypeError\nabc\nd\ne\n")
    closed = box.run("sys.stdout.buffer.close()")
    assert closed["exit"] == 0
    assert box.run("sys.stdout.buffer.write(b'again')")["stdout"].startswith("again")


def test_code_of_megabytes_arrives_in_parts(box: DirectBox) -> None:
    from adk_skills_agent.sandbox.supervisor import frames

    code = f"text = {'x' * (3 << 20)!r}\nlen(text)".encode()
    for piece, _ in frames.pieces(code):
        box.send("part", of="code", b64=frames.base64(piece))
    box.send("exec", id=1, kind="code")
    assert box.answer()["stdout"] == f"{3 << 20}\n"


def test_figures_and_frames_of_libraries_become_files(box: DirectBox) -> None:
    # Doubles with the libraries' interface; test_session_libraries.py has the real ones.
    (box.folder / "matplotlib").mkdir()
    (box.folder / "matplotlib/__init__.py").write_text("")
    (box.folder / "matplotlib/pyplot.py").write_text(
        "figures = {}\n"
        "class Figure:\n    def savefig(self, path):\n        open(path, 'wb').write(b'PNG')\n"
        "def figure(number):\n    return figures.setdefault(number, Figure())\n"
        "def get_fignums():\n    return list(figures)\n"
        "def close(which):\n    figures.clear()\n"
    )
    done = box.run("import matplotlib.pyplot as plt\nplt.figure(1)\nplt.figure(2)\nNone", files=ALL)
    made = {name: content for name, content in done["files"].items() if name.endswith(".png")}
    assert made == {"figure-1-1.png": b"PNG", "figure-1-2.png": b"PNG"}
    assert [name for name in box.run("1", files=ALL)["files"] if name.endswith(".png")] == []
    failed = box.run("plt.figure(3)\n1 / 0", files=ALL)
    assert failed["files"] == {}
    assert box.run("plt.get_fignums()")["stdout"] == "[]\n"


def test_code_that_heeds_its_interrupt_keeps_its_state_however_long_the_traceback_takes(box: DirectBox) -> None:
    box.run("kept = 1")
    # What a folder in memory or a busy machine does to the import of a module, the code does here.
    content = b"import time\ntime.sleep(1)\ndef format_exception(*_): return ['late']"
    box.send("put", path="traceback.py", b64=frames.base64(content))
    slow = box.run("import time\ntime.sleep(60)", deadline_ms=100, grace_ms=100)
    assert (slow["timed_out"], slow["interrupted"], slow["lost"], slow["stderr"]) == (True, True, None, "late\n")
    assert box.run("kept")["stdout"] == "1\n"


def test_an_interrupt_waits_for_code_that_has_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = direct_box.program_text()
    patient = text.replace("_OWN_SECONDS = 2.0", "_OWN_SECONDS = 30.0")  # the machine may be busy besides
    assert patient != text
    monkeypatch.setattr(direct_box, "program_text", lambda: patient)
    box = DirectBox(tmp_path)
    box.hello()
    kernel = int(box.run("import os\nkept = 1\nos.getpid()")["stdout"])
    os.kill(kernel, signal.SIGSTOP)  # as if it got no processor
    box.send_code("import time\ntime.sleep(60)", deadline_ms=50, grace_ms=1000)
    time.sleep(1.3)  # longer than both
    os.kill(kernel, signal.SIGCONT)
    done = box.answer()
    assert (done["timed_out"], done.get("interrupted"), done["lost"]) == (True, True, None)
    assert box.run("kept")["stdout"] == "1\n"
    assert box.close() == 0


def test_code_whose_traceback_does_not_end_and_code_that_does_not_begin_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = direct_box.program_text()
    sooner = text.replace("_OWN_SECONDS = 2.0", "_OWN_SECONDS = 0.1")
    assert sooner != text
    monkeypatch.setattr(direct_box, "program_text", lambda: sooner)
    box = DirectBox(tmp_path)
    box.hello()
    box.send("put", path="traceback.py", b64=frames.base64(b"import time\ntime.sleep(60)"))
    ended = box.run("import time\ntime.sleep(60)", deadline_ms=100, grace_ms=100)
    why = "it did not stop at its deadline and was killed"
    assert (ended["timed_out"], ended["lost"]) == (True, why)
    os.kill(int(box.run("import os\nos.getpid()")["stdout"]), signal.SIGSTOP)
    ended = box.run("import time\ntime.sleep(60)", deadline_ms=100, grace_ms=100)
    assert (ended["timed_out"], ended["lost"]) == (True, why)
    box.close()
