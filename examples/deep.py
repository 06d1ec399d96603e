# %% [markdown]
# # A process of a process: both signs of what is hidden
#
# A deep Gaussian process is a process whose input is another one:
#
#     F¹ ~ GP(0, k₁(x, x')),   F² ~ GP(0, k₂(F¹, F¹')),   y = F² + noise
#
# Given F¹ the second layer is an ordinary process with normal noise, and can be integrated out: y |
# F¹ ~ N(0, K₂(F¹) + λ I). The remaining model has one Gaussian vector and a likelihood that depends
# on all of its elements together. An elliptical slice sampler needs only the value of this
# likelihood. Cutajar, Bonilla, Michiardi and Filippone (2017) compare their approximation with it.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

import pymc_lgm as lgm

# %% [markdown]
# ## Data
#
# Fifty points of h(h(x)) with h(x) = 2x exp(−x²), and noise of variance 0.01, as in the paper's
# supplement. It is steep in the middle and nearly flat elsewhere, so no process with one
# length-scale fits it.


# %%
def h(x):
    return 2 * x * np.exp(-(x**2))


rng = np.random.default_rng(3)
x = np.sort(rng.uniform(-1.5, 1.5, 50))
y = h(h(x)) + 0.1 * rng.standard_normal(x.size)

# %% [markdown]
# ## The model
#
# As PyMC writes it: F¹ with `reparameterize=False`, and the observations as a normal vector whose
# covariance depends on it. Hyper-parameters are fixed, as in the paper.

# %%
second, noise = pm.gp.cov.ExpQuad(1, ls=1.0), 0.1

with pm.Model(coords={"point": np.arange(x.size)}) as model:
    gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=0.7))
    f = gp.prior("f", x[:, None], reparameterize=False, dims="point")
    cov = second(f[:, None]) + noise**2 * np.eye(x.size)
    pm.MvNormal("y", mu=np.zeros(x.size), cov=cov, observed=y, dims="point")

# %% [markdown]
# Samplers that approximate p(f | y) by a Gaussian cannot be used for this model, and raise an
# error:

# %%
with model:
    try:
        lgm.PseudoMarginal()
    except ValueError as error:
        print(error)

# %% [markdown]
# ## Three samplers
#
# −F¹ explains the data as well as F¹, because distances between its elements are the same. So there
# are two modes, one the mirror image of the other. An elliptical slice proposes from an ellipse
# through f, and −f lies on this ellipse, opposite to f: half of the moves may end there. HMC
# follows the gradient, and stays in its mode. Both leave the posterior invariant, so a draw may use
# one after the other.


# %%
def slope(f):
    """How much F¹ rises in the middle: its sign says which mode it is."""
    return f.isel(point=np.abs(x - 0.7).argmin()) - f.isel(point=np.abs(x + 0.7).argmin())


def row(idata):
    f = idata.posterior["f"]
    sign = np.sign(slope(f))
    steps = idata.posterior.sizes["draw"] - 1
    return {
        "changes of sign a draw": float((sign.diff("draw") != 0).sum("draw").mean()) / steps,
        "ESS of the sign": float(az.ess(sign.to_numpy())),
        "smallest ESS of f, sign aside": float(az.ess(f * sign).min()),
        "seconds": idata.posterior.attrs["sampling_time"],
    }


def run(step, draws):
    with model:
        return pm.sample(
            draws,
            tune=500,
            chains=4,
            cores=1,
            step=step,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )


with model:
    samplers = {
        "elliptical slice": lgm.EllipticalSlice(repeats=10),
        "HMC": lgm.LatentHMC(),
        "both": [lgm.EllipticalSlice(repeats=5), lgm.LatentHMC()],
    }
runs = {name: run(step, 1500 if name == "both" else 500) for name, step in samplers.items()}
print(pd.DataFrame({name: row(each) for name, each in runs.items()}).round(2).to_string())

# %% [markdown]
# Chains of HMC alone end in the mode in which they began. Elliptical slices change the sign in
# nearly every second draw, and mix slowly otherwise. Together they do both well.

