"""The audit: what has been read of a model, held against PyMC's own density of it.

Samplers evaluate log p(theta), N(f; m, K) and ℓ(f, theta), which `pymc_lgm.model` has made of a
model's graph. PyMC makes `model.logp()` of the same graph. At any point the two must agree:

    log p(theta) and ℓ(f(x), theta) are PyMC's terms of theta and of the data;
    log p(x | theta) has the mean μ and, in the direction u = K_x Aᵀ w, the curvature wᵀ K w that
    the prior of f has, and A u is K w.

Points refute and never prove. What is read follows from the graph; the audit finds where that has
gone wrong.
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
from pytensor.graph.rewriting.basic import NodeRewriter, dfs_rewriter
from pytensor.tensor.random.basic import CauchyRV, HalfCauchyRV, HalfNormalRV

from pymc_lgm.linalg import Array
from pymc_lgm.model.compiling import ONCE, STABLE, called_once
from pymc_lgm.model.functions import ModelFunctions
from pymc_lgm.model.reading import Reading
from pymc_lgm.model.refutations import generator

__all__ = ["Audit", "Difference"]

Variable = Any
Point = Mapping[str, NDArray[Any]]

TOLERANCE = 1e-6
"""Of the sum of absolute values of the terms compared: a thousand times what rounding does to a
log density of a covariance with condition number 1e7, and a millionth of a nat per datum."""

PERTURBED = 1e-14
"""Relative size of the changes of a point that show what rounding does to PyMC's density."""

ROUNDING = 30.0
"""How many times as large as what these changes do a difference must be to be one: they are three
draws of what rounding may do at its worst."""

N_PERTURBED = 3

N_TRIES = 20
"""Draws of the prior until one is possible: a standard deviation may be negative in a draw."""

MOST_LATENTS = 500
"""Latent variables whose map to f is looked at, column by column, where f has no prior."""


class Difference(NamedTuple):
    """What was compared at a point.

    Attributes
    ----------
    name : str
        Of the variable, or variables.
    what : str
        What was compared, for a message.
    read, pymc : float
        The value as it was read, and PyMC's.
    scale : float
        Sum of the absolute values of what was added up.
    """

    name: str
    what: str
    read: float
    pymc: float
    scale: float

    @property
    def relative(self) -> float:
        """The difference over the scale; infinite if PyMC's density is zero there."""
        if not np.isfinite(self.read):  # rejected: no chain is there
            return 0.0
        if np.isnan(self.pymc):
            return 0.0
        return abs(self.read - self.pymc) / self.scale if np.isfinite(self.pymc) else np.inf


