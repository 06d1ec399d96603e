"""Simulation-based calibration: exact draws pass, runs that do not end in the posterior do not."""

import itertools
import math

import cloudpickle
import matplotlib
import numpy as np
import pymc as pm
import pytest

from models import build, listed, logistic, reading_once
from pymc.step_methods.compound import BlockedStep

import pymc_lgm as lgm

from pymc_lgm.calibration import _made, _picked, _Run
from pymc_lgm.simulated import kept, prior_draws, replace, replaceable_data
from pymc_lgm.testing import calibrate
from pymc_lgm.uniformity import envelope, uniformity_pvalue

matplotlib.use("Agg")

pytestmark = pytest.mark.usefixtures("interpreted")


# Uniformity


def all_counts(R):
    """Counts of R uniform numbers in the cells between i/R, and their probabilities."""
    for cells in itertools.product(range(R + 1), repeat=R):
        if sum(cells) == R:
            yield cells, math.factorial(R) / math.prod(map(math.factorial, cells)) / R**R


def numbers(cells):
    """Numbers with these counts."""
    return np.repeat((np.arange(len(cells)) + 0.5) / len(cells), cells)


def test_the_pvalue_is_exact():
    """P(p-value ≤ p) = p for each p that there is: all outcomes of five numbers."""
    outcomes = [(uniformity_pvalue(numbers(cells)), weight) for cells, weight in all_counts(5)]
    for p in {round(p, 12) for p, _ in outcomes}:
        total = sum(weight for other, weight in outcomes if other <= p + 1e-9)
        assert total == pytest.approx(p, abs=1e-10)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_band_holds_as_often_as_it_says(level):
    points, lower, upper = envelope(5, level)
    inside, least = 0.0, math.inf
    for cells, weight in all_counts(5):
        heights = np.cumsum(cells)[:-1] / 5
        if ((lower <= heights) & (heights <= upper)).all():
            inside += weight
            least = min(least, uniformity_pvalue(numbers(cells)))
    np.testing.assert_allclose(points, [0.2, 0.4, 0.6, 0.8])
    assert inside >= level
    # The band is the narrowest: what stays within it has p-values above 1 − level, all of it.
    assert least > 1.0 - inside


# A model whose posterior is known, and steps that draw from it well or badly


class Conjugate(BlockedStep):
    """mu | y of mu ~ N(0, 1), y_i ~ N(mu, 1), drawn exactly: N(Σ y / (N + 1), 1 / (N + 1))."""

    name = "conjugate"
    stats_dtypes_shapes = {}  # noqa: RUF012

    def __init__(self, prior_sd=1.0):
        self.model = pm.modelcontext(None)
        self.vars, self.prior_sd = self.model.value_vars, prior_sd
        self.data = self.model["data"]
        self.rng, self.tune = np.random.default_rng(0), True

    def moments(self):
        y = self.data.get_value()
        precision = y.size + self.prior_sd**-2
        return y.sum() / precision, precision**-0.5

    def step(self, point):
        mean, sd = self.moments()
        return {"mu": np.array(mean + sd * self.rng.standard_normal())}, [{}]


class Tuned(Conjugate):
    """A random walk that tunes for an acceptance of 0.9, with a gain that does not decrease.

    Where it is frozen when tuning ends, at the mean of what it has tried, it is exact. Where it is
    not, its steps are short where it has been accepted little, in the tails, and it stays there.
    """

    def __init__(self, frozen=True):
        super().__init__()
        self.frozen = frozen

    def setup_chain(self, rng, tune, draws):
        super().setup_chain(rng, tune, draws)
        self.tried = [0.0]

    def stop_tuning(self):
        super().stop_tuning()
        if self.frozen:
            self.tried = [float(np.mean(self.tried))]

    def step(self, point):
        mean, sd = self.moments()
        z, log_scale = (point["mu"] - mean) / sd, self.tried[-1]
        proposal = z + np.exp(log_scale) * self.rng.standard_normal()
        acceptance = min(1.0, np.exp(0.5 * (z**2 - proposal**2)))
        if self.tune or not self.frozen:
            self.tried.append(log_scale + 3.0 * (acceptance - 0.9))
        accepted = self.rng.uniform() < acceptance
        return {"mu": np.array(mean + sd * proposal) if accepted else point["mu"]}, [{}]


@pytest.fixture(scope="module")
def normal():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=pm.Data("data", np.zeros(1)))
    return model


def calibrated(model, step, replicates=200, draws=40, tune=20, seed=1, **options):
    rng = np.random.default_rng(seed)
    return calibrate(model, step, replicates=replicates, draws=draws, tune=tune, rng=rng, **options)


def test_exact_draws_pass(normal):
    result = calibrated(normal, Conjugate)
    assert set(result.pvalues) == {"mu", "log_likelihood"}
    assert result.pvalue > 1e-3
    assert result.replicates == 200
    assert "pvalue" in repr(result)


@pytest.mark.slow
def test_a_step_or_what_makes_it(normal):
    with normal:
        made = Conjugate()
    few = {"replicates": 3, "draws": 10, "tune": 2}
    of_step, of_class = (calibrated(normal, step, **few) for step in (made, Conjugate))
    np.testing.assert_array_equal(of_step.ranks["mu"], of_class.ranks["mu"])
    with pytest.raises(TypeError, match=r"step is a class: .* lgm\.ASIS\(model=model\)"):
        lgm.testing.joint_test(lgm.ASIS, normal, rng=np.random.default_rng(0))


