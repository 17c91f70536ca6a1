"""Testing an agent without a model: a loopback Gemini server that answers from rehearsed conversations or rules."""

from adk_skills_agent.testing.chaos import ChaoticModel, Hallucination
from adk_skills_agent.testing.conversation import Answer, Call, Conversation, Refusal, Turn, Usage, When
from adk_skills_agent.testing.conversation_file import load_conversation, parse_conversation
from adk_skills_agent.testing.request import FunctionCall, FunctionResponse, ModelRequest
from adk_skills_agent.testing.rules import Rule, RuleModel, call, compare_rule, judge_rule, say
from adk_skills_agent.testing.rules_file import load_rules, parse_rules
from adk_skills_agent.testing.server import GeminiServer, Refused
from adk_skills_agent.testing.sources import check_skill_source

__all__ = [
    "Answer",
    "Call",
    "ChaoticModel",
    "Conversation",
    "FunctionCall",
    "FunctionResponse",
    "GeminiServer",
    "Hallucination",
    "ModelRequest",
    "Refusal",
    "Refused",
    "Rule",
    "RuleModel",
    "Turn",
    "Usage",
    "When",
    "call",
    "check_skill_source",
    "compare_rule",
    "judge_rule",
    "load_conversation",
    "load_rules",
    "parse_conversation",
    "parse_rules",
    "say",
]
