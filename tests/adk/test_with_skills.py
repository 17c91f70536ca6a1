"""An agent with skills in a real Runner: discover, load, read, run, keep the file (S4-1 to S4-7, S4-11, S4-12)."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent

from adk_skills_agent import (
    SandboxPolicy,
    SkillsRegistry,
    create_read_reference_tool,
    create_run_script_tool,
    create_use_skill_tool,
    with_skills,
)
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.local.levels.namespaces import NamespacesLevel
from adk_skills_agent.testing import GeminiServer

WRITES_A_FILE = """
import argparse, pathlib, sys
parser = argparse.ArgumentParser()
parser.add_argument("--title", default="none")
parser.add_argument("--top", type=int, default=1)
arguments = parser.parse_args()
print(f"title={arguments.title} top={arguments.top}")
print(pathlib.Path("references/guide.md").read_text().strip())
pathlib.Path("out").mkdir(exist_ok=True)
pathlib.Path("out/report.md").write_text(f"# {arguments.title}\\n")
"""

CALL = """
turns:
  - call: {{name: {name}, args: {args}}}
  - text: done
"""


def one_call(tool: str, /, **args: object) -> str:
    return CALL.format(name=tool, args=json.dumps(args))


def agent_for(server: GeminiServer, **more: Any) -> LlmAgent:
    return LlmAgent(name="assistant", model=server.model(), instruction="Help.", **more)


@pytest.fixture
def skills(make_skill: Callable[..., Path]) -> Path:
    folder = make_skill(
        "reporter",
        description="Writes reports. Use it when someone wants a report.",
        body="# Reporter\n\nRun `scripts/write.py`.\n",
        files={
            "scripts/write.py": WRITES_A_FILE,
            "scripts/warn.py": "import sys; print('ok'); print('careful', file=sys.stderr)",
            "scripts/fail.py": "import sys\ndef go():\n    raise ValueError('bad input')\ngo()\n",
            "scripts/code.sh": "echo out; echo err >&2; exit 3\n",
            "scripts/env.py": "import json, os; print(json.dumps(dict(os.environ)))",
            "scripts/where.sh": 'pwd; echo "$0"; ls\n',
            "scripts/long.py": "print('x' * 50_000)",
            "scripts/cat.py": "import pathlib, sys; print(pathlib.Path(sys.argv[1]).read_text())",
            "scripts/slow.py": "import time; print('started', flush=True); time.sleep(60)",
            "scripts/tool.cob": "puts 1",
            "references/guide.md": "the guide",
            "references/big.txt": "line\n" * 10_000,
            "data.bin": b"\0\1\2",
            "templates/letter.txt": "Dear",
        },
    )
    return folder.parent


@pytest.mark.requirement("S0-63", "S4-1", "S4-3", "S4-5", "S4-6", "S4-7", "S4-12", "C28")
async def test_the_whole_job_from_catalogue_to_file(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    server = rehearse("""
turns:
  - when: {user_contains: report, tools: [use_skill, read_reference, run_script]}
    call: {name: use_skill, args: {name: reporter}}
  - when:
      last_tool: use_skill
      tool_result: {skill_name: reporter, base_directory: /skill, has_scripts: true, has_references: true}
      system_contains:
        - <skill_content name="reporter">
        - "Skill directory: /skill"
        - <file>templates/letter.txt</file>
    call: {name: read_reference, args: {skill: reporter, reference: guide.md}}
  - when: {last_tool: read_reference, tool_result: {reference: references/guide.md, content: the guide}}
    call: {name: run_script, args: {skill: reporter, script: write.py, args: {title: "My Report", top: 3}}}
  - when: {last_tool: run_script, tool_result: {status: success, file_path: scripts/write.py}}
    text: The report is ready.
