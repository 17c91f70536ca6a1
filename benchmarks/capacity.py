"""How many machines a number of runs needs, and what that costs: measured here, simulated, written as a page.

    python benchmarks/capacity.py [--seconds S] [--price P] [--out FILE]

``make capacity`` runs it. Every number on the page is measured by ``capacity_side.py`` on this machine, or comes out of
the simulation (``queueing.py``) that was fed with those, or is a parameter that the page names. A kind that cannot be
measured here is named with the reason, and nothing is put in its place.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from capacity_side import KINDS
from queueing import cores_for, rate_of
from table import say

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "capacity.md"
BEGIN, END = "<!-- capacity: begin (generated) -->", "<!-- capacity: end -->"
DAY = 86_400.0
MILLION, BILLION = 1e6, 1e9
PEAK = 3.0
"""The busiest minutes of a day, as a multiple of its mean."""
MOST_WAIT = 0.1
"""Seconds for which 99 of 100 runs may wait for a core at the peak."""
MACHINE_CORES = 32
OWN_WORK = (0.0, 0.5)
"""Processor seconds of the script itself, beside what its sandbox costs."""
NOISE = 0.2
"""Cores of others while something is measured: above it a machine is not quiet."""
PLACES = 64
"""Runs at the same time in one agent process (MAX_RUNNING)."""


@dataclass(frozen=True)
class Measured:
    """What one kind of sandbox costs here."""

    kind: str
    level: str
    rate: float
    cpu_ms: float
    own_ms: float
    singles_ms: list[float]
    rss_bytes: int
    others: float
    load: float

    @property
    def services(self) -> list[float]:
        """Seconds that runs hold a core: the mean is the processor time, the spread that of the single runs."""
        mean = sum(self.singles_ms) / len(self.singles_ms)
        return [self.cpu_ms / 1000 * one / mean for one in self.singles_ms]

    def middle(self) -> float:
        """The median of single runs, in ms."""
        return self.singles_ms[len(self.singles_ms) // 2]


def measured(kind: str, seconds: float) -> Measured | str:
    """Measure a kind in a process of its own; why that was not possible."""
    say(f"measuring: {kind}")
    line = [sys.executable, str(Path(__file__).with_name("capacity_side.py")), kind, str(seconds)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["it ended without a reason"])[-1][:200]
    told = json.loads(done.stdout.splitlines()[-1])
    if kind == "container" and told["others"] > NOISE:
        return f"others used {told['others']:.1f} cores meanwhile, which cannot be told from what the engine used"
    return Measured(
        kind,
        told["level"],
        told["runs"] / told["seconds"],
        told["cpu_ms"],
        told["own_ms"],
        told["singles_ms"],
        told["rss_bytes"],
        told["others"],
        told["load"],
    )


def what_a_run_costs(found: list[Measured], missing: dict[str, str]) -> list[str]:
    """The first table."""
    cores = os.cpu_count() or 1
    lines = [
        "| kind | one alone, median | processor time of a run | so runs/s a core | seen with all cores busy, runs/s a "
        "core | of the agent's process | cores of others, load |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.kind} (`{one.level}`) | {one.middle():.1f} ms | {one.cpu_ms:.1f} ms | {1000 / one.cpu_ms:.0f} | "
        f"{one.rate / cores:.0f} | {one.own_ms:.1f} ms | {one.others:.1f}, {one.load:.1f} |"
        for one in found
    ]
    return [*lines, *(f"\nNot measured: **{kind}**: {why}." for kind, why in missing.items())]


def what_a_day_needs(found: list[Measured], price: float) -> list[str]:
    """The tables of the simulation."""
    lines: list[str] = []
    for own in OWN_WORK:
        work = f"{own:g} s of processor time of its own" if own else "a script that does nothing itself"
        lines += [
            "",
            f"**{work[0].upper()}{work[1:]}:**",
            "",
            "| kind | 10^6 runs a day: cores | used at the peak | waits, 99 of 100 | a million runs | 10^9 runs a day: "
            f"machines of {MACHINE_CORES} cores | used at the peak | a million runs | the same, following the day |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for one in found:
            say(f"simulating: {one.kind}, {work}")
            services = [service + own for service in one.services]
            small, waits = cores_for(MILLION / DAY * PEAK, services, MOST_WAIT)
            most, at_most = rate_of(MACHINE_CORES, services, MOST_WAIT)
            if not most:
                lines.append(f"| {one.kind} | {small} | | | | no machine keeps the wait | | | |")
                continue
            peak = BILLION / DAY * PEAK
            machines = -(-peak // most)
            used = at_most.used * peak / (machines * most)  # whole machines: each has less than the most it could do
            large = machines * MACHINE_CORES * 24 * price / (BILLION / MILLION)
            lines.append(
                f"| {one.kind} | {small} | {waits.used:.0%} | {waits.p99 * 1000:.0f} ms | {small * 24 * price:,.2f} | "
                f"{machines:,.0f} | {used:.0%} | {large:,.2f} | {large / PEAK:,.2f} |"
            )
    return lines


def what_breaks_first(found: list[Measured]) -> list[str]:
    """Which limit of one agent process and one machine is reached first, from the same numbers."""
    lines = [
        "| kind | one agent process (its Python runs on one core) | agent processes that a machine of "
        f"{MACHINE_CORES} cores needs | process ids start again after |",
        "|---|---|---|---|",
    ]
    pids = int(Path("/proc/sys/kernel/pid_max").read_text())
    for one in found:
        process = 1000 / one.own_ms
        machine = MACHINE_CORES * 1000 / one.cpu_ms
        lines.append(
            f"| {one.kind} | {process:,.0f} runs/s | {-(-machine // process):.0f} | "
            f"{pids / machine / 60:.1f} min at {machine:,.0f} runs/s, one process a run |"
        )
    held = [f"at {seconds:g} s a script {PLACES / seconds:,.0f} runs/s" for seconds in (0.5, 2.0, 30.0)]
    memory = PLACES * 512 / 1024
    return [
        *lines,
        "",
        f"- **Places**: one agent process runs {PLACES} scripts at the same time, whether they compute or wait for "
        f"somebody: {', '.join(held)}. With slow scripts this is the first limit, and more agent processes are the "
        "answer. Further runs wait in turn, and past 256 of a user they are refused.",
        f"- **Memory**: {PLACES} runs may use {memory:g} GiB at the default limit of 512 MiB each; a trivial script "
        f"used at most {max(one.rss_bytes for one in found) / 2**20:.0f} MiB.",
    ]


def page(found: list[Measured], missing: dict[str, str], price: float, seconds: float) -> str:
    """The generated part of the page."""
    today = dt.datetime.now(dt.UTC).date().isoformat()
    noisy = [one.kind for one in found if one.others > NOISE]
    quiet = (
        f"Other processes used more than {NOISE:g} cores while these were measured: {', '.join(noisy)}. So "
        "their times alone and their rates with all cores busy are pessimistic. Their processor time is "
        "exact, except for containers."
        if noisy
        else "The machine was quiet."
    )
    where = (
        f"Measured on {today}: {_processor()}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release().partition('-')[0]}, Python {platform.python_version()}, {seconds:g} s a kind. {quiet}"
    )
    lines = [
        "## What a run costs",
        "",
        where,
        "",
        *what_a_run_costs(found, missing),
        "",
        "## What a day needs",
        "",
        f"Simulated with these numbers. Parameters: the peak is {PEAK:g} times the mean of the day; 99 of 100 runs "
        f"wait at most {MOST_WAIT * 1000:g} ms for a core at the peak; a core-hour costs {price:g} (any currency: a "
        "million runs cost in proportion). Cores are bought for the peak all day, except in the last column, "
        "which pays for the mean as a perfect autoscaler would.",
        *what_a_day_needs(found, price),
        "",
        "## What breaks first",
        "",
        *what_breaks_first(found),
    ]
    return "\n".join(lines)


def with_tables(text: str, made: str) -> str:
    """The page with what is generated replaced."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} lacks the lines {BEGIN} and {END}.")
    return f"{head}{BEGIN}\n{made}\n{END}{tail}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def main() -> None:
    """Measure, simulate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="with all cores busy, for each kind")
    parser.add_argument("--price", type=float, default=0.04, help="of a core for an hour")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which are measured")
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    found, missing = [], {}
    for kind in options.kinds.split(","):
        one = measured(kind, options.seconds)
        if isinstance(one, Measured):
            found.append(one)
        else:
            missing[kind] = one.removesuffix(".")
    if not found:
        raise SystemExit(f"Nothing could be measured here: {missing}")
    text = with_tables(PAGE.read_text(encoding="utf-8"), page(found, missing, options.price, options.seconds))
    aside = options.out.with_name(f".{options.out.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    aside.rename(options.out)
    say(f"written: {options.out}")


if __name__ == "__main__":
    main()
