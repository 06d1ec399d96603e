# %% [markdown]
# # Did seat belts save drivers? Monthly counts with a trend, a season and a forecast
#
# From February 1983 on, drivers in Great Britain had to wear a seat belt. From 1969 to 1984 the
# number of drivers killed per month fell. But it had been falling before the law, it is higher in
# each winter, and it depends on the distance driven. How much is due to the law?

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

import pymc_lgm as lgm

months = lgm.datasets.load_seatbelts()
date = pd.to_datetime(months[["year", "month"]].assign(day=1))
killed, ahead = months["y"].to_numpy(), 12
every = pd.date_range(date.iloc[0], periods=len(months) + ahead, freq="MS")
print(months.groupby("year")["y"].sum().iloc[[0, 4, 8, 12, 13, 14, 15]].to_dict())

# %% [markdown]
# ## The model
#
# The logarithm of the expected count is a sum: a line and a random walk of order 2, which is a
# smooth trend, the law, a pattern of twelve months, and a season that changes from year to year.
# All are Gaussian, so they are integrated out together. Three hyper-parameters remain: two standard
# deviations, and alpha, which sets the overdispersion relative to a Poisson distribution.
# `RandomWalk` has no line of its own, and `Seasonal` no pattern that is the same in all years, so
# these are separate terms.
#
# Walk and season have twelve months more than the data, so the forecast is a part of the model:
# months without an observation are sampled given the others.

# %%
n, law, t = len(months), months["law"].to_numpy(), np.linspace(-1, 1, len(every))
with pm.Model(coords={"month": every}) as model:
    level = pm.Normal("level", 5, 2)
    slope = pm.Normal("slope", 0, 1)
    effect = pm.Normal("effect", 0, 1)
    trend_sd = lgm.gmrf.pc_prior("trend_sd", upper=0.01, alpha=0.05)
    season_sd = lgm.gmrf.pc_prior("season_sd", upper=0.1, alpha=0.05)
    alpha = pm.Exponential("alpha", scale=500)
    trend = lgm.gmrf.RandomWalk("trend", order=2, sigma=trend_sd, dims="month")
    season = lgm.gmrf.Seasonal("season", period=12, sigma=season_sd, dims="month")
    of_month = pm.ZeroSumNormal("of_month", sigma=0.2, shape=12)
    line = level + slope * t + trend
    yearly = of_month[every.month.to_numpy() - 1] + season
    log_rate = line[:n] + effect * law + yearly[:n]
    pm.NegativeBinomial("killed", mu=pm.math.exp(log_rate), alpha=alpha, observed=killed)
    idata = pm.sample(
        600, tune=400, chains=2, cores=1, step=lgm.PseudoMarginal(), random_seed=1,
        progressbar=False,
    )  # fmt: skip
print(az.summary(idata, var_names=["level", "slope", "effect", "alpha", "trend_sd", "season_sd"]))

# %% [markdown]
# ## Does the model fit?
#
# `lgm.leave_one_out` predicts each month from all others, without another run. The PIT value is the
# share of the predicted distribution that is below the count. If the model is right, PIT values are
# uniform. A hump would mean that the predictions are too wide, a valley that they are too narrow.
# If Pareto k is below 0.7, the computation can be trusted.

# %%
with model:
    others = lgm.leave_one_out(idata, thin=3, random_seed=1, progressbar=False)
print(az.loo(others))
pit = az.loo_pit(others, random_state=1)["killed"].to_numpy()

# %% [markdown]
# ## The terms, and the year to come
#
# The law stays in force, so its effect is a part of the forecast. The counts of the months to come
# are negative binomial: Poisson, with a rate that is multiplied by a gamma variable.

