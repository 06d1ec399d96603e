"""Step methods that move theta with f integrated out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from pymc.exceptions import SamplingError

from pymc_lgm import checks, sweep
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.laplace import laplace
from pymc_lgm.parameterizations.approximate_marginal import Search, approximated
from pymc_lgm.state import State
from pymc_lgm.steps.base import LatentGaussianStep, no_gradient, one_of, positive

__all__ = ["APPROXIMATIONS", "KnorrHeldRue", "PseudoMarginal"]

APPROXIMATIONS: dict[str, Search] = {"laplace": laplace, "ep": ep}
"""Gaussian approximations by the name that a user writes in ``approximation=``."""


class PseudoMarginal(LatentGaussianStep):
    """Integrate f out by importance sampling while theta moves; leaves p(theta, f | y) invariant.

    A Gaussian approximation q(f | theta), found anew at each proposal, gives an unbiased estimate
    of p(y | theta), and f with it: theta and f move together. This is what ``pm.sample()`` runs on
    a model with a likelihood of this package. See `pymc_lgm.parameterizations.pseudo_marginal`.

    Parameters
    ----------
    vars : sequence of variables, optional
        f and the hyper-parameters to move; by default all continuous ones.
    approximation : {"laplace", "ep"}
        How q is found: at the mode of f, or by expectation propagation, which is closer to the
        posterior and costs more (4 to 8 operations).
    n_importance : int, optional
        N: draws of f an estimate. By default tuning chooses 4, 8, 16, 32 or 64, so that the noise
        of an acceptance ratio has a variance of at most 1.
    correlation : float
        ρ in [0, 1]: how much of an estimate's random numbers the next one keeps. Near 1 the
        errors of the two cancel in the acceptance ratio, and few draws are enough.
    latent : {"hmc", "slice", None}
        A move of f given theta before each proposal.
    antithetic : bool
        Draw importance samples in pairs f̂ ± δ if their number is even.
    defensive : float
        Share of importance draws from the prior: bounds the weights where q has lighter tails
        than the posterior.
    delayed : bool
        Delayed acceptance: look at the approximate evidence first, and pay for the estimate only
        if it would accept. Saves a factorization a rejection, and accepts less.
    approximate : bool
        Run on the approximate evidence alone: **not exact** ("MCMC EP" of the paper), and labelled
        by its statistic ``approximate_log_evidence``. `correct` makes its draws exact afterwards.
    tolerance : float
        A mode search stops when the log density can grow by no more than this. A loose one costs
        no exactness, since searches do not depend on the chain after tuning.
    target_accept, scale
        Of the random walk on theta, as in `ASIS`.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    Notes
    -----
    One Cholesky factorization of K a proposal, and as many of B as its mode search takes: after
    tuning it starts from the posterior's center, and one is often enough.
    ``sample_stats``: ``theta_acceptance``, ``theta_scale``, ``log_evidence``,
    ``log_evidence_sd``, ``pareto_k``, ``n_importance``, ``mode_iterations``, those of the latent
    move, ``cubic_ops``, ``numerical_rejections``.

    References
    ----------
    Filippone and Girolami (2014), *Pseudo-marginal Bayesian inference for Gaussian processes*,
    IEEE TPAMI 36; Deligiannidis, Doucet and Pitt (2018), *The correlated pseudo-marginal method*,
    JRSS-B 80.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.PseudoMarginal(n_importance=16, correlation=0.9)
    >>> step
    PseudoMarginal([f, eta_log__])
    """

    name = "pseudo_marginal"
    moves, needs, cubic_ops = "f and theta", "curvature in f", "2-4"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        approximation: str = "laplace",
        n_importance: int | None = None,
        correlation: float = 0.99,
        latent: str | None = "hmc",
        antithetic: bool = True,
        defensive: float = 0.0,
        delayed: bool = False,
        approximate: bool = False,
        tolerance: float = 0.05,
        target_accept: float | None = None,
        scale: float | None = None,
        **kwargs: Any,
    ):
        one_of("approximation", approximation, tuple(APPROXIMATIONS))
        one_of("latent", latent, (None, *sweep.LATENT_MOVES))
        for option, value in (("correlation", correlation), ("defensive", defensive)):
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{option} must lie between 0 and 1, not {value!r}.")
        if defensive == 1.0:
            raise ValueError("defensive must be below 1: some draws have to come from q.")
        if n_importance == 1 and correlation == 1.0 and latent is None:
            raise ValueError(
                "With n_importance=1 and correlation=1, f moves only as theta carries it. Write "
                "latent='hmc', or correlation=0.99."
            )
        self.latent, self.approximation = latent, approximation
        self.pseudo_marginal = sweep.PseudoMarginal(
            search=partial(APPROXIMATIONS[approximation], tolerance=tolerance),
            n_importance=None if n_importance is None else positive("n_importance", n_importance),
            antithetic=antithetic,
            defensive=defensive,
            correlation=correlation,
            delayed=delayed,
            exact=not approximate,
            target_accept=target_accept,
            scale=scale,
        )
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[sweep.Element]:
        if not self.lgm.has_gradient:
            raise ValueError(no_gradient(self.lgm, "lgm.ASIS()"))
        if self.approximation == "laplace":
            checks.refuse_no_curvature(self.lgm)
        if self.approximation == "ep":
            # A density that cannot be split over the f_i is refused here, not at the first draw.
            self.lgm.site_log_likelihoods(np.zeros(self.lgm.n), np.zeros(self.lgm.p))
        # An approximate chain draws f afresh each time.
        latent = self.latent if self.pseudo_marginal.exact else None
        if (
            latent is None
            and self.pseudo_marginal.exact
            and self.lgm.p == 0
            and self.pseudo_marginal.n_importance == 1
        ):
            # One draw is f itself, and no theta would ever bring another.
            latent = "hmc"
        moves = [] if latent is None else [sweep.LATENT_MOVES[latent]()]
        return [*moves, self.pseudo_marginal]

    def _begin(self, state: State) -> State:
        approximation = approximated(state, self.pseudo_marginal.search, None)
        if approximation is None:
            raise SamplingError(checks.no_approximation(self.lgm, state.theta, self.approximation))
        return approximation


class KnorrHeldRue(PseudoMarginal):
    """Propose theta and f from q(f | theta) together; leaves p(theta, f | y) invariant.

    The joint update of Knorr-Held and Rue (2002) with a Laplace approximation in dense models: the
    pseudo-marginal sampler with one importance draw and nothing kept of it. Takes the options of
    `PseudoMarginal` other than ``n_importance``.

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
    ...     step = lgm.KnorrHeldRue()
    >>> step
    KnorrHeldRue([f, eta_log__])
    """

    name = "knorr_held_rue"

    def __init__(self, vars: Sequence[Any] | None = None, **kwargs: Any):
        if "n_importance" in kwargs:
            raise TypeError(
                "lgm.KnorrHeldRue has one importance draw. Write "
                f"lgm.PseudoMarginal(n_importance={kwargs['n_importance']!r}) for another number."
            )
        super().__init__(vars, **{"correlation": 0.0, "latent": None} | kwargs, n_importance=1)
