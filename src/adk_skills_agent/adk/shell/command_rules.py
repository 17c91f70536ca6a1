"""The verdict of the owner's rules on a shell command line: every simple command in it is checked.

Without rules every line may run: the sandbox is the limit. A rule is a pattern of one simple command as it is typed,
with ``*`` for any text: ``git push *`` (with or without arguments), ``rm -rf *``, ``ls*``. A line is read with bash's
grammar (tree-sitter-bash), and every simple command in it counts: in pipelines and lists, in subshells, loops and
functions, in ``$(...)``, backquotes and here-documents, and behind programs that start others (``env``, ``sudo``,
``timeout``, ``xargs``, ``find -exec``, ``bash -c``...). For one command the most specific rule wins; of several
commands the strictest verdict: ``deny``, then ``ask``, then ``allow``.

What cannot be known is asked: a name or an argument that only the run decides (``$X``, ``*``) where it could be what a
rule asks about or denies, a shell that reads its commands from its input, a ``PATH`` that the line sets, and every
line that the grammar or bash itself cannot read. What a *program* does inside is not looked at, also not a script of
Python or a file of shell commands: that is what the sandbox is for.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from adk_skills_agent.adk.permissions import Decision, Permissions, Rule, Verdict
from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox import check_env_name

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_LINE_BYTES = 100_000
"""Of a line that is read; a longer one is asked about."""
_ANY = "\ue000"  # in a text: whatever the run makes of it, several words or none
_SPACE = "\ue001"  # in a text: a space inside one word
_LINE_END = "\ue002"  # in a text: the end of a line inside one word
_TAB = "\ue003"  # in a text: a tab inside one word
_INSIDE = str.maketrans({" ": _SPACE, "\n": _LINE_END, "\t": _TAB})
_AS_LINE = str.maketrans({_SPACE: " ", _LINE_END: "\n", _TAB: "\t"})
_AS_BLANKS = str.maketrans({_SPACE: " ", _LINE_END: " ", _TAB: " "})
_MOST_DEPTH = 200  # of the tree
_MOST_SHELLS = 5  # a line in a line in a line
_MOST_LINES = 30  # that are read within one
_MOST_JOINED = 100  # words that become one line
_MOST_NESTED = 12  # a program that starts a program that starts a program
_SHOWN = 80
_BASH_SECONDS = 5
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash"})
# What bash does not take for white space but others may, and what no command line needs.
_ODD = re.compile(r"[^\S \t\n]|[\x00-\x08\x0e-\x1f\x7f\ue000-\uf8ff\ud800-\udfff]")
# The grammar takes these for white space, bash for a word that begins with a space.
_ESCAPED_BLANK = re.compile(r"(?:^|[\s;&|(){}<>`\"'=!])\\[ \t]", re.MULTILINE)
# A folder that only the run decides, or the same letters in quotes.
_HOME = re.compile(r"(?:^|[ =:])~")
_JOINED_LINE = re.compile(r"(?<!\s)\\\n")


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of a command.

    Attributes:
        text: What the shell makes of it; :data:`_ANY` stands for what is not known before the run.
    """

    text: str

    @property
    def known(self) -> bool:
        return _ANY not in self.text


@dataclass(slots=True)
class _Found:
    """The parts of a command line.

    Attributes:
        commands: Its simple commands.
        doubts: Why it cannot be known what it does, one reason each.
        hides: Texts in it that are only data so far and have a substitution: ``'$(git push)'``.
        read: Texts in it that were read as lines, so that what they hide was found.
        evaluates: Whether bash may take a variable of it, or a text, for what has to be evaluated: ``$((x))``.
    """

    commands: list[tuple[_Word, ...]] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    hides: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    evaluates: bool = False


