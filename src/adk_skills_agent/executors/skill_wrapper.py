"""Recognise the program google-adk's own SkillToolset, or ours, makes out of a skill's script.

google-adk hands an executor one Python program that unpacks the skill, runs the script and prints what it left, all as
text (``_SkillScriptCodeExecutor`` of google-adk 2.13). No public interface tells that such a program is a skill script,
of which kind, and where its printed data begins, so this is the one place that looks. What is not recognised runs as
any other code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_START = "\n_files = {"
_START_WITHIN = 600
# The program holds the repr of the skill's files and of the model's arguments, in which line ends are escaped. So what
# is looked for has one: neither a script nor an argument can forge it.
_BODY = "\n    os.chdir(td)\n    try:\n"
_END = "\n_materialize_and_run()\n"
_SHELL = ("      try:\n        _r = subprocess.run(\n", "      try:\n        _run = subprocess.run(\n")
_MARKER = re.compile(r"\n +print\('(?:\\n' \+ ')?(__ADK_SKILL_GENERATED_FILES__:[0-9a-f]+:)'")


@dataclass(frozen=True, slots=True)
class SkillWrapper:
    """What is to be known of such a program.

    Attributes:
        shell: It runs a shell script, and prints its output as one line of JSON.
        marker: What the line starts with that holds the script's files; None when they are not wanted.
    """

    shell: bool
    marker: str | None


def recognise(code: str) -> SkillWrapper | None:
    """What kind of skill script ``code`` wraps; None when it is something else."""
    if _START not in code[:_START_WITHIN] or not code.endswith(_END):
        return None
    body = code.rfind(_BODY)
    if body < 0:
        return None
    body += len(_BODY)
    marker = _MARKER.search(code, body)
    # A blank line stands between google-adk's templates.
    return SkillWrapper(
        code[body : body + len(_SHELL[-1]) + 8].lstrip("\n").startswith(_SHELL), marker[1] if marker else None
    )
