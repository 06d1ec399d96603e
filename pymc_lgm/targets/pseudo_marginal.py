"""Pseudo-marginal: theta moves with f integrated out by importance sampling, exactly.

Filippone and Girolami (2014), *Pseudo-marginal Bayesian inference for Gaussian processes*, IEEE
TPAMI 36. Andrieu and Roberts (2009) prove that an unbiased estimate of p(y | theta) is enough.

Here it is a kernel on (theta, f). An approximation q of p(f | y, theta) gives N importance draws
f_j, which are functions of theta and of standard normal coordinates ξ_j. The extended target is a
density of theta, all ξ_j, and the index k of the draw that is f:

    p(theta) ∏_j N(ξ_j; 0, I) × (1/N) w(f_k, theta),   w(f, theta) = p(y | f) N(f; m, K) / q(f).

Its marginal in (theta, f_k) is the posterior. Its sum over k is p(theta) p̃(y | theta) ∏_j N(ξ_j),
where p̃ = (1/N) Σ_j w(f_j, theta) is the estimate. A move on theta compares these sums and then
draws k.

`PseudoMarginalTarget.fix` draws the other N − 1 draws given f, as conditional importance sampling
does (Andrieu, Doucet and Holenstein 2010, §4.5). So the chain carries only (theta, f), and other
kernels may move them in between. If none has, the chain may carry all draws instead of redrawing
them, as Andrieu and Roberts (2009) do: that is the extended target itself.
"""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.approximations.gaussian import GaussianApproximation, Search
from pymc_lgm.approximations.importance import (
    CachedSample,
    Coordinates,
    Estimate,
    ImportanceSample,
    Proposal,
    Scheme,
    importance_sample,
)
from pymc_lgm.state import AtTheta, State
from pymc_lgm.targets.approximate_evidence import ApproximateEvidence
from pymc_lgm.targets.approximate_marginal import EvidenceTarget
from pymc_lgm.targets.target import FirstStage, Nowhere, Target

__all__ = ["PseudoMarginalTarget", "draw_latent", "estimated", "noise_of_ratio", "proposal_at"]


@dataclass(frozen=True, eq=False)
class PseudoMarginalTarget(EvidenceTarget):
    """Integrate f out with an estimate of the evidence: log p̃(y | theta) + log p(theta).

    ``state`` has an f that is chosen again among the N draws, so f changes even if the move on
    theta is rejected. An accepted move takes f from the draws at the new theta. The first stage of
    delayed acceptance compares approximate evidences, before K is factorized and anything is drawn.

    Attributes
    ----------
    rng : numpy.random.Generator
    coordinates : Coordinates
        The ξ of the estimate at ``state``.
    scheme : Scheme
        How many importance draws there are, and how they are drawn.
    correlation : float
        ρ, as in `fix`.

    Notes
    -----
    The sampler is valid because f stays among the N draws. An estimate from N *fresh* draws at the
    current theta would not be: a chain whose estimate is too high would get a lower one before each
    move, and leave too early.

    A proposal costs the O(n³) operations of q and one for the factor of K. The current theta costs
    none unless another kernel has moved it. N draws are made at each of the two thetas, or only at
    the proposal if the current sample is cached.
    """

    rng: np.random.Generator
    coordinates: Coordinates
    scheme: Scheme
    correlation: float

    @classmethod
    def fix(
        cls,
        rng: np.random.Generator,
        state: State,
        *,
        search: Search,
        scheme: Scheme,
        correlation: float = 0.0,
        keep: bool = False,
        evidence: ApproximateEvidence | None = None,
    ) -> Target:
        """Refresh the importance draws around f, and redraw f among them.

        Parameters
        ----------
        rng : numpy.random.Generator
        state : State
        search : callable
            Computes q, which must be a function of theta alone: otherwise the sampler is not exact.
        scheme : Scheme
            The number of draws, and how they are drawn. With one draw, the move is the joint update
            of (theta, f) of Knorr-Held and Rue (2002).
        correlation : float
            Correlation ρ between the coordinates of the current estimate and those of a proposal:
            the errors cancel in the ratio of the estimates as ρ approaches 1 (Deligiannidis, Doucet
            and Pitt 2018). With ρ = 1 the density is a deterministic function of theta, as slice
            sampling needs (Murray and Graham 2016). With ρ = 1 and one draw, f is held fixed in the
            coordinates of q.
        keep : bool
            Do not refresh the importance sample that the state has cached. This choice must not
            depend on theta, f or the sample.
        evidence : ApproximateEvidence, optional
            The source of the target's `slope`; ``None`` for a target without a slope.
        """
        proposal = proposal_at(state.at, search, scheme)
        if proposal is None:
            # A theta without q is never accepted, so to leave it would break detailed balance.
            return Nowhere(state)
        made_by = (search, scheme)
        cached = state.cached
        if cached is not None and cached.made_by != made_by:
            cached = None
        if cached is not None and not keep:
            by_f = state.at.log_likelihoods
            cached = cached.redrawn(rng, state.f, proposal, by_f, scheme)
        if cached is None:
            around = Coordinates.around(rng, state.f, proposal, scheme)
            sample = importance_sample(proposal, state.at.log_likelihoods, around, scheme)
            cached = CachedSample(made_by, around, sample)
        chosen = _one_of(rng, state.at, cached.sample, cached)
        log_density = cached.sample.log_evidence + state.log_prior
        options = (rng, cached.coordinates, scheme, correlation)
        return cls(chosen, log_density, search, evidence, *options)

    @property
    def is_noisy(self) -> bool:
        """True unless all estimates have the same coordinates."""
        return self.correlation < 1.0

    def second_stage(self, first: FirstStage) -> tuple[float, State | None]:
        """Estimate the evidence, and draw f."""
        at = first.at
        proposal = proposal_at(at, self.search, self.scheme) if at.is_proper else None
        if proposal is None:
            return -math.inf, None
        perturbed = self.coordinates.perturbed(self.rng, self.correlation)
        draws = importance_sample(proposal, at.log_likelihoods, perturbed, self.scheme)
        if draws.log_evidence == -math.inf:
            return -math.inf, None
        cached = CachedSample((self.search, self.scheme), perturbed, draws)
        moved = _one_of(self.rng, at, draws, cached)
        return draws.log_evidence + at.log_prior, moved


