"""Models whose f is a linear predictor: how they are read, and that samplers leave their law."""

import re
import tracemalloc

from functools import cache
from itertools import chain

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from close import close
from models import QUICK, joint_law, reading_once
from pytensor import sparse
from scipy.sparse import csr_matrix

import pymc_lgm as lgm

from pymc_lgm.gaussian import BlocksPrior
from pymc_lgm.linalg import tally
from pymc_lgm.model import draw_back, predictor
from pymc_lgm.model.predictor import basis_of_range, order_of, structure_of
from pymc_lgm.state import AtTheta
from pymc_lgm.testing import joint_test

pytestmark = pytest.mark.usefixtures("interpreted")

T = np.arange(3.0)[:, None]
X = np.array([[0.5], [-1.0], [0.2], [0.9]])
GROUP, WEEK, SUBJECT = np.array([0, 1, 0, 1]), np.array([0, 1, 2, 2]), np.array([0, 1, 1, 0])
COUNTS = np.array([1, 0, 2, 1])

MODELS = {}
"""All samplers are tried on these."""

OF_DEFAULT = {}
"""Lines as users write them, other forms of the models above: the default alone, in `whole`."""


def model(build):
    MODELS[build.__name__] = build
    return build


def of_default(build):
    OF_DEFAULT[build.__name__] = build
    return build


def process(name="f", rows=T, mean=0.3, **kwargs):
    ls = pm.LogNormal(f"ls_{name}", 0, 0.5)
    cov = 0.5 * pm.gp.cov.Matern32(1, ls=ls)
    mean = mean if isinstance(mean, pm.gp.mean.Mean) else pm.gp.mean.Constant(mean)
    gp = pm.gp.Latent(mean_func=mean, cov_func=cov)
    return gp.prior(name, rows, **{"reparameterize": False} | kwargs)


def observe(eta):
    pm.Poisson("y", pm.math.exp(eta), observed=pm.Data("seen", COUNTS[: eta.type.shape[0] or 4]))


@model
def process_and_effects():
    """Full rank: a centered hierarchy of effects, and a process seen at its weeks."""
    s, mu = pm.HalfNormal("s", 0.7), pm.Normal("mu", 0, 0.5)
    b = pm.Normal("b", mu, s, shape=2)
    observe(process()[WEEK] + b[GROUP])


@model
def process_and_intercept():
    """Drawn back without a factorization of the process alone, and scaled by theta."""
    s = pm.HalfNormal("s", 0.7)
    observe(process(rows=X) + s * pm.Normal("a", 0.2, 1.5))


@model
def level_of_a_process():
    """What most models have: integrated out with f, as if it stood beside it."""
    observe(process(rows=X, mean=pm.Normal("c", 1.2, 0.5)))


@model
def coefficients_in_a_mean():
    """A level that another scales, and a slope."""
    s = pm.HalfNormal("s", 0.7)
    slope, c = pm.Normal("slope", 0.7, 0.5, shape=1), s * pm.Normal("c", 1.2, 0.5)
    observe(process(rows=X, mean=pm.gp.mean.Linear(slope, c)))


@model
def two_processes_with_a_level():
    observe(process(rows=X, mean=pm.Normal("c", 0.3, 0.5)) + 0.5 * process("g", rows=X[::-1]))


@model
def two_processes():
    """The second one has a large mean: who forgets it must be noticed."""
    observe(process(rows=X) + 0.5 * process("g", rows=X[::-1], mean=1.5))


@model
def whitened():
    observe(process(mean=pm.Normal("c", 0, 0.5), rows=X, reparameterize=True))


@model
def coefficients_and_effects():
    """Fewer latent variables than observations."""
    s = pm.HalfNormal("s", 0.7)
    z = pm.Normal("z", 0, 1, shape=2)
    beta = pm.Normal("beta", 0, 0.5, shape=1)
    observe(pm.Normal("a", 0.2, 0.5) + pm.math.dot(X, beta) + s * z[0])


@model
def basis_functions():
    """HSGP: standard normal coefficients, a map that theta scales, and a mean beside it."""
    ls = pm.LogNormal("ls", 0, 0.5)
    gp = pm.gp.HSGP(m=[2], L=[2.5], cov_func=pm.gp.cov.Matern32(1, ls=ls))
    observe(gp.prior("f", X) + 0.1 * ls)


@of_default
def effects_and_a_process():
    a, beta = pm.Normal("a", 0.2, 0.5), pm.Normal("beta", 0.3, 0.5, shape=1)
    b = pm.Normal("b", 0, pm.HalfNormal("s", 0.7), shape=2)
    observe(a + X @ beta + b[SUBJECT] + process()[WEEK])


@of_default
def whitened_without_a_mean():
    observe(pm.gp.Latent(cov_func=pm.gp.cov.Matern32(1, ls=pm.LogNormal("ls"))).prior("f", X))


# Models of which an observation reads several f_i


@model
def mean_and_noise():
    f, g = process(rows=X), process("g", rows=X, mean=-0.5)
    pm.Normal("y", f, pm.math.exp(g), observed=pm.Data("seen", X[:, 0]))


