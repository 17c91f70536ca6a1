"""Where the program in a box begins (:mod:`.box_program`)."""

from __future__ import annotations

from adk_skills_agent.sandbox import python_program
from adk_skills_agent.sandbox.box_end import QuickEnd
from adk_skills_agent.sandbox.box_interpreter import Child
from adk_skills_agent.sandbox.box_process import end_unless_greeted, guard, take_channel
from adk_skills_agent.sandbox.supervisor import Supervisor


def main() -> None:
    """Take the channel out of everybody's reach, then serve; a child of that which is Python code runs it."""
    end_unless_greeted()
    reading, writing = take_channel()
    try:
        Supervisor(reading, writing, guard()).serve()
    except Child:
        pass  # and out of it, so that nothing of the supervisor is in a traceback
    end = QuickEnd()
    try:
        python_program.main()
    except BaseException as error:
        end.ended(error)
        raise
    end.ended(None)
