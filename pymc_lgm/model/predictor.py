"""The linear predictor f = c(theta) + A(theta) x of a model's latent variables x.

The observations are independent given f. The prior of f is N(c, A Q⁻¹ Aᵀ), with x integrated out.
The samplers move f, and `pymc_lgm.model.draw_back` draws x given f. So intercepts, coefficients and
effects are not hyper-parameters, and every sampler of one Gaussian vector can sample a sum of them.

Elements of the predictor that are the same expression are one element of f. Elements that depend on
no latent variable, such as the zeros of a reference class, are not in f. `AffineGraph` is the
predictor as a graph, and `Predictor` is the map with c and A for a dense prior of f.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors

from pymc_lgm.compile.graphs.functions import called_once
from pymc_lgm.linalg import Array
from pymc_lgm.model import refusals
from pymc_lgm.model.affine import with_dense_products
from pymc_lgm.model.columns import columns_move, jump_in
from pymc_lgm.model.cumulative_sums import CumulativeSums
from pymc_lgm.model.elements import distinct_elements
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.latents import Latent
from pymc_lgm.model.operations import Variable, name_of
from pymc_lgm.model.reads import Evaluation, Reads, reads_of
from pymc_lgm.model.refutations import (
    SMALLEST,
    generator,
    moved_a_little,
    of_norm_one,
    rank_of,
    refuse_what_is_not_affine,
    thetas_near,
)
from pymc_lgm.model.scales import Scales, scales_of

__all__ = [
    "AffineGraph",
    "Block",
    "Elements",
    "Predictor",
    "basis_of_range",
    "order_of",
    "structure_of",
]

Index = NDArray[np.intp]

FEW = 1 / 3
"""Most independent variables beside a process, as a share of the elements of f."""


@dataclass(frozen=True, eq=False)
class Elements:
    """The different elements of a linear predictor.

    Attributes
    ----------
    first : ndarray of int
        The first position of each in the predictor.
    index : ndarray of int
        For each element of the predictor its number here; arbitrary if the element is free.
    is_free : ndarray of bool
        Whether each element of the predictor depends on no latent variable.
    reads : Reads
        The elements of x that each element of the predictor reads.
    """

    first: Index
    index: Index
    is_free: NDArray[np.bool_]
    reads: Reads

    @property
    def read(self) -> Index:
        """``index`` of the elements of the predictor that are not free."""
        return self.index[~self.is_free]


class AffineGraph:
    """c(theta) + A(theta) x, raveled, where x has the latents without their means.

    Parameters
    ----------
    setting : Setting
    whole : collection of int
        Latents that are in x with their means.
    extended : mapping of int to tuple of int
        Latents that are in x themselves, instead of their unconstrained coordinates, and their
        shapes.
    sums : mapping of int to CumulativeSums
        Latents of which x has cumulative sums.
    predictor : sequence of variable, optional
        The frontier's variables, written in another way.

    Attributes
    ----------
    x : variable
        The vector x, shape (N,).
    size : int
        N.
    parts : list of slice
        The part of x for each latent.
    nodes : dict
        The graph that replaces each random variable.
    of_values : variable
        The predictor as a graph of x and the model's value variables.
    raw : variable
        The predictor as a graph of x and theta.
    values : list of variable
        The latents, with their means, as PyMC samples them.
    moving : list of variable
        Theta, and variables of other steps.
    """

    def __init__(
        self,
        setting: Setting,
        whole: Collection[int] = (),
        sums: Mapping[int, CumulativeSums] | None = None,
        extended: Mapping[int, tuple[int, ...]] | None = None,
        predictor: Sequence[Variable] | None = None,
    ):
        self._setting = setting
        self.moving = [setting.theta, *setting.others]
        model = setting.model
        latents = setting.reading.latents
        extended = extended or {}
        shapes = [extended.get(k, shape) for k, shape in enumerate(setting.shapes)]
        sizes = [int(np.prod(shape)) for shape in shapes]
        ends = np.cumsum(sizes)
        self.parts = [
            slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)
        ]
        self.size = int(ends[-1])
        self.x = pt.vector("x", shape=(self.size,))
        # A copy of a random variable is another variable, so all are replaced in the same copy.
        own = [latent.rv for latent in latents]
        known = [rv for rv in model.basic_RVs if rv not in own]
        nodes = dict(zip(known, model.replace_rvs_by_values(known), strict=True))
        values: list[Variable] = []
        triples = zip(latents, self.parts, shapes, strict=True)
        for k, (latent, part, shape) in enumerate(triples):
            found = None if sums is None else sums.get(k)
            z = self.x[part].reshape(shape) if found is None else found.of_flat(self.x[part], shape)
            nodes[latent.node] = z
            if k in extended and latent.zero_sum is not None:
                values.append(latent.zero_sum.forward(z))
                continue
            mean = None
            if k not in whole:
                mean = clone_replace(latent.mean, nodes, rebuild_strict=False)
                mean = pt.broadcast_to(mean.astype("float64"), shape)
            # x has the last of the cumulative sums; the sums before it are its differences.
            sums_of_z = [z]
            if found is not None:
                for _ in found.later:
                    sums_of_z.insert(0, found.differences(sums_of_z[0]))
            values.append(sums_of_z[0] if mean is None else mean + sums_of_z[0])
            nodes[latent.node] = latent.extended(values[-1])
            if found is None:
                continue
            for (factor, variable), of_z in zip(found.later, sums_of_z[1:], strict=True):
                if mean is not None:
                    mean = pt.cumsum(mean, axis=found.axis)
                total = of_z if mean is None else mean + of_z
                nodes[variable] = clone_replace(factor, nodes, rebuild_strict=False) * total
        parts = setting.reading.frontier if predictor is None else predictor
        flat = pt.concatenate([v.astype("float64").ravel() for v in parts])
        self.nodes = nodes
        of_x = clone_replace(flat, nodes, rebuild_strict=False)
        (self.of_values,) = with_dense_products([of_x])
        self.raw, *self.values = setting.place([self.of_values, *values])

    @property
    def _start(self) -> dict[Variable, Array]:
        """Values at which ``raw`` can be computed."""
        return {self.x: np.zeros(self.size)} | self._setting.start

    @cached_property
    def scales(self) -> Scales:
        """c + A' x and the factors s, where A is A' diag(s)."""
        return scales_of(self.raw, self.x, self.parts, self.moving, self._start)

    @cached_property
    def columns_move(self) -> list[bool]:
        """Whether, for each latent, its columns of A' may depend on the variables in ``moving``."""
        return columns_move(self.scales.output, self.x, self.parts, self.moving)

    def elements(self, most: int, *, apart: bool = False) -> Elements:
        """Find the different elements of the predictor.

        Parameters
        ----------
        most : int
            Most elements of x that are listed for an element of the predictor.
        apart : bool
            Whether all elements count as different, equal or not.
        """
        at = Evaluation([self.raw], self._start)
        (reads,) = reads_of(at, self.x, most=most)
        if apart:
            first = index = np.arange(reads.counts.size)
        else:
            first, index = distinct_elements(at)
        is_free = reads.counts == 0
        kept = ~is_free[first]
        return Elements(first[kept], (np.cumsum(kept) - 1)[index], is_free, reads)

    def cuts(self, flat: Variable, is_free: NDArray[np.bool_]) -> dict[Variable, Variable]:
        """The frontier's variables as graphs of the elements of the predictor that are not free."""
        setting = self._setting
        if is_free.any():
            c = clone_replace(self.of_values, {self.x: pt.zeros(self.size)}, rebuild_strict=False)
            flat = c[np.flatnonzero(~is_free)].set(flat)
        frontier = setting.reading.frontier
        graphs = [clone_replace(v, self.nodes, rebuild_strict=False).shape for v in frontier]
        graphs = setting.place([pt.as_tensor(shape) for shape in graphs])
        shapes = called_once([self.x, setting.theta], graphs)(np.zeros(self.size), setting.at)
        cuts, end = {}, 0
        for v, shape in zip(frontier, shapes, strict=True):
            begin, end = end, end + int(np.prod(shape))
            cuts[v] = flat[begin:end].reshape(tuple(int(length) for length in shape))
        return cuts


