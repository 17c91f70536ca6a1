"""For the reference pages: a docstring's ``:class:`~package.Name``` is shown as ``Name``, and without internal numbers.

An extension of griffe, which reads the docstrings for mkdocstrings; see mkdocs.yml. Our docstrings name things in the
way of Sphinx, which editors understand, and name the requirements and attack rows that they answer, which readers of
the code look for.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:py:)?[a-z]+:`(?:[^`<]*<)?(?P<short>~?)(?P<name>[^`>]+)>?`")


_ID = r"(?:S\d-\d+|C\d+)"
_IDS = re.compile(
    rf"\s*\((?:{_ID}(?: to {_ID})?(?:, )?)+\)|\s*\((?:attack rows?|SANDBOX\.md) [\d to,.]+\)|, {_ID}(?=\))"
)


class Roles(griffe.Extension):
    """Rewrites every docstring: its roles, and the numbers of requirements and attack rows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite those of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(_shown, _IDS.sub("", obj.docstring.value))


def _shown(role: re.Match[str]) -> str:
    name = role["name"].lstrip(".")
    return f"`{name.rpartition('.')[2] if role['short'] else name}`"
