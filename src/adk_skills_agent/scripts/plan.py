"""From a skill, a script's path and arguments to an ExecutionRequest. Everything is checked before anything starts."""

from __future__ import annotations

import ast
import contextlib
import functools
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from adk_skills_agent.errors import (
    InvalidArguments,
    InvalidResourcePath,
    ResourceNotFound,
    ScriptNotFound,
    nearest,
    some_of,
)
from adk_skills_agent.sandbox import (
    SKILL_DIR,
    SKILL_VARIABLES,
    EnvValue,
    ExecutionRequest,
    InputFile,
    ReadOnlyMount,
    SandboxPolicy,
    Secret,
)
from adk_skills_agent.scripts.grants import NO_HOST_RULES, Grants, HasFile, HostRules
from adk_skills_agent.scripts.interpreters import SCRIPTS_FOLDER, Interpreters, is_runnable

if TYPE_CHECKING:
    from adk_skills_agent.catalog import Skill
    from adk_skills_agent.packages import Environment, SkillEnvironments


# Names for what outlives one call (S0-67); without an invocation id, so that the next turn finds the same state.


def execution_id(skill: str, session: str, agent: str) -> str:
    """The key of a skill's state in one session of one agent: ``skill:{s}:session:{id}:agent:{a}``."""
    return f"skill:{skill}:session:{session}:agent:{agent}"


def workspace_key(app: str, user: str, session: str, skill: str | None = None) -> str:
    """The key of the workspace all scripts of one session share, or only those of one skill in it."""
    if skill is None:
        return f"{user_key(app, user)}:session:{session}"
    return f"{user_key(app, user)}:skill:{_escaped(skill)}:session:{session}"


_NOBODY = "A2A_USER_"
"""How google-adk begins the user of a request over A2A whom nobody authenticated; its context's id follows."""


def user_of_key(key: str) -> str:
    """The part of a workspace's key that is the user's, as in :func:`share_of`."""
    user = re.split(":(?:session|skill):", key, maxsplit=1)[0]
    before, nobody, _ = user.partition(f":user:{_NOBODY}")
    return f"{before}{nobody}"


def share_of(app: str, user: str, session: str) -> tuple[str, str]:
    """Whose a run is, for ``ExecutionRequest.share``: the user's, and in it the session's.

    All whom an A2A server did not authenticate are one user: each would have as many shares as it names contexts.
    """
    return user_key(app, _NOBODY if user.startswith(_NOBODY) else user), session


def user_key(app: str, user: str) -> str:
    """The prefix of every key of one user: ``app:{a}:user:{u}``.

    Ids may be the client's choice: with colons in them as they are, bob's session ``x:y`` would be bob:x's ``y``.
    """
    return f"app:{_escaped(app)}:user:{_escaped(user)}"


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace(":", "%3A")


@dataclass(frozen=True, slots=True)
class ScriptPlan:
    """A script call that is ready to run."""

    skill_name: str  # the skill's name
    path: str  # the script, relative to the skill's root (``scripts/run.py``)
    request: ExecutionRequest  # what the sandbox is asked to do
    notes: tuple[str, ...] = ()  # what had to be adapted, one sentence each; they go to the owner and the model
    subject: str = ""  # what sentences call it; empty for the script by its path
    skill_prefix: str = f"{SKILL_DIR}/"  # how the skill's files begin in a traceback
    folder: Path | None = None  # the skill's, for the owner
    has_grants: bool = False  # whether the run has keys, hosts or programs, which other skills have not

    @property
    def called(self) -> str:
        """The beginning of a sentence about it."""
        return self.subject or f"Script '{self.path}'"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The owner's settings for all script calls of an agent."""

    policy: SandboxPolicy = field(default_factory=SandboxPolicy)  # limits of each run
    interpreters: Interpreters = field(default_factory=Interpreters)  # what starts which kind of file
    # finds the environment of a skill; None where scripts have what the agent's Python has
    packages: SkillEnvironments | None = None

    def within(self, environment: Environment | None) -> RunSettings:
        """The same with the Python and the commands of an environment; None changes nothing."""
        if environment is None:
            return self
        return replace(self, policy=within(self.policy, environment))


