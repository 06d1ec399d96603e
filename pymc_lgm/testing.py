"""Tests of correctness for samplers of latent Gaussian models, also of third parties.

`joint_test` tests whether a step method leaves p(theta, f | y) invariant, with a valid p-value.
`quadrature` computes the posterior of a tiny model to many digits. `calibrate` tests whether whole
runs, tuning included, draw from the posterior. The tests accept any PyMC step method.

A sampler should pass the first two on every likelihood that it claims to support.
"""

from __future__ import annotations

import itertools
import math

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm

from scipy import stats

from pymc_lgm.calibration import Calibration, calibrate
from pymc_lgm.latent_gaussian import LatentGaussian
from pymc_lgm.linalg import Array, factorize
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.simulated import kept, prior_draws, replace, replaceable_data

__all__ = ["Calibration", "JointTest", "Moments", "calibrate", "joint_test", "quadrature"]


@dataclass(frozen=True)
class JointTest:
    """The result of `joint_test`.

    Attributes
    ----------
    pvalues : dict of str to float
        Two p-values for each test function, one for its mean rank and one for its mean squared
        rank.
    """

    pvalues: dict[str, float]

    @property
    def pvalue(self) -> float:
        """The smallest p-value, corrected for their number (Bonferroni)."""
        return min(1.0, min(self.pvalues.values(), default=1.0) * max(len(self.pvalues), 1))

    def __repr__(self) -> str:
        worst = sorted(self.pvalues.items(), key=lambda item: item[1])[:3]
        shown = ", ".join(f"{name}: {p:.2g}" for name, p in worst)
        return f"JointTest(pvalue={self.pvalue:.3g}, smallest of {len(self.pvalues)}: {shown})"

    @classmethod
    def of_pairs(cls, before: Mapping[str, Array], after: Mapping[str, Array]) -> JointTest:
        """Test that pairs of numbers have the same distribution before and after.

        Let u be the rank of a value among all 2R of its test function, from −1 to 1. Under the
        hypothesis the changes d_r = u_r' − u_r of the R pairs have mean 0, so

            z = Σ d_r / √(Σ d_r²)

        is nearly standard normal; the same holds for u². If the kernel is reversible, the members
        of a pair are exchangeable. Then the d_r have independent random signs given their sizes,
        and the tail probability of z is below 2 exp(−z²/2) for every R (Efron 1969, *Student's
        t-test under symmetry conditions*, JASA 64).

        Parameters
        ----------
        before, after : mapping of str to ndarray, shape (R,)
            Values of each test function in R independent replicates.

        Returns
        -------
        JointTest
            P-values of all test functions except those that never change.

        Raises
        ------
        ValueError
            If a value is NaN.
        """
        pvalues: dict[str, float] = {}
        for name, first in before.items():
            R = len(first)
            if np.isnan(first).any() or np.isnan(after[name]).any():
                raise ValueError(f"{name} is NaN in one of the replicates: check the sampler.")
            ranks = stats.rankdata(np.concatenate([first, after[name]]))
            u = (ranks - R - 0.5) / R
            for label, h in ((name, u), (f"{name} squared", u**2)):
                change = h[R:] - h[:R]
                norm = float(np.linalg.norm(change))
                if norm > 0.0:
                    pvalues[label] = float(2.0 * stats.norm.sf(abs(change.sum()) / norm))
        return cls(pvalues)


