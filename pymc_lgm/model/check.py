"""The audit, which compares the densities that samplers use with PyMC's own.

Samplers evaluate log p(theta), N(f; m, K) and ℓ(f, theta), which `pymc_lgm.model` compiles from a
model's graph. PyMC compiles `model.logp()` from the same graph. At every point they must agree:

    log p(theta) and ℓ(f(x), theta) are PyMC's terms of theta and of the data;
    log p(x | theta) has the mean μ and, in two directions u = K_x Aᵀ w, the curvature wᵀ K w that
    the prior of f has, and A u is K w.

Values at points can refute a reading but never prove it. The reading follows from the graph, and
the audit finds mistakes in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.distribution import support_point
from pymc.distributions.multivariate import MvNormalRV
from pymc.initial_point import make_initial_point_fn
from pymc.pytensorf import find_rng_nodes, replace_rng_nodes, reseed_rngs
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.tensor.random.basic import CauchyRV, HalfCauchyRV, HalfNormalRV

from pymc_lgm.compile.graphs.functions import ONCE, STABLE, called_once, with_rounding_errors
from pymc_lgm.compile.graphs.rewrites import rewriter
from pymc_lgm.linalg import Array
from pymc_lgm.model.functions import ModelFunctions
from pymc_lgm.model.points import start_of, unconstrained
from pymc_lgm.model.reading import Reading
from pymc_lgm.model.refutations import generator, rank_of

__all__ = ["Audit", "Difference"]

Point = Mapping[str, NDArray[Any]]

TOLERANCE = 1e-6
"""Largest difference, relative to the sum of the absolute values of the terms compared.

It is a thousand times the rounding error of a log density whose covariance has the condition number
1e7, and a millionth of a nat per datum.
"""

PERTURBED = 1e-14
"""Relative size of random changes of a point that show the rounding error of PyMC's density.

Each operation has a random rounding error, too: 1 - sigmoid(x) has one digit at x = 36, but changes
of x by its rounding error do not change it.
"""

ROUNDING = 30.0
"""A difference up to this many times the largest effect of these changes is a rounding error.

There are only `N_PERTURBED` changes, and the worst rounding error may be larger than theirs. The
estimated rounding error of a quadratic form is multiplied by it, too.
"""

LOST = 1.0
"""Nats: a rounding error of a density beyond which draws are not of the posterior."""

LONGEST = 100.0
"""Standard deviations of the prior that a step in a direction has at most.

A longer one loses digits. `pymc.ZeroSumNormal`, for example, has no density if the mean of its
elements is above 1e-9, as rounding makes it if they are above 1e6.
"""

N_PERTURBED = 3
"""Number of these changes, each of which evaluates PyMC's density again."""

NOWHERE = -1e16
"""A log density below this is a density of 0: a chain never visits the point.

The numbers near it are 2 apart. A term of PyMC's density may overflow to -inf there.
"""

OVERFLOWS = 1e100
"""A density may overflow at latent variables of this size, since it has their squares.

Draws of an explosive autoregression are as large. A misreading is found at other points.
"""

N_TRIES = 20
"""Attempts to draw from the prior, in which a standard deviation may turn out negative, say."""

MOST_LATENTS = 500
"""If f has no prior, most elements of x for which the map from x to f is computed."""


DENSITIES = "the log prior", "the log density"
"""Names of the densities of a point in differences."""


class Difference(NamedTuple):
    """A quantity as the samplers compute it and as PyMC does, at a point.

    Attributes
    ----------
    name : str
        The name of the variable or variables.
    what : str
        The quantity, for a message.
    read, pymc : float
        This package's value, and PyMC's.
    scale : float
        The sum of the absolute values of the terms.
    is_cut_off : bool
        Whether samplers never visit the point, but not because a number is hard to compute.
    """

    name: str
    what: str
    read: float
    pymc: float
    scale: float
    is_cut_off: bool = False

    @property
    def relative(self) -> float:
        """The difference over the scale; infinite if PyMC's density is zero there."""
        if self.is_cut_off:
            return np.inf
        # A sampler rejects a point where it cannot compute a number.
        if not np.isfinite(self.read) or np.isnan(self.pymc):
            return 0.0
        if self.pymc == -np.inf and self.read < NOWHERE:
            return 0.0
        return abs(self.read - self.pymc) / self.scale if np.isfinite(self.pymc) else np.inf


