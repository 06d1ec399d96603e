# %% [markdown]
# # A forest in ten thousand cells: a sparse Gaussian process
#
# 584 longleaf pines on four hectares in Georgia, counted in cells of two by two meters: 10 000
# counts, nearly all of them zero. How dense is the forest where, and how sure can one be of that?
#
# A log-Gaussian Cox process answers with one latent value a cell. Their covariance has a hundred
# million numbers, and one Cholesky factorization takes a minute. But a density that varies over
# tens of meters does not need a value every two. So let the data see the process through its
# values at 196 points: `lgm.gp.SparseLatent`.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm

trees = lgm.datasets.load_longleaf()[["x1", "x2"]].to_numpy()
edges = np.arange(0.0, 201.0, 2.0)
counts, _, _ = np.histogram2d(trees[:, 0], trees[:, 1], bins=(edges, edges))
middle = 0.5 * (edges[1:] + edges[:-1])
X = pm.math.cartesian(middle, middle)
y = counts.ravel().astype(int)
print(f"{y.size} cells, {y.sum()} trees, {np.mean(y == 0):.0%} of the cells empty")

# %% [markdown]
# ## The model
#
# `prior` takes the inputs of the data and the inducing points, here a grid of 14 × 14, thirteen to
# fourteen meters apart. Its f is no tensor but a normal distribution for each cell, given the
# values at the inducing points. The likelihoods of this package take it as they take any f: they
# read the expectation of their logarithm.

# %%
axis = np.linspace(10.0, 190.0, 14)
with pm.Model() as model:
    level = pm.Normal("level", -2.8, 1.0)  # log of trees per cell: 600 trees would be -2.8
    length = pm.LogNormal("length", np.log(30.0), 0.5)
    amplitude = pm.HalfNormal("amplitude", 1.5)
    gp = lgm.gp.SparseLatent(
        mean_func=pm.gp.mean.Constant(level),
        cov_func=amplitude**2 * pm.gp.cov.Matern52(2, ls=length),
    )
    f = gp.prior("f", X, Xu=pm.math.cartesian(axis, axis))
    lgm.LogGaussianCox("trees", f=f, observed=y)
    idata = pm.sample(800, tune=400, chains=2, cores=2, random_seed=1, progressbar=False)

print(lgm.read(model))

# %% [markdown]
# This output says that the draws are from the *optimal variational posterior* (Hensman et al.
# 2015). Among all distributions in which the data inform the process only through its values at
# these points, it is the closest to the true posterior. With a point in each cell it would be the
# true posterior.

# %%
theta = ["level", "length", "amplitude"]
print(az.summary(idata, var_names=theta))
print(lgm.efficiency(idata, {"theta": theta, "f_u": "f_u"}).T.round(2).to_string())

# %% [markdown]
# Inducing points are dense enough if the length-scale is a few of their distances, and if the
# posterior stays where it is when points are added. Here the length-scale is little above the
# distance of two points: more of them may sharpen the map, at a cost that grows with the square of
# their number.
#
# ## The map
#
# `lgm.predict` gives the moments of f in every cell, and those of a count there.

# %%
tree = lgm.predict(idata, gp, X, model=model, thin=10, progressbar=False)["predictions"]
per_hectare = tree["trees_mean"].to_numpy() * 2500.0
uncertain = np.sqrt(tree["f_variance"].to_numpy())

figure, panels = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
titles = ("Trees per hectare", "Standard deviation of the log density")
for panel, values, title in zip(panels, (per_hectare, uncertain), titles, strict=True):
    lgm.spatial.plot_map(values, cells=X, ax=panel, title=title)
    panel.plot(*trees.T, ".", ms=2, color="white", alpha=0.7)
    panel.set_xlabel("meters")

# %% tags=["remove-cell"]
# As a script, `python examples/forest.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %%
dense, thin = np.quantile(per_hectare, [0.95, 0.05])
print(f"the densest twentieth of the forest has over {dense:.0f} trees a hectare,")
print(f"the thinnest under {thin:.0f}; on average there are {y.sum() / 4:.0f}")

# %% [markdown]
# ## What next
#
# - Inducing points where the data are: `pm.gp.util.kmeans_inducing_points(200, X)`.
# - Classes: `lgm.Probit("y", f=f, observed=labels)`, with tens of thousands of rows.
# - Any other distribution: `lgm.gp.Expected("y", lambda f: pm.NegativeBinomial.dist(
#   mu=pm.math.exp(f), alpha=2), f, observed=y)`.
# - Species and sizes of these trees, a process each: [Young pines, old pines](pines).
