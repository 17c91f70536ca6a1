"""The agent of the bench: BigQuery's tools and the ``bq-sql-analyst`` skill.

``adk-skills eval benchmarks/bigquery --agent benchmarks.bigquery.agent:root_agent``, or ``adk web benchmarks``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models import Gemini
from google.genai import types

from adk_skills_agent import SkillToolset

from .backend import Backend, Kind, choose, toolset
from .dialect import PROJECT
from .write_mode import MAX_ROWS

SKILLS = Path(__file__).parent / "skills"
MODEL = "gemini-2.5-flash"
KEY_VARIABLE = "GOOGLE_CLOUD_API_KEY"
_TRIES, _FIRST_WAIT, _LONGEST_WAIT = 5, 2.0, 60.0

_FULL = f"""\
You answer questions about the public datasets of BigQuery. Use your skill for how to work and your tools for what is
true. The data is in the project {PROJECT}; run queries in the project {{project}}. A query shows at most {MAX_ROWS}
rows. Say in your final answer what you found."""
_SKILL_ONLY = """\
You know how to work with the public datasets of BigQuery from your skill, but you have no tool that runs SQL here. Use
the skill and its files; when a question needs a query, write the query and say that it was not run."""


def instruction(backend: Backend) -> str:
    """What the agent is told: with tools, or with the skill alone (S0-151)."""
    return _SKILL_ONLY if backend.kind is Kind.NONE else _FULL.replace("{project}", backend.project)


def vertex_or_gemini(environment: Mapping[str, str] | None = None) -> Gemini:
    """The model; with ``GOOGLE_CLOUD_API_KEY`` Vertex AI by key, without a project and without credentials (S0-151).

    Args:
        environment: Also ``ADK_SKILLS_MODEL``, its name; the process's own when None.
    """
    given = os.environ if environment is None else environment
    key = given.get(KEY_VARIABLE)
    retry = types.HttpRetryOptions(
        attempts=_TRIES, initial_delay=_FIRST_WAIT, max_delay=_LONGEST_WAIT, exp_base=2, http_status_codes=[429, 503]
    )
    return Gemini(
        model=given.get("ADK_SKILLS_MODEL", MODEL),
        retry_options=retry,
        client_kwargs={"vertexai": True, "api_key": key} if key else None,
    )


def make_agent(environment: Mapping[str, str]) -> LlmAgent:
    """The agent for an environment.

    Raises:
        ConfigError: A variable of the bench is wrong, or asks for what is not here.
    """
    backend = choose(environment)
    if backend.why:
        logging.getLogger(__name__).info("BigQueryBench takes the backend %s: %s", backend.kind, backend.why)
    return LlmAgent(
        name="bigquery",
        model=vertex_or_gemini(environment),
        description=f"Answers questions about public datasets with SQL (backend: {backend.kind}).",
        instruction=instruction(backend),
        tools=[*toolset(backend, environment), SkillToolset.from_dirs([SKILLS])],
    )


root_agent = make_agent(os.environ)
