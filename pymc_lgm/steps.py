"""The PyMC step methods: named sweeps and the glue that runs them inside `pymc.sample`.

A sweep is a list of kernels (`pymc_lgm.sweep`); a step method names one. Importing
`pymc_lgm` registers them all; only the default claims variables by itself, and only in models
that opted in by using a likelihood of `pymc_lgm.likelihoods`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, get_args

import numpy as np
import pymc as pm

from pymc.exceptions import SamplingError
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars
from pymc.vartypes import continuous_types
from rich.progress import TextColumn
from rich.table import Column

from pymc_lgm import checks, sweep
from pymc_lgm.latent.hmc import Integrator, Metric
from pymc_lgm.likelihoods.base import is_latent_gaussian_likelihood
from pymc_lgm.likelihoods.registry import opted_in_models
from pymc_lgm.model import LatentGaussianModel, find_latent, is_latent
from pymc_lgm.state import State

__all__ = [
    "ASIS",
    "DEFAULT",
    "SAMPLERS",
    "EllipticalSlice",
    "LatentGaussianStep",
    "LatentHMC",
    "SufficientMetropolis",
    "WhitenedMetropolis",
]


@dataclass_state
class LatentGaussianStepState(StepMethodState):
    """Everything that a draw depends on besides the point."""

    tune: bool
    tunings: list[Any]


class LatentGaussianStep(BlockedStep):
    """A sweep over f and theta as a PyMC step method.

    A subclass sets its options, calls this constructor, and says in `_sweep` which kernels it is.

    Parameters
    ----------
    vars : sequence of variables, optional
        Random or value variables: f and the hyper-parameters to move, by default all continuous
        ones. f may be left out where the model has one latent.
    model : pymc.Model, optional
        By default the model of the context.
    rng : numpy.random.Generator or seed, optional
    initial_point : dict, optional
        Where the model is checked; by default ``model.initial_point()``.
    compile_kwargs : dict, optional
        For PyTensor, as in `pymc.sample`.
    blocked : bool
        Accepted for PyMC's sake: a sweep is always one step for all its variables.
    """

    name = "lgm"
    moves_theta: ClassVar[bool] = True
    moves: ClassVar[str]
    needs: ClassVar[str]
    cubic_ops: ClassVar[int]
    _state_class = LatentGaussianStepState

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: dict[str, Any] | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        blocked: bool = True,
    ):
        model = pm.modelcontext(model)
        latent, theta = self._latent_and_theta(vars, model)
        self.vars = [model.rvs_to_values[latent], *theta]
        self.lgm = LatentGaussianModel.from_pymc(
            model, latent, theta, initial_point=initial_point, compile_kwargs=compile_kwargs
        )
        self.elements = tuple(self._sweep())
        types = sweep.statistics(self.elements)
        self.stats_dtypes = [types]
        self.stats_dtypes_shapes = {name: (dtype, []) for name, dtype in types.items()}  # type: ignore[var-annotated]  # PyMC's base class declares it
        self.rng = get_random_generator(rng)
        self.blocked = True
        self.tune = True
        self.tunings: list[Any] = []
        self._state: State | None = None

    def _sweep(self) -> Sequence[sweep.Element]:
        """Name the kernels, in order; ``self.lgm`` is there to be asked."""
        raise NotImplementedError(f"{type(self).__name__} must say what its sweep is.")

    def __repr__(self) -> str:
        variables = ", ".join(v.name for v in self.vars)
        return f"{type(self).__name__}([{variables}])"

    def _latent_and_theta(
        self, vars: Sequence[Any] | None, model: pm.Model
    ) -> tuple[Any, list[Any]]:
        if vars is None:
            latent = find_latent(model)
            values = model.continuous_value_vars if self.moves_theta else []
        else:
            vars = vars if isinstance(vars, list | tuple) else [vars]
            values = get_value_vars_from_user_vars(vars, model)
            named = [model.values_to_rvs[v] for v in values]
            candidates = [rv for rv in named if is_latent(rv)]
            latent = find_latent(model, candidates[0] if len(candidates) == 1 else None)
        f = model.rvs_to_values[latent]
        theta = [v for v in values if v is not f]
        for value in theta:
            if value.dtype not in continuous_types:
                raise ValueError(
                    f"{type(self).__name__} cannot move {value.name!r}: it is discrete. Leave it "
                    "out; pm.sample() gives it a step of its own."
                )
        if theta and not self.moves_theta:
            raise ValueError(
                f"{type(self).__name__} moves the latent {latent.name!r} only, not "
                f"{', '.join(v.name for v in theta)}. Write lgm.ASIS() to move all of them, or "
                f"[lgm.{type(self).__name__}({latent.name}), pm.NUTS([...])]."
            )
        if self.moves_theta and vars is not None and not theta:
            raise ValueError(
                f"{type(self).__name__} was given no hyper-parameters to move. Write "
                f"lgm.{type(self).__name__}() for all of them, or "
                f"lgm.EllipticalSlice({latent.name}) to move {latent.name!r} alone."
            )
        return latent, theta

    # PyMC's contract

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Forget everything that another chain has left."""
        super().setup_chain(rng, tune, draws)
        self.tune = tune > 0
        self.tunings = []
        self._state = None

    def step(self, point: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Run the sweep once from a PyMC point."""
        state = self._arrive(point)
        if not self.tunings:
            self.tunings = [element.start(state) for element in self.elements]
        state, self.tunings, stats = sweep.run(
            self.rng, state, self.elements, self.tunings, self.tune
        )
        self._state = state
        return point | self.lgm.point_of(state.theta, state.f), [stats]

    def _arrive(self, point: dict[str, Any]) -> State:
        """Our state at a point that other steps may have changed: recompute what they moved."""
        cov_moved, others_moved = self.lgm.read(point)
        theta = self.lgm.theta_of(point)
        # A copy: the parallel driver writes the next point into the same memory.
        f = np.array(point[self.lgm.latent], dtype=np.float64)
        state = self._state
        if state is None or cov_moved:
            arrived = State.at(self.lgm, theta, f)
        elif not others_moved and np.array_equal(theta, state.theta) and np.array_equal(f, state.f):
            return state
        else:
            arrived = state.with_theta(theta, lambda mean, prior: f)
        if arrived is None:
            message = checks.explain(self.lgm, theta, f)
            raise SamplingError(message or "The density is zero at the starting point.")
        return arrived

    def __getstate__(self) -> dict[str, Any]:
        # The state is recomputed from the point; its factor need not travel.
        return self.__dict__ | {"_state": None}

    @classmethod
    def competence(cls, var: Any, has_grad: bool) -> Competence:
        """Claim the continuous variables of a model that opted in, for the default sampler."""
        claimed = cls is DEFAULT and _opted_in(var)
        return Competence.IDEAL if claimed else Competence.INCOMPATIBLE

    def _progressbar_config(self, n_chains: int = 1) -> tuple[list[TextColumn], dict[str, Any]]:
        shown = {name: label for name, label in _SHOWN.items() if name in self.stats_dtypes_shapes}
        columns = [
            TextColumn(f"{{task.fields[{name}]:.2f}}", table_column=Column(label, ratio=1))
            for name, label in shown.items()
        ]
        return columns, {name: [0.0] * n_chains for name in shown}

    def _make_progressbar_update_functions(self) -> tuple[Any, ...]:
        names = [name for name in _SHOWN if name in self.stats_dtypes_shapes]
        return (lambda stats: {name: stats[name] for name in names},)


_SHOWN = {
    "theta_acceptance": "theta accept",
    "latent_acceptance": "f accept",
    "cubic_ops": "O(n³) ops",
}


class EllipticalSlice(LatentGaussianStep):
    """Move f given theta by elliptical slice sampling; leaves p(f | y, theta) invariant.

    No tuning and no gradient; O(n²) a move, and one O(n³) factorization whenever another step
    has moved theta. See `pymc_lgm.latent.elliptical_slice`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    repeats : int
        Moves a draw.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    References
    ----------
    Murray, Adams and MacKay (2010), *Elliptical slice sampling*, AISTATS.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.EllipticalSlice(f)
    >>> step
    EllipticalSlice([f])
    """

    name = "elliptical_slice"
    moves_theta = False
    moves, needs, cubic_ops = "f", "nothing", 0

    def __init__(self, vars: Any = None, *, repeats: int = 1, **kwargs: Any):
        self.repeats = _positive("repeats", repeats)
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[sweep.Element]:
        return [sweep.EllipticalSlice(repeats=self.repeats)]


class LatentHMC(LatentGaussianStep):
    """Move f given theta by HMC preconditioned with the prior; leaves p(f | y, theta) invariant.

    O(n²) a leapfrog step, and one O(n³) factorization whenever another step has moved theta. See
    `pymc_lgm.latent.hmc`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    metric : {"prior", "identity"}
        M⁻¹ = K ("HMC v2" of the papers), or the identity for comparison.
    integrator : {"rotation", "leapfrog"}, optional
        By default "rotation" for ``metric="prior"``: the prior's motion solved exactly.
    path_length : float
        Each trajectory takes 1 to path_length / ε steps of size ε, uniformly.
    max_steps : int
        Never more than that; the papers take 10.
    target_accept : float
        Acceptance probability to which tuning brings the step size.
    step_size : float
        Where tuning starts.
    repeats : int
        Trajectories a draw.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    References
    ----------
    Filippone, Zhong and Girolami (2012), §5.2.1; Beskos et al. (2011) for the rotation.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.LatentHMC(f, metric="identity", max_steps=5)
    >>> step
    LatentHMC([f])
    """

    name = "latent_hmc"
    moves_theta = False
    moves, needs, cubic_ops = "f", "gradient in f", 0

    def __init__(
        self,
        vars: Any = None,
        *,
        metric: Metric = "prior",
        integrator: Integrator | None = None,
        path_length: float = 2.4,
        max_steps: int = 100,
        target_accept: float = 0.8,
        step_size: float = 0.2,
        repeats: int = 1,
        **kwargs: Any,
    ):
        _one_of("metric", metric, get_args(Metric))
        if integrator is None:
            integrator = "rotation" if metric == "prior" else "leapfrog"
        _one_of("integrator", integrator, get_args(Integrator))
        if metric == "identity" and integrator == "rotation":
            raise ValueError(
                "integrator='rotation' solves the motion under metric='prior'; with "
                "metric='identity' write integrator='leapfrog'."
            )
        self.hmc = sweep.HMC(
            repeats=_positive("repeats", repeats),
            metric=metric,
            integrator=integrator,
            path_length=path_length,
            max_steps=_positive("max_steps", max_steps),
            step_size=step_size,
            target_accept=target_accept,
        )
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[sweep.Element]:
        if not self.lgm.has_gradient:
            raise ValueError(_no_gradient(self.lgm, "lgm.EllipticalSlice()"))
        return [self.hmc]


class ASIS(LatentGaussianStep):
    """Move f, then theta with f fixed, then with ν fixed; leaves p(theta, f | y) invariant.

    Ancillarity-sufficiency interweaving: the two parameterizations mix well in opposite
    situations, and together in both. Two O(n³) factorizations a draw. This is what
    ``pm.sample()`` runs on a model with a likelihood of this package.

    Parameters
    ----------
    vars : sequence of variables, optional
        f and the hyper-parameters to move; by default all continuous ones.
    latent : {"hmc", "slice"}, optional
        How f moves given theta: `LatentHMC` with M⁻¹ = K, or `EllipticalSlice`. By default "hmc",
        and "slice" if the likelihood has no gradient.
    latent_repeats : int
        Latent moves a draw: each is O(n²), next to the O(n³) of a move on theta.
    target_accept : float, optional
        Acceptance to which tuning brings the random walk on theta; by default 0.44 for one
        hyper-parameter down to 0.25 for four and more.
    scale : float, optional
        Where tuning of the random walk's scale starts.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    Notes
    -----
    ``sample_stats``: ``theta_acceptance``, ``theta_scale`` (means over the two moves),
    ``latent_acceptance``, ``latent_evaluations``, ``latent_step_size`` (HMC only),
    ``cubic_ops``, ``numerical_rejections``.

    References
    ----------
    Yu and Meng (2011), *To center or not to center*, JCGS 20; Filippone, Zhong and Girolami
    (2012), §3.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     rho = pm.Uniform("rho", 0, 1)
    ...     cov = pm.math.stack([[1.0, rho], [rho, 1.0]])
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=cov)
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.ASIS(latent="slice")
    >>> step
    ASIS([f, rho_interval__])
    """

    name = "asis"
    parameterizations: ClassVar[tuple[str, ...]] = ("sufficient", "whitened")
    moves, cubic_ops = "f and theta", 2
    needs = 'gradient in f; nothing with `latent="slice"`'

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        latent: str | None = None,
        latent_repeats: int = 1,
        target_accept: float | None = None,
        scale: float | None = None,
        **kwargs: Any,
    ):
        _one_of("latent", latent, (None, *sweep.LATENT_MOVES))
        self.latent = latent
        self.latent_repeats = _positive("latent_repeats", latent_repeats)
        self.target_accept, self.scale = target_accept, scale
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[sweep.Element]:
        latent = self.latent or ("hmc" if self.lgm.has_gradient else "slice")
        if latent == "hmc" and not self.lgm.has_gradient:
            raise ValueError(_no_gradient(self.lgm, "latent='slice'"))
        elements: list[sweep.Element] = [sweep.LATENT_MOVES[latent](repeats=self.latent_repeats)]
        if self.lgm.p > 0:
            elements += [
                sweep.Metropolis(name, self.target_accept, self.scale)
                for name in self.parameterizations
            ]
        return elements


class SufficientMetropolis(ASIS):
    """Move f, then theta with f held fixed (SA); leaves p(theta, f | y) invariant.

    One O(n³) factorization a draw. For comparison: slow where the data say much about f. See
    `pymc_lgm.parameterizations.sufficient`. Takes the options of `ASIS`.

    References
    ----------
    Filippone, Zhong and Girolami (2012), §3 and Tables 1-4.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.SufficientMetropolis()
    >>> step
    SufficientMetropolis([f, eta_log__])
    """

    name = "sufficient_metropolis"
    parameterizations = ("sufficient",)
    cubic_ops = 1


class WhitenedMetropolis(ASIS):
    """Move f, then theta with ν = L⁻¹(f − m) held fixed (AA); leaves p(theta, f | y) invariant.

    One O(n³) factorization a draw. See `pymc_lgm.parameterizations.whitened`. Takes the options
    of `ASIS`.

    References
    ----------
    Filippone, Zhong and Girolami (2012), §3 and Tables 1-4; Murray and Adams (2010), §3.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.WhitenedMetropolis([f, eta], latent="slice")
    >>> step
    WhitenedMetropolis([f, eta_log__])
    """

    name = "whitened_metropolis"
    parameterizations = ("whitened",)
    cubic_ops = 1


SAMPLERS: tuple[type[LatentGaussianStep], ...] = (
    EllipticalSlice,
    LatentHMC,
    SufficientMetropolis,
    WhitenedMetropolis,
    ASIS,
)
"""The registry: what is listed here is registered with PyMC, tested, and in the README's table."""

