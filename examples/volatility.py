# %% [markdown]
# # The storm of autumn 1997: volatility of stock returns
#
# Daily returns of the German stock index DAX in 1997. Their mean is near zero; what changes is
# their spread, the volatility, which nobody observes. Its logarithm is a Gaussian process in
# time:
#
#     mean, amplitude, length ~ priors
#     f ~ GP(mean, amplitude² k(days / length))    log of a day's standard deviation
#     return ~ N(0, exp(f)²)
#
# A single return is not informative about the volatility of its day, since a wild market can have a
# quiet day. The neighboring days add information, and the range of their influence is inferred,
# too.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

import pymc_lgm as lgm

stocks = lgm.datasets.load_eustocks()
year = 1991 + (129 + stocks["t"]) / 260  # the series counts 260 weekdays a year
stocks["day"] = stocks["t"] - stocks["t"][year < 1997].max()
stocks = stocks[(stocks["day"] > 0) & (stocks["DAX"] != 0)]  # 0: a holiday
past, future = stocks[stocks["day"] <= 260], stocks[stocks["day"].between(261, 300)]
print(f"{len(past)} trading days of 1997, {len(future)} of 1998 to forecast")
print(f"returns from {past['DAX'].min():.1f} % to {past['DAX'].max():.1f} %")
print(f"standard deviation: {past['DAX'].std():.2f} %")

# %% [markdown]
# ## The model
#
# Two lines differ from a model for NUTS. `reparameterize=False` leaves f the `MvNormal` that it
# is: the samplers whiten it, not the model. `lgm.CopulaVolatility` is a likelihood of this
# package: it opts the model in, so that `pm.sample()` picks `lgm.PseudoMarginal` by itself.
#
# A Gaussian process does not mind that holidays are missing: it takes days as they are.

# %%
with pm.Model(coords={"day": past["day"]}) as model:
    mean = pm.Normal("mean", 0, 0.5)  # 0: a standard deviation of 1 % a day
    amplitude = pm.HalfNormal("amplitude", 1)
    length = pm.InverseGamma("length", 5, 120)  # days
    gp = pm.gp.Latent(
        mean_func=pm.gp.mean.Constant(mean),
        cov_func=amplitude**2 * pm.gp.cov.Matern32(1, ls=length),
    )
    f = gp.prior("f", past[["day"]].to_numpy(), reparameterize=False, dims="day")
    lgm.CopulaVolatility("return", f=f, observed=past["DAX"], dims="day")

# %% [markdown]
# ## Sample, and read the diagnostics
#
# `cores=1` runs one chain after the other, so that this page is also a plain script; leave it out
# in a notebook of yours.

# %%
with model:
    idata = pm.sample(750, chains=4, cores=1, random_seed=1, progressbar=False)

# %%
theta = ["mean", "amplitude", "length"]
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
# ## Volatility of every day, and of the days to come
#
# Given a draw of (theta, f), f on any other day is normal. `lgm.predict` has its mean and
# variance for each draw, so that normal draws with those are draws of the posterior, of the past
# and of the future.

# %%
days = pd.Index(range(1, 301), name="day")
with model:
    tree = lgm.predict(idata, gp, days.to_frame(), dims="day", progressbar=False)
predictions = tree["predictions"]
rng = np.random.default_rng(1)
conditional = predictions["f_conditional_mean"], predictions["f_conditional_variance"] ** 0.5
volatility = predictions["f_conditional_mean"].copy(data=np.exp(rng.normal(*conditional)))
band = az.eti(volatility)

possible = np.abs(rng.normal(0, volatility.sel(day=future["day"].to_numpy())))
limit = np.quantile(possible, 0.89, axis=(0, 1))
covered = np.mean(np.abs(future["DAX"]) < limit)
print(f"{covered:.0%} of the days to come are in their 89 % interval")

# %%
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
shown = stocks[stocks["day"] <= 300]
axes.bar(shown["day"], shown["DAX"].abs(), width=1, color="0.75", label="|return|")
axes.fill_between(days, *band.T.to_numpy(), color="C0", alpha=0.35, lw=0, label="89 % band")
axes.plot(days, volatility.median(("chain", "draw")), color="C0", label="volatility, median")
axes.axvline(260.5, color="0.3", ls=":")
axes.annotate("forecast", (263, 5.5))
axes.set(
    xlabel="weekday since the start of 1997",
    ylabel="% a day",
    title="The DAX in 1997: returns and their volatility",
    xlim=(0, 301),
)
_ = axes.legend(frameon=False, loc="upper left")

# %% tags=["remove-cell"]
# As a script, `python examples/volatility.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# The volatility rises from summer on, peaks in the storm, and calms down slowly. A single large
# return makes no peak, large neighbors do. The band is what a year of returns can say, and no
# more.
#
# To the right of the dotted line nothing was seen. The median returns to the long-run level at
# the pace of the length-scale, and the band widens to that of a day about which nothing is known.
# The intervals of the returns to come covered a little more than they promised.
#
# ## What next
#
# - Other markets: `stocks` has the columns SMI, CAC and FTSE.
# - Rougher paths: with `pm.gp.cov.Matern12` instead of `Matern32` f is the autoregressive process
#   of the volatility literature, in continuous time.
# - Many years: K is dense here, so a draw for n days costs O(n³). `pm.AR` costs O(n): [Seven years
#   of volatility](stocks).
