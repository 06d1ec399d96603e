"""A prior of independent parts: K is block diagonal, and each block is factorized alone.

If no site joins different parts, the posterior is a `BlocksPosterior` of independent parts. If each
site joins one f_i of every part, such as the classes of a softmax, or a mean and a scale, it is a
`JoinedPosterior`: C + 1 factorizations of G × G matrices instead of one of C G × C G. See Rasmussen
and Williams (2006), Algorithm 3.3 and §3.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.gaussian.base import CovariancePosterior, GaussianModel, Prior
from pymc_lgm.gaussian.dense import ArrayPrior, DensePosterior, DensePrior, joined_by
from pymc_lgm.gaussian.sites import Precision, SiteBlocks
from pymc_lgm.linalg import Array, CholeskyFactor, factorize

__all__ = ["BlocksPosterior", "BlocksPrior", "JoinedPosterior", "Scattered", "condition_jointly"]

# Posteriors for sites that join one f_i of every part


class Part(NamedTuple):
    """One part of a `JoinedPosterior`. The rows of all arrays are the sets, in their order."""

    prior: DensePrior
    of: NDArray[np.intp]  # the f_i
    local: NDArray[np.intp]  # their positions in the prior of the part
    in_order: bool  # whether ``local`` is 0, 1, 2, ...
    root: Array  # D^½
    v: Array
    B: CholeskyFactor  # I + D^½ K D^½
    inverse: Array  # B⁻¹


def condition_jointly(W: SiteBlocks, prior: BlocksPrior) -> CovariancePosterior | None:
    """Condition on W, part by part if the form of W allows it, otherwise as one dense prior."""
    place = _places(W.sets, prior.index)
    form = None if place is None else W.minus_rank_one
    parts: list[Part] = []
    if place is None or form is None:
        return joined_by(W, prior)
    D, v, gap = (x if x.ndim == 1 else np.take_along_axis(x, place, 1) for x in form)
    sets = np.take_along_axis(W.sets, place, 1)
    M = np.diag(gap)
    for c, (index, part) in enumerate(zip(prior.index, prior.parts, strict=True)):
        local = np.empty(prior.n, dtype=np.intp)
        local[index] = np.arange(index.size)
        local, root = local[sets[:, c]], np.sqrt(D[:, c])
        in_order = np.array_equal(local, np.arange(local.size))
        if in_order:
            B = part.scaled(D[:, c])
        else:
            B = part.dense()[np.ix_(local, local)] * root[:, None] * root
            B[np.diag_indices_from(B)] += 1.0
        factor = factorize(B, lower=False)
        if factor is None:
            return joined_by(W, prior)
        inverse = factor.inverse()
        M += v[:, c, None] * inverse * v[:, c]
        parts.append(Part(part, sets[:, c], local, in_order, root, v[:, c], factor, inverse))
    across = factorize(M)
    return joined_by(W, prior) if across is None else JoinedPosterior(prior, W, parts, across)


def _of_dense(verb: str) -> Any:
    """A method that needs the root of the whole B."""
    return property(attrgetter(f"_dense.{verb}"), doc=getattr(DensePosterior, verb).__doc__)


class JoinedPosterior(CovariancePosterior):
    """The posterior for W_g = D_g^½ (I − v_g v_gᵀ) D_g^½, each g with one f_i of every part.

    With B_c = I + D_c^½ K_c D_c^½, T_c = D_c^½ B_c⁻¹ D_c^−½, S_c = K_c T_c = (K_c⁻¹ + D_c)⁻¹, and
    U the diagonal matrices D_c^½ v_c above each other,

        Σ = (S⁻¹ − U Uᵀ)⁻¹ = S + S U M⁻¹ Uᵀ S,    M = I − Uᵀ S U = I − Σ_c v_c² + Σ_c v_c B_c⁻¹ v_c,

    and |B| = |M| ∏ |B_c|. I − v_g v_gᵀ is nearly singular for classes, since such observations are
    not informative about a level that all classes share. These formulas lose no accuracy then. The
    dense B is factorized only if a method needs its root.
    """

    prior: BlocksPrior

    def __init__(
        self, prior: BlocksPrior, W: SiteBlocks, parts: Sequence[Part], across: CholeskyFactor
    ):
        super().__init__(prior, W)
        self._parts, self._M = parts, across

    @property
    def log_determinant(self) -> float:
        """log|B|."""
        return self._M.log_determinant + sum(part.B.log_determinant for part in self._parts)

    def alpha(self, b: Array) -> Array:
        """(I + W K)⁻¹ b = T (b + U M⁻¹ Uᵀ K T b)."""
        column = (...,) if b.ndim == 1 else (..., None)
        out = np.empty_like(b)
        for part in self._parts:
            root = part.root[column]
            out[part.of] = root * (part.inverse @ (b[part.of] / root))
        K_out = self.prior.covariance_times(out)
        scaled = [(part.root * part.v)[column] * K_out[part.of] for part in self._parts]
        explained = self._M.inverse_times(_columns(np.sum(scaled, axis=0)))
        for part in self._parts:
            out[part.of] += part.root[column] * (part.inverse @ (part.v[column] * explained))
        return out

    @cached_property
    def _dense(self) -> DensePosterior:
        """The same posterior by a factor of the whole B, for methods that need its root."""
        dense = joined_by(self.precision, self.prior)
        if dense is None:
            raise ValueError("K + W⁻¹ cannot be factorized: raise the jitter of the covariance.")
        return dense

    multiply, solve = _of_dense("multiply"), _of_dense("solve")
    log_density_of_data = _of_dense("log_density_of_data")
    weighted_residual = _of_dense("weighted_residual")

    @property
    def variances(self) -> Array:
        """Σ_ii."""
        diagonal: Array = self.precision.diagonal(self.site_covariances)
        return diagonal

    @cached_property
    def _solved(self) -> list[Array]:
        """L_M⁻¹ v_c B_c⁻¹, shape (G, G), for each part."""
        return [self._M.solve((part.inverse * part.v).T) for part in self._parts]

    @cached_property
    def site_covariances(self) -> Array:
        """Σ's blocks, the sum of those of S and S U M⁻¹ Uᵀ S, S_c U_c = D_c^−½ (I − B_c⁻¹) v_c."""
        inverse_factor = self._M.inverse_factor()
        halves = [
            (inverse_factor * part.v - solved) / part.root
            for part, solved in zip(self._parts, self._solved, strict=True)
        ]
        C, G = len(halves), len(self._parts[0].v)
        sigma = np.empty((G, C, C))
        for c, (part, half) in enumerate(zip(self._parts, halves, strict=True)):
            for d in range(c + 1):
                sigma[:, c, d] = sigma[:, d, c] = np.einsum("kg,kg->g", half, halves[d])
            sigma[:, c, c] += (1.0 - part.inverse.diagonal()) / part.root**2
        # Back into the order of the sets.
        of = np.stack([part.of for part in self._parts], axis=1)
        place = np.argmax(self.precision.sets[:, :, None] == of[:, None, :], axis=2)
        rows = np.arange(G)[:, None, None]
        ordered: Array = sigma[rows, place[:, :, None], place[:, None, :]]
        return ordered

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """See `Posterior`. The block of (K + W⁻¹)⁻¹ is D^½ (B⁻¹ − B⁻¹ v M⁻¹ v B⁻¹) D^½."""
        total = np.zeros(self.prior.theta.size)
        both = a if v is None else a + v
        left = 0.5 * a if v is None else 0.5 * a + v
        for part, half in zip(self._parts, self._solved, strict=True):
            M = half.T @ half
            M -= part.inverse
            M *= 0.5 * part.root[:, None]
            M *= part.root
            M += left[part.of, None] * a[part.of]
            of_part = both[part.of]
            if not part.in_order:
                own, M = M, np.empty_like(M)
                M[np.ix_(part.local, part.local)] = own
                of_part = np.empty_like(part.root)
                of_part[part.local] = both[part.of]
            total += part.prior.vjp(M, of_part)
        return total


