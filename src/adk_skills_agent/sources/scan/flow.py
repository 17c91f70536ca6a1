"""What a program that is no Python does with what it reads: its statements as text, for the scan of a skill.

As in :mod:`~adk_skills_agent.sources.scan.python`, a name that is given something decoded, fetched or secret carries
that sign, and a sign that arrives where code runs, or where data leaves the machine, is a finding. What the signs and
the places look like is data: the ``[sign]`` and ``[sink]`` tables of ``rules.toml``.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import resources
from itertools import chain, islice

from adk_skills_agent.sources.scan.python import Seen, is_own_service
from adk_skills_agent.sources.scan.python_names import DECODED, ENVIRON, FETCHED, KEY_FILES, KEYS, STARTS

_LONGEST_REGION = 1_500
_LONGEST_LINE = 4_000
_MOST_CODE = 256 << 10  # of one file; a larger one is seen by the rules alone
_MOST_STATEMENTS = 2_000  # of one file that are followed
_ROUNDS = 3

SHELL, BRACES = "shell", "braces"
_FAMILIES = {
    SHELL: "sh bash zsh fish ksh command bats service cron",
    BRACES: "js mjs cjs ts mts cts tsx jsx ps1 psm1 rb pl pm php lua go java kt rs cs groovy vbs wsf html htm "
    "vue svelte",
}
_FAMILY_OF = {ending: family for family, endings in _FAMILIES.items() for ending in endings.split()}
_FENCE_NAMES = {"javascript": BRACES, "typescript": BRACES, "powershell": BRACES, "ruby": BRACES, "perl": BRACES}
_FENCE_NAMES |= {"shell": SHELL, "console": SHELL, "": SHELL, **_FAMILY_OF}


def family_of(path: str, text: str) -> str:
    """``shell`` or ``braces`` for a file's name or first line; empty for what is neither."""
    name = path.lower().rpartition("/")[2]
    first = text[:200].split("\n", 1)[0]
    if first.startswith("#!"):
        if re.search(r"\b(?:ba|z|da|k|fi)?sh\b", first):
            return SHELL
        if re.search(r"node|deno|bun|ruby|perl|php|lua|pwsh", first):
            return BRACES
    if name in {"makefile", "gnumakefile", "justfile", "dockerfile", "containerfile", "procfile", ".envrc"}:
        return SHELL
    if name in {"rakefile", "gemfile", "vagrantfile", "jenkinsfile"}:
        return BRACES
    if name.endswith((".mk", ".dockerfile")) or name.startswith("dockerfile."):
        return SHELL
    return _FAMILY_OF.get(name.rpartition(".")[2], "") if "." in name else ""


def family_of_fence(language: str) -> str:
    """The same for the word behind the ticks of a fenced block."""
    return _FENCE_NAMES.get(language.lower(), "")


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, dict[str, re.Pattern[str]]], dict[str, dict[str, re.Pattern[str]]], re.Pattern[str]]:
    data = tomllib.loads(resources.files("adk_skills_agent.sources.scan").joinpath("rules.toml").read_text("utf-8"))

    def compiled(table: dict[str, dict[str, str]]) -> dict[str, dict[str, re.Pattern[str]]]:
        return {
            family: {name: re.compile(pattern, re.IGNORECASE | re.MULTILINE) for name, pattern in patterns.items()}
            for family, patterns in table.items()
        }

    return compiled(data["sign"]), compiled(data["sink"]), re.compile(data["known_hosts"], re.IGNORECASE)


# What is spelled in pieces, as one.