@of_default
def mean_and_noise_of_groups():
    f, g = process(rows=X[:3]), process("g", rows=X[:3], mean=-0.5)
    group = np.array([2, 0, 1, 2])
    pm.Normal("y", f[group], pm.math.exp(g[group]), observed=pm.Data("seen", X[:, 0]))


@model
def classes():
    outputs(reparameterize=False)


@of_default
def whitened_classes():
    outputs(reparameterize=True)


def outputs(**kwargs):
    f = process(rows=X[:3], mean=0.0, n_outputs=3, **kwargs)
    pm.Categorical("y", logit_p=f.T, observed=pm.Data("seen", [0, 2, 1]))


@model
def classes_with_kernels_of_their_own():
    lgm.Softmax("y", f=three_processes(), observed=pm.Data("seen", [0, 2, 1]))


@of_default
def classes_in_a_stack():
    """What tuning sees has nothing of the third."""
    f = pm.math.stack(three_processes())
    lgm.Softmax("y", f=f, observed=pm.Data("seen", [0, 1, 1]))


def three_processes():
    return [process(f"f{c}", rows=X[:3], mean=0.4 * c - 0.2) for c in range(3)]


@model
def mean_and_noise_with_levels():
    """Each factorized by itself: the levels are hyper-parameters."""
    f = process(rows=X, mean=pm.Normal("c", 0.3, 0.5))
    g = process("g", rows=X, mean=pm.Normal("d", -0.5, 0.3))
    pm.Normal("y", f, pm.math.exp(g), observed=pm.Data("seen", X[:, 0]))


def build(name):
    with pm.Model() as model:
        (MODELS | OF_DEFAULT)[name]()
    return model


@cache
def shared(name):
    """A model that is read and compiled once for all samplers of it."""
    return build(name)


@cache
def read(name):
    """Once: what a model's functions are does not depend on who calls them."""
    return lgm.read(shared(name), compile_kwargs=QUICK)


COUPLED = {
    "mean_and_noise",
    "mean_and_noise_of_groups",
    "mean_and_noise_with_levels",
    "classes",
    "whitened_classes",
    "classes_with_kernels_of_their_own",
    "classes_in_a_stack",
}

OF_EACH = (("f0", "f1", "f2"), 9, 9, ["ls_f0_log__", "ls_f1_log__", "ls_f2_log__"])

READ = {
    "mean_and_noise": (("f", "g"), 8, 8, ["ls_f_log__", "ls_g_log__"]),
    "mean_and_noise_of_groups": (("f", "g"), 6, 6, ["ls_f_log__", "ls_g_log__"]),
    "classes": (("f",), 9, 9, ["ls_f_log__"]),
    "whitened_classes": (("f_rotated_",), 9, 9, ["ls_f_log__"]),
    "classes_with_kernels_of_their_own": OF_EACH,
    "classes_in_a_stack": OF_EACH,
    "process_and_intercept": (("f", "a"), 4, 4, ["s_log__", "ls_f_log__"]),
    "process_and_effects": (("mu", "b", "f"), 4, 4, ["s_log__", "ls_f_log__"]),
    "effects_and_a_process": (("a", "beta", "b", "f"), 4, 4, ["s_log__", "ls_f_log__"]),
    "level_of_a_process": (("c", "f"), 4, 4, ["ls_f_log__"]),
    "coefficients_in_a_mean": (("slope", "c", "f"), 4, 4, ["s_log__", "ls_f_log__"]),
    "two_processes_with_a_level": (("c", "f", "g"), 4, 4, ["ls_f_log__", "ls_g_log__"]),
    "mean_and_noise_with_levels": (("f", "g"), 8, 8, ["c", "ls_f_log__", "d", "ls_g_log__"]),
    "two_processes": (("f", "g"), 4, 4, ["ls_f_log__", "ls_g_log__"]),
    "whitened": (("c", "f_rotated_"), 4, 4, ["ls_f_log__"]),
    "whitened_without_a_mean": (("f_rotated_",), 4, 4, ["ls_log__"]),
    "coefficients_and_effects": (("z", "beta", "a"), 4, 2, ["s_log__"]),
    "basis_functions": (("f_hsgp_coeffs",), 4, 2, ["ls_log__"]),
}


@pytest.mark.fast(
    "process_and_effects",
    "coefficients_and_effects",
    "basis_functions",
    "mean_and_noise_of_groups",
    "classes_with_kernels_of_their_own",
)
@pytest.mark.parametrize("name", MODELS | OF_DEFAULT)
def test_what_is_read(name):
    ours, (latents, n, rank, theta) = read(name), READ[name]
    assert (ours.latents, ours.n, ours.rank, list(ours.theta_names)) == (latents, n, rank, theta)
    assert (ours.coupled is not None) == (name in COUPLED)
    for latent in latents:
        assert re.search(rf"{latent} \(\d", repr(ours))


@pytest.mark.fast("process_and_effects")
@pytest.mark.parametrize("name", MODELS | OF_DEFAULT)
def test_densities_and_the_law_of_f_are_the_models(name):
    assert max(read(name).check(draws=3).values()) < 1e-6


