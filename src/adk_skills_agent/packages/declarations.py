"""The needs that a skill's author declares: PEP 723 blocks, manifests, ``requires`` in the metadata, install lines.

Everything here is a stranger's text. It is parsed, never run; what cannot be parsed is a diagnostic.
"""

from __future__ import annotations

import itertools
import json
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from adk_skills_agent.packages.distributions import programs_of
from adk_skills_agent.packages.findings import Finding, Findings, NeedKind, SkillText, word_set
from adk_skills_agent.settings import parsed_toml

_MAX_INCLUDED = 20
"""Files of requirements that other ones name, of one skill."""
_TOOLS = frozenset({"pip", "setuptools", "wheel", "uv", "pipx", "virtualenv", "hatchling", "build", "twine"})
"""Installers, which the skill itself does not need."""
_PLACEHOLDER = re.compile(
    r"^(?:your|my|some|the|a|an|package|packages?[-_]?name|name|foo|bar|x|y)(?:[-_].*)?$", re.IGNORECASE
)


def python_requirement(text: str, place: str, findings: Findings, *, declared: bool = True) -> None:
    """Add one requirement as PEP 508 writes it: ``pandas[excel]>=2; python_version > '3.9'``."""
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError):  # thousands of parentheses
        findings.problem("requirement-unreadable", f"{text[:80]!r} is not a requirement of a package.", place)
        return
    if canonicalize_name(requirement.name) in _TOOLS:
        return
    try:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            return
    except ValueError:  # a comparison that has no meaning
        findings.problem("requirement-unreadable", f"The condition of {text[:80]!r} cannot be evaluated.", place)
        return
    name = requirement.name + (f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else "")
    spec = f"@ {requirement.url}" if requirement.url else str(requirement.specifier)
    findings.add(Finding(NeedKind.PYTHON_PACKAGE, name, place, spec, declared=declared))


# PEP 723: a block of comments that is a TOML document.


def inline_script_metadata(script: SkillText, findings: Findings) -> None:
    """Read the block ``# /// script`` of a Python script."""
    lines = script.text.split("\n")
    index = next((number for number, line in enumerate(lines) if line.rstrip() == "# /// script"), None)
    if index is None:
        return
    content: list[str] = []
    for following in lines[index + 1 :]:
        if following.rstrip() == "# ///":
            break
        if not following.startswith("#"):
            findings.problem(
                "script-block-open", "The block '# /// script' has no end '# ///'.", script.place(index + 1)
            )
            return
        content.append(following[2:] if following.startswith("# ") else following[1:])
    else:
        findings.problem("script-block-open", "The block '# /// script' has no end '# ///'.", script.place(index + 1))
        return
    table = _toml("\n".join(content), script.place(index + 1), findings)
    dependencies = table.get("dependencies")
    for nth, text in enumerate(dependencies if isinstance(dependencies, list) else ()):
        if isinstance(text, str):
            python_requirement(text, script.place(index + 2 + _line_with(content, text, nth)), findings)
    _python_version(table.get("requires-python"), script.place(index + 1), findings)


_MOST_PLACES = 500
"""Names of one file whose line is looked for; that of a further one is the file's first (row 493)."""


def _line_with(lines: Sequence[str], text: str, nth: int = 0) -> int:
    return next((number for number, line in enumerate(lines) if text in line), 0) if nth < _MOST_PLACES else 0


def _python_version(spec: object, place: str, findings: Findings) -> None:
    if isinstance(spec, str) and spec:
        findings.add(Finding(NeedKind.INTERPRETER, "python", place, spec[:100], declared=True))


def _toml(text: str, place: str, findings: Findings) -> Mapping[str, object]:
    try:
        return parsed_toml(text)
    except (ValueError, RecursionError) as error:
        findings.problem("toml-unreadable", f"It is no TOML: {str(error)[:120]}.", place)
        return {}


# Manifests.


