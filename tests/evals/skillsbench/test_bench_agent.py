from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.evals.models import model_named
from adk_skills_agent.evals.skillsbench.adk_agent import AdkAgent, BashTool
from adk_skills_agent.evals.skillsbench.environment import Phase
from adk_skills_agent.evals.skillsbench.task import load_skills, unpack_skills
from adk_skills_agent.testing import GeminiServer, Refusal, Rule, RuleModel, When, call, say
from evals.skillsbench.bench_tasks import HostBox, HostSandbox, carry_out, make_task, plan_of, settings_for

SCRIPT = "python3 /root/.claude/skills/answering/scripts/answer.py > answer.txt"
WITH = When(skills=("answering",))
SOLVES_WITH_THE_SKILL = RuleModel(
    [
        Rule(call("load_skill", skill_name="answering"), WITH),
        Rule(call("run_skill_script", skill_name="answering", file_path="scripts/answer.py"), WITH),
        Rule(call("bash", command="echo 42 > answer.txt"), WITH),
        Rule(call("bash", command="ls"), When()),
    ],
    otherwise=say("I have written answer.txt."),
)


def row_of(out: Path) -> dict[str, Any]:
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return {row["arm"]: row for row in rows}


@pytest.mark.requirement("S0-138")
async def test_an_agent_solves_a_task_through_bash_with_the_skill_and_not_without(tmp_path: Path) -> None:
    with GeminiServer(SOLVES_WITH_THE_SKILL, remember=100) as server:
        settings = settings_for(HostSandbox(tmp_path), tmp_path / "out", [AdkAgent(server.model())])
        plan = plan_of([make_task(tmp_path / "tasks")], ("no-skill", "with-skill"), ("adk",))
        await carry_out(plan, settings)
        requests = server.requests
    rows = row_of(tmp_path / "out")
    assert (rows["no-skill"]["reward"], rows["with-skill"]["reward"]) == (0.0, 1.0)
    assert rows["with-skill"]["skills_loaded"] == ["answering"]
    assert rows["with-skill"]["scripts_run"] == ["answering"]
    assert (rows["no-skill"]["skills_available"], rows["no-skill"]["skills_loaded"]) == ([], [])
    trace = json.loads((tmp_path / "out" / rows["with-skill"]["trace"]).read_text())
    ran = next(one for one in trace["turns"][0]["calls"] if one["name"] == "run_skill_script")
    assert ran["response"]["stdout"] == "42\n"
    tools = {frozenset(request.tool_names) for request in requests}
    assert frozenset(["bash"]) in tools  # the arm without has no toolset at all
    assert all(request.user_text == "Write the answer to answer.txt.\n" for request in requests)


@pytest.mark.requirement("S0-138")
async def test_the_agent_asks_as_the_benchmark_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with GeminiServer(SOLVES_WITH_THE_SKILL) as server:
        model = server.model().model_copy(update={"model": "gemini-3-flash-preview"})
        settings = settings_for(HostSandbox(tmp_path), tmp_path / "out", [AdkAgent(model)])
        await carry_out(plan_of([make_task(tmp_path / "tasks")], ("with-skill",), ("adk",)), settings)
        request = server.requests[0]
    config = request.body["generationConfig"]
    assert (config["temperature"], config["thinkingConfig"]) == (1.0, {"thinking_level": "HIGH"})
    for step in range(1, 7):
        assert f"\n{step}. " in request.system_text
    assert "\n7. " not in request.system_text
    monkeypatch.setenv("GOOGLE_API_KEY", "a-key")
    retry = model_named("gemini-3-flash-preview").retry_options
    assert (retry.attempts, retry.initial_delay, retry.max_delay, retry.exp_base) == (5, 2.0, 60.0, 2.0)
    assert retry.http_status_codes == [429, 503]


async def test_a_model_that_cannot_be_reached_is_no_zero_and_ends_the_run_after_three(tmp_path: Path) -> None:
    with GeminiServer(RuleModel([], otherwise=Refusal(400, "INVALID_ARGUMENT", "bad key"))) as server:
        settings = settings_for(HostSandbox(tmp_path), tmp_path / "out", [AdkAgent(server.model())])
        plan = plan_of([make_task(tmp_path / "tasks")], agents=("adk",), trials=5)
        state = await carry_out(plan, settings)
    assert state.stopped == "outage"
    assert [(result.reward, result.error_kind) for result in state.results.values()] == [(None, "model")] * 3


@pytest.mark.requirement("S0-136")
async def test_an_agent_out_of_time_is_stopped_in_its_command_and_graded(tmp_path: Path) -> None:
    model = RuleModel([Rule(call("bash", command="echo 42 > answer.txt; sleep 100"))], otherwise=say("never"))
    task = make_task(tmp_path / "tasks", task_DOT_toml="[agent]\ntimeout_sec = 3\n")
    with GeminiServer(model) as server:
        settings = settings_for(HostSandbox(tmp_path), tmp_path / "out", [AdkAgent(server.model())])
        await carry_out(plan_of([task], agents=("adk",)), settings)
    row = row_of(tmp_path / "out")["with-skill"]
    assert (row["reward"], row["error_kind"], row["agent_timed_out"]) == (1.0, "timeout", True)


WRITES = """mkdir -p /logs/agent/skills/own
printf -- '---\\nname: own\\ndescription: Of its own.\\n---\\nWrite 42.\\n' > /logs/agent/skills/own/SKILL.md
echo leftover > /app/leftover"""


