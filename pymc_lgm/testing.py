"""Conformance checks for samplers of latent Gaussian models: ours and those of third parties.

`joint_test` asks whether a step method leaves p(theta, f | y) invariant, with an honest p-value;
`quadrature` gives the posterior of a tiny model to many digits. Both take any PyMC step method.

A sampler is exact if it passes both, on every likelihood that it claims to support.
"""

from __future__ import annotations

import itertools

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from scipy import stats

from pymc_lgm.linalg import Array, factorize
from pymc_lgm.model import LatentGaussianModel

__all__ = ["JointTest", "Moments", "joint_test", "quadrature"]


@dataclass(frozen=True)
class JointTest:
    """The result of `joint_test`.

    Attributes
    ----------
    pvalues : dict of str to float
        One Kolmogorov-Smirnov p-value for each test function.
    """

    pvalues: dict[str, float]

    @property
    def pvalue(self) -> float:
        """The smallest p-value, corrected for their number (Bonferroni)."""
        return min(1.0, min(self.pvalues.values()) * len(self.pvalues))

    def __repr__(self) -> str:
        worst = sorted(self.pvalues.items(), key=lambda item: item[1])[:3]
        shown = ", ".join(f"{name}: {p:.2g}" for name, p in worst)
        return f"JointTest(pvalue={self.pvalue:.3g}, smallest of {len(self.pvalues)}: {shown})"


def joint_test(
    step: Any,
    model: pm.Model,
    *,
    replicates: int = 2000,
    steps: int = 1,
    tune: int = 0,
    rng: np.random.Generator,
) -> JointTest:
    """Test that a step method leaves the joint law of (theta, f, y) invariant.

    Draw (theta, f) from the prior and y from p(y | f, theta), run ``steps`` steps of the sampler
    given that y, and compare the law of what comes out with that of fresh draws. If and only if
    the kernel leaves p(theta, f | y) invariant they agree, for any y. Replicates are independent,
    so unlike the successive-conditional simulator of Geweke (2004) the p-values are exact.

    Parameters
    ----------
    step : PyMC step method
        It is run as after tuning. Give it a sensible scale from the start.
    model : pymc.Model
        The model that ``step`` was made for, with its observations in `pymc.Data` so that they
        can be replaced.
    replicates : int
        Independent repetitions; the test sees deviations of about 1/√replicates in a
        distribution function.
    steps : int
        Steps a replicate. A kernel that errs a little errs more after five.
    tune : int
        Steps of tuning beforehand, on the model's own observations. What they teach is frozen, and
        must be exact for any others.
    rng : numpy.random.Generator

    Returns
    -------
    JointTest
        Test functions: each theta_j; each whitened ν_i = (L⁻¹(f − m))_i and ν_i²; the
        log-likelihood; for each i the score g_i = ∂ℓ/∂f_i, g_i ν_i, and f_i theta_j.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> with pm.Model() as model:
    ...     f = pm.MvNormal("f", mu=[0.5, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=pm.Data("data", [0, 1]))
    ...     step = lgm.EllipticalSlice(f)
    >>> result = lgm.testing.joint_test(step, model, rng=np.random.default_rng(1))
    >>> result.pvalue > 0.001
    True
    """
    data = _replaceable_data(model)
    numeric = LatentGaussianModel.from_pymc(model)
    points, observed = _prior_draws(model, 2 * replicates, rng)
    step.setup_chain(rng, tune, replicates)
    point = model.initial_point()
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    kept = {name: variable.get_value() for name, variable in data.items()}
    after: list[dict[str, float]] = []
    fresh: list[dict[str, float]] = []
    for r in range(2 * replicates):
        for name, variable in data.items():
            variable.set_value(observed[name][r].astype(variable.dtype), borrow=True)
        point = {name: np.array(values[r]) for name, values in points.items()}
        if r < replicates:
            for _ in range(steps):
                point, _ = step.step(point)
        numeric.read(point)
        (after if r < replicates else fresh).append(_test_functions(numeric, point))
    for name, variable in data.items():
        variable.set_value(kept[name])
    names = after[0].keys()
    pvalues = {}
    for name in names:
        ours = np.array([functions[name] for functions in after])
        theirs = np.array([functions[name] for functions in fresh])
        if np.ptp(theirs) == 0 and np.array_equal(ours, theirs):
            continue  # a score that is constant in y says nothing
        pvalues[name] = float(stats.ks_2samp(ours, theirs, method="asymp").pvalue)
    return JointTest(pvalues)


