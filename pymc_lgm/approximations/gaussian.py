"""A Gaussian q(f) = N(f̂, (K⁻¹ + W)⁻¹) at one theta: draws, importance weights, evidence.

Everything goes through B = I + W^½ K W^½; K is never inverted. Rasmussen and Williams (2006),
§3.4 and §3.6, for the algebra.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.approximations.copula import Copula
from pymc_lgm.linalg import Array, CholeskyFactor, Covariance, PriorFactor

__all__ = ["GaussianApproximation", "Sites", "allowance", "log_mean_exp", "plausible"]

LOWEST = -1.0 / float(np.finfo(float).eps)
"""Of a log density: below it a rounding error is a nat, and no two values can be compared."""


class Sites(NamedTuple):
    """Gaussian sites t_i = exp(ν_i z_i − ½ W_i z_i²), z = f − m: with a prior they make a q.

    ``variance`` and ``stiffness``, Σ_ii and (K⁻¹)_ii, are what a `Copula` of that q is made from;
    ``far`` says that they are guesses, far from where any had been found.
    """

    nu: Array
    precision: Array
    variance: Array | None = None
    stiffness: Array | None = None
    far: bool = False


@dataclass(frozen=True, eq=False)
class GaussianApproximation:
    """q(f) = N(f̂, (K⁻¹ + W)⁻¹) with f̂ = m + K a.

    Attributes
    ----------
    mean : ndarray, shape (n,)
        m(theta), the prior's mean.
    covariance : Covariance
        K(theta).
    dual : ndarray, shape (n,)
        a = K⁻¹(f̂ − m).
    center : ndarray, shape (n,)
        f̂.
    precision : ndarray, shape (n,)
        W ≥ 0, the precisions of the sites.
    B : CholeskyFactor
        Factor of I + W^½ K W^½.
    log_evidence : float
        The approximation's own log p(y | theta).
    iterations : int
        Factorizations of B that it took.
    converged : bool
        Whether the search met its tolerance. It is a valid q in either case.
    variance, stiffness : ndarray, shape (n,), optional
        Σ_ii and (K⁻¹)_ii, where they are known.
    copula : Copula, optional
        Gives draws other marginals: then q is the density of f, whose image x is Gaussian.
    """

    mean: Array
    covariance: Covariance
    dual: Array
    center: Array
    precision: Array
    B: CholeskyFactor
    log_evidence: float
    iterations: int
    converged: bool
    variance: Array | None = None
    stiffness: Array | None = None
    copula: Copula | None = None

    @property
    def sites(self) -> Sites:
        """ν = a + W ẑ and W: what the data say of f, apart from the prior; and what is known."""
        nu = self.dual + self.precision * (self.center - self.mean)
        return Sites(nu, self.precision, self.variance, self.stiffness)

    def deviations(self, prior: PriorFactor, xi: Array) -> Array:
        """f − f̂ of standard normal coordinates ξ = (ξ₁, ξ₂), shape (2, n, N) -> (n, N).

        Matheron's rule: u = L ξ₁ is a draw from the prior, r = W^½ u + ξ₂ has covariance B, and
        u − K W^½ B⁻¹ r is independent of r with covariance K − K W^½ B⁻¹ W^½ K = (K⁻¹ + W)⁻¹.
        O(n²) a draw, all draws solved as one matrix.
        """
        u = prior.multiply(xi[0])
        return u - self._gain(np.sqrt(self.precision)[:, None] * u + xi[1])

    def coordinates(self, rng: np.random.Generator, prior: PriorFactor, deviation: Array) -> Array:
        """Draw ξ given f − f̂ (n,): the inverse of `deviations`, shape (2, n).

        r is independent of f: draw it, and u = f − f̂ + K W^½ B⁻¹ r, ξ₁ = L⁻¹ u, ξ₂ = r − W^½ u
        follow.
        """
        root = np.sqrt(self.precision)
        xi = rng.standard_normal((2, self.mean.size))
        r = root * prior.multiply(xi[0]) + xi[1]
        u = deviation + self._gain(r)
        return np.stack([prior.solve(u), r - root * u])

    def _gain(self, r: Array) -> Array:
        """K W^½ B⁻¹ r, of a vector or of columns."""
        root = np.sqrt(self.precision)
        root = root if r.ndim == 1 else root[:, None]
        return self.covariance.covariance_times(root * self.B.inverse_times(r))

    def log_weights(self, f: Array, log_likelihood: Array) -> Array:
        """log [p(y | f) N(f; m, K) / N(f; f̂, Σ)] of columns f (n, N), shape (N,).

        ℓ(f) − zᵀa + ½ ẑᵀa + ½ Σ W_i (f_i − f̂_i)² − ½ log|B| with z = f − m: the terms in K⁻¹ and
        log|K| of numerator and denominator cancel.
        """
        z = f - self.mean[:, None]
        deviation = f - self.center[:, None]
        return (
            log_likelihood
            - self.dual @ z
            + 0.5 * float((self.center - self.mean) @ self.dual)
            + 0.5 * self.precision @ deviation**2
            - 0.5 * self.B.log_determinant
        )


def plausible(objective: float, at_mean: float, n: int) -> bool:
    """Whether f̂ can be the mean or the mode of a posterior: Ψ(f̂) ≥ ℓ(m) − n − 10.

    Ψ(f) = ℓ(f) − ½ zᵀ K⁻¹ z is the log density of the posterior up to a constant, and Ψ(m) = ℓ(m).
    Where Ψ is concave, Ψ(mode) ≤ Ψ(f) + ∇Ψ(f)ᵀ (mode − f) at every f. Of the right-hand side the
    posterior expectation is E Ψ(f) + n, by parts, and E Ψ(f) ≤ Ψ(E f) is Jensen's inequality. So a
    mode has Ψ(f̂) ≥ ℓ(m), and a mean Ψ(f̂) ≥ ℓ(m) − n (Fradelizi 1997, *Sections of convex bodies
    through their centroid*, Archiv der Mathematik 69). The ten nats are for approximate means and
    for likelihoods whose logarithm is not concave.

    A center further down is none: sites of quite another theta put it there, or a search ended
    where moments match that have no part in the posterior, or where all differences of ℓ are lost
    in rounding. Nor is one where Ψ is below -1/ε ≈ -4.5e15, whatever ℓ(m) is: two such numbers
    that differ by a nat are equal or not as the processor rounds.

    Parameters
    ----------
    objective : float
        Ψ(f̂) = ℓ(f̂) − ½ ẑᵀa.
    at_mean : float
        ℓ(m); NaN for a mean without a likelihood, of which nothing follows.
    n : int

    Returns
    -------
    bool
        ``False`` where Ψ(f̂) is not a number.

    Examples
    --------
    >>> plausible(-30.0, -20.0, n=2), plausible(-40.0, -20.0, n=2)
    (True, False)
    """
    lowest = max(LOWEST, at_mean)  # in this order NaN is not the larger
    return lowest - allowance(n) <= objective < np.inf


def allowance(n: int) -> float:
    """Nats by which two log densities of one approximation of n variables may disagree."""
    return 10.0 + n


def log_mean_exp(x: Array) -> float:
    """Log of the mean of exp(x), without overflow; −inf if every term is."""
    largest = x.max()
    if largest == -np.inf:
        return -np.inf
    return float(largest + np.log(np.mean(np.exp(x - largest))))
