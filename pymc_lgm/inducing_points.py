"""Placement of inducing points before sampling, by a Gaussian variational fit."""

from __future__ import annotations

import math

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from numpy.typing import ArrayLike, NDArray
from pymc.pytensorf import compile as pymc_compile
from pytensor.graph.replace import graph_replace
from scipy.optimize import minimize

__all__ = ["InducingPoints", "place_inducing_points", "with_spread_of_fit"]

Variable = Any

START = 0.1
"""Standard deviations of q at the start."""

FAR = 1e20
"""Objective where the bound is not finite."""

_fitted: ContextVar[list[Variable] | None] = ContextVar("fitted", default=None)


class InducingPoints(NamedTuple):
    """Inducing points placed by a Gaussian variational fit."""

    points: NDArray[np.float64]
    """Z, shape (m, d)."""

    bound: float
    """Largest evidence lower bound + log p(theta) over μ, S, theta and Z."""

    bound_at_start: float
    """The same at the first Z."""


def place_inducing_points(
    build: Callable[[Any], pm.Model], Z: ArrayLike, *, max_iterations: int = 200
) -> InducingPoints:
    r"""Move inducing points such that a Gaussian variational fit is best, before sampling.

    With q(v) = N(μ, S Sᵀ) of the coordinates v of the values at Z, this maximizes

    .. math::

       \log p(\theta) + \sum_i E_q \{\log p(y_i \mid f_i)\} - KL\{q(v) \,\|\, N(0, I)\}

    over μ, S and theta, and then over Z as well, by L-BFGS. The result determines the model:
    afterwards the optimal variational posterior at the returned Z is sampled, and Z is fixed.
    Hensman et al. (2015) place their points in this way.

    Parameters
    ----------
    build : callable
        Z -> a `pymc.Model` whose processes of `pymc_lgm.gp.SparseLatent` have ``Xu=Z``. It is
        called once, with a tensor.
    Z : array_like, shape (m, d)
        The first Z, for example ``pymc.gp.util.kmeans_inducing_points(m, X)``.
    max_iterations : int
        Largest number of iterations of each of the two maximizations.

    Returns
    -------
    InducingPoints
        ``points``, and the bounds at these and at the first points.

    Raises
    ------
    ValueError
        If Z is not a matrix of finite numbers, if the model of ``build(Z)`` has no process of
        `pymc_lgm.gp.SparseLatent`, or if the bound is not finite at the start.

    See Also
    --------
    gp.SparseLatent : The process with these inducing points.

    Notes
    -----
    An iteration takes O(n m²) operations, and a few arrays of n × m.

    References
    ----------
    J. Hensman, A. G. de G. Matthews, M. Filippone, Z. Ghahramani (2015). MCMC for variationally
    sparse Gaussian processes. NIPS 28.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> X = np.linspace(0, 1, 60)[:, None]
    >>> y = (np.sin(20 * X[:, 0] ** 2) > 0).astype(int)
    >>> def build(Z):
    ...     with pm.Model() as model:
    ...         ls = pm.LogNormal("ls", -1.0, 0.5)
    ...         gp = lgm.gp.SparseLatent(cov_func=4 * pm.gp.cov.Matern52(1, ls=ls))
    ...         lgm.Probit("y", f=gp.prior("f", X, Xu=Z), observed=y)
    ...     return model
    >>> placed = lgm.gp.place_inducing_points(build, X[::15], max_iterations=20)
    >>> bool(placed.bound > placed.bound_at_start)
    True
    >>> model = build(placed.points)
    """
    start = np.array(Z, dtype=np.float64)
    if start.ndim != 2 or not np.isfinite(start).all():
        raise ValueError(
            f"Z has shape {start.shape}: write one row of finite numbers per point, as "
            "pm.gp.util.kmeans_inducing_points(m, X) returns them."
        )
    points = pytensor.shared(start, name="Z", shape=start.shape)
    with _a_fit() as factors:
        model = build(points)
    if not factors:
        raise ValueError(
            "The model of build(Z) has no lgm.gp.SparseLatent. Write gp.prior('f', X, Xu=Z) in it."
        )
    fit = _Fit(model, points, factors)
    if not fit.begins:
        raise ValueError(
            "The bound is not finite where the fit begins: the covariance of the points cannot be "
            "factorized there, or a density is 0. Look at X, y and Z, or write initval=."
        )
    x, at_start = fit.largest(fit.start, max_iterations, move=False)
    x, bound = fit.largest(x, max_iterations, move=True)
    return InducingPoints(fit.points_of(x), bound, at_start)


