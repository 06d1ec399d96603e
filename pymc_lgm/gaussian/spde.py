"""Matérn fields on a mesh, by their stochastic partial differential equation.

With piecewise linear elements, C the lumped mass matrix and G the stiffness matrix, the weights of
a field with smoothness ν = 1 in two dimensions have the precision

    Q = τ² (κ⁴ C + 2 κ² G + G C⁻¹ G) = τ² K C⁻¹ K,   K = κ² C + G

(Lindgren, Rue and Lindström 2011, equation 10). K is as sparse as the mesh. A factor of K serves
for Q = R Rᵀ, R = τ K C^(−1/2), and the condition number of K is the root of that of Q.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scipy.sparse import csc_array, diags_array

from pymc_lgm.gaussian.families import Family, FamilyAt
from pymc_lgm.gaussian.sparse import Pattern, SparseFactor
from pymc_lgm.linalg import Array

__all__ = ["FiniteElements", "MaternFactor", "OfMesh"]


class FiniteElements:
    """C and G of a mesh, and matrices that are computed from them once.

    Parameters
    ----------
    c : ndarray, shape (n,)
        The diagonal of C.
    G : sparse array, shape (n, n)
    """

    def __init__(self, c: Array, G: csc_array):
        self.c, self.G, self.n = c, G, c.size

    @cached_property
    def _pattern(self) -> tuple[Pattern, Array]:
        """The pattern of K, and the elements of G."""
        pattern = Pattern.of(self.G)
        return pattern, pattern.elements(self.G)

    def factorize(self, kappa: float) -> SparseFactor | None:
        """The factor of K; ``None`` if it is not numerically positive definite."""
        square = kappa * kappa
        if not (kappa > 0.0 and 0.0 < square < np.inf):
            return None
        pattern, G = self._pattern
        values = G.copy()
        values[pattern.diagonal] += square * self.c
        return pattern.factorize(values)

    def log_determinant(self, square: float) -> tuple[float, float]:
        """log|κ² C + G| and its derivative by κ², Σ c_i (K⁻¹)_ii; NaN if K has no factor."""
        factor = self.factorize(math.sqrt(square)) if square > 0.0 else None
        if factor is None:
            return math.nan, math.nan
        return factor.log_determinant, float(self.c @ factor.inverse_diagonal)

    def times(self, kappa: float, x: Array) -> Array:
        """K x, for a vector or columns."""
        result: Array = kappa**2 * (self.c * x.T).T + self.G @ x
        return result

    @cached_property
    def pattern(self) -> Pattern:
        """The pattern of Q."""
        return Pattern.of(abs(self.G) + abs(self._H))

    @cached_property
    def terms(self) -> tuple[Array, Array, Array]:
        """Elements of C, G and G C⁻¹ G, in the order of the pattern of Q."""
        C = csc_array(diags_array(self.c))
        return tuple(self.pattern.elements(each) for each in (C, self.G, self._H))  # type: ignore[return-value]  # three

    @cached_property
    def _H(self) -> csc_array:
        return csc_array(self.G @ diags_array(1.0 / self.c) @ self.G)

    def precision(self, kappa: float, tau: float) -> Array:
        """Elements of Q, in the order of its pattern."""
        (C, G, H), square = self.terms, kappa * kappa
        result: Array = tau * tau * (square * square * C + 2.0 * square * G + H)
        return result


@dataclass(frozen=True, eq=False)
class MaternFactor:
    """Q = R Rᵀ with R = τ K C^(−1/2): see `Root`.

    Attributes
    ----------
    elements : FiniteElements
    kappa, tau : float
    K : SparseFactor
        The factor of K = κ² C + G.
    """

    elements: FiniteElements
    kappa: float
    tau: float
    K: SparseFactor

    @cached_property
    def _root(self) -> Array:
        """C^½ / τ."""
        root: Array = np.sqrt(self.elements.c) / self.tau
        return root

    @cached_property
    def log_determinant(self) -> float:
        """log|Q| = 2 n log τ + 2 log|K| − log|C|."""
        return 2.0 * (self.K.log_determinant - float(np.log(self._root).sum()))

    def solve(self, x: Array) -> Array:
        """R⁻¹ x = C^½ K⁻¹ x / τ."""
        return (self._root * self._inverse_times(x).T).T

    def solve_transposed(self, xi: Array) -> Array:
        """R⁻ᵀ ξ = K⁻¹ C^½ ξ / τ."""
        return self._inverse_times((self._root * xi.T).T)

    def multiply(self, xi: Array) -> Array:
        """R ξ = τ K C^(−½) ξ."""
        return self.elements.times(self.kappa, (xi.T / self._root).T)

    def multiply_transposed(self, x: Array) -> Array:
        """Rᵀ x = τ C^(−½) K x."""
        return (self.elements.times(self.kappa, x).T / self._root).T

    def _inverse_times(self, x: Array) -> Array:
        return self.K.solve_transposed(self.K.solve(x))


class OfMesh(Family):
    """The `Family` x ~ N(0, Q⁻¹) of two numbers κ and τ."""

    def __init__(self, elements: FiniteElements):
        super().__init__(elements.n, *elements.pattern.lower)
        self._elements = elements

    def at(self, *values: Array) -> FamilyAt | None:
        """The prior at κ and τ; ``None`` if one is not positive, or if K cannot be factorized."""
        kappa, tau = (float(each) for each in values)
        if not 0.0 < tau < np.inf:
            return None
        if (K := self._elements.factorize(kappa)) is None:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            Q = self._elements.precision(kappa, tau)
        if not np.isfinite(Q).all():
            return None
        return FamilyAt(self.zero_mean, Q, MaternFactor(self._elements, kappa, tau, K), values)

    def vjp(self, at: FamilyAt, elements: Array, mean: Array, log_weight: float) -> list[Array]:
        """∂Q = 2 Q ∂τ/τ + τ² (4 κ³ C + 4 κ G) ∂κ, ∂log|Q| = 2 n ∂τ/τ + 4 κ Σ c_i (K⁻¹)_ii ∂κ."""
        assert isinstance(at.factor, MaternFactor)
        kappa, tau = at.factor.kappa, at.factor.tau
        C, G, _ = self._elements.terms
        trace = float(self._elements.c @ at.factor.K.inverse_diagonal)
        of_kappa = tau**2 * float(elements @ (kappa**2 * C + G)) + log_weight * trace
        of_tau = float(elements @ at.elements) + log_weight * self.n
        return [np.asarray(4.0 * kappa * of_kappa), np.asarray(2.0 * of_tau / tau)]
