#!/usr/bin/env python3
"""Explain a raw HTTP response: what happened, whether to try again, where the next page is."""

from __future__ import annotations

import argparse
import json
import re
import sys
from datetime import UTC, datetime
from email.parser import Parser
from email.utils import parsedate_to_datetime
from pathlib import Path

STATUS = re.compile(r"HTTP/[\d.]+ (?P<code>[1-5]\d\d)(?: (?P<reason>.*))?")
LINK = re.compile(r"<(?P<url>[^<>]*)>(?P<rest>[^<]*)")
OUTCOMES = {
    202: "accepted", 204: "ok, no body", 301: "moved", 304: "not modified", 308: "moved", 400: "rejected",
    401: "not signed in", 403: "not allowed", 404: "not found", 409: "conflict", 422: "rejected",
    429: "rate limited", 500: "server error", 502: "unavailable", 503: "unavailable", 504: "unavailable",
}  # fmt: skip
WAITS = (429, 502, 503, 504)


def explain(text: str) -> dict[str, object]:
    """What a raw response says.

    Raises:
        ValueError: It does not begin with a status line.
    """
    first, _, rest = text.replace("\r\n", "\n").lstrip("\n").partition("\n")
    match = STATUS.fullmatch(first.strip())
    if match is None:
        raise ValueError(f"The first line is {first[:60]!r}, not a status line such as 'HTTP/1.1 200 OK'.")
    code = int(match["code"])
    head, _, body_text = rest.partition("\n\n")
    headers = Parser().parsestr(head + "\n\n", headersonly=True)
    try:
        body: object = json.loads(body_text)
    except ValueError:
        body = None
    general = {2: "ok", 3: "redirect", 4: "rejected", 5: "server error"}.get(code // 100, "informational")
    return {
        "status": code,
        "outcome": OUTCOMES.get(code, general),
        "try_again": code in WAITS,
        "retry_after_seconds": retry_after(headers["Retry-After"], headers["Date"]),
        "rate_limit_remaining": headers["X-RateLimit-Remaining"] or headers["RateLimit-Remaining"],
        "next": next_page(headers.get_all("Link") or [], body),
        "error": error_of(body) if code >= 400 else None,
        "items": len(body) if isinstance(body, list) else None,
    }


def retry_after(text: str | None, date: str | None) -> float | None:
    if text is None:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return max((parsedate_to_datetime(text) - now).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None


def next_page(links: list[str], body: object) -> str | None:
    for match in LINK.finditer(", ".join(links)):
        if re.search(r';\s*rel="?[^",]*\bnext\b', match["rest"]):
            return match["url"]
    found = body.get("next") if isinstance(body, dict) else None
    return found if isinstance(found, str) else None


def error_of(body: object) -> object:
    if not isinstance(body, dict):
        return None
    return next((body[key] for key in ("error", "errors", "detail", "message", "title") if body.get(key)), None)


def main() -> int:
    parser = argparse.ArgumentParser(description="Explain a raw HTTP response.", allow_abbrev=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", metavar="PATH", help="a file with the response, status line first")
    source.add_argument("--text", help="the response itself")
    options = parser.parse_args()
    try:
        text = options.text if options.text is not None else Path(options.input).read_text(encoding="utf-8")
        print(json.dumps(explain(text), ensure_ascii=False))
    except (ValueError, OSError) as error:
        print(f"explain.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
