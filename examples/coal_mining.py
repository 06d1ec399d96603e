# %% [markdown]
# # British coal-mining disasters: a log-Gaussian Cox process
#
# 191 explosions with ten or more deaths between 1851 and 1962, counted in 112 bins of 365 days. The
# log rate is a Gaussian process around an unknown mean, with unknown length-scale and amplitude.
# `lgm.LogGaussianCox` is a likelihood of this package, so `pm.sample()` runs the default sampler of
# this package.
#
# The [first page](../index.md) explains the model and its output line by line.

# %%
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm


# %%
def build_model() -> pm.Model:
    data = lgm.datasets.load_coal_mining(bins=112)
    years = data["year_mid"].to_numpy()
    with pm.Model(coords={"year": years}) as model:
        mean = pm.Normal("mean", 0, 2)  # log disasters a year
        length = pm.InverseGamma("length", 3, 60)  # years
        amplitude = pm.HalfNormal("amplitude", 1)
        gp = pm.gp.Latent(
            mean_func=pm.gp.mean.Constant(mean),
            cov_func=amplitude**2 * pm.gp.cov.Matern52(1, ls=length),
        )
        f = gp.prior("f", years[:, None], reparameterize=False, dims="year")
        lgm.LogGaussianCox("disasters", f=f, observed=data["y"].to_numpy(), dims="year")
    return model


# %%
def plot_rate(idata) -> plt.Figure:
    rate = np.exp(idata.posterior["f"])
    years = rate["year"].to_numpy()
    low, high = rate.quantile([0.055, 0.945], dim=("chain", "draw")).to_numpy()
    events = lgm.datasets.load_coal_mining_dates()["date"].to_numpy()

    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    axes.bar(
        years,
        lgm.datasets.load_coal_mining(bins=112)["y"],
        width=0.9,
        color="0.85",
        label="disasters counted",
    )
    axes.fill_between(years, low, high, color="C0", alpha=0.3, lw=0, label="89 % band of the rate")
    axes.plot(years, rate.mean(("chain", "draw")), color="C0", label="posterior mean of the rate")
    axes.plot(events, np.full(events.size, -0.15), "|", color="0.2", ms=6, label="events")
    axes.set(
        xlabel="year",
        ylabel="disasters per year",
        title="British coal-mining disasters, 1851-1962",
        xlim=(1850, 1963),
    )
    axes.legend(frameon=False)
    return figure


# %%
def report(idata) -> None:
    theta = ["mean", "length", "amplitude"]
    print(az.summary(idata, var_names=theta))
    print()
    print(lgm.efficiency(idata, {"theta": theta, "f": "f"}).T.round(3).to_string())
    r_hat = float(az.rhat(idata).to_dataset().to_array().max())
    print(f"\nlargest R-hat {r_hat:.4f}")
    if r_hat >= 1.01:
        raise SystemExit("The chains have not converged: R-hat is 1.01 or more.")


# %% [markdown]
# `pm.sample()` runs its chains in several processes. A script needs the guard for that; a notebook
# does not.

# %% tags=["remove-output"]
if __name__ == "__main__":
    with build_model():
        idata = pm.sample(draws=2_000, chains=4, random_seed=1)

# %%
if __name__ == "__main__":
    report(idata)
    figure = plot_rate(idata)

# %% tags=["remove-cell"]
# As a script, it saves the picture beside it.
if __name__ == "__main__" and "__file__" in globals():
    path = Path(__file__).with_name("coal_mining.png")
    figure.savefig(path, dpi=120)
    print(f"figure saved as {path.name}")

# %% [markdown]
# The rate falls toward the end of the nineteenth century, the time of new laws on safety in mines
# and of the Miners' Federation. The band is that of the rate, not of the next count, which scatters
# around the rate.
#
# Next: fields in the plane, [where it rained](rain).
