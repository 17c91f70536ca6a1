"""Reading a model of rules from YAML. As strict as a rehearsed conversation, and with the same fields.

name: assistant                         # for messages; default is the file's name
about: One line for a reader.
rules:                                  # in order; the first that applies answers
  - when: {user_contains: CSV, skills: csv-report}
    call: {name: load_skill, args: {skill_name: csv-report}}
    times: 1                            # how often the call may be made in a turn
  - when: {last_tool: load_skill}
    text: Loaded.
otherwise: {text: I cannot help with that.}
"""

from __future__ import annotations

from pathlib import Path

import yaml

from adk_skills_agent.testing.conversation import Answer, Refusal
from adk_skills_agent.testing.conversation_file import TURN_FIELDS, YamlReader, read_yaml
from adk_skills_agent.testing.rules import Rule, RuleModel


def load_rules(path: str | Path) -> RuleModel:
    """Read a model of rules.

    Args:
        path: A YAML file, UTF-8.

    Raises:
        ConfigError: It cannot be read, or something in it is not understood; the message has file and line.
    """
    path = Path(path)
    return parse_rules(read_yaml(path, "file of rules"), source=str(path), name=path.stem)


def parse_rules(text: str, *, source: str = "<text>", name: str = "rules") -> RuleModel:
    """Read a model of rules from its YAML text.

    Args:
        text: The YAML.
        source: What to call it in messages.
        name: Its name when the text gives none.

    Raises:
        ConfigError: Something in it is not understood; the message has ``source`` and line.
    """
    return _RulesReader(source).rules(text, name)


class _RulesReader(YamlReader):
    def rules(self, text: str, name: str) -> RuleModel:
        root = self.root(text)
        if root is None:
            self.fail(1, "The file is empty. It needs `rules:` with a list of rules.")
        fields = self.fields(root, "the model", ("name", "about", "rules", "otherwise"))
        if "rules" not in fields:
            self.fail(root, "The model has no rules. Add `rules:` with a list of rules.")
        return RuleModel(
            rules=tuple(self.rule(node) for node in self.items(fields["rules"], "`rules`")),
            otherwise=self.said(fields["otherwise"]) if "otherwise" in fields else None,
            name=self.optional(fields, "name", self.text, name),
            source=self._source,
        )

    def rule(self, node: yaml.Node) -> Rule:
        fields = self.fields(node, "a rule", (*TURN_FIELDS, "times"))
        times = self.optional(fields, "times", self.count, 1)
        if "times" in fields and (times < 1 or "call" not in fields):
            self.fail(fields["times"], "`times` says how often the rule's `call` may be made in a turn, from 1.")
        turn = self.turn_of(node, fields)
        return Rule(self.answer(node, turn.answer, turn.refusal), turn.when, times, turn.line)

    def said(self, node: yaml.Node) -> Answer | Refusal:
        fields = self.fields(node, "`otherwise`", tuple(field for field in TURN_FIELDS if field != "when"))
        turn = self.turn_of(node, fields)
        return self.answer(node, turn.answer, turn.refusal)

    def answer(self, node: yaml.Node, answer: Answer | None, refusal: Refusal | None) -> Answer | Refusal:
        if answer is not None and refusal is not None:
            self.fail(node, "A rule keeps no count of its errors. Give it `error` or something to say, not both.")
        if answer is None and refusal is None:
            self.fail(node, "This rule says nothing. Give it `text`, `call` or `error`.")
        return answer or refusal  # type: ignore[return-value]  # one of them is there
