"""The force that bends trajectories of theta: about the gradient of the evidence, for much less."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pymc_lgm.approximations.recall import WarmSearch, sites_gradient
from pymc_lgm.approximations.sites_line import SitesLine
from pymc_lgm.linalg import Array
from pymc_lgm.state import LatentGaussian, LikelihoodAt

__all__ = ["evidence_force"]


def evidence_force(
    model: LatentGaussian, line: SitesLine, search: WarmSearch | None
) -> Callable[[Array], Array | None]:
    """Gradient of log p(theta) and of the evidence, by the sites that a line has there.

    Parameters
    ----------
    model : LatentGaussian
        Mean, covariance, likelihood and prior must have a gradient in theta.
    line : SitesLine
    search : WarmSearch, optional
        Brings sites that are not trusted nearer: their errors are errors of the gradient.

    Returns
    -------
    callable
        theta (p,) -> gradient (p,), ``None`` where it is not a number. A function of theta alone;
        two O(n³) operations, and those of the search.
    """
    nearer = None if search is None else search.along(line)

    # Far out on a trajectory a matrix may be no matrix: such a theta has no force.
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def force(theta: Array) -> Array | None:
        prior = model.prior(theta) if np.isfinite(theta).all() else None
        if prior is None:
            return None
        of_prior, sites = model.log_prior_gradient(theta), line(theta)
        far = nearer is not None and not sites.trusted
        q = nearer(LikelihoodAt(model, theta), prior) if nearer is not None and far else None
        if far and q is None:
            return None
        gradient = sites_gradient(
            prior,
            sites if q is None else q.sites,
            likelihood_gradient=lambda f: model.log_likelihood_theta_gradient(f, theta),
        )
        return None if gradient is None or not np.isfinite(of_prior).all() else gradient + of_prior

    return force
