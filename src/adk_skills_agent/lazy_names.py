"""Public names of a package that are imported when somebody uses them, so that nobody pays for the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def names_on_first_use(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """The ``__getattr__`` of a package.

    Args:
        package: Its ``__name__``.
        names: Module of the package to the names that it has, with spaces between; ``name=alias`` for another one.

    Returns:
        A function that imports the module of a name and keeps the name in the package; it raises AttributeError for
        any other name.
    """
    place_of = {}
    for module, listed in names.items():
        for name, _, alias in (one.partition("=") for one in listed.split()):
            place_of[alias or name] = (module, name)

    def get(name: str) -> object:
        if name not in place_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = place_of[name]
        value = getattr(import_module(f"{package}.{module}"), original)
        setattr(sys.modules[package], name, value)
        return value

    return get
