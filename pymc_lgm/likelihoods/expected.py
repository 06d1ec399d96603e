"""Observations of a process that is represented by inducing variables: E log p(y | f)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import convert_observed_data
from pytensor.tensor.variable import TensorVariable

from pymc_lgm.approximations.quadrature import normal_rule
from pymc_lgm.compile.graphs.upstream import tensor_variable_of
from pymc_lgm.likelihoods.closed_forms import closed_form
from pymc_lgm.likelihoods.registry import mark

__all__ = ["NODES", "Expected", "Projected", "column", "observe", "of_classes"]

NODES = 12
"""Nodes of the Gauss–Hermite rule: error 1e-7 for a probit of f with variance 1, 1e-4 with 4."""


class Projected:
    r"""f at the inputs of the data, given inducing variables: f_i ~ N(mean_i, variance_i).

    ``prior`` of a `pymc_lgm.gp.SparseLatent` returns one. It is not a tensor, because a likelihood
    reads both moments of f_i instead of its value, which makes the posterior an approximation. It
    can be indexed, ``f[group]``, and shifted, ``f + X @ beta``.

    Attributes
    ----------
    mean, variance : tensor, shape (n,)
        :math:`m(x_i) + a_i^\top v` and :math:`k(x_i, x_i) - a_i^\top a_i`.
    """

    __array_ufunc__ = None  # so that array + f calls __radd__

    def __init__(self, mean: TensorVariable, variance: TensorVariable):
        self.mean, self.variance = mean, variance

    def __getitem__(self, index: Any) -> Projected:
        """Select elements, or repeat them."""
        return Projected(self.mean[index], self.variance[index])

    def __add__(self, offset: Any) -> Projected:
        """Add a number, or a term with theta or coefficients."""
        return Projected(self.mean + offset, self.variance)

    __radd__ = __add__

    def __repr__(self) -> str:
        """Return a short description."""
        return "Projected(mean, variance): f given its inducing variables"


@tensor_variable_of.register(Projected)
def _refuse(f: Projected, *args: Any, **kwargs: Any) -> TensorVariable:
    raise TypeError(
        "f of a SparseLatent is a normal distribution for each observation, and not a tensor. "
        "Pass it to a likelihood of this package, as lgm.Probit('y', f=f, observed=y), or to "
        "lgm.gp.Expected('y', lambda f: pm.Poisson.dist(pm.math.exp(f)), f, observed=y)."
    )


def Expected(
    name: str, dist: Callable[..., Any], f: Projected, *params: Any, **kwargs: Any
) -> TensorVariable:
    r"""Observe a process that is represented by inducing variables, with any distribution.

    The log density of an observation is

    .. math::

       E\{\log p(y_i \mid f_i)\}, \qquad f_i \sim N(\mu_i, \gamma_i) .

    This has a closed form for a normal y with mean or log standard deviation a + b f, and for a
    Poisson y with log rate a + b f, if the graph of `dist` shows it. Otherwise it is computed by a
    Gauss–Hermite rule of 12 nodes. With the prior of the inducing variables it defines the best
    approximation to the posterior of f among those in which f depends on the data only through the
    inducing variables (Hensman et al. 2015, eq. 7). It is not a density of y, because
    :math:`\exp E \log p` does not sum to one. Draws of y have :math:`f_i \sim N(\mu_i, \gamma_i)`.

    Parameters
    ----------
    name : str
    dist : callable
        (f, ``*params``) -> a distribution of y, each element of which depends on its own f_i.
    f : Projected
        The result of ``gp.prior`` of a `pymc_lgm.gp.SparseLatent`.
    *params : tensor_like
        All variables of the model that `dist` uses, such as a scale.
    **kwargs
        ``observed``, ``dims``, ``shape`` and others, as for every distribution.

    References
    ----------
    J. Hensman, A. G. de G. Matthews, M. Filippone, Z. Ghahramani (2015). MCMC for variationally
    sparse Gaussian processes. NIPS 28.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> with pm.Model() as model:
    ...     gp = lgm.gp.SparseLatent(cov_func=pm.gp.cov.ExpQuad(1, ls=0.2))
    ...     f = gp.prior("f", X, Xu=X[::10])
    ...     sigma = pm.HalfNormal("sigma")
    ...     y = lgm.gp.Expected(
    ...         "y",
    ...         lambda f, sigma: pm.StudentT.dist(4, mu=f, sigma=sigma),
    ...         f,
    ...         sigma,
    ...         observed=np.sin(6 * X[:, 0]),
    ...     )
    >>> round(float(model.compile_logp()(model.initial_point())))
    -70
    """
    if not isinstance(f, Projected):
        raise TypeError(
            f"f is a {type(f).__name__}: pass what gp.prior of an lgm.gp.SparseLatent returned. "
            "Observe a process of another kind with the distribution itself."
        )
    return observe(name, dist, f, params, **kwargs)


def observe(
    name: str,
    dist: Callable[..., Any],
    f: Projected,
    params: Sequence[Any],
    *,
    expected_logp: Callable[..., Any] | None = None,
    by_class: bool = False,
    **kwargs: Any,
) -> TensorVariable:
    """Observe a process, or a process per class, with an expected log density.

    Parameters
    ----------
    name, dist, f, params, **kwargs
        As in `Expected`. If there are classes, f has them along its first axis.
    expected_logp : callable, optional
        (y, mean, variance, ``*params``) -> E log p(y | f). By default `closed_form`, if it finds a
        formula, or quadrature.
    by_class : bool
        Whether an observation reads a process per class. Then ``expected_logp`` is required, with
        the classes along the last axis of mean and variance.
    """
    nodes, weights = normal_rule(NODES)

    def random(mean: Any, variance: Any, *params_and_size: Any) -> Any:
        *params, size = params_and_size
        shape = None if isinstance(size, pt.variable.TensorConstant) and size.data is None else size
        if by_class and not rv_size_is_none(size):
            shape = pt.concatenate([size, mean.shape[-1:]])
        drawn = pm.Normal.dist(mean, pt.sqrt(variance), size=shape)
        return dist(pt.moveaxis(drawn, -1, 0) if by_class else drawn, *params)

    def logp(value: Any, mean: Any, variance: Any, *params: Any) -> Any:
        if expected_logp is not None:
            return expected_logp(value, mean, variance, *params)
        exact = closed_form(dist, value, mean, variance, params)
        if exact is not None:
            return exact
        at = column(nodes, mean.ndim) * pt.sqrt(variance)
        values = pm.logp(dist(mean + at, *params), value)
        return pt.sum(column(weights, values.ndim - 1) * values, axis=0)

    if np.ma.is_masked(convert_observed_data(convert_observed_data(kwargs.get("observed")))):
        raise ValueError(
            f"{name}: observed has missing values. exp E log p is not a density of them, so they "
            "would change the posterior of f. Leave their rows out, as f[seen] and y[seen]."
        )
    moments = [pt.as_tensor(f.mean), pt.as_tensor(f.variance)]
    mean, variance = (pt.moveaxis(x, 0, -1) for x in moments) if by_class else moments
    kwargs.setdefault("class_name", "Expected")
    rv: TensorVariable = pm.CustomDist(
        name, mean, variance, *params, dist=random, logp=logp, **kwargs
    )
    mark(rv)
    return rv


def of_classes(f: Any) -> Any:
    """Stack a list of `Projected` processes, one per class, along a new first axis.

    Raises
    ------
    TypeError
        If only some of the processes are `Projected`.
    """
    if not isinstance(f, list | tuple) or not any(isinstance(each, Projected) for each in f):
        return f
    if not all(isinstance(each, Projected) for each in f):
        raise TypeError(
            "Some of f are processes of lgm.gp.SparseLatent, and some are not: write all of them "
            "as pm.gp.Latent, or all as lgm.gp.SparseLatent."
        )
    return Projected(pt.stack([each.mean for each in f]), pt.stack([each.variance for each in f]))


def column(x: Any, ndim: int) -> Any:
    """A vector along a new first axis, with ``ndim`` axes of length 1 after it."""
    return pt.constant(x.reshape((x.size, *[1] * ndim)))
