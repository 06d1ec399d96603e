# %% [markdown]
# # Where redwoods grow: a log-Gaussian Cox process in the plane
#
# 195 redwood seedlings in a square of about 130 feet, counted on a grid of 25 × 25 cells. They
# stand in clumps, around stumps of older trees. How dense is the wood at each place, and how sure
# can one be?
#
#     mean, amplitude, length ~ priors
#     f ~ GP(mean, amplitude² k(distance / length))    log of the density
#     count ~ Poisson(area · exp(f))                   in each cell of a grid
#
# We fit the process to counts in blocks of 2 × 2 cells, a matrix of 169 × 169 rather than 625 ×
# 625, and predict the density at each of the fine cells.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm

SIDE = 130 / 25  # of a cell, in feet

cells = lgm.datasets.load_redwood()
cells[["x1", "x2"]] *= 130
blocks = cells.groupby([(cells["ix"] - 1) // 2, (cells["iy"] - 1) // 2]).agg(
    x1=("x1", "mean"), x2=("x2", "mean"), seedlings=("y", "sum"), cells=("y", "size")
)
area = blocks["cells"].to_numpy() * SIDE**2 / 100  # the last blocks of a row have fewer cells
print(f"{blocks['seedlings'].sum()} seedlings in {len(blocks)} blocks")
print(f"{blocks['seedlings'].sum() / area.sum():.2f} seedlings per 100 square feet")

# %% [markdown]
# ## The model
#
# Two lines differ from a model for NUTS. `reparameterize=False` leaves f the `MvNormal` that it
# is: the samplers whiten it, not the model. `lgm.LogGaussianCox` is a likelihood of this package:
# it opts the model in, so that `pm.sample()` picks `lgm.PseudoMarginal` by itself. Its `exposure`
# is the size of what a count was counted in; so blocks may differ in size, and f has a unit.

# %%
with pm.Model() as model:
    mean = pm.Normal("mean", 0, 1)
    amplitude = pm.HalfNormal("amplitude", 1.5)
    length = pm.InverseGamma("length", 3, 40)  # feet
    gp = pm.gp.Latent(
        mean_func=pm.gp.mean.Constant(mean),
        cov_func=amplitude**2 * pm.gp.cov.Matern52(2, ls=length),
    )
    f = gp.prior("f", blocks[["x1", "x2"]].to_numpy(), reparameterize=False)
    lgm.LogGaussianCox("seedlings", f=f, exposure=area, observed=blocks["seedlings"])

# %% [markdown]
# ## Sample, and read the diagnostics
#
# `cores=1` runs one chain after the other, so that this page is also a plain script; leave it out
# in a notebook of yours.

# %%
with model:
    idata = pm.sample(1_000, chains=4, cores=1, random_seed=1, progressbar=False)

# %%
theta = ["mean", "amplitude", "length"]
print(az.summary(idata, var_names=theta))

# %%
print(lgm.efficiency(idata, {"theta": theta, "f": "f"}).T.round(3).to_string())

# %% [markdown]
# `r_hat` up to 1.01 and effective sample sizes (`ess_bulk`, `ess_tail`) of some hundreds say that
# the draws can be trusted. Had they been bad, `theta_acceptance` and `latent_acceptance`, here
# far from 0, would say [what is stuck](../sample_statistics.md). `cubic_ops` is what a draw
# costs, in factorizations of n x n matrices: about two where the emulator of the evidence jumps,
# more where q is searched for. NUTS pays for one, and its derivative, at each leapfrog step.
#
# ## The map, and the map of what we don't know
#
# `lgm.predict` takes new places, here the centers of the fine cells, and what a count there is
# counted in: with an exposure of 1 the mean count is the posterior mean of the density. Its
# uncertainty is best read from f, which is a logarithm: a standard deviation of 0.7 is a factor
# of 2.

# %%
with model:
    places = cells[["x1", "x2"]]
    tree = lgm.predict(idata, gp, places, parameters={"exposure": 1.0}, progressbar=False)
predictions = tree["predictions"]
density = predictions["seedlings_mean"].to_numpy()
spread = np.sqrt(predictions["f_variance"].to_numpy())
print(f"density from {density.min():.2f} to {density.max():.2f} seedlings per 100 square feet")
print(f"standard deviation of its logarithm from {spread.min():.2f} to {spread.max():.2f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", sharey=True)
trees = cells[cells["y"] > 0]
maps = {
    "Seedlings per 100 square feet": (density, "Greens", 0),
    "Standard deviation of the log density": (spread, "Purples", None),
}
axes[0].set_ylabel("feet")
for panel, (title, (values, colors, least)) in zip(axes, maps.items(), strict=True):
    lgm.spatial.plot_map(values, cells=places, ax=panel, title=title, cmap=colors, vmin=least)
    panel.scatter(trees["x1"], trees["x2"], s=6 * trees["y"], color="k", lw=0)
    panel.set_xlabel("feet")

# %% tags=["remove-cell"]
# As a script, `python examples/redwood.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# A dot is a cell with seedlings, its area their number. **Left**, the posterior mean of the
# density: half a dozen clumps, and little between them. **Right**, what the map on the left
# doesn't say. The density is known best in the clumps, where there is something to count, and
# worst in the empty parts and at the border: seeing no seedling tells few and very few apart only
# slowly.
#
# The length-scale is about the side of a block. Blocks average over whatever is smaller than they
# are, so this is a length-scale of averages: with finer cells the process would be rougher.
#
# ## What next
#
# - All 625 cells: `blocks = cells.assign(seedlings=cells["y"], cells=1)`. Nothing else changes,
#   but a draw costs O(n³), and the run some minutes.
# - Points in time instead of the plane: [the coal-mining disasters](coal_mining).
# - Clumps that the Poisson distribution cannot produce: [a likelihood of your
#   own](own_likelihood).
