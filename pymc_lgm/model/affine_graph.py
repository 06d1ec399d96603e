"""The linear predictor as one vector, a graph of one vector x of all latent variables.

Elements of the predictor that are the same expression are one element of f. Elements that depend on
no latent variable, such as the zeros of a reference class, are not in f.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.graph.replace import clone_replace

from pymc_lgm.compile.graphs.functions import called_once
from pymc_lgm.model.affine import with_dense_products
from pymc_lgm.model.cumulative_sums import CumulativeSums
from pymc_lgm.model.elements import distinct_elements
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.reads import Evaluation, Reads, reads_of

__all__ = ["AffineGraph", "Elements"]

Variable = Any
Index = NDArray[np.intp]


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

    def elements(self, most: int, *, apart: bool = False) -> Elements:
        """Find the different elements of the predictor.

        Parameters
        ----------
        most : int
            Most elements of x that are listed for an element of the predictor.
        apart : bool
            Whether all elements count as different, equal or not.
        """
        at = Evaluation([self.raw], {self.x: np.zeros(self.size)} | self._setting.start)
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
