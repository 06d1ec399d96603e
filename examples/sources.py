# %% [markdown]
# # Which source tells the groups apart?
#
# 62 people, one of four diagnoses each, and five sources of data about everyone: two kinds of
# images, a blood test, a questionnaire, a gait recording. Which of them tells the diagnoses apart?
# Each class has a score that is a sum of Gaussian processes, one a source:
#
#     weight[c, s] ~ Gamma(2, 2)
#     f_c ~ N(0, weight[c, 1] C_1 + ... + weight[c, 5] C_5)
#     p(class c | f) = exp(f_c) / (exp(f_1) + ... + exp(f_4))
#
# C_s says how alike two people are in source s. A weight is the variance that a source gives to the
# score of a class, so it is what users of such a model look at. This is the design of Filippone et
# al. (2012), *Probabilistic prediction of neurological disorders*; their data are private, so the
# data are simulated here, and we know the answer: the images tell much, the blood test a little,
# the other two nothing.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm

diagnoses = {"control": 18, "A": 16, "B": 14, "C": 14}
sources = {"image 1": 1.0, "image 2": 1.0, "blood": 0.5, "questions": 0.0, "gait": 0.0}
rng = np.random.default_rng(1)
diagnosis = np.repeat(np.arange(4), list(diagnoses.values()))
C = []
for strength in sources.values():
    typical = strength * rng.standard_normal((4, 60))  # 60 numbers a person
    X = typical[diagnosis] + 2 * rng.standard_normal((62, 60))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    C.append(X @ X.T / 60)
C = np.array(C)

# %% [markdown]
# ## The model
#
# Four latent vectors with a covariance each, and twenty weights. All four classes keep their
# score: with one of them fixed at zero the prior would treat that class differently.

# %%
with pm.Model(coords={"diagnosis": list(diagnoses), "source": list(sources)}) as model:
    weight = pm.Gamma("weight", 2, 2, dims=("diagnosis", "source"))
    f = []
    for c, name in enumerate(diagnoses):
        K = pm.math.sum(weight[c][:, None, None] * C, axis=0) + 1e-6 * np.eye(62)
        f.append(pm.MvNormal(f"f_{name}", mu=np.zeros(62), cov=K))
    lgm.Softmax("diagnosed", f=f, observed=diagnosis)

# %% [markdown]
# `pm.sample()` moves the twenty weights with all four vectors integrated out. The paper's sampler
# holds f while the weights move, so it makes one effective draw of the weights in some three
# hundred, for less work each. It is here, too:
# `lgm.papers.WhitenedMetropolis(latent_move="hmc-class-frequency")`.

# %%
with model:
    idata = pm.sample(1000, tune=300, chains=2, cores=1, random_seed=1, progressbar=False)
summary = az.summary(idata, var_names=["weight"], round_to="none")
print(summary[["mean", "sd", "r_hat", "ess_bulk"]].astype(float).round(2))

# %% [markdown]
# ## Which source matters
#
# The importance of a source for all classes together is its share of the sum of the weights.

# %%
posterior = idata["posterior"].dataset
weights = posterior["weight"]
share = weights.sum("diagnosis") / weights.sum(["diagnosis", "source"])
prior = rng.gamma(2, 1 / 2, size=(4000, 4, 5)).sum(axis=1)
prior_share = prior[:, 0] / prior.sum(axis=1)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for c, name in enumerate(diagnoses):
    low, median, high = weights.sel(diagnosis=name).quantile([0.05, 0.5, 0.95], ["chain", "draw"])
    at = np.arange(5) + 0.15 * (c - 1.5)
    left.errorbar(at, median, [median - low, high - median], fmt="o", ms=4, capsize=2, label=name)
left.axhline(1, color="0.7", lw=0.8, zorder=0)
left.set(ylabel="weight", title="each class (prior mean: the line)")
left.set_xticks(np.arange(5), sources)
left.legend(fontsize="small", ncols=2)
low, median, high = share.quantile([0.05, 0.5, 0.95], ["chain", "draw"])
right.axhspan(*np.quantile(prior_share, [0.05, 0.95]), color="0.9", label="prior, 90 %")
right.errorbar(np.arange(5), median, [median - low, high - median], fmt="o", capsize=3)
right.set(ylabel="share of all weights", title="all classes", ylim=(0, None))
right.set_xticks(np.arange(5), sources)
right.legend(fontsize="small")

# %% tags=["remove-cell"]
# As a script, `python examples/sources.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %%
print(share.quantile([0.05, 0.5, 0.95], ["chain", "draw"]).round(2).to_pandas())
images = share.sel(source=["image 1", "image 2"]).sum("source")
rest = share.sel(source=["questions", "gait"]).sum("source")
print(f"the images weigh more than questions and gait: {float((images > rest).mean()):.2f}")

# %% [markdown]
# The images tell the diagnoses apart: their weights have moved up from the prior, and those of the
# questionnaire and the gait recording down. The blood test is where it was, and no source is out of
# the question. That is what 62 people say about twenty weights; a picture of point estimates would
# have said more than that.
#
# ## What next
#
# - Weights that add up to one for each class: `pm.Dirichlet("weight", alpha, shape=(4, 5))` with
#   `alpha = pm.Exponential("alpha", 1, shape=5)`. Many weights are then next to zero, where chains
#   move slower.
# - Processes over inputs instead of matrices: a sum of `pm.gp.cov` terms for each class.
# - Classes on a map, with predictions: [Young pines, old pines](pines).
