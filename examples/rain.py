# %% [markdown]
# # Where did it rain more than twenty millimeters? A field on a mesh
#
# On 8 May 1986, twelve days after the accident of Chernobyl, it was important to know where it had
# rained. In 1997 statisticians were given the rain of that day at 100 places in Switzerland, and
# predicted it at 367 others. We do the same, and check whether our bands are right.

# %%
import sys

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

from scipy.spatial import KDTree

import pymc_lgm as lgm

rain = lgm.datasets.load_rain()
places, mm = rain[["x1", "x2"]].to_numpy(), rain["y"].to_numpy() / 10
given = rain["given"].to_numpy() == 1
print(f"rain at {given.sum()} places: {mm[given].min():.0f} to {mm[given].max():.0f} millimeters")

# %% [markdown]
# ## The mesh
#
# `lgm.gmrf.Matern` is a Gaussian process with a Matérn covariance. It has values at the corners of
# triangles, and is linear between them. Its precision matrix is sparse, so that thousands of
# corners cost little. `max_edge` should be a fifth of the range, or less. The mesh covers all
# places where the field is needed, and extends beyond them, because the variance of the field is
# too large at the edge.

# %%
mesh = lgm.gmrf.Mesh.around(places, max_edge=12.0, extension=100.0)
print(f"{mesh.n} corners, {len(mesh.triangles)} triangles")

# %% [markdown]
# ## The model
#
# The square root of rain has about the same variance everywhere. By the priors, the range is below
# 20 kilometers, and the standard deviation above 3, with a probability of .05 each. `mesh.at` is
# the field at points.

# %%
with pm.Model() as model:
    level = pm.Normal("level", 4, 2)
    reach = lgm.gmrf.pc_prior("range", lower=20.0, alpha=0.05)  # kilometers
    sigma = lgm.gmrf.pc_prior("sigma", upper=3.0, alpha=0.05)
    noise = pm.HalfNormal("noise", 1)
    field = lgm.gmrf.Matern("field", mesh, range=reach, sigma=sigma)
    mean = level + mesh.at(places[given], field)
    pm.Normal("root", mean, noise, observed=np.sqrt(mm[given]))
    idata = pm.sample(
        800, tune=400, chains=2, cores=1, step=lgm.PseudoMarginal(), random_seed=1,
        progressbar=False,
    )  # fmt: skip
print(az.summary(idata, var_names=["level", "range", "sigma", "noise"]))

# %% [markdown]
# The level and the field are integrated out while range, sigma and noise move, and are then drawn
# given these.
#
# ## The places that were hidden
#
# `mesh.at` takes draws, too. The square root of the rain is the field plus noise. If it is below
# zero, there is no rain.

# %%
posterior, rng = idata["posterior"], np.random.default_rng(1)


def draw_rain(points):
    """Draw the rain in millimeters at new points, as a gauge would measure it."""
    root = posterior["level"] + mesh.at(points, posterior["field"])
    root = root + posterior["noise"] * root.copy(data=rng.normal(size=root.shape))
    return root.clip(0) ** 2


hidden, predicted = mm[~given], draw_rain(places[~given])
low, high = predicted.quantile([0.05, 0.95], ("chain", "draw")).to_numpy()
mean = predicted.mean(("chain", "draw")).to_numpy()
print(f"{np.mean((low <= hidden) & (hidden <= high)):.0%} of them are in their 90 % interval")
for name, guess in (("the field", mean), ("the mean of the 100 places", mm[given].mean())):
    print(f"root mean squared error of {name}: {np.sqrt(np.mean((guess - hidden) ** 2)):.1f} mm")

# %% [markdown]
# ## Two maps
#
# A map of means is smoother than the rain. To decide where to measure, one needs the probability of
# more than 20 millimeters: `lgm.spatial.exceedance` computes the share of draws.

# %%
x1, x2 = np.meshgrid(np.arange(-160.0, 176.0, 5.0), np.arange(-110.0, 108.0, 5.0))
cells = np.column_stack([x1.ravel(), x2.ravel()])
cells = cells[KDTree(places).query(cells)[0] < 15]  # near a gauge: about the country
on_cells = draw_rain(cells)
above = lgm.spatial.exceedance(on_cells, 20.0)["probability"]

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
style = {"cmap": "YlGnBu", "vmin": 0, "vmax": 50}
lgm.spatial.plot_map(
    on_cells.mean(("chain", "draw")), cells=cells, ax=left, title="Mean of the rain / mm", **style
)
left.scatter(*places[given].T, c=mm[given], s=22, edgecolor="k", lw=0.6, **style)
lgm.spatial.plot_map(
    above, cells=cells, ax=right, title="Probability of more than 20 mm",
    cmap="RdBu_r", vmin=0, vmax=1,
)  # fmt: skip
right.scatter(*places[~given].T, s=10, c=np.where(hidden > 20, "k", "w"), edgecolor="k", lw=0.4)
for ax in (left, right):
    ax.set(xlabel="east / km", ylabel="north / km")

# %% tags=["remove-cell"]
# As a script, `python examples/rain.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# **Left**, the mean, and the hundred places. **Right**, the probability, and the hidden places:
# black had more than 20 millimeters, white had less. Nearly all dots are black where the map is
# red, and white where it is blue. Where it is pale there are both, as there should be.

# %%
at_hidden = (predicted > 20.0).mean(("chain", "draw")).to_numpy()
for lower, upper in ((0.0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.0)):
    chosen = (lower <= at_hidden) & (at_hidden <= upper)
    share = np.mean(hidden[chosen] > 20.0)
    print(f"probability {lower:.1f} to {upper:.1f}: {chosen.sum():3} places, {share:.0%} had more")

# %% [markdown]
# ## What next
#
# - The rain came in bands from south-west to north-east. Turn and stretch the coordinates, and the
#   field is longer in one direction than in the other.
# - Other data, such as sick or not, counts, or positive amounts: write `pm.Bernoulli`, `pm.Poisson`
#   or `pm.Gamma` of `level + mesh.at(points, field)`. Nothing else changes.
# - Any other covariance function, without a mesh: `lgm.gp.Vecchia`. [Which model is written
#   how](../terms.md) has both.
