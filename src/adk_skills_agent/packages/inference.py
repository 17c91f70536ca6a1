"""The needs inferred from code: imports, programs it calls, hosts it names, environment keys it reads.

The code is a stranger's. It is parsed in bounded pieces, never run; each scan passes over a text once.
"""

from __future__ import annotations

import ast
import re
import shlex
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from adk_skills_agent.packages.declarations import install_lines, named_in_install_lines
from adk_skills_agent.packages.distributions import CLIENT_HOSTS, distribution_of, is_standard
from adk_skills_agent.packages.findings import Finding, Findings, NeedKind, SkillText, word_set

# Hosts.

_URL = re.compile(
    r"\b(?:https?|wss?)://([A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?)(?::\d{1,5})?(?=[/\s\"'`)\]}>?#;,\\|]|$)"
)
_NO_HOSTS = re.compile(
    r"^(?:localhost|127\.|0\.0\.0\.0|10\.|192\.168\.|(?:.*\.)?example(?:\.\w+)?$|.*\.(?:local|test|invalid|example)$"
    r"|www\.w3\.org|schemas\.|json-schema\.org|purl\.org|xmlns\.|ns\.adobe\.com|www\.apache\.org|opensource\.org"
    r"|docs\.|(?:your|my)[-.])",
    re.IGNORECASE,
)
_MAX_LINE = 5_000


def hosts_in(text: str) -> Iterator[str]:
    """The public hosts of the URLs in a text; names of schemas, samples and this machine are none."""
    for found in _URL.finditer(text):
        host = found[1].lower().rstrip(".")
        if "." in host and not _NO_HOSTS.match(host) and not host.replace(".", "").isdigit():
            yield host


def _add_hosts(text: str, place: str, findings: Findings) -> None:
    for host in hosts_in(text[:_MAX_LINE]):
        findings.add(Finding(NeedKind.HOST, host, place))


def _add_client(name: str, place: str, findings: Findings, *, optional: bool) -> None:
    for host in CLIENT_HOSTS.get(name, ()):
        findings.add(Finding(NeedKind.HOST, host, place, optional=optional))


# Python.

_ODD_ESCAPE = re.compile(r"""\\(?:([\\'"abfnrtvx0-7NuU\r\n])|)""")
_IMPORT_LINE = re.compile(r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_][\w.]*)", re.MULTILINE)
_HANDLED = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_ENDS = frozenset({"exit", "_exit", "abort", "quit"})
_CALLS_PROGRAMS = frozenset({"run", "call", "check_call", "check_output", "Popen", "system", "popen", "which"})


_PARSING = threading.Lock()
MAX_PARSED = 128 << 10
"""Of one file: Python's parser takes up to a second for it, and nothing else of the agent runs meanwhile (row 143)."""
_MAX_PARSED_TOGETHER = 2 << 20


def parsed_python(text: str | bytes) -> ast.Module:
    """Parse Python code of a stranger, from any thread.

    CPython counts the depth of an ``ast.parse`` once for the whole interpreter (until 3.13): two threads that parse at
    the same time can end in a SystemError. Returns its syntax tree. Raises ``SyntaxError`` when the code is no Python,
    or ``ValueError`` when the code is nested too deeply, or too large, to be parsed.
    """
    if len(text) > MAX_PARSED:
        raise ValueError(f"it is larger than {MAX_PARSED >> 10} KiB")
    try:
        with _PARSING:
            return ast.parse(text)
    except SystemError:  # somebody else's thread parsed meanwhile
        with _PARSING:
            return ast.parse(text)
    except (RecursionError, MemoryError) as error:
        raise ValueError("it is nested too deeply") from error


def tolerant_tree(text: str) -> ast.Module:
    """Parse Python code of a stranger as :func:`parsed_python` does, without warnings, and none that takes long."""
    if text.count("{") > _MOST_BRACES or _LONG_DOTTED.search(text):
        raise ValueError("it is too intricate")
    # Python warns of '\d' in a string while it parses, and a warning may be an error where the agent runs.
    return parsed_python(_ODD_ESCAPE.sub(lambda found: found[0] if found[1] else "\\\\", text))


