"""Programs that people use keep working under the filter, whose list is what container engines allow (part S)."""

from __future__ import annotations

import importlib.util
import io
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from adk_skills_agent.sandbox.contract import InputFile, IsolationLevel, Status

PROGRAMS = {
    "git": "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first && git log",
    "node": 'node -e \'require("fs").writeFileSync("n", "x"); new Promise(r => setTimeout(r, 10)).then(() => '
    'console.log(require("child_process").execSync("cat n").toString()))\'',
    "sqlite3": "sqlite3 a.db 'create table t(a); insert into t values(6*7); pragma journal_mode=wal; select a from t'",
    "ffmpeg": "ffmpeg -v error -f lavfi -i testsrc=duration=1:size=64x64:rate=5 -y out.gif && test -s out.gif",
    "perl": 'perl -e \'open(my $f, ">", "p"); print $f 42; close $f; print -s "p"\'',
    "java": "java -version",
    "javac": "echo 'class A { public static void main(String[] a) { System.out.println(42); } }' > A.java && "
    "javac A.java && java A",
    "Rscript": "Rscript -e 'cat(sd(1:3)); pdf(\"a.pdf\"); plot(1:3)' && test -s a.pdf",
    "getent": "getent protocols tcp && "
    """python3 -c 'import mimetypes as m, os; os.path.exists("/etc/mime.types") and len(m.guess_type("a.odt")[0])'""",
    "pandoc": "echo '# *Title*' > a.md && pandoc a.md -o a.docx && pandoc a.docx -t markdown | grep -F '*Title*'",
    "convert": "convert -size 200x80 xc:white -pointsize 40 -draw 'text 10,50 \"HELLO\"' a.png && test -s a.png",
    "pdflatex": "echo '\\documentclass{article}\\begin{document}42\\end{document}' > a.tex && "
    "pdflatex -interaction=batchmode a.tex && test -s a.pdf",
    "soffice": "echo text > a.txt && soffice --headless --convert-to pdf a.txt && test -s a.pdf",
    "chromium": "echo '<h1>Title</h1>' > a.html && "
    'chromium --headless --no-sandbox --disable-gpu --print-to-pdf=a.pdf "file://$PWD/a.html" && test -s a.pdf',
}
NEEDS_SOCKETS = {"soffice", "chromium"}
"""They wait for ever, or end, where there are no UNIX sockets."""
CPYTHON = (
    "test.test_threading",
    "test.test_subprocess",
    "test.test_os",
    "test.test_asyncio.test_subprocess",
    "test.test_queue",
    "test.test_multiprocessing_main_handling",
)
# A ``.pth`` file may import threading before the test that wants to be the first; then it fails outside, too.
FAILS_OUTSIDE = {"test_import_from_another_thread"}
# Nothing is spliced or sent by reference (rows 249 and 275).
NOT_SENT = {
    "test_invalid_offset", "test_keywords", "test_offset_overflow", "test_send_at_certain_offset",
    "test_send_whole_file", "test_simple", "test_splice", "test_splice_offset_in", "test_splice_offset_out",
}  # fmt: skip
# What each level does not give, said in docs/explanation/isolation.md.
WITHOUT = {
    # At Landlock there are no sockets, terminals, /proc of processes, groups and priorities of others, and attributes
    # of files are pretended to a run that may own the user's files.
    IsolationLevel.LANDLOCK: {
        "test.test_subprocess": {
            "test_group", "test_group_error", "test_user", "test_extra_groups", "test_pipesizes",
            "test_failed_child_execute_fd_leak", "test_restore_signals",
        },
        "test.test_os": {
            "test_listdir", "test_lpath", "test_openpty", "test_set_get_priority", *NOT_SENT,
        },
    },
    # The user namespace has one user: another id is an invalid argument (EINVAL) and not a refusal (EPERM). Priorities
    # stay as they are.
    IsolationLevel.NAMESPACES: {
        "test.test_os": {"test_chown_without_permission", "test_set_get_priority", *NOT_SENT},
        "test.test_subprocess": {"test_user"},
    },
}  # fmt: skip


# The compiler is two seconds of computing, Chromium five: they run in `make test-slow`. What javac needs of the kernel,
# java needs, too; what Chromium needs of it (sockets, many threads and processes, shared memory), soffice and node.
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if one in {"javac", "chromium"} else one for one in PROGRAMS]
)
async def test_a_program_of_the_system_works(box, backend, name: str, tmp_path: Path) -> None:
    if not backend.is_local or shutil.which(name) is None:
        pytest.skip(f"{name} is not installed here")
    if name in NEEDS_SOCKETS and backend.level is IsolationLevel.LANDLOCK:
        pytest.skip("Landlock has no UNIX sockets")
    if name == "chromium" and backend.level is IsolationLevel.PROCESS:
        pytest.skip("the path of the temporary folder is too long for Chromium's socket")
    if (
        name == "git"
        and (await box.python("import os; raise SystemExit(not os.access(os.getcwd(), os.X_OK))")).exit_code
    ):
        pytest.skip(
            "the temporary folder lies in one that the run's user may not enter, and git goes there by its path"
        )
    result = await box.bash(PROGRAMS[name], memory_bytes=4 << 30, pids=256, open_files=1024, wall_seconds=60)
    if result.status is Status.ERROR:
        outside = subprocess.run(["bash", "-c", PROGRAMS[name]], cwd=tmp_path, capture_output=True, check=False)
        if outside.returncode != 0:
            pytest.skip(f"{name} does not work here, without a sandbox either: {outside.stderr[-200:]!r}")
    assert result.status is Status.OK, result.stderr


