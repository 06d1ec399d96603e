"""State: theta, f and what was computed from them, so that nothing is computed twice.

What depends on theta alone is in `AtTheta`: computed when it is asked for, once. A `State` is that
and an f. A kernel gets a `State` and returns a `State`; a rejected proposal returns the same one.
"""

from __future__ import annotations

import math

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.approximations.gaussian import Effects, GaussianApproximation, Search
from pymc_lgm.approximations.importance import Estimate, Kept
from pymc_lgm.gaussian import Prior
from pymc_lgm.latent_gaussian import LatentGaussian
from pymc_lgm.linalg import Array, tally

__all__ = ["AtTheta", "LikelihoodAt", "State", "acceptance_probability"]


@dataclass(frozen=True)
class LikelihoodAt:
    """The likelihood of a model at one theta, as a function of f: what approximations see."""

    model: LatentGaussian
    theta: Array

    def __call__(self, f: Array) -> tuple[float, Array, Any, Array]:
        """ℓ, g, W and ∂³ℓ/∂f³."""
        return self.model.likelihood_terms(f, self.theta)

    def value(self, f: Array) -> float:
        """ℓ, without its derivatives."""
        return self.model.log_likelihood(f, self.theta)

    def sites(self, rows: Array) -> Array:
        """ℓ_i(f_i) of each row of f, shape (N, n), or those of the sets, (N, G)."""
        return self.model.site_log_likelihoods(rows, self.theta)

    @property
    def sets(self) -> NDArray[np.intp] | None:
        """Which f_i an observation reads together."""
        return self.model.sets

    @property
    def probit_signs(self) -> Array | None:
        """Its signs s if it is Σ log Φ(s_i f_i)."""
        return self.model.probit_signs()

    @property
    def effects(self) -> Effects | None:
        """What has been integrated out."""
        return self.model.effects(self.theta)


class AtTheta:
    """A theta, and all that depends on it alone: computed when it is asked for, once.

    Attributes
    ----------
    model : LatentGaussian
    theta : ndarray, shape (p,)
        Hyper-parameters on the unconstrained scale.
    log_prior : float
        log p(theta), finite.
    prior : Prior
        N(m(theta), K(theta)). Its factor is made by the first verb that needs it.
    likelihood : LikelihoodAt
        ℓ as a function of f.
    """

    def __init__(self, model: LatentGaussian, theta: Array, log_prior: float, prior: Prior):
        self.model, self.theta, self.log_prior, self.prior = model, theta, log_prior, prior
        self.likelihood = LikelihoodAt(model, theta)
        self._known: dict[Hashable, Any] = {}
        self._of_covariance: dict[Hashable, tuple[Any, Any]] = {}

    @classmethod
    def of(cls, model: LatentGaussian, theta: Array) -> AtTheta | None:
        """Look at theta; ``None`` where p(theta) is 0, or K, and counted, has no scale."""
        return _looked_at(model, theta, model.prior)

    def moved(self, theta: Array) -> AtTheta | None:
        """Look at another theta, of the same model. Nothing is factorized yet."""
        there = _looked_at(self.model, theta, self.prior.moved)
        if there is not None and there.prior.has_covariance_of(self.prior):
            there._of_covariance = self._of_covariance
        return there

    def state(self, f: Array, estimate: Estimate | None = None) -> State | None:
        """The state with this f; ``None`` where its likelihood is 0 or no number."""
        log_likelihood = self.log_likelihood(f)
        return None if log_likelihood == -math.inf else State(self, f, log_likelihood, estimate)

    @property
    def is_proper(self) -> bool:
        """Whether theta has a density of f, and of what f is made of; counted as lost if not.

        Factorizes K. Each move asks before it goes to a theta, so that it rejects by itself: a
        sweep that is rejected as a whole leaves the posterior invariant only if it is reversible.
        """

        def compute() -> bool:
            found = self.prior.is_proper and self.model.has_latents(self.prior)
            if not found:
                tally.numerical_rejections += 1
            return found

        return self.once("proper", compute)

    def log_likelihood(self, f: Array) -> float:
        """ℓ(f, theta); −inf, and counted, where it cannot be computed."""
        return _checked(self.model.log_likelihood(f, self.theta))

    def log_likelihoods(self, rows: Array) -> Array:
        """`log_likelihood` of each row of f, shape (N, n) -> (N,)."""
        values = self.model.log_likelihoods(rows, self.theta)
        lost = ~(values < math.inf)  # NaN, too
        if lost.any():
            tally.numerical_rejections += int(lost.sum())
            values = np.where(lost, -math.inf, values)
        return values

    def approximation(self, search: Search) -> GaussianApproximation | None:
        """The q that a search finds here; ``None``, and counted, if it finds none."""

        def compute() -> GaussianApproximation | None:
            q = search(self.likelihood, self.prior)
            if q is None:
                tally.numerical_rejections += 1
            return q

        return self.once(search, compute)

    def once[Result](self, what: Hashable, compute: Callable[[], Result]) -> Result:
        """What ``compute`` returns; it is called the first time that ``what`` is asked for."""
        if what not in self._known:
            self._known[what] = compute()
        result: Result = self._known[what]
        return result

    def last[Result](self, what: Hashable, given: Any, compute: Callable[[], Result]) -> Result:
        """The same for a function of K and ``given``, for as long as neither moves."""
        known = self._of_covariance.get(what)
        if known is None or known[0] != given:
            known = self._of_covariance[what] = given, compute()
        result: Result = known[1]
        return result


