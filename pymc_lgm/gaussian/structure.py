"""Intrinsic Gaussian Markov random fields: precision R/σ² on a space of constraints Cᵀ x = 0.

R is symmetric and positive semidefinite, with a null space V of dimension r. A singular matrix has
no Cholesky factor. Therefore δ is added to r elements of its diagonal, the pins, which QR with
pivoting chooses from V. The sum Q is positive definite, and as sparse as R. A low-rank update
subtracts the same numbers again:

    Q = R + δ P Pᵀ,   R = Q + P (−δ I) Pᵀ,   P the columns of the identity at the pins.

See Rue and Held (2005), chapter 3. R is positive definite on the constraint space if no direction
of V satisfies the constraints.

R₁ ⊗ R₂ has n₁ r₂ + r₁ n₂ − r₁ r₂ constraints, too many for each factorization. Most of them are met
by coordinates. With R₂ = B Λ Bᵀ, Λ > 0, each row of x has x_i = B z_i, and the precision of z is
R₁ ⊗ Λ, which has r₁ (n₂ − r₂) constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from numpy.typing import ArrayLike
from scipy.linalg import block_diag, null_space, orth, qr
from scipy.sparse import csc_array, csr_array, diags_array, eye_array, issparse, kron
from scipy.sparse.csgraph import connected_components

from pymc_lgm.gaussian.content import ByContent
from pymc_lgm.gaussian.factors import (
    Constraints,
    Factor,
    FactorInBasis,
    ScaledFactor,
    UpdatedFactor,
    constrained_and_updated,
)
from pymc_lgm.gaussian.families import Family, FamilyAt
from pymc_lgm.gaussian.sparse import Pattern
from pymc_lgm.linalg import Array

__all__ = ["IntrinsicFamily", "IntrinsicMap", "Structure"]

MOST = 2000
"""Largest n for which the null space of R is computed by an eigenvalue decomposition, O(n³)."""

ROUNDING = 1e-10
"""Numbers below it count as rounding errors: |R_ij − R_ji| as a share of the largest element, and
squared cosines of angles between directions."""

UNCLEAR = 100.0
"""An eigenvalue below n ε times the largest counts as zero, where ε = 2.2e-16. One that is between
this bound and `UNCLEAR` times this bound may be zero or not, and the user must name the null space.
For a walk of order 2 with 2000 elements, the smallest positive eigenvalue is five times the
bound."""

MOST_PAIRS = 1e7
"""Largest number of pairs of coordinates that rows of x read in a basis. Each pair takes four
integers of eight bytes. The number is a choice."""

SINGULAR = 1e13
"""If a variance times the diagonal element of the precision exceeds it, the precision may be
singular. 2e11 was measured for a walk of order 2 with 10 000 elements."""


class Structure(ByContent):
    """A structure matrix R, its null space and the constraints on x.

    `walk`, `season` and `map` make the structures of a random walk, a season and a map. `of` makes
    one from any matrix.

    Parameters
    ----------
    R : sparse array, shape (n, n)
    null : ndarray, shape (n, r)
        Orthonormal columns that span the null space of R.
    constraint : ndarray, shape (n, k), optional
        C, orthonormal columns; ``null`` by default.
    within : tuple of sparse array and Structure, optional
        B, (n, m), and the structure Bᵀ R B of coordinates z, (m,), with x = B z for every x that
        satisfies the constraints. B has orthonormal columns. Coordinates z_j that one element of x
        reads are independent.

    Attributes
    ----------
    n, rank : int
        Elements of x, and n − k.
    """

    def __init__(
        self,
        R: csc_array,
        null: Array,
        constraint: Array | None = None,
        within: tuple[csr_array, Structure] | None = None,
    ):
        self.R, self.null, self.within = R, null, within
        self.constraint = null if constraint is None else constraint
        self.n, self.rank = R.shape[0], R.shape[0] - self.constraint.shape[1]

    @property
    def _content(self) -> tuple[np.ndarray, ...]:
        """R and the constraints."""
        R = self.R.sorted_indices()
        return R.data, R.indices, R.indptr, self.constraint

    def __repr__(self) -> str:
        return f"Structure(n={self.n}, rank={self.rank}, {self._digest[:12]})"

    @classmethod
    def of(cls, R: object, rows: object = None) -> Structure:
        """Check R, dense or sparse, and rows A of constraints A x = 0.

        Raises
        ------
        ValueError
            If R is not symmetric, not finite, not positive semidefinite, or not positive definite
            on the constraint space, or if rows are linearly dependent.
        """
        sparse = _as_sparse(R)
        n = sparse.shape[0]
        constraint = None if rows is None else _as_constraint(rows, n)
        null = _null_space(sparse) if n <= MOST else None
        if null is None:
            null = _given_null_space(sparse, constraint)
        self = cls(sparse, null, constraint)
        self.refuse_improper()
        return self

    @classmethod
    def walk(
        cls, n: int, order: int = 1, *, cyclic: bool = False, locations: ArrayLike | None = None
    ) -> Structure:
        """The structure of a random walk: see `RandomWalk`.

        Parameters
        ----------
        n : int
            Elements.
        order : {1, 2}
        cyclic : bool
            Whether the first element follows the last.
        locations : array_like, shape (n,), optional
            Where the elements are, increasing: by default at distance 1.

        Returns
        -------
        Structure

        Examples
        --------
        >>> import pymc_lgm as lgm
        >>> lgm.gmrf.Structure.walk(4).R.toarray()
        array([[ 1., -1.,  0.,  0.],
               [-1.,  2., -1.,  0.],
               [ 0., -1.,  2., -1.],
               [ 0.,  0., -1.,  1.]])
        """
        if order not in (1, 2):
            raise ValueError(f"order is {order!r}: a random walk has order 1 or 2.")
        least = 3 if cyclic else order + 1  # two elements in a circle would be neighbors twice
        if n < least:
            raise ValueError(f"The walk has {n} element(s): it needs {least} or more.")
        if cyclic:
            if locations is not None:
                raise ValueError("A cyclic walk has no locations: its elements are at distance 1.")
            D = csc_array(eye_array(n))
            shift = csc_array(D[:, np.roll(np.arange(n), 1)])  # (shift x)_i = x_{i+1}
            for _ in range(order):
                D = csc_array(shift @ D - D)
            return cls(csc_array(D.T @ D), np.full((n, 1), n**-0.5))
        t = np.arange(n, dtype=np.float64) if locations is None else _as_locations(locations, n)
        d = np.diff(t)
        if order == 1:
            D = diags_array([-np.ones(n - 1), np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n))
            return cls(_gram(D, 1.0 / d), np.full((n, 1), n**-0.5))
        a, b = 1.0 / d[:-1], 1.0 / d[1:]
        H = diags_array([a, -(a + b), b], offsets=[0, 1, 2], shape=(n - 2, n))
        # The centered locations are orthogonal to the ones. The range of t keeps their norm near 1.
        line = np.column_stack([np.ones(n), (t - t.mean()) / np.ptp(t)])
        return cls(_gram(H, 2.0 / (d[:-1] + d[1:])), line / np.linalg.norm(line, axis=0))

    @classmethod
    def season(cls, n: int, period: int) -> Structure:
        """The structure of a season: see `Seasonal`.

        Parameters
        ----------
        n, period : int

        Returns
        -------
        Structure

        Examples
        --------
        >>> import pymc_lgm as lgm
        >>> lgm.gmrf.Structure.season(4, 3).R.toarray()
        array([[1., 1., 1., 0.],
               [1., 2., 2., 1.],
               [1., 2., 2., 1.],
               [0., 1., 1., 1.]])
        """
        if period != int(period) or period < 2:
            raise ValueError(f"period is {period}: it is a whole number, 2 or more.")
        period = int(period)
        if n < period:
            raise ValueError(
                f"The series has {n} elements, and the period is {period}: it must not be longer "
                "than the series."
            )
        D = diags_array([1.0] * period, offsets=list(range(period)), shape=(n - period + 1, n))
        # The null space: patterns that repeat and sum to zero.
        pattern = np.eye(period)[np.arange(n) % period] @ orth(np.eye(period) - 1.0 / period)
        return cls(_gram(D), orth(pattern))

    @classmethod
    def map(cls, W: Any, *, scale: bool = False) -> Structure:
        """The structure of a map, D − W with D the row sums of W: see `ICAR`.

        In the row of an area without neighbors D is 1.

        Parameters
        ----------
        W : array or sparse matrix, shape (n, n)
            Symmetric weights of neighbors, as `pymc_lgm.spatial.adjacency` makes them.
        scale : bool
            Whether the geometric mean of the variances is 1 in each connected part.

        Returns
        -------
        Structure

        Examples
        --------
        >>> import pymc_lgm as lgm
        >>> W = lgm.spatial.adjacency([(0, 1), (1, 2)], 4)
        >>> lgm.gmrf.Structure.map(W).R.toarray()
        array([[ 1., -1.,  0.,  0.],
               [-1.,  2., -1.,  0.],
               [ 0., -1.,  1.,  0.],
               [ 0.,  0.,  0.,  1.]])
        """
        weights = csc_array(W if issparse(W) else np.asarray(W), dtype=np.float64)
        n, columns = weights.shape
        if n != columns:
            raise ValueError(f"W has shape {weights.shape}: it must be a square matrix.")
        weights.eliminate_zeros()
        if weights.nnz and abs(weights - weights.T).max() > 0.0:
            i, j = (int(each[0]) for each in (weights - weights.T).nonzero())
            raise ValueError(
                f"W is not symmetric: W[{i}, {j}] is {weights[i, j]:g}, and W[{j}, {i}] is "
                f"{weights[j, i]:g}. Neighbors are neighbors both ways."
            )
        if weights.diagonal().any():
            raise ValueError(
                f"Area {int(np.flatnonzero(weights.diagonal())[0])} is its own neighbor in W."
            )
        if not np.isfinite(weights.data).all() or (weights.data < 0.0).any():
            raise ValueError("W has a weight that is negative or not finite.")
        _, part = connected_components(weights, directed=False)
        sizes = np.bincount(part)
        is_island = sizes[part] == 1
        connected = np.flatnonzero(sizes > 1)
        R = csc_array(diags_array(weights.sum(axis=0) + is_island) - weights)
        null = np.zeros((n, connected.size))
        factor = np.ones(n)
        for k, each in enumerate(connected):
            inside = np.flatnonzero(part == each)
            null[inside, k] = inside.size**-0.5
            if scale:
                block = cls(csc_array(R[inside][:, inside]), null[inside, k : k + 1])
                factor[inside] = block.scaled().R[0, 0] / block.R[0, 0]
        # The factors are equal within a part, and R has no elements between parts: it stays
        # symmetric.
        return cls(csc_array(diags_array(factor) @ R), null)

    @classmethod
    def zero_sum(cls, shape: Sequence[int], axes: int) -> Structure:
        """Independent elements whose sums along each of the last ``axes`` axes are zero.

        Examples
        --------
        >>> from pymc_lgm.gaussian.structure import Structure
        >>> Structure.zero_sum((4, 3), 2).rank
        6
        """
        indices = np.indices(shape).reshape(len(shape), -1)
        # A sum along an axis is a group of the elements that agree in all other indices.
        sums = []
        for axis in range(len(shape) - axes, len(shape)):
            others = np.delete(indices, axis, axis=0)
            _, group = np.unique(others, axis=1, return_inverse=True)
            sums.append(np.eye(group.max() + 1)[group.ravel()])
        n = int(np.prod(shape))
        return cls(csc_array(eye_array(n)), np.zeros((n, 0)), orth(np.hstack(sums)))

    def refuse_improper(self) -> None:
        """Raise a ValueError if R is not positive definite on the constraint space."""
        r, k = self.null.shape[1], self.constraint.shape[1]
        if self.n - k < 1:
            raise ValueError(
                f"{k} constraints leave nothing of {self.n} elements: write fewer of them."
            )
        if r and self.constraint is not self.null:
            cosines = np.linalg.svd(self.constraint.T @ self.null, compute_uv=False)
            free = r - int((cosines > ROUNDING**0.5).sum())
            if free:
                raise ValueError(
                    f"The structure has a null space of dimension {r}, and the constraints leave "
                    f"{free} of its directions free, which have no proper prior. Leave out "
                    "constraint= to have the null space constrained, and add an effect with a "
                    "prior of its own for each direction that the model needs."
                )
        if self.within is not None:
            self.within[1].refuse_improper()
            return
        base, diagonal = self.base, self.R.diagonal()
        if (
            self._factor is None
            or base is None
            or not float((base.inverse_diagonal * diagonal).max()) < SINGULAR
        ):
            raise ValueError(
                "The structure is not positive definite on the constraint space, or next to "
                "singular, as a walk of order 2 with 100 000 elements is. The constraints must "
                "have all of its null space."
            )

    # Algebra

    @cached_property
    def pins(self) -> tuple[np.ndarray, float]:
        """The elements that are pinned, and δ."""
        r = self.null.shape[1]
        if r == 0:
            return np.zeros(0, dtype=np.intp), 0.0
        _, _, order = qr(self.null.T, mode="economic", pivoting=True)
        pins = np.sort(order[:r]).astype(np.intp)
        # Q⁻¹ is a generalized inverse of R, plus a matrix of size 1/δ. With this δ both have the
        # same size on average, so rounding loses neither.
        weak = float(self.R.diagonal().mean()) or 1.0  # R is 0 if there is one area
        factor = self._pattern.factorize(self._with(pins, weak))
        of_pins = np.linalg.solve(self.null[pins].T, self.null.T)
        times_delta = float((of_pins**2).sum(axis=0).mean())
        mean = np.nan if factor is None else float(factor.inverse_diagonal.mean())
        of_inverse = mean - times_delta / weak
        return pins, times_delta / of_inverse if of_inverse > 0.0 else weak

    @cached_property
    def _pattern(self) -> Pattern:
        return Pattern.of(self.R)

    def _with(self, pins: np.ndarray, delta: float) -> Array:
        """Numbers of the lower triangle of R + δ P Pᵀ."""
        values = self._pattern.elements(self.R)
        values[self._pattern.diagonal[pins]] += delta
        return values

    @cached_property
    def update(self) -> tuple[Array, Array]:
        """U = P and S = −δ I."""
        pins, delta = self.pins
        U = np.zeros((self.n, pins.size))
        U[pins, np.arange(pins.size)] = 1.0
        return U, -delta * np.eye(pins.size)

    @cached_property
    def base(self) -> Factor | None:
        """The factor of Q; ``None`` if Q is not numerically positive definite."""
        return self._pattern.factorize(self._with(*self.pins))

    @cached_property
    def _factor(self) -> Factor | None:
        if self.within is not None:
            B, inner = self.within
            return None if inner._factor is None else FactorInBasis(inner._factor, B)
        base = self.base
        if base is None:
            return None
        return constrained_and_updated(base, self.constraint, *self.update)

    @property
    def factor(self) -> Factor:
        """The factor of Eᵀ R E, x = E z: see `ConstrainedFactor`."""
        if self._factor is None:
            raise np.linalg.LinAlgError("The structure is not positive definite.")
        return self._factor

    @property
    def log_determinant(self) -> float:
        """log|Eᵀ R E|: the pseudo-determinant of R if the constraints are its null space."""
        return self.factor.log_determinant

    @cached_property
    def coordinates(self) -> Constraints:
        """x = E z."""
        return Constraints(self.constraint)

    @cached_property
    def elements(self) -> tuple[np.ndarray, np.ndarray, Array]:
        """Rows, columns and numbers of the lower triangle of R."""
        return *self._pattern.lower, self._pattern.elements(self.R)

    @property
    def pinned(self) -> Array:
        """Numbers of Q in the same order."""
        return self._with(*self.pins)

    def covariance(self) -> Array:
        """(Eᵀ R E)⁻¹ of the coordinates z, (n − k, n − k): O(n³)."""
        root = self.coordinates.reduce(self.factor.solve_transposed(np.eye(self.rank)))
        result: Array = root @ root.T
        return result

    # Structures computed from it, and draws

    def scaled(self) -> Structure:
        """Multiply R so that the geometric mean of the generalized variances (R⁻)_ii is 1.

        Sørbye and Rue (2014, section 3).
        """
        same = self.constraint is self.null
        variances = (self if same else Structure(self.R, self.null)).factor.inverse_diagonal
        return self._times(float(np.exp(np.log(variances).mean())))

    def _times(self, factor: float) -> Structure:
        """R times a number."""
        constraint = None if self.constraint is self.null else self.constraint
        within = None if self.within is None else (self.within[0], self.within[1]._times(factor))
        return Structure(csc_array(self.R * factor), self.null, constraint, within)

    def constrained(self, rows: object) -> Structure:
        """With other constraints A x = 0: see `of`."""
        self = Structure(self.R, self.null, _as_constraint(rows, self.n))
        self.refuse_improper()
        return self

    def product(self, other: Structure) -> Structure:
        """R₁ ⊗ R₂. Its null space has v₁ ⊗ x₂ and x₁ ⊗ v₂ if R₁ v₁ = 0 and R₂ v₂ = 0."""
        of_one = np.kron(self.null, np.eye(other.n))
        of_two = np.kron(null_space(self.null.T), other.null)
        R = csc_array(kron(self.R, other.R))
        null = np.hstack([of_one, of_two])
        return Structure(R, null, within=_within(self, other, R, null.shape[1]))


def _within(
    one: Structure, two: Structure, R: csc_array, k: int
) -> tuple[csr_array, Structure] | None:
    """Coordinates along one axis of R = R₁ ⊗ R₂; ``None`` if k constraints cost less.

    Each element of x reads t coordinates, t = n₂ − r₂ along the second axis. The posterior then has
    a dense t × t block for each row of x.
    """
    starts = Pattern.of(R).starts
    choices: list[tuple[float, int]] = [(_cost(np.diff(starts), 1, k), -1)]
    for axis, (along, kept) in enumerate(((one, two), (two, one))):
        t = along.n - along.null.shape[1]
        pairs = along.n * kept.n * t**2
        if k and 0 < pairs < MOST_PAIRS:
            heights = np.diff(Pattern.of(kept.R).starts)
            choices.append((_cost(heights, t, t * kept.null.shape[1]) + pairs, axis))
    _, axis = min(choices)
    if axis < 0:
        return None
    along, kept = (one, two) if axis == 0 else (two, one)
    values, B = _spectrum(along)
    parts = (diags_array(values), kept.R), (B, eye_array(kept.n)), (np.eye(values.size), kept.null)
    (a, b), (c, d), (e, f) = parts if axis == 0 else [each[::-1] for each in parts]
    inner = csc_array(kron(a, b))
    inner.eliminate_zeros()  # SciPy stores those of small blocks
    return csr_array(kron(c, d)), Structure(inner, np.kron(e, f))


def _cost(heights: np.ndarray, t: int, k: int) -> float:
    """Multiplications for columns of L in blocks of t, with k constraints and as many pins."""
    h = t * heights.astype(np.float64)
    return float(t * (h**2 + 4.0 * k * h + 4.0 * k**2).sum())


def _spectrum(structure: Structure) -> tuple[Array, Array]:
    """The positive eigenvalues of R, and their eigenvectors, (n, n − r)."""
    E = null_space(structure.null.T) if structure.null.size else np.eye(structure.n)
    values, vectors = np.linalg.eigh(E.T @ (structure.R @ E))
    return values, E @ vectors


def _gram(D: Any, weights: Array | float = 1.0) -> csc_array:
    """Dᵀ diag(w) D."""
    w = np.broadcast_to(weights, D.shape[0])
    return csc_array(D.T @ diags_array(np.asarray(w)) @ D)


def _as_locations(locations: ArrayLike, n: int) -> Array:
    if np.asarray(locations).dtype.kind in "mM":
        raise ValueError(
            "locations are dates or time spans, and σ is the standard deviation over a distance of "
            "1: write numbers in a unit of your choice, as (dates - dates[0]) / "
            'np.timedelta64(1, "D").'
        )
    t = np.asarray(locations, dtype=np.float64)
    if t.shape != (n,):
        raise ValueError(f"locations has shape {t.shape}, and the walk has {n} elements.")
    if not np.isfinite(t).all():
        raise ValueError(f"locations[{int(np.flatnonzero(~np.isfinite(t))[0])}] is not finite.")
    bad = np.flatnonzero(np.diff(t) <= 0.0)
    if bad.size:
        i = int(bad[0])
        if (np.sort(t)[1:] == np.sort(t)[:-1]).any():
            twice = float(np.sort(t)[:-1][np.diff(np.sort(t)) == 0.0][0])
            raise ValueError(
                f"{twice:g} is in locations twice. Write unique, index = np.unique(locations, "
                "return_inverse=True), a walk at unique, and walk[index]."
            )
        raise ValueError(
            f"locations are not sorted: {t[i]:g} comes before {t[i + 1]:g}. Write unique, index = "
            "np.unique(locations, return_inverse=True), a walk at unique, and walk[index]."
        )
    return t


def _as_sparse(R: object) -> csc_array:
    """As a sparse array of floats; a ValueError if it is not a symmetric matrix."""
    sparse = csc_array(R if issparse(R) else np.asarray(R), dtype=np.float64)
    n, columns = sparse.shape
    if n != columns or n == 0:
        raise ValueError(f"The structure has shape {sparse.shape}: it must be a square matrix.")
    if not np.isfinite(sparse.data).all():
        raise ValueError("The structure has an element that is not finite.")
    sparse.eliminate_zeros()
    size = abs(sparse).max() if sparse.nnz else 0.0
    if size == 0.0:
        raise ValueError("The structure is zero everywhere.")
    apart = csc_array(abs(sparse - sparse.T))
    if apart.nnz and apart.max() > ROUNDING * size:
        i, j = (int(each[0]) for each in (apart > ROUNDING * size).nonzero())
        raise ValueError(
            f"The structure is not symmetric: R[{i}, {j}] is {sparse[i, j]:g}, and R[{j}, {i}] is "
            f"{sparse[j, i]:g}. Write 0.5 * (R + R.T)."
        )
    return csc_array(0.5 * (sparse + sparse.T))


def _as_constraint(rows: object, n: int) -> Array:
    """Orthonormal columns of constraint rows A."""
    A = np.atleast_2d(rows.toarray() if issparse(rows) else np.asarray(rows, dtype=np.float64))  # type: ignore[attr-defined]
    if A.ndim != 2 or A.shape[1] != n:
        raise ValueError(
            f"constraint has shape {A.shape}: write a row per constraint, with {n} elements each."
        )
    if not np.isfinite(A).all():
        raise ValueError("constraint has an element that is not finite.")
    lengths = np.linalg.norm(A, axis=1)
    if (lengths == 0.0).any():
        raise ValueError(f"Row {int(np.argmin(lengths))} of constraint is zero: leave it out.")
    U, values, _ = np.linalg.svd((A / lengths[:, None]).T, full_matrices=False)
    dependent = int((values < ROUNDING**0.5 * values[0]).sum()) + max(len(A) - n, 0)
    if dependent:
        raise ValueError(
            f"{dependent} of the {len(A)} rows of constraint follow(s) from the others: leave out "
            "what says the same twice."
        )
    return np.asarray(U)


def _null_space(R: csc_array) -> Array | None:
    """By eigenvalues; ``None`` if one may be zero or not. A ValueError if one is negative."""
    eigenvalues, vectors = np.linalg.eigh(R.toarray())
    zero = len(eigenvalues) * np.finfo(float).eps * float(np.abs(eigenvalues).max())
    if eigenvalues[0] < -UNCLEAR * zero:
        raise ValueError(
            f"The structure is not positive semidefinite: its eigenvalues run from "
            f"{eigenvalues[0]:.3g} to {eigenvalues[-1]:.3g}."
        )
    sizes = np.abs(eigenvalues)
    if ((sizes > zero) & (sizes < UNCLEAR * zero)).any():
        return None
    return np.asarray(vectors[:, sizes <= zero])


def _given_null_space(R: csc_array, constraint: Array | None) -> Array:
    """The span of the constraints, if R is zero there, or none, if R is far from singular."""
    n = R.shape[0]
    slack = n * np.finfo(float).eps * float(abs(R).max())
    if constraint is not None and np.abs(R @ constraint).max(initial=0.0) <= slack:
        return constraint
    none = Structure(R, np.zeros((n, 0)))
    factor = none.base
    if factor is not None and (factor.inverse_diagonal * R.diagonal()).max() < SINGULAR:
        return none.null
    raise ValueError(
        f"The null space of this structure of {n} elements cannot be told by its eigenvalues, or "
        "would take too long. Write constraint= with rows that span it, and no others, or use "
        "lgm.gmrf.RandomWalk, Seasonal, ICAR or Interaction, which know theirs."
    )


class IntrinsicFamily(Family):
    """x ~ N(0, σ² R⁻) on the constraint space: a `Family` of one number σ.

    If the structure has coordinates, the precision is theirs.
    """

    def __init__(self, structure: Structure):
        basis, inner = (None, structure) if structure.within is None else structure.within
        rows, columns, self._elements = inner.elements
        super().__init__(structure.n, rows, columns, inner.update, inner.constraint, basis)
        self._structure, self._pinned = inner, inner.pinned

    def at(self, *values: Array) -> FamilyAt | None:
        """The field at σ; ``None`` if σ is not positive and finite."""
        sigma = float(values[0])
        if not 0.0 < sigma < np.inf:
            return None
        scale = 1.0 / sigma**2
        if not 0.0 < scale < np.inf:
            return None
        structure = self._structure
        factor = ScaledFactor(structure.factor, sigma, structure.rank)
        return FamilyAt(self.zero_mean, scale * self._pinned, factor, values, scale)

    def vjp(self, at: FamilyAt, elements: Array, mean: Array, log_weight: float) -> list[Array]:
        """∂(R/σ²) = −2 R/σ³, and ∂log|·| = −2 (n − k)/σ."""
        sigma = float(at.values[0])
        of_R = float(elements @ self._elements)
        total = -2.0 * (of_R / sigma**2 + log_weight * self._structure.rank) / sigma
        return [np.asarray(total)]


class IntrinsicMap(Family):
    """Areas as in `pymc.ICAR`, with constants σ and s: the same at every theta, without values.

    Differences of neighbors have the precision R/σ² with R = D − W, and the mean of x is N(0, s²).
    So the precision of x is R/σ² + 11ᵀ/(n s)², where the second term is dense. With the pin of
    `Structure` it is Q + U diag(1, −δ) Uᵀ, U = (1/(n s), P).

    A field of `pymc_lgm.gmrf` has constraints instead of s: see `IntrinsicFamily`.

    Parameters
    ----------
    W : sparse array, shape (n, n)
        Symmetric weights of a connected map, whose row sums are D.
    sd : float
        s > 0, the standard deviation of the mean.
    sigma : float
        σ.
    """

    def __init__(self, W: csc_array, sd: float, sigma: float = 1.0):
        n = W.shape[0]
        R = csc_array((diags_array(W.sum(axis=0)) - W) / sigma**2)
        structure = Structure(R, np.full((n, 1), n**-0.5))
        P, S = structure.update
        mean = np.full((n, 1), 1.0 / (n * sd))
        update = np.hstack([mean, P]), block_diag(1.0, S)
        rows, columns, _ = structure.elements
        super().__init__(n, rows, columns, update)
        base = structure.base
        if base is None:
            raise np.linalg.LinAlgError("The map is not connected.")
        factor = UpdatedFactor.of(base, *update)
        if factor is None:
            raise np.linalg.LinAlgError("The standard deviation of the mean is lost to rounding.")
        self.factor = factor
        self._always = FamilyAt(self.zero_mean, structure.pinned, factor, ())

    def at(self, *values: Array) -> FamilyAt | None:
        """The same at every theta."""
        return self._always

    def vjp(self, at: FamilyAt, elements: Array, mean: Array, log_weight: float) -> list[Array]:
        """Nothing depends on theta."""
        return []