def test_a_solution_of_equations_is_affine_in_their_right_hand_side():
    """A spatial autoregression, (I − rho W) f = a + e: an observation reads one element of f."""
    W = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    with pm.Model() as model:
        rho, e = pm.Uniform("rho", -0.9, 0.9), pm.Normal("e", 0, pm.HalfNormal("s"), shape=3)
        f = pt.linalg.solve(np.eye(3) - rho * W, pm.Normal("a") + e)
        pm.Poisson("y", pm.math.exp(f), observed=[0, 1, 3])
    found = lgm.read(model, compile_kwargs=QUICK)
    assert set(found.latents) == {"a", "e"}
    assert found.coupled is None
    assert max(found.check(draws=3).values()) < 1e-9
    point = model.initial_point() | {"e": np.array([1.0, 2.0, -1.0]), "a": np.array(0.5)}
    point["rho_interval__"] = np.array(np.log(3.0))  # rho = 0.45
    expected = np.linalg.solve(np.eye(3) - 0.45 * W, [1.5, 2.5, -0.5])
    np.testing.assert_allclose(found.f_of(found.theta_of(point), point), expected)


SAMPLERS = {
    "ASIS": (lgm.ASIS, {}),
    "PseudoMarginal": (lgm.PseudoMarginal, {}),
    "SurrogateSlice": (lgm.SurrogateSlice, {}),
    "LatentHMC": (lgm.LatentHMC, {}),
    "LatentHMC-curvature": (lgm.LatentHMC, {"metric": "curvature"}),
    "HomogeneousHMC": (lgm.papers.HomogeneousHMC, {}),
    "EllipticalSlice": (lgm.EllipticalSlice, {}),
    "LatentSMMALA": (lgm.papers.LatentSMMALA, {"step_size": 0.8}),
    "NealMetropolis": (lgm.papers.NealMetropolis, {"step_size": 0.5}),
    "AuxiliaryGradient": (lgm.AuxiliaryGradient, {"step_size": 0.3}),
    "KnorrHeldRue": (lgm.papers.KnorrHeldRue, {}),
}

KINDS = [
    [
        "process_and_effects",
        "process_and_intercept",
        "level_of_a_process",
        "coefficients_in_a_mean",
        "two_processes_with_a_level",
        "two_processes",
        "whitened",
    ],
    ["coefficients_and_effects", "basis_functions"],
    ["mean_and_noise", "mean_and_noise_with_levels"],
    ["classes", "classes_with_kernels_of_their_own"],
]
"""What a sampler sees of a model is its prior and how likelihoods read f: here these are alike."""

FIRST_OF_KIND = [kind[0] for kind in KINDS]

TRIED = {
    (name, sampler): j % len(KINDS) == k
    for k, kind in enumerate(KINDS)
    for i, name in enumerate(kind)
    for j, sampler in enumerate(SAMPLERS)
    if sampler != "PseudoMarginal" and (i + j) % len(kind) == 0
}
"""Every sampler on every kind, on one model of it or two; every model with one sampler or more.

True of those that `make test-slow` runs: each sampler on one kind, by turns.
"""

CASES = [
    *(
        pytest.param(*case, 60, marks=[pytest.mark.whole] * (not is_slow))
        for case, is_slow in TRIED.items()
    ),
    # The default, tuned: on a model of each kind; before a release on all, and on lines of users.
    *(
        pytest.param(
            name, "PseudoMarginal", 100, marks=[pytest.mark.whole] * (name not in FIRST_OF_KIND)
        )
        for name in MODELS | OF_DEFAULT
    ),
]


