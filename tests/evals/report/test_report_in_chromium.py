"""The report in a browser: opened from disk, clicked through, on a desk and on a phone. Slow: starts Chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from adk_skills_agent.evals.report.page import build_report
from evals.report.result_rows import HOSTILE, a_benchmark, a_comparison, a_row, a_run, compared, mixed_rows

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium is not None, "no chromium: apt-get install chromium (make test-slow does it as root)"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@contextmanager
def opened(browser: Browser, path: Path, *, at: str = "", **options: Any) -> Iterator[Page]:
    """A page that was ready without an error, a word on the console, a dialog, or a request to anything else."""
    options.setdefault("viewport", DESK)
    page = browser.new_page(**options)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: said.append(request.url) if path.name not in request.url else None)
    page.goto(path.as_uri() + at)
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    try:
        yield page
        assert said == []
    finally:
        page.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    rows = [*mixed_rows(4, 3), a_row("sky", passed=None, error={"kind": "judge", "message": "The judge is away: 503."})]
    rows[0]["trace"]["turns"].append({"user_text": "And now?", "calls": [], "final_text": HOSTILE, "error": ""})
    rows[0]["verdicts"][0]["rationale"] = HOSTILE
    rows[1]["trace"]["turns"][0]["final_text"] = "x" * 60_000
    before = a_run(folder / "run-1", mixed_rows(5, 3, better=-0.25), benchmark=a_benchmark())
    now = a_run(folder / "run-2", rows, benchmark=a_benchmark())
    names = ("case-000-sales", "case-001-costs", "case-002-orders", "case-003-sales")
    won = ("with_skill", "", "without_skill", None)
    said = [a_comparison(case, run, arm) for case, arm in zip(names, won, strict=True) for run in (1, 2, 3)]
    compared(now, [*said[1:], a_comparison(names[0], 1, "with_skill", reasons=f"output B has {HOSTILE}")])
    return build_report(now, baseline=before).path


def test_the_blind_comparison_is_told_by_arm_with_its_reasons(browser: Browser, report: Path) -> None:
    with opened(browser, report, viewport=PHONE) as page:
        page.get_by_role("link", name="Blind").click()
        text = page.inner_text("#blind")
        assert "with_skill with without_skill: 3 won, 3 tied, 3 lost; preference 0% [-100%, +100%] over 3 cases" in text
        assert "in 3 of 27 samples it preferred a place, which is a tie" in text.lower()
        assert "No verdict for case-003-sales run 3: The judge is away: 503." in text
        page.locator("#blind summary", has_text="Reasons").last.click()
        shown = page.locator("#blind tr", has_text="case-000-sales")
        assert "Run 1: with_skill." in shown.inner_text()
        assert "onerror=" in shown.inner_text()
        page.locator("#blind summary", has_text="Scores").click()
        assert "polish\t3.0\t3.0" in page.inner_text("#blind")
        assert page.locator("#blind img, #blind li b").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_a_trial_is_found_and_its_trace_read(browser: Browser, report: Path) -> None:
    with opened(browser, report) as page:
        assert "34 trials" in page.inner_text("#count")
        page.select_option("#result", label="not measured")
        assert page.locator("#list button").count() == 1
        page.locator("#list button").click()
        page.get_by_text("judge error: The judge is away: 503.").wait_for()
        page.select_option("#result", label="failed")
        page.select_option("#case", label="case-001-costs")
        page.select_option("#arm", label="with_skill")
        page.locator("#list button").first.click()
        page.locator("#trial h3", has_text="case-001-costs").wait_for()
        trial = page.inner_text("#trial")
        for part in ("✗ failed", "instruction adherence", "0.75 needed", "does not hold", "67% of 3 samples agree",
                     "Judge: The answer says South.", "Summarise the sales of case-001-costs.", "run_skill_script",
                     'No column "Region".', "South leads", "report.md"):  # fmt: skip
            assert part in trial, part
        assert "Run the script, then answer." not in trial  # instructions are folded away
        page.get_by_role("button", name="Open all").click()
        assert "Run the script, then answer." in page.inner_text("#trial")
        page.get_by_role("button", name="Close all").click()
        assert 'No column "Region".' not in page.inner_text("#trial")


def test_a_cell_of_the_table_leads_to_its_trials_and_the_baseline_has_its_own(browser: Browser, report: Path) -> None:
    with opened(browser, report) as page:
        page.locator("button[data-case='case-002-orders'][data-arm='without_skill']").click()
        page.locator("#trial h3", has_text="case-002-orders").wait_for()
        assert page.locator("#list button").count() == 3
        page.get_by_role("button", name="Next").click()
        page.locator("#trial .badge", has_text="run 2").wait_for()
        page.get_by_role("button", name="Same in the baseline").click()
        page.locator("#trial .badge", has_text=re.compile("^baseline$")).wait_for()
        assert page.input_value("#of") == "1"
        address = page.url
        page.go_back()
        page.locator("#trial .badge", has_text=re.compile("^baseline$")).wait_for(state="detached")
    with opened(browser, report, at="#" + address.split("#")[1]) as page:
        page.locator("#trial .badge", has_text=re.compile("^baseline$")).wait_for()


def test_the_page_works_with_the_keyboard_alone(browser: Browser, report: Path) -> None:
    with opened(browser, report) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "To the trials"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "of"
        for expected in ("case", "arm", "result"):
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.id") == expected
        page.keyboard.press("Tab")
        for key in ("ArrowDown", "ArrowDown", "End", "Home", "ArrowDown"):
            page.keyboard.press(key)
        chosen = page.evaluate("document.activeElement.dataset.hash")
        page.keyboard.press("Enter")
        page.wait_for_function("hash => document.getElementById('trial').dataset.hash === hash", arg=chosen)
        assert page.evaluate("document.activeElement.id") == "trial"
        page.keyboard.press("Escape")
        focused = page.evaluate("[document.activeElement.tagName, document.activeElement.dataset.hash]")
        assert focused == ["BUTTON", chosen]


def test_what_an_agent_wrote_stays_text_and_what_was_cut_is_marked(browser: Browser, report: Path) -> None:
    with opened(browser, report, at="#trial/0/case-000-sales/with_skill/1") as page:
        page.locator("#trial").get_by_text("onerror").first.wait_for()
        assert HOSTILE in page.locator("#trial .agent").last.text_content()
        assert page.locator("#trial img, #trial b b").count() == 0
        assert page.title() == "Evaluation of csv-report"
    with opened(browser, report, at="#trial/0/case-000-sales/without_skill/1") as page:
        page.get_by_text("10,000 characters are left out here; whole in trials.jsonl, line 2").wait_for()
        assert "1 texts longer than 50,000 characters are shortened (10,000 characters)" in page.inner_text("aside")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_phone_shows_the_whole_page_without_scrolling_sideways(browser: Browser, report: Path, colours: str) -> None:
    with opened(browser, report, viewport=PHONE, color_scheme=colours, has_touch=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        page.locator("#list button").nth(4).tap()
        page.get_by_role("button", name="To the list").wait_for()
        page.get_by_role("button", name="Open all").tap()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert page.evaluate("document.getElementById('trial').getBoundingClientRect().top") < PHONE["height"]
        page.get_by_role("button", name="To the list").tap()
        assert page.locator("#list button").nth(4).is_visible()
        brightness = page.evaluate("getComputedStyle(document.querySelector('nav')).backgroundColor.match(/\\d+/)[0]")
        assert (int(brightness) > 128) == (colours == "light")


def test_the_report_of_a_real_run_shows_what_the_skills_script_said(browser: Browser, tmp_path: Path) -> None:
    """From ``adk-skills eval`` with a model of rules to the page, offline."""
    model = f"scripted:{EXAMPLES / 'evals' / 'model.yaml'}"
    subprocess.run(
        [Path(sys.executable).parent / "adk-skills", "eval", EXAMPLES / "evals" / "csv-report.yaml",
         "--dir", EXAMPLES / "skills", "--runs", "1", "--model", model, "--judge", model, "--out", tmp_path / "run"],
        check=True, capture_output=True, cwd=tmp_path, timeout=300,
    )  # fmt: skip
    with opened(browser, tmp_path / "run" / "report.html") as page:
        lift = page.inner_text("#lift")
        assert "+100% (no interval: " in lift
        assert "the mean of 2 cases" in lift
        assert "Precision 100%, recall 100%" in page.inner_text("#trigger")
        page.locator("button[data-case='sales-by-region'][data-arm='with_skill']").click()
        page.locator("#trial h3", has_text="sales-by-region").wait_for()
        assert '"ranked_by": "revenue"' in page.locator("#trial .call", has_text="run_skill_script").inner_text()
        assert "holds · rubric-1" in page.inner_text("#trial")
        assert page.locator("#trial .turn").count() == 1


def test_a_thousand_trials_are_small_and_there_at_once(browser: Browser, tmp_path: Path) -> None:
    """Issue 6: < 5 MB, and usable at once; the time is printed (and in docs/reference/measurements.md)."""
    made = build_report(a_run(tmp_path, mixed_rows(50, 10, size=6_000), benchmark=a_benchmark()))
    assert made.size < 5_000_000
    assert len(made.run.results) >= 1_000
    assert made.data.without_trace == 0
    with opened(browser, made.path) as page:
        ready = int(page.get_attribute("html", "data-ready") or 0)
        spent = page.evaluate(
            """async () => {
              const button = document.querySelectorAll("#list button")[60], start = performance.now();
              button.click();
              while (document.getElementById("trial").dataset.hash !== button.dataset.hash) {
                await new Promise((done) => setTimeout(done, 1));
              }
              return performance.now() - start;
            }"""
        )
        print(f"{made.size:,} bytes; usable after {ready} ms, a trial opens in {spent:.0f} ms")
        # Bounds that only catch a page that hangs: this machine runs other things too.
        assert ready < 10_000
        assert spent < 5_000
        page.get_by_role("button", name="Show 100 more of").click()
        assert page.locator("#list button").count() == 201
        assert page.evaluate("[...document.getElementById('list').children].indexOf(document.activeElement)") == 100