_PIECES = re.compile(r"""(["'])([^"'\n\\]{0,120})\1\s{0,4}\+\s{0,4}(["'])([^"'\n\\]{0,120})\3""")
_JOINED = re.compile(r"""\[((?:\s{0,4}["'][^"'\n]{0,40}["']\s{0,4},?){2,60})\]\.join\(\s{0,4}(?:''|""|``)\s{0,4}\)""")
_JOINED_PS = re.compile(
    r"""\[string\]::Join\(\s*(?:''|"")\s*,((?:\s{0,4}["'][^"'\n]{0,40}["']\s{0,4},?){2,60})\)""", re.IGNORECASE
)
_QUOTED = re.compile(r"""["']([^"'\n]{0,40})["']""")
_ASSIGNED = re.compile(
    r"""(?:^|[\s;&|({])(\w{1,60})\+?=("[^"\n`]{0,400}"|'[^'\n]{0,400}'|[^\s;&|()'"`]{1,400})(?=$|[\s;&|)}])"""
)
_USED = re.compile(r"\$(?:\{(\w{1,60})\}|(\w{1,60}))")
_SPLIT_WORD = re.compile(r"""(?<=\w)(?:''|""|\\(?=\w))(?=\w)|(?<=\s)(["'])(\w{1,3})\1(?=\w)""")


def spelled_out(text: str, family: str) -> str:
    """The text with constants joined and, for a shell, variables replaced by what they were given; its lines stay."""
    if family == BRACES:
        for _ in range(6):
            text, found = _PIECES.subn(lambda two: f"{two[1]}{two[2]}{two[4]}{two[1]}", text)
            if not found:
                break
        for pattern in (_JOINED, _JOINED_PS):
            text = pattern.sub(lambda all_: "'" + "".join(_QUOTED.findall(all_[1])) + "'", text)
        return text
    values: dict[str, str] = {}
    lines = []
    for line in text.split("\n"):
        whole = line
        if len(line) <= _LONGEST_LINE:
            if values and "$" in line:
                whole = _USED.sub(lambda used: values.get(used[1] or used[2], used[0]), line)[:_LONGEST_LINE]
            whole = whole.replace("${IFS}", " ").replace("$IFS", " ")
            whole = _SPLIT_WORD.sub(lambda part: part[2] or "", whole)
            if "=" in whole:
                for given in _ASSIGNED.finditer(whole):
                    value = given[2].strip("\"'")
                    if "$(" not in value and len(value) <= 200:
                        values[given[1]] = value
                    else:
                        values.pop(given[1], None)
        lines.append(whole)
    return "\n".join(lines)


# The flow.

_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_GIVEN = re.compile(
    r"(?:^|[\s;{(,])(?:(?:const|let|var|my|our|local|final|auto|function|def|sub|async)\s+)?"
    r"(?:([$@%]?[A-Za-z_][\w$.]{0,60})|[\[{]([^\]}\n]{1,200})[\]}])\s*(?::[^=\n,;(){}]{1,60})?"
    r"(?:\+|\.|\|\||\?\?|:)?=(?![=~>])\s*"
)
_FUNCTION = re.compile(r"\b(?:function|sub|def|func)\s+([A-Za-z_]\w{0,60})\s*(?:\([^)\n]{0,200}\)|(?=\{|\n))")
_PARAMETERS = re.compile(
    r"(?:\(([\w\s,$]{1,100})\)|\b(\w+))\s*=>|\bfunction\s*\w*\s*\(([\w\s,$]{1,100})\)|\|([\w\s,]{1,60})\|"
)
_EACH = re.compile(
    r"\bfor(?:each)?\s*\(\s*(?:const|let|var)?\s*(\$?\w+|\[[^\]\n]{1,100}\]|\{[^}\n]{1,100}\})\s+(?:of|in)\s+"
)
_MARK = re.compile(r"[()\[\]{};\n]")


def flow_findings(text: str, family: str) -> list[Seen]:
    """The signs that arrive where they must not, in a text whose pieces :func:`spelled_out` has joined."""
    if len(text) > _MOST_CODE:
        found = []  # many programs in one, in which a name means many things
    elif family == SHELL:
        found = list(_shell(text))
    elif max(map(len, text.split("\n"))) > 5 * _LONGEST_LINE:
        found = []  # minified: every name has one letter, and every one would carry everything
    else:
        found = list(_braces(text))
    return list(dict.fromkeys(found))


