"""The plan of a study, its chains, and how a worker runs one of them.

Its steps are those of `pymc.sample` before the first draw, in the same order and with the same
seeds.
"""

from __future__ import annotations

import pickle
import threading

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from time import monotonic, perf_counter
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
import xarray as xr

from pymc.backends.base import MultiTrace
from pymc.backends.ndarray import NDArray
from pymc.initial_point import make_initial_point_fns_per_chain
from pymc.pytensorf import resolve_backend_compile_kwargs
from pymc.sampling.mcmc import (
    assign_step_methods,
    get_default_tune_steps,
    instantiate_steppers,
)
from pymc.step_methods import NUTS, STEP_METHODS, CompoundStep
from pymc.step_methods.arraystep import PopulationArrayStepShared
from pymc.step_methods.compound import flatten_steps
from pymc.util import RandomGeneratorState, drop_warning_stat, random_generator_from_state
from threadpoolctl import threadpool_limits

__all__ = ["Chain", "Plan", "Ready", "Stopped", "chain_of", "gathered"]

APART: dict[str, Any] = {
    "data_vars": "minimal",
    "coords": "minimal",
    "compat": "override",
    "join": "exact",
    "combine_attrs": "override",
}
"""Options of `xarray.concat`: variables with the dimension are joined, the others are equal."""

TIME = "sampling_time"

StepFactory = Callable[[], Any] | None
"""Makes a step method, or a list of them, inside the model context; None if PyMC chooses."""


@dataclass(frozen=True)
class Plan:
    """The settings that all chains of a study share."""

    model: pm.Model
    step: StepFactory
    rngs: tuple[RandomGeneratorState, ...]
    """One generator per chain, spawned as in `pymc.sample`."""
    draws: int
    tune: int | None
    options: dict[str, Any]
    """Options of `pymc.sample`. Options that it does not know are for the step methods."""
    kept: bool
    """Whether the last state of a chain is needed."""


@dataclass(frozen=True)
class Chain:
    """A finished chain.

    Attributes
    ----------
    groups : dict of str to xarray.Dataset
        The groups that `pymc.sample` returns, with one chain.
    state : bytes
        A pickle from which the chain can continue: the step method's ``sampling_state`` and the
        point. Empty if it is not needed, or if it cannot be pickled.
    worker : str
        The process that ran it; empty if it was read from a folder.
    """

    groups: dict[str, xr.Dataset]
    state: bytes
    worker: str = ""

    @property
    def seconds(self) -> float:
        """The sampling time in seconds of the study when the chain ended."""
        return float(self.groups["posterior"].attrs[TIME])

    def timed(self, elapsed: float) -> Chain:
        """Return this chain with another sampling time."""
        groups = {
            name: group.assign_attrs({TIME: elapsed}) if TIME in group.attrs else group
            for name, group in self.groups.items()
        }
        return replace(self, groups=groups)

    def after(self, first: Chain) -> Chain:
        """The chain that this one continues, with its draws."""
        groups = dict(first.groups)
        for name, group in self.groups.items():
            if "draw" in group.dims and not name.startswith("warmup_"):
                begin = first.groups[name].sizes["draw"]
                later = group.assign_coords(draw=group["draw"] + begin)
                groups[name] = xr.concat([first.groups[name], later], "draw", **APART)
        return replace(self, groups=groups)


def gathered(chains: Sequence[Chain]) -> xr.DataTree:
    """Put chains side by side, as `pymc.sample` does."""
    groups = {}
    for name, group in chains[0].groups.items():
        if "chain" in group.dims:
            group = xr.concat([chain.groups[name] for chain in chains], "chain", **APART)
            if TIME in group.attrs:
                group.attrs[TIME] = max(chain.seconds for chain in chains)
        groups[name] = group
    return xr.DataTree.from_dict(groups)


