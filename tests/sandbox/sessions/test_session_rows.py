"""Attack rows 66 to 71 of SANDBOX.md section 3, on everything that can host sessions."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc

import pytest
from keeping import Host, Kept

from adk_skills_agent.sandbox.contract import InputFile, IsolationLevel
from adk_skills_agent.sandbox.secrets import FileSearch, Secret
from adk_skills_agent.sandbox.sessions import session

# Everything a session can set: names, environment, working directory, files, modules, signals, its standard streams.
MARKS = """
import os, sys, builtins, signal
secret_name = "of the first"
os.environ["SECRET_NAME"] = "of the first"
os.makedirs("inner", exist_ok=True)
open("inner/file.txt", "w").write("of the first")
os.chdir("inner")
sys.modules["secret_module"] = sys
builtins.secret_builtin = 1
"""
LOOK = """
import os, sys, builtins
"secret_name" in globals(), os.environ.get("SECRET_NAME"), os.path.basename(os.getcwd()), os.listdir(), \\
    "secret_module" in sys.modules, hasattr(builtins, "secret_builtin")
"""


async def test_row_66_what_one_session_sets_no_other_session_sees(kept: Kept) -> None:
    await kept.run(MARKS, id="first")
    seen = await kept.value(LOOK, id="second")
    assert seen.startswith("(False, None, ")
    assert seen.endswith("[], False, False)")
    again = await kept.value(LOOK, id="first")
    assert again == "(True, 'of the first', 'inner', ['file.txt'], True, True)"


async def test_row_67_code_that_heeds_the_interrupt_keeps_its_state_and_code_that_does_not_loses_it(kept: Kept) -> None:
    await kept.run("kept = 41")
    slow = await kept.run("half = 1\nimport time\ntime.sleep(60)", wall_seconds=0.3)
    assert (slow.status, slow.timed_out, slow.interrupted, slow.session_reset) == ("timeout", True, True, False)
    assert b"KeyboardInterrupt" in slow.stderr
    assert await kept.value("kept + 1, 'half' in globals()") == "(42, False)"
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    killed = await kept.run(deaf, wall_seconds=0.3)
    assert (killed.status, killed.timed_out, killed.interrupted) == ("timeout", True, False)
    assert any("is lost" in note and "Nothing was run again" in note for note in killed.notes)
    after = await kept.run("'kept' in globals()")
    assert (after.status, after.stdout, after.session_reset) == ("ok", b"False\n", True)
    assert any("in a new session" in note for note in after.notes)
    assert not (await kept.run("1")).session_reset


BREAKING = {
    "leaves": "import os; os._exit(0)",
    "segv": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "becomes another program": "import os; os.execv('/bin/sh', ['sh', '-c', 'echo done; exit 0'])",
    "closes its descriptors": "import os; os.closerange(0, 64)",
    "forges an answer": """
import os
for number in range(3, 64):
    try:
        os.write(number, (1).to_bytes(8, "big") + bytes(4 + 1 + 8))
        os.write(number, (1).to_bytes(8, "big") + bytes(4 + 1 + 8))
    except OSError:
        pass
import time; time.sleep(5)
""",
    "writes the length of a gigabyte": """
import os
for number in range(3, 64):
    try:
        os.write(number, (1 << 30).to_bytes(4, "big") + b'{"t":"done","id":1,"exit":0}')
    except OSError:
        pass
import time; time.sleep(5)
""",
    "floods its descriptors": """
import os
while True:
    for number in range(3, 64):
        try:
            os.write(number, b"x" * 65536)
        except OSError:
            pass
""",
    "begins a frame on its supervisor's socket": """
import os, stat
for number in range(3, 100):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            os.write(number, (1000).to_bytes(4, "big"))
    except OSError:
        pass
""",
    "kills its supervisor": """
import os, signal, time
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(5)
""",
    "stops its supervisor": """
