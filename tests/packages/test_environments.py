"""Environments are made once, whole or not at all, of exactly what was locked; nothing of a package runs meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.cli.sources import open_skill
from adk_skills_agent.errors import ConfigError, PackageError
from adk_skills_agent.installation import install_hint
from adk_skills_agent.packages import environments, uv
from adk_skills_agent.packages.environments import Environment, collect, find_environment, prepare
from adk_skills_agent.packages.lock import Lock, parse_lock, python_of, read_lock, resolve
from adk_skills_agent.packages.npm import node_version
from adk_skills_agent.packages.skill_environments import Dependencies, SkillEnvironments
from adk_skills_agent.packages.uv import Index
from adk_skills_agent.sandbox import remove_tree
from adk_skills_agent.scripts import interpreters
from certificates import Authority
from local_index import LocalIndex, serving, wheel


def locked(index: LocalIndex, cache: Path, *requirements: str, seconds: float = 60) -> Lock:
    return resolve(
        requirements, cache=cache / "uv", index=Index((index.url,)), seconds=seconds, what="the packages of skill 'x'"
    )


def made(index: LocalIndex, cache: Path, *requirements: str) -> Environment:
    return prepared(locked(index, cache, *requirements), index, cache)


def prepared(lock: Lock, index: LocalIndex, cache: Path, seconds: float = 60) -> Environment:
    return prepare(lock, cache=cache, index=Index((index.url,)), what="the packages of skill 'x'", seconds=seconds)


def said_by(environment: Environment, code: str) -> str:
    done = subprocess.run([environment.python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def sentences(error: PackageError) -> tuple[str, str]:
    """For the model, for the owner; the first names no path and no address."""
    message = str(error)
    assert "/" not in message
    assert "127.0.0.1" not in message
    return message, " ".join(error.__notes__)


def whole_folders(cache: Path) -> list[str]:
    root = cache / "environments"
    return [one.name for one in root.iterdir() if one.is_dir()] if root.is_dir() else []


def test_exact_versions_with_hashes_become_an_environment_that_needs_no_network(index: LocalIndex, cache: Path) -> None:
    index.add("alpha", "1.0", requires=["beta>=2"])
    index.add("beta", "1.0")
    index.add("beta", "2.5")
    lock = locked(index, cache, "alpha")
    assert [(one.name, one.version) for one in lock.packages] == [("alpha", "1.0"), ("beta", "2.5")]
    assert all(len(one.hashes[0]) == 64 for one in lock.packages)
    began = time.perf_counter()
    environment = prepared(lock, index, cache)
    first = time.perf_counter() - began
    assert said_by(environment, "import alpha, beta; print(alpha.VERSION, beta.VERSION)") == "1.0 2.5"
    assert environment.bin == environment.python.parent
    asked = len(index.requests)
    index.hangs.set()
    began = time.thread_time()
    assert prepared(lock, index, cache) == environment
    assert time.thread_time() - began < first / 4
    assert len(index.requests) == asked


@pytest.mark.slow
def test_row_142_a_source_for_which_the_compiler_takes_all_memory_is_left(index: LocalIndex, cache: Path) -> None:
    """Seen: 15 GB on the host for a module of 40 MB, which a wheel has in 40 KB."""
    large = "x = [" + "0," * 4_000_000 + "]\n"
    index.add("large", files={"large.py": large, "small.py": "x = 1\n"})
    environment = made(index, cache, "large")
    assert [one.name.partition(".")[0] for one in (environment.site / "__pycache__").glob("*.pyc")] == ["small"]


@pytest.mark.slow
def test_row_146_a_wheel_that_unpacks_to_more_than_the_disk_should_hold_is_stopped_and_leaves_nothing(
    index: LocalIndex, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: 3 GB from a wheel of 3 MB, and 1.7 GB left for ever by each try that ended at its time."""
    index.add("large", files={"large.py": "", "large.bin": "0" * (64 << 20)})
    lock = locked(index, cache, "large")
    monkeypatch.setattr(uv, "_MOST_BYTES", 4 << 20)
    monkeypatch.setattr(uv, "_LOOK_SECONDS", 0.01)
    with pytest.raises(PackageError) as caught:
        prepared(lock, index, cache)
    model, owner = sentences(caught.value)
    assert "cannot be installed: they take more than" in model
    assert "uv was stopped" in owner
    assert whole_folders(cache) == []
    assert sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) < 1 << 20


