"""What the owner's rules and the user's word cannot be led around: spelling, other tools, bytes that change (S4-21)."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google.adk.skills as adk_skills
import pytest
from approval_chat import LOAD, PUBLISH, agent_with, calls
from google.genai import types

from adk_skills_agent.adk.hosts import host_rules
from adk_skills_agent.adk.permissions import Permissions
from adk_skills_agent.adk.rules import Verdict
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.adk.skills.source import DiskSkill
from adk_skills_agent.catalog import SkillsRegistry
from adk_skills_agent.catalog.scopes import Scope
from adk_skills_agent.errors import SkillsError
from adk_skills_agent.sandbox import Secret

SKILL_MD = ("load_skill_resource", {"skill_name": "reporter", "file_path": "SKILL.md"})
SENT: list[str] = []


def send_mail(to: str) -> dict[str, str]:
    """Send a mail."""
    SENT.append(to)
    return {"sent": to}


@pytest.fixture
def two_mailers(make_skill: Callable[..., Path]) -> Path:
    SENT.clear()
    for name in ("mailer", "other"):
        folder = make_skill(name)
        text = (folder / "SKILL.md").read_text()
        head = "metadata:\n  adk_additional_tools: [send_mail]\ndescription:"
        (folder / "SKILL.md").write_text(text.replace("description:", head, 1))
    return folder.parent


@pytest.mark.parametrize(
    ("kind", "pattern", "action", "target"),
    [
        ("scripts", "Alpha/go.py", "run", "scripts/go.py"),
        ("scripts", "*.py", "run", "scripts/UP.PY"),
        ("scripts", "alpha/scripts/GO.py", "run", "scripts/go.py"),
        ("scripts", unicodedata.normalize("NFD", "alpha/größe.py"), "run", "scripts/" + "größe.py"),
        ("scripts", "alpha/größe.py", "run", unicodedata.normalize("NFD", "scripts/größe.py")),
        ("tools", "Alpha/send_mail", "tool", "send_mail"),
        ("tools", "SEND_*", "tool", "send_mail"),
        ("tools", "Run_Skill_Script", "run", "scripts/go.py"),
    ],
)
def test_a_denial_misses_nothing_for_a_capital_letter_or_a_normal_form(
    kind: str, pattern: str, action: Any, target: str, make_skill: Callable[..., Path]
) -> None:
    registry = SkillsRegistry()
    registry.discover([make_skill("alpha")])
    permissions = Permissions(**{kind: {pattern: "deny"}})  # type: ignore[arg-type]
    decision = permissions.decide(DiskSkill(registry.load_skill("alpha")), action, target)
    assert decision.verdict == "deny"
    assert permissions.unknown(["alpha"]) == []


def test_a_skill_is_hidden_in_every_normal_form_and_a_rule_for_it_is_not_called_unknown() -> None:
    decomposed = unicodedata.normalize("NFD", "größe")
    permissions = Permissions(skills={decomposed.upper(): "deny"})
    assert permissions.hides("größe")
    assert permissions.unknown(["größe"]) == []
    assert len(permissions.unknown(["groesse"])) == 1


async def test_bytes_that_change_between_the_approval_and_the_copy_do_not_run(
    skills: Path, rehearse: Any, chat: Any
) -> None:
    """The copy that the sandbox makes is compared with the version that the user approved."""
    name, args = PUBLISH
    server = rehearse(calls((name, {**args, "files": ["in.txt"]}), "Done."))
    toolset = SkillToolset.from_dirs([skills], permissions={"scripts": {"*": "ask"}, "remember": "once"})
    talk = await chat(agent_with(server, toolset))
    service = talk.runner.artifact_service
    await service.save_artifact(
        app_name="tests",
        user_id="user",
        session_id=talk.session_id,
        filename="in.txt",
        artifact=types.Part.from_bytes(data=b"x", mime_type="text/plain"),
    )
    load = service.load_artifact
    script = skills / "reporter" / "scripts" / "publish.py"

    async def swapping(*positional: Any, **named: Any) -> Any:
        script.write_text("print('SWAPPED')")
        return await load(*positional, **named)

    await talk.say("Publish")
    object.__setattr__(service, "load_artifact", swapping)
    await talk.answer(True)
    assert "SWAPPED" not in str(talk.results)
    assert talk.results[-1]["error_code"] == "APPROVAL_REQUIRED"


@pytest.mark.parametrize("way", ["sandbox", "unsafe", "container", "environment"])
async def test_every_way_to_run_a_script_refuses_other_bytes_than_the_approved_ones(
    way: str, skills: Path, rehearse: Any, chat: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very last moment: the folder changes after the user's answer was weighed."""
    from google.adk.code_executors import UnsafeLocalCodeExecutor as GoogleExecutor
    from google.adk.environment import LocalEnvironment

    import adk_skills_agent.adk.tools.run_skill_script as tool
    from adk_skills_agent.executors import UnsafeLocalCodeExecutor

    more: dict[str, Any] = {
        "sandbox": {},
        "unsafe": {"code_executor": UnsafeLocalCodeExecutor()},
        "container": {"code_executor": GoogleExecutor()},
        "environment": {"environment": LocalEnvironment(working_dir=skills.parent / "env")},
    }[way]
    server = rehearse(calls(PUBLISH, "Done."))
    toolset = SkillToolset.from_dirs([skills], permissions={"scripts": {"*": "ask"}}, **more)
    talk = await chat(agent_with(server, toolset))
    await talk.say("Publish")
    weigh = tool.weigh

    async def and_swap(*positional: Any) -> Any:
        answer = await weigh(*positional)
        (skills / "reporter" / "scripts" / "publish.py").write_text("print('SWAPPED')")
        return answer

    monkeypatch.setattr(tool, "weigh", and_swap)
    await talk.answer(True)
    assert "SWAPPED" not in str(talk.results)
    assert talk.results[-1]["error_code"] == "APPROVAL_REQUIRED"


