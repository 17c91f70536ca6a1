"""Placeholders for a skill's folder in what a skill says, and the variables of the same names for its scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from tool_calls import agent_with, many_calls

from adk_skills_agent import SandboxPolicy, with_skills
from adk_skills_agent.adk.activation.instructions import text_digest
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.errors import ErrorCode
from adk_skills_agent.scripts.plan import with_skill_path

FORMS = ("{baseDir}", "${CLAUDE_SKILL_DIR}", "${CLAUDE_PLUGIN_ROOT}", "${SKILL_DIR}", "$SKILL_DIR", "$CLAUDE_SKILL_DIR")
BODY = "\n".join(f"Run `{form}/scripts/show.sh {form}/assets/a.txt`." for form in FORMS)
LEFT = "`$SKILL_DIRECTORY`, `{basedir}`, `${HOME}`, `$$SKILL`, `{ baseDir }` stay."
SHOW = 'printf "%s|" "$SKILL_DIR" "$CLAUDE_SKILL_DIR" "$CLAUDE_PLUGIN_ROOT" "$0"; cat "$SKILL_DIR/assets/a.txt" "$1"'


@pytest.fixture
def skills(make_skill: Callable[..., Path]) -> Path:
    files = {
        "scripts/show.sh": SHOW,
        "assets/a.txt": "here",
        "references/guide.md": f"{BODY}\n",
        "assets/template.js": "`${SKILL_DIR}` {baseDir}",
    }
    return make_skill("tools", body=f"{BODY}\n\n{LEFT}\n", files=files).parent


def load(tool: str, **args: Any) -> tuple[str, dict[str, Any]]:
    return tool, {"skill_name": "tools", **args}


async def results(ask: Any, server: Any, toolset: SkillToolset) -> list[Any]:
    answered = await ask(agent_with(server, toolset), "go")
    await toolset.close()
    return [result for _, result in answered.results]


def resolved(directory: str = "/skill") -> str:
    return "\n".join([f"Run `{directory}/scripts/show.sh {directory}/assets/a.txt`."] * len(FORMS))


async def test_every_form_becomes_the_skills_path_in_instructions_and_references(
    skills: Path, rehearse: Any, ask: Any
) -> None:
    server = rehearse(
        many_calls(
            load("load_skill"),
            load("load_skill_resource", file_path="references/guide.md"),
            load("load_skill_resource", file_path="assets/template.js"),
            load("load_skill_resource", file_path="scripts/show.sh"),
        )
    )
    toolset = SkillToolset.from_dirs([skills])
    loaded, guide, template, script = await results(ask, server, toolset)
    assert loaded["instructions"].strip() == f"{resolved()}\n\n{LEFT}"
    assert loaded["base_directory"] == "/skill"
    assert guide["content"].strip() == resolved()
    # Code is shown as it is: what the model edits or explains must be what is there.
    assert template["content"] == "`${SKILL_DIR}` {baseDir}"
    assert script["content"] == SHOW
    last = str(server.requests[-1].body)
    assert "/skill/scripts/show.sh /skill/assets/a.txt" in last
    assert "{baseDir}/scripts" not in last


async def test_a_toolset_with_a_shell_names_the_folder_there(skills: Path, rehearse: Any, ask: Any) -> None:
    toolset = SkillToolset.from_dirs([skills])
    assert toolset.runtime.skill_path_for_model("tools") == "/skill"
    toolset.runtime.shell = True
    server = rehearse(many_calls(load("load_skill"), load("load_skill_resource", file_path="references/guide.md")))
    loaded, guide = await results(ask, server, toolset)
    assert loaded["instructions"].strip().startswith(resolved("/skills/tools"))
    assert loaded["base_directory"] == "/skills/tools"
    assert guide["content"].strip() == resolved("/skills/tools")
    assert "Skill directory: /skills/tools" in str(server.requests[-1].body)


async def test_what_counts_for_an_approval_is_the_text_of_the_file(skills: Path, rehearse: Any, ask: Any) -> None:
    """The same bytes are the same version, wherever the model finds the skill."""
    toolset = SkillToolset.from_dirs([skills])
    skill = toolset.runtime.source.local("tools")
    assert skill is not None
    text = toolset.runtime._as_written(skill)
    assert text.digest == text_digest(skill.instructions())
    assert "{baseDir}" in skill.instructions()
    assert "{baseDir}" not in text.body
    await toolset.close()


async def test_placeholders_are_no_names_of_the_sessions_state(
    make_skill: Callable[..., Path], rehearse: Any, ask: Any
) -> None:
    """``{baseDir}`` looks like one; the rest of the text is still filled in."""
    folder = make_skill("tools", body="Write {baseDir}/x for {customer?}.\n")
    text = (folder / "SKILL.md").read_text()
    (folder / "SKILL.md").write_text(
        text.replace("description:", "metadata:\n  adk_inject_state: true\ndescription:", 1)
    )
    server = rehearse(many_calls(load("load_skill")))
    (loaded,) = await results(ask, server, SkillToolset.from_dirs([folder.parent]))
    assert loaded["instructions"].strip() == "Write /skill/x for ."


@pytest.mark.parametrize("level", ["namespaces", "landlock", "process"])
async def test_the_variables_name_the_folder_in_the_sandbox_at_every_level(
    skills: Path, rehearse: Any, ask: Any, level: str
) -> None:
    policy = SandboxPolicy(isolation=level, min_isolation="process")
    toolset = SkillToolset.from_dirs([skills], policy=policy, grants={"tools/show.sh": {"CLAUDE_PLUGIN_ROOT": "mine"}})
    (answer,) = await results(
        ask, rehearse(many_calls(load("run_skill_script", file_path="show.sh", args=["/skill/assets/a.txt"]))), toolset
    )
    if answer.get("error_code") == ErrorCode.SANDBOX_UNAVAILABLE.value:
        pytest.skip(f"no {level} here")
    skill, other, granted, script, read = answer["stdout"].split("|")
    assert (skill, other, granted) == ("/skill", "/skill", "mine"), answer
    assert (script, read) == ("/skill/scripts/show.sh", "herehere")


async def test_the_agent_of_with_skills_reads_the_same(skills: Path, rehearse: Any, ask: Any) -> None:
    server = rehearse(
        many_calls(("use_skill", {"name": "tools"}), ("read_reference", {"skill": "tools", "reference": "guide.md"}))
    )
    agent = with_skills(LlmAgent(name="assistant", model=server.model(), instruction="Help."), [skills])
    used, guide = (result for _, result in (await ask(agent, "go")).results)
    assert resolved() in used["instructions"]
    assert guide["content"].strip() == resolved()


def test_a_text_without_placeholders_is_the_same_object() -> None:
    text = "Run scripts/x.py {base} $HOME"
    assert with_skill_path(text, "/skill") is text
