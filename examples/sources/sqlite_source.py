"""Skills in a SQLite database: a source of your own in two methods (and one more, for files).

registry = SkillsRegistry()
registry.add_source(SqliteSource("skills.db"), name="db")
toolset = SkillToolset.from_catalog(registry)
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from adk_skills_agent import SkillMetadata, SkillNotFound, SkillSource
from adk_skills_agent.errors import ResourceNotFound

SCHEMA = """
CREATE TABLE IF NOT EXISTS skill (name TEXT PRIMARY KEY, description TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS file (
    skill TEXT NOT NULL REFERENCES skill (name), path TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (skill, path)
);
"""


class SqliteSource(SkillSource):
    """The skills of a database with the tables of SCHEMA."""

    def __init__(self, database: str | Path) -> None:
        self._database = str(database)

    async def list_metadata(self) -> Sequence[SkillMetadata]:
        rows = await self._rows("SELECT name, description FROM skill ORDER BY name")
        return [SkillMetadata(name, description) for name, description in rows]

    async def read_file(self, name: str, path: str) -> bytes:
        rows = await self._rows("SELECT data FROM file WHERE skill = ? AND path = ?", name, path)
        if rows:
            return bytes(rows[0][0])
        if not await self._rows("SELECT 1 FROM skill WHERE name = ?", name):
            raise SkillNotFound(f"There is no skill {name!r}.")
        raise ResourceNotFound(f"Skill {name!r} has no file {path!r}.")

    async def list_files(self, name: str) -> Sequence[str]:
        return [path for (path,) in await self._rows("SELECT path FROM file WHERE skill = ? ORDER BY path", name)]

    async def _rows(self, query: str, *values: str) -> list[tuple]:
        def ask() -> list[tuple]:
            with closing(sqlite3.connect(self._database)) as connection:
                return connection.execute(query, values).fetchall()

        return await asyncio.to_thread(ask)


def put_skill(database: str | Path, name: str, description: str, files: dict[str, bytes]) -> None:
    """Write a skill into the database."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript(SCHEMA)
        connection.execute("INSERT OR REPLACE INTO skill VALUES (?, ?)", (name, description))
        connection.execute("DELETE FROM file WHERE skill = ?", (name,))
        connection.executemany(
            "INSERT INTO file VALUES (?, ?, ?)", [(name, path, data) for path, data in files.items()]
        )
