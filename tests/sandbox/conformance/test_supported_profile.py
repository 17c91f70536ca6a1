"""What scripts may expect at every level (S0-107): the list of isolation.md, run as one script each."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from adk_skills_agent.sandbox.contract import IsolationLevel, Status

PROFILE = """
import importlib.util, json, os, pathlib, subprocess, sys, tempfile, threading
told = {}
told["skill file"] = pathlib.Path("references/guide.txt").read_text()
told["beside"] = __import__("sibling").VALUE
pathlib.Path("made").mkdir()
pathlib.Path("made/report.txt").write_text("report")
with tempfile.NamedTemporaryFile("w+") as file:
    told["tmp"] = os.path.dirname(file.name) == os.environ["TMPDIR"] and open(file.name, "a").writable()
told["env"] = sorted(name for name in os.environ if name in {"PATH", "HOME", "TMPDIR", "LANG", "GRANTED"})
told["LANG"] = os.environ["LANG"]
told["shell"] = subprocess.run(["bash", "-c", "printf %s $((6 * 7))"], capture_output=True, text=True).stdout
told["system"] = subprocess.run(["sort"], input="b\\na\\n", capture_output=True, text=True).stdout
told["python"] = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True).stdout
told["packages"] = importlib.util.find_spec("click") is not None
done = []
threads = [threading.Thread(target=done.append, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
told["threads"] = len(done)
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, b"from a child")
    os._exit(0)
os.wait()
told["child"] = os.read(reader, 100).decode()
print(json.dumps(told))
print("an umlaut: \\u00fc", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.requirement("S0-107")
async def test_a_script_inside_the_profile_behaves_the_same_at_every_level(box, backend):
    (box.skill / "references").mkdir()
    (box.skill / "references" / "guide.txt").write_text("the guide")
    (box.skill / "scripts" / "sibling.py").write_text("VALUE = 5")
    # The packages of the interpreter itself, not those an agent added to its path by PYTHONPATH.
    asked = [sys.executable, "-I", "-c", "import click"]
    if backend.is_local:
        has_click = subprocess.run(asked, capture_output=True, check=False).returncode == 0
    else:  # an image has its own
        has_click = (await box.run(*asked)).exit_code == 0
    result = await box.run(sys.executable, box.script(PROFILE), env={"GRANTED": "yes"})
    assert result.status is Status.ERROR, result.stderr
    assert (result.exit_code, result.stderr.decode()) == (3, "an umlaut: \u00fc\n")
    told = json.loads(result.stdout)
    assert told == {
        "skill file": "the guide",
        "beside": 5,
        "tmp": True,
        "env": ["GRANTED", "HOME", "LANG", "PATH", "TMPDIR"],
        "LANG": "C.UTF-8",
        "shell": "42",
        "system": "a\nb\n",
        "python": "1\n",
        "packages": has_click,
        "threads": 4,
        "child": "from a child",
    }
    assert [(file.path, file.content) for file in result.files] == [("made/report.txt", b"report")]


async def test_starting_an_own_file_works_or_the_report_says_how_instead(box, backend):
    """Decision 0007: where modes cannot be changed, the way that works is named."""
    code = "printf '#!/bin/sh\\necho started\\n' > tool; chmod +x tool; ./tool 2>/dev/null; sh tool"
    result = await box.bash(code)
    pretended = backend.level is IsolationLevel.LANDLOCK and os.geteuid() != 0
    assert result.stdout.count(b"started\n") == (1 if pretended else 2)
    said = [sentence for sentence in result.isolation.degraded if "chmod" in sentence]
    assert len(said) == pretended
    assert all("interpreter" in sentence for sentence in said)


async def test_a_file_that_is_made_executable_can_be_started_everywhere(box):
    code = """
import os, subprocess
descriptor = os.open("tool", os.O_WRONLY | os.O_CREAT, 0o700)
os.write(descriptor, b"#!/bin/sh\\necho own program\\n")
os.close(descriptor)
print(subprocess.run(["./tool"], capture_output=True, text=True).stdout, end="")
os.unlink("tool")
"""
    assert (await box.python(code)).stdout == b"own program\n"
