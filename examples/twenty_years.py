# %% [markdown]
# # Twenty years of volatility in under a minute
#
# How volatile was the stock market on a day of 2008, and how volatile is it today? The return of
# one day does not show it: most returns are small in volatile months, too. In a stochastic
# volatility model the standard deviation of a return is a latent path that moves a little every
# day:
#
#     x_t = rho x_{t-1} + sigma noise        log variance of a day, about its level
#     return_t ~ N(0, exp(level + x_t))
#
# The 5030 returns of the S&P 500 from 1999 to 2018 have as many latent variables, which depend
# strongly on rho and sigma. Here they are integrated out, with the level. Two hyper-parameters
# remain.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

from scipy import stats

import pymc_lgm as lgm

data = lgm.datasets.load_sp500()
date = pd.to_datetime(data[["year", "month", "day"]])
mean, n = data["return"].mean(), len(data)
returns = data["return"].to_numpy() - mean
wild = np.abs(returns) > 3.0
print(f"{n} days: {wild.sum()} lost or won more than 3 %,")
print(f"{(wild & (data['year'] == 2008)).sum()} of them in 2008")

# %% [markdown]
# ## The model
#
# The priors are those of the R package stochvol (Kastner 2016). `pm.AR` begins in its stationary
# distribution, so rho must be between -1 and 1. The level is the same on all days.


# %%
def log_variance():
    level = pm.Normal("level", 0, 10)
    persistence = pm.Beta("persistence", 5, 1.5)
    rho = pm.Deterministic("rho", 2 * persistence - 1)
    sigma = pm.HalfNormal("sigma", 1)
    start = pm.Normal.dist(0, sigma / pm.math.sqrt(1 - rho**2))
    return level + pm.AR("x", rho=[rho], sigma=sigma, init_dist=start, shape=n)


with pm.Model() as model:
    pm.Normal("return", 0, pm.math.exp(log_variance() / 2), observed=returns)
    idata = pm.sample(
        1500, chains=2, cores=2, step=lgm.PseudoMarginal(), random_seed=1, progressbar=False
    )
print(f"sampled in {idata.posterior.attrs['sampling_time']:.0f} seconds")

# %% [markdown]
# ## Can the draws be trusted?

# %%
theta = ["level", "rho", "sigma"]
print(az.summary(idata, var_names=theta))
print(lgm.efficiency(idata, {"theta": theta}).T.round(3).to_string())
print(f"the largest R-hat of a day: {az.rhat(idata, var_names='x')['x'].max():.3f}")

# %% [markdown]
# R-hat is near one, also on the worst of the days, and effective sample sizes (`ess_bulk`,
# `ess_tail`) are about a thousand: yes.
#
# ## The path
#
# Volatility is the standard deviation of a day's return. How probable is it that it was above 2 %?
# `lgm.spatial.exceedance` computes the share of draws above a bound, for days as for the areas of a
# map. To save time, we use one day of five.

# %%
volatility = np.exp((idata.posterior["level"] + idata.posterior["x"]) / 2)
band = volatility.quantile([0.05, 0.5, 0.95], ("chain", "draw")).to_numpy()
weekly = np.arange((n - 1) % 5, n, 5)
above = lgm.spatial.exceedance(volatility[..., weekly], 2.0)
probability = above["probability"].to_numpy()

most = band[1].argmax()
low, median, high = band[:, most]
print(f"highest on {date[most]:%Y-%m-%d}: {median:.1f} % a day, between {low:.1f} and {high:.1f}")
print(f"above 2 % at the end of 2018 with probability {probability[-1]:.2f},")
print(f"whose standard error is {above['mcse'][-1]:.2f}")
print(f"above 2 % with probability .9 or more in {np.mean(probability >= 0.9):.1%} of the weeks")

# %% [markdown]
# ## Does the model fit?
#
# Divide the returns by the volatility of one draw. If the model is right, the quotients are 5030
# independent standard normal variables. Do they have the moments of the normal distribution? And is
# a fall followed by as much volatility as a rise?

# %%
drawn = volatility.stack(sample=("chain", "draw"))[:, ::20].to_numpy()
z = returns[:, None] / drawn
growth = np.diff(np.log(drawn), axis=0)
leverage = [np.corrcoef(*pair)[0, 1] for pair in zip(z[:-1].T, growth.T, strict=True)]
print(f"excess kurtosis {stats.kurtosis(z).mean():.2f}; of normals 0 ± {np.sqrt(24 / n):.2f}")
print(f"skewness {stats.skew(z).mean():.2f}; of normals 0 ± {np.sqrt(6 / n):.2f}")
print(f"correlation with the growth that follows {np.mean(leverage):.3f}; 0 ± {n**-0.5:.3f}")

# %% [markdown]
# Not quite. By the kurtosis, tails are heavier than normal. So let the errors have a t distribution
# with unknown degrees of freedom. The model changes; the way to sample it does not.

# %%
with pm.Model() as heavy_model:
    scale = pm.math.exp(log_variance() / 2)
    nu = pm.Deterministic("nu", 2 + pm.Exponential("freedom", 0.1))
    pm.StudentT("return", nu, mu=0, sigma=scale, observed=returns)
    heavy = pm.sample(
        1000, chains=2, cores=2, step=lgm.PseudoMarginal(), random_seed=1, progressbar=False
    )
