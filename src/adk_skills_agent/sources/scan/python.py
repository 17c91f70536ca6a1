"""What a Python program does with what it reads: a walk over its syntax tree, for the scan before an installation.

An expression carries *signs*: it was decoded, fetched, is the environment, names a file of keys. Names and functions
hand their signs on. A finding is a sign that arrives where code runs, or where data leaves the machine.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from adk_skills_agent.sources.scan.python_names import (
    CLIENTS,
    DANGEROUS,
    DECODED,
    DECODERS,
    DELETES,
    ENVIRON,
    FETCHED,
    FETCHERS,
    FETCHING_METHODS,
    FILLERS,
    GRAVE,
    HOME,
    HOOKS,
    HOST,
    KEY_FILES,
    KEYS,
    LOADS,
    OWN,
    RUNS_CODE,
    RUNS_PROGRAMS,
    RUNS_TEXT,
    SECRET_MODULES,
    SENDERS,
    SENDING_METHODS,
    SENDING_PROGRAM,
    SHELLS,
    SOCKETS,
    SPIED,
    SPIES,
    START_FILES,
    STARTS,
)

_ROUNDS = 4  # how often the signs of names are gathered: each round carries them one assignment further
_MOST_NODES = 60_000  # of one file; a larger one is read by the rules for text alone

_LONGEST = 4_096  # of a text that constants make


@dataclass(frozen=True, slots=True)
class Seen:
    """A finding of the walk: the rule's id, whether it stops, the sentence and the line."""

    rule: str
    stops: bool
    says: str
    line: int


def is_own_service(text: str) -> bool:
    """Whether the keys that a program names belong to the only hosts that it names."""
    hosts = set(HOST.findall(text))
    return bool(hosts) and any(
        re.search(files, text) and all(f".{host}".endswith(f".{ends}") for host in hosts) for files, ends in OWN
    )