def requirements_file(manifest: SkillText, findings: Findings) -> None:
    """Read a ``requirements*.txt``; of pip's options only ``-r`` is followed."""
    for number, raw in enumerate(manifest.text.split("\n"), 1):
        line = re.split(r"(?:^|\s)#", raw, maxsplit=1)[0].strip().rstrip("\\").strip()
        if not line or line.startswith("--hash"):
            continue
        included = re.match(r"(?:-r|--requirement)[\s=]*(\S+)", line)
        if included is not None and len(findings.included) < _MAX_INCLUDED:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(manifest.path), included[1]))
            findings.included.setdefault(path, manifest.place(number))
            continue
        if line.startswith("-"):
            if not line.startswith(("-r", "-c", "--requirement", "--constraint", "--hash")):
                findings.problem(
                    "requirement-option", f"The option {line[:80]!r} is not followed.", manifest.place(number)
                )
            continue
        python_requirement(line.split(" --", 1)[0].strip(), manifest.place(number), findings)


def python_project(manifest: SkillText, findings: Findings) -> None:
    """Read the dependencies of a ``pyproject.toml``, also of Poetry's older form."""
    table = _toml(manifest.text, manifest.place(1), findings)
    lines = manifest.text.split("\n")
    project = table.get("project")
    if isinstance(project, Mapping):
        dependencies = project.get("dependencies")
        for nth, text in enumerate(dependencies if isinstance(dependencies, list) else ()):
            if isinstance(text, str):
                python_requirement(text, manifest.place(_line_with(lines, text, nth) + 1), findings)
        _python_version(project.get("requires-python"), manifest.place(1), findings)
    tool = table.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, Mapping) else None
    listed = poetry.get("dependencies") if isinstance(poetry, Mapping) else None
    for nth, (name, version) in enumerate(listed.items() if isinstance(listed, Mapping) else ()):
        if name != "python":
            place = manifest.place(_line_with(lines, name, nth) + 1)
            python_requirement(f"{name}{_poetry_spec(version)}", place, findings)


def _poetry_spec(version: object) -> str:
    text = version.get("version") if isinstance(version, Mapping) else version
    if not isinstance(text, str):
        return ""
    caret = re.fullmatch(r"([\^~])(\d+)(?:\.(\d+))?(?:\.\S*)?", text)
    if caret is None:
        return text if re.match(r"[<>=!~]", text) else f"=={text}" if re.match(r"\d", text) else ""
    major, minor = int(caret[2]), int(caret[3] or 0)
    upper = f"{major + 1}" if caret[1] == "^" and major else f"{major}.{minor + 1}"
    return f">={text[1:]},<{upper}"


def node_manifest(manifest: SkillText, findings: Findings) -> None:
    """Read the dependencies of a ``package.json``; those for development are not needed to run."""
    table = _json(manifest, findings)
    lines = manifest.text.split("\n")
    for key, optional in (("dependencies", False), ("peerDependencies", True), ("optionalDependencies", True)):
        listed = table.get(key)
        for nth, (name, version) in enumerate(listed.items() if isinstance(listed, Mapping) else ()):
            if isinstance(name, str) and isinstance(version, str):
                place = manifest.place(_line_with(lines, f'"{name}"', nth) + 1)
                findings.add(
                    Finding(NeedKind.NODE_PACKAGE, name, place, version[:100], declared=True, optional=optional)
                )
    engines = table.get("engines")
    if isinstance(engines, Mapping) and isinstance(engines.get("node"), str):
        place = manifest.place(_line_with(lines, '"engines"') + 1)
        findings.add(Finding(NeedKind.INTERPRETER, "node", place, engines["node"][:100], declared=True))


def _json(manifest: SkillText, findings: Findings) -> Mapping[str, object]:
    try:
        table = json.loads(manifest.text)
    except (ValueError, RecursionError) as error:
        findings.problem("json-unreadable", f"It is no JSON: {str(error)[:120]}.", manifest.place(1))
        return {}
    return table if isinstance(table, Mapping) else {}


# ``metadata.<host>.requires`` and ``metadata.<host>.install``, as registries of skills have them.

_INSTALLERS = {
    "brew": ("formula", "brew install {}"),
    "apt": ("package", "apt-get install {}"),
    "go": ("module", "go install {}"),
    "node": ("package", "npm install --global {}"),
    "npm": ("package", "npm install --global {}"),
    "pip": ("package", "pip install {}"),
    "uv": ("package", "uv tool install {}"),
}