def _test_functions(model: LatentGaussianModel, point: Mapping[str, Any]) -> dict[str, float]:
    theta, f = model.theta_of(dict(point)), np.asarray(point[model.latent])
    prior = factorize(model.cov(theta))
    assert prior is not None, "a prior draw with a singular covariance: raise the model's jitter"
    nu = prior.solve(f - model.mean(theta))
    values = {f"theta[{j}]": theta[j] for j in range(model.p)}
    if model.has_gradient:
        log_likelihood, score = model.log_likelihood_gradient(f, theta)
        values |= {f"score[{i}]": score[i] for i in range(model.n)}
        values |= {f"score*nu[{i}]": score[i] * nu[i] for i in range(model.n)}
    else:
        log_likelihood = model.log_likelihood(f, theta)
    values["log_likelihood"] = log_likelihood
    values |= {f"nu[{i}]": nu[i] for i in range(model.n)}
    values |= {f"nu^2[{i}]": nu[i] ** 2 for i in range(model.n)}
    values |= {
        f"f[{i}]*theta[{j}]": f[i] * theta[j] for i in range(model.n) for j in range(model.p)
    }
    return values


def _replaceable_data(model: pm.Model) -> dict[str, SharedVariable]:
    data = {}
    for rv in model.observed_RVs:
        shared = [v for v in ancestors([model.rvs_to_values[rv]]) if isinstance(v, SharedVariable)]
        if len(shared) != 1:
            raise ValueError(
                f"The joint test replaces the observations of {rv.name!r} in each replicate: "
                f"write observed=pm.Data({rv.name + '_data'!r}, y)."
            )
        data[rv.name] = shared[0]
    return data


def _prior_draws(
    model: pm.Model, draws: int, rng: np.random.Generator
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Independent draws of the value variables and of the observations."""
    transformed = []
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        transformed.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
    drawn = pm.draw([*transformed, *model.observed_RVs], draws=draws, random_seed=rng)
    names = [model.rvs_to_values[rv].name for rv in model.free_RVs]
    points = dict(zip(names, drawn, strict=False))
    observed = {
        rv.name: values for rv, values in zip(model.observed_RVs, drawn[len(names) :], strict=True)
    }
    return points, observed


@dataclass(frozen=True)
class Moments:
    """Posterior mean (p + n,) and covariance of (theta, f), theta on the unconstrained scale."""

    mean: Array
    cov: Array


def quadrature(
    model: LatentGaussianModel,
    theta_grid: Sequence[Array],
    f_grid: Array,
    transform: Callable[[Array], Array] | None = None,
) -> Moments:
    """Compute the posterior moments of a tiny model by the trapezoidal rule on a product grid.

    The rule converges faster than any power of the spacing for densities that vanish at both
    ends; check by halving the spacing.

    Parameters
    ----------
    model : LatentGaussianModel
        n ≤ 3 and p ≤ 2, or memory runs out: the grid has ∏ |theta_grid_j| × |f_grid|^n points.
    theta_grid : sequence of p arrays
        Equidistant points on the unconstrained scale.
    f_grid : ndarray
        Equidistant points, the same for every f_i.
    transform : callable, optional
        Moments of transform(theta), applied to an array (N, p), instead of theta's own.

    Returns
    -------
    Moments

    Notes
    -----
    Uses that the likelihood factorizes: ℓ is tabulated along each f_i, not on the product grid.
    """
    n, p = model.n, model.p
    nodes = np.array(list(itertools.product(f_grid, repeat=n)))
    index = np.array(list(itertools.product(range(f_grid.size), repeat=n)))
    total, first, second = 0.0, np.zeros(p + n), np.zeros((p + n, p + n))
    log_shift = None
    for values in itertools.product(*theta_grid):
        theta = np.array(values, dtype=np.float64)
        prior = factorize(model.cov(theta))
        assert prior is not None
        nu = prior.solve((nodes - model.mean(theta)).T)
        log_density = -0.5 * (nu**2).sum(0) - 0.5 * prior.log_determinant + model.log_prior(theta)
        log_density += _tabulate(model, theta, f_grid)[np.arange(n), index].sum(1)
        log_density += model.log_likelihood(np.zeros(n), theta)
        if log_shift is None:
            log_shift = log_density.max()
        weights = np.exp(log_density - log_shift)
        shown = theta if transform is None else transform(theta[None])[0]
        x = np.column_stack([np.broadcast_to(shown, (len(nodes), p)), nodes])
        total += weights.sum()
        first += weights @ x
        second += (weights[:, None] * x).T @ x
    mean = first / total
    return Moments(mean, second / total - np.outer(mean, mean))


def _tabulate(model: LatentGaussianModel, theta: Array, f_grid: Array) -> Array:
    """ℓ(f_i = x, the rest 0) − ℓ(0) for each i and each x of the grid, shape (n, grid)."""
    base = model.log_likelihood(np.zeros(model.n), theta)
    table = np.empty((model.n, f_grid.size))
    for i, (k, x) in itertools.product(range(model.n), enumerate(f_grid)):
        f = np.zeros(model.n)
        f[i] = x
        table[i, k] = model.log_likelihood(f, theta) - base
    return table
