"""State: theta, f, and cached quantities that depend on them.

`AtTheta` caches quantities that depend on theta alone. Each is computed once, when it is first
needed. A `State` is an `AtTheta` and an f. A kernel maps a `State` to a `State`, and a rejected
proposal returns the same object.
"""

from __future__ import annotations

import math

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from numpy.typing import NDArray

from pymc_lgm.approximations.gaussian import GaussianApproximation, Search
from pymc_lgm.approximations.importance import CachedSample, Estimate
from pymc_lgm.approximations.sites import Effects
from pymc_lgm.gaussian import Prior
from pymc_lgm.latent_gaussian import LatentGaussian
from pymc_lgm.linalg import Array, tally

__all__ = ["AtTheta", "LikelihoodAt", "State", "acceptance_probability"]

VISITED = 2048
"""Largest number of other thetas whose values an `AtTheta` caches. A trajectory of NUTS has up to
128 points with its default of 7 doublings, and 1024 with 10, PyMC's default. As long as the chain
stays at a theta, the points of several trajectories add up."""


@dataclass(frozen=True)
class LikelihoodAt:
    """The likelihood of a model at one theta as a function of f, for approximations."""

    model: LatentGaussian
    theta: Array

    def __call__(self, f: Array) -> tuple[float, Array, Any, Array]:
        """ℓ, g, W and ∂³ℓ/∂f³."""
        return self.model.likelihood_terms(f, self.theta)

    def value(self, f: Array) -> float:
        """ℓ, without its derivatives."""
        return self.model.log_likelihood(f, self.theta)

    def sites(self, rows: Array) -> Array:
        """ℓ_i(f_i) of each row of f, shape (N, n), or ℓ of each set, shape (N, G)."""
        return self.model.site_log_likelihoods(rows, self.theta)

    @property
    def sets(self) -> NDArray[np.intp] | None:
        """Sets of f_i that observations read; ``None`` if each reads one f_i."""
        return self.model.sets

    @property
    def probit_signs(self) -> Array | None:
        """Signs s if ℓ = Σ log Φ(s_i f_i), else ``None``."""
        return self.model.probit_signs()

    @property
    def effects(self) -> Effects | None:
        """Observation-level random effects that are integrated out of ℓ, if there are any."""
        return self.model.effects(self.theta)


class _Cache:
    """Results of computations by name, or by any other object that identifies a computation."""

    _known: dict[Hashable, Any]

    def once[Result](self, what: Hashable, compute: Callable[[], Result]) -> Result:
        """Cached result of ``compute``, which is called when ``what`` is first requested."""
        if what not in self._known:
            self._known[what] = compute()
        result: Result = self._known[what]
        return result


class AtTheta(_Cache):
    """A theta, and cached quantities that depend on it alone.

    Attributes
    ----------
    model : LatentGaussian
    theta : ndarray, shape (p,)
        Hyper-parameters on the unconstrained scale.
    log_prior : float
        log p(theta), finite.
    prior : Prior
        N(m(theta), K(theta)). It is factorized by the first method that needs its factor.
    likelihood : LikelihoodAt
        ℓ as a function of f.
    """

    def __init__(self, model: LatentGaussian, theta: Array, log_prior: float, prior: Prior):
        self.model, self.theta, self.log_prior, self.prior = model, theta, log_prior, prior
        self.likelihood = LikelihoodAt(model, theta)
        self._known = {}
        self._of_covariance: dict[Hashable, tuple[Any, Any]] = {}
        self._elsewhere: dict[bytes, dict[Hashable, Any]] = {}

    @classmethod
    def of(cls, model: LatentGaussian, theta: Array) -> AtTheta | None:
        """The `AtTheta` of a theta; ``None`` if p(theta) is 0 or K cannot be computed.

        The latter is counted in `linalg.tally`, as are all numerical failures in this file.
        """
        return _at_theta(model, theta, model.prior)

    def moved(self, theta: Array) -> AtTheta | None:
        """The `AtTheta` of another theta of the same model; ``None`` as in `of`.

        Nothing is factorized yet. Whatever does not depend on the change of theta is shared: the
        prior may share its factor, and what `elsewhere` has computed there is not computed again.
        """
        there = _at_theta(self.model, theta, self.prior.moved)
        if there is not None and there.prior.has_covariance_of(self.prior):
            there._of_covariance = self._of_covariance
        if there is not None and self._elsewhere:
            there._known |= self._elsewhere.get(theta.tobytes(), {})
        return there

    def forget(self) -> None:
        """Drop what depends on variables of other step methods, after one of these has moved.

        Values that depend on K alone stay. If K has changed, too, make a new `AtTheta` instead.
        """
        self._known.clear()
        self._elsewhere.clear()

    def state(self, f: Array, estimate: Estimate | None = None) -> State | None:
        """The state with this f; ``None`` if its likelihood is 0 or not finite."""
        log_likelihood = self.log_likelihood(f)
        return None if log_likelihood == -math.inf else State(self, f, log_likelihood, estimate)

    @property
    def is_proper(self) -> bool:
        """Whether f, and the parts of f, have a proper density at theta; counted if not.

        It factorizes K. Each move checks it before it accepts a theta, so that the move itself is
        rejected. If a whole sweep were rejected instead, it would leave the posterior invariant
        only if the sweep is reversible.
        """

        def compute() -> bool:
            found = self.prior.is_proper and self.model.has_latents(self.prior)
            if not found:
                tally.numerical_rejections += 1
            return found

        return self.once("proper", compute)

    def log_likelihood(self, f: Array) -> float:
        """ℓ(f, theta); −inf, and counted, if it cannot be computed."""
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
        """The q that a search finds at theta; ``None``, and counted, if it finds none."""

        def compute() -> GaussianApproximation | None:
            q = search(self.likelihood, self.prior)
            if q is None:
                tally.numerical_rejections += 1
            return q

        return self.once(search, compute)

    def elsewhere[Result](
        self, theta: Array, what: Hashable, compute: Callable[[AtTheta], Result]
    ) -> Result | None:
        """Cached result of ``compute`` at another theta; ``None`` if `moved` finds none there.

        Trajectories that start at one theta may pass through the same points. Their `AtTheta` may
        have n × n arrays and is not stored, only the result. If the chain moves to one of these
        points, the new `AtTheta` has the result, too.
        """
        if theta is self.theta:
            return self.once(what, lambda: compute(self))
        key = theta.tobytes()
        known = self._elsewhere.setdefault(key, {})
        if what not in known:
            there = self.moved(theta)
            known[what] = None if there is None else compute(there)
            if len(self._elsewhere) > VISITED:
                del self._elsewhere[next(iter(self._elsewhere))]
        result: Result | None = known[what]
        return result

    def last[Result](self, what: Hashable, given: Any, compute: Callable[[], Result]) -> Result:
        """Cached result of ``compute``, a function of K and ``given``, until one of them changes.

        Only the last one is stored, and all thetas with one K share it.
        """
        known = self._of_covariance.get(what)
        if known is None or known[0] != given:
            known = self._of_covariance[what] = given, compute()
        result: Result = known[1]
        return result


