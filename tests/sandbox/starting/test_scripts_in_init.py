"""A script that the init program runs ends, prints and sees what it would with an interpreter of its own (ADR 0010)."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest
from ways_to_end import WAYS_TO_END

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, InputFile, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.init.control import USUAL_FLAGS, shown_at
from adk_skills_agent.sandbox.local.warm_pool import warm_pool

pytestmark = [pytest.mark.warm_pool, pytest.mark.usefixtures("needs_namespaces")]

SCRIPTS = {
    **WAYS_TO_END,
    "a destructor": "import os\nclass A:\n  def __del__(self): print('del', os.getpid() > 0)\na = A()",
    "an open file": "f = open('x', 'w'); f.write('data')",
    "a hook for exceptions": "import sys, os\nsys.excepthook = lambda *a: os._exit(9)\n1/0",
    "what the interpreter says of itself": (
        "import sys\nprint(sys.flags, sys.argv, sys.path[:4], __file__, __name__, __spec__, sorted(globals()))"
    ),
    "standard input": "import sys; print(sys.stdin.read(), sys.stdin, sys.stdin.isatty(), sys.__stdin__ is sys.stdin)",
    "the usual streams": "import sys; o = sys.stdout; print(o, sys.stderr, o.line_buffering, o.write_through)",
    "its environment": (
        "import os, sys\nfor k in ('ADK_SKILLS_RUN_ID', 'GHCRTS', 'PWD'): os.environ.pop(k, 0)\n"
        "print(sorted(os.environ), os.environ['LANG'], os.environb[b'LANG'])"
    ),
    "its mask and signals": (
        "import os, signal\nprint(oct(os.umask(0)), [(s, signal.getsignal(s)) for s in (2, 13, 15, 25)])"
    ),
    "a fork": "import os, sys\nif os.fork() == 0: print('child'); sys.exit(4)\nprint(os.wait()[1]); print('parent')",
    "a signal": "import os; os.kill(os.getpid(), 11)",
    "an interrupting signal": "import os; os.kill(os.getpid(), 2)",
    "an error of syntax": "def f(:\n",
    "another process": (
        "import multiprocessing as m\nif __name__ == '__main__':\n"
        "  m.set_start_method('fork'); p = m.Process(target=print, args=('mp',)); p.start(); p.join()"
    ),
    "an unfinished line": "import sys; print('unflushed', end=''); print('err', file=sys.stderr)",
    "a cycle": (
        "import json, email, logging\nclass B:\n  def __init__(s): s.me = s\n"
        "  def __del__(s): print(json.dumps(1))\nb = B()"
    ),
    "an event loop": "import asyncio\nasync def m(): print(1)\nasyncio.run(m())",
    "a pool": "import concurrent.futures as c\nwith c.ThreadPoolExecutor() as e: print(list(e.map(abs, [-1])))",
    "its own modules": "import sys; print('adk_skills_init' in sys.modules, 'ctypes' in sys.modules, dir())",
    "a module beside it": "import beside; print(beside.__file__, beside.VALUE)",
    "pickling its class": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
    "its own source": "import inspect\ndef f(): return 1\nprint(inspect.getsource(f), __import__('__main__').f is f)",
}

USUALLY = {
    *list(WAYS_TO_END)[::4],
    "a destructor",
    "what the interpreter says of itself",
    "standard input",
    "its environment",
    "its mask and signals",
    "a fork",
    "another process",
    "its own modules",
}


async def run(folder: Path, level: str, **settings: object) -> ExecutionResult:
    policy = SandboxPolicy(
        isolation=level,
        min_isolation="process",
        wall_seconds=20.0,
        **settings,  # type: ignore[arg-type]
    )
    argv = (sys.executable, *USUAL_FLAGS, "/skill/t.py", "an argument")
    return await local_sandbox().run(ExecutionRequest(argv, policy, mounts=(ReadOnlyMount(folder),)))


async def warm(folder: Path) -> ExecutionResult:
    for _ in range(3):
        await run(folder, "namespaces")
        await run(folder, "namespaces")
        deadline = time.monotonic() + 30
        while not warm_pool().idle() and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        result = await run(folder, "namespaces")
        if result.warm:
            return result
    raise AssertionError("no run was warm")


def facts(result: ExecutionResult) -> tuple[object, ...]:
    files = [(file.path, file.content) for file in result.files]
    return result.status, result.exit_code, result.signal, result.stdout, result.stderr, files


@pytest.mark.parametrize(
    "name", [name if name in USUALLY else pytest.param(name, marks=pytest.mark.slow) for name in SCRIPTS]
)
async def test_a_script_ends_as_with_an_interpreter_of_its_own(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "skill"
    folder.mkdir()
    (folder / "t.py").write_bytes(SCRIPTS[name].encode("utf-8", "surrogateescape"))
    (folder / "beside.py").write_text("VALUE = 5\n")
    plain = await run(folder, "process", warm_slots=0)
    cold = await run(folder, "namespaces", warm_slots=0)
    assert facts(cold) == facts(plain)
    assert facts(await warm(folder)) == facts(plain)


async def test_a_script_too_large_for_its_own_limit_of_memory_is_an_error_of_the_sandbox_with_the_reason(tmp_path):
    """Its standard input is in place by then: what failed is still told to the host, and is no exit code."""
    (tmp_path / "large.py").write_text("x = 1\n" * 2_000_000)
    limits = SandboxPolicy(isolation="namespaces", memory_bytes=4 << 20, warm_slots=0)
    request = ExecutionRequest((sys.executable, "/skill/large.py"), limits, mounts=(ReadOnlyMount(tmp_path),))
    with pytest.raises(SandboxError, match="could not begin: an unexpected MemoryError"):
        await local_sandbox().run(request)


@pytest.mark.parametrize("path", ["named.py", "inner/../named.py"])
async def test_a_script_named_relative_to_its_folder_knows_its_whole_path(path: str) -> None:
    """It may change its folder before it looks for what is beside it."""
    code = (
        "import os, sys, inspect\nprint(__file__, sys.argv, sys.path[0], __loader__.path)\nos.chdir('/')\n"
        "print(os.path.exists(__file__))\ndef f(): return 1\nprint(inspect.getsource(f))\n1/0"
    )
    policy = SandboxPolicy(isolation="namespaces", wall_seconds=20.0, warm_slots=0)
    given = (InputFile("named.py", code.encode()), InputFile("inner/x", b""))
    here = ExecutionRequest((sys.executable, path), policy, input_files=given)
    own = ExecutionRequest(("sh", "-c", f"exec {shown_at(sys.executable)} {path}"), policy, input_files=given)
    result = await local_sandbox().run(here)
    assert facts(result) == facts(await local_sandbox().run(own))
    assert b"\nTrue\n" in result.stdout
