# %% [markdown]
# # Who has diabetes? Classification that knows when to abstain
#
# 200 Pima women with five measurements each, and whether they have diabetes. A Gaussian process f
# over the measurements makes a flexible classifier:
#
#     amplitude, length ~ priors             a length for each measurement
#     f ~ GP(0, amplitude² k(x / length))    the score of a woman
#     p(diabetes | f) = Φ(f)                 probit
#
# Such a classifier does more than guess: it says which measurements matter, with uncertainty, and
# its probabilities show when to answer "I don't know, ask a doctor".

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm

features = ["glucose", "mass", "age", "pedigree", "pressure"]
women = lgm.datasets.load_pima()
women = women[(women[["glucose", "mass", "pressure"]] > 0).all(axis=1)]  # 0: not measured
women = women.sample(frac=1, random_state=1)
train, test = women[:200], women[200:]
center, scale = train[features].mean(), train[features].std()
X, X_test = (train[features] - center) / scale, (test[features] - center) / scale
print(f"{len(train)} women to learn from, {len(test)} held out")
print(f"diabetes: {train['y'].mean():.0%} of the first, {test['y'].mean():.0%} of the second")

# %% [markdown]
# ## The model
#
# Two lines differ from a model for NUTS. `reparameterize=False` makes f a `pm.MvNormal`; the
# samplers whiten it themselves. `lgm.Probit` is a likelihood of this package, so `pm.sample()`
# chooses `lgm.PseudoMarginal` automatically.
#
# Length-scales are in standard deviations of a measurement. If one is long, f hardly changes with
# that measurement: it does not matter (*automatic relevance determination*).

# %%
with pm.Model(coords={"feature": features, "woman": train.index}) as model:
    amplitude = pm.HalfNormal("amplitude", 2)
    length = pm.LogNormal("length", 1, 0.75, dims="feature")
    gp = pm.gp.Latent(cov_func=amplitude**2 * pm.gp.cov.ExpQuad(len(features), ls=length))
    f = gp.prior("f", X.to_numpy(), reparameterize=False, dims="woman")
    lgm.Probit("diabetes", f=f, observed=train["y"], dims="woman")

# %% [markdown]
# ## Sample, and read the diagnostics
#
# There are six hyper-parameters: a length-scale for each feature, and the amplitude. `cores=1` runs
# one chain after the other, so that this page is also a plain script; leave it out in a notebook.

# %%
with model:
    idata = pm.sample(2_000, chains=4, cores=1, random_seed=1, progressbar=False)

# %%
theta = ["amplitude", "length"]
print(az.summary(idata, var_names=theta))

# %%
print(lgm.efficiency(idata, {"theta": theta, "f": "f"}).T.round(3).to_string())

# %% [markdown]
# R-hat is at most 1.01, and the effective sample sizes (`ess_bulk`, `ess_tail`) are at least some
# hundreds, so the draws can be trusted. If they were bad, `theta_acceptance` and
# `latent_acceptance`, here far from 0, would say [what is stuck](../sample_statistics.md).
# `cubic_ops` is the cost of a draw in factorizations of n x n matrices: about two if the emulator
# of the evidence jumps, more if NUTS on the evidence helps it. PyMC's NUTS needs one, and its
# derivative, at each leapfrog step.
#
# ## Predict the women held out
#
# `lgm.predict` averages the exact predictive distribution over the draws, so the probabilities
# include the uncertainty of f and of the length-scales.

# %%
with model:
    tree = lgm.predict(idata, gp, X_test, progressbar=False)
probability, y = tree["predictions"]["diabetes_probability"].to_numpy(), test["y"].to_numpy()
curve = lgm.papers.scores.abstention_curve(y, probability)
density = lgm.papers.scores.log_predictive_density(y, probability)
constant = np.full(len(y), train["y"].mean())
base_rate = lgm.papers.scores.log_predictive_density(y, constant)
print(f"log predictive density {density:.3f}; of the base rate alone {base_rate:.3f}")
error = lgm.papers.scores.brier_score(y, probability)
base_rate = lgm.papers.scores.brier_score(y, constant)
print(f"Brier score {error:.3f}; of the base rate alone {base_rate:.3f}")
print(f"capacity: accuracy {lgm.papers.scores.capacity(y, probability).accuracy:.3f}")
print(curve.loc[[0, 0.1, 0.2, 0.3, 0.4]].round(2))

# %% [markdown]
# ## What matters, and when to trust it

# %%
low, high = az.eti(idata["posterior"]["length"]).T.to_numpy()
median = idata["posterior"]["length"].median(("chain", "draw"))
prior = np.quantile(pm.draw(length, 2_000, random_seed=1), [0.055, 0.945])

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
left.axvspan(*prior, fc="0.9", ec="0.6", label="prior, 89 %")
left.hlines(features, low, high, color="C0", lw=3, alpha=0.5, label="posterior, 89 %")
left.plot(median, features, "o", color="C0", label="its median")
left.set(
    xscale="log",
    xticks=[1, 3, 10],
    xticklabels=[1, 3, 10],
    xlabel="length-scale / standard deviations",
    title="Short is relevant",
    ylim=(len(features), -0.6),
)
left.legend(
    loc="lower center", ncols=3, columnspacing=1, handlelength=1.2, fontsize="small", frameon=False
)
right.plot(100 * curve["abstention"], 100 * curve["accuracy"], color="C0", label="Gaussian process")
right.axhline(
    100 * max(1 - y.mean(), y.mean()), color="0.5", ls="--", label="always saying no diabetes"
)
right.set(
    xlabel="women about whom it abstains / %",
    ylabel="right about the others / %",
    title="Abstaining pays",
    xlim=(0, 90),
)
_ = right.legend(frameon=False, loc="upper left")

# %% tags=["remove-cell"]
# As a script, `python examples/classification.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# **Left**, relevance. Glucose, mass and age have short length-scales: the score of a woman changes
# with them. Blood pressure has the longest: f hardly depends on it. The intervals are wide, because
# there are only 200 women; a point estimate would not show this.
#
# **Right**, abstention. The classifier is right about three women of four. This is better than the
# dashed line, the accuracy of saying "no diabetes" to all. If it abstains for the least certain
# half, it is right about nine of ten of the others: the probabilities show where they can be
# trusted. `lgm.papers.scores.capacity` is the area under this curve.
#
# ## What next
#
# - Another likelihood: write `lgm.Logistic` instead of `lgm.Probit`.
# - If `theta_acceptance` stays below 0.1, see [Which sampler](../which_sampler.md).
