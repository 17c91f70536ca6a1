"""A scan of a skill's bytes for what attacks on agents look like. The rules are data: ``rules.toml``.

A scan finds what is written plainly; it is a help to a person who decides, and no proof of anything. What holds is the
sandbox.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from itertools import islice
from typing import Any

from adk_skills_agent.errors import in_one_line
from adk_skills_agent.format import decoded
from adk_skills_agent.format.models import nfkc
from adk_skills_agent.sources.scan.capabilities import capability_findings
from adk_skills_agent.sources.scan.flow import family_of, flow_findings, spelled_out
from adk_skills_agent.sources.scan.programs import PYTHON, Program, comments, fenced_blocks, programs_in
from adk_skills_agent.sources.scan.python import Seen, python_findings
from adk_skills_agent.sources.scan.words import Passages, word_findings
from adk_skills_agent.sources.tree import SkillTree

MAX_SCANNED_BYTES = 512 << 10
"""Of one file; what is behind it is said not to have been read. Half a megabyte of the worst text takes ten seconds."""
MAX_TREE_BYTES = 4 << 20
"""Of all files of a skill, the smallest first."""
MAX_LINE = 4_000
MAX_FINDINGS = 50
_EXCERPT = 100


class Weight(StrEnum):
    """What a finding means for who decides."""

    STOP = "stop"
    WARN = "warn"
    NOTE = "note"


_ORDER = {Weight.STOP: 0, Weight.WARN: 1, Weight.NOTE: 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule found."""

    rule: str  # the rule's id
    weight: Weight  # how grave it is
    says: str  # what it is, for a person
    file: str  # path in the skill
    line: int = 0  # 1-based; 0 for the whole file
    excerpt: str = ""  # the text that was found, cut, without control characters

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        text = f": {self.excerpt}" if self.excerpt else ""
        return f"{self.weight.value.upper():<5} {place}  {self.says} [{self.rule}]{text}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "rule": self.rule,
            "weight": self.weight.value,
            "says": self.says,
            "file": self.file,
            "line": self.line,
            "excerpt": self.excerpt,
        }


@dataclass(frozen=True, slots=True)
class _Rule:
    id: str
    weight: Weight
    place: str
    says: str
    pattern: re.Pattern[str]
    also: tuple[re.Pattern[str], ...]
    unless: re.Pattern[str] | None
    files: re.Pattern[str] | None  # the only names of files that it is for


@lru_cache(maxsize=1)
def _rules() -> tuple[_Rule, ...]:
    text = resources.files("adk_skills_agent.sources.scan").joinpath("rules.toml").read_text("utf-8")
    data = tomllib.loads(text)
    return tuple(
        _Rule(
            one["id"],
            Weight(one["weight"]),
            one["in"],
            one["says"],
            re.compile(one["pattern"], re.IGNORECASE | re.MULTILINE),
            tuple(re.compile(other, re.IGNORECASE | re.MULTILINE) for other in one.get("also", ())),
            re.compile(one["unless"].replace("{known_hosts}", data["known_hosts"]), re.IGNORECASE)
            if "unless" in one
            else None,
            re.compile(one["files"], re.IGNORECASE) if "files" in one else None,
        )
        for one in data["rule"]
    )


def scan_tree(tree: SkillTree) -> list[Finding]:
    """What the rules find in a skill, the gravest first; each rule at most five times a file."""
    found: list[Finding] = []
    left = MAX_TREE_BYTES
    for path, file in sorted(tree.files.items(), key=lambda one: (one[0] != tree.skill_file, len(one[1].data))):
        found += _scan_file(path, file.data, min(left, MAX_SCANNED_BYTES))
        left = max(0, left - len(file.data))
    says = _description(tree)
    told, teaches = _TOLD_PURPOSE.search(says) is not None, _TEACHES.search(says) is not None
    if told or teaches:
        found = [
            replace(one, weight=Weight.WARN)
            if (told and _is_told(one, tree)) or (teaches and _is_sample(one, tree))
            else one
            for one in found
        ]
    found.sort(key=lambda one: (_ORDER[one.weight], one.file, one.line))
    return found[:MAX_FINDINGS]


