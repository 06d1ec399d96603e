"""Sums of log densities along lines, by polynomials and by evaluations."""

from dataclasses import replace

import numpy as np
import pytest

from scipy.special import gammaln, log_ndtr
from scipy.stats import norm

from pymc_lgm.approximations import expansions as module
from pymc_lgm.approximations.expansions import Expansions, Pairs, in_columns

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


FIRST, SECOND = RNG.integers(0, N // 2, E), RNG.integers(N // 2, N, E)
PAIRS = np.stack([FIRST, np.where(np.arange(E) % 5 == 0, -1, SECOND)], axis=1)
"""An element of the first half and one of the second. Each fifth observation reads the former."""

BOTH = {
    "mean and scale": lambda f, g: norm.logpdf(Y, f, np.exp(0.3 * g)),
    "zeros": lambda f, g: np.where(
        COUNTS == 0,
        np.logaddexp(-np.logaddexp(0.0, f), -np.logaddexp(0.0, -f) - np.exp(g)),
        -np.logaddexp(0.0, -f) + COUNTS * g - np.exp(g),
    ),
    "product": lambda f, g: -np.logaddexp(0.0, -SIGN * f * (1.0 + g)),
    "kinks": lambda f, g: -np.abs(Y - f - g),
}
CONCAVE = {"poisson", "logit", "probit", "kink", "cliff", "constant", "kinks"}


def reads_of(name):
    return PAIRS if name in BOTH else SITE[:, None]


def elements(name):
    if name not in BOTH:
        return lambda rows: DENSITIES[name](rows[:, SITE])
    a, b = PAIRS.T
    return lambda rows: BOTH[name](rows[:, a], np.where(b < 0, 0.2, rows[:, b]))


def made(name):
    base = elements(name)(F[None])[0]
    args = elements(name), F, base, reads_of(name), SD
    return Expansions.of(*args, is_log_concave=name in CONCAVE)


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
@pytest.mark.parametrize("name", [*DENSITIES, *BOTH])
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_sums_are_those_of_the_densities(name, reach, monkeypatch):
    monkeypatch.setattr(module, "COLUMNS", 5)
    monkeypatch.setattr(module, "CELLS", 1000)
    given = lines(reach)
    want = exact(name, *given)
    found = made(name)
    np.testing.assert_allclose(found.along(*given), want, rtol=1e-12, atol=1e-6)
    c, direction, line, of_line, t = given
    reads = reads_of(name)
    moves = np.where((reads >= 0)[:, :, None], c[reads][:, :, direction], 0.0)
    is_some = (moves != 0.0).any(axis=1) & (of_line[:, None] != line)
    k, e = np.nonzero(is_some.T)
    pairs = Pairs(np.append(0, np.cumsum(is_some.sum(axis=0))), e, moves[e, :, k])
    np.testing.assert_allclose(found.along_sparse(pairs, t), want, rtol=1e-12, atol=1e-6)


def test_smooth_densities_are_polynomials_near_the_draw_and_others_are_evaluated():
    """In standard deviations: the least reach, and the largest."""
    reach = {name: np.sort(made(name).reach[:, 0] / SD[SITE]) for name in DENSITIES}
    assert reach["poisson"][0] >= 4.0
    assert reach["logit"][0] >= 4.0
    assert reach["volatility"][0] >= 4.0
    assert reach["constant"][0] == module.LEVELS[-1]
    assert reach["student"][0] > 0.0
    away = np.sort(np.abs(Y - F[SITE]) / SD[SITE])
    assert 0.0 < reach["kink"][-1] < away[-1]
    # A narrow peak between the nodes is found.
    at_bump = np.abs(Y + 0.3 - F[SITE]) / SD[SITE]
    assert (made("bump").reach[:, 0] / SD[SITE] < at_bump + 0.01).all()


def test_lines_share_rows_if_they_move_different_elements():
    K = 300
    starts = np.append(0, np.cumsum(RNG.integers(0, 4, K)))
    near = Pairs(starts, RNG.integers(0, E, starts[-1]), np.ones((starts[-1], 2)))
    row = module._rows_of_lines(near, PAIRS, N)
    assert (row[np.diff(starts) == 0] == -1).all()
    taken = {}
    for k in np.flatnonzero(row >= 0):
        mine = {*PAIRS[near.observation[starts[k] : starts[k + 1]]].ravel()} - {-1}
        assert not mine & taken.setdefault(row[k], set())
        taken[row[k]] |= mine
    assert row.max() + 1 < (row >= 0).sum() / 2


def test_each_element_is_in_one_column():
    chain = np.stack([np.arange(9), np.arange(1, 10)], axis=1)
    both = in_columns(np.vstack([chain, [[4, -1], [3, -1]]]), 10)
    assert (np.sort(both[:9], axis=1) == chain).all()
    assert not set(both[:, 0]) & set(both[:, 1]) - {-1}
    assert both.max(axis=1)[9:].tolist() == [4, 3]
    cycle = np.array([[0, 1], [1, 2], [2, 0]])
    assert in_columns(cycle, 3) is None
    assert in_columns(np.arange(3)[None], 3) is None


@pytest.mark.mutant
def test_polynomials_beyond_their_reach_are_noticed(monkeypatch, dies):
    given = lines(1.0)
    found = made("student")
    powers = 2.0 ** np.arange(module.DEGREES[0] + 1)
    far = replace(found, reach=2.0 * found.reach, coefficients=found.coefficients * powers)
    error = np.abs(far.along(*given) - exact("student", *given)).max()
    dies("loo: polynomials beyond their reach", error, above=1e-3)
