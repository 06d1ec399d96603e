# %% [markdown]
# # How bitter is this wine? Ordinal ratings by nine judges
#
# Nine judges tasted four wines, two bottles of each, and graded their bitterness from 1 to 5. The
# grapes had been crushed cold or warm, with or without contact between juice and skins. Which of
# the two makes a wine bitter, and how much do judges differ?
#
# Grades have an order but no unit, so they are cut from something that has one: a judge perceives
# f plus noise, and says how many of four cutpoints lie below. f is a sum of effects:
#
#     f = temperature + contact + judge,    each effect normal with mean 0
#     cutpoints ~ increasing normals,       perceived = f + N(0, 1)
#
# A sum of normal effects is a Gaussian vector, whose covariance is the sum of theirs. So the
# effects need no variables of their own: a mixed model is a latent Gaussian model.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from scipy.special import ndtr

import pymc_lgm as lgm

ratings = lgm.datasets.load_wine()
wines = ["cold, no contact", "cold, contact", "warm, no contact", "warm, contact"]
ratings["wine"] = [
    wines[2 * w + c] for w, c in zip(ratings.temp_warm, ratings.contact_yes, strict=True)
]
tastings = ratings.drop_duplicates(["judge", "wine"])
group = (ratings.index // 2).to_numpy()  # the two bottles of a wine follow each other
print(f"{len(ratings)} grades by {len(tastings)} pairs of a judge and a wine")
print(ratings.groupby("wine", sort=False)["y"].mean().round(2).to_string())

# %% [markdown]
# ## The model
#
# Written for NUTS, this model has two effects of treatments and nine of judges, each a variable,
# and scaled. Here two lines differ: f is one `pm.MvNormal`, and `lgm.OrdinalProbit`, a likelihood
# of this package, opts the model in, so that `pm.sample()` picks `lgm.PseudoMarginal` by itself.
# f has one element for each pair of a judge and a wine: `f[group]` gives it to both bottles.
#
# Fewer effects than elements make the covariance singular; a variance of 10⁻⁶ mends that.

# %%
warm, contact = tastings["temp_warm"].to_numpy(), tastings["contact_yes"].to_numpy()
judge = tastings["judge"].to_numpy()
treatment_cov = 2.0**2 * (np.outer(warm - 0.5, warm - 0.5) + np.outer(contact - 0.5, contact - 0.5))
same_judge = (judge[:, None] == judge).astype(float)
tiny = 1e-6 * np.eye(len(tastings))

with pm.Model(coords={"tasting": range(len(tastings)), "cut": ["1|2", "2|3", "3|4", "4|5"]}):
    judge_sd = pm.HalfNormal("judge_sd", 1)
    ordered = pm.distributions.transforms.ordered
    cutpoints = pm.Normal("cutpoints", [-2, -0.7, 0.7, 2], 2, transform=ordered, dims="cut")
    cov = treatment_cov + judge_sd**2 * same_judge + tiny
    f = pm.MvNormal("f", np.zeros(len(tastings)), cov, dims="tasting")
    observed = ratings["y"] - 1  # categories count from 0, as in all of PyMC
    lgm.OrdinalProbit("grade", f=f[group], cutpoints=cutpoints, observed=observed)
    idata = pm.sample(1_000, chains=4, cores=1, random_seed=1, progressbar=False)

# %% [markdown]
# Cutpoints are hyper-parameters as any other; `ordered` is PyMC's own. `cores=1` runs one chain
# after the other, so that this page is also a plain script; leave it out in a notebook of yours.
#
# ## Read the diagnostics

# %%
theta = ["judge_sd", "cutpoints"]
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
# ## The effects
#
# f is in the trace, so effects are differences of its averages, draw by draw: warm from cold,
# contact from none, a judge from the others. Their unit is the noise of one tasting. Grades
# follow: a judge grades k or lower with probability Φ(cutpoint − f), averaged here over draws and
# judges.

# %%
f_draws, cut_draws = idata["posterior"]["f"], idata["posterior"]["cutpoints"]


def contrast(rows):
    return f_draws[..., rows].mean("tasting") - f_draws[..., ~rows].mean("tasting")


effects = {"warm": contrast(warm == 1), "contact": contrast(contact == 1)}
effects |= {f"judge {j}": contrast(judge == j) for j in range(1, 10)}
effects = xr.Dataset(effects)
print(az.summary(effects, kind="stats"))
matters = float((effects["warm"] > effects["contact"]).mean())
print(f"probability that warmth matters more than contact: {matters:.2f}")

# %%
at_most = ndtr(cut_draws - f_draws).mean(("chain", "draw"))
at_most = (
    at_most.assign_coords(wine=("tasting", np.asarray(tastings["wine"], dtype=str)))
    .groupby("wine")
    .mean()
)
at_most = at_most.sel(wine=wines).transpose("cut", "wine")
share = np.diff(at_most, axis=0, prepend=0, append=1)
print("expected grades / %")
print(pd.DataFrame(100 * share.T, wines, range(1, 6)).round().astype(int).to_string())

# %%
low, high = az.eti(effects).to_array().transpose("ci_bound", ...).to_numpy()
names = list(effects)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.axvline(0, color="0.7")
left.hlines(names, low, high, color=["C3"] * 2 + ["C0"] * 9, lw=3, alpha=0.5)
left.plot(effects.median().to_array(), names, "o", color="k", ms=4)
left.invert_yaxis()
left.set(xlabel="effect / noise of a tasting", title="Posterior median and 89 % interval")
for grade in range(5):
    right.barh(
        wines, share[grade], left=share[:grade].sum(axis=0), color=plt.cm.YlOrBr(0.1 + grade / 5)
    )
right.invert_yaxis()
_ = right.set(xlabel="share of grades expected", title="Grades 1 (pale) to 5 (dark)", xlim=(0, 1))

# %% tags=["remove-cell"]
# As a script, `python examples/ratings.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# **Left**, effects. Warm crushing makes a wine more bitter, and so does contact with the skins;
# warmth matters more, almost surely. But judges differ as much as wines do: the most and the
# least sensitive are as far apart as a warm wine and a cold one.
#
# **Right**, grades. A cold wine without contact is rarely graded above 3, a warm one with contact
# rarely below. The shares are averages over judges and over all that is uncertain, cutpoints
# included.
#
# ## What next
#
# - Effects of continuous variables: a covariance of `pm.gp.cov` in the sum, as in [Who has
#   diabetes?](classification).
# - Do some judges grade more erratically? `noise=` takes a value for each grade, hyper-parameters
#   too.
# - Is this model right? `pm.sample_posterior_predictive(idata)` draws grades to compare with
#   those given.