import os, signal, time
os.kill(os.getppid(), signal.SIGSTOP)
time.sleep(60)
""",
}


@pytest.mark.parametrize("code", BREAKING.values(), ids=[name.replace(" ", "-") for name in BREAKING])
async def test_row_68_code_that_breaks_its_session_gets_a_result_and_the_next_code_a_new_one(
    kept: Kept, host: Host, code: str
) -> None:
    await kept.run("before = 1", id="bystander")
    began = time.monotonic()
    broken = await kept.run(code, wall_seconds=2.0, term_grace_seconds=0.2)
    assert time.monotonic() - began < 15
    if "getppid" in code and host.level is IsolationLevel.CONTAINER:
        # There the supervisor is process 1, which nothing inside can signal: the session goes on.
        after = await kept.run("1 + 1")
        assert (broken.status, after.stdout, after.session_reset) == ("timeout", b"2\n", False)
        return
    assert broken.status in {"error", "timeout"}
    assert any("is lost" in note for note in broken.notes)
    after = await kept.run("1 + 1")
    assert (after.status, after.stdout, after.session_reset) == ("ok", b"2\n", True)
    assert await kept.value("before", id="bystander") == "1"


@pytest.mark.requirement("S0-111")
async def test_row_68_half_a_frame_ends_the_session_also_without_a_deadline(kept: Kept) -> None:
    async with asyncio.timeout(20):
        broken = await kept.run(BREAKING["begins a frame on its supervisor's socket"], wall_seconds=None)
    assert broken.status == "error"
    assert any("wrote to the descriptor of its supervisor" in note for note in broken.notes)


async def test_row_69_two_executions_of_one_session_take_turns(kept: Kept) -> None:
    await kept.run("seen = []")
    code = "import time\nseen.append('in')\ntime.sleep(0.02)\nseen.append('out')"
    await asyncio.gather(*(kept.run(code) for _ in range(4)))
    assert await kept.value("seen") == str(["in", "out"] * 4)


async def test_row_70_what_an_execution_leaves_running_is_not_taken_for_the_next_one(kept: Kept) -> None:
    leaving = """
import subprocess, sys, threading, time
def chatter():
    for _ in range(400):
        print("thread of the first")
        time.sleep(0.005)
threading.Thread(target=chatter, daemon=True).start()
child = subprocess.Popen(["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo child of the first; sleep 0.05; done; exit 9"])
print("first")
"""
    first = await kept.run(leaving)
    assert first.status == "ok"
    assert b"first\n" in first.stdout
    second = await kept.run("import time\nfor _ in range(5):\n    print('second')\n    time.sleep(0.04)")
    assert (second.status, second.exit_code) == ("ok", 0)
    assert second.stdout == b"second\n" * 5
    late = " ".join(second.notes)
    assert "thread of the first" in late
    assert "child of the first" in late


async def test_row_88_what_a_thread_writes_by_descriptor_is_late_output(kept: Kept) -> None:
    chatter = """
import os, subprocess, threading, time
def chatter():
    while not stop.is_set():
        os.write(1, b"thread of the first\\n")
        subprocess.call("echo program of the first; echo program of the first >&2", shell=True)
stop = threading.Event()
threading.Thread(target=chatter, daemon=True).start()
os.write(1, b"first\\n")
"""
    first = await kept.run(chatter)
    assert first.status == "ok"
    assert b"first\n" in first.stdout
    for _ in range(3):
        second = await kept.run("for _ in range(5):\n    os.write(1, b'second\\n')\n    time.sleep(0.04)")
        assert (second.status, second.stdout, second.stderr) == ("ok", b"second\n" * 5, b"")
    late = " ".join(second.notes)
    assert "thread of the first" in late
    assert "program of the first" in late
    third = await kept.run(
        "stop.set()\nthread = threading.Thread(target=os.write, args=(1, b'third'))\nthread.start(); thread.join()"
    )
    assert third.stdout == b"third"


async def test_row_86_html_references_to_a_secret_are_blotted_out(kept: Kept) -> None:
    code = """
import os
for form in ("&#{};", "&#x{:x};", "&#X{:06X};", "&#{}"):
    print("".join(form.format(ord(character)) for character in os.environ["TOKEN_OF_TEST"]))
"""
    shown = await kept.run(code, env={"TOKEN_OF_TEST": Secret("hunter2+hunter2")})
    assert shown.stdout == b"[secret TOKEN_OF_TEST]\n" * 4


async def test_row_126_a_secret_at_the_cut_of_late_output_and_one_wrapped_by_carriage_returns_are_blotted_out(
    kept: Kept,
) -> None:
    leaving = """
import os, threading, time
go = threading.Event()
def chatter():
    go.wait()
    os.write(1, b"." * 300 + os.environ["TOKEN_OF_TEST"].encode() + b"," * 1990 + b"\\n")
    os.write(1, os.environ["TOKEN_OF_TEST"].replace("+", "+\\r\\n").encode() if wrapped else b"")
