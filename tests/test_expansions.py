"""Sums of log densities along lines, by polynomials and by evaluations."""

import numpy as np
import pytest

from scipy.special import gammaln, log_ndtr
from scipy.stats import norm

from pymc_lgm.approximations import expansions as module
from pymc_lgm.approximations.expansions import Expansions, Pairs

N, E, LINES = 30, 40, 12
RNG = np.random.default_rng(1)
SITE = np.append(np.arange(N), RNG.integers(0, N, E - N))
F, SD = RNG.normal(size=N), RNG.uniform(0.2, 0.6, N)
Y = RNG.normal(F[SITE], 0.3)
COUNTS, SIGN = RNG.poisson(np.exp(F[SITE])), np.where(Y > 0.0, 1.0, -1.0)

DENSITIES = {
    "poisson": lambda f: COUNTS * f - np.exp(f) - gammaln(COUNTS + 1),
    "logit": lambda f: -np.logaddexp(0.0, -SIGN * f),
    "probit": lambda f: log_ndtr(SIGN * f),
    "student": lambda f: -2.5 * np.log1p((Y - f) ** 2 / (4 * 0.05)),
    "needle": lambda f: -2.5 * np.log1p((Y - f) ** 2 / (4 * 1e-6)),
    "volatility": lambda f: norm.logpdf(Y, 0.0, np.exp(0.5 * f)),
    "bump": lambda f: np.logaddexp(norm.logpdf(Y, f, 2.0), norm.logpdf(Y + 0.3, f, 0.01)),
    "kink": lambda f: -np.abs(Y - f) / 0.3,
    "cliff": lambda f: np.where(f > Y - 0.5, -f, -np.inf),
    "constant": lambda f: np.zeros_like(f),
}


def elements(name):
    return lambda rows: DENSITIES[name](rows[:, SITE])


def made(name):
    base = elements(name)(F[None])[0]
    is_log_concave = name not in ("student", "needle", "bump", "volatility")
    return Expansions.of(elements(name), F, base, SITE, SD, is_log_concave=is_log_concave)


def lines(reach):
    """Directions, lines of which two share one, and steps of up to ``reach`` in f."""
    c = RNG.normal(size=(N, LINES - 1)) * (RNG.random((N, LINES - 1)) < 0.7)
    c[:3] *= 1e-30
    direction = np.append(np.arange(LINES - 1), 0)
    of_line = np.full(E, -1)
    of_line[:LINES] = np.arange(LINES)
    t = reach * RNG.uniform(-1.0, 1.0, (5, LINES))
    t[:, -2] = 0.0
    return c, direction, np.arange(LINES), of_line, t


def exact(name, c, direction, line, of_line, t):
    out = np.empty(t.shape)
    for k in range(t.shape[1]):
        rows = F + np.outer(t[:, k], c[:, direction[k]])
        change = elements(name)(rows) - elements(name)(F[None])
        out[:, k] = change[:, of_line != line[k]].sum(axis=1)
    return out


@pytest.mark.parametrize("reach", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("name", DENSITIES)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_sums_are_those_of_the_densities(name, reach, monkeypatch):
    monkeypatch.setattr(module, "COLUMNS", 5)
    monkeypatch.setattr(module, "CELLS", 1000)
    given = lines(reach)
    want = exact(name, *given)
    found = made(name)
    np.testing.assert_allclose(found.along(*given), want, rtol=1e-12, atol=1e-6)
    c, direction, line, of_line, t = given
    is_some = (c[SITE][:, direction] != 0.0) & (of_line[:, None] != line)
    k, e = np.nonzero(is_some.T)
    starts = np.append(0, np.cumsum(is_some.sum(axis=0)))
    pairs = Pairs(starts, e, c[SITE[e], direction[k]])
    np.testing.assert_allclose(found.along_sparse(pairs, t), want, rtol=1e-12, atol=1e-6)


def test_smooth_densities_are_polynomials_near_the_draw_and_others_are_evaluated():
    """In standard deviations: the least reach, and the largest."""
    reach = {name: np.sort(made(name).reach / SD[SITE]) for name in DENSITIES}
    assert reach["poisson"][0] >= 4.0
    assert reach["logit"][0] >= 4.0
    assert reach["volatility"][0] >= 4.0
    assert reach["constant"][0] == module.LEVELS[-1]
    assert reach["student"][0] > 0.0
    away = np.sort(np.abs(Y - F[SITE]) / SD[SITE])
    assert 0.0 < reach["kink"][-1] < away[-1]
    # A narrow peak between the nodes is found.
    at_bump = np.abs(Y + 0.3 - F[SITE]) / SD[SITE]
    assert (made("bump").reach / SD[SITE] < at_bump + 0.01).all()


def test_lines_share_rows_if_they_move_different_elements():
    K = 300
    starts = np.append(0, np.cumsum(RNG.integers(0, 4, K)))
    near = Pairs(starts, RNG.integers(0, E, starts[-1]), np.ones(starts[-1]))
    row = module._rows_of_lines(near, SITE, N)
    assert (row[np.diff(starts) == 0] == -1).all()
    taken = {}
    for k in np.flatnonzero(row >= 0):
        mine = {*SITE[near.observation[starts[k] : starts[k + 1]]]}
        assert not mine & taken.setdefault(row[k], set())
        taken[row[k]] |= mine
    assert row.max() + 1 < (row >= 0).sum() / 4


@pytest.mark.mutant
def test_polynomials_beyond_their_reach_are_noticed(monkeypatch, dies):
    given = lines(1.0)
    found = made("student")
    powers = 2.0 ** np.arange(module.DEGREE + 1)
    far = Expansions(
        found.elements, F, found.base, SITE, 2.0 * found.reach, found.coefficients * powers
    )
    error = np.abs(far.along(*given) - exact("student", *given)).max()
    dies("loo: polynomials beyond their reach", error, above=1e-3)
