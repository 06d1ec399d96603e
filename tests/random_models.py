"""Random models with latent Gaussian vectors: a pure function of a `numpy.random.Generator`.

What users write, put together at random: functions of covariates that hyper-parameters move,
latent vectors of each kind, and what densities read of them. Each model has a dozen observations at
most, and the names of what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from numpy.typing import NDArray

__all__ = ["LATENTS", "LIKELIHOODS", "MOVING", "RandomModel", "random_model"]

Variable = Any
Array = NDArray[np.float64]

MAP = np.array(
    [[0, 1, 0, 1, 0], [1, 0, 1, 0, 0], [0, 1, 0, 1, 1], [1, 0, 1, 0, 1], [0, 0, 1, 1, 0]]
)
"""Five areas."""


@dataclass
class RandomModel:
    """A model, and how to draw points of a wide prior.

    Attributes
    ----------
    model : pymc.Model
    ingredients : dict of str to None
        What it is made of, in order.
    wide : dict of str to tuple
        For a value variable that is on another scale than one: where it is, and how wide.
    """

    model: pm.Model
    ingredients: dict[str, None] = field(default_factory=dict)
    wide: dict[str, tuple[float, float]] = field(default_factory=dict)

    @cached_property
    def start(self) -> dict[str, NDArray[Any]]:
        """Where a chain would start."""
        return dict(self.model.initial_point())

    def points(self, rng: np.random.Generator, count: int) -> list[dict[str, NDArray[Any]]]:
        """Values of all free variables, some of them far from the start."""
        start = self.start
        discrete = {v.name for v in self.model.discrete_value_vars}
        points = []
        for k in range(count):
            width = (1.0, 0.3, 3.0)[k % 3]
            point = {}
            for name, value in start.items():
                at, scale = self.wide.get(name, (0.0, 1.0))
                if name in discrete:
                    point[name] = rng.integers(0, int(at) + 1, value.shape).astype(value.dtype)
                else:
                    point[name] = at + width * scale * rng.standard_normal(value.shape)
            points.append(point)
        return points

    def __str__(self) -> str:
        return ", ".join(self.ingredients)


def random_model(rng: np.random.Generator, *, must: Sequence[str] = ()) -> RandomModel:
    """Make a model.

    Parameters
    ----------
    rng : numpy.random.Generator
    must : sequence of str
        Ingredients that it has, of `MOVING`, `LATENTS` and `LIKELIHOODS`.
    """
    with pm.Model() as model:
        made = RandomModel(model)
        _Writer(rng, made, list(must)).write()
    return made


class _Writer:
    """Writes one model; each method notes what it has used."""

    def __init__(self, rng: np.random.Generator, made: RandomModel, must: list[str]):
        self.rng, self.made, self.must = rng, made, must
        self.n = int(rng.choice([5, 5, 6, 7, 8, 10]))
        self.count = 0
        self.x, self.low, self.range = self.covariate()
        self.depth = 0

    # Names, choices

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def note(self, ingredient: str) -> None:
        self.made.ingredients[ingredient] = None

    def chance(self, p: float) -> bool:
        return bool(self.rng.uniform() < p)

    def one_of(self, table: Sequence[str]) -> str:
        """A name of a table, one that is demanded first; it is noted."""
        wanted = [each for each in self.must if each in table]
        if wanted:
            chosen = wanted[0]
            self.must.remove(chosen)
        else:
            chosen = str(self.rng.choice(list(table)))
        self.note(chosen)
        return chosen

    def at(self, rv: Variable, center: float, width: float) -> Variable:
        """A variable whose values are elsewhere than about 0 ± 1."""
        value = self.made.model.rvs_to_values[rv]
        self.made.wide[value.name] = (center, width)
        return rv

    # Covariates, and hyper-parameters

    def covariate(self) -> tuple[Array, float, float]:
        """A column, its least value and its range."""
        n, kind = self.n, int(self.rng.integers(5))
        if kind == 0:
            x = self.rng.integers(0, 4, n).astype(float)
            x[:2] = 0.0, 3.0
        elif kind == 1:
            x = np.arange(n) % 4 * 1.0
        elif kind == 2:
            x = np.linspace(0, 1, n)
        elif kind == 3:
            self.note("raw scales")
            x = 1000.0 * self.rng.integers(1, 9, n)
            x[:2] = 1000.0, 8000.0
        else:
            self.note("raw scales")
            x = 1950.0 + 10.0 * np.arange(n)
        return x, float(x.min()), float(np.ptp(x))

    def groups(self, k: int) -> NDArray[np.int64]:
        return np.concatenate([np.arange(min(k, self.n)), self.rng.integers(0, k, self.n)])[
            : self.n
        ]

    def scale(self) -> Variable:
        """A standard deviation."""
        kind = 6 if "a negative sd" in self.must else self.rng.integers(7)
        if kind == 0:
            return pm.HalfNormal(self.name("s"), 1)
        if kind == 1:
            return pm.Exponential(self.name("s"), 1)
        if kind == 2:
            return pm.LogNormal(self.name("s"), 0, 1)
        if kind == 3:
            return pm.InverseGamma(self.name("v"), 2, 1) ** 0.5
        if kind == 4:
            return pm.math.exp(pm.Normal(self.name("log_s"), 0, 1))
        if kind == 5:
            return pm.Uniform(self.name("s"), 0.1, 3)
        if self.chance(0.4) or "a negative sd" in self.must:
            self.note("a negative sd")
            self.must = [each for each in self.must if each != "a negative sd"]
            return pm.Normal(self.name("s"), 0.5, 1)
        return 1.0 / pm.math.sqrt(pm.Gamma(self.name("tau"), 2, 1))

    def real(self, center: float = 0.0, width: float = 1.0) -> Variable:
        """A number of any sign, that may start far away or at 0."""
        kind = self.rng.integers(4)
        if kind == 0:
            return pm.Uniform(self.name("u"), center - 2 * width, center + 2 * width)
        if kind == 1:
            return self.at(
                pm.StudentT(self.name("t"), 4, mu=center, sigma=width, initval=center),
                center,
                width,
            )
        initval = center
        if self.chance(0.3):
            self.note("a start far away")
            initval = center + 2.5 * width
        return self.at(pm.Normal(self.name("m"), center, width, initval=initval), center, width)

    # Functions of theta, (n,)

    def moving(self) -> Variable:
        """A function of a covariate that hyper-parameters move."""
        kind = self.one_of(MOVING)
        x, low, width = self.x, self.low, self.range
        if kind == "hinge":
            return pm.math.maximum(x - self.real(low + width / 2, width / 3), 0) / width
        if kind == "decay":
            k = self.scale() if self.chance(0.5) else self.real()
            return pm.math.exp(-k * (x - low) / width)
        if kind == "power":
            return ((x - low) / width + 0.1) ** self.real(1.0, 0.7)
        if kind == "switch":
            change = self.real(low + width / 2, width / 3)
            if self.chance(0.5):
                return pt.switch(x > change, self.real(), 0.5)
            return pt.lt(x, change) * 1.0
        if kind == "clip":
            return pt.clip((x - low) / width - self.real(0.5, 0.3), 0.0, 0.3)
        if kind == "index by theta":
            shift = pm.Uniform(self.name("shift"), 0, 3)
            at = np.arange(self.n) + pt.floor(shift).astype("int64")
            return pt.constant(np.sin(np.arange(self.n + 3.0)))[at]
        if kind == "periodic":
            period = self.real(width / 2, width / 8)
            return pt.sin(2 * np.pi * (x - low) / period)
        if kind == "product with a function":
            return self.real() * pm.math.tanh((x - low) / width * self.scale())
        if kind == "softmax":
            weights = pm.math.softmax(pt.stack([self.real(), self.real(), 0.0]))
            return weights[self.groups(3)]
        if kind == "cumsum of theta":
            steps = pm.Gamma(self.name("steps"), 2, 2, shape=3)
            return pt.cumsum(steps)[self.groups(3)]
        if kind == "set_subtensor of theta":
            return pt.set_subtensor(pt.zeros(self.n)[1:3], self.scale())
        if kind == "a discrete change":
            change = pm.DiscreteUniform(self.name("cp"), 0, self.n)
            self.at(change, float(self.n), 1.0)
            return pt.switch(np.arange(self.n) < change, 1.0, -0.5)
        if kind == "kernel of theta":
            return pm.math.exp(-(((x - self.real(low + width / 2, width / 3)) / width) ** 2))
        raise AssertionError(kind)

    # Latents, (n,)

    def latent(self) -> Variable:
        """A vector that is affine in what is Gaussian."""
        self.depth += 1
        kind = self.one_of(LATENTS if self.depth < 3 else PLAIN)
        result = _MAKE[kind](self)
        self.depth -= 1
        return result

    def vector(self, k: int, center: Variable = 0.0) -> Variable:
        """k Gaussian numbers."""
        if self.chance(0.25):
            return self.scale() * pm.Normal(self.name("z"), 0, 1, shape=k)
        return pm.Normal(self.name("b"), center, self.scale(), shape=k)

    def effects(self) -> Variable:
        k = int(self.rng.integers(2, 5))
        center: Variable = 0.0
        if self.chance(0.2):
            center = self.real()
        return self.vector(k, center)[self.groups(k)]

    def each_effect(self) -> Variable:
        return self.vector(self.n)

    def intercept(self) -> Variable:
        sd = 1000.0 if self.chance(0.2) else 1.0
        return pm.Normal(self.name("a"), 0, sd) + np.zeros(self.n)

    def coefficients(self) -> Variable:
        k = int(self.rng.integers(1, 4))
        X = self.rng.integers(-1, 3, (self.n, k)).astype(float)
        if self.chance(0.5):
            X = X + 0.1 * self.rng.standard_normal((self.n, k))
        X[:, 0] = self.x
        b = pm.Normal(self.name("beta"), 0, 1.0 / np.abs(X).max(axis=0), shape=k)
        self.at(b, 0.0, 1.0 / float(np.abs(X).max()))
        if self.chance(0.5):
            return pm.math.dot(X, b)
        return pt.constant(X) @ b

    def matrix(self) -> Variable:
        k = int(self.rng.integers(2, 4))
        X = np.stack([np.ones(self.n), (self.x - self.low) / self.range])
        B = pm.Normal(self.name("B"), 0, self.scale(), shape=(2, k))
        kind = self.rng.integers(4)
        if kind == 0:
            return (X.T @ B)[np.arange(self.n), self.groups(k)]
        if kind == 1:
            return (X * B[:, self.groups(k)]).sum(axis=0)
        if kind == 2:
            return pt.dot(B.T, X)[0]
        return B.ravel()[self.groups(2 * k)]

    def icar(self) -> Variable:
        phi = pm.ICAR(self.name("phi"), W=MAP)
        return self.scale() * phi[self.groups(len(MAP))]

    def car(self) -> Variable:
        alpha = pm.Beta(self.name("alpha"), 2, 2) if self.chance(0.5) else self.real(0.5, 0.3)
        tau = self.scale()
        phi = pm.CAR(self.name("phi"), np.zeros(len(MAP)), MAP, alpha, tau)
        return phi[self.groups(len(MAP))]

    def bym(self) -> Variable:
        phi = pm.ICAR(self.name("phi"), W=MAP)
        theta = pm.Normal(self.name("theta"), 0, 1, shape=len(MAP))
        rho, sigma = pm.Beta(self.name("rho"), 1, 1), self.scale()
        mixed = sigma * (pm.math.sqrt(1 - rho) * theta + pm.math.sqrt(rho / 0.4) * phi)
        return mixed[self.groups(len(MAP))]

    def ar(self) -> Variable:
        order = int(self.rng.integers(1, 3))
        if self.chance(0.5):
            rho: Variable = pm.Uniform(self.name("rho"), -1, 1, shape=order) * 0.6
        else:
            rho = pt.stack([self.real(0.3, 0.3) for _ in range(order)])
        first = pm.Normal.dist(0, 2.0, shape=order)
        return pm.AR(self.name("f"), rho, sigma=self.scale(), init_dist=first, steps=self.n - order)

    def walk(self) -> Variable:
        mu = self.real(0.0, 0.3) if self.chance(0.3) else 0.0
        return pm.GaussianRandomWalk(
            self.name("w"), mu, self.scale(), init_dist=pm.Normal.dist(0, 2.0), steps=self.n - 1
        )

    def equation(self) -> Variable:
        """A linear stochastic differential equation in steps of 0.1."""

        def change(x: Variable, rate: Variable, level: Variable, scale: Variable) -> Any:
            return rate * (level - x), scale

        first, parameters = pm.Normal.dist(0, 2.0), [self.scale(), self.real(), self.scale()]
        start = np.zeros(self.n)  # PyMC has none of its own
        given = {"init_dist": first, "steps": self.n - 1, "initval": start}
        return pm.EulerMaruyama(self.name("x"), 0.1, change, parameters, **given)

    def gp(self) -> Variable:
        X = ((self.x - self.low) / self.range)[:, None]
        X = np.unique(X, axis=0)
        length = pm.InverseGamma(self.name("ls"), 3, 2)
        cov = self.scale() ** 2 * pm.gp.cov.Matern32(1, ls=length)
        mean = pm.gp.mean.Zero()
        if self.chance(0.3):
            mean = pm.gp.mean.Constant(self.real())
        process = pm.gp.Latent(mean_func=mean, cov_func=cov)
        if self.chance(0.5):
            f = process.prior(self.name("f"), X, reparameterize=False)
        else:
            f = process.prior(self.name("f"), X)
        return f[np.searchsorted(X[:, 0], (self.x - self.low) / self.range)]

    def hsgp(self) -> Variable:
        X = ((self.x - self.low) / self.range)[:, None]
        length = pm.InverseGamma(self.name("ls"), 3, 2)
        cov = self.scale() ** 2 * pm.gp.cov.Matern52(1, ls=length)
        process = pm.gp.HSGP(m=[4], c=1.5, cov_func=cov)
        return process.prior(self.name("h"), X)

    def mvnormal(self) -> Variable:
        n, t = self.n, np.arange(self.n) * 1.0
        C = np.exp(-np.abs(t[:, None] - t) / 2.0)
        mean: Variable = np.zeros(n)
        if self.chance(0.3):
            mean = self.moving()
        which = ["amplitude of all", "nugget", "scaled by a vector", "amplitude of a part"]
        kind = self.one_of(which)
        s = self.scale()
        if kind == "amplitude of all":
            K = s ** float(self.rng.choice([1.0, 2.0, -1.0])) * pt.constant(C)
        elif kind == "nugget":
            K = s**2 * C + self.scale() ** 2 * np.eye(n)
        elif kind == "scaled by a vector":
            h = pm.math.exp(self.real(0.0, 0.5) * t / n)
            K = s**2 * C * pt.outer(h, h)
        else:
            before = pt.lt(self.x, self.real(self.low + self.range / 2, self.range / 3)) * 1.0
            K = s**2 * C + self.scale() ** 2 * pt.outer(before, before)
        if self.chance(0.25):
            return pm.MvNormal(self.name("f"), mean, chol=pt.linalg.cholesky(K), shape=n)
        return pm.MvNormal(self.name("f"), mean, K, shape=n)

    def multiplied(self) -> Variable:
        return self.moving() * self.latent()

    def indexed(self) -> Variable:
        m = self.n + 2
        shift = pm.Uniform(self.name("shift"), 0, 3)
        return self.vector(m)[np.arange(self.n) + pt.floor(shift).astype("int64")]

    def lagged(self) -> Variable:
        f = self.latent()
        if self.chance(0.5):
            self.note("a coefficient that starts at 0")
            k = self.at(pm.Normal(self.name("k"), 0, 1, initval=0.0), 0.0, 1.0)
        else:
            k = self.real(0.4, 0.3)
        return f + k * pt.concatenate([pt.zeros(1), f[:-1]])

    def joined(self) -> Variable:
        a, b = self.latent(), self.latent()
        k = self.n // 2
        if self.chance(0.5):
            return pt.concatenate([a[:k], b[k:]])
        return pt.stack([a, b], axis=1)[np.arange(self.n), self.groups(2)]

    def set_part(self) -> Variable:
        f, b = self.latent(), pm.Normal(self.name("c"), 0, 1)
        if self.chance(0.5):
            return pt.inc_subtensor(f[1:4], b)
        return pt.set_subtensor(f[1:4], b)

    def switched(self) -> Variable:
        change = self.real(self.low + self.range / 2, self.range / 3)
        return pt.switch(self.x > change, self.latent(), self.latent())

    def summed(self) -> Variable:
        return pt.cumsum(self.latent())

    def product(self) -> Variable:
        k, h = int(self.rng.integers(2, 4)), int(self.rng.integers(2, 4))
        return self.vector(k)[self.groups(k)] * self.vector(h)[self.groups(h)]

    def clipped(self) -> Variable:
        return pt.clip(self.latent(), -2.0, 2.0)

    def nested(self) -> Variable:
        k = int(self.rng.integers(2, 4))
        m = pm.Normal(self.name("mean"), 0, 1)
        b = pm.Normal(self.name("b"), m, self.scale(), shape=k)
        c = pm.Normal(self.name("c"), b[self.groups(k)], self.scale(), shape=self.n)
        return c

    def reshaped(self) -> Variable:
        k = 3
        b = pm.Normal(self.name("b"), 0, self.scale(), shape=(2, k))
        kind = self.rng.integers(3)
        if kind == 0:
            return b.T.reshape((2 * k,))[self.groups(2 * k)]
        if kind == 1:
            return b.sum(axis=0)[self.groups(k)]
        return b.dimshuffle(1, 0)[self.groups(k), self.groups(2)]

    def centered(self) -> Variable:
        b = self.latent()
        return b - b.mean()

    def copula(self) -> Variable:
        """A sum of two that share a latent."""
        f = self.latent()
        return self.real(0.5, 0.3) * f + f[::-1]

    # What is observed

    def write(self) -> None:
        parts = [self.latent()]
        while self.chance(0.45) and len(parts) < 3:
            parts.append(self.latent())
        if self.chance(0.4) or any(each in MOVING for each in self.must):
            parts.append(self.moving())
        for extra in [each for each in self.must if each in LATENTS]:
            del extra
            parts.append(self.latent())
        eta = parts[0][: self.n]
        for part in parts[1:]:
            eta = eta + part[: self.n]
        if self.chance(0.15):
            eta = pm.Deterministic(self.name("eta"), eta)
        self.observe(eta)
        if self.chance(0.2):
            self.note("a second observed variable")
            second = eta if self.chance(0.5) else eta[::-1] + self.latent()[: self.n]
            self.observe(second if self.chance(0.5) else self.real() * second)
        if self.chance(0.12) or "an unread scale" in self.must:
            self.unread()
        if self.chance(0.12):
            self.note("a potential")
            s = self.scale()
            kind = self.rng.integers(3)
            density = (-0.5 * eta**2, -0.1 * s**2, -0.1 * s * eta[0] ** 2)[int(kind)]
            pm.Potential(self.name("potential"), density)

    def unread(self) -> None:
        self.note("an unread variable")
        kind = 3 if "an unread scale" in self.must else self.rng.integers(4)
        if kind == 0:
            pm.Normal(self.name("unread"), self.real(), self.scale())
        elif kind == 1:
            pm.Uniform(self.name("unread"), 0, pm.math.exp(self.real()) + 1)
        elif kind == 2:
            pm.Gamma(self.name("unread"), 2, self.scale(), shape=2)
        else:
            pm.Normal(self.name("unread"), 0, pm.Normal(self.name("b"), 0.5, 1))

    def observe(self, eta: Variable) -> None:
        kind, rng, n = self.one_of(LIKELIHOODS), self.rng, self.n
        name, counts = self.name("y"), rng.poisson(2, n)
        if kind == "Poisson":
            # Without an offset rows may be alike.
            rate = pm.math.exp(eta + (np.log(rng.uniform(1, 2, n)) if self.chance(0.3) else 0.0))
            pm.Poisson(name, rate, observed=counts)
        elif kind == "Normal":
            pm.Normal(name, eta, self.scale(), observed=rng.standard_normal(n))
        elif kind == "Bernoulli logit":
            pm.Bernoulli(name, logit_p=eta, observed=counts > 1)
        elif kind == "Bernoulli probit":
            pm.Bernoulli(name, pm.math.invprobit(eta), observed=counts > 1)
        elif kind == "Binomial":
            pm.Binomial(name, 8, pm.math.invlogit(eta), observed=counts.clip(0, 8))
        elif kind == "NegativeBinomial":
            pm.NegativeBinomial(name, mu=pm.math.exp(eta), alpha=self.scale(), observed=counts)
        elif kind == "StudentT":
            pm.StudentT(name, 4, mu=eta, sigma=self.scale(), observed=rng.standard_normal(n))
        elif kind == "Gamma":
            a = self.scale()
            pm.Gamma(name, a, a / pm.math.exp(eta), observed=rng.gamma(2, 1, n))
        elif kind in ("OrderedProbit", "OrderedLogistic"):
            cut: Variable = np.array([-0.5, 0.7])
            if self.chance(0.5):
                cut = pt.cumsum(
                    pt.concatenate([[-1.0], pm.Gamma(self.name("gaps"), 2, 2, shape=1)])
                )
            likelihood = getattr(pm, kind)
            likelihood(name, eta=eta, cutpoints=cut, observed=counts.clip(0, 2))
        elif kind == "two elements per observation":
            g = pm.math.exp(eta)
            k = self.real(0.4, 0.3)
            pm.Normal(name, g[1:] + k * g[:-1], 1.0, observed=rng.standard_normal(n - 1))
        elif kind == "a start at 0 hides what is read":
            g = pm.math.exp(eta)
            k = self.at(pm.Normal(self.name("k"), 0, 1, initval=0.0), 0.0, 1.0)
            pm.Normal(name, g[1:] + k * g[:-1], 1.0, observed=rng.standard_normal(n - 1))
        elif kind == "a mean and its noise":
            rho = self.latent()[:n]
            pm.Normal(name, eta, pm.math.exp(rho), observed=rng.standard_normal(n))
        elif kind == "classes":
            other = self.latent()[:n]
            zero = pt.zeros_like(eta)
            p = pm.math.softmax(pt.stack([eta, other, zero], axis=1), axis=1)
            pm.Categorical(name, p, observed=counts.clip(0, 2))
        elif kind == "two on one element":
            pm.Poisson(name, pm.math.exp(eta[[0, 0, 1]]), observed=counts[:3])
        elif kind == "a sum of exponentials":
            pm.Normal(name, pm.math.exp(eta).sum(), self.scale(), observed=3.0)
        elif kind == "censored":
            latent = pm.Normal.dist(eta, self.scale())
            pm.Censored(
                name, latent, lower=-0.5, upper=None, observed=rng.normal(size=n).clip(-0.5)
            )
        elif kind == "zero-inflated":
            psi = pm.Beta(self.name("psi"), 2, 2)
            pm.ZeroInflatedPoisson(name, psi, pm.math.exp(eta), observed=counts)
        elif kind == "a moving link":
            k = self.scale()
            pm.Bernoulli(name, pm.math.invlogit(eta) ** k, observed=counts > 1)
        elif kind == "a matrix of observations":
            observed = rng.standard_normal((2, n))
            pm.Normal(name, pt.stack([eta, self.real() + eta]), self.scale(), observed=observed)
        else:
            raise AssertionError(kind)


MOVING = (
    *("hinge", "decay", "power", "switch", "clip", "index by theta", "periodic", "softmax"),
    *("product with a function", "cumsum of theta", "set_subtensor of theta"),
    *("a discrete change", "kernel of theta"),
)

_MAKE: dict[str, Callable[[_Writer], Variable]] = {
    "effects": _Writer.effects,
    "an effect for each": _Writer.each_effect,
    "intercept": _Writer.intercept,
    "coefficients": _Writer.coefficients,
    "a matrix of coefficients": _Writer.matrix,
    "ICAR": _Writer.icar,
    "CAR": _Writer.car,
    "AR": _Writer.ar,
    "walk": _Writer.walk,
    "equation": _Writer.equation,
    "process": _Writer.gp,
    "HSGP": _Writer.hsgp,
    "MvNormal": _Writer.mvnormal,
    "nested effects": _Writer.nested,
    "reshaped": _Writer.reshaped,
    "BYM": _Writer.bym,
    "multiplied by what moves": _Writer.multiplied,
    "indexed by theta": _Writer.indexed,
    "lag": _Writer.lagged,
    "joined": _Writer.joined,
    "set_subtensor": _Writer.set_part,
    "switched by theta": _Writer.switched,
    "cumsum": _Writer.summed,
    "product of two": _Writer.product,
    "clipped": _Writer.clipped,
    "centered": _Writer.centered,
    "added to itself": _Writer.copula,
}

LATENTS = tuple(_MAKE)

PLAIN = LATENTS[:15]
"""Those that are made of no others."""

LIKELIHOODS = (
    *("Poisson", "Normal", "Bernoulli logit", "Bernoulli probit", "Binomial", "NegativeBinomial"),
    *("StudentT", "Gamma", "OrderedProbit", "OrderedLogistic", "two elements per observation"),
    *("a mean and its noise", "classes", "two on one element", "a sum of exponentials"),
    *("censored", "zero-inflated", "a moving link", "a matrix of observations"),
    "a start at 0 hides what is read",
)
