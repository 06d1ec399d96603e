"""Base classes of a prior N(m, K) and of the prior conditioned on sites, and their verbs.

A posterior has one of two forms. `CovariancePosterior` computes with K, and factorizes
B = I + W^½ K W^½ or its blocks. `PrecisionPosterior` computes with a prior f = m + V x, and
factorizes the precision P = Q + Vᵀ W V of x. Each has a few methods of its own, from which
`Posterior` derives the others.

In these docstrings z is f − m, ξ and ν are standard normal coordinates, and L is a root of K:
K = L Lᵀ. A method that is a linear map takes a vector (n,) or columns (n, N), and returns a new
array.
"""

from __future__ import annotations

import math

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.gaussian.factors import Root
from pymc_lgm.gaussian.sites import Precision, SiteBlocks, as_operator
from pymc_lgm.linalg import LOG_2PI, Array, tally

__all__ = [
    "CovariancePosterior",
    "Functions",
    "GaussianModel",
    "Posterior",
    "PrecisionPosterior",
    "Prior",
    "StatePrior",
]

EPSILON = float(np.finfo(np.float64).eps)
"""Relative rounding error of a number."""

MOST_ROUNDING = 1.0
"""Largest expected rounding error of a log evidence, in nats. At other theta the evidence counts as
not computable. Observations near 10⁶ with a noise of 1 have 10⁻² if there are thousands."""