@pytest.mark.parametrize("package", ["numpy", "pandas"])
async def test_a_package_of_the_interpreter_works(box, backend, package: str) -> None:
    asked = [sys.executable, "-I", "-c", f"import {package}"]
    if not backend.is_local or subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip(f"{package} is not installed here")
    code = "import numpy, sys; a = numpy.arange(1e5).reshape(100, -1); print((a @ a.T).sum() > 0)"
    if package == "pandas":
        code = (
            "import pandas; pandas.DataFrame({'a': [1, 2]}).to_csv('t.csv'); print(len(pandas.read_csv('t.csv')) == 2)"
        )
    result = await box.python(code, memory_bytes=2 << 30, wall_seconds=60)
    assert result.stdout == b"True\n", result.stderr


INSTALLERS = {
    "pip": "python -m pip --isolated install -q --no-index --target installed {wheel}",
    "uv": "uv venv -q --offline -p $(command -v python) environment && "
    "uv pip install -q --offline -p environment/bin/python --target installed {wheel}",
}


@pytest.mark.parametrize("name", [pytest.param("pip", marks=pytest.mark.slow), "uv"])
async def test_an_installer_works_on_a_wheel(box, backend, name: str) -> None:
    programs = Path(sys.executable).parent
    if not backend.is_local or not (programs / "python").exists():
        pytest.skip("about the filter")
    if not (importlib.util.find_spec("pip") if name == "pip" else (programs / "uv").exists()):
        pytest.skip(f"{name} is not installed beside the interpreter")
    wheel = "tiny-1.0-py3-none-any.whl"
    info = {
        "METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("tiny.py", "print(42)\n")
        for file, text in info.items():
            archive.writestr(f"tiny-1.0.dist-info/{file}", text)
    line = f"{INSTALLERS[name].format(wheel=wheel)} && PYTHONPATH=installed python -c 'import tiny'"
    files = (InputFile(wheel, content.getvalue()),)
    result = await box.bash(line, input_files=files, memory_bytes=2 << 30, pids=256, wall_seconds=60)
    assert result.stdout == b"42\n", result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("module", CPYTHON)
async def test_pythons_own_tests_pass(box, backend, module: str) -> None:
    """What fails is what fails outside, too, or is named above with the reason."""
    if not backend.is_local or backend.level is IsolationLevel.PROCESS:
        pytest.skip("about the filter")
    if backend.level is IsolationLevel.LANDLOCK and "multiprocessing" in module:
        pytest.skip("Landlock has no /dev/shm for semaphores; see test_processes_without_semaphores_work")
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    has_tests = [str(python), "-c", f"import {module.rpartition('.')[0]}.support, {module}"]
    if subprocess.run(has_tests, capture_output=True, check=False).returncode:
        pytest.skip("this Python comes without its tests")
    result = await box.run(
        str(python), "-m", "unittest", "-v", module,
        wall_seconds=400, memory_bytes=2 << 30, pids=300, open_files=1024, cpu_seconds=None, output_bytes=4 << 20,
        workspace_bytes=2 << 30, tmp_bytes=512 << 20, file_bytes=1 << 30,
    )  # fmt: skip
    failed = set(re.findall(r"^(?:ERROR|FAIL): (\S+) \(", result.stderr.decode(errors="replace"), re.MULTILINE))
    assert re.search(rb"^Ran [1-9]\d* tests", result.stderr, re.MULTILINE), result.stderr[-2000:]
    allowed = WITHOUT[backend.level].get(module, set())
    assert failed - FAILS_OUTSIDE <= allowed, result.stderr[-4000:].decode(errors="replace")


async def test_processes_without_semaphores_work(box, backend) -> None:
    """What of ``multiprocessing`` holds at every level; :data:`WITHOUT` says why the rest does not at Landlock."""
    if not backend.is_local:
        pytest.skip("about the filter")
    result = await box.python(
        "import multiprocessing, os\n"
        "def work(pipe): pipe.send(sum(pipe.recv())); pipe.close()\n"
        "if __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn'):\n"
        "        ours, theirs = multiprocessing.get_context(method).Pipe()\n"
        "        child = multiprocessing.get_context(method).Process(target=work, args=(theirs,))\n"
        "        child.start(); ours.send([1, 2, 39]); print(ours.recv()); child.join(); print(child.exitcode)\n"
    )
    assert result.stdout.split() == [b"42", b"0"] * 2, result.stderr
