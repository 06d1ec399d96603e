"""Draw effective draws per CPU second of this package, nutpie and Stan: figure of Against Stan.

The numbers are those that benchmarks/beats_stan.py has saved, and the picture carries what it
shows.

    python docs/figures/against_stan.py
"""

import csv
import json

from pathlib import Path

import matplotlib.pyplot as plt

PICTURE = Path(__file__).with_suffix(".png")
TABLE = Path(__file__).parents[2] / "benchmarks" / "results" / "beats_stan.csv"

MODELS = {
    "logistic GP 100": "process of two inputs, classes",
    "logistic GP 200": "process of two inputs, classes",
    "Poisson GP 100": "process of two inputs, counts",
    "volatility": "volatility of a stock index",
    "areas": "map of areas (BYM2), counts",
    "crossed": "crossed effects, counts",
    "slopes": "correlated slopes, normal noise",
    "items": "item response, two parameters",
    "epil": "effects of patients and visits",
    "kidney": "frailties of patients, Weibull",
    "seeds": "effects of 21 plates",
    "surgical": "effects of 12 hospitals",
}
PEERS = ("nutpie", "Stan")
MARKS = {"default": ("o", "C0"), "nutpie": ("s", "C1"), "Stan": ("D", "0.45")}
LABELS = {"default": "default of this package", "nutpie": "NUTS of nutpie", "Stan": "NUTS of Stan"}


def rates():
    """Return (model, n) -> sampler -> effective draws per CPU second, and whether it converged.

    Of two programs for Stan the better counts.
    """
    found = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["sampler"] == "Stan, Laplace":
                continue
            cell = found.setdefault((row["model"], int(row["n"])), {})
            rate = float(row["ESS/CPU s"]), not row["R-hat"].endswith("!")
            name = row["sampler"].partition(",")[0]
            cell[name] = max(cell.get(name, rate), rate)
    return dict(sorted(found.items(), key=lambda item: -times(item[1])))


def times(cell):
    """Return the default's rate over that of the better of the peers."""
    return cell["default"][0] / max(cell[name][0] for name in PEERS if name in cell)


def rounded(ratio):
    """Return a ratio as text, with two digits below 10."""
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}" if ratio >= 0.95 else f"{ratio:.2f}"


def shown(found):
    """Return what the picture shows as text, which is saved in it: a test compares."""
    return json.dumps([[*key, cell] for key, cell in found.items()])


def draw(found):
    """A line for each model, a mark for each sampler, on a logarithmic axis."""
    figure, axis = plt.subplots(figsize=(8, 0.42 * len(found) + 1.3), layout="constrained")
    title = "Effective draws per CPU second of tuning and sampling"
    figure.suptitle(title, x=0.01, ha="left")
    for i, cell in enumerate(found.values()):
        values = [rate for rate, _ in cell.values()]
        axis.plot([min(values), max(values)], [i, i], color="0.85", lw=2, zorder=1)
        for name, (rate, converged) in cell.items():
            marker, color = MARKS[name]
            face = color if converged else "white"
            axis.plot(rate, i, marker, color=color, mfc=face, ms=7, zorder=2)
    names = [f"{MODELS[model]}, n = {n}" for model, n in found]
    axis.set_yticks(range(len(found)), names)
    right = axis.secondary_yaxis("right")
    right.set_yticks(range(len(found)), [f"{rounded(times(cell))} ×" for cell in found.values()])
    right.tick_params(length=0)
    right.spines[:].set_visible(False)
    axis.set_title("default, as a multiple of the better of the two →", loc="right")
    axis.set(xscale="log", ylim=(len(found) - 0.5, -0.6))
    axis.minorticks_off()
    axis.grid(axis="x", color="0.9", lw=0.8)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    keys = [
        plt.Line2D([], [], marker=marker, color=color, ls="", label=LABELS[name])
        for name, (marker, color) in MARKS.items()
    ]
    if not all(converged for cell in found.values() for _, converged in cell.values()):
        label = "R-hat above 1.05"
        keys.append(plt.Line2D([], [], marker="s", color="0.4", mfc="white", ls="", label=label))
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys))
    return figure


def main():
    plt.style.use(Path(__file__).with_name("style.mplstyle"))
    found = rates()
    draw(found).savefig(PICTURE, dpi=150, metadata={"Description": shown(found)})
    print(shown(found))


if __name__ == "__main__":
    main()