def within(policy: SandboxPolicy, environment: Environment) -> SandboxPolicy:
    """The policy with an environment's Python; its folder is readable, and its commands lead PATH."""
    folder = str(environment.folder)
    return replace(policy, python=str(environment.python), extra_ro=tuple(dict.fromkeys((*policy.extra_ro, folder))))


# Modules whose import takes longer than most scripts run: a sandbox that waits for the next run of the same kind has
# imported them. They are looked for by name, never run here; a name of a skill's own choice is none of them.

_HEAVY = {
    "PIL": "pillow",
    "boto3": "boto3",
    "cryptography": "cryptography",
    "docx": "python_docx",
    "httpx": "httpx",
    "lxml": "lxml",
    "matplotlib": "matplotlib",
    "numpy": "numpy",
    "openpyxl": "openpyxl",
    "pandas": "pandas",
    "pdfplumber": "pdfplumber",
    "plotly": "plotly",
    "pptx": "python_pptx",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic",
    "reportlab": "reportlab",
    "requests": "requests",
    "scipy": "scipy",
    "seaborn": "seaborn",
    "sklearn": "scikit_learn",
    "statsmodels": "statsmodels",
    "sympy": "sympy",
    "yaml": "pyyaml",
}
"""Import name to the name of the distribution, as its ``.dist-info`` folder is called in lower case."""
_LOOKED_THROUGH_BYTES = 64 << 10


def heavy_imports(script: Path, python: str | None) -> tuple[str, ...]:
    """The modules of :data:`_HEAVY` that a script imports at its top level and that its interpreter has."""
    try:
        info = script.stat()
    except OSError:
        return ()  # the run itself will say why it cannot be read
    return _heavy_imports(script, info.st_mtime_ns, info.st_size, python)


@functools.lru_cache(maxsize=512)
def _heavy_imports(script: Path, _modified: int, _size: int, python: str | None) -> tuple[str, ...]:
    try:
        with script.open("rb") as stream:
            text = stream.read(_LOOKED_THROUGH_BYTES)
    except OSError:
        return ()
    from adk_skills_agent.packages import parsed_python  # not before a script is run again

    wanted: dict[str, None] = {}
    try:
        tree = parsed_python(text)
    except (SyntaxError, ValueError):
        return ()  # the run itself will say so
    for node in tree.body:
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [node.module]
        for module in modules:
            if module.partition(".")[0] in _HEAVY and "__" not in module:
                wanted[module] = None
    if not wanted:
        return ()
    folders = _site_packages(python)
    # Only a distribution of that name: another one could bring a module that is called so.
    return tuple(module for module in wanted if any(_has(folder, module) for folder in folders))


def _has(folder: Path, module: str) -> bool:
    top = _HEAVY[module.partition(".")[0]]
    place = folder.joinpath(*module.split("."))
    there = (place / "__init__.py").is_file() or place.with_suffix(".py").is_file()
    return there and any(found.name.lower().startswith(f"{top}-") for found in folder.glob("*.dist-info"))


def _site_packages(python: str | None) -> list[Path]:
    """The folder of an interpreter's packages."""
    if python in {None, sys.executable}:
        return [Path(entry) for entry in sys.path if entry.endswith("-packages")]
    return list(Path(python or "").parent.parent.glob("lib/python3*/site-packages"))


_OWN_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_FROM_ABOVE = """\
import os.path, sys
__file__, _inside = sys.argv[1:3]
sys.path[:1] = [os.path.dirname(os.path.realpath(__file__)), __file__.removesuffix(_inside)]
del sys.argv[:1], sys.argv[1:2], _inside
exec(compile(open(__file__, "rb").read(), __file__, "exec"))
"""


