"""Step methods that move f, then theta: `Sweep` with free choices, and two named sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack, override

import pymc as pm

from pymc.exceptions import SamplingError

from pymc_lgm import moves, samplers
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.model.diagnose import no_approximation, refuse_large_sets, refuse_no_curvature
from pymc_lgm.state import State
from pymc_lgm.steps.base import LatentGaussianStep
from pymc_lgm.steps.options import (
    StepOptions,
    between,
    known_move,
    no_gradient,
    one_of,
    positive,
    public_name,
    refuse_no_metric,
    refuse_no_way_out,
)

__all__ = ["ASIS", "SurrogateSlice", "Sweep"]


class Sweep(LatentGaussianStep):
    """Move f, then theta in one or several parameterizations; leaves p(theta, f | y) invariant.

    A sweep is three choices: how f moves given theta, what is fixed while theta moves, and how
    theta moves. A named sweep, such as `ASIS`, has made some of them.

    Parameters
    ----------
    vars : sequence of variables, optional
        f and the hyper-parameters to move; by default all continuous variables.
    parameterization : str or sequence of str
        The variable that is fixed while theta moves. With several of them, theta moves once in
        each, one after another. "sufficient" is f. "whitened", the default, is ν = L⁻¹(f − m), with
        N(m, L Lᵀ) the prior of f. "surrogate-site" and "surrogate-taylor" are noisy observations g
        of f, whitened, together with f given g, whitened. "posterior-site" and "posterior-taylor"
        are f whitened by a Gaussian approximation of its posterior. "site" and "taylor" are two
        ways to choose the noise: see `SurrogateSlice`.
    move : {"metropolis", "slice", "hmc"}, optional
        How theta moves: an adaptive random walk, component-wise slice sampling, or Hamiltonian
        Monte Carlo, which needs "sufficient" or "whitened". By default "metropolis", and "slice" if
        an observation depends on several elements of f and there is no ``target_accept``.
    latent_move : str, optional
        How f moves given theta. "hmc" is `LatentHMC` with M⁻¹ = K, "hmc-curvature" with M⁻¹ = (K⁻¹
        + W)⁻¹, where K is the covariance of f and W the negative second derivative of the log
        likelihood. "slice" is `EllipticalSlice`, "mgrad" `AuxiliaryGradient`. By default "hmc", and
        "slice" if the likelihood has no gradient. If tuning of the default finds that the prior
        is much wider than the posterior, as with a vague intercept, it switches to "hmc-curvature",
        which takes one to three more O(n³) operations.
    latent_repeats, theta_repeats : int
        Moves per draw. A move of f costs O(n²), one of theta O(n³).
    target_accept : float, optional
        Acceptance probability that tuning of the move on theta aims for. By default 0.8 for HMC,
        and for Metropolis from 0.44 for one hyper-parameter down to 0.25 for four or more.
    scale : float, optional
        Initial scale of the random walk, width of a slice, or step size.
    **kwargs
        ``model``, ``theta``, ``rng``, ``initial_point`` and others: see `LatentGaussianStep`.

    See Also
    --------
    ASIS : The sweep to begin with.
    SurrogateSlice : Another named sweep.
    papers : Moves of the literature, whose names may be given, too.
    testing.joint_test : Whether a sampler leaves the posterior invariant.

    Raises
    ------
    ValueError
        If the likelihood lacks a derivative that a move needs, or if theta cannot move in a
        parameterization.

    Notes
    -----
    An evaluation of the target of theta takes one O(n³) operation for "sufficient" and "whitened",
    and two for the others. A gradient adds one ("sufficient") or two ("whitened"). A slice takes 2
    to 4 evaluations per component of theta. A move of eta alone with ``cov=eta**2 * C`` does not
    factorize K again.

    ``sample_stats`` has ``theta_acceptance``, ``theta_scale`` or ``theta_step_size``,
    ``theta_evaluations`` (slice and HMC), as means over the parameterizations; the statistics of
    the latent move; ``cubic_ops``, ``numerical_rejections``.

    References
    ----------
    Filippone, Zhong and Girolami (2013), *A comparative evaluation of stochastic-based inference
    methods for Gaussian process models*, Machine Learning 93.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.Sweep(parameterization=["surrogate-site", "whitened"], move="slice")
    >>> step
    Sweep([f, eta_log__])
    """

    name = "sweep"
    own_parameterizations: tuple[str, ...] | None = None
    """Parameterizations of a sweep that has a name; ``None`` if the user chooses them."""

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        parameterization: str | Sequence[str] | None = None,
        move: str | None = None,
        latent_move: str | None = None,
        latent_repeats: int = 1,
        theta_repeats: int = 1,
        target_accept: float | None = None,
        scale: float | None = None,
        **kwargs: Unpack[StepOptions],
    ):
        if self.own_parameterizations is not None and parameterization is not None:
            own = " and ".join(map(repr, self.own_parameterizations))
            raise TypeError(
                f"{public_name(type(self))} always has parameterization={own}. Write "
                f"lgm.Sweep(parameterization={parameterization!r}) to choose."
            )
        names = self.own_parameterizations or parameterization or "whitened"
        self.parameterizations = (names,) if isinstance(names, str) else tuple(names)
        for name in self.parameterizations:
            one_of("parameterization", name, tuple(samplers.PARAMETERIZATIONS))
        known_move("move", move, samplers.THETA_MOVES, None)
        known_move("latent_move", latent_move, samplers.LATENT_MOVES, None)
        self.latent_move, self.move = latent_move, move
        self.latent_repeats = positive("latent_repeats", latent_repeats)
        self.theta_repeats = positive("theta_repeats", theta_repeats)
        # Coefficients in a process's mean move as parts of f, except by elliptical slices: if a
        # coefficient has a wide prior, a slice proposes values that the data rule out.
        self.collapses = latent_move != "slice"
        if target_accept is not None and move == "slice":
            raise ValueError(
                "A slice has no acceptance probability to tune: leave out target_accept."
            )
        between("target_accept", target_accept, 1.0)
        between("scale", scale)
        self.target_accept, self.scale = target_accept, scale
        super().__init__(vars, **kwargs)

    @override
    def _read(
        self, vars: Any, model: pm.Model, candidates: list[Any] | None, **kwargs: Any
    ) -> LatentGaussianModel:
        lgm = super()._read(vars, model, candidates, **kwargs)
        if self.collapses and self.latent_move is None and not lgm.has_gradient:
            # f will be moved by an elliptical slice.
            self.collapses = False
            return super()._read(vars, model, candidates, **kwargs)
        return lgm

    def _sweep(self) -> Sequence[samplers.Element]:
        model = self.lgm
        if self.move is None:
            # With several processes theta has long thin ridges, where a random walk hardly moves.
            slices = model.coupled is not None and self.target_accept is None
            self.move = "slice" if slices else "metropolis"
        if model.p > 0 and not model.form.can_fix_f and "sufficient" in self.parameterizations:
            raise ValueError(
                f"Theta cannot move while f is fixed: the map from {model.latent} to f depends on "
                "theta. Write parameterization='whitened', which moves f with theta, "
                "lgm.papers.WhitenedMetropolis() or lgm.PseudoMarginal()."
            )
        kind = samplers.THETA_MOVES[self.move]
        options = {"target_accept": self.target_accept, kind.tunes: self.scale}
        given = {option: value for option, value in options.items() if value is not None}
        self.theta_elements = [
            samplers.Theta(name, kind(**given)) for name in self.parameterizations
        ]
        self.latent_element = self._move_of_f()
        elements: list[samplers.Element] = [self.latent_element]
        self._refuse_no_derivatives(kind)
        if model.p > 0:
            elements += self.theta_elements * self.theta_repeats
        return elements

    @override
    def _begin(self, state: State) -> None:
        refuse_no_way_out(self.latent_element, state, self.lgm, "latent_move='slice'")
        # Theta would stay where it is in every draw, and no statistic would say why.
        if self.lgm.p > 0 and not any(each.has_target(state) for each in self.theta_elements):
            search = " or ".join(self.parameterizations)
            instead = "lgm.ASIS(latent_move='slice')"
            raise SamplingError(no_approximation(self.lgm, state.theta, search, instead))

    def _move_of_f(self) -> Any:
        """Return the move of f; raise if the likelihood lacks a derivative that it needs."""
        model = self.lgm
        name = self.latent_move or ("hmc" if model.has_gradient else "slice")
        kind = samplers.LATENT_MOVES[name]
        if self.latent_move is None and name == "hmc" and model.sets is None:
            kind = moves.latent.AdaptiveHMC if model.has_third_derivative else kind
        move = kind(repeats=self.latent_repeats)
        if move.needs_gradient and not model.has_gradient:
            raise ValueError(no_gradient(model, "latent_move='slice'"))
        if move.needs_curvature:
            refuse_large_sets(model, f"latent_move={name!r}")
            refuse_no_curvature(model, "latent_move='hmc' or latent_move='slice'")
        refuse_no_metric(model, move, "latent_move='hmc-curvature'")
        return move

    def _refuse_no_derivatives(self, kind: Any) -> None:
        """Raise if a target or a move of theta needs a derivative that the model lacks."""
        model = self.lgm
        if not samplers.DIFFERENTIABLE.issuperset(self.parameterizations):
            refuse_large_sets(model, " or ".join(map(repr, self.parameterizations)))
            if not model.has_gradient:
                raise ValueError(no_gradient(model, "parameterization='whitened'"))
        if kind.needs_gradient and not (model.has_gradient and model.has_theta_gradient):
            lacking = "one of them cannot be"
            if not model.form.has_theta_gradient:
                lacking = f"the package does not do so for {model.form.algebra}, as in this model"
            raise ValueError(
                f"move={self.move!r} differentiates mean, covariance, prior and likelihood in "
                f"theta, and {lacking}. Write move='slice'."
            )


class ASIS(Sweep):
    """Move f, then theta with f fixed, then with ν fixed; leaves p(theta, f | y) invariant.

    Ancillarity-sufficiency interweaving: each parameterization mixes well where the other mixes
    slowly, so the pair mixes well in both situations. A draw costs two O(n³) factorizations.
    Takes the options of `Sweep` other than ``parameterization``.

    See Also
    --------
    PseudoMarginal : The default: most effective draws per operation.
    SurrogateSlice : Another choice of what is fixed while theta moves.
    Sweep : All options; any list of such choices.

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
    ...     step = lgm.ASIS(latent_move="slice")
    >>> step
    ASIS([f, rho_interval__])
    """

    name = "asis"
    own_parameterizations = ("sufficient", "whitened")


class SurrogateSlice(Sweep):
    """Move f, then theta given surrogate data, by slices; leaves p(theta, f | y) invariant.

    Surrogate data slice sampling draws noisy observations g of f, with a variance that matches the
    information in each observation of y. Theta then moves while whitened g, and whitened f given g,
    are fixed. An evaluation costs two O(n³) operations; each hyper-parameter takes 2 to 4
    evaluations. See `pymc_lgm.targets.surrogate`.

    Parameters
    ----------
    vars : sequence of variables, optional
        f and the hyper-parameters to move; by default all continuous variables.
    noise : {"site", "taylor"}
        How the variance of g is chosen: "site" combines each observation with the prior of its f_i;
        "taylor" uses the likelihood alone.
    move : {"slice", "metropolis"}
        How theta moves.
    latent_move, latent_repeats, theta_repeats, target_accept, scale
        As in `Sweep`. The paper uses ``latent_move="slice", latent_repeats=10``.
    **kwargs
        ``model``, ``theta``, ``rng``, ``initial_point`` and others: see `LatentGaussianStep`.

    See Also
    --------
    ASIS : Cheaper per draw.
    PseudoMarginal : The default, which integrates f out.

    References
    ----------
    Murray and Adams (2010), *Slice sampling covariance hyperparameters of latent Gaussian models*,
    NIPS 23, Algorithm 4.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.SurrogateSlice(noise="taylor")
    >>> step
    SurrogateSlice([f, eta_log__])
    """

    name = "surrogate_slice"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        noise: str = "site",
        move: str = "slice",
        latent_move: str | None = None,
        latent_repeats: int = 1,
        theta_repeats: int = 1,
        target_accept: float | None = None,
        scale: float | None = None,
        **kwargs: Unpack[StepOptions],
    ):
        one_of("noise", noise, ("site", "taylor"))
        self.own_parameterizations = (f"surrogate-{noise}",)
        super().__init__(
            vars,
            move=move,
            latent_move=latent_move,
            latent_repeats=latent_repeats,
            theta_repeats=theta_repeats,
            target_accept=target_accept,
            scale=scale,
            **kwargs,
        )