def proposal_at(at: AtTheta, search: Search, scheme: Scheme) -> Proposal | None:
    """Importance distribution at a theta, computed once; ``None`` if there is no q."""
    q = at.approximation(search)
    if q is None:
        return None
    options = scheme.defensive, scheme.transported  # the number of draws does not matter
    return at.once(("proposal", search, *options), lambda: Proposal.of(q, at.likelihood, *options))


def draw_latent(
    rng: np.random.Generator, state: State, proposal: Proposal, scheme: Scheme
) -> State:
    """Draw f by weight from fresh importance draws, whatever f was: O(n² N) operations.

    It does not leave p(f | y, theta) invariant, unless q is exact, so it is for tuning and for
    approximate samplers. If the likelihood of every draw is zero, f does not change.
    """
    coordinates = Coordinates.fresh(rng, proposal, scheme)
    sample = importance_sample(proposal, state.at.log_likelihoods, coordinates, scheme)
    if sample.log_evidence == -math.inf:
        return state
    return _one_of(rng, state.at, sample)


def noise_of_ratio(
    rng: np.random.Generator, at: AtTheta, proposal: Proposal, scheme: Scheme
) -> float:
    """log p̃' − log p̃ of two independent estimates at the same theta.

    Its variance is twice that of log p̃. The number of importance draws is tuned by it.
    """
    one, two = (
        importance_sample(
            proposal, at.log_likelihoods, Coordinates.fresh(rng, proposal, scheme), scheme
        )
        for _ in range(2)
    )
    return two.log_evidence - one.log_evidence


def estimated(state: State, q: GaussianApproximation | None) -> dict[str, float]:
    """Statistics of the evidence estimate at a state's theta; NaN if there is none."""
    if q is None or state.estimate is None:
        unknown = dict.fromkeys((*Estimate._fields, "approximate_log_evidence"), math.nan)
        return unknown | {"mode_iterations": 0}
    return state.estimate._asdict() | {
        "approximate_log_evidence": q.log_evidence,
        "mode_iterations": q.iterations,
    }


def _one_of(
    rng: np.random.Generator,
    at: AtTheta,
    sample: ImportanceSample,
    cached: CachedSample | None = None,
) -> State:
    """A state whose f is one of the draws, chosen by weight."""
    k = sample.choose(rng)
    f, log_likelihood = sample.f[:, k].copy(), float(sample.log_likelihood[k])
    return State(at, f, log_likelihood, sample.estimate, cached)