def python_code(code: SkillText, bundled: Collection[str], findings: Findings, *, strict: bool = True) -> None:
    """Read what Python code needs.

    ``bundled`` are the names of modules that the skill has itself. With ``strict``, code that is no Python is worth a
    diagnostic.
    """
    findings.uses.setdefault(code.path, set())
    try:
        findings.parsed += len(code.text)
        if findings.parsed > _MAX_PARSED_TOGETHER:
            raise ValueError(f"the skill has more than {_MAX_PARSED_TOGETHER >> 20} MiB of Python")
        tree = tolerant_tree(code.text)
    except (SyntaxError, ValueError) as error:
        if strict:
            line = error.lineno if isinstance(error, SyntaxError) and error.lineno else 1
            findings.problem(
                "python-unreadable", f"It cannot be parsed as Python: {str(error)[:100]}.", code.place(line)
            )
        for found in _IMPORT_LINE.finditer(code.text):
            line = code.text.count("\n", 0, found.start(1)) + 1
            _add_import(found[1], code.place(line), bundled, findings, optional=False)
        return
    _PythonReader(code, bundled, findings).read(tree)


# Python's parser takes quadratic time for these, and nothing else of the agent runs meanwhile.
_MOST_BRACES = 10_000
_LONG_DOTTED = re.compile(r"(?:\.[\s\\]*+\w*+[\s\\]*+){100}")
_MODULE_PARTS = 4  # no name in the table has more


def _add_import(
    module: str,
    place: str,
    bundled: Collection[str],
    findings: Findings,
    *,
    optional: bool,
    named: Collection[str] = (),
) -> None:
    module = ".".join(module.split(".", _MODULE_PARTS)[:_MODULE_PARTS])
    top = module.partition(".")[0]
    if top in bundled:
        findings.uses.setdefault(place.rpartition(":")[0], set()).add(top)
        return
    if not top or top == "__future__" or is_standard(top):
        return
    distribution = distribution_of(module)
    if distribution is None and canonicalize_name(top) in named:
        distribution = canonicalize_name(top)
    _add_client(top, place, findings, optional=optional)
    if module != top:
        _add_client(".".join(module.split(".")[:2]), place, findings, optional=optional)
    if distribution is None:
        findings.add(Finding(NeedKind.PYTHON_MODULE, top, place, optional=optional, module=top))
    else:
        findings.add(Finding(NeedKind.PYTHON_PACKAGE, distribution, place, optional=optional, module=module))


