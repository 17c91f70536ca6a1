"""Count the words, lines and characters of a text; print JSON."""

import argparse
import collections
import json
import pathlib
import re

parser = argparse.ArgumentParser(description=__doc__)
source = parser.add_mutually_exclusive_group(required=True)
source.add_argument("--text", help="the text itself")
source.add_argument("--file", type=pathlib.Path, help="a UTF-8 file with the text")
parser.add_argument("--top", type=int, default=5, help="how many of the most frequent words to list")
given = parser.parse_args()
try:
    text = given.text if given.file is None else given.file.read_text(encoding="utf-8")
except (OSError, UnicodeDecodeError) as error:
    parser.error(f"{given.file}: {error}")
words = [word.lower() for word in re.findall(r"\w+(?:['’-]\w+)*", text)]
frequent = sorted(collections.Counter(words).items(), key=lambda item: (-item[1], item[0]))
print(
    json.dumps(
        {
            "words": len(words),
            "unique": len(set(words)),
            "lines": len(text.splitlines()),
            "characters": len(text),
            "top": frequent[: max(0, given.top)],
        },
        ensure_ascii=False,
    )
)
