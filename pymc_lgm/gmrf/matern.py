"""Matérn fields on a mesh: a PyMC distribution with a sparse precision."""

from __future__ import annotations

import math

from collections.abc import Sequence
from typing import Any, override

import numba
import numpy as np
import pytensor.tensor as pt

from numba import types
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Continuous
from pytensor.gradient import DisconnectedType, grad_not_implemented
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_lgm.compile.graphs.upstream import (
    log_density_of,
    numba_funcify,
    numba_njit,
)
from pymc_lgm.gaussian.spde import FiniteElements, MaternFactor
from pymc_lgm.gmrf.field import FieldRV, as_lengths, one_number
from pymc_lgm.gmrf.meshes import Mesh
from pymc_lgm.linalg import LOG_2PI, Array

__all__ = ["Matern", "MaternRV", "kappa_and_tau"]

Variable = Any


def kappa_and_tau(range: Any, sigma: Any) -> tuple[Any, Any]:
    """κ = √8/range and τ = 1/(√(4π) κ σ), of numbers or variables: see `Matern`."""
    kappa = math.sqrt(8.0) / range
    return kappa, 1.0 / (math.sqrt(4.0 * math.pi) * kappa * sigma)


class MaternRV(FieldRV):
    """The op: it has the mesh, and range and σ for its inputs."""

    name = "matern"
    _print_name = ("Matern", "\\operatorname{Matern}")
    __props__ = ("name", "signature", "dtype", "inplace", "mesh")

    def __init__(self, mesh: Mesh, signature: str, **kwargs: Any):
        self.mesh = mesh
        self.rank = mesh.n
        self.shape = (mesh.n,)
        super().__init__(signature=signature, **kwargs)

    @override
    def drawn(self, xi: Array, *params: Any) -> Array:
        """One sparse factorization; NaN if the precision has no factor."""
        range, sigma = map(float, params)
        K, kappa, tau = None, math.nan, math.nan
        if range > 0.0 and sigma > 0.0:
            kappa, tau = kappa_and_tau(range, sigma)
            K = self.mesh.elements.factorize(kappa)
        if K is None:
            return np.full(self.rank, np.nan)
        return MaternFactor(self.mesh.elements, kappa, tau, K).solve_transposed(xi)


class LogDeterminant(Op):
    """log|κ² C + G| of a mesh and its derivative by κ²: one sparse factorization."""

    __props__ = ("mesh",)

    def __init__(self, mesh: Mesh):
        self.mesh = mesh

    @override
    def make_node(self, square: Variable) -> Apply[Any, Any]:
        """κ² -> two numbers."""
        return Apply(self, [pt.as_tensor(square).astype("float64")], [pt.dscalar(), pt.dscalar()])

    @override
    def perform(self, node: Any, inputs: Sequence[Any], output_storage: Any) -> None:
        """Factorize κ² C + G."""
        found = self.mesh.elements.log_determinant(float(inputs[0]))
        for storage, value in zip(output_storage, found, strict=True):
            storage[0] = np.asarray(value)

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """The derivative is the second output, which has none itself."""
        if not isinstance(cotangents[1].type, DisconnectedType):
            return [grad_not_implemented(self, 0, inputs[0], "A second derivative by κ.")]
        return [cotangents[0] * outputs[1]]


@numba_funcify.register(LogDeterminant)
def _compiled_log_determinant(op: LogDeterminant, node: Any, **kwargs: Any) -> Any:
    elements: FiniteElements = op.mesh.elements
    both = types.UniTuple(types.float64, 2)

    @numba_njit
    def log_determinant(square):
        number = square.item()
        with numba.objmode(found=both):
            found = elements.log_determinant(number)
        return np.asarray(found[0]), np.asarray(found[1])

    return log_determinant


@log_density_of.register(MaternRV)
def _log_density(
    op: MaternRV, values: Sequence[Variable], *inputs: Variable, **kwargs: Any
) -> Variable:
    (x,), (_, _, range, sigma) = values, inputs
    elements = op.mesh.elements
    kappa, tau = kappa_and_tau(range, sigma)
    # K x by differences along edges, which loses no digits of a field that is nearly a constant.
    G = elements.G.tocoo()
    i, j = (each[G.row != G.col] for each in (G.row, G.col))
    Gx = pt.inc_subtensor(pt.zeros(elements.n)[i], G.data[G.row != G.col] * (x[j] - x[i]))
    Kx = kappa**2 * elements.c * x + Gx
    square = tau**2 * pt.sum(Kx**2 / elements.c)
    log_determinant, _ = LogDeterminant(op.mesh)(kappa**2)
    n, log_c = elements.n, float(np.log(elements.c).sum())
    half = n * pt.log(tau) + log_determinant - 0.5 * log_c
    density = half - 0.5 * n * LOG_2PI - 0.5 * square
    return check_parameters(density, range > 0, sigma > 0, msg="range > 0, sigma > 0")


