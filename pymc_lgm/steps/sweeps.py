"""Step methods that move f, then theta with something about f held fixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pymc_lgm import checks, sweep
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.steps.base import LatentGaussianStep, between, no_gradient, one_of, positive

__all__ = ["ASIS", "SufficientMetropolis", "SurrogateSlice", "Sweep", "WhitenedMetropolis"]

SCALES = {"metropolis": "scale", "slice": "width", "hmc": "step_size", "smmala": "step_size"}
"""What ``scale`` is called by each move on theta."""


class Sweep(LatentGaussianStep):
    """Move f, then theta in each of some parameterizations; leaves p(theta, f | y) invariant.

    Any point of the space that the papers' samplers are points of: how f moves given theta, what is
    held fixed while theta moves, and how theta moves then. The named samplers are sweeps that have
    two of the three chosen.

    Parameters
    ----------
    vars : sequence of variables, optional
        f and the hyper-parameters to move; by default all continuous ones.
    parameterization : str or sequence of str
        What is held, one after another: "sufficient" (f), "whitened" (ν = L⁻¹(f − m)),
        "surrogate-site" or "surrogate-taylor" (noisy data g and f as seen from them),
        "posterior-site" or "posterior-taylor" (f whitened by a Gaussian posterior).
    move : {"metropolis", "slice", "hmc", "smmala"}
        How theta moves: an adaptive random walk, component-wise slice sampling, Hamiltonian Monte
        Carlo, or simplified manifold MALA. The last two need "sufficient" or "whitened".
    latent : str, optional
        How f moves given theta: "hmc" is `LatentHMC` with M⁻¹ = K, "hmc-curvature" with
        M⁻¹ = (K⁻¹ + W)⁻¹, "slice" `EllipticalSlice`, "mgrad" `AuxiliaryGradient`, "metropolis" and
        "random-walk" `NealMetropolis`, "smmala" `LatentSMMALA`. By default "hmc", and "slice" if
        the likelihood has no gradient.
    latent_repeats, theta_repeats : int
        Moves a draw. One of f is O(n²), one of theta O(n³).
    amplitude : int
        Moves a draw of the hyper-parameters that only multiply K, after those of theta: with f
        held, then with ν held. Each is O(n²). With f held a variance whose prior is inverse gamma
        (a precision's, gamma) is drawn from its conditional, which is inverse gamma too, if it
        enters nothing but K; any other amplitude is sliced. An amplitude is a positive eta with
        ``cov=eta**2 * C`` or ``cov=eta * C``, every term of K inside: `pymc.gp.Latent.prior` adds
        its jitter outside, so write ``jitter=0`` and the nugget as a term of the kernel,
        ``eta**2 * (kernel + pm.gp.cov.WhiteNoise(1e-3))``. The surrogate and posterior
        parameterizations then pay one O(n³) operation more a draw.
    target_accept : float, optional
        Acceptance to which tuning brings the move on theta: by default 0.44 for one
        hyper-parameter down to 0.25 for four and more (Metropolis), 0.8 (HMC), 0.57 (SMMALA).
    scale : float, optional
        Where tuning of its scale starts: of the random walk, the width of a slice, or a step size.
    **kwargs
        ``model``, ``rng``, ``initial_point``, ``compile_kwargs``: see `LatentGaussianStep`.

    Notes
    -----
    O(n³) operations of an evaluation of the target: "sufficient" and "whitened" 1, the others 2; a
    gradient 1 ("sufficient") or 2 ("whitened") more. A slice takes 2 to 4 evaluations a component.
    Where theta changes by its amplitudes alone, in any move, K is not factorized.
    ``sample_stats``: ``theta_acceptance``, ``theta_scale`` or ``theta_step_size``,
    ``theta_evaluations`` (slice and HMC); means over the parameterizations; those of the latent
    move; ``cubic_ops``, ``numerical_rejections``.

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
    moves, needs = "f and theta", "as its choices do"
    cubic_ops: ClassVar[int | str] = "1-"
    held: tuple[str, ...] | None = None
    """Parameterizations of a named sweep."""

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        parameterization: str | Sequence[str] | None = None,
        move: str = "metropolis",
        latent: str | None = None,
        latent_repeats: int = 1,
        theta_repeats: int = 1,
        amplitude: int = 0,
        target_accept: float | None = None,
        scale: float | None = None,
        **kwargs: Any,
    ):
        if self.held is not None and parameterization is not None:
            raise TypeError(
                f"lgm.{type(self).__name__} holds {' and '.join(map(repr, self.held))}. Write "
                f"lgm.Sweep(parameterization={parameterization!r}) to choose."
            )
        held = self.held or parameterization or "whitened"
        self.parameterizations = (held,) if isinstance(held, str) else tuple(held)
        for name in self.parameterizations:
            one_of("parameterization", name, tuple(sweep.PARAMETERIZATIONS))
        one_of("move", move, tuple(sweep.THETA_MOVES))
        one_of("latent", latent, (None, *sweep.LATENT_MOVES))
        self.latent, self.move = latent, move
        self.latent_repeats = positive("latent_repeats", latent_repeats)
        self.theta_repeats = positive("theta_repeats", theta_repeats)
        self.amplitude = positive("amplitude", amplitude) if amplitude else 0
        if target_accept is not None and move == "slice":
            raise ValueError("A slice has no acceptance to tune: leave out target_accept.")
        between("target_accept", target_accept, 1.0)
        between("scale", scale)
        options = {"target_accept": target_accept, SCALES[move]: scale}
        given = {option: value for option, value in options.items() if value is not None}
        self.theta_elements = [
            sweep.Theta(name, sweep.THETA_MOVES[move](**given)) for name in self.parameterizations
        ]
        super().__init__(vars, **kwargs)

    def _sweep(self) -> Sequence[sweep.Element]:
        model = self.lgm
        latent = self.latent or ("hmc" if model.has_gradient else "slice")
        moves_f = sweep.LATENT_MOVES[latent](repeats=self.latent_repeats)
        if moves_f.needs_gradient and not model.has_gradient:
            raise ValueError(no_gradient(model, "latent='slice'"))
        if moves_f.needs_curvature:
            checks.refuse_no_curvature(model, "latent='hmc' or latent='slice'")
        if not sweep.DIFFERENTIABLE.issuperset(self.parameterizations) and not model.has_gradient:
            raise ValueError(no_gradient(model, "parameterization='whitened'"))
        if self.move in ("hmc", "smmala") and not (model.has_gradient and model.has_theta_gradient):
            raise ValueError(
                f"move={self.move!r} differentiates mean, covariance, prior and likelihood in "
                "theta, and one of them cannot be. Write move='slice'."
            )
        elements: list[sweep.Element] = [moves_f]
        if model.p > 0:
            elements += self.theta_elements * self.theta_repeats
        if self.amplitude:
            amplitude_moves = sweep.amplitude_moves(model, self.amplitude)
            if not amplitude_moves:
                raise ValueError(_no_amplitude(model))
            elements += amplitude_moves
        return elements


