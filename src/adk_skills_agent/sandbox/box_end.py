"""The end of Python code that ran in a fork of the supervisor; part of the program in a box (:mod:`.box_program`).

A whole end of the interpreter takes 9 ms in it, where all else of a run takes 5 (:mod:`.script_end`).
"""

from __future__ import annotations

import sys

from adk_skills_agent.sandbox.script_end import exit_code_of, exit_of_c, take_apart


class QuickEnd:
    """Made before the code runs; then its exit functions come before this one, which ends the process."""

    def __init__(self) -> None:
        import atexit
        import gc

        self._exit = exit_of_c()
        self._before = frozenset(sys.modules)
        self._code: int | None = None
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
        self._kept = frame.f_globals  # all of the supervisor, which would be taken apart when its last frame ends
        atexit.register(self)
        gc.freeze()

    def ended(self, error: BaseException | None) -> None:
        """The code's last line is done; what is not said here is left to the interpreter."""
        self._code = exit_code_of(error)

    def __call__(self) -> None:
        """Do what ``Py_FinalizeEx`` does; return to leave it to that."""
        if self._code is not None and self._exit is not None and take_apart(self._before):
            self._exit(self._code)
