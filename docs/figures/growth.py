"""Draw CPU time per effective draw and memory against n: figure of How far does it go?

The numbers are those that benchmarks/growth.py has saved, and the picture carries what it shows.

    python docs/figures/growth.py
"""

import csv
import json

from pathlib import Path

import matplotlib.pyplot as plt

PICTURE = Path(__file__).with_suffix(".png")
TABLE = Path(__file__).parents[2] / "benchmarks" / "results" / "growth.csv"

LABELS = {
    "series": "AR(1)",
    "groups": "group effects",
    "lattice": "map of areas",
    "dense": "Gaussian process",
}
COLORS = dict(zip(LABELS, ("C0", "C1", "0.25", "#8a5fa8"), strict=True))


def curves():
    """Return model -> rows of n, milliseconds per effective draw, and MB."""
    found = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            numbers = int(row["n"]), float(row["ms per effective"]), float(row["MB"])
            found.setdefault(row["model"], []).append(numbers)
    return found


def shown(found):
    """Return what the picture shows as text, which is saved in it: a test compares."""
    return json.dumps(found)


def draw(found):
    """Two panels, a line for each model."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for name, rows in found.items():
        sizes, times, memory = zip(*rows, strict=True)
        axes[0].plot(sizes, times, "o-", ms=4, color=COLORS[name], label=LABELS[name])
        axes[1].plot(sizes, memory, "o-", ms=4, color=COLORS[name])
    axes[0].set_title("CPU milliseconds per effective draw")
    axes[1].set_title("memory of the process, in MB")
    for axis in axes:
        axis.set(xscale="log", xlabel="n, number of observations")
        axis.grid(color="0.9", lw=0.8)
        axis.minorticks_off()
    axes[0].set_yscale("log")
    axes[0].minorticks_off()
    axes[1].set_ylim(0)
    figure.legend(loc="outside lower center", ncols=len(found))
    return figure


def main():
    plt.style.use(Path(__file__).with_name("style.mplstyle"))
    found = curves()
    draw(found).savefig(PICTURE, dpi=150, metadata={"Description": shown(found)})
    print(shown(found))


if __name__ == "__main__":
    main()