def _no_amplitude(model: LatentGaussianModel) -> str:
    return (
        f"amplitude= moves hyper-parameters that multiply the whole covariance of {model.latent!r},"
        f" and none of {list(model.theta_names)} is one. Write cov=eta**2 * C with eta > 0 and "
        "every term inside. gp.prior() adds its jitter after the scale: write jitter=0 and "
        "cov_func=eta**2 * (kernel + pm.gp.cov.WhiteNoise(1e-3)). This step must move eta and all "
        "else that the covariance depends on."
    )


class ASIS(Sweep):
    """Move f, then theta with f fixed, then with ν fixed; leaves p(theta, f | y) invariant.

    Ancillarity-sufficiency interweaving: the two parameterizations mix well in opposite
    situations, and together in both. Two O(n³) factorizations a draw; ``amplitude=10`` interweaves
    the scale of K ten times more for none. Takes the options of `Sweep` other than
    ``parameterization``.

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
    held = ("sufficient", "whitened")
    needs = 'gradient in f; nothing with `latent="slice"`'
    cubic_ops = 2


class SufficientMetropolis(Sweep):
    """Move f, then theta with f held fixed (SA); leaves p(theta, f | y) invariant.

    One O(n³) factorization a draw. For comparison: slow unless the data say much about f. See
    `pymc_lgm.parameterizations.sufficient`. Takes the options of `Sweep` other than
    ``parameterization``.

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
    held = ("sufficient",)
    needs = 'gradient in f; nothing with `latent="slice"`'
    cubic_ops = 1


class WhitenedMetropolis(Sweep):
    """Move f, then theta with ν = L⁻¹(f − m) held fixed (AA); leaves p(theta, f | y) invariant.

    One O(n³) factorization a draw. See `pymc_lgm.parameterizations.whitened`. Takes the options
    of `Sweep` other than ``parameterization``.

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
    held = ("whitened",)
    needs = 'gradient in f; nothing with `latent="slice"`'
    cubic_ops = 1


class SurrogateSlice(Sweep):
    """Move f, then theta given surrogate data, by slices; leaves p(theta, f | y) invariant.

    Surrogate data slice sampling: f is seen through noisy data g of its own making, as noisy as
    each observation leaves it, and theta moves with g and with f as seen from g held fixed. Two
    O(n³) operations an evaluation, 2 to 4 evaluations a hyper-parameter. See
    `pymc_lgm.parameterizations.surrogate`.

    Parameters
    ----------
    vars : sequence of variables, optional
        f and the hyper-parameters to move; by default all continuous ones.
    noise : {"site", "taylor"}
        The variance of g: from each observation seen through the prior of its own f_i, or from its
        likelihood alone.
    move : {"slice", "metropolis"}
        How theta moves.
    **kwargs
        The other options of `Sweep`. The paper has ``latent="slice", latent_repeats=10``.

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
    needs, cubic_ops = "curvature in f", "4-8 a hyper-parameter"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        noise: str = "site",
        move: str = "slice",
        **kwargs: Any,
    ):
        one_of("noise", noise, ("site", "taylor"))
        self.held = (f"surrogate-{noise}",)
        super().__init__(vars, move=move, **kwargs)
