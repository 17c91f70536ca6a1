"""Programs that people use keep working under the filter, whose list is what container engines allow (part S)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adk_skills_agent.sandbox.contract import IsolationLevel, Status

PROGRAMS = {
    "git": "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first && git log",
    "node": 'node -e \'require("fs").writeFileSync("n", "x"); new Promise(r => setTimeout(r, 10)).then(() => '
    'console.log(require("child_process").execSync("cat n").toString()))\'',
    "sqlite3": "sqlite3 a.db 'create table t(a); insert into t values(6*7); pragma journal_mode=wal; select a from t'",
    "ffmpeg": "ffmpeg -v error -f lavfi -i testsrc=duration=1:size=64x64:rate=5 -y out.gif && test -s out.gif",
    "perl": 'perl -e \'open(my $f, ">", "p"); print $f 42; close $f; print -s "p"\'',
    "java": "java -version",
}
# At Landlock there are no sockets, terminals and other processes' priorities, and attributes of files are pretended.
CPYTHON = {
    "test.test_threading": {"test_import_from_another_thread"},
    "test.test_subprocess": {"test_group", "test_group_error", "test_user", "test_extra_groups", "test_pipesizes"},
    "test.test_os": {
        "test_invalid_offset", "test_keywords", "test_listdir", "test_lpath", "test_offset_overflow", "test_openpty",
        "test_send_at_certain_offset", "test_send_whole_file", "test_set_get_priority", "test_simple",
    },
    "test.test_asyncio.test_subprocess": set(),
    "test.test_queue": set(),
    "test.test_multiprocessing_main_handling": set(),
}  # fmt: skip
ONLY_AT_LANDLOCK = {"test.test_os"}


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_of_the_system_works(box, backend, name: str) -> None:
    if not backend.is_local or shutil.which(name) is None:
        pytest.skip(f"{name} is not installed here")
    if (
        name == "git"
        and (await box.python("import os; raise SystemExit(not os.access(os.getcwd(), os.X_OK))")).exit_code
    ):
        pytest.skip(
            "the temporary folder lies in one that the run's user may not enter, and git goes there by its path"
        )
    result = await box.bash(PROGRAMS[name], memory_bytes=4 << 30, pids=256, open_files=1024, wall_seconds=60)
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


@pytest.mark.slow
@pytest.mark.parametrize("module", CPYTHON)
async def test_pythons_own_tests_pass(box, backend, module: str) -> None:
    """What fails is what fails outside, too, or is named above with the reason."""
    if not backend.is_local or backend.level is IsolationLevel.PROCESS:
        pytest.skip("about the filter")
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
    allowed = CPYTHON[module]
    if module in ONLY_AT_LANDLOCK and backend.level is not IsolationLevel.LANDLOCK:
        allowed = set()
    assert failed <= allowed, result.stderr[-4000:].decode(errors="replace")
