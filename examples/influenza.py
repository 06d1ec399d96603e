# %% [markdown]
# # Where and when did influenza strike? A map for every week
#
# In the first months of 2005 influenza went through southern Germany. Its 140 districts reported
# cases by week, many of them none in most weeks. Which districts had a higher risk than others,
# when was the peak, and where is it certain that the risk was high? This is a disease map in space
# and time, with cases and expected cases of 2240 cells.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm

flu, districts = lgm.datasets.load_flu(), lgm.datasets.load_flu_districts()
cases, week, area = (flu[name].to_numpy() for name in ("y", "week", "district"))
population = districts["population"].to_numpy()
expected = cases.sum() / 16 * population[area] / population.sum()
print(f"{cases.sum()} cases; none in {(cases == 0).mean():.0%} of the {len(cases)} cells")

# %% [markdown]
# `expected` has the cases of a cell if all weeks and all people had the same risk. Districts with a
# common border are neighbors.

# %%
W = lgm.spatial.adjacency(lgm.datasets.load_flu_neighbors().to_numpy(), len(districts))

# %% [markdown]
# ## The model
#
# The log risk of a district in a week is a sum of four terms.
#
# - `level`: the average.
# - `place`: the district, in all weeks. It resembles its neighbors, as far as `rho` says (BYM2).
# - `wave`: the week, in all districts: a random walk of order 1.
# - `own`: the interaction, an effect of each district in each week. This is type I of Knorr-Held
#   (2000), without a structure.
#
# All are Gaussian given three standard deviations and rho, so they are integrated out together.
# With `scale=True` each standard deviation is that of a typical element, so the three can be
# compared. By `pc_prior` each of them exceeds 2 with a probability of 5 %.

# %%
with pm.Model(coords={"district": districts["key"], "week": range(1, 17)}) as model:
    level, rho = pm.Normal("level", 0, 2), pm.Beta("rho", 1, 1)
    place_sd, wave_sd, own_sd = (
        lgm.gmrf.pc_prior(f"{term}_sd", upper=2.0, alpha=0.05) for term in ("place", "wave", "own")
    )
    place = lgm.gmrf.BYM2("place", W=W, sigma=place_sd, rho=rho, dims="district")
    wave = lgm.gmrf.RandomWalk("wave", order=1, sigma=wave_sd, scale=True, dims="week")
    own = pm.Normal("own", 0, own_sd, dims=("district", "week"))
    log_risk = level + place[:, None] + wave + own
    rate = expected * pm.math.exp(log_risk[area, week - 1])
    pm.Poisson("cases", rate, observed=cases)
    idata = pm.sample(
        800, tune=400, chains=2, cores=2, step=lgm.PseudoMarginal(), random_seed=1,
        progressbar=False,
    )  # fmt: skip
print(az.summary(idata, var_names=["level", "rho", "place_sd", "wave_sd", "own_sd"]))

# %% [markdown]
# The wave, the place and the interaction all matter. A model with main effects alone would say that
# all districts have their peak in the same week.
#
# ## How sure is a high risk?
#
# A cell with two cases and one expected case can have its ratio of two by chance.
# `lgm.spatial.exceedance` computes the share of draws in which the risk is above a bound, here five
# times the average. If this probability is above .95, the risk was almost certainly high; if it is
# below .05, it was not.

# %%
posterior = idata.posterior
risk = np.exp(posterior["level"] + posterior["place"] + posterior["wave"] + posterior["own"])
exceeds = lgm.spatial.exceedance(risk, 5.0)
sure = exceeds["probability"] > 0.95
peak = risk.argmax("week").mean(("chain", "draw")) + 1
print(f"{int(sure.sum())} of {sure.size} cells had more than five times the average risk for sure;")
print(f"{int(sure.any('week').sum())} of 140 districts had such a week")
print(f"mean week of the peak: from {float(peak.min()):.1f} to {float(peak.max()):.1f}")
print(f"standard errors of the probabilities are up to {float(exceeds['mcse'].max()):.3f}")

# %%
shown, at = (6, 8, 10, 12), districts[["x1", "x2"]].to_numpy()
area_of_dot = 25 + 120 * population / population.max()
figure, panels = plt.subplots(3, 4, figsize=(12, 7.4), layout="constrained")
ratio = np.zeros((140, 16))
ratio[area, week - 1] = cases / expected
mean, probability = risk.mean(("chain", "draw")), exceeds["probability"]
rows = (
    (ratio, "Cases / expected", "viridis", (0.1, 30.0), "log"),
    (mean.transpose("district", "week").to_numpy(), "Mean risk", "viridis", (0.1, 30.0), "log"),
    (probability.transpose("district", "week").to_numpy(), "P(risk > 5)", "RdBu_r", (0, 1), None),
)
for row, (values, title, colors, (low, high), norm) in zip(panels, rows, strict=True):
    for panel, k in zip(row, shown, strict=True):
        values_of_week = np.clip(values[:, k - 1], low, high)
        style = {"norm": norm, "clim": (low, high)} if norm else {"vmin": low, "vmax": high}
        limits = style.pop("clim", None)
        dots = panel.scatter(*at.T, c=values_of_week, s=area_of_dot, cmap=colors, **style)
        if limits:
            dots.set_clim(*limits)
        panel.set(title=f"{title}, week {k}", aspect="equal", xticks=[], yticks=[])
    figure.colorbar(dots, ax=row, shrink=0.8)

# %% [markdown]
# Each dot is a district, at its place on the map, with an area in proportion to its population. The
# ratios of the first row are zero if no case was reported. The risks of the second row also use the
# cases of neighbors and of other weeks.

# %%
by_week, panel = plt.subplots(figsize=(9, 4), layout="constrained")
of_all = (risk * (population / population.sum())[:, None]).sum("district")
low, median, high = of_all.quantile([0.05, 0.5, 0.95], ("chain", "draw")).to_numpy()
weeks = np.arange(1, 17)
for k in np.argsort(peak.to_numpy())[[0, 70, 139]]:
    here = risk.isel(district=int(k)).median(("chain", "draw"))
    panel.plot(weeks, here, lw=0.8, label=f"district {districts['key'][k]}")
panel.fill_between(weeks, low, high, color="k", alpha=0.3, lw=0)
panel.plot(weeks, median, color="k", label="all, and the 90 % band")
panel.set(xlabel="week of 2005", ylabel="risk, relative to the average", yscale="log")
_ = panel.legend(frameon=False)

# %% tags=["remove-cell"]
# As a script, `python examples/influenza.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# The curves show the districts with the earliest, a middle and the latest peak.
#
# ## What next
#
# - An interaction that is smooth in time or space: instead of `own` write
#   `lgm.gmrf.Interaction("own", (structure, walk), sigma=own_sd)`, with `lgm.gmrf.Structure.map(W)`
#   and `lgm.gmrf.Structure.walk(16)`, or `None` for one that is independent. Each draw then costs
#   much more, because the elements of `own` depend on each other and are not integrated out by
#   quadrature.
# - Covariates: `coefficient * x` is one more term, and is integrated out, too.
# - The weeks to come: `lgm.predict(idata, wave, steps=4, response=...)` continues the wave.
# - A map without time, and other terms: [Which model is written how](../terms.md).
