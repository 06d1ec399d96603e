"""The base class of step methods that integrate f out: the choice of q and of the theta move."""

from __future__ import annotations

import logging

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Unpack

import numpy as np

from pymc.exceptions import SamplingError

from pymc_lgm import kernels
from pymc_lgm.approximations.emulator import MANY_HYPERPARAMETERS
from pymc_lgm.approximations.ep import ep
from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.recall import WarmSearch, laplace_from_sites
from pymc_lgm.approximations.variational import variational
from pymc_lgm.kernels.hold.approximate_evidence import (
    ApproximateEvidence,
    gradient_of_ep,
    gradient_of_laplace,
    gradient_of_variational,
)
from pymc_lgm.kernels.theta.survey import SURVEYED
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.model.diagnose import (
    no_approximation,
    refuse_coupling,
    refuse_large_sets,
    refuse_no_curvature,
)
from pymc_lgm.state import State
from pymc_lgm.steps.base import LatentGaussianStep
from pymc_lgm.steps.options import (
    StepOptions,
    between,
    no_gradient,
    one_of,
    positive,
    public_name,
)

__all__ = ["MOVES", "Importance", "Marginal", "theta_move"]

_log = logging.getLogger("pymc.lgm")  # PyMC shows its lines

NO_SLOPE = (
    "PseudoMarginal moves %d hyper-parameters without a gradient: tuning begins with a survey of "
    "the approximate evidence, and a random walk takes over if its emulator finds too little."
)
"""Logged if theta has no gradient, so that NUTS cannot be used."""

TOLERANCE = 1.0
"""Nats by which the search for a slope may be off: the end of a trajectory is evaluated."""

APPROXIMATIONS: dict[str, Callable[..., GaussianApproximation | None]] = {
    "laplace": laplace_from_sites,
    "ep": ep,
    "variational": variational,
}
"""Gaussian approximations by their name in ``approximation=``."""

BY_SITES = {"ep": (ep, gradient_of_ep), "variational": (variational, gradient_of_variational)}
"""Approximations that split ℓ over the elements of f, and the gradients of their evidences."""


MOVES = ("emulator", "nuts", "metropolis", "delayed-metropolis", "slice")

FEW_THETAS = 3
"""Largest number of hyper-parameters for which an emulator learns enough from a random walk."""


@dataclass(frozen=True)
class Importance:
    """How importance draws of f are made: an option of `PseudoMarginal`.

    Parameters
    ----------
    correlation : float, optional
        ρ in [0, 1], the correlation of the random numbers of successive estimates. Near 1 their
        errors cancel in the acceptance ratio, so few draws are enough. The default is 1 for
        ``move="slice"``; 0 if tuning finds that estimates of ``n_importance`` draws have little
        noise, for a process with inducing variables and for areas whose effects are integrated out;
        and 0.99 otherwise.
    antithetic : bool, optional
        Draw in pairs f̂ ± δ if the number of draws is even. This is the default except for a
        series: its transported draws have the same error on both sides.
    defensive : float
        Share of draws from the prior. It bounds the weights if q has lighter tails than the
        posterior.
    copula : bool
        Give draws of q the skewed marginals of expectation propagation, as far as the prior's
        smoothness allows for each f_i. If an observation truncates its f_i, estimates are ten times
        less noisy. This needs predicted sites of expectation propagation. It costs one O(n³)
        operation for each theta of tuning, and two if sites are re-optimized afterwards. The draws
        of a series are transported jointly for O(n) each; two to four of them are as good as 64.

    Examples
    --------
    >>> import pymc_lgm as lgm
    >>> lgm.Importance(defensive=0.1)
    Importance(correlation=None, antithetic=None, defensive=0.1, copula=True)
    """

    correlation: float | None = None
    antithetic: bool | None = None
    defensive: float = 0.0
    copula: bool = True

    def __post_init__(self) -> None:
        """Raise if ``correlation`` or ``defensive`` is out of range."""
        if self.correlation is not None and not 0.0 <= self.correlation <= 1.0:
            raise ValueError(f"correlation must lie between 0 and 1, not {self.correlation!r}.")
        if not 0.0 <= self.defensive < 1.0:
            raise ValueError(
                f"defensive must lie between 0 and 1, and below 1, not {self.defensive!r}: some "
                "draws have to come from q."
            )


