"""``adk-skills init``: an agent project with a first skill that runs under ``adk web`` at once."""

from __future__ import annotations

import keyword
import os
import shlex
import shutil
from pathlib import Path

import click

from adk_skills_agent.cli.output import safe
from adk_skills_agent.cli.sources import a_path
from adk_skills_agent.errors import ConfigError

_EXAMPLES = """\b
Examples:
  adk-skills init my_agent
  adk-skills init my_agent --skill csv-report --model gemini-2.5-pro
  adk-skills init my_agent --yaml
"""

_MODEL = "gemini-2.5-flash"


@click.command("init", epilog=_EXAMPLES)
@click.argument("name")
@click.option("--output", "-o", default=".", type=a_path, help="Folder to make it in.")
@click.option("--model", default=_MODEL, show_default=True, help="The agent's model, as google-adk names it.")
@click.option("--skill", default="word-count", show_default=True, help="The name of its first skill.")
@click.option("--yaml", "as_yaml", is_flag=True, help="A YAML agent (root_agent.yaml) instead of agent.py.")
def command(name: str, output: Path, model: str, skill: str, as_yaml: bool) -> None:
    """Make an agent project that runs under adk web.

    A folder with an agent, a first skill with a script, and a place for the model's key. NAME is a Python name, as
    google-adk needs it.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name == "user":
        raise ConfigError(f"{name!r} cannot be an agent's name. Use letters, digits and underscores, as in my_agent.")
    target = output.expanduser() / name
    if os.path.lexists(target):
        raise ConfigError(f"{safe(str(target))} exists already. Choose another name or remove it.")
    _make(target, _files(name, model, as_yaml=as_yaml), skill)
    print(f"Made {safe(str(target))}")
    where = shlex.quote(str(output))
    place = shlex.quote(str(target))
    print("Next:")
    print(f"  1. put your model's key into {safe(str(target / '.env'))}")
    print(f"  2. adk web {where}")
    print(f"     (upload a text and ask for its most frequent words), or: adk run {place} 'What can you do?'")
    print(f"  3. edit {safe(str(target / 'skills' / skill / 'SKILL.md'))}, then: adk-skills validate {place}/skills")


def _make(target: Path, files: dict[str, str], skill: str) -> None:
    """Write the project aside, then rename it: it appears complete or not at all."""
    from adk_skills_agent.format import create_skill_template

    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        aside.mkdir()
        create_skill_template(
            aside / "skills",
            skill,
            description="Counts the words of a text and lists the most frequent ones. Use when asked to count words.",
        )
        for name, content in files.items():
            (aside / name).write_text(content, encoding="utf-8", newline="\n")
        aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _files(name: str, model: str, *, as_yaml: bool) -> dict[str, str]:
    """Each file's name and content."""
    files = {".env": _ENV, ".gitignore": _GITIGNORE, "requirements.txt": _REQUIREMENTS}
    if as_yaml:
        return files | {"root_agent.yaml": _YAML.format(name=name, model=_quoted(model))}
    return files | {"__init__.py": "from . import agent\n", "agent.py": _AGENT.format(name=name, model=_quoted(model))}


def _quoted(text: str) -> str:
    """A string that Python and YAML read the same."""
    import json

    return json.dumps(text)


_AGENT = '''\
"""An agent with the skills of the folder beside this file. Run it: adk web, or adk run."""

from google.adk.agents import LlmAgent
from google.adk.apps import App

from adk_skills_agent import ModelErrorsPlugin, SkillToolset, ToolCallsPlugin

root_agent = LlmAgent(
    name="{name}",
    model={model},
    instruction="Load the skill that fits the task and follow it. Answer briefly.",
    tools=[SkillToolset.from_dirs(["skills"], relative_to=__file__)],
)

# In the terminal: which tools the model calls, and errors of the model's service in one line.
app = App(name="{name}", root_agent=root_agent, plugins=[ToolCallsPlugin(), ModelErrorsPlugin()])
'''

_YAML = """\
name: {name}
model: {model}
instruction: Load the skill that fits the task and follow it. Answer briefly.
tools:
  - name: adk_skills_agent.SkillToolset
    args:
      dirs: [skills]
"""

_ENV = """\
# A key from https://aistudio.google.com/apikey, or the variables of Vertex AI.
# GOOGLE_API_KEY=
"""

_GITIGNORE = """\
.env
.adk/
__pycache__/
"""

_REQUIREMENTS = """\
google-adk
adk-skills-runtime
"""
