# %% [markdown]
# # How fast do children learn? Seventeen hundred lines with slopes of their own
#
# 1721 children of 60 primary schools were tested in mathematics, each two to six times in six
# years. Each child has a line: its score in the middle of the six years, and how much it learns in
# a year. Do children with low scores learn more slowly? And does this depend on the poverty of the
# school?

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm

tests = lgm.datasets.load_school_math()
child, school = tests["child"].to_numpy(), tests["school"].to_numpy()
year, y = tests["year"].to_numpy(), tests["y"].to_numpy()
poor = (tests["low_income"].to_numpy() - 50) / 50  # 1: all pupils are poor; -1: none is
of_each = tests["child"].value_counts().value_counts().sort_index()
print(f"{len(tests)} tests; children by number of tests: {of_each.to_dict()}")

# %% [markdown]
# ## The model
#
# Level and slope of a child deviate from those of its school, and these from the average. Each pair
# has a covariance matrix, one for children and one for schools. The 3562 effects are integrated out
# by one sparse factorization. Seven hyper-parameters remain: two scales and a correlation for the
# children, the same for the schools, and the noise of a test.

# %%
Z = np.column_stack([np.ones(len(tests)), year])
sd = pm.HalfNormal.dist(1)
coords = {"child": np.arange(1721), "school": np.arange(60), "line": ["middle", "per year"]}
with pm.Model(coords=coords) as model:
    average = pm.Normal("average", 0, 2, dims="line")
    poverty = pm.Normal("poverty", 0, 1, dims="line")
    effects = {}
    for name in ("child", "school"):
        chol, corr, sds = pm.LKJCholeskyCov(f"{name}_chol", n=2, eta=2, sd_dist=sd)
        effects[name] = pm.MvNormal(f"of_{name}", np.zeros(2), chol=chol, dims=(name, "line"))
    noise = pm.HalfNormal("noise", 1)
    line = average + poor[:, None] * poverty + effects["child"][child] + effects["school"][school]
    pm.Normal("score", pm.math.sum(line * Z, axis=1), noise, observed=y)
    idata = pm.sample(
        800, tune=400, chains=2, cores=2, step=lgm.PseudoMarginal(), random_seed=1,
        progressbar=False,
    )  # fmt: skip
theta = ["average", "poverty", "noise", "child_chol_stds", "school_chol_stds"]
print(az.summary(idata, var_names=theta))

# %% [markdown]
# ## Answers
#
# If a correlation is positive, those with higher scores in the middle of the six years also learn
# more in a year. `poverty` compares a school in which all pupils are poor with one in which half
# are.

# %%
posterior = idata["posterior"]
for name in ("child", "school"):
    rho = posterior[f"{name}_chol_corr"].to_numpy()[..., 0, 1]
    low, high = np.quantile(rho, [0.05, 0.95])
    print(f"correlation of {name}: {rho.mean():.2f}, between {low:.2f} and {high:.2f}")

# %%
draws = posterior.dataset.stack(sample=("chain", "draw"))
own = draws["of_child"].transpose("child", "line", "sample").to_numpy()
of_school = draws["of_school"].transpose("school", "line", "sample").to_numpy()
first = tests.groupby("child").first()
schools = of_school + draws["average"].to_numpy()
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
x = np.linspace(-2.5, 2.5, 11)
for k, i in enumerate((3, 130, 1001, 1500)):
    its = tests[tests["child"] == i]
    base = schools[first["school"].iloc[i]] + poor[its.index[0]] * draws["poverty"].to_numpy()
    lines = (base + own[i])[0] + x[:, None] * (base + own[i])[1]
    low, high = np.quantile(lines, [0.05, 0.95], axis=1)
    left.fill_between(x, low, high, color=f"C{k}", alpha=0.3, lw=0)
    left.plot(its["year"], its["y"], "o", color=f"C{k}", ms=5)
left.set(xlabel="year of school, less 3.5", ylabel="score", title="Four children, and 90 % bands")
middle.plot(*own.mean(axis=2).T, ".", ms=3, alpha=0.5)
middle.set(xlabel="middle", ylabel="per year", title="1721 children: means of their effects")
poverty = tests.groupby("school")["low_income"].first()
rate = schools[:, 1] + (poverty.to_numpy()[:, None] - 50) / 50 * draws["poverty"].to_numpy()[1]
low, median, high = np.quantile(rate, [0.05, 0.5, 0.95], axis=1)
right.errorbar(poverty, median, [median - low, high - median], fmt="o", ms=3, lw=0.7)
_ = right.set(
    xlabel="poor pupils / %", ylabel="score per year", title="60 schools: how fast they learn"
)

# %% tags=["remove-cell"]
# As a script, `python examples/children.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# **Left**, four children: the fewer tests a child has, the closer its line is to those of the
# others. **Middle**, children with higher scores learn faster, so differences grow. **Right**,
# pupils of poor schools learn a little less in a year, but schools differ by more than that.
#
# ## What next
#
# - Another likelihood: `pm.Poisson`, `pm.Bernoulli` or `pm.StudentT` of the same sum.
# - Levels and slopes that are independent: `pm.Normal("slope", 0, sd, dims="child")[child] * year`.
#   [Models that Bambi wrote](../bambi.md) have these.