class _PythonReader:
    """Walks a syntax tree with a stack of its own: a deep one must not end the interpreter."""

    def __init__(self, code: SkillText, bundled: Collection[str], findings: Findings) -> None:
        self._code = code
        self._bundled = bundled
        self._findings = findings
        self._named: frozenset[str] = frozenset()

    def read(self, tree: ast.AST) -> None:
        # What the code tells its user to install, such as "pip install bm25s", is its author's word.
        told = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
        self._named = named_in_install_lines("\n".join(text for text in told if "install" in text))
        waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
        documentation = _documentation(tree)
        while waiting:
            node, optional = waiting.pop()
            self._look(node, optional, documentation)
            if isinstance(node, ast.Try) and _survives_missing(node):
                guarded = {id(child) for child in node.body}
                # What a handler imports instead is needed only where the first choice is not there.
                guarded |= {id(child) for handler in node.handlers for child in handler.body}
                for part in (node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody):
                    waiting.extend((child, optional or id(child) in guarded) for child in part)
                continue
            if isinstance(node, ast.If) and _is_type_checking(node.test):
                waiting.extend((child, optional) for child in node.orelse)
                continue
            waiting.extend((child, optional) for child in ast.iter_child_nodes(node))

    def _look(self, node: ast.AST, optional: bool, documentation: Collection[int]) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._import(alias.name, node.lineno, optional)
        elif isinstance(node, ast.ImportFrom):
            if node.level:  # from the skill's own files
                names = [(node.module or "").partition(".")[0]] if node.module else [one.name for one in node.names]
                self._findings.uses.setdefault(self._code.path, set()).update(name for name in names if name)
            elif node.module:
                # ``from google.cloud import storage`` names the module only with what is taken from it.
                taken = [alias.name for alias in node.names] if _is_namespace(node.module) else []
                for name in taken or [""]:
                    self._import(f"{node.module}.{name}".rstrip("."), node.lineno, optional)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and "://" in node.value and id(node) not in documentation:
                _add_hosts(node.value, self._code.place(node.lineno), self._findings)
        elif isinstance(node, ast.Subscript):
            if _dotted(node.value) in {"os.environ", "environ"} and isinstance(node.ctx, ast.Load):
                self._key(node.slice, node.lineno, optional=optional)
        elif isinstance(node, ast.Call):
            self._call(node, optional)

    def _call(self, node: ast.Call, optional: bool) -> None:
        name = _dotted(node.func)
        if name in {"os.getenv", "getenv", "os.environ.get", "environ.get"} and node.args:
            self._key(node.args[0], node.lineno, optional=optional or len(node.args) > 1)
        elif name in {"importlib.import_module", "import_module", "__import__"} and node.args:
            module = node.args[0]
            if isinstance(module, ast.Constant) and isinstance(module.value, str) and module.value[:1].isalpha():
                self._import(module.value, node.lineno, optional=True)
        elif name.rpartition(".")[2] in _CALLS_PROGRAMS and name.partition(".")[0] in {"subprocess", "os", "shutil"}:
            self._program(node, optional=optional or name.endswith("which"))

    def _program(self, node: ast.Call, *, optional: bool) -> None:
        command = node.args[0] if node.args else None
        if isinstance(command, ast.List) and command.elts:
            words = [one.value for one in command.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if words[:3] == ["-m", "pip", "install"] or words[:2] == ["pip", "install"]:
                line = shlex.join(words[words.index("pip") :])
                install_lines(SkillText(self._code.path, line, self._code.first_line + node.lineno - 1), self._findings)
            command = command.elts[0]
        elif isinstance(command, ast.Constant) and isinstance(command.value, str) and " " in command.value:
            for program in programs_called(command.value):
                _add_program(program[0], self._code.place(node.lineno), self._findings, optional=optional)
            return
        if isinstance(command, ast.Constant) and isinstance(command.value, str):
            _add_program(command.value, self._code.place(node.lineno), self._findings, optional=optional)

    def _import(self, module: str, line: int, optional: bool) -> None:
        place = self._code.place(line)
        _add_import(module, place, self._bundled, self._findings, optional=optional, named=self._named)

    def _key(self, node: ast.AST, line: int, *, optional: bool) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            _add_key(node.value, self._code.place(line), self._findings, optional=optional)


def _is_namespace(module: str) -> bool:
    return module in {"google", "google.cloud", "azure", "azure.storage", "azure.ai", "azure.mgmt", "azure.keyvault"}


def _dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 5:
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _documentation(tree: ast.AST) -> set[int]:
    """The strings that only explain: alone in a statement."""
    return {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def _is_type_checking(test: ast.AST) -> bool:
    return _dotted(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def _survives_missing(node: ast.Try) -> bool:
    """Whether a program goes on when an import in the body fails: the handler neither raises nor exits."""
    for handler in node.handlers:
        caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        names = {_dotted(one).rpartition(".")[2] if one is not None else "BaseException" for one in caught}
        if names & _HANDLED:
            return not any(map(_gives_up, handler.body))
    return False


def _gives_up(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        return True
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and _dotted(call.func).rpartition(".")[2] in _ENDS


# Environment keys.

_NOT_KEYS = word_set(
    """
    HOME PATH USER PWD SHELL TERM LANG TMPDIR TMP TEMP DISPLAY EDITOR PAGER HOSTNAME LOGNAME OLDPWD PYTHONPATH DEBUG
    VERBOSE NO_COLOR CI COLUMNS LINES IFS RANDOM SECONDS BASH_SOURCE UID EUID XDG_CONFIG_HOME XDG_CACHE_HOME
    XDG_DATA_HOME APPDATA LOCALAPPDATA USERPROFILE NODE_ENV LC_ALL VIRTUAL_ENV SKILL_DIR CLAUDE_SKILL_DIR
    CLAUDE_PLUGIN_ROOT CLAUDE_PROJECT_DIR
    """
)
_KEY_NAME = re.compile(r"[A-Z][A-Z0-9_]{1,99}")
_KEY_LIKE = re.compile(
    r"(?:^|_)(?:API|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTH|PAT)(?:_|$)|APIKEY|ACCESS_KEY"
)


def _add_key(name: str, place: str, findings: Findings, *, optional: bool = False) -> None:
    if _KEY_NAME.fullmatch(name) and name not in _NOT_KEYS:
        findings.add(Finding(NeedKind.ENVIRONMENT_KEY, name, place, optional=optional))


# JavaScript and TypeScript, by pattern: there is no parser for them in Python's library.

_NODE_IMPORT = re.compile(
    r"""(?:\bfrom\s+|\brequire\(\s*|\bimport\(\s*|^\s*import\s+)["']([@\w][\w./@-]{0,150})["']""", re.MULTILINE
)
_NODE_KEY = re.compile(r"process\.env(?:\.([A-Z][A-Z0-9_]{1,99})|\[[\"']([A-Z][A-Z0-9_]{1,99})[\"']\])")
_NODE_BUILT_IN = word_set(
    """
    assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain
    events fs http http2 https inspector module net os path perf_hooks process punycode querystring readline repl
    sqlite stream string_decoder sys test timers tls trace_events tty url util v8 vm wasi worker_threads zlib
    """
)


def node_code(code: SkillText, findings: Findings) -> None:
    """Read what JavaScript or TypeScript needs: packages, keys, hosts."""
    for number, line in enumerate(code.text.split("\n"), 1):
        stripped = line[:_MAX_LINE]
        if stripped.lstrip().startswith(("//", "*", "/*")):
            continue
        place = code.place(number)
        for imported in _NODE_IMPORT.finditer(stripped):
            parts = imported[1].split("/")
            name = "/".join(parts[:2]) if parts[0].startswith("@") else parts[0]
            if parts[0] not in _NODE_BUILT_IN and not name.startswith("@/"):
                findings.add(Finding(NeedKind.NODE_PACKAGE, name, place, module=imported[1]))
        for key in _NODE_KEY.finditer(stripped):
            _add_key(key[1] or key[2], place, findings, optional="||" in stripped or "??" in stripped)
        _add_hosts(stripped, place, findings)


# Shell.

_RESERVED = word_set(
    """
    if then else elif fi for while until do done case esac in function select time coproc { } ! [ [[ ]] ]
    """
)
_BUILT_IN = word_set(
    """
    . : alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo
    enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf
    pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit
    umask unalias unset wait
    """
)
_BEFORE_COMMAND = word_set(
    """
    if then else elif while until do ! time { exec sudo env nohup xargs command builtin
    """
)
_PROGRAM = re.compile(r"[A-Za-z][A-Za-z0-9._+-]{0,60}")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=")
# A pattern that looks at a line again and again holds up the whole agent: what repeats never gives back.
_FUNCTION = re.compile(r"^[ \t]*+(?:function[ \t]++([\w-]{1,200}+)|([\w-]{1,200}+)[ \t]*+\([ \t]*+\))", re.MULTILINE)
_ASSIGNED = re.compile(r"(?:^|[\s;&|(])([A-Za-z_]\w{0,200}+)\+?=")
_READ_INTO = re.compile(r"\b(?:for|read(?:[ \t]{1,9}-\w{1,9}){0,9})[ \t]{1,99}([A-Za-z_]\w{0,200}+)")
_SHELL_KEY = re.compile(r"\$\{?([A-Z][A-Z0-9_]{1,99})(:?[-=+?])?")
_HERE = re.compile(r"<<-?\s*(?:'([^'\s]+)'|\"([^\"\s]+)\"|\\?([\w.-]+))")
_ARITHMETIC_LOOP = re.compile(r"[ \t]*+(?=\(\()")
_MAX_NESTING = 20


def shell_code(code: SkillText, findings: Findings, *, optional: bool = False) -> None:
    """Read what shell code needs: programs it calls, keys it reads, hosts it names."""
    own = {found[1] or found[2] for found in _FUNCTION.finditer(code.text)}
    findings.functions |= own
    assigned = {found[1] for found in _ASSIGNED.finditer(code.text)} | set(_READ_INTO.findall(code.text))
    for program, at in programs_called(code.text):
        if program not in own:
            _add_program(program, code.place(at), findings, optional=optional)
    for number, line in enumerate(code.text.split("\n"), 1):
        shown = line[:_MAX_LINE]
        if shown.lstrip().startswith("#"):
            continue
        for variable in _SHELL_KEY.finditer(shown):
            # ``${X:-}`` gives an empty value, which is no other way to go on.
            default = (variable[2] or "").endswith(("-", "=", "+")) and not shown[variable.end() :].startswith("}")
            if _KEY_LIKE.search(variable[1]) and (variable[1] not in assigned or variable[2]):
                _add_key(variable[1], code.place(number), findings, optional=optional or default)
        _add_hosts(shown, code.place(number), findings)


def _add_program(word: str, place: str, findings: Findings, *, optional: bool = False) -> None:
    name = PurePosixPath(word).name if word.startswith(("/usr/", "/bin/")) else word
    if _PROGRAM.fullmatch(name) and name not in _BUILT_IN and name not in _RESERVED and not _is_file(name):
        findings.add(Finding(NeedKind.PROGRAM, name, place, optional=optional))
        _add_client(name, place, findings, optional=optional)


def _is_file(name: str) -> bool:
    return name.endswith(
        (".sh", ".py", ".js", ".txt", ".json", ".md", ".yml", ".yaml", ".html", ".csv", ".com", ".org")
    )


def programs_called(text: str) -> list[tuple[str, int]]:
    """The first words of the simple commands of shell code, each with its line.

    A scan, not a grammar: quotes, comments, here documents, ``$( )`` and ``case`` patterns are followed, and what
    cannot be followed is passed over.
    """
    return list(_ShellScan(text).commands())


class _ShellScan:
    """Passes over shell code once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._here: list[str] = []

    def commands(self) -> Iterator[tuple[str, int]]:
        yield from self._list(0, "")

    def _list(self, depth: int, closing: str) -> Iterator[tuple[str, int]]:
        """Commands up to ``closing``, or the end."""
        text, starts, in_case, patterns, of_option = self._text, True, 0, False, False
        while self._at < len(text):
            character = text[self._at]
            if character == "\n":
                self._newline()
                starts = True
                continue
            if closing and character == closing:
                self._at += 1
                return
            if character in " \t\r":
                self._at += 1
            elif character == "\\" and text.startswith("\\\n", self._at):
                self._at += 2
                self._line += 1
            elif character == "#" and (self._at == 0 or text[self._at - 1] in " \t\n;&|("):
                self._skip_to("\n")
            elif text.startswith(";;", self._at):
                self._at += 2
                patterns = in_case > 0
            elif character in ";&|":
                self._at += 1
                starts = not patterns
            elif text.startswith("((", self._at) and starts:
                self._arithmetic()
                starts = False
            elif character == "(":
                self._at += 1
                if depth < _MAX_NESTING and starts:
                    yield from self._list(depth + 1, ")")
                    starts = False
            elif character == ")":
                self._at += 1
                starts, patterns = True, False
            elif character in "<>":
                self._redirection()
            else:
                line = self._line
                inner: list[tuple[str, int]] = []
                word, plain = self._word(depth, inner)
                yield from inner
                if patterns:
                    if word == "esac":
                        in_case, patterns, starts = in_case - 1, False, False
                    continue
                if word == "in" and in_case and not starts:
                    patterns = True
                    continue
                if not starts:
                    continue
                if word == "case":
                    in_case += 1
                    starts = False
                elif word == "esac":
                    in_case, starts = max(0, in_case - 1), False
                elif word in {"[[", "["}:
                    self._skip_test()
                    starts = False
                elif word in {"for", "select", "function"}:
                    starts = False
                    loop = _ARITHMETIC_LOOP.match(text, self._at)
                    if loop:
                        self._at = loop.end()
                        self._arithmetic()
                elif of_option:
                    of_option = False
                elif _ASSIGNMENT.match(word):
                    if word.endswith("=") and self._at < len(text) and text[self._at] == "(":
                        self._skip_array()
                elif word in _BEFORE_COMMAND:
                    if word in {"sudo", "xargs"}:
                        yield word, line
                elif word.startswith("-"):
                    of_option = word in {"-u", "--unset", "--user"}  # of sudo and env: a name follows
                else:
                    starts = False
                    if plain and word and word not in {"fi", "done", "}"}:
                        yield word, line

    def _newline(self) -> None:
        self._at += 1
        self._line += 1
        for end in self._here:
            while self._at < len(self._text):
                stop = self._text.find("\n", self._at)
                stop = len(self._text) if stop < 0 else stop
                line = self._text[self._at : stop]
                self._at, self._line = min(stop + 1, len(self._text)), self._line + 1
                if line.strip() == end:
                    break
        self._here.clear()

    def _skip_to(self, character: str) -> None:
        found = self._text.find(character, self._at)
        self._at = len(self._text) if found < 0 else found

    def _redirection(self) -> None:
        here = _HERE.match(self._text, self._at)
        if here and not self._text.startswith("<<<", self._at):
            self._here.append(here[1] or here[2] or here[3])
            self._at = here.end()
            return
        while self._at < len(self._text) and self._text[self._at] in "<>&|":
            self._at += 1
        while self._at < len(self._text) and self._text[self._at] in " \t":
            self._at += 1
        if self._text.startswith("(", self._at):
            return  # a process substitution: its commands follow
        self._word(_MAX_NESTING, [])

    def _arithmetic(self) -> None:
        found = self._text.find("))", self._at)
        stop = len(self._text) if found < 0 else found + 2
        self._line += self._text.count("\n", self._at, stop)
        self._at = stop

    def _skip_test(self) -> None:
        while self._at < len(self._text) and self._text[self._at] != "\n":
            if self._text.startswith(("]]", " ]"), self._at):
                self._at += 2
                return
            self._at += 1

    def _skip_array(self) -> None:
        self._at += 1
        while self._at < len(self._text) and self._text[self._at] != ")":
            if self._text[self._at] == "\n":
                self._line += 1
                self._at += 1
            elif self._text[self._at] in " \t\r#;&|<>(":
                self._at += 1
            else:
                self._word(_MAX_NESTING, [])
        self._at += 1

    def _word(self, depth: int, inner: list[tuple[str, int]]) -> tuple[str, bool]:
        """The next word without its quotes, and whether nothing in it is replaced by the shell."""
        text, parts, plain = self._text, [], True
        began = self._at
        while self._at < len(text):
            character = text[self._at]
            if character in " \t\r\n;&|()<>":
                break
            if character == "\\":
                parts.append(text[self._at + 1 : self._at + 2])
                self._line += text.startswith("\n", self._at + 1)
                self._at += 2
            elif character == "'":
                stop = text.find("'", self._at + 1)
                stop = len(text) if stop < 0 else stop
                parts.append(text[self._at + 1 : stop])
                self._line += text.count("\n", self._at, stop)
                self._at = stop + 1
            elif character == '"':
                plain = self._double(depth, inner, parts) and plain
            elif character in "$`":
                plain = False
                self._substitution(depth, inner)
            else:
                parts.append(character)
                self._at += 1
        if self._at == began:
            self._at += 1
        return "".join(parts), plain

    def _double(self, depth: int, inner: list[tuple[str, int]], parts: list[str]) -> bool:
        text, plain = self._text, True
        self._at += 1
        while self._at < len(text) and text[self._at] != '"':
            character = text[self._at]
            if character == "\\":
                parts.append(text[self._at + 1 : self._at + 2])
                self._line += text.startswith("\n", self._at + 1)
                self._at += 2
            elif character in "$`":
                plain = False
                self._substitution(depth, inner)
            else:
                self._line += character == "\n"
                parts.append(character)
                self._at += 1
        self._at += 1
        return plain

    def _substitution(self, depth: int, inner: list[tuple[str, int]]) -> None:
        text = self._text
        if text.startswith("$((", self._at):
            self._arithmetic()
        elif text.startswith("$(", self._at):
            self._at += 2
            if depth < _MAX_NESTING:
                inner.extend(self._list(depth + 1, ")"))
        elif text.startswith("${", self._at):
            stop = text.find("}", self._at)
            stop = len(text) if stop < 0 else stop
            self._line += text.count("\n", self._at, stop)
            self._at = stop + 1
        elif text[self._at] == "`":
            self._at += 1
            if depth < _MAX_NESTING:
                inner.extend(self._list(depth + 1, "`"))
        else:
            self._at += 1


def modules_of(paths: Iterable[str]) -> frozenset[str]:
    """The names under which a skill's own files can be imported: stems of modules and folders that have some."""
    names: set[str] = set()
    for path in paths:
        if path.endswith(".py"):
            *folders, file = path.split("/")
            names.add(file[:-3])
            names.update(folders)
    return frozenset(names)