class Functions(Protocol):
    """m and K as functions of theta (p,), with their derivatives.

    A series has u and T in their place: see `pymc_lgm.gaussian.banded`.
    """

    def mean(self, theta: Array) -> Array:
        """m(theta), shape (n,)."""

    def cov(self, theta: Array) -> Array:
        """K(theta), shape (n, n), a new array."""

    def cov_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂K/∂theta_j, M⟩ for each j, shape (p,)."""

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        """⟨∂m/∂theta_j, v⟩ for each j, shape (p,)."""


class GaussianModel(Functions, Protocol):
    """The same functions, and how K depends on theta."""

    @property
    def enters_cov(self) -> NDArray[np.bool_]:
        """Whether the covariance depends on each component of theta, shape (p,)."""

    @property
    def amplitudes(self) -> Array:
        """k, shape (p,): K(theta + δ e_j) = exp(k_j δ) K(theta) for every δ.

        A theta_j with k_j ≠ 0, such as a log variance, only scales K. To change it costs no
        factorization. k_j is 0 if there is no such number. `find_amplitudes` finds k.
        """


class Prior(ABC):
    """f ~ N(m, K) at one theta.

    Parameters
    ----------
    mean : ndarray, shape (n,)
        m.
    theta : ndarray, shape (p,)
        The search for q may depend on it.
    rank : int, optional
        r, the length of ξ and ν. It is n, which is the default, if K is positive definite.

    Attributes
    ----------
    allows_negative_sites : bool
        Whether `condition` takes every W with a positive definite K⁻¹ + W, instead of W ≥ 0.
    """

    allows_negative_sites = False

    def __init__(self, mean: Array, theta: Array, rank: int | None = None):
        self.mean, self.theta, self.n = mean, theta, mean.size
        self.rank = mean.size if rank is None else rank

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n})"

    @property
    def is_proper(self) -> bool:
        """Whether K has a root. If not, only `condition` and `covariance_times` work."""
        return True

    @property
    @abstractmethod
    def variances(self) -> Array:
        """K_ii, shape (n,)."""

    @property
    @abstractmethod
    def precisions(self) -> Array:
        """(K⁻¹)_ii, shape (n,); 0 if K is not positive definite."""

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """log|K|."""

    @abstractmethod
    def moved(self, theta: Array) -> Prior | None:
        """The prior at another theta; ``None`` if K cannot be computed there.

        It shares the factor of K if that is equal at both.
        """

    @abstractmethod
    def has_covariance_of(self, other: Prior) -> bool:
        """Whether both priors share one object for K; equal values are not enough."""

    @abstractmethod
    def condition(self, W: Precision) -> Posterior | None:
        """The prior times exp(−½ zᵀ W z); ``None`` if K⁻¹ + W is not positive definite.

        W ≥ 0 unless `allows_negative_sites`.
        """

    @abstractmethod
    def multiply(self, xi: Array) -> Array:
        """L ξ: from whitened variables to latent ones."""

    @abstractmethod
    def multiply_transposed(self, g: Array) -> Array:
        """Lᵀ g: from a gradient in f to one in ν."""

    @abstractmethod
    def solve(self, z: Array) -> Array:
        """L⁻¹ z: from latent variables to whitened ones."""

    @abstractmethod
    def inverse_times(self, z: Array) -> Array:
        """K⁻¹ z, or an x with K x = z if K is singular."""

    def covariance_times(self, x: Array) -> Array:
        """K x."""
        return self.multiply(self.multiply_transposed(x))

    def log_density(self, f: Array) -> float:
        """log N(f; m, K)."""
        nu = self.solve(f - self.mean)
        return -0.5 * (float(nu @ nu) + self.log_determinant + self.rank * LOG_2PI)

    # f as a function f(u; theta) of values u of known density: see `pymc_lgm.targets.sufficient`

    @property
    def has_values(self) -> bool:
        """Whether f is such a function. Only then does it have the three methods."""
        return False

    values: Callable[[Array], Array]  # f -> u
    with_values: Callable[[Array], Array]  # u -> f(u; theta)
    log_density_of_values: Callable[[Array], float]  # f -> the log density of u at theta

    # Derivatives in theta, (p,), if ``model.has_theta_gradient``

    log_density_gradient: Callable[[Array], Array]  # f -> ∂ log N(f; m, K)/∂theta
    whitened_gradient: Callable[[Array, Array], Array]  # ν, g -> ∂(gᵀ(m + L ν))/∂theta


CERTAIN = 1e12
"""Stands for (K⁻¹)_ii if K is singular. The other elements of f then determine f_i, and (K⁻¹)_ii is
infinite. With this value a copula leaves the marginals of f as they are."""

OUTSIDE = 1e-6
"""Relative distance of f from m + range(V) beyond which the prior density of f is 0."""


class StatePrior(Prior):
    """The prior of f = m + V x, x ~ N(0, Q⁻¹), where z determines x.

    If x has fewer elements than f, K is singular. The density of f then is the density of x. Its
    log determinant is log|Q⁻¹|.
    """

    @property
    def precisions(self) -> Array:
        """(K⁻¹)_ii, which is infinite if K is singular: `CERTAIN`."""
        return np.full(self.n, CERTAIN)

    @abstractmethod
    def expand(self, x: Array) -> Array:
        """V x."""

    @abstractmethod
    def expand_transposed(self, g: Array) -> Array:
        """Vᵀ g."""

    @abstractmethod
    def state(self, z: Array) -> Array:
        """x for z = V x."""

    def log_density(self, f: Array) -> float:
        """The log density of x; −inf if f is not in m + range(V), as for the f of another theta."""
        if self.rank < self.n:
            z = f - self.mean
            distance = np.abs(z - self.expand(self.state(z))).max(initial=0.0)
            if distance > OUTSIDE * (1.0 + np.abs(z).max(initial=0.0)):
                return -math.inf
        return super().log_density(f)


# Posteriors


class Posterior(ABC):
    """A prior times exp(νᵀ z − ½ zᵀ W z). Its precision is Σ⁻¹ = K⁻¹ + W for every ν.

    Parameters
    ----------
    prior : Prior
    W : ndarray, shape (n,), or SiteBlocks
        A diagonal, or a block for each set of f_i that an observation reads.
    """

    prior: Prior

    def __init__(self, prior: Prior, W: Precision):
        self.prior = prior
        self.precision: Any = W
        self._W = as_operator(W)

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """log|B| = log|K| − log|Σ|, B = I + W^½ K W^½."""

    @abstractmethod
    def alpha(self, b: Array) -> Array:
        """(I + W K)⁻¹ b. For b = ν it is a = K⁻¹ E[z], and the mean is m + K a."""

    @abstractmethod
    def center(self, nu: Array) -> tuple[Array, Array]:
        """a = (I + W K)⁻¹ ν and ẑ = K a = Σ ν. The mean is m + ẑ."""

    @abstractmethod
    def covariance_times(self, x: Array) -> Array:
        """Σ x."""

    def precision_times(self, x: Array) -> Array:
        """W x."""
        return self._W.times(x)

    def quad_form(self, x: Array) -> float:
        """xᵀ Σ x."""
        return float(x @ self.covariance_times(x))

    def inv_quad_form(self, d: Array) -> float:
        """dᵀ Σ⁻¹ d = |L⁻¹ d|² + dᵀ W d."""
        nu = self.prior.solve(d)
        return float(nu @ nu + d @ self._W.times(d))

    @property
    @abstractmethod
    def variances(self) -> Array:
        """Σ_ii, shape (n,)."""

    @property
    def one_minus_leverage(self) -> Array:
        """1 − (W Σ)_ii, shape (n,): one minus the leverage of each site."""
        if isinstance(self.precision, SiteBlocks):
            return 1.0 - self.precision.diagonal(self.precision.values @ self.site_covariances)
        return np.asarray(1.0 - self.precision * self.variances)

    @property
    def site_covariances(self) -> Array:
        """Σ's blocks on the sets of W, (G, s, s), padded by the identity if a set is smaller."""
        return self.variances[:, None, None]

    def block(self, index: NDArray[np.intp]) -> Array:
        """The block of Σ for some f_i, from a column of Σ for each."""
        columns = np.zeros((self.prior.n, index.size), order="F")
        columns[index, np.arange(index.size)] = 1.0
        tally.cubic_ops += 2 * index.size // self.prior.n
        return self.covariance_times(columns)[index]

    # Draws

    @property
    @abstractmethod
    def coordinates_shape(self) -> tuple[int, int]:
        """Shape of the standard normal numbers ξ of one draw.

        (2, n) for Matheron's rule, which needs a draw ξ₁ of the prior and a draw ξ₂ of the noise;
        (1, r) if a root of Σ is known.
        """

    @abstractmethod
    def deviations(self, xi: Array) -> Array:
        """N draws of N(0, Σ), (n, N), from standard normal coordinates with a last axis N."""

    def whitened_deviations(self, xi: Array) -> tuple[Array, Array]:
        """The same draws (n, N), and L⁻¹ times them, (r, N)."""
        deviations = self.deviations(xi)
        return deviations, self.prior.solve(deviations)

    @abstractmethod
    def coordinates(self, rng: np.random.Generator, deviation: Array) -> Array:
        """Draw ξ from its distribution given its deviation, shape (n,)."""

    @abstractmethod
    def multiply(self, xi: Array) -> Array:
        """A ξ with A Aᵀ = Σ, shape (n,)."""

    @abstractmethod
    def solve(self, d: Array) -> Array:
        """A⁻¹ d."""

    # The sites as noisy data: r = W^½ (g − m), g ~ N(f, W⁻¹)

    def in_noise_units(self, f: Array, center: Array) -> Array:
        """W^½ (f − center): f in units of the noise."""
        return self._W.root_times(f - center)

    def conditional_mean(self, r: Array) -> Array:
        """E[z | r] = K W^½ B⁻¹ r = Σ W^½ r."""
        return self.covariance_times(self._W.root_times(r))

    @abstractmethod
    def log_density_of_data(self, r: Array) -> float:
        """log N(r; 0, B)."""

    @abstractmethod
    def weighted_residual(self, r: Array) -> Array:
        """B⁻¹ r, the expectation of the noise in r."""

    # Derivatives in theta

    def differentiable(self) -> Self:
        """The same posterior, with all that `evidence_gradient` and `variances` need computed."""
        return self

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """⟨½ a aᵀ − ½ R + v aᵀ, ∂K⟩ + (a + v)ᵀ ∂m, R = (K + W⁻¹)⁻¹, shape (p,).

        v is 0 by default. For a = ``alpha(nu)`` and v = 0 it is the gradient of
        log ∫ N(f; m, K) ∏ t_i(f_i) df.
        """
        raise NotImplementedError(f"{type(self).__name__} has no derivatives in theta.")


