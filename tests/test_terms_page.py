"""Each row of docs/terms.md is a model that is read as the row says, with the density of PyMC."""

import re

from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_lgm as lgm

from pymc_lgm.model.forms.sum import SumPredictor

pytestmark = pytest.mark.usefixtures("interpreted")

PAGE = Path(__file__).parents[1] / "docs" / "terms.md"
ROW = re.compile(r"^\| (.*?) \| `(.*)` \| (sparse|dense|theta) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text())
LABELS = [re.sub(r"[^\w]+", " ", label).strip() for label, _, _ in ROWS]
N = 24


def names():
    """What a row may use: the data of 24 observations, and variables with a prior."""
    rng = np.random.default_rng(0)
    W = np.zeros((6, 6))
    W[np.arange(5), np.arange(1, 6)] = 1
    W += W.T
    R = np.diag(W.sum(axis=1)) - W
    X = rng.uniform(0.1, 0.9, (N, 2))
    places = np.sort(rng.uniform(0, 5, N))
    sigma, rho = pm.HalfNormal("sigma", 1), pm.Uniform("rho", 0.1, 0.9)
    ls = pm.InverseGamma("ls", 3, 3)
    chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=2))
    return {
        "chol": chol,
        "column": places[:, None],
        "area": np.arange(N) % 6,
        "design": rng.standard_normal((N, 8)),
        "exponential": pm.gp.cov.Exponential(1, ls=ls),
        "group": np.arange(N) % 5,
        "ls": ls,
        "matern": pm.gp.cov.Matern52(1, ls=ls),
        "mesh": lgm.gmrf.Mesh.around([[0, 0], [1, 0], [0, 1], [1, 1]], max_edge=0.5, extension=0.5),
        "month": np.arange(N) // 6,
        "other": pm.HalfNormal("other", 1),
        "pairs": np.stack([np.arange(N) % 5, np.arange(1, N + 1) % 5], axis=1),
        "places": places,
        "precision": (np.eye(6) + rho * R) / sigma**2,
        "rho": rho,
        "scale": pm.Normal("scale"),
        "sigma": sigma,
        "surface": pm.gp.cov.Matern32(2, ls=ls),
        "t": np.arange(N),
        "walk": lgm.gmrf.Structure.walk(4),
        "weights": np.full((N, 2), 0.5),
        "x": rng.standard_normal(N),
        "R": R,
        "W": W,
        "X": X,
        "Z": np.stack([np.ones(N), rng.standard_normal(N)], axis=1),
    }


@pytest.mark.fast(*(f"{LABELS.index(label)}" for label in ("iid s g bs re 1 g", "rw1")))
@pytest.mark.parametrize("row", range(len(ROWS)))
def test_a_row_is_read_as_it_says(row, monkeypatch):
    """Beside a level and other effects, if even a small sum goes to the sparse form."""
    _, code, kind = ROWS[row]
    monkeypatch.setattr(SumPredictor, "may_be_cheaper", lambda setting: True)
    monkeypatch.setattr(SumPredictor, "is_cheaper", True)
    with pm.Model() as model:
        term = eval(code, {"lgm": lgm, "np": np, "pm": pm} | names())
        level, first = pm.Normal("level", 0, 2), pm.Normal("first", 0, 1, shape=3)
        pm.Poisson("y", pm.math.exp(level + first[np.arange(N) % 3] + term), observed=np.ones(N))
    read = lgm.read(model)
    assert isinstance(read.form, SumPredictor)
    assert (set(read.latents) > {"level", "first"}) == (kind != "theta"), read
    assert max(read.check(2).values()) < 1e-6


def test_every_term_of_the_page_is_run():
    ended = re.findall(r"\| (?:sparse|dense|theta) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(ROWS) == len(ended) > 30