@dataclass(frozen=True, eq=False)
class State:
    """A point (theta, f) of the chain.

    Attributes
    ----------
    at : AtTheta
        Theta, and what depends on it alone.
    f : ndarray, shape (n,)
        Latent variables.
    log_likelihood : float
        ℓ(f, theta).
    estimate : Estimate, optional
        Of p(y | theta), by the importance draws that f was one of.
    kept : Kept, optional
        Those draws, as long as f is one of them.
    """

    at: AtTheta
    f: Array
    log_likelihood: float
    estimate: Estimate | None = None
    kept: Kept | None = None
    _known: dict[Hashable, Any] = field(init=False, repr=False, default_factory=dict)

    @classmethod
    def of(
        cls, model: LatentGaussian, theta: Array, f: Array, kept: Kept | None = None
    ) -> State | None:
        """Compute everything at (theta, f); ``None`` where the density is zero or undefined."""
        at = AtTheta.of(model, theta)
        state = at.state(f) if at is not None and at.is_proper else None
        return state if state is None or kept is None else replace(state, kept=kept)

    @property
    def model(self) -> LatentGaussian:
        """The model."""
        return self.at.model

    @property
    def theta(self) -> Array:
        """Hyper-parameters, shape (p,)."""
        return self.at.theta

    @property
    def prior(self) -> Prior:
        """N(m(theta), K(theta)), proper."""
        return self.at.prior

    @property
    def mean(self) -> Array:
        """m(theta), shape (n,)."""
        return self.at.prior.mean

    @property
    def log_prior(self) -> float:
        """log p(theta)."""
        return self.at.log_prior

    def with_theta(self, theta: Array, follow: Callable[[Prior], Array]) -> State | None:
        """Move to another theta; what is held fixed says how f follows from the prior there.

        ``lambda prior: f`` holds f, ``lambda prior: prior.mean + prior.multiply(nu)`` holds ν.

        Returns
        -------
        State or None
            ``None`` where theta has no prior density, K cannot be factorized or the likelihood is
            zero. One O(n³) operation, none if theta changes K by a factor, or not at all.
        """
        there = self.at.moved(theta)
        return there.state(follow(there.prior)) if there is not None and there.is_proper else None

    def with_f(self, f: Array, log_likelihood: float | None = None) -> State | None:
        """Move to another f at the same theta: O(n), plus the likelihood if it is not given."""
        if log_likelihood is None:
            return self.at.state(f, self.estimate)
        if log_likelihood == -math.inf:
            return None
        return State(self.at, f, log_likelihood, self.estimate)

    def once[Result](self, what: Hashable, compute: Callable[[], Result]) -> Result:
        """As `AtTheta.once`, for what depends on f, too."""
        if what not in self._known:
            self._known[what] = compute()
        result: Result = self._known[what]
        return result


def _looked_at(
    model: LatentGaussian, theta: Array, prior_at: Callable[[Array], Prior | None]
) -> AtTheta | None:
    # Cheapest first: a theta outside its prior's support never pays for a covariance.
    log_prior = _checked(model.log_prior(theta))
    if log_prior == -math.inf:
        return None
    prior = prior_at(theta)
    if prior is None:
        tally.numerical_rejections += 1
        return None
    return AtTheta(model, theta, log_prior, prior)


def _checked(log_density: float) -> float:
    """A log density as a number that can be compared: NaN and +inf become −inf and are counted."""
    if math.isnan(log_density) or log_density == math.inf:
        tally.numerical_rejections += 1
        return -math.inf
    return log_density


def acceptance_probability(log_ratio: float) -> float:
    """min(1, exp(log_ratio)): what a kernel accepts with; 0 where the ratio is not a number."""
    return 0.0 if math.isnan(log_ratio) else math.exp(min(0.0, log_ratio))
