"""Where an observation reads several elements of f: how noisy estimates are, by approximation.

    python benchmarks/sites_of_sets.py [--quick] [--draws 32] [--repeats 200]

Insulin of 250 women on levels of their glucose, with a process for the mean and one for the log
standard deviation, and the age classes of 88 pines, three processes. Near the theta of the
largest bound times prior, by name of the approximation: log q(y | theta) of the Gaussian q
itself, Laplace's evidence or the lower bound; the logarithm of the mean of all estimates of
p(y | theta); and the standard deviation of the logarithm of one, of N importance draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm

from _results import Table, arguments
from scipy.optimize import minimize
from scipy.special import logsumexp

import pymc_lgm as lgm

from pymc_lgm.approximations.importance import Coordinates, Proposal, Scheme, importance_sample
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.variational import variational
from pymc_lgm.state import AtTheta

APPROXIMATIONS: dict[str, Callable[..., Any]] = {"laplace": laplace, "variational": variational}


def process(name: str, x: np.ndarray, k: int) -> Any:
    sd, length = pm.HalfNormal(f"sd{k}", 1.5), pm.InverseGamma(f"length{k}", 3, 1)
    cov = sd**2 * pm.gp.cov.Matern52(x.shape[1], ls=length)
    return pm.gp.Latent(cov_func=cov).prior(name, x, reparameterize=False)


def mean_and_noise() -> None:
    women = lgm.datasets.load_pima().query("glucose > 0 and insulin > 0")
    women = women.sample(frac=1, random_state=1)[:250]
    levels, at = np.unique(5 * (women["glucose"] // 5), return_inverse=True)
    f, g = (process(name, levels[:, None] / 50, k) for k, name in enumerate("fg"))
    y = women["insulin"].to_numpy() / 100
    pm.Normal("y", f[at], pm.math.exp(g[at]), observed=y)


def classes() -> None:
    trees = lgm.datasets.load_longleaf().sample(frac=1, random_state=1, ignore_index=True)[:88]
    X = trees[["x1", "x2"]].to_numpy() / 100
    f = [process(f"f{k}", X, k) for k in range(3)]
    lgm.Softmax("y", f=f, observed=np.digitize(trees["diameter"], [10, 30]))


def peak(model: lgm.model.LatentGaussianModel) -> np.ndarray:
    """A theta at which bound and prior are nearly as large together as they can be."""

    def loss(theta: np.ndarray) -> float:
        here = AtTheta.of(model, theta)
        q = None if here is None else variational(here.likelihood, here.prior, tolerance=1e-2)
        return 1e10 if here is None or q is None else -q.log_evidence - here.log_prior

    options = {"maxfev": 30 * model.p}
    found: np.ndarray = minimize(loss, np.zeros(model.p), method="Nelder-Mead", options=options).x
    return found


def main() -> None:
    parser = arguments(__doc__, quick="classes, few repeats")
    parser.add_argument("--draws", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=200)
    args = parser.parse_args()
    problems = {"mean and noise": mean_and_noise, "classes": classes}
    if args.quick:
        args.repeats, problems = 10, {"classes": classes}
    columns = {"data": "<14", "q": "<11", "n": "", "log q(y)": ".2f", "log p(y)": ".2f"}
    table = Table(args, f"{args.draws} importance draws", columns | {"sd": ".2f"}, keys=2)
    for name, build in problems.items():
        with pm.Model() as pymc_model:
            build()
        model = lgm.read(pymc_model)
        here = AtTheta.of(model, peak(model))
        assert here is not None
        scheme, rng = Scheme(args.draws), np.random.default_rng(0)
        for label, approximate in APPROXIMATIONS.items():
            q = approximate(here.likelihood, here.prior, tolerance=1e-6)
            proposal = Proposal(q)
            estimates = np.array(
                [
                    importance_sample(
                        proposal,
                        here.log_likelihoods,
                        Coordinates.fresh(rng, proposal, scheme),
                        scheme,
                    ).log_evidence
                    for _ in range(args.repeats)
                ]
            )
            together = logsumexp(estimates) - np.log(estimates.size)
            table.row(name, label, model.n, q.log_evidence, together, estimates.std())


if __name__ == "__main__":
    main()
