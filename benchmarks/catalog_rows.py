"""Listing skills, a toolset that is ready, the command line, and real skills: against google-adk."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from skill_trees import make_tree
from subjects import HERE
from table import Row, memory_row, say, times_faster

Measured = dict[str, float]


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

    def side(self, name: str, root: Path, count: int) -> Measured:
        """Run one side once."""
        command = [sys.executable, HERE / "sides.py", name, root, str(count)]
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=self.env)
        if run.returncode:
            raise SystemExit(f"{name} failed:\n{run.stderr}")
        return dict(json.loads(run.stdout))

    def process(self, command: list[str | Path]) -> Measured:
        """The wall time of a whole process."""
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=self.env)
        return {"seconds": time.perf_counter() - start, "added_mb": 0.0}

    def interleaved(self, *sides: Callable[[], Measured]) -> list[Measured]:
        """Medians of the sides, one after the other in each round; the first round only warms up."""
        samples: list[list[Measured]] = [[] for _ in sides]
        for number in range(self.rounds + 1):
            for side, found in zip(sides, samples, strict=True):
                sample = side()
                if number:
                    found.append(sample)
        return [{key: statistics.median(s[key] for s in found) for key in found[0]} for found in samples]


def listing_rows(rounds: int, count: int) -> list[Row]:
    """List a large tree: first time, unchanged, memory; and a toolset from nothing to its first answer."""
    with tempfile.TemporaryDirectory(prefix="adk-skills-bench-") as folder:
        bench = Bench(Path(folder), rounds)
        say(f"making {count:,} skills")
        root = make_tree(Path(folder) / "large", count)
        say(f"listing {count:,} skills")

        def first(side: str) -> Measured:
            bench.forget_index()
            return bench.side(side, root, count)

        ours, again, theirs = bench.interleaved(
            lambda: first("our-list"),
            lambda: bench.side("our-list", root, count),
            lambda: bench.side("adk-list", root, count),
        )
        say(f"a toolset with {count:,} skills")
        tools, their_tools = bench.interleaved(
            lambda: first("our-toolset"), lambda: bench.side("adk-toolset", root, count)
        )
    seconds = "seconds"
    return [
        times_faster(f"list {count:,} skills, first time", ours[seconds], theirs[seconds], 7),
        times_faster(f"list {count:,} skills, unchanged tree", again[seconds], theirs[seconds], 30),
        memory_row(f"list {count:,} skills, memory added", ours["added_mb"], theirs["added_mb"], 15),
        times_faster(f"toolset ready with {count:,} skills, first time", tools[seconds], their_tools[seconds], 12),
        memory_row("toolset, memory above an empty one", tools["added_mb"], their_tools["added_mb"], 20),
    ]


def command_rows(rounds: int) -> list[Row]:
    """The command line against an import."""
    say("the command line")
    program = Path(sys.executable).parent / "adk-skills"
    with tempfile.TemporaryDirectory(prefix="adk-skills-bench-") as folder:
        bench = Bench(Path(folder), rounds)
        root = make_tree(Path(folder) / "small", 100)
        ours, theirs = bench.interleaved(
            lambda: bench.process([program, "list", root]),
            lambda: bench.process([sys.executable, "-W", "ignore", "-c", "import google.adk.tools.skill_toolset"]),
        )
    against = "`import google.adk.tools.skill_toolset`"
    what = "`adk-skills list` of 100 skills, whole process"
    return [times_faster(what, ours["seconds"], theirs["seconds"], 8, against=against)]


def corpus_rows(rounds: int) -> list[Row]:
    """Catalogue and search over real skills; only where the corpus is."""
    del rounds  # nothing in it is a time
    corpus = Path(os.environ.get("ADK_SKILLS_CORPUS", HERE.parent.parent / "shared" / "corpus"))
    if not (corpus / "layout.jsonl").is_file():
        say(f"no corpus at {corpus}: its rows are left out")
        return []
    say("catalogue and search over 1,530 real skills")
    sys.path.insert(0, str(HERE / "recall"))
    from measure import corpus_measure

    return [Row(**row) for row in corpus_measure(corpus)]