_MEANING = {
    (DECODED, "run"): ("decoded-code-runs", "runs code that it decodes"),
    (FETCHED, "run"): ("fetched-code-runs", "runs code that it fetches"),
    (ENVIRON, "send"): ("environment-sent", "sends the environment, where keys are"),
    (STARTS, "write"): ("writes-start-file", "writes a file that is run at a login or a start"),
    (KEYS, "send"): ("secrets-sent-by-a-program", "sends what it reads from a file of keys, passwords or cookies"),
}


def _told(signs: set[str], sink: str, line: int, text: str) -> Iterator[Seen]:
    for (sign, place), (rule, says) in _MEANING.items():
        if place == sink and sign in signs:
            yield Seen(rule, sign != KEYS or not is_own_service(text), says, line)


class _Carried:
    """The signs of names."""

    def __init__(self, signs: dict[str, re.Pattern[str]], *, members: bool) -> None:
        self._members = members  # whether ``name.other`` is one part of what the name has
        self._patterns = signs
        self.names: dict[str, set[str]] = {}

    def of(self, piece: str) -> set[str]:
        """The signs in a piece of text, its own and those of the names in it."""
        found = {sign for sign, pattern in self._patterns.items() if pattern.search(piece)}
        if KEY_FILES.search(piece):
            found.add(KEYS)
        for name in {name.lstrip("$") for name in _NAME.findall(piece)} & self.names.keys():
            signs = self.names[name]
            if (
                self._members
                and ENVIRON in signs
                and not re.search(rf"(?<![\w.]){re.escape(name)}(?![\w$]|\s*[.\[:])", piece)
            ):
                signs = signs - {ENVIRON}  # one variable of it
            found |= signs
        return found

    def give(self, name: str, signs: set[str]) -> None:
        """A name gets signs."""
        if signs and len(name) > 0:
            self.names.setdefault(name.lstrip("$@%"), set()).update(signs)


def _region(text: str, start: int) -> str:
    """The text from a place to the end of its statement: brackets closed, chained calls included."""
    depth, end = 0, min(len(text), start + _LONGEST_REGION)
    for mark in _MARK.finditer(text, start, end):
        char, at = mark[0], mark.start()
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth < 0:
                return text[start:at]
        elif depth == 0 and (char == ";" or not text[at + 1 : at + 80].lstrip().startswith((".", "+", "|", "?", "&&"))):
            return text[start:at]
    return text[start:end]


def _braces(text: str) -> Iterator[Seen]:
    signs, sinks, _ = _tables()
    carried = _Carried(signs[BRACES], members=True)
    given: list[tuple[list[str], str]] = []
    for match in islice(_GIVEN.finditer(text), _MOST_STATEMENTS):
        names = _NAME.findall(match[1] or match[2] or "")
        piece = _region(text, match.end())
        if match[2] and re.match(r"process\.env\s*$", piece):
            continue  # takes single variables
        given.append((names[-1:] if match[1] else names, piece if not match[2] else f"{match[0]} {piece}"))
    for pattern in (_FUNCTION, _EACH):
        found = islice(pattern.finditer(text), _MOST_STATEMENTS)
        given += [(_NAME.findall(match[1]), _region(text, match.end())) for match in found]
    arrived = (pattern.finditer(text) for pattern in signs[BRACES].values())
    for match in islice(chain.from_iterable(arrived), _MOST_STATEMENTS):
        piece = _region(text, match.start())
        names = [name for some in _PARAMETERS.findall(piece) for part in some for name in _NAME.findall(part)]
        given.append((names, piece))
    for _ in range(_ROUNDS):
        before = sum(map(len, carried.names.values()))
        for names, piece in given:
            got = carried.of(piece)
            for name in names:
                carried.give(name, got)
        if sum(map(len, carried.names.values())) == before:
            break
    for sink, pattern in sinks[BRACES].items():
        for match in islice(pattern.finditer(text), _MOST_STATEMENTS):
            line = text.count("\n", 0, match.start()) + 1
            piece = _region(text, match.end())
            if match["whole"] is not None:
                begin, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
                piece = text[max(begin, match.start() - _LONGEST_REGION) : end if end > 0 else None][
                    : 2 * _LONGEST_REGION
                ]
            elif match["first"] is not None:
                piece = piece.split(",", 1)[0]
            yield from _told(carried.of(piece), sink, line, text)


