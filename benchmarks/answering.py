"""How a side of a measurement talks: it is a process of its own that takes one sample for each line it is sent.

So that sides can be measured in turns, each stays alive between its samples. What a script inherits from it has neither
its questions nor its answers: both are moved away from the standard streams. Imports nothing but the standard library,
because it also runs in the environments of other projects.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable

Sample = Callable[[], Awaitable[dict[str, object]]]
"""Does the work once and returns what was measured; ``seconds`` among it, or what the row needs."""


def answer(sides: dict[str, Callable[[dict[str, object]], Awaitable[Sample]]]) -> None:
    """Be the side that the command line names (``SIDE OPTIONS-AS-JSON``) until there are no more questions."""
    name, options = sys.argv[1], json.loads(sys.argv[2])
    questions, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    asyncio.run(_answer(sides[name], options, questions, answers))


async def _answer(
    make: Callable[[dict[str, object]], Awaitable[Sample]], options: dict[str, object], questions: int, answers: int
) -> None:
    sample = await make(options)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(questions, "rb", buffering=0)
    )
    os.write(answers, b"{}\n")
    while await reader.readline():
        os.write(answers, json.dumps(await sample()).encode() + b"\n")