class Audit:
    """Compare what was read of a model with PyMC's density, at any point.

    Parameters
    ----------
    model : pymc.Model
    reading : Reading
    lgm : ModelFunctions

    Notes
    -----
    PyMC's terms are compiled once, for Python and not for Numba: some 0.2 s. A comparison of the
    densities evaluates them once; one of the prior of f as well, four times. They are compiled
    without the rewrites that keep a density accurate in its tails, which take longer than all the
    rest, until something differs, or is not a number: then with them, before anything is said.
    """

    def __init__(self, model: pm.Model, reading: Reading, lgm: ModelFunctions):
        self._lgm = lgm
        latents = [each.rv for each in reading.latents]
        terms = [*latents, *reading.terms]
        self._names = [str(term.name) for term in terms]
        self._latents = self._names[: len(latents)]
        # Whether PyMC has factorized a covariance for it, which rounding may have kept from it.
        self._is_dense = np.array([isinstance(rv.owner.op, MvNormalRV) for rv in latents])
        self._densities = list(model.value_vars), model.logp(vars=terms, sum=False)
        self._inputs = [value.name for value in model.value_vars]
        self._function: Callable[..., list[Array]] | None = None
        self._is_stable = False
        self._draw = _prior_draws(model)

    def __getstate__(self) -> dict[str, Any]:
        # Points of the prior are drawn where the model is read. What runs in Python cannot always
        # be pickled, and is soon compiled again.
        return self.__dict__ | {"_draw": None, "_function": None, "_is_stable": False}

    def prior_points(self, seed: int, count: int) -> list[dict[str, NDArray[Any]]]:
        """Points drawn from the prior, on the scale that they are sampled on."""
        return [self._draw(seed + k) for k in range(count)]

    def differences(self, point: Point, *, moments: bool) -> list[Difference]:
        """What was read and what PyMC has at a point, as differences.

        Parameters
        ----------
        point : dict
            Of PyMC: values of all free variables.
        moments : bool
            Whether the prior of f is compared, too.
        """
        found = self._differences(point, moments)
        if not self._is_stable and any(each.relative > TOLERANCE for each in found):
            self._stabilize()
            found = self._differences(point, moments)
        return found

    def _differences(self, point: Point, moments: bool) -> list[Difference]:
        lgm, theta = self._lgm, self._lgm.theta_of(dict(point))
        with np.errstate(all="ignore"):
            values = self._terms(point)
            prior = lgm.prior(theta)
            if prior is None or not prior.is_proper:
                found = self._of_no_prior(theta, point, values)
                if prior is None or found:
                    return found
            f = lgm.f_of(theta, dict(point))
            found = []
            if (
                prior.is_proper
                and not np.isfinite(values[: len(self._latents), 0][~self._is_dense]).all()
            ):
                what = "the log density"
                found += [Difference(lgm.latent, what, 0.0, -np.inf, 1.0)]
            found += [self._sum(lgm.prior_names, lgm.log_prior(theta), values, "the log prior")]
            if lgm.likelihood_names:
                latents = [np.asarray(point[name], dtype=np.float64) for name in self._free]
                ell = lgm.form.log_likelihood_of(lgm, prior, latents, f, theta)
                found.append(self._sum(lgm.likelihood_names, ell, values, "the log density"))
            if moments and prior.is_proper:
                found += self._of_prior(prior, theta, f, point, values)
        return found

    def __call__(self, point: Point, *, moments: bool = False) -> None:
        """Raise a `ValueError` if something differs by more than rounding."""
        for each in self.differences(point, moments=moments):
            if each.relative > TOLERANCE and not self._is_rounding(each, point, moments):
                raise ValueError(self._message(each, point))

    @property
    def _free(self) -> list[str]:
        return [name for name in self._lgm.latents if name not in self._lgm.observed]

    def _terms(self, point: Point, count: int | None = None) -> Array:
        """Sum, and sum of absolute values, of each term, or of the first: (T, 2).

        Before anything has differed |sum| stands for the latter.
        """
        if self._function is None:
            inputs, densities = self._densities
            sums = [each if each.ndim == 0 else pt.sum(each) for each in densities]
            self._function = called_once(inputs, sums)
        try:
            values = self._function(*(point[name] for name in self._inputs))
        except Exception:
            # Of a parameter that is none, which rewrites make -inf of; or of a sparse matrix in an
            # operation that rewrites take out.
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
        inputs, densities = self._densities
        both = [pt.sum(of) for each in (densities, map(abs, densities)) for of in each]
        self._function, self._is_stable = called_once(inputs, both, STABLE), True

    def _sum(self, names: Sequence[str], read: float, values: Array, what: str) -> Difference:
        at = [self._names.index(name) for name in names]
        theirs, scale = values[at].sum(axis=0) if at else (0.0, 0.0)
        return Difference(", ".join(names), what, float(read), float(theirs), 1.0 + float(scale))

    def _of_prior(
        self, prior: Any, theta: Array, f: Array, point: Point, values: Array
    ) -> list[Difference]:
        """Mean and covariance of f against PyMC's density of the latent variables."""
        lgm, label = self._lgm, self._lgm.latent
        here, scale = (float(each) for each in values[: len(self._latents)].sum(axis=0))
        if not self._free:
            what = "the log density"
            return [Difference(label, what, prior.log_density(f), here, 1.0 + scale)]
        probe = lgm.form.probe(lgm, prior, generator())
        if probe is None:
            return []
        x = [np.asarray(point[name], dtype=np.float64) for name in self._free]

        def moved(to: Sequence[Array]) -> float:
            changed = dict(zip(self._free, to, strict=True))
            sums = self._terms({**point, **changed}, len(self._latents)).sum(axis=0)
            nonlocal scale
            scale = max(scale, float(sums[1]))
            return float(sums[0])

        at_means = lgm.form.f_of(lgm.prior, theta, [each.copy() for each in probe.means])
        size = float(np.abs(at_means).max(initial=0.0) + np.sqrt(prior.variances.max(initial=0.0)))
        found = [_largest(label, "the mean of f", prior.mean, at_means, 1e-3 + size)]
        mirrored = moved([2.0 * m - v for m, v in zip(probe.means, x, strict=True)])
        what = "the log density of x mirrored at its mean"
        found.append(Difference(label, what, here, mirrored, 1.0 + scale))
        for step in probe.steps:
            up = moved([v + u for v, u in zip(x, step.of_latents, strict=True)])
            down = moved([v - u for v, u in zip(x, step.of_latents, strict=True)])
            what = "the curvature of the log density of x in a direction"
            curvature = up + down - 2.0 * here
            found.append(
                Difference(label, what, -step.quadratic_form, curvature, 1.0 + 4.0 * scale)
            )
            if step.of_f is not None:
                there = [m + u for m, u in zip(probe.means, step.of_latents, strict=True)]
                moved_f = lgm.form.f_of(lgm.prior, theta, there) - at_means
                size = float(np.abs(step.of_f).max(initial=0.0)) + 1e-3 * size
                found.append(
                    _largest(label, "the covariance of f in a direction", step.of_f, moved_f, size)
                )
        return found

    def _of_no_prior(self, theta: Array, point: Point, values: Array) -> list[Difference]:
        """Whether f has fewer degrees of freedom here, where PyMC has a density as elsewhere.

        Such points would be rejected as those where a covariance cannot be factorized are.
        """
        lgm = self._lgm
        x = [np.asarray(point[name], dtype=np.float64) for name in self._free]
        if not np.isfinite(values).all() or not 0 < sum(v.size for v in x) <= MOST_LATENTS:
            return []
        # From zero on: beside values of a vague prior a step of one is lost.
        zeros = [np.zeros_like(v) for v in x]
        columns = []
        for k, v in enumerate(x):
            for i in range(v.size):
                unit = np.zeros(v.size)
                unit[i] = 1.0
                moved = [each.copy() for each in zeros]
                moved[k] = unit.reshape(v.shape)
                columns.append(lgm.form.f_of(lgm.prior, theta, moved))
        A = np.stack(columns, axis=1) - lgm.form.f_of(lgm.prior, theta, zeros)[:, None]
        length = np.sqrt((A**2).sum(axis=0))
        here = int(np.linalg.matrix_rank(A / np.maximum(length, 1e-300), tol=1e-9))
        what = "the number of degrees of freedom"
        return [Difference(lgm.latent, what, lgm.rank, here, 1.0)] if here < lgm.rank else []

    def _is_rounding(self, difference: Difference, point: Point, moments: bool) -> bool:
        """Whether a difference is as small as what tiny changes of the point do to PyMC's value."""
        rng, noise = generator(), 0.0
        for _ in range(N_PERTURBED):
            near = dict(point)
            for name in self._inputs:
                value = np.asarray(point[name])
                if value.dtype.kind == "f":
                    near[name] = value * (1.0 + PERTURBED * rng.standard_normal(value.shape))
            for other in self.differences(near, moments=moments):
                if other[:2] == difference[:2]:
                    gap = abs(other.pymc - difference.pymc)
                    noise = max(noise, gap if np.isfinite(gap) else 0.0)
        return bool(abs(difference.read - difference.pymc) <= ROUNDING * noise)

    def _message(self, difference: Difference, point: Point) -> str:
        shown = {
            name: np.array2string(np.asarray(value), precision=4, threshold=6)
            for name, value in point.items()
            if name in self._lgm.theta_names
        }
        at = ", ".join(f"{name}={value}" for name, value in shown.items())
        return (
            f"pymc_lgm has misread {difference.name!r}: {difference.what} is {difference.pymc:.6g} "
            f"by PyMC and {difference.read:.6g} as it was read, at {{{at}}}. Draws would not be of "
            "the posterior. Sample this model with step=pm.NUTS(), and please report it."
        )


