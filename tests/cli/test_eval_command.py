"""``adk-skills eval``, as a person and as CI start it: offline, with a model of rules."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.installation import install_hint

PROGRAM = Path(sys.executable).parent / "adk-skills"
MODEL = """\
rules:
  - when: {user_contains: data, skills: reporter}
    call: {name: load_skill, args: {skill_name: reporter}}
  - when: {user_contains: data, skills: reporter}
    text: "REPORT: North leads."
otherwise: {text: I cannot help.}
"""
CASES = """\
skill: reporter
cases:
  - {id: totals, prompt: Summarise my data., answer_contains: [REPORT]}
  - {id: poem, prompt: Write a poem., should_trigger: false}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    skill = tmp_path / "skills/reporter"
    (skill / "evals").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: reporter\ndescription: Reports on data.\n---\nWrite REPORT.\n")
    (skill / "evals/cases.yaml").write_text(CASES)
    (tmp_path / "model.yaml").write_text(MODEL)
    return tmp_path


@dataclass(frozen=True)
class Done:
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command in this process, which has imported google-adk already."""
    from adk_skills_agent.cli import main

    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def command(*arguments: object, status: int = 0) -> Done:
        monkeypatch.setattr(sys, "argv", ["adk-skills", "eval", *map(str, arguments)])
        code = main._run()
        done = Done(*capfd.readouterr())
        assert code == status, (code, done)
        assert "Traceback" not in done.stderr
        return done

    return command


def start(project: Path, *arguments: object, status: int = 0, **more: Any) -> subprocess.CompletedProcess[str]:
    """The command as a program of its own."""
    done = subprocess.run(
        [PROGRAM, "eval", *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=project, timeout=120, **more,
    )  # fmt: skip
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


SCRIPTED = ("--model", "scripted:model.yaml", "--judge", "none")


@pytest.mark.requirement("S0-156")
def test_a_run_prints_the_table_keeps_the_results_and_says_so_with_its_exit_code(project: Path, run: Run) -> None:
    done = run("skills/reporter", *SCRIPTED, "--out", "out")
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"totals +3/3 +0/3 +- +1\.00 +[\d.]+ s +[\d,]+", lines[1])
    assert "with_skill: pass rate 100.0%" in lines
    assert "without_skill (the baseline): pass rate 0.0%" in lines
    assert "lift of with_skill over without_skill: +100.0% (no interval: only one was measured)" in lines
    said = "Compared with without_skill, with_skill helps in 1 of 1 case; too few to be sure: p = 1.00."
    assert said in lines
    assert "totals without_skill run 1: did not pass (the baseline)" in done.stderr
    assert "failed" not in done.stderr + done.stdout
    assert done.stderr.count("\n") == 9  # a line for each trial, and nothing else
    written = {path.name for path in (project / "out").iterdir()}
    assert {"trials.jsonl", "benchmark.json", "junit.xml", "report.html"} <= written
    again = run("skills/reporter", *SCRIPTED, "--out", "out", status=2)
    assert "has results already" in again.stderr
    resumed = run("skills/reporter", *SCRIPTED, "--out", "out", "--resume", "--json")
    assert resumed.stderr == ""
    assert json.loads(resumed.stdout)["adk_skills"]["pass_rate"]["with_skill"] == 1.0


@pytest.mark.requirement("S0-156")
def test_fail_under_decides_between_0_and_1(project: Path, run: Run) -> None:
    (project / "skills/reporter/evals/cases.yaml").write_text(
        CASES + "  - {id: no, prompt: Sing., answer_contains: [x]}\n"
    )
    arguments = ("skills/reporter", *SCRIPTED, "--runs", 1)
    done = run(*arguments, "--out", "a", status=1)
    assert "the pass rate of with_skill is 66.7%, below 100.0% (--fail-under)" in done.stderr
    run(*arguments, "--out", "b", "--fail-under", 0.6)


def test_results_that_cannot_be_written_are_no_verdict_on_the_skill(project: Path, run: Run) -> None:
    arguments = ("skills/reporter", *SCRIPTED, "--runs", 1, "--filter", "*", "--out", "a")
    done = run(*arguments, "--workspace", "model.yaml", status=2)
    assert "The run cannot go on: model.yaml" in done.stderr
    run(*arguments, "--resume", "--workspace", "w")
    assert list((project / "w").glob("*/with_skill/run-1/grading.json"))
    run(*arguments[:-1], "b", "--budget-usd", 0, status=2)


def test_a_dry_run_checks_everything_and_writes_nothing(project: Path, run: Run) -> None:
    done = run("skills/reporter", "--dry-run")
    assert "2 cases, arms with_skill, without_skill, 3 runs: 9 trials" in done.stdout
    assert {path.name for path in project.iterdir()} == {"skills", "model.yaml"}
    plan = json.loads(run("skills/reporter", "--dry-run", "--json", "--filter", "po*").stdout)
    assert [case["case"] for case in plan["cases"]] == ["poem"]
    assert plan["trials"] == 3


def test_a_conversation_scenario_runs_with_a_model_that_plays_the_user(project: Path, run: Run) -> None:
    scenario = {"starting_prompt": "Hello.", "conversation_plan": "Ask for the data."}
    rubrics = [{"rubric_id": "north", "rubric_content": {"text_property": "The answer names North."}}]
    case = {"eval_id": "talk", "conversation_scenario": scenario, "rubrics": rubrics}
    path = project / "skills/reporter/evals/talk.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "s", "eval_cases": [case]}))
    (project / "user.yaml").write_text(
        "rules:\n  - when: {user_contains: North leads}\n    text: </finished>\notherwise: {text: 'Show the data.'}\n"
    )
    (project / "judge.yaml").write_text("judge: [{conversation_contains: North leads}]\n")
    judge = ("--model", "scripted:model.yaml", "--judge", "scripted:judge.yaml", "--runs", 1)
    done = run("skills/reporter", *judge, "--filter", "talk", "--dry-run", status=2)
    assert "talk.evalset.json:1: error [no-user-model] Case 'talk' has a conversation_scenario" in done.stderr
    assert "--user-model" in done.stderr
    run("skills/reporter", *judge, "--filter", "totals", "--dry-run")
    user = ("--user-model", "scripted:user.yaml", "--fail-under", 0)
    run("skills/reporter", *judge, "--filter", "talk", *user, "--arm", "with_skill", "--budget-usd", 1)
    (row,) = map(json.loads, (project / "adk-skills-eval/trials.jsonl").read_text().splitlines())
    assert [turn["user_text"] for turn in row["trace"]["turns"]] == ["Hello.", "Show the data."]
    assert row["simulated_user"]["ended"] == "stop_signal_detected"


@pytest.mark.parametrize(
    ("arguments", "text", "sentence"),
    [
        (["broken.json"], '[{"query": 1,\n "should_trigger": true}]', "broken.json:1: [0].query: Expected text"),
        (["broken.json"], "{", "broken.json:1: This is not valid JSON"),
        (["broken.json"], '{"skill_name": "reporter",\n"evals": []}', "There are no cases to run in it."),
        (["gone.json"], "", "gone.json: There is no such file or folder."),
        (["skills/reporter", "--filter", "zzz"], "", "There is nothing to run that fits --filter zzz."),
        (["skills/reporter", "--arm", "new"], "", "There is no arm 'new'."),
        (["skills/reporter", "--version", "old"], "", "write NAME=DIR"),
        (["skills/reporter", "--model", "no-such-model"], "", "The model 'no-such-model' cannot be used"),
        (["skills/reporter", "--model", "no-such-model"], "", f"Install it with: {install_hint('litellm')}"),
        (["skills/reporter", "--model", "scripted:gone.yaml"], "", "gone.yaml"),
        (["skills/reporter", "--model", "nowhere:thing"], "", "Write module:attribute."),
        (["skills/reporter", "--model", "module:x", "--budget-usd", "1"], "", "the price of module:x is not known"),
        (["skills/reporter", "--trial-cpus", "1"], "", "--trial-cpus says what a trial takes of a cluster's node. Add"),
        (["skills/reporter", "--trial-label", "gpu"], "", "--trial-label says what a trial takes"),
        (["skills/reporter", "--price", "cheap"], "", "'cheap' is not a price"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_and_exit_code_2_before_anything_runs(
    project: Path, run: Run, arguments: list[str], text: str, sentence: str
) -> None:
    (project / "broken.json").write_text(text)
    done = run(*arguments, "--judge", "none", "--out", "out", status=2)
    assert sentence in done.stderr
    assert not (project / "out/trials.jsonl").exists() or not (project / "out/trials.jsonl").read_text()


def test_cases_that_cannot_run_are_listed_and_the_rest_runs(project: Path, run: Run) -> None:
    cases = CASES + "  - {id: lost, prompt: Hi., skill: gone, answer_contains: [x]}\n"
    (project / "skills/reporter/evals/cases.yaml").write_text(cases)
    done = run("skills/reporter", *SCRIPTED, "--runs", 1, "--json", status=1)
    assert "cases.yaml:5: error [unknown-skill] Case 'lost' is about 'gone'" in done.stderr
    content = json.loads(done.stdout)["adk_skills"]
    assert [problem["code"] for problem in content["skipped"]] == ["unknown-skill"]
    assert content["pass_rate"]["with_skill"] == 1.0


def test_a_model_and_an_agent_of_the_users_own_are_taken_by_module_and_attribute(project: Path, run: Run) -> None:
    (project / "mine.py").write_text(
        "from google.adk.agents import LlmAgent\n"
        "from google.adk.models import BaseLlm, LlmResponse\n"
        "from google.genai import types\n"
        "class Parrot(BaseLlm):\n"
        "    async def generate_content_async(self, llm_request, stream=False):\n"
        "        text = 'REPORT' if 'You are Polly' in str(llm_request.config.system_instruction) else 'no'\n"
        "        yield LlmResponse(content=types.Content(role='model', parts=[types.Part(text=text)]))\n"
        "parrot = Parrot(model='parrot')\n"
        "agent = LlmAgent(name='polly', model=parrot, instruction='You are Polly.')\n"
    )
    done = run("skills/reporter", "--agent", "mine:agent", "--judge", "none", "--filter", "totals", "--json")
    content = json.loads(done.stdout)
    assert content["metadata"]["executor_model"] == "parrot"
    assert content["adk_skills"]["lift"][0]["mean"] == 0.0  # it says REPORT with and without the skill
    assert any("does not show what the skill adds" in note for note in content["notes"])
    own = ("--model", "mine:parrot", "--filter", "totals", "--judge", "none")
    run("skills/reporter", *own, "--out", "b", status=1)


@pytest.mark.parametrize("option", ["--agent", "--model"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("yours:needs_a_name", "'yours:needs_a_name' is called without arguments to make a google-adk "),
        ("yours:gone", "'yours:gone' cannot be used"),
        ("yours:text", "'yours:text' is a str, not a google-adk "),
    ],
)
def test_a_function_or_a_name_that_gives_no_agent_or_model_is_a_sentence(
    project: Path, run: Run, option: str, name: str, said: str
) -> None:
    (project / "yours.py").write_text("text = 'agent'\ndef needs_a_name(name):\n    return name\n")
    done = run("skills/reporter", option, name, "--judge", "none", "--filter", "totals", status=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_on_a_terminal_there_is_a_live_display(project: Path) -> None:
    pytest.importorskip("rich")
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "eval", "skills/reporter", *SCRIPTED],
        cwd=project, stdout=subprocess.PIPE, stderr=slave, text=True, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(slave)
    seen = b""
    while select.select([master], [], [], 60)[0]:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
    os.close(master)
    assert process.stdout is not None
    assert "pass rate 100.0%" in process.stdout.read()
    process.stdout.close()
    assert process.wait(60) == 0
    assert b"/9" in seen
    assert b"\x1b[" in seen
    assert b"[1/9]" not in seen


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_at_a_random_point_by_a_signal_and_resumed_it_gives_the_same_table(project: Path, number: int) -> None:
    arguments = [*SCRIPTED, "--runs", "15", "--parallel", "3"]
    whole = start(project, "skills/reporter", *arguments, "--out", "whole", "--json")
    draw = random.Random(number)
    rows = project / "out/trials.jsonl"
    for _ in range(2):
        resume = ["--resume"] if rows.exists() else []
        process = subprocess.Popen(
            [PROGRAM, "eval", "skills/reporter", *arguments, "--out", "out", *resume],
            cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        for _ in range(draw.randrange(1, 12)):
            process.stderr.readline()
        time.sleep(draw.random() * 0.2)
        process.send_signal(number)
        said = process.stderr.read()
        process.stderr.close()
        code = process.wait(60)
        if number == signal.SIGINT:
            assert code == 130
            assert "interrupted; " in said
            assert "--resume continues" in said
            assert (project / "out/benchmark.json").exists()
        elif number == signal.SIGTERM:
            assert code == 143
        assert "Traceback" not in said
    resumed = start(project, "skills/reporter", *arguments, "--out", "out", "--resume", "--json")

    def table(done: subprocess.CompletedProcess[str]) -> Any:
        content = json.loads(done.stdout)["adk_skills"]
        for case in content["cases"]:
            for cell in case["arms"].values():
                del cell["seconds"]
        return [content[name] for name in ("pass_rate", "cases", "lift", "trigger", "flaky", "not_run", "errors")]

    assert table(resumed) == table(whole)
    keys = [(row["case"], row["arm"], row["run"]) for row in map(json.loads, rows.read_text().splitlines())]
    assert len(keys) == len(set(keys)) == 45


@pytest.mark.slow
def test_a_model_out_of_reach_stops_the_run_with_exit_code_2(project: Path) -> None:
    environment = {**os.environ, "GOOGLE_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9"}
    done = start(
        project, "skills/reporter", "--model", "gemini-2.5-flash", "--judge", "none", status=2, env=environment
    )
    assert re.search(
        r"stopped: the model cannot be used: .*; 0 of 9 trials are done .*, --resume continues", done.stderr
    )


@pytest.mark.slow
def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    repository = Path(__file__).resolve().parents[2]
    (tmp_path / "examples").symlink_to(repository / "examples")
    page = (repository / "docs/how-to/measure/evaluate-a-skill.md").read_text()
    command = re.search(r"^adk-skills eval ([^\n]*--out \S+ [^\n]*\n[^\n]*)\nls", page, re.MULTILINE)
    shown = re.search(r"^The second command prints\n\n```text\n(.*?)```", page, re.MULTILINE | re.DOTALL)
    assert command is not None
    assert shown is not None

    def without_times(text: str) -> list[str]:
        return [re.sub(r" +[\d.]+ s +", " T ", line) for line in text.splitlines() if not line.startswith("results: ")]

    done = start(tmp_path, *command[1].replace("\\\n", " ").split())
    printed, page_lines = without_times(done.stdout), without_times(shown[1])
    printed[0] = page_lines[0] = re.sub(" +", " ", printed[0])  # columns are as wide as their times
    assert printed == page_lines


@pytest.mark.requirement("S0-140", "S0-154")
def test_the_terminal_says_each_score_and_what_a_failing_case_did_s0_154(run: Run, project: Path) -> None:
    """Scores of a case stand side by side, and google-adk's names of the options are known."""
    cases = project / "more.yaml"
    cases.write_text(
        "skill: reporter\ncases:\n"
        "  - id: totals\n    prompt: Summarise my data.\n    answer_contains: [REPORT]\n    calls:\n"
        "      - {name: load_skill, args: {skill_name: reporter}}\n"
        "      - {name: run_skill_script, args: {skill_name: reporter, file_path: x.py}}\n"
    )
    done = run("--eval-set", cases, "--num-runs", "1", "-d", "skills", *SCRIPTED, "--out", "out", status=1)
    head, row = (line.split() for line in done.stdout.splitlines()[:2])
    shown = dict(zip(head, row, strict=False))
    assert (shown["case"], shown["with_skill"], shown["tools"], shown["reference"]) == ("totals", "0/1", "0.50", "1.00")
    assert "totals, with_skill run 1 failed: tools 0.50" in done.stdout
    assert "calls: load_skill(skill_name='reporter')" in done.stdout
    assert "tools: Not called: run_skill_script." in done.stdout
    assert run(status=2).stderr.count("Missing argument 'TARGETS...'") == 1


