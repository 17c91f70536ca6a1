"""What an entry of a scanned folder is, when a link may be broken or go in a circle."""

from __future__ import annotations

import os


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder or leads to one."""
    try:
        return entry.is_dir()
    except OSError:
        return False  # a loop of links: reading it says so


def leads_to_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file or leads to one."""
    try:
        return entry.is_file()
    except OSError:
        return False  # a loop of links, or no permission: looked at, and reported, when it is visited
