"""An unbiased estimate of p(y | theta) by importance sampling from a Gaussian approximation.

Filippone and Girolami (2014), §3.1. The estimate is a deterministic function of theta and of
standard normal `Coordinates`. It comes with N draws of f, and one of them is chosen with
probability proportional to its weight. A pseudo-marginal sampler moves the pair (estimate, f).
"""

from __future__ import annotations

import math

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.approximations import weights
from pymc_lgm.approximations.copula import Copula, tilted_copula
from pymc_lgm.approximations.gaussian import GaussianApproximation, SiteLikelihood
from pymc_lgm.approximations.transport import Transport, transport
from pymc_lgm.linalg import Array

__all__ = [
    "CachedSample",
    "Coordinates",
    "Estimate",
    "ImportanceSample",
    "Proposal",
    "Scheme",
    "importance_sample",
]


class Scheme(NamedTuple):
    """Options of the estimate.

    Attributes
    ----------
    n_importance : int
        Number of draws N ≥ 1.
    antithetic : bool
        Draw pairs f̂ ± δ if N is even. The second of a pair needs no solve, and cancels errors that
        are odd in δ.
    defensive : float
        Share of draws from the prior: ε of `Proposal`.
    transported : bool
        Whether a transport map corrects the skewness of q, instead of a copula.
    """

    n_importance: int
    antithetic: bool = True
    defensive: float = 0.0
    transported: bool = False

    @property
    def roots(self) -> int:
        """Number of draws that are not the mirror image of another."""
        return self.n_importance // 2 if self.pairs else self.n_importance

    @property
    def pairs(self) -> bool:
        """Whether draws come in antithetic pairs."""
        return self.antithetic and self.n_importance % 2 == 0


@dataclass(frozen=True, eq=False)
class Proposal:
    """The importance density (1 − ε) q + ε N(m, K), where q may have a skewness correction.

    Attributes
    ----------
    q : GaussianApproximation
    skewness : Copula or Transport, optional
        Skewness correction: maps each draw x of q to f.
    defensive : float
        ε. If ε > 0, the weights are bounded by p(y | f)/ε for any tails of q (Hesterberg 1995).
    """

    q: GaussianApproximation
    skewness: Copula | Transport | None = None
    defensive: float = 0.0

    @classmethod
    def of(
        cls,
        q: GaussianApproximation,
        likelihood: SiteLikelihood,
        defensive: float = 0.0,
        transported: bool = False,
    ) -> Proposal:
        """Correct the skewness of q by a copula, if q has margins: 37 likelihood evaluations.

        If ``transported``, a transport map corrects all components jointly instead. It takes one
        factorization per draw.
        """
        if transported:
            return cls(q, transport(q, likelihood), defensive)
        if q.margins is None:
            return cls(q, None, defensive)
        copula = tilted_copula(likelihood.sites, q.mean, q.center, q.sites, q.margins)
        return cls(q, copula, defensive)

    def log_prior_over_q(self, f: Array) -> Array:
        """log N(f; m, K) − log q(f) of columns f: the log weight if the likelihood is 1."""
        q, prior, zeros = self.q, self.q.prior, np.zeros(f.shape[1])
        if self.skewness is None:
            return q.log_weights(f, zeros)
        # q(f) = N(x; f̂, Σ) |∂x/∂f|, and log N(f; m, K) − log N(x; m, K) is a difference of
        # squares.
        x = self.skewness.backward(f)
        if isinstance(self.skewness, Transport):
            _, log_slopes, squares = self.skewness.forward_with_squares(x)
            return q.log_weights(x, zeros) - squares - log_slopes
        _, log_slopes = self.skewness.forward(x)
        difference, nu = prior.solve(f - x), prior.solve(x - q.mean[:, None])
        squares = (difference * (difference + 2.0 * nu)).sum(axis=0)
        return q.log_weights(x, zeros) - 0.5 * squares - log_slopes

    def drawn(self, xi: Array, pairs: bool) -> tuple[Array, Array]:
        """Corrected draws f of q, shape (n, N), from their coordinates, and `log_prior_over_q`.

        A copula needs L⁻¹(x − m) = Lᵀ a ± L⁻¹ δ, which is known from x = f̂ ± δ without a solve.
        """
        q, half_log_B = self.q, 0.5 * self.q.posterior.log_determinant
        if not isinstance(self.skewness, Copula):
            deviations, white = q.posterior.deviations(xi), None
        else:
            deviations, white = q.posterior.whitened_deviations(xi)
        W_deviations = q.posterior.precision_times(deviations)
        x = weights.mirrored(q.center, deviations.T, pairs)
        log_ratio = weights.gaussian_log_weights(
            deviations.T, W_deviations.T, q.alpha, q.center - q.mean, pairs
        )
        log_ratio -= half_log_B
        if isinstance(self.skewness, Transport):
            f, log_slopes, squares = self.skewness.forward_with_squares(x.T)
            return f, log_ratio - squares - log_slopes
        if self.skewness is None or white is None:
            return x.T, log_ratio
        f, log_slopes = self.skewness.forward(x.T)
        of_center = q.prior.multiply_transposed(q.alpha)
        moved = q.prior.solve(f - x.T)
        log_ratio -= weights.squares_moved(moved.T, of_center, white.T) + log_slopes
        return f, log_ratio