def _places(sets: NDArray[np.intp], index: Sequence[NDArray[np.intp]]) -> NDArray[np.intp] | None:
    """For each set and part, the position in the set of the part's f_i, shape (G, C).

    ``None`` if a set does not have exactly one f_i of each part.
    """
    if sets.shape[1] != len(index) or (sets < 0).any():
        return None
    part = np.empty(sets.size, dtype=np.intp)
    for c, own in enumerate(index):
        part[own] = c
    of = part[sets]
    place = np.argsort(of, axis=1)
    in_order = np.take_along_axis(of, place, 1)
    return place if (in_order == np.arange(len(index))).all() else None


def _columns(x: Array) -> Array:
    """x in column order, so that BLAS does not copy it."""
    return x if x.ndim == 1 else np.asfortranarray(x)


# The posterior for sites that join no parts


Index = NDArray[np.intp]


class Scattered:
    """Split vectors and columns of f into parts, and join parts again."""

    def __init__(self, index: Sequence[Index], parts: Sequence[Any]):
        self.index, self.parts = index, parts
        self.n = sum(part.size for part in index)

    def joined(self, pieces: Sequence[Array]) -> Array:
        """Put the rows of the parts in the order of f."""
        out = np.empty((self.n, *pieces[0].shape[1:]))
        for index, piece in zip(self.index, pieces, strict=True):
            out[index] = piece
        return out