def skill_metadata(metadata: Mapping[str, object], place: str, findings: Findings) -> None:
    """Read ``requires`` of a skill's metadata, wherever in it the mapping is."""
    waiting: list[tuple[Mapping[str, object], int]] = [(metadata, 0)]
    seen = 0
    while waiting and seen < 200:
        table, depth = waiting.pop()
        seen += 1
        for key, value in table.items():
            inner = _mapping(value)
            if inner is None or depth > 4:
                continue
            if key == "requires":
                _requires(inner, _installs(table.get("install")), place, findings)
            else:
                waiting.append((inner, depth + 1))
        _python_installs(table.get("install"), place, findings)


def _mapping(value: object) -> Mapping[str, object] | None:
    if isinstance(value, str) and value.lstrip().startswith("{") and len(value) <= 100_000:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, Mapping) else None


def _texts(value: object) -> list[str]:
    listed = [value] if isinstance(value, str) else value if isinstance(value, Sequence) else []
    return [text.strip() for text in listed if isinstance(text, str) and text.strip()][:100]


def _installs(listed: object) -> Mapping[str, str]:
    """Program to the command its author gives for it."""
    commands: dict[str, str] = {}
    for one in listed if isinstance(listed, Sequence) and not isinstance(listed, str) else ():
        if not isinstance(one, Mapping):
            continue
        key, form = _INSTALLERS.get(str(one.get("kind")), ("", ""))
        what = str(one.get(key) or one.get("package") or one.get("formula") or one.get("module") or "")
        if form and _is_word(what):
            for program in _texts(one.get("bins")) or [what.rpartition("/")[2]]:
                commands.setdefault(program, form.format(what))
    return commands


def _python_installs(listed: object, place: str, findings: Findings) -> None:
    for one in listed if isinstance(listed, Sequence) and not isinstance(listed, str) else ():
        if isinstance(one, Mapping) and one.get("kind") == "pip" and not one.get("bins"):
            for text in _texts(one.get("package") or one.get("packages")):
                python_requirement(text, place, findings)


def _is_word(text: str) -> bool:
    return re.fullmatch(r"[@\w][\w@./+:=~-]{0,199}", text) is not None


def _requires(requires: Mapping[str, object], installs: Mapping[str, str], place: str, findings: Findings) -> None:
    for program in _texts(requires.get("bins")):
        install = installs.get(program, "")
        findings.add(Finding(NeedKind.PROGRAM, program, place, declared=True, install=install))
    either = _texts(requires.get("anyBins"))
    if either:
        install = next((installs[program] for program in either if program in installs), "")
        findings.add(
            Finding(NeedKind.PROGRAM, either[0], place, declared=True, alternatives=tuple(either[1:]), install=install)
        )
    for name in _texts(requires.get("env")):
        findings.add(Finding(NeedKind.ENVIRONMENT_KEY, name, place, declared=True))
    for key in ("python", "pip", "packages"):
        for text in _texts(requires.get(key)):
            if not re.match(r"[\d<>=~]", text):
                python_requirement(text, place, findings)


# Install lines in shell code: pip, uv, npm, npx, apt and brew.

_INSTALL = re.compile(
    r"\b(?:pip3?|pipx|uv|uvx|npm|npx|pnpm|yarn|bun|bunx|apt|apt-get|brew|python3?(?:\.\d+)? -m pip)\s+[^\n;|&)]{1,400}"
)
_WITH_VALUE = word_set(
    """
    -i --index-url --extra-index-url -f --find-links -t --target --python -p --prefix --registry --python-version -r
    --requirement -c --constraint -e --editable --timeout --retries --from --with --spec
    """
)


def install_lines(code: SkillText, findings: Findings) -> None:
    """Read the install lines of shell code, or of text that quotes them."""
    for number, line in enumerate(code.text.split("\n"), 1):
        if len(line) > 2_000 or line.lstrip().startswith("#"):
            continue
        for found in _INSTALL.finditer(line):
            words = _words(found[0].split(" #", 1)[0])
            _install_line(words, code.place(number), findings)


