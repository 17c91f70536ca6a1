"""Measures the library against google-adk on this machine: ratios, both sides interleaved, versions named.

    python benchmarks/run.py [--skills N] [--rounds N] [--json]

Both sides run in fresh processes with compiled bytecode and a warm page cache. The median of the rounds counts.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from skill_trees import make_tree  # noqa: E402


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    ours: str
    theirs: str
    ratio: str
    bar: str
    held: bool


class Bench:
    """A place for trees, caches and compiled code that is gone afterwards."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder = folder
        self.rounds = rounds
        self.env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        self.env |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "HOME": str(folder / "home")}
        self.env |= {"XDG_CACHE_HOME": str(self.cache)}

    @property
    def cache(self) -> Path:
        """Where the index of the catalog is."""
        return self.folder / "cache"

    def forget_index(self) -> None:
        """Make the next listing the first one."""
        shutil.rmtree(self.cache, ignore_errors=True)

    def side(self, name: str, root: Path, count: int) -> dict[str, float]:
        """Run one side once."""
        command = [sys.executable, HERE / "sides.py", name, root, str(count)]
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=self.env)
        if run.returncode:
            raise SystemExit(f"{name} failed:\n{run.stderr}")
        return dict(json.loads(run.stdout))

    def process(self, command: list[str | Path]) -> dict[str, float]:
        """The wall time of a whole process."""
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=self.env)
        return {"seconds": time.perf_counter() - start, "added_mb": 0.0}

    def interleaved(self, *sides: Callable[[], dict[str, float]]) -> list[dict[str, float]]:
        """Medians of the sides, one after the other in each round; the first round only warms up."""
        samples: list[list[dict[str, float]]] = [[] for _ in sides]
        for number in range(self.rounds + 1):
            for side, found in zip(sides, samples, strict=True):
                sample = side()
                if number:
                    found.append(sample)
        return [{key: statistics.median(s[key] for s in found) for key in found[0]} for found in samples]


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def time_row(what: str, ours: dict[str, float], theirs: dict[str, float], bar: float) -> Row:
    """A row whose bar is how many times faster we must be."""
    ratio = theirs["seconds"] / ours["seconds"]
    return Row(
        what, f"{ours['seconds']:.3f} s", f"{theirs['seconds']:.3f} s", f"{ratio:.1f}x", f">= {bar:g}x", ratio >= bar
    )


def memory_row(what: str, ours: dict[str, float], theirs: dict[str, float], bar: float) -> Row:
    """A row whose bar is how many MiB we may add."""
    return Row(
        what,
        f"+{ours['added_mb']:.1f} MB",
        f"+{theirs['added_mb']:.1f} MB",
        f"{theirs['added_mb'] / max(ours['added_mb'], 0.1):.0f}x",
        f"< {bar:g} MB",
        ours["added_mb"] < bar,
    )


def listing_rows(bench: Bench, root: Path, count: int) -> list[Row]:
    """List a large tree: first time, unchanged, memory."""
    say(f"listing {count:,} skills")

    def first() -> dict[str, float]:
        bench.forget_index()
        return bench.side("our-list", root, count)

    ours, again, theirs = bench.interleaved(
        first, lambda: bench.side("our-list", root, count), lambda: bench.side("adk-list", root, count)
    )
    return [
        time_row(f"list {count:,} skills, first time", ours, theirs, 7),
        time_row(f"list {count:,} skills, unchanged tree", again, theirs, 30),
        memory_row(f"list {count:,} skills, memory added", ours, theirs, 15),
    ]


def toolset_rows(bench: Bench, root: Path, count: int) -> list[Row]:
    """From nothing to a toolset that can answer."""
    say(f"a toolset with {count:,} skills")

    def first() -> dict[str, float]:
        bench.forget_index()
        return bench.side("our-toolset", root, count)

    ours, theirs = bench.interleaved(first, lambda: bench.side("adk-toolset", root, count))
    return [
        time_row(f"toolset ready with {count:,} skills, first time", ours, theirs, 12),
        memory_row("toolset, memory above an empty one", ours, theirs, 20),
    ]


def command_rows(bench: Bench, root: Path) -> list[Row]:
    """The command line against an import."""
    say("the command line")
    program = Path(sys.executable).parent / "adk-skills"
    ours, theirs = bench.interleaved(
        lambda: bench.process([program, "list", root]),
        lambda: bench.process([sys.executable, "-W", "ignore", "-c", "import google.adk.tools.skill_toolset"]),
    )
    return [time_row("`adk-skills list` of 100 skills, process", ours, theirs, 8)]


def corpus_rows() -> list[Row]:
    """Catalogue and search over real skills; only where the corpus is."""
    corpus = Path(os.environ.get("ADK_SKILLS_CORPUS", HERE.parent.parent / "shared" / "corpus"))
    if not (corpus / "layout.jsonl").is_file():
        say(f"no corpus at {corpus}: its rows are left out")
        return []
    say("catalogue and search over 1,530 real skills")
    sys.path.insert(0, str(HERE / "recall"))
    from measure import corpus_measure

    return [Row(**row) for row in corpus_measure(corpus)]


def main() -> int:
    """Measure, print, and say by the exit code whether every bar was held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skills", type=int, default=5000, help="skills in the large tree")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="adk-skills-bench-") as folder:
        bench = Bench(Path(folder), options.rounds)
        say(f"making {options.skills:,} skills")
        large, small = make_tree(Path(folder) / "large", options.skills), make_tree(Path(folder) / "small", 100)
        rows = [
            *listing_rows(bench, large, options.skills),
            *toolset_rows(bench, large, options.skills),
            *command_rows(bench, small),
            *corpus_rows(),
        ]
    names = ("adk-skills-agent", "google-adk", "pyyaml")
    versions = {name: importlib.metadata.version(name) for name in names} | {"python": platform.python_version()}
    if options.json:
        print(json.dumps({"versions": versions, "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        print(f"\n{', '.join(f'{name} {version}' for name, version in versions.items())}, {os.cpu_count()} cores")
        print(f"median of {options.rounds} rounds, both sides interleaved\n")
        print("| what | ours | google-adk | ratio | bar | held |\n|---|---|---|---|---|---|")
        for row in rows:
            held = "yes" if row.held else "NO"
            print(f"| {row.what} | {row.ours} | {row.theirs} | {row.ratio} | {row.bar} | {held} |")
    return 0 if all(row.held for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
