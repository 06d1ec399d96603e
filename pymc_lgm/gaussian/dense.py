"""A prior with a dense covariance K, which needs one Cholesky factorization.

The prior conditioned on sites is a `DensePosterior`. If W is diagonal and K is on a CPU, it is a
`CompiledPosterior`, with the same formulas in compiled loops. Both factorize B = I + W^½ K W^½ and
need no K⁻¹: see Rasmussen and Williams (2006), §3.4 and §3.6.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property, lru_cache
from typing import Self

import numpy as np

from numpy.typing import NDArray
from scipy.linalg import blas

from pymc_lgm.gaussian import dense_loops
from pymc_lgm.gaussian.base import CovariancePosterior, GaussianModel, Prior
from pymc_lgm.gaussian.dense_loops import NOTHING, cleared, scaled
from pymc_lgm.gaussian.sites import Precision, SiteBlocks
from pymc_lgm.linalg import Array, CholeskyFactor, bounded_exp, factorize, on_device, tally

__all__ = [
    "ArrayPrior",
    "CompiledPosterior",
    "DensePosterior",
    "DensePrior",
    "multiply_vjp",
]


def multiply_vjp(factor: CholeskyFactor, x: Array, g: Array) -> Array:
    """∂(gᵀ L x)/∂A with A = L Lᵀ, as a symmetric array. It costs two O(n³) operations.

    With u = Lᵀ g and b_i the rows of B = L⁻¹ it is the symmetric part of Σ_i u_i b_iᵀ c_i, where
    c_i = Σ_{k<i} x_k b_k + ½ x_i b_i. This is eq. (10) of Murray (2016), *Differentiation of the
    Cholesky decomposition*, for L̄ = tril(g xᵀ), whose Φ(Lᵀ L̄) is Φ(u xᵀ). C has the rows c_i.
    """
    B = factor.inverse_factor()
    tally.cubic_ops += 1
    terms = x[:, None] * B
    C = np.cumsum(terms, axis=0) - 0.5 * terms
    C *= factor.multiply_transposed(g)[:, None]
    product = blas.dtrmm(1.0, B, C, lower=1, trans_a=1)
    result: Array = 0.5 * (product + product.T)
    return result


# Posteriors


ROUNDING = 0.5 * float(np.finfo(float).eps)
"""u: the largest relative error of rounding a number."""

THIN = 1e-6
"""If W_i Σ_ii is smaller, it is not computed as 1 − (B⁻¹)_ii. Rounding would leave fewer than ten
digits."""


class ArrayPrior(Prior):
    """A prior whose K can be computed as one array."""

    @abstractmethod
    def dense(self) -> Array:
        """K, a new array."""

    @abstractmethod
    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂K⟩ + vᵀ ∂m, shape (p,), M of shape (n, n)."""


def joined_by(W: SiteBlocks, prior: ArrayPrior) -> DensePosterior | None:
    """Condition on a W with blocks, each of which may join several parts of the prior."""
    if not (prior.n * ROUNDING * W.diagonal(W.values) * prior.variances < 1.0).all():
        return None
    B = W.root_times(W.root_times(prior.dense()).T)
    B[np.diag_indices_from(B)] += 1.0
    factor = factorize(B, lower=False)
    return None if factor is None else DensePosterior(prior, W, factor)


