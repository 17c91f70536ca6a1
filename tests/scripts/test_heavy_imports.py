"""Modules that take long to import are imported in a sandbox that waits (issue part F, item 9)."""

from __future__ import annotations

import asyncio
import sys
import venv
from pathlib import Path

import pytest

from adk_skills_agent import ExecutionRequest, ReadOnlyMount, SandboxPolicy, local_sandbox
from adk_skills_agent.scripts.plan import heavy_imports

pytestmark = pytest.mark.warm_pool

PANDAS = """\
import os, pathlib
IMPORTED_BY = os.getpid()
cache = pathlib.Path.home() / ".cache"
cache.mkdir(parents=True, exist_ok=True)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment of this interpreter with a pandas that says who imported it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == Path.home().stat().st_uid and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "pandas").mkdir()
    (site / "pandas/__init__.py").write_text(PANDAS)
    (site / "pandas-2.0.dist-info").mkdir()
    (site / "pandas/io.py").write_text("")
    (site / "numpy").mkdir()  # of a distribution that is called otherwise
    (site / "numpy/__init__.py").write_text("raise SystemExit('not to be imported')")
    return str(folder / "bin/python")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import pandas as pd\n", ("pandas",)),
        ("import os, pandas\nfrom pandas.io import sql\n", ("pandas", "pandas.io")),
        ("'''\nimport pandas\n'''\n", ()),
        ("import pandas.__main__, pandas.missing\n", ()),
        ("import pandas\n)", ()),
        ("def f():\n    import pandas\n", ()),
        ("import numpy\nimport requests\n", ()),
        ("# import pandas\nprint('import pandas')\n", ()),
        ("from . import pandas\n", ()),
        ("", ()),
    ],
)
def test_row_98_what_is_found(tmp_path: Path, python: str, text: str, found: tuple[str, ...]) -> None:
    script = tmp_path / "x.py"
    script.write_text(text)
    assert heavy_imports(script, python) == found
    assert heavy_imports(tmp_path / "missing.py", python) == ()


def test_a_changed_script_is_looked_at_again(tmp_path: Path, python: str) -> None:
    script = tmp_path / "x.py"
    script.write_text("import os\n")
    assert heavy_imports(script, python) == ()
    script.write_text("import pandas\n")
    assert heavy_imports(script, python) == ("pandas",)


async def test_a_waiting_sandbox_of_the_environment_has_imported_them(tmp_path: Path, python: str) -> None:
    sandbox = local_sandbox()
    if (await sandbox.probe()).level != "namespaces":
        pytest.skip("only sandboxes with namespaces wait")
    skill = tmp_path / "skill"
    skill.mkdir()
    tmp_path.chmod(0o755)
    (skill / "x.py").write_text("import pandas, sys\nprint(pandas.IMPORTED_BY, sys.prefix)\n")
    policy = SandboxPolicy(python=python, preload=heavy_imports(skill / "x.py", python))
    request = ExecutionRequest((python, "-s", "-B", "/skill/x.py"), policy, mounts=(ReadOnlyMount(skill),))
    prefix = str(Path(python).parent.parent)
    for _ in range(100):
        result = await sandbox.run(request)
        assert result.exit_code == 0, result.stderr
        by, found = result.stdout.decode().split()
        assert found == prefix != sys.prefix
        assert (by == "1") is result.warm
        if result.warm:
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("no sandbox waited")