def with_spread_of_fit(variance: Variable, A: Variable, m: int | None) -> Variable:
    """Add the variance of Aᵀ v under q(v) to a variance, in a model that is built for the fit."""
    factors = _fitted.get()
    if factors is None:
        return variance
    if m is None:
        raise ValueError("The number of inducing points is not known. Write Xu=Z in build(Z).")
    rows, columns = np.tril_indices(m)
    packed = pt.vector("S", shape=(rows.size,))
    packed.tag.m = m
    factors.append(packed)
    entries = pt.switch(pt.constant(rows == columns), pt.exp(packed), packed)
    S = pt.zeros((m, m))[rows, columns].set(entries)
    return variance + pt.sum(pt.dot(S.T, A) ** 2, axis=0)


@contextmanager
def _a_fit() -> Iterator[list[Variable]]:
    factors: list[Variable] = []
    token = _fitted.set(factors)
    try:
        yield factors
    finally:
        _fitted.reset(token)


class _Fit:
    """The bound and its gradient as functions of one vector: theta and μ, each S, and Z."""

    def __init__(self, model: pm.Model, points: Variable, factors: list[Variable]):
        variables = [*model.value_vars, *factors]
        bound = model.logp()
        for packed in factors:
            rows, columns = np.tril_indices(packed.tag.m)
            log_diagonal = packed[np.flatnonzero(rows == columns)]
            squares = pt.sum(packed[np.flatnonzero(rows != columns)] ** 2)
            squares += pt.sum(pt.exp(2.0 * log_diagonal))
            entropy = pt.sum(log_diagonal) + 0.5 * packed.tag.m * (1.0 + math.log(2.0 * math.pi))
            bound += entropy - 0.5 * squares
        Z = points.type("Z")
        bound = graph_replace([bound], {points: Z}, strict=False)[0]
        variables.append(Z)
        slopes = pt.grad(bound, variables, disconnected_inputs="ignore")
        self._function = pymc_compile(variables, [bound, *slopes])
        point = model.initial_point()
        values = [np.asarray(point[str(each.name)]) for each in model.value_vars]
        for packed in factors:
            rows, columns = np.tril_indices(packed.tag.m)
            values.append(np.where(rows == columns, math.log(START), 0.0))
        values.append(points.get_value())
        self._shapes = [value.shape for value in values]
        self.start = np.concatenate([value.ravel() for value in values])
        self._last = values[-1].size

    @property
    def begins(self) -> bool:
        """Whether the bound is finite at the start."""
        return self._at(self.start)[0] > -FAR

    def points_of(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Z, shape (m, d)."""
        return x[-self._last :].reshape(self._shapes[-1])

    def largest(
        self, x: NDArray[np.float64], max_iterations: int, move: bool
    ) -> tuple[NDArray[np.float64], float]:
        """Maximize from x, over Z or at fixed Z."""
        n_fixed = 0 if move else self._last

        def minus(free: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            value, slope = self._at(np.concatenate([free, x[x.size - n_fixed :]]))
            return -value, -slope[: free.size]

        found = minimize(
            minus,
            x[: x.size - n_fixed],
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iterations, "maxfun": 2 * max_iterations},
        )
        return np.concatenate([found.x, x[x.size - n_fixed :]]), -float(found.fun)

    def _at(self, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        ends = np.cumsum([math.prod(shape) for shape in self._shapes])[:-1]
        parts = [
            part.reshape(shape) for part, shape in zip(np.split(x, ends), self._shapes, strict=True)
        ]
        try:
            value, *slopes = self._function(*parts)
        except np.linalg.LinAlgError:
            return -FAR, np.zeros_like(x)
        slope = np.concatenate([np.ravel(each) for each in slopes])
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return -FAR, np.zeros_like(x)
        return float(value), slope
