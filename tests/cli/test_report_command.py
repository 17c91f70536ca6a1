"""``adk-skills report``, as a person starts it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.cli.main import main

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "evals" / "report"))
from result_rows import a_benchmark, a_row, a_run  # noqa: E402

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_it(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["adk-skills", "report", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run_it
