#!/usr/bin/env python3
"""Write a module and a test file for a function from its signature and examples. JSON on stdout."""

from __future__ import annotations

import argparse
import ast
import json
import keyword
import sys
from pathlib import Path


class Problem(Exception):
    """Something the caller can put right."""


Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(signature: str) -> Function:
    try:
        tree = ast.parse(signature.strip().rstrip(":") + ":\n    raise NotImplementedError\n")
    except SyntaxError as error:
        raise Problem(f"--signature cannot be read: {error.msg}. Write 'def name(a: int) -> str'.") from None
    function = tree.body[0] if len(tree.body) == 1 else None
    if not isinstance(function, Function):
        raise Problem("--signature must be one function: 'def name(a: int) -> str'.")
    return function


def parameters(function: Function) -> list[dict[str, object]]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    found = list(zip(positional, defaults, strict=True))
    found += [(arguments.vararg, None)] if arguments.vararg else []
    found += list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    found += [(arguments.kwarg, None)] if arguments.kwarg else []
    return [
        {
            "name": one.arg,
            "type": ast.unparse(one.annotation) if one.annotation else None,
            "default": ast.unparse(default) if default is not None else None,
        }
        for one, default in found
    ]


def docstring(summary: str, of: list[dict[str, object]], returns: str | None, raises: list[tuple[str, str]]) -> str:
    lines = [f'"""{summary}']
    if of:
        lines += ["", "Args:"]
        for one in of:
            default = f", default {one['default']}" if one["default"] is not None else ""
            lines.append(f"    {one['name']}: ({one['type'] or 'any'}{default})")
    if returns not in (None, "None"):
        lines += ["", "Returns:", f"    {returns}"]
    if raises:
        lines += ["", "Raises:", *[f"    {name}: for ``{call}``" for call, name in raises]]
    text = "\n".join([*lines, '"""']) if len(lines) > 1 else f'"""{summary}"""'
    return "\n".join(f"    {line}".rstrip() for line in text.split("\n"))


def expression(text: str, option: str) -> str:
    try:
        return ast.unparse(ast.parse(text, mode="eval"))
    except SyntaxError as error:
        raise Problem(f"{option} {text!r} is no Python expression: {error.msg}.") from None


def scaffold(options: argparse.Namespace) -> dict[str, object]:
    function = parsed(options.signature)
    name = function.name
    if keyword.issoftkeyword(name) or name.startswith("test_"):
        raise Problem(f"{name!r} is no name for a function to test. Choose another.")
    summary = " ".join(options.summary.replace('"""', "'''").replace("\\", "\\\\").split())
    raises = []
    for text in options.raises:
        call, _, error = text.strip().rpartition(" ")
        if not error.isidentifier() or not call:
            raise Problem(f"--raises {text!r}: write a call, a space and the error: \"parse('') ValueError\".")
        raises.append((expression(call, "--raises"), error))
    head = ast.unparse(function).split("\n    raise NotImplementedError")[0]
    of = parameters(function)
    returns = ast.unparse(function.returns) if function.returns else None
    module = f'"""{summary or name}"""\n\n\n{head}\n' + docstring(summary or f"{name}.", of, returns, raises)
    module += "\n    raise NotImplementedError\n"
    asynchronous = isinstance(function, ast.AsyncFunctionDef)
    tests = ["import asyncio\n"] if asynchronous else []
    tests += ["import pytest\n"] if raises else []
    tests.append(f"from {name} import {name}\n")
    wrap = (lambda call: f"asyncio.run({call})") if asynchronous else (lambda call: call)
    for number, text in enumerate(options.example, 1):
        tree = ast.parse(expression(text, "--example"), mode="eval").body
        if asynchronous and isinstance(tree, ast.Compare):
            tree.left = ast.parse(wrap(ast.unparse(tree.left)), mode="eval").body
        tests.append(f"\ndef test_example_{number}():\n    assert {ast.unparse(tree)}\n")
    for number, (call, error) in enumerate(raises, 1):
        tests.append(f"\ndef test_error_{number}():\n    with pytest.raises({error}):\n        {wrap(call)}\n")
    files = {f"{name}.py": module, f"test_{name}.py": "\n".join(tests)}
    for file, text in files.items():
        compile(text, file, "exec")
        if Path(file).exists() and not options.overwrite:
            raise Problem(f"{file} is there already. Give --overwrite, or another name.")
    for file, text in files.items():
        Path(file).write_text(text, encoding="utf-8")
    missing = [f"a type for {one['name']}" for one in of if one["type"] is None and one["name"] not in ("self", "cls")]
    missing += ["a return type"] if returns is None else []
    missing += ["a summary"] if not summary else []
    missing += ["an example"] if not options.example else []
    return {
        "function": name,
        "parameters": of,
        "returns": returns,
        "files": list(files),
        "tests": len(options.example) + len(raises),
        "missing": missing,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Start a function and its tests.", allow_abbrev=False)
    parser.add_argument("--signature", required=True, help='"def name(a: int) -> str"')
    parser.add_argument("--summary", default="", help="what it does, one sentence")
    parser.add_argument("--example", action="append", default=[], metavar="EXPRESSION", help="what must be true")
    parser.add_argument("--raises", action="append", default=[], metavar="CALL_AND_ERROR")
    parser.add_argument("--overwrite", action="store_true")
    options = parser.parse_args()
    try:
        print(json.dumps(scaffold(options)))
    except (Problem, OSError, SyntaxError) as error:
        print(f"scaffold.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
