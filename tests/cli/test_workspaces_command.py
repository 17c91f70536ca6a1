"""``adk-skills workspaces`` with a store that a server has written to."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from adk_skills_agent.cli import main
from adk_skills_agent.scripts.stored_workspace import SessionStore
from adk_skills_agent.scripts.workspace_store import Owner, WorkspaceStore
from adk_skills_agent.scripts.workspaces import SessionWorkspaces

KEY = "ab" * 32


def save(store: WorkspaceStore, session: str = "s1") -> None:
    async def call() -> None:
        about = SessionStore(store, Owner("shop", "ada", session))
        async with SessionWorkspaces().claim(f"app:shop:user:ada:session:{session}", None, None, about) as claim:
            opened = claim.open()
            async with claim.turn():
                (opened.path / "report.md").write_text("text")

    asyncio.run(call())


def run(*arguments: str, code: int = 0, **env: str) -> str:
    done = CliRunner().invoke(main.app, ["workspaces", *arguments], env=env)
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.output


def test_sessions_are_listed_removed_and_collected(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    assert "no sessions" in (said := run("ls", "--store", store))
    assert f"There is no folder {store} yet" in said  # or a mistyped one
    save(WorkspaceStore(store))
    save(WorkspaceStore(store), "s2")
    listed = json.loads(run("ls", "--store", store, "--json"))
    assert {(one["app"], one["user"], one["session_id"], one["files"], one["bytes"]) for one in listed} == {
        ("shop", "ada", "s1", 1, 4),
        ("shop", "ada", "s2", 1, 4),
    }
    table = run("ls", ADK_SKILLS_WORKSPACE_STORE=store)
    assert "shop" in table
    assert listed[0]["session"] in table
    name = listed[0]["session"]
    assert run("rm", name, "--store", store) == f"Removed {name}.\n"
    assert len(json.loads(run("ls", "--store", store, "--json"))) == 1
    assert json.loads(run("gc", "--store", store, "--older-than", "1h", "--json"))["removed"] == []
    assert len(json.loads(run("ls", "--store", store, "--json"))) == 1
    assert len(json.loads(run("gc", "--store", store, "--older-than", "0s", "--json"))["removed"]) == 1
    assert "no sessions" in run("ls", "--store", store)


def test_a_store_with_a_key_needs_it(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    save(WorkspaceStore(store, key=KEY))
    assert json.loads(run("ls", "--store", store, "--json", ADK_SKILLS_WORKSPACE_KEY=KEY))[0]["user"] == "ada"
    assert json.loads(run("ls", "--store", store, "--json", "--key-env", "MINE", MINE=f"{'cd' * 32}, {KEY}"))
    failed = CliRunner().invoke(main.app, ["workspaces", "ls", "--store", store])
    assert "Give its key" in str(failed.exception)


@pytest.mark.parametrize("wrong", ["30", "d", "-3d", "3 years"])
def test_a_time_that_is_none_is_told(tmp_path: Path, wrong: str) -> None:
    failed = CliRunner().invoke(main.app, ["workspaces", "gc", "--store", str(tmp_path), f"--older-than={wrong}"])
    assert "such as 12h, 30d or 8w" in str(failed.exception)
