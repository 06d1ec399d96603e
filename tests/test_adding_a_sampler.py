"""A sampler is one file on one axis and one line in that axis's registry, as CONTRIBUTING says."""

import importlib.util

import pytest

from models import build
from toys import Counts, Labels, invariance

import pymc_lgm as lgm

from pymc_lgm import samplers

LATENT = '''
"""Independent proposals of f, drawn from the prior: the likelihood decides."""

from dataclasses import dataclass

from pymc_lgm.moves.latent.stepping import Info
from pymc_lgm.state import acceptance_probability


def from_the_prior(rng, state):
    f = state.mean + state.prior.multiply(rng.standard_normal(state.prior.n))
    log_likelihood = state.at.log_likelihood(f)
    info = Info(acceptance_probability(log_likelihood - state.log_likelihood), 1)
    if rng.uniform() < info.latent_acceptance:
        return state.with_f(f, log_likelihood) or state, info
    return state, info


@dataclass(frozen=True)
class FromThePrior:
    repeats: int = 1
    stats = ("latent_acceptance", "latent_evaluations")
    needs_gradient = needs_curvature = False

    def start(self, state, tune):
        return None

    def run(self, rng, state, tuning, tune):
        for _ in range(self.repeats):
            state, info = from_the_prior(rng, state)
        return state, None, info._asdict()
'''

HELD = '''
"""f held or ν held, by a coin that does not look at the state."""

from pymc_lgm.targets.sufficient import SufficientTarget
from pymc_lgm.targets.whitened import WhitenedTarget


def either(rng, state):
    return (SufficientTarget if rng.uniform() < 0.5 else WhitenedTarget).fix(rng, state)
'''


@pytest.fixture
def one_file(tmp_path):
    """Import a file that somebody has written."""

    def load(text):
        path = tmp_path / "one_file.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("one_file", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.slow
def test_a_latent_move(one_file, monkeypatch):
    moves = samplers.LATENT_MOVES
    monkeypatch.setitem(moves, "from-the-prior", one_file(LATENT).FromThePrior)
    options = {"latent_move": "from-the-prior", "latent_repeats": 2, "move": "slice"}
    for sampler in (lgm.Sweep, lgm.ASIS):
        step = build(sampler, "log_gaussian_cox", **options)
        assert "latent_acceptance" in step.stats_dtypes_shapes
        assert invariance(step.elements, Counts(), replicates=300, tune=50).pvalue > 1e-4


@pytest.mark.slow
def test_a_parameterization(one_file, monkeypatch):
    monkeypatch.setitem(samplers.PARAMETERIZATIONS, "either", one_file(HELD).either)
    step = build(lgm.Sweep, "probit", parameterization="either", move="slice", latent_move="slice")
    assert invariance(step.elements, Labels(), replicates=300, tune=50).pvalue > 1e-4


@pytest.mark.slow
def test_a_move_on_theta(monkeypatch):
    class Shrunk(samplers.Metropolis):
        """A random walk in another dress: what `move=` takes by name."""

    monkeypatch.setitem(samplers.THETA_MOVES, "shrunk", Shrunk)
    step = build(lgm.ASIS, "probit", move="shrunk", scale=0.3)
    assert [element.move for element in step.theta_elements] == [Shrunk(scale=0.3)] * 2
    assert invariance(step.elements, Labels(), replicates=300, tune=50).pvalue > 1e-4
