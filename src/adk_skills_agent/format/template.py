"""A new skill to start from: complete, valid and runnable (S4-14)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Literal

from adk_skills_agent.errors import FormatError, ValidationError
from adk_skills_agent.format.models import normalise_name
from adk_skills_agent.format.validator import validate_metadata


def create_skill_template(
    output_dir: str | os.PathLike[str],
    name: str,
    *,
    description: str | None = None,
    script: Literal["python", "bash"] | None = "python",
) -> Path:
    """Write a new skill folder: SKILL.md, a script named after the skill, a reference, and eval cases to start from.

    It appears complete or not at all.

    Args:
        output_dir: Where the folder goes; made when absent.
        name: The skill's name, valid as the specification has it; also the folder's name.
        description: What the skill does and when to use it; None writes one to replace.
        script: The language of the sample script; None writes none.

    Returns:
        The new folder.

    Raises:
        ValidationError: The name or description is not valid, ``script`` is unknown, or the folder exists already.
        FormatError: The folder cannot be written.
    """
    if script not in ("python", "bash", None):
        raise ValidationError(f"There is no {script!r} script template; choose 'python', 'bash' or None.")
    if description is None:
        description = f"Describe what {name} does. Use when a task mentions the things it is for."
    if not description.isprintable():
        raise ValidationError("The description holds a line break, a control character or invalid Unicode. Remove it.")
    target = Path(output_dir).expanduser() / name
    errors = validate_metadata({"name": name, "description": description}, target)
    if errors:
        said = "; ".join(error.rstrip(".") for error in errors)
        near = normalise_name(name)
        hint = f" Call it {near}." if near and near != name else ""
        raise ValidationError(f"Cannot create skill {name!r}: {said}.{hint}", errors)
    if os.path.lexists(target):
        raise ValidationError(f"{target} exists already; choose another name or remove it.")
    aside: Path | None = None
    made: list[Path] = []
    try:
        made = [path for path in (target.parent, *target.parent.parents) if not os.path.lexists(path)]
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{name[:32]}.{os.getpid()}.{os.urandom(4).hex()}.new")
        aside.mkdir()
        for path, content, executable in template_files(name, description, script):
            file = aside / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8", newline="\n")
            if executable:
                file.chmod(file.stat().st_mode | 0o111)
        # A rename onto a folder someone made meanwhile fails unless that is empty; nothing is ever overwritten.
        aside.rename(target)
    except OSError as error:
        raise FormatError(f"Cannot create {target}: {error.strerror or error}.") from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
        if not os.path.lexists(target):
            _remove_empty(made)
    return target


def _remove_empty(folders: list[Path]) -> None:
    """Remove the folders that were made for nothing, deepest first."""
    for folder in folders:
        if not os.path.lexists(folder):
            continue  # it was never made
        try:
            folder.rmdir()
        except OSError:
            return  # not empty: someone else uses it by now


# The files of a new skill, as text.

TemplateFile = tuple[str, str, bool]
"""Path relative to the skill, content, whether it is executable."""


def template_files(name: str, description: str, script: str | None) -> list[TemplateFile]:
    """The files of a new skill. Returns Path, content and mode of each file."""
    files: list[TemplateFile] = []
    usage = ""
    call = ""
    if script is not None:
        suffix, content, arguments = _SCRIPTS[script]
        path = f"scripts/{name.replace('-', '_')}{suffix}"
        files.append((path, content.replace("@SCRIPT@", path.rpartition("/")[2]), True))
        usage = _USAGE.format(script=path, arguments=arguments)
        call = _EVAL_CALL.format(name=name, script=path)
    title = " ".join(name.split("-")).title()
    body = _SKILL.format(name=name, description=_quoted(description), title=title, usage=usage)
    return [
        ("SKILL.md", body, False),
        *files,
        ("references/details.md", _REFERENCE.format(title=title), False),
        ("evals/cases.yaml", _EVALS.format(name=name, call=call), False),
        ("evals/notes.txt", _NOTES, False),
    ]


def _quoted(text: str) -> str:
    """The text as a YAML value on one line that every parser reads the same."""
    escaped = text.strip().replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(_ESCAPES.get(char, char) for char in escaped) + '"'


_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}

_SKILL = """\
---
name: {name}
description: {description}
---

