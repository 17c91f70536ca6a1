"""The shell of every HTML page we write: one file, nothing fetched, light and dark, and no code but its own."""

from __future__ import annotations

import base64
import hashlib
from html import escape

BASE_STYLE = """
:root { color-scheme: light dark; --bar: #1a73e8; --bad: #d93025; --good: #188038; --soft: #5f6368; }
@media (prefers-color-scheme: dark) { :root { --bar: #8ab4f8; --bad: #f28b82; --good: #81c995; --soft: #9aa0a6; } }
* { box-sizing: border-box; }
body { font: 1rem/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; } .note { color: var(--soft); font-size: .875rem; }
.bar { margin: .4rem 0; } .bar div { display: flex; gap: 1rem; justify-content: space-between; font-size: .875rem; }
.bar span:first-child { overflow-wrap: anywhere; } .bar span:last-child { white-space: nowrap; }
svg { display: block; height: .75rem; width: 100%; } rect.ok { fill: var(--bar); } rect.bad { fill: var(--bad); }
rect.soft { fill: var(--bar); opacity: .35; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .875rem; width: 100%; }
th, td { border-bottom: 1px solid color-mix(in srgb, var(--soft) 40%, transparent); padding: .35rem .5rem; }
th, td { text-align: right; white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
td:last-child, th:last-child { text-align: left; white-space: normal; }
"""
"""What our pages have in common."""


def html_page(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """A whole page.

    The page's policy names its style and its script by their hashes: whatever else got into the page as code would not
    run, and nothing is fetched or sent.

    Args:
        title: Plain text.
        body: HTML; what is a stranger's is escaped in it.
        style: Added to the base style.
        script: Run after the body is there; empty for none.
    """
    whole_style = BASE_STYLE + style
    policy = [
        "default-src 'none'", f"style-src {_hash(whole_style)}", *([f"script-src {_hash(script)}"] if script else []),
        "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{inline(title)}</title><style>{whole_style}</style></head><body>\n{body}"
        f"{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


def inline(text: str) -> str:
    """A stranger's text within HTML: on one line, escaped, without characters that turn the direction of what follows
    or cannot be seen.
    """
    return escape("".join(char if char.isprintable() else " " for char in " ".join(text.split())))


def _hash(code: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"