def _each(verb: str) -> Any:
    """A method that calls a method of each part with its rows of x."""

    def method(self: Scattered, x: Array) -> Array:
        out = np.empty_like(x)
        for index, part in zip(self.index, self.parts, strict=True):
            out[index] = getattr(part, verb)(x[index])
        return out

    return method


def _total(verb: str) -> Any:
    """A method that calls a method of each part with its elements of vectors, and adds up."""

    def method(self: Scattered, *x: Array) -> Any:
        pairs = zip(self.index, self.parts, strict=True)
        each = [getattr(part, verb)(*(v[index] for v in x)) for index, part in pairs]
        return np.sum(each, axis=0)

    return method


class BlocksPosterior(Scattered, CovariancePosterior):
    """A prior conditioned on a diagonal W ≥ 0, part by part: B has a block for each part."""

    prior: BlocksPrior

    def __init__(self, prior: BlocksPrior, W: Array, posteriors: Sequence[DensePosterior]):
        Scattered.__init__(self, prior.index, posteriors)
        CovariancePosterior.__init__(self, prior, W)

    alpha, multiply, solve = _each("alpha"), _each("multiply"), _each("solve")
    conditional_mean, weighted_residual = _each("conditional_mean"), _each("weighted_residual")
    quad_form, log_density_of_data = _total("quad_form"), _total("log_density_of_data")
    evidence_gradient = _total("evidence_gradient")

    @property
    def log_determinant(self) -> float:
        """log|B|."""
        return float(np.sum([part.log_determinant for part in self.parts]))

    @property
    def one_minus_leverage(self) -> Array:
        """1 − W_i Σ_ii."""
        return self.joined([part.one_minus_leverage for part in self.parts])

    @property
    def variances(self) -> Array:
        """Σ_ii."""
        return self.joined([part.variances for part in self.parts])

    # Draws

    def deviations(self, xi: Array) -> Array:
        """Draws of N(0, Σ)."""
        pairs = zip(self.index, self.parts, strict=True)
        return self.joined([part.deviations(xi[:, i]) for i, part in pairs])

    def whitened_deviations(self, xi: Array) -> tuple[Array, Array]:
        """The same draws, and L⁻¹ times them."""
        pairs = zip(self.index, self.parts, strict=True)
        both = [part.whitened_deviations(xi[:, i]) for i, part in pairs]
        return self.joined([one for one, _ in both]), self.joined([white for _, white in both])

    def coordinates(self, rng: np.random.Generator, deviation: Array) -> Array:
        """Draw ξ given a deviation."""
        out = np.empty((2, self.n))
        for index, part in zip(self.index, self.parts, strict=True):
            out[:, index] = part.coordinates(rng, deviation[index])
        return out

    def differentiable(self) -> BlocksPosterior:
        """The same, with each part prepared for its gradient."""
        for part in self.parts:
            part.differentiable()
        return self