def imported_from_above(root: Path, script: ScriptLocation) -> str:
    """The part of a Python script's path below the folder of its skill from which it imports more than lies beside it.

    ``scripts/run.py`` with ``from scripts.parts import x`` is meant to be started as a module, from the skill's root;
    by its path alone, only what lies beside it is found. Such as ``/scripts/run.py``; empty for a script that needs
    nothing of the kind.
    """
    if script.file.suffix != ".py" or "/" not in script.path:
        return ""
    try:
        with script.file.open("rb") as stream:
            text = stream.read(_LOOKED_THROUGH_BYTES)
    except OSError:
        return ""  # the run itself will say why it cannot be read
    names = {found[1].decode() for found in _OWN_IMPORT.finditer(text)} - sys.stdlib_module_names
    beside, *above = PurePosixPath(script.path).parents
    names -= set(_importable(root / beside, names))
    for folder in above:
        if next(_importable(root / folder, names), None) is not None:
            return f"/{PurePosixPath(script.path).relative_to(folder)}"
    return ""


def _importable(folder: Path, names: Collection[str]) -> Iterator[str]:
    """Those of the names that are modules in a folder. A script may name thousands, and lie deep (row 374)."""
    entries: list[str] = []
    with contextlib.suppress(OSError):  # it is gone, or nobody may list it
        entries = os.listdir(folder)  # noqa: PTH208
    for entry in entries:
        name = entry.removesuffix(".py")
        if name in names:
            found = folder / entry
            if next(found.glob("*.py"), None) is not None if entry == name else found.is_file():
                yield name


_SKILL_ENV: dict[str, EnvValue] = dict.fromkeys(SKILL_VARIABLES, str(SKILL_DIR))


def _own_modules(root: Path, script: ScriptLocation) -> dict[str, EnvValue]:
    """Where Python programs that a script starts find modules: not in the working directory, where another skill may
    have left some (row 372), and in the skill's folders, since they do not look beside their own file then.
    """
    beside = PurePosixPath(os.path.relpath(os.path.dirname(os.path.realpath(script.file)), os.path.realpath(root)))  # noqa: PTH120
    folders = [PurePosixPath(script.path).parent if ".." in beside.parts else beside]
    for other in (PurePosixPath(SCRIPTS_FOLDER), PurePosixPath()):
        # Those of the standard library come later on the path.
        names = {file.stem for file in (root / other).glob("*.py")}
        folders += [other] if names.isdisjoint(sys.stdlib_module_names) else []
    found = dict.fromkeys(str(SKILL_DIR / each) for each in folders if ":" not in str(each))
    own: dict[str, EnvValue] = {"PYTHONPATH": ":".join(found)} if found else {}
    # gawk's @include looks in the working directory first, too (row 418).
    return {"PYTHONSAFEPATH": "1", "AWKPATH": ":".join((*found, "/usr/share/awk")), **own}


_PLACEHOLDER = re.compile(rf"\{{baseDir\}}|\$(?:{'|'.join(SKILL_VARIABLES)})\b|\$\{{(?:{'|'.join(SKILL_VARIABLES)})\}}")


def with_skill_path(text: str, directory: str) -> str:
    """A text of a skill for a model, with the path of its folder where authors write a placeholder for it.

    Placeholders are ``{baseDir}``, ``${CLAUDE_SKILL_DIR}``, ``${CLAUDE_PLUGIN_ROOT}``, ``${SKILL_DIR}``, and these
    variables without braces.
    """
    if "{baseDir}" not in text and "_DIR" not in text and "_ROOT" not in text:
        return text
    return _PLACEHOLDER.sub(lambda _: directory, text)


