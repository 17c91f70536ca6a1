#!/usr/bin/env python3
"""Takes the pictures of the documentation: the demo, the report of an evaluation, and google-adk's web page.

    tools/docs_pictures.py              write docs/images/*.png
    tools/docs_pictures.py --out DIR    write them elsewhere
    tools/docs_pictures.py --only demo  one of them

What is shown is real: the demo runs, an evaluation with a model of rules runs, and `adk web` serves an agent with a
rehearsed model. Needs Debian's chromium and playwright (uv sync --group slow).
"""

from __future__ import annotations

import argparse
import contextlib
import html
import os
import re
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
PHONE = 480  # the demo is a tall picture that can be read on a phone, too
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
    parser.add_argument("--only", action="append", metavar="NAME", help="demo, report or adk-web (repeatable)")
    arguments = parser.parse_args()
    out: Path = arguments.out
    only: list[str] | None = arguments.only
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("docs_pictures: chromium is not here: apt-get install chromium", file=sys.stderr)
        return 1
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            for picture, take in (("demo", _demo), ("report", _report), ("adk-web", _web)):
                if picture not in (only or [picture]):
                    continue
                tall = picture == "demo"
                size = {"width": PHONE if tall else WIDTH, "height": HEIGHT}
                page = browser.new_page(viewport=size, device_scale_factor=2 if tall else 1)
                folder = Path(name) / picture
                folder.mkdir()
                take(page, folder)
                aside = out / f".{picture}.png"
                page.screenshot(path=aside, type="png", full_page=tall)
                aside.rename(out / f"{picture}.png")
                print(f"docs_pictures: {out / picture}.png")
                page.close()
        finally:
            browser.close()
    return 0


def _demo(page: Page, folder: Path) -> None:
    """What the command prints, in the colours of a terminal; each line is shortened so that both acts fit."""
    done = subprocess.run(
        [BIN / "adk-skills", "demo"], capture_output=True, text=True, check=True, cwd=folder, env=_environment(folder)
    )
    lines = "\n".join(f"<p>{line}</p>" for line in _in_short(done.stdout))
    page.set_content(
        "<style>body { background: #1e1e2e; color: #cdd6f4; margin: 0; padding: 14px;"
        " font: 14px/1.4 'DejaVu Sans Mono', monospace; }"
        "p { margin: 0 0 4px; padding-left: 2ch; text-indent: -2ch; overflow-wrap: anywhere; }"
        "b { color: #a6e3a1; } i { color: #89b4fa; font-style: normal; } u { color: #f38ba8; text-decoration: none; }"
        "s { color: #9399b2; text-decoration: none; }"
        "h6 { margin: 12px 0 6px; font-size: 14px; color: #f9e2af; }</style>"
        f"<p><b>$ adk-skills demo</b></p>\n{lines}"
    )


def _in_short(printed: str) -> Iterator[str]:
    """The lines of the demo as HTML: who says or calls what, what was stopped, what the host saw of an attack."""
    for line in printed.splitlines():
        who, _, said = line.partition(" ")
        said = said.strip()
        if line.startswith("---"):
            yield f"<h6>{html.escape(line.strip('- '))}</h6>"
        elif who == "you":
            yield f"<b>you</b> {_cut(said, 90)}"
        elif who == "model" and (call := re.match(r"calls (\w+)\((.*)", said)):
            named = re.findall(r'"(?:skill_name|file_path|path|command)": "([^"]*)', call[2])
            yield f"<i>model</i> calls {call[1]} <s>{_cut(' '.join(named), 70)}</s>"
        elif who == "tool" and (reason := re.search(r'"reason": "(\w+)"', said)):
            yield f"<s>tool</s> <u>stopped: {reason[1]}</u>"
        elif who == "model":
            more = "" if said.endswith((".", "!", "?")) else " …"  # in the next line, which is left out
            yield f"<i>model</i> {_cut(said + more, 110)}"
        elif who == "file":
            yield f"<b>file</b> {html.escape(said)}"
        elif who == "isolation":
            yield f"<h6>{html.escape(' '.join(line.split()))}</h6>"
        elif seen := re.match(r"  (\w[\w ]*?)  +(\S.*?)  +(\S.*)", line):
            verdict, attempt, facts = seen[1], seen[2], seen[3].partition("[")[0].strip()
            yield f"<b>{html.escape(verdict)}</b> {html.escape(attempt)} <s>{_cut(facts, 80)}</s>"


def _cut(text: str, length: int) -> str:
    """At most so many characters; dots say that there is more."""
    return html.escape(text if len(text) <= length else f"{text[:length].rpartition(' ')[0]} …")


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
