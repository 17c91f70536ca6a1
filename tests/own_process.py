"""A test about all that its process has: in a fork, whose one thread is the test's."""

from __future__ import annotations

import functools
import os
import signal
import traceback
import warnings
from collections.abc import Callable

import pytest

SECONDS = 120


def in_a_fork(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test where no thread of another test opens, closes or starts anything meanwhile."""

    @functools.wraps(test)
    def forked(*args: object, **kwargs: object) -> None:
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer versions of Python warn of the threads
            child = os.fork()
        if child == 0:
            os.close(read)
            _end_after(functools.partial(test, *args, **kwargs), write)
        os.close(write)
        with open(read, encoding="utf-8") as told:
            problem = told.read()
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended:
            pytest.fail(problem or f"the fork ended with {ended}", pytrace=False)

    return forked


def _end_after(test: Callable[[], None], write: int) -> None:
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        test()
        status = 0
    except BaseException:
        os.write(write, traceback.format_exc().encode())
    finally:
        os._exit(status)
