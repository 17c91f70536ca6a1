"""A malformed file of cases is refused before anything runs, with file, line and field of every mistake."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from adk_skills_agent.errors import EvalFileError
from adk_skills_agent.evals.formats.located import Unreadable, json_document, yaml_document
from adk_skills_agent.evals.formats.reading import read_eval_file
from evals.eval_folders import make_skill

CASES = {
    # name: (text, [":line: field: part of the sentence"])
    "a.json": ('{\n "evals": [\n  {"id": 1,}\n ]}', [":3: This is not valid JSON"]),
    "b.json": ("{}", [":1: This is no file of eval cases. Known are: "]),
    "c.json": ('{"skill_name": "s",\n "evals": [\n  {"id": 1}]}', [":3: evals[0].prompt: This field is missing."]),
    "d.json": (
        '{"skill_name": 3,\n "evals": {"id": 1}}',
        [":1: skill_name: Expected text, found a number.", ":2: evals: Expected a list, found a mapping."],
    ),
    "e.json": (
        '{"skill_name": "s", "evals": [\n{"id": 1, "prompt": "x",\n"files": ["../secret", "gone.csv"]}]}',
        [":3: evals[0].files[0]: '../secret' is not inside", ":3: evals[0].files[1]: There is no file"],
    ),
    "f.json": ('[{"query": "q"},\n {"query": "", "should_trigger": "yes"}]', [
        ":1: [0].should_trigger: This field is missing.",
        ":2: [1].query: This text is empty.",
        ":2: [1].should_trigger: Expected true or false, found text.",
    ]),
    "g.json": ('{"eval_set_id": "x", "eval_cases": [\n{"eval_id": "a",\n"conversation": [{"userContent": 3}]}]}', [
        ":3: eval_cases[0].conversation[0].userContent: ",
    ]),
    "h.json": ('{"eval_set_id": "x",\n"eval_cases": [{"eval_id": "a"}]}', [
        ":2: eval_cases[0]: Exactly one of conversation and conversation_scenario must be provided",
    ]),
    "i.json": ('{"eval_set_id": "x", "eval_cases": [\n{"conversation": []}]}', [
        ":2: eval_cases[0].eval_id: Field required",
    ]),
    "j.json": ('{"a": 1,\n "a": 2}', [":2: The key 'a' is given twice."]),
    "k.yaml": ("cases:\n  - id: a\n\tprompt: x", [":3: This is not valid YAML"]),
    "l.yaml": ("cases:\n - id: a\n   promt: x\n", [
        ":3: cases[0].promt: There is no such field. Did you mean 'prompt'?",
        ":2: cases[0].prompt: This field is missing.",
    ]),
    "m.yaml": ("cases:\n - id: a\n   prompt: x\n   criteria: {tool_score: 1,\n     tool_args_score: 2}", [
        ":4: cases[0].criteria.tool_score: There is no metric 'tool_score'.",
        ":5: cases[0].criteria.tool_args_score: ",
    ]),
    "n.yaml": ("cases:\n - id: a\n   prompt: x\n   rubrics:\n    - {id: r, text: One.}\n    - {id: r, text: Two.}", [
        ":6: cases[0].rubrics[1].id: Another rubric has the id 'r'.",
    ]),
    "o.yaml": ("cases: [{id: a, prompt: x, should_trigger: true}]", [
        ":1: cases[0].should_trigger: A trigger query is about one skill: name it.",
    ]),
    "p.yaml": ("", [":1: The file is empty."]),
    "q.yaml": ("cases:\n - id: a\n   prompt: x\n   calls: [{args: {}}, 3]", [
        ":4: cases[0].calls[0].name: This field is missing.",
        ":4: cases[0].calls[1]: Expected a mapping, found a number.",
    ]),
    "r.yaml": ("x: &a [1]\ncases: *a", [":2: Aliases"]),
    "s.yaml": ("cases:\n - id: a\n   turns: []", [":3: cases[0].turns: Give at least one turn."]),
    "t.yaml": ("cases:\n - id: !!python/object:os.system x", [":2: "]),
    "u.json": ("[" * 100_000, ["It nests too deeply"]),
    "v.yaml": ("cases: " + "[" * 5_000, ["It nests too deeply"]),
    "w.yaml": ("cases:\n - id: !!int abc", [":2: This is no value of the kind 'int'"]),
    "x.yaml": ("cases:\n - id: !!timestamp x", [":2: This is no value of the kind 'timestamp'"]),
    "y.yaml": ("cases:\n - id: !!bool maybe", [":2: This is no value of the kind 'bool'"]),
    "z.yaml": ("cases:\n - id: " + "9" * 5_000, [":2: This is no value of the kind 'int'"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_mistake_is_named_with_file_line_and_field(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    path = make_skill(tmp_path) / name
    if name == "o.yaml":  # not in the folder of a skill
        path = tmp_path / name
    path.write_text(text)
    with pytest.raises(EvalFileError) as caught:
        read_eval_file(path)
    for sentence in expected:
        assert any(sentence in problem and problem.startswith(str(path)) for problem in caught.value.problems), (
            caught.value.problems
        )
    assert len(caught.value.problems) == len(expected), caught.value.problems


def test_files_that_are_no_text_or_not_there_are_said(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes(b'{"evals": "\xff"}')
    os.mkfifo(tmp_path / "pipe.yaml")
    for name, sentence in (
        ("pipe.yaml", "it is no file"),
        ("latin.json", "It is not UTF-8 text"),
        ("gone.json", "cannot be read"),
        (".", "cannot be read"),
    ):
        with pytest.raises(EvalFileError, match=sentence):
            read_eval_file(tmp_path / name)


def test_a_link_out_of_the_skill_is_no_input_file(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("x")
    skill = make_skill(tmp_path / "skills")
    (skill / "evals").mkdir()
    (skill / "evals/in.csv").symlink_to(tmp_path / "secret.csv")
    (skill / "evals/evals.json").write_text(
        '{"skill_name": "reporter", "evals": [{"id": 1, "prompt": "x", "files": ["evals/in.csv"]}]}'
    )
    with pytest.raises(EvalFileError, match="is a link out of"):
        read_eval_file(skill / "evals/evals.json")


def test_an_input_file_that_no_memory_holds_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(200 * 1024 * 1024)  # takes no room on the disk
    (tmp_path / "a.yaml").write_text("cases:\n - {id: a, prompt: x,\n    files: [huge.bin]}")
    with pytest.raises(EvalFileError, match=r"a.yaml:3: cases\[0\].files\[0\]: 'huge.bin' has more than"):
        read_eval_file(tmp_path / "a.yaml")


@pytest.mark.parametrize("text", ['{"a": [1, -2.5e3, "\\ud83d\\ude00 \\" x", null, true, {}], "b":\t[ ]}', '"x"', "[]"])
def test_located_json_is_what_json_says(text: str) -> None:
    import json

    assert json_document(text).plain == json.loads(text)


@pytest.mark.parametrize("read", [json_document, pytest.param(yaml_document, marks=pytest.mark.slow)])
def test_row_165_a_file_of_many_small_values_is_refused_soon(read: Callable[[str], object]) -> None:
    """Seen: 32 MiB of `0,` took a minute and a half, and as much YAML gigabytes."""
    text = "[" + "[]," * 300_000 + "[]]"
    with pytest.raises(Unreadable, match="more than 200,000 values"):
        read(text)
