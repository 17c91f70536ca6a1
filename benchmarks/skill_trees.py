"""Trees of skills for measurements: every skill a 5 KB SKILL.md, 3 references, 2 scripts and an asset of 100 KB.

python benchmarks/skill_trees.py FOLDER COUNT
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

SKILL_MD_BYTES = 5_000
DESCRIPTION_CHARACTERS = 286  # the mean of 2,066 real skills
REFERENCE_BYTES = 10_000
ASSET_BYTES = 100_000
_SEED = 20260809

_SUBJECTS = "invoices logs spreadsheets images contracts tickets metrics letters schemas maps".split()  # noqa: SIM905
_VERBS = "Extracts Summarises Converts Checks Compares Plots Cleans Merges Signs Translates".split()  # noqa: SIM905
_WORDS = (  # noqa: SIM905
    "table column header row total date amount customer region order item price report chart filter group sort join "
    "export import validate parse render publish archive review approve reject notify schedule retry timeout limit "
    "model prompt token script folder reference asset example step result error warning output input option default"
).split()


def make_tree(root: str | os.PathLike[str], n: int) -> Path:
    """Write ``n`` skills below ``root`` and return it. The same ``n`` gives the same bytes.

    The asset of 100 KB is one file with many names (hard links, a new one each 1,000), so that 5,000 skills need no
    500 MB of disk; whoever reads it still reads 100 KB a skill. Everything else is a file of its own.
    """
    folder = Path(root)
    folder.mkdir(parents=True, exist_ok=True)
    source = random.Random(_SEED)
    asset: Path | None = None
    for number in range(n):
        skill = folder / f"skill-{number:05d}"
        for name in ("references", "scripts", "assets"):
            (skill / name).mkdir(parents=True)
        (skill / "SKILL.md").write_text(_skill_md(skill.name, number, source), encoding="utf-8")
        for reference in ("guide.md", "examples.md", "troubleshooting.md"):
            (skill / "references" / reference).write_text(_prose(source, REFERENCE_BYTES), encoding="utf-8")
        (skill / "scripts" / "run.py").write_text(f'print("{skill.name}")\n', encoding="utf-8")
        (skill / "scripts" / "check.sh").write_text(f'#!/bin/sh\necho "{skill.name} is fine"\n', encoding="utf-8")
        picture = skill / "assets" / "picture.bin"
        if asset is None or number % 1_000 == 0:
            # not UTF-8, as a picture is not
            picture.write_bytes(b"\x89PNG\xff\xfe" + source.randbytes(ASSET_BYTES - 6))
            asset = picture
        else:
            picture.hardlink_to(asset)
    return folder


def _skill_md(name: str, number: int, source: random.Random) -> str:
    verb = _VERBS[number % len(_VERBS)]
    subject = _SUBJECTS[number // len(_VERBS) % len(_SUBJECTS)]
    head = (
        f"---\nname: {name}\n"
        f"description: {_description(verb, subject, number, source)}\n"
        f'license: Apache-2.0\nmetadata:\n  author: benchmark\n  version: "1.{number % 10}"\n---\n\n'
        f"# {verb} {subject}\n\n## When to use\n\n"
    )
    return head + _prose(source, SKILL_MD_BYTES - len(head))


def _description(verb: str, subject: str, number: int, source: random.Random) -> str:
    text = f"{verb} {subject} with method {number}. Use when the user asks to work on {subject} or mentions "
    while len(text) < DESCRIPTION_CHARACTERS:
        text += f"{source.choice(_WORDS)}, "
    return text.removesuffix(", ") + "."


def _prose(source: random.Random, size: int) -> str:
    lines: list[str] = []
    length = 0
    while length < size:
        line = " ".join(source.choices(_WORDS, k=14)).capitalize() + ".\n"
        lines.append(line)
        length += len(line)
    return "".join(lines)[: size - 1] + "\n"


if __name__ == "__main__":
    print(make_tree(sys.argv[1], int(sys.argv[2])))
