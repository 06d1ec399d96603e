"""The linear predictor as one vector of a graph, of the latent variables as one vector x."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc.vartypes import continuous_types
from pytensor.graph.replace import clone_replace

from pymc_lgm.model.affine import with_dense_products
from pymc_lgm.model.forms.base import Setting

__all__ = ["AffineGraph", "moved_a_little"]

Variable = Any


class AffineGraph:
    """c(theta) + A(theta) x, raveled, x the latents without their means, one after another.

    Parameters
    ----------
    setting : Setting
    whole : collection of int
        Which of the latents are in x with their means.
    sums : mapping of int to list of tuple
        Of which latents x has cumulative sums: a factor, and what is the factor times the sum in
        the graph, of the first sum, of the sum of that, and so on.

    Attributes
    ----------
    x : variable
        (N,).
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
    ):
        model, latents = setting.model, setting.reading.latents
        sizes = [int(np.prod(shape)) for shape in setting.shapes]
        ends = np.cumsum(sizes)
        self.parts = [
            slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)
        ]
        self.x = pt.vector("x", shape=(int(ends[-1]),))
        # Copies of random variables would be others: all are replaced in the same copy.
        own = [latent.rv for latent in latents]
        known = [rv for rv in model.basic_RVs if rv not in own]
        nodes = dict(zip(known, model.replace_rvs_by_values(known), strict=True))
        values: list[Variable] = []
        triples = zip(latents, self.parts, setting.shapes, strict=True)
        for k, (latent, part, shape) in enumerate(triples):
            z = self.x[part].reshape(shape)
            nodes[latent.node] = z
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


@contextmanager
def moved_a_little(others: Sequence[Variable], rng: np.random.Generator) -> Iterator[None]:
    """Look at a model where other steps have moved their continuous variables.

    Where they begin a coefficient may be 0, and hide what it multiplies.
    """
    kept = [(v, v.get_value()) for v in others if v.dtype in continuous_types]
    try:
        for v, value in kept:
            v.set_value(value + 0.3 * rng.standard_normal(value.shape))
        yield
    finally:
        for v, value in kept:
            v.set_value(value)
