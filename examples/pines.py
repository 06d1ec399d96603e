# %% [markdown]
# # Young pines, old pines: classes on a map
#
# 584 longleaf pines stand in a square of 200 meters. Young trees stand close together where an old
# one has fallen, so the place of a tree is informative about its age. There are three classes of
# age, by diameter, each with a score that is a Gaussian process over the map:
#
#     amplitude, length ~ priors
#     f_young, f_middle, f_old ~ GP(0, amplitude² k(x / length))
#     p(class c | f) = exp(f_c) / (exp(f_young) + exp(f_middle) + exp(f_old))
#
# A hundred trees are measured. What is the probability that a tree at another place is young?

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm

classes = ["young", "middle", "old"]
trees = lgm.datasets.load_longleaf().sample(frac=1, random_state=1, ignore_index=True)
age = np.digitize(trees["diameter"], [10, 30])  # less than 10 cm, less than 30 cm, more
X = trees[["x1", "x2"]].to_numpy() / 100  # in units of 100 m
seen = 100
print(dict(zip(classes, np.bincount(age[:seen]).tolist(), strict=True)))

# %% [markdown]
# ## The model
#
# `gp.prior(n_outputs=3)` makes three processes with one covariance function. For a covariance
# function for each class write a list, `lgm.Softmax("age", f=[f0, f1, f2])`. No process is fixed at
# zero, because the prior would then treat that class differently.

# %%
with pm.Model() as model:
    amplitude = pm.HalfNormal("amplitude", 2)
    length = pm.InverseGamma("length", 3, 1)
    gp = pm.gp.Latent(cov_func=amplitude**2 * pm.gp.cov.Matern52(2, ls=length))
    f = gp.prior("f", X[:seen], n_outputs=3, reparameterize=False)
    lgm.Softmax("age", f=f, observed=age[:seen])

# %% [markdown]
# An observation depends on three latent variables. As with one process, `pm.sample()` moves theta
# with the processes integrated out. Labels hardly bound the amplitude from above, and estimates of
# the evidence are noisy if it is large, so 2000 draws are needed. There are only two chains, to
# save time.

# %%
with model:
    idata = pm.sample(2000, chains=2, cores=1, random_seed=1, progressbar=False)
print(az.summary(idata, var_names=["amplitude", "length"]))

# %% [markdown]
# ## The trees that were not measured
#
# `lgm.predict` computes the probability of each class, averaged over f and theta. As with two
# classes, a model that may abstain is right more often about the others.

# %%
with model:
    tree = lgm.predict(idata, gp, X[seen:], thin=8, progressbar=False)
probability = tree["predictions"]["age_probability"].to_numpy()
curve = lgm.papers.scores.abstention_curve(age[seen:], probability)
shares = np.bincount(age[:seen]) / seen
base_rate = np.tile(shares, (len(X) - seen, 1))
print(curve.loc[[0, 0.1, 0.2, 0.3]].round(2))
print(f"log density: {lgm.papers.scores.log_predictive_density(age[seen:], probability):.3f}")
print(f"of the base rate: {lgm.papers.scores.log_predictive_density(age[seen:], base_rate):.3f}")
print(f"Brier score: {lgm.papers.scores.brier_score(age[seen:], probability):.3f}")
print(f"of the base rate: {lgm.papers.scores.brier_score(age[seen:], base_rate):.3f}")

# %% [markdown]
# ## The map

# %%
across = np.linspace(0.025, 1.975, 40)
grid = np.stack(np.meshgrid(across, across), axis=-1).reshape(-1, 2)
with model:
    maps = lgm.predict(idata, gp, grid, thin=20, progressbar=False)
p = maps["predictions"]["age_probability"].to_numpy().reshape(40, 40, 3)

figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained", sharey=True)
for c, ax in enumerate(axes):
    image = ax.imshow(
        p[:, :, c], origin="lower", extent=(0, 200, 0, 200), vmin=0, vmax=1, cmap="Greens"
    )
    for known, label, style in (
        (slice(0, seen), "measured", {"s": 16, "c": "C1"}),
        (slice(seen, None), "held out", {"s": 3, "c": "0.25"}),
    ):
        ax.scatter(*100 * X[known][age[known] == c].T, label=label, lw=0, **style)
    ax.set(title=classes[c], xlabel="meters", xlim=(0, 200), ylim=(0, 200))
axes[0].set_ylabel("meters")
axes[0].legend(loc="lower right", fontsize="small", markerscale=1.5, framealpha=1)
_ = figure.colorbar(image, ax=axes, label="probability of the class", shrink=0.9)

# %% tags=["remove-cell"]
# As a script, `python examples/pines.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# Each map has the trees of its class. Young trees stand in two thickets, and the old ones in the
# west, where few others grow. From a hundred trees the model predicts the class of six in ten
# held-out trees correctly. If it abstains from uncertain trees, it predicts eight in ten of the
# others correctly. Far from measured trees, the probabilities return to those of the prior, a third
# each.
#
# ## What next
#
# - Labels of another kind, as strings: `np.unique(labels, return_inverse=True)[1]` makes
#   them 0, 1, 2.
# - `pm.Categorical("age", logit_p=f.T, observed=...)` is the same model with a likelihood of PyMC;
#   with it write `pm.sample(step=lgm.PseudoMarginal())`.
# - If mean and noise both vary, an observation depends on two processes:
#   `pm.Normal("y", f, pm.math.exp(g), observed=y)`.
# - Ordered classes need one predictor, with cutpoints: [What would you do?](aggression).
