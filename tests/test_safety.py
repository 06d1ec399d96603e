"""Names of a model are text, never code; files are written where asked, whole."""

import ast
import errno
import json
import os
import stat
import subprocess
import sys

from pathlib import Path

import arviz as az
import numpy as np
import pytest

import pymc_lgm as lgm

from pymc_lgm import reporting
from pymc_lgm._report.pictures import _title

ROOT = Path(lgm.__file__).parents[1]
MODULES = sorted((ROOT / "pymc_lgm").rglob("*.py"))
NAME = "<script>alert('x')<script>"


@pytest.fixture(scope="module")
def found():
    """A report on variables, groups, coordinates and a statistic with names that are code."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, 100))
    x[3] += 2.0  # so that verdicts name it
    idata = az.from_dict(
        {"posterior": {NAME: x, "f": rng.normal(size=(4, 100, 2))}, "sample_stats": {NAME: x}},
        dims={"f": [NAME + "dim"]},
        coords={NAME + "dim": [NAME, "other"]},
    )
    idata["posterior"].attrs["tuning_steps"] = NAME
    return lgm.report(idata, {NAME: NAME, "f": "f"}, backend="none")


def test_a_page_has_no_tag_of_a_name(found):
    page = found._repr_html_()
    assert NAME not in page
    assert "<script" not in page
    assert "&lt;script&gt;alert" in page


@pytest.mark.parametrize("backend", ["bokeh", "plotly"])
def test_a_picture_that_is_a_script_has_no_tag_of_a_name(backend):
    assert not set("<>/") & set(_title("</script><b>", backend))


# Files


def test_a_report_that_cannot_be_written_leaves_the_old_one(found, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(reporting.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        found.save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_replaces_a_file_and_keeps_a_link(found, tmp_path):
    path, link = tmp_path / "report.html", tmp_path / "link.html"
    path.write_text("old")
    link.symlink_to(path)
    found.save(link)
    assert link.is_symlink()
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert {p.name for p in tmp_path.iterdir()} == {"report.html", "link.html"}
    # As any file that a user makes: others may read it if the user's umask says so.
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


WORK = """
import json, sys, tempfile
from pathlib import Path

import matplotlib.pyplot, numba, pytensor  # each makes folders of its own at its first import

opened = []


def audit(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if isinstance(mode, str) and set(mode) & set("wax+"):
            opened.append(str(path))
    elif event in ("os.mkdir", "os.rename"):
        opened.append(str(arguments[0]))


import numpy as np, pymc as pm, pymc_lgm as lgm

sys.addaudithook(audit)
with pytensor.config.change_flags(mode="FAST_COMPILE", linker="py"), pm.Model() as model:
    ls = pm.LogNormal("ls")
    gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern32(1, ls=ls))
    f = gp.prior("f", np.arange(3.0)[:, None], reparameterize=False)
    lgm.Probit("y", f=f, observed=[0, 1, 1])
    idata = pm.sample(
        30, tune=10, chains=1, progressbar=False, compute_convergence_checks=False, random_seed=1
    )
    lgm.efficiency(idata)
    str(lgm.report(idata, backend="none"))
    lgm.report(idata, backend="none", path=sys.argv[1])
caches = [str(pytensor.config.base_compiledir), "__pycache__", "/dev/null"]
opened = [path for path in opened if path != tempfile.gettempdir()]  # a file without a name
print(json.dumps([path for path in opened if not any(cache in path for cache in caches)]))
"""


@pytest.mark.slow
def test_nothing_else_is_written(tmp_path):
    """While a model is sampled and judged: only caches of compiled code, and what was asked for."""
    asked = tmp_path / "report.html"
    run = subprocess.run(
        [sys.executable, "-c", WORK, asked],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    written = json.loads(run.stdout.splitlines()[-1])
    assert written
    assert {str(Path(path).parent) for path in written} == {str(tmp_path)}, written
    assert list(tmp_path.iterdir()) == [asked]


LOADERS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml"}
BARE, METHODS = {"eval", "exec", "compile"}, {"loads", "read_pickle", "system", "urlopen"}
OWN = {"distributed/__init__.py", "distributed/plan.py"}
"""These read the state of a chain in a folder that the user names, and what the call has sent."""


def loads_or_runs(node):
    """Whether a statement reads objects from a file, or makes code of text."""
    if isinstance(node, ast.Import):
        return bool(LOADERS & {alias.name.split(".")[0] for alias in node.names})
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] in LOADERS
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            return node.func.attr in METHODS and ast.unparse(node.func) != "json.loads"
        return isinstance(node.func, ast.Name) and node.func.id in BARE
    return False


def test_nothing_is_unpickled_or_run():
    assert not [
        f"{path.relative_to(ROOT)}, line {node.lineno}"
        for path in MODULES
        if str(path.relative_to(ROOT / "pymc_lgm")) not in OWN
        for node in ast.walk(ast.parse(path.read_text()))
        if loads_or_runs(node)
    ]


def test_what_unpickles_or_runs_is_found():
    text = "import pickle\nfrom yaml import load\nx.loads(y)\neval(z)\njson.loads(y)\ncompile_all()"
    found = [node.lineno for node in ast.walk(ast.parse(text)) if loads_or_runs(node)]
    assert sorted(found) == [1, 2, 3, 4]
