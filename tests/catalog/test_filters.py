from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.catalog import RegistryConfig, SkillsRegistry
from adk_skills_agent.errors import ResourceNotFound, SkillNotFound

MakeSkill = Callable[..., Path]


@pytest.fixture
def registry(make_skill: MakeSkill, tmp_path: Path) -> SkillsRegistry:
    for name in ("db-query", "db-admin", "web-search", "web-crawl", "pdf"):
        make_skill(name, description=f"The {name} skill: thing.")
    folder = make_skill("manual")
    (folder / "SKILL.md").write_text(
        "---\nname: manual\ndescription: By hand.\ndisable-model-invocation: True\n---\nbody\n"
    )
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover([tmp_path / "skills"])
    return registry


@pytest.mark.parametrize(
    ("allow", "deny", "names"),
    [
        ((), (), ["db-admin", "db-query", "pdf", "web-crawl", "web-search"]),
        (("db-*",), (), ["db-admin", "db-query"]),
        ("db-*", (), ["db-admin", "db-query"]),
        (("db-*", "pdf"), ("*-admin",), ["db-query", "pdf"]),
        ((), ("web-?rawl", "[dp]*"), ["web-search"]),
        (("nothing",), (), []),
        (("PDF",), (), []),
        ((), "*", []),
        (("manual", "pdf"), (), ["pdf"]),
    ],
)
def test_allow_and_deny_take_wildcards_and_deny_wins(
    allow: tuple[str, ...], deny: tuple[str, ...], names: list[str], registry: SkillsRegistry
) -> None:
    view = registry.view(allow, deny)
    assert list(view) == names
    assert len(view) == len(names)
    assert [metadata.name for metadata in view.list_metadata()] == names


def test_a_predicate_decides_about_the_rest(registry: SkillsRegistry) -> None:
    asked: list[str] = []

    def short(metadata: object) -> bool:
        asked.append(metadata.name)  # type: ignore[attr-defined]
        return len(metadata.name) < 9  # type: ignore[attr-defined]

    view = registry.view(deny=("pdf",), predicate=short)
    assert list(view) == ["db-admin", "db-query"]
    assert "pdf" not in asked
    _ = [len(view), list(view), view.list_metadata()]
    assert len(asked) == 4, "once for each skill as long as nothing changes"


@pytest.mark.requirement("C26")
def test_what_is_filtered_is_hidden_entirely_c26(registry: SkillsRegistry, make_skill: MakeSkill) -> None:
    view = registry.view(allow=("web-*",))
    assert "db-query" not in view
    assert "db" not in view.to_available_skills_xml(location=True)
    assert "db" not in view.catalog_text(10_000).text
    assert {hit.name for hit in view.search("db query thing", limit=100)} == {"web-crawl", "web-search"}
    assert [hit.name for hit in view.search("db-query", limit=1)] != ["db-query"]
    for ask in (view.load_skill, view.get_metadata):
        with pytest.raises(SkillNotFound) as caught:
            ask("db-query")
        assert "db-admin" not in caught.value.message
        assert not {"db-admin", "db-query"} & set(caught.value.suggestions)
    assert not any("db-" in str(diagnostic) for diagnostic in view.diagnostics)
    assert any("db-" in str(diagnostic) for diagnostic in registry.diagnostics)


@pytest.mark.requirement("C25")
def test_skills_that_opted_out_are_hidden_unless_asked_for_c25(registry: SkillsRegistry) -> None:
    assert "manual" in registry
    assert "manual" not in registry.view()
    assert "manual" in registry.view(include_disabled=True)


def test_opting_out_survives_the_index_on_disk(registry: SkillsRegistry, make_skill: MakeSkill, tmp_path: Path) -> None:
    for number in range(10):
        make_skill(f"filler-{number}")
    for _ in range(2):
        cached = SkillsRegistry()
        cached.discover([tmp_path / "skills"])
        assert "manual" not in cached.view()
        assert "manual" in cached


@pytest.mark.requirement("S4-16")
def test_a_view_of_a_view_only_narrows_and_follows_the_disk_s4_16(
    registry: SkillsRegistry, make_skill: MakeSkill
) -> None:
    outer = registry.view(allow=("db-*", "web-*"))
    inner = outer.view(deny=("*-admin",))
    assert list(inner) == ["db-query", "web-crawl", "web-search"]
    version = inner.version
    make_skill("db-new")
    make_skill("other")
    assert inner.refresh()
    assert "db-new" in inner
    assert "other" not in inner
    assert inner.version > version
    assert inner.load_skill("db-new") is registry.load_skill("db-new")


async def test_a_view_refreshes_when_due(registry: SkillsRegistry, make_skill: MakeSkill) -> None:
    registry._next_look = 0
    make_skill("db-new")
    assert await registry.view("db-*").refresh_if_due()
    assert "db-new" in registry


@pytest.mark.requirement("C26")
def test_a_hidden_skill_inside_a_visible_one_is_not_among_its_files_c26(make_skill: MakeSkill, tmp_path: Path) -> None:
    outer = make_skill("outer", files={"a.md": "a"}, root=tmp_path / "n")
    make_skill("inner", body="HIDDEN", files={"b.md": "HIDDEN"}, root=outer)
    (outer / "link.md").symlink_to("inner/b.md")
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover([tmp_path / "n"])
    assert len(registry.load_skill("outer").files()) == 4
    skill = registry.view(deny=("inner",)).load_skill("outer")
    assert [file.path for file in skill.files()] == ["a.md"]
    assert skill.file_diagnostics() == ()
    for path in ("inner/SKILL.md", "inner/b.md", "link.md", "inner"):
        with pytest.raises(ResourceNotFound) as caught:
            skill.read_text(path)
        assert "folder" not in caught.value.message
    assert registry.view().view(deny=("inner",)).load_skill("outer").read_text("a.md") == "a"


@pytest.mark.requirement("C26")
def test_problems_that_name_a_hidden_skill_are_hidden_c26(make_skill: MakeSkill, tmp_path: Path) -> None:
    for root in ("g1", "g2"):
        make_skill("secret-one", root=tmp_path / "c" / root)
    make_skill("inner", root=tmp_path / "c" / "g1" / "secret-one")
    outer = make_skill("outer", root=tmp_path / "c")
    make_skill("secret-two", root=outer)
    (tmp_path / "c" / "alias").symlink_to(tmp_path / "c" / "g1" / "secret-one")
    bad = make_skill("secret-bad", root=tmp_path / "c")
    (bad / "SKILL.md").write_text("")
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover([tmp_path / "c"])
    found = {diagnostic.code for diagnostic in registry.diagnostics}
    assert found >= {"shadowed-skill", "nested-skill", "same-folder", "unreadable-skill"}
    view = registry.view(deny=("secret-*",))
    assert list(view) == ["inner", "outer"]
    assert not [diagnostic for diagnostic in view.diagnostics if "secret" in str(diagnostic)]


@pytest.mark.requirement("C26")
def test_words_of_hidden_skills_do_not_change_how_a_question_is_understood_c26(
    make_skill: MakeSkill, tmp_path: Path
) -> None:
    make_skill("hidden", description="The kuberntes kubernetis kuberneted thing.")
    make_skill("k8s", description="Deploys to kubernetes.")
    registry = SkillsRegistry(RegistryConfig(cache=False))
    registry.discover([tmp_path / "skills"])
    assert [hit.name for hit in registry.search("kuberntes")] == ["hidden"]
    assert [hit.name for hit in registry.view(deny=("hidden",)).search("kuberntes")] == ["k8s"]
