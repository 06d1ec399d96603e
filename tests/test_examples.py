"""The examples are tutorials: each runs without a warning, and its chains converge."""

import importlib.util
import json
import os
import re
import subprocess
import sys

from pathlib import Path

import pytest

TESTS = str(Path(__file__).parent)
ROOT = Path(TESTS).parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
QUIET = {
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(filter(None, [TESTS, os.environ.get("PYTHONPATH")])),
}
every_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)

# A process that has imported what all examples import, and forks for each: who asks writes a line
# of script, path and folder, and reads how it ended. Whatever is printed goes to stderr.
# Warnings are errors, but for the one of PyMC's own graphs that pyproject.toml excuses, too.
SERVER = """
import json, os, runpy, signal, sys, traceback, warnings
import arviz as az, pymc as pm, pytensor
from numba.core.errors import NumbaPerformanceWarning
import pymc_lgm as lgm
from models import QUICK

reply = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    script, path, folder = json.loads(line)
    if (child := os.fork()) == 0:
        ended = 1
        try:
            signal.alarm(600)
            os.chdir(folder)
            sys.argv = ["-c", path]
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", NumbaPerformanceWarning)
            warnings.filterwarnings("ignore", "PyTensor could not link to a BLAS")
            exec(script, globals())
            ended = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(ended)
    print(os.waitpid(child, 0)[1], file=reply, flush=True)
"""
WHOLE = """
idata = runpy.run_path(sys.argv.pop(), run_name="__main__")["idata"]
r_hat = az.rhat(idata).to_dataset().to_array().max().item()
assert r_hat < 1.01, r_hat
"""
# Nothing is compiled, for what evaluates a model a few times.
INTERPRETED = """
pytensor.config.mode = QUICK["mode"]
pytensor.config.traceback__limit = 0
"""
# A short chain is warned of its weights, and ArviZ divides by zero if theta has never moved. The
# demo refuses one that has not converged.
FEW_DRAWS = """
warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto")
warnings.filterwarnings("ignore", category=RuntimeWarning, module="arviz_stats")
sample, joint_test, rhat = pm.sample, lgm.testing.joint_test, az.rhat
leave_one_out = lgm.leave_one_out

def few_draws(draws=1000, *, tune=1000, **kwargs):
    return sample(min(draws, 20), **kwargs | {"tune": min(tune, 40), "chains": 2, "cores": 1})

def few_replicates(*args, replicates=1000, **kwargs):
    return joint_test(*args, replicates=min(replicates, 100), **kwargs)

def converged(*args, **kwargs):
    return 1.0 + 0.0 * rhat(*args, **kwargs)

def all_draws(*args, **kwargs):  # a third of so few are too few to fit a tail to
    return leave_one_out(*args, **kwargs | {"thin": 1})

pm.sample, lgm.testing.joint_test, az.rhat = few_draws, few_replicates, converged
lgm.leave_one_out = all_draws
assert "idata" in runpy.run_path(sys.argv.pop(), run_name="__main__")
"""
UP_TO_THE_CHAIN = """
class Sampled(Exception):
    pass

def sample(*args, **kwargs):
    raise Sampled

pm.sample = sample
try:
    runpy.run_path(sys.argv.pop(), run_name="__main__")
except Sampled:
    pass
else:
    raise AssertionError("no chain")
"""
# Up to a minute each, for a model of a kind that other tests sample: `make docs` runs them.
NOT_SAMPLED = [
    "aggression",
    "children",
    "deep",
    "drivers",
    "influenza",
    "own_likelihood",
    "twenty_years",
]
SCRIPTS = dict.fromkeys(NOT_SAMPLED, INTERPRETED + UP_TO_THE_CHAIN)


@every_example
def test_examples_are_notebooks_that_the_documentation_lists(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# %% [markdown]"
    assert lines[1].startswith("# # ")
    assert any(line.startswith("# %%") and "[markdown]" not in line for line in lines)
    assert f"tutorials/{path.stem}\n" in (ROOT / "docs" / "tutorials.md").read_text(
        encoding="utf-8"
    )


@pytest.fixture(scope="module")
def server():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, env=os.environ | QUIET, **pipes) as started:
        yield started


def run(server, script, path, folder):
    print(json.dumps([script, str(path), str(folder)]), file=server.stdin, flush=True)
    assert server.stdout.readline() == "0\n"
    assert not list(folder.iterdir())  # a file only where one was asked for


@pytest.mark.slow
@every_example
def test_examples_run_without_a_warning(server, path, tmp_path):
    """With a few of their draws, or none."""
    run(server, SCRIPTS.get(path.stem, FEW_DRAWS), path, tmp_path)


@pytest.mark.whole
@every_example
def test_examples_converge(server, path, tmp_path):
    """As they are; `make docs` asks the same of each."""
    run(server, WHOLE, path, tmp_path)


@pytest.mark.slow
def test_the_page_on_saving_and_predicting_runs(tmp_path):
    """With a few draws, after the example of the first page; files only if there is an engine."""
    text = "\n".join((ROOT / page).read_text() for page in ("README.md", "docs/saving.md"))
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == text.count("```python") > 1
    if importlib.util.find_spec("h5netcdf") is None:
        blocks = [block for block in blocks if "netcdf" not in block]
    script = "\n".join(blocks)
    short = "pm.sample(draws=50, tune=50, chains=2, progressbar=False, random_seed=1)"
    script, changed = re.subn(r"pm\.sample\([^)]*random_seed=1\)", short, script)
    assert changed == 2
    # PyMC compiles a process at new points for a minute. A hundred draws of it are made without.
    script, changed = re.subn(
        r'(var_names=\["f_new"\])', r'\1, compile_kwargs={"mode": "FAST_COMPILE"}', script
    )
    assert changed == 1
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert "elpd_loo" in done.stdout
    assert "f_mean" in done.stdout