thread = threading.Thread(target=chatter, daemon=True)
thread.start()
"""
    value = "hunter2+correct-horse+battery-staple"
    env = {"TOKEN_OF_TEST": Secret(value)}
    for wrapped in (False, True):
        assert (await kept.run(f"wrapped = {wrapped}\n{leaving}", env=env)).status == "ok"
        second = await kept.run("go.set()\nthread.join()", env=env)
        late = " ".join(second.notes)
        async with asyncio.timeout(30):
            while ",,,," not in late:  # it is told with the first execution that ends after it was read
                late += " ".join((await kept.run("1", env=env)).notes)
        assert "earlier executions" in late
        assert not [part for part in value.split("+") if part in late], late
        assert not [start for start in range(len(value) - 6) if value[start : start + 7] in late], late


async def test_row_130_a_file_of_nothing_but_a_secret_costs_the_agent_no_memory(kept: Kept) -> None:
    size = 4 << 20
    tracemalloc.start()
    try:
        code = f"import os\nopen('x', 'w').write(os.environ['TOKEN_OF_TEST'] * ({size} // 7))"
        result = await kept.run(code, env={"TOKEN_OF_TEST": Secret("hunter2")})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.status == "ok"
    assert result.skipped_files == (("x", "it contains the secret 'TOKEN_OF_TEST', which stays in the run"),)
    assert peak < 16 * size, f"{peak:,} bytes"


async def test_row_434_files_are_searched_for_secrets_beside_the_event_loop(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: 24 sessions of one user leave large files, and everybody's code waits for 13 to 16 s."""
    threads: list[bool] = []
    withheld = FileSearch.withheld

    def search(self: FileSearch, *parts: bytes) -> str | None:
        threads.append(threading.current_thread() is loop)
        return withheld(self, *parts)

    loop = threading.current_thread()
    monkeypatch.setattr(FileSearch, "withheld", search)
    code = """
import os
for name in "ab":
    open(name, "w").write(name * 3_000_000 + (name == "b") * os.environ["TOKEN_OF_TEST"])
"""
    result = await kept.run(code, env={"TOKEN_OF_TEST": Secret("hunter2hunter2")})
    assert ([file.path for file in result.files], [path for path, _ in result.skipped_files]) == (["a"], ["b"])
    assert threads == [False, False]


async def test_row_128_a_name_that_becomes_a_secret_outside_is_withheld(kept: Kept) -> None:
    code = """
import os
value = os.environ["TOKEN_OF_TEST"]
for name in (value.replace("_", ":"), value.replace("K", "\u212a")):
    open(name, "w").write("x")
"""
    result = await kept.run(code, env={"TOKEN_OF_TEST": Secret("sk_live_K9hunter2")})
    assert result.status == "ok"
    assert result.files == ()
    assert len(result.skipped_files) == 2
    assert "sk_live_K9hunter2" not in repr(result)


async def test_row_71_nothing_of_a_session_that_was_reset_is_in_the_one_that_takes_its_place(kept: Kept) -> None:
    tampering = """
import os, subprocess
open("left.txt", "w").write("x")
open(os.environ["TMPDIR"] + "/left.txt", "w").write("x")
daemon = subprocess.Popen(["sh", "-c", "sleep 60"], start_new_session=True)
os.kill(daemon.pid, 0)
"""
    look = "import os\nos.listdir(), os.listdir(os.environ['TMPDIR'])"
    fresh = await kept.run(look)  # where this Python is below /tmp, so is the way to it
    assert fresh.stdout.startswith(b"([], [")
    assert (await kept.run(tampering)).status == "ok"
    assert (await kept.run(look)).stdout.count(b"left.txt") == 2
    await kept.sessions.reset_state("a")
    after = await kept.run(look)
    assert (after.stdout, after.session_reset) == (fresh.stdout, True)


async def test_a_failed_execution_changes_no_name_no_variable_and_no_folder(kept: Kept) -> None:
    await kept.run("import os\nkept = [1]\nos.environ['KEPT'] = 'yes'")
    failed = await kept.run("kept = 2\nmore = 3\nos.environ['KEPT'] = 'no'\nos.chdir('/')\nraise ValueError('no')")
    assert (failed.status, failed.exit_code) == ("error", 1)
    assert b"ValueError: no" in failed.stderr
    assert any("Nothing that this code assigned was kept" in note for note in failed.notes)
    found = await kept.value("kept, 'more' in globals(), os.environ['KEPT'], os.getcwd() != '/'")
    assert found == "([1], False, 'yes', True)"