def plan_script(
    skill: Skill,
    script_path: object,
    arguments: ScriptArguments | None = None,
    *,
    settings: RunSettings | None = None,
    env: Mapping[str, EnvValue] | None = None,
    grants: Grants | None = None,
    workspace: Path | None = None,
    input_files: tuple[InputFile, ...] = (),
    stdin: bytes | None = None,
    spill_dir: Path | None = None,
    on_output: Callable[[str, bytes], None] | None = None,
    digest: str = "",
    hosts: HostRules | None = None,
) -> ScriptPlan:
    """Check a script call and turn it into a request; nothing is executed.

    Args:
        skill: The skill that owns the script.
        script_path: As the caller wrote it; ``run.py`` is also ``scripts/run.py``. Or where it is, when the caller has
            just looked.
        arguments: See :class:`ScriptArguments`.
        settings: The owner's decisions.
        env: Variables granted to this call, over ``grants``.
        grants: What the owner grants to which script; no secret of any of them comes out of this call.
        workspace: Host folder of the session's files, or None for an empty workspace.
        input_files: Files put into the workspace first.
        stdin: Standard input; None closes it.
        spill_dir: Host folder for the full text of long output; None keeps only the cut text.
        on_output: Called with output as it arrives.
        digest: What the sandbox's copy of the skill must hold; empty for whatever it holds.
        hosts: What the owner's rules and the user's answers say of hosts; None for no rules.

    Raises:
        InvalidArguments: The path or the arguments cannot be used.
        ScriptNotFound: The skill has no such script.
        UnsupportedScriptType: No interpreter for that suffix.
    """
    settings = settings or RunSettings()
    grants = grants or Grants()
    script = script_path if isinstance(script_path, ScriptLocation) else locate_script(skill, script_path)
    argv = build_argv(arguments or ScriptArguments())
    granted, policy = env or {}, settings.policy
    policy, variables, has_grants = open_for(skill.name, script.path, policy, granted, grants, hosts, skill.has_file)
    root = skill.skill_dir if has_grants else None
    command, notes = settings.interpreters.command(
        SKILL_DIR / script.path, script.file, python=settings.policy.python, root=root
    )
    if command[0] == (settings.policy.python or sys.executable):
        above = imported_from_above(skill.skill_dir, script)
        command = (*command[:-1], "-c", _FROM_ABOVE, command[-1], above) if above else command
    # What shares the workspace with a script that has keys, hosts or programs must not stand in its own files' place.
    mount = ReadOnlyMount(skill.skill_dir, SKILL_DIR, without=skill.without, digest=digest, first=has_grants)
    request = ExecutionRequest(
        argv=(*command, *argv),
        policy=policy,
        env=_SKILL_ENV | (_own_modules(skill.skill_dir, script) if has_grants else {}) | variables,
        stdin=stdin,
        mounts=(mount,),
        input_files=input_files,
        workspace=workspace,
        on_output=on_output,
        spill_dir=spill_dir,
        label=f"{skill.name}/{script.path}",
        redact=grants.secrets,
    )
    return ScriptPlan(skill.name, script.path, request, notes, folder=skill.skill_dir, has_grants=has_grants)


def open_for(
    skill: str,
    script: str,
    policy: SandboxPolicy,
    env: Mapping[str, EnvValue],
    grants: Grants,
    hosts: HostRules | None,
    has: HasFile,
) -> tuple[SandboxPolicy, dict[str, EnvValue], bool]:
    """The policy and the variables of one run of a skill's script, and whether it has keys, hosts or programs.

    The one answer to the last question, whoever asks before there is a plan (rows 338 and 345). ``policy`` and ``env``
    are those of all scripts, ``hosts`` is what rules and answers say of hosts; ``has`` as :meth:`Grants.of`, it blocks.
    """
    opened, variables = policy, dict(env)
    if not grants.empty or hosts not in {None, NO_HOST_RULES}:
        opened, variables = grants.opened(skill, script, policy, variables, hosts, has)
    return opened, variables, opened != policy or any(isinstance(value, Secret) for value in variables.values())


# The arguments of a script call, in every form a model or a person gives them, as one literal argv (S0-35 to S0-42).
#
# Nothing here is ever interpreted by a shell: each result element reaches the script as one element of its argv.

