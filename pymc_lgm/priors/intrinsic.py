r"""An intrinsic field of areas, as a sparse one that has a density and a rank-two correction.

    φ ~ N(0, Q⁻ + s² 11ᵀ),   Q = D − W,

Q⁻ the generalized inverse: the law of `pymc.ICAR`, whose mean over the areas has standard deviation
s. Q has no inverse, since Q 1 = 0. With area p held by δ, Q_p = Q + δ e_p e_pᵀ has one, which is as
sparse: Q_p⁻¹ = G + 11ᵀ/δ, where G is zero at p, and with g = G 1/n and ḡ = 1ᵀG 1/n²

    Q⁻ = (I − J) G (I − J) = Q_p⁻¹ − 1 gᵀ − g 1ᵀ + (ḡ − 1/δ) 11ᵀ,   J = 11ᵀ/n.
"""

from __future__ import annotations

import numpy as np

from scipy.sparse import csc_array, diags_array

from pymc_lgm.linalg import Array
from pymc_lgm.priors.sparse import Pattern, SparseFactor

__all__ = ["IntrinsicField"]


class IntrinsicField:
    """φ, by Q_p and what makes it Q⁻ + s² 11ᵀ.

    Parameters
    ----------
    W : sparse array, shape (n, n)
        Symmetric weights of a connected map.
    sd : float
        s.
    scale : float
        Multiplies φ but for its mean.

    Attributes
    ----------
    pattern : Pattern
    precision : ndarray
        Elements of Q_p.
    columns, covariance : ndarray, shape (n, 2) and (2, 2)
        U = (1, g) and S with Q⁻ + s² 11ᵀ = Q_p⁻¹ + U S Uᵀ.
    mean : ndarray, shape (n,)
        Zero.
    factor : SparseFactor
        Of Q_p, known once per model.
    """

    def __init__(self, W: csc_array, sd: float, scale: float = 1.0):
        self.n, self.sd, self.mean = W.shape[0], sd, np.zeros(W.shape[0])
        neighbors = np.asarray(W.sum(axis=0)).ravel()
        Q = csc_array(diags_array(neighbors) - W)
        self.pattern = Pattern.of(Q)
        own = self._own = self.pattern.elements(Q) / scale**2
        pin = int(self.pattern.diagonal[np.argmax(neighbors)])

        def held(by: float) -> Array:
            values = own.copy()
            values[pin] += by
            return values

        delta = 1.0
        if self.n > 1:
            # With 1/δ as large as G is, neither of the two is lost beside the other.
            weak = held(own[pin])
            spread = self._factorize(weak).inverse_diagonal.mean() - 1.0 / own[pin]
            delta = 1.0 / max(spread, 1e-300)
        self.precision = held(delta)
        self.factor = self._factorize(self.precision)
        self._pin, self._delta = int(self.pattern.order[self.pattern.rows[pin]]), delta
        g = (self._inverse_times(np.ones(self.n)) - self.n / delta) / self.n
        self.columns = np.column_stack([np.ones(self.n), g])
        self.covariance = np.array([[g.mean() - 1.0 / delta + sd**2, -1.0], [-1.0, 0.0]])

    def _factorize(self, values: Array) -> SparseFactor:
        factor = self.pattern.factorize(values)
        if factor is None:
            raise np.linalg.LinAlgError("The map is not connected.")
        return factor

    def _inverse_times(self, x: Array) -> Array:
        """Q_p⁻¹ x."""
        return self.factor.solve_transposed(self.factor.solve(x))

    @property
    def update(self) -> tuple[Array, Array]:
        """U (n, 2) and S (2, 2) with Q + 11ᵀ/(n s)² = Q_p + U S Uᵀ; s > 0."""
        U = np.zeros((self.n, 2))
        U[:, 0], U[self._pin, 1] = 1.0 / (self.n * self.sd), 1.0
        return U, np.diag([1.0, -self._delta])

    @property
    def variances(self) -> Array:
        """(Q⁻ + s² 11ᵀ)_ii."""
        U = self.columns
        added: Array = np.einsum("ij,jk,ik->i", U, self.covariance, U)
        return self.factor.inverse_diagonal + added

    def at(self) -> IntrinsicField:
        """Itself, at every theta."""
        return self

    def inverse_times(self, x: Array) -> Array:
        """(Q⁻ + s² 11ᵀ)⁻¹ x = (Q + 11ᵀ/(n s)²) x."""
        of_mean: Array = x.sum(axis=0) / (self.n * self.sd) ** 2
        return self.pattern.times(self._own, x) + of_mean
