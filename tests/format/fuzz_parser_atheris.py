"""Coverage-guided fuzzing of the parser, for a bounded time: ``python fuzz_parser_atheris.py [SECONDS]`` (default 60).

Ends with 0 when nothing was found or atheris is not installed (it says which); otherwise with 77, the traceback and
the input.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

try:
    import atheris
except ImportError:
    print("atheris is not installed; skipped. Install the dependency group `slow` to run this.")
    sys.exit(0)

with atheris.instrument_imports(include=["adk_skills_agent", "yaml"]):
    # Some modules are imported on first use; here, so that they are instrumented.
    import adk_skills_agent.format.field_repairs
    import adk_skills_agent.format.frontmatter  # noqa: F401
    from adk_skills_agent.errors import ParseError
    from adk_skills_agent.format import normalise_name, parse_file, parse_head, to_available_skills_xml, validate_skill
    from adk_skills_agent.format.yaml_fields import YamlProblem, load_fields

SEEDS = (
    b"---\nname: pdf\ndescription: Use: it\nmetadata:\n\ta: 1.10\nallowed-tools: [A, B]\n---\n# T\n\ntext",
    b"\xef\xbb\xbf\n---\nname: 'x\ndescription: |\nline\n...\nbody",
    b"---\na: &a [*a]\nb: !t {c: d}\n? e\n: f\n---\n",
    b"# T\n\n**x** [y](z)\n",
)


def check(data: bytes, folder: Path) -> None:
    path = folder / "SKILL.md"
    path.write_bytes(data)
    validate_skill(folder)
    normalise_name(data.decode("utf-8", "replace"))
    try:
        load_fields(data.decode("utf-8", "replace"), libyaml=False)
    except YamlProblem:
        pass
    try:
        skill = parse_file(path)
    except ParseError:
        return
    if not skill.metadata.name or not skill.metadata.description:
        raise AssertionError("a skill without a name or a description")
    if parse_head(path).metadata.name != skill.metadata.name:
        raise AssertionError("the head and the file disagree")
    to_available_skills_xml([skill.metadata]).encode()


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "skill"
        seeds = Path(scratch) / "seeds"
        folder.mkdir()
        seeds.mkdir()
        for number, seed in enumerate(SEEDS):
            (seeds / str(number)).write_bytes(seed)
        arguments = [sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", "-timeout=10", "-verbosity=0"]
        # libFuzzer ends the process itself: nothing after Fuzz() runs, so what it found is printed, not kept.
        atheris.Setup([*arguments, f"-artifact_prefix={scratch}/", str(seeds)], lambda data: check(data, folder))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
