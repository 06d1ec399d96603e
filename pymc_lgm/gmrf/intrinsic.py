"""Intrinsic Gaussian Markov random fields as PyMC distributions, and priors for their parameters.

Three steps make one. A class method such as `Structure.walk` makes its `Structure`: the matrix R,
and the null space of R. `IntrinsicRV` is the op of x ~ N(0, σ² R⁻) with σ for its only input. The
default transform has the coordinates z of x = E z, which NUTS samples without a constraint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from numpy.typing import ArrayLike
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Continuous
from pymc.logprob.transforms import Transform
from scipy.sparse import csc_array, eye_array

from pymc_lgm.compile.graphs.products import times
from pymc_lgm.compile.graphs.upstream import (
    default_transform_of,
    log_density_of,
)
from pymc_lgm.gaussian.structure import Structure
from pymc_lgm.gmrf.field import FieldRV, as_lengths, one_number
from pymc_lgm.linalg import LOG_2PI, Array

__all__ = [
    "BYM2",
    "ICAR",
    "Interaction",
    "Intrinsic",
    "Leroux",
    "RandomWalk",
    "Seasonal",
    "Structure",
    "pc_prior",
]

Variable = Any

OFF = 1e-6
"""Largest |A x|, as a share of max |x|, at which x still satisfies A x = 0.

Rounding of x = E z leaves about 1e-14. The bound also admits values with seven digits, as in
float32; a larger one would give a density to points off the constraint.
"""


# The distribution


class IntrinsicRV(FieldRV):
    """The op of an intrinsic field: it stores the structure, and σ is its only input."""

    name = "intrinsic"
    _print_name = ("Intrinsic", "\\operatorname{Intrinsic}")
    __props__ = ("name", "signature", "dtype", "inplace", "structure")

    def __init__(self, structure: Structure, signature: str, **kwargs: Any):
        self.structure = structure
        self.rank = structure.rank
        super().__init__(signature=signature, **kwargs)
        self.shape = tuple(int(length) for length in self.output_sig)

    @override
    def drawn(self, xi: Array, *params: Any) -> Array:
        """One solve with the structure's sparse factor."""
        (sigma,) = params
        return (sigma * self.structure.factor.solve_transposed(xi)).reshape(self.shape)


class ConstraintTransform(Transform):
    """x = E z, where the orthonormal columns of E span the constraint space {x : A x = 0}.

    E is the last n − k columns of the orthogonal matrix I − V T Vᵀ, a product of k Householder
    reflectors: `pymc_lgm.gaussian.factors.Constraints`. A product with E costs O(n k).
    """

    name = "constrained"

    def __init__(self, structure: Structure, shape: tuple[int, ...]):
        self.structure, self.shape, self.ndim_supp = structure, shape, len(shape)
        space = structure.coordinates
        self._V, self._T = pt.constant(space.V), pt.constant(space.T)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstraintTransform) and (self.structure, self.shape) == (
            other.structure,
            other.shape,
        )

    def __hash__(self) -> int:
        return hash((self.structure, self.shape))

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.structure})"

    __repr__ = __str__

    @property
    def basis(self) -> Array:
        """E, shape (n, n − k)."""
        return self.structure.coordinates.extend(np.eye(self.structure.rank))

    @override
    def forward(self, value: Variable, *inputs: Variable) -> Variable:
        """Eᵀ x."""
        x = value.reshape((self.structure.n,))
        along = times(self._T.T, times(self._V.T, x))
        return (x - times(self._V, along))[self.structure.coordinates.k :]

    @override
    def backward(self, value: Variable, *inputs: Variable) -> Variable:
        """E z."""
        y = pt.concatenate([np.zeros(self.structure.coordinates.k), value])
        x = y - times(self._V, times(self._T, times(self._V.T, y)))
        return x.reshape(self.shape)

    @override
    def log_jac_det(self, value: Variable, *inputs: Variable) -> Variable:
        """Zero: lengths in z are lengths in x."""
        return pt.zeros(())


