"""Which command starts a script: its ``#!`` line, else its suffix (S0-5 to S0-8, S0-31, S0-37, S0-38, row 50)."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from adk_skills_agent.errors import ConfigError, UnsupportedScriptType
from adk_skills_agent.sandbox import SKILL_DIR

SCRIPTS_FOLDER = "scripts"
PYTHON_SUFFIXES = (".py",)
SHELL_SUFFIXES = (".sh", ".bash")
PYTHON = ("python3",)
"""Python on another machine, where an executor may run the script in the program that brought it."""
BASH = ("bash",)
"""The shell there."""

# -s: no user site-packages, also where a caller grants another HOME. The script's own folder is on sys.path, as
# Python does it, so sibling modules import; the working directory never is. -B and UTF-8 mode do not depend on the
# environment a caller grants.
PYTHON_FLAGS = ("-s", "-B", "-X", "utf8")
# A fresh bash reads no start-up files when it runs a script; the flags say so even if a caller grants BASH_ENV.
SHELL = ("bash", "--noprofile", "--norc")

MAX_INLINE_SHELL_BYTES = 100_000
"""A shell script with Windows line ends is passed as one argument, which Linux bounds at 128 KiB."""


class Interpreters:
    """Which command starts which suffix.

    ``extra`` has more suffixes, such as ``{".js": ("node",)}``; the script's path is appended. A suffix given here wins
    over the built-in ones. Raises ``ConfigError`` when a suffix or a command is malformed.
    """

    def __init__(self, extra: Mapping[str, Sequence[str]] | None = None) -> None:
        self._extra: dict[str, tuple[str, ...]] = {}
        for suffix, command in (extra or {}).items():
            if not suffix.startswith(".") or len(suffix) < 2 or "/" in suffix:
                raise ConfigError(f"interpreters: {suffix!r} is no file suffix. Write it like '.js'.")
            if isinstance(command, str) or not command or not all(isinstance(part, str) and part for part in command):
                raise ConfigError(
                    f"interpreters: the command for {suffix!r} must be a list of strings, such as ['node'], "
                    f"not {command!r}."
                )
            self._extra[suffix.lower()] = tuple(command)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Every suffix that can be run, lower case."""
        return tuple(dict.fromkeys([*PYTHON_SUFFIXES, *SHELL_SUFFIXES, *self._extra]))

    def elsewhere(self, path: str, head: bytes) -> tuple[tuple[str, ...], ...]:
        """The commands that may run a script on another machine, best first; the first whose program is there does.

        A ``#!`` line decides as it does here (:meth:`command`). What other machines have for suffixes but Python's and
        the shells' is not known, so these need the line, or the owner's word. ``head`` is the beginning of the script's
        bytes. Returns commands without the script; ``("python3",)`` and ``("bash",)`` stand for Python and the shell,
        which has the options of its line. Raises ``UnsupportedScriptType`` when neither line nor suffix names one.
        """
        name = PurePosixPath(path).name
        suffix = PurePosixPath(path).suffix.lower()
        if suffix in self._extra:
            return (self._extra[suffix],)
        line = _first_line(head)
        program = PurePosixPath(line[0]).name if line else ""
        wanted: list[tuple[str, ...]] = []
        if program.startswith("python"):
            return (PYTHON,)
        if program in _SHELLS:
            return ((*BASH, *_options(line, _SHELL_OPTIONS)[0]),)
        if _names_a_program(program):
            wanted.append((program, *line[1:]))
        if suffix in PYTHON_SUFFIXES:
            wanted.append(PYTHON)
        elif suffix in SHELL_SUFFIXES:
            wanted.append(BASH)
        if not wanted:
            kind = f"'{suffix}'" if suffix else "(no extension)"
            raise UnsupportedScriptType(
                f"Unsupported script type {kind}. Supported types: {', '.join(self.suffixes)}, and files with a '#!' "
                f"line. Read '{name}' and do the work another way."
            )
        return tuple(wanted)

    def command(
        self, script: PurePosixPath, source: Path, *, python: str | None = None, root: Path | None = None
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The command that runs a script, without its arguments, and notes on what had to be adapted.

        ``script`` is as the sandbox sees it (``/skill/scripts/run.py``), ``source`` the same file on the host, for what
        depends on its bytes. ``python`` None is the one that runs the agent. ``root`` is the folder of a skill of which
        alone the interpreter may take settings and modules, and not of the working directory; None for no such skill.
        Raises ``UnsupportedScriptType`` when nothing runs that suffix, or its interpreter is not here.
        """
        suffix = script.suffix.lower()
        if suffix in self._extra:
            return _of_skill(self._extra[suffix], script, root, is_chosen=True)
        named = _first_line(_head(source))
        name = PurePosixPath(named[0]).name if named else ""
        usable = _is_usable(name)
        absent = _names_a_program(name) and not usable
        if name.startswith("python") if usable else suffix in PYTHON_SUFFIXES:
            own, dropped = _options(named, _PYTHON_OPTIONS) if name.startswith("python") else ((), ())
            command = (python or sys.executable, *PYTHON_FLAGS, *own, str(script))
            return command, (*dropped, *_in_its_place("Python", name, absent=absent))
        if name in _SHELLS if usable else suffix in SHELL_SUFFIXES:
            own, dropped = _options(named, _SHELL_OPTIONS) if name in _SHELLS else ((), ())
            command, notes = _shell_command(script, source, own)
            return command, (*dropped, *notes, *_in_its_place("bash", name, absent=absent))
        wanted = [*_BY_SUFFIX.get(suffix, ())]
        if usable or (not wanted and absent):
            wanted = [(name, *named[1:])]
        for program, *flags in wanted:
            found = _found(program, python)
            if found is not None and _understands(found, suffix):
                # A program of Python's environment by its name: the sandbox may show that folder at another place.
                shown = found if found.startswith(("/usr/", "/bin/")) else program
                return _of_skill((shown, *flags), script, root)
        if wanted:
            missing = " or ".join(dict.fromkeys(PurePosixPath(program).name for program, *_ in wanted))
            raise UnsupportedScriptType(
                f"'{script.name}' needs {missing}, which this machine does not have"
                f"{' in a version that runs it' if suffix in _NEW_NODE else ''}. "
                "Do the work another way, or tell the user that the owner has to install it."
            )
        if suffix in _TEXTS:
            raise UnsupportedScriptType(
                f"'{script.name}' is a text and no script. Read it, and run the script that it or SKILL.md names."
            )
        kind = f"'{suffix}'" if suffix else "(no extension)"
        raise UnsupportedScriptType(
            f"Scripts of type {kind} cannot be run; types: {', '.join(self.suffixes)}, and files with a '#!' line. "
            "Read it and do the work another way, or ask the owner to configure an interpreter."
        )


_TEXTS = (".md", ".markdown", ".txt", ".rst")
_SHELLS = ("bash", "sh", "dash")
_FETCHING = frozenset({"uv", "uvx", "pipx", "npx", "bunx"})
"""They would fetch packages first; the suffix says what runs the file itself."""
_NEW_NODE = (".ts", ".mts", ".cts")
# Each the first that is there. A suffix whose file has a "#!" line goes by that.
_BY_SUFFIX: Mapping[str, Sequence[tuple[str, ...]]] = MappingProxyType(
    {
        **dict.fromkeys((".js", ".mjs", ".cjs"), (("node",), ("bun",))),
        **dict.fromkeys(_NEW_NODE, (("tsx",), ("bun",), ("node", "--experimental-strip-types"))),
        ".rb": (("ruby",),),
        ".pl": (("perl",),),
        ".r": (("Rscript", "--vanilla"),),
        ".ps1": (("pwsh", "-NoProfile", "-File"),),
        ".lua": (("lua",), ("luajit",)),
        ".php": (("php",),),
        ".zsh": (("zsh", "--no-rcs"),),
        ".fish": (("fish", "--no-config"),),
        ".awk": (("awk", "-f"),),
        ".tcl": (("tclsh",),),
    }
)

# Files in the working directory that these obey, whoever left them there, and the option that names another one.
_SETTINGS: Mapping[str, Sequence[tuple[str, str]]] = MappingProxyType(
    {
        "bun": (("--config=", "bunfig.toml"), ("--env-file=", ".env"), ("--tsconfig-override=", "tsconfig.json")),
        "tsx": (("--tsconfig=", "tsconfig.json"),),
    }
)
_NOT_READING: Mapping[str, Sequence[tuple[str, str]]] = MappingProxyType(
    {
        "Rscript": (("--no-init-file", ".Rprofile"), ("--no-environ", ".Renviron"), ("--no-restore", ".RData")),
    }
)
"""And the option without which these read one."""
_LOADING = re.compile(
    r"(?:-r|--(?:require|import|preload|loader|experimental-loader|(env-file(?:-if-exists)?)))(?:=(.+))?"
)
_IN_JAVASCRIPT = re.compile(r"node(js)?[\d.]*|bun|tsx|ts-node.*|babel-node")
_PLACES_OF_MODULES = re.compile(r"-(?:I|[Mm]lib=|(r))(.*)")  # of Ruby and Perl
_OF_THE_SKILL_ALONE = re.compile(
    r"(node(js)?|bun|tsx|ts-node.*|ruby|perl|Rscript|pwsh|lua(jit)?|php|java|[gm]?awk|zsh|fish|m?ksh|t?csh|tclsh|wish|"
    r"expect|sed|bc|jq|sqlite|guile|sbcl|racket|busybox)[\d.-]*"
)
"""Interpreters that take nothing from the working directory, or have options for that. Octave has none (row 402), nor
have Erlang, Groovy, Babashka and others (row 418)."""
# "." is where modules are looked for first; they are the skill's, whose folder the variable names at each level.
_OF_LUA = """\
local skill = ";" .. os.getenv("SKILL_DIR") .. "/"
for _, name in ipairs{"path", "cpath"} do
  package[name] = (";" .. package[name]):gsub(";%./", function() return skill end):sub(2)
end
"""
_OF_PHP = "include_path=${{SKILL_DIR}}{folder}:${{SKILL_DIR}}:/usr/share/php:/usr/local/lib/php"


def _of_skill(
    command: Sequence[str], script: PurePosixPath, root: Path | None, *, is_chosen: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command with its script and what keeps it from settings and modules in the working directory, and a note.

    In a run with keys another skill may have left them there (row 371). Those of the skill at ``root`` hold: the run
    sees them there, too. ``is_chosen`` says that the owner named the interpreter.
    """
    program = PurePosixPath(command[0]).name
    words = [*command, str(script)]
    if root is None:
        return tuple(words), ()
    if not (is_chosen or _OF_THE_SKILL_ALONE.fullmatch(program)):
        raise UnsupportedScriptType(
            f"{program[:40]} may take modules and settings from the working directory, where another skill may have "
            "left some, so it runs no script of a skill with keys, hosts or programs. Do it another way, or tell the "
            "user that the owner can name it in interpreters=."
        )
    path = script.relative_to(SKILL_DIR)
    if re.fullmatch(r"lua(jit)?[\d.]*", program):
        words[1:1] = ["-e", _OF_LUA]
    if program == "java":  # "." is the usual class path
        words[1:1] = ["-cp", str(SKILL_DIR)]
    if re.fullmatch(r"php[\d.]*", program):
        words[1:1] = ["-d", _OF_PHP.format(folder=f"/{path.parent}")]
    settings = [
        option + next((str(folder / name) for folder in path.parents if (root / folder / name).is_file()), os.devnull)
        for option, name in _SETTINGS.get(program, ())
    ]
    settings += [option for option, name in _NOT_READING.get(program, ()) if not (root / name).is_file()]
    kept: list[str] = [words[0], *settings]
    dropped: list[str] = []
    rest = iter(words[1:])
    of_ruby = re.fullmatch(r"(?:ruby|perl)[\d.]*", program) is not None
    looking = _LOADING if _IN_JAVASCRIPT.fullmatch(program) else _PLACES_OF_MODULES if of_ruby else None
    for word in rest:
        found = looking.fullmatch(word) if looking is not None else None
        name = "" if found is None else found[2] or next(rest, "")
        option = [word] if found is None or found[2] else [word, name]
        if of_ruby and found is not None and found[1] and not name.startswith("."):
            is_own = True  # one of the language's own places
        else:
            is_own = found is None or _is_own(root, name, is_file=of_ruby or bool(found[1]))
        (kept if is_own else dropped).extend(option)
    note = f"Its first line has {' '.join(dropped)[:100]}, which the skill does not have and is left out here."
    return tuple(kept), (note,) if dropped else ()


def _is_own(root: Path, name: str, *, is_file: bool) -> bool:
    """Whether what is found by this name from the working directory is the skill's, or the language's own."""
    first = name.removeprefix("./").partition("/")[0] if is_file or name.startswith("./") else "node_modules"
    return name.startswith(("/", "node:")) or (first not in {"", ".", ".."} and (root / first).exists())


_NOT_TO_RUN = ("assets/", "references/")
"""Their files are read or copied, unless they are executable or somebody names one."""
_RUN_SUFFIXES = frozenset((*PYTHON_SUFFIXES, *SHELL_SUFFIXES, *_BY_SUFFIX))


def is_runnable(path: str, *, executable: bool = False) -> bool:
    """Whether a file of a skill looks like a script: what a model is told of; it may name any file to run it."""
    if executable or path.startswith(f"{SCRIPTS_FOLDER}/"):
        return True
    return not path.startswith(_NOT_TO_RUN) and PurePosixPath(path).suffix.lower() in _RUN_SUFFIXES


def _found(program: str, python: str | None = None) -> str | None:
    """The path at which a run finds a program; None if it finds none."""
    from adk_skills_agent.sandbox import search_path  # only planning a run needs it, and it brings asyncio

    return shutil.which(program, path=search_path(python))


def _head(source: Path) -> bytes:
    """The beginning of a file; empty when it cannot be read, which the run itself will say."""
    try:
        with source.open("rb") as stream:
            return stream.read(_FIRST_LINE_BYTES)
    except OSError:
        return b""


def _first_line(head: bytes) -> tuple[str, ...]:
    """The interpreter and its arguments that the ``#!`` line at the beginning of a file names; empty without one."""
    head = head[:_FIRST_LINE_BYTES].removeprefix(b"\xef\xbb\xbf")
    if not head.startswith(b"#!"):
        return ()
    words = head[2:].splitlines()[0].decode("utf-8", "replace").split() if head[2:].strip() else []
    if words and PurePosixPath(words[0]).name == "env":
        words = [*itertools.dropwhile(lambda word: word == "-S" or "=" in word, words[1:])]
    if words and PurePosixPath(words[0]).name in ("uv", "pipx") and words[1:2] == ["run"]:
        return PYTHON  # it runs the file in an environment, which is there when the run begins
    return tuple(words)


# Options that are kept; with the group they take the next word.
_SHELL_OPTIONS = re.compile(r"[-+](?=.)[abefhkmnptuvxBCEHPT]*(o)?")
_PYTHON_OPTIONS = re.compile(r"-(?:[bBOquv]*(?:[bBOquv]|([WX]))|[WX].+)")


def _options(line: Sequence[str], known: re.Pattern[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a ``#!`` line sets, such as ``bash -euo pipefail``, without which a failure looks like success.

    And a note about what it would set, but does not here: ``python -I`` would leave out the skill's environment.
    """
    words = [*line[1:]]
    kept = 0
    while kept < len(words) and (option := known.fullmatch(words[kept])) is not None:
        kept += 2 if option[1] else 1
    dropped = [word for word in words[kept:] if word.startswith(("-", "+")) and word not in ("-", "--")]
    note = f"Its first line has {' '.join(dropped)[:100]}, which is left out here."
    return tuple(words[:kept]), (note,) if dropped else ()


_FIRST_LINE_BYTES = 256


def _is_usable(name: str) -> bool:
    """Whether the program of a ``#!`` line decides: it is there, or Python or a shell, and fetches nothing."""
    if not _names_a_program(name):
        return False
    return name.startswith("python") or name in _SHELLS or _found(name) is not None


def _in_its_place(ran: str, name: str, *, absent: bool) -> tuple[str, ...]:
    """What is said of a script that its suffix has run, because the interpreter that it names is not here."""
    return (f"Its first line names '{name}', which this machine does not have; {ran} ran it.",) if absent else ()


def _names_a_program(name: str) -> bool:
    return bool(name) and name not in _FETCHING and not name.startswith("-")


@functools.lru_cache(maxsize=64)
def _understands(program: str, suffix: str) -> bool:
    """Whether this Node.js runs TypeScript (22.6 and later); every other program runs what it is asked to."""
    if suffix not in _NEW_NODE or PurePosixPath(program).name != "node":
        return True
    asked = [program, "--version"]  # not in the user's folder: managers of versions obey files of a repository there
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30, cwd="/")
    numbers = re.match(r"v(\d+)\.(\d+)", done.stdout)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= (22, 6)


def _shell_command(
    script: PurePosixPath, source: Path, options: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Run a shell script; one saved with Windows line ends or a byte-order mark is passed in repaired (row 50)."""
    shell = (*SHELL, *options)
    try:
        with source.open("rb") as stream:
            text = stream.read(MAX_INLINE_SHELL_BYTES + 1)
    except OSError:
        return (*shell, str(script)), ()  # the run itself will say why it cannot be read
    if len(text) > MAX_INLINE_SHELL_BYTES or not (text.startswith(b"\xef\xbb\xbf") or b"\r\n" in text):
        return (*shell, str(script)), ()
    repaired = text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    if b"\0" in repaired:
        return (*shell, str(script)), ()
    try:
        program = repaired.decode("utf-8")
    except UnicodeDecodeError:
        return (*shell, str(script)), ()
    note = "The script has Windows line ends or a byte-order mark; it was run with Unix line ends."
    return (*shell, "-c", program, str(script)), (note,)
