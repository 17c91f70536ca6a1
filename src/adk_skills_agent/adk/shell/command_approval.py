"""Asking the user about a shell command, where the owner's rules for commands say so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.events.events import ApprovalDecided, ApprovalRequested, origin_of
from adk_skills_agent.adk.guard import call_key, texts_in
from adk_skills_agent.adk.permissions import Decision, ask_user, own_question, refusal
from adk_skills_agent.adk.rules import Keep, Verdict
from adk_skills_agent.adk.running.packages import in_own_thread
from adk_skills_agent.adk.shell.command_rules import decide_command
from adk_skills_agent.adk.shell.command_words import AS_BLANKS
from adk_skills_agent.errors import ErrorCode
from adk_skills_agent.sandbox import MAX_WAITING, Semaphore

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime

_DECIDING = Semaphore(2, fair=True, most_waiting=MAX_WAITING)
"""Lines that are read at a time, one of a user: a long one takes seconds of a processor (row 323)."""
_MARK = "adk_skills_command"
_SHOWN = 400
_SHOWN_REASON = 2_000  # it names a dozen commands
_MOST_KEPT = 500


async def permit_command(runtime: SkillRuntime, context: ToolContext, line: str, skill: str) -> dict[str, Any] | None:
    """Whether a command line may run: the owner's rules, and the user where they say so.

    ``skill`` is the one whose grants the line gets: a yes to a command covers no other skill's keys (row 166).

    With ``trust_allowed_tools`` what an active skill's ``allowed-tools`` name (``Bash(git:*)``) is not asked about.
    Returns None to go on, else the tool's answer.
    """
    if not runtime.permissions.commands:
        return None
    if not runtime.grants.has(skill) and not runtime.permissions.hosts:
        skill = ""  # its commands get what those of any skill get
    decision = await in_own_thread(
        context,
        lambda: decide_command(runtime.permissions, line, runtime.trusted_tools(context, skill)),
        turns=_DECIDING,
    )
    if decision.verdict is Verdict.ALLOW:
        return None
    key = call_key("denied", "execute", decision.target)
    if decision.verdict is Verdict.DENY:
        stopped = runtime.guard.refused(context, "denied", key)
        if stopped is not None:
            return stopped
        _decided(runtime, context, decision, "denied", by="rule")
        answer = refusal(
            ErrorCode.PERMISSION_DENIED,
            f"'{decision.target[:80]}' must not be run here. Do not try again; do it another way, or tell the user.",
        )
        return runtime.guard.miss(context, "denied", answer, key, "")
    return _asked(runtime, context, line, decision, skill)


def _asked(
    runtime: SkillRuntime, context: ToolContext, line: str, decision: Decision, skill: str
) -> dict[str, Any] | None:
    approved_key = f"_adk_commands_approved:{context.agent_name}" + (f":{skill}" if skill else "")
    approved = texts_in(context.state, approved_key, _MOST_KEPT)
    if set(decision.subjects) <= set(approved):
        return None
    answer = context.tool_confirmation
    asked = own_question(context, _MARK) or {}
    if answer is not None and (asked.get("command"), asked.get("skill")) == (line, skill):
        if not answer.confirmed:
            _decided(runtime, context, decision, "rejected", by="user")
            return refusal(
                ErrorCode.PERMISSION_DENIED,
                "The user refused this command. Do not try again; do it another way, or ask what to do instead.",
            )
        kept = runtime.permissions.kept_for(answer.payload) is not Keep.ONCE
        if kept:
            context.state[approved_key] = list(dict.fromkeys((*approved, *decision.subjects)))[-_MOST_KEPT:]
        _decided(runtime, context, decision, "approved", by="user", kept="session" if kept else "once")
        return None
    if answer is not None or not context.function_call_id:  # google-adk puts no second question for one call
        return refusal(
            ErrorCode.APPROVAL_REQUIRED, "This command needs an approval of its own. Call the tool again to ask for it."
        )
    runtime.events.emit(
        ApprovalRequested(
            origin=origin_of(context),
            skill=skill,
            action="execute",
            target=line[:_SHOWN],
            subjects=decision.subjects,
            rule=str(decision.rule or ""),
            reason=decision.reason,
        )
    )
    granted = f" with what is granted to skill '{skill[:64]}'" if skill else ""
    return ask_user(
        context,
        f"Run this command in the sandbox{granted}? {shown_line(line)}\n{_asked_for(decision)}",
        {
            _MARK: {"command": line, "skill": skill, "commands": list(decision.subjects)},
            "remember": min(runtime.permissions.remember, Keep.SESSION, key=list(Keep).index).value,
        },
        "The user is asked to approve this command. Do not repeat the call; it continues by itself once they answer.",
    )


def shown_line(text: str, most: int = _SHOWN) -> str:
    """A command as people are asked about it: in one line, runs of blanks as one, its beginning and its end."""
    text = " ".join(re.sub(r"[\r\n]+", " ⏎ ", text).split())
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} ... ({len(text) - most:,} characters more) ... {text[-most // 2 :]}"


def _asked_for(decision: Decision) -> str:
    """What the approval covers, each command of it: one that stands behind many blanks must not go unseen."""
    commands = [subject.removeprefix("command:") for subject in decision.subjects if subject.startswith("command:")]
    shown = "; ".join(shown_line(command.translate(AS_BLANKS), 120) for command in commands)
    whole = " This line only." if len(commands) < len(decision.subjects) else ""
    asked = f"You approve: {shown}.{whole} " if len(decision.subjects) > 1 else ""
    return f"{asked}Asked because of '{shown_line(decision.target, 80)}': {shown_line(decision.reason, _SHOWN_REASON)}."


def _decided(
    runtime: SkillRuntime, context: ToolContext, decision: Decision, word: str, *, by: str, kept: str = ""
) -> None:
    runtime.events.emit(
        ApprovalDecided(
            origin=origin_of(context),
            skill="",
            decision=word,
            by=by,
            kept=kept,
            action="execute",
            target=decision.target,
            subjects=decision.subjects,
            rule=str(decision.rule or ""),
            reason=decision.reason,
        )
    )
