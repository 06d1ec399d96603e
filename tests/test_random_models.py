"""Random models are refused, or read as PyMC has them, at points far from the start, too.

What is compared does not pass through `pymc_lgm.model.check`: PyMC's terms are compiled here, and
the mean and the precision of the latent variables are those of the quadratic form that PyMC's own
density of them is.
"""

from __future__ import annotations

import gc
import traceback

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest

from numpy.typing import NDArray
from pymc.distributions.multivariate import CARRV
from pymc.logprob.utils import local_check_parameter_to_ninf_switch
from pytensor.compile.mode import Mode
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.tensor.elemwise import CAReduce
from random_models import (
    LATENTS,
    LIKELIHOODS,
    MOVING,
    RandomModel,
    random_model,
)
from scipy.sparse import csr_array

import pymc_lgm as lgm

from pymc_lgm.compile.graphs.functions import called_once
from pymc_lgm.model import graphs, latents, operations, predictor, reading
from pymc_lgm.model.operations import is_affine_elementwise
from pymc_lgm.model.reads import Evaluation, Reads, reads_of

Array = NDArray[np.float64]
Point = dict[str, NDArray[Any]]


@node_rewriter([CAReduce])
def of_one_number(fgraph: Any, node: Any) -> Any:
    """A sum of one number along an axis, as in the density of `pymc.CAR`, is an error in NumPy."""
    return [node.inputs[0].astype(node.outputs[0].dtype)] if node.inputs[0].ndim == 0 else None


# A density is zero outside of its parameters: PyMC's own rewrite, which raises no error there.
REWRITES = dfs_rewriter(local_check_parameter_to_ninf_switch, of_one_number)

ONCE = {
    "mode": Mode(linker="py", optimizer=None).register((REWRITES, 1.0)),
    "traceback__limit": 0,
    "cxx": "",  # otherwise the operation inside of a Blockwise is compiled in C
}
"""Nothing is compiled, and nothing else rewritten: a model is evaluated some hundred times."""

TOLERANCE = 1e-6
ROOT = 1e-7
"""Smallest singular value, relative to the largest, whose square is not lost in rounding."""
POINTS = 20
MOMENTS = 4
"""Of these points, those at which mean and covariance are also compared."""
LOST = 15.0
"""−log p at which 1 − p, where p is a double, has ten digits left."""


class Difference(NamedTuple):
    what: str
    error: float