def decide_command(permissions: Permissions, line: str, trusted: Sequence[str] = ()) -> Decision:
    """The verdict of the owner's rules on a command line. Blocks for about 3 ms if there are rules; executes nothing.

    Args:
        permissions: With the rules for ``commands``.
        line: As the model wrote it; several lines are a script.
        trusted: Entries of ``allowed-tools`` of active skills that the owner trusts, such as ``Bash(git:*)``: what they
            name is not asked about. They never lift a denial, and nothing of what cannot be known.

    Returns:
        The decision. ``target`` is the simple command that decided, ``reason`` says why; ``subjects`` is what an
        approval covers where the user has to be asked: ``command:<text>``, the whole command with marks for white space
        inside a word, or ``line:<sha256>``, this line only, where not all of a command is known.
    """
    if not permissions.commands:
        return Decision(Verdict.ALLOW, "execute", line[:_SHOWN], "no rule is about it")
    found = _read(line)
    if found.hides - found.read and found.evaluates:
        found.doubts.append("bash may evaluate a text of it that has a command inside")
    decisions = [_of_command(permissions.commands, words, trusted, line) for words in found.commands]
    decisions += [_asked(line.strip(), doubt, line) for doubt in found.doubts]
    decisions.append(Decision(Verdict.ALLOW, "execute", line[:_SHOWN], "no rule is about it"))
    strictest = max(decisions, key=lambda decision: decision.verdict.strictness)
    if strictest.verdict is Verdict.ALLOW and not _bash_reads(line):
        return _asked(line.strip(), "bash cannot read it", line)
    if strictest.verdict is Verdict.ASK:  # the user is asked about all of it at once
        subjects = (subject for one in decisions if one.verdict is Verdict.ASK for subject in one.subjects)
        return replace(strictest, subjects=tuple(dict.fromkeys(subjects)))
    return strictest


# One command against the rules


def _of_command(rules: Sequence[Rule], words: Sequence[_Word], trusted: Sequence[str], line: str) -> Decision:
    texts = _readings(words)
    shown = _shown(words)
    sure = [rule for rule in rules if _means(rule, texts)]
    best = max(sure, key=lambda rule: rule.rank, default=None)
    perhaps = [
        rule
        for rule in rules
        if rule.verdict is not Verdict.ALLOW and rule not in sure and any(_may_match(rule.pattern, t) for t in texts)
    ]
    doubt = max(perhaps, key=lambda rule: (rule.verdict.strictness, rule.rank), default=None)
    verdict = best.verdict if best is not None else Verdict.ALLOW
    if doubt is not None and verdict is not Verdict.DENY and (best is None or doubt.rank > best.rank):
        may_be_denied = doubt.verdict is Verdict.DENY
        if may_be_denied or not _is_trusted(words, trusted):
            return _asked(shown, f"it may be what the rule '{doubt}' is for, which only its run decides", line, doubt)
    if best is None:
        return Decision(Verdict.ALLOW, "execute", shown, "no rule is about it")
    reason = f"the rule '{best}' is for the command '{shown}'"
    if verdict is not Verdict.ASK:
        return Decision(verdict, "execute", shown, reason, best)
    if _is_trusted(words, trusted):
        return Decision(Verdict.ALLOW, "execute", shown, "the active skill's allowed-tools name it", best)
    return Decision(Verdict.ASK, "execute", shown, reason, best, (_subject(words, line),))


def _asked(command: str, why: str, line: str, rule: Rule | None = None) -> Decision:
    shown = command if len(command) <= _SHOWN else command[:_SHOWN] + "..."
    return Decision(Verdict.ASK, "execute", shown, f"'{shown}': {why}", rule, (_subject_of_line(line),))


def _subject(words: Sequence[_Word], line: str) -> str:
    """What an approval of a command covers: the command in full if all of it is known, else the very line only."""
    text = " ".join(word.text for word in words)
    if _ANY in text or _HOME.search(text):
        return _subject_of_line(line)
    return f"command:{text}"


def _subject_of_line(line: str) -> str:
    return "line:" + hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest()


def _means(rule: Rule, texts: Sequence[str]) -> bool:
    """Whether a rule is for a command. An ``allow`` must be for what is typed, others for what it comes to as well."""
    readings = texts[:1] if rule.verdict is Verdict.ALLOW else texts
    return any(_surely(rule.pattern).fullmatch(text) is not None for text in readings)


def _readings(words: Sequence[_Word]) -> list[str]:
    """A command as text, in each way a rule may mean it: as typed first, then without folder and global options."""
    texts = [" ".join(word.text for word in words)]
    first, rest = words[0].text, list(words[1:])
    name = first.rpartition("/")[2] or first
    for_rules = (rest, *_without_global_options(name, rest))
    texts += [" ".join([name, *(word.text for word in arguments)]) for arguments in for_rules]
    texts += [text.translate(_AS_BLANKS) for text in texts]
    return list(dict.fromkeys(texts))


# Options before the sub-command, and whether a value follows as a word of its own.
_GLOBAL_OPTIONS: Mapping[str, frozenset[str]] = {
    "git": frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"}),
    "docker": frozenset({"-H", "--host", "-c", "--context", "--config", "-l", "--log-level"}),
    "kubectl": frozenset({"-n", "--namespace", "--context", "--kubeconfig", "-s", "--server", "--user", "--cluster"}),
    "npm": frozenset({"--prefix", "-C", "--userconfig"}),
    "gh": frozenset({"-R", "--repo"}),
    "aws": frozenset({"--profile", "--region", "--endpoint-url", "--output"}),
    "gcloud": frozenset({"--project", "--account", "--configuration"}),
}