# The covariance form


class CovariancePosterior(Posterior):
    """A posterior that computes Σ x as K (I + W K)⁻¹ x.

    A subclass defines `alpha`, `multiply` and `solve`, the diagonal of Σ, and log|B| and B⁻¹.
    """

    def center(self, nu: Array) -> tuple[Array, Array]:
        """a = (I + W K)⁻¹ ν and ẑ = K a."""
        alpha = self.alpha(nu)
        return alpha, self.prior.covariance_times(alpha)

    def covariance_times(self, x: Array) -> Array:
        """Σ x = K (I + W K)⁻¹ x."""
        return self.prior.covariance_times(self.alpha(x))

    @property
    def coordinates_shape(self) -> tuple[int, int]:
        """Shape of the coordinates: a row for a draw of f, and one for a draw of the noise."""
        return 2, self.prior.n

    def deviations(self, xi: Array) -> Array:
        """Matheron's rule, for all draws at once.

        u = L ξ₁ is a draw from the prior, r = W^½ u + ξ₂ has covariance B, and u − K W^½ B⁻¹ r is
        independent of r with covariance K − K W^½ B⁻¹ W^½ K = Σ.
        """
        u = self.prior.multiply(xi[0])
        return u - self.conditional_mean(self._W.root_times(u) + xi[1])

    def coordinates(self, rng: np.random.Generator, deviation: Array) -> Array:
        """Draw ξ given a deviation.

        In Matheron's rule r is independent of the deviation. So draw r ~ N(0, B) anew. Then
        u = deviation + K W^½ B⁻¹ r, ξ₁ = L⁻¹ u and ξ₂ = r − W^½ u.
        """
        xi = rng.standard_normal((2, self.prior.n))
        r = self._W.root_times(self.prior.multiply(xi[0])) + xi[1]
        u = deviation + self.conditional_mean(r)
        return np.stack([self.prior.solve(u), r - self._W.root_times(u)])