async def test_a_session_cannot_look_into_its_supervisor(kept: Kept) -> None:
    code = """
import os
def reach(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "reached"
parent = os.getppid()
def is_open(number):
    try:
        return bool(os.fstat(number))
    except OSError:
        return False
print(sum(map(is_open, range(3, 4096))))
# Names of descriptors may be seen where the run may search every folder; what they are open on may not.
paths = [f"/proc/{parent}/mem", *(f"/proc/{parent}/fd/{number}" for number in range(100))]
print({reach(lambda: os.open(path, os.O_RDONLY)) for path in paths})
"""
    lines = (await kept.value(code)).splitlines()
    assert lines[0] == "1"  # the socket to its supervisor, which has the host's channel
    if kept.policy.isolation != "process":  # there it is the agent's own user, root perhaps
        assert "reached" not in lines[1]


async def test_files_go_in_and_come_out_and_secrets_do_not(kept: Kept) -> None:
    from adk_skills_agent.sandbox.contract import InputFile

    code = """
import os
open("out/sum.txt", "w").write(str(sum(map(int, open("in/numbers.txt").read().split()))))
os.link("out/sum.txt", "out/twin.txt")
open("out/leak.txt", "w").write(os.environ["TOKEN_OF_TEST"])
print(os.environ["TOKEN_OF_TEST"])
"""
    result = await kept.run(
        "import os; os.makedirs('out')\n" + code,
        input_files=(InputFile("in/numbers.txt", b"1 2 39"),),
        env={"TOKEN_OF_TEST": Secret("hunter2hunter2")},
    )
    assert result.status == "ok", result.stderr
    assert [(file.path, file.content) for file in result.files] == [("out/sum.txt", b"42"), ("out/twin.txt", b"42")]
    assert result.stdout == b"[secret TOKEN_OF_TEST]\n"
    assert [name for name, _ in result.skipped_files] == ["out/leak.txt"]
    # Code may keep a secret for an execution that is not granted it: it still does not come out.
    kept_by_code = "import os; held = os.environ['TOKEN_OF_TEST']"
    await kept.run(kept_by_code, env={"TOKEN_OF_TEST": Secret("swordfish-swordfish")})
    later = await kept.run("open('late.txt', 'w').write(held)\nprint(held)\nraise ValueError(held)")
    assert later.stdout == b"[secret TOKEN_OF_TEST]\n"
    assert b"swordfish" not in later.stderr
    assert b"swordfish" not in b"".join(file.content for file in later.files)
    # The variable was that execution's, and a file is new only once.
    again = await kept.run("os.environ.get('TOKEN_OF_TEST')")
    assert (again.stdout, again.files) == (b"", ())


async def test_too_much_output_ends_the_session_and_says_so(kept: Kept) -> None:
    flood = await kept.run("while True: print('x' * 1000)", output_flood_bytes=200_000, output_bytes=1000)
    assert flood.status == "output_limit"
    assert (len(flood.stdout), flood.stdout_truncated) == (1000, True)
    assert any("more than 200,000 bytes to stdout" in note for note in flood.notes)
    assert (await kept.run("1")).session_reset


async def test_a_cancelled_execution_stops_and_the_session_goes_on(kept: Kept) -> None:
    await kept.run("kept = 1")
    task = asyncio.create_task(kept.run("import time\nhalf = 2\ntime.sleep(60)"))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await kept.value("kept, 'half' in globals()") == "(1, False)"


