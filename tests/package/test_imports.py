"""How the modules of the package import one another; the layers are import-linter's (``pyproject.toml``)."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest
from test_package import modules_after

import adk_skills_agent
from adk_skills_agent import sandbox

ROOT = Path(adk_skills_agent.__file__).parent
MODULES = {
    ".".join(("adk_skills_agent", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): file
    for file in ROOT.rglob("*.py")
}


@functools.cache
def imported_by(name: str) -> frozenset[str]:
    """Modules of the package that one imports when it runs, also in its functions; not for types alone."""
    return frozenset(_imported_by(name))


def _imported_by(name: str) -> Iterator[str]:
    waiting: list[ast.AST] = [ast.parse(MODULES[name].read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting.extend(node.orelse)
        else:  # statements stand in lists, below which no expression has one
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                below = getattr(node, part, None)
                waiting.extend(below if isinstance(below, list) else ())


def circles(imports: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """Groups of modules that reach one another."""

    def reached(first: str) -> set[str]:
        found: set[str] = set()
        waiting = [first]
        while waiting:
            new = imports[waiting.pop()] - found
            found |= new
            waiting.extend(new)
        return found

    reach = {name: reached(name) for name in imports}
    left = set(imports)
    while left:
        first = left.pop()
        circle = {name for name in reach[first] if first in reach[name]} | {first}
        left -= circle
        if len(circle) > 1:
            yield circle


def test_no_circle_of_imports_spans_folders() -> None:
    imports = {name: set(imported_by(name)) - {name} for name in MODULES}
    spanning = [sorted(circle) for circle in circles(imports) if len({MODULES[name].parent for name in circle}) > 1]
    assert spanning == []


def test_a_circle_is_found() -> None:
    assert list(circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == [{"a", "b", "c"}]


def test_no_module_imports_the_init_of_its_own_folder() -> None:
    folders = {name for name, file in MODULES.items() if file.name == "__init__.py"}
    found = [
        (name, other)
        for name in MODULES
        for other in imported_by(name)
        if other in folders - {"adk_skills_agent"} and other == name.rpartition(".")[0]
    ]
    assert found == []


def test_every_name_of_the_sandbox_is_there() -> None:
    for module, listed in sandbox._NAMES.items():
        for name, _, alias in (one.partition("=") for one in listed.split()):
            there = getattr(import_module(f"adk_skills_agent.sandbox.{module}"), name)
            assert getattr(sandbox, alias or name) is there


def test_the_sandbox_says_what_it_has_and_imports_nothing_before_it_is_used() -> None:
    assert len(sandbox.__all__) == sum(len(listed.split()) for listed in sandbox._NAMES.values())
    assert set(sandbox.__all__) <= set(dir(sandbox))
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_that_name'"):
        _ = sandbox.nothing_of_that_name
    loaded = {name for name in modules_after("import adk_skills_agent.sandbox") if name.startswith("adk_skills_agent")}
    assert loaded == {"adk_skills_agent", "adk_skills_agent.lazy_names", "adk_skills_agent.sandbox"}
