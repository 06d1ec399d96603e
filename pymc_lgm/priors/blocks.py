"""A prior of independent parts: K is block diagonal, and a factorization is one for each block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np

from pymc_lgm.linalg import Array
from pymc_lgm.priors.base import GaussianModel, Prior
from pymc_lgm.priors.blocks_posterior import BlocksPosterior, Index, Scattered
from pymc_lgm.priors.dense import DensePrior
from pymc_lgm.priors.dense_posterior import DensePosterior
from pymc_lgm.priors.joined_posterior import condition_jointly
from pymc_lgm.priors.precision import Precision, SiteBlocks

__all__ = ["BlocksPrior"]


class BlocksPrior(Scattered):
    """f in independent parts, each with a dense covariance: see `Prior`. Made by `at`.

    Attributes
    ----------
    priors : sequence of DensePrior
    alike : sequence of int
        The first part that has the covariance of each: itself, or one before it. Parts of the same
        covariance share its factor.
    """

    def __init__(self, index: Sequence[Index], priors: Sequence[DensePrior], alike: Sequence[int]):
        super().__init__(index)
        self.priors, self.alike = priors, alike

    @classmethod
    def at(
        cls,
        parts: Sequence[tuple[Index, GaussianModel]],
        theta: Array,
        alike: Sequence[int] | None = None,
    ) -> BlocksPrior | None:
        """At a theta, of parts: which elements of f one has, and its m and K.

        ``None`` where a part has no scale that is a number. Without ``alike`` no part shares the
        covariance of another.
        """
        models = [model for _, model in parts]
        alike = range(len(parts)) if alike is None else alike
        make = [partial(DensePrior.at, model) for model in models]
        return cls._of([of for of, _ in parts], models, alike, make, theta)

    def moved(self, theta: Array) -> BlocksPrior | None:
        """At another theta: parts that it does not enter keep their factors."""
        models, make = zip(*((prior.model, prior.moved) for prior in self.priors), strict=True)
        return self._of(self.index, models, self.alike, make, theta)

    @classmethod
    def _of(
        cls,
        index: Sequence[Index],
        models: Sequence[GaussianModel],
        alike: Sequence[int],
        make: Sequence[Callable[[Array], DensePrior | None]],
        theta: Array,
    ) -> BlocksPrior | None:
        priors: list[DensePrior] = []
        for k, (model, first) in enumerate(zip(models, alike, strict=True)):
            prior = make[k](theta) if first == k else priors[first].with_mean_of(model)
            if prior is None:
                return None
            priors.append(prior)
        return cls(index, priors, alike)

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

    def condition(self, W: Precision) -> BlocksPosterior | DensePosterior | None:
        """Each part by itself, unless blocks of W join them."""
        if isinstance(W, SiteBlocks):
            return condition_jointly(W, self)
        found = [p.condition(W[i]) for i, p in zip(self.index, self.priors, strict=True)]
        posteriors = [posterior for posterior in found if posterior is not None]
        if len(posteriors) < len(found):
            return None
        return BlocksPosterior(self, self.index, W, posteriors)

    def dense(self) -> Array:
        """K, a new array."""
        K = np.zeros((self.n, self.n))
        for i, prior in zip(self.index, self.priors, strict=True):
            K[np.ix_(i, i)] = prior.dense()
        return K

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂K⟩ + vᵀ ∂m: of M, the parts' own blocks, summed where K is the same."""
        total, of_K = np.zeros(self.theta.size), dict[int, Array]()
        for i, prior, first in zip(self.index, self.priors, self.alike, strict=True):
            block = M[np.ix_(i, i)]
            of_K[first] = of_K[first] + block if first in of_K else block
            total += prior.model.mean_vjp(self.theta, v[i])
        for first, block in of_K.items():
            total += self.priors[first].model.cov_vjp(self.theta, block)
        return total

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
