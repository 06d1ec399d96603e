"""Riemann manifold HMC on f given theta, with the metric G(f) = K⁻¹ + W(f) at f itself.

Girolami and Calderhead (2011), *Riemann manifold Langevin and Hamiltonian Monte Carlo methods*,
JRSS B 73, §6 and eqs. (15) to (18); "RM-HMC" with G_f of Filippone's multinomial logit with several
kernels (2017, a habilitation thesis). The check of the way back is that of Zappa, Holmes-Cerfon and
Goodman (2018), *Monte Carlo on manifolds*, Communications on Pure and Applied Mathematics 71, §2.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from pymc_lgm.gaussian import Posterior
from pymc_lgm.gaussian.sites import (
    ClassBlocks,
    Precision,
    SiteBlocks,
    as_operator,
    gathered,
    is_finite,
)
from pymc_lgm.linalg import Array
from pymc_lgm.moves.latent.stepping import Force, Info, Integrator, Trajectories, accept
from pymc_lgm.state import AtTheta, State
from pymc_lgm.steps.latent import LatentStep
from pymc_lgm.steps.options import StepOptions

__all__ = ["Place", "PositionHMC", "PositionMove", "fixed_point", "place", "position_hmc", "step"]

RIDGE = 1e-6
"""Added to the diagonals of blocks, since those of classes are singular; the same at every f."""

NEGATIVE = 1e-10
"""If W_i is less than minus this share of the largest |W_i|, that is no rounding error, and W is no
metric."""

CHECK = 1e-8
"""Tolerance of the reversibility check, relative to the largest element."""


@dataclass(frozen=True, eq=False)
class Place:
    """A ν, and the terms of Hamilton's equations at f = m + L ν.

    Attributes
    ----------
    at : AtTheta
    nu : ndarray, shape (r,)
    f : ndarray, shape (n,)
    log_likelihood : float
    gradient : ndarray, shape (n,)
        g.
    posterior : Posterior
        The prior conditioned on W at f.
    third : ndarray, shape (n,)
        ∂³ℓ/∂f³; NaN if an observation reads several f_i.
    """

    at: AtTheta
    nu: Array
    f: Array
    log_likelihood: float
    gradient: Array
    posterior: Posterior
    third: Array

    def velocity(self, momentum: Array) -> Array:
        """ν̇ = (I + Lᵀ W L)⁻¹ π = π − Lᵀ (I + W K)⁻¹ W L π."""
        W_v = self.posterior.precision_times(self.at.prior.multiply(momentum))
        return momentum - self.at.prior.multiply_transposed(self.posterior.alpha(W_v))

    @cached_property
    def at_rest(self) -> Array:
        """∂H/∂ν of a momentum of 0: ν − Lᵀ (g − ½ ∂⟨Σ, W⟩/∂f)."""
        pull = self.gradient - 0.5 * self._bend(self.posterior.site_covariances)
        return self.nu - self.at.prior.multiply_transposed(pull)

    def slope(self, momentum: Array) -> Array:
        """∂H/∂ν = ν − Lᵀ (g − ½ ∂⟨M, W⟩/∂f), M = Σ − v vᵀ held fixed, v = L ν̇."""
        v = self.at.prior.multiply(self.velocity(momentum))
        W = self.posterior.precision
        rows = gathered(W.sets, v) if isinstance(W, SiteBlocks) else v[:, None]
        moving = 0.5 * self._bend(rows[:, :, None] * rows[:, None, :])
        return self.at_rest - self.at.prior.multiply_transposed(moving)

    def energy(self, momentum: Array) -> float:
        """H = −ℓ + ½ |ν|² + ½ log|I + Lᵀ W L| + ½ πᵀ ν̇."""
        quadratic = self.nu @ self.nu + momentum @ self.velocity(momentum)
        return 0.5 * float(quadratic + self.posterior.log_determinant) - self.log_likelihood

    def draw(self, rng: np.random.Generator) -> Array:
        """π ~ N(0, I + Lᵀ W L)."""
        noise = as_operator(self.posterior.precision).root_times(rng.standard_normal(self.f.size))
        return rng.standard_normal(self.nu.size) + self.at.prior.multiply_transposed(noise)

    def _bend(self, M: Array) -> Array:
        """∂⟨M, W(f)⟩/∂f of blocks M (G, s, s), or (n, 1, 1) with a diagonal W."""
        if not isinstance(self.posterior.precision, SiteBlocks):
            return -M[:, 0, 0] * self.third
        return self.at.model.curvature_gradient(self.f, self.at.theta, M)


def place(at: AtTheta, nu: Array, f: Array | None = None) -> Place | None:
    """Evaluate ν by one O(n³) operation; ``None`` if a value is not finite or W is not ≥ 0."""
    f = at.prior.mean + at.prior.multiply(nu) if f is None else f
    log_likelihood, g, W, third = at.model.likelihood_terms(f, at.theta)
    known = math.isfinite(log_likelihood) and np.isfinite(g).all() and is_finite(W)
    metric = _metric(W) if known else None
    posterior = None if metric is None else at.prior.condition(metric)
    return None if posterior is None else Place(at, nu, f, log_likelihood, g, posterior, third)


def _metric(W: Any) -> Precision | None:
    """W if it is a metric; ``None`` if it is negative, since a clipped W has no derivative."""
    if not isinstance(W, SiteBlocks):
        # Rounding errors of a W near zero are not curvature.
        return np.maximum(W, 0.0) if W.min() >= -NEGATIVE * np.abs(W).max() else None
    raised = replace(W, values=W.values + RIDGE * np.eye(W.sets.shape[1]))
    positive = isinstance(W, ClassBlocks) or (np.linalg.eigvalsh(raised.values) > 0.0).all()
    return raised if positive else None


Look = Callable[[Array], Place | None]


def step(here: Place, momentum: Array, step_size: float, look: Look) -> tuple[Place, Array] | None:
    """One step of the generalized leapfrog, an involution up to the momentum's sign.

        π_½ = π − ½ ε ∂H/∂ν(ν, π_½),
        ν' = ν + ½ ε (ν̇(ν, π_½) + ν̇(ν', π_½)),
        π' = π_½ − ½ ε ∂H/∂ν(ν', π_½).

    Returns
    -------
    Place, ndarray, or None
        ν' and π'; ``None`` if one of the first two equations was not solved, or if the same step
        from (ν', −π') does not come back.
    """
    forth = _implicit(here, momentum, step_size, look)
    if forth is None:
        return None
    middle, there = forth
    end = middle - 0.5 * step_size * there.slope(middle)
    back = _implicit(there, -end, step_size, look)
    if back is None or not (_near(-back[0], middle) and _near(back[1].nu, here.nu)):
        return None
    return there, end


def _implicit(
    here: Place, momentum: Array, step_size: float, look: Look
) -> tuple[Array, Place] | None:
    """π_½ and ν'. The starts of the searches depend only on the start of the step."""
    half = 0.5 * step_size
    kicked = fixed_point(lambda middle: (momentum - half * here.slope(middle), None), momentum)
    if kicked is None:
        return None
    middle, _ = kicked
    velocity = here.velocity(middle)

    def image(nu: Array) -> tuple[Array, Place] | None:
        there = look(nu)
        if there is None:
            return None
        return here.nu + half * (velocity + there.velocity(middle)), there

    drifted = fixed_point(image, here.nu + step_size * velocity)
    return None if drifted is None else (middle, drifted[1])


