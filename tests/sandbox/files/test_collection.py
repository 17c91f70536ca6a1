"""What the collector does with a file that is not any more what it was when it was found, and what it costs."""

from __future__ import annotations

import errno
import os
import threading
import time
import venv
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

import level_table
from adk_skills_agent import Secret
from adk_skills_agent.errors import SandboxUnavailable
from adk_skills_agent.sandbox import local_sandbox
from adk_skills_agent.sandbox.contract import ExecutionRequest, SandboxPolicy, Status
from adk_skills_agent.sandbox.files.collect import Entry, collect, open_folder, read_entry
from adk_skills_agent.sandbox.files.workspace import Workspace, create_workspace

SECONDS = 20


@pytest.fixture
def workspace() -> Workspace:
    return create_workspace("test")


def read_after(folder: Path, change: Callable[[Path], None], *, limit: int = 1000) -> bytes | None:
    """Find a file, change what is at its path, and read it, in a thread that may block for ever."""
    path = folder / "out.txt"
    path.write_bytes(b"found")
    descriptor = open_folder(str(folder))
    entry = Entry("out.txt", "out.txt", descriptor, path.lstat())
    change(path)
    answer: Future[bytes | None] = Future()

    def read() -> None:
        try:
            answer.set_result(read_entry(entry, limit))
        except OSError as error:
            answer.set_exception(error)

    threading.Thread(target=read, daemon=True).start()
    try:
        return answer.result(SECONDS)
    finally:
        os.close(descriptor)


def test_row_40_a_file_that_stayed_what_it_was_is_read(tmp_path):
    assert read_after(tmp_path, lambda path: None) == b"found"


def test_row_40_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path):
    def swap(path: Path) -> None:
        path.unlink()
        os.mkfifo(path)

    assert read_after(tmp_path, swap) is None


def test_row_40_a_link_in_the_place_of_a_file_is_not_followed_even_to_the_same_file(tmp_path):
    def swap(path: Path) -> None:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to("elsewhere")

    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        read_after(tmp_path, swap)


def test_row_40_another_file_in_its_place_is_not_read(tmp_path):
    def swap(path: Path) -> None:
        path.rename(tmp_path / "elsewhere")
        path.write_bytes(b"other")

    assert read_after(tmp_path, swap) is None


def test_row_42_a_file_that_grew_beyond_the_limit_is_not_read(tmp_path):
    assert read_after(tmp_path, lambda path: path.write_bytes(b"found and more"), limit=10) is None


def test_row_11_the_collector_does_not_look_at_more_than_its_bounds(workspace):
    for number in range(5000):
        Path(workspace.work, f"f{number:05d}").touch()
    started = time.thread_time()
    result = collect(workspace, SandboxPolicy(workspace_inodes=1000, max_files=10))
    assert time.thread_time() - started < 1.0
    assert len(result.files) == 10
    assert len(result.changed) == 1000
    assert any("more than 1,000 files" in note for note in result.notes)
    assert not result.complete


def test_row_19_odd_names_cost_the_collector_little(workspace):
    names = [("a" * 120 + "." * 60 + "!" * 60)[: 200 + n] + str(n) + ".tar.gz." for n in range(40)]
    names += [("e\u0301" * 60)[: 80 + n] + str(n) for n in range(40)]
    for name in names:
        Path(workspace.work, name).touch()
    started = time.thread_time()
    result = collect(workspace, SandboxPolicy(max_files=100))
    assert time.thread_time() - started < 0.25
    assert len(result.files) == len(names)


