"""Rows 34, 37, 39-42, 45: what a script gets to see, and what is taken from it."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath

import pytest

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import InputFile, IsolationLevel, ReadOnlyMount, Status

pytestmark = pytest.mark.host_side


async def test_row_34_nothing_of_the_agents_environment_gets_through(box, agent_environment):
    result = await box.python("import os; print(dict(os.environ))")
    assert b"hunter2" not in result.stdout
    names = set(eval(result.stdout))
    assert names >= {"PATH", "HOME", "TMPDIR", "LANG", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE"}
    assert names <= {
        *("PATH", "HOME", "TMPDIR", "LANG", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"),
        *("PYTHONNOUSERSITE", "ADK_SKILLS_RUN_ID", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"),
        "GIT_CONFIG_NOSYSTEM",  # Landlock: git takes a configuration it cannot read for an error
        "GHCRTS",  # the filter knows no timerfd
        "MIMALLOC_ARENA_EAGER_COMMIT",  # what it would reserve counts as memory
        *("npm_config_fetch_retries", "PIP_RETRIES", "UV_HTTP_RETRIES"),  # there is no network
    }


async def test_granted_variables_arrive_and_the_calls_own_win(box):
    request = box.request("bash", box.script('echo "$A-$B"', ".sh"), env={"B": "call ' \" $(id)\n文"})
    policy = type(request.policy)(min_isolation=box.policy["min_isolation"], env={"A": "1", "B": "2"})
    request = type(request)(argv=request.argv, policy=policy, env=request.env, mounts=request.mounts)
    assert (await box.sandbox.run(request)).stdout.decode() == "1-call ' \" $(id)\n文\n"


async def test_row_37_only_three_descriptors_are_open(box):
    secret = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        code = """
import os
for fd in range(1024):
    try:
        os.fstat(fd)
        print(fd)
    except OSError:
        pass
"""
        assert (await box.python(code, open_files=2048)).stdout == b"0\n1\n2\n"
        assert (await box.python(code, open_files=2048, stdin=b"x")).stdout == b"0\n1\n2\n"
    finally:
        os.close(secret)


async def test_row_39_links_in_the_output_are_skipped_with_a_reason(box, tmp_path):
    code = """
import os
os.symlink("/etc/passwd", "secret.txt")
os.symlink("/etc", "folder")
os.symlink("nowhere", "dangling")
os.symlink("loop", "loop")
open("real.txt", "w").write("mine")
os.link("real.txt", "hard.txt")
open("fine.txt", "w").write("fine")
"""
    result = await box.python(code)
    assert [(file.path, file.content) for file in result.files] == [("fine.txt", b"fine")]
    skipped = dict(result.skipped_files)
    assert {"secret.txt", "folder", "dangling", "loop", "real.txt", "hard.txt"} == set(skipped)
    assert "symbolic link" in skipped["secret.txt"]
    assert "hard link" in skipped["hard.txt"]
    assert b"root:" not in repr(result).encode()


async def test_row_39_a_hard_link_to_a_file_of_the_skill_is_not_output(box):
    (box.skill / "private.txt").write_text("content of the skill")
    code = """
import os
try:
    os.link(os.path.realpath("/skill/private.txt" if os.path.isdir("/skill") else "private.txt"), "stolen.txt")
except OSError as error:
    print(error)
"""
    assert (await box.python(code)).files == ()


async def test_row_40_pipes_sockets_and_devices_are_skipped_without_blocking(box):
    code = """
import os, socket
os.mkfifo("pipe")
try:
    s = socket.socket(socket.AF_UNIX)
    s.bind("socket")
except OSError:
    pass
try:
    os.mknod("device", 0o600 | 0o020000, os.makedev(1, 5))
except OSError:
    pass
os.mkfifo("fifo.txt")
open("fine.txt", "w").close()
"""
    result = await box.python(code)
    assert [file.path for file in result.files] == ["fine.txt"]
    assert {"pipe", "fifo.txt"} <= {name for name, _ in result.skipped_files}


async def test_row_41_hostile_names_are_made_safe_or_skipped_and_listed(box):
    code = r"""
