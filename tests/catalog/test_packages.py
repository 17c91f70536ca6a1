from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.catalog import RegistryConfig, Scope, SkillsRegistry

MakeSkill = Callable[..., Path]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, first on the path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def install(site: Path, name: str, value: str) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[adk_skills_agent.skills]\n{name} = {value}\n")


@pytest.mark.requirement("C12")
def test_an_installed_package_gives_skills_without_being_imported_c12(
    make_skill: MakeSkill, site: Path, tmp_path: Path
) -> None:
    explosive = "raise RuntimeError('imported')\n"
    for package in ("acme_tools", "acme_tools/skills"):
        (site / package).mkdir()
        (site / package / "__init__.py").write_text(explosive)
    make_skill("packaged", root=site / "acme_tools" / "skills")
    make_skill("not-offered", root=site / "acme_tools" / "other")
    install(site, "acme", "acme_tools.skills")
    registry = SkillsRegistry(RegistryConfig(cache=False))
    assert registry.discover_scopes(tmp_path) == 1
    assert registry.scope_of("packaged") is Scope.PACKAGE
    assert registry.diagnostics == ()
    assert "acme_tools" not in sys.modules


def test_a_namespace_package_and_a_module_in_a_package_work(make_skill: MakeSkill, site: Path, tmp_path: Path) -> None:
    make_skill("one", root=site / "space" / "data")
    install(site, "space", "space.data:anything")
    (site / "pack").mkdir()
    (site / "pack" / "__init__.py").touch()
    (site / "pack" / "plugin.py").touch()
    make_skill("two", root=site / "pack")
    install(site, "pack", "pack.plugin")
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover_scopes(tmp_path)
    assert list(registry) == ["one", "two"]


@pytest.mark.parametrize("value", ["not_installed.skills", "single_module", "json", ".relative", "pack.missing"])
def test_an_entry_point_to_nowhere_is_a_diagnostic(value: str, site: Path, tmp_path: Path) -> None:
    (site / "single_module.py").touch()
    (site / "pack").mkdir()
    install(site, "broken", value)
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover_scopes(tmp_path)
    if value == "json":
        assert registry.diagnostics == ()  # a package with a folder, and no skills in it
    else:
        assert [diagnostic.code for diagnostic in registry.diagnostics] == ["broken-entry-point"]
        assert "broken" in registry.diagnostics[0].message


def test_packages_can_be_switched_off(make_skill: MakeSkill, site: Path, tmp_path: Path) -> None:
    make_skill("one", root=site / "space")
    install(site, "space", "space")
    assert SkillsRegistry(RegistryConfig(cache=False, packages=False)).discover_scopes(tmp_path) == 0