_TOLD_PURPOSE = re.compile(
    r"\.(?:bash|zsh)rc\b|\.profile\b|\bdotfiles?\b|\bshell (?:config\w*|set-?up|profile|start-?up)|\bgit hooks?\b"
    r"|\bcron(?:tab|s| jobs?)?\b|\bsystemd\b|\blaunchd\b|\b(?:at|on) (?:boot|login|start-?up)\b"
    r"|\bschedul\w+\b|\bautomatic backups?\b|\btunnels?\b|\bssh\b|\bregistry\b|\b(?:fnm|nvm|pyenv|rbenv|asdf|mise)\b"
    r"|\bversion managers?\b",
    re.IGNORECASE,
)
_TOLD_RULES = frozenset({"writes-start-file", "gives-access", "key-file-put-somewhere"})
_TEACHES = re.compile(
    r"\b(?:prompt injection|red[- ]team\w*|security (?:training|awareness|workshop|course)|sigma|yara|semgrep"
    r"|detection (?:rules?|engineering)|(?:lint|linter|scanner|detector) rules?|malware analysis"
    r"|attacker behaviou?r)\b",
    re.IGNORECASE,
)
_SET_UP = re.compile(rb"eval\s+[\"']?\$\(\s*[\w./~$-]{2,40}\s+(?:env|init|hook|activate|completions?)\b")
"""What the set-up of a tool writes into a shell's start file."""
_BEYOND_PURPOSE = re.compile(
    rb"\b(?:curl|wget|nc|ncat|base64|xxd|eval)\b|/dev/tcp|urlopen|requests\.|fetch\(|authorized_keys|ld\.so\.preload",
    re.IGNORECASE,
)


def _description(tree: SkillTree) -> str:
    """What the skill says it is for, before it is activated."""
    head = decoded(tree.files[tree.skill_file].data[:8192])
    return head.split("\n---", 1)[0]


def _is_told(one: Finding, tree: SkillTree) -> bool:
    """Whether a skill does what its description says that it does: writes a start file, opens a tunnel."""
    return one.rule in _TOLD_RULES and not _BEYOND_PURPOSE.search(_SET_UP.sub(b"", tree.files[one.file].data))


def _is_sample(one: Finding, tree: SkillTree) -> bool:
    """Whether a finding is in a text besides the instructions of a skill that teaches or finds attacks."""
    return one.file != tree.skill_file and one.file.lower().endswith(_TEXT_SUFFIXES)


_TEXT_SUFFIXES = (".md", ".mdx", ".txt", ".rst", ".html", ".markdown", ".adoc")
_CODE = (
    "py sh bash zsh fish js mjs cjs ts mts tsx jsx rb pl ps1 bat cmd lua php r go rs java c json toml yaml yml cfg ini "
    "service plist svg csv tsv conf"
)
_CODE_SUFFIXES = tuple(f".{suffix}" for suffix in _CODE.split())
_MAGIC = (
    (b"\x7fELF", "a program for Linux"),
    (b"MZ", "a program for Windows"),
    (b"\xcf\xfa\xed\xfe", "a program for macOS"),
    (b"\xfe\xed\xfa", "a program for macOS"),
    (b"\xca\xfe\xba\xbe", "a program for macOS or Java"),
    (b"!<arch>", "a compiled library"),
    (b"\0asm", "a program for WebAssembly"),
)
_MEDIA = "png jpg jpeg gif webp ico pdf ttf otf woff woff2 mp3 mp4 wav zip docx xlsx pptx"
_MEDIA_SUFFIXES = tuple(f".{suffix}" for suffix in _MEDIA.split())
_PROGRAMS = (".bin", ".elf", ".com", ".so.1", ".appimage", ".run", ".out", ".lib", ".a", ".sys", ".msi")
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2", ".7z", ".rar", ".whl", ".egg", ".jar", ".dmg")
_REQUIREMENTS = re.compile(r"(?:requirements|constraints)[^/]*\.txt$")
_PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".ckpt", ".bin")
_COMPILED = (".pyc", ".pyo", ".so", ".dll", ".dylib", ".exe", ".class", ".scr", ".lnk", ".node", ".wasm", ".pyd", ".o")


_PICKLE_CALLS = re.compile(
    rb"(?:c|\x8c.|[XU].{1,4}?)(?:posix|nt|os|subprocess|builtins|__builtin__|runpy|pty)[\n\x94\x8cqhUX\x00-\x09]{1,8}"
    rb"(?:system|popen|exec|eval|run|call|Popen|check_output|run_path|spawn|compile|__import__)\b",
    re.DOTALL,
)
"""A pickle names the function that it calls when it is read: module and name, one after the other."""