def _near(x: Array, y: Array) -> bool:
    return bool(np.abs(x - y).max(initial=0.0) <= CHECK * (1.0 + np.abs(y).max(initial=0.0)))


def position_hmc(
    rng: np.random.Generator, state: State, *, step_size: float, max_steps: int = 10
) -> tuple[State, Info]:
    """Leave p(f | y, theta) invariant by following Hamilton's equations with M = G(f).

    With G(f) = K⁻¹ + W(f), p ~ N(0, G(f)) and z = f − m,

        H(f, p) = −ℓ(f) + ½ zᵀ K⁻¹ z + ½ log|G(f)| + ½ pᵀ G(f)⁻¹ p,

    which is computed in ν = L⁻¹ z and π = Lᵀ p: there G is I + Lᵀ W L, K is not inverted, and may
    be singular. A trajectory takes 1 to ``max_steps`` steps of the generalized leapfrog, `step`.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    step_size : float
        ε: the thesis takes 0.5.
    max_steps : int
        Each trajectory takes 1 to ``max_steps`` steps, uniformly. The thesis takes 10.

    Returns
    -------
    State, Info

    Notes
    -----
    The solution of the step's equations is reversible and keeps volumes. They are solved to a
    relative 1e-10, and each step is also taken back from its end. A trajectory is rejected, and
    counted in `pymc_lgm.linalg.tally`, if a step is not solved within 30 iterations in each
    direction, or does not return within a relative 1e-8. So detailed balance holds up to these
    tolerances even if the equations have several solutions.

    Requires W(f) ≥ 0, which log-concave likelihoods have, and its derivative in f. If W is negative
    there is no metric, and a trajectory that meets such an f is rejected. 1e-6 is added to the
    diagonals of blocks of W. If effects are integrated out by quadrature, the third derivative
    agrees with W to about 1e-5, and so volumes are kept to about 1e-5. Cost: one O(n³) operation
    per iteration of the second equation, and one for the diagonal of Σ, or its blocks. A step
    mostly takes 4 to 10 iterations, and as many back.
    """
    evaluations = 0

    def look(nu: Array, f: Array | None = None) -> Place | None:
        nonlocal evaluations
        evaluations += 1
        return place(state.at, nu, f)

    def begin() -> Place | None:
        return look(state.prior.solve(state.f - state.mean), state.f)

    start = state.once("place", begin)
    end = None
    log_ratio = -math.inf
    if start is not None:
        at = start
        momentum = start.draw(rng)
        energy = start.energy(momentum)
        for _ in range(int(rng.integers(1, max_steps, endpoint=True))):
            moved = step(at, momentum, step_size, look)
            if moved is None:
                break
            at, momentum = moved
        else:
            end = Force(at.f, at.log_likelihood, momentum)
            log_ratio = energy - at.energy(momentum)
    return accept(rng, state, end, log_ratio, evaluations)


