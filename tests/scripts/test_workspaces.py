from __future__ import annotations

import asyncio

from adk_skills_agent.scripts.workspaces import SessionWorkspaces


async def test_runs_of_one_session_take_turns_and_sessions_do_not_wait() -> None:
    workspaces = SessionWorkspaces()
    inside: list[str] = []
    both_sessions = asyncio.Event()

    async def use(key: str) -> None:
        async with workspaces.use(key):
            assert key not in inside
            inside.append(key)
            if len(inside) == 2:
                both_sessions.set()
            await asyncio.wait_for(both_sessions.wait(), 5)
            inside.remove(key)

    await asyncio.gather(*(use(key) for key in ("a", "b", "a", "b")))
    workspaces.close()


async def test_a_session_finds_its_folder_again_until_it_is_closed() -> None:
    workspaces = SessionWorkspaces()
    async with workspaces.use("a") as folder:
        (folder / "kept.txt").write_text("x")
    async with workspaces.use("a") as again:
        assert (again / "kept.txt").read_text() == "x"
    workspaces.close()
    assert not folder.exists()
    workspaces.close()


async def test_the_least_recently_used_idle_folder_goes_first() -> None:
    workspaces = SessionWorkspaces(max_workspaces=2)
    async with workspaces.use("busy") as busy:
        async with workspaces.use("old") as old:
            pass
        async with workspaces.use("new") as new:
            pass
        assert busy.exists()
        assert not old.exists()
        assert new.exists()
    workspaces.close()


async def test_a_session_that_was_idle_for_long_is_forgotten_when_another_comes() -> None:
    workspaces = SessionWorkspaces(idle_seconds=0)
    async with workspaces.use("a") as first:
        pass
    async with workspaces.use("b"):
        assert not first.exists()
    workspaces.close()
