"""A corner of theta that chains rarely visit and leave late: its share in different chains.

    python benchmarks/corner.py [--quick] [--chains 6] [--draws 4000]

The first 100 rows of Pima, probit, one length-scale. In the corner log length < 0.3, with large
variances, the posterior of f is far from a Gaussian and importance estimates are noisy. Printed:
the corner's share of the posterior by quadrature, 512 importance draws at each point of a grid;
then mean and standard deviation over chains of the share of draws in it, the standard deviation
that the chains' ESS would have promised, and the longest stay of any chain at one theta.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import arviz as az
import numpy as np

from _design import classification, from_prior, run, standardized
from _results import Table, arguments

import pymc_lgm as lgm

from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.importance import Coordinates, Proposal, Scheme, importance_sample
from pymc_lgm.state import LikelihoodAt

CORNER = 0.3
LONGER = 10
"""How many times as many draws ASIS gets: it knows no estimates, and is the reference."""

SAMPLERS: dict[str, tuple[Any, dict[str, Any], int]] = {
    "default": (lgm.PseudoMarginal, {}, 1),
    "N = 16, no interweaving": (lgm.PseudoMarginal, {"n_importance": 16, "interweave": False}, 1),
    "N = 64, no interweaving": (lgm.PseudoMarginal, {"n_importance": 64, "interweave": False}, 1),
    "random walk": (lgm.PseudoMarginal, {"move": "metropolis"}, 1),
    f"ASIS, {LONGER} times as many": (lgm.ASIS, {}, LONGER),
}


def by_quadrature(reader: lgm.model.LatentGaussianModel, points: int) -> float:
    """Share of the posterior in the corner."""
    rng, scheme = np.random.default_rng(0), Scheme(512)
    sigma, length = np.linspace(-4.0, 9.0, points), np.linspace(-2.5, 4.5, 2 * points)
    log_posterior = np.full((sigma.size, length.size), -np.inf)
    for at in np.ndindex(log_posterior.shape):
        theta = np.array([sigma[at[0]], length[at[1]]])
        prior = reader.prior(theta)
        q = None if prior is None else ep(LikelihoodAt(reader, theta), prior)
        if q is not None and q.prior.is_proper:
            proposal = Proposal(q)
            coordinates = Coordinates.fresh(rng, proposal, scheme)
            likelihood = partial(reader.log_likelihoods, theta=theta)
            draws = importance_sample(proposal, likelihood, coordinates, scheme)
            log_posterior[at] = draws.log_evidence + reader.log_prior(theta)
    p = np.exp(log_posterior - log_posterior.max())
    return float(p[:, length < CORNER].sum() / p.sum())


def longest_stay(theta: np.ndarray) -> int:
    """Draws in a row at one theta, the most."""
    moved = np.flatnonzero(np.diff(theta, axis=0).any(axis=1))
    return int(np.diff([-1, *moved, len(theta) - 1]).max())


def main() -> None:
    parser = arguments(__doc__, quick="2 chains of 300 draws, coarse grid")
    parser.add_argument("--chains", type=int, default=6)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--points", type=int, default=60, help="a side of the grid")
    args = parser.parse_args()
    if args.quick:
        args.samplers = args.samplers[:2]
        args.chains, args.draws, args.tune, args.points = 2, 300, 300, 15
    table = lgm.datasets.load_pima()
    X = standardized(table.drop(columns="y").to_numpy(float))[:100]
    model = classification(X, table["y"].to_numpy(int)[:100], ard=False)
    title = f"{args.chains} chains of {args.draws} draws after {args.tune}"
    columns = {"sampler": "<23", "share": ".4f", "sd": ".4f", "promised": ".4f", "longest stay": ""}
    results = Table(args, title, columns, keys=1)
    if not results.has("quadrature"):
        share = by_quadrature(lgm.read(model), args.points)
        results.row("quadrature", share)
    for name in args.samplers:
        if results.has(name):
            continue
        sampler, options, longer = SAMPLERS[name]
        step = sampler(model=model, **options)
        shares, stays, promised = [], [], []
        for seed in range(args.chains):
            start = from_prior(model, seed)
            theta = run(step, model, args.tune, longer * args.draws, seed, start)["theta"]
            inside = (theta[:, 1] < CORNER).astype(float)
            shares.append(inside.mean())
            stays.append(longest_stay(theta))
            ess = az.ess(az.from_dict({"posterior": {"x": theta[None, :, 1]}}))["x"]
            promised.append(np.sqrt(inside.mean() * (1 - inside.mean()) / float(ess)))
        sd = np.std(shares, ddof=1)
        results.row(name, np.mean(shares), sd, np.median(promised), max(stays))


if __name__ == "__main__":
    main()
