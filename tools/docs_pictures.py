#!/usr/bin/env python3
"""Takes the pictures of the documentation: the demo, the report of an evaluation, and google-adk's web page.

    tools/docs_pictures.py              write docs/images/*.png
    tools/docs_pictures.py --out DIR    write them elsewhere

What is shown is real: the demo runs, an evaluation with a model of rules runs, and `adk web` serves an agent with a
rehearsed model. Needs Debian's chromium and playwright (uv sync --group slow).
"""

from __future__ import annotations

import argparse
import contextlib
import html
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from adk_skills_agent.testing import GeminiServer, parse_conversation

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
WIDTH, HEIGHT = 1100, 720
AGENT = """\
from google.adk.agents import LlmAgent

from adk_skills_agent import SkillToolset

root_agent = LlmAgent(
    name="assistant",
    model="gemini-2.5-flash",
    instruction="Help the user with their tables.",
    tools=[SkillToolset.from_dirs([@SKILLS@])],
)
"""
CONVERSATION = """
turns:
  - when: {tools: [load_skill]}
    call: {name: load_skill, args: {skill_name: csv-report}}
  - when: {last_tool: load_skill}
    call:
      name: run_skill_script
      args:
        skill_name: csv-report
        file_path: scripts/report.py
        args: {input: assets/sample.csv, group-by: region, output: report.md}
  - when: {last_tool: run_skill_script, tool_result: {status: success}}
    text: South leads with the sales of the sample. The report is in report.md.
"""


def main() -> int:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images", help="folder of the pictures")
    out: Path = parser.parse_args().out
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("docs_pictures: chromium is not here: apt-get install chromium", file=sys.stderr)
        return 1
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            for picture, take in (("demo", _demo), ("report", _report), ("adk-web", _web)):
                folder = Path(name) / picture
                folder.mkdir()
                take(page, folder)
                aside = out / f".{picture}.png"
                page.screenshot(path=aside, type="png")
                aside.rename(out / f"{picture}.png")
                print(f"docs_pictures: {out / picture}.png")
        finally:
            browser.close()
    return 0


def _demo(page: Page, folder: Path) -> None:
    """What the command prints, in the colours of a terminal."""
    done = subprocess.run(
        [BIN / "adk-skills", "demo"], capture_output=True, text=True, check=True, cwd=folder, env=_environment(folder)
    )
    page.set_content(
        "<style>body { background: #1e1e2e; color: #cdd6f4; margin: 0; padding: 1rem; }"
        "pre { font: 12px/1.35 monospace; margin: 0; white-space: pre-wrap; } b { color: #a6e3a1; }</style>"
        f"<pre><b>$ adk-skills demo</b>\n{html.escape(done.stdout)}</pre>"
    )


def _report(page: Page, folder: Path) -> None:
    """The report of the example cases."""
    shutil.copy(ROOT / "examples/evals/model.yaml", folder)
    model = "scripted:model.yaml"
    command = [
        BIN / "adk-skills", "eval", ROOT / "examples/evals/csv-report.yaml", "--dir", ROOT / "examples/skills",
        "--model", model, "--judge", model, "--out", "run-1",
    ]  # fmt: skip
    subprocess.run(command, capture_output=True, check=True, cwd=folder, env=_environment(folder))
    page.goto((folder / "run-1" / "report.html").as_uri())
    page.wait_for_selector("html[data-ready]", timeout=60_000)


def _web(page: Page, folder: Path) -> None:
    """google-adk's page after a question."""
    agent = folder / "agents" / "assistant"
    agent.mkdir(parents=True)
    (agent / "__init__.py").write_text("from . import agent\n")
    (agent / "agent.py").write_text(AGENT.replace("@SKILLS@", repr(str(ROOT / "examples" / "skills"))))
    with GeminiServer([parse_conversation(CONVERSATION)]) as model, _adk_web(model, folder) as url:
        page.goto(f"{url}/dev-ui/?app=assistant")
        box = page.locator("textarea").first
        box.wait_for(timeout=90_000)
        box.fill("Summarise the sample sales by region.")
        box.press("Enter")
        page.get_by_text("South leads").first.wait_for(timeout=90_000)
        with contextlib.suppress(Exception):
            page.get_by_text("No Thanks").first.click(timeout=2_000)
        # Its icons are a font of Google's; where that cannot be reached they would be words cut in the middle.
        page.add_style_tag(content="mat-icon, .material-symbols-outlined, .material-icons { visibility: hidden; }")
        page.wait_for_timeout(500)  # what slides in has arrived


@contextlib.contextmanager
def _adk_web(model: GeminiServer, folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**_environment(folder), **model.environment()}
    server = subprocess.Popen(
        [BIN / "adk", "web", "--port", str(port), folder / "agents"],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 90
        while True:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"{url}/list-apps", timeout=5).close()  # noqa: S310  # our own server
                break
            if time.monotonic() > deadline or server.poll() is not None:
                raise RuntimeError("adk web did not start")
            time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait()


def _environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONWARNINGS": "ignore", "LANG": "C.UTF-8"}


if __name__ == "__main__":
    sys.exit(main())
