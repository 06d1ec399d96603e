"""The form of f for processes with inducing variables.

V, with f = V v, is n × m and costs O(n m²) operations, and so does the variance of f given v, which
likelihoods read. Both are computed once per theta, and kept for the last ones: see `LastThetas`.
"""

from __future__ import annotations

import math

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular

from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.gaussian import InducingPrior, Prior
from pymc_lgm.likelihoods.registry import are_weights
from pymc_lgm.linalg import Array
from pymc_lgm.model.forms.base import (
    Direction,
    Form,
    FormModel,
    LastThetas,
    PriorAt,
    Probe,
    Setting,
)
from pymc_lgm.model.forms.rows import maps_by_rows
from pymc_lgm.model.operations import Variable, core_of, squared

__all__ = ["CachedAtTheta", "ThroughInducing"]


class ThroughInducing(Form):
    """f = (V v, v), with the coordinates v ~ N(0, I). Densities read V v.

    For several processes, such as those of classes, f = (V_1 v_1, ..., V_C v_C, v_1, ..., v_C).
    Processes that are columns of one matrix have the same V.

    Attributes
    ----------
    at_theta : CachedAtTheta
        V, and other functions of theta.
    """

    algebra = "a dense matrix of inducing variables"
    by_covariance, has_theta_gradient = False, False
    is_close, fewest = True, 2

    at_theta: CachedAtTheta

    def __init__(self, setting: Setting):
        super().__init__(setting)
        latents = setting.reading.latents
        self.of_values = setting.model.replace_rvs_by_values([each.through for each in latents])
        self._maps = setting.place(self.of_values)
        roots = [root_of(V) for V in self._maps]
        self._roots = [] if None in roots else roots
        self.can_fix_f = bool(self._roots)
        self.cov = pt.concatenate([V.ravel() for V in self._maps])
        lengths = setting.compiled([setting.theta], [x for V in self._maps for x in V.shape])
        sizes = [int(length) for length in lengths(setting.at)]
        self._outputs = [math.prod(shape[1:]) for shape in setting.shapes]
        self._shapes = list(zip(self._outputs, sizes[::2], sizes[1::2], strict=True))
        self._seen = [n for C, n, _ in self._shapes for _ in range(C)]
        self._sizes = [C * m for C, _, m in self._shapes]
        self.rank = sum(self._sizes)
        self.n = sum(self._seen) + self.rank
        self.mean = pt.zeros(self.n)
        self.f = pt.vector("f", shape=(self.n,))
        ends = np.cumsum([C * n for C, n, _ in self._shapes]).tolist()
        self.cuts = {}
        for latent, (C, n, _), end in zip(latents, self._shapes, ends, strict=True):
            f = self.f[end - C * n : end]
            self.cuts[latent.node] = f if latent.rv.ndim == 1 else f.reshape((C, n)).T
        rvs = [latent.rv for latent in latents]
        names = [str(rv.name).removesuffix("_u_rotated_") for rv in rvs]
        self._names = [name.removesuffix("_weights") for name in names]
        self._exact = all(map(are_weights, rvs))
        self.caveats = {} if self._exact else {"optimal_variational": True}
        self.has_sets = self.sets() is not None
        self._setting = setting

    def prepare(self, densities: list[Variable]) -> list[Variable]:
        """Densities of f and of shared variables that are set to their values at theta."""
        theta = self._setting.theta
        self.theta_graphs = theta_alone(densities, self.f, theta)
        roots = bool(self._roots)
        if roots:
            shapes = [(n, m) for _, n, m in self._shapes]
            function = maps_by_rows(
                self._setting, self._maps, shapes, self._roots, self.theta_graphs
            )
        else:
            function = self._setting.compiled([theta], [*self._maps, *self.theta_graphs])
        self.at_theta = CachedAtTheta(
            function, self._setting.at, self.theta_graphs, self._outputs, roots
        )
        placed = dict(zip(self.theta_graphs, self.at_theta.shared, strict=True))
        known: list[Variable] = clone_replace(densities, placed, rebuild_strict=False)
        return known

    def sets(self) -> NDArray[np.intp] | None:
        """Sets of the i-th elements of all processes, and of single v_j; ``None`` if they differ.

        Processes of different lengths, or only one, have no such sets.
        """
        C = len(self._seen)
        n = self._seen[0]
        if C == 1 or len(set(self._seen)) > 1:
            return None
        sets = np.full((n + self.rank, C), -1, dtype=np.intp)
        sets[:n] = np.arange(C * n).reshape(C, n).T
        sets[n:, 0] = np.arange(C * n, self.n)
        return sets

    def wrap(
        self, function: Callable[..., Any], inputs: list[Variable], outputs: list[Variable]
    ) -> Callable[..., Any]:
        """A function of theta that first sets the shared variables, if it reads any of them."""
        if set(ancestors(outputs)).isdisjoint(self.at_theta.shared):
            return function
        where = inputs.index(self._setting.theta)

        def there(*arguments: Any) -> Any:
            self.at_theta.place(arguments[where])
            return function(*arguments)

        return there

    def prior_of(self, model: FormModel) -> PriorAt:
        """The prior of inducing variables with the cached V."""
        return lambda theta: InducingPrior.at(self.at_theta, theta)

    def f_of(self, prior_at: PriorAt, theta: Array, values: list[Array]) -> Array:
        """f = (V v, v)."""
        prior = prior_at(theta)
        v = np.concatenate([value.T.ravel() for value in values])
        return np.full(self.n, np.nan) if prior is None else prior.multiply(v)

    def values_of(self, rng: np.random.Generator, prior: Prior, f: Array) -> list[Array]:
        """v_1, ..., v_C, or matrices whose columns are some of them."""
        v = np.split(f[-self.rank :], np.cumsum(self._sizes)[:-1])
        shapes = self._setting.shapes
        return [x.reshape(shape[::-1]).T.copy() for x, shape in zip(v, shapes, strict=True)]

    def probe(self, prior: Prior, rng: np.random.Generator) -> Probe | None:
        """Means and curvatures of coordinates that are standard normal."""
        shapes = self._setting.shapes
        xi = [rng.standard_normal(shape) for shape in shapes]
        square = sum(float((each**2).sum()) for each in xi)
        return Probe([np.zeros(shape) for shape in shapes], [Direction("ξ", xi, square, None)])

    def describe(self) -> list[str]:
        """The processes, and the posterior that is sampled."""
        how = "by {} random features" if self._exact else "seen through {} inducing variables"
        seen = [
            f"{name} ({n if latent.rv.ndim == 1 else f'{n} × {C}'}) {how.format(m)}"
            for name, latent, (C, n, m) in zip(
                self._names, self._setting.reading.latents, self._shapes, strict=True
            )
        ]
        whose = "" if self._exact else ": samples the optimal variational posterior"
        return [", ".join(seen) + whose]

    def forget(self) -> None:
        """Clear the cached V and other functions of theta."""
        self.at_theta.forget()

    def explain(self, model: FormModel, prior_at: PriorAt, theta: Array, where: str) -> str | None:
        """Say that K_uu cannot be factorized."""
        if prior_at(theta) is not None:
            return None
        names = ", ".join(self._names)
        return (
            f"The covariance at the inducing points of {names} is not positive definite, or not "
            f"finite, {where}. Points that are close together do this. Write fewer of them, or "
            "gp.prior('f', X, Xu=Z, jitter=1e-4)."
        )