@log_density_of.register(IntrinsicRV)
def _log_density(
    op: IntrinsicRV, values: Sequence[Variable], *inputs: Variable, **kwargs: Any
) -> Variable:
    (value,), (_, _, sigma) = values, inputs
    structure = op.structure
    x = value.reshape((structure.n,))
    rows, columns, elements = structure.elements
    # The lower triangle has each element off the diagonal once, xᵀ R x has it twice.
    weights = np.where(rows == columns, 1.0, 2.0) * elements
    quad_form = pt.sum(weights * x[rows] * x[columns])
    constant = 0.5 * (structure.log_determinant - structure.rank * LOG_2PI)
    density = constant - structure.rank * pt.log(sigma) - 0.5 * quad_form / sigma**2
    if structure.coordinates.k:
        off = pt.max(pt.abs(times(structure.constraint.T, x)))
        density = pt.switch(pt.le(off, OFF * pt.max(pt.abs(x))), density, -np.inf)
    return check_parameters(density, sigma > 0, msg="sigma > 0")


@default_transform_of.register(IntrinsicRV)
def _constrained(op: IntrinsicRV, rv: Variable) -> ConstraintTransform:
    return ConstraintTransform(op.structure, op.shape)


class Intrinsic(Continuous):
    r"""An intrinsic Gaussian Markov random field of any structure.

    .. math::

       p(x \mid \sigma) = (2\pi\sigma^2)^{-(n-k)/2} \, |E^\top R E|^{1/2}
       \exp\left(-\tfrac{1}{2\sigma^2} x^\top R x\right), \quad A x = 0,

    a density on the space of the k constraints, which has the orthonormal basis E.

    Parameters
    ----------
    structure : array, sparse matrix or Structure, shape (n, n)
        R, symmetric and positive semidefinite, a constant.
    sigma : scalar
        σ > 0. Default 1.
    constraint : array_like, shape (k, n), optional
        A. By default its rows span the null space of R. The structure must be positive definite on
        the constraint space.
    scale : bool
        Whether R is multiplied by the geometric mean of the generalized variances (R⁻)_ii, so that
        σ is a typical standard deviation of x, whatever the structure (Sørbye and Rue 2014). A
        ``constraint`` of your own does not change R⁻, and x varies less or more than σ under it.
    **kwargs
        ``dims``, ``shape``, ``initval``, as for any distribution.

    Raises
    ------
    ValueError
        If R is not symmetric, has a negative eigenvalue, or is not positive definite on the
        constraint space; if rows of A depend on each other; if there are more than 2000 elements
        and the constraints do not say what the null space is.

    See Also
    --------
    gmrf.RandomWalk, gmrf.Seasonal, gmrf.ICAR, gmrf.Interaction : Fields with known null spaces.

    Notes
    -----
    The eigenvalues of R give its null space, once, for O(n³) operations. NUTS samples the n − k
    coordinates z of x = E z. A draw of the prior costs one solve with the sparse factor.

    References
    ----------
    H. Rue, L. Held (2005). Gaussian Markov Random Fields. Chapman & Hall. Chapter 3.

    S. H. Sørbye, H. Rue (2014). Scaling intrinsic Gaussian Markov random field priors in spatial
    modelling. Spatial Statistics 8, 39–51.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> R = np.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])
    >>> x = lgm.gmrf.Intrinsic.dist(R, sigma=2.0)
    >>> round(float(pm.logp(x, np.array([1.0, 0.0, -1.0])).eval()), 4)
    -2.9249
    """

    rv_type = IntrinsicRV

    @classmethod
    def rv_op(
        cls,
        sigma: Any,
        *,
        structure: Structure,
        core: Sequence[int],
        size: Any = None,
        rng: Any = None,
    ) -> Variable:
        """Build a random variable of shape ``core``, with n elements in C order."""
        op = IntrinsicRV(structure, f"()->({','.join(map(str, core))})")
        return op.variable(sigma, size=size, rng=rng)

    @classmethod
    def dist(
        cls,
        structure: Any,
        sigma: Any = 1.0,
        *,
        constraint: Any = None,
        scale: bool = False,
        **kwargs: Any,
    ) -> Variable:
        """Make it without a model."""
        if not isinstance(structure, Structure):
            structure = Structure.of(structure, constraint)
        elif constraint is not None:
            structure = structure.constrained(constraint)
        return cls._of(structure, sigma, scale=scale, **kwargs)

    @classmethod
    def _of(
        cls, structure: Structure, sigma: Any, *, scale: bool, shape: Any = None, **kwargs: Any
    ) -> Variable:
        """Make it with a structure that has been checked."""
        if kwargs.pop("size", None) is not None:
            raise ValueError(
                "An intrinsic field has no size=: write one field for each, in a loop."
            )
        core = (structure.n,) if shape is None else as_lengths(shape)
        if int(np.prod(core)) != structure.n:
            raise ValueError(f"The shape is {core}, and the structure has {structure.n} elements.")
        number = one_number("sigma", sigma)
        structure.refuse_improper()
        structure = structure.scaled() if scale else structure
        return super().dist([number], structure=structure, core=core, size=(), **kwargs)