""")
    answered = await ask(with_skills(agent_for(server), [skills], policy=policy), "Write a report")
    server.assert_finished()
    assert answered.text == "The report is ready."
    result = dict(answered.results)["run_script"]
    assert result["stdout"] == "title=My Report top=3\nthe guide\n"
    assert result["return_code"] == 0
    assert result["timed_out"] is False
    assert [file["name"] for file in result["output_files"]] == ["out/report.md"]
    assert await answered.artifact("out/report.md") == b"# My Report\n"


@pytest.mark.requirement("S4-4", "C22", "C23", "C24", "C29")
async def test_the_catalogue_and_an_enum_of_names_are_in_the_tool_not_in_the_system_prompt(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """S4-4, C22 to C24, C29."""
    server = rehearse("turns: [{text: hello}]")
    await ask(with_skills(agent_for(server), [skills], policy=policy), "hi")
    request = server.requests[0]
    declaration = request.declaration("use_skill")
    assert "<available_skills>" in declaration["description"]
    assert "Writes reports." in declaration["description"]
    assert "call this tool first, then follow its instructions" in declaration["description"]
    assert "reporter" not in request.system_text
    for tool, argument in (("use_skill", "name"), ("run_script", "skill"), ("read_reference", "skill")):
        schema = request.declaration(tool)["parameters_json_schema"]
        assert schema["properties"][argument]["enum"] == ["reporter"]


@pytest.mark.requirement("C27")
async def test_without_skills_no_tool_is_registered(tmp_path: Path, rehearse: Any, ask: Any) -> None:
    """C27, GOOGLE_ADK row A1."""
    (tmp_path / "empty").mkdir()
    server = rehearse("turns: [{text: hello}]")
    agent = with_skills(agent_for(server), [tmp_path / "empty"])
    await ask(agent, "hi")
    assert server.requests[0].tool_names == []
    assert await agent.tools[0].get_tools() == []


@pytest.mark.requirement("S4-12")
async def test_the_agent_given_is_not_changed_and_keeps_its_tools(skills: Path, rehearse: Any, ask: Any) -> None:
    def clock() -> str:
        """The time."""
        return "noon"

    server = rehearse("turns: [{text: hello}]")
    before = agent_for(server, tools=[clock])
    after = with_skills(before, [skills], policy=SandboxPolicy(min_isolation="process"))
    assert before.tools == [clock]
    await ask(after, "hi")
    assert set(server.requests[0].tool_names) == {"clock", "use_skill", "read_reference", "run_script"}


@pytest.mark.requirement("S4-16", "C25", "C26")
async def test_two_agents_of_one_registry_see_different_skills(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """S4-16, C25, C26: what is filtered does not exist for the agent, not even as a suggestion."""
    make_skill("db-query", files={"scripts/q.py": "print('rows')"})
    root = make_skill("letter-writer").parent
    registry = SkillsRegistry()
    registry.discover([root])
    server = rehearse(
        """
when: {system_contains: '"assistant"'}
turns:
  - call: {name: transfer_to_agent, args: {agent_name: analyst}}
""",
        """
when: {system_contains: '"analyst"'}
turns:
  - when: {tools: [use_skill]}
    call: {name: use_skill, args: {name: letter-writter}}
  - when: {last_tool: use_skill, tool_result: {error_code: SKILL_NOT_FOUND}}
    call: {name: run_script, args: {skill: db-query, script: q.py}}
  - when: {last_tool: run_script, tool_result: {status: success}}
    text: done
