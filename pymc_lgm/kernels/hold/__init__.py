"""Parameterizations of theta's target, one file each: ``fix(rng, state) -> target``.

``target(theta)`` gives the log density of theta in that parameterization and the state there,
f included; any move on theta can use it.
"""

from __future__ import annotations

from functools import partial

from pymc_lgm.approximations.site_posteriors import NOISES
from pymc_lgm.kernels.hold.posterior_whitened import posterior_whitened
from pymc_lgm.kernels.hold.sufficient import sufficient
from pymc_lgm.kernels.hold.surrogate import surrogate
from pymc_lgm.kernels.hold.target import Fix
from pymc_lgm.kernels.hold.whitened import whitened

__all__ = ["DIFFERENTIABLE", "PARAMETERIZATIONS"]

PARAMETERIZATIONS: dict[str, Fix] = {
    "sufficient": sufficient,
    "whitened": whitened,
    "surrogate-site": partial(surrogate, noise="site"),
    "surrogate-taylor": partial(surrogate, noise="taylor"),
    "posterior-site": partial(posterior_whitened, search=NOISES["site"]),
    "posterior-taylor": partial(posterior_whitened, search=NOISES["taylor"]),
}
"""Parameterizations by name."""


DIFFERENTIABLE = frozenset({"sufficient", "whitened"})
"""Parameterizations whose targets have a ``gradient`` and a ``geometry``."""
