"""Measures the library against named opponents on this machine: ratios, both sides interleaved, versions named.

    python benchmarks/run.py [--only PATTERN] [--rounds N] [--json]

Both sides run in fresh processes with compiled bytecode and a warm page cache, one sample each in turns; the median
counts. The exit code is 1 when a bar is not held. docs/reference/measurements.md explains the rows.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial

from catalog_rows import command_rows, corpus_rows, listing_rows
from cluster_rows import cluster_rows
from container_rows import container_rows
from eval_rows import trial_rows
from load_rows import flood_rows, parallel_rows
from opponents import machine
from python_session_rows import python_session_rows
from ray_rows import ray_rows
from script_rows import asset_rows, burst_rows, cold_rows, plain_user_rows, pydantic_ai_rows, tool_rows
from subjects import Effort, SideFailed
from table import Row, not_measured, print_table, say
from toolset_rows import session_rows, token_rows

Measure = Callable[[], list[Row]]


def groups(options: argparse.Namespace) -> dict[str, Measure]:
    """What can be measured, by name, in the order of the table."""
    trees, runs = options.rounds, Effort(options.runs, options.quantile)
    return {
        "listing": partial(listing_rows, trees, options.skills),
        "command": partial(command_rows, trees),
        "corpus": partial(corpus_rows, trees),
        "script-cold": partial(cold_rows, runs),
        "script-tool": partial(tool_rows, runs),
        "script-tool-plain-user": partial(plain_user_rows, runs),
        "script-asset": partial(asset_rows, runs),
        "script-burst": partial(burst_rows, runs),
        "script-pydantic-ai": partial(pydantic_ai_rows, runs),
        "script-parallel": partial(parallel_rows, runs),
        "script-flood": partial(flood_rows, runs),
        "python-session": partial(python_session_rows, runs),
        "container": partial(container_rows, runs),
        "ray": partial(ray_rows, runs),
        "toolset-tokens": partial(token_rows, runs),
        "toolset-sessions": partial(session_rows, runs),
        "eval-trials": partial(trial_rows, runs),
        "eval-cluster": partial(cluster_rows, runs),
    }


def main() -> int:
    """Measure, print, and say by the exit code whether every bar was held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="PATTERN", help="only groups whose name this pattern finds")
    parser.add_argument("--list", action="store_true", help="print the names of the groups")
    parser.add_argument("--skills", type=int, default=5000, help="skills in the large tree")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of what reads trees of skills")
    parser.add_argument("--runs", type=int, default=40, help="rounds of what runs a script")
    parser.add_argument(
        "--quantile", type=float, default=0.5, help="which sample of a script counts, of all sides; 0.5 is the median"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    chosen = {name: measure for name, measure in groups(options).items() if re.search(options.only, name)}
    if options.list or not chosen:
        print("\n".join(groups(options)))
        return 0 if options.list else 2
    facts, rows, start = machine(), [], time.monotonic()
    failed = False
    for name, measure in chosen.items():
        try:
            rows += measure()
        except SideFailed as error:
            say(str(error))
            rows.append(not_measured(name, "a side failed; see above"))
            failed = True
    facts |= {"quantile": options.quantile, "runs": options.runs}
    facts["seconds"] = round(time.monotonic() - start)
    if options.json:
        print(json.dumps({"machine": facts, "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        print(f"\n{', '.join(f'{name} {value}' for name, value in facts.items())}")
        which = "medians" if options.quantile == 0.5 else f"quantiles {options.quantile:g}"
        print(f"medians of {options.rounds} rounds (trees), {which} of {options.runs} (scripts), sides in turns\n")
        print_table(rows)
    return 1 if failed or any(row.held is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