class DensePosterior(CovariancePosterior):
    """A dense prior conditioned on sites, through B = I + W^½ K W^½.

    Σ = (K⁻¹ + W)⁻¹ = K − K W^½ B⁻¹ W^½ K. A method costs O(n²) unless its docstring says otherwise.
    """

    prior: ArrayPrior

    def __init__(self, prior: ArrayPrior, W: Precision, B: CholeskyFactor):
        super().__init__(prior, W)
        self._B = B

    @property
    def log_determinant(self) -> float:
        """log|B|."""
        return self._B.log_determinant

    def alpha(self, b: Array) -> Array:
        """(I + W K)⁻¹ b = b − W^½ B⁻¹ W^½ K b."""
        rooted = self._W.root_times(self.prior.covariance_times(b))
        return b - self._W.root_times(self._B.inverse_times(rooted))

    def quad_form(self, x: Array) -> float:
        """xᵀ Σ x = xᵀ K x − |L_B⁻¹ W^½ K x|²."""
        Kx = self.prior.covariance_times(x)
        half = self._B.solve(self._W.root_times(Kx))
        return float(x @ Kx - half @ half)

    @cached_property
    def one_minus_leverage(self) -> Array:
        """1 − (W Σ)_ii, which is (B⁻¹)_ii for a diagonal W.

        The latter takes half an O(n³) operation, or none if B⁻¹ is known.
        """
        if isinstance(self.precision, SiteBlocks):
            return super().one_minus_leverage
        known = "_inverse" in self.__dict__
        return self._inverse.diagonal().copy() if known else self._B.inverse_diagonal()

    @cached_property
    def variances(self) -> Array:
        """Σ_ii = (1 − (B⁻¹)_ii) / W_i, or from columns of Σ if W_i Σ_ii is less than `THIN`."""
        if isinstance(self.precision, SiteBlocks):
            return self.precision.diagonal(self.site_covariances)
        shares = self.one_minus_leverage
        with np.errstate(divide="ignore", invalid="ignore"):
            variances: Array = (1.0 - shares) / self.precision
        thin = np.flatnonzero(shares > 1.0 - THIN)
        if thin.size:
            columns, half = self._columns(thin)
            variances[thin] = columns[thin, np.arange(thin.size)]
            variances[thin] -= (half**2).sum(axis=0)
        return variances

    def block(self, index: NDArray[np.intp]) -> Array:
        """The block of Σ = K − K W^½ B⁻¹ W^½ K for some f_i: half the work of columns of Σ."""
        if not index.size:
            return np.empty((0, 0))
        columns, half = self._columns(index)
        sigma: Array = columns[index] - half.T @ half
        return sigma

    def _columns(self, index: NDArray[np.intp]) -> tuple[Array, Array]:
        """Columns of K, and L_B⁻¹ W^½ times these columns."""
        n = self.prior.n
        tally.cubic_ops += 2 * index.size // n
        columns = self.prior.covariance_times(np.asfortranarray(np.eye(n)[:, index]))
        return columns, self._B.solve(self._W.root_times(columns))

    @cached_property
    def site_covariances(self) -> Array:
        """Σ's blocks on the sets of W, (G, s, s): one O(n³) operation, which is B⁻¹."""
        if isinstance(self.precision, SiteBlocks):
            return self.precision.covariances(self._inverse)
        return super().site_covariances

    def multiply(self, xi: Array) -> Array:
        """A ξ with A Aᵀ = Σ, without a further factorization.

        With B = L_B L_Bᵀ,

            A = (I − K W^½ L_B⁻ᵀ (L_B + I)⁻¹ W^½) L,   A⁻¹ = L⁻¹ (I + K W^½ (L_Bᵀ + I)⁻¹ W^½).

        This is the square-root filter of Andrews (1968), eq. (10) of Whitaker and Hamill (2002),
        *Ensemble data assimilation without perturbed observations*. It follows from
        (L_B + I)(L_B + I)ᵀ = B + L_B + L_Bᵀ + I.
        """
        u = self.prior.multiply(xi)
        inner = self._shifted().solve(self._W.root_times(u))
        solved = self._B.solve_transposed(inner)
        return u - self.prior.covariance_times(self._W.root_times(solved))

    def solve(self, d: Array) -> Array:
        """A⁻¹ d: see `multiply`."""
        solved = self._shifted().solve_transposed(self._W.root_times(d))
        return self.prior.solve(d + self.prior.covariance_times(self._W.root_times(solved)))

    def _shifted(self) -> CholeskyFactor:
        """L_B + I, a triangular matrix."""
        shifted = self._B.dense()
        np.einsum("ii->i", shifted)[:] += 1.0
        return CholeskyFactor(shifted)

    def conditional_mean(self, r: Array) -> Array:
        """K W^½ B⁻¹ r, for a vector or columns."""
        return self.prior.covariance_times(self._W.root_times(self._B.inverse_times(r)))

    def log_density_of_data(self, r: Array) -> float:
        """log N(r; 0, B)."""
        return self._B.log_density(r)

    def weighted_residual(self, r: Array) -> Array:
        """B⁻¹ r."""
        return self._B.inverse_times(r)

    # Derivatives in theta

    @cached_property
    def _inverse(self) -> Array:
        """B⁻¹: one O(n³) operation."""
        return self._B.inverse()

    def differentiable(self) -> Self:
        """Compute B⁻¹ now, since `one_minus_leverage` and `evidence_gradient` both need it."""
        _ = self._inverse
        return self

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """⟨½ a aᵀ − ½ W^½ B⁻¹ W^½ + v aᵀ, ∂K⟩ + (a + v)ᵀ ∂m: one O(n³) operation."""
        M = self._W.root_times(self._W.root_times(self._inverse).T).T
        M *= -0.5
        M += np.outer(0.5 * a if v is None else 0.5 * a + v, a)
        return self.prior.vjp(M, a if v is None else a + v)


