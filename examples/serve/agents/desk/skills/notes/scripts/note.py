"""Add a note, or print the notes."""

import pathlib
import sys

notes = pathlib.Path("notes.txt")
if sys.argv[1:]:
    with notes.open("a", encoding="utf-8") as file:
        file.write(" ".join(sys.argv[1:]) + "\n")
print(notes.read_text(encoding="utf-8") if notes.exists() else "There are no notes.", end="")
