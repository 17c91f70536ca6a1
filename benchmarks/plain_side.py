"""The opponent that isolates nothing and is no library: ``subprocess.run`` of an interpreter and a script."""

from __future__ import annotations

import subprocess
import time

from answering import Sample, answer


async def plain(options: dict[str, object]) -> Sample:
    """``command``: the interpreter and the script."""
    command = [str(part) for part in options["command"]]  # type: ignore[attr-defined]

    async def sample() -> dict[str, object]:
        start = time.perf_counter()
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        seconds = time.perf_counter() - start
        assert run.stdout == b"hello\n"
        return {"seconds": seconds}

    return sample


if __name__ == "__main__":
    answer({"plain": plain})