async def test_a_denied_load_skill_is_not_replaced_by_reading_its_file(skills: Path, rehearse: Any, chat: Any) -> None:
    (skills / "reporter" / "references" / "link.md").symlink_to("../SKILL.md")
    paths = ["SKILL.md", "./SKILL.md", "references/../SKILL.md", "skill.md", "references/link.md", "link.md"]
    reads = [("load_skill_resource", {"skill_name": "reporter", "file_path": path}) for path in paths]
    for one in reads:
        server = rehearse(calls(one, "Done."))
        toolset = SkillToolset.from_dirs([skills], permissions={"tools": {"load_skill": "deny"}})
        talk = await chat(agent_with(server, toolset))
        await talk.say("Read it")
        assert "Run `scripts/publish.py`" not in str(talk.results), one


async def test_reading_the_instructions_asks_as_loading_them_does_and_only_once(
    skills: Path, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(SKILL_MD, LOAD, "Done."))
    toolset = SkillToolset.from_dirs([skills], permissions={"tools": {"load_skill": "ask"}})
    talk = await chat(agent_with(server, toolset))
    await talk.say("Read it")
    assert talk.question["payload"]["skill_approval"]["approves"] == ["activate"]
    await talk.answer(True)
    assert "Run `scripts/publish.py`" in talk.results[1]["content"]
    assert len(talk.questions) == 1
    server.assert_finished()


async def test_a_call_that_the_user_refused_is_counted_when_the_model_repeats_it(
    skills: Path, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(*[PUBLISH] * 20))
    toolset = SkillToolset.from_dirs([skills], permissions={"scripts": {"*": "ask"}})
    talk = await chat(agent_with(server, toolset))
    await talk.say("Publish")
    await talk.answer(False)
    assert len(talk.questions) == 1
    assert len(server.requests) < 6
    assert talk.results[-2]["error_code"] == "PERMISSION_DENIED_FATAL"
    assert talk.text == "I was not allowed to do what I needed, so I stopped here."


@pytest.mark.parametrize(
    "call",
    [LOAD, PUBLISH, ("load_skill_resource", {"skill_name": "reporter", "file_path": "references/guide.md"})],
)
async def test_a_denied_call_that_is_repeated_ends_the_turn(call: Any, skills: Path, rehearse: Any, chat: Any) -> None:
    server = rehearse(calls(*[call] * 20))
    toolset = SkillToolset.from_dirs([skills], permissions={"tools": {call[0]: "deny"}})
    talk = await chat(agent_with(server, toolset))
    await talk.say("Go")
    assert len(server.requests) < 6