class RandomWalk(Continuous):
    r"""A random walk without its level, and for order 2 without its slope.

    .. math::

       x_{i+1} - x_i \sim N(0, \sigma^2 d_i), \quad \text{or} \quad
       x_{i+1} - 2 x_i + x_{i-1} \sim N(0, \sigma^2)

    with distances :math:`d_i` of the locations. If these are not equal, the walk of order 2 is the
    Galerkin approximation of an integrated Wiener process (Lindgren and Rue 2008, section 3). x
    sums to zero. A walk of order 2 that is not cyclic also has a least-squares line of zero. Add an
    intercept, and a slope, with priors of their own.

    Parameters
    ----------
    order : {1, 2}
        Default 1.
    sigma : scalar
        σ > 0, the standard deviation of a difference over distance 1. Default 1.
    cyclic : bool
        Whether the first element follows the last, as January follows December.
    locations : array_like, shape (n,), optional
        Increasing numbers, the places of the elements. By default they are at distance 1.
    scale : bool
        Whether the geometric mean of the variances is σ²: see `Intrinsic`.
    **kwargs
        ``dims`` or ``shape``. With ``locations`` neither is needed.

    Raises
    ------
    ValueError
        If there are too few elements, or locations are not finite, not sorted, or not unique.

    Notes
    -----
    `pymc.GaussianRandomWalk` starts at a value that has a prior of its own, and is not constrained.

    References
    ----------
    F. Lindgren, H. Rue (2008). On the second-order random walk model for irregular locations.
    Scandinavian Journal of Statistics 35, 691–700.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model(coords={"year": range(1990, 2020)}):
    ...     trend = lgm.gmrf.RandomWalk("trend", order=2, sigma=0.1, dims="year")
    >>> trend.type.shape
    (30,)
    """

    rv_type = IntrinsicRV
    rv_op = Intrinsic.rv_op

    @classmethod
    def dist(
        cls,
        order: int = 1,
        sigma: Any = 1.0,
        *,
        cyclic: bool = False,
        locations: ArrayLike | None = None,
        scale: bool = False,
        shape: Any = None,
        **kwargs: Any,
    ) -> Variable:
        """Make it without a model."""
        n = len(np.atleast_1d(np.asarray(locations))) if shape is None else _one_length(shape)
        if shape is None and locations is None:
            raise ValueError("A walk needs to know how many elements it has: write shape=n.")
        structure = Structure.walk(n, order, cyclic=cyclic, locations=locations)
        return Intrinsic._of(structure, sigma, scale=scale, **kwargs)


class Seasonal(Continuous):
    r"""A seasonal effect that changes slowly, without the pattern that repeats.

    .. math:: x_i + x_{i+1} + \dots + x_{i+p-1} \sim N(0, \sigma^2)

    x is orthogonal to all patterns of p elements that repeat and sum to zero. For the pattern
    itself add ``pm.ZeroSumNormal("pattern", sigma=..., shape=p)[t % p]``.

    Parameters
    ----------
    period : int
        p, the number of elements per period.
    sigma : scalar
        σ > 0. Default 1.
    scale : bool
        Whether the geometric mean of the variances is σ²: see `Intrinsic`.
    **kwargs
        ``dims`` or ``shape``.

    Raises
    ------
    ValueError
        If the period is longer than the series.

    References
    ----------
    H. Rue, L. Held (2005). Gaussian Markov Random Fields. Chapman & Hall. Section 3.4.3.

    Examples
    --------
    >>> import pymc_lgm as lgm
    >>> lgm.gmrf.Seasonal.dist(period=12, sigma=0.1, shape=48).type.shape
    (48,)
    """

    rv_type = IntrinsicRV
    rv_op = Intrinsic.rv_op

    @classmethod
    def dist(
        cls, period: int, sigma: Any = 1.0, *, scale: bool = False, shape: Any = None, **kwargs: Any
    ) -> Variable:
        """Make it without a model."""
        if shape is None:
            raise ValueError("A season needs to know how many elements it has: write shape=n.")
        structure = Structure.season(_one_length(shape), period)
        return Intrinsic._of(structure, sigma, scale=scale, **kwargs)