import os
for name in [b"new\nline", b"tab\there", b"\xff\xfe.bin", b"user:x", b"CON", b"nul.txt", b"trailing. ", b" lead",
             b"a\\..\\b", b"*?<>|\"", "\u202eexe.txt".encode(), "pay\u0440al".encode(),
             "cafe\u0301".encode(), "caf\u00e9".encode(), b"A", b"a", b"-rf", b"$(id)", b"..."]:
    open(name, "wb").close()
deep = b"/".join([b"d" * 100] * 20)
os.makedirs(deep)
open(deep + b"/file", "wb").close()
"""
    result = await box.python(code)
    names = [file.path for file in result.files]
    assert len(names) + len(result.skipped_files) == 20
    assert len({name.casefold() for name in names}) == len(names)
    for name in names:
        assert name.isprintable()
        assert not set(':*?"<>|\\') & set(name)
        assert not name.startswith("/")
        assert ".." not in name.split("/")
        name.encode("utf-8")
    for name, reason in result.skipped_files:
        assert name.isprintable()
        assert len(name) < 600
        assert "/tmp" not in reason
    assert "_CON" in names
    assert "user_x" in names
    assert "-rf" in names


async def test_row_42_output_is_read_only_after_every_writer_is_dead(box, tmp_path):
    workspace = tmp_path / "session"
    workspace.mkdir()
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    for fd in range(3):
        os.close(fd)
    first, last = (os.open(name, os.O_WRONLY | os.O_CREAT) for name in ("a-first.txt", "z-last.txt"))
    for n in range(40):
        open(f"between-{n}.txt", "w").close()
    while True:
        os.write(first, b"x" * 10)
        os.write(last, b"x" * 10)
else:
    while not (os.path.exists("z-last.txt") and os.path.getsize("z-last.txt") > 1000):
        time.sleep(0.01)
"""
    result = await box.python(code, workspace=workspace, max_file_bytes=1 << 30, max_total_file_bytes=1 << 30)
    assert result.survivors == 0
    assert result.processes_killed == 1
    files = {file.path: file.content for file in result.files}
    assert len(files) == 42
    # A writer that was alive during the collection would have gone on in the second file, and after it in both.
    assert len(files["a-first.txt"]) - len(files["z-last.txt"]) in {0, 10}
    for name in ("a-first.txt", "z-last.txt"):
        assert len(files[name]) == (workspace / name).stat().st_size


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", "a//b", "./x", "a/", "a\0b", "\udfff\ud800"])
async def test_row_45_47_an_input_file_cannot_be_put_elsewhere(box, path):
    with pytest.raises(ValueError, match="Input file"):
        await box.bash("true", input_files=(InputFile(path, b"x"),))


async def test_row_45_links_and_special_files_of_a_skill_do_not_come_out_as_output(box):
    (box.skill / "leak.md").symlink_to("/etc/passwd")
    (box.skill / "loop").symlink_to("loop")
    os.mkfifo(box.skill / "pipe")
    tool = box.skill / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o4755)
    result = await box.bash("ls > listing.txt")
    assert [file.path for file in result.files] == ["listing.txt"]
    assert result.skipped_files == ()
    assert stat.S_IMODE(tool.stat().st_mode) == 0o4755


async def test_input_files_are_there_and_only_changed_ones_come_out(box):
    files = (
        InputFile("data/in.csv", b"a,b\n"),
        InputFile("same.txt", b"same"),
        InputFile("edit.txt", b"old"),
        InputFile("tool.sh", b"#!/bin/sh\necho tool\n", executable=True),
    )
    result = await box.bash(
        "cat data/in.csv; ./tool.sh; printf new > edit.txt; printf n > data/new.txt", input_files=files
    )
    assert result.stdout == b"a,b\ntool\n"
    assert {file.path: file.content for file in result.files} == {"edit.txt": b"new", "data/new.txt": b"n"}