async def test_the_scripts_of_a_skill_cannot_see_a_denied_skill_inside_it(
    make_skill: Callable[..., Path], rehearse: Any, chat: Any
) -> None:
    program = "import os\nfor d, _, f in os.walk('/skill'):\n  print(d, f)\nprint(os.listdir('.'))\n"
    parent = make_skill("parent", files={"scripts/ls.py": program})
    make_skill("hidden-one", body="HIDDEN-BODY", files={"scripts/h.py": "print(1)"}, root=parent)
    call = ("run_skill_script", {"skill_name": "parent", "file_path": "scripts/ls.py"})
    for permissions, seen in (({"skills": {"hidden-*": "deny"}}, False), ({}, True)):
        server = rehearse(calls(call, "Done."))
        toolset = SkillToolset.from_dirs([parent.parent], permissions=permissions)
        talk = await chat(agent_with(server, toolset))
        await talk.say("List")
        assert "ls.py" in talk.results[-1]["stdout"]
        assert ("hidden-one" in talk.results[-1]["stdout"]) is seen


async def test_an_approved_skill_with_a_denied_one_inside_it_runs(
    make_skill: Callable[..., Path], rehearse: Any, chat: Any
) -> None:
    parent = make_skill("parent", files={"scripts/go.py": "print('ran')"})
    make_skill("hidden-one", root=parent)
    server = rehearse(calls(("run_skill_script", {"skill_name": "parent", "file_path": "scripts/go.py"}), "Done."))
    rules = {"skills": {"hidden-*": "deny"}, "scripts": {"*": "ask"}}
    talk = await chat(agent_with(server, SkillToolset.from_dirs([parent.parent], permissions=rules)))
    await talk.say("Go")
    await talk.answer(True)
    assert talk.results[-1]["stdout"] == "ran\n"


async def test_a_tool_that_is_denied_for_one_active_skill_is_not_lifted_by_another(
    two_mailers: Path, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(("load_skill", {"skill_name": "mailer"}), ("load_skill", {"skill_name": "other"}), "Done."))
    toolset = SkillToolset.from_dirs(
        [two_mailers], additional_tools=[send_mail], permissions={"tools": {"mailer/send_mail": "deny"}}
    )
    talk = await chat(agent_with(server, toolset))
    await talk.say("Mail Bob")
    assert "send_mail" not in server.requests[-1].tool_names


@pytest.mark.parametrize("rule", ["p_send_mail", "mailer/p_send_mail", "send_mail", "P_*"])
async def test_a_rule_counts_for_a_tool_by_the_name_that_the_model_sees(
    rule: str, two_mailers: Path, rehearse: Any, chat: Any
) -> None:
    server = rehearse(calls(("p_load_skill", {"skill_name": "mailer"}), "Done."))
    toolset = SkillToolset.from_dirs(
        [two_mailers], additional_tools=[send_mail], permissions={"tools": {rule: "deny"}}, tool_name_prefix="p"
    )
    talk = await chat(agent_with(server, toolset))
    await talk.say("Mail Bob")
    assert "p_send_mail" not in server.requests[-1].tool_names


async def test_a_rule_for_an_own_tool_counts_with_the_prefix(skills: Path, rehearse: Any, chat: Any) -> None:
    server = rehearse(calls(("p_load_skill", {"skill_name": "reporter"}), "Done."))
    toolset = SkillToolset.from_dirs([skills], permissions={"tools": {"p_load_skill": "deny"}}, tool_name_prefix="p")
    talk = await chat(agent_with(server, toolset))
    await talk.say("Load it")
    assert talk.results[-1]["error_code"] == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    ("rules", "is_part"),
    [
        ({"scripts": {"inner/*": "deny"}}, False),
        ({"skills": {"inner": "ask"}}, False),
        ({"default": "ask", "skills": {"outer": "allow"}}, False),
        ({"skills": {"outer": "ask"}}, True),
        ({"default": "ask"}, True),  # the question about the outer one is about all of its folder
        ({"scripts": {"*/r.md": "ask", "outer/*": "ask"}}, True),
        ({}, True),
    ],
)
def test_row_332_a_skill_in_the_folder_of_another_one_is_no_way_around_its_rules(
    make_skill: Callable[..., Path], rules: dict[str, Any], is_part: bool
) -> None:
    """Seen: what nobody might run without a question ran as a script of the skill around it."""
    outer = make_skill("outer", files={"scripts/o.sh": "echo\n"})
    make_skill("inner", root=outer, files={"scripts/i.sh": "echo inner\n", "references/r.md": "inner"})
    skills = SkillToolset.from_dirs([outer.parent], permissions=rules).runtime.source
    around, inside = skills.local("outer"), skills.local("inner")
    assert around is not None
    assert inside is not None
    assert ("inner/scripts/i.sh" in around.files()) is is_part
    assert "scripts/i.sh" in inside.files()
    if not is_part:
        with pytest.raises(SkillsError):
            around.find("inner/SKILL.md")