def _largest(name: str, what: str, read: Array, pymc: Array, scale: float) -> Difference:
    """The element that differs most."""
    if read.shape != pymc.shape:
        return Difference(name, what, float(read.size), float(pymc.size), 1e-300)
    at = int(np.argmax(np.abs(read - pymc))) if read.size else None
    if at is None:
        return Difference(name, what, 0.0, 0.0, 1.0)
    return Difference(name, what, float(read[at]), float(pymc[at]), scale)


def _prior_draws(model: pm.Model) -> Callable[[int], dict[str, NDArray[Any]]]:
    """Seed -> a point of the prior; near the start if the prior has no draw, as a flat one."""
    # A variable with a start of its own is drawn, too: what is misread may show elsewhere alone.
    values = []
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        value = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
        values.append(value.astype(rv.dtype))
    if flat := [rv for rv in model.free_RVs if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]:
        values = clone_replace(values, {rv: support_point(rv) for rv in flat}, rebuild_strict=False)
    mode = ONCE.register((dfs_rewriter(_WithoutSciPy()), 1.5))
    draw = called_once([], replace_rng_nodes(values), mode)
    rngs = find_rng_nodes(draw.maker.fgraph.outputs)
    near = cache(lambda: make_initial_point_fn(model=model, jitter_rvs=set(model.free_RVs)))
    names = [model.rvs_to_values[rv].name for rv in model.free_RVs]

    def point(seed: int) -> dict[str, NDArray[Any]]:
        for attempt in range(N_TRIES):
            reseed_rngs(rngs, seed + 1000 * attempt)
            try:
                return dict(zip(names, draw(), strict=True))
            except (NotImplementedError, AssertionError):
                # Some distributions cannot be drawn from. And if ``dims`` says how long a vector
                # walk is, PyMC's check of its shape fails unless the graph is rewritten.
                break
            except (ValueError, ArithmeticError):  # no draw with such a parameter: another one
                continue
        try:
            return dict(near()(seed))
        except (ValueError, ArithmeticError):
            return dict(model.initial_point())

    return point


class _WithoutSciPy(NodeRewriter):
    """Draws of scipy.stats by NumPy: to import it takes longer than all the rest of an audit."""

    def transform(self, fgraph: Any, node: Any, enforce_tracks: bool = False) -> Any:
        if not isinstance(node.op, HalfNormalRV | HalfCauchyRV | CauchyRV):
            return None
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
