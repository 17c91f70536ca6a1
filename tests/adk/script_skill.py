"""A skill with scripts of every kind, somebody's executor, and asking an agent to run one of the scripts."""

from __future__ import annotations

from typing import Any

from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult
from pydantic import Field
from tool_calls import agent_with, one_call

FILES: dict[str, str | bytes] = {
    "scripts/hello.py": "import sys\nprint('hello', *sys.argv[1:])\n",
    "scripts/hello.sh": 'echo "hello $@"; echo careful >&2\n',
    "scripts/sibling.py": "from helper import word\nprint(word)\n",
    "scripts/helper.py": "word = 'from the sibling'\n",
    "scripts/tool.rb": "puts 1\n",
    "scripts/noext": "echo\n",
    "scripts/fail.py": "import sys; print('before'); sys.exit(3)\n",
    "scripts/slow.py": "import time; print('started', flush=True); time.sleep(30)\n",
    "scripts/slow.sh": "echo started; sleep 30\n",
    "scripts/flood.py": "print('x' * 100_000)\n",
    "scripts/note.txt": "text of a script\n",
    "scripts/where.py": "import os; print(sorted(os.listdir('.')))\n",
    "scripts/warn.sh": "echo failure >&2\n",
    "scripts/write.py": (
        "import pathlib\npathlib.Path('out').mkdir(exist_ok=True)\n"
        "pathlib.Path('out/report.csv').write_text('a,b')\npathlib.Path('big.bin').write_bytes(b'0' * (6 << 20))\n"
    ),
    "scripts/seen.py": "import pathlib\nprint(pathlib.Path('data.csv').read_text(), pathlib.Path('kept').exists())\n"
    "pathlib.Path('kept').touch()\n",
    "references/guide.md": "the guide",
    "assets/logo.bin": b"\0\1\2",
    "assets/empty.txt": "",
    "templates/letter.txt": "Dear",
}


class Recording(BaseCodeExecutor):
    """Somebody's executor: it keeps what it was given and does as it is told."""

    inputs: list[Any] = Field(default_factory=list)
    does: Any = None

    def execute_code(self, invocation_context: Any, code_execution_input: CodeExecutionInput) -> CodeExecutionResult:
        self.inputs.append(code_execution_input)
        found = self.does(invocation_context) if self.does else CodeExecutionResult(stdout="ran\n")
        assert isinstance(found, CodeExecutionResult)
        return found


def run(path: str, **more: Any) -> str:
    return one_call("run_skill_script", skill_name="tools", file_path=path, **more)


async def result_of(ask: Any, server: Any, toolset: Any, **more: Any) -> dict[str, Any]:
    answered = await ask(agent_with(server, toolset, **more), "go")
    return dict(answered.results[0][1])