def test_an_environment_of_any_name_is_no_result_and_is_told_in_one_note(workspace):
    """Seen: 50 files of pip as artifacts, a line for each of 100 more, and for links of node_modules a second note."""
    for name in ("a/env/pyvenv.cfg", "a/env/lib/x.py", "b/node_modules/x.js", "a/result.txt"):
        Path(workspace.work, name).parent.mkdir(parents=True, exist_ok=True)
        Path(workspace.work, name).write_text("x")
    Path(workspace.work, "a/env/lib64").symlink_to("lib")
    Path(workspace.work, "b/node_modules/y").symlink_to("x.js")
    Path(workspace.work, "b/.git").mkdir()  # as a clone of a repository beside it, whose objects are hard links
    Path(workspace.work, "b/.git/one").write_text("x")
    Path(workspace.work, "b/.git/two").hardlink_to(Path(workspace.work, "b/.git/one"))
    Path(workspace.work, "linked").symlink_to("a")
    result = collect(workspace, SandboxPolicy())
    assert [file.path for file in result.files] == ["a/result.txt"]
    assert result.skipped == [("linked", "is a symbolic link")]
    assert {"a/env/pyvenv.cfg", "a/env/lib/x.py", "b/node_modules/x.js"} <= set(result.changed)  # stays for the session
    (note,) = result.notes
    assert note.startswith("7 hidden files are left out")
    assert {"b/.git/one", "b/.git/two"} <= set(result.changed)


async def test_an_interpreter_below_tmp_is_not_kept_with_the_sessions_temporary_files(tmp_path):
    """Its folder is mounted at its own place, which in the sandbox is inside of the ``/tmp`` that lasts."""
    if not tmp_path.is_relative_to("/tmp"):
        pytest.skip("the tests' folders are not below /tmp")
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python, lasting = str(tmp_path / "venv" / "bin" / "python3"), tmp_path / "lasting"
    policy = SandboxPolicy(min_isolation="namespaces", python=python)
    code = "import pathlib; path = pathlib.Path('/tmp/count'); path.open('a').write('x'); print(path.read_text())"
    sandbox = local_sandbox()
    try:
        for number in (1, 2, 3):
            result = await sandbox.run(ExecutionRequest((python, "-c", code), policy, tmp=lasting))
            assert (result.status, result.stdout) == (Status.OK, b"x" * number + b"\n")
    except SandboxUnavailable as error:
        pytest.skip(f"no namespaces here: {error}")
    finally:
        await sandbox.close()
    assert [path.name for path in lasting.rglob("*") if path.is_file()] == ["count"]


@pytest.mark.parametrize("level", ["namespaces", "landlock", "process"])
async def test_results_that_are_left_in_a_tmp_that_does_not_last_are_told_of(level: str, tmp_path: Path) -> None:
    """Seen: a script says "saved to /tmp/result.txt", ends well, and the file is gone in the next run."""
    level_table.require(level)

    async def notes(code: str, tmp: Path | None = None, **env: Secret) -> tuple[str, ...]:
        policy = SandboxPolicy(isolation=level, min_isolation=level, wall_seconds=SECONDS)  # type: ignore[arg-type]
        result = await local_sandbox().run(ExecutionRequest(("bash", "-c", code), policy, env=env, tmp=tmp))
        assert result.status is Status.OK, result.stderr
        return result.notes

    ordinary = "cd $TMPDIR; mktemp -p .; mktemp x.XXXXXXXXXXXX; mkdir cache.d; touch .x a.log; "
    ordinary += "python3 -c 'import tempfile; tempfile.NamedTemporaryFile(suffix=\".csv\", delete=False)'; "
    assert await notes(f"{ordinary} echo x > report.pdf; echo x > data.parquet") == (
        "'/tmp/data.parquet', '/tmp/report.pdf' were not kept: /tmp is new in every run. "
        "Write results to the working directory.",
    )
    assert await notes(ordinary) == ()
    assert await notes("echo x > $TMPDIR/report.pdf", tmp_path / "tmp") == ()
    # With a secret TMPDIR is the home folder; each mktemp was called a result that was not kept.
    key = Secret("sk-0123456789abcdef")
    assert await notes(ordinary, KEY=key) == ()
    (said,) = await notes(f"{ordinary} echo x > ~/report.pdf", KEY=key)
    assert said.startswith("'~/report.pdf' was not kept: the home folder is new in every run.")
