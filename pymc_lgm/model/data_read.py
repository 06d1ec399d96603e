"""Data that decide how a model is read, which must not be replaced afterwards.

Observed values stay variables of the compiled functions, which use new ones. Inputs of the
predictor are read once. If they were replaced, a chain would sample a mixture of two models.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pymc as pm

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.linalg.constructors import BaseBlockDiagonal
from pytensor.tensor.linalg.products import KroneckerProduct
from pytensor.tensor.linalg.solvers.core import SolveBase

from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.model.fingerprint import described
from pymc_lgm.model.operations import INDEXING, OF_SHAPES, Variable, core_of
from pymc_lgm.model.reading import Reading

__all__ = [
    "DataRead",
    "data_behind",
    "is_apart_from_data",
    "matrix_functions",
    "observed_behind",
]

LINEAR_ALGEBRA = "pytensor.tensor.linalg"
"""The module of PyTensor's functions of matrices: factors, inverses, solutions, determinants."""

ROW_BY_ROW = (BaseBlockDiagonal, KroneckerProduct)
"""Operations of that module whose rows have the data of a row of each input."""


class DataRead:
    """The shared data that decide how a model is read, with a hash of each.

    Parameters
    ----------
    reading : Reading
        If f is a single vector, its mean and covariance stay functions of data; indices do not.
    picking : iterable of shared variable
        Data by which a density selects elements that depend on f, such as labels of classes.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_lgm.model import find_latents
    >>> from pymc_lgm.model.data_read import DataRead
    >>> with pm.Model() as model:
    ...     x = pm.Data("x", [0.0, 1.0, 2.0])
    ...     eta = pm.Normal("b", 0, 1) * x + pm.Normal("e", 0, 1, shape=3)
    ...     y = pm.Poisson("y", pm.math.exp(eta), observed=[1, 0, 2])
    >>> data = DataRead(find_latents(model))
    >>> data.changed()
    []
    >>> pm.set_data({"x": [1.0, 1.0, 2.0]}, model=model)
    >>> data.changed()
    ['x']
    """

    def __init__(self, reading: Reading, picking: Iterable[Variable] = ()):
        nodes = {latent.node for latent in reading.latents}
        if reading.is_one_vector:
            read = list(ancestors(reading.frontier, blockers=nodes))
        else:
            parameters = [v for latent in reading.latents for v in latent.rv.owner.inputs]
            read = list(ancestors([*reading.frontier, *parameters]))
        indices = [
            index
            for v in ancestors(reading.terms, blockers=nodes)
            if isinstance(op_of(v), INDEXING)
            for index in v.owner.inputs[1:]
        ]
        read += ancestors(indices, blockers=nodes)
        shared = dict.fromkeys(v for v in read if isinstance(v, SharedVariable))
        self._hashes = [(v, _now(v)) for v in shared if not _is_generator(v)]
        self._picking = [(v, _now(v)) for v in picking if v not in shared]

    def changed(self) -> list[str]:
        """Names of data that have changed."""
        return [str(v.name) for v, known in self._hashes if _now(v) != known]

    def picked_anew(self) -> list[str]:
        """Names of data in ``picking`` that have changed."""
        return [str(v.name) for v, known in self._picking if _now(v) != known]


def data_behind(graphs: Iterable[Variable]) -> dict[str, Variable]:
    """The shared data whose values graphs depend on, by name; their shapes alone do not count."""
    graphs = list(graphs)
    shapes = [v for v in ancestors(graphs) if isinstance(op_of(v), OF_SHAPES)]
    behind = ancestors(graphs, blockers=shapes)
    return {str(v.name): v for v in behind if isinstance(v, SharedVariable)}


def is_apart_from_data(model: pm.Model, x: Variable) -> bool:
    """Whether a variable depends on no `pymc.Data`, not even on their shapes."""
    return set(model.data_vars).isdisjoint(ancestors([x]))


def observed_behind(model: pm.Model, graphs: Iterable[Variable]) -> dict[str, Variable]:
    """The values of observed variables that graphs depend on, by the names of the variables."""
    reached = set(ancestors(graphs))
    values = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    return {str(rv.name): v for rv, v in values.items() if not reached.isdisjoint((rv, v))}


def matrix_functions(graphs: Iterable[Variable]) -> list[Variable]:
    """Factors, inverses and other functions of whole matrices behind graphs.

    In f = A v with such an A, each row depends on the data of all rows: v belongs to the data of
    the trace, as whitened draws do to L. Columns of the right-hand side of an equation are apart
    from each other, so that of a solution only the matrix is listed.
    """
    found = []
    for v in ancestors(graphs):
        op = core_of(op_of(v))
        if not type(op).__module__.startswith(LINEAR_ALGEBRA) or isinstance(op, ROW_BY_ROW):
            continue
        in_columns = isinstance(op, SolveBase) and op.b_ndim == 2
        found.append(v.owner.inputs[0] if in_columns else v)
    return found


def _is_generator(v: Any) -> bool:
    return isinstance(v.get_value(borrow=True), np.random.Generator)


def _now(v: Any) -> Any:
    return described(v.get_value(borrow=True))
