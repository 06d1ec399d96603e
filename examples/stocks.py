# %% [markdown]
# # Seven years of volatility: a long series
#
# 1859 daily returns of the German stock index DAX, 1991 to 1998, all at once. A Gaussian process
# over so many days has a covariance of three million numbers. An autoregression says the same in
# one line, each day given the day before:
#
#     x_t = rho x_{t-1} + sigma noise        log variance of a day, about its level
#     return_t ~ N(0, exp(level + x_t))
#
# This is stochastic volatility as econometrics has it. Its precision matrix is a band of three
# diagonals, and the samplers never make another.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm

stocks = lgm.datasets.load_eustocks()
year = 1991 + (129 + stocks["t"].to_numpy()) / 260  # the series counts 260 weekdays a year
returns = stocks["DAX"].to_numpy() - stocks["DAX"].mean()
print(f"{returns.size} days, from {returns.min():.1f} % to {returns.max():.1f} %")

# %% [markdown]
# ## The model
#
# `pm.AR` as PyMC has it, with its first value drawn from the stationary distribution: `rho` must
# have a prior between -1 and 1. `level` is one number that every day shares. It could be the mean
# of the autoregression, too; beside it, it mixes as well here, and reads better.

# %%
with pm.Model() as model:
    level = pm.Normal("level", 0, 2)
    persistence = pm.Beta("persistence", 20, 1.5)
    rho = pm.Deterministic("rho", 2 * persistence - 1)
    sigma = pm.HalfNormal("sigma", 0.5)
    start = pm.Normal.dist(0, sigma / pm.math.sqrt(1 - rho**2))
    x = pm.AR("x", rho=[rho], sigma=sigma, init_dist=start, shape=returns.size)
    pm.Normal("return", 0, pm.math.exp((level + x) / 2), observed=returns)

# %% [markdown]
# NUTS has to find its way through 1862 dimensions in which rho, sigma and the whole path hang
# together. `lgm.PseudoMarginal` moves the three hyper-parameters with the path integrated out, and
# two importance draws of the path are enough for it: `n_importance` in the statistics.

# %%
with model:
    step = lgm.PseudoMarginal()
    idata = pm.sample(
        1000, tune=500, chains=2, cores=1, step=step, random_seed=1, progressbar=False
    )
theta = ["level", "rho", "sigma"]
print(az.summary(idata, var_names=theta))
print(lgm.efficiency(idata, {"theta": theta, "x": "x"}).T.round(3).to_string())

# %% [markdown]
# ## The path, and forty days more
#
# Given a draw, the distribution of the next days is known. `lgm.predict` returns its mean and
# variance in closed form, and for each draw a path that continues it. The returns of these days
# take one more line: a function of the path, written as in the model.

# %%
with model:
    tree = lgm.predict(
        idata, x, steps=40, random_seed=1,
        response={"return": lambda x: pm.Normal.dist(0, pm.math.exp((level + x) / 2))},
    )  # fmt: skip
ahead, posterior = tree["predictions"], idata.posterior

bands = [
    np.exp((posterior["level"] + path) / 2).quantile([0.05, 0.5, 0.95], ("chain", "draw"))
    for path in (posterior["x"], ahead["x"])
]
days = [year, year[-1] + np.arange(1, 41) / 260]

figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 5), sharex=True, layout="constrained")
top.plot(year, returns, lw=0.5, color="0.3")
top.set(ylabel="return, %", title="Returns of the DAX")
for when, band, color, label in zip(days, bands, ("C0", "C3"), ("seen", "to come"), strict=True):
    bottom.fill_between(when, band[0], band[2], alpha=0.3, lw=0, color=color)
    bottom.plot(when, band[1], lw=1, color=color, label=label)
bottom.set(ylabel="standard deviation, %", title="Volatility: median and 90 % band", yscale="log")
bottom.set_yticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
bottom.minorticks_off()
bottom.legend(loc="upper center", ncols=2)

# %% tags=["remove-cell"]
# As a script, `python examples/stocks.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %%
low, high = (stocks["DAX"].mean() + ahead["return"]).sum("step").quantile([0.05, 0.95])
print(f"the return of all forty days is between {low:.0f} % and {high:.0f} %, by 9 to 1")
half = np.log(0.5) / np.log(posterior["rho"])
low, median, high = half.quantile([0.05, 0.5, 0.95])
print(f"half of a shock is gone after {median:.0f} days ({low:.0f} to {high:.0f})")

# %% [markdown]
# ## What next
#
# - A random walk instead of the autoregression: `pm.GaussianRandomWalk("x", sigma=sigma,
#   init_dist=pm.Normal.dist(0, 1), shape=n)`. Counts of events, or clicks, follow one.
# - Errors with heavier tails: `pm.StudentT("return", nu, mu=0, sigma=pm.math.exp((level + x) / 2),
#   observed=returns)`.
# - Days that are missing, or uneven: read the series by index, `x[day]`.
# - A hundred days, and a covariance of your own: [The storm of autumn 1997](volatility).
