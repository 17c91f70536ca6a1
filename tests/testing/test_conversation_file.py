import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.testing import Answer, Call, Refusal, Usage, When, load_conversation, parse_conversation

WHOLE = """\
name: whole
about: Everything once.
when: {system_contains: help}
turns:
  - when:
      user_contains: [a, b]
      tools: find
      last_tool: find
      tool_result_contains: x
      tool_result: {n: 1, deep: {ok: true}}
    error: {code: 429, times: 2, message: Slow down.}
    text: hello
    call:
      - {name: find, args: {key: v, list: [1, null]}}
      - {name: open, undeclared: true}
    stream_chunks: 2
    usage: {prompt: 10, output: 0, cached: 4}
    finish_reason: MAX_TOKENS
  - error: {code: 503}
"""


def test_every_field_is_read():
    conversation = parse_conversation(WHOLE, source="w.yaml")
    assert (conversation.name, conversation.about, conversation.source) == ("whole", "Everything once.", "w.yaml")
    assert conversation.when == When(system_contains=("help",))
    first, second = conversation.turns
    assert first.line == 5
    assert first.when == When(
        user_contains=("a", "b"),
        tools=("find",),
        last_tool=("find",),
        tool_result_contains=("x",),
        tool_result={"n": 1, "deep": {"ok": True}},
    )
    assert first.refusal == Refusal(429, "RESOURCE_EXHAUSTED", "Slow down.", 2)
    assert first.answer == Answer(
        "hello",
        (Call("find", {"key": "v", "list": [1, None]}), Call("open", undeclared=True)),
        "MAX_TOKENS",
        Usage(10, 0, 4),
        2,
    )
    assert second.answer is None
    assert second.refusal == Refusal(503, "UNAVAILABLE", "This error was rehearsed (UNAVAILABLE).", None)


def test_an_error_before_an_answer_comes_once_unless_it_says_otherwise():
    assert parse_conversation("turns: [{error: {code: 500}, text: a}]").turns[0].refusal.times == 1


def test_stream_chunks_can_be_the_pieces_and_then_are_the_text():
    answer = parse_conversation("turns: [{stream_chunks: [ab, c]}]").turns[0].answer
    assert (answer.text, answer.stream_chunks) == ("abc", ("ab", "c"))


def test_scalars_mean_what_they_mean_in_json():
    args = parse_conversation("turns: [{call: {name: f, args: {d: 2024-01-01, y: yes, o: off, t: true, n: 1.5}}}]")
    assert args.turns[0].answer.calls[0].args == {"d": "2024-01-01", "y": "yes", "o": "off", "t": True, "n": 1.5}


def test_an_alias_is_followed():
    conversation = parse_conversation("turns: [{call: {name: f, args: &a {k: 1}}}, {call: {name: g, args: *a}}]")
    assert conversation.turns[1].answer.calls[0].args == {"k": 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "t:1: The conversation is empty. It needs `turns:`"),
        ("turns: [", "t:1: This is not valid YAML: "),
        ("a: b: c", "t:1: This is not valid YAML: mapping values"),
        ("turns: \x00", "t:1: This is not valid YAML: "),
        ("- a", "t:1: Expected the conversation to be a mapping"),
        ("name: x", "t:1: The conversation has no turns"),
        ("turns: {}", "t:1: Expected `turns` to be a list."),
        ("turns: []", "t:1: `turns` is empty"),
        ("\ntitle: x", "t:2: The conversation has no field 'title'. Known are: name, about, when, turns."),
        ("turns:\n- txt: a", "t:2: A turn has no field 'txt'"),
        ("turns:\n- text: a\n  text: b", "t:3: 'text' is given twice in a turn"),
        ("turns:\n- ? [a]\n  : b", "t:2: A turn has no field '(not a text)'"),
        ("turns:\n- when: {}", "t:2: This turn says nothing"),
        ("turns:\n- text: 5", "t:2: Expected text, found 5"),
        ("turns:\n- text: [a]", 't:2: Expected text, found ["a"]'),
        ("turns:\n- text: a\n  when: {user: b}", "t:3: `when` has no field 'user'"),
        ("turns:\n- text: a\n  when: {tools: [1]}", "t:3: Expected text, found 1"),
        ("turns:\n- text: a\n  when: {tool_result: b}", "t:3: `tool_result` must be a mapping"),
        ("turns:\n- call: {args: {}}", "t:2: This call has no `name`"),
        ("turns:\n- call: find", "t:2: Expected a call to be a mapping"),
        ("turns:\n- call: {name: f, args: [1]}", "t:2: `args` must be a mapping"),
        ("turns:\n- call: {name: f, args: {x: .nan}}", "t:2: This value cannot be sent as JSON"),
        ("turns:\n- call: {name: f, args: {x: !!binary aGk=}}", "t:2: This value cannot be sent as JSON"),
        ("turns:\n- call: {name: f, args: {x: !!python/name:os.system a}}", "t:2: This value cannot be sent as JSON"),
        ("turns:\n- call: {name: f, args: &a {x: *a}}", "t:2: This value cannot be sent as JSON"),
        ("turns:\n- call: {name: f, undeclared: maybe}", "t:2: `undeclared` must be true or false"),
        ("turns:\n- error: {status: X}", "t:2: This error has no `code`"),
        ("turns:\n- error: {code: 200}", "t:2: 200 is not the HTTP status of an error"),
        ("turns:\n- error: {code: 429, times: 1}", "t:2: `times` needs something to say after the error"),
        ("turns:\n- text: a\n  finish_reason: DONE", "t:3: 'DONE' is not a finish reason. Use one of: STOP,"),
        ("turns:\n- text: a\n  stream_chunks: 0", "t:3: `stream_chunks` must be at least 1"),
        ("turns:\n- text: a\n  stream_chunks: [b]", "t:3: The pieces in `stream_chunks` do not join to `text`"),
        ("turns:\n- text: a\n  usage: {prompt: -1}", "t:3: Expected a whole number, found -1"),
        ("turns:\n- text: a\n  usage: {prompt: true}", "t:3: Expected a whole number, found true"),
    ],
)
def test_a_mistake_is_an_error_with_place_and_problem(text, problem):
    with pytest.raises(ConfigError) as caught:
        parse_conversation(text, source="t")
    assert caught.value.message.startswith(problem)


def test_a_file_gives_its_name_and_may_start_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "greeting.yaml"
    path.write_bytes("\ufeffturns: [{text: grüezi}]".encode())
    conversation = load_conversation(path)
    assert (conversation.name, conversation.source) == ("greeting", str(path))
    assert conversation.turns[0].answer.text == "grüezi"


def test_a_file_that_cannot_be_read_is_an_error_with_its_path(tmp_path):
    with pytest.raises(ConfigError, match=r"There is no rehearsed conversation at .*none.yaml"):
        load_conversation(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_conversation(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"turns: [{text: \xe9}]")
    with pytest.raises(ConfigError, match=r"latin.yaml cannot be read: .*utf-8"):
        load_conversation(str(tmp_path / "latin.yaml"))
