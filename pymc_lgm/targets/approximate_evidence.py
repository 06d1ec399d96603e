"""Evidence of a Gaussian approximation and its gradient, which trajectories of theta follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_lgm.approximations import ep, laplace, variational
from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.recall import WarmSearch
from pymc_lgm.approximations.sites_line import SitesLine
from pymc_lgm.linalg import Array
from pymc_lgm.state import AtTheta, LikelihoodAt
from pymc_lgm.targets.target import Slope

__all__ = [
    "ApproximateEvidence",
    "gradient_of_ep",
    "gradient_of_laplace",
    "gradient_of_variational",
]


@dataclass(frozen=True)
class ApproximateEvidence:
    """log q(y | theta) + log p(theta) and its gradient, functions of theta alone.

    From good initial sites a loosely converged search takes two O(n³) operations, B and B⁻¹.

    Attributes
    ----------
    search : WarmSearch
        Computes q.
    gradient : callable (LikelihoodAt, GaussianApproximation) -> ndarray (p,) or None
        Gradient of q's evidence.
    """

    search: WarmSearch
    gradient: Callable[[LikelihoodAt, GaussianApproximation], Array | None]

    def with_line(self, line: SitesLine | None) -> ApproximateEvidence:
        """Return this target with another linear model of the site parameters."""
        return ApproximateEvidence(self.search.with_line(line), self.gradient)

    def __call__(self, at: AtTheta) -> Slope | None:
        """The slope at a theta; ``None`` if it is not finite."""
        return at.once(self, lambda: self._at(at))

    def _at(self, at: AtTheta) -> Slope | None:
        q = self.search(at.likelihood, at.prior)
        gradient = None if q is None else self.gradient(at.likelihood, q)
        if q is None or gradient is None:
            return None
        gradient = gradient + at.model.log_prior_gradient(at.theta)
        log_density = q.log_evidence + at.log_prior
        finite = np.isfinite(log_density) and np.isfinite(gradient).all()
        return Slope(at.theta, log_density, gradient) if finite else None


def gradient_of_ep(at: LikelihoodAt, q: GaussianApproximation) -> Array | None:
    """Gradient of EP's evidence: see `approximations.ep.evidence_gradient`."""
    return ep.evidence_gradient(
        q, likelihood_gradient=lambda f: at.model.log_likelihood_theta_gradient(f, at.theta)
    )


def gradient_of_laplace(at: LikelihoodAt, q: GaussianApproximation) -> Array | None:
    """Gradient of Laplace's evidence: see `approximations.laplace.evidence_gradient`."""
    return laplace.evidence_gradient(
        q,
        at,
        likelihood_vjp=lambda f, v, u: at.model.likelihood_terms_vjp(f, at.theta, v, u),
        curvature_gradient=lambda f, u: at.model.curvature_gradient(f, at.theta, u),
    )


def gradient_of_variational(at: LikelihoodAt, q: GaussianApproximation) -> Array | None:
    """Gradient of the evidence lower bound: see `approximations.variational.evidence_gradient`."""

    def gradient(rows: Array, weights: Array) -> Array:
        return at.model.log_likelihoods_theta_gradient(rows, at.theta, weights)

    in_likelihood = at.model.theta_in_likelihood
    return variational.evidence_gradient(q, likelihood_gradient=gradient if in_likelihood else None)
