"""The sampler that is not exact: its element, which moves theta in all phases, and its step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from pymc_lgm import samplers
from pymc_lgm.moves.element import Stats
from pymc_lgm.samplers.marginal import MarginalTuning
from pymc_lgm.state import State
from pymc_lgm.steps.marginal import Marginal
from pymc_lgm.steps.options import Importance, StepOptions
from pymc_lgm.steps.plan import Options

__all__ = ["ApproximateElement", "ApproximateMarginal"]


@dataclass(frozen=True)
class ApproximateElement(samplers.Marginal):
    """One move of theta on q's evidence, then a draw of f by importance weight. Not exact."""

    @property
    def stats(self) -> tuple[str, ...]:
        """The statistics of `Marginal`, and the approximate evidence, from which weights follow.

        Without the estimated evidence if another step moves variables: the chain then leaves no
        density invariant that is known, so that no weights make its draws exact.
        """
        own = super().stats
        if not self.rests:
            own = tuple(name for name in own if name != "log_evidence")
        return (*own, "approximate_log_evidence")

    def _sample(
        self, rng: np.random.Generator, state: State, tuning: MarginalTuning, tune: bool
    ) -> tuple[State, MarginalTuning, Stats]:
        N = tuning.noise.n_importance
        return self._approximately(rng, state, tuning, N, draws_f=True, tune=tune)


class ApproximateMarginal(Marginal):
    """Move theta on an approximate evidence, and draw f by importance weight: **not exact**.

    The chain leaves q(y | theta) p(theta) invariant: the evidence of the approximation q replaces
    that of the model ("MCMC EP" of the paper). The statistic ``approximate_log_evidence`` labels
    the trace. `reweight` computes weights that make the draws exact, unless another step moves
    variables that the densities depend on. See `pymc_lgm.targets.approximate_marginal`.

    Parameters
    ----------
    vars, approximation, move, n_importance, importance, target_accept, scale
        As in `PseudoMarginal`. The chain does not depend on the importance estimates; `reweight`
        does.
    **kwargs
        ``model``, ``theta``, ``rng``, ``initial_point`` and others: see `LatentGaussianStep`.

    See Also
    --------
    reweight : Weights that make the draws exact.
    PseudoMarginal : Exact draws.

    References
    ----------
    Filippone and Girolami (2014), *Pseudo-marginal Bayesian inference for Gaussian processes*,
    IEEE TPAMI 36, §5.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.papers.ApproximateMarginal(n_importance=16)
    >>> step
    ApproximateMarginal([f, eta_log__])
    """

    name = "approximate_marginal"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        approximation: str | None = None,
        move: str | None = None,
        n_importance: int | None = None,
        importance: Importance = Importance(),
        target_accept: float | None = None,
        scale: float | None = None,
        **kwargs: Unpack[StepOptions],
    ):
        options = Options(
            "ApproximateMarginal",
            approximation=approximation,
            move=move,
            n_importance=n_importance,
            importance=importance,
            target_accept=target_accept,
            scale=scale,
        )
        super().__init__(vars, options, **kwargs)

    def _element(self, **common: Any) -> samplers.Marginal:
        return ApproximateElement(**common)
