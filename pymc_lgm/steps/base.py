"""The glue between sweeps and `pymc.sample`: variables, points, tuning, statistics, progress.

This file holds everything that PyMC asks of a step method.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from typing import Any, ClassVar

import numpy as np
import pymc as pm

from pymc.distributions.distribution import PartialObservedRV
from pymc.exceptions import SamplingError
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars
from pymc.vartypes import continuous_types
from rich.progress import TextColumn
from rich.table import Column

from pymc_lgm import samplers
from pymc_lgm.likelihoods.registry import is_marked
from pymc_lgm.linalg import tally
from pymc_lgm.model import (
    LatentGaussianModel,
    all_but,
    find_latents,
    is_gaussian,
    is_process,
    refuse_left_gaussians,
)
from pymc_lgm.model.diagnose import explain, raised_in_a_draw
from pymc_lgm.model.reading import Reading
from pymc_lgm.model.refusals import no_model, not_a_hyperparameter
from pymc_lgm.state import State
from pymc_lgm.steps.messages import COMPILING, KNOWN, announced, offer, say_what_is_repeated
from pymc_lgm.steps.options import public_name, unknown_options
from pymc_lgm.threads import ROWS_WORTH_THREADS, few_threads

__all__ = ["LatentGaussianStep", "values_of"]


PRIOR_AUDITS = 2
"""Points drawn from the prior at which a new step compares its density with PyMC's."""

TUNING_AUDITS = 4
"""Comparisons with PyMC's density per chain during tuning.

On README's example these and the longer one after the last draw of tuning take 2.1 percent of its
time, and with seven 2.8 percent. The five later ones take half a percent of the time of sampling.
"""

SAMPLING_AUDITS = 5
"""Comparisons per chain after tuning, the last of them at its last draw.

A chain may reach a region after tuning in which a density is lost in rounding, and stay there.
"""


@dataclass_state
class LatentGaussianStepState(StepMethodState):
    """Everything other than the point that a draw depends on."""

    tune: bool
    tune_length: int
    tunings: list[Any]
    carried: dict[str, Any]