KEPT = re.compile(
    r"\s-i\s+\S+|--(?:netrc-file|cert|key|kubeconfig|cacert|identity)[= ]\S+|(?:\s-v|--volume|--mount)[= ]\S+"
    r"|IdentityFile=\S+|\S+\.pub\b|\bknown_hosts\b"
)
"""Words that name a file of keys and send it nowhere."""
_LONG_GAP = re.compile(r"(\s{24})\s+")


def with_short_gaps(text: str) -> tuple[str, Callable[[int], int]]:
    """A text with short runs of blanks and line ends, and the line (1-based) in the text itself of a place in it.

    Patterns over many lines take the square of such a run, or more: 60 KB of line ends took them hours (row 191).
    """
    parts: list[str] = []
    starts, dropped = [0], [0]  # where a run was cut, and how many line ends are missing behind it
    start = size = 0
    for gap in _LONG_GAP.finditer(text):
        parts.append(text[start : gap.end(1)])
        size += gap.end(1) - start
        start = gap.end()
        starts.append(size)
        dropped.append(dropped[-1] + text.count("\n", gap.end(1), start))
    short = "".join([*parts, text[start:]])
    lines = [match.start() for match in re.finditer("\n", short)]
    return short, lambda place: bisect_right(lines, place - 1) + 1 + dropped[bisect_right(starts, place) - 1]


_FILE = r"[\"']?([\w./~$@{}%:-]{2,200})"
_INTO = re.compile(
    r"(?:\s(?:-o|-O|--output|--output-document|-out|-C|-cf|-czf|czf|cf|-f|-acf|-cJf|-r|-qr)[= ]\s*|>>?\s*"
    rf"|\btee\s+(?:-a\s+)?){_FILE}"
)
_NAMED = re.compile(r"\s-\w*O\w*\s.*?https?://\S*/([\w.-]{2,100})")
_SET = re.compile(
    r"(?:^|[\s;&|(])(?:local |export |readonly )?(\w{1,60})\+?=(?=\S)|\bread\s+(?:-\w+\s+)*(\w{1,60})"
    r"|\bfor\s+(\w{1,60})\s+in\b"
)
_STARTED = re.compile(
    r"(?:^|[;&|({]|&&|\bthen|\bdo|\belse)\s*(?:(?:sudo|nohup|setsid|exec|env|command|RUN|@)\s+(?:-\w+\s+)*)*"
    rf"(?:(?:ba|z|da)?sh\s+|python3?\s+|node\s+|perl\s+|ruby\s+|source\s+|\.\s+)?{_FILE}"
)
_FIRST_WORD = re.compile(
    r"(?:^|[;&|{]|\bthen|\bdo|\belse)\s*(?:(?:sudo|nohup|setsid|exec|command)\s+)*\"?"
    r"\$(?:\{?(\w{1,60})(?:\[@\])?\}?(?![\w=.:/-])|\(([^()\n]{3,400})\))"
)
_WORD = re.compile(r"[\w./~@{}%:-]{2,200}")
_CHECKED = re.compile(r"\b(?:sha\d+sum|shasum|gpg\s+--verify|cosign|minisign|sha256|md5sum|checksum)\b", re.IGNORECASE)