class Pymc:
    """The density of a model, as PyMC has it."""

    def __init__(self, made: RandomModel, read: lgm.model.LatentGaussianModel):
        model = made.model
        of_name = {value.name: rv for value, rv in model.values_to_rvs.items()}
        latents = [of_name[name] for name in read.latents]
        missing = [rv for rv in model.free_RVs if model.rvs_to_values[rv].name in read.missing]
        rest = [rv for rv in model.basic_RVs if rv not in latents and rv not in missing]
        terms = [*latents, *rest, *model.potentials, *missing]
        densities = [pt.sum(each) for each in model.logp(vars=terms, sum=False)]
        self._values = [model.rvs_to_values[rv] for rv in latents]
        self.shapes = [made.start[v.name].shape for v in self._values]
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        self._ends = np.cumsum(sizes)
        self.size = sum(sizes)
        self._inputs = model.value_vars
        self._terms = pytensor.function(self._inputs, pt.stack(densities), on_unused_input="ignore")
        # The density of the latents, of many values at once.
        rows, x = pt.matrix("rows"), pt.vector("x", shape=(self.size,))
        pieces = dict(zip(self._values, self._split(x), strict=True))
        prior = pt.sum(pt.stack(densities[: len(latents)]))
        prior = clone_replace(prior, pieces, rebuild_strict=False)
        others = [v for v in self._inputs if v not in self._values]
        self._others = [v.name for v in others]
        self.n_latents, self.n_missing = len(latents), len(missing)
        self._slope = None
        if any(isinstance(rv.owner.op, CARRV) for rv in latents):  # of sparse matrices, one by one
            inputs, outputs = [x, *others], [prior, pt.grad(prior, x)]
            self._slope = pytensor.function(inputs, outputs, on_unused_input="ignore")
        else:
            many = vectorize_graph(prior, {x: rows})
            self._many = pytensor.function([rows, *others], many, on_unused_input="ignore")

    def _split(self, x: Any) -> list[Any]:
        begins = [0, *self._ends[:-1]]
        return [
            x[int(a) : int(b)].reshape(shape)
            for a, b, shape in zip(begins, self._ends, self.shapes, strict=True)
        ]

    def put(self, point: Point, x: Array) -> Point:
        """The point with other values of the latents."""
        return point | {
            v.name: np.array(value) for v, value in zip(self._values, self._split(x), strict=True)
        }

    def terms(self, point: Point) -> Array:
        """Log densities: of each latent, then of all else."""
        result: Array = self._terms(*(point[v.name] for v in self._inputs))
        return result

    def quadratic(self, point: Point) -> tuple[Array, Array, float] | None:
        """μ, P and the log density at μ: of the latents, given theta."""
        with np.errstate(all="ignore"):
            return self._quadratic([point[name] for name in self._others])

    def _quadratic(self, others: list[Any]) -> tuple[Array, Array, float] | None:
        N = self.size
        eye = np.eye(N)
        if self._slope is not None:
            value, gradient = self._slope(np.zeros(N), *others)
            P = np.array([gradient - self._slope(e, *others)[1] for e in eye])
        else:
            i, j = np.triu_indices(N, 1)
            q = self._many(np.vstack([np.zeros(N), eye, -eye, eye[i] + eye[j]]), *others)
            value, plus, minus, both = q[0], q[1 : N + 1], q[N + 1 : 2 * N + 1], q[2 * N + 1 :]
            P, gradient = np.diag(2 * value - plus - minus), (plus - minus) / 2
            P[i, j] = P[j, i] = plus[i] + plus[j] - both - value
        if not (np.isfinite(value) and np.isfinite(P).all()):
            return None
        try:
            mean = np.linalg.solve(P, gradient)
        except np.linalg.LinAlgError:
            return None
        return mean, P, float(value + 0.5 * gradient @ mean)


def read_model(made: RandomModel) -> lgm.model.LatentGaussianModel:
    """What the package reads."""
    return lgm.read(made.model, initial_point=made.start)


def differences(made: RandomModel, rng: np.random.Generator) -> Iterator[Difference]:
    """What was read of a model and what PyMC has."""
    yield from compared(made, read_model(made), rng)