""",
    )
    analyst = with_skills(LlmAgent(name="analyst", model=server.model()), registry, allow=["db-*"], policy=policy)
    writer = with_skills(LlmAgent(name="writer", model=server.model()), registry, deny=["db-*"], policy=policy)
    answered = await ask(agent_for(server, sub_agents=[analyst, writer]), "query")
    server.assert_finished()
    not_found = dict(answered.results)["use_skill"]
    assert "letter-writer" not in json.dumps({k: v for k, v in not_found.items() if k == "suggestions"})
    assert "letter-writer" not in json.dumps(server.requests[1].declarations)
    assert "db-query" in json.dumps(server.requests[1].declarations)
    assert "use_skill" not in server.requests[0].tool_names


@pytest.mark.parametrize(
    ("tool", "args", "code", "near"),
    [
        ("use_skill", {"name": "reportr"}, "SKILL_NOT_FOUND", "reporter"),
        ("use_skill", {}, "INVALID_ARGUMENTS", ""),
        ("use_skill", {"name": 7}, "INVALID_ARGUMENTS", ""),
        ("use_skill", {"name": "../../etc"}, "SKILL_NOT_FOUND", ""),
        ("read_reference", {"skill": "reporter", "reference": "guid.md"}, "RESOURCE_NOT_FOUND", "references/guide.md"),
        ("read_reference", {"skill": "reporter", "reference": "../x"}, "INVALID_RESOURCE_PATH", ""),
        ("read_reference", {"skill": "reporter", "reference": "/etc/passwd"}, "INVALID_RESOURCE_PATH", ""),
        ("read_reference", {"skill": "reporter", "reference": "guide.md", "offset": -1}, "INVALID_ARGUMENTS", ""),
        ("read_reference", {"skill": "reporter", "reference": "guide.md", "offset": 99}, "INVALID_ARGUMENTS", ""),
        ("run_script", {"skill": "reporter", "script": "scripts/wrte.py"}, "SCRIPT_NOT_FOUND", "scripts/write.py"),
        ("run_script", {"skill": "reporter", "script": "../../bin/sh"}, "INVALID_ARGUMENTS", ""),
        ("run_script", {"skill": "reporter", "script": "tool.cob"}, "UNSUPPORTED_SCRIPT_TYPE", ""),
        ("run_script", {"skill": "reporter"}, "INVALID_ARGUMENTS", ""),
        ("run_script", {"skill": "nope", "script": "a.py"}, "SKILL_NOT_FOUND", ""),
        ("run_script", {"skill": "reporter", "script": "write.py", "args": 7}, "INVALID_ARGUMENTS", ""),
        ("run_script", {"skill": "reporter", "script": "write.py", "args": {"a": {"b": 1}}}, "INVALID_ARGUMENTS", ""),
        ("run_script", {"skill": "reporter", "script": "write.py", "args": '"open'}, "INVALID_ARGUMENTS", ""),
        ("run_script", {"skill": "reporter", "script": "write.py", "files": ["none.csv"]}, "INVALID_ARGUMENTS", ""),
        ("run_script", {"skill": "reporter", "script": "write.py", "files": "x"}, "INVALID_ARGUMENTS", ""),
    ],
)  # fmt: skip
@pytest.mark.requirement("S0-26", "S0-27", "S0-28", "S0-29", "S0-31", "S0-32", "S0-33", "S4-20", "S4-22")
async def test_a_wrong_call_is_answered_with_a_code_a_sentence_and_the_nearest(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy, tool: str, args: dict[str, Any], code: str, near: str
) -> None:
    """Attack rows 47 to 49."""
    server = rehearse(one_call(tool, **args))
    answered = await ask(with_skills(agent_for(server), [skills], policy=policy), "go")
    result = dict(answered.results)[tool]
    assert result["error_code"] == code
    assert len(result["error"]) > 15
    if near:
        assert near in result["suggestions"]
    assert str(skills) not in json.dumps(result)
    assert answered.text == "done"


async def run(
    script: str, skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy, args: object = None, **more: Any
) -> dict[str, Any]:
    server = rehearse(one_call("run_script", skill="reporter", script=script, **({"args": args} if args else {})))
    answered = await ask(with_skills(agent_for(server), [skills], policy=policy, **more), "go")
    result: dict[str, Any] = dict(answered.results)["run_script"]
    return result | {"_answered": answered}


@pytest.mark.requirement("S0-61")
async def test_stderr_of_a_successful_script_is_kept_as_a_warning(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """S0-61, GOOGLE_ADK row 8 (dropped there)."""
    result = await run("warn.py", skills, rehearse, ask, policy)
    assert (result["status"], result["stdout"], result["stderr"]) == ("warning", "ok\n", "careful\n")
    assert "error" not in result


@pytest.mark.requirement("S0-59", "S0-69")
async def test_an_exception_is_an_error_with_its_line_and_no_host_path(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """S0-59, S0-69."""
    result = await run("fail.py", skills, rehearse, ask, policy)
    assert (result["status"], result["reason"], result["return_code"]) == ("error", "exit_code", 1)
    assert result["error"].endswith(
        "exited with status 1. ValueError: bad input (at scripts/fail.py, line 3, in go: raise ValueError('bad input'))"
    )
    assert str(skills) not in json.dumps({key: value for key, value in result.items() if key != "_answered"})


@pytest.mark.requirement("S0-64", "S0-69", "C44")
async def test_an_exit_code_is_exact_and_both_streams_are_kept(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """S0-64, S0-69, C44."""
    result = await run("code.sh", skills, rehearse, ask, policy)
    assert (result["status"], result["return_code"]) == ("error", 3)
    assert (result["stdout"], result["stderr"], result["error_code"]) == ("out\n", "err\n", "EXECUTION_ERROR")


@pytest.mark.requirement("S0-57", "S0-65", "S0-74", "S1-6", "S1-17")
async def test_a_timeout_keeps_what_was_printed(skills: Path, rehearse: Any, ask: Any) -> None:
    """S0-57, S0-65, S0-74, S1-6, S1-17, GOOGLE_ADK rows 1 and 1b: the tool's own limit holds for Python too."""
    policy = SandboxPolicy(min_isolation="process", wall_seconds=2.5, term_grace_seconds=0.2)
    result = await run("slow.py", skills, rehearse, ask, policy)
    assert (result["status"], result["reason"], result["timed_out"], result["return_code"]) == (
        "error", "timeout", True, -1
    )  # fmt: skip
    assert result["stdout"] == "started\n"
    assert result["stderr"] == "Timed out after 2.5s"


