"""Every error this package raises, in one tree, and every code a model can see.

    SkillsError
    ├── FormatError              a SKILL.md cannot be used
    │   ├── ParseError           its text cannot be read as frontmatter and body
    │   └── ValidationError      its values break the specification (``.errors`` lists them all)
    ├── CatalogError
    │   ├── RegistryError        a registry of others raised something, or answered with what it must not
    │   ├── SkillNotFound        no skill of that name (``.suggestions``)
    │   ├── SkillNotActive       the skill must be loaded first, or is not loaded (any more)
    │   ├── ResourceNotFound     no such file in the skill (``.suggestions``)
    │   └── InvalidResourcePath  the path leaves the skill or is not a path
    ├── ScriptError
    │   ├── InvalidArguments     the arguments of a call have the wrong form
    │   ├── ScriptNotFound       no such script in the skill (``.suggestions``)
    │   └── UnsupportedScriptType  no interpreter for that kind of file
    ├── PackageError             what a skill needs cannot be resolved, fetched or installed (``.__notes__``: why)
    ├── SourceError              skills of others cannot be fetched, pinned, updated or served
    │   └── IntegrityError       a pinned skill is not what its lock says (``.changes``)
    ├── StorageError             a store that machines share does not answer, refuses, or holds damaged objects
    │   └── StorageDamaged       an object is not what was stored
    ├── ConfigError              a setting of the owner's cannot be used
    │   └── EvalFileError        a file of eval cases cannot be read as one (``.problems``)
    ├── EvaluationError          something could not be measured; never a score
    │   ├── JudgeUnavailable     the judge gave no verdict
    │   └── UserModelUnavailable  the model that plays a user said nothing
    └── SandboxError             the sandbox itself did not work; never a script's own failure
        ├── SandboxUnavailable   no isolation level here is strong enough (``.reasons``)
        │   ├── EngineUnavailable  no container engine can be used here; says what to install or to start
        │   └── ImageUnavailable   the container image is not there, cannot be built, or has no usable Python
        ├── TooManyRuns          so many runs of the same user or session wait already that this one was not begun
        ├── WorkspaceUnavailable  the session's files are in use on another server, or cannot be fetched
        ├── RunLost              the machine of a cluster that ran it was lost; it was not run again
        └── CleanupFailed        a container could not be removed (``.left_behind``); its run itself had ended

A script that fails, times out or is killed is a *result*, not an exception.

    UserWarning
    └── SecurityWarning          said once per process: scripts run with less isolation than a sandbox should give
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum


class ErrorCode(StrEnum):
    """The codes a model sees in ``error_code``; google-adk 2.13's spelling where it has one (S0-26 to S0-34)."""

    INVALID_ARGUMENTS = "INVALID_ARGUMENTS"
    SKILL_NOT_FOUND = "SKILL_NOT_FOUND"
    SKILL_NOT_ACTIVE = "SKILL_NOT_ACTIVE"
    SKILL_LOAD_ERROR = "SKILL_LOAD_ERROR"
    REGISTRY_ERROR = "REGISTRY_ERROR"
    INVALID_RESOURCE_PATH = "INVALID_RESOURCE_PATH"
    RESOURCE_NOT_FOUND = "RESOURCE_NOT_FOUND"
    SCRIPT_NOT_FOUND = "SCRIPT_NOT_FOUND"
    UNSUPPORTED_SCRIPT_TYPE = "UNSUPPORTED_SCRIPT_TYPE"
    NO_CODE_EXECUTOR = "NO_CODE_EXECUTOR"
    APPROVAL_REQUIRED = "APPROVAL_REQUIRED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    BINARY_FILE = "BINARY_FILE"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    SANDBOX_ERROR = "SANDBOX_ERROR"
    SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"
    TOO_MANY_RUNS = "TOO_MANY_RUNS"
    WORKSPACE_UNAVAILABLE = "WORKSPACE_UNAVAILABLE"
    RUN_LOST = "RUN_LOST"
    PACKAGES_UNAVAILABLE = "PACKAGES_UNAVAILABLE"
    CONFIG_ERROR = "CONFIG_ERROR"


class SkillsError(Exception):
    """The root of the tree: a code for the model and a sentence for a person.

    The sentence says what happened, with which value, and what to do next.
    """

    code: ErrorCode = ErrorCode.EXECUTION_ERROR

    def __init__(self, message: str) -> None:
        # A sentence that ends with somebody else's sentence has two full stops.
        self.message = _TWO_STOPS.sub(".", message)
        super().__init__(self.message)