# The precision form


class PrecisionPosterior(Posterior):
    """The posterior of f = m + V x, x ~ N(0, Q⁻¹), through P = Q + Vᵀ W V = R Rᵀ.

    P is the precision of x, so that Σ = V P⁻¹ Vᵀ = A Aᵀ with A = V R⁻ᵀ.
    """

    prior: StatePrior

    def __init__(self, prior: StatePrior, W: Precision, factor: Root):
        super().__init__(prior, W)
        self.factor = factor

    @property
    def log_determinant(self) -> float:
        """log|B| of the sites, which is log|P| − log|Q|."""
        return self.prior.log_determinant + self.factor.log_determinant

    def multiply(self, xi: Array) -> Array:
        """V R⁻ᵀ ξ."""
        return self.prior.expand(self.factor.solve_transposed(xi))

    def multiply_transposed(self, x: Array) -> Array:
        """R⁻¹ Vᵀ x."""
        return self.factor.solve(self.prior.expand_transposed(x))

    def solve(self, d: Array) -> Array:
        """Rᵀ x for d = V x."""
        return self.factor.multiply_transposed(self.prior.state(d))

    def covariance_times(self, x: Array) -> Array:
        """Σ x = A Aᵀ x."""
        return self.multiply(self.multiply_transposed(x))

    def quad_form(self, x: Array) -> float:
        """xᵀ Σ x = |Aᵀ x|²."""
        half = self.multiply_transposed(x)
        return float(half @ half)

    def alpha(self, b: Array) -> Array:
        """(I + W K)⁻¹ b = b − W Σ b."""
        return b - self._W.times(self.covariance_times(b))

    def center(self, nu: Array) -> tuple[Array, Array]:
        """ẑ = Σ ν and a = ν − W ẑ. K a would have the rounding error of a times K's variances.

        All are NaN if ẑᵀ a, a part of the evidence, would be lost in rounding, since a is a small
        difference of large numbers then. A prior mean of 10⁹ does that, as of an explosive
        autoregression with a constant: the evidence would be thousands of nats too high or too low.
        """
        z = self.covariance_times(nu)
        fitted = self._W.times(z)
        # The terms' rounding errors have any sign, so their sum is like the root of their squares.
        if not EPSILON * np.linalg.norm(fitted * z) <= MOST_ROUNDING:
            return np.full_like(z, np.nan), np.full_like(z, np.nan)
        return nu - fitted, z

    @property
    def coordinates_shape(self) -> tuple[int, int]:
        """(1, r): a draw is A ξ₁."""
        return 1, self.prior.rank

    def deviations(self, xi: Array) -> Array:
        """A ξ₁."""
        return self.multiply(xi[0])

    def coordinates(self, rng: np.random.Generator, deviation: Array) -> Array:
        """ξ₁ = A⁻¹ times a deviation, which determines it."""
        return self.solve(deviation)[None]

    def log_density_of_data(self, r: Array) -> float:
        """log N(r; 0, B), B⁻¹ = I − W^½ Σ W^½."""
        square = float(r @ r) - self.quad_form(self._W.root_times(r))
        return -0.5 * (square + self.log_determinant + r.size * LOG_2PI)

    def weighted_residual(self, r: Array) -> Array:
        """B⁻¹ r."""
        return r - self._W.root_times(self.conditional_mean(r))