# %%
posterior, rng = idata["posterior"], np.random.default_rng(1)
month = xr.DataArray(every.month.to_numpy() - 1, dims="month")
line = posterior["level"] + posterior["trend"] + posterior["slope"] * xr.DataArray(t, dims="month")
season = posterior["season"] + posterior["of_month"].isel(of_month_dim_0=month)
in_force = xr.DataArray(np.r_[law, np.ones(ahead)], dims="month")
rate = np.exp(line + season + posterior["effect"] * in_force)
alpha = posterior["alpha"].to_numpy()[..., None]
to_come = rate.copy(data=rng.poisson(rate * rng.gamma(alpha, 1 / alpha, rate.shape)))[..., -ahead:]
saved = 1 - np.exp(posterior["effect"])
low, median, high = saved.quantile([0.05, 0.5, 0.95]).to_numpy()
print(f"the law saved {median:.0%} of the drivers; between {low:.0%} and {high:.0%}")
low, high = to_come.sum("month").quantile([0.05, 0.95]).to_numpy()
print(f"forecast for 1985: {low:.0f} to {high:.0f} drivers killed")

# %%
bands = ("chain", "draw")
figure, panels = plt.subplot_mosaic(
    [["counts"] * 3, ["trend", "season", "pit"]], figsize=(11, 6.5), layout="constrained"
)
panel = panels["counts"]
panel.plot(date, killed, ".", color="0.4", ms=4, label="drivers killed")
low, median, high = rate.quantile([0.05, 0.5, 0.95], bands).to_numpy()
panel.fill_between(every[:n], low[:n], high[:n], alpha=0.35, lw=0)
panel.plot(every[:n], median[:n], lw=0.9, label="rate and its 90 % band")
low, median, high = to_come.quantile([0.05, 0.5, 0.95], bands).to_numpy()
panel.fill_between(every[n:], low, high, color="C3", alpha=0.35, lw=0)
panel.plot(every[n:], median, color="C3", label="forecast and its 90 % band")
panel.axvline(date[law == 1].iloc[0], color="0.3", ls=":")
panel.annotate("seat belts", (date[law == 1].iloc[0], 60), ha="right", xytext=(-4, 0),
               textcoords="offset points")  # fmt: skip
panel.set(
    title="Drivers killed per month in Great Britain", xlim=(every[0], every[-1]), ylim=(50, 220)
)
panel.legend(loc="upper right", ncols=3, frameon=False)

for name, law_too in (("without the law", False), ("with it", True)):
    path = np.exp(line + (posterior["effect"] * in_force if law_too else 0.0))
    low, median, high = path.quantile([0.05, 0.5, 0.95], bands).to_numpy()
    shown = slice(None) if law_too else slice(168, None)
    panels["trend"].fill_between(every[shown], low[shown], high[shown], alpha=0.3, lw=0)
    panels["trend"].plot(every[shown], median[shown], label=name)
panels["trend"].set(title="Trend", xticks=every[12::48], xticklabels=range(1970, 1986, 4))
panels["trend"].legend(frameon=False)
for year in (1969, 1984):
    at = every.year == year
    factor = np.exp(season).isel(month=at)
    low, median, high = factor.quantile([0.05, 0.5, 0.95], bands).to_numpy()
    panels["season"].fill_between(range(1, 13), low, high, alpha=0.3, lw=0)
    panels["season"].plot(range(1, 13), median, label=str(year))
panels["season"].set(title="Season: factor of the rate", xlabel="month")
panels["season"].legend(frameon=False)
panels["pit"].hist(pit, bins=10, range=(0, 1), color="0.7", edgecolor="w")
panels["pit"].axhline(n / 10, color="k", lw=0.8, ls="--")
_ = panels["pit"].set(title="PIT values of the months", xlabel="share predicted below the count")

# %% tags=["remove-cell"]
# As a script, `python examples/drivers.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# The rate had fallen for ten years before the law, but not in the years just before it, and the
# step at the law is much larger than the steps of the walk. The data do not say whether the trend
# would have stayed flat: the longer the law is in force, the less its effect can be distinguished
# from the trend, so the band without the law widens. The forecast continues the season and the last
# direction of the trend.
#
# ## What next
#
# - Covariates, such as `kms` and `petrol_price` of these data: `coefficient * x` is one more term,
#   and is integrated out, too. A forecast then needs the covariate's values for the next year.
# - Several series: a term for each, or one that all share. [Which model is written
#   how](../terms.md) lists the terms.
# - `lgm.terms(idata)` computes what each term adds to each month, without a formula by hand.