_FLAGS_OF_GIT = (
    "-p -P --paginate --no-pager --bare --no-replace-objects --no-lazy-fetch --no-optional-locks --no-advice "
    "--literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs --version --help"
)
_FLAGS_OF_DOCKER = "-D --debug --tls --tlsverify --help --version"
# Those without a value; of any other it is not known, and both are read.
_GLOBAL_FLAGS: Mapping[str, frozenset[str]] = {
    "git": frozenset(_FLAGS_OF_GIT.split()),
    "docker": frozenset(_FLAGS_OF_DOCKER.split()),
}
_MOST_OPTIONS = 20  # before a sub-command


def _without_global_options(name: str, arguments: list[_Word]) -> list[list[_Word]]:
    """The arguments from the sub-command on, in each way the options before it may be meant."""
    with_value = _GLOBAL_OPTIONS.get(name)
    if with_value is None:
        return []
    alone = _GLOBAL_FLAGS.get(name, frozenset())
    starts: list[int] = []
    reached = {0}
    for position in range(_MOST_OPTIONS):
        if position not in reached:
            continue
        option = arguments[position].text if position < len(arguments) else ""
        if not option.startswith("-"):
            starts.append(position)
        elif option in with_value:
            reached.add(position + 2)
        elif option in alone or "=" in option:
            reached.add(position + 1)
        else:
            reached |= {position + 1, position + 2}
    found = [arguments[position:] for position in starts]
    if max(reached) >= _MOST_OPTIONS:
        found.append([_Word(_ANY)])  # nobody writes that many
    return found


@lru_cache(maxsize=512)
def _surely(pattern: str) -> re.Pattern[str]:
    """A pattern of a rule as what matches the texts it certainly means. ``?`` is one known character."""
    body, last = (pattern[:-2], r"(?: .*)?") if pattern.endswith(" *") else (pattern, "")
    wild = {"*": ".*", "?": f"[^{_ANY}]"}
    parts = [wild.get(character, re.escape(character)) for character in body]
    return re.compile("".join(parts) + last, re.DOTALL)


def _may_match(pattern: str, text: str) -> bool:
    """Whether a rule's pattern may mean a text once its unknown parts are known: two patterns with a common text."""
    if _ANY not in text:
        return False
    if pattern.endswith(" *") and _common(pattern[:-2], text):
        return True
    return _common(pattern, text)


def _common(pattern: str, text: str) -> bool:
    """Whether some string is meant by both: ``*`` and ``?`` are wild in the one, :data:`_ANY` in the other."""
    reached = {0}  # positions in the pattern, after each character of the text
    reached = _past_stars(pattern, reached)
    for character in text:
        if character == _ANY:
            reached = set(range(min(reached), len(pattern) + 1)) if reached else set()
            continue
        step = set()
        for position in reached:
            if position < len(pattern):
                wanted = pattern[position]
                if wanted == "*":
                    step.add(position)
                elif wanted in ("?", character):
                    step.add(position + 1)
        reached = _past_stars(pattern, step)
        if not reached:
            return False
    return len(pattern) in reached


def _past_stars(pattern: str, positions: set[int]) -> set[int]:
    done = set(positions)
    for start in positions:
        position = start
        while position < len(pattern) and pattern[position] == "*":
            position += 1
            done.add(position)
    return done


_BASH_ENTRY = re.compile(r"Bash(?:\((?P<what>.*)\))?", re.DOTALL)


def _is_trusted(words: Sequence[_Word], trusted: Sequence[str]) -> bool:
    """Whether an entry of ``allowed-tools`` names a command: ``Bash``, ``Bash(git:*)``, ``Bash(npm run test)``."""
    text = " ".join(word.text for word in words)
    for entry in trusted:
        found = _BASH_ENTRY.fullmatch(entry.strip())
        if found is None:
            continue
        what = found["what"]
        if what is None or what.strip() in ("*", ":*"):
            return True
        pattern = " ".join(what.split())
        pattern = f"{pattern[:-2]} *" if pattern.endswith(":*") else pattern
        if pattern and _surely(pattern).fullmatch(text) is not None:
            return True
    return False


def _shown(words: Sequence[_Word]) -> str:
    text = " ".join(word.text for word in words).translate(_AS_BLANKS).replace(_ANY, "…")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