@pytest.mark.slow
def test_every_sampler_is_tried_on_every_kind():
    assert sorted(chain(*KINDS)) == sorted(MODELS)
    seen = []
    for kind in KINDS:
        models = [read(name) for name in kind]
        seen += {
            (type(m.prior(np.zeros(m.p))), None if m.sets is None else m.sets.shape[1])
            for m in models
        }
        assert {sampler for name, sampler in TRIED if name in kind} == set(SAMPLERS) - {
            "PseudoMarginal"
        }
    assert len(set(seen)) == len(seen) == len(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sampler", "tune"), CASES)
def test_every_sampler_leaves_the_joint_law(name, sampler, tune):
    cls, options = SAMPLERS[sampler]
    tune = tune if cls in (lgm.PseudoMarginal, lgm.papers.KnorrHeldRue) else 0
    # A mode search for each theta: compiled, these take half of the time, but for one model.
    searches = cls in (lgm.PseudoMarginal, lgm.papers.KnorrHeldRue, lgm.SurrogateSlice)
    compiled = (searches or name in COUPLED) and name != "classes"
    how = {"compiled": compiled, "replicates": 300, "steps": 1, "tune": tune}
    test = joint_law(cls, shared(name), options=options, **how)
    assert test.pvalue > 1e-4


def without_noise(self, rng, prior, theta, f):
    covs, _ = self._at(theta)
    back = self._transposed(np.zeros(self.size), theta, prior.inverse_times(f - prior.mean))
    x = np.empty(self.size)
    for block, cov in zip(self._blocks, covs, strict=True):
        x[block.part] = cov * back[block.part] if cov.ndim == 1 else cov @ back[block.part]
    return x


def from_the_prior(self, rng, prior, theta, f):
    """As if f said nothing of x."""
    covs, factors = self._at(theta)
    x = np.empty(self.size)
    for block, cov, factor in zip(self._blocks, covs, factors, strict=True):
        xi = rng.standard_normal(block.part.stop - block.part.start)
        x[block.part] = np.sqrt(cov) * xi if factor is None else factor.multiply(xi)
    return x


def pvalue_of(step, model, steps=1):
    rng = np.random.default_rng(5)
    with reading_once():
        return joint_test(step, model, replicates=300, steps=steps, rng=rng).pvalue


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", [without_noise, from_the_prior])
def test_a_wrong_conditional_is_noticed(wrong, monkeypatch, dies):
    monkeypatch.setattr(draw_back.DrawBack, "_by_matheron", wrong)
    model = build("process_and_effects")
    with model:
        step = lgm.EllipticalSlice(compile_kwargs=QUICK)
    dies(f"draw back: {wrong.__name__}", pvalue_of(step, model), below=1e-6)


def forgets_means_of(latents, monkeypatch):
    """Latents, by number, are read as if their mean were in x already."""
    right = predictor.AffineGraph.__init__

    def wrong(self, setting, whole=(), sums=None):
        right(self, setting, latents, sums)

    monkeypatch.setattr(predictor.AffineGraph, "__init__", wrong)


@pytest.mark.mutant
def test_a_mean_that_forgets_its_coefficients_is_noticed(monkeypatch, dies):
    """As if f had neither their variance nor their prior means."""
    forgets_means_of(range(2), monkeypatch)
    model = build("level_of_a_process")
    with model:
        step = lgm.EllipticalSlice([model["c"], model["f"]], compile_kwargs=QUICK)
    monkeypatch.undo()
    dies("the mean of a process forgets its coefficients", pvalue_of(step, model), below=1e-6)


def test_what_a_mean_shares_with_a_covariance_is_a_hyperparameter():
    with pm.Model():
        a = pm.Normal("a")
        cov = pm.math.exp(a) * pm.gp.cov.Matern32(1, ls=1.0)
        gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(a), cov_func=cov)
        observe(gp.prior("f", X, reparameterize=False))
        ours = lgm.read(compile_kwargs=QUICK)
    assert (ours.latents, ours.theta_names) == (("f",), ("a",))


@pytest.mark.slow
def test_a_level_that_another_step_moves_is_left_to_it():
    with build("level_of_a_process") as model:
        step = lgm.EllipticalSlice(model["f"], compile_kwargs=QUICK)
        both = lgm.EllipticalSlice([model["c"], model["f"]], compile_kwargs=QUICK)
        named = lgm.PseudoMarginal([model["f"], model["ls_f"]], compile_kwargs=QUICK)
        every = lgm.ASIS(compile_kwargs=QUICK)
        by_slice = lgm.ASIS(latent_move="slice", compile_kwargs=QUICK)
    assert [v.name for v in step.vars] == ["f"]
    assert step.lgm.other_names == ("c", "ls_f_log__")
    assert [v.name for v in both.vars] == ["c", "f"]
    assert [v.name for v in named.vars] == ["f", "ls_f_log__"]
    assert named.lgm.other_names == ("c",)
    assert (every.lgm.latents, every.lgm.theta_names) == (("c", "f"), ("ls_f_log__",))
    assert (by_slice.lgm.latents, by_slice.lgm.theta_names) == (("f",), ("c", "ls_f_log__"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["level_of_a_process", "mean_and_noise_with_levels"])
def test_processes_that_no_sum_joins_are_factorized_one_by_one(name):
    ours = read(name)
    is_in_parts = isinstance(ours.prior(np.zeros(ours.p)), BlocksPrior)
    assert is_in_parts == (name == "mean_and_noise_with_levels")


class Given:
    """A generator whose normal numbers are known."""

    def __init__(self, xi):
        self.xi = xi

    def standard_normal(self, size):
        assert size == len(self.xi)
        return self.xi


def coefficient_given_f():
    """Mean and standard deviation of the one coefficient, drawn and by the joint law's algebra."""
    with build("process_and_intercept"):
        ours = lgm.read(compile_kwargs=QUICK)
    theta = np.array([0.3, -0.2])  # logarithms of the length-scale and of s, by name
    prior, f = ours.prior(theta), np.array([0.9, -0.4, 1.3, 0.2])
    k = ours.latents.index("a")
    ops = tally.cubic_ops
    mean, above = (ours.form.values_of(Given(np.array([xi])), prior, f)[k] for xi in (0.0, 1.0))
    s = float(np.exp(theta[ours.theta_names.index("s_log__")]))
    z, K = f - 0.3 - 0.2 * s, ours.cov(theta)
    gain = 1.5**2 * s * np.linalg.solve(K, np.ones(4))
    expected = 0.2 + gain @ z, np.sqrt(1.5**2 - 1.5**2 * s * gain.sum())
    return (float(mean), float(above - mean)), expected, tally.cubic_ops - ops


def scaled_process(whitened, scale):
    """A process times a number that may be negative, or numbers of which every other one is."""
    with pm.Model() as built:
        eta, ls = pm.Normal("eta", -0.5, 1.0, initval=-0.7), pm.LogNormal("ls", 0, 0.5)
        gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern32(1, ls=ls))
        z = gp.prior("z", X, reparameterize=whitened)
        s = eta if scale == "one" else pt.stack([eta, 1.0 - eta, eta, pt.exp(eta)])
        pm.Poisson("y", pm.math.exp(s * z), observed=COUNTS)
    return lgm.read(built, compile_kwargs=QUICK)


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("scale", ["one", "each"])
def test_a_process_times_a_factor_is_divided_by_it(whitened, scale):
    """f determines the process: no matrix is factorized for it, and it gives f again."""
    model = scaled_process(whitened, scale)
    error, ops = there_and_back(model)
    assert ops == 0
    assert error < 1e-9
    assert max(model.check(draws=10).values()) < 1e-6