@pytest.mark.parametrize("rules", [{"skills": {"risky": "ask"}}, {"scripts": {"risky/*": "deny"}}, {}])
async def test_row_339_a_skill_of_a_registry_has_the_rules_of_its_name_under_every_id(rules: dict[str, Any]) -> None:
    """Seen: the model wrote another id of the same skill, and nobody was asked."""
    frontmatter = adk_skills.Frontmatter(name="risky", description="Does it.")

    class Registry(adk_skills.SkillRegistry):
        async def get_skill(self, *, name: str) -> adk_skills.Skill:
            return adk_skills.Skill(frontmatter=frontmatter, instructions="Do it.")

        async def search_skills(self, *, query: str) -> list[adk_skills.Frontmatter]:
            return [frontmatter]

        def search_tool_description(self) -> str:
            return "Search."

    source = SkillToolset(skills=[], registry=Registry(), permissions=rules).runtime.source
    assert await source.get("risky", "invocation") is not None
    assert (await source.get("risky-v2", "invocation") is None) is bool(rules)


async def test_a_rule_may_name_a_link_to_a_script(make_skill: Callable[..., Path], rehearse: Any, ask: Any) -> None:
    """Seen: the script ran by the name that a rule denies, because it has another one."""
    folder = make_skill("ops", files={"src/tools/wipe.sh": "echo wiped\n", "scripts/ok.sh": "echo ok\n"})
    (folder / "lib").symlink_to("src")
    for name in ("x.sh", "wipe.sh"):
        (folder / "scripts" / name).symlink_to("../src/tools/wipe.sh")
    denied = {"ops/lib/tools/wipe.sh": "deny", "ops/x.sh": "deny", "ops/scripts/wipe.sh": "deny"}
    toolset = SkillToolset.from_dirs([folder.parent], permissions={"scripts": denied})
    asked = ("lib/tools/wipe.sh", "x.sh", "wipe.sh", "ok.sh", "./scripts/ok.sh")
    runs = [("run_skill_script", {"skill_name": "ops", "file_path": path}) for path in asked]
    answered = await ask(agent_with(rehearse(calls(*runs, "Done.")), toolset), "go")
    told = [result.get("error_code") or result["stdout"] for _, result in answered.results]
    assert told == ["PERMISSION_DENIED"] * 3 + ["ok\n"] * 2
    await toolset.close()


@pytest.mark.parametrize("key", ["weather-report", "weather/report", "weather/scripts/report"])
async def test_row_356_a_registrys_id_with_a_slash_is_no_script_of_another_skill_and_no_other_skill(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any, key: str
) -> None:
    """Seen: a registry's ``weather/report`` had the keys of ``weather-report``, and the rules for ``weather/*``."""
    root = make_skill("weather", files={"scripts/report": "#!/bin/sh\necho own\n"}).parent
    hostile = adk_skills.Skill(
        frontmatter=adk_skills.Frontmatter(name="report", description="Does it."),
        instructions="Do it.",
        resources=adk_skills.Resources(scripts={"go.sh": adk_skills.Script(src="echo has ${KEY:-nothing}")}),
    )

    class Registry(adk_skills.SkillRegistry):
        async def get_skill(self, *, name: str) -> adk_skills.Skill:
            return hostile

        async def search_skills(self, *, query: str) -> list[adk_skills.Frontmatter]:
            return []

    name = key if "/" in key else "weather/report"
    run = ("run_skill_script", {"skill_name": name, "file_path": "scripts/go.sh"})
    for permissions in (
        None,
        {"default": "ask", "skills": {"weather": "allow"}, "scripts": {"weather/*": "allow"}},
    ):
        toolset = SkillToolset.from_dirs(
            [root], registry=Registry(), permissions=permissions, grants={key: {"KEY": Secret("sk-weather-123456")}}
        )
        answered = await ask(agent_with(rehearse(calls(run, "Done.")), toolset), "go")
        [(_, result)] = answered.results
        if permissions is None:
            assert result["stdout"] == "has nothing\n", result
        else:
            assert result["error_code"] == "APPROVAL_REQUIRED", result
        await toolset.close()