def compared(
    made: RandomModel, read: lgm.model.LatentGaussianModel, rng: np.random.Generator
) -> Iterator[Difference]:
    theirs = Pymc(made, read)
    constants: dict[str, float] = {}
    amplitudes = read.amplitudes
    rank = 0

    def constant(what: str, value: float, scale: float) -> Difference:
        """The posterior does not depend on what is added to a log density everywhere."""
        first = constants.setdefault(what, value)
        return Difference(what, abs(value - first) / (1.0 + scale))

    for k, point in enumerate(made.points(rng, POINTS)):
        read.read(point)
        theta = read.theta_of(point)
        terms = theirs.terms(point)
        terms, of_missing = np.split(terms, [terms.size - theirs.n_missing])
        of_latents, rest = terms[: theirs.n_latents].sum(), terms[theirs.n_latents :]
        prior = read.prior(theta)
        if prior is None or not (prior.is_proper and read.has_latents(prior)):
            fine = np.isfinite(rest).all() and _is_fine(theirs, point)
            fine = fine and _rank_at(read, theirs, theta, point) >= rank
            yield Difference("no prior", float(fine))
            continue
        rank = rank or _rank_at(read, theirs, theta, point)
        f = read.f_of(theta, point)
        latents = [np.asarray(point[name], dtype=float) for name in read.latents]
        ell = read.form.log_likelihood_of(read, latents, f, theta)
        ours = read.log_prior(theta) + ell
        if np.isfinite(ours) != np.isfinite(rest.sum() + of_latents):
            gone = float(np.isfinite(ours)) - float(np.isfinite(rest.sum() + of_latents))
            yield Difference("a density that is zero", gone)
            continue
        if not np.isfinite(ours):
            continue
        # What is integrated out has a density at any value that is not impossible.
        yield Difference("what is unread", float(not np.isfinite(of_missing).all()))
        size = float(np.abs(terms).sum())
        if size < 1e9:  # a difference of larger numbers is no constant to compare with
            yield constant("log p(theta) + log p(y | f, theta)", rest.sum() - ours, size)
        yield from _whose(read, theta, f, rng)
        if k >= MOMENTS:
            continue
        if (found := theirs.quadratic(point)) is None:
            continue
        mean, P, at_mean = found
        condition = np.linalg.cond(P)
        if not condition < 1e11:
            continue
        # Scales that are as far apart as P's cost P itself some digits.
        rounding = 1e-12 * condition
        log_det = np.linalg.slogdet(P)[1]
        tolerance = (1 + size + 0.5 * abs(mean @ P @ mean)) * (1 + 1e6 * rounding)
        yield constant("the normalization", at_mean - 0.5 * log_det, tolerance)
        A, c = _affine(read, theirs, theta, point)
        x = 3.0 * rng.standard_normal(theirs.size)
        there, here = read.f_of(theta, theirs.put(point, x)), A @ x + c
        yield _largest("f is affine in x", there, here, 1 + np.abs(here))
        cov = A @ np.linalg.solve(P, A.T)
        sd = np.sqrt(np.abs(cov.diagonal()))
        K = prior.covariance_times(np.eye(read.n))
        tolerance = 1 + 1e6 * rounding
        m = A @ mean + c
        yield _largest("the mean of f", prior.mean, m, tolerance * (1e-3 + sd + np.abs(m).max()))
        scale = np.outer(sd, sd) + 1e-7 * sd.max(initial=0.0) ** 2 + 1e-300
        yield _largest("the covariance of f", K, cov, tolerance * scale)
        for j in np.flatnonzero(amplitudes):
            for distance in (0.6, -1.3):
                moved = theta + distance * (np.arange(theta.size) == j)
                if (there_too := read.prior(moved)) is not None and there_too.is_proper:
                    of_moved = there_too.covariance_times(np.eye(read.n))
                    factor = np.exp(amplitudes[j] * distance)
                    yield _largest("an amplitude", of_moved / factor, K, scale)


def _whose(
    read: lgm.model.LatentGaussianModel, theta: Array, f: Array, rng: np.random.Generator
) -> Iterator[Difference]:
    """Whether the likelihood is a sum over the elements of f, or their sets, and bends as said."""
    other = f + rng.standard_normal(read.n)
    if read.is_log_concave:
        ends, middle = np.stack([f, other]), (f + other) / 2.0
        values = read.log_likelihoods(np.vstack([ends, middle]), theta)
        # Without rewrites log(1 − p) has few digits where p is nearly 1.
        if np.abs(values).max() < LOST:
            below = values[:2].mean() - values[2]
            yield Difference("log-concavity", max(below, 0.0) / (1 + np.abs(values).sum()))
    if read.coupled is None:
        which = rng.integers(0, 2, read.n) == 1
    elif read.sets is not None:
        which = np.zeros(read.n + 1, dtype=bool)
        which[read.sets[rng.integers(0, 2, len(read.sets)) == 1]] = True
        which = which[:-1]
    else:
        return
    rows = np.stack([f, np.where(which, f, other), np.where(which, other, f), other])
    ell = read.log_likelihoods(rows, theta)
    if np.isfinite(ell).all():
        mixed = ell[0] - ell[1] - ell[2] + ell[3]
        yield Difference("the sets that are read", abs(mixed) / (1 + np.abs(ell).sum()))