# Reading a line


def _read(line: str, depth: int = 0, inner: Iterator[int] | None = None) -> _Found:
    """The simple commands of a line. Never raises.

    Args:
        line: The line.
        depth: How many shells it is in.
        inner: Has a number for each line that may still be read within the outermost one.
    """
    found = _Found()
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
    root = _parser().parse(line.encode()).root_node
    if root.has_error:
        found.doubts.append("it cannot be read as a command line")
        return found
    _Reader(found, depth, inner).visit(root, 0)
    return found


@lru_cache(maxsize=1)
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


@lru_cache(maxsize=1024)
def _bash_reads(line: str) -> bool:
    """Whether bash itself can read a line; it executes nothing of it. True where there is no bash to ask."""
    bash = shutil.which("bash", path="/usr/local/bin:/usr/bin:/bin")
    if bash is None:
        return True
    try:
        done = subprocess.run(
            [bash, "--noprofile", "--norc", "-n"],
            input=line.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={"LC_ALL": "C.UTF-8"},
            cwd="/",
            timeout=_BASH_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and not done.stderr


class _Reader:
    """Collects the simple commands of one tree."""

    def __init__(self, found: _Found, depth: int, inner: Iterator[int]) -> None:
        self._found = found
        self._depth = depth
        self._inner = inner
        self._nested = 0

    def visit(self, node: Node, depth: int, more: Sequence[Node] = ()) -> None:
        """Look at a node and all below it.

        Args:
            node: The node.
            depth: How deep it is.
            more: Words that stand behind the redirections of a command and belong to it.
        """
        if depth > _MOST_DEPTH:
            self._doubt("it is nested too deeply to be read")
            return
        if node.type in _ONE_LINE and not _is_together(node):
            self._doubt("it cannot be read as a command line")
        if node.type in ("command", "declaration_command", "unset_command"):
            self._command(node, more)
        elif node.type == "test_command" and node.children and node.children[0].type == "[":
            self._found.commands.append((_Word("["), _Word(_ANY)))
        elif node.type == "variable_assignment":
            self._assignment(node)
        elif node.type in ("word", "heredoc_start"):
            plain = re.sub(r"\\.", "", _text(node), flags=re.DOTALL)
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
        written = _text(node)
        if kind in _LITERALS:
            text = _unread(node) if kind == "heredoc_body" else _word(node).text
            if _hides(text) or (kind == "ansi_c_string" and _CODED.search(written)):
                self._found.hides.add(text)
        elif kind in ("expansion", "simple_expansion"):
            if "@P}" in written:
                self._doubt("it expands the text of a variable like a prompt")
            self._found.evaluates |= _EVALUATING_EXPANSION.match(written) is not None
        elif kind in ("arithmetic_expansion", "c_style_for_statement", "subscript") or (
            kind == "compound_statement" and written.startswith("((")
        ):
            self._found.evaluates |= re.search(r"[^\W\d]|[$'\"\\]", written.removeprefix("$((")) is not None
        elif kind == "test_command":
            self._found.evaluates |= _EVALUATING_TEST.search(written) is not None

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
        words: list[_Word] = []
        for child in node.children:
            if child.type == "command_name":
                words += [_word(part) for part in child.children] or [_Word(_ANY)]
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                if len(child.children_by_field_name("destination")) > 1:
                    self._doubt("words stand behind a redirection")
            elif child.type == "variable_assignment" and not words:
                continue  # before the command; looked at by itself
            elif child.type in _KEYWORDS:
                words.append(_Word(child.type))
            else:
                words.append(_word(child))
        words += [_word(child) for child in more]
        if words:
            self._simple(words)

    def _assignment(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        self._variable(_text(name) if name is not None else "")

    def _variable(self, name: str) -> None:
        """Doubt a line that decides which program a name means, or which code a program loads."""
        try:
            check_env_name(name.partition("[")[0].rstrip("+"))
        except ConfigError:
            pass
        else:
            if name != "PATH" and not name.startswith("BASH_"):
                return
        self._doubt(f"it sets {name[:40]}, which decides what programs run")

    def _simple(self, words: Sequence[_Word]) -> None:
        """One simple command, and what it starts."""
        if self._nested >= _MOST_NESTED:
            self._doubt("programs in it start programs that start programs")
            return
        self._nested += 1
        self._command_of(tuple(words))
        self._nested -= 1

    def _command_of(self, words: tuple[_Word, ...]) -> None:
        name = words[0].text.rpartition("/")[2]
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
        arguments = words[1:]
        if name in ("eval", "trap") and arguments and arguments[0].text == "--":
            arguments = arguments[1:]
        self._builtin(name, arguments)
        if name in _KEYWORDS:
            for word in arguments:
                variable, equals, _ = word.text.partition("=")
                if equals:
                    self._variable(variable)
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
        elif name in _SHELLS:
            self._shell(name, arguments)
        elif name == "find":
            self._find(arguments)
        elif name in _STARTERS:
            self._starter(name, _STARTERS[name], list(arguments))
        elif name in _RUNNERS:
            self._runner(name, list(arguments))
        elif name in _OTHER_STARTERS or _LOADER.fullmatch(name):
            self._doubt(f"it is not known which command '{name}' starts")
            for position in range(min(len(arguments), _MOST_STARTS)):
                self._found.commands.append(arguments[position:])

    def _builtin(self, name: str, arguments: Sequence[_Word]) -> None:
        """Builtins that evaluate their texts, or keep them to be run."""
        texts = [word.text for word in arguments]
        options = [text for text in texts if text.startswith(("-", _ANY))]
        if name in ("mapfile", "readarray"):
            if any("C" in text or text.startswith(_ANY) for text in options):
                self._doubt(f"'{name}' may run a text")
        elif name in ("compgen", "complete", "compopt", "fc", "bind"):
            if texts:
                self._doubt(f"'{name}' may run a text")
        elif name == "history":
            if any(set(text) & set(f"sprw{_ANY}") for text in options):
                self._doubt("'history' may keep a text that is run")
        elif name in (".", "source"):
            file = next((word for word in arguments if word.text != "--"), _Word(_ANY))
            if not file.known or file.text.startswith("-") or _is_input(file.text):
                self._doubt(f"only its run decides what '{name}' reads")
        elif name == "git":
            values = [text.removeprefix("-c").removeprefix("--config-env=") for text in texts]
            if any(text.startswith("alias.") for text in values):
                self._doubt("it says what a sub-command of 'git' means")
        if name == "printf":
            self._found.evaluates |= any(text.startswith(("-v", _ANY)) for text in texts[:1])
        elif name in ("let", "test", "["):
            self._found.evaluates |= name == "let" or "-v" in texts or any(not word.known for word in arguments[:-1])
        elif name in _KEYWORDS or name in ("read", "wait", "getopts", "mapfile", "readarray"):
            plain = all(_PLAIN_NAME.fullmatch(text) for text in texts)
            flags = "".join(text for text in texts if text.startswith(("-", "+")))
            self._found.evaluates |= not plain or (name in _KEYWORDS and ("i" in flags or "n" in flags))

    def _runner(self, name: str, arguments: list[_Word]) -> None:
        """``uv run`` and its kin: the command behind ``run``."""
        if arguments and not arguments[0].text.startswith(("-", _ANY)):
            if arguments[0].text == "run":
                self._starter(f"{name} run", _RUNNERS[name], arguments[1:])
        elif any(word.text == "run" or not word.known for word in arguments):
            self._doubt(f"it is not known which command '{name}' starts")
            places = [position for position, word in enumerate(arguments) if word.text == "run"]
            for position in places[:_MOST_STARTS]:
                if arguments[position + 1 :]:
                    self._found.commands.append(tuple(arguments[position + 1 :]))

    def _shell(self, name: str, arguments: Sequence[_Word]) -> None:
        for position, word in enumerate(arguments):
            if not word.known:
                self._doubt(f"only its run decides what '{name}' is told")
                return
            if word.text in ("--version", "--help"):
                return
            if word.text.startswith("-") and not word.text.startswith("--") and "c" in word.text[1:]:
                rest = [one for one in arguments[position + 1 :] if not one.text.startswith(("-", "+"))]
                if rest:
                    self._line(rest[0].text, known=rest[0].known)
                else:
                    self._doubt(f"'{name}' is told nothing")
                return
            if word.text in ("-o", "-O", "+o", "+O", "--rcfile", "--init-file"):
                self._doubt(f"'{name}' has the option {word.text}")
                return
            if not word.text.startswith(("-", "+")):
                if _is_input(word.text):
                    break
                return  # a file of commands: a program like any other
            if word.text in {"-s", "-"}:
                break
        self._doubt(f"'{name}' reads its commands from its input")

    def _find(self, arguments: Sequence[_Word]) -> None:
        position = 0
        while position < len(arguments):
            if arguments[position].text in ("-exec", "-execdir", "-ok", "-okdir"):
                end = position + 1
                while end < len(arguments) and arguments[end].text not in (";", "+"):
                    end += 1
                inner = [replace(word, text=word.text.replace("{}", _ANY)) for word in arguments[position + 1 : end]]
                if inner:
                    self._simple(inner)
                position = end
            elif arguments[position].text == "-delete":
                self._found.commands.append((_Word("rm"), _Word(_ANY)))
            elif not arguments[position].known:
                self._doubt("only its run decides what 'find' does")
            position += 1

    def _starter(self, name: str, starter: _Starter, arguments: list[_Word]) -> None:
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
                value = _Word(text) if text is not None else (arguments[1] if len(arguments) > 1 else _Word(_ANY))
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
            inner = [replace(word, text=_PLACE.sub(_ANY, word.text)) for word in arguments]
            self._simple([*inner, _Word(_ANY)] if starter.adds else inner)
        elif not arguments and starter.opens_shell and not started:
            self._doubt(f"'{name}' starts a shell that reads its commands from its input")

    def _before_inputs(self, arguments: list[_Word]) -> list[_Word]:
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
            return [_Word("true")]
        return arguments[:end]

    def _split_by_env(self, value: _Word, behind: Sequence[_Word]) -> None:
        """The value of ``env -S``: it is no shell that reads it, and the words behind it belong to the same command."""
        if behind or re.search(rf"[\\$#{_LINE_END}]", value.text):
            self._doubt("only 'env' knows how it splits a text")
        self._line(f"env {value.text.translate(_AS_BLANKS)}", known=value.known)

    def _line(self, text: str, *, known: bool) -> None:
        """A text that a shell will read as a line."""
        if not known:
            self._doubt("only its run decides what a shell in it reads")
            return
        inner = _read(text.translate(_AS_LINE), self._depth + 1, self._inner)
        self._found.read |= {text, *inner.read}
        self._found.commands += inner.commands
        self._found.doubts += inner.doubts
        self._found.hides |= inner.hides
        self._found.evaluates |= inner.evaluates

    def _doubt(self, why: str) -> None:
        why = why.translate(_AS_BLANKS).replace(_ANY, "…")
        if why not in self._found.doubts:
            self._found.doubts.append(why)


def _hides(text: str) -> bool:
    """Whether a text would run a command if bash evaluated it."""
    return "$(" in text or "`" in text or "${ " in text or "@P}" in text


def _unread(node: Node) -> str:
    """A here-document without the substitutions in it, which are read by themselves."""
    text = _text(node)
    for child in node.children:
        if child.type == "command_substitution":
            text = text.replace(_text(child), "", 1)
    return text


def _is_input(path: str) -> bool:
    """Whether a file may be no file, but what the line itself writes: ``/dev/stdin``."""
    parts = path.translate(_AS_BLANKS).split("/")
    below = [part for part in parts if part not in ("", ".")]
    special = bool({"dev", "proc"} & set(below if ".." in below else below[:1]))
    return special or parts[-1] in ("stdin", "-") or "fd" in parts[:-1]


def _replaces(option: str, behind: Sequence[_Word]) -> bool:
    """Whether an option of ``xargs`` or ``parallel`` says that something else than ``{}`` stands for the input."""
    if option in ("-i", "--replace"):
        return False
    if option == "-I":
        return not behind or behind[0].text != "{}"
    return option.startswith(("-I", "-i", "--replace=")) and not option.endswith(("I{}", "i{}", "={}"))


_LITERALS = frozenset({"raw_string", "string", "translated_string", "ansi_c_string", "word", "heredoc_body"})
_CODED = re.compile(r"\\[xuU0-7]")
_PLACE = re.compile(r"\{[^{}]*\}")  # of xargs and parallel, for their input
_NO_SHELL_TEXT = re.compile(r"[-\w./:=@%+,{}]*")
_PLAIN_NAME = re.compile(r"[-+]?\w*")
# ${!x}, ${x:y}, ${a[x]}: the text of a variable is taken for a name or a number.
_EVALUATING_EXPANSION = re.compile(r"\$\{(?:!|#?\w+\[[^]@*]|[\w@*]+(?:\[[^]]*\])?:[^-=?+])")
_EVALUATING_TEST = re.compile(r"(?<!\S)-(?:eq|ne|lt|le|gt|ge|v)(?!\w)")
_MOST_STARTS = 20  # words that are looked at as the first of a command
# Programs that start others and are called in too many ways to say where the command begins.
_STARTING = (
    "prlimit taskset setpriv setarch linux32 linux64 i386 x86_64 uname26 chrt choom nsenter dbus-run-session ssh-agent "
    "runuser pkexec systemd-run unbuffer fakeroot bwrap numactl toybox"
)
_OTHER_STARTERS = frozenset(_STARTING.split())
_LOADER = re.compile(r"ld-linux.*\.so.*|ld-musl.*\.so.*|ld\.so.*|ld-\d.*\.so")
_WORDS_OF_BASH = "! if then elif else fi for in do done case esac while until select function { } [[ ]]"
_RESERVED = frozenset(_WORDS_OF_BASH.split())
_KEYWORDS = ("export", "declare", "typeset", "local", "readonly", "unset", "unsetenv")


@dataclass(frozen=True, slots=True)
class _Starter:
    """The command-line form of a program that starts another.

    Attributes:
        alone: Options without a value.
        with_value: Options with one.
        lines: Options whose value a shell reads.
        asks: Options with which it starts nothing.
        before: Words of its own before the command.
        assignments: Whether ``NAME=value`` may stand before the command.
        adds: Whether it adds arguments of its own.
        is_line: Whether a single argument is read by a shell.
        opens_shell: Whether it starts a shell where it is given no command.
    """

    alone: frozenset[str] = frozenset()
    with_value: frozenset[str] = frozenset()
    lines: frozenset[str] = frozenset()
    asks: frozenset[str] = frozenset()
    before: int = 0
    assignments: bool = False
    adds: bool = False
    is_line: bool = False
    opens_shell: bool = False


def _options(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STARTERS: Mapping[str, _Starter] = {
    "env": _Starter(
        alone=_options("-i --ignore-environment -0 --null -v --debug"),
        with_value=_options("-u --unset -C --chdir"),
        lines=_options("-S --split-string"),
        asks=_options("--help --version"),
        assignments=True,
    ),
    "sudo": _Starter(
        alone=_options("-n -E -H -S -b -k -i -s -A -P --preserve-env --non-interactive --login --shell"),
        with_value=_options("-u -g -h -p -C -r -t -U -D -R -T --user --group --host --chdir --prompt"),
        asks=_options("-l -v -K -V --list --validate --version"),
        assignments=True,
        opens_shell=True,
    ),
    "doas": _Starter(alone=_options("-n -s -L"), with_value=_options("-u -C -a")),
    "timeout": _Starter(
        alone=_options("--preserve-status --foreground -v --verbose -p -f"),
        with_value=_options("-k --kill-after -s --signal"),
        asks=_options("--help --version"),
        before=1,
    ),
    "nice": _Starter(with_value=_options("-n --adjustment")),
    "ionice": _Starter(alone=_options("-t"), with_value=_options("-c -n -p --class --classdata")),
    "nohup": _Starter(),
    "setsid": _Starter(alone=_options("-c -f -w --ctty --fork --wait")),
    "stdbuf": _Starter(with_value=_options("-i -o -e --input --output --error")),
    "time": _Starter(alone=_options("-p -v -a"), with_value=_options("-f -o --format --output"), assignments=True),
    "command": _Starter(alone=_options("-p"), asks=_options("-v -V")),
    "builtin": _Starter(),
    "exec": _Starter(alone=_options("-c -l -cl"), with_value=_options("-a")),
    "coproc": _Starter(),
    "xargs": _Starter(
        alone=_options(
            "-0 --null -r --no-run-if-empty -t --verbose -x --exit -p --interactive -o --open-tty "
            "-i -l -e --replace --max-lines --eof"
        ),
        with_value=_options("-I -n -L -P -s -d -E -a --max-args --max-procs --max-chars --delimiter --arg-file"),
        asks=_options("--help --version --show-limits"),
        adds=True,
    ),
    "parallel": _Starter(
        alone=_options("-0 --null -k --keep-order --bar --will-cite --tag"),
        with_value=_options("-j --jobs -n -a -I"),
        adds=True,
        is_line=True,
        opens_shell=True,
    ),
    "watch": _Starter(
        alone=_options("-d -t -b -e -g -c -x --differences --no-title --errexit --chgexit --color --exec"),
        with_value=_options("-n --interval"),
        is_line=True,
    ),
    "busybox": _Starter(asks=_options("--list --help")),
    "chroot": _Starter(with_value=_options("--userspec --groups"), before=1, opens_shell=True),
    "flock": _Starter(
        alone=_options("-s -x -e -n -u -o -F --shared --exclusive --nonblock"),
        with_value=_options("-w -E --timeout --conflict-exit-code"),
        lines=_options("-c --command"),
        before=1,
    ),
    "strace": _Starter(alone=_options("-f -q -v -tt -t -c -C -y"), with_value=_options("-e -o -s -p -u -E")),
    "unshare": _Starter(alone=_options("-r -n -m -p -f -U -i -u -C --fork --net --pid --user"), opens_shell=True),
    "script": _Starter(
        alone=_options("-q -a -e -f --quiet --append --return --flush"),
        lines=_options("-c --command"),
        before=1,
        opens_shell=True,
    ),
    "su": _Starter(
        alone=_options("-l -m -p --login"),
        with_value=_options("-s -g -G --shell --group"),
        lines=_options("-c --command"),
        before=1,
        opens_shell=True,
    ),
}


_RUNNER = _Starter(
    alone=_options(
        "-q --quiet -v --verbose --offline --no-sync --locked --frozen --isolated --no-project --active --exact "
        "--all-extras --all-groups --no-dev --no-cache --refresh"
    ),
    with_value=_options(
        "-p --python --with --with-editable --with-requirements --extra --group --only-group --package --project "
        "--directory --env-file"
    ),
    asks=_options("-m --module -s --script -h --help"),  # Python runs it
)
_RUNNERS: Mapping[str, _Starter] = {"uv": _RUNNER, "poetry": _Starter(), "pipenv": _Starter(), "pdm": _Starter()}


# The grammar passes over some line ends before a backslash, and would make two commands one.
_ONE_LINE = frozenset({"command", "declaration_command", "unset_command", "redirected_statement", "file_redirect"})
_BETWEEN_WORDS = re.compile(rb"(?:[ \t]|\\\n)*")


def _is_together(node: Node) -> bool:
    """Whether between the parts of a command there is nothing but blanks and continued lines."""
    source = node.text or b""
    position = node.start_byte
    for child in node.children:
        between = source[position - node.start_byte : child.start_byte - node.start_byte]
        if _BETWEEN_WORDS.fullmatch(between) is None:
            return False
        position = child.end_byte
    return True


# A word of the tree as text


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _word(node: Node) -> _Word:
    return _Word("".join(_pieces(node)))


def _pieces(node: Node) -> Iterator[str]:
    """The value of a word, piece by piece."""
    kind = node.type
    if kind in ("word", "number", "test_operator", "regex", "variable_name", "special_variable_name"):
        yield _unquoted(_text(node))
    elif kind == "raw_string":
        yield _text(node)[1:-1].translate(_INSIDE)
    elif kind == "ansi_c_string":
        inner = _text(node)[2:-1]
        yield _ANY if "\\" in inner else inner.translate(_INSIDE)
    elif kind in ("string", "translated_string"):
        yield _quoted(node)
    elif kind == "concatenation":
        yield _concatenated(node)
    elif kind == "variable_assignment":  # of export and its kin
        name = node.child_by_field_name("name")
        yield f"{_text(name) if name is not None else ''}={_ANY}"
    else:
        yield _ANY


def _concatenated(node: Node) -> str:
    text = "".join("".join(_pieces(child)) for child in node.children)
    written = _text(node)
    if written == "{}":
        return text
    # Braces and brackets come as words of their own, so that they are looked for in the whole.
    return _ANY if re.search(r"(?<!\\)(\{[^}]*(,|\.\.)|\[.*\])", written, re.DOTALL) else text


def _unquoted(text: str) -> str:
    """A word without quotes: backslashes go, wildcards may become anything."""
    pieces = []
    for found in re.finditer(r"\\(.)|(.)", text, re.DOTALL):
        escaped, plain = found[1], found[2]
        if escaped is not None:
            pieces.append("" if escaped == "\n" else escaped.translate(_INSIDE))
        else:
            pieces.append(_ANY if (plain in "*?[" and len(text) > 1) or plain in "*?" else plain)
    return "".join(pieces)


def _quoted(node: Any) -> str:
    """A word in double quotes; what is expanded in it may be anything."""
    pieces = []
    position = node.start_byte
    source = node.text or b""
    for child in node.children:
        between = source[position - node.start_byte : child.start_byte - node.start_byte]
        pieces.append(between.decode("utf-8", "replace"))  # white space that the grammar leaves out
        position = child.end_byte
        if child.type in ('"', '$"', "$"):
            continue
        if child.type == "string_content":
            pieces.append(re.sub(r'\\([$`"\\\n])', lambda found: found[1].replace("\n", ""), _text(child)))
        else:
            pieces.append(_ANY)
    return "".join(pieces).translate(_INSIDE)
