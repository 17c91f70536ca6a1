"""The simple commands of a shell command line, read with bash's grammar (tree-sitter-bash), and what is doubtful in it.

:mod:`.command_rules` gives the verdict. What cannot be known before the run is a doubt, each with its reason: a name
that only the run decides, a shell that reads its commands from its input, a text that bash may evaluate (``$((x))``
runs the command in ``x='a[$(command)]'``), and every line that the grammar cannot read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from adk_skills_agent.adk.shell.command_nodes import (
    ARGUMENTS,
    CODED,
    below,
    ends_where_bash_ends_it,
    is_count,
    is_in_quotes,
    is_quoted,
    is_together,
    may_hold_a_command,
    names_in,
    unread,
)
from adk_skills_agent.adk.shell.command_starters import (
    LINE_OPTIONS,
    OTHER_STARTERS,
    RUNNERS,
    STARTERS,
    Starter,
    is_shell,
    names_programs,
    same_for_git,
    started_by_git,
    without_edition,
)
from adk_skills_agent.adk.shell.command_words import ANY, AS_BLANKS, AS_LINE, LINE_END, Word, text_of, word_of
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox import check_env_name

if TYPE_CHECKING:
    from tree_sitter import Language, Node

MAX_LINE_BYTES = 100_000
"""Of a line that is read; a longer one is asked about."""
_SHORT_BYTES = 2_000  # of a line that takes the grammar no more than a tenth of a second, whatever is in it
_TREE_SECONDS = 0.3
_PIECE_BYTES = 4_096
_MOST_DOCUMENTS = 100  # the grammar looks for the end of each in all that is behind it
_MOST_DEPTH = 200  # of the tree
_MOST_COMMANDS = 300  # each is compared with each rule
_MOST_SHELLS = 5  # a line in a line in a line
_MOST_LINES = 30  # that are read within one
_MOST_JOINED = 100  # words that become one line
_MOST_NESTED = 12  # a program that starts a program that starts a program
# What bash does not take for white space but others may, and what no command line needs.
_ODD = re.compile(r"[^\S \t\n]|[\x00-\x08\x0e-\x1f\x7f\ue000-\uf8ff\ud800-\udfff]")
# The grammar takes these for white space, bash for a word that begins with a space.
_ESCAPED_BLANK = re.compile(r"(?:^|[\s;&|(){}<>`\"'=!])\\[ \t]", re.MULTILINE)
_BEHIND_CLOSING = re.compile(r"[<>]&[ \t]*-[ \t]*+(?!\d*[<>])[^\s;&|)}<>#]")  # the grammar leaves these words out
_DOCUMENT_OF_VARIABLE = re.compile(r"<<-?[ \t]*+\$")  # the grammar reads another end than bash
# The grammar takes some of these numbers for words.
_NUMBERED = re.compile(r"(?:^|[\s;&|()])(?:\d+<|(?![1-9]>)\d+>)")
_NAMED_DESCRIPTOR = re.compile(r"\{\w+\}[<>]")  # the grammar takes it for a word of the command
_EVERY = "*"  # of the variables: which one is not known
# Bash evaluates what is assigned to these.
_INTEGERS = frozenset(
    {"BASHPID", "EPOCHSECONDS", "EPOCHREALTIME", "HISTCMD", "LINENO", "OPTIND", "RANDOM", "SECONDS", "SRANDOM"}
)
_JOINED_LINE = re.compile(r"(?<!\s)\\\n")


@dataclass(slots=True)
class CommandLine:
    """The parts of a command line."""

    commands: list[tuple[Word, ...]] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)  # why it cannot be known what it does, one reason each
    # texts in it that are only data so far and have a substitution: ``'$(git push)'``
    hides: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)  # texts in it that were read as lines, so that what they hide was found
    evaluates: bool = False  # whether bash may evaluate a variable or a text of it: ``$((x))``
    values: dict[str, set[str]] = field(default_factory=dict)  # the names that the value of each variable is made of
    # variables that may hold a text of a command: output, a line that was read, ``k='$'``
    unknown: set[str] = field(default_factory=set)
    evaluated: set[str] = field(default_factory=set)  # variables whose text bash evaluates, or ``_EVERY``
    has_functions: bool = False  # whether it defines functions, whose arguments are ``$1``
    sets: bool = False  # whether it sets variables: the same words mean something else with ``GIT_DIR=/work/x`` before

    def add(self, inner: CommandLine) -> None:
        """Take what a shell in this line reads as a part of it."""
        self.commands += inner.commands
        self.doubts += inner.doubts
        self.hides |= inner.hides
        self.read |= inner.read
        self.evaluates |= inner.evaluates
        self.sets |= inner.sets
        for name, parts in inner.values.items():
            self.values.setdefault(name, set()).update(parts)
        self.unknown |= inner.unknown
        self.evaluated |= inner.evaluated
        self.has_functions |= inner.has_functions

    def doubt_what_is_evaluated(self) -> None:
        """Add a doubt if bash may evaluate a text that runs a command."""
        if self.hides - self.read and self.evaluates:
            self.doubts.append("bash may evaluate a text of it that has a command inside")
        unknown = set(self.unknown)
        if self.has_functions:
            unknown.add(ARGUMENTS)
        made_of: dict[str, list[str]] = {}
        for name, parts in self.values.items():
            for part in parts:
                made_of.setdefault(part, []).append(name)
        waiting = list(unknown)
        while waiting:
            grown = set(made_of.pop(waiting.pop(), ())) - unknown
            unknown |= grown
            waiting += grown
        evaluated = unknown if _EVERY in self.evaluated else unknown & self.evaluated
        if evaluated - ({ARGUMENTS} if _EVERY in self.evaluated else set()):
            self.doubts.append("bash may evaluate a text in it that only the run decides")


# Reading a line


def read_line(line: str) -> CommandLine:
    """The simple commands of a line and what is doubtful in it. Never raises, executes nothing."""
    found = _read(line)
    found.doubt_what_is_evaluated()
    return found


def _read(line: str, depth: int = 0, inner: Iterator[int] | None = None) -> CommandLine:
    """The simple commands of a line. Never raises."""
    found = CommandLine()
    inner = iter(range(_MOST_LINES)) if inner is None else inner
    if depth > _MOST_SHELLS or next(inner, None) is None:
        found.doubts.append("it has shells in shells in shells")
        return found
    odd = _ODD.search(line)
    if odd is not None or len(line.encode("utf-8", "replace")) > MAX_LINE_BYTES:
        found.doubts.append("it has characters that no command needs" if odd else "it is too long to be read")
        return found
    if _ESCAPED_BLANK.search(line):
        found.doubts.append("a word of it begins with an escaped space")
        return found
    if _JOINED_LINE.search(line):
        found.doubts.append("a word of it goes on in the next line")
        return found
    if line.count("<<") > _MOST_DOCUMENTS:
        found.doubts.append("it has too many here-documents to be read")
        return found
    if _BEHIND_CLOSING.search(line):
        found.doubts.append("words stand behind a redirection")
    if _NUMBERED.search(line):
        found.doubts.append("an input or output in it has a number")
    if _DOCUMENT_OF_VARIABLE.search(line):
        found.doubts.append("a here-document in it ends with a variable")
    if _NAMED_DESCRIPTOR.search(line):
        found.doubts.append("a redirection in it names a variable")
    root = _tree(line.encode())
    if root is None or root.has_error:
        if root is None:
            for _ in inner:  # nor is anything else of it read
                pass
        found.doubts.append("it cannot be read as a command line" if root is not None else "it takes too long to read")
        return found
    _Reader(found, line.encode(), depth, inner).visit(root, 0)
    return found


def _tree(line: bytes) -> Node | None:
    """The tree of a line; None when the grammar takes too long for it.

    Some lines of 100 kB take it more than a minute, in which no other thread of the agent goes on (row 124): so a long
    one is tried first in a way that can be ended, and lets others go on.
    """
    from tree_sitter import Parser

    if len(line) > _SHORT_BYTES:
        until = time.thread_time() + _TREE_SECONDS
        try:
            Parser(_language()).parse(
                lambda place, _: line[place : place + _PIECE_BYTES],
                progress_callback=lambda *_: time.thread_time() > until,
            )
        except ValueError:
            return None
    return Parser(_language()).parse(line).root_node


@lru_cache(maxsize=1)
def _language() -> Language:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


class _Reader:
    """Collects the simple commands of one tree."""

    def __init__(self, found: CommandLine, source: bytes, depth: int, inner: Iterator[int]) -> None:
        self._found = found
        self._source = source
        self._depth = depth
        self._inner = inner
        self._nested = 0

    def visit(self, node: Node, depth: int, more: Sequence[Node] = ()) -> None:
        """Look at a node and all below it.

        ``more`` are words that stand behind the redirections of a command and belong to it.
        """
        if depth > _MOST_DEPTH:
            self._doubt("it is nested too deeply to be read")
            return
        if len(self._found.commands) > _MOST_COMMANDS:
            self._doubt("it has too many commands to be read")
            return
        if node.type in _ONE_LINE and not is_together(node):
            self._doubt("it cannot be read as a command line")
        elif node.type == "file_redirect" and _DUPLICATED.match(text_of(node)):
            self._doubt("bash evaluates the name of a file in it")
        elif node.type == "heredoc_redirect" and not ends_where_bash_ends_it(node, self._source):
            self._doubt("it cannot be known where a here-document in it ends")
        if node.type in ("command", "declaration_command", "unset_command"):
            self._command(node, more)
        elif node.type == "test_command" and node.children and node.children[0].type == "[":
            self._found.commands.append((Word("["), Word(ANY)))
        elif node.type == "variable_assignment":
            self._assignment(node)
        elif node.type == "for_statement":
            self._loop(node)
        elif node.type == "function_definition":
            self._found.has_functions = True
        elif node.type == "command_substitution" and _REREAD.match(text_of(node)):
            self._doubt("it has a command in backquotes with backslashes")
        elif node.type in ("word", "heredoc_start"):
            plain = re.sub(r"\\.", "", text_of(node), flags=re.DOTALL)
            if "`" in plain or "$(" in plain:
                self._doubt("it hides a command in a word")
            if re.search(r"\s", plain):  # the grammar takes the end of a line before a backslash for a part of the word
                self._doubt("it cannot be read as a command line")
        self._evaluation(node)
        behind = self._behind_redirections(node) if node.type == "redirected_statement" else ()
        for child in node.children:
            self.visit(child, depth + 1, behind if node.children and child == node.children[0] else ())

    def _evaluation(self, node: Node) -> None:
        """Note what bash evaluates, and texts that would run a command if they were evaluated."""
        kind = node.type
        written = text_of(node)
        if kind in _LITERALS:
            text = unread(node) if kind == "heredoc_body" else word_of(node).text
            if kind == "heredoc_body":
                if "$[" in written or "$((" in written:
                    self._evaluated(node)
                if _hides(_ESCAPED.sub("", text)) and not is_quoted(node):
                    self._doubt("it hides a command in a here-document")
            if _hides(text) or (kind == "ansi_c_string" and CODED.search(written)):
                self._found.hides.add(text)
                if kind in ("raw_string", "ansi_c_string") and is_in_quotes(node):
                    self._doubt("it has quotes in an expansion in quotes")
        elif kind in ("expansion", "simple_expansion"):
            if kind == "simple_expansion" and not _SIMPLE_EXPANSION.fullmatch(written):
                self._doubt("it cannot be read as a command line")
            if "@P}" in written:
                self._doubt("it expands the text of a variable like a prompt")
            if _EVALUATING_EXPANSION.match(written):
                self._evaluated(node)
            assigned = re.match(r"\$\{(\w+)(?:\[[^]]*\])?:?=", written)
            if assigned is not None:
                self._variable(assigned[1])
                self._value(assigned[1], node.children[1:])
        elif kind in ("arithmetic_expansion", "c_style_for_statement", "subscript") or (
            # Where the grammar does not expect arithmetic, it reads a subshell in a subshell.
            kind in ("compound_statement", "subshell", "command_substitution") and written.startswith(("((", "$(("))
        ):
            if re.search(r"[^\W\d]|[$'\"\\]", written.removeprefix("$((")):
                self._evaluated(node)
        elif kind == "test_command":
            if _EVALUATING_TEST.search(written):
                self._evaluated(node)
        elif kind == "array":
            for child in node.children:
                if text_of(child).startswith("["):
                    self._evaluated(child)

    def _evaluated(self, node: Node | None = None) -> None:
        """Note that bash evaluates the texts of all variables in a node; without one, of every variable."""
        self._found.evaluates = True
        self._found.evaluated |= {_EVERY} if node is None else names_in(node)
        if node is not None and any(not is_count(one) for one in below(node, "command_substitution")):
            self._doubt("bash evaluates the output of a command")

    def _value(self, name: str, parts: Iterable[Node], *, globs: bool = False) -> None:
        """Note what a variable holds."""
        found = self._found
        name = name.partition("[")[0].rstrip("+")
        if name in _INTEGERS:
            found.evaluates = True
            found.evaluated.add(name)
        for part in parts:
            found.values.setdefault(name, set()).update(names_in(part))
            if may_hold_a_command(part, globs=globs):
                found.unknown.add(name)

    def _loop(self, node: Node) -> None:
        variable = node.child_by_field_name("variable")
        if variable is not None:
            self._variable(text_of(variable))
            values = node.children_by_field_name("value")
            self._value(text_of(variable), values, globs=True)
            if not values:
                self._found.values.setdefault(text_of(variable), set()).add(ARGUMENTS)

    def _behind_redirections(self, node: Node) -> tuple[Node, ...]:
        """``git >log push``: the grammar takes all words behind ``>`` for files, bash only the first."""
        behind: list[Node] = []
        redirections = list(node.children_by_field_name("redirect"))
        while redirections:
            one = redirections.pop(0)
            redirections[:0] = one.children_by_field_name("redirect")
            behind += one.children_by_field_name("destination")[1:]
            behind += one.children_by_field_name("argument")
        body = node.child_by_field_name("body")
        if behind and (body is None or body.type != "command"):
            self._doubt("words stand behind a redirection")
        return tuple(behind)

    def _command(self, node: Node, more: Sequence[Node]) -> None:
        words: list[Word] = []
        ends = -1
        for child in node.children:
            if child.start_byte == ends and child.type not in _PARTS:
                self._doubt("it cannot be read as a command line")
            ends = child.end_byte
            if child.type == "command_name":
                words += [word_of(part) for part in child.children] or [Word(ANY)]
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                if len(child.children_by_field_name("destination")) > 1:
                    self._doubt("words stand behind a redirection")
            elif child.type == "variable_assignment" and not words:
                continue  # before the command; looked at by itself
            elif child.type in _KEYWORDS:
                words.append(Word(child.type))
            else:
                words.append(word_of(child))
        words += [word_of(child) for child in more]
        if words:
            self._simple(words)

    def _assignment(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        self._variable(text_of(name) if name is not None else "")
        if name is not None and value is not None:
            self._value(text_of(name), (value,), globs=value.type == "array")

    def _variable(self, name: str) -> None:
        """Doubt a line that decides which program a name means, or which code a program loads."""
        self._found.sets = True
        plain = name.partition("[")[0].rstrip("+")
        try:
            check_env_name(plain)
        except ConfigError:
            pass
        else:
            if not names_programs(plain):
                return
        self._doubt(f"it sets {name[:40]}, which decides what programs run")

    def _simple(self, words: Sequence[Word]) -> None:
        """One simple command, and what it starts."""
        if self._nested >= _MOST_NESTED:
            self._doubt("programs in it start programs that start programs")
            return
        self._nested += 1
        self._command_of(tuple(words))
        self._nested -= 1

    def _command_of(self, words: tuple[Word, ...]) -> None:
        name = without_edition(words[0].text.rpartition("/")[2])
        if not words[0].known or not name:
            self._doubt("only its run decides which command it is")
            self._found.commands.append(words)
            return
        if name in _RESERVED:  # the grammar took for a command what bash takes for its own word
            self._doubt("it cannot be read as a command line")
            words = words[1:]
            if words:
                self._simple(words)
            return
        self._found.commands.append(words)
        if "proc" in words[0].text.split("/")[:-1]:  # /proc/self/exe is the shell itself
            self._doubt("only its run decides which command it is")
        arguments = words[1:]
        if name in ("eval", "trap") and arguments and arguments[0].text == "--":
            arguments = arguments[1:]
        self._builtin(name, arguments)
        if name in _KEYWORDS:
            for word in arguments:
                variable, equals, _ = word.text.partition("=")
                if equals:
                    self._variable(variable)
                    if not word.known or "$" in word.text or "`" in word.text:
                        self._found.unknown.add(variable.partition("[")[0].rstrip("+"))
        elif name in ("hash", "enable", "shopt") and arguments:
            self._doubt(f"'{name}' changes what later words mean")
        elif name == "alias":
            for word in arguments:
                if "=" in word.text:
                    self._doubt("'alias' changes what later words mean")
                self._line(word.text.partition("=")[2], known=word.known)
        elif name == "eval":
            self._line(" ".join(word.text for word in arguments), known=all(word.known for word in arguments))
        elif name == "trap":
            for word in arguments[:1]:
                if word.text not in ("-", "-l", "-p"):
                    self._line(word.text, known=word.known)
        elif is_shell(name):
            self._shell(name, arguments)
        elif name == "find":
            self._find(arguments)
        elif name in STARTERS:
            self._starter(name, STARTERS[name], list(arguments))
        elif name in RUNNERS:
            self._runner(name, list(arguments))
        elif name in LINE_OPTIONS:
            self._line_options(name, arguments)
        elif name.startswith("git-"):  # as git itself calls it: /usr/lib/git-core/git-push
            self._simple([Word("git"), Word(name[4:]), *arguments])
        elif name in OTHER_STARTERS or _LOADER.fullmatch(name):
            self._doubt(f"it is not known which command '{name}' starts")
            for position in range(min(len(arguments), _MOST_STARTS)):
                self._found.commands.append(arguments[position:])

    def _builtin(self, name: str, arguments: Sequence[Word]) -> None:
        """Builtins that evaluate their texts, or keep them to be run."""
        texts = [word.text for word in arguments]
        options = [text for text in texts if text.startswith(("-", ANY))]
        if name in ("mapfile", "readarray"):
            if any("C" in text or text.startswith(ANY) for text in options):
                self._doubt(f"'{name}' may run a text")
        elif name in ("compgen", "complete", "compopt", "fc", "bind"):
            if texts:
                self._doubt(f"'{name}' may run a text")
        elif name == "history":
            if any(set(text) & set(f"sprw{ANY}") for text in options):
                self._doubt("'history' may keep a text that is run")
        elif name in (".", "source"):
            file = next((word for word in arguments if word.text != "--"), Word(ANY))
            if not file.known or file.text.startswith("-") or _is_input(file.text):
                self._doubt(f"only its run decides what '{name}' reads")
        elif name == "git":
            doubt = started_by_git(texts)
            if doubt:
                self._doubt(doubt)
            same, behind = same_for_git(texts)
            if same:
                self._found.commands.append((Word("git"), Word(same), *arguments[behind:]))
            started = arguments[texts.index("run") + 1 :] if "bisect" in texts and "run" in texts else ()
            if started:
                self._simple(started)
        elif name == "jobs" and "-x" in texts:
            started = arguments[texts.index("-x") + 1 :]
            if started:
                self._simple(started)
        self._evaluating_builtin(name, arguments)

    def _evaluating_builtin(self, name: str, arguments: Sequence[Word]) -> None:
        """Builtins that set variables, or take the text of one for a name or a number."""
        texts = [word.text for word in arguments]
        if name == "printf":
            if texts and texts[0].startswith(("-v", ANY)):
                variable = texts[0][2:] or (texts[1] if len(texts) > 1 else "")
                self._variable(variable)
                self._found.unknown.add(variable.partition("[")[0])
                self._found.evaluates = True
                if not _PLAIN_NAME.fullmatch(variable):
                    self._evaluated()
        elif name == "let" or (name in ("test", "[") and _may_evaluate(arguments[:-1] if name == "[" else arguments)):
            self._evaluated()
        elif name == "set":
            if any(not word.known or "$" in word.text or "`" in word.text for word in arguments):
                self._found.unknown.add(ARGUMENTS)
            self._set(arguments)
        elif name in _KEYWORDS or name in ("read", "wait", "getopts", "mapfile", "readarray"):
            plain = all(_PLAIN_NAME.fullmatch(text) for text in texts)
            flags = "".join(text for text in texts if text.startswith(("-", "+")))
            if not plain or (name in _KEYWORDS and ("i" in flags or "n" in flags)):
                self._evaluated()
            if name not in _KEYWORDS:
                names = {text for text in texts if text and not text.startswith(("-", "+"))}
                self._found.unknown |= names or {"REPLY", "MAPFILE"}
                for variable in names:
                    self._variable(variable)
                if names & _INTEGERS:
                    self._evaluated()

    def _set(self, arguments: Sequence[Word]) -> None:
        """``set`` with an option after which words of later commands mean something else (row 187)."""
        rest = list(arguments)
        while rest and rest[0].text.startswith(("-", "+", ANY)) and rest[0].text not in ("-", "--"):
            option = rest[0].text
            values = 0 if ANY in option else option.count("o")
            if ANY in option or _changes_words(option) or any(_changes_words(one.text) for one in rest[1 : 1 + values]):
                self._doubt(f"'set {option.replace(ANY, '…')[:20]}' changes what later words mean")
            rest = rest[1 + values :]

    def _line_options(self, name: str, arguments: Sequence[Word]) -> None:
        """``split --filter=LINE`` and its kin; a long option may be typed in part."""
        for word in arguments:
            typed = word.text.partition("=")[0]
            letters = word.text[1:] if _LETTERS.fullmatch(word.text) else ""
            for option in LINE_OPTIONS[name]:
                in_part = len(typed) > 3 and option.startswith(typed)
                if word.text.startswith(option) or in_part or (len(option) == 2 and option[1] in letters):
                    self._doubt(f"the option {typed[:20]} of '{name}' starts a program")

    def _runner(self, name: str, arguments: list[Word]) -> None:
        """``uv run``, ``npm exec`` and their kin: the command behind a word of theirs."""
        verbs = RUNNERS[name]
        texts = [word.text for word in arguments]
        for verb, starter in verbs.items():
            own = len(verb.split())
            if texts[:own] == verb.split():
                behind = arguments[own:]
                if "--" in texts[own + 1 :]:  # behind names of tools
                    self._simple(arguments[texts.index("--", own + 1) + 1 :])
                if name == "hatch" and behind:  # ENVIRONMENT:COMMAND
                    behind[0] = replace(behind[0], text=behind[0].text.rpartition(":")[2])
                self._starter(f"{name} {verb}", starter, behind)
                return
        if texts and not texts[0].startswith(("-", ANY)):
            return
        last = {verb.split()[-1] for verb in verbs}
        unknown = [word for word in arguments if not word.known] if any(" " not in verb for verb in verbs) else []
        if not last.isdisjoint(texts) or any(not word.single for word in unknown):
            self._doubt(f"it is not known which command '{name}' starts")
        if unknown or not last.isdisjoint(texts):
            places = [at for at, word in enumerate(arguments) if word.text in last or word in unknown]
            for position in places[:_MOST_STARTS]:
                for start in (position + 1, position + 2):  # a folder or a toolchain may stand before it
                    if arguments[start:]:
                        self._found.commands.append(tuple(arguments[start:]))

    def _shell(self, name: str, arguments: Sequence[Word]) -> None:
        """A shell: the line behind ``-c``, which stands behind all options and their values (row 187)."""
        rest = list(arguments)
        has_line = reads = False
        while rest:
            word = rest[0]
            if not word.known:
                self._doubt(f"only its run decides what '{name}' is told")
                return
            option = f"-{word.text}" if word.text in _LONG_OPTIONS else word.text
            if option in ("--version", "--help"):
                return
            if option in ("--", "-"):
                rest = rest[1:]
                break
            if not option.startswith(("-", "+")):
                break
            values = int(option in ("--rcfile", "--init-file"))
            if not option.startswith("--"):
                has_line = has_line or "c" in option
                reads = reads or "s" in option
                values = option.count("o") + option.count("O")
            if values or _changes_words(option):
                self._doubt(f"'{name}' has the option {option[:20]}")
            rest = rest[1 + values :]
        if has_line:
            if rest:
                self._line(rest[0].text, known=rest[0].known)
                if any(not _PLAIN_NAME.fullmatch(one.text) for one in rest[1:]):
                    self._found.unknown.add(ARGUMENTS)
            else:
                self._doubt(f"'{name}' is told nothing")
        elif reads or not rest or _is_input(rest[0].text):
            self._doubt(f"'{name}' reads its commands from its input")
        elif not rest[0].known:
            self._doubt(f"only its run decides what '{name}' is told")
        # else a file of commands: a program like any other

    def _find(self, arguments: Sequence[Word]) -> None:
        position = 0
        while position < len(arguments):
            if arguments[position].text in ("-exec", "-execdir", "-ok", "-okdir"):
                end = position + 1
                while end < len(arguments) and arguments[end].text not in (";", "+"):
                    end += 1
                inner = [replace(word, text=word.text.replace("{}", ANY)) for word in arguments[position + 1 : end]]
                if inner:
                    self._simple(inner)
                position = end
            elif arguments[position].text == "-delete":
                self._found.commands.append((Word("rm"), Word(ANY)))
            elif not arguments[position].known:
                self._doubt("only its run decides what 'find' does")
            position += 1

    def _starter(self, name: str, starter: Starter, arguments: list[Word]) -> None:
        """The command that a program like ``env`` or ``timeout`` starts."""
        started = False
        while arguments:
            word = arguments[0]
            option = word.text
            if not word.known:
                break
            if option == "--":
                arguments = arguments[1:]
                break
            if not option.startswith("-") or option == "-":
                if starter.assignments and "=" in option:
                    self._variable(option.partition("=")[0])
                    arguments = arguments[1:]
                    continue
                if option == "-" or (option == "!" and name == "time"):
                    arguments = arguments[1:]
                    continue
                break
            flag = option.partition("=")[0]
            if starter.asks and flag in starter.asks:
                return  # it only tells something
            if name in ("xargs", "parallel") and _replaces(option, arguments[1:2]):
                self._doubt(f"'{name}' puts its input where another text stands")
            if flag in starter.lines:
                text = option.partition("=")[2] if "=" in option else None
                value = Word(text) if text is not None else (arguments[1] if len(arguments) > 1 else Word(ANY))
                arguments = arguments[1 if text is not None else 2 :]
                if name == "env":
                    self._split_by_env(value, arguments)
                    return
                self._line(value.text, known=value.known)
                started = True
            elif flag in starter.with_value:
                arguments = arguments[1 if "=" in option else 2 :]
            elif flag in starter.alone or any(flag.startswith(one) and len(one) == 2 for one in starter.with_value):
                arguments = arguments[1:]  # -n5 has its value with it
            else:
                self._doubt(f"it is not known what the option {option[:20]} of '{name}' does")
                return
        if starter.before:
            if arguments and not arguments[0].known:
                self._doubt(f"only its run decides what '{name}' is told")
            arguments = arguments[starter.before :]
            if arguments and arguments[0].text in starter.lines and len(arguments) > 1:
                self._line(arguments[1].text, known=arguments[1].known)
                if len(arguments) > 2:
                    self._doubt(f"words stand behind what '{name}' starts")
                return
            if arguments and arguments[0].text.startswith("-"):
                self._doubt(f"it is not known what the option {arguments[0].text[:20]} of '{name}' does")
                return
        if name == "parallel":
            arguments = self._before_inputs(arguments)
        if starter.is_line and len(arguments) > _MOST_JOINED:
            self._doubt(f"'{name}' is told too much to be read")
            return
        if starter.is_line and arguments:  # the words become one text that a shell reads
            self._line(" ".join(word.text for word in arguments), known=all(word.known for word in arguments))
            if starter.adds and any(_NO_SHELL_TEXT.fullmatch(word.text) is None for word in arguments):
                self._doubt(f"the input of '{name}' becomes a part of what a shell reads")
        if arguments and (starter.adds or not starter.is_line or len(arguments) > 1):
            inner = [replace(word, text=_PLACE.sub(ANY, word.text)) for word in arguments]
            self._simple([*inner, Word(ANY)] if starter.adds else inner)
        elif not arguments and starter.opens_shell and not started:
            self._doubt(f"'{name}' starts a shell that reads its commands from its input")

    def _before_inputs(self, arguments: list[Word]) -> list[Word]:
        """The command of ``parallel``; where there is none, its inputs are the commands."""
        texts = [word.text for word in arguments]
        end = next((position for position, text in enumerate(texts) if text.startswith(":::")), len(texts))
        if end == 0 and texts:
            for word in arguments:
                if word.text.startswith("::::"):
                    self._doubt("'parallel' reads its commands from a file")
                elif not word.text.startswith(":::"):
                    self._line(word.text, known=word.known)
            if len([text for text in texts if text.startswith(":::")]) > 1:
                self._doubt("'parallel' makes commands of several inputs")
            return [Word("true")]
        return arguments[:end]

    def _split_by_env(self, value: Word, behind: Sequence[Word]) -> None:
        """The value of ``env -S``: it is no shell that reads it, and the words behind it belong to the same command."""
        if behind or re.search(rf"[\\$#{LINE_END}]", value.text):
            self._doubt("only 'env' knows how it splits a text")
        self._line(f"env {value.text.translate(AS_BLANKS)}", known=value.known)

    def _line(self, text: str, *, known: bool) -> None:
        """A text that a shell will read as a line."""
        if not known:
            self._doubt("only its run decides what a shell in it reads")
            return
        inner = _read(text.translate(AS_LINE), self._depth + 1, self._inner)
        self._found.read.add(text)
        self._found.add(inner)

    def _doubt(self, why: str) -> None:
        why = why.translate(AS_BLANKS).replace(ANY, "…")
        if why not in self._found.doubts:
            self._found.doubts.append(why)


def _hides(text: str) -> bool:
    """Whether a text would run a command if bash evaluated it."""
    return "$(" in text or "`" in text or "${ " in text or "@P}" in text


def _may_evaluate(arguments: Sequence[Word]) -> bool:
    """Whether ``test`` or ``[`` may get ``-v``, whose operand bash evaluates."""
    words = list(arguments)
    while words and words[0].text == "!":
        words = words[1:]
    if any(word.text == "-v" for word in words) or any(not word.known and not word.single for word in words):
        return True
    if len(words) in (2, 3):
        return not words[len(words) - 2].known
    return len(words) > 3 and not all(word.known for word in words)


def _is_input(path: str) -> bool:
    """Whether a file may be no file, but what the line itself writes: ``/dev/stdin``."""
    parts = path.translate(AS_BLANKS).split("/")
    below = [part for part in parts if part not in ("", ".")]
    special = bool({"dev", "proc"} & set(below if ".." in below else below[:1]))
    return special or parts[-1] in ("stdin", "-") or "fd" in parts[:-1]


def _replaces(option: str, behind: Sequence[Word]) -> bool:
    """Whether an option of ``xargs`` or ``parallel`` says that something else than ``{}`` stands for the input."""
    if option in ("-i", "--replace"):
        return False
    if option == "-I":
        return not behind or behind[0].text != "{}"
    return option.startswith(("-I", "-i", "--replace=")) and not option.endswith(("I{}", "i{}", "={}"))


_LITERALS = frozenset({"raw_string", "string", "translated_string", "ansi_c_string", "word", "heredoc_body"})
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_PLACE = re.compile(r"\{[^{}]*\}")  # of xargs and parallel, for their input
_NO_SHELL_TEXT = re.compile(r"[-\w./:=@%+,{}]*")
_REREAD = re.compile(r"`.*\\[`$\\]", re.DOTALL)  # bash takes the backslash away first
_PLAIN_NAME = re.compile(r"[-+]?\w*")
# ${!x}, ${x:y}, ${a[x]}: the text of a variable is taken for a name or a number.
_EVALUATING_EXPANSION = re.compile(r"\$\{(?:!|#?\w+\[[^]@*]|(?:[\w@*]+|[-#?$!])(?:\[[^]]*\])?:[^-=?+])")
# The grammar takes white space behind the dollar for a part of it (row 322).
_SIMPLE_EXPANSION = re.compile(r"\$(?:\w+|[@*#?$!-])")
_DUPLICATED = re.compile(r"\d*[<>]&\s*(?!-|\d+-?(?:\s|$))(?![\w./+:@%-]+(?:\s|$))")  # another word than a number
_EVALUATING_TEST = re.compile(r"(?<!\S)-(?:eq|ne|lt|le|gt|ge|v)(?!\w)")
_MOST_STARTS = 20  # words that are looked at as the first of a command
_LETTERS = re.compile(r"-[A-Za-z]{2,}")  # short options together
_LOADER = re.compile(r"ld-linux.*\.so.*|ld-musl.*\.so.*|ld\.so.*|ld-\d.*\.so")
# Of bash, which takes them with one hyphen, too.
_LONG_NAMES = (
    "debug debugger dump-po-strings dump-strings help init-file login noediting noprofile norc posix pretty-print "
    "rcfile restricted verbose version wordexp"
)
_LONG_OPTIONS = frozenset(f"-{name}" for name in _LONG_NAMES.split())
_OF_WORDS = frozenset({"keyword", "history", "histexpand"})
_WORDS_OF_BASH = "! if then elif else fi for in do done case esac while until select function { } [[ ]]"
_RESERVED = frozenset(_WORDS_OF_BASH.split())
_KEYWORDS = ("export", "declare", "typeset", "local", "readonly", "unset", "unsetenv")


# The grammar passes over some line ends before a backslash, and would make two commands one.
_PARTS = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect", "heredoc_body", "<", ">"})
_ONE_LINE = frozenset({"command", "declaration_command", "unset_command", "redirected_statement", "file_redirect"})


def _changes_words(option: str) -> bool:
    """Whether an option of bash, or a name of one, changes what words mean: ``-k`` takes ``a=b`` out of the arguments.

    And ``-H`` replaces ``!!`` by a line before.
    """
    return option in _OF_WORDS or ANY in option or (option[:1] in ("-", "+") and bool({"k", "H"} & set(option[1:])))
