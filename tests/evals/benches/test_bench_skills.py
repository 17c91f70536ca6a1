"""The eight skills of ``benchmarks/skills`` are valid, and their scripts compute what they say (S0-140)."""

from __future__ import annotations

import http.server
import json
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.format import validate_skill

BENCH = Path(__file__).resolve().parents[3] / "benchmarks" / "skills"
DATA = BENCH / "evals" / "data"
NAMES = [
    "csv-aggregation",
    "function-scaffold",
    "html-extraction",
    "json-transform",
    "log-parsing",
    "regex-replace",
    "rest-client",
    "statistical-calc",
]


def run(script: str, *arguments: str, cwd: Path, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    command = [sys.executable, "-S", BENCH / script, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, timeout=60, check=False, env={**os.environ, **(env or {})}
    )
    return done.returncode, done.stdout, done.stderr


def figures(script: str, *arguments: str, cwd: Path) -> Any:
    code, out, err = run(script, *arguments, cwd=cwd)
    assert code == 0, err
    return json.loads(out)


@pytest.mark.requirement("S0-140")
def test_all_eight_skills_are_valid_and_have_scripts_and_references() -> None:
    folders = sorted(path.parent.name for path in BENCH.glob("*/SKILL.md"))
    assert folders == NAMES
    for name in NAMES:
        result = validate_skill(BENCH / name)
        assert not result.errors, name
        assert not result.lints, name
        text = (BENCH / name / "SKILL.md").read_text()
        for kind in ("scripts", "references"):
            files = [path.name for path in (BENCH / name / kind).iterdir() if path.is_file()]
            assert files
            assert all(f"{kind}/{file}" in text for file in files), name


def test_a_table_is_aggregated_with_exact_numbers_and_what_is_no_number_is_listed(tmp_path: Path) -> None:
    found = figures(
        "csv-aggregation/scripts/aggregate.py", f"--input={DATA / 'orders.csv'}", "--group-by=region", "--sum=amount",
        "--mean=amount", "--where=status=paid", "--output=totals.csv", cwd=tmp_path,
    )  # fmt: skip
    assert [(one["region"], one["sum_amount"]) for one in found["groups"]] == [
        ("North", 1600.5), ("South", 750), ("West", 75.25),
    ]  # fmt: skip
    assert found["skipped"] == [{"line": 7, "column": "amount", "cell": "n/a"}]
    assert (tmp_path / "totals.csv").read_text().splitlines()[1] == "North,2,1600.5,800.25"
    tenths = "v\n" + "0.1\n" * 10
    assert figures("csv-aggregation/scripts/aggregate.py", "--text", tenths, "--sum=v", cwd=tmp_path)["groups"] == [
        {"rows": 10, "sum_v": 1}
    ]


def test_json_is_picked_filtered_and_sorted(tmp_path: Path) -> None:
    text = '{"a": [{"n": {"x": 2}, "k": "b"}, {"n": {"x": 10}, "k": "a"}, {"n": {}, "k": "c"}, {"n": {"x": "9"}}]}'
    script = "json-transform/scripts/transform.py"
    found = figures(
        script, "--text", text, "--each=a", "--where=n.x>=2", "--select=key=k,n.x", "--sort=-x", cwd=tmp_path
    )
    assert found == [{"key": "a", "x": 10}, {"key": "b", "x": 2}]
    code, out, _ = run(script, "--text", text, "--each=a", "--to=csv", "--flatten", cwd=tmp_path)
    assert (code, out.splitlines()[:2]) == (0, ["n.x,k,n", "2,b,"])
    code, _, err = run(script, "--text", text, "--select=missing,k", cwd=tmp_path)
    assert "2 values were not there" in err


def test_tables_are_read_as_a_browser_lays_them_out(tmp_path: Path) -> None:
    script = "html-extraction/scripts/extract.py"
    tables = figures(script, f"--input={DATA / 'prices.html'}", "--table=2", "--csv=teas.csv", cwd=tmp_path)
    assert tables == [
        {
            "caption": "Teas",
            "columns": ["Tea", "Size", "Price"],
            "rows": [["Assam", "100 g", "5.20"], ["Assam", "250 g", "11.90"], ["Sencha", "100 g", "7.40"]],
        }
    ]
    assert (tmp_path / "teas.csv").read_text().count("\n") == 4
    assert figures(script, f"--input={DATA / 'prices.html'}", "--what=text", cwd=tmp_path)[0] == "Home"
    hostile = "<table>" * 300 + "<td colspan=999999999 rowspan=0>x" + "<p hidden>no<script>no</p>"
    assert len(figures(script, "--text", hostile, cwd=tmp_path)) == 300


def test_dates_are_rewritten_and_a_wrong_count_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a 31/12/2025\nb 01/02/2026\n")
    script = "regex-replace/scripts/replace.py"
    options = ["--input=notes.txt", r"--pattern=\b(\d{2})/(\d{2})/(\d{4})\b", r"--replacement=\3-\2-\1"]
    code, _, err = run(script, *options, "--expect=3", "--output=notes.txt", cwd=tmp_path)
    assert (code, "matches 2 times" in err) == (2, True)
    found = figures(script, *options, "--expect=2", "--output=notes.txt", cwd=tmp_path)
    assert found["changes"][1] == {"line": 2, "before": "01/02/2026", "after": "2026-02-01"}
    assert (tmp_path / "notes.txt").read_text() == "a 2025-12-31\nb 2026-02-01\n"
    assert run(script, "--text=x", "--pattern=(", "--replacement=", cwd=tmp_path)[0] == 2


def test_a_scaffold_compiles_and_its_tests_fail_until_the_function_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    script = "function-scaffold/scripts/scaffold.py"
    options = ["--signature=def half(n: int) -> float", "--example=half(3) == 1.5", "--raises=half('') TypeError"]
    found = figures(script, *options, "--summary=Halve a number.", cwd=tmp_path)
    assert found == {
        "function": "half",
        "parameters": [{"name": "n", "type": "int", "default": None}],
        "returns": "float",
        "files": ["half.py", "test_half.py"],
        "tests": 2,
        "missing": [],
    }
    with pytest.raises(NotImplementedError):
        runpy.run_path(str(tmp_path / "test_half.py"))["test_example_1"]()
    del sys.modules["half"]
    module = (tmp_path / "half.py").read_text()
    (tmp_path / "half.py").write_text(module.replace("raise NotImplementedError", "return n / 2"))
    tests = runpy.run_path(str(tmp_path / "test_half.py"))
    tests["test_example_1"]()
    tests["test_error_1"]()
    del sys.modules["half"]
    assert run(script, *options, cwd=tmp_path)[0] == 2  # nothing is overwritten


def test_statistics_are_those_of_the_definitions(tmp_path: Path) -> None:
    script = "statistical-calc/scripts/stats.py"
    found = figures(script, "--values=12, 15, 11, 14, 13, 95", cwd=tmp_path)
    assert (found["mean"], found["median"], found["stdev"], found["outliers"]) == (26.6667, 13.5, 33.5062, [95])
    assert found["quartiles"] == [12.25, 13.5, 14.75]
    relation = figures(script, "--values=1 2 3 4", "--against=2 4 6 8", cwd=tmp_path)["relation"]
    assert relation == {"correlation": 1, "slope": 2, "intercept": 0, "r_squared": 1}
    assert run(script, "--values=1 nan", cwd=tmp_path)[0] == 2


def test_a_log_of_three_formats_is_summarised(tmp_path: Path) -> None:
    script = "log-parsing/scripts/parse_log.py"
    found = figures(script, f"--input={DATA / 'access.log'}", "--status=5xx", cwd=tmp_path)
    assert (found["matched"], found["top"][0]["message"], found["top"][0]["count"]) == (3, "GET /report 502", 2)
    mixed = (
        "2025-03-01 10:00:00,1 [WARN] a 1\n  more\n"
        '{"ts": "2025-03-01T12:00:00+01:00", "level": "fatal", "msg": "b"}\n?\n'
    )
    found = figures(script, "--text", mixed, cwd=tmp_path)
    assert (found["levels"], found["unparsed"], found["continued"]) == ({"WARNING": 1, "CRITICAL": 1}, 1, 1)
    assert found["last"] == "2025-03-01T12:00:00+01:00"


@pytest.fixture
def api() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    seen: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append({"path": self.path, "auth": self.headers.get("Authorization"), "body": body.decode()})
            busy = self.path.startswith("/busy") and len(seen) == 1
            data = b'{"ok": true}'
            self.send_response(429 if busy else 302 if self.path == "/moved" else 200)
            self.send_header("Retry-After" if busy else "Location", "0" if busy else "http://127.0.0.1:9/")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    thread.join()
    server.server_close()


def test_requests_are_built_shown_without_their_token_and_sent(
    api: tuple[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    base, seen = api
    script, env = "rest-client/scripts/request.py", {"TOKEN": "s3cr3t-token", "no_proxy": "*"}
    post = ["--method=POST", f"--url={base}/v1/users", "--query=a b=c&d", '--json={"n": 1}', "--bearer-env=TOKEN"]
    code, out, err = run(script, *post, "--dry-run", cwd=tmp_path, env=env)
    assert (code, seen) == (0, []), err
    assert "s3cr3t" not in out
    assert json.loads(out)["request"]["url"] == f"{base}/v1/users?a+b=c%26d"
    code, out, err = run(script, *post, cwd=tmp_path, env=env)
    assert (code, json.loads(out)["body"]) == (0, {"ok": True}), err
    assert (seen[0]["auth"], seen[0]["body"]) == ("Bearer s3cr3t-token", '{"n": 1}')
    seen.clear()
    assert json.loads(run(script, f"--url={base}/busy", cwd=tmp_path, env=env)[1])["tries"] == 2
    seen.clear()
    assert json.loads(run(script, "--method=POST", f"--url={base}/busy", cwd=tmp_path, env=env)[1])["status"] == 429
    assert json.loads(run(script, f"--url={base}/moved", cwd=tmp_path, env=env)[1])["status"] == 302  # not followed
    code, _, err = run(script, "--url=http://127.0.0.1:9/", cwd=tmp_path, env=env)
    assert (code, "cannot be reached" in err) == (2, True)


def test_a_saved_response_is_explained(tmp_path: Path) -> None:
    text = (
        "HTTP/1.1 503 Busy\r\nRetry-After: Sat, 01 Mar 2025 10:00:30 GMT\r\nDate: Sat, 01 Mar 2025 10:00:00 GMT\r\n\r\n"
    )
    text += '{"message": "later", "next": "https://x/2"}'
    found = figures("rest-client/scripts/explain.py", "--text", text, cwd=tmp_path)
    assert (found["outcome"], found["try_again"], found["retry_after_seconds"]) == ("unavailable", True, 30.0)
    assert (found["error"], found["next"]) == ("later", "https://x/2")


def test_without_a_key_the_agent_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen: ``adk eval benchmarks/skills`` failed every case and said nothing of a key."""
    for name in ("ADK_SKILLS_MODEL", "GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)
    file = BENCH / "agent.py"
    runpy.run_path(str(file))
    assert "no key for Gemini is set" in capsys.readouterr().err
    monkeypatch.setenv("GOOGLE_API_KEY", "x")
    runpy.run_path(str(file))
    assert capsys.readouterr().err == ""
