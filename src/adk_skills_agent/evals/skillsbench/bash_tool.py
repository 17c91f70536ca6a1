"""The tool ``bash`` of a bench agent: commands in the task's box (S0-132)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.adk.tools.base_tool import BaseTool
from google.genai import types

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.evals.skillsbench.box import Phase, TaskBox

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

MAX_CHARACTERS = 10_000
COMMAND_SECONDS = 300.0
"""Of one command (S0-131)."""
_LONGEST_ARGUMENT = 100_000
"""Bytes; the kernel takes 128 KiB, and a command with a whole file in it may be longer."""
CUT = "... (truncated)"


class BashTool(BaseTool):
    """Runs shell commands where the task is.

    Args:
        box: The trial's box.
        phase: What is there while a command runs.
        seconds: After so many a command is ended with all it started.
    """

    def __init__(self, box: TaskBox, phase: Phase, seconds: float = COMMAND_SECONDS) -> None:
        super().__init__(
            name="bash",
            description=(
                f"Run a command with bash in the working directory {box.workdir}. Each call is a new shell; files "
                f"stay. A command is ended after {seconds:g} seconds. Returns its exit code and its output "
                "(standard output and error)."
            ),
        )
        self._box = box
        self._phase = phase
        self._seconds = seconds

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters=types.Schema(
                type=types.Type.OBJECT,
                properties={"command": types.Schema(type=types.Type.STRING, description="The command to run.")},
                required=["command"],
            ),
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        """Run ``args["command"]``.

        Returns:
            ``exit_code`` and ``output``; ``error_code`` and ``error`` when nothing was run.
        """
        del tool_context
        command = args.get("command")
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            return {"error_code": "INVALID_ARGUMENTS", "error": "Give the command to run as the text `command`."}
        data = command.encode("utf-8", "surrogatepass")
        short = len(data) < _LONGEST_ARGUMENT
        argv, stdin = (("bash", "-c", command), None) if short else (("bash", "-s"), data)
        try:
            ran = await self._box.run(argv, seconds=self._seconds, phase=self._phase, stdin=stdin)
        except SandboxError as error:
            return {"error_code": "SANDBOX_ERROR", "error": error.message}
        output = ran.text
        if len(output) > MAX_CHARACTERS:
            output = output[:MAX_CHARACTERS] + CUT
        if ran.timed_out:
            output += f"\nThe command was ended after {self._seconds:g} seconds."
        return {"exit_code": _code(ran.exit_code, timed_out=ran.timed_out), "output": output}


def _code(code: int | None, *, timed_out: bool) -> int:
    if code is not None:
        return code
    return 124 if timed_out else 137  # as timeout(1) and shells report them
