"""Independent parts of f conditioned on sites that each join one f_i of every part.

As the classes of a softmax do, or a mean and its noise. Rasmussen and Williams (2006), Algorithm
3.3 and §3.5: C + 1 factorizations of G × G in place of one of C G × C G.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.linalg import Array, CholeskyFactor, factorize
from pymc_lgm.priors.dense import DensePrior
from pymc_lgm.priors.dense_posterior import DensePosterior, Joinable, joined_by
from pymc_lgm.priors.precision import SiteBlocks, rooted

__all__ = ["JoinedPosterior", "condition_jointly"]


class InParts(Joinable, Protocol):
    """A prior of independent parts."""

    @property
    def index(self) -> Sequence[NDArray[np.intp]]:
        """Which elements of f a part has."""

    @property
    def priors(self) -> Sequence[DensePrior]:
        """Their priors."""


class Part(NamedTuple):
    """What one part has of the algebra; rows of all arrays are sets, in their order."""

    prior: DensePrior
    of: NDArray[np.intp]  # which f_i
    local: NDArray[np.intp]  # which element of the part's own prior
    in_order: bool  # all of them, as they are
    root: Array  # D^½
    v: Array
    B: CholeskyFactor  # I + D^½ K D^½
    inverse: Array  # B⁻¹


def condition_jointly(W: SiteBlocks, prior: InParts) -> DensePosterior | None:
    """Condition on W, part by part if it is made for that, otherwise as one dense prior."""
    place = _places(W.sets, prior.index)
    form = None if place is None else W.less_one
    parts: list[Part] = []
    if place is None or form is None:
        return joined_by(W, prior)
    D, v, gap = (x if x.ndim == 1 else np.take_along_axis(x, place, 1) for x in form)
    sets = np.take_along_axis(W.sets, place, 1)
    M = np.diag(gap)
    for c, (index, part) in enumerate(zip(prior.index, prior.priors, strict=True)):
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


class JoinedPosterior(DensePosterior):
    """See `Posterior`. W_g = D_g^½ (I − v_g v_gᵀ) D_g^½, each g with one f_i of every part.

    With B_c = I + D_c^½ K_c D_c^½, T_c = D_c^½ B_c⁻¹ D_c^−½, S_c = K_c T_c = (K_c⁻¹ + D_c)⁻¹, and
    U the diagonal matrices D_c^½ v_c above each other,

        Σ = (S⁻¹ − U Uᵀ)⁻¹ = S + S U M⁻¹ Uᵀ S,    M = I − Uᵀ S U = I − Σ_c v_c² + Σ_c v_c B_c⁻¹ v_c,

    |B| = |M| ∏ |B_c|. Nothing is lost in a difference where I − v_g v_gᵀ is next to singular, as
    it is of classes: what an observation says of all of them at once is nothing.

    What its few users ask of the root of a dense B is made when they ask.
    """

    def __init__(
        self, prior: InParts, W: SiteBlocks, parts: Sequence[Part], across: CholeskyFactor
    ):
        self.prior, self.precision, self._W = prior, W, rooted(W)
        self._parts, self._M, self._joinable, self._sets = parts, across, (W, prior), W.sets

    @cached_property
    def _B(self) -> CholeskyFactor:  # type: ignore[override]  # an attribute there
        dense = joined_by(*self._joinable)
        if dense is None:
            raise ValueError("K + W⁻¹ cannot be factorized: raise the jitter of the covariance.")
        return dense._B

    @property
    def log_determinant(self) -> float:
        """log|B|."""
        return self._M.log_determinant + sum(part.B.log_determinant for part in self._parts)

    def dual(self, b: Array) -> Array:
        """(I + W K)⁻¹ b = T (b + U M⁻¹ Uᵀ K T b)."""
        column = (...,) if b.ndim == 1 else (..., None)
        out = np.empty_like(b)
        for part in self._parts:
            root = part.root[column]
            out[part.of] = root * (part.inverse @ (b[part.of] / root))
        K_out = self.prior.covariance_times(out)
        seen = [(part.root * part.v)[column] * K_out[part.of] for part in self._parts]
        explained = self._M.inverse_times(_columns(np.sum(seen, axis=0)))
        for part in self._parts:
            out[part.of] += part.root[column] * (part.inverse @ (part.v[column] * explained))
        return out

    def spread(self, x: Array) -> float:
        """xᵀ Σ x."""
        return float(x @ self.covariance_times(x))

    def given(self, r: Array) -> Array:
        """K W^½ B⁻¹ r = Σ W^½ r."""
        return self.covariance_times(self._W.root_times(r))

    @cached_property
    def _solved(self) -> list[Array]:
        """L_M⁻¹ v_c B_c⁻¹, G × G, of each part."""
        return [self._M.solve((part.inverse * part.v).T) for part in self._parts]

    @cached_property
    def site_covariances(self) -> Array:
        """Σ's blocks: that of S, and of S U M⁻¹ Uᵀ S with S_c U_c = D_c^−½ (I − B_c⁻¹) v_c."""
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
        place = np.argmax(self._sets[:, :, None] == of[:, None, :], axis=2)
        rows = np.arange(G)[:, None, None]
        ordered: Array = sigma[rows, place[:, :, None], place[:, None, :]]
        return ordered

    def differentiable(self) -> JoinedPosterior:
        """Each B_c⁻¹ is there."""
        return self

    def evidence_gradient(self, a: Array, v: Array | None = None) -> Array:
        """See `Posterior`. Of (K + W⁻¹)⁻¹ parts have D^½ (B⁻¹ − B⁻¹ v M⁻¹ v B⁻¹) D^½."""
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
    """Where in each set the f_i of each part is, (G, C); ``None`` if one has none, or several."""
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
    """Where BLAS need not copy it."""
    return x if x.ndim == 1 else np.asfortranarray(x)