POSITIONAL_KEY = "_positional"
"""Reserved key of an argument object: its list comes last, as positional arguments."""

MAX_ARGUMENT_BYTES = 131_071
"""Linux refuses a single argument of 128 KiB or more (MAX_ARG_STRLEN, with its closing NUL)."""
MAX_TOTAL_BYTES = 1 << 20
"""All arguments together; half of the kernel's usual 2 MiB, so that the environment fits as well."""
MAX_ARGUMENTS = 10_000
MAX_SPLIT_CHARS = 1 << 18
"""Of a string that is split: Python's ``shlex`` takes time with the square of the length of a word."""


@dataclass(frozen=True, slots=True)
class ScriptArguments:
    """The arguments of a caller, not yet checked."""

    # an object (long options), a list (the complete argv) or a string (split like a shell would, S0-35)
    args: object = None
    short_options: object = None  # an object of single-hyphen options
    positional_args: object = None  # a list that comes after all options


def build_argv(arguments: ScriptArguments) -> tuple[str, ...]:
    """Turn the arguments of a call into argv elements, checked before anything is started (S0-36).

    Objects follow S0-40: a string or number becomes ``--key value``, true becomes ``--key``, false and null are left
    out, a list repeats the option, ``_positional`` holds positional arguments, a nested object is an error. Raises
    ``InvalidArguments`` when the form, a key, a value or the size cannot be passed; the sentence names which.
    """
    args = arguments.args
    check_types(arguments)
    if isinstance(args, str):
        argv = _split(args)
    elif isinstance(args, Sequence):
        argv = [_scalar(value, f"args[{index}]") for index, value in enumerate(args)]
    elif isinstance(args, Mapping):
        argv = _options(args, dashes="--", what="args")
    else:
        argv = []
    positional: list[str] = []
    if isinstance(args, Mapping) and args.get(POSITIONAL_KEY) is not None:
        positional = _positional(args[POSITIONAL_KEY], f"args.{POSITIONAL_KEY}")
    if isinstance(arguments.short_options, Mapping):
        argv += _options(arguments.short_options, dashes="-", what="short_options")
    if arguments.positional_args is not None:
        positional += _positional(arguments.positional_args, "positional_args")
    argv += positional
    _check_sizes(argv)
    return tuple(argv)


def check_text(value: str, what: str) -> str:
    """Return ``value`` when it can be passed to a process. Raises ``InvalidArguments`` when it cannot."""
    if "\0" in value:
        raise InvalidArguments(f"{what} holds a NUL byte, which no process can receive. Remove it.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArguments(
            f"{what} holds a character that is not valid Unicode (position {error.start}). Remove it."
        ) from None
    return value


def check_types(arguments: ScriptArguments) -> None:
    """Check the types of a call's arguments, not yet their values. Raises ``InvalidArguments`` when one is wrong."""
    args, short, positional = arguments.args, arguments.short_options, arguments.positional_args
    problems = []
    if args is not None and not isinstance(args, (str, list, tuple, Mapping)):
        problems.append(
            f"'args' must be a JSON object (dict), a list of strings or a string, got {type(args).__name__}."
        )
    if short is not None and not isinstance(short, Mapping):
        problems.append(f"'short_options' must be a JSON object (dict), got {type(short).__name__}.")
    if positional is not None and not isinstance(positional, (list, tuple)):
        problems.append(f"'positional_args' must be a list of strings, got {type(positional).__name__}.")
    if isinstance(args, (list, tuple)) and (short or positional):
        problems.append("Cannot specify 'short_options' or 'positional_args' when 'args' is a list.")
    if problems:
        raise InvalidArguments("\n".join(problems))


