"""BigQueryBench: an agent with BigQuery and the bq-sql-analyst skill. ``adk eval`` asks this package for its agent."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """The agent, made when it is asked for."""
    if name == "agent":
        return import_module(".agent", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