async def test_the_workspace_looks_like_the_skills_root_and_links_are_never_output(box):
    (box.skill / "references").mkdir()
    (box.skill / "references" / "a.md").write_text("reference")
    result = await box.bash("cat references/a.md; pwd; test -e SKILL.md && echo there", cwd=PurePosixPath("/work"))
    assert result.stdout == b"reference/work\nthere\n"
    assert result.files == ()


async def test_a_mount_that_is_not_linked_is_not_in_the_workspace(box):
    result = await box.bash("ls -A", mounts=(ReadOnlyMount(box.skill, linked=False),))
    assert result.stdout == b""


async def test_cwd_may_be_the_skill(box):
    result = await box.run("bash", "-c", "ls; pwd", cwd=PurePosixPath("/skill"))
    assert result.stdout == b"SKILL.md\nscripts\n/skill\n"


@pytest.mark.parametrize("cwd", ["/etc", "/work/../etc", "relative", "/skillful", "/work/missing"])
async def test_cwd_elsewhere_is_refused(box, cwd):
    with pytest.raises(ValueError, match="cwd"):
        await box.run("bash", "-c", "pwd", cwd=PurePosixPath(cwd))


async def test_a_persistent_workspace_keeps_what_runs_add_change_and_remove(box, tmp_path):
    workspace = tmp_path / "session"
    workspace.mkdir()
    first = await box.bash(
        "echo one > a.txt; mkdir -p d/e; echo deep > d/e/f.txt; echo x > gone.txt", workspace=workspace
    )
    assert [file.path for file in first.files] == ["a.txt", "d/e/f.txt", "gone.txt"]
    second = await box.bash("cat a.txt d/e/f.txt; echo two >> a.txt; rm gone.txt", workspace=workspace)
    assert second.stdout == b"one\ndeep\n"
    assert [(file.path, file.content) for file in second.files] == [("a.txt", b"one\ntwo\n")]
    assert sorted(str(p.relative_to(workspace)) for p in workspace.rglob("*")) == ["a.txt", "d", "d/e", "d/e/f.txt"]
    assert (workspace / "a.txt").read_bytes() == b"one\ntwo\n"


async def test_a_persistent_workspace_keeps_files_too_large_to_be_output(box, tmp_path):
    workspace = tmp_path / "session"
    workspace.mkdir()
    result = await box.bash("head -c 3000 /dev/zero > big.bin", workspace=workspace, max_file_bytes=1000)
    assert result.files == ()
    assert (workspace / "big.bin").stat().st_size == 3000


async def test_a_persistent_workspace_is_kept_after_a_timeout_and_never_outgrows_its_limit(box, tmp_path):
    workspace = tmp_path / "session"
    workspace.mkdir()
    result = await box.bash("echo half > half.txt; sleep 60", workspace=workspace, wall_seconds=1.5)
    assert result.status is Status.TIMEOUT
    assert (workspace / "half.txt").exists()
    result = await box.bash(
        "head -c 9000 /dev/zero > a; head -c 9000 /dev/zero > b", workspace=workspace, workspace_bytes=15_000
    )
    kept = {path.name: path.stat().st_size for path in workspace.iterdir()}
    if box.has_own_file_system:  # counted in whole pages, so nothing is left for the second file
        assert kept == {"half.txt": 5, "a": 9000, "b": 0}
        assert b"No space left on device" in result.stderr
    else:
        assert kept == {"half.txt": 5, "a": 9000}
        assert any(note.startswith("'b' was not kept") and "workspace_bytes" in note for note in result.notes)
    with pytest.raises(SandboxError, match="workspace_bytes"):
        await box.bash("true", workspace=workspace, workspace_bytes=100)


async def test_a_persistent_workspace_gets_no_links_and_no_special_permissions(box, tmp_path):
    workspace = tmp_path / "session"
    workspace.mkdir()
    # Made executable at once: at the landlock level of a plain user a later chmod changes nothing.
    code = """
import os
os.symlink("/etc/passwd", "link")
os.mkfifo("pipe")
os.write(os.open("tool", os.O_WRONLY | os.O_CREAT, 0o755), b"x")
os.chmod("tool", 0o4755)
"""
    await box.python(code, workspace=workspace)
    assert [p.name for p in workspace.iterdir()] == ["tool"]
    assert not (workspace / "tool").stat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    assert os.access(workspace / "tool", os.X_OK)


