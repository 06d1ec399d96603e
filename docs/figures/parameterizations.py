"""Draw how far theta may move in each parameterization: figure of docs/how_it_works.md.

As Figure 1 of Filippone and Girolami (2014): the posterior of a length-scale, and its conditional
given f, given ν and given surrogate data, each at several draws of (theta, f) from the posterior.
Every curve is a target that the samplers use, evaluated on a grid and scaled to the same height.

    python docs/figures/parameterizations.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_lgm as lgm

from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.importance import Scheme
from pymc_lgm.samplers import PARAMETERIZATIONS
from pymc_lgm.state import State
from pymc_lgm.targets.pseudo_marginal import PseudoMarginalTarget

TITLES = {
    "sufficient": "given f (sufficient, SA)",
    "whitened": "given ν = L⁻¹(f − m) (whitened, AA)",
    "surrogate-site": "given surrogate data (surrogate-site)",
}
CURVES = 6


def model_of(rng, n=100):
    """Binary data of a Gaussian process with length-scale 0.15, which alone is unknown."""
    X = np.sort(rng.uniform(0, 1, n))[:, None]
    K = 4.0 * np.exp(-0.5 * ((X - X.T) / 0.15) ** 2) + 1e-6 * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.standard_normal(n)
    y = (f + rng.standard_normal(n) > 0).astype(int)
    with pm.Model() as model:
        ls = pm.LogNormal("ls", -1.5, 1.0)
        gp = pm.gp.Latent(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=ls))
        latent = gp.prior("f", X, reparameterize=False)
        lgm.Probit("y", f=latent, observed=y)
    return model


def posterior(state, grid, rng):
    """p(theta | y) on the grid, with f integrated out by 500 importance draws for each theta."""
    scheme = Scheme(n_importance=500)
    # With correlation 1 every theta has the same random numbers: a smooth curve.
    options = {"search": ep, "scheme": scheme, "correlation": 1.0}
    return density(PseudoMarginalTarget.fix(rng, state, **options), grid)


def density(target, grid):
    """Values of a target on the grid, the largest of them 1."""
    log_density = np.array([target.evaluate(np.array([x]))[0] for x in grid])
    return np.exp(log_density - log_density.max())


def deviation(values, grid):
    """Standard deviation of a density on an equidistant grid."""
    mean = np.average(grid, weights=values)
    return np.sqrt(np.average((grid - mean) ** 2, weights=values))


def draw_states(model, rng):
    """Draws of (theta, f) from the posterior, far apart."""
    with model:
        step = lgm.PseudoMarginal()
        idata = pm.sample(
            100 * CURVES, tune=1000, chains=1, step=step, random_seed=rng, progressbar=False
        )
    numeric = lgm.read(model)
    draws = idata.posterior.isel(chain=0, draw=slice(None, None, 100))
    theta = np.log(draws["ls"].to_numpy())
    return [
        State.of(numeric, np.array([t]), f)
        for t, f in zip(theta, draws["f"].to_numpy(), strict=True)
    ]


def main():
    rng = np.random.default_rng(1)
    model = model_of(rng)
    states = draw_states(model, rng)
    grid = np.linspace(np.log(0.04), np.log(0.6), 241)
    marginal = posterior(states[0], grid, rng)
    figure, axes = plt.subplots(1, 3, figsize=(10, 3), sharex=True, layout="constrained")
    for axis, (name, title) in zip(axes, TITLES.items(), strict=True):
        axis.fill_between(np.exp(grid), marginal, color="0.85", lw=0)
        shares = []
        for state in states:
            values = density(PARAMETERIZATIONS[name](rng, state), grid)
            axis.plot(np.exp(grid), values, color="C0", lw=1.2)
            shares.append(deviation(values, grid) / deviation(marginal, grid))
        ticks = [0.05, 0.1, 0.2, 0.5]
        axis.set(xscale="log", xlabel="length-scale", yticks=[], ylim=(0, 1.05))
        axis.set_xticks(ticks, labels=map(str, ticks))
        axis.minorticks_off()
        axis.set_title(title, fontsize=10)
        print(f"{name:15s} {np.mean(shares):.2f} of the posterior's standard deviation")
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=120)


if __name__ == "__main__":
    main()