@pytest.mark.slow
def test_row_225_what_uv_reads_of_a_wheel_takes_no_more_memory_than_it_may(
    index: LocalIndex, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: 18 GB for the list of files in a wheel of 4 MB."""
    index.add("large", files={"large.py": ""}, record_extra=["large.py,,"] * 4_000_000)
    lock = locked(index, cache, "large")
    monkeypatch.setattr(uv, "_MOST_MEMORY", 192 << 20)
    with pytest.raises(PackageError) as caught:
        prepared(lock, index, cache)
    assert "needs too much memory to be installed" in sentences(caught.value)[0]
    index.add("small")
    assert made(index, cache, "small")


def test_row_225_files_of_a_package_that_the_agent_itself_reads_may_have_any_size(
    index: LocalIndex, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = tmp_path / "large.pth"
    with large.open("wb") as file:
        file.truncate(1 << 42)
    assert not environments._runs_at_start(large)
    index.add("listed")
    monkeypatch.setattr(environments, "_MOST_RECORD_BYTES", 100)
    with pytest.raises(PackageError) as caught:
        made(index, cache, "listed")
    assert "has a list of files of more than" in sentences(caught.value)[1]


@pytest.mark.slow
def test_row_226_a_wheel_with_a_thousand_folders_in_folders_is_refused_and_leaves_nothing(
    index: LocalIndex, cache: Path
) -> None:
    """Seen: a RecursionError, and the files of each try stayed for ever."""
    index.add("deep", files={"deep.py": "", f"deep_data/{'a/' * 1_200}x.py": ""})
    try:
        with pytest.raises(PackageError) as caught:
            made(index, cache, "deep")
        assert "more than 100 folders in folders" in sentences(caught.value)[1]
        assert whole_folders(cache) == []
    finally:
        remove_tree(str(cache))  # uv's cache has it, and pytest cannot remove it


def test_the_modules_are_compiled_and_read_only(index: LocalIndex, cache: Path) -> None:
    index.add("alpha")
    environment = made(index, cache, "alpha")
    (compiled,) = (environment.site / "__pycache__").glob("alpha.*.pyc")
    assert not any(file.stat().st_mode & 0o222 for file in environment.site.rglob("*") if file.is_file())
    assert str(environment.site / "alpha.py").encode() in compiled.read_bytes()


def test_programs_are_asked_for_their_version_in_no_folder_of_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where node or python is a shim (asdf, mise, pyenv), a ``.tool-versions`` of a repository says what it starts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    for name in ("node", "python3"):
        shim = tmp_path / "bin" / name
        shim.write_text('#!/bin/sh\npwd >>"$0.asked"\necho v22.7.0\necho here\n')
        shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert node_version() == "22.7.0\nhere"
    assert interpreters._understands(str(tmp_path / "bin" / "node"), ".ts")
    assert python_of(str(tmp_path / "bin" / "python3")).version == "v22.7.0"
    asked = [path.read_text().split() for path in sorted((tmp_path / "bin").glob("*.asked"))]
    assert asked == [["/", "/"], ["/"]]


def test_a_folder_of_wheels_is_where_the_caller_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: --find-links ../wheels was /tmp/wheels, where every user of the machine can put a wheel."""
    monkeypatch.chdir(tmp_path)
    options = Index(find_links=("wheels", "https://a.example/wheels")).options()
    assert options[1:3] == [f"--find-links={tmp_path}/wheels", "--find-links=https://a.example/wheels"]


def test_skills_that_resolve_alike_share_an_environment_and_others_do_not(index: LocalIndex, cache: Path) -> None:
    index.add("alpha")
    index.add("beta")
    one, same, other = made(index, cache, "alpha"), made(index, cache, "alpha>=1"), made(index, cache, "beta")
    assert one.folder == same.folder
    assert one.folder != other.folder


_PREPARE = """
import sys, json
from collections.abc import Callable
from pathlib import Path
from adk_skills_agent.packages.environments import prepare
from adk_skills_agent.packages.lock import read_lock
from adk_skills_agent.packages.skill_environments import Dependencies, SkillEnvironments
from adk_skills_agent.packages.uv import Index
lock, cache, url = sys.argv[1:]
print("starts", flush=True)
made = prepare(read_lock(Path(lock)), cache=Path(cache), index=Index((url,)))
print(made.folder)
"""


def another_process(lock: Lock, cache: Path, index: LocalIndex, tmp_path: Path) -> subprocess.Popen[str]:
    file = tmp_path / "a.lock"
    file.write_text(lock.text())
    return subprocess.Popen(
        [sys.executable, "-c", _PREPARE, str(file), str(cache), index.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )


@pytest.mark.slow
def test_row_97_two_processes_at_once_make_it_once(index: LocalIndex, cache: Path, tmp_path: Path) -> None:
    index.add("alpha")
    lock = locked(index, cache, "alpha")
    before = len(index.downloads)
    index.slow_files = 0.5
    both = [another_process(lock, cache, index, tmp_path) for _ in range(2)]
    results = [process.communicate(timeout=120) for process in both]
    folders = {out.split()[-1] for out, _ in results}
    assert len(folders) == 1, results
    assert len(index.downloads) - before == 1
    assert whole_folders(cache) == [Path(folders.pop()).name]


@pytest.mark.slow
def test_row_97_one_that_is_killed_leaves_no_half_environment_and_blocks_nobody(
    index: LocalIndex, cache: Path, tmp_path: Path
) -> None:
    index.add("alpha")
    lock = locked(index, cache, "alpha")
    before = len(index.downloads)
    index.slow_files = 30
    process = another_process(lock, cache, index, tmp_path)
    deadline = time.monotonic() + 60
    while len(index.downloads) == before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.communicate()
    assert any(name.startswith(".preparing-") for name in whole_folders(cache))
    assert find_environment(lock, cache=cache) is None
    assert list(tmp_path.glob("adk-skills-uv-*"))
    index.slow_files = 0
    index.goes_on.set()
    assert another_process(lock, cache, index, tmp_path).communicate(timeout=120)[1] == ""
    while list(tmp_path.glob("adk-skills-uv-*")):  # a thread of it removes what is left
        assert time.monotonic() < deadline
        assert another_process(lock, cache, index, tmp_path).communicate(timeout=120)[1] == ""
    environment = prepared(lock, index, cache)
    assert said_by(environment, "import alpha; print(alpha.VERSION)") == "1.0"
    assert whole_folders(cache) == [environment.digest]


def test_the_configuration_of_the_working_directory_counts_for_nothing(
    index: LocalIndex, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("alpha")
    (tmp_path / "uv.toml").write_text('index-url = "http://127.0.0.1:9/simple"\n[pip]\nno-deps = true\nbroken')
    (tmp_path / "pyproject.toml").write_text('[tool.uv]\nindex-url = "http://127.0.0.1:9/simple"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:9/simple")
    assert said_by(made(index, cache, "alpha"), "import alpha; print(alpha.VERSION)") == "1.0"


@pytest.mark.parametrize(
    ("requirements", "for_model", "for_owner"),
    [
        (("alpha==9",), "does not exist", "Check the name"),
        (("nobody-made-this",), "does not exist", "Check the name"),
        (("alpha", "gamma"), "exclude one another", "exclude one another"),
        (("withdrawn",), "withdrawn|does not exist", "yanked|does not exist"),
        (("source-only",), "no ready-made wheel", "it has to be allowed"),
        (("alpha @ https://evil.example.com/alpha-1.0-py3-none-any.whl",), "not from a package index", "configured"),
        (("-e .",), "not from a package index", "configured"),
    ],
    ids=["version", "name", "conflict", "yanked", "source", "url", "option"],
)
def test_each_failure_of_a_resolution_is_a_sentence_for_each_reader(
    index: LocalIndex, cache: Path, requirements: tuple[str, ...], for_model: str, for_owner: str
) -> None:
    index.add("alpha", requires=["beta==1"])
    index.add("gamma", requires=["beta==2"])
    index.add("beta", "1")
    index.add("beta", "2")
    index.yanked.add(index.add("withdrawn"))
    index.files["source_only-1.0.tar.gz"] = b"no archive"
    with pytest.raises(PackageError) as caught:
        locked(index, cache, *requirements)
    model, owner = sentences(caught.value)
    assert any(part in model for part in for_model.split("|")), model
    assert any(part in owner for part in for_owner.split("|")), owner


def test_row_96_other_bytes_than_the_locked_ones_are_refused(index: LocalIndex, cache: Path) -> None:
    file = index.add("alpha")
    lock = locked(index, cache, "alpha")
    index.files[file] = wheel("alpha", "1.0", {"alpha.py": "VERSION = 'other'\n"})
    with pytest.raises(PackageError) as caught:
        prepared(lock, index, cache / "other")
    model, owner = sentences(caught.value)
    assert "not what was locked" in model
    assert "another hash" in owner


def test_row_96_an_index_that_sends_other_bytes_than_it_says_is_refused(index: LocalIndex, cache: Path) -> None:
    lock_cache = cache / "one"
    file = index.add("alpha")
    lock = locked(index, lock_cache, "alpha")
    index.lies.add(file)
    with pytest.raises(PackageError, match="not what was locked"):
        prepared(lock, index, cache / "two")
    assert whole_folders(cache / "two") == []


def test_row_96_an_index_that_hangs_ends_at_the_time_limit(index: LocalIndex, cache: Path) -> None:
    index.add("alpha")
    index.hangs.set()
    began = time.monotonic()
    with pytest.raises(PackageError) as caught:
        locked(index, cache, "alpha", seconds=2)
    assert time.monotonic() - began < 50  # the index goes on after a minute
    model, owner = sentences(caught.value)
    assert "within 2 seconds" in model
    assert "Check the index" in owner


def test_an_index_that_is_not_there_is_said(cache: Path) -> None:
    with pytest.raises(PackageError) as caught:
        resolve(["alpha"], cache=cache, index=Index(("http://user:geheim@127.0.0.1:9/simple",)))
    model, owner = sentences(caught.value)
    assert "does not answer" in model
    assert "geheim" not in model + owner


def test_an_index_with_a_certificate_of_a_companys_own_authority_says_what_to_set(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: "does not answer", with an option of uv that ``adk-skills`` has not."""
    Authority(tmp_path).give_to_both("127.0.0.1")
    for name in ("SSL_CERT_FILE", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS"):
        monkeypatch.delenv(name, raising=False)
    with serving(LocalIndex(), tmp_path / "server") as index:
        index.add("alpha")
        with pytest.raises(PackageError) as caught:
            locked(index, cache, "alpha")
        model, owner = sentences(caught.value)
        assert "is not trusted here" in model
        assert "set SSL_CERT_FILE" in owner
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server" / "ca.pem"))
        assert [one.name for one in locked(index, cache, "alpha").packages] == ["alpha"]
        for name in ("UV_SYSTEM_CERTS", "UV_NATIVE_TLS"):
            with monkeypatch.context() as patched:
                patched.setenv(name, "perhaps")  # that uv refuses it says that uv reads it
                with pytest.raises(PackageError) as caught:
                    locked(index, cache, "alpha")
            assert "perhaps" in sentences(caught.value)[1]


def test_row_95_code_that_python_would_run_at_every_start_is_removed_and_never_run(
    index: LocalIndex, cache: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    code = f"import pathlib; pathlib.Path({str(mark)!r}).write_text('x')\n"
    index.add(
        "alpha",
        files={
            "alpha.py": code,
            "alpha.pth": code,
            "sitecustomize.py": code,
            "usercustomize.py": code,
            "plain.pth": "/\n",
            ".pth": code,
        },
    )
    environment = made(index, cache, "alpha")
    assert said_by(environment, "import sys; print('/' in sys.path)") == "False"
    assert not mark.exists()
    notes = " ".join(environment.notes)
    assert "alpha.pth was removed" in notes
    assert "plain.pth was removed: it adds folders" in notes
    assert "sitecustomize.py was removed" in notes
    assert not list(environment.site.glob("*.pth"))


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"alpha.py": "", "alpha-1.0.data/scripts/python": "#!/bin/sh\necho evil\n"}, "bin/python"),
        ({"alpha.py": "", "alpha-1.0.data/data/pyvenv.cfg": "home = /evil\n"}, "pyvenv.cfg"),
        ({"alpha.py": "", "alpha-1.0.data/data/bin/python3": "evil"}, "bin/python3"),
        (  # what is checked must be what Python uses
            {
                "alpha.pth": "import os\n",
                **{f"alpha-1.0.data/data/lib/python3{minor}/site-packages/a.py": "" for minor in (1, 2, 99)},
            },
            "another Python",
        ),
        ({"alpha.py": "", "alpha-1.0.data/data/bin/python._pth": "../evil\n"}, "bin/python._pth"),
        ({"alpha.py": "", "alpha-1.0.data/scripts/python3.11._PTH": "../evil\n"}, "._PTH"),
        ({"alpha.py": "", "alpha-1.0.data/data/bin/pybuilddir.txt": "evil\n"}, "pybuilddir"),
    ],
    ids=["script", "pyvenv", "data", "decoys", "path file", "path file by script", "build folder"],
)
def test_row_103_a_package_that_replaces_the_interpreter_is_refused(
    index: LocalIndex, cache: Path, files: dict[str, str], reason: str
) -> None:
    index.add("alpha", files=files)
    with pytest.raises(PackageError) as caught:
        made(index, cache, "alpha")
    model, owner = sentences(caught.value)
    assert "refused" in model or "cannot be" in model
    assert reason in owner or "uv" in owner
    assert whole_folders(cache) == []


@pytest.mark.parametrize(
    "path", ["../outside.py", "/tmp/adk-skills-outside.py", "alpha-1.0.data/data/../../../../outside.py"]
)
def test_a_wheel_that_writes_outside_is_refused(index: LocalIndex, cache: Path, path: str) -> None:
    index.add("alpha", files={"alpha.py": "", path: "evil"})
    lock = locked(index, cache, "alpha")
    try:
        environment = prepared(lock, index, cache)
    except PackageError as error:
        sentences(error)
        assert whole_folders(cache) == []
    else:  # uv left the file out
        assert not list(environment.folder.rglob("*outside*"))
    assert not list(cache.parent.rglob("*outside*"))
    assert not Path("/tmp/adk-skills-outside.py").exists()


def test_a_record_that_names_a_file_outside_is_not_believed(index: LocalIndex, cache: Path) -> None:
    index.add("alpha", record_extra=["../../../../../../etc/cron.d/x,,"])
    environment = made(index, cache, "alpha")
    assert "cron.d" not in (environment.site / "alpha-1.0.dist-info" / "RECORD").read_text()


def test_a_command_in_the_place_of_a_shell_is_removed(index: LocalIndex, cache: Path) -> None:
    index.add("alpha", commands={"bash": "alpha:main", "alpha-tool": "alpha:main"})
    environment = made(index, cache, "alpha")
    assert not (environment.bin / "bash").exists()
    assert (environment.bin / "alpha-tool").exists()
    assert any("bash was removed" in note for note in environment.notes)


def test_an_environment_whose_python_is_gone_is_made_again(index: LocalIndex, cache: Path) -> None:
    index.add("alpha")
    lock = locked(index, cache, "alpha")
    first = prepared(lock, index, cache)
    first.python.unlink()
    first.python.symlink_to("/nonexistent/python3")
    assert find_environment(lock, cache=cache) is None
    assert said_by(prepared(lock, index, cache), "import alpha; print(alpha.VERSION)") == "1.0"


def test_a_python_that_is_not_there_is_said(index: LocalIndex, cache: Path) -> None:
    with pytest.raises(PackageError) as caught:
        resolve(["alpha"], cache=cache, python="/nonexistent/python3", index=Index((index.url,)))
    assert "Name another one" in sentences(caught.value)[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system needs root")
def test_a_full_disk_is_said_and_leaves_nothing_half_made(index: LocalIndex, cache: Path) -> None:
    index.add("alpha", files={"alpha.py": "", "big.bin": "0123456789abcdef" * 200_000})
    lock = locked(index, cache, "alpha")
    small = cache / "small"
    small.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(PackageError) as caught:
            prepared(lock, index, small)
        model, owner = sentences(caught.value)
        assert "disk is full" in model
        assert "full" in owner
        assert whole_folders(small) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_what_nobody_used_is_collected_and_what_is_used_stays(index: LocalIndex, cache: Path) -> None:
    index.add("alpha")
    index.add("beta")
    old, new = made(index, cache, "alpha"), made(index, cache, "beta")
    long_ago = time.time() - 40 * 86_400
    for path in (old.folder, old.folder.with_name(old.digest + ".used")):
        os.utime(path, (long_ago, long_ago))
    collected = collect(cache)
    assert collected.environments == (old.digest,)
    assert (collected.kept, collected.bytes > 0) == (1, True)
    assert whole_folders(cache) == [new.digest]
    assert collect(cache, unused_days=0).environments == (new.digest,)
    assert whole_folders(cache) == []


def test_a_lock_survives_its_file_and_a_broken_one_is_said(index: LocalIndex, cache: Path, tmp_path: Path) -> None:
    index.add("alpha")
    lock = locked(index, cache, "alpha")
    file = tmp_path / "adk-skills.lock"
    file.write_text(lock.text())
    assert read_lock(file) == lock
    table = json.loads(lock.text())
    for broken in (
        b"{",
        b"[]",
        json.dumps(table | {"format": 99}).encode(),
        json.dumps(table | {"packages": [{"name": "../x", "version": "1", "sha256": ["0" * 64]}]}).encode(),
        json.dumps(table | {"packages": [{"name": "x", "version": "1 --index-url=y", "sha256": ["0" * 64]}]}).encode(),
        json.dumps(table | {"packages": [{"name": "x", "version": "1", "sha256": []}]}).encode(),
        b"[" * 100_000,
    ):
        with pytest.raises(ConfigError, match="is not a lock"):
            parse_lock(broken, "adk-skills.lock")


def test_a_lock_of_another_machine_is_said(index: LocalIndex, cache: Path) -> None:
    index.add("alpha")
    lock = locked(index, cache, "alpha")
    other = parse_lock(json.dumps(lock.to_dict() | {"platform": "darwin-arm64"}).encode(), "adk-skills.lock")
    with pytest.raises(PackageError) as caught:
        prepared(other, index, cache)
    assert "darwin-arm64" in sentences(caught.value)[1]


def test_without_uv_the_owner_reads_what_to_install(
    index: LocalIndex, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = textwrap.dedent(
        f"""
        import sys
        sys.modules["uv"] = None
        from pathlib import Path
        from adk_skills_agent.packages.lock import resolve
        try:
            resolve(["alpha"], cache=Path({str(cache)!r}))
        except Exception as error:
            print(error, *error.__notes__)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert f"Install it: {install_hint('packages')}" in done.stdout


def test_threads_of_one_process_make_it_once_too(index: LocalIndex, cache: Path) -> None:
    index.add("alpha")
    lock = locked(index, cache, "alpha")
    found: list[Environment] = []
    threads = [threading.Thread(target=lambda: found.append(prepared(lock, index, cache))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len({one.folder for one in found}) == 1


def test_a_package_that_cannot_be_had_costs_only_the_scripts_that_import_it(
    make_skill: Callable[..., Path], index: LocalIndex, cache: Path
) -> None:
    """One wrong name in a text, and no script of the skill had any package."""
    index.add("defusedxml", "99.1")
    scripts = {"scripts/a.py": "import defusedxml\n", "scripts/b.py": "import defusedxml, alpha\n"}
    body = "```bash\npip install 'defusedxml>=99' nobody-made-this\n```\n"
    skill = open_skill(str(make_skill("x", body=body, files=scripts)), ())
    environments = SkillEnvironments(Dependencies("install", indexes=(index.url,), cache=cache))
    ready = environments.ready_for(skill, "scripts/a.py")
    assert ready.environment is not None
    assert said_by(ready.environment, "import defusedxml; print(defusedxml.VERSION)") == "99.1"
    assert any("does not exist" in note and "its own code imports" in note for note in ready.notes)
    assert environments.ready_for(skill, "scripts/a.py") == ready
    with pytest.raises(PackageError, match="does not exist"):
        environments.environment_for(skill)


@pytest.mark.parametrize(
    ("script", "code", "has"),
    [
        ("scripts/a.sh", "alpha --help\n", True),
        ("scripts/a.sh", "uv run scripts/b.py\n", True),
        ("scripts/a.sh", "echo alpha\n", False),
        ("scripts/a.py", "import subprocess\nsubprocess.run(['alpha', 'x'])\n", True),
        ("scripts/a.py", "print('alpha')\n", False),
    ],
)
def test_a_script_that_calls_a_packages_program_gets_the_packages(
    make_skill: Callable[..., Path], index: LocalIndex, cache: Path, script: str, code: str, has: bool
) -> None:
    index.add("alpha", "1.0")
    body = "```bash\nuv tool install alpha\n```\n"
    skill = open_skill(str(make_skill("x", body=body, files={script: code, "scripts/b.py": "print(1)\n"})), ())
    environments = SkillEnvironments(Dependencies("install", indexes=(index.url,), cache=cache))
    assert (environments.ready_for(skill, script).environment is not None) == has
