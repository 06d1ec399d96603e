# %% [markdown]
# # Which day, which season: two processes and effects beside them
#
# The 191 explosions in British coal mines of [the first tutorial](coal_mining) have dates. Their
# rate fell from decade to decade; did it also depend on the day of the week, and on the month? The
# logarithm of the rate is a sum:
#
#     log rate = a + beta [it is a Sunday] + weekday + season(month) + trend(year)
#
# An intercept, a coefficient, an effect for each weekday, and two Gaussian processes: one that is
# periodic over the year, and one over the decades. The model learns how much weekdays and months
# differ, which may be almost nothing.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

import pymc_lgm as lgm

weekdays = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
first = pd.Timestamp("1851-03-15")
explosion = first + pd.to_timedelta(lgm.datasets.load_coal_mining_dates()["day"], unit="D")
days = pd.DataFrame({"date": pd.date_range("1851-01-01", "1962-12-31")})
days["period"] = (days["date"].dt.year - 1851) // 8
days["weekday"], days["month"] = days["date"].dt.day_of_week, days["date"].dt.month - 1
days["explosions"] = days["date"].map(explosion.value_counts()).fillna(0).astype(int)
print(days.groupby("weekday")["explosions"].sum().set_axis(weekdays).to_dict())

# %% [markdown]
# ## The model
#
# Days of one period of eight years, one weekday and one month have one rate: 1176 cells, each with
# the number of its days and of its explosions. All that is Gaussian given theta is one vector of
# 35 elements, and a cell reads a sum of five of them.

# %%
cells = days.groupby(["period", "weekday", "month"], as_index=False)
cells = cells.agg(explosions=("explosions", "sum"), days=("date", "size"))
period, weekday, month = (cells[name].to_numpy() for name in ("period", "weekday", "month"))
year = 1851 + 8 * np.arange(14) + 4

with pm.Model(coords={"weekday": weekdays, "month": np.arange(1, 13), "year": year}) as model:
    a = pm.Normal("a", -5, 2)
    beta = pm.Normal("beta", 0, 2)
    weekday_sd = pm.HalfNormal("weekday_sd", 0.5)
    effect = pm.Normal("effect", 0, weekday_sd, dims="weekday")

    trend_sd, trend_length = pm.HalfNormal("trend_sd", 1), pm.InverseGamma("trend_length", 3, 60)
    cov = trend_sd**2 * pm.gp.cov.Matern52(1, ls=trend_length)
    gp = pm.gp.Latent(cov_func=cov)
    trend = gp.prior("trend", year[:, None], reparameterize=False, dims="year")

    season_sd = pm.HalfNormal("season_sd", 0.5)
    cov = season_sd**2 * pm.gp.cov.Periodic(1, period=12, ls=1)
    gp = pm.gp.Latent(cov_func=cov)
    season = gp.prior("season", np.arange(12.0)[:, None], reparameterize=False, dims="month")

    log_rate = a + beta * (weekday == 6) + effect[weekday] + season[month] + trend[period]
    expected = cells["days"].to_numpy() * pm.math.exp(log_rate)
    pm.Poisson("explosions", expected, observed=cells["explosions"])

print(lgm.read(model))

# %% [markdown]
# Theta has four components, and the default sampler moves them with the rest integrated out. In
# each draw it then draws the intercept, the coefficient, the effects and both processes, given
# theta and each other: a sum is known much better than its parts, and here no chain has to find
# that out.

# %%
with model:
    idata = pm.sample(
        2000,
        tune=500,
        chains=2,
        cores=1,
        random_seed=1,
        step=lgm.PseudoMarginal(),
        progressbar=False,
    )
theta = ["weekday_sd", "season_sd", "trend_sd", "trend_length"]
print(az.summary(idata, var_names=["a", "beta", *theta]))

# %% [markdown]
# ## Which part explains what
#
# Each part has its own picture, as the factor by which it multiplies the rate of an average day:
# the part less its average over days, weeks or months. A constant that is added to one part and
# subtracted from another cancels in this way.

# %%
posterior = idata["posterior"].dataset
on_sunday = posterior["beta"] * (posterior["weekday"] == "Sun")
parts = {
    "year": posterior["trend"],
    "month": posterior["season"],
    "weekday": posterior["effect"] + on_sunday,
}
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained", sharey=True)
for ax, (dim, part) in zip(axes, parts.items(), strict=True):
    factor = np.exp(part - part.mean(dim))
    low, median, high = factor.quantile([0.05, 0.5, 0.95], ["chain", "draw"])
    at = np.arange(7) if dim == "weekday" else factor[dim].to_numpy()
    ax.axhline(1, color="0.7", lw=0.8)
    if dim == "weekday":
        ax.errorbar(at, median, [median - low, high - median], fmt="o", capsize=3)
        ax.set_xticks(at, weekdays)
    else:
        ax.fill_between(at, low, high, alpha=0.3, lw=0)
        ax.plot(at, median)
    ax.set(xlabel=dim, yscale="log")
axes[0].set(ylabel="factor of the rate", title="trend")
axes[0].set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
axes[1].set_title("season")
axes[2].set_title("weekday")

# %% tags=["remove-cell"]
# As a script, `python examples/explosions.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# Miners did not work on Sundays, and there were hardly any explosions. Among the other days only
# Monday differs slightly. A season is likely, but not certain: its band includes one nearly
# everywhere.

# %%
february = parts["month"].sel(month=2) - parts["month"].sel(month=6)
monday = parts["weekday"].sel(weekday="Mon") - parts["weekday"].sel(weekday="Thu")
for what, more in (("February than June", february), ("Thursday than Monday", -monday)):
    print(f"probability of a higher rate in {what}: {float((more > 0).mean()):.2f}")

# %% [markdown]
# ## What next
#
# - A step that is given some of the variables, `lgm.PseudoMarginal([f, length, ...])`, integrates
#   out only the Gaussian ones among them. The others get steps of their own.
# - Effects alone, with no process beside them, are at home with `pm.NUTS` or nutpie: they make
#   hundreds of effective draws a second there.
# - A mean with its own noise is a model of two processes, too: [Insulin by glucose](insulin).
