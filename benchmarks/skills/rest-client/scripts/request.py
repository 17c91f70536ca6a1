#!/usr/bin/env python3
"""Build an HTTP request for a JSON API, and send it unless --dry-run. JSON on stdout."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
SAFE_TO_REPEAT = ("GET", "HEAD", "PUT", "DELETE")
TEMPORARY = (429, 503)
SHOWN_BYTES = 100_000
LONGEST_WAIT = 60.0
SECRET = ("authorization", "cookie", "x-api-key", "proxy-authorization")


class Problem(Exception):
    """Something the caller can put right."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer: following it could carry the token to another host."""

    def redirect_request(self, *_: object) -> None:
        return None


def build(options: argparse.Namespace) -> urllib.request.Request:
    parts = urlsplit(options.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Problem(f"--url {options.url!r}: give a complete http or https address.")
    if parts.username or parts.password:
        raise Problem("The address holds a password. Use --bearer-env instead.")
    query = parse_qsl(parts.query, keep_blank_values=True) + [pair(text, "=", "--query") for text in options.query]
    url = urlunsplit(
        (parts.scheme, parts.netloc, quote(parts.path or "/", safe="/%:@!$&'()*+,;=~"), urlencode(query), "")
    )
    headers = {"Accept": "application/json"} | dict(pair(text, ":", "--header") for text in options.header)
    data = None
    if options.json is not None:
        if options.method in ("GET", "HEAD"):
            raise Problem(f"A {options.method} request has no body. Use --query, or another --method.")
        try:
            data = json.dumps(json.loads(options.json)).encode()
        except ValueError as error:
            raise Problem(f"--json is not JSON: {error}.") from None
        headers.setdefault("Content-Type", "application/json")
    if options.bearer_env:
        token = os.environ.get(options.bearer_env)
        if not token and not options.dry_run:
            raise Problem(f"The variable {options.bearer_env} is not set. Grant it to this script.")
        headers["Authorization"] = f"Bearer {token or '(from ' + options.bearer_env + ')'}"
    return urllib.request.Request(url, data=data, headers=headers, method=options.method)


def pair(text: str, sign: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition(sign)
    if not found or not name.strip() or "\n" in text or "\r" in text:
        raise Problem(f"{option} {text!r}: write NAME{sign}VALUE.")
    return name.strip(), value.strip()


def shown(request: urllib.request.Request) -> dict[str, object]:
    headers = {name: "[hidden]" if name.lower() in SECRET else value for name, value in request.header_items()}
    body = json.loads(request.data) if isinstance(request.data, bytes) else None
    return {"method": request.get_method(), "url": request.full_url, "headers": headers, "body": body}


def wait_of(text: str | None, tried: int) -> float:
    if text and text.strip().isdigit():
        return float(text)
    if text:
        try:
            return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
        except ValueError:
            pass
    return float(2**tried)


def send(request: urllib.request.Request, options: argparse.Namespace) -> dict[str, object]:
    opener = urllib.request.build_opener(NoRedirect)
    tried = 0
    while True:
        tried += 1
        try:
            with opener.open(request, timeout=options.timeout) as answer:
                return response(answer.status, answer.headers, answer.read(SHOWN_BYTES + 1), tried)
        except urllib.error.HTTPError as error:
            repeat = error.code in TEMPORARY and request.get_method() in SAFE_TO_REPEAT
            wait = wait_of(error.headers.get("Retry-After"), tried)
            if not repeat or tried > options.retries or wait > LONGEST_WAIT:
                return response(error.code, error.headers, error.read(SHOWN_BYTES + 1), tried)
            time.sleep(wait)
        except (urllib.error.URLError, TimeoutError, OSError) as error:
            host = urlsplit(request.full_url).hostname
            raise Problem(f"{host} cannot be reached: {getattr(error, 'reason', error)}. Is there a network?") from None


def response(status: int, headers: object, data: bytes, tried: int) -> dict[str, object]:
    text = data[:SHOWN_BYTES].decode(errors="replace")
    try:
        body: object = json.loads(text)
    except ValueError:
        body = text
    names = ("Content-Type", "Link", "Location", "Retry-After", "ETag")
    kept = {name: headers.get(name) for name in names if headers.get(name)}  # type: ignore[attr-defined]
    return {"status": status, "headers": kept, "body": body, "cut": len(data) > SHOWN_BYTES, "tries": tried}


def main() -> int:
    parser = argparse.ArgumentParser(description="Build and send an HTTP request.", allow_abbrev=False)
    parser.add_argument("--url", required=True)
    parser.add_argument("--method", choices=METHODS, default="GET", type=str.upper)
    parser.add_argument("--query", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--header", action="append", default=[], metavar="NAME:VALUE")
    parser.add_argument("--json", metavar="JSON", help="the body")
    parser.add_argument("--bearer-env", metavar="VARIABLE", help="variable that holds the token")
    parser.add_argument("--timeout", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--retries", type=int, default=2, metavar="N")
    parser.add_argument("--dry-run", action="store_true", help="print the request, send nothing")
    options = parser.parse_args()
    try:
        request = build(options)
        result = {"sent": False, "request": shown(request)} if options.dry_run else send(request, options)
    except Problem as error:
        print(f"request.py: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
