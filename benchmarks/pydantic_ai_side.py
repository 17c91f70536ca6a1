"""pydantic-ai-skills' side: its LocalSkillScriptExecutor, in an environment of its own (``pydantic-ai-skills.txt``)."""

from __future__ import annotations

import time
from pathlib import Path

from answering import Sample, answer


async def run_script(options: dict[str, object]) -> Sample:
    """``skills`` (folder), ``skill``, ``script``."""
    from pydantic_ai_skills import LocalSkillScriptExecutor
    from pydantic_ai_skills.local import FileBasedSkillScript

    path = Path(str(options["skills"])) / str(options["skill"]) / str(options["script"])
    executor = LocalSkillScriptExecutor()
    script = FileBasedSkillScript(name=path.name, uri=str(path), executor=executor)

    async def sample() -> dict[str, object]:
        start = time.perf_counter()
        said = await executor.run(script)
        seconds = time.perf_counter() - start
        assert said == "hello", said
        return {"seconds": seconds}

    return sample


if __name__ == "__main__":
    answer({"pydantic-ai": run_script})
