"""HMC on f with a metric that is the same at every f.

The metric is K⁻¹ + W with W at the constant f that fits the data best. It is the homogeneous metric
F̂ that Filippone (2017) uses for a multinomial logit, where this W is that of the class
frequencies.
"""

from __future__ import annotations

import math

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_lgm import samplers
from pymc_lgm.approximations.gaussian import GaussianApproximation, SiteLikelihood
from pymc_lgm.gaussian import Prior
from pymc_lgm.gaussian.sites import SiteBlocks, is_finite, nonnegative
from pymc_lgm.linalg import Array
from pymc_lgm.moves.latent import CurvatureHMC
from pymc_lgm.steps.latent import LatentHMC

__all__ = ["HomogeneousHMC", "best_constant", "class_frequency"]

SPREAD = 10.0
"""Standard deviation of a normal prior for the constants, wide for a logit.

Without it the constant of a class without data would be −∞, and a common shift of all classes would
be arbitrary.
"""

CLOSE = 1e-8
"""A step of Newton's method that can gain half as many nats is not taken: the constant is found."""

STEPS, HALVINGS = 50, 30
"""Largest number of steps, and of halvings of a step. The objective is concave for most
likelihoods, so that a few of each suffice; the bounds end a search for which it is not."""


def best_constant(likelihood: SiteLikelihood, start: Array) -> Array | None:
    """Maximize ℓ over f that is one number, or one number per class.

    Newton's method with step halving maximizes ℓ(f⁰) − ½ |c|²/10², where f⁰_i = c_k if f_i is the
    k-th element that its observation reads. For a softmax, c_k is the logarithm of the frequency of
    class k, up to a shift. For counts, c is the logarithm of their mean.

    Parameters
    ----------
    likelihood : callable
        f -> (ℓ, g, W, third derivative).
    start : ndarray, shape (n,)
        The search begins at its mean per class.

    Returns
    -------
    ndarray, shape (n,), or None
        f⁰, or ``None`` if ℓ at the start is not finite.
    """
    kind = _places(likelihood, start.size)
    each = np.eye(kind.max() + 1)
    members = each[kind]
    c = np.bincount(kind, weights=start) / np.bincount(kind)

    def at(c: Array) -> tuple[float, Array, Any] | None:
        """The objective, g and W at constants c; ``None`` if one is not finite."""
        log_likelihood, g, W, _ = likelihood(c[kind])
        objective = log_likelihood - 0.5 * float(c @ c) / SPREAD**2
        if not (math.isfinite(objective) and np.isfinite(g).all() and is_finite(W)):
            return None
        return objective, g, W

    here = at(c)
    if here is None:
        return None
    for _ in range(STEPS):
        objective, g, W = here
        slope = np.bincount(kind, weights=g) - c / SPREAD**2
        W = nonnegative(W)
        weighted = W.times(members) if isinstance(W, SiteBlocks) else W[:, None] * members
        step = np.linalg.solve(members.T @ weighted + each / SPREAD**2, slope)
        if float(slope @ step) < CLOSE:
            break
        for halvings in range(HALVINGS):
            there = at(c + 0.5**halvings * step)
            if there is not None and there[0] > objective:
                break
        else:
            break
        c = c + 0.5**halvings * step
        here = there
    return c[kind]


def class_frequency(
    likelihood: SiteLikelihood, prior: Prior, *, start: Array | None = None
) -> GaussianApproximation | None:
    """Approximate p(f | y, theta) by one step of Newton's method from the best constant f⁰.

    With g and W at f⁰, the precision is F̂ = K⁻¹ + W, and the center is m + K a with a =
    (I + W K)⁻¹ (W (f⁰ − m) + g). For a softmax likelihood W is diag(π) − π πᵀ for each observation,
    with π the class frequencies of the data.

    Parameters
    ----------
    likelihood : callable
        f -> (ℓ, g, W, third derivative).
    prior : Prior
    start : ndarray, shape (n,), optional
        Ignored; the constant does not depend on it.

    Returns
    -------
    GaussianApproximation or None
        A function of theta alone. ``None`` if f⁰ or K⁻¹ + W is not finite.

    Notes
    -----
    One O(n³) operation per theta, or C + 1 with C classes, and no search over f. The "RM-HMC" of
    Filippone (2017), a habilitation thesis, uses F̂ as its metric.
    """
    constant = best_constant(likelihood, prior.mean)
    if constant is None:
        return None
    log_likelihood, g, W, _ = likelihood(constant)
    posterior = prior.condition(nonnegative(W))
    if posterior is None:
        return None
    a, z = posterior.center(posterior.precision_times(constant - prior.mean) + g)
    log_likelihood, *_ = likelihood(prior.mean + z)
    return GaussianApproximation.at(posterior, a, z, log_likelihood - 0.5 * float(z @ a))


def _places(likelihood: SiteLikelihood, n: int) -> np.ndarray:
    """Position of f_i in its set, shape (n,)."""
    if likelihood.sets is None:
        return np.zeros(n, dtype=np.intp)
    of_f = np.zeros(n, dtype=np.intp)
    at = np.nonzero(likelihood.sets >= 0)
    of_f[likelihood.sets[at]] = at[1]
    return of_f


class HomogeneousHMC(LatentHMC):
    """Move f given theta by HMC with the homogeneous metric; leaves p(f | y, theta) invariant.

    M⁻¹ = (K⁻¹ + W)⁻¹ with the W of the class frequencies, or of the constant f that fits best (F̂
    of Filippone 2017, a thesis). A leapfrog step costs O(n²), and each theta one O(n³) operation.
    See `class_frequency`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    **options
        As in `LatentHMC`, except ``metric``.

    See Also
    --------
    LatentHMC : With ``metric="curvature"``, the W of a Laplace approximation.

    References
    ----------
    Filippone et al. (2012), *Probabilistic prediction of neurological disorders with a statistical
    assessment of neuroimaging data modalities*, Annals of Applied Statistics 6, §5.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.papers.HomogeneousHMC(f)
    >>> step
    HomogeneousHMC([f])
    """

    name = "homogeneous_hmc"

    def __init__(self, vars: Any = None, **options: Any):
        super().__init__(vars, metric="curvature", **options)

    def _sweep(self) -> Sequence[samplers.Element]:
        assert isinstance(self.move, CurvatureHMC)
        self.move = replace(self.move, search=class_frequency)
        return super()._sweep()