def google_arguments(arguments: ScriptArguments) -> ScriptArguments:
    """The arguments as google-adk 2.13 spells them: ``{"count": 3, "all": True}`` is ``--count 3 --all True`` (S0-41).

    Raises ``InvalidArguments`` when ``args`` is a string, which google-adk refuses.
    """
    args, short, positional = arguments.args, arguments.short_options, arguments.positional_args
    if isinstance(args, str):
        raise InvalidArguments("'args' must be a JSON object (dict) or a list of strings, got str.")
    if isinstance(args, (list, tuple)):
        return ScriptArguments([str(element) for element in args])
    argv: list[object] = []
    for dashes, options in (("--", args), ("-", short)):
        if isinstance(options, Mapping):
            argv += [part for key, value in options.items() for part in (f"{dashes}{key}", value)]
    if isinstance(positional, (list, tuple)) and positional:
        argv += ["--", *positional]
    return ScriptArguments([str(element) for element in argv])


def _split(text: str) -> list[str]:
    if len(text) > MAX_SPLIT_CHARS:
        raise InvalidArguments(
            f"'args' is a string of {len(text):,} characters; at most {MAX_SPLIT_CHARS:,} are split into arguments. "
            "Pass a list of strings, or put the data into a file."
        )
    try:
        return shlex.split(check_text(text, "'args'"))
    except ValueError as error:
        raise InvalidArguments(
            f"'args' cannot be split into arguments: {str(error).lower()}. "
            "Close every quote, or pass a list of strings."
        ) from None


def _options(options: Mapping[object, object], *, dashes: str, what: str) -> list[str]:
    argv: list[str] = []
    for key, value in options.items():
        if key == POSITIONAL_KEY and dashes == "--":
            continue
        option = _option_name(key, dashes, what)
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if item is None or item is False:
                continue
            argv.append(option)
            if item is not True:
                argv.append(_scalar(item, f"{what}.{key}"))
    return argv


def _option_name(key: object, dashes: str, what: str) -> str:
    """``input`` -> ``--input``; a key that already has its hyphens keeps them."""
    if not isinstance(key, str) or not key.strip("-"):
        raise InvalidArguments(f"{what} has an option without a name: {key!r}. Use the option's name as the key.")
    check_text(key, f"The option name {key!r} in {what}")
    if any(character.isspace() or character in "=\"'" for character in key):
        raise InvalidArguments(
            f"{what} has the option name {key!r}, which holds a space, a quote or '='. "
            f"Use the bare name as the key and put the value beside it, or pass 'args' as a list."
        )
    return key if key.startswith("-") else dashes + key


def _positional(values: object, what: str) -> list[str]:
    if not isinstance(values, (list, tuple)):
        values = [values]
    return [_scalar(value, f"{what}[{index}]") for index, value in enumerate(values)]


def _scalar(value: object, what: str) -> str:
    if isinstance(value, str):
        return check_text(value, what)
    if isinstance(value, bool) or value is None or isinstance(value, (Mapping, list, tuple)):
        kind = {bool: "a boolean", type(None): "null"}.get(type(value), "a nested object or list")
        raise InvalidArguments(f"{what} is {kind}; give a string or a number (pass structured data as a JSON string).")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArguments(f"{what} is {value}, not a finite number. Give a finite number or a string.")
        return repr(value)
    if isinstance(value, int):
        try:
            return str(value)
        except ValueError:
            raise InvalidArguments(f"{what} is an integer with too many digits. Pass it as a string.") from None
    raise InvalidArguments(f"{what} has the type {type(value).__name__}; give a string or a number.")


def _check_sizes(argv: Sequence[str]) -> None:
    if len(argv) > MAX_ARGUMENTS:
        raise InvalidArguments(
            f"{len(argv):,} arguments are more than the {MAX_ARGUMENTS:,} allowed. Put the data into a file."
        )
    total = 0
    for index, element in enumerate(argv):
        size = len(element.encode())
        total += size + 9  # the kernel also counts the closing NUL and a pointer
        if size > MAX_ARGUMENT_BYTES:
            raise InvalidArguments(
                f"Argument {index + 1} has {size:,} bytes, more than the {MAX_ARGUMENT_BYTES:,} one argument may have. "
                "Put the data into a file."
            )
    if total > MAX_TOTAL_BYTES:
        raise InvalidArguments(
            f"The arguments have {total:,} bytes together, more than the {MAX_TOTAL_BYTES:,} allowed. "
            "Put the data into a file."
        )


