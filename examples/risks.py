# %% [markdown]
# # Where are young pines too many? A map of relative risks
#
# 584 longleaf pines on four hectares in Georgia. More than half of them are young, thinner than
# thirty centimeters. Where are there more of these than the number of trees lets one expect? That
# is the question of a disease map: cases and expected cases by area, and risks to be told from
# noise.
#
# The plot is cut into 400 areas of ten by ten meters. With one or two trees in most of them, a
# ratio of cases to expected cases is 0, 1 or 2 by mere luck. A model of areas borrows from the
# neighbors as much as the data say that neighbors are alike.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm

trees = lgm.datasets.load_longleaf()
young = trees["diameter"] < 30.0
edges = np.linspace(0.0, 200.0, 21)
cases, population = (
    np.histogram2d(some["x1"], some["x2"], bins=(edges, edges))[0].ravel().astype(int)
    for some in (trees[young], trees)
)
share = cases.sum() / population.sum()
seen = np.flatnonzero(population)
expected = share * population[seen]
print(f"{young.sum()} of {len(trees)} trees are young; {seen.size} of 400 areas have trees")

# %% [markdown]
# ## The map
#
# Areas are neighbors if they share a side. `lgm.spatial.adjacency` makes the matrix that PyMC takes
# from pairs of areas, or from the weights of libpysal.

# %%
at = np.arange(400).reshape(20, 20)
right = np.column_stack([at[:, :-1].ravel(), at[:, 1:].ravel()])
below = np.column_stack([at[:-1].ravel(), at[1:].ravel()])
W = lgm.spatial.adjacency(np.vstack([right, below]))

# %% [markdown]
# ## The model
#
# The model of Besag, York and Mollié, as Riebler et al. (2016) write it: the log risk is a level
# and effects of standard deviation sigma. A share rho of their variance comes from the
# neighbors (`phi`), and the rest is independent (`theta`). `scaling_factor` scales `phi` to a
# variance of one on average, so that rho is a share. An area without trees is in the map, but
# nothing is observed of it.

# %%
s = lgm.spatial.scaling_factor(W)
with pm.Model() as model:
    level = pm.Normal("level", 0, 1)
    sigma, rho = pm.HalfNormal("sigma", 1), pm.Beta("rho", 1, 1)
    theta = pm.Normal("theta", 0, 1, shape=400)
    phi = pm.ICAR("phi", W=W)
    effects = sigma * (pm.math.sqrt(1 - rho) * theta + pm.math.sqrt(rho / s) * phi)
    log_risk = pm.Deterministic("log_risk", level + effects)
    pm.Poisson("cases", expected * pm.math.exp(log_risk[seen]), observed=cases[seen])
    idata = pm.sample(
        1000, tune=500, chains=2, cores=2, step=lgm.PseudoMarginal(), random_seed=1,
        progressbar=False,
    )  # fmt: skip

print(lgm.read(model))

# %% [markdown]
# The level, `phi` and the 400 `theta` are integrated out, by sparse matrices: theta, what has to be
# explored, is sigma and rho. The latent variables are drawn back in each draw.

# %%
print(az.summary(idata, var_names=["level", "sigma", "rho"]))

# %% [markdown]
# ## Risks, and how sure they are
#
# A map of means alone shows the extremes of noise, or hides them. Beside it belongs the probability
# that a risk is above one: where that is above .95, young trees are too many, and where it is below
# .05, too few. `lgm.spatial.exceedance` counts the draws above it, and says how far two runs of the
# sampler may differ.

# %%
risk = np.exp(idata.posterior["log_risk"])
mean = risk.mean(("chain", "draw"))
exceeds = lgm.spatial.exceedance(risk, 1.0)
above = exceeds["probability"]
ratio = np.full(400, np.nan)
ratio[seen] = cases[seen] / expected

middle = 0.5 * (edges[1:] + edges[:-1])
cells = pm.math.cartesian(middle, middle)
figure, panels = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
shown = (
    ("Cases / expected", ratio, {"vmin": 0.0, "vmax": 2.2}),
    ("Posterior mean of the risk", mean, {"vmin": 0.0, "vmax": 2.2}),
    ("Probability that the risk is above 1", above, {"cmap": "RdBu_r", "vmin": 0.0, "vmax": 1.0}),
)
for panel, (title, values, style) in zip(panels, shown, strict=True):
    lgm.spatial.plot_map(values, cells=cells, ax=panel, title=title, **style)
    panel.set_xlabel("meters")

# %% tags=["remove-cell"]
# As a script, `python examples/risks.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %%
print(f"ratios run from {np.nanmin(ratio):.2f} to {np.nanmax(ratio):.2f},")
print(f"risks from {mean.min():.2f} to {mean.max():.2f};")
many, few = (above > 0.95).sum().item(), (above < 0.05).sum().item()
print(f"of 400 areas {many} have too many for sure, {few} too few")
print(f"standard errors of these probabilities are up to {exceeds['mcse'].max():.3f}")
crowded = np.sort(cases)[::-1][:20].sum() / cases.sum()
print(f"twenty areas have {crowded:.0%} of all young trees")

# %% [markdown]
# Young pines stand in crowds. A few areas with many of them set the share that is expected
# everywhere, and most of the forest lies below it. White areas of the first map have no trees. The
# other maps include them, since their neighbors are informative. For districts with borders,
# `plot_map(values, geometry)` draws shapes from GeoPandas.

# %% [markdown]
# ## What next
#
# - Covariates: `X @ beta` in the log risk. The coefficients are integrated out, too.
# - `pm.CAR` in the place of `pm.ICAR`, if neighbors shall be alike to a degree that the data say.
# - Areas by weeks or years: `lgm.gmrf.Interaction`, in [Which model is written how](../terms.md).
# - Thousands of areas: [nothing changes](../benchmarks/series_and_maps.md#areas) but the seconds.
