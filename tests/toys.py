"""Latent Gaussian models in NumPy, with every derivative by hand: nothing is compiled.

What is tested on them is kernels; that a PyMC model is read into the same functions is tested in
test_toys.py. Three latents, theta = (mean, log length-scale, log amplitude), and what a likelihood
adds. The mean is large against the standard deviation: a kernel that forgets it must be noticed.
"""

from __future__ import annotations

import math

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from scipy.linalg import block_diag
from scipy.sparse import csc_array
from scipy.special import erfcx, gammaln, log_ndtr

from pymc_lgm import samplers
from pymc_lgm.compile.loops.callbacks import LogDensity
from pymc_lgm.gaussian import (
    BandedPrior,
    DensePrior,
    Independent,
    Layout,
    SumAt,
    SumPrior,
)
from pymc_lgm.gaussian.banded import BandedModel
from pymc_lgm.gaussian.families import BandedSeries
from pymc_lgm.gaussian.structure import IntrinsicMap
from pymc_lgm.state import State
from pymc_lgm.targets.target import Slope, Target
from pymc_lgm.testing import JointTest, joint_values

X = np.array([0.0, 0.5, 1.4])


class Toy:
    """The prior of f and theta; a likelihood says the rest.

    ``jitter`` is added to the covariance outside the amplitude, so that no theta_j only scales K;
    ``scaled`` puts it inside.
    """

    has_gradient = has_theta_gradient = has_prior_gradient = True
    prior_mean = np.array([1.2, 0.0, -0.4])
    prior_sd = np.array([0.5, 0.5, 0.4])
    theta_names: tuple[str, ...] = ("mu", "ls_log__", "eta_log__")
    latent = "f"
    sets = None
    y: np.ndarray

    def __init__(self, n: int = 3, scaled: bool = False):
        self.x, self.n, self.p = X[:n], n, self.prior_mean.size
        self.distance = np.abs(self.x[:, None] - self.x)
        self.scaled = scaled
        self.enters_cov = np.isin(np.arange(self.p), [1, 2])
        self.amplitudes = np.where(np.arange(self.p) == 2, 2.0 * scaled, 0.0)

    # The prior

    def prior(self, theta: np.ndarray) -> DensePrior | None:
        return DensePrior.at(self, theta)

    def has_latents(self, prior: DensePrior) -> bool:
        return True

    def mean(self, theta: np.ndarray) -> np.ndarray:
        return np.full(self.n, theta[0])

    def mean_vjp(self, theta: np.ndarray, v: np.ndarray) -> np.ndarray:
        return np.array([v.sum(), *np.zeros(self.p - 1)])

    def cov(self, theta: np.ndarray) -> np.ndarray:
        """Matérn 3/2."""
        r = math.sqrt(3.0) * self.distance * np.exp(-theta[1])
        C = (1.0 + r) * np.exp(-r)
        C[np.diag_indices(self.n)] += 1e-6 if self.scaled else 1e-6 * np.exp(-2.0 * theta[2])
        return np.exp(2.0 * theta[2]) * C

    def _cov_changes(self, theta: np.ndarray) -> list[np.ndarray]:
        r = math.sqrt(3.0) * self.distance * np.exp(-theta[1])
        by_length = np.exp(2.0 * theta[2]) * r**2 * np.exp(-r)
        by_amplitude = 2.0 * self.cov(theta)
        if not self.scaled:
            by_amplitude[np.diag_indices(self.n)] -= 2e-6
        return [by_length, by_amplitude]

    def cov_vjp(self, theta: np.ndarray, M: np.ndarray) -> np.ndarray:
        result = np.zeros(self.p)
        result[1:3] = [np.sum(dK * M) for dK in self._cov_changes(theta)]
        return result

    def log_prior(self, theta: np.ndarray) -> float:
        return -0.5 * float(np.square((theta - self.prior_mean) / self.prior_sd).sum())

    def log_prior_gradient(self, theta: np.ndarray) -> np.ndarray:
        return (self.prior_mean - theta) / self.prior_sd**2

    @cached_property
    def prior_density(self) -> LogDensity:
        return LogDensity(self.log_prior, self.log_prior_gradient, self.p)

    # What follows from `terms` of a likelihood: ℓ_i of one row, with derivatives in f

    def log_likelihood(self, f: np.ndarray, theta: np.ndarray) -> float:
        return float(self.site_log_likelihoods(f, theta).sum())

    def log_likelihoods(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return self.site_log_likelihoods(rows, theta).sum(axis=1)

    def log_likelihood_gradient(self, f: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray]:
        return self.likelihood_terms(f, theta)[:2]

    def log_likelihood_theta_gradient(self, f: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return np.zeros(self.p)

    def likelihood_terms_vjp(
        self, f: np.ndarray, theta: np.ndarray, v: np.ndarray, u: np.ndarray
    ) -> np.ndarray:
        """By central differences: a slope need not be exact."""

        def value(theta: np.ndarray) -> float:
            log_likelihood, g, W, _ = self.likelihood_terms(f, theta)
            return float(log_likelihood + v @ g + u @ W)

        return np.array([value(theta + h) - value(theta - h) for h in 1e-5 * np.eye(self.p)]) / 2e-5

    def probit_signs(self) -> np.ndarray | None:
        return None

    def effects(self, theta: np.ndarray) -> None:
        return None

    theta_in_likelihood = True

    def log_likelihoods_theta_gradient(
        self, rows: np.ndarray, theta: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        terms = [self.log_likelihood_theta_gradient(f, theta) for f in rows]
        return weights @ np.array(terms)

    def site_log_likelihoods(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def likelihood_terms(self, f: np.ndarray, theta: np.ndarray) -> Any:
        raise NotImplementedError

    def draw_y(self, rng: np.random.Generator, f: np.ndarray, theta: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    # Draws

    def draw_theta(self, rng: np.random.Generator) -> np.ndarray:
        """Theta from its prior."""
        return self.prior_mean + self.prior_sd * rng.standard_normal(self.p)

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(theta, f) from the prior, and y given them in ``self.y``."""
        theta = self.draw_theta(rng)
        root = np.linalg.cholesky(self.cov(theta))
        f = self.mean(theta) + root @ rng.standard_normal(self.n)
        self.y = self.draw_y(rng, f, theta)
        return theta, f


class Series(Toy):
    """A series of two lags, driven by theta_0: a prior of banded precision."""

    def __init__(self, n: int = 3):
        super().__init__(n)
        self.start = np.where(np.arange(n) == 0, 0.5, 1.0)

    def prior(self, theta: np.ndarray) -> BandedPrior | None:
        model = BandedModel(
            SimpleNamespace(
                cov=self.whitener,
                cov_vjp=lambda theta, M: self._each(
                    lambda v: float(np.sum(M * self._whitener_change(theta, v)))
                ),
                mean=lambda theta: theta[0] * math.exp(-theta[2]) * self.start,
                mean_vjp=lambda theta, v: self._each(lambda e: v @ self._drive_change(theta, e)),
            ),
            self.enters_cov,
        )
        # For dense algebra beside it.
        model.mean, model.cov, model.prior = self.mean, self.cov, self.prior
        return BandedPrior.at(model, theta)

    def _each(self, along: Callable[[np.ndarray], float]) -> np.ndarray:
        return np.array([along(v) for v in np.eye(self.p)])

    def whitener(self, theta: np.ndarray) -> np.ndarray:
        lags = np.array([[1.0], [-math.tanh(theta[1])], [-0.2]])
        return self._within(
            math.exp(-theta[2]) * lags * np.vstack([self.start, *np.ones((2, self.n))])
        )

    def _within(self, T: np.ndarray) -> np.ndarray:
        return np.where(np.arange(3)[:, None] + np.arange(self.n) < self.n, T, 0.0)

    def _whitener_change(self, theta: np.ndarray, v: np.ndarray) -> np.ndarray:
        slope = -math.exp(-theta[2]) / math.cosh(theta[1]) ** 2
        by_lag = self._within(np.array([[0.0], [slope], [0.0]]) * np.ones(self.n))
        return v[1] * by_lag - v[2] * self.whitener(theta)

    def _drive_change(self, theta: np.ndarray, v: np.ndarray) -> np.ndarray:
        return (v[0] - v[2] * theta[0]) * math.exp(-theta[2]) * self.start

    def _dense(self, theta: np.ndarray) -> np.ndarray:
        T = self.whitener(theta)
        return sum(np.diag(T[k, : self.n - k], -k) for k in range(3))

    def mean(self, theta: np.ndarray) -> np.ndarray:
        drive = theta[0] * math.exp(-theta[2]) * self.start
        return np.linalg.solve(self._dense(theta), drive)

    def cov(self, theta: np.ndarray) -> np.ndarray:
        T = self._dense(theta)
        return np.linalg.inv(T.T @ T)


RIVER = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]])
"""Three areas along a river."""


class Counts(Toy):
    """Poisson: log-concave, and informative where the rate is high."""

    def __init__(self, n: int = 3, scaled: bool = False):
        super().__init__(n, scaled)
        self.y = np.array([0.0, 3.0, 1.0])[:n]

    def site_log_likelihoods(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return self.y * rows - 2.0 * np.exp(rows) - self._constant()

    def likelihood_terms(self, f: np.ndarray, theta: np.ndarray) -> Any:
        rate = 2.0 * np.exp(f)
        return float((self.y * f - rate - self._constant()).sum()), self.y - rate, rate, -rate

    def draw_y(self, rng: np.random.Generator, f: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return rng.poisson(np.minimum(2.0 * np.exp(f), 1e18)).astype(float)

    def _constant(self) -> np.ndarray:
        return gammaln(self.y + 1.0) - self.y * math.log(2.0)


class SeriesOfCounts(Series, Counts):
    """Counts of a series."""


class SumOfCounts(Counts):
    """Counts of a sum: a map times a scale, two series of two, and two effects; f = (x, eta).

    The scale is exp(theta_1), the level theta_0, and exp(theta_2) is the standard deviation of the
    effects and of the steps of the series. An element of eta that is read twice is one of f.
    """

    has_theta_gradient = False
    x_of_eta = np.array([[0, 3, 7], [1, 4, 8], [2, 5, 7], [0, 6, 8], [1, 3, 8]])
    """Of each element of eta: an area, an element of a series, an effect."""

    def __init__(self) -> None:
        super().__init__()
        self.N, self.E = 9, len(self.x_of_eta)
        self.n, self.y = self.N + self.E, np.array([0.0, 3.0, 1.0, 6.0, 2.0])
        self.families = [
            IntrinsicMap(csc_array(RIVER), 0.5, 1.3),
            BandedSeries(4, 2),
            Independent(2),
        ]
        self.layout = Layout(
            self.families, 3 * np.arange(self.E + 1), np.ascontiguousarray(self.x_of_eta.ravel())
        )

    def prior(self, theta: np.ndarray) -> SumPrior | None:
        return SumPrior.at(self, theta)

    def sum_at(self, theta: np.ndarray) -> SumAt | None:
        area, series, effects = self.families
        T, u = self._series(theta)
        at = [area.at(), series.at(T, u), effects.at(np.full(2, self._effect(theta) ** 2))]
        if any(each is None for each in at):
            return None
        c = np.full(self.E, self._level(theta))
        return SumAt(c, np.zeros(self.N), self._columns(theta).ravel(), at)

    def sum_vjp(
        self,
        theta: np.ndarray,
        c: np.ndarray,
        offset: np.ndarray,
        A: np.ndarray,
        families: list[list[np.ndarray]],
    ) -> np.ndarray:
        """By differences: a trajectory need not be exact to be reversible."""

        def total(theta: np.ndarray) -> float:
            at = self.sum_at(theta)
            assert at is not None
            values = [x for each in at.families for x in each.values]
            weights = [x for each in families for x in each]
            sums = [float((w * v).sum()) for w, v in zip(weights, values, strict=True)]
            return float(c @ at.c + offset @ at.offset + A @ at.A) + sum(sums)

        steps = 1e-5 * np.eye(theta.size)
        return np.array([(total(theta + d) - total(theta - d)) / 2e-5 for d in steps])

    def _columns(self, theta: np.ndarray) -> np.ndarray:
        return np.tile([math.exp(theta[1]), 1.0, 1.0], (self.E, 1))

    def _level(self, theta: np.ndarray) -> float:
        return float(theta[0])

    def _first(self, theta: np.ndarray) -> float:
        return 0.3

    def _effect(self, theta: np.ndarray) -> float:
        return math.exp(theta[2])

    def _series(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """T in bands and u: first values of variance 1, then x_1 = 0.7 x_0 + exp(theta_2) ε."""
        step, first = math.exp(-theta[2]), self._first(theta)
        T = np.array([[1.0, step, 1.0, step], [-0.7 * step, 0.0, -0.7 * step, 0.0]])
        return T, np.array([first, 0.0, first, 0.0])

    def law(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and covariance of x, and A, as arrays, by what each family is."""
        s = math.exp(theta[2])
        areas = np.linalg.inv((np.diag(RIVER.sum(axis=0)) - RIVER) / 1.69 + 1.0 / 1.5**2)
        one = np.array([[1.0, 0.7], [0.7, 0.49 + s**2]])
        A = np.zeros((self.E, self.N))
        np.put_along_axis(A, self.x_of_eta, self._columns(theta), axis=1)
        mean = np.zeros(self.N)
        mean[3:7] = self._first(theta) * np.array([1.0, 0.7, 1.0, 0.7])
        return mean, block_diag(areas, one, one, self._effect(theta) ** 2 * np.eye(2)), A

    def mean(self, theta: np.ndarray) -> np.ndarray:
        mean, _, A = self.law(theta)
        return np.concatenate([mean, self._level(theta) + A @ mean])

    def cov(self, theta: np.ndarray) -> np.ndarray:
        _, K, A = self.law(theta)
        B = np.vstack([np.eye(self.N), A])
        result: np.ndarray = B @ K @ B.T
        return result

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        theta = self.draw_theta(rng)
        mean, K, A = self.law(theta)
        x = mean + np.linalg.cholesky(K) @ rng.standard_normal(self.N)
        f = np.concatenate([x, self._level(theta) + A @ x])
        self.y = self.draw_y(rng, f[self.N :], theta)
        return theta, f

    def site_log_likelihoods(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        out = np.zeros(rows.shape)
        out[..., self.N :] = super().site_log_likelihoods(rows[..., self.N :], theta)
        return out

    def likelihood_terms(self, f: np.ndarray, theta: np.ndarray) -> Any:
        value, *terms = super().likelihood_terms(f[self.N :], theta)
        return value, *(np.concatenate([np.zeros(self.N), each]) for each in terms)


class HeldSumOfCounts(SumOfCounts):
    """The same with eta made of x in one way: theta begins the series, and scales the effects."""

    def _columns(self, theta: np.ndarray) -> np.ndarray:
        return np.tile([0.7, 1.0, -1.0], (self.E, 1))

    def _level(self, theta: np.ndarray) -> float:
        return 0.2

    def _first(self, theta: np.ndarray) -> float:
        return float(theta[0])

    def _effect(self, theta: np.ndarray) -> float:
        return math.exp(theta[1])


class Labels(Toy):
    """Probit: log-concave and vague, with moments in closed form."""

    def __init__(self, n: int = 3, scaled: bool = False):
        super().__init__(n, scaled)
        self.y = np.array([-1.0, 1.0, 1.0])[:n]

    def site_log_likelihoods(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return log_ndtr(self.y * rows)

    def likelihood_terms(self, f: np.ndarray, theta: np.ndarray) -> Any:
        u = self.y * f
        hazard = math.sqrt(2.0 / math.pi) / erfcx(-u / math.sqrt(2.0))
        W = hazard * (u + hazard)
        third = self.y * (hazard * (u + hazard) * (u + 2.0 * hazard) - hazard)
        return float(log_ndtr(u).sum()), self.y * hazard, W, third

    def probit_signs(self) -> np.ndarray:
        return self.y

    def draw_y(self, rng: np.random.Generator, f: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return np.where(f + rng.standard_normal(self.n) > 0.0, 1.0, -1.0)


class Errors(Toy):
    """Student-t with 4 degrees of freedom: not log-concave, some f_i seen twice, theta in it."""

    prior_mean = np.array([1.2, 0.0, -0.4, -0.7])
    prior_sd = np.array([0.5, 0.5, 0.4, 0.4])
    theta_names = ("mu", "ls_log__", "eta_log__", "sigma_log__")

    def __init__(self, n: int = 3, scaled: bool = False):
        super().__init__(n, scaled)
        self.index = np.array([0, 1, 1, 2, 0])
        self.index = self.index[self.index < n]
        self.y = np.array([0.3, -1.2, 0.8, 1.5, 0.1])[: self.index.size]
        self.sums = (self.index[:, None] == np.arange(n)).astype(float)

    def site_log_likelihoods(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        r = (self.y - rows[..., self.index]) / np.exp(theta[3])
        return (self._constant(theta) - 2.5 * np.log1p(0.25 * r**2)) @ self.sums

    def likelihood_terms(self, f: np.ndarray, theta: np.ndarray) -> Any:
        scale = np.exp(theta[3])
        r = (self.y - f[self.index]) / scale
        w = 4.0 + r**2
        value = float((self._constant(theta) - 2.5 * np.log1p(0.25 * r**2)).sum())
        g = 5.0 * r / w / scale
        W = 5.0 * (4.0 - r**2) / w**2 / scale**2
        third = 10.0 * r * (r**2 - 12.0) / w**3 / scale**3
        return value, g @ self.sums, W @ self.sums, third @ self.sums

    def log_likelihood_theta_gradient(self, f: np.ndarray, theta: np.ndarray) -> np.ndarray:
        r = (self.y - f[self.index]) / np.exp(theta[3])
        return np.array([0.0, 0.0, 0.0, float((5.0 * r**2 / (4.0 + r**2) - 1.0).sum())])

    def draw_y(self, rng: np.random.Generator, f: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return f[self.index] + np.exp(theta[3]) * rng.standard_t(4, size=self.index.size)

    def _constant(self, theta: np.ndarray) -> float:
        return math.lgamma(2.5) - math.lgamma(2.0) - 0.5 * math.log(4.0 * math.pi) - theta[3]


class Pair(Counts):
    """Two counts that disagree; theta = (mean, log amplitude), few enough for quadrature."""

    prior_mean = np.array([0.8, -0.2])
    prior_sd = np.array([0.6, 0.5])
    theta_names = ("mu", "eta_log__")

    def __init__(self) -> None:
        super().__init__(2)
        self.y = np.array([0.0, 6.0])
        self.enters_cov = np.array([False, True])

    def cov(self, theta: np.ndarray) -> np.ndarray:
        return super().cov(np.array([theta[0], 0.0, theta[-1]]))

    def cov_vjp(self, theta: np.ndarray, M: np.ndarray) -> np.ndarray:
        by_amplitude = self._cov_changes(np.array([theta[0], 0.0, theta[-1]]))[1]
        return np.array([0.0, np.sum(by_amplitude * M)])


TOYS: dict[str, type[Toy]] = {"counts": Counts, "labels": Labels, "errors": Errors}


@dataclass
class Chain:
    """A sweep on a toy, as the step method runs it, with what tuning has taught it."""

    elements: tuple[samplers.Element, ...]
    toy: Toy
    rng: np.random.Generator
    state: State
    tunings: list[Any]

    @classmethod
    def start(cls, elements: Any, toy: Toy, rng: np.random.Generator, tune: int = 0) -> Chain:
        """Tune on the toy's own y, from the prior's center."""
        theta = toy.prior_mean.copy()
        state = State.of(toy, theta, toy.mean(theta) + 0.1)
        assert state is not None
        elements = tuple(elements)
        chain = cls(elements, toy, rng, state, [e.start(state, tune) for e in elements])
        for _ in range(tune):
            chain.step(True)
        return chain

    def step(self, tune: bool = False) -> dict[str, float]:
        """Run the sweep once."""
        self.state, self.tunings, stats = samplers.run(
            self.rng, self.state, self.elements, self.tunings, tune
        )
        return stats

    def draws(self, count: int) -> np.ndarray:
        """(theta, f) of the next draws, shape (count, p + n)."""
        x = np.empty((count, self.toy.p + self.toy.n))
        for row in x:
            self.step()
            row[:] = np.concatenate([self.state.theta, self.state.f])
        return x


def invariance(
    elements: Any, toy: Toy, *, replicates: int = 500, steps: int = 3, tune: int = 0, seed: int = 1
) -> JointTest:
    """`pymc_lgm.testing.joint_test` on a toy: the same pairs, the same test functions."""
    chain = Chain.start(elements, toy, np.random.default_rng(seed), tune)
    return invariance_of(chain, replicates=replicates, steps=steps)


def invariance_of(chain: Chain, *, replicates: int, steps: int) -> JointTest:
    """The same for a chain that has been tuned."""
    (result,) = invariance_after((steps,), chain, replicates=replicates)
    return result


def invariance_after(
    counts: tuple[int, ...], chain: Chain, *, replicates: int
) -> Iterator[JointTest]:
    """The same after each of several numbers of steps: each replicate is looked at on its way."""
    toy, y = chain.toy, chain.toy.y
    rows: dict[int, list[dict[str, float]]] = {count: [] for count in (0, *counts)}
    for _ in range(replicates):
        theta, f = toy.draw(chain.rng)
        state = State.of(toy, theta, f)
        assert state is not None
        chain.state = state
        for step in range(max(counts) + 1):
            if step > 0:
                chain.step()
            if step in rows:
                rows[step].append(joint_values(toy, chain.state.theta, chain.state.f))
    toy.y = y
    before, *after = (
        {name: np.array([row[name] for row in side]) for name in side[0]} for side in rows.values()
    )
    for each in after:
        yield JointTest.of_pairs(before, each)


BEYOND_DOUBT = 1e-9
"""The p-value of a mutant that needs no more tests."""


def least(pvalues: Iterable[float]) -> float:
    """The least p-value of several tests, of which those after the first beyond doubt do not run.

    So the tests come as a generator.
    """
    noticed = 1.0
    for pvalue in pvalues:
        noticed = min(noticed, pvalue)
        if noticed < BEYOND_DOUBT:
            break
    return noticed


def until_noticed(pvalue: Callable[[int], float], *sizes: int) -> float:
    """The p-value of a mutant with so many replicates: the most only where fewer do not notice."""
    noticed = 1.0
    for replicates in sizes:
        noticed = pvalue(replicates)
        if noticed < BEYOND_DOUBT:
            break
    return noticed


@dataclass(frozen=True, eq=False)
class MadeTarget(Target):
    """A target made of functions: it can do what it is given."""

    evaluate: Any = None
    gradient: Any = None
    slope: Any = None
    first_stage: Any = None
    second_stage: Any = None
    first_log_density: float = math.nan
    is_noisy: bool = False

    @classmethod
    def like(cls, target: Target, **changes: Any) -> MadeTarget:
        """A target with some of its functions replaced."""
        names = ["state", "log_density", "evaluate", "is_noisy", "gradient"]
        names += ["slope"] * target.has_slope
        names += ["first_stage", "second_stage", "first_log_density"] * target.has_stages
        return cls(**{name: getattr(target, name) for name in names} | changes)

    @property
    def has_slope(self) -> bool:
        return self.slope is not None

    @property
    def has_stages(self) -> bool:
        return self.first_stage is not None


def gaussian_target(theta: Any, sd: Any, noisy: bool = False) -> Target:
    """A Gaussian with standard deviations sd, and its slope."""

    def slope(theta: Any) -> Slope:
        return Slope(theta, -0.5 * float(np.square(theta / sd).sum()), -theta / sd**2)

    def evaluate(theta: Any) -> tuple[float, Any]:
        there = SimpleNamespace(theta=theta, model=PRIOR, log_prior=log_prior(theta))
        return slope(theta).log_density, there

    state: Any = SimpleNamespace(theta=theta, model=PRIOR)
    return MadeTarget(state, slope(theta).log_density, evaluate, slope=slope, is_noisy=noisy)


def log_prior(theta: Any) -> float:
    """With one stiff tail."""
    return float(theta.sum() - np.exp(theta).sum())


def model_of_theta(
    log_prior: Callable[[Any], float], gradient: Callable[[Any], Any], p: int
) -> SimpleNamespace:
    """Of a model what moves on theta alone look at."""
    density = LogDensity(log_prior, gradient, p)
    return SimpleNamespace(log_prior=log_prior, log_prior_gradient=gradient, prior_density=density)


PRIOR = model_of_theta(log_prior, lambda theta: 1.0 - np.exp(theta), 2)


def pairs_pvalue(move: Callable[..., Any], replicates: int) -> float:
    """Pairs from a standard Gaussian, before and after a move of theta."""
    rng = np.random.default_rng(2)
    before = rng.standard_normal((replicates, 2))
    after = np.array([move(rng, theta) for theta in before])
    columns = [dict(zip("ab", rows.T, strict=True)) for rows in (before, after)]
    return JointTest.of_pairs(*columns).pvalue
