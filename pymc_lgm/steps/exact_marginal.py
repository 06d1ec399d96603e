"""Step methods on theta for models that observe a multivariate normal vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import pymc as pm

from pymc_lgm import samplers
from pymc_lgm.model import find_latents, find_observed
from pymc_lgm.model.reading import Reading
from pymc_lgm.state import State
from pymc_lgm.steps.base import LatentGaussianStep, values_of
from pymc_lgm.steps.marginal import theta_move
from pymc_lgm.steps.options import StepOptions
from pymc_lgm.steps.plan import Facts, Options, plan

__all__ = ["ExactMarginal", "ObservedNormalStep"]


class ObservedNormalStep(LatentGaussianStep):
    """A step on theta for a model that observes one multivariate normal vector."""

    def _reading_and_theta(
        self, vars: Sequence[Any] | None, model: pm.Model, candidates: list[Any] | None
    ) -> tuple[Reading, list[Any]]:
        reading = find_latents(model, find_observed(model))
        missing = [model.rvs_to_values[rv] for rv in reading.missing]
        theta = model.continuous_value_vars
        if vars is not None:
            theta = values_of(vars if isinstance(vars, list | tuple) else [vars], model)
        theta = [value for value in theta if value not in missing]
        self._refuse_discrete(theta)
        if not theta:
            raise ValueError(
                f"{type(self).__name__} moves continuous hyper-parameters, and was given none. "
                "Leave it out: pm.sample() has a step for all else."
            )
        return reading, theta

    def _depart(self, state: State) -> dict[str, Any]:
        """Return theta alone: f is data."""
        data = {self.lgm.latent: state.f}
        return self.lgm.missing_of(self.rng, state.theta, data) | self.lgm.point_of(state.theta)


class ExactMarginal(ObservedNormalStep):
    """Move theta if y is multivariate normal, as in `pymc.gp.Marginal`.

    With normal noise f is integrated out in closed form: y ~ N(m(theta), C(theta)), C = K(theta) +
    σ² I. The sampler leaves p(theta | y) invariant. Its log density, log N(y; m, C) + log p(theta),
    costs one factorization. Theta moves as in `PseudoMarginal`, by jumps on an emulator of the
    evidence, and by NUTS if the emulator is poor, but no evidence has to be estimated.

    Parameters
    ----------
    vars : sequence of variables, optional
        The hyper-parameters to move; by default all continuous variables.
    move : {"emulator", "nuts", "metropolis", "slice"}, optional
        By default "emulator"; "nuts" if there are more than twelve hyper-parameters.
    target_accept, scale
        Options of the random walk, as in `Sweep`. With NUTS, ``target_accept`` is the acceptance of
        its leapfrog steps.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    See Also
    --------
    PseudoMarginal : If the likelihood is not normal.

    Notes
    -----
    A jump on the emulator costs one O(n³) operation; if jumps are rarely accepted, a draw makes up
    to four. A leapfrog step of NUTS costs two. ``sample_stats``: ``theta_acceptance``,
    ``theta_scale``, ``theta_steps``, ``cubic_ops``, ``numerical_rejections``.

    Raises
    ------
    ValueError
        If the model does not observe exactly one multivariate normal vector.

    References
    ----------
    Rasmussen and Williams (2006), *Gaussian processes for machine learning*, §5.4.1; Liu (2001),
    *Monte Carlo strategies in scientific computing*, §9.4.3.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> X = np.linspace(0, 1, 5)[:, None]
    >>> with pm.Model():
    ...     length, sigma = pm.InverseGamma("length", 3, 3), pm.HalfNormal("sigma", 1)
    ...     gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls=length))
    ...     y = gp.marginal_likelihood("y", X, y=np.sin(6 * X[:, 0]), sigma=sigma)
    ...     step = lgm.ExactMarginal()
    >>> step
    ExactMarginal([length_log__, sigma_log__])
    """

    name = "exact_marginal"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        move: str | None = None,
        target_accept: float | None = None,
        scale: float | None = None,
        **kwargs: Unpack[StepOptions],
    ):
        self.options = Options("ExactMarginal", move=move, target_accept=target_accept, scale=scale)
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[samplers.Element]:
        self.plan = plan(Facts.of(self.lgm), self.options)
        move = theta_move(self.plan, self.options)
        return [samplers.ExactMarginal(move, self.plan.has_slope, self.plan.facts.is_alone)]
