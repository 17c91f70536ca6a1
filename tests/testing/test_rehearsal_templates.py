import pytest

from adk_skills_agent.testing import ModelRequest
from adk_skills_agent.testing.conversation import TemplateError, fill, fill_text


def results(*pairs):
    contents = []
    for name, response in pairs:
        contents.append({"role": "model", "parts": [{"functionCall": {"name": name}}]})
        contents.append({"role": "user", "parts": [{"functionResponse": {"name": name, "response": response}}]})
    return ModelRequest("generateContent", "m", {"contents": contents})


ASKED = results(("a", {"n": 1, "files": [{"name": "x.md"}]}), ("b", {"n": 2}), ("a", {"n": 3, "ok": True}))


def test_last_is_the_latest_result_of_any_tool_and_a_name_the_latest_of_that_tool():
    assert fill("${last.n} ${a.n} ${b.n}", ASKED) == "3 3 2"


def test_an_argument_that_is_one_template_keeps_the_type_of_the_value():
    assert fill({"x": ["${b.n}", "${last.ok}"]}, ASKED) == {"x": [2, True]}
    assert fill("${b}", ASKED) == {"n": 2}


def test_a_text_that_is_one_template_becomes_text():
    assert fill_text("${b}", ASKED) == '{"n": 2}'


def test_a_path_goes_through_lists_by_index():
    assert fill("${a.files.0.name}", results(("a", {"files": [{"name": "x.md"}]}))) == "x.md"


def test_a_doubled_dollar_is_a_plain_one_and_other_dollars_are_text():
    assert fill("$${last.n} costs $5 {n} ${", ASKED) == "${last.n} costs $5 {n} ${"
    assert fill("$${last.n}", ASKED) == "${last.n}"


def test_a_value_is_not_expanded_twice():
    assert fill("${last.n}", results(("a", {"n": "${last.n}"}))) == "${last.n}"


def test_values_without_templates_stay_as_they_are():
    assert fill({"a": [1, None, 2.5, "x"]}, ASKED) == {"a": [1, None, 2.5, "x"]}


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("${c.n}", r"no result of 'c' yet; results so far: \['a', 'b'\]"),
        ("${last.m}", r"nothing at 'm'; what is there: \['n', 'ok'\]"),
        ("${last.n.0}", "nothing at '0'; what is there: a int"),
        ("${}", "no result of '' yet"),
    ],
)
def test_a_template_that_finds_nothing_says_what_is_there(template, sentence):
    with pytest.raises(TemplateError, match=sentence):
        fill(template, ASKED)
