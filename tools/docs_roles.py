"""For the reference pages: a docstring's ``:class:`~package.Name``` is shown as ``Name``.

An extension of griffe, which reads the docstrings for mkdocstrings; see mkdocs.yml. Our docstrings name things in the
way of Sphinx, which editors understand.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:py:)?[a-z]+:`(?:[^`<]*<)?(?P<short>~?)(?P<name>[^`>]+)>?`")


class Roles(griffe.Extension):
    """Rewrites the roles of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite those of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(_shown, obj.docstring.value)


def _shown(role: re.Match[str]) -> str:
    name = role["name"].lstrip(".")
    return f"`{name.rpartition('.')[2] if role['short'] else name}`"
