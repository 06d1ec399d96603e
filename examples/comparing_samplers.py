# %% [markdown]
# # Comparing samplers on your model
#
# All samplers of this package draw from the same posterior. They differ in how many draws it
# takes, and in what a draw costs. `lgm.compare_samplers` runs several of them on your model, with
# equal budgets, and this page shows how to read what it finds.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm

# %% [markdown]
# ## The model
#
# British coal-mining disasters by year: a Poisson process whose log rate is a Gaussian process,
# with two hyper-parameters, and a level that is integrated out with it.

# %%
data = lgm.datasets.load_coal_mining(bins=112)
years = data["year_mid"].to_numpy()

with pm.Model(coords={"year": years}) as model:
    mean = pm.Normal("mean", 0, 2)
    length = pm.InverseGamma("length", 3, 60)
    amplitude = pm.HalfNormal("amplitude", 1)
    gp = pm.gp.Latent(
        mean_func=pm.gp.mean.Constant(mean),
        cov_func=amplitude**2 * pm.gp.cov.Matern52(1, ls=length),
    )
    f = gp.prior("f", years[:, None], reparameterize=False, dims="year")
    lgm.LogGaussianCox("disasters", f=f, observed=data["y"].to_numpy(), dims="year")

# %% [markdown]
# ## A budget for each
#
# Four samplers, from one that holds f (whitened) while theta moves to one that integrates f out.
# Equal numbers of draws would not be fair, since a draw of one costs ten times a draw of another.
# The cost that grows with the data is the number of O(n³) operations, such as Cholesky
# factorizations. It depends neither on the machine nor on the code, so it is the budget:
# `operations=2000` for each chain, after tuning. A short pilot run finds out how many draws that
# buys. (`draws=` and `seconds=` are the other two budgets.)

# %%
samplers = {
    "Whitened": lgm.papers.WhitenedMetropolis,
    "ASIS": lgm.ASIS,
    "SurrogateSlice": lgm.SurrogateSlice,
    "PseudoMarginal": lgm.PseudoMarginal,
}
with model:
    comparison = lgm.compare_samplers(
        samplers,
        operations=2_000,
        tune=500,
        chains=4,
        cores=1,
        random_seed=1,
        progressbar=False,
    )

# %% [markdown]
# A sampler with options is a function that makes it: `{"many": lambda:
# lgm.ASIS(latent_repeats=5)}`. And `None` stands for whatever `pm.sample()` would take.
#
# ## The table
#
# One column a sampler here; in `comparison.table` one row.

# %%
print(comparison.table.T.astype(float).round(2).to_string())

# %% [markdown]
# Read it from `r_hat_theta`. Where it is above 1.01 the chains do not agree, and the effective
# sample size is a rough guess; where it is far above, the row says "not yet" and nothing else. Then
# `ess_theta_per_1000_ops`: effective draws of the slowest hyper-parameter per 1000 operations of
# the budget.
#
# The hyper-parameters are the difficulty and not f. `ess_f` is larger throughout, since a
# Gaussian vector of which the data know little can be moved far at once, while theta and f hold
# each other in place.

# %%
plot = comparison.plot_efficiency(backend="matplotlib")

# %% [markdown]
# Two costs, because they answer two questions. *Operations* say which algorithm is better, and
# what happens where n is large and factorizations take all the time. *Seconds* say which program
# is faster now, on this machine, with tuning in the account. At n = 112 a factorization is cheap,
# and much of a draw is everything else.

# %%
plot = comparison.plot_autocorrelation(backend="matplotlib")

# %% [markdown]
# The autocorrelation shows the reason. A lag at which it has come down to 0 is the number of
# draws between two that are as good as independent: a few for `PseudoMarginal`, ten to twenty for
# `SurrogateSlice`, and for the others, which hold f or f whitened while theta moves, more than
# fifty, at least for the length-scale.
#
# ## R-hat against operations
#
# How long would each one have to run? `comparison.r_hat()` computes R-hat over the first draws of
# each chain, then over more of them, and `plot_r_hat` plots it against draws. A draw costs what
# `cubic_ops` says, so against operations it is:

# %%
curves = comparison.r_hat(every=40)
figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for name in samplers:
    curve = curves.sel(sampler=name).dropna("draw")
    spent = curve["draw"] * comparison.table.loc[name, "cubic_ops"]
    axes.plot(spent, np.maximum(curve - 1, 1e-4), marker=".", label=name)
axes.axhline(0.01, color="0.6", lw=1, ls="--")
axes.set_yscale("log")
axes.set(
    xlabel="O(n³) operations of a chain, after tuning",
    ylabel="greatest R-hat of theta, minus 1",
    title="When do four chains agree?",
)
_ = figure.legend(loc="outside lower center", ncols=4, frameon=False)

# %% tags=["remove-cell"]
# As a script, `python examples/comparing_samplers.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# A curve that has fallen below the dashed line and stays there, R-hat of 1.01, belongs to a
# sampler that is done. One that jumps up again had chains that agreed by chance: R-hat of a few
# draws is noise, and this is why one looks at the curve and not at one number.
#
# ## Which to choose
#
# `pm.sample()` chooses `PseudoMarginal` automatically. It has converged before the others have
# begun to. The others serve the following purposes:
#
# - *ASIS* needs no Gaussian approximation, and no gradient with `latent_move="slice"`. It is the
#   one to take where `theta_acceptance` of the default stays below 0.1.
# - *SurrogateSlice* makes long moves and has only widths to learn, but pays for each
#   hyper-parameter: look at its `cubic_ops` and its `draws`.
# - *Whitened* is one half of ASIS, and here to show what the other half is good for.
#
# ## The winner, in full
#
# The traces are kept in `comparison.idata`, so nothing has to be sampled again.

# %%
idata = comparison.idata["PseudoMarginal"]
print(az.summary(idata, var_names=["mean", "length", "amplitude"]))
print()
groups = {"theta": ["mean", "length", "amplitude"], "f": "f"}
print(lgm.efficiency(idata, groups).T.round(3).to_string())

# %% [markdown]
# ## What next
#
# - Your own model, with the two or three samplers that [Which sampler](../which_sampler.md)
#   suggests for it.
# - Your own sampler: `lgm.compare_samplers` takes any step method of PyMC, and lists of them, as in
#   `lambda: [lgm.EllipticalSlice(f), pm.NUTS([mean, length, amplitude])]`. NUTS does not count
#   its operations: compare by `seconds=` then.
# - A kernel of your own, and the test of its invariance: [Extending](../extending.md).