async def test_a_link_in_the_place_of_a_sessions_file_does_not_bring_back_what_was_there(box, tmp_path):
    workspace = tmp_path / "session"
    workspace.mkdir()
    await box.bash("echo v1 > f; mkdir d; echo v1 > d/x; echo v1 > pipe; echo v1 > kept", workspace=workspace)
    second = await box.bash(
        "echo v2 > g; rm -r f d pipe; ln -s g f; ln -s . d; mkfifo pipe; mkdir -p $(printf 'n/%.0s' {1..40})",
        workspace=workspace,
    )
    for name in ("f", "d", "pipe"):
        assert any(note.startswith(f"'{name}' is a ") and "removed" in note for note in second.notes), second.notes
    third = await box.run("bash", "-c", "rm -r n; cat *", workspace=workspace, mounts=())
    assert third.stdout == b"v2\nv1\n"
    assert {path.name for path in workspace.iterdir()} == {"g", "kept"}


async def test_hard_links_inside_the_workspace_are_kept_as_files_of_their_own(box, tmp_path):
    workspace = tmp_path / "session"
    workspace.mkdir()
    await box.bash("echo old > data.csv", workspace=workspace)
    await box.bash("echo new > data.csv; mkdir d; ln data.csv d/backup.csv; ln data.csv 3", workspace=workspace)
    for name in ("data.csv", "d/backup.csv", "3"):
        assert (workspace / name).read_bytes() == b"new\n"
        assert (workspace / name).stat().st_nlink == 1
    assert (await box.bash("cat data.csv d/backup.csv", workspace=workspace)).stdout == b"new\nnew\n"


async def test_a_hard_link_to_elsewhere_keeps_the_earlier_version_and_says_so(box, tmp_path):
    workspace = tmp_path / "session"
    workspace.mkdir()
    outside = tmp_path / "outside"
    outside.write_text("of the host\n")
    await box.bash("echo mine > f", workspace=workspace)
    result = await box.bash(f"rm f; ln {outside} f; ln {outside} new", workspace=workspace)
    if result.isolation.level is not IsolationLevel.PROCESS:
        # There is nothing to link to, so what is left is that the script removed its file.
        assert result.stderr.decode().count("ln: ") == 2
        assert (result.files, result.skipped_files, result.notes) == ((), (), ())
        assert list(workspace.iterdir()) == []
        assert outside.stat().st_nlink == 1
        return
    assert sorted(note for note in result.notes if "hard link" in note) == [
        "'f' was not kept: it has a hard link outside of the workspace; the session keeps the earlier version of it.",
        "'new' was not kept: it has a hard link outside of the workspace.",
    ]
    assert [(path.name, path.read_bytes()) for path in workspace.iterdir()] == [("f", b"mine\n")]
    assert outside.stat().st_nlink == 1


async def test_what_a_session_keeps_can_always_be_copied_in_again(box, tmp_path):
    workspace = tmp_path / "session"
    workspace.mkdir()
    limits = {"workspace": workspace, "workspace_bytes": 15_000}
    await box.bash("head -c 10000 /dev/zero > f", **limits)
    grown = await box.bash("head -c 11000 /dev/zero > f; head -c 12000 /dev/zero > a", **limits)
    assert (workspace / "f").stat().st_size == 11_000
    assert any(note.startswith("'a' was not kept") for note in grown.notes)
    shrunk = await box.bash("echo > f; head -c 12000 /dev/zero > a", **limits)
    assert (shrunk.notes, (workspace / "a").stat().st_size) == ((), 12_000)
    await box.bash("head -c 14000 /dev/zero > a; head -c 4000 /dev/zero > f; head -c 4000 /dev/zero > b", **limits)
    assert sum(path.stat().st_size for path in workspace.iterdir()) <= 15_000
    # Long enough that the disk is looked at: blocks that are not full are no excess, then as at the end.
    assert (await box.bash("sleep 0.4", **limits)).status is Status.OK


