"""The program that starts another one with a rehearsed model, of the page about tests without a model."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import preloaded

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "how-to" / "measure" / "test-offline.md"
ASKS = """\
from google import genai
client = genai.Client()
print(client.models.generate_content(model="gemini-2.5-flash", contents="Hello").text)
"""


def test_another_process_gets_the_rehearsed_model(tmp_path: Path) -> None:
    (program,) = re.findall(r'^```python title="with_model\.py"\n(.*?)^```', PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "with_model.py").write_text(program)
    (tmp_path / "conversation.yaml").write_text("turns: [{when: {user_contains: Hello}, text: Good day.}]\n")
    python = [str(preloaded.program("python"))]
    run = subprocess.run(
        [*python, "with_model.py", "conversation.yaml", *python, "-c", ASKS],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, "Good day.\n"), run.stderr


def test_ctrl_c_ends_the_command_and_then_the_program_without_a_traceback_of_it(tmp_path: Path) -> None:
    (program,) = re.findall(r'^```python title="with_model\.py"\n(.*?)^```', PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "with_model.py").write_text(program)
    (tmp_path / "conversation.yaml").write_text("turns: [{text: Good day.}]\n")
    waits = (
        "import signal, time; signal.signal(signal.SIGINT, lambda *_: exit(7)); print('up', flush=True); time.sleep(60)"
    )
    python = [sys.executable, "-W", "ignore"]  # the whole session gets the signal
    run = subprocess.Popen(
        [*python, "with_model.py", "conversation.yaml", *python, "-c", waits],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    assert run.stdout is not None
    assert run.stdout.readline() == "up\n"
    os.killpg(run.pid, signal.SIGINT)
    _, told = run.communicate(timeout=60)
    assert (run.returncode, told) == (7, "")