BURNING = {
    "a process": """
import os
if os.fork() == 0:
    os.setsid()
    while True:
        pass
""",
    "a thread": """
import threading
def burn():
    while True:
        pass
threading.Thread(target=burn, daemon=True).start()
""",
    "processes that end soon and nobody waits for": """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if os.fork() == 0:
            until = time.process_time() + 0.25
            while time.process_time() < until:
                pass
            os._exit(0)
        try:
            os.wait()
        except ChildProcessError:
            pass
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", BURNING)
async def test_row_211_what_is_left_running_uses_no_more_time_than_an_execution_may(kept: Kept, way: str) -> None:
    limits = {"wall_seconds": 5.0, "cpu_seconds": 1}
    code = f"import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n{BURNING[way]}"
    assert (await kept.run(code, **limits)).status == "ok"
    (place,) = kept.sessions._places.values()
    assert place.session is not None
    async with asyncio.timeout(60):
        while place.session.is_usable:
            await asyncio.sleep(0.05)
    assert (await kept.run("1", **limits)).session_reset


FLOOD = """
import os, subprocess, sys
writer = "import os, time\\ntime.sleep(0.3)\\nos.write(1, b'.' * ((1 << 18) - 10) + os.environb[b'TOKEN_OF_TEST'])"
writer += "\\nwhile True: os.write(1, b',' * 65536)"
child = subprocess.Popen([sys.executable, "-c", writer], start_new_session=True)
"""


async def test_row_325_what_is_left_running_and_writes_without_end_keeps_nobody_waiting(kept: Kept) -> None:
    """Seen: the program waited until its output was read, and the agent until its input was: without a limit."""
    value = "hunter2-correct-horse"
    token = {"TOKEN_OF_TEST": Secret(value)}
    assert (await kept.run(FLOOD, env=token)).status == "ok"
    await asyncio.sleep(1.5)
    async with asyncio.timeout(60):
        second = await kept.run("len(open('x').read())", env=token, input_files=(InputFile("x", b"z" * (2 << 20)),))
    assert (second.status, second.stdout) == ("ok", b"2097152\n"), second
    told = " ".join(second.notes)
    assert "were dropped" in told
    assert not [start for start in range(len(value) - 6) if value[start : start + 7] in told], told[-300:]


async def test_row_325_code_that_stops_the_program_of_its_session_ends_at_a_deadline(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_SENDING_SECONDS", 0.5)
    stopping = """
import os, subprocess, sys
stop = f"import os, signal, time\\ntime.sleep(0.3)\\nos.kill({os.getppid()}, signal.SIGSTOP)"
child = subprocess.Popen([sys.executable, "-c", stop], start_new_session=True)
"""
    first = await kept.run(stopping)
    assert first.status == "ok"
    await asyncio.sleep(1.5)
    async with asyncio.timeout(60):
        second = await kept.run("'kept'", input_files=(InputFile("x", b"z" * (2 << 20)),), wall_seconds=1.0)
    if second.status == "ok":
        pytest.skip("no signal of its code reaches the program here")
    assert second.status == "timeout", second
    assert "did not take what was sent to it" in " ".join(second.notes)
    assert (await kept.run("1")).session_reset


async def test_what_is_left_running_and_waits_stays(kept: Kept) -> None:
    await kept.run(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nkept = 1"
    )
    await asyncio.sleep(0.5)
    assert await kept.value("kept, threading.active_count() > 1") == "(1, True)"


async def test_memory_beyond_the_limit_ends_the_session_and_says_so(kept: Kept) -> None:
    # Shared memory passes the limit of each process; only what watches or bounds the whole box sees it.
    hog = """
import mmap, time
memory = mmap.mmap(-1, 300 << 20)
for start in range(0, len(memory), 1 << 20):
    memory[start : start + (1 << 20)] = b"x" * (1 << 20)
time.sleep(30)
"""
    result = await kept.run(hog, memory_bytes=128 << 20)
    assert (result.status, result.oom_killed) == ("oom", True)
    assert any("is lost" in note for note in result.notes)
    assert any("memory" in note and "128 MiB" in note for note in result.notes)
    assert (await kept.run("1", memory_bytes=128 << 20)).session_reset


async def test_a_full_disk_is_an_error_of_the_code_or_ends_the_session(kept: Kept) -> None:
    limits = {"workspace_bytes": 4 << 20, "file_bytes": 256 << 20}
    await kept.run("kept = 1", **limits)
    filling = "import time\nwith open('big', 'wb') as file:\n    for _ in range(64): file.write(bytes(1 << 20))\n"
    full = await kept.run(f"{filling}time.sleep(30)", **limits)
    after = await kept.run("1 + 1", **limits)
    if full.status == "error":
        assert b"No space left on device" in full.stderr
        assert not after.session_reset
    else:
        assert full.status == "disk_limit"
        assert after.session_reset
    assert after.stdout == b"2\n"


async def test_a_hard_link_to_a_file_whose_path_is_too_long_has_the_content(kept: Kept) -> None:
    code = """
import os
path = "/".join(["a" * 200] * 7)
os.makedirs(path)
open(path + "/long", "w").write("content")
os.link(path + "/long", "short")
"""
    result = await kept.run(code)
    assert [(file.path, file.content) for file in result.files] == [("short", b"content")]
    assert [reason for _, reason in result.skipped_files] == ["its path is too long"]
