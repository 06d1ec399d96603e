"""Simulation-based calibration: whether whole runs, tuning included, end in the posterior."""

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
"""Elements of a variable up to which all of them are looked at."""

Job = tuple[np.random.Generator, dict[str, Array], dict[str, Array]]


@dataclass(frozen=True)
class Calibration:
    """The result of `calibrate`.

    Attributes
    ----------
    ranks : dict of str to ndarray, shape (replicates,)
        Of each test function: where the draw from the prior is among the draws of the run, from 0
        to 1. Uniform if the runs end in the posterior. Above a half too often: the runs are too
        low. Near both ends too often: they are too narrow.
    effective : dict of str to ndarray, shape (replicates,)
        Effective draws of each run.
    pvalues : dict of str to float
        Of the uniformity of the ranks.
    """

    ranks: dict[str, Array]
    effective: dict[str, Array]
    pvalues: dict[str, float]

    @property
    def replicates(self) -> int:
        """How many runs there were."""
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
        """Draw the distribution functions of the ranks, less that of the uniform law.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            By default a new figure's.
        level : float
            Probability that one curve stays within the gray band all along, if runs end in the
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
    step: Callable[[], Any] | None = None,
    *,
    replicates: int = 100,
    draws: int = 500,
    tune: int = 1000,
    chains: int = 1,
    elements: int = 3,
    map: Callable[..., Iterable[Any]] = builtins.map,
    rng: np.random.Generator,
) -> Calibration:
    """Test that whole runs of a sampler, from the start and with their tuning, draw the posterior.

    Draw (theta, f) from the prior and y from p(y | f, theta), run the sampler given that y, and
    find the rank of what was drawn among the draws of the run [1]_. If and only if runs end in the
    posterior, ranks are uniform for every function of (theta, f, y). `joint_test` sees smaller
    errors of a kernel in less time; this test sees what it cannot: tuning that is too short or does
    not end, starts that are never left, an option that was chosen while the model was read.

    A run of L draws, thinned until they are nearly independent, gives the rank

        u = (#{t(x_l) < t(x)} + V (1 + #{t(x_l) = t(x)})) / (L + 1),    V uniform on (0, 1),

    which is uniform for every L. Kept are half as many draws as are effective: neighbors at the
    distance of effective draws are still correlated, by exp(−2).

    Parameters
    ----------
    model : pymc.Model
        Any, with proper priors, and with its observations in `pymc.Data` so that they can be
        replaced.
    step : callable, optional
        Makes a step method in the context of the model, or a list of some, as for ``pm.sample``:
        ``lgm.ASIS``. By default what ``pm.sample()`` would take.
    replicates : int
        Independent runs. The test sees deviations of about 1/√replicates in a distribution
        function.
    draws, tune, chains : int
        Of each run, as in ``pm.sample``.
    elements : int
        How many elements are looked at of a variable with more than 8, at equal distances.
    map : callable
        ``map(function, jobs)`` gives the results in the order of the jobs: the built-in, or one
        that runs them in other processes and pickles the function, which holds model and step, by
        cloudpickle.
    rng : numpy.random.Generator
        Each replicate has a generator spawned from it: where and in which order they run changes
        nothing.

    Returns
    -------
    Calibration
        Test functions: elements of each variable, on the unconstrained scale, and the
        log-likelihood.

    Raises
    ------
    ValueError
        If observations cannot be replaced, or if all that ``pm.sample()`` would take is NUTS, which
        it tunes in a way of its own.

    Notes
    -----
    The step is made, and its functions are compiled, once. It goes through what ``pm.sample`` does
    with each chain: the state in which it was made, `setup_chain`, and tuning from the model's
    initial point on. The p-values are those of `uniformity`: the smallest band of [2]_ that holds
    the ranks, exactly.

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
    # A copy each: what is drawn at once is one array, whose rows a job would carry all of.
    jobs: list[Job] = [
        (
            generator,
            {name: np.array(values[r]) for name, values in points.items()},
            {name: np.array(values[r]) for name, values in observed.items()},
        )
        for r, generator in enumerate(rng.spawn(replicates))
    ]
    run = _Run(model, _made(model, step), data, (draws, tune, chains), elements)
    with kept(data):
        found = list(map(run, jobs))
    ranks = {name: np.array([u[name] for u, _ in found]) for name in run.names}
    effective = {name: np.array([ess[name] for _, ess in found]) for name in run.names}
    return Calibration(ranks, effective, {name: uniformity_pvalue(u) for name, u in ranks.items()})


class _Run:
    """One replicate after the other, or some of them in another process."""

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
        """Ranks and effective draws of a replicate."""
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
        """What `pymc.sample` does with a chain; test functions of its draws, (draws, functions)."""
        step, point, found = self.step, self.start, []
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


def _made(model: pm.Model, step: Callable[[], Any] | None) -> Any:
    """What `pymc.sample` would make of its argument ``step``."""
    with model:
        given, selected = assign_step_methods(model, None if step is None else step())
        if not given and set(selected) == {pm.NUTS}:
            raise ValueError(
                "pm.sample() would tune NUTS in a way of its own for this model: name what to run, "
                "step=lgm.ASIS or step=pm.NUTS."
            )
        made = instantiate_steppers(model, steps=given, selected_steps=selected)
    return CompoundStep(made) if isinstance(made, list) else made


def _picked(model: pm.Model, point: Mapping[str, Any], elements: int) -> dict[str, tuple[str, int]]:
    """Names of test functions, each with a value variable and which element of it."""
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
    """Half as many draws as are effective, at equal distances."""
    count = min(max(int(ess / 2), 1), values.size) if np.isfinite(ess) else 1
    return values[np.arange(count) * values.size // count]
