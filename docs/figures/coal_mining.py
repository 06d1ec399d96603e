"""Draw the rate of coal-mining disasters with its credible band: figure of the first page.

It runs the example that README.md has, and draws the rate of its trace over the yearly counts.
README.md, not a copy: what is drawn is what a reader who runs the example gets.

    python docs/figures/coal_mining.py
"""

import re

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

PICTURE = Path(__file__).with_suffix(".png")
README = Path(__file__).parents[2] / "README.md"
BAND = 0.89  # as the intervals of the summary in README.md


def example():
    """Return the Python code of README.md."""
    code = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[0]
    return code


def draw(idata, data):
    """Counts as bars, the posterior mean of exp(f) as a line in its band."""
    rate = np.exp(idata.posterior["f"])
    years, ends = rate["year"].to_numpy(), [(1 - BAND) / 2, (1 + BAND) / 2]
    low, high = rate.quantile(ends, dim=("chain", "draw")).to_numpy()
    mean = rate.mean(("chain", "draw")).to_numpy()
    figure, axes = plt.subplots(figsize=(8, 3.3), layout="constrained")
    axes.bar(data["year_mid"], data["y"], width=0.72, color="0.84")
    axes.fill_between(years, low, high, color="C0", alpha=0.25, lw=0)
    axes.plot(years, mean, color="C0")
    axes.set(xlim=(1850.5, 1963), ylim=(0, None))
    figure.suptitle("British coal-mining disasters per year", x=0.01, ha="left")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)

    def label(text, year, height, color):
        axes.text(year, height, text, color=color, fontsize=9, va="center")

    label("counted", 1879.4, 6.8, "0.45")
    label(f"rate: posterior mean and {100 * BAND:.0f} % band", 1890.2, 3.4, "C0")
    return figure


def main():
    plt.style.use(Path(__file__).with_name("style.mplstyle"))
    names = {}
    exec(compile(example(), README, "exec"), names)
    draw(names["idata"], names["data"]).savefig(PICTURE)


if __name__ == "__main__":
    main()
