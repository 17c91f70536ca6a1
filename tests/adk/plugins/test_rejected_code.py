"""Which error messages have code to recover, and which are left alone (S3-4, S3-6, S3-9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_skills_agent.adk.plugins import rejected_code


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Unexpected tool call: print(6 * 7)", "print(6 * 7)"),
        ("Malformed function call: print(6 * 7)\n", "print(6 * 7)"),
        ("Unexpected tool call: import math\nprint(math.pi)\n", "import math\nprint(math.pi)"),
        ("unexpected tool call:\nfor i in range(3):\n    print(i)\n", "for i in range(3):\n    print(i)"),
        ("Unexpected tool call: ```python\nx = 1\nprint(x)\n```", "x = 1\nprint(x)"),
        ("Malformed function call: ```tool_code\nprint('ä: b')\n```\n", "print('ä: b')"),
        ("Malformed function call: run_code(code='import os\\nprint(1)')", "import os\nprint(1)"),
        ('Unexpected tool call: python(code="print(2)", language="PYTHON")', "print(2)"),
        ("Unexpected tool call: rows = [1, 2]\nprint(sum(rows))", "rows = [1, 2]\nprint(sum(rows))"),
    ],
)
@pytest.mark.requirement("S3-4")
def test_code_is_taken_from_the_message(message: str, code: str) -> None:
    assert rejected_code(message) == code


@pytest.mark.parametrize(
    "message",
    [
        None,
        "",
        "print(1)",
        "The model is overloaded. Please try again later.",
        "Finished with MALFORMED_FUNCTION_CALL",
        "Arguments for the following function calls were not a valid JSON object: run_code",
        "Unexpected tool call: Model tried to call an undeclared function: run_code",
        "Unexpected tool call: run_code",
        "Unexpected tool call: ",
        "Malformed function call: print('cut off in the mid",
        "Malformed function call: print(default_api.look_up(key='a'))",
        "Malformed function call: transfer_to_agent(agent_name='Other')",
        "Malformed function call: answer = transfer_to_agent('Other')\nprint(answer)",
        "Unexpected tool call: a\0b",
        "Unexpected tool call: save_file(path='cleanup.py', source='import shutil\\nshutil.rmtree(\"data\")')",
        "Unexpected tool call: save_file(source='print(1)')",
        "Unexpected tool call: run_code(script='not python at all')",
        "Unexpected tool call: run_code(code='transfer_to_agent(1)')",
        "Unexpected tool call: run_code(code='print(1)', path='x')",
        "Unexpected tool call: send_mail(to='a')",
        "Unexpected tool call: 42",
        "Unexpected tool call: {}",
        "Unexpected tool call: mytools.transfer_to_agent(x=1)",
        "Unexpected tool call: await send_mail(to='a')",
        "Unexpected tool call: " + "(" * 5_000,
    ],
)
@pytest.mark.requirement("S3-4", "S3-6")
def test_everything_else_is_left_alone(message: str | None) -> None:
    assert rejected_code(message, {"transfer_to_agent"}) is None


@given(st.text(max_size=200))
def test_no_message_makes_it_fail(text: str) -> None:
    rejected_code(f"Unexpected tool call: {text}")
    rejected_code(text)
