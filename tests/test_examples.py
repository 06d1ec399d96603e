"""The examples are tutorials: each runs without a warning, and its chains have converged."""

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
import arviz as az
from numba.core.errors import NumbaPerformanceWarning
warnings.simplefilter("error")
warnings.simplefilter("ignore", NumbaPerformanceWarning)
warnings.filterwarnings("ignore", "PyTensor could not link to a BLAS")
idata = runpy.run_path(sys.argv.pop(), run_name="__main__")["idata"]
r_hat = az.rhat(idata).to_dataset().to_array().max().item()
assert r_hat < 1.01, r_hat
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


@pytest.mark.slow
@every_example
def test_examples_run_and_converge(path, tmp_path):
    quiet = {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN, str(path)]
    subprocess.run(command, cwd=tmp_path, env=os.environ | quiet, check=True, timeout=600)
    assert not list(tmp_path.iterdir())  # a file only where one was asked for
