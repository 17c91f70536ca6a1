"""Pipes of executions in a box: not watched for the moment most code takes, and nothing of them is lost."""

from __future__ import annotations

import os
import select
from pathlib import Path

from direct_box import DirectBox

from adk_skills_agent.sandbox.box_channel import Pipes


def ready(poll: select.poll) -> set[int]:
    return {descriptor for descriptor, _ in poll.poll(0)}


def test_pipes_wake_nobody_until_they_are_watched() -> None:
    poll = select.poll()
    pipes = Pipes(poll)
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    pipes.add(1, out, err)
    os.write(out_end, b"said")
    assert ready(poll) == set()
    pipes.watch()
    assert ready(poll) == {out}
    assert list(pipes.drain(out)) == [b"said"]
    (later, later_end), (late_err, late_err_end) = os.pipe(), os.pipe()
    pipes.add(2, later, late_err)
    os.write(out_end, b"late")  # a process the first one has left running
    os.close(err_end)
    assert ready(poll) == set()
    pipes.watch()
    assert ready(poll) == {out, err}
    pipes.forget(err)
    assert ready(poll) == {out}
    assert list(pipes.drain(out)) == [b"late"]
    for descriptor in (out, later, late_err):
        pipes.forget(descriptor)
    for descriptor in (out_end, later_end, late_err_end):
        os.close(descriptor)


def test_output_comes_while_code_runs_and_after_it_from_what_it_has_left(tmp_path: Path) -> None:
    box = DirectBox(tmp_path)
    box.hello()
    box.send_code("import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)")
    frame = box.next()
    assert frame is not None
    assert (frame["t"], frame["id"]) == ("out", 1)
    (tmp_path / "go").touch()
    assert box.answer()["exit"] == 0
    left = (
        "import os, time\nif os.fork() == 0:\n  time.sleep(0.2); os.write(1, b'left behind'); os._exit(0)\nprint('x')"
    )
    assert box.run(left)["stdout"] == "x\n"
    box.send_code("import time; time.sleep(0.5)")
    assert box.answer()["stdout"] == ""
    assert box.late == b"left behind"
    box.close()


def test_a_pipe_that_is_full_before_it_is_watched_makes_code_wait_and_loses_nothing(tmp_path: Path) -> None:
    box = DirectBox(tmp_path)
    box.hello()
    done = box.run("import sys; sys.stdout.write('x' * 300_000); sys.stderr.write('y' * 300_000); None")
    assert (len(done["stdout"]), len(done["stderr"]), done["exit"]) == (300_000, 300_000, 0)
    box.close()
