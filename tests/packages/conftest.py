"""An index of our own for each test; nothing of these tests reaches the network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local_index import LocalIndex, knows_this_interpreter, serving


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with serving(LocalIndex()) as made:
        yield made


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return knows_this_interpreter(tmp_path / "cache")
