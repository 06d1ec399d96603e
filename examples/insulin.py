# %% [markdown]
# # Insulin by glucose: a mean with its own noise
#
# How much insulin is in the blood of 393 women two hours after they drank glucose, and how much
# glucose still is. Where there is more of one there is more of the other, and women differ more. A
# regression with one noise for all has too wide a band on the left and too narrow a band on the
# right. Here mean and noise are Gaussian processes of glucose x:
#
#     f ~ GP(0, sd₀² k(x / length₀))
#     g ~ GP(0, sd₁² k(x / length₁))
#     y_i ~ Normal(f(x_i), exp(level + g(x_i)))

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

from scipy.stats import norm

import pymc_lgm as lgm

women = lgm.datasets.load_pima().query("glucose > 0 and insulin > 0")  # a zero: not measured
women = women.sample(frac=1, random_state=1)
levels, woman = np.unique(5 * (women["glucose"] // 5), return_inverse=True)  # by 5 mg/dl
y = women["insulin"].to_numpy() / 100
x = levels[:, None] / 50
seen = 250
print(f"{len(women)} women, {len(levels)} levels of glucose; {seen} are seen, the others held out")

# %% [markdown]
# ## The model
#
# The processes have a value for each level of glucose, and `f[at]` gives each woman that of hers.
# It is written as any PyMC model is; nothing of it is for this package but
# `reparameterize=False`.

# %%
with pm.Model() as model:
    sd = pm.HalfNormal("sd", 1, shape=2)
    length = pm.InverseGamma("length", 3, 1, shape=2)
    covs = [sd[k] ** 2 * pm.gp.cov.Matern52(1, ls=length[k]) for k in range(2)]
    f = pm.gp.Latent(cov_func=covs[0]).prior("f", x, reparameterize=False)
    g = pm.gp.Latent(cov_func=covs[1]).prior("g", x, reparameterize=False)
    level = pm.Normal("level", 0, 1)
    at = woman[:seen]
    pm.Normal("y", f[at], pm.math.exp(level + g[at]), observed=y[:seen])

print(lgm.read(model))

# %% [markdown]
# The reading says that `f`, `g` and `level` are jointly Gaussian given theta, so all three are
# integrated out, and that an observation reads two elements of the sum. With a PyMC likelihood,
# PyMC does not choose this sampler automatically, so name it.

# %%
with model:
    idata = pm.sample(
        1000,
        tune=500,
        chains=2,
        cores=1,
        random_seed=1,
        step=lgm.PseudoMarginal(),
        progressbar=False,
    )
print(az.summary(idata, var_names=["sd", "length", "level"]))

# %% [markdown]
# ## Is the noise worth a process?
#
# The same model with one noise for all, and what each says of the women that it has not seen: the
# density of a woman's insulin is the average over draws of a Normal density.

# %%
with pm.Model() as one_noise:
    sd = pm.HalfNormal("sd", 1)
    length = pm.InverseGamma("length", 3, 1)
    gp = pm.gp.Latent(cov_func=sd**2 * pm.gp.cov.Matern52(1, ls=length))
    f = gp.prior("f", x, reparameterize=False)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", f[woman[:seen]], sigma, observed=y[:seen])
    other = pm.sample(
        1000,
        tune=500,
        chains=2,
        cores=1,
        random_seed=1,
        step=lgm.PseudoMarginal(),
        progressbar=False,
    )

draws, draws_of_one = az.extract(idata), az.extract(other)
means = {"mean and noise": draws["f"].to_numpy(), "one noise": draws_of_one["f"].to_numpy()}
noises = {
    "mean and noise": np.exp(draws["level"].to_numpy() + draws["g"].to_numpy()),
    "one noise": np.tile(draws_of_one["sigma"].to_numpy(), (len(levels), 1)),
}
rng = np.random.default_rng(1)
bands = {}
for name, mean in means.items():
    noise = noises[name]
    replicated = mean + noise * rng.standard_normal(mean.shape)
    bands[name] = low, high = np.quantile(replicated, [0.05, 0.95], axis=1)
    density = norm.pdf(y[seen:, None], mean[woman[seen:]], noise[woman[seen:]]).mean(axis=1)
    width = 100 * (high - low)[np.searchsorted(levels, [80, 180])]
    print(
        f"{name:15} log density {np.log(density).mean():.3f}, "
        f"width of the band at 80 and at 180 mg/dl: {width[0]:.0f} and {width[1]:.0f}"
    )

# %% [markdown]
# ## The bands

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
axes[0].scatter(women["glucose"], 100 * y, s=6, c="0.6", lw=0)
for (name, band), color in zip(bands.items(), ["C0", "C1"], strict=True):
    for k, end in enumerate(band):
        axes[0].plot(levels, 100 * end, color, label=None if k else name)
axes[0].plot(levels, 100 * means["mean and noise"].mean(axis=1), "C0--", label="mean")
axes[0].set(xlabel="glucose, mg/dl", ylabel="insulin, mU/l", title="90 percent bands")
axes[0].legend(fontsize="small", loc="upper left")
for color, (name, noise) in zip(["C0", "C1"], noises.items(), strict=True):
    low, high = 100 * np.quantile(noise, [0.05, 0.95], axis=1)
    axes[1].fill_between(levels, low, high, color=color, alpha=0.3, lw=0)
    axes[1].plot(levels, 100 * noise.mean(axis=1), color, label=name)
axes[1].set(xlabel="glucose, mg/dl", title="standard deviation about the mean", ylim=(0, None))
axes[1].legend(fontsize="small")

# %% tags=["remove-cell"]
# As a script, `python examples/insulin.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# The standard deviation grows about tenfold, and the band with it. So the model with a process for
# the noise gives the women that it has not seen a density higher by 30 percent: one noise for all
# makes a band that is far too wide where there is little glucose.
#
# ## What next
#
# - A band reaches below zero here: insulin is positive and skewed, and
#   `pm.Gamma("y", mu=pm.math.exp(f[at]), sigma=pm.math.exp(level + g[at]), observed=y)` says so.
# - Other parameters of a likelihood can be processes in the same way, two or three at once.
# - Where every observation has an input of its own and both processes are rough, f can follow the
#   data and leave no noise: such posteriors are hard for every sampler. Read `lgm.report(idata)`.
