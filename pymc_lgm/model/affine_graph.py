"""The linear predictor as one vector of a graph, of the latent variables as one vector x.

Elements that are the same expression are one element of f, and those that depend on no latent
variable are none, as the zeros of a reference class.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.graph.replace import clone_replace

from pymc_lgm.linalg import Array
from pymc_lgm.model.affine import with_dense_products
from pymc_lgm.model.compiling import called_once
from pymc_lgm.model.elements import distinct_elements
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.reads import Reads, reads_of

__all__ = ["AffineGraph", "Elements"]

Variable = Any
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Elements:
    """The different elements of a linear predictor.

    Attributes
    ----------
    first : ndarray of int
        Where each of them is first in the predictor.
    index : ndarray of int
        Which of them each element of the predictor is; of one that is free it says nothing.
    is_free : ndarray of bool
        Which elements of the predictor depend on no latent variable.
    reads : Reads
        What each element of the predictor reads of x.
    """

    first: Index
    index: Index
    is_free: NDArray[np.bool_]
    reads: Reads

    @property
    def read(self) -> Index:
        """Which of them the elements of the predictor are that are not free."""
        return self.index[~self.is_free]


class AffineGraph:
    """c(theta) + A(theta) x, raveled, x the latents without their means, one after another.

    Parameters
    ----------
    setting : Setting
    whole : collection of int
        Which of the latents are in x with their means.
    extended : mapping of int to tuple of int
        Which of the latents are in x as they are in the model, not by their coordinates, and their
        shapes.
    sums : mapping of int to list of tuple
        Of which latents x has cumulative sums: a factor, and what is the factor times the sum in
        the graph, of the first sum, of the sum of that, and so on.

    Attributes
    ----------
    x : variable
        (N,).
    size : int
        N.
    parts : list of slice
        Where in x each latent is.
    nodes : dict
        What stands for each random variable.
    of_values : variable
        The predictor, a graph of x and of the model's value variables.
    raw : variable
        The same of x and theta.
    values : list of variable
        The latents, with their means, as PyMC samples them.
    """

    def __init__(
        self,
        setting: Setting,
        whole: Collection[int] = (),
        sums: Mapping[int, list[tuple[Variable, Variable]]] | None = None,
        extended: Mapping[int, tuple[int, ...]] | None = None,
    ):
        self._setting = setting
        model, latents = setting.model, setting.reading.latents
        extended = extended or {}
        shapes = [extended.get(k, shape) for k, shape in enumerate(setting.shapes)]
        sizes = [int(np.prod(shape)) for shape in shapes]
        ends = np.cumsum(sizes)
        self.parts = [
            slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)
        ]
        self.size = int(ends[-1])
        self.x = pt.vector("x", shape=(self.size,))
        # Copies of random variables would be others: all are replaced in the same copy.
        own = [latent.rv for latent in latents]
        known = [rv for rv in model.basic_RVs if rv not in own]
        nodes = dict(zip(known, model.replace_rvs_by_values(known), strict=True))
        values: list[Variable] = []
        triples = zip(latents, self.parts, shapes, strict=True)
        for k, (latent, part, shape) in enumerate(triples):
            z = self.x[part].reshape(shape)
            nodes[latent.node] = z
            if k in extended and latent.zero_sum is not None:
                values.append(latent.zero_sum.forward(z))
                continue
            mean = None
            if k not in whole:
                mean = clone_replace(latent.mean, nodes, rebuild_strict=False)
                mean = pt.broadcast_to(mean.astype("float64"), shape)
            # x has the last of the cumulative sums; those before are its differences.
            later = [] if sums is None else sums.get(k, [])
            sums_of_z = [z]
            for _ in later:
                last = sums_of_z[0]
                sums_of_z.insert(0, last - pt.concatenate([[0.0], last[:-1]]))
            values.append(sums_of_z[0] if mean is None else mean + sums_of_z[0])
            nodes[latent.node] = latent.extended(values[-1])
            for (factor, variable), of_z in zip(later, sums_of_z[1:], strict=True):
                if mean is not None:
                    mean = pt.cumsum(mean)
                total = of_z if mean is None else mean + of_z
                nodes[variable] = clone_replace(factor, nodes, rebuild_strict=False) * total
        flat = pt.concatenate([v.astype("float64").ravel() for v in setting.reading.frontier])
        self.nodes = nodes
        predictor = clone_replace(flat, nodes, rebuild_strict=False)
        (self.of_values,) = with_dense_products([predictor])
        self.theta = setting.theta
        self.raw, *self.values = setting.place([self.of_values, *values])

    @cached_property
    def start(self) -> dict[Variable, Array]:
        """Values of x and of all else that it is a function of."""
        return {self.x: np.zeros(self.size)} | self._setting.start

    def elements(self, most: int, *, apart: bool = False) -> Elements:
        """Its different elements.

        Parameters
        ----------
        most : int
            Elements of x that are told apart in what an element reads.
        apart : bool
            Whether each element is one by itself.
        """
        (reads,) = reads_of([self.raw], self.x, self.start, most=most)
        if apart:
            first = index = np.arange(reads.counts.size)
        else:
            first, index = distinct_elements(self.raw, list(self.start), self.start)
        is_free = reads.counts == 0
        kept = ~is_free[first]
        return Elements(first[kept], (np.cumsum(kept) - 1)[index], is_free, reads)

    def cuts(self, flat: Variable, is_free: NDArray[np.bool_]) -> dict[Variable, Variable]:
        """The frontier's variables, made of the elements of the predictor that are not free."""
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
