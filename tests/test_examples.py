"""The examples are tutorials: each runs without a warning, and its chains converge."""

import os
import subprocess
import sys

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
every_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)

# Warnings are errors, but for the one of PyMC's own graphs that pyproject.toml excuses, too.
RUN = """
import runpy, sys, warnings
import arviz as az, pymc as pm
from numba.core.errors import NumbaPerformanceWarning
import pymc_lgm as lgm
warnings.simplefilter("error")
warnings.simplefilter("ignore", NumbaPerformanceWarning)
warnings.filterwarnings("ignore", "PyTensor could not link to a BLAS")
"""
WHOLE = """
idata = runpy.run_path(sys.argv.pop(), run_name="__main__")["idata"]
r_hat = az.rhat(idata).to_dataset().to_array().max().item()
assert r_hat < 1.01, r_hat
"""
# A short chain is warned of its weights, and the demo refuses one that has not converged.
SHORT = """
warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto")
sample, joint_test, rhat = pm.sample, lgm.testing.joint_test, az.rhat

def few_draws(draws=1000, *, tune=1000, **kwargs):
    return sample(min(draws, 40), **kwargs | {"tune": min(tune, 40), "chains": 2, "cores": 1})

def few_replicates(*args, replicates=1000, **kwargs):
    return joint_test(*args, replicates=min(replicates, 100), **kwargs)

def converged(*args, **kwargs):
    return 1.0 + 0.0 * rhat(*args, **kwargs)

pm.sample, lgm.testing.joint_test, az.rhat = few_draws, few_replicates, converged
assert "idata" in runpy.run_path(sys.argv.pop(), run_name="__main__")
"""


@every_example
def test_examples_are_notebooks_that_the_documentation_lists(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# %% [markdown]"
    assert lines[1].startswith("# # ")
    assert any(line.startswith("# %%") and "[markdown]" not in line for line in lines)
    assert f"tutorials/{path.stem}\n" in (ROOT / "docs" / "tutorials.md").read_text(
        encoding="utf-8"
    )


def run(script, path, folder):
    quiet = {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN + script, str(path)]
    subprocess.run(command, cwd=folder, env=os.environ | quiet, check=True, timeout=600)
    assert not list(folder.iterdir())  # a file only where one was asked for


@pytest.mark.slow
@every_example
def test_examples_run_without_a_warning(path, tmp_path):
    """With a few of their draws."""
    run(SHORT, path, tmp_path)


@pytest.mark.whole
@every_example
def test_examples_converge(path, tmp_path):
    """As they are; `make docs` asks the same of each."""
    run(WHOLE, path, tmp_path)
