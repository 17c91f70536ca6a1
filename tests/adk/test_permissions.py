"""Rules of the owner: which one wins, what is hidden, and how a file of them is refused (S4-21, C25, C26)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_skills_agent.adk.permissions import Permissions, permissions_of
from adk_skills_agent.adk.rules import Keep, Rule, Verdict
from adk_skills_agent.adk.skill_toolset import SkillToolset
from adk_skills_agent.adk.skills.known import KnownSkill
from adk_skills_agent.adk.skills.source import DiskSkill
from adk_skills_agent.catalog import SkillsRegistry
from adk_skills_agent.catalog.scopes import Scope
from adk_skills_agent.errors import ConfigError


@pytest.fixture
def known(make_skill: Callable[..., Path]) -> Callable[..., KnownSkill]:
    def make(name: str = "reporter", *, scope: Scope = Scope.EXPLICIT, tools: str = "") -> KnownSkill:
        folder = make_skill(name, files={"scripts/publish.py": "print(1)", "scripts/safe.py": "print(2)"})
        if tools:
            text = (folder / "SKILL.md").read_text()
            (folder / "SKILL.md").write_text(text.replace("description:", f"allowed-tools: {tools}\ndescription:", 1))
        registry = SkillsRegistry()
        registry.discover([folder])
        return DiskSkill(registry.load_skill(name), scope)

    return make


def test_everything_is_allowed_by_default_except_skills_of_the_project(known: Callable[..., KnownSkill]) -> None:
    permissions = Permissions()
    skill = known()
    for action, target in (("activate", ""), ("read", "a.md"), ("run", "scripts/safe.py"), ("tool", "send_mail")):
        assert permissions.decide(skill, action, target).verdict is Verdict.ALLOW
    for scope in (Scope.PROJECT, Scope.ANCESTOR):
        decision = permissions.decide(known(f"from-{scope}", scope=scope), "activate")
        assert (decision.verdict, decision.subjects) == (Verdict.ASK, ("skill",))
        assert decision.reason == "it came with the project"
    for scope in (Scope.USER, Scope.ADMIN, Scope.PACKAGE):
        assert permissions.decide(known(f"from-{scope}", scope=scope), "activate").verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ({"*": "deny", "reporter": "allow"}, "allow"),  # without wildcards beats with
        ({"rep*": "ask", "*": "deny"}, "ask"),  # more fixed characters
        ({"r*r": "allow", "re*": "deny"}, "deny"),  # as many: the stricter
        ({"*porter": "ask", "reporte?": "allow"}, "allow"),
        ({"r[a-z]porter": "deny", "report*": "allow"}, "deny"),  # 7 fixed characters against 6
        ({"other": "deny"}, "allow"),
        ({"REPORTER": "deny"}, "deny"),  # a capital letter does not open the door
    ],
)
def test_the_most_specific_rule_wins_and_between_equals_the_strictest(
    known: Callable[..., KnownSkill], rules: dict[str, str], verdict: str
) -> None:
    assert Permissions(skills=rules).decide(known(), "activate").verdict == verdict


@pytest.mark.parametrize(
    ("rules", "path", "verdict"),
    [
        ({"scripts": {"reporter/scripts/publish.py": "deny"}}, "scripts/publish.py", "deny"),
        ({"scripts": {"reporter/publish.py": "deny"}}, "scripts/publish.py", "deny"),
        ({"scripts": {"publish.py": "ask"}}, "scripts/publish.py", "ask"),
        ({"scripts": {"publish.py": "ask"}}, "scripts/safe.py", "allow"),
        ({"scripts": {"*.py": "deny", "reporter/scripts/safe.py": "allow"}}, "scripts/safe.py", "allow"),
        ({"scripts": {"*": "ask"}, "tools": {"run_skill_script": "deny"}}, "scripts/safe.py", "ask"),
        ({"tools": {"run_skill_script": "deny"}}, "scripts/safe.py", "deny"),
        ({"tools": {"run_*": "deny"}}, "scripts/safe.py", "allow"),  # own tools are named in full
        ({"skills": {"reporter": "deny"}, "scripts": {"reporter/scripts/safe.py": "allow"}}, "scripts/safe.py", "deny"),
        ({"skills": {"reporter": "ask"}, "scripts": {"reporter/scripts/safe.py": "allow"}}, "scripts/safe.py", "allow"),
        ({"skills": {"reporter": "ask"}, "scripts": {"*.py": "allow"}}, "scripts/safe.py", "ask"),
    ],
)
def test_rules_for_scripts_come_on_top_of_the_rule_for_the_skill(
    known: Callable[..., KnownSkill], rules: dict[str, dict[str, str]], path: str, verdict: str
) -> None:
    assert Permissions(**rules).decide(known(), "run", path).verdict == verdict


def test_a_script_that_is_asked_for_does_not_make_the_skill_a_question(known: Callable[..., KnownSkill]) -> None:
    permissions = Permissions(scripts={"publish.py": "ask"})
    skill = known()
    assert permissions.decide(skill, "activate").verdict is Verdict.ALLOW
    assert permissions.decide(skill, "run", "scripts/publish.py").subjects == ("script:scripts/publish.py",)
    both = Permissions(skills={"reporter": "ask"}, scripts={"publish.py": "ask"})
    assert both.decide(skill, "run", "scripts/publish.py").subjects == ("skill", "script:scripts/publish.py")


def test_allowed_tools_are_a_request_that_never_beats_a_rule(known: Callable[..., KnownSkill]) -> None:
    skill = known(tools="send_mail Bash(git:*)", scope=Scope.PROJECT)
    asked = Permissions().decide(skill, "tool", "send_mail")
    assert asked.subjects == ("skill", "tool:send_mail")
    assert asked.requested == {"tool:send_mail"}
    assert Permissions().decide(skill, "tool", "delete_all").requested == frozenset()
    for verdict in ("ask", "deny"):
        ruled = Permissions(tools={"send_mail": verdict}).decide(skill, "tool", "send_mail")
        assert ruled.verdict == verdict
        assert ruled.requested == frozenset()
    assert Permissions(default="deny").decide(known("other", tools="*"), "tool", "x").verdict is Verdict.DENY


def test_tools_of_a_skill_follow_patterns_with_and_without_the_skills_name(known: Callable[..., KnownSkill]) -> None:
    permissions = Permissions(tools={"*": "ask", "reporter/send_*": "deny", "get_time": "allow"})
    skill = known()
    assert permissions.decide(skill, "tool", "send_mail").verdict is Verdict.DENY
    assert permissions.decide(known("letters"), "tool", "send_mail").verdict is Verdict.ASK
    assert permissions.decide(skill, "tool", "get_time").verdict is Verdict.ALLOW
    assert permissions.decide(skill, "activate").verdict is Verdict.ALLOW


_PATTERNS = st.sampled_from(["*", "reporter", "r*", "*/scripts/*", "reporter/*", "*.py", "safe.py", "send_mail", "x?"])
_TABLE = st.dictionaries(_PATTERNS, st.sampled_from(["allow", "ask", "deny"]), max_size=4)


class _Named:
    """What ``decide`` looks at of a skill."""

    def __init__(self, scope: Scope) -> None:
        self.name, self.scope, self.allowed_tools = "reporter", scope, ("send_mail", "*")


@given(
    skills=_TABLE,
    scripts=_TABLE,
    tools=_TABLE,
    default=st.sampled_from(["allow", "ask", "deny"]),
    scope=st.sampled_from(list(Scope)),
    call=st.sampled_from([("activate", ""), ("read", "a.md"), ("run", "scripts/safe.py"), ("tool", "send_mail")]),
)
def test_whatever_the_rules_a_hidden_skill_is_denied_whole_and_a_stricter_rule_never_makes_anything_freer(
    skills: dict[str, str], scripts: dict[str, str], tools: dict[str, str], default: str, scope: Scope, call: Any
) -> None:
    skill: Any = _Named(scope)
    permissions = Permissions(default=default, skills=skills, scripts=scripts, tools=tools)
    decision = permissions.decide(skill, *call)
    if permissions.hides("reporter", scope):
        assert decision.verdict is Verdict.DENY
    assert bool(decision.subjects) is (decision.verdict is Verdict.ASK)
    assert decision.requested <= set(decision.subjects)
    stricter = Permissions(default=default, skills=skills | {"reporter": "deny"}, scripts=scripts, tools=tools)
    assert stricter.decide(skill, *call).verdict is Verdict.DENY
    if call[0] == "run":
        asked = Permissions(
            default=default, skills=skills, scripts=scripts | {"reporter/scripts/safe.py": "ask"}, tools=tools
        )
        assert asked.decide(skill, *call).verdict is not Verdict.ALLOW


def test_a_denied_skill_is_hidden() -> None:
    permissions = Permissions(default="deny", skills={"reporter": "ask"}, project_skills="allow")
    assert permissions.hides("other")
    assert permissions.hides("other", Scope.PROJECT)  # what came with the project is never freer than the rest
    assert not permissions.hides("reporter")
    assert Permissions(project_skills="deny").hides("x", Scope.ANCESTOR)
    assert not Permissions(project_skills="deny").hides("x")


def test_a_rule_for_a_skill_that_is_not_there_is_said() -> None:
    permissions = Permissions(skills={"reporte": "deny", "db-*": "ask"}, scripts={"gone/x.py": "deny", "*.sh": "ask"})
    assert permissions.unknown(["reporter"]) == [
        "The rule 'skills: reporte: deny' is for a skill this agent does not have. Nearest: reporter.",
        "The rule 'scripts: gone/x.py: deny' is for a skill this agent does not have.",
    ]


async def test_the_owner_is_told_of_a_misspelled_rule_and_not_of_one_that_hides_its_skill(
    make_skill: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_skill("reporter")
    make_skill("secret")
    rules = {"skills": {"secret": "deny", "repoter": "deny"}}
    toolset = SkillToolset.from_dirs([folder.parent], permissions=rules)
    await toolset.get_tools()
    await toolset.get_tools()
    told = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert told == [
        "Skills: 1 warning. "
        "The rule 'skills: repoter: deny' is for a skill this agent does not have. Nearest: reporter."
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"default": "maybe"}, "default must be allow, ask, deny, not 'maybe'."),
        ({"skills": {"a": True}}, "skills: a must be allow, ask, deny, not True."),
        ({"skills": ["a"]}, "skills must map names or wildcards to verdicts, not be of type list."),
        ({"scripts": {"": "ask"}}, "scripts: '' is no name and no wildcard. Write one such as 'db-*'."),
        ({"scripts": {"/etc/x": "ask"}}, "scripts: '/etc/x' is no name and no wildcard. Write one such as 'db-*'."),
        ({"tools": {3: "ask"}}, "tools: 3 is no name and no wildcard. Write one such as 'db-*'."),
        (
            {"tools": {"execute": "deny"}},
            "tools: 'execute' is a tool of the shell, and these rules are for tools that skills bring. Rules for what "
            "the shell runs are under 'commands' ('*' for all); a tool of a skill is written '*/execute'.",
        ),
        ({"remember": "forever"}, "remember must be once, session, owner, not 'forever'."),
    ],
)
def test_what_cannot_be_a_rule_is_refused(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        Permissions(**arguments)  # type: ignore[arg-type]
    assert error.value.message == sentence


YAML = """\
default: ask
project_skills: deny
remember: once
skills:
  "db-*": deny
  reporter: allow