async def test_no_host_path_of_the_run_reaches_the_output(box, tmp_path, private_tmp):
    code = """
import os, sys
print(os.getcwd(), __file__, os.environ["HOME"], os.environ["TMPDIR"], os.path.realpath("."))
os.write(1, os.path.dirname(os.path.abspath(__file__)).encode()[:-3])
raise SystemExit(f"error in {os.path.abspath(__file__)}: 1")
"""
    result = await box.python(code, "/skill/SKILL.md", "/work/x", "/skillful/y")
    assert str(tmp_path).encode() not in result.stdout + result.stderr
    assert str(private_tmp).encode() not in result.stdout + result.stderr
    assert result.stdout.startswith(b"/work /skill/scripts/attack_1.py /tmp/home /tmp /work\n")
    assert result.stderr == b"error in /skill/scripts/attack_1.py: 1\n"


async def test_no_host_path_comes_out_with_other_characters_around_it(box, private_tmp):
    result = await box.bash("echo $PWD。 ${PWD}-x ${TMPDIR}2 é${PWD}é; dirname $PWD; echo $(dirname $PWD)/other")
    assert str(private_tmp).encode() not in result.stdout
    assert result.stdout.decode().replace("//", "/") == "/work。 /work-x /tmp2 é/worké\n/\n/other\n"


async def test_a_script_that_removes_its_own_workspace_still_has_a_result(box):
    result = await box.bash('cd /; rm -rf "$OLDPWD" "$HOME" "$TMPDIR"; echo done')
    assert result.stdout == b"done\n"
    assert result.files == ()


async def test_folders_without_permission_are_removed_all_the_same(box):
    result = await box.bash("mkdir -p a/b; echo x > a/b/c; chmod 000 a/b a; chmod 000 .")
    said = [sentence for sentence in result.isolation.degraded if "cannot change its mode" in sentence]
    assert result.exit_code == len(said)


async def test_what_a_script_closed_is_collected_and_a_session_keeps_what_is_in_it(box, tmp_path):
    session = tmp_path / "session"
    (session / "a").mkdir(parents=True)
    (session / "a" / "kept").write_text("before")
    (session / "top").write_text("before")
    code = "echo new > a/new; mkdir b; echo deep > b/deep; echo shut > shut; chmod 000 shut b; chmod 300 a; chmod 000 ."
    result = await box.bash(code, workspace=session)
    assert {file.path: file.content for file in result.files} == {
        "a/new": b"new\n",
        "b/deep": b"deep\n",
        "shut": b"shut\n",
    }
    found = {str(path.relative_to(session)): path.read_text() for path in session.rglob("*") if path.is_file()}
    assert found == {"a/kept": "before", "a/new": "new\n", "b/deep": "deep\n", "shut": "shut\n", "top": "before"}


async def test_the_spill_file_has_everything_and_is_private(box, tmp_path):
    spill = tmp_path / "spill"
    result = await box.python("print('0123456789' * 10_000)", output_bytes=1000, spill_dir=spill)
    assert result.stdout_truncated
    assert result.stdout_spill is not None
    assert result.stderr_spill is None
    assert result.stdout_spill.read_bytes() == b"0123456789" * 10_000 + b"\n"
    assert stat.S_IMODE(result.stdout_spill.stat().st_mode) == 0o600
    assert [p.name for p in spill.iterdir()] == [result.stdout_spill.name]


async def test_short_output_makes_no_spill_file_and_a_flood_is_bounded_in_it(box, tmp_path):
    spill: Path = tmp_path / "spill"
    assert (await box.bash("echo short", spill_dir=spill)).stdout_spill is None
    assert not spill.exists()
    result = await box.bash("exec yes", output_bytes=1000, output_flood_bytes=100_000, spill_dir=spill)
    assert result.status is Status.OUTPUT_LIMIT
    assert result.stdout_spill is not None
    assert result.stdout_spill.stat().st_size == 100_000
