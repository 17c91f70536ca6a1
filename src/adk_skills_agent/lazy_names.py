"""Public names of a package that are imported when somebody uses them, so that nobody pays for the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def names_on_first_use(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], object], list[str]]:
    """The ``__getattr__`` and the ``__all__`` of a package.

    ``package`` is its ``__name__``; ``names`` maps each module of it to the names that it has, with spaces between;
    ``name=alias`` for another one. A name is imported and kept in the package when it is asked for; any other is an
    AttributeError.
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

    return get, sorted(place_of)