class ICAR(Continuous):
    r"""Areas of a map that resemble their neighbors, with any σ.

    .. math:: p(x \mid \sigma) \propto \sigma^{-(n-k)}
       \exp\left(-\tfrac{1}{2\sigma^2} \sum_{i \sim j} W_{ij} (x_i - x_j)^2\right)

    The sum has each pair of neighbors once. x sums to zero in each of the k connected parts of two
    or more areas. An area without neighbors is N(0, σ²) and has no constraint; its
    :math:`x_i^2` is one more term of the sum.

    Parameters
    ----------
    W : array or sparse matrix, shape (n, n)
        Symmetric weights of neighbors, as `pymc_lgm.spatial.adjacency` makes them.
    sigma : scalar
        σ > 0. It may be random: the density includes the power of σ, which `pymc.ICAR` leaves out.
    scale : bool
        Whether the geometric mean of the variances is σ² in each connected part (Freni-Sterrantino
        et al. 2018).
    **kwargs
        ``dims`` or ``shape``.

    Raises
    ------
    ValueError
        If W is not symmetric, or has a weight that is negative.

    References
    ----------
    A. Freni-Sterrantino, M. Ventrucci, H. Rue (2018). A note on intrinsic conditional
    autoregressive models for disconnected graphs. Spatial and Spatio-temporal Epidemiology 26,
    25–34.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> W = lgm.spatial.adjacency([(0, 1), (1, 2), (2, 3)])
    >>> with pm.Model():
    ...     phi = lgm.gmrf.ICAR("phi", W=W, sigma=lgm.gmrf.pc_prior("sigma", upper=1.0))
    """

    rv_type = IntrinsicRV
    rv_op = Intrinsic.rv_op

    @classmethod
    def dist(cls, W: Any, sigma: Any = 1.0, *, scale: bool = False, **kwargs: Any) -> Variable:
        """Make it without a model."""
        return Intrinsic._of(Structure.map(W, scale=scale), sigma, scale=False, **kwargs)


class Interaction(Continuous):
    r"""An interaction of two fields, say of space and time, with structure R₁ ⊗ R₂.

    Knorr-Held (2000) has four types. In type I neither field has a structure, in type II only that
    of time, in type III only that of space, in type IV both. The constraints are the null space of
    R₁ ⊗ R₂. With a map and a walk of order 1, an interaction of type II sums to zero over time in
    each area, one of type III over areas in each period, and one of type IV both ways. So the main
    effects are separate terms.

    Parameters
    ----------
    structures : tuple of two
        Each a matrix, a `Structure` as `Structure.map` and `Structure.walk` make them, or ``None``
        for independent elements.
    sigma : scalar
        σ > 0.
    scale : bool
        Whether the geometric mean of the variances is σ²: see `Intrinsic`.
    **kwargs
        ``dims`` or ``shape``, of two axes, which an axis without a structure needs.

    Raises
    ------
    ValueError
        If there are not two structures and two axes, or if their lengths differ.

    Notes
    -----
    There is one constraint per dimension of the null space, for type IV n₁ + n₂ − 1 if each of the
    two structures has a null space of one dimension: 158 with 144 areas and 15 years. If it costs
    less, samplers of this package use coordinates along one axis, the eigenvectors of its
    structure, which satisfy most constraints: in this example all but 14.

    References
    ----------
    L. Knorr-Held (2000). Bayesian modelling of inseparable space-time variation in disease risk.
    Statistics in Medicine 19, 2555–2567.

    Examples
    --------
    >>> import pymc_lgm as lgm
    >>> space = lgm.gmrf.Structure.map(lgm.spatial.adjacency([(0, 1), (1, 2)]))
    >>> time = lgm.gmrf.Structure.walk(5)
    >>> lgm.gmrf.Interaction.dist((space, time), sigma=0.3).type.shape
    (3, 5)
    """

    rv_type = IntrinsicRV
    rv_op = Intrinsic.rv_op

    @classmethod
    def dist(
        cls,
        structures: tuple[Any, Any],
        sigma: Any = 1.0,
        *,
        scale: bool = False,
        shape: Any = None,
        **kwargs: Any,
    ) -> Variable:
        """Make it without a model."""
        lengths = [None, None] if shape is None else list(as_lengths(shape))
        if len(structures) != 2 or len(lengths) != 2:
            raise ValueError("An interaction is of two structures, and has two axes.")
        one, two = (_one_of_two(each, n) for each, n in zip(structures, lengths, strict=True))
        structure = one.product(two)
        return Intrinsic._of(structure, sigma, scale=scale, shape=(one.n, two.n), **kwargs)


