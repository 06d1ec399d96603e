"""The page on extending the package: its blocks run as one program, and their checks pass."""

import re

from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from models import reading_once

pytestmark = pytest.mark.slow  # the page compiles and tests a model of its own

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"


def blocks():
    """Python blocks of the page, each with the line that it begins on."""
    text = PAGE.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start(1)), match[1])
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]


@pytest.fixture(scope="module")
def namespace(interpreted):
    """What the page defines. Its model is compiled once for all of its steps."""
    names = {"__name__": "extending"}
    with reading_once(compiled=True):
        for line, code in blocks():
            # Newlines before the code: a traceback shows the line of the page.
            exec(compile("\n" * line + code, str(PAGE), "exec"), names)
    return names


@pytest.mark.mutant
def test_every_check_of_the_page_passes(namespace, dies):
    checks = sum(code.count("assert ") for _, code in blocks())
    assert checks == 5
    # The last result is of the kernel that is wrong.
    dies("extending: kernel of the page without the mean", namespace["result"].pvalue, below=1e-6)


def test_the_likelihood_of_the_page_opts_in_and_refuses_impossible_data(namespace):
    with namespace["model"]:
        method = pm.sampling.mcmc.assign_step_methods(namespace["model"])
    assert "PseudoMarginal" in repr(method)
    counts = namespace["OverdispersedCounts"]
    with pm.Model():
        f = pm.MvNormal("f", mu=np.zeros(2), cov=np.eye(2))
        with pytest.raises(ValueError, match=r"observed\[1\] is -1"):
            counts("y", f=f, alpha=1.0, observed=[0, -1])


@pytest.mark.parametrize("f", [-1e3, -30.0, 0.0, 30.0, 1e3])
def test_the_likelihood_of_the_page_is_finite_everywhere(namespace, f):
    x = pt.dscalar("x")
    value = pm.logp(namespace["OverdispersedCounts"].dist(f=x, alpha=2.0), 3)
    slope = pt.grad(value, x)
    curvature = pt.grad(slope, x)
    derivatives = [value, slope, curvature, pt.grad(curvature, x)]
    assert np.isfinite([d.eval({x: f}) for d in derivatives]).all()


def test_the_sampler_of_the_page_is_tuned(namespace):
    stats = namespace["idata"].sample_stats
    assert 0.3 < stats["latent_acceptance"].mean() < 1.0
    assert np.ptp(stats["latent_step_size"].to_numpy()) == 0.0  # frozen
