"""The ``uv``, ``uvx`` and ``pip`` of an environment: they run what is prepared, and install nothing.

Documents say ``uv run --with weasyprint scripts/pdf.py a.md``, ``uvx ruff check .`` or ``pip install pandas``. What
such lines name is in the environment already, and a sandbox has no index, so each does the part that is left. A line
that wants more goes to the machine's own uv, if there is one, which may be able to do it.

The module is copied into each environment and runs there by itself: it imports nothing of this package.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import re
import shutil
import sys

COMMANDS = ("uv", "uvx", "pip", "pip3")
_WITH_VALUE = {
    *("--with", "--with-requirements", "--with-editable", "--python", "-p", "--from", "--spec", "--project", "-r"),
    *("--requirement", "--index-url", "-i", "--extra-index-url", "--index", "--default-index", "--find-links", "-f"),
    *("--extra", "--group", "--env-file", "--directory", "--target", "-t", "--prefix", "-c", "--constraint"),
    *("--exclude-newer", "--cache-dir", "--timeout", "--retries"),
}
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def main(name: str, words: list[str]) -> int:
    """Do what a command line wants. Returns the exit code; most lines become another program and do not return."""
    if "--version" in words[:1] or "-V" in words[:1]:
        print(f"{name} 0.0.0 (what is prepared for this skill)")
        return 0
    if name.startswith("pip"):
        return _pip(words, name, words)
    if name == "uvx":
        return _tool(words, name, words)
    before, rest = _split(words)
    verb, rest = rest[:1], rest[1:]
    if verb == ["run"]:
        return _run(rest, words)
    if verb == ["tool"] and rest[:1] in (["run"], ["install"]):
        return _tool(rest[1:], name, words) if rest[0] == "run" else _pip(["install", *rest[1:]], name, words)
    if verb == ["pip"]:
        return _pip(rest, name, words)
    if verb == ["add"]:
        return _pip(["install", *rest], name, words)
    if verb == ["sync"]:
        return 0
    return _elsewhere(name, words, f"'{name} {' '.join(before + verb)}' can do nothing here")


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The options before the first other word, with their values, and the rest."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if words[at] == "--":
            return words[:at], words[at + 1 :]
        at += 2 if words[at] in _WITH_VALUE else 1
    return words[:at], words[at:]


def _values(options: list[str], *names: str) -> list[str]:
    found = [value for option, value in itertools.pairwise(options) if option in names]
    found += [one.partition("=")[2] for one in options if one.partition("=")[0] in names and "=" in one]
    return [part for value in found for part in value.split(",") if part]


def _missing(requirements: list[str]) -> list[str]:
    """The distributions among requirements that are not here; versions are the preparation's concern."""
    names = [found[1] for text in requirements if (found := _NAME.match(text)) and "://" not in text.split("@")[0]]
    missing = []
    for name in names:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return missing


def _run(words: list[str], whole: list[str]) -> int:
    options, command = _split(words)
    missing = _missing(_values(options, "--with"))
    if missing or not command:
        return _elsewhere("uv", whole, f"not prepared: {', '.join(missing)}" if missing else "'uv run' needs a command")
    for folder in _values(options, "--directory"):
        os.chdir(folder)
    program, *rest = command
    if "-m" in options or "--module" in options:
        return _become([sys.executable, "-m", program, *rest])
    if program == "-" or program.endswith(".py") or "-s" in options or "--script" in options:
        return _become([sys.executable, program, *rest])
    if re.fullmatch(r"python[\d.]*", program):
        return _become([sys.executable, *rest])
    return _become([program, *rest])


def _tool(words: list[str], name: str, whole: list[str]) -> int:
    options, command = _split(words)
    program = re.sub(r"@[\w.]+$", "", command[0]) if command else ""
    missing = _missing([*_values(options, "--with"), *_values(options, "--from")])
    if missing or not program or shutil.which(program) is None:
        named = ", ".join(missing) or program or "nothing"
        return _elsewhere(name, whole, f"not prepared: {named}")
    return _become([program, *command[1:]])


def _pip(words: list[str], name: str, whole: list[str]) -> int:
    verb = words[:1]
    if verb in (["list"], ["freeze"]):
        found = sorted({(one.metadata["Name"] or "", one.version) for one in importlib.metadata.distributions()})
        print("\n".join(f"{package}=={version}" for package, version in found))
        return 0
    if verb == ["show"]:
        missing = _missing([word for word in words[1:] if not word.startswith("-")])
        for package in set(words[1:]) - set(missing):
            print(f"Name: {package}\nVersion: {importlib.metadata.version(package)}")
        return 1 if missing else 0
    if verb != ["install"]:
        return _elsewhere(name, whole, f"'{' '.join([name, *words[:1]])}' can do nothing here")
    wanted, rest = [], words[1:]
    while rest:
        options, rest = _split(rest)
        for file in _values(options, "-r", "--requirement"):
            with open(file, encoding="utf-8") as stream:
                wanted += [line for line in stream.read().splitlines() if not line.lstrip().startswith(("#", "-"))]
        wanted += rest[:1]
        rest = rest[1:]
    paths = [word for word in wanted if word.startswith((".", "/")) or word.endswith((".whl", ".gz"))]
    missing = _missing([word for word in wanted if word not in paths]) + paths
    if missing:
        return _elsewhere(name, whole, f"not prepared: {', '.join(missing)}")
    for word in filter(_NAME.match, wanted):
        print(f"Requirement already satisfied: {word.strip()}")
    return 0


def _elsewhere(name: str, words: list[str], why: str) -> int:
    """Let the machine's own program do it; else say why it cannot be done."""
    here = os.path.realpath(os.path.dirname(sys.executable))
    path = os.pathsep.join(one for one in os.environ.get("PATH", "").split(os.pathsep) if os.path.realpath(one) != here)
    found = None if name.startswith("pip") else shutil.which(name, path=path)
    if found is not None:
        return _become([found, *words])
    print(
        f"{name}: {why}. Packages of a skill are prepared before its scripts run, and nothing is installed here. "
        "Go on without, or tell the user that the skill has to declare them.",
        file=sys.stderr,
    )
    return 2


def _become(command: list[str]) -> int:
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