@pytest.mark.parametrize("name", ["word-count", "yes", "007"])
@pytest.mark.parametrize("script", ["python", "bash", "none"])
def test_a_new_skill_has_cases_that_can_be_planned_at_once(project: Path, run: Run, name: str, script: str) -> None:
    from adk_skills_agent.format import create_skill_template

    create_skill_template(project, name, script=None if script == "none" else script)  # type: ignore[arg-type]
    done = run(name, "--dry-run", "--json")
    assert done.stderr == ""
    plan = json.loads(done.stdout)
    assert [case["case"] for case in plan["cases"]] == ["count-words", "should-trigger", "should-not-trigger"]
    assert all(case["skills"] == [name] for case in plan["cases"])
    assert ("tool_invocation_score" in plan["cases"][0]["metrics"]) == (script != "none")
    assert (plan["skipped"], plan["notes"]) == ([], [])


WITHOUT_THE_EXTRA = """\
import sys

EXTRA = {
    "duckdb", "gepa", "google.cloud.aiplatform", "google.cloud.texttospeech", "jinja2", "litellm", "nltk", "numpy",
    "openpyxl", "pandas", "pyarrow", "rich", "rouge_score", "scipy", "tabulate", "vertexai", "xlrd",
}


class Refuse:
    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if any(".".join(parts[:count]) in EXTRA for count in range(1, len(parts) + 1)):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refuse())
from adk_skills_agent.installation import install_hint
from adk_skills_agent.cli.main import main

sys.argv[0] = "adk-skills"
main()
"""


