"""One execution in a session, as the caller asks for it and as it goes to the box."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox import frames
from adk_skills_agent.sandbox.contract import InputFile, SandboxPolicy
from adk_skills_agent.sandbox.env_names import check_env_name
from adk_skills_agent.sandbox.secrets import EnvValue, Secret, revealed

_LARGE_CODE = 256 << 10  # characters; JSON may make six bytes of one, twelve of some


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """One execution in a session.

    Attributes:
        code: Python source; the value of a last expression is printed.
        policy: Its limits. Those of the box as a whole (memory, processes, disk, network, isolation) hold for the
            session; deadline, processor time, output and files for this execution.
        env: Variables for this execution; a :class:`~.secrets.Secret` among them is kept out of what comes out.
        input_files: Written into the working directory first.
        cwd: Folder below the working directory to run in; made when it is missing. None stays where the session is.
        restrict_builtins: Take away dangerous builtins; friction, no boundary.
        redact: Names and values of more secrets that must not come out.
        on_output: See ``ExecutionRequest.on_output``.
        spill_dir: See ``ExecutionRequest.spill_dir``.
    """

    code: str
    policy: SandboxPolicy = field(default_factory=SandboxPolicy)
    env: Mapping[str, EnvValue] = field(default_factory=lambda: MappingProxyType({}))
    input_files: tuple[InputFile, ...] = ()
    cwd: str | None = None
    restrict_builtins: bool = False
    redact: tuple[tuple[str, Secret], ...] = ()
    on_output: Callable[[str, bytes], None] | None = None
    spill_dir: Path | None = None


def request_frames(number: int, request: SessionRequest) -> Iterator[bytes]:
    """What goes to the box for one execution, in order.

    Args:
        number: The execution's id; greater than any before.
        request: What to run.

    Raises:
        ValueError: A path or a variable cannot be expressed. Raised before the first frame.
    """
    policy = request.policy
    environment = {name: _checked(name, value) for name, value in request.env.items()}
    cwd = None if request.cwd is None else _inside(request.cwd, "cwd")
    files = [(_inside(file.path, "input file"), file) for file in request.input_files]
    code = request.code.encode("utf-8", "surrogatepass")
    execution = {
        "t": "exec",
        "id": number,
        "kind": "code",
        "cwd": cwd,
        "env": environment,
        "deadline_ms": None if policy.wall_seconds is None else round(policy.wall_seconds * 1000),
        "grace_ms": round(policy.term_grace_seconds * 1000),
        "flood": policy.output_flood_bytes,
        "files": {
            "count": policy.max_files,
            "each": policy.max_file_bytes,
            "total": policy.max_total_file_bytes,
        },
        "cpu_seconds": policy.cpu_seconds,
        "restrict": request.restrict_builtins,
    }
    parts = []
    if len(code) > _LARGE_CODE:
        parts = [{"t": "part", "of": "code", "b64": frames.base64(piece)} for piece, _ in frames.pieces(code)]
    else:
        execution["code"] = request.code
    try:
        last = frames.encode(execution)
    except frames.FrameError:
        raise ValueError("The variables of this execution are too large.") from None
    return _in_order(files, parts, last)


def _in_order(files: list[tuple[str, InputFile]], parts: list[frames.Frame], last: bytes) -> Iterator[bytes]:
    for path, file in files:
        mode = 0o700 if file.executable else 0o600
        for piece, more in frames.pieces(file.content):
            frame = {"t": "put", "path": path, "mode": mode, "b64": frames.base64(piece), "more": more}
            yield frames.encode(frame)
    for part in parts:
        yield frames.encode(part)
    yield last


def _inside(path: str, what: str) -> str:
    given = PurePosixPath(path)
    if given.is_absolute() or ".." in given.parts or "\0" in path or (what != "cwd" and not given.parts):
        raise ValueError(f"The {what} {path!r} is not inside the session's working directory.")
    return "" if given == PurePosixPath() else str(given)


def _checked(name: str, value: EnvValue) -> str:
    text = revealed(value)
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"The value of environment variable {name!r} must be a string without NUL, or a Secret.")
    try:
        check_env_name(name)
    except ConfigError as error:
        raise ValueError(error.message) from None
    return text
