"""The 2,066 real skills as whole folders: what layout.jsonl names is built, sparse, around the real SKILL.md files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
from adk_skills_agent.format.models import Severity

BAR = 0.995


@pytest.fixture(scope="module")
def layout(corpus: Path) -> list[dict[str, Any]]:
    with (corpus / "layout.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def trees(corpus: Path, layout: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every real skill with all its files; the files other than SKILL.md are sparse, of the right size and mode."""
    root = tmp_path_factory.mktemp("corpus")
    for row in layout:
        folder = root / row["skill"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "SKILL.md").write_bytes((corpus / row["skill"] / "SKILL.md").read_bytes())
    for row in layout:
        for entry in row["files"]:
            path = root / row["skill"] / entry["path"]
            if path.exists():
                continue  # the SKILL.md of a skill nested in this one
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.truncate(entry["size"])
            path.chmod(int(entry["mode"], 8) & 0o777)
    return root


@pytest.mark.parametrize("share", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.requirement("S0-134", "S0-162")
def test_nearly_every_real_skill_loads_and_every_bundled_file_is_listed(
    trees: Path, layout: list[dict[str, Any]], share: int
) -> None:
    """At least 99.5 % load, every bundled file with its size and executable bit. Each seventh in `make test`."""
    loaded = 0
    for row in layout[::share]:
        registry = SkillsRegistry(RegistryConfig(cache=False))
        folder = trees / row["skill"]
        registry.discover([folder / "SKILL.md"])
        if len(registry) != 1:
            assert any(diagnostic.severity is Severity.ERROR for diagnostic in registry.diagnostics), row["skill"]
            continue
        loaded += 1
        (name,) = registry
        skill = registry.load_skill(name)
        assert skill.description
        assert skill.instructions or row["skill"]
        listed = {file.path: file for file in skill.files()}
        for entry in row["files"]:
            file = listed[entry["path"]]
            assert file.executable == (entry["mode"] == "100755")
            if not entry["path"].endswith("SKILL.md"):
                assert file.size == entry["size"]
            assert skill.resolve(entry["path"]) == folder / entry["path"]
        assert skill.file_diagnostics() == ()
        for repair in registry.get_metadata(name).repairs:
            assert repair in {diagnostic.code for diagnostic in registry.diagnostics}
    assert loaded >= BAR * len(layout[::share])


def test_one_look_at_all_of_them_finds_them_and_names_each_that_is_hidden(
    trees: Path, layout: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Real collections repeat names; each skill is in the catalog, or a diagnostic says which one hides it."""
    config = RegistryConfig(cache_dir=tmp_path / "cache")
    registry = SkillsRegistry(config)
    registry.discover([trees])
    shown = {str(metadata.location) for metadata in registry.list_metadata()}
    hidden = {diagnostic.file for diagnostic in registry.diagnostics if diagnostic.code == "shadowed-skill"}
    expected = {str(trees / row["skill"] / "SKILL.md") for row in layout}
    missing = expected - shown - hidden
    # what lies in a skill's own assets/ is a sample, and one real skill has one
    assert all("/assets/" in path for path in missing)
    assert len(expected) - len(missing) >= BAR * len(expected)

    again = SkillsRegistry(config)
    again.discover([trees])
    assert again.list_metadata() == registry.list_metadata()
    assert again.diagnostics == registry.diagnostics
    assert not again.refresh()


def test_the_parts_of_a_plain_name_are_enough_to_find_each(trees: Path) -> None:
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover([trees])
    for name in registry:
        assert name in registry
        assert name == registry.load_skill(name).name
        assert 1 <= len(name) <= 64
