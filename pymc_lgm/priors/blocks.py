"""A prior of independent parts: K is block diagonal, and a factorization is one for each block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array
from pymc_lgm.priors.base import GaussianModel, Posterior, Prior
from pymc_lgm.priors.dense import DensePrior

__all__ = ["BlocksModel", "BlocksPosterior", "BlocksPrior"]

Index = NDArray[np.intp]


class BlocksModel(Protocol):
    """Independent Gaussian models of parts of f."""

    @property
    def parts(self) -> Sequence[tuple[Index, GaussianModel]]:
        """Which elements of f a part has, and its m and K."""


class _Scattered:
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


class BlocksPrior(_Scattered):
    """f in independent parts, each with a dense covariance: see `Prior`. Made by `at`."""

    def __init__(self, index: Sequence[Index], priors: Sequence[DensePrior]):
        super().__init__(index)
        self.priors = priors

    @classmethod
    def at(cls, model: BlocksModel, theta: Array) -> BlocksPrior | None:
        """At a theta; ``None`` where a part has no scale that is a number."""
        index = [part for part, _ in model.parts]
        return cls._of(index, [DensePrior.at(part, theta) for _, part in model.parts])

    def moved(self, theta: Array) -> BlocksPrior | None:
        """At another theta: parts that it does not enter keep their factors."""
        return self._of(self.index, [prior.moved(theta) for prior in self.priors])

    @classmethod
    def _of(cls, index: Sequence[Index], priors: Sequence[DensePrior | None]) -> BlocksPrior | None:
        found = [prior for prior in priors if prior is not None]
        return cls(index, found) if len(found) == len(priors) else None

    def has_covariance_of(self, other: Prior) -> bool:
        """Whether K is the same matrix, and not only equal."""
        return isinstance(other, BlocksPrior) and all(
            a.has_covariance_of(b) for a, b in zip(self.priors, other.priors, strict=True)
        )

    @property
    def theta(self) -> Array:
        """Where it is."""
        return self.priors[0].theta

    @property
    def rank(self) -> int:
        """As many as elements."""
        return self.n

    @cached_property
    def mean(self) -> Array:
        """m."""
        return self.joined([prior.mean for prior in self.priors])

    @property
    def variances(self) -> Array:
        """K_ii."""
        return self.joined([prior.variances for prior in self.priors])

    @property
    def precisions(self) -> Array:
        """(K⁻¹)_ii."""
        return self.joined([prior.precisions for prior in self.priors])

    @property
    def is_proper(self) -> bool:
        """Whether every part is."""
        return all(prior.is_proper for prior in self.priors)

    def condition(self, W: Array) -> BlocksPosterior | None:
        """Each part by itself."""
        found = [p.condition(W[i]) for i, p in zip(self.index, self.priors, strict=True)]
        posteriors = [posterior for posterior in found if posterior is not None]
        if len(posteriors) < len(found):
            return None
        return BlocksPosterior(self, W, posteriors)

    def multiply(self, xi: Array) -> Array:
        """L ξ."""
        return self.each([prior.multiply for prior in self.priors], xi)

    def multiply_transposed(self, g: Array) -> Array:
        """Lᵀ g."""
        return self.each([prior.multiply_transposed for prior in self.priors], g)

    def solve(self, z: Array) -> Array:
        """L⁻¹ z."""
        return self.each([prior.solve for prior in self.priors], z)

    def inverse_times(self, z: Array) -> Array:
        """K⁻¹ z."""
        return self.each([prior.inverse_times for prior in self.priors], z)

    def covariance_times(self, x: Array) -> Array:
        """K x."""
        return self.each([prior.covariance_times for prior in self.priors], x)

    def log_density(self, f: Array) -> float:
        """log N(f; m, K)."""
        pairs = zip(self.index, self.priors, strict=True)
        return sum(prior.log_density(f[i]) for i, prior in pairs)

    # Derivatives in theta: sums over the parts

    def log_density_gradient(self, f: Array) -> Array:
        """∂ log N(f; m, K)/∂theta."""
        pairs = zip(self.index, self.priors, strict=True)
        return np.sum([prior.log_density_gradient(f[i]) for i, prior in pairs], axis=0)

    def log_density_geometry(self, f: Array) -> tuple[Array, Array]:
        """The same, and the Fisher information."""
        pairs = zip(self.index, self.priors, strict=True)
        scores, metrics = zip(*(p.log_density_geometry(f[i]) for i, p in pairs), strict=True)
        return np.sum(scores, axis=0), np.sum(metrics, axis=0)

    def whitened_gradient(self, nu: Array, g: Array) -> Array:
        """∂(gᵀ f)/∂theta at fixed ν and g."""
        pairs = zip(self.index, self.priors, strict=True)
        return np.sum([prior.whitened_gradient(nu[i], g[i]) for i, prior in pairs], axis=0)

    def whitened_jacobian(self, nu: Array) -> Array:
        """∂f/∂theta at fixed ν."""
        pairs = zip(self.index, self.priors, strict=True)
        return self.joined([prior.whitened_jacobian(nu[i]) for i, prior in pairs])


class BlocksPosterior(_Scattered):
    """The same with precisions W ≥ 0: independent parts, too. See `Posterior`."""

    def __init__(self, prior: BlocksPrior, W: Array, posteriors: Sequence[Posterior]):
        super().__init__(prior.index)
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

    def covariance_times(self, x: Array) -> Array:
        """Σ x."""
        return self.each([part.covariance_times for part in self._parts], x)

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