class Coordinates(NamedTuple):
    """The random numbers of an estimate. Their distribution is the same at every theta."""

    xi: Array
    """Standard normal, of the posterior's ``coordinates_shape`` and (roots,)."""

    from_prior: NDArray[np.bool_]
    """Whether each root is a draw from the prior, shape (roots,): true with probability ε."""

    @classmethod
    def fresh(cls, rng: np.random.Generator, proposal: Proposal, scheme: Scheme) -> Coordinates:
        """Draw all coordinates."""
        xi = rng.standard_normal((*proposal.q.posterior.coordinates_shape, scheme.roots))
        if proposal.defensive == 0.0:
            return cls(xi, np.zeros(scheme.roots, dtype=bool))
        return cls(xi, rng.uniform(size=scheme.roots) < proposal.defensive)

    @classmethod
    def around(
        cls,
        rng: np.random.Generator,
        f: Array,
        proposal: Proposal,
        scheme: Scheme,
    ) -> Coordinates:
        """Draw the coordinates given that f is the first draw: conditional importance sampling."""
        q, skewness = proposal.q, proposal.skewness
        coordinates = cls.fresh(rng, proposal, scheme)
        from_prior = False
        if proposal.defensive > 0.0:
            # e^700 is finite; odds of that size are as good as certainty.
            log_ratio = min(float(proposal.log_prior_over_q(f[:, None])[0]), 700.0)
            odds = proposal.defensive / (1 - proposal.defensive) * math.exp(log_ratio)
            from_prior = bool(rng.uniform() < odds / (1 + odds))
        coordinates.from_prior[0] = from_prior
        if from_prior:
            coordinates.xi[0, :, 0] = q.prior.solve(f - q.mean)
            return coordinates
        x = f if skewness is None else skewness.backward(f[:, None])[:, 0]
        coordinates.xi[:, :, 0] = q.posterior.coordinates(rng, x - q.center)
        return coordinates

    def perturbed(self, rng: np.random.Generator, correlation: float) -> Coordinates:
        """ξ' = ρ ξ + √(1 − ρ²) ε: reversible for N(0, I) (Deligiannidis, Doucet, Pitt 2018)."""
        if correlation == 1.0:
            return self
        if correlation == 0.0:
            return self._replace(xi=rng.standard_normal(self.xi.shape))
        noise = rng.standard_normal(self.xi.shape)
        return self._replace(xi=correlation * self.xi + math.sqrt(1 - correlation**2) * noise)


class Estimate(NamedTuple):
    """An estimate of log p(y | theta), with its standard deviation and tail shape."""

    log_evidence: float
    """log p̃(y | theta)."""

    log_evidence_sd: float
    """Its standard deviation by the delta method, from the variance of the weights; NaN for one
    draw. It is at most 1, and it is 1 if a single draw has all the weight."""

    pareto_k: float
    """Tail shape k of the weights: moments of order 1/k and above do not exist. NaN if N < 30."""


@dataclass(frozen=True, eq=False)
class ImportanceSample:
    """N draws of f and their weights, whose average estimates p(y | theta) without bias.

    Attributes
    ----------
    f : ndarray, shape (n, N)
        Draws.
    log_likelihood : ndarray, shape (N,)
        ℓ of each draw.
    log_weights : ndarray, shape (N,)
        log [p(y | f) N(f; m, K) / density that f was drawn from].
    """

    f: Array
    log_likelihood: Array
    log_weights: Array

    @property
    def log_evidence(self) -> float:
        """log p̃(y | theta)."""
        return self.estimate.log_evidence

    @cached_property
    def estimate(self) -> Estimate:
        """The estimate, its standard deviation and its tail shape."""
        return Estimate(
            *weights.estimate_of(self.log_weights), weights.pareto_shape(self.log_weights)
        )

    def choose(self, rng: np.random.Generator) -> int:
        """Draw an index with probability proportional to its weight; 0 if all weights are 0."""
        index: int = weights.one_by_weight(self.log_weights, rng.uniform())
        return index


