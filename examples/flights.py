# %% [markdown]
# # Will my flight be late? Twenty thousand flights
#
# One in five flights that left New York in 2013 was more than a quarter of an hour late. Few are
# late in the morning, and one in three in the evening, since delays accumulate over a day. On a
# stormy day most flights are late. How does the probability depend on day and hour?
#
# A Gaussian process over day and hour answers, and says how sure it is. But twenty thousand flights
# have a covariance of four hundred million numbers. `lgm.gp.SparseLatent` lets them see the process
# through its values at 350 points.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

from scipy.special import expit

import pymc_lgm as lgm

flights = lgm.datasets.load_flights()
print(f"{len(flights)} flights, {flights['y'].mean():.0%} of them late")
for at in (6, 12, 20):
    print(f"after {at} o'clock {flights['y'][flights['hour'].between(at, at + 1)].mean():.0%}")

# %% [markdown]
# ## What is held out
#
# Single flights tell how well the model knows a day of which it has seen other flights. Whole days
# tell what it knows of a day in advance.

# %%
rng = np.random.default_rng(1)
days = rng.choice(np.arange(1, 366), 25, replace=False)
of_days = flights["day"].isin(days).to_numpy()
single = ~of_days & (rng.uniform(size=len(flights)) < 0.15)
train = flights[~of_days & ~single]
print(f"held out: {single.sum()} single flights, and the {of_days.sum()} flights of 25 days")

# %% [markdown]
# Within three hours of a day the probability changes little. So the flights of three hours
# are counted together, at the mean of their hours. That makes eight times fewer rows.

