"""Approximate marginal: theta moves on an approximate evidence with f integrated out.

Not exact: it leaves the density with logarithm log q(y | theta) + log p(theta) invariant ("MCMC EP"
of Filippone and Girolami 2014, §5). A pseudo-marginal sampler tunes on this target, since it has no
noise and cannot stick. `pymc_lgm.reweight` computes weights that make such draws exact.
"""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.approximations.gaussian import Search
from pymc_lgm.linalg import Array
from pymc_lgm.state import State
from pymc_lgm.targets.approximate_evidence import ApproximateEvidence
from pymc_lgm.targets.target import FirstStage, Nowhere, Slope, Target

__all__ = ["ApproximateMarginalTarget", "EvidenceTarget"]


@dataclass(frozen=True, eq=False)
class EvidenceTarget(Target):
    """A target with f integrated out, whose first stage is q's evidence: log q(y) + log p(theta).

    A subclass defines the second stage. The first needs no factor of K, and nothing is drawn.

    Attributes
    ----------
    search : callable
        Computes q, a function of theta alone.
    evidence : ApproximateEvidence or None
        The source of the slope; ``None`` for a target without a slope.
    """

    search: Search
    evidence: ApproximateEvidence | None

    def evaluate(self, theta: Array) -> tuple[float, State | None]:
        """Pass both stages."""
        first = self.first_stage(theta)
        return (-math.inf, None) if first is None else self.second_stage(first)

    @property
    def has_stages(self) -> bool:
        """Always."""
        return True

    @property
    def first_log_density(self) -> float:
        """log q(y | theta) + log p(theta) at the state."""
        q = self.state.at.approximation(self.search)
        assert q is not None, "a target where there is no q"
        return q.log_evidence + self.state.log_prior

    def first_stage(self, theta: Array) -> FirstStage | None:
        """log q(y | theta) + log p(theta)."""
        at = self.state.at.moved(theta)
        q = None if at is None else at.approximation(self.search)
        return None if at is None or q is None else FirstStage(q.log_evidence + at.log_prior, at, q)

    @property
    def has_slope(self) -> bool:
        """Whether an evidence was given."""
        return self.evidence is not None

    def slope(self, theta: Array) -> Slope | None:
        """The slope of the evidence that was given."""
        assert self.evidence is not None, "a target without a slope: use metropolis"
        # Far out on a trajectory a matrix may not be finite. Such a theta has no slope.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self.state.at.elsewhere(theta, self.evidence, self.evidence)


@dataclass(frozen=True, eq=False)
class ApproximateMarginalTarget(EvidenceTarget):
    """Integrate f out with q's evidence: log q(y | theta) + log p(theta).

    The f of its states is q's center, to be replaced by a draw.
    """

    @classmethod
    def fix(
        cls, state: State, *, search: Search, evidence: ApproximateEvidence | None = None
    ) -> Target:
        """Begin at a state. The target is deterministic."""
        q = state.at.approximation(search)
        if q is None:
            return Nowhere(state)
        return cls(state, q.log_evidence + state.log_prior, search, evidence)

    def second_stage(self, first: FirstStage) -> tuple[float, State | None]:
        """The density of the first stage, and the state."""
        at = first.at
        moved = at.state(first.q.center) if at.is_proper else None
        return (-math.inf, None) if moved is None else (first.log_density, moved)
