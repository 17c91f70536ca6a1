"""What cannot run anything is refused where it is given, in one sentence, and a mock of what can is taken."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from google.adk.code_executors import BaseCodeExecutor, UnsafeLocalCodeExecutor
from google.adk.environment import BaseEnvironment, LocalEnvironment
from google_skills import skill

from adk_skills_agent import SkillToolset
from adk_skills_agent.errors import ConfigError

JUNK: list[Any] = ["python", "", b"x", 7, 0, 1.5, True, False, [], ["x"], {}, {"a": 1}, object(), lambda: None, len]


@pytest.mark.parametrize("junk", JUNK, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("argument", ["code_executor", "environment"])
def test_what_can_run_nothing_is_refused(argument: str, junk: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{argument} must be an object that can") as refused:
        SkillToolset([skill("one")], **{argument: junk})
    assert type(junk).__name__ in refused.value.message
    assert len(refused.value.message) < 200


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("code_executor", UnsafeLocalCodeExecutor),
        ("environment", LocalEnvironment),
    ],
)
def test_a_class_instead_of_an_object_is_refused_with_what_to_do(argument: str, given: Any) -> None:
    with pytest.raises(ConfigError, match=f"the class {given.__name__}; make an object of it"):
        SkillToolset([skill("one")], **{argument: given})


def test_one_in_the_place_of_the_other_is_refused(tmp_path: Any) -> None:
    environment: Any = LocalEnvironment(working_dir=tmp_path)
    with pytest.raises(ConfigError, match="code_executor"):
        SkillToolset([skill("one")], code_executor=environment)
    executor: Any = UnsafeLocalCodeExecutor()
    with pytest.raises(ConfigError, match="environment"):
        SkillToolset([skill("one")], environment=executor)


@pytest.mark.parametrize(
    ("argument", "mock"),
    [
        ("code_executor", MagicMock(spec=BaseCodeExecutor)),
        ("code_executor", MagicMock()),
        ("environment", MagicMock(spec=BaseEnvironment)),
        ("environment", MagicMock()),
    ],
    ids=["executor", "any executor", "environment", "any environment"],
)
def test_a_mock_is_taken(argument: str, mock: Any) -> None:
    toolset = SkillToolset([skill("one")], **{argument: mock})
    assert getattr(toolset.runtime, argument) is mock