class CompiledPosterior(DensePosterior):
    """`DensePosterior` for a diagonal W, in compiled loops, for K on a CPU: see `dense_loops`."""

    prior: DensePrior

    def __init__(self, prior: DensePrior, W: Array, U: Array):
        super().__init__(prior, W, CholeskyFactor(U, lower=False))
        self._U, self._root = U, np.sqrt(W)

    @classmethod
    def of(cls, prior: DensePrior, W: Array, C: Array, diagonal: Array, v: float) -> Self | None:
        """Factorize B for K = v C: one O(n³) operation; ``None`` if it fails.

        The elements of C below its diagonal are not read.
        """
        tally.cubic_ops += 1
        U, is_definite = dense_loops.conditioned(C, diagonal, v, W)
        return cls(prior, W, U) if is_definite else None

    def alpha(self, b: Array) -> Array:
        """(I + W K)⁻¹ b = b − W^½ B⁻¹ W^½ K b."""
        if b.ndim > 1:
            return super().alpha(b)
        result: Array = dense_loops.alpha(*self.prior.symmetric, self._U, self._root, b)
        return result

    def quad_form(self, x: Array) -> float:
        """xᵀ Σ x = xᵀ K x − |L_B⁻¹ W^½ K x|²."""
        return float(dense_loops.quad_form(*self.prior.symmetric, self._U, self._root, x))

    def deviations(self, xi: Array) -> Array:
        """Matheron's rule: see `dense_loops.deviations`."""
        return self.whitened_deviations(xi)[0]

    def whitened_deviations(self, xi: Array) -> tuple[Array, Array]:
        """The same draws, and L⁻¹ times them."""
        packed, lower, scale = self.prior.factor.triangle
        rows, white = dense_loops.deviations(packed, scale, lower, self._U, self._root, xi)
        return rows.T, white.T

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """See `Posterior`: one O(n³) operation, which is B⁻¹."""
        inverse = self._inverse.T if self._inverse.flags.f_contiguous else self._inverse
        left = 0.5 * a if v is None else 0.5 * a + v
        M = dense_loops.of_evidence(inverse, self._root, left, a)
        return self.prior.vjp(M, a if v is None else a + v)


# The prior


BLOCK = 64
"""Number of columns of a triangle that are copied together."""


class _Matrix:
    """C with K = v C, and its Cholesky factor, computed when first used. It serves every v.

    LAPACK writes L over the lower triangle. The elements above the diagonal remain those of C.
    """

    def __init__(self, C: Array):
        # A symmetric matrix is its own transpose, so row order is column order.
        self.above = C.T if C.flags.c_contiguous else np.asfortranarray(C)
        self.diagonal = self.above.diagonal().copy()
        self.on_device = on_device(self.above)

    @cached_property
    def factor(self) -> CholeskyFactor | None:
        """L, in place."""
        if self.on_device:
            factor: CholeskyFactor | None = self.on_device.factor()
            return factor
        return factorize(cleared(self.above, NOTHING * self.diagonal.min(initial=np.inf)))

    @property
    def symmetric(self) -> Array:
        """An array with all of C in its upper triangle: a copy if C has been factorized."""
        return self._copy if self.on_device is None and "factor" in self.__dict__ else self.above

    @cached_property
    def _copy(self) -> Array:
        copy = np.empty_like(self.above)
        for stop in range(BLOCK, len(copy) + BLOCK, BLOCK):
            copy[:stop, stop - BLOCK : stop] = self.above[:stop, stop - BLOCK : stop]
        np.fill_diagonal(copy, self.diagonal)
        return copy