scripts:
  reporter/scripts/publish.py: ask
tools: {send_mail: deny}
"""
TOML = """\
[tool.adk-skills.permissions]
default = "ask"
project_skills = "deny"
remember = "once"
skills = { "db-*" = "deny", reporter = "allow" }
[tool.adk-skills.permissions.scripts]
"reporter/scripts/publish.py" = "ask"
[tool.adk-skills.permissions.tools]
send_mail = "deny"
"""


@pytest.mark.parametrize(("name", "text"), [("p.yaml", YAML), ("pyproject.toml", TOML)])
def test_a_file_says_the_same_as_the_objects(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    permissions = permissions_of(str(tmp_path / name))
    assert (permissions.default, permissions.project_skills, permissions.remember) == ("ask", "deny", Keep.ONCE)
    assert permissions.rules == (
        Rule("skills", "db-*", Verdict.DENY),
        Rule("skills", "reporter", Verdict.ALLOW),
        Rule("scripts", "reporter/scripts/publish.py", Verdict.ASK),
        Rule("tools", "send_mail", Verdict.DENY),
    )
    assert permissions_of({"skills": {"a": "ask"}}).rules == (Rule("skills", "a", Verdict.ASK),)
    assert permissions_of(None).rules == ()
    assert permissions_of(permissions) is permissions
    with pytest.raises(ConfigError, match="skill_s"):
        permissions_of({"skill_s": {}})


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("p.yaml", "skils: {a: ask}\n", ", line 1: there is no setting 'skils' in permissions. Did you mean 'skills'?"),
        ("p.yaml", "skills:\n  a: ask\n  b: maybe\n", ", line 3: skills: b must be allow, ask, deny, not 'maybe'."),
        ("p.yaml", "skills:\n  a: ask\n  a: deny\n", ", line 3: 'a' is there twice; first in line 2."),
        ("p.yaml", "skills: [a]\n", ", line 1: 'skills' maps names to verdicts."),
        ("p.yaml", "- a\n", ", line 1: permissions are a mapping of settings to values."),
        ("p.yaml", "approvals: /tmp/x\n", ", line 1: there is no setting 'approvals' in permissions."),
        ("p.yaml", "skills: {1: ask}\n", ", line 1: 1 is no text. Put it in quotes."),
        (
            "p.yaml",
            "grants:\n  w:\n    env: {A: b}\n    host: [a.org]\n",
            ", line 4: grants: w: a grant has no 'host'.",
        ),
        ("p.yaml", "grants:\n  w:\n    env:\n      A: b\n      K: {secrets: X}\n", ", line 5: grants: w: 'K' must be"),
        ("p.yaml", "grants:\n  w:\n    env:\n      K: {secret: NOT_SET}\n", ", line 4: The secret 'NOT_SET' is not"),
        (
            "p.yaml",
            "grants:\n  v: &v {hosts: [a.org]}\n  w: *v\n  x: {host: [a.org]}\n",
            ", line 4: grants: x: a grant",
        ),
        ("p.yaml", "a: [\n", "is no YAML"),
        ("p.yaml", "", "is empty"),
        ("p.toml", "[tool.adk-skills.permissions]\n\nremember = 1\n", ", line 3: remember must be once, session,"),
        ("p.toml", '[tool.adk-skills.permissions.skills]\na = "no"\n', ", line 2: skills: a must be allow, ask, deny"),
        ("p.toml", '[tool.adk-skills.permissions]\nskills = {a = "ask", "b-*" = "x"}\n', ", line 2: skills: b-* must"),
        ("p.toml", '[tool.adk-skills.permissions]\nscript = "a"\n', ", line 2: there is no setting 'script'"),
        ("p.toml", "[tool.adk-skills.permissions]\nskills = 1\n", ", line 2: 'skills' maps names to verdicts."),
        ("p.toml", "[tool.other]\n", "has no table [tool.adk-skills.permissions]"),
        ("p.toml", "[tool.adk-skills.permission]\n", "[tool.adk-skills.permission] looks like it"),
        ("p.toml", "x = \n", "is no TOML"),
        ("p.json", "{}", "its name must end with .toml, .yaml or .yml"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_line(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        Permissions.from_file(path)
    assert str(path) in error.value.message
    assert sentence in error.value.message


def test_lines_of_a_file_whose_aliases_repeat_each_other_are_found_at_once(tmp_path: Path) -> None:
    """Ten keys that each repeat the mapping before, six times over: a million paths."""
    mappings = ["m0: &m0 {a: b}"]
    for number in range(1, 7):
        keys = ", ".join(f"k{key}: *m{number - 1}" for key in range(10))
        mappings.append(f"m{number}: &m{number} {{{keys}}}")
    path = tmp_path / "p.yaml"
    path.write_text("grants:\n  " + "\n  ".join(mappings) + "\n")
    with pytest.raises(ConfigError, match="line 2: grants: m0"):
        Permissions.from_file(path)


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        Permissions.from_file(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"default: ask\n# \xe4\n")
    with pytest.raises(ConfigError, match="line 2: it is not UTF-8"):
        Permissions.from_file(tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("p.yaml", "default: allow\nskills: {a\0: deny}\n", "p.yaml, line 2"),
        ("p.toml", "[tool.adk-skills.permissions]\ndefault = " + "9" * 5_000 + "\n", "p.toml, line 2"),
        ("p.yaml", "default: " + "9" * 5_000 + "\n", "p.yaml, line 1"),
        ("p.yaml", "default: allow\nremember: \x07\n", "p.yaml, line 2"),
    ],
)
def test_a_file_that_the_parser_itself_trips_over_is_refused_with_its_place(
    name: str, text: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as refused:
        Permissions.from_file(tmp_path / name)
    assert place in str(refused.value)
    assert len(str(refused.value)) < 400 + len(str(tmp_path))


def test_a_rule_without_the_scripts_folder_allows_no_other_file_than_it_names(make_skill: Callable[..., Path]) -> None:
    """A skill cannot get round "ask" or "deny" by a file of the same name, nor "allow" for another than was meant."""
    folder = make_skill("reporter", files={"scripts/publish.py": "print(1)", "publish.py": "print(2)"})
    registry = SkillsRegistry()
    registry.discover([folder])
    skill = DiskSkill(registry.load_skill("reporter"), Scope.EXPLICIT)
    for verdict in ("deny", "ask"):
        rules = Permissions(scripts={"reporter/publish.py": verdict})
        for path in ("publish.py", "scripts/publish.py"):
            assert rules.decide(skill, "run", path).verdict.value == verdict
    allowed = Permissions(default="ask", scripts={"reporter/publish.py": "allow"})
    assert allowed.decide(skill, "run", "publish.py").verdict is Verdict.ALLOW
    assert allowed.decide(skill, "run", "scripts/publish.py").verdict is Verdict.ASK
    (folder / "publish.py").unlink()
    assert allowed.decide(skill, "run", "scripts/publish.py").verdict is Verdict.ALLOW