class CachedSample(NamedTuple):
    """A cached importance sample at one theta, for the next move."""

    made_by: Hashable
    """Identifies how it was made. A sample that another sampler has made is not reused."""

    coordinates: Coordinates
    sample: ImportanceSample

    def redrawn(
        self,
        rng: np.random.Generator,
        f: Array,
        proposal: Proposal,
        log_likelihoods: Callable[[Array], Array],
        scheme: Scheme,
    ) -> CachedSample | None:
        """Redraw all draws but f, whose coordinates and weight are known.

        This is conditional importance sampling given the coordinates of f. It saves one draw, and
        the inverse of the skewness correction at f. The inverse of a transport map takes several
        factorizations.

        Parameters
        ----------
        rng : numpy.random.Generator
        f : ndarray, shape (n,)
        proposal : Proposal
            The one that made the sample.
        log_likelihoods : callable
            As in `importance_sample`.
        scheme : Scheme
            The one that made the sample.

        Returns
        -------
        CachedSample or None
            ``None`` if there is nothing to save, or if f is not in the sample. ``None``, too, if
            draws come in antithetic pairs, because the partner of f has the same coordinates. And
            if some draws come from the prior, because whether f does must be drawn again.
        """
        if scheme.pairs or proposal.skewness is None or proposal.defensive > 0.0:
            return None
        found = np.flatnonzero((self.sample.f == f[:, None]).all(axis=0))
        if not found.size:
            return None
        k = slice(found[0], found[0] + 1)
        (xi, from_prior), old = self.coordinates, self.sample
        known = Coordinates(xi[..., k], from_prior[k])
        one = ImportanceSample(old.f[:, k], old.log_likelihood[k], old.log_weights[k])
        if scheme.n_importance == 1:
            return self._replace(coordinates=known, sample=one)
        others = Scheme(scheme.n_importance - 1, antithetic=False)
        fresh = Coordinates.fresh(rng, proposal, others)
        new = importance_sample(proposal, log_likelihoods, fresh, others)
        return self._replace(
            coordinates=Coordinates(
                np.concatenate([known.xi, fresh.xi], axis=-1),
                np.concatenate([known.from_prior, fresh.from_prior]),
            ),
            sample=ImportanceSample(
                np.concatenate([one.f, new.f], axis=1),
                np.concatenate([one.log_likelihood, new.log_likelihood]),
                np.concatenate([one.log_weights, new.log_weights]),
            ),
        )


def importance_sample(
    proposal: Proposal,
    log_likelihoods: Callable[[Array], Array],
    coordinates: Coordinates,
    scheme: Scheme,
) -> ImportanceSample:
    """Turn coordinates into weighted draws of f.

    Parameters
    ----------
    proposal : Proposal
    log_likelihoods : callable
        Rows of f (N, n) -> ℓ of each (N,), −inf if it cannot be computed.
    coordinates : Coordinates
    scheme : Scheme

    Notes
    -----
    O(n² N), without a factorization; a transport map takes one factorization per draw.
    """
    if coordinates.from_prior.any():
        f = _mixed(proposal, coordinates, scheme)
        values, log_ratio = log_likelihoods(np.ascontiguousarray(f.T)), proposal.log_prior_over_q(f)
    else:
        f, log_ratio = proposal.drawn(coordinates.xi, scheme.pairs)
        values = log_likelihoods(np.ascontiguousarray(f.T))
    log_weights = values + log_ratio
    if proposal.defensive > 0.0:
        log_weights -= np.logaddexp(
            math.log1p(-proposal.defensive), math.log(proposal.defensive) + log_ratio
        )
    log_weights[~(log_weights < math.inf)] = -math.inf  # NaN and +inf: q is far from the posterior
    return ImportanceSample(f, values, log_weights)


def _mixed(proposal: Proposal, coordinates: Coordinates, scheme: Scheme) -> Array:
    """Draws, shape (n, N), some of them from the prior."""
    q, (xi, from_prior) = proposal.q, coordinates
    deviations = q.posterior.deviations(xi)
    deviations[:, from_prior] = q.prior.multiply(xi[0][:, from_prior])
    centers = np.where(from_prior, q.mean[:, None], q.center[:, None])
    x = centers + deviations
    if scheme.pairs:
        # A draw is mirrored at the center of its own component of the mixture.
        x = np.concatenate([x, centers - deviations], axis=1)
        from_prior = np.tile(from_prior, 2)
    corrected = x if proposal.skewness is None else proposal.skewness.forward(x)[0]
    return np.where(from_prior, x, corrected)