@dataclass(frozen=True, eq=False)
class State(_Cache):
    """A point (theta, f) of the chain.

    Attributes
    ----------
    at : AtTheta
        Theta, and cached quantities that depend on it alone.
    f : ndarray, shape (n,)
        Latent variables.
    log_likelihood : float
        ℓ(f, theta).
    estimate : Estimate, optional
        Estimate of p(y | theta) from the last importance sample at this theta, for statistics. It
        remains if a latent move changes f.
    cached : CachedSample, optional
        The importance sample, if it contains f.

    Notes
    -----
    ``state.once`` is for quantities that depend on theta and f, and ``state.at.once`` for those
    that depend on theta alone.
    """

    at: AtTheta
    f: Array
    log_likelihood: float
    estimate: Estimate | None = None
    cached: CachedSample | None = None
    _known: dict[Hashable, Any] = field(init=False, repr=False, default_factory=dict)

    @classmethod
    def of(
        cls, model: LatentGaussian, theta: Array, f: Array, cached: CachedSample | None = None
    ) -> State | None:
        """Compute the state at (theta, f); ``None`` if the density is zero or undefined."""
        at = AtTheta.of(model, theta)
        state = at.state(f) if at is not None and at.is_proper else None
        return state if state is None or cached is None else replace(state, cached=cached)

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
        """Move to another theta; ``follow`` computes f there from the prior.

        ``lambda prior: f`` holds f fixed, ``lambda prior: prior.mean + prior.multiply(nu)`` holds
        the whitened ν = L⁻¹ (f − m) fixed.

        Returns
        -------
        State or None
            ``None`` if theta has prior density 0, if K cannot be factorized or if the likelihood is
            zero.

        Notes
        -----
        It costs one factorization of K, of O(n³) operations for a dense K, or none if the new K is
        a multiple of the old one.
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


def _at_theta(
    model: LatentGaussian, theta: Array, prior_at: Callable[[Array], Prior | None]
) -> AtTheta | None:
    # Cheapest first: outside the support of its prior, theta needs no covariance.
    log_prior = _checked(model.log_prior(theta))
    if log_prior == -math.inf:
        return None
    prior = prior_at(theta)
    if prior is None:
        tally.numerical_rejections += 1
        tally.without_prior = theta
        return None
    return AtTheta(model, theta, log_prior, prior)


def _checked(log_density: float) -> float:
    """A log density that can be compared: NaN and +inf become −inf and are counted."""
    if math.isnan(log_density) or log_density == math.inf:
        tally.numerical_rejections += 1
        return -math.inf
    return log_density


def acceptance_probability(log_ratio: float) -> float:
    """Acceptance probability min(1, exp(log_ratio)); 0 if the ratio is NaN."""
    return 0.0 if math.isnan(log_ratio) else math.exp(min(0.0, log_ratio))