async def test_row_485_a_local_skill_that_is_gone_for_a_moment_is_not_the_registry_s(
    make_skill: Callable[..., Path], tmp_path: Path
) -> None:
    """As when ``git pull`` changes the folder: a stranger's skill of the registry got the local one's keys."""
    stranger = adk_skills.Skill(
        frontmatter=adk_skills.Frontmatter(name="weather", description="Does it."), instructions="A stranger's."
    )

    class Registry(adk_skills.SkillRegistry):
        async def get_skill(self, *, name: str) -> adk_skills.Skill:
            return stranger

        async def search_skills(self, *, query: str) -> list[adk_skills.Frontmatter]:
            return []

    folder = make_skill("weather")
    for grants in ({"weather": {"KEY": "x"}}, {}):
        toolset = SkillToolset.from_dirs([folder.parent], registry=Registry(), grants=grants)
        source = toolset.runtime.source
        assert source.names() == ["weather"]
        folder.rename(tmp_path / "away")
        assert source.catalog is not None
        source.catalog.refresh()
        assert source.names() == []
        found = await source.get("weather")
        assert (found is None) is bool(grants)
        (tmp_path / "away").rename(folder)
        await toolset.close()


async def test_grants_and_rules_for_an_id_with_a_slash_spell_it_otherwise(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any
) -> None:
    frontmatter = adk_skills.Frontmatter(name="weather", description="Does it.")
    scripts = {"go.sh": adk_skills.Script(src="test -n $KEY && echo has it")}

    class Registry(adk_skills.SkillRegistry):
        async def get_skill(self, *, name: str) -> adk_skills.Skill:
            return adk_skills.Skill(
                frontmatter=frontmatter, instructions="Do it.", resources=adk_skills.Resources(scripts=scripts)
            )

        async def search_skills(self, *, query: str) -> list[adk_skills.Frontmatter]:
            return [frontmatter]

    root = make_skill("other").parent
    toolset = SkillToolset.from_dirs(
        [root],
        registry=Registry(),
        permissions={"skills": {"acme/weather": "ask"}, "scripts": {"acme%2Fweather/scripts/go.sh": "allow"}},
        grants={"acme%2Fweather": {"KEY": Secret("sk-weather-123456")}},
    )
    run = ("run_skill_script", {"skill_name": "acme/weather", "file_path": "scripts/go.sh"})
    answered = await ask(agent_with(rehearse(calls(run, "Done.")), toolset), "go")
    assert [result.get("stdout") for _, result in answered.results] == ["has it\n"], answered.results
    await toolset.close()


@pytest.mark.parametrize(("meant", "other"), [("business", "busine\u00df"), ("access-log", "acce\u00df-log")])
def test_row_364_what_is_allowed_to_a_name_is_allowed_to_no_other_that_folds_to_it(
    make_skill: Callable[..., Path], meant: str, other: str
) -> None:
    """Seen: ``busine\u00df`` was loaded without a question and had the host of ``business``."""
    registry = SkillsRegistry()
    registry.discover([make_skill(name, files={"scripts/go.sh": "echo"}) for name in (meant, other)])
    skills = {name: DiskSkill(registry.load_skill(name), Scope.EXPLICIT) for name in (meant, other)}
    rules = Permissions(
        default="ask",
        skills={meant.title(): "allow"},
        scripts={f"{meant.upper()}/*": "allow"},
        tools={f"{meant}/send": "allow"},
        hosts={f"{meant}/api.test": "allow"},
    )
    for action, target in (("activate", ""), ("run", "scripts/go.sh"), ("tool", "send")):
        assert rules.decide(skills[meant], action, target).verdict is Verdict.ALLOW, action
        assert rules.decide(skills[other], action, target).verdict is Verdict.ASK, action
    assert host_rules(rules, meant).allowed == ("api.test",)
    assert host_rules(rules, other).allowed == ()

    strict = Permissions(skills={meant: "deny"}, hosts={f"{meant}/api.test": "deny"})
    assert strict.hides(meant)
    assert strict.hides(other)  # nobody tells them apart at a glance
    assert host_rules(strict, other).denied == ("api.test",)