class Audit:
    """Compare this package's densities of a model with PyMC's, at any point.

    Parameters
    ----------
    model : pymc.Model
    reading : Reading
    lgm : ModelFunctions

    Notes
    -----
    PyMC's terms are compiled once, for Python and not for Numba, in some 0.2 s. A comparison of the
    densities evaluates them once; with the prior of f, four times. They are first compiled without
    the rewrites that keep a density accurate in its tails, since these take most of the time. If a
    quantity differs or is not finite, the terms are compiled with these rewrites and compared
    again.
    """

    def __init__(self, model: pm.Model, reading: Reading, lgm: ModelFunctions):
        self._lgm = lgm
        latents = [each.rv for each in reading.latents]
        terms = [*latents, *reading.terms]
        self._names = [str(term.name) for term in terms]
        self._latents = self._names[: len(latents)]
        # PyMC factorizes the covariance of these, which may fail in rounding.
        self._is_dense = np.array([isinstance(rv.owner.op, MvNormalRV) for rv in latents])
        self._densities = list(model.value_vars), model.logp(vars=terms, sum=False)
        self._inputs = [value.name for value in model.value_vars]
        self._function: Callable[..., list[Array]] | None = None
        self._rounded: Callable[..., list[Array]] | None = None
        self._is_stable = False
        self._draw = _prior_draws(model)
        self._model: pm.Model | None = model

    def __getstate__(self) -> dict[str, Any]:
        # Prior points are drawn before an audit is pickled. Functions that run in Python cannot
        # always be pickled, and are quickly compiled again.
        return self.__dict__ | {
            "_draw": None,
            "_function": None,
            "_rounded": None,
            "_is_stable": False,
            "_model": None,
        }

    def prior_points(self, seed: int, count: int) -> list[dict[str, NDArray[Any]]]:
        """Points drawn from the prior, on the unconstrained scale."""
        return [self._draw(seed + k) for k in range(count)]

    def differences(self, point: Point, *, moments: bool) -> list[Difference]:
        """Compare all quantities at a point.

        Parameters
        ----------
        point : dict
            A PyMC point, with the values of all free variables.
        moments : bool
            Whether to compare the prior of f, too.
        """
        found = self._differences(point, moments)
        if not self._is_stable and any(each.relative > TOLERANCE for each in found):
            self._stabilize()
            found = self._differences(point, moments)
        return found

    def _differences(self, point: Point, moments: bool) -> list[Difference]:
        lgm = self._lgm
        theta = self._lgm.theta_of(dict(point))
        with np.errstate(all="ignore"):
            values = self._terms(point)
            prior = lgm.prior(theta)
            if cut_off := self._cut_off(theta, point, values):
                return [cut_off]
            if prior is None or not prior.is_proper:
                found = self._of_no_prior(theta, point, values)
                if prior is None or found:
                    return found
            f = lgm.f_of(theta, dict(point))
            found = []
            x = self._x(point)
            if (
                prior.is_proper
                and not np.isfinite(values[: len(self._latents), 0][~self._is_dense]).all()
                and not _overflows(x)
            ):
                what = "the log density"
                found += [Difference(lgm.latent, what, 0.0, -np.inf, 1.0)]
            found += [self._sum(lgm.prior_names, lgm.log_prior(theta), values, DENSITIES[0])]
            if lgm.likelihood_names:
                ell = lgm.form.log_likelihood_of(lgm, x, f, theta)
                found.append(self._sum(lgm.likelihood_names, ell, values, DENSITIES[1]))
            if moments and prior.is_proper:
                found += self._of_prior(prior, theta, f, point, values)
        return found

    def __call__(self, point: Point, *, moments: bool = False, is_draw: bool = False) -> None:
        """Raise a `ValueError` if a quantity differs by more than rounding.

        At a draw of a chain, also if the rounding error of a density is larger than `LOST`.
        """
        for each in self.differences(point, moments=moments):
            if each.relative <= TOLERANCE:
                continue
            if not self._is_rounding(each, point, moments):
                raise ValueError(self._message(each, point))
            if is_draw and each.what in DENSITIES and abs(each.read - each.pymc) > LOST:
                raise ValueError(
                    f"The log density of {each.name!r} is lost in rounding errors at "
                    f"{{{self._at(point)}}}, where the chain is: two ways to compute it give "
                    f"{each.read:.6g} and {each.pymc:.6g}. Draws there are not of the posterior, "
                    "whatever samples it. Write priors with less mass at extreme values, or a "
                    "likelihood that keeps its digits there, as pm.Multinomial instead of a "
                    "pm.DirichletMultinomial with parameters of 1e15."
                )

    def of_rejected(self, point: Point) -> None:
        """Raise a `ValueError` if PyMC's density is positive at a point that samplers reject.

        The point has an infinite linear predictor. A point without a prior for another reason is
        not looked at.
        """
        theta = self._lgm.theta_of(dict(point))
        with np.errstate(all="ignore"):
            cut_off = self._cut_off(theta, point)
        if cut_off:
            raise ValueError(self._message(cut_off, point))

    def _cut_off(
        self, theta: Array, point: Point, values: Array | None = None
    ) -> Difference | None:
        """The difference at a point with an infinite predictor, but a positive density by PyMC.

        Samplers reject it as if the density were 0.
        """
        if not self._lgm.form.is_infinite(theta, self._lgm.f_of(theta, dict(point))):
            return None
        values = self._terms(point) if values is None else values
        if not np.isfinite(values[:, 0]).all():
            return None
        here = float(values[:, 0].sum())
        return Difference(self._lgm.latent, "the log density", -np.inf, here, 1.0, is_cut_off=True)

    @property
    def _free(self) -> list[str]:
        return [name for name in self._lgm.latents if name not in self._lgm.observed]

    def _x(self, point: Point) -> list[Array]:
        """The values of the latent variables that are not observed."""
        return [np.asarray(point[name], dtype=np.float64) for name in self._free]

    def _terms(self, point: Point, count: int | None = None) -> Array:
        """The sum and the sum of absolute values of each term, or of the first ``count``: (T, 2).

        As long as nothing has differed, the second is |sum|.
        """
        if self._function is None:
            inputs, densities = self._densities
            sums = [each if each.ndim == 0 else pt.sum(each) for each in densities]
            self._function = called_once(inputs, sums)
        try:
            values = self._function(*(point[name] for name in self._inputs))
        except Exception:
            # A parameter is not valid, for which the rewritten density is -inf; or an operation
            # does not take a sparse matrix, and rewrites remove it.
            if self._is_stable:
                raise
            values = [np.nan]
        found = np.array(values, dtype=np.float64)
        if self._is_stable:
            return found.reshape(2, -1).T[:count]
        found = found[:count]
        if not np.isfinite(found).all():
            self._stabilize()
            return self._terms(point, count)
        return np.stack([found, np.abs(found)], axis=1)

    def _stabilize(self) -> None:
        self._function = called_once(*self._sums, STABLE)
        self._is_stable = True

    @property
    def _sums(self) -> tuple[Any, Any]:
        inputs, densities = self._densities
        both = [pt.sum(of) for each in (densities, map(abs, densities)) for of in each]
        return inputs, both

    def _sum(self, names: Sequence[str], read: float, values: Array, what: str) -> Difference:
        at = [self._names.index(name) for name in names]
        theirs, scale = values[at].sum(axis=0) if at else (0.0, 0.0)
        return Difference(", ".join(names), what, float(read), float(theirs), 1.0 + float(scale))

    def _of_prior(
        self, prior: Any, theta: Array, f: Array, point: Point, values: Array
    ) -> list[Difference]:
        """Compare the mean and covariance of f with PyMC's density of the latent variables."""
        lgm = self._lgm
        label = self._lgm.latent
        here, scale = (float(each) for each in values[: len(self._latents)].sum(axis=0))
        if not self._free:
            what = "the log density"
            return [Difference(label, what, prior.log_density(f), here, 1.0 + scale)]
        probe = lgm.form.probe(prior, generator())
        if probe is None:
            return []
        x = self._x(point)

        def moved(to: Sequence[Array]) -> Array:
            """The log density there, and the sum of the absolute values of its terms."""
            changed = dict(zip(self._free, to, strict=True))
            sums = self._terms({**point, **changed}, len(self._latents)).sum(axis=0)
            return np.full(2, np.nan) if not np.isfinite(sums[0]) and _overflows(to) else sums

        at_means = lgm.form.f_of(lgm.prior, theta, [each.copy() for each in probe.means])
        size = float(np.abs(at_means).max(initial=0.0) + np.sqrt(prior.variances.max(initial=0.0)))
        found = [_largest(label, "the mean of f", prior.mean, at_means, 1e-3 + size)]
        mirrored, of = moved([2.0 * m - v for m, v in zip(probe.means, x, strict=True)]).tolist()
        what = "the log density of x mirrored at its mean"
        found.append(Difference(label, what, here, mirrored, 1.0 + max(scale, of)))
        for step in probe.steps:
            share = min(1.0, LONGEST / max(np.sqrt(step.quadratic_form), 1.0))
            up = moved([v + share * u for v, u in zip(x, step.of_latents, strict=True)])
            down = moved([v - share * u for v, u in zip(x, step.of_latents, strict=True)])
            curvature = float(up[0] + down[0] - 2.0 * here)
            of = float(1.0 + 4.0 * max(scale, up[1], down[1]))
            of += ROUNDING * step.rounding / TOLERANCE
            what = f"the curvature of the log density of x in the direction {step.name}"
            expected = -float(share**2) * step.quadratic_form
            found.append(Difference(label, what, expected, curvature, of))
            if step.of_f is not None:
                there = [m + u for m, u in zip(probe.means, step.of_latents, strict=True)]
                moved_f = lgm.form.f_of(lgm.prior, theta, there) - at_means
                longest = float(np.abs(step.of_f).max(initial=0.0)) + 1e-3 * size
                what = f"the covariance of f in the direction {step.name}"
                found.append(_largest(label, what, step.of_f, moved_f, longest))
        return found

    def _of_no_prior(self, theta: Array, point: Point, values: Array) -> list[Difference]:
        """Find out whether f has fewer degrees of freedom at a point where PyMC has a density.

        A sampler would reject such a point, as if the covariance could not be factorized.
        """
        lgm = self._lgm
        x = self._x(point)
        if not np.isfinite(values).all() or not 0 < sum(v.size for v in x) <= MOST_LATENTS:
            return []
        ends = np.cumsum([v.size for v in x])

        def f_of(values: Array) -> Array:
            parts = np.split(values, ends[:-1])
            latents = [part.reshape(v.shape) for part, v in zip(parts, x, strict=True)]
            return lgm.form.f_of(lgm.prior, theta, latents)

        # From 0, because a step of 1 from a value under a vague prior would be lost in rounding.
        at_zero = f_of(np.zeros(ends[-1]))
        A = np.stack([f_of(unit) - at_zero for unit in np.eye(ends[-1])], axis=1)
        if not np.isfinite(A).all():
            return []
        here = rank_of(A)
        what = "the number of degrees of freedom"
        return [Difference(lgm.latent, what, lgm.rank, here, 1.0)] if here < lgm.rank else []

    def _is_rounding(self, difference: Difference, point: Point, moments: bool) -> bool:
        """Whether a difference is about the effect of rounding errors on PyMC's value."""
        rng = generator()
        noise = 0.0
        if not self._is_stable:
            self._stabilize()
        if self._rounded is None:
            self._rounded = with_rounding_errors(*self._sums, rng)
        usual = self._function
        for _ in range(N_PERTURBED):
            near = dict(point)
            for name in self._inputs:
                value = np.asarray(point[name])
                if value.dtype.kind == "f":
                    near[name] = value * (1.0 + PERTURBED * rng.standard_normal(value.shape))
            self._function = self._rounded
            try:
                others = self.differences(near, moments=moments)
            finally:
                self._function = usual
            for other in others:
                if other[:2] == difference[:2]:
                    gap = abs(other.pymc - difference.pymc)
                    noise = max(noise, gap if np.isfinite(gap) else 0.0)
        return bool(abs(difference.read - difference.pymc) <= ROUNDING * noise)

    def _message(self, difference: Difference, point: Point) -> str:
        at = self._at(point)
        if difference.is_cut_off:
            return (
                f"The linear predictor of {difference.name!r} is infinite at {{{at}}}, where "
                "PyMC's density is positive. The samplers of this package reject such a point, so "
                "draws would not be of the posterior. A factor that may be 0 must stand outside "
                "the logarithm: write the rate as pt.maximum(t - t0, 0) * pm.math.exp(f), not as "
                "pm.math.exp(f + pt.log(pt.maximum(t - t0, 0))). Or sample this model with "
                "step=pm.NUTS()."
            )
        if name := self._not_symmetric(point):
            return (
                f"The covariance matrix of {name!r} is not symmetric at {{{at}}}. PyMC reads one "
                "triangle of it, so its density is not that of the model as it is written. If L is "
                f"a Cholesky factor, as what pm.LKJCorr returns, write pm.MvNormal({name!r}, "
                "chol=sd * L), with sd one number or a column."
            )
        return (
            f"pymc_lgm has misread {difference.name!r}: {difference.what} is {difference.pymc:.6g} "
            f"by PyMC and {difference.read:.6g} as it was read, at {{{at}}}. Draws would not be of "
            "the posterior. Sample this model with step=pm.NUTS(), and please report it."
        )

    def _at(self, point: Point) -> str:
        """The values of theta, for a message."""
        shown = {
            name: np.array2string(np.asarray(value), precision=4, threshold=6)
            for name, value in point.items()
            if name in self._lgm.theta_names
        }
        return ", ".join(f"{name}={value}" for name, value in shown.items())

    def _not_symmetric(self, point: Point) -> str | None:
        """The name of a latent variable whose covariance matrix is not symmetric at a point.

        PyMC reads one triangle of it. Such a model has no meaning, and has not been misread.
        """
        if self._model is None:  # of another process
            return None
        rvs = [rv for rv in self._model.free_RVs if rv.name in self._latents]
        rvs = [rv for rv in rvs if isinstance(rv.owner.op, MvNormalRV)]
        graphs = [rv.owner.op.dist_params(rv.owner)[1] for rv in rvs]
        function = called_once(
            list(self._model.value_vars), self._model.replace_rvs_by_values(graphs)
        )
        for rv, K in zip(rvs, function(*(point[name] for name in self._inputs)), strict=True):
            if np.abs(K - np.swapaxes(K, -1, -2)).max() > TOLERANCE * np.abs(K).max():
                return str(rv.name)
        return None


