"""What makes the command line pleasant: suggestions, completion, tables, colours, lines of errors (issue 17)."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_commands import INSTALLED, PROGRAM, adk_skills


@pytest.fixture
def skills(make_skill: Callable[..., Path]) -> Path:
    make_skill("letters", description="Writes letters. " + "Use it for letters. " * 12)
    return make_skill("counter", files={"scripts/count.py": "print(1)", "scripts/deep/all.sh": "echo 1"}).parent


def on_terminal(*arguments: object, columns: int = 80, **env: str) -> str:
    """What a person sees: the program with a real terminal for its output."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, *map(str, arguments)],
        stdout=child,
        stderr=child,
        stdin=subprocess.DEVNULL,
        env={**without_colour_settings(), "COLUMNS": str(columns), "LINES": "50", "TERM": "xterm", **env},
    )
    os.close(child)
    read = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # the terminal is gone with the program
            break
        if not piece:
            break
        read += piece
    os.close(parent)
    process.wait(60)
    return read.decode().replace("\r\n", "\n")


def without_colour_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}}


def completed(words: str, shell: str = "bash") -> list[str]:
    """What completion offers after these words; the last is incomplete."""
    env = {"_ADK_SKILLS_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    if shell == "fish":
        env["COMP_CWORD"] = words.rpartition(" ")[2]
    done = subprocess.run([PROGRAM], capture_output=True, text=True, check=True, env={**os.environ, **env})
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


# Mistyped


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("vaildate", "validate"),
        ("lst", "list"),
        ("complete", "completion"),
        ("serch", "search"),
        # What other tools call it; by their letters these were near to trust, prepare and list.
        ("test", "eval"),
        ("create", "new"),
        ("lint", "validate --lint"),
        ("Install", "add"),
    ],
)
def test_a_mistyped_command_gets_the_nearest(typed: str, meant: str) -> None:
    run = adk_skills(typed, "x")
    assert run.returncode == 2
    assert run.stderr == f"adk-skills: No such command '{typed}'. Did you mean '{meant}'? See: adk-skills --help\n"


def test_help_as_a_command_is_answered_without_a_guess() -> None:
    assert adk_skills("help").stderr == "adk-skills: No such command 'help'. See: adk-skills --help\n"


def test_every_sentence_about_usage_ends_before_the_next() -> None:
    assert adk_skills("new", "one", "two").stderr.endswith("argument (two). See: adk-skills new --help\n")


def test_a_mistyped_option_gets_the_nearest_too(skills: Path) -> None:
    assert re.search(r"Did you mean '?--json", adk_skills("list", skills, "--jsn").stderr)  # click 8.2 has no quotes


def test_a_skill_that_is_not_there_is_answered_for_a_command_line(skills: Path, tmp_path: Path) -> None:
    sentence = adk_skills("info", "zzz", "-d", skills).stderr
    assert sentence == f"adk-skills: There is no skill 'zzz'. List them with: adk-skills list {skills}\n"
    (tmp_path / "empty").mkdir()
    assert "There are no skills there." in adk_skills("info", "zzz", "-d", tmp_path / "empty").stderr
    assert "name a folder with --dir" in adk_skills("info", "zzz", cwd=tmp_path / "empty").stderr


