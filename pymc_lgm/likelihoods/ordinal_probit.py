"""Ordered categories through the normal distribution function."""

from collections.abc import Mapping
from typing import Any, override

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pytensor.tensor.variable import TensorVariable

from pymc_lgm.compile.graphs.smooth import log1mexp
from pymc_lgm.likelihoods.base import Likelihood, LikelihoodRV, as_float, check_constant, fill
from pymc_lgm.likelihoods.normal import log_ndtr

__all__ = ["OrdinalProbit"]


def category(latent: TensorVariable, cutpoints: TensorVariable) -> TensorVariable:
    """Return how many of the cutpoints lie below the latent value."""
    return pt.gt(latent[..., None], cutpoints).sum(axis=-1)


def increasing(cutpoints: TensorVariable) -> TensorVariable:
    """Tell whether the cutpoints increase along the last axis."""
    return pt.all(cutpoints[..., 1:] > cutpoints[..., :-1])


def check_noise_and_cutpoints(
    logp: TensorVariable, cutpoints: TensorVariable, noise: TensorVariable
) -> TensorVariable:
    """Make the evaluation of `logp` an error (in a model, -inf) if parameters are illegal."""
    logp = check_parameters(logp, noise > 0, msg="noise > 0")
    return check_parameters(
        logp, increasing(cutpoints), msg="cutpoints increase along the last axis"
    )


def pick(cutpoints: TensorVariable, index: TensorVariable) -> TensorVariable:
    """Return ``cutpoints[..., index]``, where both may have batch dimensions."""
    if cutpoints.type.ndim == 1:
        return cutpoints[index]
    ndim = max(index.type.ndim, cutpoints.type.ndim - 1)
    index = pt.shape_padleft(index, ndim - index.type.ndim)[..., None]
    cutpoints = pt.shape_padleft(cutpoints, ndim + 1 - cutpoints.type.ndim)
    batch = pt.broadcast_shape(index[..., 0], cutpoints[..., 0])
    index = pt.broadcast_to(index, (*batch, 1))
    cutpoints = pt.broadcast_to(cutpoints, (*batch, cutpoints.shape[-1]))
    return pt.take_along_axis(cutpoints, index, axis=-1)[..., 0]


class OrdinalProbitRV(LikelihoodRV):
    """Draws f plus normal noise and counts the cutpoints below it."""

    name = "ordinal_probit"
    extended_signature = "[rng],[size],(),(c),()->[rng],()"
    _print_name = ("OrdinalProbit", "\\operatorname{OrdinalProbit}")
    is_log_concave = True

    @override
    @classmethod
    def draw(cls, f: Any, cutpoints: Any, noise: Any, *, size: Any, rng: Any) -> Any:
        if rv_size_is_none(size):
            size = implicit_size_from_params(f, cutpoints, noise, ndims_params=cls.ndims_params)
        next_rng, latent = pt.random.normal(f, noise, size=size, rng=rng, return_next_rng=True)
        return next_rng, category(latent, cutpoints)


