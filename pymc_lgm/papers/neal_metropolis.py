"""Metropolis on f given theta with proposals drawn from the prior: no gradient, no factorization.

Neal (1999), *Regression and classification using Gaussian process priors*, Bayesian Statistics 6;
"MH v1" and "MH v2", eqs. (11) and (12) of Filippone, Zhong and Girolami (2013). The second is known
as the preconditioned Crank-Nicolson proposal: Cotter, Roberts, Stuart and White (2013), *MCMC
methods for functions*, Statistical Science 28.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import Any, Literal, Unpack, get_args

import numpy as np

from pymc_lgm.moves.latent.stepping import Info, Stepping
from pymc_lgm.state import State, acceptance_probability
from pymc_lgm.steps.latent import LatentStep
from pymc_lgm.steps.options import StepOptions, one_of

__all__ = ["NealMetropolis", "NealMove", "Proposal", "metropolis"]

Proposal = Literal["autoregressive", "random-walk"]


def metropolis(
    rng: np.random.Generator,
    state: State,
    *,
    step_size: float,
    proposal: Proposal = "autoregressive",
) -> tuple[State, Info]:
    """Leave p(f | y, theta) invariant by a step α u, u ~ N(0, K), that is accepted or not.

    With z = f − m the proposal is one of

        z' = √(1 − α²) z + α u    "autoregressive", MH v2,
        z' = z + α u              "random-walk", MH v1.

    The first leaves the prior invariant and reversible, so the likelihood alone decides,
    min(1, p(y | f') / p(y | f)). The second is symmetric, and the ratio has
    N(z'; 0, K) / N(z; 0, K) as a factor, too.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    step_size : float
        α > 0; at most 1 for the autoregressive proposal, where 1 draws from the prior.
    proposal : {"autoregressive", "random-walk"}

    Returns
    -------
    State, Info
        The same state if the proposal is rejected.

    Notes
    -----
    A proposal costs one product L ξ and, for the random walk, one solve with L, both O(n²), and one
    likelihood evaluation. α has to shrink as the data become more informative, and for the random
    walk also as n grows.
    """
    z = state.f - state.mean
    xi = rng.standard_normal(state.prior.rank)
    log_ratio = 0.0
    if proposal == "autoregressive":
        z_new = math.sqrt(1.0 - step_size**2) * z + step_size * state.prior.multiply(xi)
    else:
        z_new = z + step_size * state.prior.multiply(xi)
        nu = state.prior.solve(z)
        nu_new = nu + step_size * xi
        log_ratio = 0.5 * float(nu @ nu - nu_new @ nu_new)
    f = state.mean + z_new
    log_likelihood = state.at.log_likelihood(f)
    log_ratio += log_likelihood - state.log_likelihood
    info = Info(acceptance_probability(log_ratio), 1)
    if rng.uniform() < info.latent_acceptance:
        return state.with_f(f, log_likelihood) or state, info
    return state, info


@dataclass(frozen=True)
class NealMove(Stepping):
    """Metropolis on f with proposals drawn from the prior; learns their size. No gradient."""

    target_accept: float = 0.25
    proposal: Proposal = "autoregressive"
    needs_gradient = False

    def _maximum(self, state: State) -> float:
        return 1.0 if self.proposal == "autoregressive" else math.inf

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        return metropolis(rng, state, step_size=step_size, proposal=self.proposal)


class NealMetropolis(LatentStep):
    """Move f given theta by proposals drawn from the prior; leaves p(f | y, theta) invariant.

    For comparison; it is the cheapest move. It needs no gradient and costs one likelihood
    evaluation and O(n²). See `metropolis`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    proposal : {"autoregressive", "random-walk"}
        √(1 − α²) z + α u ("MH v2" of the papers, preconditioned Crank-Nicolson) or z + α u
        ("MH v1"), with u drawn from the prior.
    target_accept : float
        Acceptance probability to which tuning brings α.
    step_size : float
        Initial value of α; at most 1 for the autoregressive proposal.
    repeats : int
        Moves per draw.
    **kwargs
        ``model``, ``theta``, ``rng``, ``initial_point`` and others: see `LatentGaussianStep`.

    References
    ----------
    Neal (1999), *Regression and classification using Gaussian process priors*; Filippone, Zhong and
    Girolami (2013), eqs. (11) and (12).

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.papers.NealMetropolis(f, proposal="random-walk")
    >>> step
    NealMetropolis([f])
    """

    name = "neal_metropolis"

    def __init__(
        self,
        vars: Any = None,
        *,
        proposal: Proposal = "autoregressive",
        target_accept: float = 0.25,
        step_size: float = 0.2,
        repeats: int = 1,
        **kwargs: Unpack[StepOptions],
    ):
        one_of("proposal", proposal, get_args(Proposal))
        largest = 1.0 if proposal == "autoregressive" else math.inf
        if not 0.0 < step_size <= largest:
            raise ValueError(
                f"step_size must be positive, and at most 1 for proposal='autoregressive', where 1 "
                f"draws from the prior, not {step_size!r}."
            )
        move = NealMove(repeats, step_size, target_accept, proposal)
        super().__init__(vars, move, **kwargs)