def _one_of_two(structure: Any, n: int | None) -> Structure:
    if structure is None and n is None:
        raise ValueError("An axis without a structure has no length: write shape= or dims=.")
    if structure is None:
        assert n is not None
        return Structure(csc_array(eye_array(n)), np.zeros((n, 0)))
    known = structure if isinstance(structure, Structure) else Structure.of(structure)
    if n is not None and known.n != n:
        raise ValueError(f"An axis has {n} elements, and its structure {known.n}.")
    return known


def _one_length(shape: Any) -> int:
    lengths = as_lengths(shape)
    if len(lengths) != 1:
        raise ValueError(
            f"The shape is {lengths}, but the field is one vector. Write one field for each, in a "
            "loop."
        )
    return lengths[0]


# Models of several variables


def BYM2(
    name: str,
    W: Any,
    sigma: Any = 1.0,
    rho: Any = 0.5,
    *,
    dims: Any = None,
) -> Variable:
    r"""Add the model of Besag, York and Mollié, with a structured and an independent part.

    .. math::

       x = \sigma \left(\sqrt{\rho} \, u + \sqrt{1 - \rho} \, v\right), \quad v \sim N(0, I),

    where u is an `ICAR` with ``scale=True`` and σ = 1. So σ is a typical standard deviation of x,
    and ρ the share of its variance that neighbors have in common (Riebler et al. 2016).

    Adds ``{name}_structured``, ``{name}_independent`` and the deterministic ``name`` to the model.

    Parameters
    ----------
    name : str
    W : array or sparse matrix, shape (n, n)
        As for `ICAR`.
    sigma : scalar
        σ > 0.
    rho : scalar
        0 < ρ < 1.
    dims : str, optional

    Returns
    -------
    variable, shape (n,)

    References
    ----------
    A. Riebler, S. H. Sørbye, D. Simpson, H. Rue (2016). An intuitive Bayesian spatial model for
    disease mapping that accounts for scaling. Statistical Methods in Medical Research 25,
    1145–1165.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> W = lgm.spatial.adjacency([(0, 1), (1, 2), (2, 3)])
    >>> with pm.Model():
    ...     sigma, rho = lgm.gmrf.pc_prior("sigma", upper=1.0), pm.Beta("rho", 1, 1)
    ...     u = lgm.gmrf.BYM2("u", W=W, sigma=sigma, rho=rho)
    """
    n = Structure.map(W).n
    structured = ICAR(f"{name}_structured", W, 1.0, scale=True, dims=dims)
    independent = pm.Normal(f"{name}_independent", 0.0, 1.0, shape=n, dims=dims)
    rho = pt.as_tensor(rho)
    x = sigma * (pt.sqrt(rho) * structured + pt.sqrt(1.0 - rho) * independent)
    return pm.Deterministic(name, x, dims=dims)


