"""The files an agent left, as a judge reads them."""

from __future__ import annotations

from adk_skills_agent.evals.trace import OutputFile, Trace

_MOST_FILES = 20
_MOST_CHARS = 8_000


def files_shown(trace: Trace) -> list[str]:
    """A paragraph for each file: its name, its size, and its beginning when it is text; what is not shown is said."""
    files = sorted(trace.output_files.items())
    parts = [f"File left by the agent: {name} ({_shown(file)}" for name, file in files[:_MOST_FILES]]
    if len(files) > _MOST_FILES:
        parts.append(f"The agent left {len(files) - _MOST_FILES} more files, which are not shown.")
    return parts


def _shown(file: OutputFile) -> str:
    """The rest of a line about a file."""
    size = f"{file.size:,} bytes"
    try:
        text = file.content.decode() if file.content is not None else ""
    except UnicodeDecodeError:
        text = ""
    if not text:
        return f"{size}; not shown)"
    cut = f"; its first {_MOST_CHARS:,} characters" if len(text) > _MOST_CHARS else ""
    return f"{size}{cut}): {text[:_MOST_CHARS]}"