class OrdinalProbit(Likelihood, Discrete):
    r"""Ordered categories: y is the interval between cutpoints in which f plus normal noise lies.

    .. math::

       p(y \le k \mid f) = \Phi\left(\frac{c_k - f}{\sigma}\right),
       \qquad y \in \{0, 1, \dots, r - 1\}

    with r - 1 increasing cutpoints :math:`c_0 < \dots < c_{r-2}` and noise :math:`\sigma`. Model
    ORD of the source. The density does not change if a constant is added to f and the cutpoints, or
    if f, the cutpoints and the noise are scaled together. So fix the noise and a cutpoint, or give
    f a mean of zero.

    The probability of a category is never computed as a difference. Its interval :math:`(a, b)` is
    reflected so that it lies mostly below zero. Then :math:`\log p = \log \Phi(b) +
    \log(1 - e^\delta)` with :math:`\delta = \log \Phi(a) - \log \Phi(b)`, and each function has
    derivatives without cancellation. So gradients in f, the cutpoints and the noise are right to
    many digits also if p underflows.

    Parameters
    ----------
    f : tensor_like of float
        Latent variables. Broadcasts to the shape of the observations.
    cutpoints : tensor_like of float
        The r - 1 increasing boundaries between categories, in units of f, on the last axis.
    noise : tensor_like of float, default 1
        Positive standard deviation of the noise, in units of f.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ...

    See Also
    --------
    Probit : Two categories.
    Softmax : Classes without an order.

    References
    ----------
    M. Filippone, M. Zhong, M. Girolami (2013). A comparative evaluation of stochastic-based
    inference methods for Gaussian process models. Machine Learning 93, 93-114.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_lgm.likelihoods import OrdinalProbit
    >>> pm.logp(OrdinalProbit.dist(f=0.2, cutpoints=[-1.0, 1.0]), [0, 1, 2]).eval().round(4)
    array([-2.1622, -0.3959, -1.5519])
    """

    rv_type = OrdinalProbitRV
    rv_op = OrdinalProbitRV.rv_op
    core_ndims = {"cutpoints": 1}

    @override
    @classmethod
    def dist(cls, f: Any, cutpoints: Any, noise: Any = 1.0, **kwargs: Any) -> TensorVariable:
        cutpoints = as_float(cutpoints)
        if cutpoints.type.ndim == 0:
            raise ValueError(
                "OrdinalProbit: cutpoints must be a vector with one value between each two "
                "categories, but it is a scalar. For two categories write cutpoints=[c]."
            )
        noise = as_float(noise)
        check_constant(pt.all(noise > 0), "OrdinalProbit: noise must be positive.")
        check_constant(
            increasing(cutpoints),
            "OrdinalProbit: cutpoints must increase along the last axis: sort them.",
        )
        return super().dist([as_float(f), cutpoints, noise], **kwargs)

    @override
    @classmethod
    def outside_support(
        cls, values: np.ndarray, shapes: Mapping[str, tuple[int, ...] | None]
    ) -> tuple[np.ndarray, str]:
        shape = shapes["cutpoints"]
        last = shape[-1] if shape else np.inf
        possible = (values >= 0) & (values <= last) & (values == np.floor(values))
        legal = f"0, ..., {last} with {last} cutpoints" if shape else "0, 1, 2, ..."
        legal += ": subtract 1 if the categories count from 1"
        return ~(possible & np.isfinite(values)), legal

    @staticmethod
    def support_point(
        rv: TensorVariable,
        size: Any,
        f: TensorVariable,
        cutpoints: TensorVariable,
        noise: TensorVariable,
    ) -> TensorVariable:
        """Return the category of f itself."""
        point = category(f, cutpoints)
        return fill(size, point + pt.zeros_like(noise, dtype=point.dtype))

    @staticmethod
    def logp(
        value: TensorVariable, f: TensorVariable, cutpoints: TensorVariable, noise: TensorVariable
    ) -> TensorVariable:
        """Return the log probability of `value`."""
        last = cutpoints.shape[-1]
        legal = pt.ge(value, 0) & pt.le(value, last) & pt.eq(value, pt.floor(value))
        y = pt.switch(legal, value, 0).astype("int64")
        is_first, is_last = pt.eq(y, 0), pt.eq(y, last)
        is_inner = ~(is_first | is_last)

        # If an interval has no left or right end, a finite number replaces it, which must not enter
        # the result, nor put a NaN or an infinity into the gradient.
        lower = pick(cutpoints, pt.maximum(y - 1, 0))
        upper = pick(cutpoints, pt.minimum(y, last - 1))
        left, right = (lower - f) / noise, (upper - f) / noise
        # Computed without f, so that a narrow interval keeps its width if f is far away.
        width = pt.switch(is_inner, (upper - lower) / noise, 1.0)
        mirror = is_last | (is_inner & pt.gt(left + right, 0.0))
        b = pt.switch(mirror, -left, right)
        log_ndtr_b = log_ndtr(b)
        below = log_ndtr(pt.switch(is_inner, b, 0.0) - width)
        share_below = log1mexp(below - pt.switch(is_inner, log_ndtr_b, 0.0))
        logp = log_ndtr_b + pt.switch(is_inner, share_below, 0.0)
        return check_noise_and_cutpoints(pt.switch(legal, logp, -np.inf), cutpoints, noise)

    @staticmethod
    def logcdf(
        value: TensorVariable, f: TensorVariable, cutpoints: TensorVariable, noise: TensorVariable
    ) -> TensorVariable:
        """Return the log probability of an observation of at most `value`."""
        last = cutpoints.shape[-1]
        k = pt.clip(pt.floor(value), 0, last - 1).astype("int64")
        logcdf = log_ndtr((pick(cutpoints, k) - f) / noise)
        logcdf = pt.switch(pt.lt(value, 0), -np.inf, pt.switch(pt.ge(value, last), 0.0, logcdf))
        return check_noise_and_cutpoints(logcdf, cutpoints, noise)