def python_findings(text: str) -> list[Seen]:
    """What the walk finds; nothing for a text that is no Python, or too large or too deep to be parsed.

    That a text was parsed and is too deep to be walked is a finding.
    """
    from adk_skills_agent.packages.inference import tolerant_tree  # not before a skill has Python

    try:
        tree = tolerant_tree(text)
    except (SyntaxError, ValueError):
        return []
    try:
        program = _Program(tree)
        return list(dict.fromkeys(program.findings())) if len(program.nodes) <= _MOST_NODES else []
    except RecursionError:  # x[0][0][0] and so on
        return [Seen("not-read", False, "it is nested too deeply to be followed", 1)]


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class _Program:
    def __init__(self, tree: ast.Module) -> None:
        self.nodes: list[ast.AST] = []
        self._scope: dict[int, int] = {}  # of each node: the number of the function around it
        self._outer = [0]  # of each scope: the scope around it
        self._own: list[set[str]] = [set()]  # of each scope: the names that it binds
        self._functions: dict[str, tuple[int, list[str]]] = {}  # name to scope and parameters
        self._name_of_scope: dict[int, str] = {}
        self._names: dict[str, str] = {}  # a name, and what it stands for, dotted
        self._constants: dict[str, str] = {}
        self._signs: dict[tuple[int, str], set[str]] = {}
        self._gather(tree)

    def _gather(self, tree: ast.Module) -> None:
        waiting: list[tuple[ast.AST, int]] = [(tree, 0)]
        while waiting:
            node, scope = waiting.pop()
            self.nodes.append(node)
            self._scope[id(node)] = scope
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._own[scope].add(node.id)
            if isinstance(node, _SCOPES):
                inner = len(self._outer)
                self._outer.append(scope)
                parameters = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                self._own.append(set(parameters))
                if not isinstance(node, ast.Lambda):
                    self._name_of_scope[inner] = node.name
                    self._functions[node.name] = inner, [one for one in parameters if one not in {"self", "cls"}]
                waiting.extend((child, inner) for child in ast.iter_child_nodes(node))
            else:
                waiting.extend((child, scope) for child in ast.iter_child_nodes(node))

    def findings(self) -> Iterator[Seen]:
        """Each finding, some of them more than once."""
        self._bind()
        for _ in range(_ROUNDS):
            before = sum(map(len, self._signs.values()))
            self._carry()
            if sum(map(len, self._signs.values())) == before:
                break
        called = [(node, self.dotted(node.func) or "") for node in self.nodes if isinstance(node, ast.Call)]
        network = any(name in SENDERS or name in SOCKETS or name in FETCHERS for _, name in called) or any(
            name.partition(".")[0] in CLIENTS for name in self._names.values()
        )
        for call, name in called:
            yield from self._runs(call, name)
            if network:
                yield from self._sends(call, name)
            yield from self._hides(call)
            yield from self._writes(call, name)
        yield from self._as_values({id(call.func) for call, _ in called})
        yield from self._together(called)

    def _as_values(self, called: set[int]) -> Iterator[Seen]:
        """What runs code, handed on as a value or looked up by a name: who reads it does not see the call."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and (name := self._looked_up(node)) is not None and id(node) not in called:
                if name in RUNS_TEXT or name in {"os.system", "os.popen"}:
                    yield Seen("obfuscated-call", True, "hides what it calls", node.lineno)
            elif isinstance(node, ast.Subscript):
                name = self.dotted(node) or ""
                table, _, last = name.rpartition(".")
                if last in DANGEROUS and table in SECRET_MODULES:
                    spelled = not isinstance(node.slice, ast.Constant)
                    yield Seen("obfuscated-call", spelled, "hides what it calls", node.lineno)
            elif (
                isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in called
            ):
                name = self.dotted(node) or ""
                if name in RUNS_TEXT or name in {"os.system", "os.popen"}:
                    yield Seen("runner-as-value", False, "hands on what runs code as a value", node.lineno)

    # What names stand for.

    def _bind(self) -> None:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._names[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self._names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for node in self.nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                target = node.targets[0].id
                folded = self.folded(node.value)
                if folded is not None:
                    self._constants[target] = folded
                name = self.dotted(node.value)
                if name is not None and target not in self._names and name != target:
                    self._names[target] = name

    def dotted(self, node: ast.AST | None) -> str | None:
        """The full name of an expression: ``os.system`` for ``s`` after ``from os import system as s``."""
        parts: list[str] = []
        while True:
            if isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Name):
                parts.append(self._names.get(node.id, node.id))
                return ".".join(reversed(parts))
            elif isinstance(node, ast.Call):
                inner = self._looked_up(node)
                if inner is None:
                    return None
                parts.append(inner)
                return ".".join(reversed(parts))
            elif isinstance(node, ast.Subscript) and self.dotted(node.value) == "sys.modules":
                parts.append(self.folded(node.slice) or "?")
                return ".".join(reversed(parts))
            elif isinstance(node, ast.Subscript) and (table := self._table_of(node.value)) in SECRET_MODULES:
                parts.append(self.folded(node.slice) or "?")
                parts.append(table or "")
                return ".".join(reversed(parts))
            else:
                return None

    def _looked_up(self, call: ast.Call) -> str | None:
        """``os.system`` for ``getattr(os, "sys" + "tem")`` and ``os`` for ``__import__("os")``."""
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        name = self._names.get(name, name)
        if name in {"__import__", "builtins.__import__"} and call.args:
            return self.folded(call.args[0])
        if isinstance(call.func, ast.Attribute) and call.func.attr == "import_module" and call.args:
            return self.folded(call.args[0])
        if name in {"getattr", "builtins.getattr"} and len(call.args) >= 2:
            base, attribute = self.dotted(call.args[0]), self.folded(call.args[1])
            if base and attribute:
                return f"{base}.{attribute}"
            return f"{base}.?" if base in SECRET_MODULES else None
        return None

    def folded(self, node: ast.AST | None, depth: int = 0) -> str | None:
        """The text that an expression of constants makes."""
        if depth > 40 or node is None:
            return None
        if isinstance(node, ast.Constant):
            value = node.value
            return value if isinstance(value, str) else value.decode("latin-1") if isinstance(value, bytes) else None
        if isinstance(node, ast.Name):
            return self._constants.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.folded(node.left, depth + 1), self.folded(node.right, depth + 1)
            return (left + right)[:_LONGEST] if left is not None and right is not None else None
        if isinstance(node, ast.JoinedStr):
            parts = [
                self.folded(one.value if isinstance(one, ast.FormattedValue) else one, depth + 1) for one in node.values
            ]
            return "".join(part for part in parts if part is not None)[:_LONGEST] if None not in parts else None
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            step = node.slice.step
            whole = self.folded(node.value, depth + 1)
            backwards = isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)
            return whole[::-1] if whole is not None and backwards else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            base = self.folded(node.func.value, depth + 1)
            if base is None:
                return None
            if (
                node.func.attr == "join"
                and len(node.args) == 1
                and (elements := self._elements(node.args[0])) is not None
            ):
                items = [self.folded(item, depth + 1) for item in elements]
                return base.join(item for item in items if item is not None)[:_LONGEST] if None not in items else None
            if node.func.attr in {"lower", "strip", "decode", "encode", "format"} and not node.args:
                return base.lower() if node.func.attr == "lower" else base
            if node.func.attr == "replace" and len(node.args) == 2:
                old, new = (self.folded(one, depth + 1) for one in node.args)
                return base.replace(old, new)[:_LONGEST] if old and new is not None else None
        return None

    def _elements(self, node: ast.AST) -> list[ast.expr] | None:
        """The elements of a list that is written out, also of ``map(chr, [...])`` and ``reversed(...)``."""
        if isinstance(node, ast.List | ast.Tuple):
            return node.elts
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            inner = self._elements(node.args[-1])
            if inner is not None and node.func.id == "reversed":
                return inner[::-1]
            if inner is not None and node.func.id == "map" and self.dotted(node.args[0]) == "chr":
                numbers = [one.value for one in inner if isinstance(one, ast.Constant) and isinstance(one.value, int)]
                return [ast.Constant(chr(number % 0x110000)) for number in numbers]
        return None

    # The signs of expressions.

    def signs_of(self, node: ast.AST | None) -> set[str]:
        """All signs in an expression."""
        found: set[str] = set()
        if node is None:
            return found
        texts: list[str] = []
        waiting: list[ast.AST] = [node]
        while waiting:
            one = waiting.pop()
            if isinstance(one, ast.Name):
                found |= self._known(one, one.id)
                if self._names.get(one.id, one.id) in DECODERS:
                    found.add(DECODED)  # handed on: ``map(chr, ...)``
                if self._names.get(one.id) == "os.environ":
                    found.add(ENVIRON)
            elif isinstance(one, ast.Constant) and isinstance(one.value, str):
                texts.append(one.value)
                found |= self._signs.get((0, f"file {one.value}"), set())
            elif isinstance(one, ast.Attribute):
                if self.dotted(one) in {"os.environ", "os.environb"}:
                    found.add(ENVIRON)
                    continue
                if isinstance(one.value, ast.Name) and one.value.id in {"self", "cls"}:
                    found |= self._signs.get((0, f"self.{one.attr}"), set())
            elif isinstance(one, ast.Subscript) and self.dotted(one.value) == "os.environ":
                waiting.append(one.slice)  # one variable is not the environment
                continue
            elif isinstance(one, ast.BinOp) and isinstance(one.op, ast.BitXor):
                found.add(DECODED)
            elif isinstance(one, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in one.ops):
                waiting.append(one.left)
                continue
            elif isinstance(one, ast.Call):
                name = self.dotted(one.func) or ""
                found |= self._signs_of_call(one, name)
                if name.startswith("os.environ.") and name.rpartition(".")[2] in {"get", "pop", "setdefault"}:
                    waiting.extend(one.args)
                    continue
                if name in {
                    "hash",
                    "len",
                    "bool",
                    "isinstance",
                    "hashlib.sha256",
                    "hashlib.md5",
                    "hashlib.sha1",
                    "any",
                    "all",
                }:
                    continue
                if name in RUNS_PROGRAMS:  # what a program says is not what it was given
                    waiting.extend(one.args)
                    continue
            waiting.extend(ast.iter_child_nodes(one))
        if HOME in found and any(text.strip("~/") for text in texts):
            found.discard(HOME)  # something in it
        if texts:
            texts.reverse()
            path = "/".join(text.strip("/") for text in texts)
            if len(path) < 4096:
                found |= {sign for sign, pattern in ((KEYS, KEY_FILES), (STARTS, START_FILES)) if pattern.search(path)}
        return found

    def _signs_of_call(self, call: ast.Call, name: str) -> set[str]:
        found: set[str] = set()
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in DECODERS or (method == "fromhex" and name != "uuid.UUID.fromhex"):
            found.add(DECODED)
        if (
            method in {"decode", "translate"}
            and call.args
            and self.folded(call.args[0]) in {"rot13", "rot_13", "hex", "base64"}
        ):
            found.add(DECODED)
        if name in FETCHERS or method in FETCHING_METHODS:
            found.add(FETCHED)
        if name in SPIES:
            found.add(SPIED)
        if name in {"pathlib.Path.home", "os.path.expanduser"} and self._text_of(call) in {"", "~", "~/"}:
            found.add(HOME)
        if isinstance(call.func, ast.Name):
            found |= self._signs.get((0, f"{call.func.id}()"), set())
        elif isinstance(call.func, ast.Attribute):
            base = call.func.value
            if isinstance(base, ast.Name) and base.id in {"self", "cls"}:
                found |= self._signs.get((0, f"{method}()"), set())
        if name in RUNS_PROGRAMS:
            text = " ".join(
                one.value for one in ast.walk(call) if isinstance(one, ast.Constant) and isinstance(one.value, str)
            )[:4096]
            if re.search(r"\b(?:curl|wget|dig|nslookup)\b", text):
                found.add(FETCHED)
            if re.search(r"^\s*(?:env|printenv|set)\s*$|\benv\b\s*\|", text):
                found.add(ENVIRON)
            if re.search(
                r"find-(?:generic|internet)-password|dump-keychain|git credential fill|gh auth token|secret-tool", text
            ):
                found.add(KEYS)
        return found

    def _known(self, node: ast.AST, name: str) -> set[str]:
        return self._signs.get((self._home(node, name), name), set())

    def _home(self, node: ast.AST, name: str) -> int:
        """The scope that binds a name which a node uses."""
        scope = self._scope.get(id(node), 0)
        while scope and name not in self._own[scope]:
            scope = self._outer[scope]
        return scope

    def _carry(self) -> None:
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                signs = self.signs_of(node.value)
                for target in node.targets:
                    self._give(target, signs)
            elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
                self._give(node.target, self.signs_of(node.value))
            elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                self._give(node.target, self.signs_of(node.iter))
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                self._give(node.optional_vars, self.signs_of(node.context_expr))
                self._give_file(node.context_expr, self.signs_of(node.optional_vars))
            elif isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
                inside = self._scope[id(node)]
                self._add(0, f"{self._name_of_scope.get(inside, '')}()", self.signs_of(node.value))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = self._functions[node.name][0]
                for argument, default in zip(reversed(node.args.args), reversed(node.args.defaults), strict=False):
                    self._add(inner, argument.arg, self.signs_of(default))
            elif isinstance(node, ast.Call):
                self._carry_call(node)

    def _carry_call(self, call: ast.Call) -> None:
        """``box.append(x)`` gives the signs of ``x`` to ``box``; ``f(x)`` to the parameter of a function here."""
        function, name = call.func, ""
        if isinstance(function, ast.Attribute):
            name = function.attr
            if name in FILLERS:
                signs = set[str]().union(*map(self.signs_of, call.args)) - {STARTS}
                self._give(function.value, signs)
                self._give_file(function.value, signs)
        if self.dotted(function) in {"urllib.request.urlretrieve", "wget.download"} and len(call.args) > 1:
            self._give_path(call.args[1], {FETCHED})
        elif isinstance(function, ast.Name):
            name = function.id
        if name in self._functions:
            inner, parameters = self._functions[name]
            for parameter, argument in zip(parameters, call.args, strict=False):
                self._add(inner, parameter, self.signs_of(argument))

    def _give_file(self, opened: ast.AST, signs: set[str]) -> None:
        """``open(path, "wb")`` that is written to gives its path what was written."""
        if isinstance(opened, ast.Call) and opened.args and self.dotted(opened.func) in {"open", "io.open"}:
            self._give_path(opened.args[0], signs & {DECODED, FETCHED})

    def _give_path(self, path: ast.AST, signs: set[str]) -> None:
        self._give(path, signs)
        if isinstance(path, ast.Constant) and isinstance(path.value, str):
            self._add(0, f"file {path.value}", signs)

    def _give(self, target: ast.AST, signs: set[str]) -> None:
        if not signs:
            return
        for one in ast.walk(target):
            if isinstance(one, ast.Name):
                self._add(self._home(one, one.id), one.id, signs)
            elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id in {"self", "cls"}:
                self._add(0, f"self.{one.attr}", signs)

    def _add(self, scope: int, name: str, signs: set[str]) -> None:
        if signs:
            self._signs.setdefault((scope, name), set()).update(signs)

    # Where signs must not arrive.

    def _runs(self, call: ast.Call, name: str) -> Iterator[Seen]:
        first = call.args[0] if call.args else None
        if name in RUNS_CODE or name.endswith((".exec_module", ".runsource", ".runcode")):
            signs = set[str]().union(*map(self.signs_of, call.args[:3]))
            if signs & {DECODED, FETCHED}:
                says = "runs code that it decodes" if DECODED in signs else "runs code that it fetches"
                yield Seen("decoded-code-runs" if DECODED in signs else "fetched-code-runs", True, says, call.lineno)
            elif first is not None and not isinstance(first, ast.Constant) and name in RUNS_TEXT:
                built = isinstance(first, ast.BinOp) and self.folded(first) is not None
                yield Seen("built-code-runs", built, "runs code that it makes while it runs", call.lineno)
        elif name in LOADS:
            signs = set[str]().union(*map(self.signs_of, call.args[:1]))
            if signs & {DECODED, FETCHED}:
                says = "unpickles what it fetches or decodes, which can run any code"
                yield Seen("pickle-runs", True, says, call.lineno)
            else:
                yield Seen("reads-pickle", False, "reads a pickle, which can run any code", call.lineno)
        elif name in RUNS_PROGRAMS:
            command = first or next((word.value for word in call.keywords if word.arg in {"args", "cmd"}), None)
            signs = self._program_signs(call, command)
            if signs & {DECODED, FETCHED}:
                says = "starts a program or a command that it decodes or fetches"
                yield Seen("fetched-program-runs", True, says, call.lineno)
            text = self._text_of(call)
            if SENDING_PROGRAM.search(text) and (carried := self.signs_of(call) & {KEYS, ENVIRON}):
                what = "keys or passwords" if KEYS in carried else "the environment, where keys are"
                yield Seen("secrets-sent-by-a-program", True, f"sends {what} with a program", call.lineno)

    def _program_signs(self, call: ast.Call, command: ast.AST | None) -> set[str]:
        """The signs of the program that is started, or of what a shell is given: not those of its other arguments."""
        start: ast.AST | None = command
        while True:
            if isinstance(start, ast.List | ast.Tuple) and start.elts:
                start = start.elts[0]
            elif isinstance(start, ast.JoinedStr) and start.values:
                start = start.values[0]
            elif isinstance(start, ast.BinOp) and isinstance(start.op, ast.Add | ast.Mod):
                start = start.left
            else:
                break
        word = (self.folded(start) or "").replace("/", " ").split()
        if not word:
            return self.signs_of(start)
        if not SHELLS.intersection(word):
            return set()
        given = next((one.value for one in call.keywords if one.arg == "input"), None)
        return self.signs_of(command) | self.signs_of(given)

    def _text_of(self, node: ast.AST) -> str:
        texts = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))
        return " ".join(texts)[:4096]

    def _sends(self, call: ast.Call, name: str) -> Iterator[Seen]:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name not in SENDERS and method not in SENDING_METHODS:
            return
        signs = set[str]().union(*map(self.signs_of, (*call.args, *(word.value for word in call.keywords))))
        for sign, rule, says in (
            (ENVIRON, "environment-sent", "sends the environment, where keys are"),
            (KEYS, "secrets-sent-by-a-program", "sends what it reads from a file of keys, passwords or cookies"),
            (SPIED, "private-data-sent", "sends what it takes from the screen, the keyboard or a store of passwords"),
        ):
            if sign in signs:
                yield Seen(rule, sign != KEYS or not is_own_service(self._texts), says, call.lineno)

    def _hides(self, call: ast.Call) -> Iterator[Seen]:
        says = "hides what it calls"
        looked_up = call.func
        if isinstance(looked_up, ast.Name) and self._names.get(looked_up.id, "").endswith(".?"):
            yield Seen("obfuscated-call", True, says, call.lineno)
        if isinstance(looked_up, ast.Call) and isinstance(looked_up.func, ast.Name) and looked_up.func.id == "getattr":
            key = looked_up.args[1] if len(looked_up.args) > 1 else None
            base = self.dotted(looked_up.args[0]) if looked_up.args else None
            inner = looked_up.args[0] if looked_up.args else None
            odd = isinstance(inner, ast.Call) and self._is_import(inner)
        elif isinstance(looked_up, ast.Subscript):
            key, base, odd = looked_up.slice, self._table_of(looked_up.value), False
        else:
            if self._is_import(call) and call.args and not isinstance(call.args[0], ast.Constant | ast.Name):
                built = isinstance(call.args[0], ast.BinOp) and self.folded(call.args[0]) is not None
                if built or DECODED in self.signs_of(call.args[0]):
                    yield Seen("obfuscated-call", True, says, call.lineno)
            return
        given = set[str]().union(*map(self.signs_of, call.args))
        plain = isinstance(key, ast.Constant)
        called = self.folded(key)
        if base in SECRET_MODULES or odd:
            dangerous = called in DANGEROUS
            if dangerous or (not plain and called is None):
                yield Seen("obfuscated-call", dangerous or DECODED in given, says, call.lineno)
        elif not plain and DECODED in given | self.signs_of(key):
            yield Seen("obfuscated-call", True, says, call.lineno)

    def _is_import(self, call: ast.Call) -> bool:
        name = self.dotted(call.func)
        return name in {"__import__", "builtins.__import__", "importlib.import_module", "importlib.__import__"}

    def _table_of(self, node: ast.AST) -> str | None:
        """``builtins`` for ``vars(builtins)`` and ``builtins.__dict__``: the tables in which names can be looked up."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "vars" and node.args:
                return self.dotted(node.args[0])
            return "builtins" if node.func.id in {"globals", "locals"} and "__builtins__" in self._texts else None
        name = self.dotted(node)
        return name.removesuffix(".__dict__") if name else None

    def _writes(self, call: ast.Call, name: str) -> Iterator[Seen]:
        target: ast.AST | None = None
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in {"open", "io.open", "codecs.open"} and call.args:
            mode = self.folded(call.args[1]) if len(call.args) > 1 else self._word(call, "mode")
            target = call.args[0] if mode and set(mode) & set("wax+") else None
        elif name in {
            "shutil.copy",
            "shutil.copyfile",
            "shutil.copy2",
            "shutil.move",
            "os.rename",
            "os.replace",
            "os.symlink",
        }:
            target = call.args[1] if len(call.args) > 1 else None
        elif method in {"write_text", "write_bytes", "symlink_to"} and isinstance(call.func, ast.Attribute):
            target = call.func.value
        elif method == "open" and isinstance(call.func, ast.Attribute) and call.args:
            mode = self.folded(call.args[0])
            target = call.func.value if mode and set(mode) <= set("wax+bt") and set(mode) & set("wax") else None
        if target is not None and STARTS in self.signs_of(target):
            text = self._texts
            stops = bool(GRAVE.search(text) or re.search(r"\b(?:curl|wget|base64)\b|/dev/tcp|https?://", text))
            yield Seen("writes-start-file", stops, "writes a file that is run at a login or a start", call.lineno)

    def _word(self, call: ast.Call, name: str) -> str | None:
        return next((self.folded(word.value) for word in call.keywords if word.arg == name), None)

    @cached_property
    def _texts(self) -> str:
        """All texts of the program."""
        texts = (one.value for one in self.nodes if isinstance(one, ast.Constant) and isinstance(one.value, str))
        return "\n".join(texts)[:200_000]

    def _together(self, called: list[tuple[ast.Call, str]]) -> Iterator[Seen]:
        """What two places of a program say together, without a name that links them."""
        fetches = [call for call, name in called if name in FETCHERS or FETCHED in self._signs_of_call(call, name)]
        sends = [call for call, name in called if name in SENDERS]
        made = {
            self._core(call.args[0] if name == "os.chmod" and call.args else getattr(call.func, "value", None)): call
            for call, name in called
            if (name == "os.chmod" or name.endswith(".chmod")) and self._makes_executable(call)
        }
        for call, name in called:
            if fetches and made and name in RUNS_PROGRAMS and call.args:
                command = call.args[0]
                program = command.elts[0] if isinstance(command, ast.List | ast.Tuple) and command.elts else command
                core = self._core(program)
                if core and core in made:
                    says = "downloads a program, makes it executable and starts it"
                    yield Seen("fetched-program-runs", True, says, call.lineno)
            if name in DELETES and call.args and HOME in self.signs_of(call.args[0]):
                yield Seen("destroys", True, "deletes what is in the home folder", call.lineno)
            if name in {"sys.path.insert", "sys.path.append"} and FETCHED in self.signs_of(
                call.args[-1] if call.args else None
            ):
                yield Seen("fetched-code-runs", True, "has Python import what it fetches", call.lineno)
            if name.startswith(tuple(HOOKS)) and name.endswith((".append", ".insert")):
                says = "changes how Python finds modules" + (", and fetches" if fetches else "")
                yield Seen("import-hook", bool(fetches), says, call.lineno)
            if sends and name in SPIES:
                says = "reads the screen, the keyboard or a store of passwords in a program that sends data"
                yield Seen("private-data-sent", False, says, call.lineno)
            if (
                sends
                and name in {"os.environ.items", "os.environ.copy", "dict", "json.dumps"}
                and (name.startswith("os.environ") or ENVIRON in set[str]().union(*map(self.signs_of, call.args)))
            ):
                says = "reads the whole environment in a program that sends data"
                if name.endswith(".items") or name == "json.dumps":
                    yield Seen("environment-sent", False, says, call.lineno)
            reads = name in {"open", "io.open"} or name.endswith((".read_text", ".read_bytes", ".open"))
            if sends and reads and KEYS in self.signs_of(call):
                says = "reads a file of keys, passwords or cookies in a program that sends data"
                yield Seen("secrets-sent-by-a-program", False, says, call.lineno)

    def _core(self, node: ast.AST | None) -> str:
        """The name in ``str(path)`` or ``path``; empty for anything else."""
        while isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            node = node.args[0]
        if isinstance(node, ast.Name | ast.Attribute):
            return self.dotted(node) or ""
        return ""

    def _makes_executable(self, call: ast.Call) -> bool:
        for argument in call.args:
            for one in ast.walk(argument):
                if isinstance(one, ast.Attribute) and one.attr.startswith(("S_IX", "S_IRWX", "S_ISUID")):
                    return True
                if isinstance(one, ast.Constant) and isinstance(one.value, int) and one.value & 0o111:
                    return True
        return False
