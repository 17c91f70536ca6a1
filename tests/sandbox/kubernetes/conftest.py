"""A cluster for each test that wants one; its pods need bubblewrap."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import level_table
from loopback_cluster import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    level_table.require("namespaces")
    made = Cluster()
    yield made
    made.close()