@dataclass(frozen=True)
class PositionMove(Trajectories):
    """HMC on f with the metric at f itself; its step size learns to be accepted."""

    integrator: Integrator = "leapfrog"
    max_steps: int = 10
    needs_curvature = needs_metric = True

    def _move(self, rng: np.random.Generator, state: State, step_size: float) -> tuple[State, Info]:
        return position_hmc(rng, state, step_size=step_size, max_steps=self._most(step_size))


MEMORY = 8
"""Number of earlier iterates that are used."""

SOLVED, MOST = 1e-10, 30
"""Relative tolerance of `fixed_point`, and its largest number of evaluations."""


def fixed_point[T](
    image: Callable[[Array], tuple[Array, T] | None], start: Array
) -> tuple[Array, T] | None:
    """Solve x = g(x) by iteration, until no |g(x) − x| exceeds 1e-10 (1 + max |x|).

    With residuals r_k = g(x_k) − x_k the next iterate is g(x_k) − ΔG γ, where γ minimizes
    |r_k − ΔR γ| and the columns of ΔR and ΔG are differences of the last residuals and images.

    Parameters
    ----------
    image : callable
        x -> g(x) and anything else computed at x; ``None`` if g(x) does not exist.
    start : ndarray, shape (n,)

    Returns
    -------
    x : ndarray, shape (n,)
    what : object
        Whatever ``image`` computed at x. Both are ``None`` after 30 evaluations of g.

    Examples
    --------
    >>> import numpy as np
    >>> x, evaluated_at = fixed_point(lambda x: (np.cos(x), x), np.zeros(1))
    >>> round(float(x[0]), 8)
    0.73908513
    """
    x = start
    residuals: list[Array] = []
    images: list[Array] = []
    for _ in range(MOST):
        found = image(x)
        if found is None:
            return None
        y, what = found
        r = y - x
        if not np.isfinite(r).all():
            return None
        if np.abs(r).max(initial=0.0) <= SOLVED * (1.0 + np.abs(x).max(initial=0.0)):
            return x, what
        residuals, images = [*residuals[-MEMORY:], r], [*images[-MEMORY:], y]
        x = y
        if len(images) > 1:
            share = np.linalg.lstsq(np.diff(residuals, axis=0).T, r, rcond=None)[0]
            x = y - np.diff(images, axis=0).T @ share
    return None


class PositionHMC(LatentStep):
    """Move f given theta by HMC with the metric at f itself; leaves p(f | y, theta) invariant.

    For comparison. The metric is G(f) = K⁻¹ + W(f) ("RM-HMC" with G_f). Each step solves two
    implicit equations to a relative 1e-10, which takes 10 to 30 O(n³) factorizations. See
    `position_hmc`.

    Parameters
    ----------
    vars : variable, optional
        f; may be left out if the model has one latent.
    path_length : float
        Each trajectory takes 1 to path_length / ε steps of size ε, uniformly.
    max_steps : int
        Largest number of steps.
    target_accept : float
        Acceptance probability to which tuning brings the step size.
    step_size : float
        Initial step size ε.
    repeats : int
        Trajectories per draw.
    **kwargs
        ``model``, ``theta``, ``rng``, ``initial_point`` and others: see `LatentGaussianStep`.

    Raises
    ------
    ValueError
        If the likelihood is not known to be log-concave in f, or has no third derivative.

    See Also
    --------
    LatentHMC : A metric that does not depend on f, for one factorization per theta.

    References
    ----------
    Girolami and Calderhead (2011), JRSS B 73, §6; Filippone et al. (2012), *Probabilistic
    prediction of neurological disorders with a statistical assessment of neuroimaging data
    modalities*, Annals of Applied Statistics 6, §5.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=[[1.0, 0.5], [0.5, 1.0]])
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     step = lgm.papers.PositionHMC(f, max_steps=5)
    >>> step
    PositionHMC([f])
    """

    name = "position_hmc"

    def __init__(
        self,
        vars: Any = None,
        *,
        path_length: float = 2.4,
        max_steps: int = 10,
        target_accept: float = 0.8,
        step_size: float = 0.2,
        repeats: int = 1,
        **kwargs: Unpack[StepOptions],
    ):
        move = PositionMove(
            repeats, step_size, target_accept, path_length=path_length, max_steps=max_steps
        )
        super().__init__(vars, move, **kwargs)