def _affine(
    read: lgm.model.LatentGaussianModel, theirs: Pymc, theta: Array, point: Point
) -> tuple[Array, Array]:
    """A and c of f = c + A x, by f of PyMC's points."""
    c = read.f_of(theta, theirs.put(point, np.zeros(theirs.size)))
    columns = [read.f_of(theta, theirs.put(point, e)) - c for e in np.eye(theirs.size)]
    return np.stack(columns, axis=1), c


def _rank_at(read: lgm.model.LatentGaussianModel, theirs: Pymc, theta: Array, point: Point) -> int:
    """The rank of A Aᵀ, which rounding lowers: a factor of exp(-20 t) is lost beside one of 1."""
    return int(np.linalg.matrix_rank(_affine(read, theirs, theta, point)[0], rtol=ROOT))


def _largest(what: str, a: Array, b: Array, scale: Any) -> Difference:
    if a.shape != b.shape:
        return Difference(what, np.inf)
    error = np.abs(a - b) / scale
    return Difference(
        what, float(np.max(error, initial=0.0)) if np.isfinite(error).all() else np.inf
    )


def _is_fine(theirs: Pymc, point: Point) -> bool:
    """Whether PyMC's density of the latents is one of a Gaussian that rounding does not spoil."""
    if (found := theirs.quadratic(point)) is None:
        return False
    eigenvalues = np.linalg.eigvalsh(found[1])
    return bool(eigenvalues[0] > 1e-8 * eigenvalues[-1])


def refusal(error: Exception, model: pm.Model) -> str | None:
    """What is wrong with an error as a refusal; ``None`` if it is one of the package's own."""
    if not isinstance(error, ValueError | NotImplementedError):
        return f"{type(error).__name__} is no refusal"
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    if Path(lgm.__file__).parent not in Path(last).parents:
        return f"raised by {last}"
    names = [name for name in model.named_vars if name in str(error)]
    return None if names else "names no variable"


# The tests

SEEN: set[str] = set()
"""Ingredients of the models that were read."""

FAST = 3
"""Models of the fast test; each is read and evaluated in about a second."""

