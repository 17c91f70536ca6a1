"""What a toolset tells the model in the system instruction: when to load a skill, what not to do (C24, S0-15)."""

from __future__ import annotations

from collections.abc import Callable, Collection

TOOLS = ("list_skills", "load_skill", "load_skill_resource", "run_skill_script")
_BANNABLE = ("run_skill_script", "load_skill_resource", "load_skill", "list_skills", "unload_skill")


def toolset_instruction(
    name: Callable[[str], str] = str, offered: Collection[str] = TOOLS, filtered: Collection[str] = ()
) -> str:
    """The instruction for the tools of one request.

    Args:
        name: A tool's name for the model.
        offered: The tools, by their own names, that the model can call.
        filtered: Those that the owner's ``tool_filter`` took away; a model that knows google-adk would try them.
    """
    steps = []
    if "load_skill" in offered:
        steps += [
            f"When a skill fits the task, call `{name('load_skill')}` before anything else.",
            "Follow the instructions of a loaded skill exactly, step by step. Loading a skill does NOT complete your "
            "turn: go on in the same turn with the tools its steps need, then answer. Never end with an empty "
            "response.",
        ]
    if "load_skill_resource" in offered:
        steps.append(
            f"`{name('load_skill_resource')}` reads files of a skill, such as `references/guide.md`; not files of "
            "the user."
        )
    if "run_skill_script" in offered:
        steps.append(f"`{name('run_skill_script')}` runs a file of a skill's `scripts/` folder.")
    elif "load_skill_resource" in offered:
        steps.append("Scripts of skills cannot be run here; read them and follow them yourself.")
    tried = [f"`{name(tool)}`" for tool in ("load_skill_resource", "run_skill_script") if tool in offered]
    if tried:
        steps.append(
            f"Use only paths that a skill names or lists. If {' or '.join(tried)} returns an error, do not retry and "
            "do not guess another path: tell the user and stop."
        )
    numbered = "".join(f"{number}. {step}\n" for number, step in enumerate(steps, start=1))
    text = (
        "You can use skills: folders of instructions (SKILL.md), references, assets and scripts for one kind of task."
        f"\n\n{numbered}"
    )
    # What search and unload need is said where they are of use, so that this text is the same in every request.
    banned = [f"`{name(tool)}`" for tool in _BANNABLE if tool in filtered]
    if banned:
        text += (
            f"\nThe following tools are NOT available: {', '.join(banned)}. Do NOT call them. Write your answer as "
            "normal text, never inside a tool call.\n"
        )
    return text


DEFAULT_SKILL_SYSTEM_INSTRUCTION = toolset_instruction()
"""What a toolset without prefix and filter says; google-adk has the same name for its own."""
