# %% [markdown]
# # When Laplace's method is wrong, and how you would know
#
# Laplace's method replaces p(f | y, theta) by a Gaussian at its mode. It is fast, it is
# everywhere, and for counts or for crowded data it is good. It is bad where each f_i has *one*
# binary observation, the inputs are sparse and f is large: then an observation says "f_i is
# positive" and little more, which is not the shape of a Gaussian. This page goes to such a place,
# looks at the diagnostics, and compares three answers to one question: Laplace's, expectation
# propagation's (EP), and the exact one.

# %%
import sys
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

from scipy.stats import norm

import pymc_lgm as lgm

# %% [markdown]
# ## Radar returns
#
# Each row is a radar pulse sent into the ionosphere, good (1) if something came back and bad (0)
# if not. Points in 33 dimensions are far from each other, so 80 of them are sparse.

# %%
pulses = lgm.datasets.load_ionosphere().head(80)
features = pulses.drop(columns=["V2", "y"])  # V2 is zero throughout
X = ((features - features.mean()) / features.std()).to_numpy()
y = pulses["y"].to_numpy()
print(f"{len(y)} pulses, {y.sum()} good; {X.shape[1]} features")

with pm.Model(coords={"pulse": np.arange(len(y))}) as model:
    length = pm.InverseGamma("length", 3, 10)
    amplitude = pm.HalfNormal("amplitude", 3)
    gp = pm.gp.Latent(cov_func=amplitude**2 * pm.gp.cov.ExpQuad(X.shape[1], ls=length))
    f = gp.prior("f", X, reparameterize=False, dims="pulse")
    lgm.Probit("good", f=f, observed=y, dims="pulse")

THETA = ["length", "amplitude"]

# %% [markdown]
# ## One f, close up
#
# `lgm.laplace().fit()` maximizes the approximate evidence, and `f_mean` and `f_variance` are the
# Gaussian there; `lgm.ep()` has the same methods. To see how good a Gaussian is, fix theta where
# it was made, with `pm.do`, and sample f: there is only f left to move, so a draw costs no
# factorization.


# %%
def exact_latent(point):
    with pm.do(model, point):
        return pm.sample(
            2_000,
            tune=500,
            chains=2,
            cores=1,
            step=lgm.LatentHMC(),
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )


with model:
    fits = {"Laplace": lgm.laplace().fit(), "EP": lgm.ep().fit()}
latents = {name: exact_latent(fit.point) for name, fit in fits.items()}
rows = {}
for name, fit in fits.items():
    exact = latents[name].posterior["f"].stack(draws=("chain", "draw")).transpose("draws", ...)
    rows[name] = {
        **{variable: float(value) for variable, value in fit.point.items()},
        "R-hat of f": float(az.rhat(latents[name])["f"].max()),
        "mean |f|": np.abs(fit.f_mean).mean(),
        "mean |f|, exact": np.abs(exact.mean("draws")).mean().item(),
        "sd of f": np.sqrt(fit.f_variance).mean(),
        "sd of f, exact": exact.std("draws").mean().item(),
    }
print(pd.DataFrame(rows).round(2).to_string())

# %% [markdown]
# Each column has a theta of its own, and an exact answer at *that* theta. EP's means and standard
# deviations are nearly the exact ones. Laplace's are not: f is larger than it says, because the
# mode of a skewed density is not its mean. The pulse where it is furthest off:

# %%
exact = latents["Laplace"].posterior["f"].mean(("chain", "draw")).to_numpy()
i = int(np.abs(exact - fits["Laplace"].f_mean).argmax())
figure, panels = plt.subplots(1, 2, figsize=(8, 3.2), sharex=True, layout="constrained")
for axes, (name, fit), color in zip(panels, fits.items(), ("C1", "C2"), strict=True):
    axes.hist(
        latents[name].posterior["f"].sel(pulse=i).to_numpy().ravel(),
        bins=30,
        density=True,
        color="C0",
        alpha=0.35,
        label="exact",
    )
    grid = np.linspace(*axes.get_xlim(), 300)
    density = norm.pdf(grid, fit.f_mean[i], np.sqrt(fit.f_variance[i]))
    axes.plot(grid, density, color=color, lw=2, label=name)
    axes.set(xlabel=f"f of pulse {i}", ylabel="density", title=f"At the theta that {name} fits")
    axes.legend(frameon=False)

# %% [markdown]
# ## Theta inherits the error
#
# The evidence p(y | theta) is the integral that the Gaussian stands in for, so theta inherits
# what is wrong with it. `lgm.papers.ApproximateMarginal` samples theta from the approximate
# evidence, and corrects nothing: this is "MCMC with Laplace" of the literature.


