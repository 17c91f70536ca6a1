"""A file attached in ``adk web`` or sent to ``adk api_server`` is in the workspace before the first tool call."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from adk_commands import serving

from adk_skills_agent.testing import GeminiServer

AGENT = """
from pathlib import Path
from google.adk.agents import LlmAgent
from adk_skills_agent import SkillToolset

skills = SkillToolset.from_dirs([Path(__file__).parent / "skills"])
root_agent = LlmAgent(name="uploader", model="gemini-2.5-flash", tools=[skills])
"""
COUNTS = "import pathlib\nprint(sorted((p.name, p.stat().st_size) for p in pathlib.Path('uploads').iterdir()))\n"
CONVERSATION = """
turns:
  - when: {system_contains: "uploads/sales.csv (9 bytes), uploads/upload-2.xlsx (4 bytes)"}
    call: {name: run_skill_script, args: {skill_name: files, file_path: scripts/count.py}}
  - when: {tool_result_contains: "upload-2.xlsx"}
    text: I have both.
"""
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


@pytest.mark.parametrize("command", ["api_server", "web"])
def test_attached_files_are_there_before_the_first_call(
    tmp_path: Path, make_skill: Callable[..., Path], model: Callable[..., GeminiServer], command: str
) -> None:
    folder = tmp_path / "agents" / "uploader"
    make_skill("files", files={"scripts/count.py": COUNTS}, root=folder / "skills")
    (folder / "agent.py").write_text(AGENT)
    (folder / "__init__.py").write_text("from . import agent\n")
    server = model(CONVERSATION)
    parts = [
        {"text": "What is in these?"},
        {"inlineData": {"data": base64.b64encode(b"a,b\n1,2\n3").decode(), "mimeType": "text/csv",
                        "displayName": "../sales.csv"}},
        {"inlineData": {"data": base64.b64encode(b"PK\x03\x04").decode(), "mimeType": XLSX}},
    ]  # fmt: skip
    with serving(server, command, folder.parent) as served:
        served.call("/apps/uploader/users/user/sessions/s1", {})
        message = {"role": "user", "parts": parts}
        events = served.call(
            "/run", {"appName": "uploader", "userId": "user", "sessionId": "s1", "newMessage": message}
        )
    assert events[-1]["content"]["parts"][0]["text"] == "I have both."
    assert XLSX not in str(server.requests[0].body)
    server.assert_finished()
