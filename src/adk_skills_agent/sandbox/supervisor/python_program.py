"""The program that runs Python code handed to it on standard input, in an interpreter of its own.

Its text is what ``python -I -c`` gets (:func:`program_text`). The code comes on standard input, because one argument
is at most 128 KiB; after it standard input is at its end. ``-I`` keeps a ``json.py`` in the working directory, user
site packages and ``PYTHON*`` variables out (attack rows 34, 51). Nothing is imported before it is needed.

Arguments: working directory, ``restrict`` or ``-``, seconds for :func:`keep_shell_output` or ``-``, and
``import:`` with further import folders, separated by colons.
"""

from __future__ import annotations

import sys

BLOCKED_BUILTINS = ("breakpoint", "compile", "eval", "exec", "open")
BLOCKED_MODULES = ("cffi", "ctypes", "http", "importlib", "os", "shutil", "socket", "subprocess", "urllib")
STREAM_BYTES = 20_000
"""Bytes of each stream of a shell script that :func:`keep_shell_output` keeps: three quarters head, the rest tail."""

_LINE_CHARS = 500


def program_text() -> str:
    """The text of this file, for ``python -I -c``."""
    held = globals().get("__source__")  # in a sandbox there is no file
    if isinstance(held, str):
        return held
    from pathlib import Path

    return Path(__file__).read_text(encoding="utf-8")


def restricted_builtins() -> dict[str, object]:
    """Builtins without the dangerous names, with an import that refuses the dangerous modules (S0-98).

    A speed bump against accidents, not a boundary: ``().__class__.__base__.__subclasses__()`` walks around it.
    """
    import builtins

    original = builtins.__import__

    def guarded(
        name: str,
        globals: dict[str, object] | None = None,  # noqa: A002  # the names the import statement uses
        locals: dict[str, object] | None = None,  # noqa: A002
        fromlist: tuple[str, ...] = (),
        level: int = 0,
    ) -> object:
        if level == 0 and name.partition(".")[0] in BLOCKED_MODULES:
            raise ImportError(f"Importing {name!r} is not allowed here (restrict_builtins).")
        return original(name, globals, locals, fromlist, level)

    def refuse(name: str) -> object:
        def blocked(*_arguments: object, **_keywords: object) -> None:
            raise PermissionError(f"{name}() is not allowed here (restrict_builtins).")

        blocked.__name__ = name
        return blocked

    allowed = dict(vars(builtins))
    allowed.update({name: refuse(name) for name in BLOCKED_BUILTINS})
    allowed["__import__"] = guarded
    return allowed


def keep_shell_output(seconds: str) -> None:
    """Give google-adk's wrapper of shell scripts a ``subprocess.run`` that survives what scripts do.

    The wrapper runs in this interpreter and calls ``subprocess.run(capture_output=True, timeout=...)``, which waits for
    every background process that holds the pipe, keeps unbounded output in memory, and on a timeout has bytes where
    the wrapper needs text, so that it crashes (GOOGLE_ADK.md rows E2, E4, 20). The script is another process; nothing
    of it is changed. ``seconds`` is the sandbox's own deadline, for the sentence when that comes first (SIGTERM).
    """
    import io
    import signal
    import subprocess
    import tempfile

    class Terminated(BaseException):
        pass

    def kept(file: io.BufferedRandom) -> str:
        size = file.seek(0, 2)
        head, tail = STREAM_BYTES * 3 // 4, STREAM_BYTES // 4
        file.seek(0)
        if size <= STREAM_BYTES:
            return file.read().decode("utf-8", "replace")
        start = file.read(head).decode("utf-8", "replace")
        file.seek(size - tail)
        end = file.read().decode("utf-8", "replace")
        return f"{start}\n[... {size - STREAM_BYTES:,} bytes left out ...]\n{end}"

    def on_alarm(_number: int, _frame: object) -> None:
        raise TimeoutError

    def on_term(_number: int, _frame: object) -> None:
        raise Terminated

    def run(
        argv: list[str], *, timeout: float | None = None, cwd: str | None = None, **_rest: object
    ) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = None
            try:
                signal.signal(signal.SIGALRM, on_alarm)
                signal.signal(signal.SIGTERM, on_term)
                process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd)
                if timeout is not None:
                    # 0 would switch the timer off instead of striking at once.
                    signal.setitimer(signal.ITIMER_REAL, max(timeout, 0.001))
                status = process.wait()
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from here on there is an answer to give
            except TimeoutError:
                if process is not None:
                    process.kill()  # whatever else is left the sandbox ends
                raise subprocess.TimeoutExpired(argv, timeout or 0, kept(out), kept(err)) from None
            except Terminated:
                if process is not None:
                    process.kill()
                said = kept(err)
                said = f"{said.rstrip()}\n" if said.strip() else ""
                return subprocess.CompletedProcess(argv, -1, kept(out), f"{said}Timed out after {seconds} s")
            stdout, stderr = kept(out), kept(err)
        if status == 0 and stderr and not stdout:
            # google-adk calls this an error; it is a script that worked and wrote a warning.
            stdout, stderr = f"[stderr]\n{stderr}", ""
        return subprocess.CompletedProcess(argv, status, stdout, stderr)

    subprocess.run = run  # type: ignore[assignment]


def _report(error: BaseException, source: str) -> None:
    """The traceback as Python would print it, without the frames of this program and with the lines of the code."""
    try:
        import linecache
        import traceback

        lines = [line[:_LINE_CHARS] + "\n" for line in source.split("\n")]
        linecache.cache["<code>"] = (len(source), None, lines, "<code>")
        trace = error.__traceback__
        traceback.print_exception(type(error), error, trace.tb_next if trace else None, file=sys.stderr)
    except BaseException:  # noqa: BLE001  # no memory is left for a traceback, or sys.stderr is not what it was
        sys.__stderr__.write(f"{type(error).__name__}\n")  # type: ignore[union-attr]


def main() -> None:
    """Read the code and run it as ``__main__``; exits with 1 when it raises."""
    folder, restrict, shell, imports = sys.argv[1:]
    del sys.argv[1:]
    source = sys.stdin.buffer.read().decode("utf-8")
    if folder != ".":
        import os

        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        os.chdir(folder)
    paths = imports.partition(":")[2].split(":")
    sys.path.extend(path for path in paths if path and path not in sys.path)
    if shell != "-":
        keep_shell_output(shell)
    module = type(sys)("__main__")
    if restrict == "restrict":
        module.__dict__["__builtins__"] = restricted_builtins()
    sys.modules["__main__"] = module
    try:
        exec(compile(source, "<code>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001
        _report(error, source)
        sys.exit(1)


if __name__ == "__main__":
    main()
