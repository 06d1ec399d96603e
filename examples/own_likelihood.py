# %% [markdown]
# # A likelihood of your own: counts that cluster
#
# The samplers of this package work with any PyMC distribution whose observations are independent
# given f, each depending on one element of f, or on a few. Here is one with two properties that the
# likelihoods of this package do not have:
#
# - **a parameter of its own**, the dispersion of a negative binomial, which is sampled with the
#   rest;
# - **several observations of each latent variable**, written `f[index]`.
#
# The question: does a Gaussian process over the plot explain where redwood seedlings stand, or do
# they also cluster at a scale that the process does not resolve?

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

import pymc_lgm as lgm

# %% [markdown]
# ## The data: 625 cells in 25 blocks
#
# 195 seedlings on a square of about 130 feet, counted in 25 x 25 cells. There is one latent
# variable for each *block* of 5 x 5 cells, its log density. So 25 cells share an element of f, and
# K is a 25 x 25 matrix instead of 625 x 625.

# %%
cells = lgm.datasets.load_redwood()
counts = cells["y"].to_numpy()
column, row = (cells["ix"].to_numpy() - 1) // 5, (cells["iy"].to_numpy() - 1) // 5
block = 5 * row + column  # of each cell, 0 to 24
across, up = np.meshgrid(np.arange(5), np.arange(5))
centers = 26.0 * (np.column_stack([across.ravel(), up.ravel()]) + 0.5)  # feet

print(f"cells with 0, 1, 2, ... seedlings: {np.bincount(counts).tolist()}")
print(f"mean {counts.mean():.2f}, variance {counts.var():.2f}")

# %%
figure, axes = plt.subplots(figsize=(5.5, 4.5), layout="constrained")
image = axes.imshow(
    counts.reshape(25, 25), origin="lower", extent=(0, 130, 0, 130), cmap="Greens", vmin=0
)
axes.set(xlabel="feet", ylabel="feet", title="Redwood seedlings: cells, and blocks that share an f")
axes.set_xticks(np.arange(0, 131, 26))
axes.set_yticks(np.arange(0, 131, 26))
axes.grid(color="0.6", lw=0.8)
_ = figure.colorbar(image, label="seedlings in a cell", ticks=range(counts.max() + 1))

# %% [markdown]
# The variance is above the mean, partly because the density varies from block to block. Two models
# show whether this is the only reason.
#
# ## Two likelihoods
#
# They differ in one line. In both, `f[block]` is the log density of the block of each cell, and
# `reparameterize=False` makes f a `pm.MvNormal`.


# %%
def build_model(overdispersed: bool) -> pm.Model:
    with pm.Model(coords={"block": np.arange(25), "cell": np.arange(625)}) as model:
        mean = pm.Normal("mean", -1, 1)  # log seedlings a cell
        length = pm.InverseGamma("length", 3, 60)  # feet
        amplitude = pm.HalfNormal("amplitude", 1)
        gp = pm.gp.Latent(
            mean_func=pm.gp.mean.Constant(mean),
            cov_func=amplitude**2 * pm.gp.cov.Matern52(2, ls=length),
        )
        f = gp.prior("f", centers, reparameterize=False, dims="block")
        mu = pm.math.exp(f[block])
        if overdispersed:
            dispersion = pm.LogNormal("dispersion", 0, 1)
            pm.NegativeBinomial("y", mu=mu, alpha=dispersion, observed=counts, dims="cell")
        else:
            pm.Poisson("y", mu=mu, observed=counts, dims="cell")
    return model


# %% [markdown]
# With a likelihood of PyMC `pm.sample()` runs NUTS, so write `step=lgm.PseudoMarginal()`. It finds
# f, treats all other continuous variables as hyper-parameters, `dispersion` too, and differentiates
# the likelihood automatically.


# %%
def sample(model: pm.Model):
    with model:
        step = lgm.PseudoMarginal()
        idata = pm.sample(1_000, chains=4, cores=1, step=step, random_seed=1, progressbar=False)
        pm.compute_log_likelihood(idata, progressbar=False)
        pm.sample_posterior_predictive(
            idata, extend_inferencedata=True, random_seed=1, progressbar=False
        )
    return idata


def diagnose(idata, theta: list[str]) -> None:
    print(az.summary(idata, var_names=theta))
    print()
    print(lgm.efficiency(idata, {"theta": theta, "f": "f"}).T.round(3).to_string())


# %% [markdown]
# ## First Poisson

# %%
THETA = ["mean", "length", "amplitude"]
poisson = sample(build_model(overdispersed=False))
diagnose(poisson, THETA)