def _overflows(x: Sequence[Array]) -> bool:
    """Whether latent variables are so large that their log density may overflow."""
    return any(np.abs(each).max(initial=0.0) > OVERFLOWS for each in x)


def _largest(name: str, what: str, read: Array, pymc: Array, scale: float) -> Difference:
    """The element that differs most."""
    if read.shape != pymc.shape:
        return Difference(name, what, float(read.size), float(pymc.size), 1e-300)
    at = int(np.argmax(np.abs(read - pymc))) if read.size else None
    if at is None:
        return Difference(name, what, 0.0, 0.0, 1.0)
    return Difference(name, what, float(read[at]), float(pymc[at]), scale)


def _prior_draws(model: pm.Model) -> Callable[[int], dict[str, NDArray[Any]]]:
    """A function from a seed to a draw of the prior, or to a point near the start without one."""
    # Variables with a start of their own are drawn, too: a mistake may show elsewhere only.
    graphs = unconstrained(model, model.free_RVs)
    values = [value.astype(rv.dtype) for value, rv in zip(graphs, model.free_RVs, strict=True)]
    if flat := [rv for rv in model.free_RVs if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]:
        values = clone_replace(values, {rv: support_point(rv) for rv in flat}, rebuild_strict=False)
    mode = ONCE.register(
        (dfs_rewriter(rewriter(_without_scipy, HalfNormalRV, HalfCauchyRV, CauchyRV)), 1.5)
    )
    draw = called_once([], replace_rng_nodes(values), mode)
    rngs = find_rng_nodes(draw.maker.fgraph.outputs)
    near = cache(lambda: make_initial_point_fn(model=model, jitter_rvs=set(model.free_RVs)))
    names = [model.rvs_to_values[rv].name for rv in model.free_RVs]

    def point(seed: int) -> dict[str, NDArray[Any]]:
        for attempt in range(N_TRIES):
            reseed_rngs(rngs, seed + 1000 * attempt)
            try:
                drawn = draw()
                # A draw may be outside of a transform's range, as normals that are not ordered.
                if all(np.isfinite(value).all() for value in drawn):
                    return dict(zip(names, drawn, strict=True))
            except (NotImplementedError, AssertionError):
                # Some distributions cannot be drawn from. And if ``dims`` gives the length of a
                # vector walk, PyMC's check of its shape fails unless the graph is rewritten.
                break
            except (ValueError, ArithmeticError):  # a parameter is not valid: draw again
                continue
        try:
            return dict(near()(seed))
        except (ValueError, ArithmeticError):
            return start_of(model)

    return point


def _without_scipy(fgraph: Any, node: Any) -> list[Any]:
    """Draw with NumPy, not scipy.stats, whose import takes longer than the rest of an audit."""
    rng, size, loc, scale = node.inputs
    zero = pt.zeros_like(loc + scale)
    if isinstance(node.op, HalfNormalRV):
        after, z = pt.random.normal(zero, 1.0, size=size, rng=rng, return_next_rng=True)
        z = abs(z)
    else:
        low = zero if isinstance(node.op, HalfCauchyRV) else zero - 0.5
        after, u = pt.random.uniform(low, low + 1.0, size=size, rng=rng, return_next_rng=True)
        z = pt.tan(np.pi * (u if isinstance(node.op, CauchyRV) else 0.5 * u))
    return [after, (loc + scale * z).astype(node.outputs[1].dtype)]
