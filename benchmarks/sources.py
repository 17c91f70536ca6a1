"""Measures installing, restoring and verifying skills against git, sha256sum and ``npx skills``; ratios only.

    python benchmarks/sources.py [--skills N] [--rounds N] [--npx] [--json]

Both sides run in turns, each in a process of its own; the median counts. ``--npx`` also runs ``npx skills``, which is
fetched from npm once before anything is timed. The exit code is 1 when a bar is not held.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

OURS = [sys.executable, "-m", "adk_skills_agent"]
INSTALL = """
import sys
from pathlib import Path
from adk_skills_agent.sources import fetch_skills, open_project, read_origin
open_project(Path.cwd()).add(fetch_skills(read_origin(sys.argv[1]), sys.argv[2:]))
"""
"""Installs skills without the page that a person reads first: what comes before a measurement."""
FILES = 7
"""Of one skill, as in the corpus."""


def make_repository(folder: Path, skills: int) -> Path:
    """A bare repository with skills of seven files, about 20 KB each, as the larger collections have."""
    dice = random.Random(1)
    work, bare = folder / "work", folder / "bare.git"
    words = [f"word{number}" for number in range(3000)]
    for number in range(skills):
        place = work / "skills" / f"skill-{number}"
        (place / "references").mkdir(parents=True)
        head = f"---\nname: skill-{number}\ndescription: Does task {number}. Use it for task {number}.\n---\n"
        (place / "SKILL.md").write_text(head + " ".join(dice.choices(words, k=700)))
        for extra in range(FILES - 1):
            (place / f"references/part-{extra}.md").write_text(" ".join(dice.choices(words, k=350)))
    who = ["-c", "user.name=b", "-c", "user.email=b@x", "-c", "gc.auto=0"]
    for command in (["init", "-q", "-b", "main", "."], ["add", "-A"], [*who, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *command], cwd=work, check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(bare)], check=True)
    return bare


def timed(command: Sequence[str | Path], folder: Path, home: Path) -> float:
    """Seconds of a command that must succeed."""
    environment = {**os.environ, "HOME": str(home), "CI": "1", "DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
    environment.pop("XDG_DATA_HOME", None)
    start = time.perf_counter()
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise SystemExit(f"{command[:4]} failed: {done.stdout[-500:]} {done.stderr[-500:]}")
    return seconds


def in_turns(rounds: int, ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float]:
    """The medians of both sides."""
    samples = [(ours(), theirs()) for _ in range(rounds)]
    return statistics.median(one for one, _ in samples), statistics.median(other for _, other in samples)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skills", type=int, default=2400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--npx", action="store_true", help="also measure npx skills")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []

    def row(what: str, against: str, ours: float, theirs: float, least: float) -> None:
        ratio = theirs / ours
        rows.append({"what": what, "against": against, "ratio": round(ratio, 2), "bar": least, "held": ratio >= least})

    with tempfile.TemporaryDirectory(prefix="adk-skills-bench-") as temporary:
        base = Path(temporary)
        home = base / "home"
        home.mkdir()
        bare = make_repository(base, options.skills)
        url = bare.as_uri()

        def fresh() -> Path:
            return Path(tempfile.mkdtemp(dir=base))

        def add_one() -> float:
            shutil.rmtree(home / ".local", ignore_errors=True)
            return timed([*OURS, "add", url, "--skill", "skill-7", "--yes"], fresh(), home)

        def clone() -> float:
            folder = fresh()
            seconds = timed(["git", "clone", "-q", url, "clone"], folder, home)
            shutil.rmtree(folder)
            return seconds

        ours, theirs = in_turns(options.rounds, add_one, clone)
        row(f"add one of {options.skills} skills", "git clone", ours, theirs, 5)

        count = min(100, options.skills)
        project = fresh()
        (project / ".git").mkdir()
        timed([sys.executable, "-c", INSTALL, url, *(f"skill-{number}" for number in range(count))], project, home)

        def sync() -> float:
            shutil.rmtree(project / ".agents")
            return timed([*OURS, "sync", "--frozen"], project, home)

        if options.npx:
            theirs_at = fresh()
            (theirs_at / ".git").mkdir()
            small = make_repository(fresh(), count).as_uri()  # just these skills, which is to their advantage
            timed(["npm", "install", "--silent", "--no-fund", "--no-audit", "skills"], theirs_at, home)
            skills = theirs_at / "node_modules/.bin/skills"
            timed([skills, "add", small, "--skill", "*", "--yes"], theirs_at, home)  # writes skills-lock.json

            def restore() -> float:
                for made in (".agents", ".claude", "agent"):
                    shutil.rmtree(theirs_at / made, ignore_errors=True)
                return timed([skills, "experimental_install"], theirs_at, home)

            ours, theirs = in_turns(options.rounds, sync, restore)
            row(f"restore {count} skills", "npx skills (from local git)", ours, theirs, 10)
        else:
            sync()

        many = fresh()
        (many / ".git").mkdir()
        wanted = [f"skill-{number}" for number in range(min(1000, options.skills))]
        timed([sys.executable, "-c", INSTALL, url, *wanted], many, home)
        listed = sorted(path for path in (many / ".agents").rglob("*") if path.is_file())
        (many / "files").write_text("\0".join(map(str, listed)))
        checksum = ["sh", "-c", "xargs -0 sha256sum < files > /dev/null"]
        ours, theirs = in_turns(
            options.rounds, lambda: timed([*OURS, "verify"], many, home), lambda: timed(checksum, many, home)
        )
        row(f"verify {len(listed)} files", "sha256sum", ours, theirs, 1 / 1.5)
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for one in rows:
            held = "held" if one["held"] else "NOT HELD"
            print(f"{one['what']:<28} {one['against']:<28} {one['ratio']:>8}x as fast  (bar {one['bar']:.2f})  {held}")
    return 0 if all(one["held"] for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
