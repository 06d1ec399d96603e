"""The step method of Knorr-Held and Rue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from pymc_lgm.steps.options import Importance, StepOptions, unknown_options
from pymc_lgm.steps.pseudo_marginal import PseudoMarginal

__all__ = ["KnorrHeldRue"]


class KnorrHeldRue(PseudoMarginal):
    """Propose theta and f from q(f | theta) together; leaves p(theta, f | y) invariant.

    The joint update of Knorr-Held and Rue (2002) with a Laplace approximation in dense models. It
    is the pseudo-marginal sampler with one importance draw that is not cached. The defaults are the
    paper's: Laplace and a random walk, without predicted sites, correlated estimates or
    interweaving.

    Parameters
    ----------
    vars, approximation, move, latent_move, importance, target_accept, scale
        As in `PseudoMarginal`.
    **kwargs
        ``model``, ``theta``, ``rng``, ``initial_point`` and others: see `LatentGaussianStep`.

    References
    ----------
    Knorr-Held and Rue (2002), *On block updating in Markov random field models for disease
    mapping*, Scandinavian Journal of Statistics 29; Filippone, Zhong and Girolami (2013), §4.3.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.papers.KnorrHeldRue()
    >>> step
    KnorrHeldRue([f, eta_log__])
    """

    name = "knorr_held_rue"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        approximation: str | None = "laplace",
        move: str | None = "metropolis",
        latent_move: str | None = None,
        importance: Importance = Importance(correlation=0.0),
        target_accept: float | None = None,
        scale: float | None = None,
        **kwargs: Unpack[StepOptions],
    ):
        if unknown := [name for name in kwargs if name not in StepOptions.__annotations__]:
            raise TypeError(unknown_options(type(self), unknown))
        super().__init__(
            vars,
            approximation=approximation,
            move=move,
            n_importance=1,
            latent_move=latent_move,
            importance=importance,
            sites="optimized",
            interweave=False,
            target_accept=target_accept,
            scale=scale,
            **kwargs,
        )