def _shell(text: str) -> Iterator[Seen]:
    signs, sinks, known = _tables()
    carried = _Carried(signs[SHELL], members=False)
    checked = bool(_CHECKED.search(text))
    statements = list(_statements(text))
    bodies: list[tuple[str, set[int]]] = _functions(statements)
    for _ in range(_ROUNDS):
        before = sum(map(len, carried.names.values()))
        own: list[set[str]] = []
        for _, line in statements:
            got = _shell_signs(carried, line)
            own.append(got)
            if FETCHED in got and known.search(line):
                got = got - {FETCHED}
            if not got:
                continue
            for match in _SET.finditer(line):
                carried.give(match[1] or match[2] or match[3], got)
            for match in (*_INTO.finditer(line), *_NAMED.finditer(line)):
                if not match[1].startswith(("/dev/", "-", "&")):
                    carried.give(f"file:{match[1].removeprefix('./')}", got)
        for name, lines in bodies:
            carried.give(name, set[str]().union(*(own[index] for index in lines)) & {DECODED, FETCHED})
        if sum(map(len, carried.names.values())) == before:
            break
    for number, line in statements:
        got = _shell_signs(carried, line)
        for sink, pattern in sinks[SHELL].items():
            for match in pattern.finditer(line):
                piece = line[: match.start()] if match["before"] is not None else line[match.end() :]
                arrived = got if sink == "send" else _shell_signs(carried, piece)
                if sink == "run" and FETCHED in arrived and _direct_curl(piece):
                    arrived = arrived - {FETCHED}  # the rule for that knows the installers of known makers
                yield from _told(arrived, sink, number, text)
        for match in _FIRST_WORD.finditer(line):
            signs_ = carried.names.get(match[1], set()) if match[1] else _shell_signs(carried, match[2])
            if signs_ & {DECODED} or (match[1] and FETCHED in signs_):
                yield Seen("decoded-code-runs", True, "runs a command that it decodes or fetches", number)
        for match in _STARTED.finditer(line):
            name = f"file:{match[1].removeprefix('./')}"
            arrived = carried.names.get(name, set()) & {DECODED, FETCHED}
            if arrived and not line[match.end() :].lstrip("\"'").startswith("="):
                says = "starts a program that it fetches or decodes"
                yield Seen("fetched-program-runs", not checked, says, number)


def _shell_signs(carried: _Carried, line: str) -> set[str]:
    found = carried.of(KEPT.sub(" ", line))
    for word in _WORD.findall(line):
        found |= carried.names.get(f"file:{word.removeprefix('@').removeprefix('./')}", set())
    return found


def _direct_curl(piece: str) -> bool:
    return re.search(r"\b(?:curl|wget)\b", piece) is not None


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those that a backslash or a pipe continues, and what is a comment left out."""
    waiting, first = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if not waiting:
            first = number
        if line.lstrip().startswith("#") and not line.startswith("#!"):
            continue
        if line.rstrip().endswith(("\\", "|", "&&")) and len(waiting) < _LONGEST_LINE:
            waiting += line.rstrip().rstrip("\\") + " "
            continue
        whole, waiting = (waiting + line)[:_LONGEST_LINE], ""
        if whole.strip():
            yield first, whole
    if waiting.strip():
        yield first, waiting[:_LONGEST_LINE]


def _functions(statements: list[tuple[int, str]]) -> list[tuple[str, set[int]]]:
    found: list[tuple[str, set[int]]] = []
    name, lines = "", set[int]()
    for index, (_, line) in enumerate(statements):
        start = re.match(r"\s*(?:function\s+)?(\w{1,60})\s*\(\)\s*\{?", line) or re.match(
            r"\s*function\s+(\w{1,60})", line
        )
        if start:
            name, lines = start[1], {index}
        elif name:
            lines.add(index)
        if name and (line.startswith("}") or (start and line.rstrip().endswith("}"))):
            found.append((name, lines))
            name = ""
    return found