class Matern(Continuous):
    r"""A Gaussian process in the plane with a Matérn covariance, as a sparse field on a mesh.

    .. math::

       x \sim N(0, Q^{-1}), \quad Q = \tau^2 (\kappa^4 C + 2 \kappa^2 G + G C^{-1} G),
       \quad \kappa = \sqrt{8 \nu} / \text{range}, \quad
       \tau = \frac{1}{\sqrt{4 \pi} \, \kappa \, \sigma},

    with the finite-element matrices C and G of the mesh. x has the values at the vertices of a
    field that is linear on each triangle. It approximates the solution of the stochastic partial
    differential equation :math:`\tau (\kappa^2 - \Delta) x(s) = W(s)` in the plane, a process with
    standard deviation σ and the Matérn correlation :math:`\kappa r K_1(\kappa r)` at distance r,
    which is about 0.14 at r = range.

    Parameters
    ----------
    mesh : Mesh
        Has N vertices: see `gmrf.Mesh.around`.
    range : scalar
        Positive, in units of the vertices.
    sigma : scalar
        σ > 0, the standard deviation of the field away from the edge of the mesh.
    nu : float
        Smoothness ν. Only ν = 1 is implemented.
    **kwargs
        ``dims``, ``initval``, as for any distribution.

    Raises
    ------
    ValueError
        If ν is not 1, or range or σ is not one number.

    See Also
    --------
    gmrf.Mesh : A mesh; `Mesh.around` makes one around points.
    gmrf.Mesh.at : The values at points, in the model, and from draws at new points.
    gmrf.pc_prior : Priors of range and σ.

    Notes
    -----
    The slope of the field across the edge of the mesh is zero, and so its variance there is about
    twice the variance inside, and three times at corners of 120 degrees. Let the mesh reach beyond
    the points by about the range. On a regular
    mesh with edges of 1/16, 1/8 and 1/4 of the range, the variance inside is 2, 6 and 15 per cent
    larger than σ². If the range is much longer than the mesh, the field is nearly a constant, and
    its variance, 4π σ²/κ² divided by the area of the mesh, is larger than σ².

    A density costs one factorization of κ² C + G, about N^1.5 operations, and its gradient as much
    again. NUTS can sample it, but slowly, because the N coordinates depend strongly on each other.
    Samplers of this package integrate x out, by one factorization of Q and of the posterior
    precision per value of theta.

    References
    ----------
    F. Lindgren, H. Rue, J. Lindström (2011). An explicit link between Gaussian fields and Gaussian
    Markov random fields: the stochastic partial differential equation approach. Journal of the
    Royal Statistical Society B 73, 423–498. Equations 9 and 10, appendix A.

    F. Lindgren, H. Rue (2015). Bayesian spatial modelling with R-INLA. Journal of Statistical
    Software 63(19). Section 2.1 for range and σ.

    G.-A. Fuglstad, D. Simpson, F. Lindgren, H. Rue (2019). Constructing priors that penalize the
    complexity of Gaussian random fields. JASA 114, 445–452. Theorem 2.6.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> points = np.random.default_rng(0).uniform(size=(40, 2))
    >>> y = points[:, 0] > 0.5
    >>> mesh = lgm.gmrf.Mesh.around(points, max_edge=0.2)
    >>> with pm.Model() as model:
    ...     reach = lgm.gmrf.pc_prior("range", lower=0.2, alpha=0.05)
    ...     sigma = lgm.gmrf.pc_prior("sigma", upper=3.0, alpha=0.05)
    ...     u = lgm.gmrf.Matern("u", mesh, range=reach, sigma=sigma)
    ...     b0 = pm.Normal("b0", 0, 2)
    ...     _ = pm.Bernoulli("y", logit_p=b0 + mesh.at(points, u), observed=y)
    >>> u.type.shape == (mesh.n,)
    True
    """

    rv_type = MaternRV

    @classmethod
    def rv_op(
        cls, range: Any, sigma: Any, *, mesh: Mesh, size: Any = None, rng: Any = None
    ) -> Variable:
        """Build a random variable."""
        op = MaternRV(mesh, f"(),()->({mesh.n})")
        return op.variable(range, sigma, size=size, rng=rng)

    @classmethod
    def dist(
        cls,
        mesh: Mesh,
        *,
        range: Any,
        sigma: Any,
        nu: float = 1.0,
        shape: Any = None,
        **kwargs: Any,
    ) -> Variable:
        """Make it without a model."""
        if not isinstance(mesh, Mesh):
            raise TypeError(
                f"mesh is a {type(mesh).__name__}: write lgm.gmrf.Mesh.around(points, "
                "max_edge=...) or lgm.gmrf.Mesh(vertices, triangles)."
            )
        if nu != 1:
            raise ValueError(
                f"nu is {nu}: a field on a mesh has nu=1 here. For another smoothness write a "
                "pm.gp.Latent with Matern12, Matern32 or Matern52."
            )
        if kwargs.pop("size", None) is not None:
            raise ValueError("A field on a mesh has no size: write one for each, in a loop.")
        if shape is not None and as_lengths(shape) != (mesh.n,):
            raise ValueError(
                f"The shape is {as_lengths(shape)}, and the mesh has {mesh.n} vertices: leave out "
                "shape=."
            )
        numbers = [one_number("range", range), one_number("sigma", sigma)]
        return super().dist(numbers, mesh=mesh, size=(), **kwargs)
