"""Check a plan of tools: names, descriptions and schemas. Prints JSON; exit code 1 when something is wrong."""

import argparse
import json
import pathlib
import re
import sys

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--file", type=pathlib.Path, required=True, help="JSON: a list of tools as the protocol has them")
given = parser.parse_args()
try:
    tools = json.loads(given.file.read_text(encoding="utf-8"))
except (OSError, ValueError) as error:
    parser.error(f"{given.file}: {error}")
if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
    parser.error(f"{given.file}: a list of objects is expected")

problems = []
seen = set()
for number, tool in enumerate(tools, start=1):
    name = str(tool.get("name", ""))
    where = name or f"tool {number}"
    if not NAME.fullmatch(name):
        problems.append(f"{where}: the name must be service_verb_object in lower case")
    if name in seen:
        problems.append(f"{where}: the name is used twice")
    seen.add(name)
    if len(str(tool.get("description", ""))) < 20:
        problems.append(f"{where}: the description is too short to choose the tool by")
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        problems.append(f"{where}: inputSchema must be a schema of an object")
        continue
    for field, detail in schema.get("properties", {}).items():
        if not isinstance(detail, dict) or not detail.get("description"):
            problems.append(f"{where}: {field} has no description")
print(json.dumps({"tools": len(tools), "problems": problems}, indent=2))
sys.exit(1 if problems else 0)