# %%
idata = runs["both"]
print(az.summary(idata, var_names=["f"], coords={"point": [0, 12, 25, 37, 49]}))

# %% [markdown]
# The posterior mean of F¹ is zero everywhere, because both signs are equally probable. A chain that
# stays in one mode would report another mean.
#
# ## The second layer, and predictions
#
# F² given F¹ is drawn from its Gaussian conditional, and so is F¹ at other x: `gp.conditional`.

# %%
x_new = np.linspace(-1.5, 1.5, 61)
with model:
    gp.conditional("f_new", x_new[:, None], jitter=1e-5)
    thinned = idata.isel(draw=slice(None, None, 10))
    drawn = pm.sample_posterior_predictive(
        thinned, var_names=["f_new"], random_seed=1, progressbar=False
    )
inner = drawn.posterior_predictive["f_new"].stack(sample=("chain", "draw")).to_numpy().T
at_data = thinned.posterior["f"].stack(sample=("chain", "draw")).transpose("sample", ...)


def kernel(u, v):
    return np.exp(-0.5 * (u[:, None] - v[None]) ** 2)


def outer(u, f):
    """A draw of F² at inputs u, given y at f."""
    solved = np.linalg.solve(kernel(f, f) + noise**2 * np.eye(f.size), kernel(f, u))
    cov = kernel(u, u) - kernel(u, f) @ solved
    return rng.multivariate_normal(y @ solved, cov, method="eigh", check_valid="ignore")


second_layer = np.array([outer(*each) for each in zip(inner, at_data.to_numpy(), strict=True)])
predicted = second_layer + noise * rng.standard_normal(second_layer.shape)

# %%
rises = (slope(at_data) > 0).to_numpy()
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for up, color, label in ((True, "C0", "F¹ rises"), (False, "C1", "F¹ falls")):
    for k, sample in enumerate(np.flatnonzero(rises == up)[:40]):
        style = {"color": color, "alpha": 0.3, "lw": 0.8, "label": label if k == 0 else None}
        axes[0].plot(x_new, inner[sample], **style)
        order = np.argsort(inner[sample])
        axes[1].plot(inner[sample][order], second_layer[sample][order], **style)
axes[0].plot(x_new, h(x_new), "k--", lw=1.2, label="h")
axes[0].set(xlabel="x", ylabel="F¹", title="First layer")
axes[0].legend(frameon=False)
axes[1].plot(x_new, h(x_new), "k--", lw=1.2)
axes[1].set(xlabel="F¹", ylabel="F²", title="Second layer, of the first", xlim=(-3, 3))
low, middle, high = np.quantile(predicted, [0.05, 0.5, 0.95], axis=0)
axes[2].fill_between(x_new, low, high, alpha=0.3, lw=0, label="90 % of predictions")
axes[2].plot(x_new, middle)
axes[2].plot(x_new, h(h(x_new)), "k--", lw=1.2, label="h(h(x))")
axes[2].plot(x, y, "k.", ms=4)
axes[2].set(xlabel="x", ylabel="y", title="Predictions", ylim=(-1.3, 1.8))
_ = axes[2].legend(frameon=False, loc="upper left")

# %% tags=["remove-cell"]
# As a script, `python examples/deep.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# The two layers come in pairs: with F¹ of either sign F² makes the same predictions. The scale of
# F¹ is not that of h, because its prior has a standard deviation of 1 and the second layer adapts
# to it.
#
# ## What next
#
# - Hyper-parameters of both layers: give them priors, and `lgm.ASIS()` moves them with f;
#   `step=[lgm.EllipticalSlice([f]), lgm.ASIS()]` keeps the changes of sign. With more points, or a
#   wider range of x, there are more modes, of another shape: R-hat then shows that chains disagree.
# - A likelihood that is not normal, many points, several hidden processes: `pm.fit` and
#   `lgm.papers.RandomFeatures`, in [Which sampler?](../which_sampler.md).