# %%
def approximate(approximation: str):
    with model:
        step = lgm.papers.ApproximateMarginal(approximation=approximation, n_importance=256)
        return pm.sample(
            1_000,
            tune=500,
            chains=2,
            cores=1,
            step=step,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )


traces = {"Laplace": approximate("laplace"), "EP": approximate("ep")}

# %% [markdown]
# These two are not exact, and say so: their `sample_stats` have an `approximate_log_evidence`.
# The exact chain is plain `pm.sample()`. It uses EP too, but only to *propose*;
# importance sampling settles the difference.

# %%
with model:
    idata = pm.sample(1_000, chains=4, cores=1, random_seed=1, progressbar=False)
traces["exact"] = idata
print(az.summary(idata, var_names=THETA))
print()
print(lgm.efficiency(idata, {"theta": THETA, "f": "f"}).T.round(3).to_string())

# %%
table = {}
for name, trace in traces.items():
    table[name] = {
        f"{variable} {what}": float(getattr(trace.posterior[variable], what)())
        for variable in THETA
        for what in ("mean", "std")
    }
    table[name]["greatest R-hat"] = float(az.rhat(trace).to_dataset().to_array().max())
print(pd.DataFrame(table).round(3).to_string())

# %% [markdown]
# All three have converged, and R-hat would never tell which two are wrong: it says that chains
# agree with each other, not that they sample the right thing.

# %%
figure, panels = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for axes, variable in zip(panels, THETA, strict=True):
    for (name, trace), color in zip(traces.items(), ("C1", "C2", "C0"), strict=True):
        axes.hist(
            trace.posterior[variable].to_numpy().ravel(),
            bins=np.linspace(0, 14, 43),
            density=True,
            histtype="stepfilled" if name == "exact" else "step",
            alpha=0.35 if name == "exact" else 1.0,
            lw=2,
            color=color,
            label=name,
        )
    axes.set(xlabel=variable, ylabel="posterior density")
    axes.legend(frameon=False)

# %% tags=["remove-cell"]
# As a script, `python examples/when_laplace_is_wrong.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# ## How you would know
#
# Without an exact chain to compare with, the approximate ones have what it takes to see it. At
# each draw they also estimate the evidence by importance sampling, from draws of the same
# Gaussian:
#
# - `log_evidence_sd`, the error of that estimate in nats: 0 if the Gaussian were the posterior, 1
#   at most;
# - `pareto_k`, the tail of the weights: above 0.7 the Gaussian misses a part of the posterior;
# - `log_evidence` minus `approximate_log_evidence`: a constant would do no harm, but where it
#   varies from one theta to another, it tilts the posterior of theta.

# %%
signs = {}
for name in ("Laplace", "EP"):
    stats = traces[name].sample_stats
    gap = stats["log_evidence"] - stats["approximate_log_evidence"]
    signs[name] = {
        "log_evidence_sd, median": float(stats["log_evidence_sd"].median()),
        "pareto_k, median": float(stats["pareto_k"].median()),
        "gap in nats, sd over the draws": float(gap.std()),
    }
print(pd.DataFrame(signs).round(2).to_string())

# %% [markdown]
# ## The repair
#
# `lgm.reweight` weights the draws of an approximate chain by that gap, and reports whether the
# weights can be trusted. Its warning is worth more than its numbers:

# %%
fixed = {}
for name in ("Laplace", "EP"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        corrected = lgm.reweight(traces[name], random_seed=1)
    posterior = corrected.posterior
    fixed[f"{name}, corrected"] = {
        **{f"{variable} mean": float(posterior[variable].mean()) for variable in THETA},
        "importance_ess": posterior.attrs["importance_ess"],
        "pareto_k": posterior.attrs["pareto_k"],
    }
    for warning in caught:
        print(f"{name}: {warning.message}\n")
fixed["exact"] = {f"{variable} mean": float(idata.posterior[variable].mean()) for variable in THETA}
print(pd.DataFrame(fixed).round(2).to_string())

# %% [markdown]
# EP's draws were almost right, and are right now. For Laplace's draws `importance_ess` shows that
# few carry most of the weight. Their averages are closer to the exact ones than before, but still
# wrong, because weights cannot correct a region with hardly any draws.
#
# ## What next
#
# - If `log_evidence_sd` and `pareto_k` of an approximate chain are small, it was good enough;
#   correct it anyway, since that is one line and no sampling.
# - If they are not, write `pm.sample()`. It is exact, and its own `log_evidence_sd` says how hard
#   it had to work for that.
# - If `theta_acceptance` of the exact chain falls below 0.1, no Gaussian is near the posterior at
#   all: `lgm.ASIS()` uses none.