print(az.summary(heavy, var_names=[*theta, "nu"]))

# %% [markdown]
# With fifteen degrees of freedom errors are not far from normal. But volatility no longer has to
# jump for a single day: sigma is smaller, and rho nearer to one.
#
# The correlation remains: a fall is followed by more volatility than a rise. Econometrics calls
# this leverage. Heavier tails cannot explain it; a model with leverage has returns that depend on
# two days of the path.
#
# ## Twenty days to come
#
# Given a draw, the distribution of the next days is known, and `lgm.predict` continues each path.
# The returns are an argument, written as in the model.

# %%
with heavy_model:
    level, x = heavy_model["level"], heavy_model["x"]
    tree = lgm.predict(
        heavy, x, steps=20, random_seed=1,
        response={
            "return": lambda x: pm.StudentT.dist(nu, mu=0, sigma=pm.math.exp((level + x) / 2))
        },
    )  # fmt: skip
ahead = tree["predictions"]
low, high = (mean + ahead["return"]).sum("step").quantile([0.01, 0.99])
print(f"the return of all twenty days is between {low:.0f} % and {high:.0f} %, by 98 to 2")

# %% [markdown]
# ## Twenty years at a glance

# %%
figure, panels = plt.subplot_mosaic(
    [["returns"] * 2, ["volatility"] * 2, ["above"] * 2, ["ahead", "quantiles"]],
    figsize=(9, 9.5), height_ratios=[1, 1.4, 0.6, 1.4], layout="constrained",
)  # fmt: skip
panels["returns"].plot(date, returns, lw=0.4, color="0.3")
panels["returns"].set(title="Returns of the S&P 500, %")

panel = panels["volatility"]
panel.fill_between(date, band[0], band[2], alpha=0.35, lw=0)
panel.plot(date, band[1], lw=0.8)
panel.axhline(2.0, color="C3", lw=0.8, ls="--")
events = {
    "dot-com": "2000-04-17", "Sept 11": "2001-09-20", "July 2002": "2002-07-24",
    "Lehman Brothers": "2008-10-13", "flash crash": "2010-05-20", "debt ceiling": "2011-08-09",
    "China": "2015-08-25",
}  # fmt: skip
for event, day in events.items():
    place = pd.Timestamp(day), 1.1 * band[2][date.searchsorted(day)]
    panel.annotate(event, place, ha="center", fontsize="small")
panel.set(yscale="log", ylim=(0.2, 9), title="Volatility, % a day: median and 90 % band")
panel.set_yticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
panel.minorticks_off()

panels["above"].fill_between(date[weekly], probability, lw=0, color="C3")
panels["above"].set(ylim=(0, 1), title="Probability that volatility is above 2 %")
for name in ("returns", "volatility", "above"):
    panels[name].margins(x=0.01)

panel, posterior = panels["ahead"], heavy.posterior
sd_of_t = np.sqrt(posterior["nu"] / (posterior["nu"] - 2))
paths = {"seen": posterior["x"][..., -120:], "to come": ahead["x"]}
for (label, path), first, color in zip(paths.items(), (-119, 1), ("C0", "C3"), strict=True):
    sd = sd_of_t * np.exp((posterior["level"] + path) / 2)
    low, median, high = sd.quantile([0.05, 0.5, 0.95], ("chain", "draw")).to_numpy()
    day = first + np.arange(low.size)
    panel.fill_between(day, low, high, alpha=0.35, lw=0, color=color)
    panel.plot(day, median, lw=1, color=color, label=label)
panel.set(title="The end of 2018, and twenty days more", xlabel="days")
panel.legend(loc="upper left")

panel, normal = panels["quantiles"], stats.norm.ppf((np.arange(n) + 0.5) / n)
few = posterior.to_dataset().stack(sample=("chain", "draw")).isel(sample=slice(None, None, 10))
t = returns[:, None] / np.exp((few["level"] + few["x"]) / 2).transpose(..., "sample").to_numpy()
as_normal = stats.norm.ppf(stats.t.cdf(t, few["nu"].to_numpy()))
for values, label in ((z, "normal errors"), (as_normal, "errors of a t distribution")):
    panel.plot(normal, np.sort(values, axis=0).mean(axis=1), ".", ms=4, label=label)
panel.axline((0, 0), slope=1, color="0.5", lw=0.7)
panel.set(title="Standardized returns", xlabel="as many normals, in order")
_ = panel.legend(loc="upper left")

# %% tags=["remove-cell"]
# As a script, `python examples/twenty_years.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# Volatility rises within weeks, and falls for months. It was highest in the autumn of 2008. 2017
# was the calmest year, and 2018 ended about as volatile as September 2001. The largest falls of the
# standardized returns lie below the line, and so do the largest rises. This is skewness, which
# neither of the two distributions of errors has.
#
# ## What next
#
# - A bound that varies by day is an array. A function of several days, for example the worst of the
#   last week, is a line of xarray on the draws: `volatility[..., -5:].max("x_dim_0")`.
# - [Leverage](leverage), with a likelihood that depends on two days of the path.
# - How the time grows with the number of days:
#   [benchmarks](../benchmarks/series_and_maps.md#long-series).
