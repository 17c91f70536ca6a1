"""BigQueryBench's tools over DuckDB: google-adk's names and arguments, and nothing written that may not be (S0-143)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.errors import ConfigError

REPOSITORY = Path(__file__).resolve().parents[3]
NAMES = "`bigquery-public-data.usa_names.usa_1910_2013`"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.syspath_prepend(str(REPOSITORY))


@pytest.fixture
def house(request: pytest.FixtureRequest) -> Iterator[Any]:
    from benchmarks.bigquery.warehouse import Warehouse
    from benchmarks.bigquery.write_mode import WriteMode

    warehouse = Warehouse(WriteMode(getattr(request, "param", "blocked")))
    yield warehouse
    warehouse.close()


def refusal(house: Any, query: str) -> str:
    from benchmarks.bigquery.warehouse import QueryRefused

    with pytest.raises(QueryRefused) as refused:
        house.run(query)
    return str(refused.value)


def test_bigquery_s_way_of_writing_names_strings_and_comments_is_understood(house: Any) -> None:
    from benchmarks.bigquery.dialect import to_duckdb

    assert to_duckdb("SELECT `a.b`.`c` # `x`\n, 'it\\'s', \"a'b\", '`n`' -- y") == (
        "SELECT \"a\".\"b\".\"c\"  \n, 'it''s', 'a''b', '`n`'  "
    )
    for table in (NAMES, "`bigquery-public-data`.`usa_names`.`usa_1910_2013`", NAMES.strip("`")):
        query = f'SELECT COUNT(*) AS n, COUNTIF(state = "TX") AS t, SAFE_DIVIDE(1, 0) AS z FROM {table}'
        assert house.run(query) == ("SELECT", [{"n": 80, "t": 16, "z": None}])


@pytest.mark.requirement("S0-143")
def test_at_most_fifty_rows_come_back_and_a_dry_run_only_checks(house: Any) -> None:
    assert len(house.run(f"SELECT * FROM {NAMES}")[1]) == 50
    assert house.run(f"SELECT * FROM {NAMES}", dry_run=True) == ("SELECT", [])
    assert "nope" in refusal(house, f"SELECT nope FROM {NAMES}")


@pytest.mark.parametrize("house", ["blocked", "protected", "allowed"], indirect=True)
def test_no_mode_reaches_files_variables_or_the_settings_of_the_machine(house: Any) -> None:
    rows = [1]  # a name that DuckDB would find in this very function
    for query in (
        "SELECT * FROM rows",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('*')",
        "COPY (SELECT 1) TO '/tmp/stolen.csv'",
        "ATTACH '/tmp/other.duckdb' AS other",
        "INSTALL httpfs",
        "SET threads = 4",
        "PRAGMA database_list",
        "SELECT * FROM duckdb_settings()",
        "SELECT current_setting('secret_directory')",
        "SELECT * FROM duckdb_databases()",
    ):
        said = refusal(house, query)
        assert str(Path.home()) not in said.replace("/root/etc", "")
        assert "bq-eval-" not in said
    assert rows == [1]


@pytest.mark.requirement("S0-143")
def test_blocked_is_for_one_select_alone(house: Any) -> None:
    for query in (f"DELETE FROM {NAMES}", "CREATE TEMP TABLE t AS SELECT 1 AS a", "SELECT 1; SELECT 2"):
        assert refusal(house, query) == "Read-only mode only supports SELECT statements."
    assert refusal(house, " ") == "The query is empty."


@pytest.mark.parametrize("house", ["protected"], indirect=True)
@pytest.mark.requirement("S0-143")
def test_protected_writes_temporary_tables_and_nothing_else(house: Any) -> None:
    house.run("CREATE TEMP TABLE t AS SELECT 1 AS a")
    house.run("INSERT INTO t VALUES (2)")
    assert house.run("SELECT SUM(a) AS s FROM t")[1] == [{"s": 3}]
    for query in (
        f"DELETE FROM {NAMES}",
        f"DROP TABLE {NAMES}",
        "CREATE TABLE `bigquery-public-data.samples.t` (a INT64)",
    ):
        assert "temporary tables" in refusal(house, query)
    assert "no script" in refusal(house, f"CREATE TEMP TABLE u AS SELECT 1 AS a; DELETE FROM {NAMES}")


@pytest.mark.parametrize("house", ["allowed"], indirect=True)
@pytest.mark.requirement("S0-143")
def test_allowed_writes_tables_of_its_session_only(house: Any) -> None:
    from benchmarks.bigquery.warehouse import Warehouse
    from benchmarks.bigquery.write_mode import WriteMode

    house.run(f"DELETE FROM {NAMES}")
    assert house.rows_of("usa_names", "usa_1910_2013") == 0
    other = Warehouse(WriteMode.ALLOWED)
    assert other.rows_of("usa_names", "usa_1910_2013") == 80
    other.close()


def test_an_endless_query_is_ended(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.bigquery import warehouse

    monkeypatch.setattr(warehouse, "TIMEOUT_SECONDS", 0.2)
    endless = "SELECT SUM(a.range + b.range + c.range) AS s FROM range(100000) a, range(100000) b, range(100000) c"
    assert "took longer" in refusal(house, endless)
    assert house.run("SELECT 1 AS a")[1] == [{"a": 1}]


@pytest.mark.requirement("S0-143", "S0-151")
def test_the_environment_chooses_backend_and_write_mode_and_a_wrong_word_is_said() -> None:
    """S0-143, S0-151."""
    from benchmarks.bigquery.backend import Kind, choose
    from benchmarks.bigquery.write_mode import WriteMode, write_mode

    assert choose({}).kind is Kind.EMBEDDED
    assert choose({}).why == "GOOGLE_CLOUD_PROJECT is not set."
    assert choose({"BQ_EVAL_BACKEND": "none"}).kind is Kind.NONE
    with pytest.raises(ConfigError, match="GOOGLE_CLOUD_PROJECT is not set"):
        choose({"BQ_EVAL_BACKEND": "bigquery"})
    with pytest.raises(ConfigError, match="auto, bigquery, embedded, none"):
        choose({"BQ_EVAL_BACKEND": "duck"})
    assert write_mode({}) is WriteMode.BLOCKED
    assert write_mode({"BQ_EVAL_WRITE_MODE": "protected"}) is WriteMode.PROTECTED
    with pytest.raises(ConfigError, match="blocked, protected, allowed"):
        write_mode({"BQ_EVAL_WRITE_MODE": "yes"})


@pytest.fixture
def agent_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_API_KEY", "BQ_EVAL_BACKEND", "BQ_EVAL_WRITE_MODE"):
        monkeypatch.delenv(name, raising=False)
    from benchmarks.bigquery import agent

    return agent


@pytest.mark.requirement("S0-151")
def test_the_instruction_adapts_and_a_vertex_key_needs_no_project(agent_module: Any) -> None:
    """S0-151."""
    full, alone = agent_module.make_agent({}), agent_module.make_agent({"BQ_EVAL_BACKEND": "none"})
    assert (len(full.tools), len(alone.tools)) == (6, 1)
    assert "run queries in the project bq-eval" in full.instruction
    assert "no tool that runs SQL" in alone.instruction
    model = agent_module.vertex_or_gemini({"GOOGLE_CLOUD_API_KEY": "a-key", "ADK_SKILLS_MODEL": "gemini-3-flash"})
    assert model.model == "gemini-3-flash"
    assert model.api_client.vertexai is True
    assert model.retry_options.attempts == 5
    assert agent_module.vertex_or_gemini({}).client_kwargs is None


@pytest.mark.slow  # google-adk imports all of google-cloud-bigquery
async def test_the_tools_have_google_adk_s_names_and_arguments(agent_module: Any) -> None:
    pytest.importorskip("google.cloud.bigquery")
    from benchmarks.bigquery.backend import TOOLS
    from google.adk.integrations.bigquery import BigQueryToolset

    theirs = {tool.name: tool for tool in await BigQueryToolset(tool_filter=list(TOOLS)).get_tools()}
    ours = {tool.name: tool for tool in agent_module.make_agent({}).tools[:-1]}
    assert list(ours) == list(TOOLS)
    assert set(theirs) == set(TOOLS)
    for name in TOOLS:
        assert arguments(ours[name]) == arguments(theirs[name]), name


@pytest.mark.slow
async def test_with_a_project_and_credentials_google_adk_s_toolset_is_taken(
    agent_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("google.cloud.bigquery")
    from benchmarks.bigquery.backend import TOOLS, Kind, choose

    key = tmp_path / "credentials.json"
    key.write_text(
        '{"type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": "c", '
        '"quota_project_id": "my-project"}'
    )
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    environment = {"GOOGLE_CLOUD_PROJECT": "my-project", "BQ_EVAL_WRITE_MODE": "protected"}
    assert choose(environment).kind is Kind.BIGQUERY
    agent = agent_module.make_agent(environment)
    tools = {tool.name: tool for tool in await agent.tools[0].get_tools()}
    assert set(tools) == set(TOOLS)
    settings = tools["execute_sql"]._tool_settings
    assert (settings.write_mode.value, settings.max_query_result_rows) == ("protected", 50)
    assert settings.compute_project_id == "my-project"
    assert "run queries in the project my-project" in agent.instruction


def arguments(tool: Any) -> tuple[dict[str, str], set[str]]:
    declaration = tool._get_declaration().model_dump(mode="json", exclude_none=True)
    schema = declaration.get("parameters_json_schema") or declaration["parameters"]
    return {name: str(one["type"]).lower() for name, one in schema["properties"].items()}, set(schema["required"])


async def test_what_does_not_exist_is_an_answer_in_bigquery_s_words(agent_module: Any) -> None:
    tools = {tool.name: tool.func for tool in agent_module.make_agent({}).tools[:-1]}
    public = "bigquery-public-data"
    assert "usa_names" in await tools["list_dataset_ids"](public)
    assert await tools["list_table_ids"](public, "samples") == ["shakespeare"]
    info = await tools["get_table_info"](public, "usa_names", "usa_1910_2013")
    assert (info["numRows"], info["schema"]["fields"][4]) == (
        "80", {"name": "number", "type": "INTEGER", "mode": "NULLABLE"},
    )  # fmt: skip
    for answer in (
        await tools["list_dataset_ids"]("other"),
        await tools["get_dataset_info"](public, "nope"),
        await tools["get_table_info"](public, "samples", "nope"),
    ):
        assert answer["status"] == "ERROR"
        assert "404 Not found" in answer["error_details"]


@pytest.mark.requirement("S0-153")
def test_rows_become_a_table_with_header_and_title(tmp_path: Path) -> None:
    """S0-153."""
    import subprocess

    script = REPOSITORY / "benchmarks/bigquery/skills/bq-sql-analyst/scripts/format_results.py"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", script, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)

    made = run("--header=name,total", '--rows=[["Ma|ry", 1200], ["John", null]]', "--title=Names")
    assert made.stdout.splitlines() == [
        "**Names**", "", "| name | total |", "|---|---:|", "| Ma\\|ry | 1,200 |", "| John |  |", "", "2 rows",
    ]  # fmt: skip
    assert "| 0.5 |" in run('--rows=[{"share": 0.5}]').stdout
    assert "Row 1 has 1 cells, the header 2." in run("--header=a,b", "--rows=[[1]]").stderr