class Marginal(LatentGaussianStep):
    """The part that samplers with f integrated out share: q and the move on theta."""

    moves, needs = "f and theta", "curvature in f"
    collapses = True
    renamed: ClassVar[dict[str, str]] = {
        "delayed": "move='delayed-metropolis'",
        "correlation": "importance=lgm.Importance(correlation=...)",
        "antithetic": "importance=lgm.Importance(antithetic=...)",
        "defensive": "importance=lgm.Importance(defensive=...)",
        "copula": "importance=lgm.Importance(copula=...)",
    }
    element: kernels.ApproximateMarginal

    def __init__(
        self,
        vars: Sequence[Any] | None,
        approximation: str | None,
        move: str | None,
        n_importance: int | None,
        importance: Importance,
        target_accept: float | None,
        scale: float | None,
        **kwargs: Unpack[StepOptions],
    ):
        one_of("approximation", approximation, (None, *APPROXIMATIONS))
        one_of("move", move, (None, *MOVES))
        between("target_accept", target_accept, 1.0)
        between("scale", scale)
        self.approximation, self.move = approximation, move
        self.n_importance = None if n_importance is None else positive("n_importance", n_importance)
        self.importance, self.target_accept, self.scale = importance, target_accept, scale
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[kernels.Element]:
        if not self.lgm.has_gradient:
            raise ValueError(no_gradient(self.lgm, "lgm.ASIS()"))
        refuse_large_sets(self.lgm, public_name(type(self)))
        if self.approximation is None:
            one_by_one = self.lgm.sets is None and self.lgm.is_log_concave
            of_sites = "ep" if one_by_one else "variational"
            by_mode = not self._splits()
            self.approximation = "laplace" if by_mode else of_sites
        elif self.approximation == "ep":
            refuse_coupling(self.lgm, "approximation='ep'")
        if self.approximation in BY_SITES:
            # A density that cannot be split over the f_i is refused here, not at the first draw.
            self.lgm.site_log_likelihoods(np.zeros((1, self.lgm.n)), np.zeros(self.lgm.p))
        if self.approximation == "laplace":
            refuse_no_curvature(self.lgm, "approximation='ep', or lgm.ASIS()")
        form, antithetic = self.lgm.form, self.importance.antithetic
        together = form.is_bent and self.importance.copula
        self.element = self._element(
            explore=self._warm(1e-3),
            surrogate=self._surrogate(),
            move=self._move(),
            n_importance=self.n_importance,
            # A draw by a transport map costs as much as the rest of a proposal.
            fewest=2 if together else form.fewest,
            together=together,
            antithetic=not form.is_bent if antithetic is None else antithetic,
            defensive=self.importance.defensive,
            rests=not self.lgm.other_names,
        )
        return [self.element]

    def _element(self, **common: Any) -> kernels.ApproximateMarginal:
        raise NotImplementedError(f"{type(self).__name__} must say which element it is.")

    def _splits(self) -> bool:
        try:
            self.lgm.site_log_likelihoods(np.zeros((1, self.lgm.n)), np.zeros(self.lgm.p))
        except ValueError:
            return False
        return True

    def _by_sites(self) -> Callable[..., GaussianApproximation | None] | None:
        known = BY_SITES.get(self.approximation or "laplace")
        return None if known is None else known[0]

    def _warm(self, tolerance: float) -> WarmSearch:
        return WarmSearch(APPROXIMATIONS[self.approximation or "laplace"], tolerance)

    def _surrogate(self) -> ApproximateEvidence | None:
        if self.move not in (None, "emulator", "nuts") or not self._has_gradient:
            return None
        if self.approximation in BY_SITES:
            search, gradient = BY_SITES[self.approximation]
            return ApproximateEvidence(
                WarmSearch(partial(search, differentiable=True), TOLERANCE), gradient
            )
        return ApproximateEvidence(self._warm(TOLERANCE), gradient_of_laplace)

    def _move(self) -> kernels.Move:
        return theta_move(self.lgm, self.move, self._has_gradient, self.target_accept, self.scale)

    @property
    def _has_gradient(self) -> bool:
        """Whether theta moves by a gradient. For a sum: with many components, or if NUTS is named.

        For a sum with up to twelve components, a survey of the evidence needs no compiled gradient.
        """
        if self.lgm.has_theta_gradient:
            return True
        asked = self.move == "nuts" or self.lgm.p > MANY_HYPERPARAMETERS
        return asked and self.lgm.has_evidence_gradient

    @property
    def _shown(self) -> list[str]:
        # f is drawn with theta, and mostly needs no other move.
        return [name for name in super()._shown if name != "latent_acceptance"]

    def _begin(self, state: State) -> None:
        if state.at.approximation(self.element.explore) is None:
            raise SamplingError(
                no_approximation(self.lgm, state.theta, self.approximation or "laplace")
            )


def theta_move(
    model: LatentGaussianModel,
    move: str | None,
    has_slope: bool,
    target_accept: float | None,
    scale: float | None,
) -> kernels.Move:
    """The move on theta that the user has chosen, or the default."""
    if move == "slice" and (target_accept is not None or scale is not None):
        raise ValueError(
            "target_accept and scale are options of a random walk, and move='slice' has none: "
            "leave them out."
        )
    walk = kernels.Metropolis(target_accept, scale, move == "delayed-metropolis")
    nuts = kernels.NUTS(target_accept or 0.7) if has_slope else None
    if move is None and model.has_prior_gradient:
        move = "emulator" if nuts is None or model.p <= MANY_HYPERPARAMETERS else "nuts"
    if move == "emulator":
        if not model.has_prior_gradient:
            raise ValueError(
                "move='emulator' differentiates the prior of theta, and it cannot be. Write "
                "move='metropolis'."
            )
        few = model.p <= FEW_THETAS
        if nuts is None and model.p > SURVEYED:
            _log.info(NO_SLOPE, model.p)
        explorer = walk if nuts is not None and few else None
        # With two or three components, more than three trajectories reach no further.
        trajectories = 3 if few else 6
        # With sets a gradient costs twice an evaluation, so NUTS would take most of tuning.
        explored, first, aside = (0.2, 10, 0.0) if model.sets is None else (0.1, 4, 0.1)
        return kernels.Emulated(
            *(nuts or walk, explorer, explored, first),
            n_trajectories=trajectories,
            aside=aside,
        )
    if move == "nuts":
        if nuts is None:
            raise ValueError(
                "move='nuts' differentiates mean, covariance, likelihood and prior in theta, "
                "and one of them cannot be. Write move='metropolis'."
            )
        return nuts
    return kernels.Slice() if move == "slice" else walk
