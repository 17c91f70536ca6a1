"""Small tables in the shape of BigQuery's public ones, in DuckDB, with BigQuery's rules about writing.

A model writes the SQL, so the engine is locked: it reads no file and opens no connection, and where writing is not
allowed the tables are attached read-only, which the engine itself enforces.
"""

from __future__ import annotations

import atexit
import functools
import json
import re
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import duckdb

from .dialect import PROJECT, to_duckdb
from .write_mode import MAX_ROWS, WriteMode

TABLES = Path(__file__).parent / "tables"
TIMEOUT_SECONDS = 30.0
_LIMITS = {"threads": 1, "memory_limit": "256MB", "temp_directory": ""}
_TYPES = {"STRING": "VARCHAR", "INTEGER": "BIGINT", "FLOAT": "DOUBLE", "TIMESTAMP": "TIMESTAMP"}
_STATEMENTS = {"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE_INTO", "CREATE", "DROP", "ALTER"}
_ENGINE_TABLES = re.compile(r"\b(?:duckdb|pragma)_\w+|\bpg_catalog\b|\bsqlite_\w+|\bcurrent_setting\b", re.IGNORECASE)


class QueryRefused(Exception):
    """A query that is not run, with the sentence for the model."""


class Warehouse:
    """The tables for one session (or for all, where nothing can be written).

    Args:
        mode: What may be written.
    """

    def __init__(self, mode: WriteMode = WriteMode.BLOCKED) -> None:
        self.mode = mode
        self.schema: dict[str, dict[str, Any]] = json.loads((TABLES / "schema.json").read_text(encoding="utf-8"))
        self._lock = threading.Lock()
        place = _made()
        if mode is WriteMode.ALLOWED:
            place = Path(shutil.copy(place, _folder() / "tables.duckdb"))
        self._place = place
        self._connection = duckdb.connect(":memory:", config=_LIMITS)
        read_only = "" if mode is WriteMode.ALLOWED else " (READ_ONLY)"
        for statement in (
            f"ATTACH '{place}' AS \"{PROJECT}\"{read_only}",
            "CREATE MACRO safe_divide(a, b) AS a / nullif(b, 0)",
            "SET python_enable_replacements = false",  # a name in SQL must not find a variable of this program
            "SET enable_external_access = false",
            "SET lock_configuration = true",
        ):
            self._connection.execute(statement)

    def run(self, query: str, *, dry_run: bool = False) -> tuple[str, list[dict[str, Any]]]:
        """Run a query.

        Args:
            query: BigQuery SQL.
            dry_run: Only check it.

        Returns:
            The kind of its (last) statement, and at most ``MAX_ROWS`` rows.

        Raises:
            QueryRefused: The mode does not allow it, it is wrong, or it took too long; the message says which.
        """
        sql = to_duckdb(query)
        if _ENGINE_TABLES.search(sql):
            raise QueryRefused("Tables of the engine cannot be queried. Use list_table_ids and get_table_info.")
        with self._lock:
            timer = threading.Timer(TIMEOUT_SECONDS, self._connection.interrupt)
            timer.start()
            try:
                return self._run(sql, dry_run=dry_run)
            except duckdb.InterruptException:
                raise QueryRefused(f"The query took longer than {TIMEOUT_SECONDS:g} s. Narrow it down.") from None
            except duckdb.Error as error:
                raise QueryRefused(self._sentence(error)) from None
            finally:
                timer.cancel()

    def rows_of(self, dataset: str, table: str) -> int:
        """How many rows a table has."""
        with self._lock:
            name = ".".join(f'"{part}"' for part in (PROJECT, dataset, table))
            found = self._connection.execute(f"SELECT count(*) FROM {name}").fetchone()
        return int(found[0]) if found else 0

    def close(self) -> None:
        """Close the engine and forget what was written."""
        with self._lock:
            self._connection.close()
        if self.mode is WriteMode.ALLOWED:
            shutil.rmtree(self._place.parent, ignore_errors=True)

    def _run(self, sql: str, *, dry_run: bool) -> tuple[str, list[dict[str, Any]]]:
        statements = self._connection.extract_statements(sql)
        kinds = [statement.type.name for statement in statements]
        if not kinds:
            raise QueryRefused("The query is empty.")
        if self.mode is WriteMode.BLOCKED and kinds != ["SELECT"]:
            raise QueryRefused("Read-only mode only supports SELECT statements.")
        if others := sorted(set(kinds) - _STATEMENTS):
            raise QueryRefused(f"{', '.join(others)} statements are not supported here.")
        if self.mode is WriteMode.PROTECTED and len(kinds) > 1:
            raise QueryRefused("Protected write mode supports one statement at a time, no script.")
        if dry_run:
            for statement in statements:
                self._connection.execute(f"EXPLAIN {statement.query}")
            return kinds[-1], []
        rows: list[dict[str, Any]] = []
        for statement in statements:
            result = self._connection.execute(statement)
            names = [column[0] for column in result.description or ()]
            rows = [dict(zip(names, map(_plain, row), strict=True)) for row in result.fetchmany(MAX_ROWS)]
        return kinds[-1], rows if kinds[-1] == "SELECT" else []

    def _sentence(self, error: duckdb.Error) -> str:
        if "read-only mode" in str(error):
            return "Protected write mode only supports SELECT statements, or write operations on temporary tables."
        return str(error).partition("\n\n")[0].replace(str(self._place), PROJECT)


@functools.cache
def _made() -> Path:
    """A database with the tables, made once in a process; it is only read."""
    place = _folder() / "tables.duckdb"
    with duckdb.connect(str(place), config={"threads": 1}) as connection:
        for dataset, about in json.loads((TABLES / "schema.json").read_text(encoding="utf-8")).items():
            connection.execute(f'CREATE SCHEMA "{dataset}"')
            for table, details in about["tables"].items():
                columns = ", ".join(f'"{name}" {_TYPES[kind]}' for name, kind in details["columns"].items())
                connection.execute(f'CREATE TABLE "{dataset}"."{table}" ({columns})')
                connection.execute(f'COPY "{dataset}"."{table}" FROM \'{TABLES / dataset / table}.csv\' (HEADER)')
    return place


def _folder() -> Path:
    """A folder that is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="bq-eval-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _plain(value: Any) -> Any:
    """A value as JSON has it; others as text, as google-adk's execute_sql does."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
