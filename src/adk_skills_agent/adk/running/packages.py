"""Asking the user for the packages of a skill: the exact list, once for these bytes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from adk_skills_agent.adk.events.events import ApprovalRequested, origin_of
from adk_skills_agent.adk.guard import text_in
from adk_skills_agent.adk.permissions import ask_user, decided, own_question, refusal
from adk_skills_agent.adk.running.call import share_of_session
from adk_skills_agent.errors import ErrorCode
from adk_skills_agent.executors.threads import in_thread
from adk_skills_agent.sandbox import MAX_WAITING, Semaphore

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

    from adk_skills_agent.adk.runtime import SkillRuntime
    from adk_skills_agent.packages import Lock, LockedPackage, PackagesNotApproved

logger = logging.getLogger(__name__)

_MARK = "adk_skill_packages"
_WITH_HASHES = 40


async def approve_packages(
    runtime: SkillRuntime, tool_context: ToolContext, wanted: PackagesNotApproved
) -> dict[str, Any] | None:
    """Ask for packages, or take the answer.

    The question is put with google-adk's tool confirmation: the invocation pauses, and the same call is made again with
    the answer. A refusal holds for the session, until what is needed changes. Returns None when the user said yes to
    exactly this lock, else the tool's answer.
    """
    lock, skill = wanted.lock, wanted.skill
    refused_key = f"_adk_skill_packages_refused:{skill}"
    about = ApprovalRequested(
        origin=origin_of(tool_context),
        skill=skill,
        action="packages",
        target=_names(lock.packages),
        version=lock.digest,
        subjects=("packages",),
        reason="the skill needs packages that are not here",
    )
    answer = tool_context.tool_confirmation
    asked = str((own_question(tool_context, _MARK) or {}).get("digest") or "")
    if answer is not None and asked == lock.digest:
        if answer.confirmed:
            runtime.events.emit(decided(about, "approved", "user", kept="owner"))
            return None
        runtime.events.emit(decided(about, "rejected", "user", kept="session"))
        tool_context.state[refused_key] = lock.digest
        return _refusal(skill)
    if text_in(tool_context.state, refused_key) == lock.digest:
        return _refusal(skill)
    if answer is not None:  # of another question: google-adk puts no second one for the same call
        return refusal(
            ErrorCode.APPROVAL_REQUIRED,
            f"The packages of skill '{skill[:64]}' need an approval of their own. Call the tool again to ask for it.",
        )
    if not tool_context.function_call_id:
        return refusal(ErrorCode.PERMISSION_DENIED, f"The packages of skill '{skill[:64]}' need the user's approval.")
    runtime.events.emit(about)
    return ask_user(
        tool_context,
        question(skill, lock),
        _payload(skill, lock),
        "The user is asked to approve the packages of this skill. Do not repeat the call; it continues by itself once "
        "they answer.",
    )


def question(skill: str, lock: Lock) -> str:
    """The question to the user: every package with its version, the first with the start of its hash, and the size.

    None is left out, however many there are: the yes is for all of them (row 319).
    """
    listed = ", ".join(map(str, lock.packages[:_WITH_HASHES]))
    more = f", and {_names(lock.packages[_WITH_HASHES:])}" if len(lock.packages) > _WITH_HASHES else ""
    packages = "1 package" if len(lock.packages) == 1 else f"{len(lock.packages)} packages"
    size = lock.download_bytes
    fetched = f" Up to {size / (1 << 20):.1f} MiB are fetched." if size else ""
    return (
        f"Install {packages} for skill '{skill[:64]}'? {listed}{more}.{fetched} "
        "They are kept read-only for the sandbox; nothing of them runs outside it. The answer holds for these bytes."
    )


def _names(packages: Sequence[LockedPackage]) -> str:
    return ", ".join(f"{one.name}=={one.version}" for one in packages)


def _payload(skill: str, lock: Lock) -> dict[str, Any]:
    packages = [{"name": one.name, "version": one.version, "sha256": list(one.hashes)} for one in lock.packages]
    return {_MARK: {"skill": skill, "digest": lock.digest, "packages": packages, "bytes": lock.download_bytes}}


def _refusal(skill: str) -> dict[str, Any]:
    return refusal(
        ErrorCode.PERMISSION_DENIED,
        f"The user refused the packages of skill '{skill[:64]}'. Do not try again; do it without them, or ask what to "
        "do instead.",
    )


_PREPARING = Semaphore(16, fair=True, most_waiting=MAX_WAITING)
_Result = TypeVar("_Result")


async def in_own_thread(
    tool_context: ToolContext,
    work: Callable[..., _Result],
    /,
    *args: Any,
    turns: Semaphore = _PREPARING,
    **named: Any,
) -> _Result:
    """Do what blocks for long: an index of packages may be slow, and an installation takes minutes.

    It has a thread of its own, of which a user has a share (of ``turns``): all tools of all users, and the agent's name
    look-ups, wait for the few threads of the loop's pool (row 244). A caller that is cancelled leaves the work alone,
    which keeps its place to the end. Raises what the work raises, or ``TooManyRuns``.
    """
    began = False

    async def alone() -> _Result:
        nonlocal began
        async with turns.turn(share_of_session(tool_context)):
            began = True
            return await in_thread(lambda: work(*args, **named), None)

    task = asyncio.get_running_loop().create_task(alone())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if began:
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody waits for it any more
        else:
            task.cancel()
        raise
