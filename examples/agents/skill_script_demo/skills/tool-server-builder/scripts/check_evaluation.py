"""Check a file of evaluation questions. Prints JSON; exit code 1 when something is wrong."""

import argparse
import json
import pathlib
import sys
from xml.etree import ElementTree as ET

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--file", type=pathlib.Path, required=True, help="the XML file")
parser.add_argument("--at-least", type=int, default=10, help="how many questions there must be")
given = parser.parse_args()
try:
    text = given.file.read_text(encoding="utf-8")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        parser.error(f"{given.file}: declarations are not needed here and are refused")
    root = ET.fromstring(text)  # noqa: S314  # declarations were refused above
except (OSError, ValueError, ET.ParseError) as error:
    parser.error(f"{given.file}: {error}")

problems = []
questions = [(pair.findtext("question") or "", pair.findtext("answer") or "") for pair in root.iter("qa_pair")]
if len(questions) < given.at_least:
    problems.append(f"{len(questions)} questions, at least {given.at_least} are wanted")
for number, (question, answer) in enumerate(questions, start=1):
    if len(question.split()) < 6:
        problems.append(f"question {number}: too short to need several calls")
    if not answer.strip():
        problems.append(f"question {number}: has no answer")
    if len(answer.split()) > 12:
        problems.append(f"question {number}: the answer is too long to be certain")
print(json.dumps({"questions": len(questions), "problems": problems}, indent=2))
sys.exit(1 if problems else 0)
