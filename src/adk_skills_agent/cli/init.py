"""``adk-skills init``: an agent project that runs under ``adk web`` at once; ``adk-skills examples``: ours to try."""

from __future__ import annotations

import contextlib
import keyword
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import click

from adk_skills_agent.cli.output import safe
from adk_skills_agent.cli.sources import a_path
from adk_skills_agent.errors import ConfigError, FormatError

_EXAMPLES = """\b
Examples:
  adk-skills init my_agent
  adk-skills init my_agent --skill csv-report --model gemini-2.5-pro
  adk-skills init my_agent --yaml
"""

_COPY_EXAMPLES = """\b
Examples:
  adk-skills examples
  adk-skills examples ./try-out
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
    if keyword.iskeyword(name) or name == "user":
        whose = "google-adk's" if name == "user" else "Python's"
        raise ConfigError(f"{name!r} cannot be an agent's name: the word is {whose}. Use another one, as in my_agent.")
    if not name.isidentifier():
        instead = re.sub(r"\W+", "_", name).strip("_").lower()
        near = instead if instead.isidentifier() and not keyword.iskeyword(instead) else "my_agent"
        raise ConfigError(
            f"{name!r} cannot be an agent's name: use letters, digits and underscores. Did you mean {near!r}?"
        )
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


@click.command("examples", epilog=_COPY_EXAMPLES)
@click.argument("folder", default="examples", type=a_path)
def examples_command(folder: Path) -> None:
    """Copy the example skills and agents of this package here.

    FOLDER, examples in the current folder if it is not named, must not exist. The pages of the documentation use it
    by that name: examples/skills has three skills, examples/evals cases that measure one of them without a key,
    examples/agents agents for adk web, examples/sources and examples/serve code to start from.
    """
    target = folder.expanduser()
    if os.path.lexists(target):
        raise ConfigError(f"{safe(str(target))} exists already. Name another folder or remove it.")
    with _aside(target) as aside:
        shutil.copytree(
            examples_folder(), aside, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".*")
        )
    print(f"Made {safe(str(target))}")
    print(f"Next: adk-skills list {shlex.quote(str(target / 'skills'))}")


def examples_folder() -> Path:
    """The folder of the examples: in the installed package, or in a checkout.

    Raises ``ConfigError`` when neither is there.
    """
    packaged = Path(str(files("adk_skills_agent"))) / "_examples"
    checkout = Path(__file__).resolve().parents[3] / "examples"
    for folder in (packaged, checkout):
        if folder.is_dir():
            return folder
    raise ConfigError("The examples are missing from this installation. Install adk-skills-runtime again.")


@contextlib.contextmanager
def _aside(target: Path) -> Iterator[Path]:
    """A folder that gets its name at the end of the block: it appears complete or not at all."""
    aside = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside.mkdir()
        yield aside
        aside.rename(target)
    except (FormatError, OSError) as error:
        cause = error.__cause__ if isinstance(error, FormatError) else error
        if not isinstance(cause, OSError):
            raise
        # copytree gathers what each file failed with, as text, and one reason is enough; see shutil.Error.
        many = isinstance(cause, shutil.Error)
        reason = str(cause.args[0][0][2]).partition("] ")[2].partition(": ")[0] if many else cause.strerror
        raise FormatError(f"Cannot create {safe(str(target))}: {reason or cause}.") from cause
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _make(target: Path, files: dict[str, str], skill: str) -> None:
    from adk_skills_agent.format import create_skill_template

    with _aside(target) as aside:
        made = create_skill_template(aside / "skills", skill, description=_SKILL_DESCRIPTION)
        shutil.rmtree(made / "references")  # a form to fill in, as the text of the template is
        script = f"scripts/{skill.replace('-', '_')}.py"
        text = _SKILL.format(name=skill, description=_SKILL_DESCRIPTION, script=script)
        (made / "SKILL.md").write_text(text, encoding="utf-8", newline="\n")
        for name, content in files.items():
            (aside / name).write_text(content, encoding="utf-8", newline="\n")


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

_SKILL_DESCRIPTION = "Counts the words of a text and lists the most frequent ones. Use when asked to count words."
_SKILL = """\
---
name: {name}
description: {description}
---

# Word count

1. The text is a file of the user; its path is in the list of uploads, such as `uploads/report.txt`. Ask for a file
   when there is none.
2. Run `{script}` with the arguments `["--top", "5", "uploads/report.txt"]`, with the path of that file. It prints
   JSON: words and how often they occur.
3. Answer with the words, the most frequent first.
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