def Leroux(
    name: str,
    W: Any,
    sigma: Any = 1.0,
    rho: Any = 0.5,
    *,
    scale: bool = False,
    dims: Any = None,
) -> Variable:
    r"""Add the model of Leroux, Lei and Breslow, from independent areas (ρ = 0) towards an `ICAR`.

    .. math:: x \sim N\left(0, \sigma^2 (\rho R + (1 - \rho) I)^{-1}\right)

    It is a `pymc.MvNormal` by its precision, which is proper for 0 ≤ ρ < 1 without a constraint.

    Parameters
    ----------
    name : str
    W : array or sparse matrix, shape (n, n)
        As for `ICAR`.
    sigma, rho : scalar
        σ > 0 and 0 ≤ ρ < 1.
    scale : bool
        As for `ICAR`.
    dims : str, optional

    Returns
    -------
    variable, shape (n,)

    Notes
    -----
    NUTS factorizes the covariance, for O(n³) operations per gradient; samplers of this package use
    the sparse precision.

    References
    ----------
    B. G. Leroux, X. Lei, N. Breslow (2000). Estimation of disease rates in small areas: a new mixed
    model for spatial dependence. In Statistical Models in Epidemiology, the Environment, and
    Clinical Trials. Springer, 179–191.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> W = lgm.spatial.adjacency([(0, 1), (1, 2), (2, 3)])
    >>> with pm.Model():
    ...     x = lgm.gmrf.Leroux("x", W=W, sigma=pm.HalfNormal("s"), rho=pm.Beta("rho", 1, 1))
    """
    R = Structure.map(W, scale=scale).R.toarray()
    n = len(R)
    # A vector would scale columns alone, and τ would not be symmetric.
    sigma, rho = one_number("sigma", sigma), one_number("rho", rho)
    tau = (rho * R + (1.0 - rho) * np.eye(n)) / sigma**2
    return pm.MvNormal(name, np.zeros(n), tau=tau, dims=dims)


def pc_prior(
    name: str,
    *,
    upper: float | None = None,
    lower: float | None = None,
    alpha: float = 0.05,
    d: int = 2,
) -> Variable:
    r"""Add a prior that penalizes complexity, for a standard deviation or for a range.

    With ``upper`` it is the prior of a standard deviation σ, an exponential distribution with
    :math:`P(\sigma > \text{upper}) = \alpha`. Its mode is σ = 0, no effect. With ``lower`` it is
    the prior of the range ℓ of a Matérn process, with its mode away from zero:

    .. math:: P(\ell < \text{lower}) = \alpha, \quad \ell^{-d/2} \sim \text{Exponential}.

    Two calls, one for σ and one for ℓ, give the joint prior of Fuglstad et al. (2019, theorem 2.6).

    Parameters
    ----------
    name : str
    upper : float, optional
        Bound that a standard deviation exceeds with probability α.
    lower : float, optional
        Bound that a range falls below with probability α, in units of the inputs.
    alpha : float
        0 < α < 1.
    d : int
        Dimension of the inputs of the process; only with ``lower``.

    Returns
    -------
    variable

    Raises
    ------
    ValueError
        If not exactly one of ``upper`` and ``lower`` is given, or if a number is out of range.

    References
    ----------
    D. Simpson, H. Rue, A. Riebler, T. G. Martins, S. H. Sørbye (2017). Penalising model component
    complexity. Statistical Science 32, 1–28.

    G.-A. Fuglstad, D. Simpson, F. Lindgren, H. Rue (2019). Constructing priors that penalize the
    complexity of Gaussian random fields. JASA 114, 445–452.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     sigma = lgm.gmrf.pc_prior("sigma", upper=1.0, alpha=0.05)
    ...     ell = lgm.gmrf.pc_prior("ell", lower=0.2, alpha=0.05)
    """
    if (upper is None) == (lower is None):
        raise ValueError("Write upper= of a standard deviation, or lower= of a range.")
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha is {alpha}: a probability between 0 and 1.")
    bound = upper if upper is not None else lower
    assert bound is not None
    if not 0.0 < bound < np.inf:
        raise ValueError(f"{'upper' if lower is None else 'lower'} is {bound}: a positive number.")
    if upper is not None:
        return pm.Exponential(name, lam=-np.log(alpha) / bound)
    if d < 1:
        raise ValueError(f"d is {d}: the inputs have one dimension or more.")
    rate = -np.log(alpha) * bound ** (0.5 * d)
    if d == 2:  # 1/ℓ is exponential
        return pm.InverseGamma(name, alpha=1.0, beta=rate)
    return pm.CustomDist(
        name,
        rate,
        dist=lambda rate, size: pm.Exponential.dist(rate, size=size) ** (-2.0 / d),
        transform=pm.distributions.transforms.log,
    )