class Ready:
    """A plan in a process, with step methods, compiled functions and the start of each chain."""

    def __init__(self, plan: Plan):
        self.plan = plan
        options = dict(plan.options)
        self.idata_kwargs = options.pop("idata_kwargs", None) or {}
        self.discard = options.pop("discard_tuned_samples", True)
        var_names = options.pop("var_names", None)
        # Each chain continues with its generator after it has drawn its seed.
        self.rngs = [random_generator_from_state(state) for state in plan.rngs]
        seeds = [rng.integers(2**30) for rng in self.rngs]
        self.starts, self.step = self._made(seeds, options)
        for each in flatten_steps(self.step):
            if isinstance(each, PopulationArrayStepShared):
                raise ValueError(
                    f"{type(each).__name__} moves all chains together, but here each chain has a "
                    "process of its own: write pm.sample(step=...)."
                )
        self.fresh = self.step.sampling_state
        self.tune = get_default_tune_steps(self.step, plan.tune)
        traced = None if var_names is None else self._traced(var_names)
        self.trace = NDArray(model=plan.model, vars=traced, test_point=self.starts[0])

    def _made(self, seeds: list[Any], options: dict[str, Any]) -> tuple[list[Any], Any]:
        """Make the start of each chain and the step method, as `pymc.sample` does."""
        model = self.plan.model
        chains = len(seeds)
        initvals = options.pop("initvals", None)
        init = options.pop("init", "auto")
        retries = options.pop("jitter_max_retries", 10)
        n_init = options.pop("n_init", 200_000)
        compile_kwargs = resolve_backend_compile_kwargs(
            options.pop("backend", None), options.pop("compile_kwargs", None)
        )
        if "target_accept" in options:
            target = {"target_accept": options.pop("target_accept")}
            options["nuts"] = options.get("nuts", {}) | target
        made = None if self.plan.step is None else self.plan.step()
        provided, selected = assign_step_methods(model, made, methods=STEP_METHODS)
        if not provided and [issubclass(each, NUTS) for each in selected] == [True]:
            # Its metric is computed from all starting points.
            return pm.init_nuts(
                init=init,
                chains=chains,
                n_init=n_init,
                model=model,
                random_seed=seeds,
                progressbar=False,
                quiet=True,
                jitter_max_retries=retries,
                tune=self.plan.tune,
                initvals=initvals,
                compile_kwargs=compile_kwargs,
                **{**options.pop("nuts", {}), **options},
            )
        start_of = make_initial_point_fns_per_chain(
            model=model, overrides=initvals, jitter_rvs=set(), chains=chains
        )
        starts = [start(seed) for start, seed in zip(start_of, seeds, strict=True)]
        step = instantiate_steppers(
            model,
            steps=provided,
            selected_steps=selected,
            step_kwargs=options,
            initial_point=starts[0],
            compile_kwargs=compile_kwargs,
        )
        return starts, CompoundStep(step) if isinstance(step, list) else step

    def _traced(self, var_names: Sequence[str]) -> list[Any]:
        """Return the variables that the trace has."""
        model = self.plan.model
        if unknown := set(var_names) - {rv.name for rv in model.unobserved_RVs}:
            raise ValueError(f"var_names has {sorted(unknown)}, which the model does not.")
        named = [rv for rv in model.unobserved_RVs if rv.name in var_names]
        return model.replace_rvs_by_values(named)

    def run(self, number: int, resumed: bytes | None, heard: Callable[[int, int], None]) -> Chain:
        """Run a chain from its start, or from the last state of another.

        ``heard(done, of)`` is called after each draw.
        """
        step = self.step
        draws = self.plan.draws
        tune = self.tune if resumed is None else 0
        step.sampling_state = self.fresh
        # A copy, so that a second run of the chain in this process has the same generator.
        rng = random_generator_from_state(pm.util.get_state_from_generator(self.rngs[number]))
        step.setup_chain(rng, self.tune, draws)
        point = {name: np.array(value) for name, value in self.starts[number].items()}
        if resumed is not None:
            step.sampling_state, point = pickle.loads(resumed)
        trace = NDArray(
            model=self.plan.model,
            vars=self.trace.vars,
            fn=self.trace.fn,
            var_shapes=self.trace.var_shapes,
            var_dtypes=self.trace.var_dtypes,
        )
        trace.setup(tune + draws, number, step.stats_dtypes)
        began = perf_counter()
        for draw in range(tune + draws):
            if draw == tune and resumed is None:
                step.stop_tuning()
            point, stats = step.step(point)
            trace.record(point, stats, in_warmup=draw < tune)
            heard(draw + 1, tune + draws)
        trace.close()
        state = b""
        if self.plan.kept:
            # If a step method has no state that can be pickled, the draws are stored all the same.
            with suppress(Exception):
                state = pickle.dumps((step.sampling_state, point))
        return Chain(self._groups(trace, number, tune, perf_counter() - began), state)

    def _groups(
        self, trace: NDArray, number: int, tune: int, seconds: float
    ) -> dict[str, xr.Dataset]:
        """Convert the trace as `pymc.sample` does."""
        kept = MultiTrace([trace])
        if self.discard:
            kept = kept[tune:]
        # PyMC's converter reads the end of tuning from the report.
        report = kept.report
        report._n_tune = tune
        report._n_draws = self.plan.draws
        report._t_sampling = seconds
        settings = {"model": self.plan.model, "save_warmup": not self.discard} | self.idata_kwargs
        tree = drop_warning_stat(pm.to_inference_data(kept, **settings))
        groups = {name: group.to_dataset() for name, group in tree.children.items()}
        return {
            name: group.assign_coords(chain=[number]) if "chain" in group.dims else group
            for name, group in groups.items()
        }


# On a worker: one chain per task, and one at a time per process

EVERY = 0.5
"""Seconds between two reports of a chain's progress."""

_AT_WORK = threading.Lock()
"""Lock: PyTensor compiles in one thread, and a step method has the state of one chain."""


class Stopped(Exception):
    """The chain was canceled."""


def chain_of(plan: bytes, number: int, resumed: bytes | None, topic: str) -> Chain:
    """Run a chain of a pickled plan, with one thread for BLAS."""
    with _AT_WORK, threadpool_limits(limits=1, user_api="blas"):
        ready = _ready(plan)
        voice = _Voice(topic, number)
        with ready.plan.model:
            return replace(ready.run(number, resumed, voice), worker=voice.worker.address)


@lru_cache(maxsize=1)
def _ready(plan: bytes) -> Ready:
    """The plan with its model compiled, which the next chain of this process uses again."""
    unpickled = cloudpickle.loads(plan)
    with unpickled.model:
        return Ready(unpickled)


class _Voice:
    """Reports the progress of a chain to the client, and checks whether it was canceled."""

    def __init__(self, topic: str, number: int):
        from distributed import get_worker

        self.worker = get_worker()
        self.topic = topic
        self.number = number
        self.task = self.worker.get_current_task()
        self.said = -EVERY

    def __call__(self, done: int, of: int) -> None:
        """Send a report if `EVERY` seconds have passed since the last."""
        now = monotonic()
        if now - self.said < EVERY and done < of:
            return
        self.said = now
        self.worker.log_event(self.topic, (self.number, done, of))
        # A thread cannot be stopped from outside, so a canceled task ends itself.
        task: Any = self.worker.state.tasks.get(self.task)
        if task is None or task.state in ("cancelled", "resumed"):
            raise Stopped(f"Chain {self.number} was canceled.")
