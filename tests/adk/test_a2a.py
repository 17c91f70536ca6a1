"""Whose the runs are behind google-adk's A2A server: real HTTP, the real converter of requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from google.adk.agents import LlmAgent
from starlette.applications import Starlette

from adk_skills_agent import SandboxPolicy, SkillToolset
from adk_skills_agent.sandbox.threads import RUNNING

GUIDE = Path(__file__).resolve().parents[2] / "docs/how-to/deploy/fastapi.md"
CALL = {"name": "run_skill_script", "args": {"skill_name": "slow", "file_path": "scripts/wait.py"}}
TURNS = json.dumps({"turns": [{"call": CALL}, {"text": "done"}]})


@contextlib.contextmanager
def served(app: Starlette, listening: socket.socket) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


async def ask(client: httpx.AsyncClient, url: str, context: str) -> str:
    message = {
        "kind": "message",
        "messageId": str(uuid.uuid4()),
        "role": "user",
        "contextId": context,
        "parts": [{"kind": "text", "text": "Wait."}],
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    return (await client.post(url, json=body)).text


async def whose(app: Starlette, listening: socket.socket) -> dict[str, set[str]]:
    """The sessions of each user that had a run while two contexts asked at once."""
    seen: dict[str, set[str]] = {}
    with served(app, listening) as url:
        async with httpx.AsyncClient(timeout=60) as client:
            asked = [asyncio.create_task(ask(client, url, f"context-{number}")) for number in range(2)]
            while not all(task.done() for task in asked):
                for key, user in list(RUNNING._all.parts.items()):
                    seen.setdefault(key.rpartition(":user:")[2], set()).update(list(user.parts))
                await asyncio.sleep(0.01)
    assert all("done" in task.result() for task in asked), [task.result() for task in asked]
    return seen


@pytest.fixture
def make_app(make_skill: Callable[..., Path], rehearse: Any) -> Callable[[int], Starlette]:
    folder = make_skill("slow", files={"scripts/wait.py": "import time\ntime.sleep(0.7)\n"})

    def make(port: int) -> Starlette:
        skills = SkillToolset.from_dirs([folder.parent], policy=SandboxPolicy(min_isolation="process"))
        agent = LlmAgent(name="boss", model=rehearse(TURNS, TURNS).model(), tools=[skills])
        # Half a second of processor time, which each worker that collects this module would pay.
        from google.adk.a2a.utils.agent_to_a2a import to_a2a

        return to_a2a(agent, port=port)

    return make


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


async def test_row_409_contexts_that_nobody_authenticated_share_the_places_of_one_user(
    make_app: Callable[[int], Starlette], listening: socket.socket
) -> None:
    """Seen: a client with 200 contexts was 200 users, and kept a user of another server's front for 70 s."""
    assert await whose(make_app(listening.getsockname()[1]), listening) == {"A2A_USER_": {"context-0", "context-1"}}


async def test_the_guide_makes_a_user_of_each_address(
    make_app: Callable[[int], Starlette], listening: socket.socket
) -> None:
    block = next(
        block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "to_a2a" in block
    )
    app = make_app(listening.getsockname()[1])
    names: dict[str, Any] = {}
    exec(block, names)  # the guide's own code
    app.add_middleware(names["AuthenticationMiddleware"], backend=names["EachAddress"]())
    assert await whose(app, listening) == {"127.0.0.1": {"context-0", "context-1"}}
