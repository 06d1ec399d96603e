"""Laplace's approximation without a factorization: Newton steps by conjugate gradients.

It serves n for which K does not fit in memory. Cutajar et al. (2016), §2.2 and supplement B, after
Rasmussen and Williams (2006), Algorithm 3.1.
"""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pymc_lgm.approximations.gaussian import Likelihood
from pymc_lgm.linalg import Array
from pymc_lgm.solvers.kernel_matrix import KernelMatrix, KernelSystem
from pymc_lgm.solvers.lanczos import log_determinant
from pymc_lgm.solvers.pcg import conjugate_gradients
from pymc_lgm.solvers.preconditioners import Preconditioner

__all__ = ["LaplaceBySolves", "Preconditioned", "laplace_by_solves"]

Preconditioned = Callable[[KernelSystem], Preconditioner]
"""B -> its preconditioner."""

AT_ONCE = 32
"""Number of columns that are solved together for variances."""


@dataclass(frozen=True, eq=False)
class LaplaceBySolves:
    """q(f) = N(f̂, (K⁻¹ + W)⁻¹), represented by products with B = I + W^½ K W^½.

    Attributes
    ----------
    center, dual : ndarray, shape (n,)
        f̂ = m + K a, and a.
    log_evidence, log_evidence_sd : float
        log q(y | theta) = ℓ(f̂) − ½ (f̂ − m)ᵀ a − ½ log|B|, and half the standard error of log|B|.
    system : KernelSystem
        B.
    preconditioner : Preconditioner
    newton_steps, iterations : int
        Number of Newton steps, and of conjugate gradient iterations in all of them. An iteration
        takes one product with K, and a step takes two more.
    converged : bool
        Whether every search met its tolerance.
    """

    center: Array
    dual: Array
    log_evidence: float
    log_evidence_sd: float
    system: KernelSystem = field(repr=False)
    preconditioner: Preconditioner = field(repr=False)
    newton_steps: int
    iterations: int
    converged: bool

    def reduction(self, cross: Array, rtol: float = 1e-6) -> Array:
        """k_*ᵀ W^½ B⁻¹ W^½ k_* of columns K_X* (n, N): prior less posterior variance of f_*."""
        reduced = np.empty(cross.shape[1])
        for i in range(0, cross.shape[1], AT_ONCE):
            part = slice(i, i + AT_ONCE)
            right = self.system.scaled(cross[:, part])
            solution = conjugate_gradients(self.system.times, right, self.preconditioner, rtol=rtol)
            reduced[part] = np.einsum("ij,ij->j", right, solution.x)
        return reduced


def laplace_by_solves(
    likelihood: Likelihood,
    mean: Array,
    kernel: KernelMatrix,
    preconditioned: Preconditioned,
    rng: np.random.Generator,
    *,
    start: Array | None = None,
    tolerance: float = 1e-6,
    rtol: float = 1e-6,
    probes: int = 16,
    max_steps: int = 50,
) -> LaplaceBySolves | None:
    """Find the mode of ℓ(f) − ½ aᵀ K a over f = m + K a, and Laplace's evidence there.

    A step of Newton's method from (f, a), with g and W at f, is

        a ← a + r − W^½ B⁻¹ W^½ K r,   r = g − a,

    halved until the objective grows. Conjugate gradients apply B⁻¹. Their error changes the step
    but leaves the mode unchanged, since f = m + K a and r are recomputed.
    `pymc_lgm.solvers.log_determinant` estimates log|B| at the mode.

    Parameters
    ----------
    likelihood : callable
        f -> (ℓ, g, W, third derivative), one f_i per observation; W is clipped at zero.
    mean : ndarray, shape (n,)
    kernel : KernelMatrix
    preconditioned : callable
        B -> P.
    rng : numpy.random.Generator
        Generator of the probes for log|B|.
    start : ndarray, shape (n,), optional
        a at which to start, by default 0, that is f = m.
    tolerance : float
        Stop when the objective can grow by no more than this.
    rtol : float
        Relative tolerance of conjugate gradients, in a step and for log|B|.
    probes : int
        Number of probes for log|B|.
    max_steps : int

    Returns
    -------
    LaplaceBySolves or None
        ``None`` if the search meets values that are not finite.
    """
    a = np.zeros_like(mean) if start is None else start
    z = np.zeros_like(mean) if start is None else kernel.times(a)
    value, g, W, _ = likelihood(mean + z)
    if start is not None and not (math.isfinite(value) and np.isfinite(g).all()):
        return laplace_by_solves(
            *(likelihood, mean, kernel, preconditioned, rng),
            tolerance=tolerance,
            rtol=rtol,
            probes=probes,
            max_steps=max_steps,
        )
    objective = value - 0.5 * float(z @ a)
    steps = iterations = 0
    solved = converged = False
    while math.isfinite(objective) and np.isfinite(g).all() and np.isfinite(W).all():
        system = KernelSystem(kernel, 1.0, np.sqrt(np.maximum(W, 0.0)))
        P = preconditioned(system)
        if converged or steps >= max_steps:
            break
        r = g - a
        Kr = kernel.times(r)
        solution = conjugate_gradients(system.times, system.scaled(Kr), P, rtol=rtol)
        steps, iterations = steps + 1, iterations + solution.iterations
        solved = solution.converged
        step = r - system.scaled(solution.x)
        step_z = kernel.times(step)
        gain = 0.5 * float(r @ step_z)
        for share in 0.5 ** np.arange(30):
            a_next, z_next = a + share * step, z + share * step_z
            value, g_next, W_next, _ = likelihood(mean + z_next)
            reached = value - 0.5 * float(z_next @ a_next)
            if reached >= objective - 1e-9 * abs(objective) and np.isfinite(g_next).all():
                break
        else:
            return None
        a, z, g, W, objective = a_next, z_next, g_next, W_next, reached
        converged = gain < tolerance
    else:
        return None
    known = P if P.log_determinant is not None else None
    determinant = log_determinant(system.times, mean.size, rng, known, probes=probes, rtol=rtol)
    return LaplaceBySolves(
        center=mean + z,
        dual=a,
        log_evidence=objective - 0.5 * determinant.value,
        log_evidence_sd=0.5 * determinant.sd,
        system=system,
        preconditioner=P,
        newton_steps=steps,
        iterations=iterations + determinant.iterations,
        converged=converged and solved and determinant.converged,
    )