def there_and_back(model):
    """How far f is from itself after the processes were drawn, and the operations that took."""
    rng, theta = np.random.default_rng(2), np.array([-0.4, 0.3, 0.2, -0.7])[: model.p]
    prior = model.prior(theta)
    f = prior.mean + prior.multiply(rng.standard_normal(model.n))
    before = tally.cubic_ops
    z = model.form.values_of(rng, prior, f)
    ops = tally.cubic_ops - before
    return np.abs(model.form.f_of(model.prior, theta, z) - f).max(), ops


@pytest.mark.parametrize("whitened", [False, True])
def test_processes_times_factors_are_factorized_one_by_one(whitened):
    """As for a mean and a log standard deviation; a move of one factor changes its process."""
    with pm.Model() as built:
        mean, log_sd = (
            pm.Normal(f"eta_{k}", -0.5, 1.0, initval=-0.7)
            * pm.gp.Latent(
                cov_func=pm.gp.cov.Matern32(1, ls=pm.LogNormal(f"ls_{k}", 0, 0.5))
            ).prior(f"z_{k}", X, reparameterize=whitened)
            for k in "ab"
        )
        pm.Normal("y", mean, pm.math.exp(log_sd), observed=COUNTS)
    model = lgm.read(built, compile_kwargs=QUICK)
    theta = np.array([-0.4, 0.3, 0.2, -0.7])
    prior = model.prior(theta)
    assert isinstance(prior, BlocksPrior)
    close(prior.covariance_times(np.eye(8)), model.cov(theta))
    for step in np.diag([-0.9, 0.4, -0.5, 0.3]):
        close(prior.moved(theta + step).covariance_times(np.eye(8)), model.cov(theta + step))
    error, ops = there_and_back(model)
    assert (error < 1e-9, ops) == (True, 0)
    assert max(model.check(draws=5).values()) < 1e-6


@pytest.mark.mutant
def test_a_forgotten_sign_of_a_factor_is_noticed(monkeypatch, dies):
    right = draw_back.DrawBack._factors.func
    wrong = property(lambda self: lambda theta: np.abs(right(self)(theta)))
    monkeypatch.setattr(draw_back.DrawBack, "_factors", wrong)
    error, _ = there_and_back(scaled_process(True, "one"))
    dies("draw back: the sign of a factor", error, above=0.01)


def test_few_coefficients_are_drawn_without_another_factor():
    seen, expected, ops = coefficient_given_f()
    close(np.array(seen), np.array(expected))
    # One for the factor of K, and two draws, each with T = L⁻¹ B S^½, 3/4 of one here.
    assert ops == 3


@pytest.mark.mutant
def test_coefficients_with_their_prior_spread_are_noticed(monkeypatch, dies):
    """As if f said where they are, but not how sure that is."""
    right = draw_back.DrawBack._coefficients_at

    def wrong(self, prior, theta):
        B, roots, T, root = right(self, prior, theta)
        return B, roots, T, np.eye(len(root))

    monkeypatch.setattr(draw_back.DrawBack, "_coefficients_at", wrong)
    seen, expected, _ = coefficient_given_f()
    dies("draw back: spread of the prior", abs(seen[1] - expected[1]), above=0.01)


@pytest.mark.mutant
def test_a_forgotten_mean_of_a_block_is_noticed(monkeypatch, dies):
    """That of the second latent alone."""
    forgets_means_of([1], monkeypatch)
    model = build("two_processes")
    with model:
        step = lgm.EllipticalSlice(compile_kwargs=QUICK)
    monkeypatch.undo()
    dies("predictor: the mean of one block forgotten", pvalue_of(step, model, 5), below=1e-6)


@pytest.mark.mutant
def test_a_site_of_the_wrong_element_is_noticed(monkeypatch, dies):
    right = predictor.AffineGraph.cuts

    def wrong(self, flat, is_free):
        return right(self, flat[::-1], is_free)

    monkeypatch.setattr(predictor.AffineGraph, "cuts", wrong)
    model = build("process_and_effects")
    with model:
        step = lgm.EllipticalSlice(compile_kwargs=QUICK)
    # What the test looks at is read of the model as it is.
    monkeypatch.setattr(predictor.AffineGraph, "cuts", right)
    dies("predictor: sites of other elements", pvalue_of(step, model, 5), below=1e-6)


@pytest.mark.slow
def test_other_steps_own_what_a_predictor_reads():
    """A scale that NUTS moves: the factors of x given f follow it."""
    with pm.Model() as model:
        s = pm.HalfNormal("s", 0.7)
        b = pm.Normal("b", 0, s, shape=2)
        observe(process()[WEEK] + b[GROUP])
        step = lgm.ASIS([model["f"], b, model["ls_f"]], compile_kwargs=QUICK)
    assert step.lgm.other_names == ("s_log__",)
    assert pvalue_of(step, model) > 1e-4