@pytest.mark.requirement("S0-92")
async def test_secrets_of_the_host_do_not_reach_a_script_and_grants_do(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S0-92, GOOGLE_ADK row 2."""
    monkeypatch.setenv("GOOGLE_API_KEY", "hunter2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter3")
    result = await run("env.py", skills, rehearse, ask, policy, env={"GRANTED": "yes"})
    environment = json.loads(result["stdout"])
    assert "hunter" not in result["stdout"]
    assert environment["GRANTED"] == "yes"


@pytest.mark.requirement("S0-43", "C40")
async def test_the_working_directory_shows_the_skill_and_no_path_of_the_host(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """C40, S0-43, GOOGLE_ADK row 11 and 23: root files and other folders are there."""
    result = await run("where.sh", skills, rehearse, ask, policy)
    lines = result["stdout"].split("\n")
    assert lines[:2] == ["/work", "/skill/scripts/where.sh"]
    assert {"data.bin", "templates", "references", "scripts", "SKILL.md"} <= set(lines)


@pytest.mark.requirement("C45")
async def test_output_too_long_for_a_model_is_cut_and_kept_as_an_artifact(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """C45, GOOGLE_ADK rows E4 and 6."""
    result = await run("long.py", skills, rehearse, ask, policy)
    assert len(result["stdout"]) < 20_200
    assert "bytes left out; the full text is the artifact 'reporter.long.stdout.txt'" in result["stdout"]
    assert await result["_answered"].artifact("reporter.long.stdout.txt") == b"x" * 50_000 + b"\n"


async def test_an_artifact_of_the_session_can_be_given_to_a_script(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    server = rehearse(one_call("run_script", skill="reporter", script="cat.py", args=["in.csv"], files=["in.csv"]))
    answered = await ask(
        with_skills(agent_for(server), [skills], policy=policy), "go", artifacts={"in.csv": b"a,b\n1,2"}
    )
    assert dict(answered.results)["run_script"]["stdout"] == "a,b\n1,2\n"


async def test_files_of_one_run_are_there_in_the_next_run_of_the_session_only(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """GOOGLE_ADK rows E10 and 22."""
    server = rehearse("""
turns:
  - call: {name: run_script, args: {skill: reporter, script: write.py, args: {title: kept}}}
  - call: {name: run_script, args: {skill: reporter, script: cat.py, args: [out/report.md]}}
  - text: done
""")
    agent = with_skills(agent_for(server), [skills], policy=policy)
    first = await ask(agent, "go")
    assert first.results[1][1]["stdout"] == "# kept\n\n"
    server = rehearse(one_call("run_script", skill="reporter", script="cat.py", args=["out/report.md"]))
    other = with_skills(agent_for(server), [skills], policy=policy)
    assert (await ask(other, "go")).results[0][1]["status"] == "error"


@pytest.mark.requirement("S0-52")
async def test_parallel_calls_in_one_turn_and_in_many_sessions_do_not_mix(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """S0-52, attack row 65."""
    script = (
        "import os, sys, time; open(sys.argv[1], 'w').close(); time.sleep(0.05); print(sys.argv[1], os.listdir('.'))"
    )
    root = make_skill("parallel", files={"scripts/p.py": script}).parent
    server = rehearse("""
turns:
  - call:
      - {name: run_script, args: {skill: parallel, script: p.py, args: [one]}}
      - {name: run_script, args: {skill: parallel, script: p.py, args: [two]}}
  - text: done
""")
    agent = with_skills(agent_for(server), [root], policy=policy)
    for answered in await asyncio.gather(*(ask(agent, "go") for _ in range(8))):
        outputs = [result["stdout"] for _, result in answered.results]
        assert [output.split()[0] for output in outputs] == ["one", "two"]


@pytest.mark.requirement("C36", "C45")
async def test_a_long_reference_is_read_page_by_page_and_a_binary_file_is_named(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """C36, C45."""
    server = rehearse("""
turns:
  - call: {name: read_reference, args: {skill: reporter, reference: references/big.txt}}
  - when: {tool_result: {total_chars: 50000, next_offset: 20000}}
    call: {name: read_reference, args: {skill: reporter, reference: references/big.txt, offset: 40000}}
  - when: {tool_result: {offset: 40000}}
    call: {name: read_reference, args: {skill: reporter, reference: data.bin}}
  - when: {tool_result: {size: 3}, tool_result_contains: /skill/data.bin}
    text: done
""")
    answered = await ask(with_skills(agent_for(server), [skills], policy=policy), "go")
    server.assert_finished()
    assert "next_offset" not in answered.results[1][1]


async def test_a_link_to_a_file_of_the_host_is_never_read(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """GOOGLE_ADK rows 9 and L11: there the content of /etc/passwd reaches the model."""
    (skills / "reporter" / "references" / "passwd.md").symlink_to("/etc/passwd")
    server = rehearse(one_call("read_reference", skill="reporter", reference="references/passwd.md"))
    answered = await ask(with_skills(agent_for(server), [skills], policy=policy), "go")
    result = dict(answered.results)["read_reference"]
    assert result["error_code"] == "INVALID_RESOURCE_PATH"
    assert "root:" not in json.dumps(result)


async def test_a_change_on_disk_is_seen_at_the_next_request(
    skills: Path, make_skill: Callable[..., Path], rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    server = rehearse("turns: [{text: one}, {text: two}]")
    agent = with_skills(agent_for(server), [skills], policy=policy)
    first = await ask(agent, "hi")
    make_skill("newcomer")
    await asyncio.sleep(1.1)  # the tree is looked at once a second at most
    await ask(agent, "hi again", session_of=first)
    assert "newcomer" not in json.dumps(server.requests[0].declarations)
    assert "newcomer" in json.dumps(server.requests[1].declarations)


async def test_a_catalogue_over_its_budget_is_cut_and_the_rest_is_found_by_search(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    for number in range(200):
        make_skill(f"filler-{number:03}", description=f"Handles matter number {number} in the usual way. " * 4)
    root = make_skill("zebra-grooming", description="Grooms zebras. Use it for stripes.").parent
    server = rehearse("""
turns:
  - when: {tools: [use_skill, search_skills]}
    call: {name: search_skills, args: {query: groom a zebra}}
  - when: {tool_result_contains: zebra-grooming}
    call: {name: use_skill, args: {name: zebra-grooming}}
  - when: {tool_result: {skill_name: zebra-grooming}}
    text: done
""")
    await ask(with_skills(agent_for(server), [root], policy=policy, budget_tokens=500), "go")
    server.assert_finished()
    declaration = server.requests[0].declaration("use_skill")
    assert len(declaration["description"]) < 500 * 4 + 600
    assert "enum" not in json.dumps(declaration)
    assert "zebra-grooming" not in declaration["description"]


@pytest.mark.requirement("C34", "C35")
async def test_the_list_of_files_is_capped_and_says_so(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """C34, C35."""
    root = make_skill("wide", files={f"references/{number:03}.md": "x" for number in range(100)}).parent
    server = rehearse(one_call("use_skill", name="wide"))
    answered = await ask(with_skills(agent_for(server), [root], policy=policy), "go")
    instructions = dict(answered.results)["use_skill"]["instructions"]
    assert instructions.count("<file>") == 60
    assert "40 more files are not listed" in instructions


@pytest.mark.requirement("S0-14")
async def test_where_the_policy_cannot_hold_run_script_is_not_offered_and_the_owner_is_told(
    skills: Path, rehearse: Any, ask: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S0-14: a tool that cannot work is not offered."""
    monkeypatch.setattr(NamespacesLevel, "problem", lambda self: "user namespaces are switched off")
    monkeypatch.setattr("adk_skills_agent.sandbox.local.sandbox._probed", {})  # an earlier test may have asked
    server = rehearse("turns: [{text: hello}]")
    with caplog.at_level(logging.WARNING):
        nothing_so_strong = SandboxPolicy(isolation="namespaces", min_isolation="namespaces")
        await ask(with_skills(agent_for(server), [skills], policy=nothing_so_strong), "hi")
    assert server.requests[0].tool_names == ["use_skill", "read_reference"]
    assert "run_script is not offered" in caplog.text
    assert "(namespaces: user namespaces are switched off" in caplog.text
    assert "). See: adk-skills doctor" in caplog.text


@pytest.mark.requirement("S4-11")
async def test_each_tool_can_be_made_alone(skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy) -> None:
    registry = SkillsRegistry()
    registry.discover([skills])
    made = [
        create_use_skill_tool(registry),
        create_read_reference_tool(registry),
        create_run_script_tool(registry, policy=policy),
    ]
    for tool, args, key, value in (
        (made[0], {"name": "reporter"}, "has_scripts", True),
        (made[1], {"skill": "reporter", "reference": "guide.md"}, "content", "the guide"),
        (made[2], {"skill": "reporter", "script": "write.py", "args": {"title": "A", "top": 1}}, "status", "success"),
    ):
        server = rehearse(one_call(tool.name, **args))
        answered = await ask(agent_for(server, tools=[tool]), "go")
        assert server.requests[0].tool_names == [tool.name]
        assert dict(answered.results)[tool.name][key] == value


async def test_a_tool_made_alone_answers_that_the_sandbox_is_unavailable(
    skills: Path, rehearse: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NamespacesLevel, "problem", lambda self: "user namespaces are switched off")
    registry = SkillsRegistry()
    registry.discover([skills])
    server = rehearse(one_call("run_script", skill="reporter", script="write.py"))
    nothing_so_strong = SandboxPolicy(isolation="namespaces", min_isolation="namespaces")
    tools = [create_use_skill_tool(registry), create_run_script_tool(registry, policy=nothing_so_strong)]
    answered = await ask(agent_for(server, tools=tools), "go")
    result = dict(answered.results)["run_script"]
    assert result["error_code"] == "SANDBOX_UNAVAILABLE"
    assert "namespaces" in result["error"]


@pytest.mark.requirement("S0-7")
async def test_more_kinds_of_scripts_run_when_the_owner_says_how(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    """S0-7: an ``interpreters=`` mapping adds kinds."""
    root = make_skill("custom", files={"scripts/run.txt": "print('ran as python')"}).parent
    server = rehearse(one_call("run_script", skill="custom", script="run.txt"))
    agent = with_skills(agent_for(server), [root], policy=policy, interpreters={".txt": [sys.executable]})
    assert dict((await ask(agent, "go")).results)["run_script"]["stdout"] == "ran as python\n"


def test_malformed_settings_are_refused_with_a_sentence(skills: Path) -> None:
    agent = LlmAgent(name="a", model="gemini-2.5-flash")
    with pytest.raises(ConfigError, match="no file suffix"):
        with_skills(agent, [skills], interpreters={"js": ["node"]})
    with pytest.raises(ConfigError, match="list of strings"):
        with_skills(agent, [skills], interpreters={".js": "node"})
    with pytest.raises(ConfigError, match="list of folders"):
        with_skills(agent, str(skills))


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["a", "user:a"], "both be 'a'"),
        (["d", "d/e"], "both be 'd'"),
        (["\ud800"], "not valid Unicode"),
        (["x" * 300], "as a file name"),
        (["../.."], "as a file name"),
        (["none"], "no artifact 'none'"),
        (["a/" + "y" * 256], "as a file name"),
        ([""], "list of artifact names"),
        (["a/" * 1_000 + "b"], "more than 1,024 characters"),
        ([f"f{number}" for number in range(1_001)], "at most 1,000"),
        (["a", "d", "d2", "d3"], "more than 3 bytes"),
    ],
)
async def test_wrong_artifact_names_are_answered_and_end_nothing(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy, files: list[str], says: str
) -> None:
    """The names of a model's call, among them those of attack row 235: too many, too long, or with too much in them."""
    from adk_skills_agent.adk.running.call import load_inputs
    from adk_skills_agent.errors import InvalidArguments

    server = rehearse("turns: [{text: hello}]")
    answered = await ask(
        agent_for(server), "hi", artifacts={"a": b"1", "user:a": b"2", "d": b"3", "d/e": b"4", "d2": b"5", "d3": b"6"}
    )
    service = answered.runner.artifact_service
    session_id = answered.session_id

    class Context:  # what load_inputs uses of a tool context, over the real service
        session = type("S", (), {"app_name": "tests", "user_id": "user", "id": session_id})

        @staticmethod
        def get_invocation_context() -> Any:
            return type("C", (), {"artifact_service": service})

        @staticmethod
        async def load_artifact(name: str) -> Any:
            return await service.load_artifact(app_name="tests", user_id="user", session_id=session_id, filename=name)

        @staticmethod
        async def list_artifacts() -> list[str]:
            return await service.list_artifact_keys(app_name="tests", user_id="user", session_id=session_id)

    with pytest.raises(InvalidArguments, match=re.escape(says)):
        await load_inputs(Context(), files, 3, lambda _size: None)  # type: ignore[arg-type]