# {title}

Say here, step by step, how to do the task. The agent reads this text when it activates the skill, so write it for
a capable colleague who knows nothing of your project. Keep it under 500 lines.

## When to use it

Name the tasks, file types and words that call for this skill. The description above is all the agent sees before it
activates the skill: put the most important of them there too.

## Steps

1. Say what to look at first, and what to ask the user when it is missing.
2. Say what to do, with one short example of input and output.
3. Say how to check the result.
{usage}
## More detail

Read [references/details.md](references/details.md) only when a step needs it; put long tables, formats and background
into files like that one.
"""

_USAGE = """
## Script

Run `{script}` with the arguments `{arguments}`; it prints its result and ends with 0, or says on standard
error what is wrong and ends with another code. Replace it with your own, or remove it.
"""

_REFERENCE = """\
# {title}: details

Background that only some tasks need. One topic a file, linked from SKILL.md, one folder deep.
"""

_PYTHON = '''\
#!/usr/bin/env python3
"""Count the most frequent words of a text file. Standard library only; replace it with your own work."""

import argparse
import collections
import json
import pathlib
import re
import sys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="the text file")
    parser.add_argument("--top", type=int, default=10, help="how many words to print (default: %(default)s)")
    options = parser.parse_args()
    try:
        text = pathlib.Path(options.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        print(f"Cannot read {options.file}: {error}", file=sys.stderr)
        return 1
    words = collections.Counter(re.findall(r"\\w+", text.lower()))
    print(json.dumps(dict(words.most_common(options.top)), ensure_ascii=False, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
'''

_BASH = """\
#!/usr/bin/env bash
# Count the words of a text file. Replace it with your own work.
set -euo pipefail

if [[ "${1:-}" == "--help" ]]; then
  echo "Usage: @SCRIPT@ FILE"
  exit 0
fi
if [[ ! -r "${1:-}" ]]; then
  echo "Cannot read the file '${1:-}'. Usage: @SCRIPT@ FILE" >&2
  exit 1
fi
wc -w < "$1"
"""

_SCRIPTS = {"python": (".py", _PYTHON, '["--top", "5", "notes.txt"]'), "bash": (".sh", _BASH, '["notes.txt"]')}
"""Language to the suffix, the text and the sample arguments of its script."""

# Eval cases are for the author: no agent sees the folder evals/ of a skill that is measured.
_EVALS = """\
# What an agent should do with this skill, and without it. Check the file, then measure (the first command is free):
#   adk-skills eval . --dry-run
#   adk-skills eval . --model gemini-2.5-flash
# Three to ten cases tell something; take real requests, and let a case check what a user would check.
skill: "{name}"
cases:
  # A task. What is expected of the answer is measured with and without the skill: the difference is the lift.
  - id: count-words
    prompt: Count the words of notes.txt and name the most frequent one.
    files: [notes.txt]                 # given to the agent; relative to this file
{call}    answer_contains: ["apple"]         # each of them in the final answer
    rubrics:                           # judged by a model; leave them out with --judge none
      - The answer names the word that occurs most often.
      - The answer says how often that word occurs.

  # Trigger queries: does the description bring the agent to the skill, and only then?
  - id: should-trigger
    prompt: "Replace this with a request for which an agent should use {name}."
    should_trigger: true
  - id: should-not-trigger
    prompt: Write a short poem about the sea.
    should_trigger: false
"""

_EVAL_CALL = """\
    calls:                             # the way there; measured only where the skill is
      - {{name: run_skill_script, args: {{skill_name: "{name}", file_path: "{script}"}}}}
"""

_NOTES = """\
apple pear apple plum
apple pear
"""
