"""Figures and data frames of the real libraries become files; they are in the dependency group ``slow``."""

from __future__ import annotations

import csv
import io

import pytest
from keeping import Kept

pytestmark = pytest.mark.slow

ROOMY = {"memory_bytes": 1 << 30, "wall_seconds": 120.0, "pids": 128}


async def test_figures_of_matplotlib_become_files_and_are_closed(kept: Kept) -> None:
    pytest.importorskip("matplotlib")
    first = await kept.run(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.figure()\nplt.bar(['a'], [1])\nplt.show()", **ROOMY
    )
    assert first.status == "ok", first.stderr
    assert [file.path for file in first.files] == ["figure-1-1.png", "figure-1-2.png"]
    assert all(file.content.startswith(b"\x89PNG") and file.mime_type == "image/png" for file in first.files)
    second = await kept.run("plt.get_fignums()", **ROOMY)
    assert (second.stdout, second.files) == (b"[]\n", ())


async def test_a_data_frame_of_pandas_is_shown_and_becomes_a_table(kept: Kept) -> None:
    pytest.importorskip("pandas")
    result = await kept.run("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y,z']})", **ROOMY)
    assert result.status == "ok", result.stderr
    assert result.stdout.decode().split() == ["a", "b", "0", "1", "x", "1", "2", "y,z"]
    (table,) = result.files
    assert (table.path, table.mime_type) == ("table-1-1.csv", "text/csv")
    assert list(csv.reader(io.StringIO(table.content.decode()))) == [["", "a", "b"], ["0", "1", "x"], ["1", "2", "y,z"]]
    # A series and a frame that is not the last value are only text.
    again = await kept.run("frame = pd.DataFrame({'a': [1]})\nframe['a']", **ROOMY)
    assert again.files == ()