async def test_many_calls_with_artifacts_have_no_more_memory_than_one_may(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 260: one answer of a model calls a script again and again, each time with all artifacts of the session."""
    from adk_skills_agent.adk.running import call

    monkeypatch.setattr(call, "MAX_HELD_BYTES", 1 << 20)
    wants = {"skill": "reporter", "script": "cat.py", "files": ["large"]}
    made = [{"name": "run_script", "args": {**wants, "args": [str(number)]}} for number in range(6)]
    server = rehearse(f"turns:\n  - call: {json.dumps(made)}\n  - call: {json.dumps(made[0])}\n  - text: done\n")
    small = replace(policy, workspace_bytes=1 << 20)
    answered = await ask(
        with_skills(agent_for(server), [skills], policy=small), "go", artifacts={"large": b"x" * (400 << 10)}
    )
    *together, alone = [result for _, result in answered.results]
    refused = [result for result in together if "Other calls with artifacts run or wait" in result.get("error", "")]
    assert len(refused) >= 4
    assert len(refused) < len(together)
    assert "Other calls" not in str(alone)


async def test_the_memory_that_artifacts_of_one_user_take_leaves_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Row 260."""
    from adk_skills_agent.adk.running import call
    from adk_skills_agent.errors import TooManyRuns

    monkeypatch.setattr(call, "MAX_HELD_BYTES", 100)
    held = call.HeldInputs()
    async with held.of_call("a", 25) as one, held.of_call("a", 25) as two, held.of_call("a", 25) as three:
        for take in (one, two, three):
            take(25)
        async with held.of_call("a", 25) as fourth, held.of_call("b", 25) as other:
            with pytest.raises(TooManyRuns, match="75 bytes are in memory"):
                fourth(1)
            other(25)
    async with held.of_call("b", 4_000) as large, held.of_call("a", 25) as small:
        large(4_000)  # nobody else has any
        with pytest.raises(TooManyRuns):
            small(25)
    assert not held._held


async def test_an_artifact_service_that_fails_loses_no_result(
    skills: Path, rehearse: Any, policy: SandboxPolicy
) -> None:
    from google.adk.artifacts import InMemoryArtifactService
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.genai import types

    class FullDisk(InMemoryArtifactService):
        async def save_artifact(self, **kwargs: Any) -> int:
            raise KeyError("some service's own exception")

    server = rehearse(one_call("run_script", skill="reporter", script="write.py"))
    agent = with_skills(agent_for(server), [skills], policy=policy)
    sessions = InMemorySessionService()
    runner = Runner(app_name="t", agent=agent, session_service=sessions, artifact_service=FullDisk())
    session = await sessions.create_session(app_name="t", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text="go")])
    events = [e async for e in runner.run_async(user_id="u", session_id=session.id, new_message=message)]
    await runner.close()
    result = next(r.response for e in events for r in e.get_function_responses())
    assert result["status"] == "success"
    assert "could not be saved as an artifact" in result["notes"][0]


