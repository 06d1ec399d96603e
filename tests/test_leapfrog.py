"""Kick, drift, kick: reversible, and keeps volumes, whatever kicks."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_lgm.moves.leapfrog import leapfrog, rotation, straight

DRIFTS = {"straight": straight, "rotation": rotation}
STEPS = 5
WARPED = np.array([[1.0, 0.4], [-0.3, 0.8]])


def force(x):
    """No gradient of anything."""
    return SimpleNamespace(kick=np.sin(WARPED @ x) - 0.5 * x)


def follow(x, r, drift, follow=leapfrog):
    drift = DRIFTS[drift](0.3)
    x, r, _, _ = follow(x, r, force(x), step_size=0.3, steps=STEPS, drift=drift, force=force)
    return x, r


def way_back(drift, **how):
    """How far from the start one is after a trajectory, a turn, and another one."""
    start = np.array([0.7, -1.2]), np.array([0.3, 0.9])
    x, r = follow(*start, drift, **how)
    assert np.abs(x - start[0]).max() > 0.3
    x, r = follow(x, -r, drift, **how)
    return max(np.abs(x - start[0]).max(), np.abs(r + start[1]).max())


@pytest.mark.parametrize("drift", DRIFTS)
def test_it_is_reversible(drift):
    assert way_back(drift) < 1e-13


def without_last_kicks(x, r, at, *, step_size, steps, **how):
    for _ in range(steps):
        x, r, at, _ = leapfrog(x, r, at, step_size=step_size, steps=1, **how)
        r = r - 0.5 * step_size * at.kick
    return x, r, at, steps


@pytest.mark.mutant
@pytest.mark.parametrize("drift", DRIFTS)
def test_a_kick_that_is_forgotten_is_noticed(drift, dies):
    error = way_back(drift, follow=without_last_kicks)
    dies(f"leapfrog: last kick {drift}", error, above=1e-2)


@pytest.mark.parametrize("drift", DRIFTS)
def test_it_keeps_volumes(drift):
    at, h = np.array([0.7, -1.2, 0.3, 0.9]), 1e-5

    def there(at):
        return np.concatenate(follow(at[:2], at[2:], drift))

    J = np.array([there(at + h * e) - there(at - h * e) for e in np.eye(4)]) / (2 * h)
    assert np.linalg.det(J) == pytest.approx(1.0, abs=1e-8)


def test_it_ends_where_there_is_no_density():
    seen = []

    def until(x):
        seen.append(x)
        return force(x) if len(seen) < 3 else None

    x = np.zeros(2)
    _, _, end, evaluations = leapfrog(
        x, np.ones(2), force(x), step_size=0.1, steps=9, drift=straight(0.1), force=until
    )
    assert end is None
    assert evaluations == len(seen) == 3
