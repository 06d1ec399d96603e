"""Targets of theta, one class a file: each holds something about f fixed, or integrates f out.

``target.evaluate(theta)`` gives the log density of theta and the state there, f included; any move
on theta can use it. ``fix(rng, state)`` of a class makes its target at a state.
"""

from __future__ import annotations

from functools import partial

from pymc_lgm.approximations.site_posteriors import site_approximation, taylor_approximation
from pymc_lgm.targets.posterior_whitened import PosteriorWhitenedTarget
from pymc_lgm.targets.sufficient import SufficientTarget
from pymc_lgm.targets.surrogate import SurrogateTarget
from pymc_lgm.targets.target import Fix
from pymc_lgm.targets.whitened import WhitenedTarget

__all__ = ["DIFFERENTIABLE", "PARAMETERIZATIONS"]

PARAMETERIZATIONS: dict[str, Fix] = {
    "sufficient": SufficientTarget.fix,
    "whitened": WhitenedTarget.fix,
    "surrogate-site": partial(SurrogateTarget.fix, search=site_approximation),
    "surrogate-taylor": partial(SurrogateTarget.fix, search=taylor_approximation),
    "posterior-site": partial(PosteriorWhitenedTarget.fix, search=site_approximation),
    "posterior-taylor": partial(PosteriorWhitenedTarget.fix, search=taylor_approximation),
}
"""Parameterizations by name."""


DIFFERENTIABLE = frozenset({"sufficient", "whitened"})
"""Parameterizations whose targets have a ``gradient``."""
