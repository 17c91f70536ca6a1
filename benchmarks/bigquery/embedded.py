"""google-adk's BigQuery tools over the embedded tables: the same names, arguments and answers."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext

from .backend import TOOLS
from .dialect import PROJECT
from .warehouse import QueryRefused, Warehouse
from .write_mode import MAX_ROWS, WriteMode

_MOST_SESSIONS = 64


class _Unknown(Exception):
    """Something that does not exist, in BigQuery's words."""


class EmbeddedBigQuery:
    """The tools. Where something can be written each session has tables of its own.

    Args:
        mode: What may be written.
    """

    def __init__(self, mode: WriteMode = WriteMode.BLOCKED) -> None:
        self.mode = mode
        self._warehouses: OrderedDict[str, Warehouse] = OrderedDict()
        self._lock = threading.Lock()
        atexit.register(self.close)  # an engine that is open when Python ends says what it leaks, at length

    def tools(self) -> list[FunctionTool]:
        """The tools, in the order of ``TOOLS``."""
        return [FunctionTool(getattr(self, name)) for name in TOOLS]

    def close(self) -> None:
        """Close every engine."""
        with self._lock:
            houses = list(self._warehouses.values())
            self._warehouses.clear()
        for house in houses:
            house.close()

    async def list_dataset_ids(self, project_id: str) -> Any:
        """List BigQuery dataset ids in a Google Cloud project.

        Args:
            project_id (str): The Google Cloud project id.
        """
        return await self._answer(lambda house: list(_datasets(house, project_id)))

    async def get_dataset_info(self, project_id: str, dataset_id: str) -> Any:
        """Get metadata information about a BigQuery dataset.

        Args:
            project_id (str): The Google Cloud project id containing the dataset.
            dataset_id (str): The BigQuery dataset id.
        """

        def look(house: Warehouse) -> dict[str, Any]:
            return {
                "kind": "bigquery#dataset",
                "id": f"{project_id}:{dataset_id}",
                "datasetReference": {"projectId": project_id, "datasetId": dataset_id},
                "description": _dataset(house, project_id, dataset_id)["description"],
                "location": "US",
            }

        return await self._answer(look)

    async def list_table_ids(self, project_id: str, dataset_id: str) -> Any:
        """List table ids in a BigQuery dataset.

        Args:
            project_id (str): The Google Cloud project id containing the dataset.
            dataset_id (str): The BigQuery dataset id.
        """
        return await self._answer(lambda house: list(_dataset(house, project_id, dataset_id)["tables"]))

    async def get_table_info(self, project_id: str, dataset_id: str, table_id: str) -> Any:
        """Get metadata information about a BigQuery table.

        Args:
            project_id (str): The Google Cloud project id containing the dataset.
            dataset_id (str): The BigQuery dataset id containing the table.
            table_id (str): The BigQuery table id.
        """

        def look(house: Warehouse) -> dict[str, Any]:
            tables = _dataset(house, project_id, dataset_id)["tables"]
            if table_id not in tables:
                raise _Unknown(f"404 Not found: Table {project_id}:{dataset_id}.{table_id}")
            columns = tables[table_id]["columns"].items()
            return {
                "kind": "bigquery#table",
                "id": f"{project_id}:{dataset_id}.{table_id}",
                "tableReference": {"projectId": project_id, "datasetId": dataset_id, "tableId": table_id},
                "description": tables[table_id]["description"],
                "schema": {"fields": [{"name": name, "type": kind, "mode": "NULLABLE"} for name, kind in columns]},
                "numRows": str(house.rows_of(dataset_id, table_id)),
                "type": "TABLE",
            }

        return await self._answer(look)

    async def execute_sql(
        self, project_id: str, query: str, tool_context: ToolContext, dry_run: bool = False
    ) -> dict[str, Any]:
        """Run a BigQuery SQL query in the project and return the result, at most 50 rows.

        Args:
            project_id (str): The GCP project id in which the query should be executed.
            query (str): The BigQuery SQL query to be executed.
            dry_run (bool, default False): If True, the query is only validated.
        """

        def run(house: Warehouse) -> dict[str, Any]:
            kind, rows = house.run(query, dry_run=dry_run)
            if dry_run:
                info = {"configuration": {"dryRun": True, "query": {"query": query}}, "jobReference": {}}
                info["jobReference"] = {"projectId": project_id}
                return {"status": "SUCCESS", "dry_run_info": {**info, "statistics": {"statementType": kind}}}
            result: dict[str, Any] = {"status": "SUCCESS", "rows": rows}
            if len(rows) == MAX_ROWS:
                result["result_is_likely_truncated"] = True
            return result

        session = tool_context.session
        answer: dict[str, Any] = await self._answer(run, f"{session.app_name}/{session.user_id}/{session.id}")
        return answer

    async def _answer(self, look: Callable[[Warehouse], Any], session: str = "") -> Any:
        def work() -> Any:
            try:
                return look(self._warehouse(session))
            except (QueryRefused, _Unknown) as error:
                return {"status": "ERROR", "error_details": str(error)}

        return await asyncio.to_thread(work)

    def _warehouse(self, session: str) -> Warehouse:
        key = "" if self.mode is WriteMode.BLOCKED else session
        with self._lock:
            if key not in self._warehouses:
                self._warehouses[key] = Warehouse(self.mode)
            self._warehouses.move_to_end(key)
            oldest = self._warehouses.popitem(last=False)[1] if len(self._warehouses) > _MOST_SESSIONS else None
            found = self._warehouses[key]
        if oldest is not None:
            oldest.close()
        return found


def _datasets(house: Warehouse, project: str) -> dict[str, dict[str, Any]]:
    if project != PROJECT:
        raise _Unknown(f"404 Not found: Project {project} has no datasets here; the public ones are in {PROJECT}.")
    return house.schema


def _dataset(house: Warehouse, project: str, dataset: str) -> dict[str, Any]:
    datasets = _datasets(house, project)
    if dataset not in datasets:
        raise _Unknown(f"404 Not found: Dataset {project}:{dataset}")
    return datasets[dataset]
