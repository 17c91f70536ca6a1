"""How paths are compared and shown."""

from __future__ import annotations


def is_inside(path: str, folder: str) -> bool:
    """Whether an absolute path is a folder or lies below it; both without links and without ``..``."""
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")


def shown(path: str) -> str:
    """A path as it can be printed on one line: control characters and undecodable bytes as escapes."""
    if path.isascii() and path.isprintable():
        return path
    text = path.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
