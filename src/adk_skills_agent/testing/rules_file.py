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
judge:                                  # answers a judge's questions, property by property; the first that fits decides
  - {property_contains: sum, conversation_contains: "7"}    # without a conversation_contains it holds
compare: [South leads, 109830]          # as the judge of a blind comparison: the output that holds more of them wins
chaos: {rate: 0.2, seed: 1, kinds: [tool, skill, path, argument], in_a_row: 3}    # goes wrong at this rate
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from adk_skills_agent.testing.chaos import EVERY_KIND, ChaoticModel, Hallucination
from adk_skills_agent.testing.conversation import Answer, Refusal
from adk_skills_agent.testing.conversation_file import TURN_FIELDS, YamlReader, read_yaml
from adk_skills_agent.testing.rules import Holds, Rule, RuleModel, compare_rule, judge_rule


def load_rules(path: str | Path) -> RuleModel | ChaoticModel:
    """Read a model of rules.

    Returns the model; a chaotic one where the file has ``chaos``. Raises ``ConfigError`` when it cannot be read, or
    something in it is not understood; the message has file and line.
    """
    path = Path(path)
    return parse_rules(read_yaml(path, "file of rules"), source=str(path), name=path.stem)


def parse_rules(text: str, *, source: str = "<text>", name: str = "rules") -> RuleModel | ChaoticModel:
    """Read a model of rules from its YAML text.

    ``source`` is what to call it in messages, ``name`` its name when the text gives none. Returns the model; a chaotic
    one where the text has ``chaos``. Raises ``ConfigError`` when something in it is not understood; the message has
    ``source`` and line.
    """
    return _RulesReader(source).rules(text, name)


class _RulesReader(YamlReader):
    def rules(self, text: str, name: str) -> RuleModel | ChaoticModel:
        root = self.root(text)
        if root is None:
            self.fail(1, "The file is empty. It needs `rules:` with a list of rules.")
        if isinstance(root, yaml.MappingNode) and any(getattr(key, "value", "") == "turns" for key, _ in root.value):
            self.fail(root, "This is a rehearsed conversation, which has turns. Here a model of rules is needed.")
        fields = self.fields(root, "the model", ("name", "about", "rules", "otherwise", "judge", "compare", "chaos"))
        if not {"rules", "judge", "compare"} & set(fields):
            self.fail(root, "The model has no rules. Add `rules:` with a list of rules.")
        nodes = self.items(fields["rules"], "`rules`") if "rules" in fields else []
        judging = [self.judge(fields["judge"])] if "judge" in fields else []
        judging += [self.comparison(fields["compare"])] if "compare" in fields else []
        model = RuleModel(
            rules=(*judging, *[self.rule(node) for node in nodes]),
            otherwise=self.said(fields["otherwise"]) if "otherwise" in fields else None,
            name=self.optional(fields, "name", self.text, name),
            source=self._source,
        )
        return self.chaos(fields["chaos"], model) if "chaos" in fields else model

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

    def judge(self, node: yaml.Node) -> Rule:
        return judge_rule(_holds([self.property(item) for item in self.items(node, "`judge`")]))

    def comparison(self, node: yaml.Node) -> Rule:
        wanted = self.texts(node)
        if not wanted:
            self.fail(node, "`compare` needs at least one text that a good output holds.")
        most = len(wanted)
        return compare_rule(lambda output: 1 + round(4 * sum(text in output for text in wanted) / most))

    def property(self, node: yaml.Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
        fields = self.fields(node, "a property", ("property_contains", "conversation_contains"))
        return (
            self.optional(fields, "property_contains", self.texts, ()),
            self.optional(fields, "conversation_contains", self.texts, ()),
        )

    def chaos(self, node: yaml.Node, model: RuleModel) -> ChaoticModel:
        fields = self.fields(node, "`chaos`", ("rate", "seed", "kinds", "in_a_row"))
        rate: Any = self.data(fields["rate"]) if "rate" in fields else None
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            self.fail(fields.get("rate", node), "`chaos` needs a `rate` from 0 to 1.")
        kinds = self.optional(fields, "kinds", self.texts, EVERY_KIND)
        if not kinds or not set(kinds) <= set(Hallucination):
            self.fail(fields["kinds"], f"`kinds` must be some of: {', '.join(Hallucination)}.")
        return ChaoticModel(
            model,
            rate,
            seed=self.optional(fields, "seed", self.count, 0),
            kinds=tuple(Hallucination(kind) for kind in kinds),
            in_a_row=self.optional(fields, "in_a_row", self.count, 3),
        )


def _holds(properties: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]) -> Holds:
    def holds(what: str, conversation: str) -> bool:
        for in_property, in_conversation in properties:
            if all(text in what for text in in_property):
                return all(text in conversation for text in in_conversation)
        return False

    return holds