@lru_cache(maxsize=4)
def _below(n: int) -> NDArray[np.bool_]:
    return np.tri(n, k=-1, dtype=bool)


class DensePrior(ArrayPrior):
    """f ~ N(m, K) with K = e^log_variance C: see `Prior`.

    Parameters
    ----------
    mean : ndarray, shape (n,)
        m.
    C : ndarray, shape (n, n)
        Symmetric, in row or column order. It is overwritten, not copied.
    log_variance : float
    model : GaussianModel, optional
        The model of the prior. It is needed for derivatives and for another theta.
    theta : ndarray, shape (p,), optional

    Notes
    -----
    The first method that needs the factor of C computes it, by one O(n³) operation. Priors that
    differ only in their mean and ``log_variance`` share the factor: see `moved`.

    Examples
    --------
    >>> prior = DensePrior(np.zeros(2), np.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> prior.multiply(np.array([1.0, 1.0]))
    array([2., 3.])
    >>> prior.condition(np.ones(2)).covariance_times(np.array([13.0, 0.0]))
    array([10.,  1.])
    """

    def __init__(
        self,
        mean: Array,
        C: Array | _Matrix,
        log_variance: float = 0.0,
        *,
        model: GaussianModel | None = None,
        theta: Array | None = None,
    ):
        super().__init__(mean, np.empty(0) if theta is None else theta)
        self._matrix = C if isinstance(C, _Matrix) else _Matrix(C)
        self._log_variance = log_variance
        self.variance = bounded_exp(log_variance)
        """v = exp(log_variance); 0 or infinite if that overflows."""
        self._model = model

    @classmethod
    def at(cls, model: GaussianModel, theta: Array) -> DensePrior | None:
        """K(theta) = exp(k·theta) K(theta with its amplitudes at 0).

        k is `GaussianModel.amplitudes`. ``None`` if exp(k·theta) is 0 or infinite, or if m is not
        finite. The matrix that is factorized does not depend on the amplitudes. So the factor is
        the same to the last bit, whether it was computed at this theta or at another.
        """
        k = model.amplitudes
        bare = np.where(k == 0.0, theta, 0.0) if k.any() else theta
        log_variance = float(k @ theta) if k.any() else 0.0
        matrix = _Matrix(model.cov(bare))
        return cls._finite(cls(model.mean(theta), matrix, log_variance, model=model, theta=theta))

    def moved(self, theta: Array) -> DensePrior | None:
        """The prior at another theta, without a factorization if only the scale of K changes."""
        model = self.model
        changed = model.enters_cov & (theta != self.theta)
        if (changed & (model.amplitudes == 0.0)).any():
            return self.at(model, theta)
        log_variance = float(model.amplitudes @ theta) if changed.any() else self._log_variance
        there = DensePrior(model.mean(theta), self._matrix, log_variance, model=model, theta=theta)
        return self._finite(there)

    def with_mean_of(self, model: GaussianModel) -> DensePrior:
        """The prior of another model with the same covariance, at the same theta and factor."""
        mean = model.mean(self.theta)
        return DensePrior(mean, self._matrix, self._log_variance, model=model, theta=self.theta)

    def has_covariance_of(self, other: Prior) -> bool:
        """Whether both priors share C and have the same variance."""
        if not isinstance(other, DensePrior) or other._matrix is not self._matrix:
            return False
        return other._log_variance == self._log_variance

    @staticmethod
    def _finite(prior: DensePrior) -> DensePrior | None:
        return prior if 0 < prior.variance < np.inf and np.isfinite(prior.mean).all() else None

    @property
    def model(self) -> GaussianModel:
        """The model of the prior."""
        if self._model is None:
            raise ValueError("A DensePrior without a model has no derivatives in theta.")
        return self._model

    @property
    def variances(self) -> Array:
        """K_ii, shape (n,)."""
        return self.variance * self._matrix.diagonal

    @property
    def is_proper(self) -> bool:
        """Whether K could be factorized."""
        return self._matrix.factor is not None

    @cached_property
    def factor(self) -> CholeskyFactor:
        """L, if `is_proper`."""
        factor = self._matrix.factor
        if factor is None:
            raise ValueError("This covariance cannot be factorized: ask prior.is_proper first.")
        return factor.times(self._log_variance)

    def multiply(self, xi: Array) -> Array:
        """L ξ: O(n²) for each column."""
        return self.factor.multiply(xi)

    def multiply_transposed(self, g: Array) -> Array:
        """Lᵀ g."""
        return self.factor.multiply_transposed(g)

    def solve(self, z: Array) -> Array:
        """L⁻¹ z."""
        return self.factor.solve(z)

    def inverse_times(self, z: Array) -> Array:
        """K⁻¹ z."""
        return self.factor.inverse_times(z)

    @property
    def symmetric(self) -> tuple[Array, float]:
        """C, in the upper triangle of an array in column order, and v: K = v C."""
        return self._matrix.symmetric, self.variance

    def dense(self) -> Array:
        """K, a new array."""
        C = self._matrix.symmetric
        K: Array = np.where(_below(self.n), C.T, C)
        K *= self.variance
        return K

    def covariance_times(self, x: Array) -> Array:
        """K x, the same to the last bit before and after the factor is made."""
        if self._matrix.on_device is not None:
            return self.variance * self._matrix.on_device.times(x)
        product = blas.dsymv if x.ndim == 1 else blas.dsymm
        return product(self.variance, self._matrix.symmetric, x, lower=0)

    @property
    def log_determinant(self) -> float:
        """log|K|."""
        return self.factor.log_determinant

    @cached_property
    def precisions(self) -> Array:
        """(K⁻¹)_ii, or 0 if K is not positive definite: one O(n³) operation after the factor."""
        return self.factor.inverse_diagonal() if self.is_proper else np.zeros(self.n)

    def condition(self, W: Precision) -> DensePosterior | None:
        """Factorize B = I + W^½ K W^½: one O(n³) operation.

        All eigenvalues of B are 1 or larger. The result is ``None`` if n u W_ii K_ii ≥ 1 for an i,
        where u = 1.1e-16 is the rounding error of a number. Then Σ_ii ≤ 1/W_ii is less than the
        rounding error of K_ii, from which it is computed. Neither Σ nor the evidence would be
        right.
        """
        if isinstance(W, SiteBlocks):
            return joined_by(W, self)
        if not (self.n * ROUNDING * (self.variance * W * self._matrix.diagonal) < 1.0).all():
            return None
        if self._matrix.on_device is not None:
            B = self._matrix.on_device.scaled_factor(self.variance * W)
            return None if B is None else DensePosterior(self, W, B)
        return CompiledPosterior.of(
            self, W, self._matrix.above, self._matrix.diagonal, self.variance
        )

    def scaled(self, W: Array) -> Array:
        """The upper triangle of I + W^½ K W^½, in a new array in column order."""
        return scaled(self._matrix.above, self._matrix.diagonal, self.variance, W)

    # Derivatives in theta

    def log_density_gradient(self, f: Array) -> Array:
        """⟨½ (a aᵀ − K⁻¹), ∂K⟩ + aᵀ ∂m, a = K⁻¹ z: one O(n³) operation."""
        a = self.inverse_times(f - self.mean)
        total = self.model.mean_vjp(self.theta, a)
        if self.model.enters_cov.any():
            M = 0.5 * (np.outer(a, a) - self.factor.inverse())
            total = total + self.model.cov_vjp(self.theta, M)
        return total

    def whitened_gradient(self, nu: Array, g: Array) -> Array:
        """gᵀ (∂m + ∂L ν), with ∂L in reverse mode: two O(n³) operations for any p."""
        total = self.model.mean_vjp(self.theta, g)
        if self.model.enters_cov.any():
            total = total + self.model.cov_vjp(self.theta, multiply_vjp(self.factor, nu, g))
        return total

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂K⟩ + vᵀ ∂m, shape (p,)."""
        return self.model.cov_vjp(self.theta, M) + self.model.mean_vjp(self.theta, v)
