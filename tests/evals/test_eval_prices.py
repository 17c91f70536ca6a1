"""Models and objects by their names; what tokens cost: prices that are given or known, none rather than a wrong one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.models import KNOWN, Price, object_named, price_of, read_price
from adk_skills_agent.evals.trace import Usage


def test_cached_tokens_of_the_prompt_have_a_price_of_their_own() -> None:
    price = Price(1.0, 10.0, 0.1)
    assert price.cost(Usage(prompt=1_000_000, output=100_000, total=1_100_000, cached=400_000)) == pytest.approx(1.64)
    assert price.cost(Usage()) == 0.0


def test_a_price_is_read_as_a_person_writes_it() -> None:
    assert read_price("0.30, 2.50") == Price(0.30, 2.50, 0.30)
    assert read_price("1,2,0.5") == Price(1.0, 2.0, 0.5)
    for wrong in ("", "1", "1,2,3,4", "a,b", "-1,2", "1e3,2"):
        with pytest.raises(ConfigError, match="is not a price"):
            read_price(wrong)


def test_prices_of_gemini_are_known_and_of_the_unknown_there_is_none() -> None:
    price = price_of("gemini-2.5-flash")
    assert price is not None
    assert 0 < price.cached < price.prompt < price.output
    assert price.prompt == pytest.approx(KNOWN["gemini-2.5-flash"].prompt, rel=0.5)
    assert price_of("my:model") is None


def test_row_229_a_module_of_the_current_folder_takes_the_place_of_no_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: in a stranger's repository --model mine:model, of an installed package, ran the repository's mine.py."""
    for place, name in (("installed", "mine_of_229"), ("here", "mine_of_229"), ("here", "other_of_229")):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / f"{name}.py").write_text(f"place = {place!r}\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "installed")])
    monkeypatch.chdir(tmp_path / "here")
    assert object_named("mine_of_229:place", str, "text") == "installed"
    assert str(tmp_path / "here") not in sys.path
    assert object_named("other_of_229:place", str, "text") == "here"
    assert sys.path[-1] == str(tmp_path / "here")
    for name in ("", ":x", ".:x"):
        with pytest.raises(ConfigError, match="cannot be used"):
            object_named(name, str, "text")
