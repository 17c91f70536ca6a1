"""What is this process's own, whatever else goes on in it and on the machine."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

SECONDS = 120


def give_back_free_memory() -> None:
    """Have the system take what the tests before have freed: what is allocated next counts as growth."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # of the GNU C library alone
        ctypes.CDLL(None).malloc_trim(0)


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


def unhindered(*threads: int) -> float:
    """The clock, less the seconds that these threads waited for a processor, which others had; or the one that asks."""
    numbers = threads or (threading.get_native_id(),)
    waited = [Path(f"/proc/self/task/{number}/schedstat").read_text().split()[1] for number in numbers]
    return time.monotonic() - sum(map(int, waited)) / 1e9


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