def test_the_skills_of_a_project_nobody_trusts_are_said_with_the_command(
    make_skill: Callable[..., Path], tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    make_skill("theirs", root=project / ".agents" / "skills")
    listed = adk_skills("list", cwd=project)
    assert listed.stdout == ""
    assert f"adk-skills trust {project}" in listed.stderr
    assert "No skills found" not in listed.stderr
    for command in ("info", "search"):
        assert f"adk-skills trust {project}" in adk_skills(command, "theirs", cwd=project).stderr


def test_a_search_without_any_skill_says_so(tmp_path: Path) -> None:
    found = adk_skills("search", "pdf", cwd=tmp_path)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("No skills found.")


# Completion


def test_commands_skills_and_scripts_are_completed(skills: Path) -> None:
    assert completed("adk-skills va") == ["plain,validate"]
    assert completed(f"adk-skills run -d {skills} cou") == ["plain,counter"]
    assert completed(f"adk-skills info -d {skills} ") == ["plain,counter", "plain,letters"]
    assert completed(f"adk-skills run -d {skills} counter ") == ["plain,count.py", "plain,deep/all.sh"]
    assert completed("adk-skills info ./sk") == ["dir,./sk"]
    assert completed("adk-skills needs sk") == ["dir,sk"]  # no skill of that name: a folder


@pytest.mark.slow
def test_everything_else_that_has_values_is_completed(skills: Path) -> None:
    assert completed(f"adk-skills run -d {skills} counter scripts/d") == ["plain,scripts/deep/all.sh"]
    assert completed(f"adk-skills run {skills}/counter c") == ["plain,count.py"]
    for command in ("info", "prepare", "run", "approvals --approve"):
        assert completed(f"adk-skills {command} sk") == ["dir,sk"]
    assert completed("adk-skills eval cases.yaml --judge n") == ["plain,none"]
    assert completed("adk-skills eval cases.yaml --judge gemini") == []
    assert completed("adk-skills add ./sk") == ["file,./sk"]


def test_fish_and_zsh_also_show_what_a_skill_is_for(skills: Path) -> None:
    assert completed(f"adk-skills info -d {skills} l", "fish")[0].startswith("plain,letters\tWrites letters.")
    assert completed(f"adk-skills info -d {skills} l", "zsh")[:2] == ["plain", "letters"]


def test_completion_of_what_is_not_there_is_silent(tmp_path: Path) -> None:
    assert completed(f"adk-skills info -d {tmp_path}/gone x") == []
    assert completed("adk-skills run nothing x") == []


def test_row_196_nothing_is_completed_that_a_shell_would_run(skills: Path) -> None:
    """Seen: bash put a script named $(...) into the command line as it is, and Enter ran it."""
    for name in ("$(touch${IFS}planted).py", "c;touch planted;.sh", "c`x`.sh", "c d.sh"):
        (skills / "counter" / "scripts" / name).write_text("print(1)")
    assert completed(f"adk-skills run -d {skills} counter ") == ["plain,count.py", "plain,deep/all.sh"]


def test_a_real_bash_completes_a_script(skills: Path) -> None:
    program = (
        'eval "$(adk-skills completion bash)"\n'
        f"COMP_WORDS=(adk-skills run {skills}/counter co); COMP_CWORD=3\n"
        "_adk_skills_completion adk-skills\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    env = {**os.environ, "PATH": f"{INSTALLED.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False, env=env)
    assert done.stdout.strip() == "count.py", done.stderr


# Tables


def test_a_long_list_has_what_can_be_counted_and_whole_descriptions(skills: Path) -> None:
    lines = adk_skills("list", skills, "--long").stdout.splitlines()
    assert lines[0].split() == ["NAME", "SCOPE", "TOKENS", "SCRIPTS", "FOLDER"]
    assert re.fullmatch(rf"counter  explicit +\d+ +2  {skills}/counter", lines[1])
    assert lines[4].startswith("    Writes letters.")
    assert len(lines) == 5  # piped: a description is one line
    shown = on_terminal("list", skills, "--long", columns=60).splitlines()
    below = [line for line in shown if line.startswith("    ")]
    assert len(below) > 3
    assert max(map(len, below)) <= 60


def test_colour_is_for_terminals_and_nobody_who_said_no(skills: Path) -> None:
    assert "\x1b[1mcounter" in on_terminal("list", skills)
    for plain in (
        on_terminal("list", skills, NO_COLOR="1"),
        on_terminal("--no-color", "list", skills),
        on_terminal("list", skills, TERM="dumb"),
        adk_skills("list", skills, "--long").stdout,
    ):
        assert "counter" in plain
        assert "\x1b" not in plain


def test_colours_let_no_sequence_of_a_skill_through(make_skill: Callable[..., Path]) -> None:
    folder = make_skill("evil", description='"a \\e]52;c;AAAA\\a b"')
    for options in ((), ("--long",)):
        shown = on_terminal("list", folder.parent, *options)
        assert "evil" in shown
        assert "\x1b]" not in shown


# Validation


def test_validate_says_what_fails_first_with_lines_and_counts_the_rest(skills: Path) -> None:
    bad = skills / "zz-bad"
    bad.mkdir()
    text = "---\nname: Bad--Name\nlicense: MIT\nversion: 1\nauthor: me\ncompatibility: " + "x" * 600 + "\n---\nbody\n"
    (bad / "SKILL.md").write_text(text)
    run = adk_skills("validate", skills)
    lines = run.stderr.splitlines()
    assert lines[0] == f"Validation failed for {bad}:"
    assert lines[-1] == "2 of 3 skills are valid."
    assert run.stdout == ""
    said = run.stderr
    assert re.search(r"Unexpected fields .* \(line 4\)", said) or re.search(r"Unexpected fields .* \(line 5\)", said)
    assert re.search(r"lowercase \(line 2\)", said)
    assert re.search(r"Missing required field in frontmatter: description \(line 1\)", said)
    assert re.search(r"[Cc]ompatibility .*\(line 6\)", said)


def test_progress_has_names_and_a_rate_and_is_gone_at_the_end() -> None:
    program = (
        "import sys; from adk_skills_agent.cli import output; output._PROGRESS_AFTER_SECONDS = 0\n"
        "with output.Progress('checking', 3) as progress:\n"
        "    for name in ('one', 'two', 'three'):\n"
        "        progress.step(name); output.time.sleep(0.12)\n"
    )
    parent, child = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", program], stderr=child, env={**os.environ, "TERM": "xterm"})
    os.close(child)
    process.wait(60)
    shown = os.read(parent, 65536).decode()
    os.close(parent)
    assert re.search(r"checking 1 of 3 \(\d+/s\): two", shown)
    assert shown.endswith("\r\x1b[K")


# Hints


SCRIPTS = {
    "scripts/module.py": "import nopandas\n",
    "scripts/net.py": "import socket\nsocket.create_connection(('example.org', 443), 2)\n",
    "scripts/slow.py": "import time\ntime.sleep(60)\n",
    "scripts/key.py": "import os\nos.environ['SERVICE_KEY']\n",
    "scripts/run.rb": "puts 1\n",
}


@pytest.mark.parametrize(
    ("script", "options", "hint"),
    [
        ("module.py", (), "/runner"),  # adk-skills prepare and the folder
        ("net.py", (), '--policy-file FILE, with network = {mode = "allow", hosts = ["..."]}'),
        ("slow.py", ("--timeout", "0.5"), "Give it more time with --timeout SECONDS, or less work."),
        ("key.py", (), "add --secret SERVICE_KEY to adk-skills run"),
        pytest.param(
            "run.rb",
            (),
            "--interpreter SUFFIX=COMMAND",
            marks=pytest.mark.skipif(shutil.which("ruby") is not None, reason="this machine has ruby"),
        ),
    ],
)
def test_a_hint_names_options_and_not_what_only_python_or_a_model_can_do(
    make_skill: Callable[..., Path], tmp_path: Path, script: str, options: tuple[str, ...], hint: str
) -> None:
    skill = make_skill("runner", files=SCRIPTS)
    run = adk_skills("run", skill, script, "-o", tmp_path / "out", *options, PATH=os.environ["PATH"])
    assert run.returncode in {1, 2}
    told = "".join(line for line in run.stderr.splitlines(keepends=True) if line.startswith(("adk-skills:", "note:")))
    assert hint in told
    for words in ("tell the user", "grants=", "Grant(", "min_isolation="):
        assert words not in told


def test_an_option_of_the_script_is_told_where_it_goes(make_skill: Callable[..., Path]) -> None:
    skill = make_skill("runner", files=SCRIPTS)
    run = adk_skills("run", skill, "module.py", "--top", "5")
    assert run.returncode == 2
    assert "No such option '--top'. If it is the script's, put -- before it." in run.stderr
    run = adk_skills("run", skill, "--polcy", "strict", "module.py", "--", "--top", "5")
    assert "No such option '--polcy'" in run.stderr
    assert "'--policy'" in run.stderr


def test_a_permissions_file_that_grants_nothing_to_the_skill_is_told(
    make_skill: Callable[..., Path], tmp_path: Path
) -> None:
    skill = make_skill("weather", files={"scripts/say.py": "print(1)\n"})
    grants = tmp_path / "permissions.yaml"
    told = f"note: {grants} grants nothing to weather/scripts/say.py. Did you mean 'weather' where it has 'wether'?"
    for name, expected in (("wether", told), ("pdf", told.split(" Did")[0]), ("weather", "")):
        grants.write_text(f"grants:\n  {name}:\n    env: {{TZ: UTC}}\n")
        run = adk_skills("run", skill, "say.py", "--permissions", grants, "-q", "-o", tmp_path / "out")
        assert run.returncode == 0
        assert run.stderr.strip() == expected


def test_what_a_skill_needs_is_a_line_of_a_permissions_file() -> None:
    from adk_skills_agent.cli.output import for_command_line

    assert for_command_line('grants={"weather": Grant(hosts=["*.example.org"])}') == (
        'add --permissions FILE to adk-skills run, a YAML file with grants: {weather: {hosts: ["*.example.org"]}}'
    )


def test_a_refusal_names_the_option_that_lowers_the_level(make_skill: Callable[..., Path], tmp_path: Path) -> None:
    from adk_skills_agent.cli.output import for_command_line

    assert for_command_line("you can choose min_isolation='process'.") == "you can choose --min-isolation process."
    assert for_command_line("Install it: sandbox='container'") == "Install it: --sandbox container"
    assert "--memory-mb" in for_command_line("It needed more than 64 MiB of memory. Give it less data.")
