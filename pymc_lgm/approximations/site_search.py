"""The fixed-point iteration for sites, by sweeps over all of them.

`ep` and `variational` define a sweep, which proposes new sites. This module chooses the step size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pymc_lgm.approximations.gaussian import (
    GaussianApproximation,
    SiteLikelihood,
    allowance,
    plausible,
)
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.approximations.sites import Sites
from pymc_lgm.gaussian import Posterior, Prior
from pymc_lgm.linalg import Array

__all__ = ["Sweep", "mismatch", "site_search"]


class Sweep(NamedTuple):
    """A q, and the sites that a sweep proposes from it."""

    sites: Sites
    posterior: Posterior
    alpha: Array
    z: Array  # ẑ = f̂ − m
    log_evidence: float
    mismatch: float  # nats by which the proposed sites would move q
    asked: Sites
    loss: float  # the next sweep is accepted if it is lower


def mismatch(posterior: Posterior, r: Array, ratio: Array) -> float:
    """Distance that q moves: ½ rᵀ Σ r for the step r of a, plus the KL divergence of variances."""
    return 0.5 * (posterior.quad_form(r) + float((ratio - 1.0 - np.log(ratio)).sum()))


def site_search(
    sweep: Callable[[SiteLikelihood, Array, Posterior], Sweep | None],
    likelihood: SiteLikelihood,
    prior: Prior,
    *,
    start: Sites | None,
    tolerance: float,
    max_iterations: int,
    differentiable: bool,
) -> GaussianApproximation | None:
    """Iterate sweeps until the next one would move q by less than ``tolerance`` nats.

    If the search does not converge from ``start``, it begins again at the sites of Laplace's
    method, so that the result is a function of theta alone in this case, too. A sweep that does not
    lower the loss is rejected, and the step size is halved. After four rejections in a row the q
    with the smallest loss is returned.

    ``sweep`` is a function of the likelihood, ν, and the posterior with these W. The other
    parameters are those of `ep`.
    """
    mean, iterations, share, first = prior.mean, 1, 1.0, None

    def sweep_from(nu: Array, posterior: Posterior | None) -> Sweep | None:
        if posterior is None:
            return None
        return sweep(likelihood, nu, posterior.differentiable() if differentiable else posterior)

    limits: Any = {"tolerance": tolerance, "max_iterations": max_iterations}
    again = partial(site_search, sweep, likelihood, prior, start=None, **limits)

    if start is None:
        first = laplace(likelihood, prior, tolerance=3.0, max_iterations=max_iterations)
        if first is None:
            return None
        iterations = first.iterations
        best = sweep_from(first.sites.nu, first.posterior)
        if best is None:
            return replace(first, converged=False)
    else:
        best = sweep_from(start.nu, prior.condition(start.precision))
        if best is None:
            return again(differentiable=differentiable)
    while best.mismatch > tolerance and iterations < max_iterations and share > 0.1:
        iterations += 1
        next_sites = best.sites.lerp(best.asked, share)
        swept = sweep_from(next_sites.nu, prior.condition(next_sites.precision))
        if swept is not None and swept.loss < best.loss:
            best, share = swept, min(1.0, 2.0 * share)
        else:
            share *= 0.5
    objective = likelihood.value(mean + best.z) - 0.5 * float(best.z @ best.alpha)
    q = GaussianApproximation.at(
        best.posterior, best.alpha, best.z, objective, iterations=iterations
    )
    possible = plausible(objective, likelihood.value(mean), mean.size)
    believed = possible and best.log_evidence <= q.log_evidence + allowance(mean.size)
    converged = believed and best.mismatch <= tolerance
    if start is not None and not converged:
        return again(differentiable=differentiable)
    if first is not None and not possible:
        return replace(first, converged=False)
    evidence = best.log_evidence if believed else q.log_evidence
    return replace(q, log_evidence=evidence, converged=converged)
