"""The step method of Metropolis on f."""

from __future__ import annotations

import math

from typing import Any, Unpack, get_args

from pymc_lgm import kernels
from pymc_lgm.kernels.latent.metropolis import Proposal
from pymc_lgm.steps.latent import LatentStep
from pymc_lgm.steps.options import StepOptions, between, one_of, positive

__all__ = ["NealMetropolis"]


class NealMetropolis(LatentStep):
    """Move f given theta by proposals drawn from the prior; leaves p(f | y, theta) invariant.

    For comparison; it is the cheapest move. It needs no gradient and costs one likelihood
    evaluation and O(n²). See `pymc_lgm.kernels.latent.metropolis`.

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
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

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
    ...     step = lgm.NealMetropolis(f, proposal="random-walk")
    >>> step
    NealMetropolis([f])
    """

    name = "neal_metropolis"
    needs = "nothing"

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
        between("target_accept", target_accept, 1.0)
        largest = 1.0 if proposal == "autoregressive" else math.inf
        if not 0.0 < step_size <= largest:
            raise ValueError(
                f"step_size must be positive, and at most 1 for proposal='autoregressive', where 1 "
                f"draws from the prior, not {step_size!r}."
            )
        self.move = kernels.latent.NealMetropolis(
            repeats=positive("repeats", repeats),
            proposal=proposal,
            step_size=step_size,
            target_accept=target_accept,
        )
        super().__init__(vars, **kwargs)
