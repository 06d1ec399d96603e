"""Gaussian processes at thousands of points, each given its nearest neighbors: see `Vecchia`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from numpy.typing import ArrayLike
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Continuous
from pymc.gp.cov import BaseCovariance
from pymc.gp.util import JITTER_DEFAULT
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.linalg import cholesky, solve_triangular

from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.compile.graphs.upstream import log_density_of
from pymc_lgm.gaussian.neighbors import Neighbors, max_min_order, nearest_before
from pymc_lgm.gmrf.field import FieldRV, as_lengths
from pymc_lgm.linalg import LOG_2PI, Array

__all__ = ["Process", "Vecchia", "VecchiaRV", "at_new_points", "conditionals", "is_nearest"]

Variable = Any


class Process(NamedTuple):
    """The points and the covariance of a variable: ``tag.process``, which `predict` reads.

    A copy of the model has a copy of the tag, whose covariance reads variables of the original: B
    shows which model the tag belongs to.
    """

    X: Array
    cov_func: Any
    jitter: float
    B: Any


class VecchiaRV(FieldRV):
    """The op: it has the neighbors, and for its inputs B, (n, m), and D, (n,), in their order."""

    name = "vecchia"
    signature = "(n,m),(n)->(n)"
    _print_name = ("Vecchia", "\\operatorname{Vecchia}")
    __props__ = ("name", "signature", "dtype", "inplace", "neighbors")

    def __init__(self, neighbors: Neighbors, **kwargs: Any):
        self.neighbors, self.rank, self.shape = neighbors, neighbors.n, (neighbors.n,)
        super().__init__(**kwargs)

    @override
    def drawn(self, xi: Array, *params: Any) -> Array:
        """One element after another, given its neighbors."""
        return self.neighbors.draw(xi, *params)


@log_density_of.register(VecchiaRV)
def _log_density(
    op: VecchiaRV, values: Sequence[Variable], *inputs: Variable, **kwargs: Any
) -> Variable:
    (value,), (_, _, B, D) = values, inputs
    z = value[op.neighbors.order]
    residuals = z - pt.sum(B * z[op.neighbors.of], axis=-1)
    density = -0.5 * pt.sum(residuals**2 / D + pt.log(D) + LOG_2PI)
    return check_parameters(density, pt.all(pt.gt(D, 0.0)), msg="positive definite covariances")


class Vecchia(Continuous):
    r"""A nearest-neighbor Gaussian process: each point given the nearest of those before it.

    .. math::

       p(f \mid \theta) = \prod_i N\left(f_i; \; B_i f_{N(i)}, \; D_i\right), \quad
       B_i = K_{i N(i)} K_{N(i) N(i)}^{-1}, \quad D_i = K_{ii} - B_i K_{N(i) i},

    with N(i) the ``neighbors`` nearest of the points before i. This prior is *an approximation* of
    the Gaussian process with covariance K, and a model of its own: samplers treat it exactly, and
    the posterior is that of this prior, not of the full process. Given its neighbors, each element
    has the distribution that the full process gives it. With ``neighbors = n - 1`` the prior is the
    full process.

    Samplers of this package read it by its sparse precision, :math:`(I - B)^\top D^{-1} (I - B)`,
    alone or in any sum of terms. NUTS samples it, too. ``lgm.predict(idata, f, Xnew)`` draws
    f at new points from the full process, conditioned on their m nearest neighbors in X alone.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Where the points are: numbers, all of them different.
    cov_func : pymc.gp.cov.Covariance
        Any covariance function of PyMC, with random parameters. The mean is zero: add another to f.
    neighbors : int
        m, from 1 to n − 1. More of them are closer to the full process, and cost more.
    order : "maxmin" or array_like of int, shape (n,)
        Which point comes first, second, and so on. The default puts each as far as possible from
        those before it (Guinness 2018). Neighbors are the nearest by Euclidean distance in X: scale
        columns of X of different units to comparable ranges.
    jitter : float
        Added to the diagonal of K, as by `pymc.gp.Latent`.
    **kwargs
        ``dims``, ``initval``, as for any distribution.

    Raises
    ------
    ValueError
        If X is not a matrix of finite numbers, two points are equal and ``jitter=0``, there are
        too few or too many neighbors, an order is not a permutation, or ``mean_func=`` is given.

    See Also
    --------
    gp.SparseLatent : Inducing points, for smooth processes.

    Notes
    -----
    Per value of theta B and D cost O(n m³) operations, and arrays of n (m + 1)² numbers: 180 MB
    each for n = 50 000 and m = 20. A sampler of this package adds the factor of the posterior's
    precision, which has fill: in two dimensions it costs more than the rest. For 10 000 points and
    20 neighbors it takes 1.7e9 multiplications, half as many in the order of a coordinate, and a
    fifth with 10 neighbors. The order and the neighbors cost O(n²) once.

    A smooth process needs more neighbors: for 1000 points in the unit square and a length scale of
    0.2 the Kullback–Leibler divergence from the full process, in nats, is 1.7 (10 neighbors), 0.14
    (20) and 0.006 (40) with Matérn covariance of order 1/2, and 168, 34 and 3.6 with order 5/2.
    Look at the posterior of theta with twice as many.

    References
    ----------
    A. V. Vecchia (1988). Estimation and model identification for continuous spatial processes.
    Journal of the Royal Statistical Society B 50, 297–312.

    A. Datta, S. Banerjee, A. O. Finley, A. E. Gelfand (2016). Hierarchical nearest-neighbor
    Gaussian process models for large geostatistical datasets. JASA 111, 800–812. Equations 2 and 3.

    J. Guinness (2018). Permutation and grouping methods for sharpening Gaussian process
    approximations. Technometrics 60, 415–429.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> X = np.random.default_rng(0).uniform(size=(50, 2))
    >>> with pm.Model():
    ...     ls = pm.InverseGamma("ls", 3.0, 1.0)
    ...     cov = 2.0 * pm.gp.cov.Matern32(2, ls=ls)
    ...     f = lgm.gp.Vecchia("f", X, cov_func=cov, neighbors=5)
    >>> f.type.shape
    (50,)
    """

    rv_type = VecchiaRV

    @override
    def __new__(cls, name: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(name, str):  # written as a process of `pymc.gp`, which has `prior`
            raise TypeError(
                "Vecchia is a distribution: its name and its points come first. Write "
                'f = lgm.gp.Vecchia("f", X, cov_func=cov), without .prior().'
            )
        return super().__new__(cls, name, *args, **kwargs)

    @classmethod
    def rv_op(
        cls, B: Any, D: Any, *, neighbors: Neighbors, size: Any = None, rng: Any = None
    ) -> Variable:
        """Build a random variable."""
        return VecchiaRV(neighbors).variable(B, D, size=size, rng=rng)

    @classmethod
    def dist(
        cls,
        X: ArrayLike,
        cov_func: Any,
        *,
        neighbors: int = 20,
        order: Any = "maxmin",
        jitter: float = JITTER_DEFAULT,
        mean_func: Any = None,
        shape: Any = None,
        **kwargs: Any,
    ) -> Variable:
        """Make it without a model."""
        if mean_func is not None and not isinstance(mean_func, pm.gp.mean.Zero):
            raise ValueError(
                "The mean of a Vecchia process is zero. Leave out mean_func=, and write "
                "mean_func(X) + f instead of f in the likelihood."
            )
        if not isinstance(cov_func, BaseCovariance):
            raise ValueError(
                f"cov_func is a {type(cov_func).__name__}: write a covariance function of PyMC, as "
                "eta**2 * pm.gp.cov.Matern52(2, ls=ls)."
            )
        if kwargs.pop("size", None) is not None:
            raise ValueError("A Vecchia process has no size: write one for each, in a loop.")
        points = _points(X, shape, jitter)
        n = len(points)
        if neighbors != int(neighbors) or not 1 <= neighbors < n:
            raise ValueError(
                f"neighbors is {neighbors}: with {n} points it is a whole number from 1 to {n - 1}."
            )
        first = _ordered(order, points)
        known = Neighbors(first, nearest_before(points[first], int(neighbors)))
        B, D = conditionals(cov_func, points, known, jitter)
        rv = super().dist([B, D], neighbors=known, size=(), **kwargs)
        rv.tag.process = Process(points, cov_func, jitter, B)
        return rv


def is_nearest(x: Any) -> bool:
    """Whether something is a variable of `Vecchia`."""
    return isinstance(op_of(x), VecchiaRV)


def conditionals(
    cov_func: Any, points: Array, known: Neighbors, jitter: float
) -> tuple[Variable, Variable]:
    """Graphs of B, (n, m), and D, (n,), in the order of the neighbors."""
    Z = points[known.order]
    m = known.m
    first = cholesky(cov_func(pt.constant(Z[:m])) + jitter * np.eye(m))
    root = pt.diagonal(first)
    coefficients = -pt.tril(root[:, None] * solve_triangular(first, np.eye(m), lower=True), -1)
    block = np.hstack([known.of[m:], np.arange(m, len(Z))[:, None]])
    B, D = given_others(cov_func, Z[block], jitter)
    return pt.concatenate([coefficients, B]), pt.concatenate([root**2, D])


def given_others(cov_func: Any, blocks: Array, jitter: float) -> tuple[Variable, Variable]:
    """Graphs of B, (n, m), and D, (n,), of the last point of each block, (n, m + 1, d).

    The last row of L⁻¹ is (−B, 1) / √D.
    """
    size = blocks.shape[1]
    m = size - 1
    L = cholesky(_covariances(cov_func, blocks, np.full(size, jitter)))
    last = pt.constant(np.eye(size)[m])
    row = solve_triangular(L.mT, last, lower=False, b_ndim=1)
    return -row[:, :m] / row[:, m:], row[:, m] ** -2


def at_new_points(cov_func: Any, blocks: Array, jitter: float) -> tuple[Variable, Variable]:
    """Graphs of B and D, as `given_others`, for last points that are not in X, and have no jitter.

    D is 0, up to rounding, if the last point is one of the others and they have no jitter.
    """
    m = blocks.shape[1] - 1
    K = _covariances(cov_func, blocks, np.append(np.full(m, jitter), 0.0))
    L = cholesky(K[:, :m, :m])
    A = solve_triangular(L, K[:, :m, m], lower=True, b_ndim=1)
    B = solve_triangular(L.mT, A, lower=False, b_ndim=1)
    return B, K[:, m, m] - pt.sum(A**2, axis=-1)


def _covariances(cov_func: Any, blocks: Array, diagonal: Array) -> Variable:
    """Covariances of the points of each block, with a diagonal added."""
    x = pt.matrix("x", dtype="float64", shape=blocks.shape[1:])
    K = cov_func(x).astype("float64") + np.diag(diagonal)
    try:
        return vectorize_graph(K, {x: pt.constant(blocks)})
    except NotImplementedError as error:
        raise ValueError(
            f"cov_func is a {type(cov_func).__name__} that PyTensor cannot compute for many blocks "
            "of points at once: write pm.gp.Latent, or a covariance function of PyMC's own."
        ) from error


def _points(X: Any, shape: Any, jitter: float) -> Array:
    """X as an array; a ValueError if it is not a matrix of finite numbers."""
    if hasattr(X, "owner"):
        raise ValueError(
            "X is a variable of PyTensor: the neighbors of a Vecchia process are found once, so "
            "that X must be an array of numbers, not pm.Data."
        )
    points = np.ascontiguousarray(X, dtype=np.float64)
    if points.ndim != 2:
        raise ValueError(f"X has shape {points.shape}: write one row per point, as X[:, None].")
    bad = ~np.isfinite(points).all(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"X[{row}] is {points[row]}: remove points that are not finite.")
    n = len(points)
    if n < 2:
        raise ValueError(f"X has {n} point(s): a Vecchia process has two or more.")
    if not 0.0 <= jitter < np.inf:
        raise ValueError(f"jitter is {jitter}: a number that is not negative.")
    _, which, index = np.unique(points, axis=0, return_index=True, return_inverse=True)
    if len(which) < n and jitter == 0.0:
        twice = int(np.setdiff1d(np.arange(n), which)[0])
        same = int(which[index[twice]])
        raise ValueError(
            f"X[{same}] and X[{twice}] are the same point, so that the covariance is singular. "
            "Write unique, index = np.unique(X, axis=0, return_inverse=True), a process at unique, "
            "and f[index]; or a jitter."
        )
    if shape is not None and as_lengths(shape) != (n,):
        raise ValueError(f"The shape is {as_lengths(shape)}, and X has {n} points.")
    return points


def _ordered(order: Any, points: Array) -> Any:
    """The order as an array."""
    if isinstance(order, str):
        if order != "maxmin":
            raise ValueError(
                f'order is {order!r}: write "maxmin", or an array that says which point comes '
                "first, second, and so on, as np.argsort(X[:, 0])."
            )
        return max_min_order(points)
    first = np.asarray(order)
    n = len(points)
    if first.shape != (n,) or not np.array_equal(np.sort(first), np.arange(n)):
        raise ValueError(
            f"order is not a permutation of 0, …, {n - 1}: write each point once, as "
            "np.argsort(X[:, 0]) does."
        )
    return first.astype(np.intp)
