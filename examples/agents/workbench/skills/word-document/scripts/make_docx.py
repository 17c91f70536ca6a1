#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["python-docx>=1.1"]
# ///
"""Make a Word document of a Markdown file: headings, paragraphs, lists, tables and pictures."""

import argparse
import re
import sys
from pathlib import Path

from docx import Document
from docx.shared import Inches

PICTURE = re.compile(r"^!\[(.*)\]\((.+)\)$")
BOLD = re.compile(r"\*\*(.+?)\*\*")


def add_text(paragraph, text):
    """Text with **bold** parts."""
    for number, part in enumerate(BOLD.split(text)):
        paragraph.add_run(part).bold = number % 2 == 1


def add_table(document, lines):
    """A table of lines with bars; the line of dashes is left out."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    rows = [row for row in rows if not all(set(cell) <= set("-: ") and cell for cell in row)]
    table = document.add_table(rows=0, cols=max(map(len, rows)), style="Table Grid")
    for row in rows:
        for cell, text in zip(table.add_row().cells, row, strict=False):
            add_text(cell.paragraphs[0], text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--output", type=Path, default=Path("document.docx"))
    given = parser.parse_args()
    lines = given.file.read_text(encoding="utf-8").splitlines()
    document, at, missing = Document(), 0, []
    while at < len(lines):
        line = lines[at].rstrip()
        at += 1
        picture = PICTURE.match(line.strip())
        if not line.strip():
            continue
        if picture and not Path(picture[2]).is_file():
            missing.append(picture[2])
        elif picture:
            document.add_picture(picture[2], width=Inches(6))
            document.add_paragraph(picture[1], style="Caption")
        elif line.startswith("#"):
            marks = len(line) - len(line.lstrip("#"))
            document.add_heading(line[marks:].strip(), level=min(marks, 9))
        elif line.lstrip().startswith(("- ", "* ")):
            add_text(document.add_paragraph(style="List Bullet"), line.lstrip()[2:])
        elif line.startswith("|"):
            start = at - 1
            while at < len(lines) and lines[at].startswith("|"):
                at += 1
            add_table(document, lines[start:at])
        else:
            add_text(document.add_paragraph(), line)
    document.save(given.output)
    print(f"{given.output}: {given.output.stat().st_size:,} bytes")
    if missing:
        sys.exit(f"These pictures are not there and were left out: {', '.join(missing)}")


if __name__ == "__main__":
    main()
