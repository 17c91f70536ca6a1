#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["matplotlib>=3.8"]
# ///
"""Draw the first two columns of a CSV file as a bar chart."""

import argparse
import csv
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--title", default="")
    parser.add_argument("--top", type=int, default=12, help="most bars")
    parser.add_argument("--output", type=Path, default=Path("chart.png"))
    given = parser.parse_args()
    with given.file.open(newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    if not rows:
        sys.exit("There is nothing to draw.")
    shown = rows[: given.top]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.bar([row[0] for row in shown], [float(row[1]) for row in shown])
    axes.set(title=given.title, ylabel=head[1])
    axes.tick_params(axis="x", rotation=30)
    figure.savefig(given.output, dpi=120)
    print(f"{given.output}: {len(shown)} of {len(rows)} bars")


if __name__ == "__main__":
    main()
