"""Step methods that move theta with f integrated out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from pymc.exceptions import SamplingError

from pymc_lgm import checks, sweep
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.recall import laplace_from_sites, recall
from pymc_lgm.parameterizations.approximate_marginal import Search, approximated
from pymc_lgm.state import State
from pymc_lgm.steps.base import LatentGaussianStep, between, no_gradient, one_of, positive

__all__ = ["APPROXIMATIONS", "KnorrHeldRue", "PseudoMarginal"]

APPROXIMATIONS: dict[str, Search] = {"laplace": laplace_from_sites, "ep": ep}
"""Gaussian approximations by the name that a user writes in ``approximation=``."""


KNORR_HELD_RUE: dict[str, Any] = {
    "approximation": "laplace",
    "move": "metropolis",
    "correlation": 0.0,
    "latent": None,
    "recall": False,
    "interweave": False,
}
MOVES = ("emulator", "hmc", "metropolis", "slice")


class PseudoMarginal(LatentGaussianStep):
    """Integrate f out by importance sampling while theta moves; leaves p(theta, f | y) invariant.

    A Gaussian approximation q(f | theta), a function of theta alone, gives an unbiased estimate of
    p(y | theta), and f with it: theta and f move together. This is what ``pm.sample()`` runs on a
    model with a likelihood of this package. See `pymc_lgm.parameterizations.pseudo_marginal`.

    Parameters
    ----------
    vars : sequence of variables, optional
        f and the hyper-parameters to move; by default all continuous ones.
    approximation : {"laplace", "ep"}, optional
        Where q comes from: the mode of f, or expectation propagation, which is closer to the
        posterior. By default "ep" if the likelihood can be split over the elements of f.
    move : {"emulator", "hmc", "metropolis", "slice"}, optional
        How theta moves: by long jumps that an emulator of the evidence proposes, by HMC along the
        gradient of the evidence that the recalled sites have, by an adaptive random walk, or by
        component-wise slice sampling with the estimate's random numbers held (Murray and Graham
        2016). By default "emulator", where the prior of theta has a gradient. If from the middle of
        tuning on less than 0.7 of its jumps are accepted, HMC moves theta in one draw of five, and
        in all of them if it is less than 0.3, as can happen with ten hyper-parameters.
    n_importance : int, optional
        N: draws of f an estimate. By default 32, and 64 where tuning sees that the noise of a ratio
        of two would have a variance above 0.05.
    correlation : float, optional
        ρ in [0, 1]: how much of an estimate's random numbers the next one keeps. Near 1 the
        errors of the two cancel in the acceptance ratio, and few draws are enough. By default
        0.99, and 1 for ``move="slice"``.
    latent : str, optional
        A move of f given theta beside the importance draws: by default "posterior", HMC in the
        geometry of q, which costs no factorization; or one of `Sweep`, such as "hmc"; or ``None``.
    recall : bool
        After tuning, take the sites of q from a line in theta that was fitted to those of tuning:
        one O(n³) operation. ``False`` searches for q anew at each theta: 2 to 4, EP 2 to 8.
    copula : bool
        Give draws of q the skewed marginals of expectation propagation, as far as the prior's
        smoothness lets each f_i go: where a datum cuts its f_i off, estimates are ten times
        less noisy. For recalled sites of expectation propagation; one O(n³) operation for each
        theta of tuning, two where sites are searched for afterwards.
    interweave : bool
        Move theta by a whitened random walk, which needs no estimate, in one draw of five. Where
        tuning has seen that less than a tenth of the proposals is accepted, since no Gaussian is
        near the posterior of f, add one to each draw: two O(n³) operations more.
    antithetic : bool
        Draw importance samples in pairs f̂ ± δ if their number is even.
    defensive : float
        Share of importance draws from the prior: bounds the weights where q has lighter tails
        than the posterior.
    delayed : bool
        Delayed acceptance of the random walk: look at the approximate evidence first, and pay for
        the estimate only if it would accept. Saves a factorization a rejection, and accepts less.
    approximate : bool
        Run on the approximate evidence alone: **not exact** ("MCMC EP" of the paper), and labelled
        by its statistic ``approximate_log_evidence``. `correct` makes its draws exact afterwards.
    tolerance : float
        With ``recall=False``, a search of the exact chain stops when q would move by less than
        this. A loose one costs no exactness: searches do not depend on the chain after tuning.
    target_accept, scale
        Of the random walk on theta, as in `ASIS`.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    Notes
    -----
    Two O(n³) operations a proposal, the factors of K and of B; two more for each step of
    ``move="hmc"``. In tuning, and afterwards far from where it has been, q is searched for: 3 to 8.
    ``sample_stats``: ``theta_acceptance``, ``theta_scale``, ``log_evidence``,
    ``log_evidence_sd``, ``pareto_k``, ``n_importance``, ``mode_iterations``, those of the latent
    move, ``cubic_ops``, ``numerical_rejections``; of a slice ``theta_evaluations``, with
    ``approximate=True`` ``approximate_log_evidence``.

    References
    ----------
    Filippone and Girolami (2014), *Pseudo-marginal Bayesian inference for Gaussian processes*,
    IEEE TPAMI 36; Deligiannidis, Doucet and Pitt (2018), *The correlated pseudo-marginal method*,
    JRSS-B 80; Ferkingstad and Rue (2015), *Improving the INLA approach for approximate Bayesian
    inference for latent Gaussian models*, EJS 9, for the copula.

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
    moves, needs, cubic_ops = "f and theta", "curvature in f", "2-12"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        approximation: str | None = None,
        move: str | None = None,
        n_importance: int | None = None,
        correlation: float | None = None,
        latent: str | None = "posterior",
        recall: bool = True,
        copula: bool = True,
        interweave: bool = True,
        antithetic: bool = True,
        defensive: float = 0.0,
        delayed: bool = False,
        approximate: bool = False,
        tolerance: float = 0.05,
        target_accept: float | None = None,
        scale: float | None = None,
        **kwargs: Any,
    ):
        one_of("approximation", approximation, (None, *APPROXIMATIONS))
        one_of("move", move, (None, *MOVES))
        one_of("latent", latent, (None, "posterior", *sweep.LATENT_MOVES))
        if correlation is None:
            correlation = 1.0 if move == "slice" else 0.99
        for option, value in (("correlation", correlation), ("defensive", defensive)):
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{option} must lie between 0 and 1, not {value!r}.")
        between("tolerance", tolerance)
        between("target_accept", target_accept, 1.0)
        between("scale", scale)
        if move == "slice" and (delayed or target_accept is not None or scale is not None):
            raise ValueError(
                "target_accept, scale and delayed are options of a random walk, and move='slice' "
                "has none: leave them out."
            )
        if defensive == 1.0:
            raise ValueError("defensive must be below 1: some draws have to come from q.")
        if move == "slice" and correlation < 1.0 and not approximate:
            raise ValueError(
                "move='slice' needs a target that is a function of theta. Write correlation=1, or "
                "move='metropolis'."
            )
        if n_importance == 1 and correlation == 1.0 and latent is None:
            raise ValueError(
                "With n_importance=1 and correlation=1, f moves only as theta carries it. Write "
                "latent='hmc', or correlation=0.99."
            )
        self.approximation, self.move, self.latent = approximation, move, latent
        self.recall, self.tolerance, self.approximate = recall, tolerance, approximate
        self.interweave = interweave and not approximate
        self.copula = copula and recall and not approximate
        self.target_accept, self.scale, self.delayed = target_accept, scale, delayed
        self.estimate: dict[str, Any] = {
            "n_importance": None
            if n_importance is None
            else positive("n_importance", n_importance),
            "antithetic": antithetic,
            "defensive": defensive,
            "correlation": correlation,
        }
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[sweep.Element]:
        if not self.lgm.has_gradient:
            raise ValueError(no_gradient(self.lgm, "lgm.ASIS()"))
        if self.approximation is None:
            self.approximation = "ep" if self._splits() else "laplace"
        elif self.approximation == "ep":
            # A density that cannot be split over the f_i is refused here, not at the first draw.
            self.lgm.site_log_likelihoods(np.zeros((1, self.lgm.n)), np.zeros(self.lgm.p))
        if self.approximation == "laplace":
            checks.refuse_no_curvature(self.lgm, "approximation='ep', or lgm.ASIS()")
        self.pseudo_marginal = sweep.PseudoMarginal(
            explore=partial(APPROXIMATIONS[self.approximation], tolerance=1e-3),
            guide=self._guide(),
            search=self._search(),
            move=self._move(),
            latent=self._posterior_hmc() if self.latent == "posterior" else None,
            exact=not self.approximate,
            interweave=sweep.Theta("whitened", sweep.Metropolis()) if self.interweave else None,
            copula=self.copula and self.approximation == "ep",
            **self.estimate,
        )
        # An approximate chain draws f afresh each time.
        latent = None if self.approximate or self.latent == "posterior" else self.latent
        if (
            self.latent is None
            and not self.approximate
            and self.lgm.p == 0
            and self.estimate["n_importance"] == 1
        ):
            # One draw is f itself, and no theta would ever bring another.
            latent = "hmc"
        moves = [] if latent is None else [sweep.LATENT_MOVES[latent]()]
        return [*moves, self.pseudo_marginal]

    def _posterior_hmc(self) -> sweep.CurvatureHMC | None:
        return None if self.approximate else sweep.CurvatureHMC(search=None, max_steps=10)

    def _search(self) -> Search:
        if self.recall:
            return recall
        if self.approximation == "ep":
            return partial(ep, tolerance=self.tolerance)
        return partial(laplace_from_sites, tolerance=self.tolerance, at_mode=False)

    def _guide(self) -> Search | None:
        if self.move not in (None, "emulator", "hmc") or not self.lgm.has_theta_gradient:
            return None
        return partial(APPROXIMATIONS[self.approximation or "laplace"], tolerance=0.1)

    def _splits(self) -> bool:
        try:
            self.lgm.site_log_likelihoods(np.zeros((1, self.lgm.n)), np.zeros(self.lgm.p))
        except ValueError:
            return False
        return True

    def _move(self) -> sweep.Move:
        walk = sweep.Metropolis(self.target_accept, self.scale, self.delayed)
        move = self.move or ("emulator" if self.lgm.has_prior_gradient else "metropolis")
        if move == "emulator":
            if not self.lgm.has_prior_gradient:
                raise ValueError(
                    "move='emulator' differentiates the prior of theta, and it cannot be. Write "
                    "move='metropolis'."
                )
            guided = sweep.Guided(walk) if self.lgm.has_theta_gradient else None
            return sweep.Emulated(walk, guided=guided)
        if move == "hmc":
            if not self.lgm.has_theta_gradient:
                raise ValueError(
                    "move='hmc' differentiates mean, covariance, likelihood and prior in theta, "
                    "and one of them cannot be. Write move='metropolis'."
                )
            return sweep.Guided(walk)
        return walk if move == "metropolis" else sweep.Slice()

    def _begin(self, state: State) -> State:
        approximation = approximated(state, self.pseudo_marginal.explore, None)
        if approximation is None:
            raise SamplingError(
                checks.no_approximation(self.lgm, state.theta, self.approximation or "laplace")
            )
        return approximation


class KnorrHeldRue(PseudoMarginal):
    """Propose theta and f from q(f | theta) together; leaves p(theta, f | y) invariant.

    The joint update of Knorr-Held and Rue (2002) with a Laplace approximation in dense models: the
    pseudo-marginal sampler with one importance draw and nothing kept of it. Takes the options of
    `PseudoMarginal` other than ``n_importance``; by default it is the paper's: Laplace, a random
    walk, and nothing that is recalled, correlated or interwoven.

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
    cubic_ops = "3-5"

    def __init__(self, vars: Sequence[Any] | None = None, **kwargs: Any):
        if "n_importance" in kwargs:
            raise TypeError(
                "lgm.KnorrHeldRue has one importance draw. Write "
                f"lgm.PseudoMarginal(n_importance={kwargs['n_importance']!r}) for another number."
            )
        super().__init__(
            vars,
            n_importance=1,
            **KNORR_HELD_RUE | kwargs,
        )
