"""Which BigQuery the agent works with: Google's, the embedded one, or none (S0-143, S0-151)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from adk_skills_agent.errors import ConfigError

from .write_mode import MAX_ROWS, write_mode

VARIABLE = "BQ_EVAL_BACKEND"
PROJECT_VARIABLE = "GOOGLE_CLOUD_PROJECT"
EMBEDDED_PROJECT = "bq-eval"
TOOLS = ("list_dataset_ids", "get_dataset_info", "list_table_ids", "get_table_info", "execute_sql")
"""The tools of google-adk's BigQueryToolset that the bench uses, with BigQuery and without."""


class Kind(StrEnum):
    """``bigquery`` costs money and needs credentials; ``embedded`` runs everywhere; ``none`` leaves the skill alone."""

    BIGQUERY = "bigquery"
    EMBEDDED = "embedded"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Backend:
    """What was chosen.

    Attributes:
        kind: Which.
        project: The project in which queries run; empty for none.
        why: Why not a better one; empty when it was asked for or is the best.
    """

    kind: Kind
    project: str = ""
    why: str = ""


def choose(environment: Mapping[str, str]) -> Backend:
    """BigQuery where there are a project and credentials, else the embedded tables, else none.

    Args:
        environment: ``BQ_EVAL_BACKEND`` (auto, bigquery, embedded, none) and ``GOOGLE_CLOUD_PROJECT``.

    Raises:
        ConfigError: What was asked for cannot be used here.
    """
    asked = environment.get(VARIABLE) or "auto"
    if asked not in ("auto", *Kind):
        raise ConfigError(f"{VARIABLE} is {asked!r}. Set it to auto, {', '.join(Kind)}.")
    if asked == Kind.NONE:
        return Backend(Kind.NONE)
    project = environment.get(PROJECT_VARIABLE, "")
    missing = _missing_for_bigquery(project) if asked in ("auto", Kind.BIGQUERY) else ""
    if asked == Kind.BIGQUERY and missing:
        raise ConfigError(f"{VARIABLE}=bigquery: {missing}")
    if asked != Kind.EMBEDDED and not missing:
        return Backend(Kind.BIGQUERY, project)
    if importlib.util.find_spec("duckdb") is not None:
        return Backend(Kind.EMBEDDED, EMBEDDED_PROJECT, missing)
    no_engine = "duckdb is not installed: pip install 'adk-skills-runtime[eval]'."
    if asked == Kind.EMBEDDED:
        raise ConfigError(f"{VARIABLE}=embedded: {no_engine}")
    return Backend(Kind.NONE, "", f"{missing} {no_engine}")


def toolset(backend: Backend, environment: Mapping[str, str]) -> list[Any]:
    """The tools of a backend, for an agent.

    Raises:
        ConfigError: ``BQ_EVAL_WRITE_MODE`` is wrong.
    """
    mode = write_mode(environment)
    if backend.kind is Kind.NONE:
        return []
    if backend.kind is Kind.EMBEDDED:
        from .embedded import EmbeddedBigQuery

        return list(EmbeddedBigQuery(mode).tools())
    import google.auth
    from google.adk.integrations.bigquery import BigQueryCredentialsConfig, BigQueryToolset
    from google.adk.integrations.bigquery.config import BigQueryToolConfig, WriteMode

    credentials, _ = google.auth.default()
    config = BigQueryToolConfig(
        write_mode=WriteMode(mode.value),
        max_query_result_rows=MAX_ROWS,
        compute_project_id=backend.project,
        application_name="adk-skills-bq-eval",
    )
    return [
        BigQueryToolset(
            tool_filter=list(TOOLS),
            credentials_config=BigQueryCredentialsConfig(credentials=credentials),
            bigquery_tool_config=config,
        )
    ]


def _missing_for_bigquery(project: str) -> str:
    """What BigQuery lacks here, as a sentence; empty when it can be used."""
    if not project:
        return f"{PROJECT_VARIABLE} is not set."
    try:
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError
        from google.cloud import bigquery  # noqa: F401
    except ImportError:
        return "google-cloud-bigquery is not installed: pip install 'google-adk[gcp]'."
    try:
        google.auth.default()
    except DefaultCredentialsError:
        return "there are no credentials. Run: gcloud auth application-default login"
    return ""