# %%
cells = train.assign(late=train["y"], three=((train["hour"] - 5) // 3).clip(upper=5))
cells = cells.groupby(["day", "three"]).agg(
    hour=("hour", "mean"), flights=("late", "size"), late=("late", "sum")
)
X, counts = cells.reset_index()[["day", "hour"]].to_numpy(), cells["flights"].to_numpy()
print(f"{counts.sum()} flights in {len(cells)} rows")

# %% [markdown]
# ## The model
#
# f is the logit of the probability, a sum of two processes: a season, smooth over hours and months,
# and spells of weather, which last for days and are the same at all hours. A sum of covariance
# functions makes one process of them.
#
# Inducing points are about a day apart, so that no spell falls between two of them. Their hours are
# spread evenly, by steps of the golden ratio.

# %%
order = np.arange(350)
Xu = np.column_stack([1 + order * 364 / 349, 5.5 + 18 * (order * (np.sqrt(5) - 1) / 2 % 1)])

with pm.Model() as model:
    season, spell = pm.HalfNormal("season", 1), pm.HalfNormal("spell", 1)
    hours = pm.LogNormal("hours", np.log(6), 0.5)
    length = pm.LogNormal("days", np.log(2), 0.5)
    cov = season**2 * pm.gp.cov.ExpQuad(2, ls=[60, hours])
    cov += spell**2 * pm.gp.cov.Matern32(2, ls=[length], active_dims=[0])
    level = pm.gp.mean.Constant(-1.3)  # the logit of one in five
    gp = lgm.gp.SparseLatent(mean_func=level, cov_func=cov)
    f = gp.prior("f", X, Xu=Xu)
    lgm.gp.Expected(
        "late", lambda f, n: pm.Binomial.dist(n, logit_p=f), f, counts,
        observed=cells["late"].to_numpy(),
    )  # fmt: skip
    idata = pm.sample(800, tune=300, chains=2, cores=2, random_seed=1, progressbar=False)

print(lgm.read(model))
print(f"sampled in {idata.posterior.attrs['sampling_time']:.0f} seconds")

# %% [markdown]
# With single flights write `lgm.Logistic("late", f=f, observed=train["y"])`.
#
# The draws are from the *optimal variational posterior*, as the statistic `optimal_variational` of
# the trace says. Among all distributions in which the flights inform the process only through its
# values at these points, it is the closest to the true posterior (Hensman et al. 2015). The draws
# of it are exact.

# %%
theta = ["season", "spell", "hours", "days"]
print(f"optimal_variational: {bool(idata.sample_stats['optimal_variational'].all())}")
print(az.summary(idata, var_names=theta, kind="stats"))
print(lgm.efficiency(idata, {"theta": theta, "f_u": "f_u"}).T.round(2).to_string())

# %% [markdown]
# ## Is it right about flights that it has not seen?
#
# `lgm.predict` has mean and variance of f at new points, for each draw. A probability is the
# average of draws from them. Beside it stands the share of late flights in that hour,
# over the whole year.


# %%
def probabilities(where):
    tree = lgm.predict(idata, gp, where, model=model, thin=10, progressbar=False)["predictions"]
    mean, sd = tree["f_conditional_mean"], np.sqrt(tree["f_conditional_variance"])
    f = mean.to_numpy() + sd.to_numpy() * rng.standard_normal(mean.shape)
    return expit(f).reshape(-1, len(where))


by_hour = train.groupby(train["hour"].astype(int))["y"].mean()
predicted = {}
for name, out in (("single flights", single), ("whole days", of_days)):
    held = flights[out]
    p = probabilities(held[["day", "hour"]].to_numpy()).mean(axis=0)
    base = held["hour"].astype(int).map(by_hour).to_numpy()
    predicted[name] = held["y"].to_numpy(), p
    for who, guess in (("the process", p), ("the hour alone", base)):
        density = lgm.scores.log_predictive_density(held["y"], guess)
        brier = lgm.scores.brier_score(held["y"], guess)
        print(f"{name:>14}, {who:>14}: log density {density:.3f}, Brier score {brier:.3f}")

# %% [markdown]
# Both are better than the hour alone, single flights more so: of other flights of its day the
# process has learned what kind of day it is. A day that is held out has neighbors, and the
# weather of one day tells a little of the next.
#
# Are the probabilities honest? Of flights with a probability about p, a share p should be late.
#
# ## The map

# %%
day, hour = np.arange(1.0, 366.0), np.arange(5.5, 23.0)
grid = pm.math.cartesian(day, hour)
drawn = probabilities(grid)
mean, sd = drawn.mean(axis=0), drawn.std(axis=0)

figure, panels = plt.subplot_mosaic(
    [["mean"] * 2, ["sd"] * 2, ["calibration", "days"]], figsize=(9, 9),
    height_ratios=[1, 1, 1.2], layout="constrained",
)  # fmt: skip
titles = {"mean": "Probability that a flight is late", "sd": "Its standard deviation"}
for (name, title), values in zip(titles.items(), (mean, sd), strict=True):
    lgm.spatial.plot_map(values, cells=grid, ax=panels[name], title=title)
    panels[name].set(ylabel="hour", aspect="auto", yticks=[6, 12, 18])
    panels[name].set_xticks(day[15::61], ["Jan", "March", "May", "July", "Sept", "Nov"])

panel = panels["calibration"]
for name, (late, p) in predicted.items():
    groups = np.array_split(np.argsort(p), 8)
    at, share = np.array([(p[group].mean(), late[group].mean()) for group in groups]).T
    error = 2 * np.sqrt(share * (1 - share) / len(groups[0]))
    panel.errorbar(at, share, error, fmt="o", ms=4, label=name)
panel.axline((0, 0), slope=1, color="0.5", lw=0.7)
panel.set(xlabel="predicted probability", title="Share of flights that were late")
panel.legend(loc="upper left")

panel, by_day = panels["days"], mean.reshape(365, -1).mean(axis=1)
curves = drawn.reshape(len(drawn), 365, -1)
for name, which in (("the worst day", by_day.argmax()), ("the best", by_day.argmin())):
    low, median, high = np.quantile(curves[:, which], [0.05, 0.5, 0.95], axis=0)
    panel.fill_between(hour, low, high, alpha=0.3, lw=0)
    panel.plot(hour, median, label=f"{name}, {np.datetime64('2013-01-01') + which}")
panel.plot(by_hour.index + 0.5, by_hour, "--", color="0.4", label="all days")
panel.set(xlabel="hour", ylim=(0, 1.1), xticks=[6, 12, 18], title="Two days, with 90 % bands")
_ = panel.legend(loc="upper left", fontsize="small")

# %% tags=["remove-cell"]
# As a script, `python examples/flights.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# Bad spells last a day or two and stand out as stripes, in the evenings of summer most of all. The
# standard deviation is largest where a day was held out. Shares lie close to the line of the
# probabilities, except for the noise of few flights: bars are two standard errors.
#
# ## What next
#
# - Spells that begin at noon: `Matern32(2, ls=[length, hours])`, which reads both inputs, and two
#   inducing points per day. The cost of a draw grows with the square of their number.
# - Airports and airlines: `f + Z @ beta` instead of f, with one row of Z per cell. The coefficients
#   are hyper-parameters.
# - Counts in the plane: [A forest in ten thousand cells](forest).
