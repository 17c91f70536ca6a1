"""The data side of the report: what is read from a run, what is in the page, and what it says of what is not."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import random
import re
import tracemalloc
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals import row_file
from adk_skills_agent.evals.judge_model import JudgeCache
from adk_skills_agent.evals.report import run_folder, write_report
from adk_skills_agent.evals.report.comparison import compare
from adk_skills_agent.evals.report.embedding import RepeatedTexts, TextTable, embed
from adk_skills_agent.evals.report.page import build_report
from adk_skills_agent.evals.report.run_folder import read_run
from evals.report.result_rows import HOSTILE, a_benchmark, a_row, a_run, mixed_rows


def blocks(html: str) -> dict[str, Any]:
    """The data blocks of a page, unpacked as its script does."""
    found = re.findall(r'<script type="text/plain" id="data-([\w-]+)">([^<]*)</script>', html)
    return {name: json.loads(gzip.decompress(base64.b64decode(data))) for name, data in found}


def details(html: str) -> dict[tuple[int, str, str, int], Any]:
    """What the viewer has of each trial; None where the trace had no room."""
    data = blocks(html)
    return {
        (of, case, arm, run): None if part < 0 else data[f"part-{part}"][at]
        for of, case, arm, run, *_, part, at in data["index"]["trials"]
    }


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text outside of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data


def test_every_trial_of_a_run_is_in_the_page_with_its_whole_trace(tmp_path: Path) -> None:
    rows = list(mixed_rows(3, 2))
    page = write_report(a_run(tmp_path, rows, benchmark=a_benchmark()))
    assert page == tmp_path / "report.html"
    html = page.read_text()
    shared = blocks(html)["shared"]
    found = details(html)
    assert len(found) == len(rows) == 18
    for row in rows:
        shown = found[0, row["case"], row["arm"], row["run"]]
        turn, original = shown["turns"][0], row["trace"]["turns"][0]
        assert turn["user"] == original["user_text"]
        assert len(turn["calls"]) == len(original["calls"])
        for call, made in zip(turn["calls"], original["calls"], strict=True):
            answer = {key: shared[text] if isinstance(text, int) else text for key, text in call["response"]}
            assert answer == {
                key: value if isinstance(value, str) else json.dumps(value) for key, value in made["response"].items()
            }
        assert [score["value"] for score in shown["scores"]] == [score["value"] for score in row["scores"]]
        assert [one["rationale"] for one in shown["verdicts"]] == [one["rationale"] for one in row["verdicts"]]


def test_script_output_comes_before_the_rest_of_a_tools_answer(tmp_path: Path) -> None:
    row = a_row(passed=False)
    row["trace"]["turns"][0]["calls"][1]["response"] = {
        "skill_name": "x",
        "stderr": "e",
        "stdout": "o",
        "status": "error",
    }
    html = write_report(a_run(tmp_path, [row])).read_text()
    call = details(html)[0, "totals", "with_skill", 1]["turns"][0]["calls"][1]
    assert [key for key, _ in call["response"]] == ["status", "stdout", "stderr", "skill_name"]
    assert call["failed"] is True
    assert call["about"] == "csv-report scripts/report.py"


def test_of_two_rows_of_a_trial_the_last_counts_and_a_torn_row_is_named(tmp_path: Path) -> None:
    a_run(tmp_path, [a_row(passed=None, error={"kind": "model", "message": "503"}), a_row(passed=True)])
    with (tmp_path / "trials.jsonl").open("a") as file:
        file.write('{"schema": 1, "case": "to')
    run = read_run(tmp_path)
    assert [result.passed for result in run.results.values()] == [True]
    assert any("line 3" in note and "left out" in note for note in run.notes)
    assert any("1 rows were run again" in note for note in run.notes)
    assert any("no benchmark.json" in note for note in run.notes)
    text = Elements(write_report(tmp_path).read_text()).text
    for note in run.notes:
        assert note in text


@pytest.mark.parametrize("line", ["[]", "{", '{"schema": 2}', '{"schema": 1, "case": "x"}', "null"])
def test_a_row_that_is_none_is_named_with_file_and_line(tmp_path: Path, line: str) -> None:
    a_run(tmp_path, [a_row()])
    with (tmp_path / "trials.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ConfigError, match=r"trials\.jsonl:2: .*no row of results"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("content", ["{", '{"adk_skills": {"cases": [{}]}}', '{"adk_skills": {"skipped": [1]}}'])
def test_a_benchmark_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    a_run(tmp_path, [a_row()])
    (tmp_path / "benchmark.json").write_text(content)
    with pytest.raises(ConfigError, match=r"benchmark\.json .*Remove it"):
        write_report(tmp_path)


def test_a_trace_that_is_none_is_named_with_file_and_line(tmp_path: Path) -> None:
    a_run(tmp_path, [a_row(), a_row(run=2, trace={"turns": [{"calls": [{}]}]})])
    with pytest.raises(ConfigError, match=r"trials\.jsonl:2: .*not a trace"):
        write_report(tmp_path)


def test_row_201_results_that_are_a_device_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "trials.jsonl").symlink_to("/dev/null")
    with pytest.raises(ConfigError, match="no regular file"):
        build_report(tmp_path)


def test_a_folder_without_results_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--out folder of adk-skills eval"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no results yet"):
        write_report(a_run(tmp_path / "empty", []))
    run = a_run(tmp_path / "run", [a_row()])
    with pytest.raises(ConfigError, match="is the run itself"):
        write_report(run, baseline=run)


def test_a_long_text_is_cut_where_the_page_says_so_and_kept_at_both_ends() -> None:
    text = "".join(random.Random(1).choices("abc\n", k=1_000))
    table = TextTable(RepeatedTexts(), 90)
    start, left, end = table.text(text)  # type: ignore[misc]
    assert text.startswith(start)
    assert text.endswith(end)
    assert (len(start), len(end), left) == (60, 30, 910)
    assert (table.clipped, table.left_out) == (1, 910)
    assert table.text("x" * 90) == "x" * 90


def test_instructions_that_come_back_in_every_trial_are_in_the_page_once(tmp_path: Path) -> None:
    instructions = "# A skill\n" + "".join(random.Random(2).choices("abcdefgh \n", k=20_000))
    rows = [a_row(run=run, instructions=instructions) for run in range(1, 101)]
    report = build_report(a_run(tmp_path, rows))
    data = blocks(report.path.read_text())
    assert data["shared"].count(instructions) == 1
    assert report.size < 100_000
    assert report.data.notes == []


def test_what_has_no_room_is_shortened_and_said(tmp_path: Path) -> None:
    rows = [a_row(run=run, stdout="".join(random.Random(run).choices("abcdefghij", k=30_000))) for run in range(1, 41)]
    run = read_run(a_run(tmp_path, rows))
    data = embed([run], budget=150_000)
    assert len(data.html) < 150_000 * 1.5
    assert data.clipped == 40
    assert data.without_trace == 0
    assert f"longer than {data.limit:,} characters" in data.notes[0]
    cut = [
        dict(shown["turns"][0]["calls"][1]["response"])["stdout"]
        for shown in details(data.html).values()
    ]  # fmt: skip
    assert all(len(start) + left + len(end) == 30_000 for start, left, end in cut)
    assert sum(left for _, left, _ in cut) == data.left_out


def test_traces_that_have_no_room_at_all_are_named_and_failed_trials_stay(tmp_path: Path) -> None:
    rows = [
        a_row(f"case-{number}", passed=number % 10 != 0, answer="".join(random.Random(number).choices("abcdef", k=350)),
              stdout="".join(random.Random(-number).choices("abcdef", k=350)))
        for number in range(400)
    ]  # fmt: skip
    run = read_run(a_run(tmp_path, rows))
    data = embed([run], budget=60_000)
    found = details(data.html)
    assert len(found) == 400
    missing = [key for key, shown in found.items() if shown is None]
    assert len(missing) == data.without_trace > 0
    assert not any(run.results[key[1:]].passed is False for key in missing)
    assert f"{data.without_trace:,} trials had no room" in data.notes[-1]


def test_nothing_that_an_agent_or_a_judge_wrote_becomes_part_of_the_page(tmp_path: Path) -> None:
    row = a_row(HOSTILE, f"arm {HOSTILE}", answer=HOSTILE, stdout=HOSTILE, rationale=HOSTILE, loaded=(HOSTILE,),
                passed=False, error={"kind": "agent", "message": HOSTILE}, skills=[HOSTILE])  # fmt: skip
    row["trace"]["output_files"] = {HOSTILE: {"size": 4, "text": HOSTILE}}
    query = a_row("query", f"arm {HOSTILE}", expected_trigger=True, loaded=(HOSTILE,), skills=[HOSTILE], passed=True)
    old = a_run(tmp_path / "old", [row, a_row(HOSTILE + "2")], benchmark=a_benchmark())
    skipped = [{"message": HOSTILE, "file": f"/{HOSTILE}", "line": 1}]
    now = a_run(tmp_path / "now", [row, query], benchmark=a_benchmark(skipped=skipped))
    html = write_report(now, baseline=old).read_text()
    page = Elements(html)
    scripts = [attributes.get("id") for tag, attributes in page.found if tag == "script"]
    assert scripts[-1] is None
    assert all(re.fullmatch(r"data-[\w-]+", name or "") for name in scripts[:-1])
    assert not {"img", "b onerror", "iframe", "link", "object", "form", "base"} & {tag for tag, _ in page.found}
    assert not [name for _, attributes in page.found for name in attributes if name.startswith("on") or name == "style"]
    assert "\u202e" not in html
    assert unescape("&lt;/script&gt;") in page.text
    assert details(html)[0, HOSTILE, f"arm {HOSTILE}", 1]["turns"][0]["final"] == HOSTILE


def test_the_pages_policy_allows_its_own_script_and_style_only(tmp_path: Path) -> None:
    html = write_report(a_run(tmp_path, [a_row()])).read_text()
    policy = dict(Elements(html).found[[tag for tag, _ in Elements(html).found].index("meta") + 1][1])["content"] or ""
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for name in ("script", "style"):
        code = re.findall(rf"<{name}>(.*?)</{name}>", html, re.DOTALL)
        assert len(code) == 1
        digest = base64.b64encode(hashlib.sha256(code[0].encode()).digest()).decode()
        assert rules[f"{name}-src"] == f"'sha256-{digest}'"
    assert not re.search(r"(src|href)=\"(?!#)|url\(|@import|https?://", html)


def test_the_figures_of_the_page_are_those_of_the_run(tmp_path: Path) -> None:
    rows = [a_row("a", run=run, passed=run != 3) for run in (1, 2, 3, 4)]
    rows += [a_row("a", "without_skill", run, passed=run == 1, loaded=()) for run in (1, 2, 3, 4)]
    rows += [a_row("b", run=run, passed=False) for run in (1, 2)]
    rows += [a_row("b", "without_skill", run, passed=True, loaded=()) for run in (1, 2)]
    rows += [
        a_row("q", run=1, expected_trigger=True),
        a_row("q", run=2, passed=False, expected_trigger=True, loaded=("x",)),
    ]
    report = build_report(a_run(tmp_path, rows, benchmark=a_benchmark()))
    lift = report.run.summary.lifts()[0]
    assert lift["mean"] == pytest.approx((0.5 - 1.0) / 2)
    page = Elements(report.path.read_text())
    labels = [attributes["aria-label"] for tag, attributes in page.found if tag == "svg" and "aria-label" in attributes]
    assert any((label or "").startswith("a: +50% [") for label in labels)
    assert "b: -100%" in labels  # both runs of each arm ended alike: an interval would have no width
    assert (
        "Compared with without_skill, with_skill helps in 1 of 2 cases and hurts in 1; too few to be sure: p = 1.00."
        in page.text
    )
    assert "-25%" in page.text
    assert "Precision 50%, recall 50%: 1 hits, 1 misses, 1 false alarms." in page.text
    cells = [attributes for tag, attributes in page.found if tag == "td" and "heat" in (attributes.get("class") or "")]
    assert [cell["class"] for cell in cells] == [
        "heat3 right", "heat3 wrong", "heat0", "heat0", "heat0", "heat0", "heat0", "heat0", "heat0",
    ]  # fmt: skip


def test_two_runs_are_compared_case_by_case_and_arm_by_arm(tmp_path: Path) -> None:
    before = [a_row("a", run=run, passed=False, tokens=4_000) for run in (1, 2, 3)]
    before += [a_row("gone")]
    now = [a_row("a", run=run, passed=run > 1, tokens=6_000, seconds=3.0) for run in (1, 2, 3)]
    now += [a_row("new"), a_row("down", passed=None, error={"kind": "model", "message": "503"})]
    report = build_report(a_run(tmp_path / "now", now), baseline=a_run(tmp_path / "old", before))
    comparison = compare(read_run(tmp_path / "now").summary, read_run(tmp_path / "old").summary)
    assert report.comparison == comparison
    (change,) = comparison.changes
    assert (change.case, change.before, change.after) == ("a", 0.0, pytest.approx(2 / 3))
    assert change.low is not None
    assert change.high is not None
    assert change.low <= 2 / 3 <= change.high
    assert change.tokens == (4_000, 6_000)
    assert change.seconds == (1.5, 3.0)
    assert comparison.arms["with_skill"].better == 1
    assert comparison.only_now == ("new (with_skill)",)
    assert comparison.only_before == ("gone (with_skill)",)
    html = report.path.read_text()
    assert "0% → 67%" in Elements(html).text
    assert {key[0] for key in details(html)} == {0, 1}


def test_a_run_of_one_arm_says_that_there_is_nothing_to_compare(tmp_path: Path) -> None:
    text = Elements(write_report(a_run(tmp_path, [a_row()])).read_text()).text
    assert "There is nothing to compare" in text
    assert "Compared with the baseline" not in text


def test_many_cases_fold_but_none_is_left_out(tmp_path: Path) -> None:
    rows = [a_row(f"case-{number:02}", arm) for number in range(45) for arm in ("with_skill", "without_skill")]
    page = Elements(write_report(a_run(tmp_path, rows)).read_text())
    labels = [attributes.get("aria-label") or "" for tag, attributes in page.found if tag == "svg"]
    assert sum(bool(re.match(r"case-\d\d: ", label)) for label in labels) == 45
    assert "15 more" in page.text


@pytest.mark.parametrize("name", ["trials.jsonl", "benchmark.json", "comparisons.jsonl", "judge-cache.jsonl"])
def test_row_230_a_file_of_results_without_a_line_end_does_not_fill_the_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: adk-skills report reads all of a sparse file of a stranger's folder of results."""
    monkeypatch.setattr(row_file, "MAX_ROW_BYTES", 1 << 20, raising=False)
    monkeypatch.setattr(run_folder, "_MAX_BENCHMARK_BYTES", 1 << 20, raising=False)
    run = a_run(tmp_path / "run", [a_row()])
    with (run / name).open("wb") as file:
        file.truncate(100 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match=r"has over|more than"):
            JudgeCache(run / name) if "judge" in name else read_run(run)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["trials.jsonl", "comparisons.jsonl"])
def test_row_230_the_values_of_a_row_are_counted_before_there_is_an_object_for_each(name: str, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [a_row()])
    (run / name).write_bytes(b'{"trace": [' + b"[]," * 2_000_000 + b"[]]}\n")
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="more than 2,000,000 values"):
            read_run(run)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
