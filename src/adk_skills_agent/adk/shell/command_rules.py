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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from adk_skills_agent.adk.permissions import Decision, Permissions
from adk_skills_agent.adk.rules import Rule, Verdict
from adk_skills_agent.adk.shell.command_line import read_line
from adk_skills_agent.adk.shell.command_words import ANY, AS_BLANKS, Word
from adk_skills_agent.errors import some_of

_SHOWN = 80
_BASH_SECONDS = 5
_MOST_COMPARED = 400  # characters of a command that is not known in full
_MOST_ASKED = 12  # commands of one question
# A folder that only the run decides, or the same letters in quotes.
_HOME = re.compile(r"(?:^|[ =:])~")


def decide_command(permissions: Permissions, line: str, trusted: Sequence[str] = ()) -> Decision:
    """The verdict of the owner's rules on a command line. Blocks for about 3 ms if there are rules; executes nothing.

    ``trusted`` are entries of ``allowed-tools`` of active skills that the owner trusts, such as ``Bash(git:*)``: what
    they name is not asked about. They never lift a denial, and nothing of what cannot be known. Returns the decision.
    ``target`` is the simple command that decided, ``reason`` says why; ``subjects`` is what an approval covers where
    the user has to be asked: ``command:<text>``, the whole command with marks for white space inside a word, or
    ``line:<sha256>``, this line only, where not all of a command is known.
    """
    if not permissions.commands:
        return Decision(Verdict.ALLOW, "execute", line[:_SHOWN], "no rule is about it")
    found = read_line(line)
    decisions = [_of_command(permissions.commands, words, trusted, line) for words in found.commands]
    decisions += [_asked(line.strip(), doubt, line) for doubt in found.doubts]
    decisions.append(Decision(Verdict.ALLOW, "execute", line[:_SHOWN], "no rule is about it"))
    strictest = max(decisions, key=lambda decision: decision.verdict.strictness)
    if strictest.verdict is Verdict.ALLOW and not _bash_reads(line):
        return _asked(line.strip(), "bash cannot read it", line)
    if strictest.verdict is Verdict.ASK:  # the user is asked about all of it at once
        asked = [one for one in decisions if one.verdict is Verdict.ASK]
        subjects = tuple(dict.fromkeys(subject for one in asked for subject in one.subjects))
        # Nobody reads so many, and variables can change what the words do: a yes is for this line, once more as it is.
        if found.sets or len(subjects) > _MOST_ASKED:
            subjects = (_subject_of_line(line),)
        return replace(strictest, subjects=subjects, reason=strictest.reason + _also(asked, strictest, subjects))
    return strictest


def _also(asked: Sequence[Decision], strictest: Decision, subjects: Sequence[str]) -> str:
    """The other commands that a yes to the line as a whole covers, which no subject names; one of each rule first.

    A line may be long, and a question shows its beginning and end only (row 192).
    """
    named = {subject for subject in subjects if subject.startswith("command:")}
    unnamed = [one for one in asked if not named.issuperset(one.subjects)]
    first = {one.rule: one for one in reversed(unnamed)}.values()
    others = dict.fromkeys(one.target for one in (*sorted(first, key=unnamed.index), *unnamed))
    others.pop(strictest.target, None)
    return f". The same yes covers {some_of(list(others), _MOST_ASKED, repr)}" if others else ""


@lru_cache(maxsize=128)  # a line may have 100 KB
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


# One command against the rules


def _of_command(rules: Sequence[Rule], words: Sequence[Word], trusted: Sequence[str], line: str) -> Decision:
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


def _subject(words: Sequence[Word], line: str) -> str:
    """What an approval of a command covers: the command in full if all of it is known, else the very line only."""
    text = " ".join(word.text for word in words)
    if ANY in text or _HOME.search(text):
        return _subject_of_line(line)
    return f"command:{text}"


def _subject_of_line(line: str) -> str:
    return "line:" + hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest()


def _means(rule: Rule, texts: Sequence[str]) -> bool:
    """Whether a rule is for a command. An ``allow`` must be for what is typed, others for what it comes to as well."""
    readings = texts[:1] if rule.verdict is Verdict.ALLOW else texts
    return any(_surely(rule.pattern, text) for text in readings)


def _readings(words: Sequence[Word]) -> list[str]:
    """A command as text, in each way a rule may mean it: as typed first, then without folder and global options."""
    texts = [" ".join(word.text for word in words)]
    first, rest = words[0].text, list(words[1:])
    name = first.rpartition("/")[2] or first
    for_rules = (rest, *_without_global_options(name, rest))
    texts += [" ".join([name, *(word.text for word in arguments)]) for arguments in for_rules]
    texts += [text.translate(AS_BLANKS) for text in texts]
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


def _without_global_options(name: str, arguments: list[Word]) -> list[list[Word]]:
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
        found.append([Word(ANY)])  # nobody writes that many
    return found


def _surely(pattern: str, text: str) -> bool:
    """Whether a rule's pattern certainly means a text. ``?`` is one known character. Linear in the text."""
    return (pattern.endswith(" *") and _wild(pattern[:-2], text)) or _wild(pattern, text)


def _wild(pattern: str, text: str) -> bool:
    """Whether a pattern with ``*`` and ``?`` means a whole text: each part at the first place that is left."""
    first, *others = _parts(pattern)
    if not others:
        return first.fullmatch(text) is not None
    begun = first.match(text)
    if begun is None:
        return False
    position = begun.end()
    for part in others[:-1]:
        found = part.search(text, position)
        if found is None:
            return False
        position = found.end()
    return others[-1].fullmatch(text, max(position, len(text) - len(pattern.rpartition("*")[2]))) is not None


@lru_cache(maxsize=512)
def _parts(pattern: str) -> tuple[re.Pattern[str], ...]:
    wild = {"?": f"[^{ANY}]"}
    parts = ["".join(wild.get(character, re.escape(character)) for character in part) for part in pattern.split("*")]
    return tuple(re.compile(part, re.DOTALL) for part in parts)


def _may_match(pattern: str, text: str) -> bool:
    """Whether a rule's pattern may mean a text once its unknown parts are known: two patterns with a common text."""
    if ANY not in text:
        return False
    if len(text) > _MOST_COMPARED:  # with less of it known it may mean all that it may mean, and more
        text = f"{text[: _MOST_COMPARED // 2]}{ANY}{text[-_MOST_COMPARED // 2 :]}"
    if pattern.endswith(" *") and _common(pattern[:-2], text):
        return True
    return _common(pattern, text)


def _common(pattern: str, text: str) -> bool:
    """Whether some string is meant by both: ``*`` and ``?`` are wild in the one, :data:`ANY` in the other."""
    reached = {0}  # positions in the pattern, after each character of the text
    reached = _past_stars(pattern, reached)
    for character in text:
        if character == ANY:
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


def _is_trusted(words: Sequence[Word], trusted: Sequence[str]) -> bool:
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
        if pattern and _surely(pattern, text):
            return True
    return False


def _shown(words: Sequence[Word]) -> str:
    text = " ".join(word.text for word in words).translate(AS_BLANKS).replace(ANY, "…")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
