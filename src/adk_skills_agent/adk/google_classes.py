"""Ours are virtual subclasses of google-adk's classes: its optimizer and its analytics ask with ``isinstance``."""

from __future__ import annotations

from collections.abc import Iterable

from google.adk.tools import skill_toolset as theirs


def stand_in_for_theirs(ours: Iterable[type]) -> None:
    """Register each class with google-adk's of the same name; doing it again changes nothing.

    Raises:
        AttributeError: google-adk has no class of that name (any more).
    """
    for own in ours:
        getattr(theirs, own.__name__).register(own)