_TWO_STOPS = re.compile(r"(?<=[^.\s])\.\.(?=\s|$)")


class FormatError(SkillsError):
    """A SKILL.md cannot be used."""

    code = ErrorCode.SKILL_LOAD_ERROR


class ParseError(FormatError):
    """The text of a SKILL.md cannot be read as frontmatter and body."""


class ValidationError(FormatError):
    """The values of a SKILL.md break the specification; ``errors`` has every message."""

    def __init__(self, message: str, errors: Sequence[str] | None = None) -> None:
        super().__init__(message)
        self.errors: list[str] = list(errors) if errors is not None else [message]


class _WithSuggestions(SkillsError):
    def __init__(self, message: str, suggestions: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.suggestions: tuple[str, ...] = tuple(suggestions)


class CatalogError(SkillsError):
    """A question to the catalog has no answer."""

    code = ErrorCode.REGISTRY_ERROR


class RegistryError(CatalogError):
    """A registry of others raised something, or answered with what it must not."""


class SkillNotFound(CatalogError, _WithSuggestions):
    """No skill has that name; ``suggestions`` are the nearest names, best first."""

    code = ErrorCode.SKILL_NOT_FOUND


class SkillNotActive(CatalogError):
    """The skill must be loaded first, or is not loaded (any more)."""

    code = ErrorCode.SKILL_NOT_ACTIVE


class ResourceNotFound(CatalogError, _WithSuggestions):
    """The skill has no such file; ``suggestions`` are the nearest paths, best first."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class InvalidResourcePath(CatalogError):
    """The path leaves the skill's folder, passes a link that does, or is not a path (S4-22)."""

    code = ErrorCode.INVALID_RESOURCE_PATH


class ScriptError(SkillsError):
    """A script cannot be started as asked."""


class InvalidArguments(ScriptError):
    """The arguments of a call have the wrong type or form (S0-32, S0-33, S0-36)."""

    code = ErrorCode.INVALID_ARGUMENTS


class ScriptNotFound(ScriptError, _WithSuggestions):
    """The skill has no such script; ``suggestions`` are the nearest ones, best first (S0-29)."""

    code = ErrorCode.SCRIPT_NOT_FOUND


class UnsupportedScriptType(ScriptError):
    """No interpreter is configured for that kind of file (S0-7, S0-8, S0-31)."""

    code = ErrorCode.UNSUPPORTED_SCRIPT_TYPE


class ConfigError(SkillsError):
    """A setting given by the owner cannot be used."""

    code = ErrorCode.CONFIG_ERROR


class EvalFileError(ConfigError):
    """A file of eval cases cannot be read as one; ``problems`` has a sentence with file, line and field for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems: tuple[str, ...] = tuple(problems)


class PackageError(SkillsError):
    """The packages a skill needs cannot be resolved, fetched or installed.

    The message is for the model; what the owner has to know and to do is a note of the exception.

    Attributes:
        of_some: Whether it is about some of the packages: without them the others may be had.
    """

    code = ErrorCode.PACKAGES_UNAVAILABLE
    of_some = False


class SourceError(SkillsError):
    """Skills of others cannot be fetched, pinned, updated or served as asked."""

    code = ErrorCode.SKILL_LOAD_ERROR


class IntegrityError(SourceError):
    """A pinned skill is not what its lock says; ``changes`` names each file."""

    def __init__(self, message: str, changes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.changes: tuple[str, ...] = tuple(changes)


class StorageError(SkillsError):
    """A store that machines share does not answer, refuses, or holds damaged objects. For the owner."""


class StorageDamaged(StorageError):
    """An object in a store is missing, cut off, or not what was stored."""


class EvaluationError(SkillsError):
    """Something could not be measured. An error of the run: never a pass, never a zero."""


class JudgeUnavailable(EvaluationError):
    """The judge's model could not be reached, or what it said is no verdict."""


class UserModelUnavailable(EvaluationError):
    """The model that plays a simulated user could not be reached, or said nothing."""


CHANGED = "The skill changed after this call was approved. Call the tool again to ask anew."


class SkillChanged(ScriptError):
    """The files that would run are not those that were approved."""

    code = ErrorCode.APPROVAL_REQUIRED


class SandboxError(SkillsError):
    """The sandbox itself did not work. Never shown as the script's own failure or output."""

    code = ErrorCode.SANDBOX_ERROR


class SandboxUnavailable(SandboxError):
    """No isolation level that works here reaches the policy's ``min_isolation``; ``reasons`` has one per level."""

    code = ErrorCode.SANDBOX_UNAVAILABLE

    def __init__(self, message: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reasons: tuple[str, ...] = tuple(reasons)


class EngineUnavailable(SandboxUnavailable):
    """No container engine can be used here: not installed, not running, or not permitted (issue 5)."""


class ImageUnavailable(SandboxUnavailable):
    """The container image is not there, cannot be pulled or built, or has no Python that can be used."""


class TooManyRuns(SandboxError):
    """So many runs of the same user or session wait already that this one was not begun (attack row 81)."""

    code = ErrorCode.TOO_MANY_RUNS


class WorkspaceUnavailable(SandboxError):
    """The session's files are in use on another server, or the store that has them cannot be used; nothing ran."""

    code = ErrorCode.WORKSPACE_UNAVAILABLE


class RunLost(SandboxError):
    """What ran the script on another machine was lost before the script had ended. Nothing is ever run twice."""

    code = ErrorCode.RUN_LOST


class CleanupFailed(SandboxError, RuntimeError):
    """Containers could not be killed or removed (S0-79)."""

    def __init__(self, message: str, left_behind: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.left_behind: tuple[str, ...] = tuple(left_behind)


class SecurityWarning(UserWarning):
    """Scripts run with less isolation than a sandbox should give; said once per process."""


def about(error: SandboxError, path: object) -> SandboxError:
    """Add a host path for the owner's traceback; the sentence itself may reach a model, which gets no host paths."""
    error.add_note(f"On the host: {path}")
    return error


# Texts and names of strangers in a sentence.


def in_one_line(text: str) -> str:
    """A stranger's text: it begins no line of its own, and commands no terminal."""
    return "".join(char if char.isprintable() else " " for char in " ".join(text.split()))


def said_by(error: BaseException, most: int = 300) -> str:
    """What an error of somebody else's says, in one line; its class when that is nothing."""
    return " ".join(str(error).split())[:most] or type(error).__name__


def some_of(names: Sequence[str], most: int, shown: Callable[[str], str] = str) -> str:
    """The first names of many, and how many more there are: ``a, b and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


# The nearest names to a wrong one, so that a model can correct itself in one step.

_MAX_LENGTH = 200  # what is longer is no slip of the pen, and comparing it would take long
_MAX_CANDIDATES = 5_000
_CUTOFF = 0.5
_COMPARED = 12  # names that are compared letter by letter; that takes up to 10 ms for each


def nearest(wanted: str, candidates: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The candidates most like what was asked for, best first.

    Returns:
        Candidates with the same last part first (``guide.md`` for ``docs/guide.md``), then those spelled alike.
    """
    wanted = wanted[:_MAX_LENGTH].lower()
    known: dict[str, str] = {}
    for candidate in candidates:
        known.setdefault(candidate.lower(), candidate)
        if len(known) >= _MAX_CANDIDATES:
            break
    last = wanted.rpartition("/")[2]
    same_last = [full for low, full in known.items() if last and low.rpartition("/")[2] == last]
    containing = [full for low, full in known.items() if len(last) >= 3 and last in low] if not same_last else []
    alike = [known[low] for low in spelled_alike(wanted, known, limit, _CUTOFF)]
    return tuple(dict.fromkeys([*same_last, *alike, *containing]))[:limit]


def did_you_mean(wanted: object, known: Iterable[str], otherwise: str) -> str:
    """A sentence that asks for the nearest name, or ``otherwise`` where none is like the wrong one."""
    close = nearest(str(wanted), known, 1)
    return f"Did you mean {close[0]!r}?" if close else otherwise


def spelled_alike(wanted: str, known: Iterable[str], limit: int, cutoff: float) -> list[str]:
    """As ``difflib.get_close_matches``, in a time that grows with the number of names alone (row 315).

    Only the names that share most letters with what was asked are compared in full: a model asks for what it likes, and
    strangers' skills and files have names that make each comparison take long.
    """
    import heapq
    from collections import Counter
    from difflib import get_close_matches

    letters = Counter(wanted)

    def shared(name: str) -> float:
        """The most that the ratio of the two can be."""
        both = len(wanted) + len(name)
        if 2 * min(len(wanted), len(name)) < cutoff * both:
            return 0.0
        return 2 * sum(min(times, name.count(letter)) for letter, times in letters.items()) / both

    likely = heapq.nlargest(_COMPARED, ((score, name) for name in known if (score := shared(name)) >= cutoff))
    return get_close_matches(wanted, [name for _, name in likely], n=limit, cutoff=cutoff)
