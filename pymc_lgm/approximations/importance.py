"""An unbiased estimate of p(y | theta) by importance sampling from a Gaussian approximation.

Filippone and Girolami (2014), §3.1. The estimate is a deterministic function of theta and of
standard normal `Coordinates`; it comes with draws of f, of which one, chosen by weight, goes with
it. Pairs (estimate, f) are what a pseudo-marginal sampler moves.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.approximations.gaussian import GaussianApproximation, log_mean_exp
from pymc_lgm.linalg import Array, PriorFactor

__all__ = ["Coordinates", "ImportanceSample", "Scheme", "importance_sample"]


class Scheme(NamedTuple):
    """How the estimate is made.

    Attributes
    ----------
    n_importance : int
        N ≥ 1 draws.
    antithetic : bool
        Draw pairs f̂ ± δ if N is even: the second costs no solve and cancels odd errors.
    defensive : float
        Share ε of draws from the prior instead of q. Weights against the mixture
        (1 − ε) q + ε N(m, K) are bounded by p(y | f)/ε, whatever q's tails are (Hesterberg 1995).
    """

    n_importance: int
    antithetic: bool = True
    defensive: float = 0.0

    @property
    def roots(self) -> int:
        """Draws that are not the mirror image of another."""
        return self.n_importance // 2 if self.pairs else self.n_importance

    @property
    def pairs(self) -> bool:
        """Whether draws come in mirror images."""
        return self.antithetic and self.n_importance % 2 == 0


class Coordinates(NamedTuple):
    """The random numbers of an estimate: they have the same law at every theta."""

    xi: Array
    """Standard normal, shape (2, n, roots)."""

    from_prior: NDArray[np.bool_]
    """Which roots are draws from the prior, shape (roots,): true with probability ε."""

    @classmethod
    def fresh(cls, rng: np.random.Generator, n: int, scheme: Scheme) -> Coordinates:
        """Draw all of them."""
        xi = rng.standard_normal((2, n, scheme.roots))
        if scheme.defensive == 0.0:
            return cls(xi, np.zeros(scheme.roots, dtype=bool))
        return cls(xi, rng.uniform(size=scheme.roots) < scheme.defensive)

    @classmethod
    def around(
        cls,
        rng: np.random.Generator,
        f: Array,
        q: GaussianApproximation,
        prior: PriorFactor,
        scheme: Scheme,
    ) -> Coordinates:
        """Draw all of them given that f is the first draw: conditional importance sampling."""
        coordinates = cls.fresh(rng, f.size, scheme)
        from_prior = False
        if scheme.defensive > 0.0:
            log_ratio = min(float(_log_prior_over_q(q, f[:, None])[0]), 700.0)
            odds = scheme.defensive / (1 - scheme.defensive) * math.exp(log_ratio)
            from_prior = bool(rng.uniform() < odds / (1 + odds))
        coordinates.from_prior[0] = from_prior
        if from_prior:
            coordinates.xi[0, :, 0] = prior.solve(f - q.mean)
        else:
            coordinates.xi[:, :, 0] = q.coordinates(rng, prior, f - q.center)
        return coordinates

    def perturbed(self, rng: np.random.Generator, correlation: float) -> Coordinates:
        """ξ' = ρ ξ + √(1 − ρ²) ε: reversible for N(0, I) (Deligiannidis, Doucet, Pitt 2018)."""
        if correlation == 1.0:
            return self
        noise = rng.standard_normal(self.xi.shape)
        return self._replace(xi=correlation * self.xi + math.sqrt(1 - correlation**2) * noise)


class ImportanceSample(NamedTuple):
    """N draws of f and their weights, whose average estimates p(y | theta) without bias."""

    f: Array
    """Draws, shape (n, N)."""

    log_likelihood: Array
    """ℓ of each, shape (N,)."""

    log_weights: Array
    """log of p(y | f) N(f; m, K) over the density that f was drawn from, shape (N,)."""

    @property
    def log_evidence(self) -> float:
        """log p̃(y | theta)."""
        return log_mean_exp(self.log_weights)

    @property
    def log_evidence_sd(self) -> float:
        """Standard deviation of log p̃ by the delta method; NaN for one draw.

        It is at most 1, which it reaches when a single draw has all the weight.
        """
        if self.log_weights.size == 1 or self.log_weights.max() == -math.inf:
            return math.nan
        weights = np.exp(self.log_weights - self.log_weights.max())
        return float(weights.std(ddof=1) / weights.mean() / math.sqrt(weights.size))

    def choose(self, rng: np.random.Generator) -> int:
        """Draw an index with probability proportional to its weight; 0 if all weights are 0."""
        if self.log_weights.max() == -math.inf:
            return 0
        cumulated = np.cumsum(np.exp(self.log_weights - self.log_weights.max()))
        return int(np.searchsorted(cumulated, rng.uniform() * cumulated[-1], side="right"))


def importance_sample(
    q: GaussianApproximation,
    prior: PriorFactor,
    log_likelihood: Callable[[Array], float],
    coordinates: Coordinates,
    scheme: Scheme,
) -> ImportanceSample:
    """Turn coordinates into draws of f and weigh them.

    Parameters
    ----------
    q : GaussianApproximation
    prior : PriorFactor
        The factor of the same K(theta).
    log_likelihood : callable
        f -> ℓ(f), −inf where it cannot be computed.
    coordinates : Coordinates
    scheme : Scheme

    Returns
    -------
    ImportanceSample

    Notes
    -----
    O(n² N), no factorization.
    """
    deviations = q.deviations(prior, coordinates.xi)
    centers = np.repeat(q.center[:, None], scheme.roots, axis=1)
    if coordinates.from_prior.any():
        chosen = np.flatnonzero(coordinates.from_prior)
        deviations[:, chosen] = prior.multiply(coordinates.xi[0][:, chosen])
        centers[:, chosen] = q.mean[:, None]
    f = centers + deviations
    if scheme.pairs:
        # A mirror image in the center of its own component of the mixture.
        f = np.concatenate([f, centers - deviations], axis=1)
    values = np.array([log_likelihood(column) for column in np.ascontiguousarray(f.T)])
    log_weights = q.log_weights(f, values)
    if scheme.defensive > 0.0:
        log_weights -= np.logaddexp(
            math.log1p(-scheme.defensive), math.log(scheme.defensive) + _log_prior_over_q(q, f)
        )
    return ImportanceSample(f, values, log_weights)


def _log_prior_over_q(q: GaussianApproximation, f: Array) -> Array:
    """log N(f; m, K) − log q(f): the log weight of a likelihood that is 1."""
    return q.log_weights(f, np.zeros(f.shape[1]))