class CachedAtTheta:
    """A cache of each V at a theta, and of the functions of theta that densities read.

    Parameters
    ----------
    function : callable
        theta -> each V, shape (n, m); if there are ``roots``, each R, shape (m, m); and the values
        of ``read``. With ``roots``, all of a V is NaN if one element is not finite.
    theta : ndarray, shape (p,)
        The first theta.
    read : list of variable
    outputs : list of int
        For each V, the number of processes that have it.
    roots : bool

    Attributes
    ----------
    shared : list of shared variable
        Variables for ``read``, which `place` sets.
    """

    def __init__(
        self,
        function: Callable[[Array], list[NDArray[Any]]],
        theta: Array,
        read: Sequence[Variable],
        outputs: Sequence[int],
        roots: bool,
    ):
        self._function = function
        self._processes = sum(outputs)
        self._counts = [*outputs, *outputs] if roots else [*outputs]
        self._looked_at = 1 if roots else None
        self._last = LastThetas[tuple[list[Array] | None, list[NDArray[Any]]]]()
        of_theta = function(theta)
        values = of_theta[len(self._counts) :]
        self.shared: list[Variable] = [
            # PyTensor broadcasts only along an axis of known length 1.
            pytensor.shared(np.asarray(value), shape=v.type.shape)
            for v, value in zip(read, values, strict=True)
        ]
        self._at: bytes | None = None

    def forget(self) -> None:
        """Clear the cache, since a variable of another step has moved."""
        self._last.forget()
        self._at = None

    def maps(self, theta: Array) -> list[Array] | None:
        """V of each process, (n, m); ``None`` if a K_uu cannot be factorized."""
        arrays, _ = self._last.at(theta, self._found_at)
        return None if arrays is None else arrays[: self._processes]

    def roots(self, theta: Array) -> list[Array] | None:
        """R of each process; ``None`` if there is no K_uu, or if it cannot be factorized."""
        arrays, _ = self._last.at(theta, self._found_at)
        return None if arrays is None else arrays[self._processes :] or None

    def place(self, theta: Array) -> None:
        """Set the shared variables to their values at theta."""
        key = theta.tobytes()
        if key == self._at:
            return
        _, values = self._last.at(theta, self._found_at)
        for shared, value in zip(self.shared, values, strict=True):
            shared.set_value(np.asarray(value), borrow=True)
        self._at = key

    def _found_at(self, theta: Array) -> tuple[list[Array] | None, list[NDArray[Any]]]:
        """Each V and each R, ``None`` if one cannot be computed; and the values of ``read``."""
        try:
            of_theta = self._function(theta)
        except np.linalg.LinAlgError:
            return None, [s.get_value() for s in self.shared]
        ends = len(self._counts)
        found, values = of_theta[:ends], of_theta[ends:]
        if not all(np.isfinite(V[: self._looked_at]).all() for V in found):
            return None, values
        return [V for V, C in zip(found, self._counts, strict=True) for _ in range(C)], values


def root_of(V: Variable) -> Variable | None:
    """R of a graph V = (R⁻¹ K_uf)ᵀ; ``None`` if V is another graph."""
    (A, *_) = V.owner.inputs if V.owner is not None else (None,)
    if A is None or not isinstance(core_of(op_of(A)), SolveTriangular):
        return None
    R = A.owner.inputs[0]
    return R if core_of(A.owner.op).lower and squared(R) is not None else None


def theta_alone(densities: Sequence[Variable], f: Variable, theta: Variable) -> list[Variable]:
    """Variables that depend on theta but not on f, and that enter operations with f."""
    of_f: set[Variable] = {f}
    of_theta: set[Variable] = {theta}
    found: dict[Variable, None] = {}
    for node in toposort(densities):
        moved = of_f.intersection(node.inputs)
        if moved:
            of_f.update(node.outputs)
            found |= dict.fromkeys(x for x in node.inputs if x in of_theta and x not in of_f)
        elif of_theta.intersection(node.inputs):
            of_theta.update(node.outputs)
    return list(found)
