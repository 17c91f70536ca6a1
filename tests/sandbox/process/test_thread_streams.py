"""Several threads captured at once share one stand-in, and leave the streams as they were."""

from __future__ import annotations

import sys
import threading

from adk_skills_agent.sandbox.in_process import InProcessPython, Kept, captured


def test_captures_that_overlap_in_any_order_leave_the_streams_as_they_were():
    before = (sys.stdout, sys.stderr)
    kept = {name: (Kept(100), Kept(100)) for name in "ab"}
    a_began, b_began, a_ended = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with captured(*kept["a"]):
            a_began.set()
            assert b_began.wait(20)
            print("from a")
        a_ended.set()

    def second() -> None:
        assert a_began.wait(20)
        with captured(*kept["b"]):
            b_began.set()
            assert a_ended.wait(20)
            print("from b", file=sys.stderr)

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (sys.stdout, sys.stderr) == before
    assert [kept["a"][0].text, kept["a"][1].text] == ["from a\n", ""]
    assert [kept["b"][0].text, kept["b"][1].text] == ["", "from b\n"]


def test_two_interpreters_in_two_threads_leave_the_agents_streams_alone():
    before = (sys.stdout, sys.stderr)
    wrong: list[object] = []

    def work(number: int) -> None:
        python = InProcessPython()
        for _ in range(200):
            result = python.run(f"import time; time.sleep(0.0003); print({number})", timeout_seconds=30)
            if result.stdout != f"{number}\n":
                wrong.append(result)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert (sys.stdout, sys.stderr) == before


def test_a_stand_in_somebody_kept_and_put_back_is_not_stacked_upon():
    before = sys.stdout
    kept_stand_in = []

    def work() -> None:
        with captured(Kept(10), Kept(10)):
            kept_stand_in.append(sys.stdout)

    def run() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(20)

    run()
    try:
        sys.stdout = kept_stand_in[0]
        run()
        assert kept_stand_in[1].original is before
    finally:
        sys.stdout = before
