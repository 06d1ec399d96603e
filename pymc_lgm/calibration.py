"""Simulation-based calibration of whole runs, tuning included."""

from __future__ import annotations

import builtins

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

from pymc.sampling.mcmc import assign_step_methods, instantiate_steppers
from pymc.step_methods.compound import CompoundStep

from pymc_lgm.linalg import Array
from pymc_lgm.simulated import kept, prior_draws, replace, replaceable_data
from pymc_lgm.uniformity import envelope, uniformity_pvalue

__all__ = ["Calibration", "calibrate"]

ALL = 8
"""A variable with at most this many elements is tested in all of them."""

Job = tuple[np.random.Generator, dict[str, Array], dict[str, Array]]


@dataclass(frozen=True)
class Calibration:
    """The result of `calibrate`.

    Attributes
    ----------
    ranks : dict of str to ndarray, shape (replicates,)
        Rank of the prior draw among the draws of the run, from 0 to 1, for each test function.
        Ranks are uniform if the runs draw from the posterior. Too many ranks above a half mean that
        the runs are too low. Too many ranks near both ends mean that they are too narrow.
    effective : dict of str to ndarray, shape (replicates,)
        Effective sample size of each run.
    pvalues : dict of str to float
        P-value of a test that the ranks are uniform.
    """

    ranks: dict[str, Array]
    effective: dict[str, Array]
    pvalues: dict[str, float]

    @property
    def replicates(self) -> int:
        """Number of runs."""
        return len(next(iter(self.ranks.values())))

    @property
    def pvalue(self) -> float:
        """The smallest p-value, corrected for their number (Bonferroni)."""
        return min(1.0, min(self.pvalues.values()) * len(self.pvalues))

    def __repr__(self) -> str:
        worst = sorted(self.pvalues.items(), key=lambda item: item[1])[:3]
        shown = ", ".join(f"{name}: {p:.2g}" for name, p in worst)
        return (
            f"Calibration(pvalue={self.pvalue:.3g}, replicates={self.replicates}, "
            f"smallest of {len(self.pvalues)}: {shown})"
        )

    def plot(self, ax: Any = None, *, level: float = 0.95, title: str | None = None) -> Any:
        """Plot the distribution functions of the ranks, less that of the uniform distribution.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            By default the axes of a new figure.
        level : float
            Probability that a whole curve lies within the gray band if runs draw from the
            posterior.
        title : str, optional

        Returns
        -------
        matplotlib.axes.Axes
        """
        if ax is None:
            _, ax = import_module("matplotlib.pyplot").subplots(layout="constrained")
        points, lower, upper = envelope(self.replicates, level)
        grid = np.concatenate([[0.0], points, [1.0]])
        bounds = (np.concatenate([[0.0], each - points, [0.0]]) for each in (lower, upper))
        ax.fill_between(grid, *bounds, color="0.9", lw=0, label=f"{100 * level:g} % band")
        for name, u in self.ranks.items():
            heights = np.searchsorted(np.sort(u), grid, side="right") / u.size
            ax.plot(grid, heights - grid, lw=1, label=name)
        ax.set(xlabel="rank of the prior's draw", ylabel="distribution − uniform", xlim=(0, 1))
        if title is not None:
            ax.set_title(title)
        return ax


def calibrate(
    model: pm.Model,
    step: Any = None,
    *,
    replicates: int = 100,
    draws: int = 500,
    tune: int = 1000,
    chains: int = 1,
    elements: int = 3,
    map: Callable[..., Iterable[Any]] = builtins.map,
    rng: np.random.Generator,
) -> Calibration:
    """Test that whole runs of a sampler, from start and tuning on, draw from the posterior.

    The test draws (theta, f) from the prior and y from p(y | f, theta), runs the sampler given that
    y, and computes the rank of (theta, f) among the draws of the run [1]_. Ranks are uniform for
    every function of (theta, f, y) if and only if runs draw from the posterior. `joint_test`
    detects smaller errors of a kernel in less time. This test also detects errors outside of a
    kernel: tuning that is too short or does not end, chains that never leave their start, a wrong
    choice made when the model was read.

    A run of L draws, thinned until they are nearly independent, gives the rank

        u = (#{t(x_l) < t(x)} + V (1 + #{t(x_l) = t(x)})) / (L + 1),    V uniform on (0, 1),

    which is uniform for every L. Half as many draws as the effective sample size are used, because
    draws at the distance of effective draws are still correlated by exp(−2).

    Parameters
    ----------
    model : pymc.Model
        A model with proper priors, and with its observations in `pymc.Data` so that they can be
        replaced.
    step : callable or step method, optional
        Makes a step method, or a list of them, in the context of the model, for example
        ``lgm.ASIS``; or these themselves. By default the choice of ``pm.sample()``.
    replicates : int
        Number of independent runs. The test detects deviations of about 1/√replicates in a
        distribution function.
    draws, tune, chains : int
        Options of each run, as in ``pm.sample``.
    elements : int
        Number of tested elements of a variable with more than 8, at equal distances.
    map : callable
        ``map(function, jobs)`` returns the results in the order of the jobs. It is the built-in
        function, or one that runs jobs in other processes. The latter must pickle ``function`` by
        cloudpickle, since it contains model and step.
    rng : numpy.random.Generator
        Each replicate has a generator spawned from it, so results do not depend on the order or
        place of the runs.

    Returns
    -------
    Calibration
        Test functions: elements of each variable, on the unconstrained scale, and the
        log-likelihood.

    Raises
    ------
    ValueError
        If observations cannot be replaced, or if ``pm.sample()`` would choose only NUTS, which it
        tunes differently.

    See Also
    --------
    testing.joint_test : Detects smaller errors of a kernel in less time.
    testing.quadrature : Exact moments of tiny models.

    Notes
    -----
    The step is made and compiled once. Each run treats it as ``pm.sample`` treats a chain: it
    restores the state in which the step was made, calls `setup_chain`, and tunes from the model's
    initial point. The p-values are those of `uniformity`: they are exact, and belong to the
    smallest band of [2]_ that contains the ranks.

    References
    ----------
    .. [1] Talts, Betancourt, Simpson, Vehtari, Gelman (2018), *Validating Bayesian inference
       algorithms with simulation-based calibration*, arXiv:1804.06788, algorithm 2.
    .. [2] Säilynoja, Bürkner, Vehtari (2022), *Graphical test for discrete uniformity and its
       applications in goodness-of-fit evaluation and multiple sample comparison*, Statistics and
       Computing 32.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> with pm.Model() as model:
    ...     f = pm.MvNormal("f", mu=[0.5, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=pm.Data("data", [0, 1]))
    >>> rng = np.random.default_rng(1)
    >>> result = lgm.testing.calibrate(
    ...     model, lgm.EllipticalSlice, replicates=20, draws=100, tune=10, rng=rng
    ... )
    >>> result.pvalue > 0.001
    True
    """
    data = replaceable_data(model)
    points, observed = prior_draws(model, replicates, rng)
    # Copies, since a row is a view of the array of all draws, and would be pickled with all of it.
    jobs: list[Job] = []
    for r, generator in enumerate(rng.spawn(replicates)):
        point = {name: np.array(values[r]) for name, values in points.items()}
        y = {name: np.array(values[r]) for name, values in observed.items()}
        jobs.append((generator, point, y))
    run = _Run(model, _made(model, step), data, (draws, tune, chains), elements)
    with kept(data):
        found = list(map(run, jobs))
    ranks = {name: np.array([u[name] for u, _ in found]) for name in run.names}
    effective = {name: np.array([ess[name] for _, ess in found]) for name in run.names}
    return Calibration(ranks, effective, {name: uniformity_pvalue(u) for name, u in ranks.items()})