# Who is latent


def latents_of(build, **kwargs):
    with pm.Model() as model:
        build()
    return lgm.read(model, compile_kwargs=QUICK, **kwargs).latents


def scale_that_is_normal():
    """Its exponential is a scale: a hyper-parameter."""
    log_s = pm.Normal("log_s")
    observe(process()[WEEK] + pm.Normal("b", 0, pm.math.exp(log_s), shape=2)[GROUP])


def scale_that_enters_affinely_too():
    s = pm.Normal("s", 1, 0.1)
    observe(process()[WEEK] + pm.Normal("b", 0, pm.math.abs(s), shape=2)[GROUP] + s)


def noise_of_all():
    log_sd = pm.Normal("log_sd")
    pm.Normal("y", process()[WEEK], pm.math.exp(log_sd), observed=X[:, 0])


def mean_that_is_bent():
    a = pm.Normal("a")
    observe(process()[WEEK] + pm.Normal("b", a**2, 1, shape=2)[GROUP])


def flat_coefficient():
    """Improper: nothing to integrate it against but the observations."""
    observe(process()[WEEK] + pm.Flat("beta") * X[:, 0])


def mean_of_the_process():
    observe(process(mean=pm.Normal("c"))[WEEK])


@pytest.mark.fast("scale_that_is_normal-latents0", "flat_coefficient-latents4")
@pytest.mark.parametrize(
    ("build", "latents"),
    [
        (scale_that_is_normal, ("b", "f")),
        (scale_that_enters_affinely_too, ("b", "f")),
        (noise_of_all, ("f",)),
        (mean_that_is_bent, ("b", "f")),
        (flat_coefficient, ("f",)),
    ],
)
def test_what_is_no_linear_part_is_a_hyperparameter(build, latents):
    assert set(latents_of(build)) == set(latents)


@pytest.mark.slow
def test_the_level_of_a_process_is_latent_unless_the_user_says_otherwise():
    assert latents_of(mean_of_the_process) == ("c", "f")
    assert latents_of(mean_of_the_process, latent=["f", "c"]) == ("c", "f")
    assert latents_of(mean_of_the_process, latent="f") == ("f",)
    assert latents_of(mean_of_the_process, collapse=False) == ("f",)


def test_what_is_named_and_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"(?s)'s' cannot be latent.*'b'.*hyper-parameter"):
        latents_of(scale_that_enters_affinely_too, latent=["f", "b", "s"])
    with pytest.raises(ValueError, match=r"'log_sd' cannot be latent: 'y' reads one number"):
        latents_of(noise_of_all, latent=["f", "log_sd"])


def switched():
    """Which of two levels a point has, another step decides: rows of A jump."""
    k = pm.Bernoulli("k", 0.5)
    level = pm.Normal("level", 0, 1, shape=2)
    observe(process()[WEEK] + pm.math.switch(k, level[GROUP], level[SUBJECT]))


def test_what_a_discrete_variable_switches_is_a_hyperparameter():
    assert latents_of(switched) == ("f",)
    with pytest.raises(
        ValueError, match=r"(?s)affine in 'level . f', depends on 'k' too, which is discrete"
    ):
        latents_of(switched, latent=["f", "level"])


def test_only_what_a_discrete_variable_multiplies_is_a_hyperparameter():
    """The effects beside it were hyper-parameters, too, and the model was refused."""
    with pm.Model() as model:
        on, slope = pm.Bernoulli("on", 0.5, shape=4), pm.Normal("slope")
        effect = pm.Normal("effect", 0, pm.HalfNormal("s"), shape=2)
        rate = pm.math.exp(effect[np.array([0, 1, 1, 0])] + slope * on)
        pm.Poisson("y", rate, observed=[1, 0, 2, 3])
    found = lgm.read(model, compile_kwargs=QUICK)
    assert found.latents == ("effect",)
    assert set(found.theta_names) == {"s_log__", "slope"}
    assert max(found.check(draws=10).values()) < 1e-6


def test_a_process_that_a_discrete_variable_multiplies_is_latent_alone():
    with pm.Model() as model:
        sign, effect = pm.Bernoulli("sign", 0.5), pm.Normal("effect", shape=2)
        f = pm.GaussianRandomWalk("f", sigma=1.0, init_dist=pm.Normal.dist(), shape=4)
        mean = f * (2 * sign - 1) + effect[np.array([0, 1, 1, 0])]
        pm.Normal("y", mean, 1.0, observed=[0.3, -1.0, 0.2, 0.7])
    found = lgm.read(model, compile_kwargs=QUICK)
    assert (found.latents, found.theta_names) == (("f",), ("effect",))


def test_a_discrete_variable_may_be_added_to_a_log_standard_deviation():
    """It raised a TypeError of PyTensor: a value with decimals for a whole number."""
    with pm.Model() as model:
        noisy, log_sd = pm.Bernoulli("noisy", 0.5, shape=4), pm.Normal("log_sd")
        effect = pm.Normal("effect", 0, pm.HalfNormal("s"), shape=2)
        sd = pm.math.exp(log_sd + noisy)
        pm.Normal("y", effect[np.array([0, 1, 1, 0])], sd, observed=[0.3, -1.0, 0.2, 0.7])
    found = lgm.read(model, compile_kwargs=QUICK)
    assert "effect" in found.latents
    assert max(found.check(draws=10).values()) < 1e-6