@pytest.mark.slow
def test_a_run_the_lift_and_both_reports_need_nothing_of_the_eval_extra(project: Path) -> None:
    def light(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", WITHOUT_THE_EXTRA, *map(str, arguments)],
            capture_output=True, text=True, check=False, cwd=project, timeout=120,
        )  # fmt: skip

    cases = project / "skills/reporter/evals/cases.yaml"
    rubrics = "    rubrics: [The answer names North., The answer has the word REPORT.]\n"
    cases.write_text(f"{CASES}  - id: judged\n    prompt: Show my data.\n{rubrics}")
    (project / "judge.yaml").write_text("judge: [{conversation_contains: North leads}]\ncompare: [North]\n")
    arguments = ("eval", "skills/reporter", "--model", "scripted:model.yaml", "--judge", "scripted:judge.yaml")
    for out in ("one", "two"):
        done = light(*arguments, "--runs", 2, "--blind", "--out", out)
        assert done.returncode == 0, done.stderr
        assert "lift of with_skill over without_skill: +100.0%" in done.stdout
        assert "Traceback" not in done.stderr
    compared = light("report", "two", "--baseline", "one")
    assert compared.returncode == 0, compared.stderr
    assert "with_skill since the baseline: +0.0% (no interval: none differs)" in compared.stdout


@pytest.mark.slow
def test_the_simulated_user_names_the_one_small_package_it_needs(project: Path) -> None:
    case = {"eval_id": "talk", "conversation_scenario": {"starting_prompt": "Hello.", "conversation_plan": "Ask."}}
    case["rubrics"] = [{"rubric_id": "a", "rubric_content": {"text_property": "The answer names North."}}]  # type: ignore[assignment]
    path = project / "skills/reporter/evals/talk.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "s", "eval_cases": [case]}))
    (project / "user.yaml").write_text("rules: [{when: {}, text: </finished>}]\n")
    (project / "judge.yaml").write_text("judge: [{conversation_contains: North leads}]\n")
    models = ("--model", "scripted:model.yaml", "--judge", "scripted:judge.yaml", "--user-model", "scripted:user.yaml")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_EXTRA, "eval", "skills/reporter", *models, "--filter", "talk"],
        capture_output=True, text=True, check=False, cwd=project, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "google-adk's simulated user needs jinja2, which is not installed. Install it with: pip install jinja2" in (
        done.stderr
    )