async def test_a_file_called_stdout_and_a_long_stdout_are_two_artifacts(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    source = "open('stdout', 'w').write('file'); open('s.r.stdout.txt', 'w').write('f2'); print('x' * 30_000)"
    root = make_skill("s", files={"scripts/r.py": source}).parent
    server = rehearse(one_call("run_script", skill="s", script="r.py"))
    answered = await ask(with_skills(agent_for(server), [root], policy=policy), "go")
    result = dict(answered.results)["run_script"]
    assert [file["artifact"] for file in result["output_files"]] == ["s.r.stdout.txt", "stdout"]
    assert await answered.artifact("stdout") == b"file"
    assert await answered.artifact("output-of.s.r.stdout.txt") == b"x" * 30_000 + b"\n"


async def test_a_sandbox_that_cannot_say_what_it_can_leaves_the_other_tools(
    skills: Path, rehearse: Any, ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from adk_skills_agent import ExecutionRequest, ExecutionResult, IsolationReport, Sandbox, SandboxError

    class NoEngine(Sandbox):
        name = "none"

        async def run(self, request: ExecutionRequest) -> ExecutionResult:
            raise SandboxError("the engine is not running.")

        async def probe(self) -> IsolationReport:
            raise SandboxError("the engine is not running.")

    server = rehearse("turns: [{text: hello}]")
    with caplog.at_level(logging.WARNING):
        await ask(with_skills(agent_for(server), [skills], sandbox=NoEngine()), "hi")
    assert server.requests[0].tool_names == ["use_skill", "read_reference"]
    assert "the engine is not running" in caplog.text


async def test_an_agent_with_skills_can_be_deep_copied(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    import copy

    server = rehearse(one_call("use_skill", name="reporter"))
    agent = copy.deepcopy(with_skills(agent_for(server), [skills], policy=policy))
    assert dict((await ask(agent, "go")).results)["use_skill"]["skill_name"] == "reporter"


async def test_two_agents_of_one_session_see_the_same_files(
    skills: Path, rehearse: Any, ask: Any, policy: SandboxPolicy
) -> None:
    server = rehearse("""
turns:
  - call: {name: run_script, args: {skill: reporter, script: write.py, args: {title: shared}}}
  - text: done
  - call: {name: run_script, args: {skill: reporter, script: cat.py, args: [out/report.md]}}
  - text: done
""")
    first = await ask(with_skills(agent_for(server), [skills], policy=policy), "go")
    first.runner.agent = with_skills(agent_for(server), [skills], policy=policy)
    second = await ask(first.runner.agent, "and now", session_of=first)
    assert dict(second.results)["run_script"]["stdout"] == "# shared\n\n"
