"""Testing an agent without a model: a loopback Gemini server that answers from a rehearsed conversation."""

from adk_skills_agent.testing.conversation import Answer, Call, Conversation, Refusal, Turn, Usage, When
from adk_skills_agent.testing.conversation_file import load_conversation, parse_conversation
from adk_skills_agent.testing.request import FunctionResponse, ModelRequest
from adk_skills_agent.testing.server import GeminiServer, Refused

__all__ = [
    "Answer",
    "Call",
    "Conversation",
    "FunctionResponse",
    "GeminiServer",
    "ModelRequest",
    "Refusal",
    "Refused",
    "Turn",
    "Usage",
    "When",
    "load_conversation",
    "parse_conversation",
]