class Block(NamedTuple):
    """The part of x and the columns of A that belong to a latent variable.

    Attributes
    ----------
    latent : Latent
    part : slice
        Its elements of x.
    shape : tuple of int
    structure : str
        The kind of these columns of A, without their factors: "identity", "index" (each row has at
        most one 1, and zeros), "constant" or "dense in theta".
    columns : ndarray, shape (E, N_b), or None
        Its columns of A, without their factors, if they do not depend on theta.
    factors : variable, shape (N_b,), or None
        Numbers that multiply these columns in A, if there are some that depend on theta.
    """

    latent: Latent
    part: slice
    shape: tuple[int, ...]
    structure: str
    columns: Array | None
    factors: Variable | None

    @property
    def moves(self) -> bool:
        """Whether its columns of A depend on theta."""
        return self.columns is None or self.factors is not None

    @property
    def is_identity(self) -> bool:
        """Whether its columns of A are those of the identity."""
        return self.structure == "identity" and not self.moves


class Predictor:
    """The map f = c(theta) + A(theta) x of x ~ N(0, Q⁻¹), in blocks, as graphs and as arrays.

    If A is A' diag(s), with the factors s(theta) that `scales_of` finds and a constant A', each
    theta needs s alone.

    Parameters
    ----------
    setting : Setting
    graph : AffineGraph

    Attributes
    ----------
    graph : AffineGraph
    size : int
        E, the number of elements of f, which are the different elements of the frontier.
    elements : Elements
        The elements of the frontier.
    blocks : list of Block
    mean, cov : variable
        c(theta), shape (E,), and the covariance of f, or of w if there is a basis.
    cov_of_values : list of variable
        The inputs of ``cov``, as graphs of the model's value variables.
    basis : ndarray, shape (E, r), or None
        U with orthonormal columns, f = c + U w, if f has fewer degrees of freedom than elements.
    first : ndarray of int
        The first position of each element of f in the frontier.
    order : ndarray of int or None
        The element of f that each element of x is, apart from its factor, if each element of f is
        one of x.
    factors : variable, shape (N,), or None
        s(theta), if A has factors.
    """

    def __init__(self, setting: Setting, graph: AffineGraph):
        self._setting, self.graph = setting, graph
        move = graph.columns_move
        c, without_factors, A = self._look()
        self.elements = graph.elements(1)
        first = self.first = self.elements.first
        self.size = first.size
        columns = without_factors[0][first]
        A = [each[first] for each in A]
        self.blocks = [
            Block(
                latent,
                part,
                shape,
                *structure_of(columns[:, part], moves),
                graph.scales.of(part),
            )
            for latent, part, shape, moves in zip(
                setting.reading.latents, graph.parts, setting.shapes, move, strict=True
            )
        ]
        is_zero = not any(block.columns is None or block.columns.any() for block in self.blocks)
        if is_zero or not self.size:
            raise ValueError(
                f"The linear predictor does not depend on {setting.label!r}: its coefficients are "
                "zero. Leave it out, or name another latent variable: latent=[...]."
            )
        # If f contains a process unchanged, its range is everything: no need to look at n columns.
        whole = any(block.is_identity for block in self.blocks)
        lost = [
            repr(str(block.latent.rv.name))
            for block in self.blocks
            if A[1][:, block.part].any() and not A[0][:, block.part].any()
        ]
        if not any(move) and all((a.any(axis=0) == A[0].any(axis=0)).all() for a in A):
            # The range without factors. One that is 0 at all these theta may have underflowed.
            A = [columns]
        self.basis = None if whole else basis_of_range(A, setting.label, lost)
        if not whole:
            self._refuse_jumps(jump_in(graph.raw, graph.x, graph.parts, graph.moving), A)
        is_whole = np.array_equal(first, np.arange(c.size))
        self.predictor = graph.raw if is_whole else graph.raw[first]
        self.mean = clone_replace(self.predictor, {graph.x: pt.zeros(graph.size)})
        self.covs = self._covariances()
        self.cov = self._total()
        self.order = order_of([block.columns for block in self.blocks])
        self.factors = graph.scales.of(slice(0, graph.size))

    def _refuse_jumps(self, jumps: Sequence[Any], A: Sequence[Array]) -> None:
        """Raise if the range of A may differ beyond a threshold that no evaluated theta crossed."""
        steady = [block.part for block, jump in zip(self.blocks, jumps, strict=True) if not jump]
        if len(steady) == len(jumps):
            return
        columns = [A[-1][:, part] for part in steady]
        if columns and rank_of(np.hstack(columns)) == self.size:
            return
        which, node = next((k, jump) for k, jump in enumerate(jumps) if jump is not None)
        name = str(self.blocks[which].latent.rv.name)
        raise ValueError(
            f"How {name!r} enters the linear predictor depends on theta through {name_of(node)!r}, "
            "which has a threshold: beyond it other combinations of the predictor's elements may "
            "be possible, or fewer. The samplers need a range that does not depend on theta. Add "
            "an effect for each observation, pm.Normal('eps', 0, sigma, shape=n), or sample this "
            "model with pm.NUTS()."
        )

    def vectors(self) -> list[tuple[Index, Variable, list[Variable]]]:
        """The independent processes of f, times factors, if f consists of them alone.

        Returns a tuple for each process: its elements of f, its covariance as a graph of theta,
        and graphs of the model's value variables from which the covariance is computed.
        """
        if self.order is None or any(block.latent.covariance is None for block in self.blocks):
            return []
        found = []
        for block in self.blocks:
            n = block.shape[-1]
            positions = self.order[block.part].reshape(-1, n)
            factors = [None] * len(positions)
            if block.factors is not None:
                factors = [block.factors[k * n : (k + 1) * n] for k in range(len(positions))]
            covs = of_each(block.latent.covariance, block.shape)
            found += list(zip(positions, factors, covs, strict=True))
        of_values = self._setting.model.replace_rvs_by_values([cov for _, _, cov in found])
        placed = self._setting.place(of_values)
        vectors = []
        for (index, s, _), K, of_K in zip(found, placed, of_values, strict=True):
            scaled = K if s is None else s[:, None] * K * s
            vectors.append((index, scaled, [of_K, *([] if s is None else [self.graph.of_values])]))
        return vectors

    def main_process(self) -> int | None:
        """The index of the process that f is, apart from a few independent variables added."""
        dense = [k for k, block in enumerate(self.blocks) if block.latent.variances is None]
        beside = self.graph.size - self.size
        if len(dense) != 1 or not 0 < beside <= FEW * self.size:
            return None
        block = self.blocks[dense[0]]
        read_as_it_is = block.is_identity and not block.latent.is_whitened
        return dense[0] if read_as_it_is and self.basis is None else None

    def describe(self) -> list[str]:
        """Describe each block in a line: its name, size, kind of prior, and structure of A."""
        lines = []
        for block in self.blocks:
            kind = "dense" if block.latent.variances is None else "independent"
            kind += ", whitened in the model" if block.latent.is_whitened else ""
            shape = " × ".join(map(str, block.shape)) or "1"
            structure = block.structure
            if block.factors is not None:
                structure += ", with factors in theta"
            lines.append(f"{block.latent.rv.name} ({shape}): {kind}; A {structure}")
        return lines

    def _look(self) -> tuple[Array, list[Array], list[Array]]:
        """Evaluate c at the start, and A without and with its factors at three theta.

        Raises
        ------
        ValueError
            If they are not finite, or if the predictor at two random x is not c + A x.
        """
        setting, graph, rng = self._setting, self.graph, generator()
        uses = set(ancestors([graph.raw]))
        others = [v for v in setting.others if v in uses]
        N = graph.size
        rows = pt.matrix("rows", shape=(None, N))

        def at_rows(v: Variable) -> Callable[..., Any]:
            return called_once([rows, setting.theta], vectorize_graph(v, {graph.x: rows}))

        predictor = without_factors = at_rows(graph.raw)
        s_at = None
        if (factors := graph.scales.of(slice(0, N))) is not None:
            without_factors = at_rows(graph.scales.output)
            s_at = called_once([setting.theta], factors)
        two = rng.standard_normal((2, N))
        points = np.vstack([np.zeros(N), two])
        c, steady, whole = list[Array](), list[Array](), list[Array]()
        for k, theta in enumerate(thetas_near(setting.at, 2, rng)):
            with moved_a_little(others if k else [], rng):
                out = self._finite(predictor(points, theta))
                if not steady or any(graph.columns_move):
                    A = self._finite(without_factors(np.eye(N), theta)) - out[0]
                    steady.append(_without_rounding(A.T, out[0][:, None]))
                s = 1.0 if s_at is None else np.asarray(s_at(theta))
            c.append(out[0])
            whole.append(steady[-1] * s)
            refuse_what_is_not_affine(out[1:], out[0], whole[-1], two)
        return c[0], steady, whole

    def _finite(self, rows: Any) -> Array:
        """Values of the predictor at rows x, if they are finite."""
        rows = np.asarray(rows, dtype=np.float64)
        if not np.isfinite(rows).all():
            row, bad = np.argwhere(~np.isfinite(rows))[0].tolist()
            what = f"The linear predictor of {self._setting.label!r}"
            raise ValueError(refusals.not_finite(what, rows[row, bad], bad))
        return rows

    def _covariances(self) -> list[Variable]:
        """The covariance of each block of x: a matrix, or a vector of variances."""
        graphs = []
        for block in self.blocks:
            latent = block.latent
            if latent.variances is None:
                graphs.append(of_raveled(latent.covariance, block.shape))
            else:
                graphs.append(pt.broadcast_to(latent.variances, block.shape).ravel())
        graphs = self._setting.model.replace_rvs_by_values(graphs)
        moving = any(block.moves for block in self.blocks)
        self.cov_of_values = [*graphs, *([self.graph.of_values] if moving else [])]
        return self._setting.place(graphs)

    def _total(self) -> Variable:
        """Σ_b A_b K_b A_bᵀ, the covariance of f, with Uᵀ A_b for A_b if there is a basis."""
        if self.is_identity:
            (K,) = self.covs
            return K if K.ndim == 2 else pt.diag(K)
        parts = zip(self.blocks, self.covs, strict=True)
        seen = [(block, K) for block, K in parts if block.columns is None or block.columns.any()]
        return sum(self._of_block(block, K) for block, K in seen)

    @property
    def is_identity(self) -> bool:
        """Whether A is the identity."""
        return len(self.blocks) == 1 and self.blocks[0].is_identity

    def _of_block(self, block: Block, K: Variable) -> Variable:
        independent = block.latent.variances is not None
        if (s := block.factors) is not None:
            K = K * s**2 if independent else s[:, None] * K * s
        if self.basis is None and block.structure in ("identity", "index"):
            assert block.columns is not None
            rows, read = block.columns.argmax(axis=1), block.columns.any(axis=1)
            both = np.outer(read, read).astype(np.float64)
            if independent:
                return (both * (rows[:, None] == rows)) * K[rows][:, None]
            if block.structure == "identity":
                return K
            return K[rows][:, rows] if read.all() else both * K[rows][:, rows]
        columns = self._without_factors(block)
        if self.basis is not None and block.columns is not None:
            columns = pt.constant(self.basis.T @ block.columns)
        elif self.basis is not None:
            columns = pt.dot(self.basis.T, columns)
        return pt.dot(columns * K, columns.T) if independent else columns @ K @ columns.T

    def columns(self, block: Block) -> Variable:
        """A_b: a constant, or a graph of theta."""
        columns = self._without_factors(block)
        return columns if block.factors is None else columns * block.factors

    def _without_factors(self, block: Block) -> Variable:
        if block.columns is not None:
            return pt.constant(block.columns)
        units = pt.constant(np.eye(self.graph.size)[block.part])
        moved = vectorize_graph(self.predictor, {self.graph.x: units})
        return (moved - self.mean).T


