"""Elements that move only the scale of the covariance, in O(n²) and without a factorization.

A component theta_j is an amplitude if K(theta) = v C with v = exp(k_j theta_j), and C does not
depend on theta_j: `pymc_lgm.model.amplitudes` finds k from the graph. The factor of K is √v times
that of C, which does not change. Given f, v is the variance of C^-½ (f − m), to which an inverse
gamma prior is conjugate: §2.6 of Gelman, Carlin, Stern, Dunson, Vehtari and Rubin (2013), *Bayesian
Data Analysis*. Given ν, the whitened f, the likelihood informs v. Interweaving the two (Yu and Meng
2011, *To center or not to center*, JCGS 20) costs little compared with one factorization.
"""

from __future__ import annotations

import math

from dataclasses import dataclass

import numpy as np

from pymc_lgm.adaptation import WidthTuning
from pymc_lgm.latent_gaussian import LatentGaussian
from pymc_lgm.linalg import Array, tally
from pymc_lgm.moves.element import Element, Stats
from pymc_lgm.moves.theta.slice import slice_componentwise
from pymc_lgm.state import State
from pymc_lgm.targets import PARAMETERIZATIONS

__all__ = ["Amplitude", "ConjugateScale", "amplitude_moves"]


ROUNDING = 1e-9
"""Smallest b/v below zero, as a share of the log densities that it is computed from, that is zero.

Sums of a few terms differ by 1e-15 or so; the margin is for priors of many terms.
"""


def amplitude_moves(model: LatentGaussian, repeats: int) -> list[Element]:
    """Move the amplitudes given f, then given ν, ``repeats`` times; none if there is no amplitude.

    Given f an amplitude is drawn from its conditional if that is inverse gamma; otherwise it is
    slice sampled. Given ν all are slice sampled.
    """
    amplitudes = tuple(np.flatnonzero(model.amplitudes).tolist())
    conjugate = tuple(np.flatnonzero(model.conjugate).tolist())
    others = tuple(j for j in amplitudes if j not in conjugate)
    elements: list[Element] = []
    if conjugate:
        elements.append(ConjugateScale(conjugate))
    if others:
        elements.append(Amplitude("sufficient", others))
    if amplitudes:
        elements.append(Amplitude("whitened", amplitudes))
    return elements * repeats


@dataclass(frozen=True)
class Amplitude:
    """Slice sampling of amplitudes in one parameterization; learns the interval widths.

    In "sufficient" and "whitened" an evaluation costs O(n²). Each component takes 2 to 4 of them,
    as `slice_componentwise` does with a good width.
    """

    parameterization: str
    components: tuple[int, ...]
    width: float = 1.0
    stats = ()

    def start(self, state: State, tune: int) -> WidthTuning:
        """Begin with the same width for every component."""
        return WidthTuning.start(len(self.components), self.width)

    def run(
        self, rng: np.random.Generator, state: State, tuning: WidthTuning, tune: bool
    ) -> tuple[State, WidthTuning, Stats]:
        """Move every amplitude once."""
        chosen = list(self.components)
        widths = np.ones_like(state.theta)  # those of other components are not used
        widths[chosen] = tuning.widths
        target = PARAMETERIZATIONS[self.parameterization](rng, state)
        state, info = slice_componentwise(rng, target, widths=widths, components=chosen)
        return state, tuning.update(info.jumps[chosen]) if tune else tuning, {}


@dataclass(frozen=True)
class ConjugateScale:
    """Draw variances v = exp(k_j theta_j) from p(v | f), inverse gamma; nothing to tune.

    Holding f and the other components, with v ~ InvGamma(a, b) and q = (f − m)ᵀ C⁻¹ (f − m),

        v | f ~ InvGamma(a + n/2, b + q/2),

    if K = v C and v enters nothing else: not the mean, not the likelihood, no other prior. a and b
    may depend on the other components. At every draw they are computed from log p(theta) at v, v e
    and v/e.

    The model's graph proves this: see `pymc_lgm.model.conjugate`.

    A draw costs one triangular solve, three evaluations of log p(theta), and one each of mean and
    likelihood, which the new state needs.
    """

    components: tuple[int, ...]
    stats = ()

    def start(self, state: State, tune: int) -> None:
        """Nothing to learn."""

    def run(
        self, rng: np.random.Generator, state: State, tuning: None, tune: bool
    ) -> tuple[State, None, Stats]:
        """Draw one variance after another."""
        for j in self.components:
            state = _drawn(rng, state, j)
        return state, None, {}


@dataclass(frozen=True)
class _InverseGamma:
    """The log prior of x = log v along theta_j if it is inverse gamma: −a x − b e^(−x) + constant.

    Attributes
    ----------
    j, k : int, float
        v = exp(k theta_j).
    log_prior : float
        log p(theta) at the current v.
    shape, rate : float
        a, and b/v at the current v, so that nothing depends on the unit of C.
    """

    j: int
    k: float
    log_prior: float
    shape: float
    rate: float

    @classmethod
    def at(cls, model: LatentGaussian, theta: Array, log_prior: float, j: int) -> _InverseGamma:
        """Solve for a and b/v from log p(theta) at v, v e and v/e."""
        k = float(model.amplitudes[j])
        law = cls(j, k, log_prior, math.nan, math.nan)
        above = model.log_prior(law.moved(theta, 1.0)) - log_prior
        below = model.log_prior(law.moved(theta, -1.0)) - log_prior
        rate = -(above + below) / (2 * math.cosh(1.0) - 2)
        return cls(j, k, log_prior, -above - math.expm1(-1.0) * rate, rate)

    def moved(self, theta: Array, log_ratio: float) -> Array:
        """Theta with v multiplied by e^log_ratio."""
        there = theta.copy()
        there[self.j] += log_ratio / self.k
        return there

    def is_proper(self, n: int) -> bool:
        """Whether v has a proper density given n Gaussians. b may be 0, up to rounding."""
        return self.shape + n / 2 > 0 and self.rate > -ROUNDING * (1 + abs(self.log_prior))


def _drawn(rng: np.random.Generator, state: State, j: int) -> State:
    """Draw theta_j given f and the rest."""
    f = state.f
    law = _InverseGamma.at(state.model, state.theta, state.log_prior, j)
    nu = state.prior.solve(f - state.mean)  # νᵀν = q/v
    rate = law.rate + 0.5 * float(nu @ nu)  # (b + q/2)/v
    rank = state.prior.rank  # f has so many degrees of freedom
    if not (law.is_proper(rank) and 0.0 < rate < math.inf):
        tally.numerical_rejections += 1
        return state
    log_ratio = math.log(rate / rng.standard_gamma(law.shape + rank / 2))
    return state.with_theta(law.moved(state.theta, log_ratio), lambda prior: f) or state