def _scan_file(path: str, data: bytes, most: int) -> list[Finding]:
    name = path.lower()
    ending = name.rpartition("/")[2].rpartition(".")[1:]
    for magic, what in _MAGIC:
        if data.startswith(magic) and (magic != b"MZ" or b"PE\0\0" in data[:1024]):
            if ending[0] and not name.endswith((*_COMPILED, *_PROGRAMS)):
                return [Finding("disguised-program", Weight.STOP, f"{what} under the name of something else", path)]
            return [Finding("binary", Weight.WARN, f"{what}, which nobody can read", path)]
    if name.endswith(_COMPILED):
        return [Finding("binary", Weight.WARN, "compiled code, which nobody can read", path)]
    if name.endswith(_MEDIA_SUFFIXES) and data.startswith(b"#!"):
        return [Finding("disguised-program", Weight.STOP, "a script under the name of something else", path)]
    is_pickle = data[:1] == b"\x80" or data.startswith((b"PK\x03\x04", b"\x93NUMPY")) or name.endswith(_PICKLES)
    if is_pickle and _PICKLE_CALLS.search(data, 0, MAX_SCANNED_BYTES):
        return [Finding("pickle-runs", Weight.STOP, "a pickle that runs a program when it is read", path)]
    if b"vbaProject.bin" in data[-65536:] and data.startswith(b"PK"):
        return [Finding("macros", Weight.WARN, "an office file with macros, which nobody sees here", path)]
    if name.endswith(_ARCHIVES):
        return [Finding("archive", Weight.WARN, "an archive; what is in it was not looked at", path)]
    is_text = name.endswith(_TEXT_SUFFIXES) and not _REQUIREMENTS.search(name)
    is_code = name.endswith(_CODE_SUFFIXES) or data[:2] == b"#!"
    is_code = is_code or _REQUIREMENTS.search(name) is not None or bool(family_of(path, ""))
    if not is_text and not is_code and b"\0" in data[:8192]:
        return []
    text = decoded(data[:most])
    found = list(_hidden(path, text))
    if len(data) > most:
        says = (
            f"only the first {most >> 10} KiB were looked at"
            if most
            else "it was not looked at: the skill is too large"
        )
        found.append(Finding("not-read", Weight.WARN, says, path))
    found += _by_rules(path, text, is_text=is_text, is_code=is_code)
    found += _programs_of(path, text, is_text=is_text)
    if not is_text and programs_in(path, text, is_text=False):
        found += _seen(capability_findings(text, path), path, text, lambda line: line)
    if is_text or not is_code:
        readable = _INVISIBLE.sub("", nfkc(text)) if not text.isascii() else text
        found += _seen(word_findings(readable), path, text, lambda line: line)
        found = list(_weighed(found, Passages(text)))
    return list({(one.rule, one.line): one for one in reversed(found)}.values())


_UNSEEN = frozenset({"zero-width", "bidi", "terminal-erase", "invisible-text"})
"""Findings of what nobody sees, besides ``hidden-...``: no passage describes that."""


def _weighed(found: Iterable[Finding], passages: Passages) -> Iterator[Finding]:
    """A passage that describes an attack is shown to the person, and stops nothing."""
    for one in found:
        hidden = one.rule in _UNSEEN or one.rule.startswith("hidden-")
        named = one.rule in _code_rules() and passages.mentions(one.line)
        if one.weight is Weight.STOP and not hidden and (named or passages.describes(one.line)):
            yield replace(one, weight=Weight.WARN)
            continue
        yield one


@lru_cache(maxsize=1)
def _code_rules() -> frozenset[str]:
    """The rules that find commands, which a text may name without asking for them."""
    return frozenset(
        rule.id
        for rule in _rules()
        if rule.place in {"code", "all"} and not rule.id.startswith(("secret", "environment", "drop", "takes"))
    )


def _seen(some: Iterable[Seen], path: str, text: str, line_of: Callable[[int], int]) -> Iterator[Finding]:
    lines = text.split("\n")
    for one in islice(some, MAX_FINDINGS):
        line = line_of(one.line)
        excerpt = _excerpt(lines[line - 1][:MAX_LINE]) if line <= len(lines) else ""
        yield Finding(one.rule, Weight.STOP if one.stops else Weight.WARN, one.says, path, line, excerpt)