async def test_skills_an_agent_writes_itself_are_used_in_a_fresh_box(tmp_path: Path) -> None:
    model = RuleModel(
        [
            Rule(call("bash", command=WRITES), When(user_contains=("Do not do the task",))),
            Rule(call("load_skill", skill_name="own"), When(skills=("own",))),
            Rule(call("bash", command="test ! -e leftover && echo 42 > answer.txt"), When(skills=("own",))),
        ],
        otherwise=say("Done."),
    )
    with GeminiServer(model) as server:
        settings = settings_for(HostSandbox(tmp_path), tmp_path / "out", [AdkAgent(server.model())])
        await carry_out(plan_of([make_task(tmp_path / "tasks")], ("self-gen",), ("adk",)), settings)
    row = row_of(tmp_path / "out")["self-gen"]
    assert (row["reward"], row["skills_available"], row["skills_loaded"]) == (1.0, ["own"], ["own"])
    trace = json.loads((tmp_path / "out" / row["trace"]).read_text())
    assert set(trace) == {"writing_skills", "task"}


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /logs/agent/skills; head -c 9999 /dev/zero | tr '\\0' x > /logs/agent/skills.tar",
        "cd /logs/agent/skills; mkdir -p $(printf 'd/%.0s' $(seq 150))",
    ],
)
async def test_row_286_skills_that_cannot_be_unpacked_end_no_run(tmp_path: Path, command: str) -> None:
    """Seen: no tar where the environment has left one, and all other trials were not run."""
    model = RuleModel(
        [Rule(call("bash", command=command), When(user_contains=("Do not do the task",)))], otherwise=say("Done.")
    )
    with GeminiServer(model) as server:
        settings = settings_for(HostSandbox(tmp_path), tmp_path / "out", [AdkAgent(server.model())])
        await carry_out(plan_of([make_task(tmp_path / "tasks")], ("self-gen",), ("adk",)), settings)
    assert "cannot be unpacked" in row_of(tmp_path / "out")["self-gen"]["agent_error"]


@pytest.mark.requirement("S0-137")
async def test_without_tests_a_used_skill_and_an_answer_pass(tmp_path: Path) -> None:
    with GeminiServer(SOLVES_WITH_THE_SKILL) as server:
        agent = AdkAgent(server.model())
        settings = settings_for(HostSandbox(tmp_path), tmp_path / "out", [agent], skip_tests=True)
        task = make_task(tmp_path / "tasks", tests__test_DOT_sh="exit 1\n")
        await carry_out(plan_of([task], ("no-skill", "with-skill"), ("adk",)), settings)
    rows = row_of(tmp_path / "out")
    assert (rows["no-skill"]["passed"], rows["with-skill"]["passed"]) == (False, True)
    assert rows["with-skill"]["graded_by"] == "heuristic"


@pytest.mark.parametrize(
    ("command", "code", "output"),
    [
        ("echo out; echo err >&2; exit 3", 3, "out\nerr\n"),
        ("cat", 0, ""),
        ("printf '%20000s' x", 0, " " * 10_000 + "... (truncated)"),
        ("kill -9 $$", 137, ""),
        (f"true {'x' * 200_000}\necho long", 0, "long\n"),
    ],
)
@pytest.mark.requirement("S0-132")
async def test_bash_answers_with_code_and_output(tmp_path: Path, command: str, code: int, output: str) -> None:
    tool = BashTool(HostBox(tmp_path / "box", None), Phase())
    answer = await tool.run_async(args={"command": command}, tool_context=None)  # type: ignore[arg-type]
    assert answer == {"exit_code": code, "output": output}


@pytest.mark.parametrize("args", [{}, {"command": ""}, {"command": 3}, {"command": "a\0b"}])
async def test_bash_asks_for_a_command(tmp_path: Path, args: dict[str, Any]) -> None:
    tool = BashTool(HostBox(tmp_path / "box", None), Phase())
    answer = await tool.run_async(args=args, tool_context=None)  # type: ignore[arg-type]
    assert answer["error_code"] == "INVALID_ARGUMENTS"


async def test_a_command_that_takes_too_long_is_ended_and_says_so(tmp_path: Path) -> None:
    tool = BashTool(HostBox(tmp_path / "box", None), Phase(), seconds=0.5)
    answer = await tool.run_async(args={"command": "sleep 50"}, tool_context=None)  # type: ignore[arg-type]
    assert answer["exit_code"] == 124
    assert "ended after 0.5 seconds" in answer["output"]


@pytest.mark.requirement("S0-133")
def test_skills_are_loaded_leniently_and_every_repair_is_told(tmp_path: Path) -> None:
    for name, text in {
        "good": "---\nname: good\ndescription: Good.\n---\nBody.\n",
        "Bad Name": "---\nname: other\nallowed-tools: [a, b]\n---\nBody.\n",
        "none": "No frontmatter.\n",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(text)
    skills = load_skills(tmp_path)
    assert skills is not None
    assert skills.found == 3
    assert "good" in skills.names
    assert len(skills.names) >= 2
    assert any("Bad Name" in repair for repair in skills.repairs)
    assert load_skills(tmp_path / "missing") is None


def test_a_tar_out_of_a_box_writes_nowhere_else(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, kind, target in (
            ("own/SKILL.md", tarfile.REGTYPE, ""),
            ("../outside", tarfile.REGTYPE, ""),
            ("link", tarfile.SYMTYPE, "/etc"),
            ("/absolute", tarfile.REGTYPE, ""),
            ("pipe", tarfile.FIFOTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member, io.BytesIO(b""))
    (tmp_path / "in").mkdir()
    unpack_skills(packed.getvalue(), tmp_path / "in")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "in",
        "in/absolute",
        "in/own",
        "in/own/SKILL.md",
    ]