@pytest.mark.parametrize("field", [False, True])
def test_a_discrete_variable_may_be_added_to_a_predictor(field):
    """It moves c alone, so effects and fields beside it are latent, and c is that of its value."""
    with pm.Model() as model:
        k, s = pm.Bernoulli("k", 0.5, shape=4), pm.HalfNormal("s")
        if field:
            f = lgm.gmrf.RandomWalk("f", order=1, sigma=s, shape=4)
        else:
            f = pm.Normal("f", 0, s, shape=2)[np.array([0, 1, 1, 0])]
        pm.Poisson("y", pm.math.exp(f + 0.7 * k), observed=[1, 0, 2, 3])
    found = lgm.read(model, compile_kwargs=QUICK)
    assert len(found.latents) == 1
    assert max(found.check(draws=10).values()) < 1e-6


def test_a_range_that_moves_with_theta_is_that_of_the_latents():
    """It was refused: f alone cannot be held, the latents beside it can."""

    def inducing_points():
        ls, u = pm.LogNormal("ls"), pm.Normal("u", shape=2)
        observe(pm.math.dot(pm.math.exp(-((X - np.array([[0.0, 1.0]])) ** 2) * ls), u))

    with pm.Model() as model:
        inducing_points()
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert (ours.latents, ours.rank) == (("u",), 2)
    assert max(ours.check(draws=3).values()) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("initval", [0.0, 0.5])
def test_a_coefficient_may_begin_at_zero(initval):
    """There two levels are none; nowhere else does the range move."""
    with pm.Model() as model:
        beta = pm.Normal("beta", initval=initval)
        observe(beta * pm.Normal("u", shape=2)[GROUP])
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert ours.latents == ("u",)
    assert max(ours.check(draws=3).values()) < 1e-6


@pytest.mark.slow
def test_steps_that_leave_the_range_are_refused():
    with (
        build("coefficients_and_effects"),
        pytest.raises(ValueError, match=r"(?s)metric='identity'.*metric='prior'"),
    ):
        lgm.LatentHMC(metric="identity", compile_kwargs=QUICK)


@pytest.mark.slow
def test_classes_are_sampled_by_default():
    """One of them without data."""
    with build("classes_in_a_stack"):
        idata = pm.sample(20, tune=40, chains=1, progressbar=False, random_seed=1, **SHORT)
        predictive = pm.sample_posterior_predictive(
            idata, progressbar=False, random_seed=1, compile_kwargs=QUICK
        )
    assert "log_evidence" in idata["sample_stats"]
    assert set(np.unique(predictive["posterior_predictive"]["y"])) == {0, 1, 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler", [lgm.PseudoMarginal, pytest.param(lgm.ASIS, marks=pytest.mark.whole)]
)
def test_a_flat_coefficient_has_the_posterior_of_generalized_least_squares(sampler):
    """Beside a process and effects, with noise of a known size."""
    x, y = X[:, 0], np.array([0.9, -0.8, 0.5, 1.1])
    with pm.Model():
        cov = 0.5 * pm.gp.cov.Matern32(1, ls=1.2)
        f = pm.gp.Latent(cov_func=cov).prior("f", T, reparameterize=False)
        b = pm.Normal("b", 0.4, 0.7, shape=2)
        pm.Normal("y", f[WEEK] + b[GROUP] + pm.Flat("beta") * x, 0.3, observed=y)
        idata = pm.sample(1000, tune=200, chains=1, step=sampler(), random_seed=1, **SILENT)
    r = np.sqrt(3.0) * np.abs(T - T.T) / 1.2
    K = 0.5 * (1.0 + r) * np.exp(-r)
    V = K[np.ix_(WEEK, WEEK)] + 0.49 * (GROUP[:, None] == GROUP) + 0.09 * np.eye(4)
    Vx = np.linalg.solve(V, x)
    z = (idata["posterior"]["beta"] - Vx @ (y - 0.4) / (Vx @ x)) * np.sqrt(Vx @ x)
    for values, expected in ((z, 0.0), (z**2, 1.0)):
        assert abs(values.mean() - expected) < 4.5 * az.mcse(values)


@pytest.mark.slow
def test_opted_in_models_are_sampled_by_default():
    with pm.Model():
        f = process(rows=X)
        lgm.Logistic("y", f=f + pm.Normal("a", 0, 1), observed=[0, 1, 1, 0])
        idata = pm.sample(20, tune=40, chains=1, progressbar=False, random_seed=1, **SHORT)
    assert idata["posterior"].sizes["draw"] == 20
    assert "theta_acceptance" in idata["sample_stats"]


SILENT = {"compute_convergence_checks": False, "quiet": True, "progressbar": False}
SHORT = {"compute_convergence_checks": False, "quiet": True, "compile_kwargs": QUICK}


# Structure


def test_the_structure_of_columns():
    eye, other = np.eye(2), np.array([[1.0, 0.0], [1.0, 0.0]])
    assert structure_of(eye, False)[0] == "identity"
    assert structure_of(other, False)[0] == "index"
    assert structure_of(np.vstack([eye, 0 * eye]), False)[0] == "index"
    assert structure_of(2 * eye, False)[0] == "constant"
    assert structure_of(eye, True) == ("dense in theta", None)