def test_draws_that_depend_on_each_other_pass(normal):
    """A frozen random walk: thinned by its effective draws, its ranks are uniform."""
    result = calibrated(normal, Tuned, draws=200, tune=60, replicates=150)
    assert result.pvalue > 1e-3
    assert np.median(result.effective["mu"]) < 100


@pytest.mark.mutant
def test_a_wrong_prior_is_noticed(normal, dies):
    result = calibrated(normal, lambda: Conjugate(prior_sd=0.5))
    dies("calibrate: prior sd 0.5 in place of 1", result.pvalue, below=1e-6)


@pytest.mark.mutant
def test_tuning_that_goes_on_is_noticed(normal, dies):
    result = calibrated(normal, lambda: Tuned(frozen=False), replicates=300, draws=200)
    dies("calibrate: tuning goes on", result.pvalue, below=1e-6)


# Replicates


def test_order_and_process_change_nothing(normal):
    def backwards(run, jobs):
        return list(map(run, list(jobs)[::-1]))[::-1]

    def elsewhere(run, jobs):
        return [cloudpickle.loads(cloudpickle.dumps(run))(job) for job in jobs]

    results = [
        calibrated(normal, Conjugate, replicates=5, map=each)
        for each in (map, backwards, elsewhere)
    ]
    for other in results[1:]:
        for name, u in results[0].ranks.items():
            np.testing.assert_array_equal(other.ranks[name], u)


def test_the_model_has_its_observations_back(normal):
    calibrated(normal, Conjugate, replicates=2)
    np.testing.assert_array_equal(normal["data"].get_value(), np.zeros(1))


@pytest.fixture(scope="module")
def run():
    """Replicates of the default sampler: what `calibrate` makes for a model."""
    model = logistic()
    step = build(lgm.PseudoMarginal, model)
    return _Run(model, step, replaceable_data(model), (4, 6, 1), 3)


def draws_of(model):
    idata = build(
        pm.sample,
        model,
        draws=4,
        tune=6,
        chains=1,
        random_seed=7,
        progressbar=False,
        compute_convergence_checks=False,
    )
    posterior = idata["posterior"]
    columns = [np.log(posterior[name].values[0]) for name in ("ls", "eta")]
    return np.column_stack([posterior["mu"].values[0], *columns, posterior["f"].values[0]])


@pytest.mark.slow  # compiles twice
def test_a_run_is_what_sample_draws(run):
    """And it does not depend on the run before it, nor on when the observations were replaced."""
    y = np.array([1, 0, 1])
    with kept(run.data):
        run._chain(np.random.default_rng(3))
        replace(run.data, {"y": y})
        rng = np.random.default_rng(7).spawn(1)[0]
        rng.integers(2**30)  # PyMC draws a seed of the initial point
        chain = np.array(run._chain(rng))
    model = logistic()
    model.set_data("data", y)
    assert list(run.picked) == ["mu", "ls", "eta", "f[0]", "f[1]", "f[2]"]
    np.testing.assert_allclose(chain[:, :-1], draws_of(model), rtol=1e-9)


def test_few_elements_of_many_are_looked_at():
    with pm.Model() as model:
        pm.Normal("x", shape=(3, 10))
        pm.Normal("z", shape=2)
    found = list(_picked(model, model.initial_point(), 3))
    assert found == ["x[0, 0]", "x[1, 4]", "x[2, 9]", "z[0]", "z[1]"]


@pytest.mark.slow
def test_the_default_is_what_sample_takes():
    assert type(_made(listed("logistic"), None)) is lgm.PseudoMarginal


@pytest.mark.slow
def test_the_default_is_calibrated():
    """All of it: the start, 200 draws of tuning, the draws."""
    rng = np.random.default_rng(5)
    with reading_once(compiled=True):
        result = calibrate(logistic(), replicates=20, draws=100, tune=200, rng=rng)
    assert result.pvalue > 1e-3


def test_observations_have_to_be_replaceable():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), observed=[0.0, 1.0])
    with pytest.raises(ValueError, match=r"observed=pm.Data\('y_data', y\)"):
        calibrate(model, Conjugate, rng=np.random.default_rng(1))
    with pm.Model() as model:  # what is drawn is y, and the data are y + 1
        pm.Poisson("y", pm.HalfNormal("mu"), observed=pm.Data("grades", [1, 2]) - 1)
    with pytest.raises(ValueError, match=r"observed=pm.Data\('y_data', y\)"):
        replaceable_data(model)
    with pm.Model() as model:
        both = pm.Data("both", [1.0, 2.0])
        pm.Normal("y", observed=both)
        pm.Normal("z", observed=both)
    with pytest.raises(ValueError, match="with its own data"):
        replaceable_data(model)


def test_draws_that_a_transform_rules_out_are_refused():
    with pm.Model() as model:
        pm.Normal("positive", transform=pm.distributions.transforms.log, initval=1.0)
        pm.Normal("y", observed=pm.Data("data", [0.1]))
    with pytest.raises(ValueError, match=r"draws 'positive' .* without regard to its transform"):
        prior_draws(model, 20, np.random.default_rng(1))


def test_nuts_alone_is_refused(normal):
    with pytest.raises(ValueError, match=r"step=lgm.ASIS or step=pm.NUTS"):
        calibrate(normal, rng=np.random.default_rng(1))


def test_the_picture_shows_each_function_and_one_band(normal):
    result = calibrated(normal, Conjugate, replicates=20)
    ax = result.plot(title="conjugate")
    assert [line.get_label() for line in ax.get_lines()] == ["mu", "log_likelihood"]
    assert len(ax.collections) == 1
    assert ax.get_title() == "conjugate"