# The prior


class BlocksPrior(Scattered, ArrayPrior):
    """The prior of independent parts of f, each with a dense covariance, made by `at`.

    Attributes
    ----------
    parts : sequence of DensePrior
    alike : sequence of int
        For each part, the first part with the same covariance: itself or one before it. Parts with
        the same covariance share its factor.
    """

    def __init__(self, index: Sequence[Index], priors: Sequence[DensePrior], alike: Sequence[int]):
        Scattered.__init__(self, index, priors)
        mean = self.joined([prior.mean for prior in priors])
        ArrayPrior.__init__(self, mean, priors[0].theta)
        self.alike = alike

    multiply, multiply_transposed = _each("multiply"), _each("multiply_transposed")
    solve, inverse_times = _each("solve"), _each("inverse_times")
    covariance_times = _each("covariance_times")
    log_density_gradient = _total("log_density_gradient")
    whitened_gradient = _total("whitened_gradient")

    @classmethod
    def at(
        cls,
        parts: Sequence[tuple[Index, GaussianModel]],
        theta: Array,
        alike: Sequence[int] | None = None,
    ) -> BlocksPrior | None:
        """The prior at a theta, for parts given by their elements of f and their models.

        ``None`` if the prior of a part cannot be computed. Without ``alike`` no part shares the
        covariance of another.
        """
        models = [model for _, model in parts]
        alike = range(len(parts)) if alike is None else alike
        make = [partial(DensePrior.at, model) for model in models]
        return cls._of([of for of, _ in parts], models, alike, make, theta)

    def moved(self, theta: Array) -> BlocksPrior | None:
        """The prior at another theta; parts that do not depend on the change keep their factors."""
        models, make = zip(*((prior.model, prior.moved) for prior in self.parts), strict=True)
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
        """Whether every part shares its covariance with that of the other prior."""
        return isinstance(other, BlocksPrior) and all(
            a.has_covariance_of(b) for a, b in zip(self.parts, other.parts, strict=True)
        )

    @property
    def variances(self) -> Array:
        """K_ii."""
        return self.joined([prior.variances for prior in self.parts])

    @property
    def precisions(self) -> Array:
        """(K⁻¹)_ii."""
        return self.joined([prior.precisions for prior in self.parts])

    @property
    def is_proper(self) -> bool:
        """Whether every part is proper."""
        return all(prior.is_proper for prior in self.parts)

    def condition(self, W: Precision) -> CovariancePosterior | None:
        """Condition each part separately, unless blocks of W join them."""
        if isinstance(W, SiteBlocks):
            return condition_jointly(W, self)
        found = [p.condition(W[i]) for i, p in zip(self.index, self.parts, strict=True)]
        posteriors = [posterior for posterior in found if posterior is not None]
        if len(posteriors) < len(found):
            return None
        return BlocksPosterior(self, W, posteriors)

    def dense(self) -> Array:
        """K, a new array."""
        K = np.zeros((self.n, self.n))
        for i, prior in zip(self.index, self.parts, strict=True):
            K[np.ix_(i, i)] = prior.dense()
        return K

    def vjp(self, M: Array, v: Array) -> Array:
        """⟨M, ∂K⟩ + vᵀ ∂m, from the blocks of M of each part, summed over parts with the same K."""
        total, of_K = np.zeros(self.theta.size), dict[int, Array]()
        for i, prior, first in zip(self.index, self.parts, self.alike, strict=True):
            block = M[np.ix_(i, i)]
            of_K[first] = of_K[first] + block if first in of_K else block
            total += prior.model.mean_vjp(self.theta, v[i])
        for first, block in of_K.items():
            total += self.parts[first].model.cov_vjp(self.theta, block)
        return total

    @property
    def log_determinant(self) -> float:
        """log|K|."""
        return float(np.sum([prior.log_determinant for prior in self.parts]))