def _without_rounding(A: Array, c: Array) -> Array:
    """A = (c + A) − c, where the zeros and ones of A are restored from the rounding of c + A."""
    whole = np.clip(np.round(A), 0.0, 1.0)
    error = 2 * np.spacing(np.abs(c) + np.abs(A))
    return np.where(np.abs(A - whole) <= error, whole, A)


def of_raveled(cov: Variable, shape: tuple[int, ...]) -> Variable:
    """The joint covariance of all vectors of a batch."""
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
    """The structure of columns of A, and the columns if they do not depend on theta."""
    if moves:
        return "dense in theta", None
    one_hot = np.isin(columns, (0.0, 1.0)).all() and (columns.sum(axis=1) <= 1.0).all()
    if one_hot and np.array_equal(columns, np.eye(columns.shape[1])):
        return "identity", columns
    return ("index" if one_hot else "constant"), columns


def order_of(columns: Sequence[Array | None]) -> Index | None:
    """The row of the 1 in each column, if A without its factors is a permutation matrix."""
    known = [each for each in columns if each is not None]
    if len(known) < len(columns):
        return None
    A = np.hstack(known)
    square = A.shape[0] == A.shape[1] and np.isin(A, (0.0, 1.0)).all()
    if not square or (A.sum(axis=0) != 1.0).any() or (A.sum(axis=1) != 1.0).any():
        return None
    return A.argmax(axis=0)