def joint_test(
    step: Any,
    model: pm.Model,
    *,
    replicates: int = 1000,
    steps: int = 1,
    tune: int = 0,
    rng: np.random.Generator,
) -> JointTest:
    """Test that a step method leaves the joint distribution of (theta, f, y) invariant.

    The test draws (theta, f) from the prior and y from p(y | f, theta), runs ``steps`` steps of the
    sampler given that y, and compares (theta, f) after with (theta, f) before, replicate by
    replicate. Both have the joint distribution of the model if and only if the kernel leaves
    p(theta, f | y) invariant for every y. Replicates are independent, so the p-values are valid,
    unlike those of the successive-conditional simulator of Geweke (2004). The comparison of pairs
    detects errors also of a kernel with small steps, because components that do not change add no
    noise.

    Parameters
    ----------
    step : PyMC step method
        It is run as after tuning. Give it a sensible scale at the start, or let it tune.
    model : pymc.Model
        The model that ``step`` was made for, with its observations in `pymc.Data` so that they
        can be replaced.
    replicates : int
        Number of independent replicates. The test detects deviations of about 1/√replicates in a
        distribution function, and smaller ones if the kernel moves little.
    steps : int
        Steps per replicate. More steps increase the effect of a small error.
    tune : int
        Steps of tuning before the test, with the model's own observations. The result is frozen,
        and the sampler must be exact with it for any other observations.
    rng : numpy.random.Generator

    Returns
    -------
    JointTest
        The test functions are each theta_j, each whitened ν_i = (L⁻¹(f − m))_i, the log-likelihood,
        and for each i the score g_i = ∂ℓ/∂f_i, g_i ν_i and f_i theta_j.

    Raises
    ------
    ValueError
        If observations cannot be replaced, or if a test function is NaN in a replicate.

    See Also
    --------
    testing.calibrate : Tests whole runs, tuning included.
    testing.quadrature : Exact moments of tiny models.

    References
    ----------
    J. Geweke (2004). Getting it right: joint distribution tests of posterior simulators. Journal of
    the American Statistical Association 99, 799-804.

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
    if isinstance(step, type):
        raise TypeError(
            f"step is a class: write a step method of this model, lgm.{step.__name__}(model=model)."
        )
    data = replaceable_data(model)
    numeric = LatentGaussianModel.from_pymc(model)
    points, observed = prior_draws(model, replicates, rng)
    step.setup_chain(rng, tune, replicates)
    point = model.initial_point()
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()

    def functions(point: Mapping[str, Any]) -> dict[str, float]:
        numeric.read(dict(point))
        theta = numeric.theta_of(dict(point))
        f = numeric.f_of(theta, dict(point))
        values = joint_values(numeric, theta, f)
        return values if numeric.is_one_vector else _with_latents(values, numeric, point, theta, f)

    before, after = [], []
    with kept(data):
        for r in range(replicates):
            replace(data, {name: values[r] for name, values in observed.items()})
            point = {name: np.array(values[r]) for name, values in points.items()}
            before.append(functions(point))
            for _ in range(steps):
                point, _ = step.step(point)
            after.append(functions(point))
    return JointTest.of_pairs(_columns(before), _columns(after))


def joint_values(model: LatentGaussian, theta: Array, f: Array) -> dict[str, float]:
    """Values of the test functions of `joint_test` at one point.

    Parameters
    ----------
    model : LatentGaussian
        The model with the y of this replicate.
    theta : ndarray, shape (p,)
    f : ndarray, shape (n,)
    """
    prior = model.prior(theta)
    assert prior is not None, "a prior draw whose covariance cannot be computed"
    assert prior.is_proper, "a prior draw with a singular covariance: raise the model's jitter"
    nu = prior.solve(f - prior.mean)
    values = {f"theta[{j}]": float(theta[j]) for j in range(theta.size)}
    values |= {f"nu[{i}]": float(nu[i]) for i in range(nu.size)}
    if getattr(model, "has_gradient", True):
        log_likelihood, score = model.log_likelihood_gradient(f, theta)
        values |= {f"score[{i}]": float(score[i]) for i in range(f.size)}
        pulled = score if prior.rank == prior.n else prior.multiply_transposed(score)
        values |= {f"score*nu[{i}]": float(pulled[i] * nu[i]) for i in range(nu.size)}
    else:
        log_likelihood = model.log_likelihood(f, theta)
    values["log_likelihood"] = log_likelihood
    values |= {
        f"f[{i}]*theta[{j}]": float(f[i] * theta[j])
        for i in range(f.size)
        for j in range(theta.size)
    }
    return values


def _with_latents(
    values: dict[str, float],
    numeric: LatentGaussianModel,
    point: Mapping[str, Any],
    theta: Array,
    f: Array,
) -> dict[str, float]:
    """Add test functions of latent variables that f is the predictor of."""
    read = np.arange(f.size)[numeric.form.of_eta]
    for name in numeric.latents:
        for i, x in enumerate(np.ravel(point[name])):
            at = int(read[i % read.size])
            values |= {f"{name}[{i}]": float(x), f"{name}[{i}] squared": float(x * x)}
            values[f"{name}[{i}]*f"] = float(x * f[at])
            if i < read.size and (score := values.get(f"score[{at}]")) is not None:
                values[f"{name}[{i}]*score"] = float(x * score)
            values |= {f"{name}[{i}]*theta[{j}]": float(x * t) for j, t in enumerate(theta)}
    return values


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, Array]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


@dataclass(frozen=True)
class Moments:
    """Posterior mean (p + n,) and covariance of (theta, f), theta on the unconstrained scale."""

    mean: Array
    cov: Array


def quadrature(
    model: LatentGaussian,
    theta_grid: Sequence[Array],
    f_grid: Array,
    transform: Callable[[Array], Array] | None = None,
) -> Moments:
    """Compute the posterior moments of a tiny model by the trapezoidal rule on a product grid.

    For densities that vanish at both ends, the rule converges faster than any power of the spacing.
    Halve the spacing to check the result.

    Parameters
    ----------
    model : LatentGaussian
        Model with n ≤ 3 and p ≤ 2. The grid has ∏ |theta_grid_j| × |f_grid|^n points, so larger
        models exceed the memory.
    theta_grid : sequence of p arrays
        Equidistant points on the unconstrained scale.
    f_grid : ndarray
        Equidistant points, the same for every f_i.
    transform : callable, optional
        Compute moments of transform(theta), applied to an array (N, p), instead of theta.

    Returns
    -------
    Moments

    See Also
    --------
    testing.joint_test : A test for models of any size.

    Notes
    -----
    The likelihood factorizes, so ℓ is tabulated along each f_i instead of on the product grid.
    """
    n = model.mean(np.array([grid[0] for grid in theta_grid])).size
    p = len(theta_grid)
    nodes = np.array(list(itertools.product(f_grid, repeat=n)))
    index = np.array(list(itertools.product(range(f_grid.size), repeat=n)))
    total = 0.0
    first = np.zeros(p + n)
    second = np.zeros((p + n, p + n))
    log_shift = -math.inf
    for values in itertools.product(*theta_grid):
        theta = np.array(values, dtype=np.float64)
        prior = factorize(model.cov(theta))
        assert prior is not None
        nu = prior.solve((nodes - model.mean(theta)).T)
        log_density = -0.5 * (nu**2).sum(0) - 0.5 * prior.log_determinant + model.log_prior(theta)
        log_density += _tabulate(model, theta, f_grid, n)[np.arange(n), index].sum(1)
        log_density += model.log_likelihood(np.zeros(n), theta)
        if (largest := log_density.max()) == -math.inf:
            continue
        if largest > log_shift:  # rescale the sum so far to the new largest term
            smaller = math.exp(log_shift - largest)
            total, first, second = smaller * total, smaller * first, smaller * second
            log_shift = largest
        weights = np.exp(log_density - log_shift)
        shown = theta if transform is None else transform(theta[None])[0]
        x = np.column_stack([np.broadcast_to(shown, (len(nodes), p)), nodes])
        total += weights.sum()
        first += weights @ x
        second += (weights[:, None] * x).T @ x
    mean = first / total
    return Moments(mean, second / total - np.outer(mean, mean))


def _tabulate(model: LatentGaussian, theta: Array, f_grid: Array, n: int) -> Array:
    """ℓ(f_i = x, the rest 0) − ℓ(0) for each i and each x of the grid, shape (n, grid)."""
    base = model.log_likelihood(np.zeros(n), theta)
    table = np.empty((n, f_grid.size))
    for i, (k, x) in itertools.product(range(n), enumerate(f_grid)):
        f = np.zeros(n)
        f[i] = x
        table[i, k] = model.log_likelihood(f, theta) - base
    return table
