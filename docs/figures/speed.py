"""Draw effective draws a second as multiples of NUTS's: figure of the first page.

The ratios are those that benchmarks/beats_nuts.py printed: the script reads the tables of
docs/benchmarks.md, so that no number is typed twice, and the picture carries what it shows.

    python docs/figures/speed.py
"""

import json
import re

from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt

PICTURE = Path(__file__).with_suffix(".png")
TABLES = Path(__file__).parents[1] / "benchmarks.md"

MODELS = {"LCX": "Cox process", "VLT": "Volatility", "LRG": "Logistic", "ORD": "Ordinal probit"}
KINDS = {  # of ratios: what they are, and how a bar shows it
    "measured": ("NUTS had converged", {"color": "C0"}),
    "indication": ("NUTS had not converged: an indication", {"color": "#a9c7de"}),
    "bound": (
        "NUTS did not end in time: a lower bound",
        {"facecolor": "white", "edgecolor": "C0", "hatch": "//////", "lw": 1.0},
    ),
}
CELL = re.compile(r"(?P<model>[A-Z]{3}) +(?P<n>\d+) +(?P<d>\d+)  (?P<rest>.*)")
SAMPLER = re.compile(r"(?P<name>\w+) +\d+/\d+ +\d+ +(?:nan|[\d.]+(?P<doubtful>!?)) ")
BEST = re.compile(r"best NUTS +default is (?P<least>at least )?(?P<times>[\d.]+) × (?P<name>\w+);")


class Ratio(NamedTuple):
    """Effective draws a second of the default over those of the best NUTS, and a key of KINDS."""

    times: float
    kind: str


def lines(text):
    """Yield ((model, n, d), Ratio) for each comparison with the best NUTS in the page."""
    doubtful = {}
    for line in filter(None, map(CELL.fullmatch, text.splitlines())):
        cell = line["model"], int(line["n"]), int(line["d"])
        if row := SAMPLER.match(line["rest"]):
            doubtful[row["name"]] = row["doubtful"] == "!"
        if best := BEST.match(line["rest"]):
            mark = "indication" if doubtful[best["name"]] else "measured"
            yield cell, Ratio(float(best["times"]), "bound" if best["least"] else mark)


def ratios(text):
    """Return (model, n, d) -> Ratio: of tables that have the same cell, the smallest."""
    found = {}
    for cell, ratio in lines(text):
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
    title = "Effective draws of theta a second, as multiples of the best NUTS"
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
    axis.set(xscale="log", xlim=(0.6, 600))
    axis.set_xticks([1, 10, 100], ["1 ×", "10 ×", "100 ×"])
    axis.minorticks_off()
    axis.invert_yaxis()
    keys = [plt.Rectangle((0, 0), 1, 1, label=label, **style) for label, style in KINDS.values()]
    figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


def main():
    plt.style.use(Path(__file__).with_name("style.mplstyle"))
    text = TABLES.read_text(encoding="utf-8")
    found = ratios(text)
    draw(found).savefig(PICTURE, metadata={"Description": shown(found)})
    print(shown(found))


if __name__ == "__main__":
    main()