def test_the_order_of_a_permutation():
    P = np.eye(3)[[2, 0, 1]]
    x = np.array([5.0, 6.0, 7.0])
    np.testing.assert_array_equal((P @ x)[order_of([P[:, :2], P[:, 2:]])], x)
    assert order_of([P, None]) is None
    assert order_of([2 * P]) is None
    assert order_of([np.ones((3, 3))]) is None


@pytest.mark.slow
def test_processes_side_by_side_have_factors_of_their_own():
    ours = read("mean_and_noise")
    prior = ours.prior(np.zeros(2))
    assert isinstance(prior, BlocksPrior)
    close(prior.multiply(prior.multiply_transposed(np.eye(8))), ours.cov(np.zeros(2)))
    before = tally.cubic_ops
    assert prior.is_proper
    assert prior.moved(np.array([0.0, 0.3])).is_proper
    assert tally.cubic_ops == before + 1
    M = np.random.default_rng(1).standard_normal((4, 4))
    for index, part in ours.form.parts(ours):
        block = np.zeros((8, 8))
        block[np.ix_(index, index)] = M
        close(part.cov_vjp(np.zeros(2), M), ours.cov_vjp(np.zeros(2), block))


@pytest.mark.slow
def test_effects_of_thousands_of_observations_make_no_dense_matrix():
    """Read, conditioned on, drawn back and differentiated: less memory than one of n × n takes."""
    n, rng = 4000, np.random.default_rng(1)
    with pm.Model() as model:
        s = pm.HalfNormal("s", shape=2)
        b, c = pm.Normal("b", 0, s[0], shape=31), pm.Normal("c", 0, s[1], shape=12)
        effects = b[rng.integers(31, size=n)] + c[rng.integers(12, size=n)]
        eta = pm.Normal("a") + pm.Normal("beta") * rng.standard_normal(n) + effects
        pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(1, n))
    tracemalloc.start()
    ours = lgm.read(model, compile_kwargs=QUICK)
    here = AtTheta.of(ours, np.zeros(2))
    _, g, W, _ = here.likelihood(here.prior.mean)
    posterior = here.prior.condition(W).differentiable()
    f = here.prior.mean + posterior.multiply(np.ones(ours.rank))
    ours.form.values_of(rng, here.prior, f)
    posterior.evidence_gradient(g)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (ours.n, ours.rank) == (n + 45, 45)  # f has the latent variables, too
    assert peak < 8 * n**2


def test_a_basis_of_the_range():
    A = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1e-3]])
    U = basis_of_range([A, A @ np.diag([2.0, 5.0])])
    np.testing.assert_allclose(U.T @ U, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(U @ (U.T @ A), A, atol=1e-12)
    assert basis_of_range([np.eye(3)[:2]]) is None


def test_an_effect_whose_coefficient_starts_at_zero_is_named(rng):
    """The rows are joined, so that f is their mean, and has no direction for the effect there."""
    A = rng.standard_normal((14, 2))
    with pm.Model() as model:
        a, k, z = pm.Normal("a"), pm.Normal("k"), pm.Normal("z", shape=2)
        pm.MvNormal("y", a + k * (A @ z), np.eye(14), observed=np.zeros(14))
    with pytest.raises(ValueError, match="the coefficient of 'z' is 0 there"):
        lgm.read(model, compile_kwargs=QUICK)
    assert lgm.read(model, initial_point={"a": 0.0, "k": 0.5, "z": np.zeros(2)}).rank == 3


def test_a_smooth_process_by_basis_functions_has_all_its_coefficients():
    """What multiplies the last of them vanishes to rounding: it was an error at the start."""
    rows = np.linspace(0.0, 1.0, 30)[:, None]
    with pm.Model() as model:
        length, scale = pm.InverseGamma("length", 3, 1), pm.HalfNormal("scale")
        cov = scale**2 * pm.gp.cov.ExpQuad(1, ls=length)
        f = pm.gp.HSGP(m=[20], c=1.5, cov_func=cov).prior("f", rows)
        pm.Poisson("y", pm.math.exp(f), observed=np.arange(30) % 4)
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert ours.rank == 20
    assert max(ours.check(draws=5).values()) < 1e-9


@pytest.mark.parametrize("product", ["structured_dot", "dot"])
def test_a_sparse_matrix_of_numbers_is_one_of_the_rules(product):
    """It made hyper-parameters of what it multiplies."""
    A = csr_matrix([[1.0, 0.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, -1.0], [0.5, 0.0, 0.0]])
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, pm.HalfNormal("s"), shape=3)
        read = getattr(sparse, product)(sparse.as_sparse_or_tensor_variable(A), x[:, None])
        pm.Poisson("y", pm.math.exp(read[:, 0]), observed=COUNTS)
    ours = lgm.read(model, compile_kwargs=QUICK)
    assert ours.latents == ("x",)
    x = np.array([0.3, -0.2, 1.1])
    at = ours.f_of(np.zeros(1), {"s_log__": np.zeros(()), "x": x})
    np.testing.assert_allclose(at, A @ x)
    assert max(ours.check(draws=5).values()) < 1e-9