class _Run:
    """The replicates, run in turn or in another process."""

    def __init__(
        self,
        model: pm.Model,
        step: Any,
        data: Mapping[str, Any],
        lengths: tuple[int, int, int],
        elements: int,
    ):
        self.step, self.data = step, data
        self.made = step.sampling_state
        self.start = model.initial_point()
        self.draws, self.tune, self.chains = lengths
        self.picked = _picked(model, self.start, elements)
        self.log_likelihood = model.compile_logp(vars=model.observed_RVs)
        self.names = [*self.picked, "log_likelihood"]

    def __call__(self, job: Job) -> tuple[dict[str, float], dict[str, float]]:
        """Ranks and effective sample sizes of a replicate."""
        rng, truth, observed = job
        replace(self.data, observed)
        *generators, rng = rng.spawn(self.chains + 1)
        values = np.array([self._chain(generator) for generator in generators])
        ranks: dict[str, float] = {}
        effective: dict[str, float] = {}
        for j, (name, x) in enumerate(zip(self.names, self._functions(truth), strict=True)):
            ess = float(az.ess(values[:, :, j], method="bulk"))
            thinned = _spread(values[:, :, j].ravel(), ess)
            equal = 1 + np.count_nonzero(thinned == x)
            rank = np.count_nonzero(thinned < x) + rng.uniform() * equal
            ranks[name] = float(rank / (thinned.size + 1))
            effective[name] = ess
        return ranks, effective

    def _chain(self, rng: np.random.Generator) -> list[list[float]]:
        """Run a chain as `pymc.sample` does; return its test functions, (draws, functions)."""
        step = self.step
        point = self.start
        found = []
        step.sampling_state = self.made
        step.setup_chain(rng, self.tune, self.draws)
        step.tune = self.tune > 0
        if hasattr(step, "reset_tuning"):
            step.reset_tuning()
        for i in range(self.tune + self.draws):
            if i == self.tune:
                step.stop_tuning()
            point, _ = step.step(point)
            if i >= self.tune:
                found.append(self._functions(point))
        return found

    def _functions(self, point: Mapping[str, Any]) -> list[float]:
        values = [float(np.ravel(point[name])[i]) for name, i in self.picked.values()]
        return [*values, float(self.log_likelihood(point))]


def _made(model: pm.Model, step: Any) -> Any:
    """The step method that `pymc.sample` would use for its argument ``step``."""
    with model:
        given, selected = assign_step_methods(model, step() if callable(step) else step)
        if not given and set(selected) == {pm.NUTS}:
            raise ValueError(
                "pm.sample() would use NUTS here and tune it differently: name what to run, "
                "step=lgm.ASIS or step=pm.NUTS."
            )
        made = instantiate_steppers(model, steps=given, selected_steps=selected)
    return CompoundStep(made) if isinstance(made, list) else made


def _picked(model: pm.Model, point: Mapping[str, Any], elements: int) -> dict[str, tuple[str, int]]:
    """Names of test functions, each with a value variable and the index of an element."""
    found = {}
    for rv in model.free_RVs:
        value = model.rvs_to_values[rv].name
        size, shape = np.size(point[value]), np.shape(point[value])
        shown: Sequence[int] = range(size)
        if size > ALL:
            shown = np.unique(np.linspace(0, size - 1, elements).round().astype(int)).tolist()
        for i in shown:
            index = ", ".join(map(str, np.unravel_index(i, shape)))
            found[f"{rv.name}[{index}]" if shape else str(rv.name)] = (value, i)
    return found


def _spread(values: Array, ess: float) -> Array:
    """Half as many draws as the effective sample size, at equal distances."""
    count = min(max(int(ess / 2), 1), values.size) if np.isfinite(ess) else 1
    return values[np.arange(count) * values.size // count]
