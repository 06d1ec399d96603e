# %% [markdown]
# # Do falls make a market wilder? Leverage in stochastic volatility
#
# After a day of losses a stock market is often more volatile than after a day of gains. A model in
# which the volatility moves independently of the returns cannot say so. Here the two have
# correlated shocks:
#
#     x_{t+1} = phi x_t + sigma v_t                log variance of a day, about its level
#     return_t = exp((level + x_t) / 2) u_t        cor(u_t, v_t) = rho
#
# If rho is negative, a fall raises the volatility of the next day. This is the leverage of
# econometrics. The data are the 251 days of 2018.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

import pymc_lgm as lgm

data = lgm.datasets.load_sp500()
data = data[data["year"] == 2018]
date = pd.to_datetime(data[["year", "month", "day"]]).to_numpy()
returns, n = (data["return"] - data["return"].mean()).to_numpy(), len(data)
print(f"{n} days; standard deviations of returns by quarter:")
print(data.groupby((data["month"] + 2) // 3)["return"].std().round(2).to_dict())

# %% [markdown]
# ## The model
#
# Given the path x, the shock v_t of the volatility is known: it is (x_{t+1} - phi x_t) / sigma. So
# the return is normal with mean rho v_t and variance 1 - rho², in units of the day's volatility. An
# observation depends on two elements of the path, and the path has one element more than the data.
# The level and the path are integrated out. Three hyper-parameters remain.

# %%
with pm.Model() as model:
    level, phi = pm.Normal("level", 0, 2), pm.Beta("phi", 20, 1.5)
    sigma, rho = pm.HalfNormal("sigma", 0.5), pm.Uniform("rho", -1, 1)
    start = pm.Normal.dist(0, sigma / pm.math.sqrt(1 - phi**2))
    x = pm.AR("x", rho=[phi], sigma=sigma, init_dist=start, shape=n + 1)
    sd = pm.math.exp((level + x[:-1]) / 2)
    shock = (x[1:] - phi * x[:-1]) / sigma
    pm.Normal("return", rho * sd * shock, sd * pm.math.sqrt(1 - rho**2), observed=returns)
    idata = pm.sample(
        1500, tune=500, chains=2, cores=2, step=lgm.PseudoMarginal(), random_seed=1,
        progressbar=False,
    )  # fmt: skip
print(az.summary(idata, var_names=["level", "phi", "sigma", "rho"]))

# %% [markdown]
# ## What a fall does
#
# Given a return of so many standard deviations, the shock of the volatility has mean rho times
# that number. So the next day's volatility is multiplied by exp(sigma rho u / 2) on average (in
# logarithms), where u is the standardized return.

# %%
posterior = idata.posterior
u = np.linspace(-3, 3, 61)
effect = posterior["sigma"] * posterior["rho"] / 2
factor = np.exp(effect.to_numpy().reshape(-1, 1) * u)
low, median, high = np.quantile(factor, [0.05, 0.5, 0.95], axis=0)
negative = float((posterior["rho"] < 0).mean())
print(f"rho is negative with probability {negative:.3f}")
print(f"a fall of two standard deviations multiplies volatility by {median[10]:.2f},")
print(f"between {low[10]:.2f} and {high[10]:.2f}; a rise as large by {median[50]:.2f}")

# %% [markdown]
# ## The days to come
#
# `lgm.predict` continues the path. The last element of x in the model is already the volatility of
# the first day to come, so the return of that day depends on it, and not on the first step ahead.

# %%
with model:
    level, rho, sigma, phi = (model[name] for name in ("level", "rho", "sigma", "phi"))

    def to_come(ahead):
        path = pm.math.concatenate([model["x"][-1:], ahead])
        sd = pm.math.exp((level + path[:-1]) / 2)
        shock = (path[1:] - phi * path[:-1]) / sigma
        return pm.Normal.dist(rho * sd * shock, sd * pm.math.sqrt(1 - rho**2))

    tree = lgm.predict(idata, model["x"], steps=20, random_seed=1, response={"return": to_come})
total = data["return"].mean() * 20 + tree["predictions"]["return"].sum("step")
low20, high20 = total.quantile([0.05, 0.95], ("chain", "draw")).to_numpy()
print(f"the return of the next twenty days is between {low20:.1f} % and {high20:.1f} %")

# %%
volatility = np.exp((posterior["level"] + posterior["x"]) / 2)
band = volatility.quantile([0.05, 0.5, 0.95], ("chain", "draw")).to_numpy()[:, :-1]
figure, panels = plt.subplot_mosaic(
    [["path"] * 3, ["rho", "factor", "ahead"]], figsize=(11, 6.5), layout="constrained"
)
panel = panels["path"]
panel.plot(date, np.abs(returns), ".", ms=3, color="0.5", label="size of the return")
panel.fill_between(date, band[0], band[2], alpha=0.35, lw=0)
panel.plot(date, band[1], label="volatility, median and 90 % band")
panel.set(title="Returns of the S&P 500 and their volatility, % a day", ylim=(0, 5.5))
panel.legend(frameon=False, loc="upper center")
panels["rho"].hist(posterior["rho"].to_numpy().ravel(), bins=40, density=True, color="0.7")
panels["rho"].axvline(0.0, color="k", lw=0.8, ls="--")
panels["rho"].set(title="Correlation of the shocks", xlabel="rho", xlim=(-1, 1), yticks=[])
panels["factor"].fill_between(u, low, high, alpha=0.35, lw=0)
panels["factor"].plot(u, median)
panels["factor"].axhline(1.0, color="k", lw=0.8, ls="--")
panels["factor"].set(title="Factor of the next volatility", xlabel="return, in standard deviations")
panels["ahead"].hist(total.to_numpy().ravel(), bins=40, density=True, color="0.7")
_ = panels["ahead"].set(title="Return of twenty days to come, %", yticks=[])

# %% tags=["remove-cell"]
# As a script, `python examples/leverage.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# The factor is below one for rises: in a market that goes up, volatility falls. The prior of rho is
# uniform, so the sign of rho is known from the returns of this year alone. The forecast has a long
# tail to the left, because volatility rises after falls.
#
# ## What next
#
# - Twenty years without leverage, and a check that finds that it is missing:
#   [Twenty years of volatility](twenty_years).
# - Comparison with NUTS: [benchmarks](../benchmarks/sums.md), "leverage".
