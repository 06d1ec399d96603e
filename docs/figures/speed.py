"""Draw effective draws per second as multiples of NUTS's: figure of the first page.

The ratios are those that benchmarks/beats_nuts.py has saved: the script reads its files, so that no
number is typed, and the picture carries what it shows.

    python docs/figures/speed.py
"""

import csv
import json

from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt

PICTURE = Path(__file__).with_suffix(".png")
TABLES = Path(__file__).parents[2] / "benchmarks" / "results"

MODELS = {"LCX": "Cox process", "VLT": "Volatility", "LRG": "Logistic", "ORD": "Ordinal probit"}
KINDS = {  # of ratios: what they are, and how a bar shows it
    "measured": ("NUTS had converged", {"color": "C0"}),
    "indication": ("NUTS had not converged: an indication", {"color": "#a9c7de"}),
    "bound": (
        "NUTS did not end in time: a lower bound",
        {"facecolor": "white", "edgecolor": "C0", "hatch": "//////", "lw": 1.0},
    ),
}


class Ratio(NamedTuple):
    """Effective draws per second of the default over those of the best NUTS, and a key of KINDS."""

    times: float
    kind: str


def ratios():
    """Return (model, n, d) -> Ratio: of all NUTS that a cell was compared with, the smallest."""
    found = {}
    for path in sorted(TABLES.glob("beats_nuts*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            for row in filter(lambda row: row["default is"], csv.DictReader(file)):
                kind = "indication" if row["R-hat"].endswith("!") else "measured"
                kind = "bound" if row["compile"].endswith(">") else kind
                cell = row["model"], int(row["n"]), int(row["d"])
                ratio = Ratio(float(row["default is"]), kind)
                found[cell] = min(found.get(cell, ratio), ratio)
    return found


def panels(found):
    """Return d -> n -> model -> Ratio, of the (n, d) at which every model was measured."""
    sizes = sorted({(d, n) for _, n, d in found if {(m, n, d) for m in MODELS} <= set(found)})
    return {
        d: {n: {m: found[m, n, d] for m in MODELS} for at, n in sizes if at == d}
        for d in sorted({d for d, _ in sizes})
    }


def shown(found):
    """Return what the picture shows as text, which is saved in it: a test compares."""
    return json.dumps(panels(found))


def draw(found):
    """A panel for each (n, d), a bar for each model, on a logarithmic axis."""
    grid = panels(found)
    columns = sorted({n for row in grid.values() for n in row})
    options = {"sharex": True, "sharey": True, "squeeze": False, "layout": "constrained"}
    figure, axes = plt.subplots(len(grid), len(columns), figsize=(8, 4.2), **options)
    figure.get_layout_engine().set(hspace=0.1)
    title = "Effective draws of theta per second, as multiples of the best NUTS"
    figure.suptitle(title, x=0.01, ha="left")
    for line, (d, row) in zip(axes, grid.items(), strict=True):
        for axis, (n, cells) in zip(line, row.items(), strict=True):
            axis.set_title(f"n = {n}, {d} length-scales")
            for i, (times, kind) in enumerate(cells.values()):
                left, right = sorted([1.0, times])
                axis.barh(i, right - left, left=left, height=0.62, **KINDS[kind][1])
                text = f"{times:.{1 if times < 10 else 0}f}"
                text = f"≥ {text}" if kind == "bound" else text
                axis.text(right * 1.1, i, text, va="center", fontsize=9, color="0.25")
            axis.axvline(1, color="0.25", lw=1)
            axis.grid(axis="x", color="0.9", lw=0.8)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
    axis.set_yticks(range(len(MODELS)), MODELS.values())
    axis.set(xscale="log", xlim=(0.6, 6000))
    axis.set_xticks([1, 10, 100, 1000], ["1 ×", "10 ×", "100 ×", "1000 ×"])
    axis.minorticks_off()
    axis.invert_yaxis()
    keys = [plt.Rectangle((0, 0), 1, 1, label=label, **style) for label, style in KINDS.values()]
    figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


def main():
    plt.style.use(Path(__file__).with_name("style.mplstyle"))
    found = ratios()
    draw(found).savefig(PICTURE, metadata={"Description": shown(found)})
    print(shown(found))


if __name__ == "__main__":
    main()
