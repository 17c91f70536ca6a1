"""Public names of a package that are imported when somebody uses them, so that nobody pays for the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def names_on_first_use(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """The ``__getattr__`` of a package.

    Args:
        package: Its ``__name__``.
        names: Module of the package to the names that it has, with spaces between.

    Returns:
        A function that imports the module of a name and keeps the name in the package; it raises AttributeError for
        any other name.
    """
    place_of = {name: module for module, listed in names.items() for name in listed.split()}

    def get(name: str) -> object:
        if name not in place_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{place_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
