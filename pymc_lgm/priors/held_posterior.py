"""A dense prior that a device holds, conditioned on a diagonal W."""

from __future__ import annotations

from typing import Self

from pymc_lgm.linalg import Array, CholeskyFactor
from pymc_lgm.priors.dense_posterior import DensePosterior
from pymc_lgm.priors.precision import rooted
from pymc_lgm.priors.site_posterior import Dense, SitePosterior

__all__ = ["HeldPosterior"]


class HeldPosterior(SitePosterior):
    """See `SitePosterior`: by the verbs of the factors, since compiled loops have no K here."""

    dual = DensePosterior.dual
    spread = DensePosterior.spread
    deviations = DensePosterior.deviations
    whitened_deviations = DensePosterior.whitened_deviations
    evidence_gradient = DensePosterior.evidence_gradient

    def __init__(self, prior: Dense, W: Array, B: CholeskyFactor):
        self.prior: Dense = prior
        self.precision, self._W, self._B = W, rooted(W), B

    @classmethod
    def by(cls, prior: Dense, W: Array, B: CholeskyFactor | None) -> Self | None:
        """``None`` if there is no factor."""
        return None if B is None else cls(prior, W, B)