def named_in_install_lines(text: str) -> frozenset[str]:
    """The distributions that install lines in a text name, such as ``pip install bm25s``, as an index spells them."""
    found = Findings()
    install_lines(SkillText("", text), found)
    return frozenset(
        canonicalize_name(one.name.partition("[")[0]) for one in found.found if one.kind is NeedKind.PYTHON_PACKAGE
    )


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.replace('"', " ").replace("'", " ").split()


def _install_line(words: Sequence[str], place: str, findings: Findings) -> None:
    program, rest = words[0], list(words[1:])
    if program.startswith("python") and rest[:2] == ["-m", "pip"]:
        program, rest = "pip", rest[2:]
    if program == "uv" and rest[:1] == ["pip"]:
        program, rest = "pip", rest[1:]
    if program in {"pip", "pip3"} and rest[:1] == ["install"]:
        _python_names(_arguments(rest[1:]), place, findings)
    elif program in {"uvx", "pipx"} or (program == "uv" and rest[:1] == ["tool"]):
        _tool(program, rest, place, findings)
    elif program == "uv" and rest[:1] in (["run"], ["add"]):
        if rest[0] == "add":
            _python_names(_arguments(rest[1:]), place, findings)
        _python_names(_values(rest, "--with"), place, findings)
    elif program in {"npm", "pnpm", "yarn", "bun"} and rest[:1] in (["install"], ["i"], ["add"]):
        _node_names(_arguments(rest[1:]), place, findings)
    elif program in {"npx", "bunx"}:
        _node_names(_arguments(rest)[:1], place, findings)
    elif program in {"apt", "apt-get", "brew"} and "install" in rest:
        for name in _arguments(rest[rest.index("install") + 1 :]):
            if _is_word(name) and not _PLACEHOLDER.match(name):
                install = f"{program} install {name}"
                brought = programs_of(name) or (name,)
                findings.add(
                    Finding(
                        NeedKind.PROGRAM,
                        brought[0],
                        place,
                        declared=True,
                        optional=True,
                        install=install,
                        alternatives=brought[1:],
                    )
                )


def _tool(program: str, rest: Sequence[str], place: str, findings: Findings) -> None:
    """A program of a package: ``uvx ruff check``, ``uv tool install pyright``, ``pipx run black .``."""
    words = rest[1:] if rest[:1] == ["tool"] else rest
    if program != "uvx":
        if words[:1] not in (["run"], ["install"]):
            return
        words = words[1:]
    _python_names(_values(words, "--with"), place, findings)
    sources = _values(words, "--from")
    names = sources or [re.sub(r"@[\w.]+$", "", name) for name in _arguments(words)[:1]]
    _python_names(names, place, findings)


def _arguments(words: Iterable[str]) -> list[str]:
    """The words that are no options and no values of options."""
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in _WITH_VALUE
        else:
            found.append(word.strip(",`"))
    return found[:50]


def _values(words: Sequence[str], option: str) -> list[str]:
    values = [after for word, after in itertools.pairwise(words) if word == option]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    return [part for value in values for part in value.split(",")]


def _python_names(names: Iterable[str], place: str, findings: Findings) -> None:
    for text in names:
        if "/" in text or text.startswith((".", "$", "<", "{")) or text.endswith((".txt", ".whl", ".toml", ".gz")):
            continue
        try:
            requirement = Requirement(text)
        except (InvalidRequirement, RecursionError):
            return  # prose behind the command, not names of packages
        if not _PLACEHOLDER.match(requirement.name):
            python_requirement(text, place, findings)


def _node_names(names: Iterable[str], place: str, findings: Findings) -> None:
    for text in names:
        found = re.fullmatch(r"(@[\w.-]+/[\w.-]+|[\w][\w.-]*)(?:@([\w.^~<>=*-]+))?", text)
        if found is None:
            return
        if not _PLACEHOLDER.match(found[1]) and not PurePosixPath(found[1]).suffix.startswith((".js", ".ts", ".tgz")):
            spec = found[2] or ""
            findings.add(Finding(NeedKind.NODE_PACKAGE, found[1], place, spec, declared=True))