def basis_of_range(A: list[Array], latents: str = "f", lost: Sequence[str] = ()) -> Array | None:
    """An orthonormal basis of the range of A, or ``None`` if A has full rank.

    ``A`` has the matrices of several theta, whose range must be the same. In messages ``latents``
    is the name of x, and ``lost`` has the variables whose coefficients are 0 at the first theta.
    """
    E = len(A[0])
    U, s, _ = np.linalg.svd(of_norm_one(np.hstack(A)), full_matrices=False)
    rank = int((s > SMALLEST * s.max(initial=0.0)).sum())
    each = [rank_of(a) for a in A]
    if each[0] < min(each[1:], default=rank) == rank:
        raise ValueError(
            f"The {E} elements of the linear predictor of {latents!r} have {each[0]} degrees of "
            f"freedom at the starting point, and {rank} near it: the coefficient of "
            f"{' and of '.join(lost) or 'a latent variable'} is 0 there. Start it elsewhere, as in "
            "pm.Normal('beta', 0, 1, initval=0.5)."
        )
    if min(each) < rank:
        raise ValueError(
            f"The {E} elements of the linear predictor of {latents!r} have {min(each)} degrees of "
            "freedom, and which combinations are possible depends on theta. The samplers need a "
            "range that does not depend on theta. Write the prior on f itself, or sample this "
            "model with pm.NUTS()."
        )
    if rank == E:
        return None
    return np.ascontiguousarray(U[:, :rank])
