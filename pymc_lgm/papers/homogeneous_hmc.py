"""A Gaussian approximation whose W is evaluated at the constant f that fits best.

Its precision K⁻¹ + W does not depend on f. It is the homogeneous metric F̂ that Filippone uses for
a multinomial logit with several kernels, with W at the class frequencies.
"""

from __future__ import annotations

import math

from typing import Any, Unpack, get_args

import numpy as np

from pymc_lgm.approximations.gaussian import (
    GaussianApproximation,
    SiteLikelihood,
)
from pymc_lgm.gaussian import Prior
from pymc_lgm.gaussian.sites import SiteBlocks, is_finite, nonnegative
from pymc_lgm.kernels.latent import CurvatureHMC
from pymc_lgm.kernels.latent.stepping import Integrator
from pymc_lgm.linalg import Array
from pymc_lgm.steps.latent import LatentStep
from pymc_lgm.steps.options import StepOptions, between, one_of, positive

__all__ = ["HomogeneousHMC", "best_constant", "class_frequency"]

SPREAD = 10.0
"""Prior standard deviation of the constants. It keeps the constant of a class without data finite,
and a common shift of all classes at 0."""


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
    count = np.bincount(kind)
    c = np.bincount(kind, weights=start) / count
    log_likelihood, g, W, _ = likelihood(c[kind])
    objective = log_likelihood - 0.5 * float(c @ c) / SPREAD**2
    if not (math.isfinite(objective) and np.isfinite(g).all() and is_finite(W)):
        return None
    for _ in range(50):
        slope = np.bincount(kind, weights=g) - c / SPREAD**2
        positive, each = nonnegative(W), np.eye(count.size)[kind]
        product = positive.times(each) if isinstance(positive, SiteBlocks) else positive[:, None]
        curvature = each.T @ product + np.eye(count.size) / SPREAD**2
        step = np.linalg.solve(curvature, slope)
        if float(slope @ step) < 1e-8:
            break
        for halvings in range(30):
            there = c + 0.5**halvings * step
            log_likelihood, g_there, W_there, _ = likelihood(there[kind])
            reached = log_likelihood - 0.5 * float(there @ there) / SPREAD**2
            if reached > objective and np.isfinite(g_there).all() and is_finite(W_there):
                break
        else:
            break
        c, g, W, objective = there, g_there, W_there, reached
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


class HomogeneousHMC(LatentStep):
    """Move f given theta by HMC with the homogeneous metric; leaves p(f | y, theta) invariant.

    For comparison. M⁻¹ = (K⁻¹ + W)⁻¹ with the W of the class frequencies, or of the constant f that
    fits best (F̂ of Filippone 2017, a thesis). A leapfrog step costs O(n²), and each theta one O(n³)
    operation. See `class_frequency`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    integrator : {"rotation", "leapfrog"}
        "rotation" solves the motion under the approximation exactly.
    path_length : float
        Each trajectory takes 1 to path_length / ε steps of size ε, uniformly.
    max_steps : int
        Largest number of steps.
    target_accept : float
        Acceptance probability to which tuning brings the step size.
    step_size : float
        Initial step size ε.
    repeats : int
        Trajectories per draw.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

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
    needs = "curvature in f"

    def __init__(
        self,
        vars: Any = None,
        *,
        integrator: Integrator = "rotation",
        path_length: float = 2.4,
        max_steps: int = 100,
        target_accept: float = 0.8,
        step_size: float = 0.2,
        repeats: int = 1,
        **kwargs: Unpack[StepOptions],
    ):
        between("step_size", step_size)
        between("path_length", path_length)
        between("target_accept", target_accept, 1.0)
        one_of("integrator", integrator, get_args(Integrator))
        self.move = CurvatureHMC(
            repeats=positive("repeats", repeats),
            integrator=integrator,
            path_length=path_length,
            max_steps=positive("max_steps", max_steps),
            step_size=step_size,
            target_accept=target_accept,
            search=class_frequency,
        )
        super().__init__(vars, **kwargs)