def _programs_of(path: str, text: str, *, is_text: bool) -> Iterator[Finding]:
    """What the programs in a file do with what they read: the file itself, its fenced blocks, its cells."""
    for program in programs_in(path, text, is_text=is_text):
        if program.language == PYTHON:
            yield from _seen(python_findings(program.text), path, text, program.line)
        else:
            plain = spelled_out(program.text, program.language)
            yield from _seen(flow_findings(plain, program.language), path, text, program.line)
            yield from _spelled_in_pieces(path, program, plain)


def _spelled_in_pieces(path: str, program: Program, plain: str) -> Iterator[Finding]:
    """What the rules for code find in lines that say something else once their pieces are joined."""
    if plain == program.text:
        return
    before = program.text.split("\n")
    for number, line in enumerate(plain.split("\n")):
        if line != before[number] and len(line) < MAX_LINE:
            for rule in _rules():
                if rule.place in {"code", "all"} and rule.files is None and (match := _unexcused(rule, line)):
                    at = program.line(number + 1)
                    yield Finding(rule.id, rule.weight, rule.says, path, at, _excerpt(match[0]))


# What a person does not see.

_TAGS = re.compile("[\U000e0001-\U000e007f]{2,}")
_FLAGS = re.compile("\U0001f3f4[\U000e0020-\U000e007f]+")  # the flags of England, Scotland and Wales
_SELECTORS = re.compile("[\ufe00-\ufe0e\U000e0100-\U000e01ef]{4,}")
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_ZERO = re.compile("[\u200b\u2060-\u2064\u180e]{3,}|[\u200b-\u200f\u2060-\u2064\ufeff]{6,}")
_INSIDE_WORD = re.compile("(?<=[a-zA-Z])[\u200b\u2060\u00ad\u200c\u200d](?=[a-zA-Z])")
_CYRILLIC = "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455"  # letters that look like Latin ones
_LOOKALIKE = re.compile(rf"\b(?=\w*[a-z])(?=\w*[{_CYRILLIC}])[a-z{_CYRILLIC}]{{4,}}\b", re.IGNORECASE)
_ESCAPES = re.compile("\x1b\\[[0-9;]*[A-Za-z]|\x08{2,}")
_ERASING = re.compile("\x1b\\[[0-9;?]*[A-HJKSTfhl]|\x1b\\]|\x1b[P_^c]|\x08{2,}")  # not colours
_FILLERS = re.compile("[\u3164\uffa0]|(?<![\u1100-\u11ff])[\u115f\u1160](?![\u1100-\u11ff])")  # letters without a shape


def _hidden(path: str, text: str) -> Iterator[Finding]:
    if text.isascii() and "\x1b" not in text and "\x08" not in text:
        return
    plain = _FLAGS.sub("", text)
    for rule, pattern, says, weight in (
        ("hidden-tags", _TAGS, "text in characters that nobody sees (Unicode tags)", Weight.STOP),
        ("hidden-selectors", _SELECTORS, "text in characters that nobody sees (variation selectors)", Weight.STOP),
        ("zero-width", _ZERO, "a run of characters without width", Weight.STOP),
        ("bidi", _BIDI, "characters that change the order in which text is shown", Weight.STOP),
        ("split-word", _INSIDE_WORD, "a word with a character without width in it", Weight.WARN),
        ("lookalike", _LOOKALIKE, "a word of letters from two alphabets", Weight.WARN),
        ("hidden-letter", _FILLERS, "a letter that nobody sees", Weight.STOP),
        ("terminal-erase", _ERASING, "characters that erase or overwrite what a terminal shows", Weight.STOP),
        ("terminal-escape", _ESCAPES, "characters that command a terminal", Weight.WARN),
    ):
        match = pattern.search(plain)
        if match is not None:
            yield Finding(rule, weight, says, path, plain.count("\n", 0, match.start()) + 1)


# What is written plainly.

_INVISIBLE = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad\U000e0000-\U000e007f\ufe00-\ufe0f]")