DEFAULT: type[LatentGaussianStep] = ASIS
"""What ``pm.sample()`` runs on a model that opted in."""


def register() -> None:
    """Add the step methods to PyMC's list, once, in place."""
    STEP_METHODS.extend(sampler for sampler in SAMPLERS if sampler not in STEP_METHODS)


def _opted_in(rv: Any) -> bool:
    """Whether a continuous variable belongs to a model that uses a likelihood of this package."""
    context = pm.Model.get_context(error_if_none=False)
    models = [context, *opted_in_models()] if context is not None else opted_in_models()
    return rv.dtype in continuous_types and any(
        rv in model.free_RVs
        and any(map(is_latent_gaussian_likelihood, model.observed_RVs))
        and any(map(_is_or_was_latent, model.free_RVs))
        for model in models
    )


def _is_or_was_latent(rv: Any) -> bool:
    # A whitened GP is claimed too, so that the constructor can say what to write instead. A model
    # with no Gaussian vector at all, a regression for instance, is left to NUTS.
    return is_latent(rv) or rv.name.endswith("_rotated_")


def _no_gradient(model: LatentGaussianModel, instead: str) -> str:
    return (
        f"The likelihood ({', '.join(model.likelihood_names)}) cannot be differentiated, and HMC "
        f"needs its gradient in {model.latent!r}. Write {instead}."
    )


def _one_of(option: str, value: Any, allowed: Sequence[Any]) -> None:
    if value not in allowed:
        raise ValueError(
            f"{option}={value!r} is unknown. Choose from {', '.join(map(repr, allowed))}."
        )


def _positive(option: str, count: int) -> int:
    if int(count) != count or count < 1:
        raise ValueError(f"{option} must be a whole number of at least 1, not {count!r}.")
    return int(count)