# %% [markdown]
# R-hat is near 1 and there are thousands of effective draws, so the *sampler* can be trusted. Is
# the *model* right? PyMC's predictive draws answer this: does the model predict as many empty
# cells, and cells as full as those observed?


# %%
def check(idata) -> pd.DataFrame:
    drawn = idata.posterior_predictive["y"].stack(draws=("chain", "draw")).transpose("draws", ...)
    features = {
        "empty cells": lambda y: (y == 0).sum(axis=-1),
        "cells with 3 or more": lambda y: (y >= 3).sum(axis=-1),
        "variance / mean": lambda y: y.var(axis=-1) / y.mean(axis=-1),
    }
    rows = {}
    for name, feature in features.items():
        seen, replicated = feature(counts), feature(drawn.to_numpy())
        low, high = np.quantile(replicated, [0.03, 0.97])
        tail = (replicated >= seen).mean()
        rows[name] = {"observed": seen, "3 %": low, "97 %": high, "p(at least that)": tail}
    return pd.DataFrame(rows).T.round(3)


print(check(poisson).to_string())

# %% [markdown]
# All three observed values are outside of what the Poisson model predicts. Seedlings cluster
# *within* the blocks, around the stumps that they sprout from. Given the rate of a block, Poisson
# counts do not cluster.
#
# ## Then negative binomial
#
# Its variance is $\mu + \mu^2 / \text{dispersion}$. With a small dispersion the counts cluster;
# with a large one they are nearly Poisson.

# %%
idata = sample(build_model(overdispersed=True))
diagnose(idata, [*THETA, "dispersion"])

# %% [markdown]
# There is one more hyper-parameter. Acceptance is healthy, and `cubic_ops`, the cost of a draw, is
# about the same. A draw takes longer, because with such a small K most of the time goes into the
# likelihood.

# %%
print(check(idata).to_string())

# %% [markdown]
# Now the observed values are within the predictions. Cross-validation compares the two models:

# %%
print(az.compare({"negative binomial": idata, "Poisson": poisson}).to_string())

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
values = np.arange(counts.max() + 2)
traces = {"Poisson": poisson, "negative binomial": idata}
for (name, trace), color, shift in zip(traces.items(), ("C1", "C0"), (-0.15, 0.15), strict=True):
    drawn = trace.posterior_predictive["y"].stack(draws=("chain", "draw"))
    numbers = np.stack([(drawn == value).sum("cell") for value in values])
    low, middle, high = np.quantile(numbers, [0.03, 0.5, 0.97], axis=1)
    axes[0].errorbar(
        values + shift,
        middle,
        [middle - low, high - middle],
        fmt="o",
        ms=4,
        color=color,
        label=name,
    )
    amplitude = trace.posterior["amplitude"].to_numpy().ravel()
    axes[1].hist(amplitude, bins=40, density=True, histtype="step", color=color, label=name)
seen = np.bincount(counts, minlength=values.size)
axes[0].plot(values, seen, "_", ms=22, mew=1.5, color="0.2", label="observed", zorder=0)
axes[0].set(xlabel="seedlings in a cell", ylabel="cells", title="Predictive check (94 %)")
axes[0].set_yscale("symlog", linthresh=10)
axes[0].set_yticks([0, 5, 10, 100, 500], ["0", "5", "10", "100", "500"])
axes[0].legend(frameon=False)
axes[1].set(xlabel="amplitude of f", ylabel="posterior density", title="What the field explains")
_ = axes[1].legend(frameon=False)

# %% tags=["remove-cell"]
# As a script, `python examples/own_likelihood.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# The right panel shows that the likelihood matters for f as well. In the Poisson model the field
# has to explain the clusters, so its amplitude is larger. In the negative binomial model the counts
# vary more, and the field less: a part of the first map was noise.
#
# ## Likelihoods that raise an error
#
# An observation may depend on a few elements of f, such as a mean and a log standard deviation. If
# it depends on many, like the count of a whole area, the step method raises an error:

# %%
with pm.Model():
    f = pm.MvNormal("f", mu=np.zeros(30), cov=np.eye(30))
    pm.Poisson("total", mu=pm.math.sum(pm.math.exp(f)), observed=[40])
    try:
        lgm.PseudoMarginal()
    except ValueError as error:
        print(error)

# %% [markdown]
# ## What next
#
# - A likelihood without a gradient in f: `step=lgm.ASIS()`.
# - A density that PyMC does not have: `pm.CustomDist`, or a class, with which `pm.sample()` chooses
#   the default sampler automatically, and impossible data raise an error.
#   [Extending](../extending.md) has an example.
# - One latent variable for each cell: with 625 rows of X in `gp.prior` the field can resolve the
#   clusters.
