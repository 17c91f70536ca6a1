"""Check a JSON text and format it; print JSON."""

import argparse
import json
import pathlib

KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}

parser = argparse.ArgumentParser(description=__doc__)
source = parser.add_mutually_exclusive_group(required=True)
source.add_argument("--text", help="the JSON itself")
source.add_argument("--file", type=pathlib.Path, help="a UTF-8 file with the JSON")
parser.add_argument("--indent", type=int, default=2, help="spaces per level")
parser.add_argument("--sort-keys", action="store_true", help="order the keys of objects")
given = parser.parse_args()
try:
    text = given.text if given.file is None else given.file.read_text(encoding="utf-8")
except (OSError, UnicodeDecodeError) as error:
    parser.error(f"{given.file}: {error}")
try:
    value = json.loads(text)
except json.JSONDecodeError as error:
    answer = {"valid": False, "line": error.lineno, "column": error.colno, "problem": error.msg}
else:
    answer = {
        "valid": True,
        "kind": KINDS.get(type(value), "number"),
        "items": len(value) if isinstance(value, (dict, list)) else 1,
        "formatted": json.dumps(value, indent=given.indent, sort_keys=given.sort_keys, ensure_ascii=False),
    }
print(json.dumps(answer, ensure_ascii=False))