# Which file of a skill a caller means by a script's path (S0-9, S0-10, S4-20, S4-22; attack row 47).


@dataclass(frozen=True, slots=True)
class ScriptLocation:
    """A script that exists."""

    path: str  # path relative to the skill's root, with forward slashes, such as ``scripts/run.py``
    file: Path  # the file on the host


def locate_script(skill: Skill, path: object) -> ScriptLocation:
    """Find the script ``path`` names: that file of the skill, else the one of its scripts folder (S0-9).

    Raises:
        InvalidArguments: ``path`` is no path inside the skill (absolute, ``..``, NUL, backslash…).
        ScriptNotFound: There is no such script; the nearest ones are in ``suggestions``.
    """
    *written, last = script_paths(path)
    relative = next(filter(skill.has_file, written), last)
    try:
        return ScriptLocation(relative, skill.resolve(relative))
    except ResourceNotFound:
        raise _not_found(skill, last, str(path)) from None
    except InvalidResourcePath as error:
        raise InvalidArguments(error.message) from None


def list_scripts(skill: Skill) -> tuple[str, ...]:
    """Every file of the skill that looks like a script, relative to its root; those of its scripts folder first."""
    found = (file.path for file in skill.files() if is_runnable(file.path, executable=file.executable))
    return tuple(sorted(found, key=lambda path: (not path.startswith(f"{SCRIPTS_FOLDER}/"), path)))


def script_path(path: object) -> str:
    """The path of a script below ``scripts/``, which may be left out: ``setup.py`` and ``scripts/setup.py``.

    Raises ``InvalidArguments`` when it is no path inside the skill.
    """
    return script_paths(path)[-1]


def script_paths(path: object) -> tuple[str, ...]:
    """The files that a script's path may mean, best first: as written, then below ``scripts/``.

    Raises ``InvalidArguments`` when it is no path inside the skill.
    """
    if not isinstance(path, str):
        raise InvalidArguments(f"The script path must be a string, got {type(path).__name__}.")
    check_text(path, "The script path")
    wish = "Give a path relative to the skill's folder, such as 'scripts/run.py'."
    if not path.strip():
        raise InvalidArguments(f"The script path is empty. {wish}")
    if "\\" in path:
        raise InvalidArguments(f"The script path {path!r} holds a backslash; use '/' between folders. {wish}")
    if path.startswith(("/", "~")):
        raise InvalidArguments(f"The script path {path!r} is absolute. {wish}")
    if path.endswith("/"):
        raise InvalidArguments(f"The script path {path!r} names a folder. {wish}")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidArguments(f"The script path {path!r} holds '..', which is not allowed. {wish}")
    if parts in ([], [SCRIPTS_FOLDER]):
        raise InvalidArguments(f"The script path {path!r} names no file. {wish}")
    written = "/".join(parts)
    return (written,) if parts[0] == SCRIPTS_FOLDER else (written, f"{SCRIPTS_FOLDER}/{written}")


def _not_found(skill: Skill, relative: str, asked: str) -> ScriptNotFound:
    scripts = list_scripts(skill)
    close = nearest(relative, scripts)
    if not scripts:
        sentence = f"Script {asked!r} not found: skill '{skill.name}' has no scripts. Follow its instructions instead."
    elif close:
        sentence = f"Script {asked!r} not found in skill '{skill.name}'. Nearest: {', '.join(close)}."
    else:
        sentence = f"Script {asked!r} not found in skill '{skill.name}'. Its scripts: {some_of(scripts, 10)}."
    return ScriptNotFound(sentence, close or scripts[:10])