def _by_rules(path: str, text: str, *, is_text: bool, is_code: bool) -> Iterator[Finding]:
    readable = _INVISIBLE.sub("", nfkc(text)) if not text.isascii() else text
    found: dict[str, set[int]] = {}
    # The lines of a sentence are one text, however it is wrapped.
    for place, pieces in (
        ("instructions", _strings(readable) if is_code and not is_text else _paragraphs(readable)),
        ("code", _code_lines(readable, is_text=is_text)),
        ("file", _programs(readable, is_text=is_text)),
    ):
        for line, piece in pieces:
            joined = piece.replace("\n", " ") if place == "instructions" and len(piece) < MAX_LINE else piece
            for rule in _rules():
                if rule.files is not None and not rule.files.search(path):
                    continue
                if rule.place != place and not (rule.place == "all" and place in {"code", "instructions"}):
                    continue
                if place == "instructions" and rule.place == "all" and is_code and not is_text:
                    continue  # the code lines have it
                match = _unexcused(rule, joined)
                if match is None:
                    continue
                at = line + piece.count("\n", 0, match.start())
                lines = found.setdefault(rule.id, set())
                if at in lines or len(lines) == 5:
                    continue
                lines.add(at)
                yield Finding(rule.id, rule.weight, rule.says, path, at, _excerpt(match[0]))


def _unexcused(rule: _Rule, piece: str) -> re.Match[str] | None:
    """The first place that no words near it excuse: an excused one before it does not hide it."""
    for match in rule.pattern.finditer(piece):
        if rule.unless is None or not _excused(rule.unless, piece, match):
            return match if all(other.search(piece) for other in rule.also) else None
    return None


def _excused(unless: re.Pattern[str], piece: str, match: re.Match[str]) -> bool:
    """The words that excuse a finding count only near it: an attacker may write them anywhere else."""
    start, end = max(0, match.start() - 120), match.end() + 120
    return any(not _HIDING.match(piece, found.start()) for found in unless.finditer(piece, start, end))


_HIDING = re.compile(
    r"(?:never|do not|don't|must not|cannot)\s+(?:\w+\s+)?(?:tell|inform|mention|notify|show|alert|warn|ask|reveal)\b",
    re.IGNORECASE,
)
"""A word that excuses elsewhere, and here asks to hide what is done."""


def _excerpt(text: str) -> str:
    plain = in_one_line(text)
    return plain if len(plain) <= _EXCERPT else plain[:_EXCERPT] + "..."


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Runs of lines without a blank one."""
    line = 1
    for piece in re.split(r"(\n[ \t]*\n)", text):
        if piece.strip():
            yield line, piece[: MAX_LINE * 8]
        line += piece.count("\n")


def _strings(text: str) -> Iterator[tuple[int, str]]:
    """Comments and long texts of a program, where instructions for a model may hide."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > 40 and (" " in line.strip()) and ("#" in line or '"' in line or "'" in line or "//" in line):
            yield number, line[:MAX_LINE]


def _programs(text: str, *, is_text: bool) -> Iterator[tuple[int, str]]:
    """The whole of a program, or each fenced block of a text."""
    if not is_text:
        yield 1, text
        return
    for _, block, first in fenced_blocks(text):
        yield first, block


def _code_lines(text: str, *, is_text: bool) -> Iterator[tuple[int, str]]:
    if is_text:
        for start, block in _programs(text, is_text=True):
            yield from _numbered(block, start)
        for start, end in comments(text):
            yield from _numbered(text[start:end], text.count("\n", 0, start) + 1)
        for number, line in enumerate(text.split("\n"), 1):
            for span in re.findall(r"`([^`\n]{8,})`", line):
                yield number, span[:MAX_LINE]
    else:
        yield from _numbered(text, 1)


def _numbered(text: str, first: int) -> Iterator[tuple[int, str]]:
    """Lines, with those that a backslash continues joined to one."""
    number = first
    waiting, start = "", first
    for line in text.split("\n"):
        if not waiting:
            start = number
        number += 1
        if line.endswith("\\") and len(waiting) < MAX_LINE:
            waiting += line[:-1] + " "
            continue
        whole = (waiting + line)[:MAX_LINE]
        waiting = ""
        if whole.strip():
            yield start, whole
    if waiting.strip():
        yield start, waiting[:MAX_LINE]


def stopping(findings: Iterable[Finding]) -> Sequence[Finding]:
    """The findings that a person has to accept by themselves."""
    return [finding for finding in findings if finding.weight is Weight.STOP]
