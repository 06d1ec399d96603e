"""A Gaussian q(f) = N(f̂, (K⁻¹ + W)⁻¹) at one theta: importance weights, evidence.

The draws come from its `Posterior`. Rasmussen and Williams (2006), §3.4 and §3.6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.approximations.sites import Effects, Margins, Sites
from pymc_lgm.gaussian import Posterior, Prior
from pymc_lgm.linalg import Array

__all__ = [
    "GaussianApproximation",
    "Likelihood",
    "Search",
    "SiteLikelihood",
    "allowance",
    "plausible",
]

LOWEST = -1.0 / float(np.finfo(float).eps)
"""Log densities below this value have rounding errors of a nat, and cannot be compared."""


class Likelihood(Protocol):
    """ℓ and its derivatives in f, at one theta: f -> (ℓ, g, W, ∂³ℓ/∂f³).

    If an observation reads several f_i, W has one block per set of them, and the third derivative
    is NaN.
    """

    def __call__(self, f: Array) -> tuple[float, Array, Any, Array]:
        """Evaluate at f, shape (n,)."""


class SiteLikelihood(Likelihood, Protocol):
    """A likelihood that factorizes: ℓ(f) = Σ ℓ_i(f_i), or a sum over sets of f_i."""

    @property
    def sets(self) -> NDArray[np.intp] | None:
        """Sets of f_i that observations read, see `SiteBlocks`; ``None`` if each reads one."""

    def value(self, f: Array) -> float:
        """ℓ, without its derivatives."""

    def sites(self, rows: Array) -> Array:
        """ℓ_i(f_i) of each row of f, shape (N, n), or ℓ of each set, shape (N, G)."""

    @property
    def probit_signs(self) -> Array | None:
        """s, shape (n,), if ℓ_i(f_i) = log Φ(s_i f_i), whose moments have a closed form."""

    @property
    def effects(self) -> Effects | None:
        """The observation-level random effects that are integrated out of ℓ_i, if there are any."""


@dataclass(frozen=True, eq=False)
class GaussianApproximation:
    """q(f) = N(f̂, (K⁻¹ + W)⁻¹) with f̂ = m + K a.

    Attributes
    ----------
    posterior : Posterior
        The prior conditioned on W ≥ 0, the precisions of the sites.
    alpha : ndarray, shape (n,)
        a = K⁻¹(f̂ − m).
    center : ndarray, shape (n,)
        f̂.
    log_evidence : float
        The approximation's own log p(y | theta).
    iterations : int
        Number of factorizations of B.
    converged : bool
        Whether the search met its tolerance. q is valid in either case.
    margins : Margins, optional
        Variances for the copula, if draws of q shall have one.
    """

    posterior: Posterior
    alpha: Array
    center: Array
    log_evidence: float
    iterations: int
    converged: bool
    margins: Margins | None = None

    @classmethod
    def at(
        cls,
        posterior: Posterior,
        alpha: Array,
        z: Array,
        objective: float,
        *,
        iterations: int = 1,
        converged: bool = True,
        margins: Margins | None = None,
    ) -> GaussianApproximation:
        """Make q with the evidence Ψ(f̂) − ½ log|B|, Ψ = ℓ(f̂) − ½ ẑᵀa (Laplace's at the mode)."""
        evidence = objective - 0.5 * posterior.log_determinant
        center = posterior.prior.mean + z
        return cls(posterior, alpha, center, evidence, iterations, converged, margins)

    @property
    def prior(self) -> Prior:
        """N(m, K)."""
        return self.posterior.prior

    @property
    def mean(self) -> Array:
        """m, shape (n,)."""
        return self.posterior.prior.mean

    @property
    def precision(self) -> Any:
        """W, shape (n,), or its blocks: see `Precision`."""
        return self.posterior.precision

    @property
    def sites(self) -> Sites:
        """ν = a + W ẑ and W."""
        z = self.center - self.mean
        return Sites(self.alpha + self.posterior.precision_times(z), self.precision)

    def log_weights(self, f: Array, log_likelihood: Array) -> Array:
        """log [p(y | f) N(f; m, K) / N(f; f̂, Σ)] of columns f (n, N), shape (N,).

        It is ℓ(f) − zᵀa + ½ ẑᵀa + ½ (f − f̂)ᵀ W (f − f̂) − ½ log|B| with z = f − m. The terms in
        K⁻¹ and log|K| cancel.
        """
        z = f - self.mean[:, None]
        deviation = f - self.center[:, None]
        return (
            log_likelihood
            - self.alpha @ z
            + 0.5 * float((self.center - self.mean) @ self.alpha)
            + 0.5 * (deviation * self.posterior.precision_times(deviation)).sum(axis=0)
            - 0.5 * self.posterior.log_determinant
        )


Search = Callable[[SiteLikelihood, Prior], GaussianApproximation | None]
"""(likelihood, prior) -> q, a function of theta alone; ``None`` if it finds no q."""


def plausible(objective: float, at_mean: float, n: int) -> bool:
    """Whether f̂ can be the mean or the mode of a posterior: Ψ(f̂) ≥ ℓ(m) − n − 10.

    Ψ(f) = ℓ(f) − ½ zᵀ K⁻¹ z is the log density of the posterior up to a constant, and Ψ(m) = ℓ(m).
    If Ψ is concave, Ψ(mode) ≤ Ψ(f) + ∇Ψ(f)ᵀ (mode − f) at every f. By integration by parts the
    posterior expectation of the right-hand side is E Ψ(f) + n, and E Ψ(f) ≤ Ψ(E f) by Jensen's
    inequality. So a mode has Ψ(f̂) ≥ ℓ(m), and a mean has Ψ(f̂) ≥ ℓ(m) − n (Fradelizi 1997,
    *Sections of convex bodies through their centroid*, Archiv der Mathematik 69). The ten nats
    allow for approximate means and for likelihoods that are not log-concave.

    A center with a lower Ψ is wrong. It may come from the sites of a distant theta, from a fixed
    point far from the posterior, or from a search in which rounding hides the differences of ℓ. A
    center with Ψ below -1/ε ≈ -4.5e15 is refused for any ℓ(m), since rounding errors there exceed a
    nat.

    Parameters
    ----------
    objective : float
        Ψ(f̂) = ℓ(f̂) − ½ ẑᵀa.
    at_mean : float
        ℓ(m). If it is NaN, only the bound of -1/ε applies.
    n : int

    Returns
    -------
    bool
        ``False`` if Ψ(f̂) is NaN.

    Examples
    --------
    >>> plausible(-30.0, -20.0, n=2), plausible(-40.0, -20.0, n=2)
    (True, False)
    """
    lowest = max(LOWEST, at_mean)  # in this order NaN does not win
    return lowest - allowance(n) <= objective < np.inf


def allowance(n: int) -> float:
    """Nats by which two log densities of one approximation of n variables may differ."""
    return 10.0 + n
