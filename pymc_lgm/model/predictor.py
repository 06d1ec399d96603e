"""The linear predictor f = c(theta) + A(theta) x of a model's latent variables x.

The samplers move f, in which the observations are independent, with its prior
N(c, A Q⁻¹ Aᵀ), in which x is integrated out; x given f is drawn back: see
`pymc_lgm.model.draw_back`. So intercepts, coefficients and effects are no hyper-parameters, and
every sampler of one Gaussian vector is one of a sum of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors

from pymc_lgm.linalg import Array
from pymc_lgm.model import refusals
from pymc_lgm.model.affine_graph import AffineGraph, moved_a_little
from pymc_lgm.model.blocks import Block, of_each, of_raveled
from pymc_lgm.model.compiling import called_once
from pymc_lgm.model.elements import columns_move, distinct_elements
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.hyperparameters import name_of
from pymc_lgm.model.jumps import jump_in
from pymc_lgm.model.reads import reads_of
from pymc_lgm.model.structure import (
    basis_of_range,
    is_of_full_rank,
    order_of,
    structure_of,
)

__all__ = ["Predictor"]

Variable = Any

FEW = 1 / 3
"""Variables for each element of f, solved for at the price of one factorization."""


class Predictor:
    """f = c(theta) + A(theta) x, x ~ N(0, Q⁻¹) in blocks, as graphs and as numbers.

    Parameters
    ----------
    setting : Setting

    Attributes
    ----------
    size : int
        E: elements of f, the different elements of the frontier.
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
    index : ndarray of int or None
        Which element of f each element of the frontier is, if they are not the same.
    is_free : ndarray of bool
        Which elements of the frontier depend on no latent variable.
    """

    def __init__(self, setting: Setting):
        model, shapes, at = setting.model, setting.shapes, setting.at
        self._theta, self._place, self._model = setting.theta, setting.place, model
        latents, frontier = setting.reading.latents, setting.reading.frontier
        self._latents = latents
        graph = AffineGraph(setting)
        self._x, parts, nodes = graph.x, graph.parts, graph.nodes
        self._raw_of_values, self._raw, self.values = graph.of_values, graph.raw, graph.values
        self.frontier_shapes = self._shapes(frontier, nodes, at)

        uses = set(ancestors([self._raw]))
        self._others = [v for v in setting.others if v in uses]
        c, A = self._look(at)
        moving = [self._theta, *self._others]
        here = {v: v.get_value(borrow=True) for v in self._others} | {self._theta: at}
        here[self._x] = np.zeros(A[0].shape[1])
        first, index = distinct_elements(self._raw, [self._x, *moving], here)
        # Elements that depend on no latent, as the zeros of a reference class, are left out of f.
        (reads,) = reads_of([self._raw], self._x, here, most=1)
        self.is_free = reads.counts == 0
        if self.is_free.any():
            kept = ~self.is_free[first]
            first, index = first[kept], (np.cumsum(kept) - 1)[index]
        self.size, self.n_latents = first.size, A[0].shape[1]
        self.index = None if np.array_equal(index, np.arange(first.size)) else index
        A = [each[first] for each in A]
        move = columns_move(self._raw, self._x, parts, moving)
        self.blocks = [
            Block(latent, part, shape, *structure_of(A[0][:, part], moves))
            for latent, part, shape, moves in zip(latents, parts, shapes, move, strict=True)
        ]
        # What holds a process as it is can be anything: no need to look at n columns.
        whole = any(block.structure == "identity" for block in self.blocks)
        self.basis = None if whole else basis_of_range(A, setting.label)
        if not whole:
            self._refuse_jumps(jump_in(self._raw, self._x, parts, moving), A)
        self.first = first
        picked = self._raw if np.array_equal(first, np.arange(c[0].size)) else self._raw[first]
        self.predictor = picked
        self.mean = clone_replace(picked, {self._x: pt.zeros(self.n_latents)})
        self.covs = self._covariances(model)
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

    @property
    def x(self) -> Variable:
        """The vector x."""
        return self._x

    def pieces(self, f: Variable) -> list[Variable]:
        """The frontier's variables, made of a vector f."""
        flat = f if self.index is None else f[self.index[~self.is_free]]
        if self.is_free.any():
            zeros = pt.zeros(self.n_latents)
            c = clone_replace(self._raw_of_values, {self._x: zeros}, rebuild_strict=False)
            flat = c[np.flatnonzero(~self.is_free)].set(flat)
        pieces, end = [], 0
        for shape in self.frontier_shapes:
            begin, end = end, end + int(np.prod(shape))
            pieces.append(flat[begin:end].reshape(shape))
        return pieces

    def describe(self) -> list[str]:
        """A line a block: its name, size, kind of prior, and structure of A."""
        lines = []
        for block in self.blocks:
            kind = "dense" if block.latent.variances is None else "independent"
            kind += ", whitened in the model" if block.latent.is_whitened else ""
            shape = " × ".join(map(str, block.shape)) or "1"
            lines.append(f"{block.latent.rv.name} ({shape}): {kind}; A {block.structure}")
        return lines

    def _shapes(
        self,
        frontier: Sequence[Variable],
        nodes: dict[Variable, Variable],
        at: Array,
    ) -> list[tuple[int, ...]]:
        graphs = [clone_replace(v, nodes, rebuild_strict=False).shape for v in frontier]
        shapes = self._place([pt.as_tensor(s) for s in graphs])
        values = called_once([self._x, self._theta], shapes)(np.zeros(self._x.type.shape[0]), at)
        return [tuple(int(length) for length in shape) for shape in values]

    def _look(self, at: Array) -> tuple[list[Array], list[Array]]:
        """c and A at three theta, and a proof that the graph is affine at two random x.

        Raises
        ------
        ValueError
            If it is not.
        """
        rng = np.random.default_rng(0)
        N = int(self._x.type.shape[0])
        rows = pt.matrix("rows", shape=(None, N))
        many = called_once([rows, self._theta], vectorize_graph(self._raw, {self._x: rows}))
        two = rng.standard_normal((2, N))
        points = np.vstack([np.zeros(N), np.eye(N), two])
        c, A = [], []
        for k, theta in enumerate((at, *(at + 0.3 * rng.standard_normal((2, at.size))))):
            with moved_a_little(self._others if k else [], rng):
                out = np.asarray(many(points, theta), dtype=np.float64)
            if not np.isfinite(out).all():
                label = " + ".join(str(latent.rv.name) for latent in self._latents)
                bad = int(np.argwhere(~np.isfinite(out))[0, 1])
                raise ValueError(refusals.not_finite(label, bad))
            c.append(out[0])
            A.append(_without_rounding((out[1:-2] - out[0]).T, c[-1][:, None]))
            expected = c[-1] + two @ A[-1].T
            if not np.allclose(out[-2:], expected, rtol=1e-8, atol=1e-8 * (1 + np.abs(c[-1]))):
                raise ValueError(refusals.not_affine())
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
        N = int(self._x.type.shape[0])
        units = pt.constant(np.eye(N)[block.part])
        moved = vectorize_graph(self.predictor, {self._x: units})
        return (moved - self.mean).T


def _without_rounding(A: Array, c: Array) -> Array:
    """A = (c + A) − c, with its zeros and ones as they are without the rounding of c + A."""
    whole = np.clip(np.round(A), 0.0, 1.0)
    error = 2 * np.spacing(np.abs(c) + np.abs(A))
    return np.where(np.abs(A - whole) <= error, whole, A)