class LatentGaussianStep(BlockedStep):
    """A sweep over f and theta as a PyMC step method.

    A subclass sets its options, calls this constructor, and returns its kernels from `_sweep`.

    Parameters
    ----------
    vars : sequence of variables, optional
        f and the hyper-parameters to move, as random variables, value variables or names. By
        default all continuous variables. f may be left out if the model has one latent.
    model : pymc.Model, optional
        By default the model of the context.
    rng : numpy.random.Generator or seed, optional
    initial_point : dict, optional
        Point at which the model is checked; by default ``model.initial_point()``.
    compile_kwargs : dict, optional
        Passed to PyTensor, as in `pymc.sample`.
    blocked : bool
        If ``False``, PyMC makes one step per variable, but f and theta need one step together.
    theta : sequence of variables or names, optional
        Hyper-parameters that could be latent, such as an onset with a ``pm.Normal`` prior. They are
        not integrated out. All other hyper-parameters are found as always.
    """

    name = "lgm"
    default: ClassVar[type[LatentGaussianStep] | None] = None
    """The step method that claims variables automatically; set in `pymc_lgm.steps`."""
    moves_theta: ClassVar[bool] = True
    collapses: bool = False
    """Whether coefficients in a process's mean count as latent if all variables are moved."""
    _state_class = LatentGaussianStepState

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Look for the model as PyMC does, and raise our own message if there is none."""
        try:
            pm.modelcontext(kwargs.get("model"))
        except TypeError as error:
            raise TypeError(no_model(f"{public_name(cls)}()")) from error
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        blocked: bool = True,
        theta: Sequence[Any] | str | None = None,
        **unknown: Any,
    ):
        if unknown:
            raise TypeError(unknown_options(type(self), list(unknown)))
        model = pm.modelcontext(model)
        KNOWN.add(model)
        options = {"initial_point": initial_point, "compile_kwargs": compile_kwargs}
        self.lgm = self._read(vars, model, all_but(model, theta), **options)
        # Compilation folds constants that BLAS computes, so it runs with few threads too.
        with few_threads(self.lgm.form.dense_rows):
            self.elements = tuple(self._sweep())
        types = samplers.statistics(self.elements) | dict.fromkeys(self.lgm.form.caveats, bool)
        self.stats_dtypes = [types]
        self.stats_dtypes_shapes = {name: (dtype, []) for name, dtype in types.items()}  # type: ignore[var-annotated]  # PyMC's base class declares it
        self.rng = get_random_generator(rng)
        self.blocked = True
        self.tune = True
        self.tune_length = 1000
        self.tunings: list[Any] = []
        self._state: State | None = None
        self._latents: dict[str, Any] = {}
        self._drawn = 0
        self._audited = _audited_draws(self.tune_length, draws=0)
        say_what_is_repeated(model)
        self._audit_the_prior()
        # With a large K two draws take longer than to compile.
        is_slow = self.lgm.form.by_covariance and self.lgm.rank >= ROWS_WORTH_THREADS
        if self.lgm.graphs.is_compiled and not is_slow:
            self._rehearse(self.lgm.start)

    def _read(
        self, vars: Any, model: pm.Model, candidates: list[Any] | None, **kwargs: Any
    ) -> LatentGaussianModel:
        """Read the variables to move. Only ``candidates`` may be latent."""
        reading, theta = self._reading_and_theta(vars, model, candidates)
        free = [latent.rv for latent in reading.latents if latent.rv in model.free_RVs]
        for rv in free:
            if candidates is not None and rv not in candidates:
                raise ValueError(not_a_hyperparameter(str(rv.name)))
        latents = [model.rvs_to_values[rv] for rv in free]
        missing = [model.rvs_to_values[rv] for rv in reading.missing]
        self.vars = [*latents, *theta, *missing]
        return LatentGaussianModel.from_pymc(model, reading, theta, **kwargs)

    def _audit_the_prior(self) -> None:
        """Compare the model's density with PyMC's at points drawn from the prior."""
        begin = {name: v.get_value() for name, v in self.lgm.graphs.others.items()}
        with few_threads(self.lgm.form.dense_rows):
            for point in self.lgm.audit.prior_points(0, PRIOR_AUDITS):
                self.lgm.read(point)
                self.lgm.audit(point, moments=True)
        self.lgm.read(begin)

    def _audit(self, point: dict[str, Any]) -> None:
        """Compare the two densities at a few draws of tuning and a few after it."""
        if not self.tune:  # also if tuning was stopped early
            self._drawn = max(self._drawn, self.tune_length)
        if self._drawn in self._audited:
            is_first = self._drawn == self.tune_length
            with few_threads(self.lgm.form.dense_rows):
                self.lgm.audit(point, moments=is_first, is_draw=self._drawn >= self.tune_length)
        self._drawn += 1

    def _rehearse(self, point: dict[str, Any]) -> None:
        """Let a copy of this step make one draw of tuning and one after it, and discard both.

        Functions are compiled at their first call. Chains that are forked later inherit them.
        """
        other = copy(self)
        other.setup_chain(np.random.default_rng(0), tune=2, draws=1)
        other._audited = frozenset()
        # If the start of a chain is wrong, the chain itself raises.
        with announced(COMPILING.format(type(self).__name__)), suppress(Exception):
            point, _ = other.step(point)
            other.stop_tuning()
            other.step(point)

    def _sweep(self) -> Sequence[samplers.Element]:
        """Return the kernels in order; ``self.lgm`` is already set."""
        raise NotImplementedError(f"{type(self).__name__} must define _sweep().")

    def __repr__(self) -> str:
        variables = ", ".join(v.name for v in self.vars)
        return f"{type(self).__name__}([{variables}])"

    def _reading_and_theta(
        self, vars: Sequence[Any] | None, model: pm.Model, candidates: list[Any] | None
    ) -> tuple[Reading, list[Any]]:
        """Find the latent variables, and the values of theta."""
        if vars is None:
            values = model.continuous_value_vars if self.moves_theta else []
            reading = find_latents(model, candidates=candidates, collapse=self.collapses)
        else:
            vars = vars if isinstance(vars, list | tuple) else [vars]
            values = values_of(vars, model)
            named = self._named_latents([model.values_to_rvs[v] for v in values], model, candidates)
            collapse = self.collapses or not self.moves_theta
            reading = find_latents(model, candidates=named, collapse=collapse)
        latents = [each.rv for each in reading.latents]
        missing = [model.rvs_to_values[rv] for rv in reading.missing]
        theta = [v for v in values if v not in missing and model.values_to_rvs[v] not in latents]
        self._refuse_discrete(theta)
        # PyMC passes all value variables that it has to assign; a user passes random variables.
        if self.moves_theta and (vars is None or all(v in model.values_to_rvs for v in vars)):
            found = [v for v in theta if candidates is None or model.values_to_rvs[v] in candidates]
            refuse_left_gaussians(model, reading, found)
        self._refuse_wrong_theta(theta, latents)
        if self.moves_theta and vars is not None and not theta:
            self._refuse_no_theta(model, latents, reading.missing)
        return reading, theta

    def _named_latents(
        self, named: list[Any], model: pm.Model, candidates: list[Any] | None
    ) -> list[Any]:
        """Return the variables, among those that were named, which may be latent."""
        if not self.moves_theta:
            named = [rv for rv in named if is_gaussian(model, rv)]
        elif not any(is_process(rv) for rv in named):
            named = [*named, *(rv for rv in model.free_RVs if is_process(rv))]
        return [rv for rv in named if candidates is None or rv in candidates]

    def _refuse_discrete(self, theta: Sequence[Any]) -> None:
        for value in theta:
            if value.dtype not in continuous_types:
                raise ValueError(
                    f"{type(self).__name__} cannot move {value.name!r}: it is discrete. Leave it "
                    "out; pm.sample() gives it a step of its own."
                )

    def _refuse_wrong_theta(self, theta: Sequence[Any], latents: Sequence[Any]) -> None:
        """Raise if a step that moves f alone was given hyper-parameters."""
        label = ", ".join(str(rv.name) for rv in latents)
        if theta and not self.moves_theta:
            raise ValueError(
                f"{type(self).__name__} moves the latent {label!r} only, not "
                f"{', '.join(v.name for v in theta)}. Write lgm.ASIS() to move all of them, or "
                f"[{public_name(type(self))}({label}), pm.NUTS([...])]."
            )

    def _refuse_no_theta(
        self, model: pm.Model, latents: Sequence[Any], missing: Sequence[Any]
    ) -> None:
        """Raise if a step that moves theta was given none of the model's hyper-parameters."""
        label = ", ".join(str(rv.name) for rv in latents)
        # The marks of a likelihood of this package say which variables are hyper-parameters.
        marked = any(map(is_marked, latents))
        others = [model.values_to_rvs[v] for v in model.continuous_value_vars]
        others = [rv for rv in others if rv not in latents and rv not in missing]
        if any(is_marked(rv) or not marked for rv in others):
            raise ValueError(
                f"{type(self).__name__} was given no hyper-parameters to move. Write "
                f"{public_name(type(self))}() for all of them, or "
                f"lgm.EllipticalSlice({label}) to move {label!r} alone."
            )

    # PyMC's contract

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Forget everything that an earlier chain has left."""
        super().setup_chain(rng, tune, draws)
        self.lgm.refuse_changes()
        self.tune = tune > 0
        self.tune_length = tune
        self.tunings = []
        self._state = None
        self._latents = {}
        self._drawn = 0
        self._audited = _audited_draws(tune, draws)

    def step(self, point: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Run the sweep once from a PyMC point; BLAS has one thread if matrices are small."""
        with few_threads(self.lgm.form.dense_rows):
            tally.without_prior = None
            try:
                result = self._step(point)
            except SamplingError:
                raise
            except Exception as error:
                error.add_note(raised_in_a_draw(self.lgm, point))
                raise
            if (rejected := tally.without_prior) is not None:
                self.lgm.audit.of_rejected(result[0] | self.lgm.point_of(rejected))
        self._audit(result[0])
        return result

    def _step(self, point: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        ops = tally.cubic_ops
        arrived = self._arrive(point)
        if not self.tunings:
            self._begin(arrived)
            self.tunings = [element.start(arrived, self.tune_length) for element in self.elements]
        state, self.tunings, stats = samplers.run(
            self.rng, arrived, self.elements, self.tunings, self.tune
        )
        if not (self.tune and state is arrived is self._state):  # tuning stopped early
            departed = self._depart(state)
            if departed is None:  # no density there: the whole draw is rejected
                state = arrived
                stats["numerical_rejections"] += 1
            else:
                point = point | departed
        self._state = state
        # Includes the cost of recomputing the state if another step has moved theta, and of the
        # latent variables that make up f.
        stats |= {"cubic_ops": tally.cubic_ops - ops, **self.lgm.form.caveats}
        return point, [stats]

    def _begin(self, state: State) -> None:
        """Check the starting point before the first draw; raise if the chain cannot start there."""

    def _arrive(self, point: dict[str, Any]) -> State:
        """Return our state at a point; recompute whatever other steps have moved."""
        cov_moved, others_moved = self.lgm.read(point)
        theta = self.lgm.theta_of(point)
        state = self._state
        latents = self._latents
        stays = state is not None and not others_moved and np.array_equal(theta, state.theta)
        if state and stays and all(np.array_equal(point[name], x) for name, x in latents.items()):
            return state
        f = self.lgm.f_of(theta, point)
        if state and others_moved:
            state.at.forget()
        known = None if cov_moved else state
        arrived = known.with_theta(theta, lambda _: f) if known else State.of(self.lgm, theta, f)
        if arrived is None:
            # Before the first draw there are no tunings; later, another step has chosen the point.
            where = "where another step has moved to" if self.tunings else "at the starting point"
            message = explain(self.lgm, theta, f, where)
            raise SamplingError(
                message or f"The density is 0 {where}. Start with pm.sample(initvals={{...}})."
            )
        return arrived

    def __getstate__(self) -> dict[str, Any]:
        # The state is recomputed from the point, so its factor need not be sent.
        return self.__dict__ | {"_state": None, "_latents": {}}

    @property
    def carried(self) -> dict[str, Any]:
        """For `sampling_state`: theta and f to the last digit, and the cached importance sample."""
        others = {name: x.get_value() for name, x in self.lgm.graphs.others.items()}
        at = self._state and (self._state.theta, self._state.f, self._state.cached)
        return {"others": others, "at": at, "latents": self._latents}

    @carried.setter
    def carried(self, carried: dict[str, Any]) -> None:
        self.lgm.read(carried["others"])
        with few_threads(self.lgm.form.dense_rows):
            self._state = None if carried["at"] is None else State.of(self.lgm, *carried["at"])
        self._latents = carried["latents"]

    def _depart(self, state: State) -> dict[str, Any] | None:
        """Return the values that a state gives to a point, and cache the latent variables."""
        latents = self.lgm.latents_of(self.rng, state.prior, state.f)
        if latents is None:
            return None
        # The recorder may return the arrays that it receives.
        self._latents = {name: value.copy() for name, value in latents.items()}
        missing = self.lgm.missing_of(self.rng, state.theta, self._latents)
        return latents | missing | self.lgm.point_of(state.theta)

    @classmethod
    def competence(cls, var: Any, has_grad: bool) -> Competence:
        """Claim f, theta and missing y of this package's likelihoods for the default sampler."""
        ours = var.dtype in continuous_types or isinstance(var.owner.op, PartialObservedRV)
        claimed = cls is cls.default and is_marked(var) and ours
        if cls is cls.default and not claimed:
            offer()
        return Competence.IDEAL if claimed else Competence.INCOMPATIBLE

    @property
    def _shown(self) -> list[str]:
        return [name for name in _SHOWN if name in self.stats_dtypes_shapes]

    def _progressbar_config(self, n_chains: int = 1) -> tuple[list[TextColumn], dict[str, Any]]:
        columns = [
            TextColumn(f"{{task.fields[{name}]:.2f}}", table_column=Column(_SHOWN[name], ratio=1))
            for name in self._shown
        ]
        return columns, {name: [0.0] * n_chains for name in self._shown}

    def _make_progressbar_update_functions(self) -> tuple[Any, ...]:
        return (lambda stats: {name: stats[name] for name in self._shown},)


def values_of(vars: Sequence[Any], model: pm.Model) -> list[Any]:
    """The different value variables that a user means by variables or names."""
    named = [model.named_vars.get(v, v) if isinstance(v, str) else v for v in vars]
    return list(dict.fromkeys(get_value_vars_from_user_vars(named, model)))


_SHOWN = {
    "theta_acceptance": "theta accept",
    "latent_acceptance": "f accept",
    "cubic_ops": "O(n³) ops",
}


def _audited_draws(tune: int, draws: int) -> frozenset[int]:
    """The draws of a chain, counted from 0, at which it is compared with PyMC's density."""
    during = {tune * (2 * k + 1) // (2 * TUNING_AUDITS) for k in range(TUNING_AUDITS)}
    after = {tune + draws * (k + 1) // SAMPLING_AUDITS - 1 for k in range(SAMPLING_AUDITS)}
    return frozenset(during | {tune} | {k for k in after if k > tune})
