"""Independent parts of f conditioned on Gaussian sites that join none of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array
from pymc_lgm.priors.base import Posterior, Prior
from pymc_lgm.priors.precision import rooted

__all__ = ["BlocksPosterior", "Scattered"]

Index = NDArray[np.intp]


class Scattered:
    """Vectors, or columns, of f put together from those of its parts."""

    def __init__(self, index: Sequence[Index]):
        self.index = index
        self.n = sum(part.size for part in index)

    def each(self, verbs: Sequence[Callable[[Any], Array]], x: Array) -> Array:
        """What the verbs of the parts make of their rows of x."""
        out = np.empty_like(x)
        for index, verb in zip(self.index, verbs, strict=True):
            out[index] = verb(x[index])
        return out

    def joined(self, pieces: Sequence[Array]) -> Array:
        """Rows of the parts, in the order of f."""
        out = np.empty((self.n, *pieces[0].shape[1:]))
        for index, piece in zip(self.index, pieces, strict=True):
            out[index] = piece
        return out


class BlocksPosterior(Scattered):
    """The same with precisions W ≥ 0: independent parts, too. See `Posterior`."""

    def __init__(
        self, prior: Prior, index: Sequence[Index], W: Array, posteriors: Sequence[Posterior]
    ):
        super().__init__(index)
        self.prior, self.precision, self._parts = prior, W, posteriors

    def _sum(self, values: Sequence[Any]) -> Any:
        return np.sum(values, axis=0)

    @property
    def log_determinant(self) -> float:
        """log|B|."""
        return float(self._sum([part.log_determinant for part in self._parts]))

    def dual(self, b: Array) -> Array:
        """(I + W K)⁻¹ b."""
        return self.each([part.dual for part in self._parts], b)

    def center(self, nu: Array) -> tuple[Array, Array]:
        """a and ẑ of each."""
        both = [part.center(nu[of]) for of, part in zip(self.index, self._parts, strict=True)]
        return self.joined([dual for dual, _ in both]), self.joined([z for _, z in both])

    def covariance_times(self, x: Array) -> Array:
        """Σ x."""
        return self.each([part.covariance_times for part in self._parts], x)

    def precision_times(self, x: Array) -> Array:
        """W x."""
        return rooted(self.precision).times(x)

    def spread(self, x: Array) -> float:
        """xᵀ Σ x."""
        pairs = zip(self.index, self._parts, strict=True)
        return float(self._sum([part.spread(x[i]) for i, part in pairs]))

    def square(self, d: Array) -> float:
        """dᵀ Σ⁻¹ d."""
        pairs = zip(self.index, self._parts, strict=True)
        return float(self._sum([part.square(d[i]) for i, part in pairs]))

    @property
    def shares(self) -> Array:
        """1 − W_i Σ_ii."""
        return self.joined([part.shares for part in self._parts])

    @property
    def variances(self) -> Array:
        """Σ_ii."""
        return self.joined([part.variances for part in self._parts])

    @property
    def site_covariances(self) -> Array:
        """Σ_ii, each as a block."""
        return self.variances[:, None, None]

    def block(self, index: Index) -> Array:
        """Σ of some f_i."""
        out = np.zeros((index.size, index.size))
        for own, part in zip(self.index, self._parts, strict=True):
            here = np.flatnonzero(np.isin(index, own))
            where = {int(i): k for k, i in enumerate(own)}
            local = np.array([where[int(i)] for i in index[here]], dtype=np.intp)
            out[np.ix_(here, here)] = part.block(local)
        return out

    # Draws

    @property
    def coordinates_shape(self) -> tuple[int, int]:
        """A draw of f and one of its noise."""
        return 2, self.n

    def deviations(self, xi: Array) -> Array:
        """N(0, Σ)."""
        pairs = zip(self.index, self._parts, strict=True)
        return self.joined([part.deviations(xi[:, i]) for i, part in pairs])

    def whitened_deviations(self, xi: Array) -> tuple[Array, Array]:
        """The same, and L⁻¹ of them."""
        pairs = zip(self.index, self._parts, strict=True)
        both = [part.whitened_deviations(xi[:, i]) for i, part in pairs]
        return self.joined([one for one, _ in both]), self.joined([white for _, white in both])

    def coordinates(self, rng: np.random.Generator, deviation: Array) -> Array:
        """Draw ξ given a deviation."""
        out = np.empty((2, self.n))
        for index, part in zip(self.index, self._parts, strict=True):
            out[:, index] = part.coordinates(rng, deviation[index])
        return out

    def multiply(self, xi: Array) -> Array:
        """A ξ."""
        return self.each([part.multiply for part in self._parts], xi)

    def solve(self, d: Array) -> Array:
        """A⁻¹ d."""
        return self.each([part.solve for part in self._parts], d)

    # The sites as noisy data

    def seen(self, f: Array, center: Array) -> Array:
        """W^½ (f − center)."""
        result: Array = np.sqrt(self.precision) * (f - center)
        return result

    def given(self, r: Array) -> Array:
        """K W^½ B⁻¹ r."""
        return self.each([part.given for part in self._parts], r)

    def log_density_of_data(self, r: Array) -> float:
        """log N(r; 0, B)."""
        pairs = zip(self.index, self._parts, strict=True)
        return float(self._sum([part.log_density_of_data(r[i]) for i, part in pairs]))

    def unexplained(self, r: Array) -> Array:
        """B⁻¹ r."""
        return self.each([part.unexplained for part in self._parts], r)

    # Derivatives in theta

    def differentiable(self) -> BlocksPosterior:
        """Each part ready for its gradient."""
        for part in self._parts:
            part.differentiable()
        return self

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """The sum of the parts'."""
        pairs = zip(self.index, self._parts, strict=True)
        gradients = [part.evidence_gradient(a[i], None if v is None else v[i]) for i, part in pairs]
        total: Array = self._sum(gradients)
        return total
