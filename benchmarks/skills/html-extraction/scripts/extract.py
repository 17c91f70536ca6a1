#!/usr/bin/env python3
"""Take data out of an HTML page: tables, links, headings, metadata, text. JSON on stdout."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

SILENT = {"script", "style", "template", "noscript"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
BLOCKS = {"p", "div", "li", "ul", "ol", "section", "article", "header", "footer", "main", "nav", "tr", "table"}
HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
MOST_SPAN = 1_000


class Problem(Exception):
    """Something the caller can put right."""


def clean(pieces: list[str]) -> str:
    return " ".join("".join(pieces).split())


class Table:
    """A table while it is read: rows of (text, is a heading, colspan, rowspan)."""

    def __init__(self) -> None:
        self.caption = ""
        self.rows: list[list[tuple[str, bool, int, int]]] = []
        self.in_head: list[bool] = []

    def grid(self) -> dict[str, object]:
        taken: dict[tuple[int, int], tuple[str, bool]] = {}
        for y, row in enumerate(self.rows):
            x = 0
            for text, heading, wide, high in row:
                while (y, x) in taken:
                    x += 1
                for down in range(min(high, len(self.rows) - y)):
                    for right in range(wide):
                        taken.setdefault((y + down, x + right), (text, heading))
                x += wide
        width = 1 + max((x for _, x in taken), default=-1)
        lines = [[taken.get((y, x), ("", False)) for x in range(width)] for y in range(len(self.rows))]
        first_is_head = bool(lines) and (self.in_head[0] or all(heading for _, heading in lines[0]))
        names = [text for text, _ in lines[0]] if first_is_head else [f"column {n + 1}" for n in range(width)]
        rows = [[text for text, _ in line] for line in lines[first_is_head:]]
        return {"caption": self.caption, "columns": names, "rows": rows}


class Page(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.base = base
        self.tables: list[Table] = []
        self.links: list[dict[str, str]] = []
        self.headings: list[dict[str, object]] = []
        self.meta: dict[str, str] = {}
        self.paragraphs: list[str] = []
        self._open_tables: list[Table] = []
        self._text: list[str] = []
        self._silent: list[str] = []
        self._head_depth = 0
        self._takers: list[tuple[str, list[str], dict[str, str]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        hidden = "hidden" in values or "display:none" in values.get("style", "").replace(" ", "").lower()
        if self._silent or ((tag in SILENT or hidden) and tag not in VOID):
            if tag not in VOID:
                self._silent.append(tag)
            return
        if tag in BLOCKS | HEADINGS:
            self._paragraph()
        if tag == "br":
            self.handle_data(" ")
        elif tag == "html" and values.get("lang"):
            self.meta["language"] = values["lang"]
        elif tag == "meta" and values.get("name", "").lower() in ("description", "author", "keywords"):
            self.meta[values["name"].lower()] = values.get("content", "")
        elif tag == "link" and "canonical" in values.get("rel", "").lower().split():
            self.meta["canonical"] = urljoin(self.base, values.get("href", ""))
        elif tag == "table":
            self._open_tables.append(Table())
            self.tables.append(self._open_tables[-1])
        elif tag == "thead":
            self._head_depth += 1
        elif tag == "tr" and self._open_tables:
            self._end_cell()
            self._open_tables[-1].rows.append([])
            self._open_tables[-1].in_head.append(self._head_depth > 0)
        if tag in ("td", "th"):
            self._end_cell()
        if tag in ("td", "th", "caption", "title", "a") or tag in HEADINGS:
            self._takers.append((tag, [], values))

    def handle_endtag(self, tag: str) -> None:
        if self._silent:
            if tag in self._silent:
                while self._silent and self._silent.pop() != tag:
                    pass
            return
        if tag in ("td", "th", "caption", "title", "a") or tag in HEADINGS:
            self._finish(tag)
        elif tag in ("tr", "table"):
            self._end_cell()
        if tag == "thead":
            self._head_depth = max(self._head_depth - 1, 0)
        if tag == "table" and self._open_tables:
            self._open_tables.pop()
        if tag in BLOCKS | HEADINGS:
            self._paragraph()

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        for _, pieces, _ in reversed(self._takers):
            pieces.append(data)
        if not any(tag == "title" for tag, _, _ in self._takers):
            self._text.append(data)

    def close(self) -> None:
        super().close()
        for tag, _, _ in reversed(self._takers[:]):
            self._finish(tag)
        self._paragraph()

    def _paragraph(self) -> None:
        if text := clean(self._text):
            self.paragraphs.append(text)
        self._text = []

    def _end_cell(self) -> None:
        """A cell may end without its tag."""
        for tag, _, _ in reversed(self._takers):
            if tag in ("td", "th"):
                self._finish(tag)
                return
            if tag == "caption":
                return

    def _finish(self, tag: str) -> None:
        for number in range(len(self._takers) - 1, -1, -1):
            if self._takers[number][0] == tag:
                break
        else:
            return
        _, pieces, values = self._takers.pop(number)
        text = clean(pieces)
        if tag == "a" and values.get("href"):
            self.links.append({"text": text, "href": urljoin(self.base, values["href"])})
        elif tag == "title":
            self.meta.setdefault("title", text)
        elif tag in HEADINGS:
            self.headings.append({"level": int(tag[1]), "text": text})
        elif tag == "caption" and self._open_tables:
            self._open_tables[-1].caption = text
        elif tag in ("td", "th") and self._open_tables:
            table = self._open_tables[-1]
            if not table.rows:
                table.rows.append([])
                table.in_head.append(self._head_depth > 0)
            table.rows[-1].append((text, tag == "th", span(values, "colspan"), span(values, "rowspan")))


def span(values: dict[str, str], name: str) -> int:
    text = values.get(name, "1").strip()
    return min(max(int(text), 1), MOST_SPAN) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def extract(html: str, options: argparse.Namespace) -> object:
    page = Page(options.base_url)
    page.feed(html)
    page.close()
    if options.what != "tables":
        return {"links": page.links, "headings": page.headings, "meta": page.meta, "text": page.paragraphs}[
            options.what
        ]
    tables = [table.grid() for table in page.tables]
    if options.table is not None:
        if not 1 <= options.table <= len(tables):
            raise Problem(f"--table {options.table}: the page has {len(tables)} tables.")
        tables = [tables[options.table - 1]]
    if options.csv:
        if len(tables) != 1:
            raise Problem(f"--csv needs one table; the page has {len(tables)}. Choose one with --table.")
        with Path(options.csv).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(tables[0]["columns"])  # type: ignore[arg-type]
            writer.writerows(tables[0]["rows"])  # type: ignore[arg-type]
    return tables


def main() -> int:
    parser = argparse.ArgumentParser(description="Take data out of an HTML page.", allow_abbrev=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", metavar="PATH", help="the HTML file")
    source.add_argument("--text", help="the HTML itself")
    parser.add_argument("--what", choices=("tables", "links", "headings", "meta", "text"), default="tables")
    parser.add_argument("--table", type=int, metavar="N", help="only the n-th table, from 1")
    parser.add_argument("--base-url", default="", metavar="URL", help="makes links absolute")
    parser.add_argument("--csv", metavar="PATH", help="write the table as CSV, too")
    options = parser.parse_args()
    try:
        html = options.text if options.text is not None else Path(options.input).read_text(encoding="utf-8-sig")
        found = extract(html, options)
    except (Problem, OSError, UnicodeDecodeError) as error:
        print(f"extract.py: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