SLOW = range(10, 310)
"""Every ingredient is in one of these models, and three in four of their pairs."""
WHOLE = range(310, 2310)
IN_A_CHUNK = 10


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    """PyTensor compiles nothing, and Python looks for garbage between models only.

    What other modules have left is looked through once for all tests here, and no more.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    with pytensor.config.change_flags(**ONCE):
        yield
    gc.enable()


def examined(seed: int) -> tuple[bool, list[str]]:
    """Whether a model was read, and what is wrong with it."""
    rng = np.random.default_rng(seed)
    made = random_model(rng)
    try:
        with np.errstate(all="ignore"):  # a warning of a density at -inf is a test of its own
            read = read_model(made)
    except Exception as error:  # of whatever kind: most are no refusals
        wrong = refusal(error, made.model)
        return False, [] if wrong is None else [f"model {seed} ({made}): {wrong}: {error}"]
    SEEN.update(made.ingredients)
    found: dict[str, float] = {}
    with np.errstate(all="ignore"):  # far from the start densities overflow
        differ = list(compared(made, read, rng))
    for each in differ:
        if not each.error < TOLERANCE:
            found[each.what] = max(found.get(each.what, 0.0), each.error)
    return True, [f"model {seed} ({made}): {what}: {error:.2g}" for what, error in found.items()]


def all_right(seeds: Iterable[int]) -> int:
    """How many of these models are read; fail if one is wrong."""
    reads, wrong = 0, []
    for k, seed in enumerate(seeds):
        if k % 10 == 9:
            gc.collect()
        is_read, found = examined(seed)
        reads += is_read
        wrong += found
    assert not wrong, "\n".join(wrong)
    return reads


def test_random_models_are_refused_or_right() -> None:
    assert all_right(range(FAST)) >= FAST / 3


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(0, len(SLOW), IN_A_CHUNK))
def test_many_random_models_are_refused_or_right(begin: int) -> None:
    assert all_right(SLOW[begin : begin + IN_A_CHUNK]) >= IN_A_CHUNK / 3


@pytest.mark.whole
@pytest.mark.parametrize("begin", range(0, len(WHOLE), IN_A_CHUNK))
def test_thousands_of_random_models_are_refused_or_right(begin: int) -> None:
    assert all_right(WHOLE[begin : begin + IN_A_CHUNK]) >= IN_A_CHUNK / 3


@pytest.mark.whole
@pytest.mark.parametrize("ingredient", [*MOVING, *LATENTS, *LIKELIHOODS])
def test_each_ingredient_is_read_or_refused_for_a_reason(ingredient: str) -> None:
    """The models of `COVER` have all of them; this one asks that none is refused everywhere."""
    if ingredient in SEEN:
        return
    reasons = []
    gc.collect()
    for seed in range(32):
        made = random_model(np.random.default_rng(seed), must=[ingredient])
        assert ingredient in made.ingredients
        try:
            read_model(made)
        except ValueError as error:
            reasons.append(str(error))
        else:
            SEEN.update(made.ingredients)
            return
    pytest.fail("\n".join(reasons))


# What was found, as small models


def test_a_range_that_may_be_another_beyond_a_threshold_is_held_by_the_latent_variables() -> None:
    x, g = 10.0 * np.arange(8), np.arange(8) % 2
    with pm.Model() as model:
        change = pm.Normal("change", 35, 15)
        a, b = pm.Normal("a", shape=2), pm.Normal("b", shape=2)
        eta = pt.switch(x > change, a[g], b[g])
        pm.Poisson("y", pm.math.exp(eta), observed=np.arange(8))
    read = lgm.read(model)
    assert max(read.check(draws=20).values()) < TOLERANCE


def test_a_factor_that_may_be_zero_for_long_is_held_by_the_latent_variables() -> None:
    with pm.Model() as model:
        t, z = pm.Normal("t", 0, 1, initval=0.5), pm.Normal("z", shape=4)
        pm.Poisson("y", pm.math.exp(pm.math.maximum(t, 0) * z), observed=np.arange(4))
    read = lgm.read(model)
    assert max(read.check(draws=20).values()) < TOLERANCE


@pytest.mark.slow
def test_what_may_jump_is_read_beside_an_effect_for_each_observation() -> None:
    x, g = 10.0 * np.arange(8), np.arange(8) % 2
    with pm.Model() as model:
        change, s = pm.Normal("change", 35, 15), pm.HalfNormal("s")
        b, eps = pm.Normal("b", shape=2), pm.Normal("eps", 0, s, shape=8)
        eta = pt.switch(x > change, b[g], 0.0) + eps
        pm.Poisson("y", pm.math.exp(eta), observed=np.arange(8))
    read = lgm.read(model)
    assert max(read.check(draws=20).values()) < TOLERANCE


def test_a_variable_that_is_multiplied_by_zero_is_refused_by_name() -> None:
    """It left no term of a covariance, which was then no graph."""
    x = np.ones(3)
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Poisson("y", pm.math.exp(a * (x - x.mean())), observed=[1, 2, 0])
    with pytest.raises(ValueError, match="does not depend on 'a'"):
        lgm.read(model)


@pytest.mark.fast("walk")
@pytest.mark.parametrize("make", ["AR", "walk"])
def test_a_series_with_a_negative_scale_has_no_prior(make: str) -> None:
    with pm.Model() as model:
        a, s, first = pm.Normal("a"), pm.Normal("s", 0.5, 1), pm.Normal.dist(0, 2)
        if make == "AR":
            f = pm.AR("f", [0.5], sigma=s, init_dist=first, steps=5)
        else:
            f = pm.GaussianRandomWalk("f", 0, s, init_dist=first, steps=5)
        pm.Poisson("y", pm.math.exp(a + f), observed=np.arange(6))
    read = lgm.read(model)
    proper, improper = (read.prior(np.array([s])) for s in (0.5, -0.5))
    assert proper is not None
    assert proper.is_proper
    assert improper is None or not improper.is_proper
    assert max(read.check(draws=20).values()) < TOLERANCE


@pytest.mark.slow
def test_the_audit_draws_what_has_a_start_of_its_own() -> None:
    with pm.Model() as model:
        flat, c = pm.Flat("flat", initval=1.0), pm.Normal("c", 0, 1, initval=5.0)
        b = pm.Normal("b", c, pm.Normal("s", 0.5, 1, initval=3.0), shape=3)
        pm.Poisson("y", pm.math.exp(b + flat), observed=[1, 2, 3])
    points = lgm.read(model).audit.prior_points(0, 3)
    for name, start in (("c", 5.0), ("s", 3.0)):
        assert len({start, *(float(point[name]) for point in points)}) == 4


def test_a_threshold_that_is_latent_is_read_by_all_that_it_may_reach() -> None:
    x, g = np.arange(8) % 4 * 1.0, np.arange(8) % 2
    with pm.Model() as model:
        b = pm.Normal("b", 0, pm.HalfNormal("s"), shape=2)
        threshold = pm.Normal("threshold", 10, 2)
        eta = b[g] + pm.math.maximum(x - threshold, 0)
        pm.Poisson("y", pm.math.exp(eta), observed=np.arange(8))
    made = RandomModel(model, wide={"threshold": (0.0, 3.0)})
    assert largest(differences(made, np.random.default_rng(0))) < TOLERANCE


# Models written in ways that are not common

N = 8
GROUP, T = np.arange(N) % 4, np.arange(float(N))
X, Y = np.random.default_rng(0).standard_normal((2, N))
W = np.eye(4, k=1) + np.eye(4, k=-1)

AWKWARD: dict[str, Callable[[], Any]] = {}


def awkward(build: Callable[[], Any]) -> Callable[[], Any]:
    """List a function that returns the mean of the data."""
    AWKWARD[build.__name__] = build
    return build


def effects(name: str = "b", size: int = 4) -> Any:
    return pm.Normal(name, 0.3, pm.HalfNormal(f"s_{name}"), shape=size)


@awkward
def switched_by_a_threshold_that_moves() -> Any:
    return pt.switch(pm.Normal("cut") > X, effects()[GROUP], effects("c")[GROUP])


@awkward
def an_index_that_moves() -> Any:
    b = effects()
    return b[GROUP] + b[pt.floor(pm.Uniform("k", 0, 4)).astype("int64")]


@awkward
def a_choice_of_a_normal_number() -> Any:
    b = effects()
    return pt.switch(pm.Normal("k") > 0, b[GROUP], b[0])


@awkward
def what_is_added_is_taken_away() -> Any:
    b, k = effects(), pm.Normal("k")
    return b[GROUP] * k - k * b[GROUP] + b[GROUP[::-1]]


@awkward
def a_factor_by_hand() -> Any:
    r, s = pm.Uniform("r", -1, 1), pm.HalfNormal("s", shape=2)
    rows = [pt.stack([s[0], 0.0 * r]), pt.stack([r * s[1], s[1] * pt.sqrt(1 - r**2)])]
    b = pm.MvNormal("b", np.zeros(2), chol=pt.stack(rows), shape=(4, 2))
    return b[GROUP, 0] + b[GROUP, 1] * X


@awkward
def sums_of_zero_along_two_axes() -> Any:
    b = pm.ZeroSumNormal("b", sigma=pm.HalfNormal("s"), shape=(4, 2), n_zerosum_axes=2)
    return pm.Normal("a", 0, 3) + b[GROUP, np.arange(N) // 4]


@awkward
def a_constant_in_a_recursion() -> Any:
    rho = [pm.Normal("c"), pm.Uniform("r", -1, 1)]
    start = pm.Normal.dist(0, 2)
    b = pm.AR("b", rho=rho, sigma=pm.HalfNormal("s"), constant=True, init_dist=start, shape=N)
    return b + effects("e")[GROUP]


@awkward
def a_walk_with_a_drift_of_a_covariate() -> Any:
    drift, start = pm.Normal("mu") * X[1:], pm.Normal.dist(0, 2)
    s = pm.HalfNormal("s") * np.linspace(1, 2, N - 1)
    return pm.GaussianRandomWalk("b", mu=drift, sigma=s, init_dist=start, shape=N)


@awkward
def basis_functions_about_a_line() -> Any:
    line = pm.gp.mean.Linear(coeffs=pm.Normal("k"), intercept=pm.Normal("a"))
    cov = pm.HalfNormal("e") ** 2 * pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ls", 0, 0.5))
    gp = pm.gp.HSGP(m=[4], c=1.5, mean_func=line, cov_func=cov)
    return gp.prior("f", (T / 4 - 1)[:, None])


@awkward
def a_loop() -> Any:
    def step(e: Any, before: Any, r: Any) -> Any:
        return r * before + e

    r, start = pm.Uniform("r", -1, 1), [pt.zeros(())]
    return pytensor.scan(
        step,
        sequences=[effects("e", N)],
        outputs_info=start,
        non_sequences=[r],
        return_updates=False,
    )


@awkward
def a_system_that_moves() -> Any:
    A = np.eye(4) - pm.Uniform("r", -0.9, 0.9) * W / 2
    return pt.linalg.solve(A, effects())[GROUP]


@awkward
def a_mean_that_is_bent() -> Any:
    a = pm.Normal("a")
    return pm.Normal("b", a**2, pt.exp(a), shape=4)[GROUP]


@awkward
def a_rotation() -> Any:
    r = pm.Uniform("r", 0, 3)
    rotation = pt.stack([pt.stack([pt.cos(r), -pt.sin(r)]), pt.stack([pt.sin(r), pt.cos(r)])])
    return np.stack([X, T / 4], axis=1) @ (rotation @ effects(size=2))


def largest_error(name: str) -> float:
    with pm.Model() as model:
        pm.Normal("y", AWKWARD[name](), 0.7, observed=Y)
    return largest(differences(RandomModel(model), np.random.default_rng(1)))


@pytest.mark.fast("a_mean_that_is_bent")
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_models_are_read_as_pymc_has_them(name: str) -> None:
    assert largest_error(name) < TOLERANCE


# Mutants: a rule of reading replaced by a look near the start


def by_looks(at: Evaluation) -> tuple[Any, Any]:
    """Elements are one if they have the same value at three thetas near the start."""
    rng, (x, *_) = np.random.default_rng(0), at.inputs
    seen = []
    for k in range(3):
        values = {v: np.asarray(value) + 0.1 * k for v, value in at.inputs.items()}
        values[x] = rng.standard_normal(np.shape(values[x]))
        given = {v: pt.constant(value) for v, value in values.items()}
        seen.append(clone_replace(at.outputs[0], given, rebuild_strict=False).eval())
    _, first, index = np.unique(
        np.round(np.stack(seen), 12), axis=1, return_index=True, return_inverse=True
    )
    return first, index.ravel()


def exponent_of_a_trace(cov: Any, theta: Any) -> Array:
    """k_j by how the trace of K grows at one theta: nothing says that all of K does."""
    K, p = called_once([theta], cov), theta.type.shape[0]
    here = K(np.zeros(p)).trace()
    grown = [float(np.log(K(moved).trace() / here)) for moved in 0.7 * np.eye(p)]
    return np.array([round(2 * each / 0.7) / 2 for each in grown])


def first_alone(*args: Any, **kwargs: Any) -> list[Reads]:
    """Of what an observation reads no more than the first element."""
    found = []
    for each in reads_of(*args, **kwargs):
        has = np.flatnonzero(each.first >= 0)
        at = (np.ones(has.size, dtype=bool), (has, each.first[has]))
        found.append(Reads.of(csr_array(at, shape=each.pattern.shape), 0 * each.many, each.most))
    return found


def affine_with_clips(op: Any, dependent: Any) -> bool:
    """An operation that is the identity where one looks."""
    return isinstance(op, ps.Clip) or is_affine_elementwise(op, dependent)


class Mutant(NamedTuple):
    module: Any
    name: str
    wrong: Any
    must: tuple[str, ...]
    seed: int
    seen_by_the_audit: bool = True


UNREAD = ("an unread scale", "effects", "Poisson")

MUTANTS = {
    "rows merged by a look": Mutant(
        predictor, "distinct_elements", by_looks, ("effects", "hinge", "Poisson"), 0
    ),
    "columns frozen by a look": Mutant(
        predictor,
        "columns_move",
        lambda output, x, parts, _: [False] * len(parts),
        ("multiplied by what moves", "effects", "hinge", "Poisson"),
        0,
    ),
    "a clip called affine": Mutant(
        operations, "is_affine_elementwise", affine_with_clips, ("clipped", "effects", "Poisson"), 0
    ),
    "an amplitude of a part taken for one of all": Mutant(
        graphs, "find_amplitudes", exponent_of_a_trace, ("MvNormal", "nugget", "Poisson"), 0
    ),
    "one element of two that are read": Mutant(
        graphs,
        "reads_of",
        first_alone,
        ("an effect for each", "two elements per observation"),
        0,
        seen_by_the_audit=False,
    ),
    "a scale taken for positive": Mutant(
        latents, "positive_or_nan", lambda v: v, ("a negative sd", "effects", "Poisson"), 0
    ),
    "an unread density taken to integrate to one": Mutant(
        reading, "integrates_to_one", lambda model, rv: True, UNREAD, 1, False
    ),
}


def largest(found: Iterable[Difference]) -> float:
    return max((each.error for each in found), default=0.0)


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_is_noticed(name: str, monkeypatch: Any, dies: Any) -> None:
    mutant = MUTANTS[name]
    made = random_model(np.random.default_rng(mutant.seed), must=mutant.must)
    assert largest(differences(made, np.random.default_rng(0))) < TOLERANCE
    monkeypatch.setattr(mutant.module, mutant.name, mutant.wrong)
    error = largest(differences(made, np.random.default_rng(0)))
    dies(f"random models: {name}", error, above=TOLERANCE)


@pytest.mark.mutant
@pytest.mark.parametrize("name", [each for each, m in MUTANTS.items() if m.seen_by_the_audit])
def test_a_wrong_rule_is_noticed_by_the_audit_alone(name: str, monkeypatch: Any, dies: Any) -> None:
    mutant = MUTANTS[name]
    made = random_model(np.random.default_rng(mutant.seed), must=mutant.must)
    monkeypatch.setattr(mutant.module, mutant.name, mutant.wrong)
    read = read_model(made)
    points = [*read.audit.prior_points(0, 10), *made.points(np.random.default_rng(0), 10)]
    found = [d for point in points for d in read.audit.differences(point, moments=True)]
    dies(f"audit: {name}", max(each.relative for each in found), above=TOLERANCE)


@pytest.mark.mutant
def test_a_prior_that_stays_is_noticed(monkeypatch: pytest.MonkeyPatch, dies: Any) -> None:
    """The prior of f stays what it is at the start."""
    stays = lambda self, theta: self._prior_at(self._start)  # noqa: E731
    monkeypatch.setattr(lgm.model.LatentGaussianModel, "prior", stays)
    error = largest_error("a_mean_that_is_bent")
    dies("awkward models: a prior that stays", error, above=0.01)
