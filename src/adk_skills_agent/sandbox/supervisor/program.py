"""The text of the program that serves a sandbox: the modules it consists of, as one argument of Python.

``python -I -c TEXT`` needs no file and no package in the sandbox. The names of its modules are taken out of
``sys.modules`` again before any code of a session runs.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

_PACKAGE = "adk_skills_agent.sandbox.supervisor"
_PARTS = ("frames", "python_program", "files", "script_end", "process", "late", "kernel", "supervisor")

_ALSO_A_PROGRAM = f"{_PACKAGE}.python_program"
"""A command whose text is this one's needs no new interpreter, so it stays as it is."""
_LONG_TEXT = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""', re.DOTALL)
_COMMENT = re.compile("^ *#.*$", re.MULTILINE)
_START = """\
import sys
from types import ModuleType
_made = []
def _module(name, source=None):
    module = sys.modules[name] = ModuleType(name)
    _made.append(name)
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, module)
    if source is not None:
        module.__source__ = source
        exec(compile(source, "<" + name + ">", "exec", dont_inherit=True), module.__dict__)
    return module
"""
_END = f"""\
_main = sys.modules["{_PACKAGE}.supervisor"].main
for _name in _made:
    del sys.modules[_name]
_main()
"""


@functools.lru_cache(maxsize=1)
def program_text() -> str:
    """The program: frames come in on descriptor 0 and go out on descriptor 1."""
    modules = []
    for path, text in module_texts(_PARTS).items():
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        source = text if name == _ALSO_A_PROGRAM else _without_words(text)
        modules.append(f"_module({name!r}, {source!r})" if source else f"_module({name!r})")
    return "\n".join([_START, *modules, _END])


def _without_words(source: str) -> str:
    """A module without what it says to its readers, a fifth of it; its lines keep their numbers."""

    def replaced(found: re.Match[str]) -> str:
        is_docstring = not source[source.rfind("\n", 0, found.start()) + 1 : found.start()].strip()
        return '""' + "\n" * found[0].count("\n") if is_docstring else found[0]

    return _COMMENT.sub("", _LONG_TEXT.sub(replaced, source))


def module_texts(names: tuple[str, ...]) -> dict[str, str]:
    """Modules of this folder by their paths below a folder for imports, with the empty packages above them."""
    folder = Path(__file__).parent
    parents = _PACKAGE.split(".")
    texts = {"/".join((*parents[: at + 1], "__init__.py")): "" for at in range(len(parents))}
    place = _PACKAGE.replace(".", "/")
    return texts | {f"{place}/{name}.py": (folder / f"{name}.py").read_text(encoding="utf-8") for name in names}
