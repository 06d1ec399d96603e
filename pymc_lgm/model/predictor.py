"""The linear predictor f = c(theta) + A(theta) x of a model's latent variables x.

The samplers move f, in which the observations are independent, with its prior
N(c, A Q⁻¹ Aᵀ), in which x is integrated out; x given f is drawn back: see
`pymc_lgm.model.draw_back`. So intercepts, coefficients and effects are no hyper-parameters, and
every sampler of one Gaussian vector is one of a sum of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors

from pymc_lgm.linalg import Array
from pymc_lgm.model import refusals
from pymc_lgm.model.affine_graph import AffineGraph
from pymc_lgm.model.columns import columns_move, jump_in
from pymc_lgm.model.compiling import called_once
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.hyperparameters import name_of
from pymc_lgm.model.latents import Latent
from pymc_lgm.model.refutations import (
    generator,
    moved_a_little,
    refuse_what_is_not_affine,
    thetas_near,
)

__all__ = ["Block", "Predictor", "basis_of_range", "order_of", "structure_of"]

Variable = Any

FEW = 1 / 3
"""Variables for each element of f, solved for at the price of one factorization."""

TINY = 1e-300
"""Length of a column of zeros."""


class Block(NamedTuple):
    """A latent variable's part of x and of A.

    Attributes
    ----------
    latent : Latent
    part : slice
        Where it is in x.
    shape : tuple of int
    structure : str
        Of its columns of A: "identity", "index" (a row has a 1 or nothing), "constant" or "dense
        in theta".
    columns : ndarray, shape (E, N_b), or None
        Of A, if they do not depend on theta.
    """

    latent: Latent
    part: slice
    shape: tuple[int, ...]
    structure: str
    columns: Array | None


class Predictor:
    """f = c(theta) + A(theta) x, x ~ N(0, Q⁻¹) in blocks, as graphs and as numbers.

    Parameters
    ----------
    setting : Setting
    graph : AffineGraph

    Attributes
    ----------
    x : variable
        The vector x.
    size, n_latents : int
        E and N: elements of f, the different elements of the frontier, and of x.
    elements : Elements
        Of the frontier.
    blocks : list of Block
    mean, cov : variable
        c(theta), shape (E,), and the covariance of f, or of w where there is a basis.
    cov_of_values : list of variable
        What ``cov`` is made of, as graphs of the model's value variables.
    basis : ndarray, shape (E, r), or None
        U with orthonormal columns, f = c + U w, where f has fewer degrees of freedom than elements.
    first : ndarray of int
        Where each element of f is first in the frontier.
    order : ndarray of int or None
        Which element of f each of x is, if f is x in another order, and its mean.
    """

    def __init__(self, setting: Setting, graph: AffineGraph):
        self._theta, self._place, self._model = setting.theta, setting.place, setting.model
        self._latents = setting.reading.latents
        self.x, self.n_latents, self.values = graph.x, graph.size, graph.values
        self._raw_of_values, self._raw = graph.of_values, graph.raw
        c, A = self._look(setting)
        self.elements = graph.elements(1)
        first = self.first = self.elements.first
        self.size = first.size
        A = [each[first] for each in A]
        moving = [setting.theta, *setting.others]
        move = columns_move(graph.raw, graph.x, graph.parts, moving)
        self.blocks = [
            Block(latent, part, shape, *structure_of(A[0][:, part], moves))
            for latent, part, shape, moves in zip(
                self._latents, graph.parts, setting.shapes, move, strict=True
            )
        ]
        if not any(block.columns is None or block.columns.any() for block in self.blocks):
            raise ValueError(refusals.moves_nothing(setting.label))
        # What holds a process as it is can be anything: no need to look at n columns.
        whole = any(block.structure == "identity" for block in self.blocks)
        self.basis = None if whole else basis_of_range(A, setting.label)
        if not whole:
            self._refuse_jumps(jump_in(graph.raw, graph.x, graph.parts, moving), A)
        is_whole = np.array_equal(first, np.arange(c[0].size))
        self.predictor = graph.raw if is_whole else graph.raw[first]
        self.mean = clone_replace(self.predictor, {graph.x: pt.zeros(graph.size)})
        self.covs = self._covariances(setting.model)
        self.cov = self._total()
        self.order = order_of([block.columns for block in self.blocks])

    def _refuse_jumps(self, jumps: Sequence[Any], A: Sequence[Array]) -> None:
        """Raise if the range of A may be another beyond a threshold that no look has passed."""
        steady = [block.part for block, jump in zip(self.blocks, jumps, strict=True) if not jump]
        if len(steady) == len(jumps):
            return
        columns = [A[-1][:, part] for part in steady]
        if columns and is_of_full_rank(np.hstack(columns)):
            return
        which, node = next((k, jump) for k, jump in enumerate(jumps) if jump is not None)
        name = str(self.blocks[which].latent.rv.name)
        raise ValueError(refusals.range_jumps(name, name_of(node)))

    def vectors(self) -> list[tuple[NDArray[np.intp], Variable, Variable]]:
        """Independent processes that f is made of, if it is nothing else.

        Which elements of f each has, and its covariance, as a graph of theta and of the model's
        value variables.
        """
        if self.order is None or any(block.latent.covariance is None for block in self.blocks):
            return []
        found = []
        for block in self.blocks:
            n = block.shape[-1]
            positions = self.order[block.part].reshape(-1, n)
            covs = of_each(block.latent.covariance, block.shape)
            found += list(zip(positions, covs, strict=True))
        of_values = self._model.replace_rvs_by_values([cov for _, cov in found])
        placed = self._place(of_values)
        return [(i, a, b) for (i, _), a, b in zip(found, placed, of_values, strict=True)]

    def process_and_few(self) -> int | None:
        """Which block is a process that f is, but for few independent variables beside it."""
        dense = [k for k, block in enumerate(self.blocks) if block.latent.variances is None]
        beside = self.n_latents - self.size
        if len(dense) != 1 or not 0 < beside <= FEW * self.size:
            return None
        block = self.blocks[dense[0]]
        read_as_it_is = block.structure == "identity" and not block.latent.is_whitened
        return dense[0] if read_as_it_is and self.basis is None else None

    def describe(self) -> list[str]:
        """A line a block: its name, size, kind of prior, and structure of A."""
        lines = []
        for block in self.blocks:
            kind = "dense" if block.latent.variances is None else "independent"
            kind += ", whitened in the model" if block.latent.is_whitened else ""
            shape = " × ".join(map(str, block.shape)) or "1"
            lines.append(f"{block.latent.rv.name} ({shape}): {kind}; A {block.structure}")
        return lines

    def _look(self, setting: Setting) -> tuple[list[Array], list[Array]]:
        """c and A at three theta.

        Raises
        ------
        ValueError
            If they are not finite, or refuted by two random x.
        """
        rng = generator()
        uses = set(ancestors([self._raw]))
        others = [v for v in setting.others if v in uses]
        N = self.n_latents
        rows = pt.matrix("rows", shape=(None, N))
        many = called_once([rows, setting.theta], vectorize_graph(self._raw, {self.x: rows}))
        two = rng.standard_normal((2, N))
        points = np.vstack([np.zeros(N), np.eye(N), two])
        c, A = [], []
        for k, theta in enumerate(thetas_near(setting.at, 2, rng)):
            with moved_a_little(others if k else [], rng):
                out = np.asarray(many(points, theta), dtype=np.float64)
            if not np.isfinite(out).all():
                bad = int(np.argwhere(~np.isfinite(out))[0, 1])
                raise ValueError(refusals.not_finite(setting.label, bad))
            c.append(out[0])
            A.append(_without_rounding((out[1:-2] - out[0]).T, c[-1][:, None]))
            refuse_what_is_not_affine(out[-2:], c[-1], A[-1], two)
        return c, A

    def _covariances(self, model: pm.Model) -> list[Variable]:
        """Of each block of x: a matrix, or a vector of variances."""
        graphs = []
        for block in self.blocks:
            latent = block.latent
            if latent.variances is None:
                graphs.append(of_raveled(latent.covariance, block.shape))
            else:
                graphs.append(pt.broadcast_to(latent.variances, block.shape).ravel())
        graphs = model.replace_rvs_by_values(graphs)
        moving = any(block.columns is None for block in self.blocks)
        self.cov_of_values = [*graphs, *([self._raw_of_values] if moving else [])]
        return self._place(graphs)

    def _total(self) -> Variable:
        """Σ_b A_b K_b A_bᵀ, or of Uᵀ A_b."""
        if self.is_identity:
            (K,) = self.covs
            return K if K.ndim == 2 else pt.diag(K)
        parts = zip(self.blocks, self.covs, strict=True)
        seen = [(block, K) for block, K in parts if block.columns is None or block.columns.any()]
        return sum(self._of_block(block, K) for block, K in seen)

    @property
    def is_identity(self) -> bool:
        """Whether f is x, with its mean."""
        return len(self.blocks) == 1 and self.blocks[0].structure == "identity"

    def _of_block(self, block: Block, K: Variable) -> Variable:
        independent = block.latent.variances is not None
        if self.basis is None and block.structure in ("identity", "index"):
            assert block.columns is not None
            rows, read = block.columns.argmax(axis=1), block.columns.any(axis=1)
            both = np.outer(read, read).astype(np.float64)
            if independent:
                return (both * (rows[:, None] == rows)) * K[rows][:, None]
            if block.structure == "identity":
                return K
            return K[rows][:, rows] if read.all() else both * K[rows][:, rows]
        columns = self.columns(block)
        if self.basis is not None:
            columns = pt.dot(self.basis.T, columns)
        return pt.dot(columns * K, columns.T) if independent else columns @ K @ columns.T

    def columns(self, block: Block) -> Variable:
        """A_b: numbers, or a graph of theta."""
        if block.columns is not None:
            return pt.constant(block.columns)
        units = pt.constant(np.eye(self.n_latents)[block.part])
        moved = vectorize_graph(self.predictor, {self.x: units})
        return (moved - self.mean).T


def _without_rounding(A: Array, c: Array) -> Array:
    """A = (c + A) − c, with its zeros and ones as they are without the rounding of c + A."""
    whole = np.clip(np.round(A), 0.0, 1.0)
    error = 2 * np.spacing(np.abs(c) + np.abs(A))
    return np.where(np.abs(A - whole) <= error, whole, A)


def of_raveled(cov: Variable, shape: tuple[int, ...]) -> Variable:
    """The covariance of all vectors of a batch together."""
    if len(shape) == 1:
        return cov
    return pt.linalg.block_diag(*of_each(cov, shape))


def of_each(cov: Variable, shape: tuple[int, ...]) -> list[Variable]:
    """The covariance of each vector of a batch."""
    *batch, n = shape
    count = int(np.prod(batch))
    if cov.ndim == 2:
        return [cov] * count
    each = pt.broadcast_to(cov, (*batch, n, n)).reshape((count, n, n))
    return [each[i] for i in range(count)]


def structure_of(columns: Array, moves: bool) -> tuple[str, Array | None]:
    """Of columns of A, and the columns if nothing moves them."""
    if moves:
        return "dense in theta", None
    one_hot = np.isin(columns, (0.0, 1.0)).all() and (columns.sum(axis=1) <= 1.0).all()
    if one_hot and np.array_equal(columns, np.eye(columns.shape[1])):
        return "identity", columns
    return ("index" if one_hot else "constant"), columns


def order_of(columns: Sequence[Array | None]) -> NDArray[np.intp] | None:
    """Which row has the 1 of each column, if A is a permutation matrix."""
    known = [each for each in columns if each is not None]
    if len(known) < len(columns):
        return None
    A = np.hstack(known)
    square = A.shape[0] == A.shape[1] and np.isin(A, (0.0, 1.0)).all()
    if not square or (A.sum(axis=0) != 1.0).any() or (A.sum(axis=1) != 1.0).any():
        return None
    return A.argmax(axis=0)


def norm_of(columns: Array) -> Array:
    """Lengths of columns."""
    result: Array = np.sqrt((columns**2).sum(axis=0))
    return result


def is_of_full_rank(columns: Array) -> bool:
    """Whether they span everything."""
    if columns.shape[1] < columns.shape[0]:
        return False
    scaled = columns / np.maximum(norm_of(columns), TINY)
    return int(np.linalg.matrix_rank(scaled, tol=1e-9)) == len(columns)


def basis_of_range(A: list[Array], latents: str = "f") -> Array | None:
    """Of the range of A, the same at every theta; ``None`` if that is everything.

    ``latents`` is what a message calls x.
    """
    E = len(A[0])
    # Columns of length one: a short length-scale must not hide the column of an intercept.
    columns = np.hstack(A)
    U, s, _ = np.linalg.svd(columns / np.maximum(norm_of(columns), TINY), full_matrices=False)
    rank = int((s > 1e-9 * s.max(initial=0.0)).sum())
    each = [int(np.linalg.matrix_rank(a / np.maximum(norm_of(a), TINY), tol=1e-9)) for a in A]
    if each[0] < min(each[1:], default=rank) == rank:
        raise ValueError(refusals.range_is_less_at_the_start(latents, E, each[0], rank))
    if min(each) < rank:
        raise ValueError(refusals.range_moves(latents, E, min(each)))
    if rank == E:
        return None
    return np.ascontiguousarray(U[:, :rank])
