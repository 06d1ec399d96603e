"""Laplace's evidence of a process with many points, by conjugate gradients.

K is never stored. Cutajar, Osborne, Cunningham and Filippone (2016), *Preconditioning kernel
matrices*, ICML, §2.2 and supplement B, after Rasmussen and Williams (2006), Algorithm 3.1.
"""

from __future__ import annotations

import math

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from numpy.typing import ArrayLike, NDArray
from pytensor.tensor.basic import Eye

from pymc_lgm.approximations.gaussian import Likelihood
from pymc_lgm.approximations.laplace import ascent
from pymc_lgm.compile.graphs.functions import compiled
from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.conditionals import latent_of
from pymc_lgm.drawn import model_of
from pymc_lgm.evidence import Evidence, refuse_no_evidence
from pymc_lgm.linalg import Array
from pymc_lgm.model import LatentGaussianModel, find_latents
from pymc_lgm.model.operations import constant_of
from pymc_lgm.papers import solvers
from pymc_lgm.papers.solvers import Approximation
from pymc_lgm.papers.solvers.kernel_matrix import KernelMatrix, KernelSystem
from pymc_lgm.papers.solvers.lanczos import log_determinant
from pymc_lgm.papers.solvers.pcg import conjugate_gradients
from pymc_lgm.papers.solvers.preconditioners import Preconditioner
from pymc_lgm.state import LikelihoodAt
from pymc_lgm.threads import few_threads
from pymc_lgm.vecchia import is_nearest

__all__ = [
    "PRECONDITIONERS",
    "IterativeEvidence",
    "IterativeMode",
    "LaplaceBySolves",
    "jitter_of",
    "laplace_by_pcg",
    "laplace_by_solves",
]

Preconditioned = Callable[[KernelSystem], Preconditioner]
"""B -> its preconditioner."""

TOLERANCE, MAX_STEPS = 1e-6, 50
"""The search for the mode ends when the objective can grow by no more, or after so many steps."""

AT_ONCE = 32
"""Number of columns that are solved together for variances."""


@dataclass(frozen=True, eq=False)
class LaplaceBySolves:
    """q(f) = N(f̂, (K⁻¹ + W)⁻¹), represented by products with B = I + W^½ K W^½.

    Attributes
    ----------
    center, alpha : ndarray, shape (n,)
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
    alpha: Array
    log_evidence: float
    log_evidence_sd: float
    system: KernelSystem = field(repr=False)
    preconditioner: Preconditioner = field(repr=False)
    newton_steps: int
    iterations: int
    converged: bool

    def reduction(self, cross: Array) -> Array:
        """k_*ᵀ W^½ B⁻¹ W^½ k_* of columns K_X* (n, N): prior less posterior variance of f_*."""
        reduced = np.empty(cross.shape[1])
        for i in range(0, cross.shape[1], AT_ONCE):
            part = slice(i, i + AT_ONCE)
            right = self.system.scaled(cross[:, part])
            solution = conjugate_gradients(self.system.times, right, self.preconditioner)
            reduced[part] = np.einsum("ij,ij->j", right, solution.x)
        return reduced


def laplace_by_solves(
    likelihood: Likelihood,
    mean: Array,
    kernel: KernelMatrix,
    preconditioned: Preconditioned,
    rng: np.random.Generator,
    *,
    rtol: float = 1e-6,
    probes: int = 16,
) -> LaplaceBySolves | None:
    """Find the mode of ℓ(f) − ½ aᵀ K a over f = m + K a, and Laplace's evidence there.

    A step of Newton's method from (f, a), at first (m, 0), with g and W at f, is

        a ← a + r − W^½ B⁻¹ W^½ K r,   r = g − a,

    halved until the objective grows. Conjugate gradients apply B⁻¹. Their error changes the step
    but leaves the mode unchanged, since f = m + K a and r are recomputed.
    `pymc_lgm.papers.solvers.log_determinant` estimates log|B| at the mode.

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
    rtol : float
        Relative tolerance of conjugate gradients, in a step and for log|B|.
    probes : int
        Number of probes for log|B|.

    Returns
    -------
    LaplaceBySolves or None
        ``None`` if the search meets values that are not finite.
    """
    a = z = np.zeros_like(mean)
    objective, g, W, _ = likelihood(mean)
    steps = iterations = 0
    solved = converged = False
    while math.isfinite(objective) and np.isfinite(g).all() and np.isfinite(W).all():
        system = KernelSystem(kernel, 1.0, np.sqrt(np.maximum(W, 0.0)))
        P = preconditioned(system)
        if converged or steps >= MAX_STEPS:
            break
        r = g - a
        Kr = kernel.times(r)
        solution = conjugate_gradients(system.times, system.scaled(Kr), P, rtol=rtol)
        steps, iterations = steps + 1, iterations + solution.iterations
        solved = solution.converged
        step = r - system.scaled(solution.x)
        step_z = kernel.times(step)
        gain = 0.5 * float(r @ step_z)
        reached = ascent(likelihood, mean, (a, z), (step, step_z), objective)
        if reached is None:
            return None
        a, z, g, W, objective = reached
        converged = gain < TOLERANCE
    else:
        return None
    known = P if P.log_determinant is not None else None
    determinant = log_determinant(system.times, mean.size, rng, known, probes=probes, rtol=rtol)
    return LaplaceBySolves(
        center=mean + z,
        alpha=a,
        log_evidence=objective - 0.5 * determinant.value,
        log_evidence_sd=0.5 * determinant.sd,
        system=system,
        preconditioner=P,
        newton_steps=steps,
        iterations=iterations + determinant.iterations,
        converged=converged and solved and determinant.converged,
    )


PRECONDITIONERS: dict[str, Callable[[KernelMatrix, int, np.random.Generator], Approximation]] = {
    "nystrom": solvers.nystrom,
    "fitc": solvers.fitc,
    "pitc": solvers.pitc,
    "svd": solvers.randomized_svd,
    "block-jacobi": lambda kernel, m, rng: solvers.block_jacobi(kernel, m),
}
"""Preconditioners that need K alone. Random features need its spectral density."""


@dataclass(frozen=True, eq=False)
class IterativeMode:
    """The mode of p(f | y, theta), Laplace's evidence, and predictions.

    Attributes
    ----------
    point : dict of str to ndarray
        Values of theta on the natural scale.
    log_evidence, log_evidence_sd : float
        log q(y | theta), and its standard error from the random probes.
    f_mean : ndarray, shape (n,)
        f̂.
    newton_steps, iterations : int
        Number of Newton steps, and of conjugate gradient iterations with those for log|B|.
    products : int
        Number of vectors that K was multiplied with, in the search and for the probes.
    converged : bool
    """

    point: dict[str, NDArray[Any]]
    log_evidence: float
    log_evidence_sd: float
    f_mean: Array = field(repr=False)
    newton_steps: int
    iterations: int
    products: int
    converged: bool
    _q: LaplaceBySolves = field(repr=False)
    _cross: Callable[[Array], tuple[Array, Array, Array]] = field(repr=False)

    def predict(self, Xnew: ArrayLike, variance: bool = True) -> tuple[Array, Array | None]:
        """Mean and variance of f at new inputs, given y and this theta.

            m_* + K_*X a,   k_** − k_*ᵀ W^½ B⁻¹ W^½ k_*

        Parameters
        ----------
        Xnew : array_like, shape (points, d)
        variance : bool
            Compute variances. Each takes the solution of a linear system; a mean takes an inner
            product.

        Returns
        -------
        mean : ndarray, shape (points,)
        variance : ndarray, shape (points,), or None

        Notes
        -----
        O(n) memory per point, so pass thousands of points in parts.
        """
        points = np.asarray(Xnew, dtype=np.float64)
        mean, own, cross = self._cross(points)
        mean = mean + cross.T @ self._q.alpha
        with few_threads(len(cross)):
            return mean, np.maximum(own - self._q.reduction(cross), 0.0) if variance else None


class IterativeEvidence(Evidence):
    """log q(y | theta) of Laplace's method for a process with many points.

    `laplace_by_pcg` returns it. It is an `Evidence` whose method `at` also gives the standard error
    of the evidence, and predictions. It uses random numbers: the points of the preconditioner and
    the probes for log|B|. They are the same for every theta, so that evidences can be compared.
    """

    def __init__(
        self,
        lgm: LatentGaussianModel,
        model: pm.Model,
        gp: Any,
        *,
        preconditioner: str | None = "nystrom",
        rank: int | None = None,
        probes: int = 16,
        rtol: float = 1e-6,
        jitter: float | None = None,
        random_seed: Any = None,
    ):
        if preconditioner is not None and preconditioner not in PRECONDITIONERS:
            raise ValueError(
                f"preconditioner={preconditioner!r} is unknown. Choose from "
                f"{', '.join(map(repr, PRECONDITIONERS))}, or None for no preconditioner."
            )
        if probes < 2:
            raise ValueError(f"probes={probes}: a standard error takes at least two.")
        if rank is not None and not 1 <= rank <= lgm.n:
            raise ValueError(f"rank={rank}: a preconditioner has between 1 and n = {lgm.n}.")
        super().__init__("laplace", lgm, model)
        self._has_gradient = False
        self.preconditioner, self.probes, self.rtol = preconditioner, probes, rtol
        self.rank = min(lgm.n, 4 * math.isqrt(lgm.n)) if rank is None else rank
        self._seed = int(np.random.default_rng(random_seed).integers(2**63))
        self._X = np.asarray(pt.as_tensor(gp.X).eval(), dtype=np.float64)
        self._jitter = self._jitter_of(_vector_of(gp, model), jitter)
        A, B = pt.matrix("A", dtype="float64"), pt.matrix("B", dtype="float64")
        inputs = [model[name] for name in self._scale.initial]

        self._k = compiled([A, B, *inputs], gp.cov_func(A, B).astype("float64"), {})
        own = [gp.cov_func(A, diag=True), gp.mean_func(A)]
        own = [pt.broadcast_to(x, (A.shape[0],)).astype("float64") for x in own]
        self._own = compiled([A, *inputs], own, {})

    def _jitter_of(self, latent: Any, jitter: float | None) -> float:
        read = jitter_of(latent) if jitter is None else jitter
        if read is None:
            raise ValueError(
                f"The covariance of {latent.name!r} does not say which number is on its diagonal. "
                "Write the jitter= of gp.prior."
            )
        return read

    def kernel(self, point: Mapping[str, ArrayLike] | None = None) -> KernelMatrix:
        """K of f at a theta with its jitter, for conjugate gradients."""
        return self._kernel_at(self._scale.theta_of(point or {}))

    def _kernel_at(self, theta: Array) -> KernelMatrix:
        values = list(self._scale.point_of(theta).values())

        def entries(rows: solvers.Index, columns: solvers.Index) -> Array:
            block: Array = self._k(self._X[rows], self._X[columns], *values)
            # Terms on the diagonal alone, such as white noise, are not in k(x, x') and are added
            # here.
            i, j = _on_the_diagonal(rows, columns, self.lgm.n)
            if i.size:
                block[i, j] = self._own(self._X[rows][i], *values)[0] + self._jitter
            return block

        return KernelMatrix(entries, self.lgm.n)

    def at(self, point: Mapping[str, ArrayLike] | None = None) -> IterativeMode | None:
        """The mode at a theta, with the evidence and its standard error.

        Parameters
        ----------
        point : mapping of str to array_like, optional
            As in `log_evidence`.

        Returns
        -------
        IterativeMode or None
            ``None`` if the search met values that are not finite.
        """
        theta = self._scale.theta_of(point or {})
        natural = self._scale.point_of(theta)
        with few_threads(self.lgm.n):
            q = self._approximate(theta)
        if q is None:
            return None

        def cross(points: Array) -> tuple[Array, Array, Array]:
            if points.ndim != 2 or points.shape[1] != self._X.shape[1]:
                raise ValueError(
                    f"Xnew has shape {points.shape} and gp.X has {self._X.shape[1]} column(s): "
                    "Xnew needs the same columns, one row per point."
                )
            values = list(natural.values())
            own, mean = self._own(points, *values)
            return mean, own, self._k(self._X, points, *values)

        return IterativeMode(
            point=natural,
            log_evidence=self._of(q, theta, prior=False),
            log_evidence_sd=q.log_evidence_sd,
            f_mean=q.center,
            newton_steps=q.newton_steps,
            iterations=q.iterations,
            products=q.system.kernel.products,
            converged=q.converged,
            _q=q,
            _cross=cross,
        )

    @np.errstate(over="ignore", invalid="ignore")
    def _approximate(self, theta: Array) -> LaplaceBySolves | None:
        """Find the mode by conjugate gradients; ``None`` if the search meets values not finite."""
        rng = np.random.default_rng(self._seed)
        kernel = self._kernel_at(theta)
        if not np.isfinite(kernel.diagonal).all():
            return None
        return laplace_by_solves(
            LikelihoodAt(self.lgm, theta),
            self.lgm.mean(theta),
            kernel,
            self._preconditioned(kernel, rng),
            rng,
            rtol=self.rtol,
            probes=self.probes,
        )

    def _preconditioned(self, kernel: KernelMatrix, rng: np.random.Generator) -> Preconditioned:
        if self.preconditioner is None:
            return lambda system: solvers.Identity(system.n)
        return PRECONDITIONERS[self.preconditioner](kernel, self.rank, rng).preconditioner


def _on_the_diagonal(
    rows: solvers.Index, columns: solvers.Index, n: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions in K[rows, columns] of the elements of K's diagonal."""
    if isinstance(rows, slice) and isinstance(columns, slice):
        both = np.arange(max(rows.start, columns.start), min(rows.stop, columns.stop))
        return both - rows.start, both - columns.start
    every = np.arange(n)
    _, i, j = np.intersect1d(every[rows], every[columns], return_indices=True)
    return i, j


def laplace_by_pcg(
    gp: Any,
    model: pm.Model | None = None,
    *,
    preconditioner: str | None = "nystrom",
    rank: int | None = None,
    probes: int = 16,
    rtol: float = 1e-6,
    jitter: float | None = None,
    random_seed: Any = None,
) -> IterativeEvidence:
    """Approximate the evidence by Laplace's method with conjugate gradients.

    K is never stored. Products with K are computed block by block, preconditioned conjugate
    gradients solve the systems, and random probes estimate log|B|.

    Parameters
    ----------
    gp : pymc.gp.Latent
        The process whose ``prior(..., reparameterize=False)`` made f.
    model : pymc.Model, optional
        By default the model of the context.
    preconditioner : {"nystrom", "fitc", "pitc", "svd", "block-jacobi", None}
    rank : int, optional
        Number of the preconditioner's points, of its columns, or of the rows of a block; by default
        4 √n.
    probes : int
        Number of probes for log|B|.
    rtol : float
        Relative tolerance of the conjugate gradients.
    jitter : float, optional
        By default read from the model.
    random_seed : int or numpy.random.Generator, optional
        Seed of the preconditioner and of the probes.

    Returns
    -------
    IterativeEvidence
        As `laplace`, with one more method: ``at`` computes the standard error from the probes, and
        predictions. A product takes O(n²) operations, and the memory is O(n^1.5).

    Raises
    ------
    ValueError
        If variables that depend on f are not observed, if a hyper-parameter is discrete, if the
        likelihood cannot be differentiated in f, or if a density depends on several elements of f.

    See Also
    --------
    laplace : The same by factorizations. It uses negative curvature of the likelihood, which is
        set to 0 here: this evidence is then smaller.

    References
    ----------
    K. Cutajar, M. A. Osborne, J. P. Cunningham, M. Filippone (2016). Preconditioning kernel
    matrices. ICML.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> X = np.linspace(0, 10, 300)[:, None]
    >>> y = np.random.default_rng(0).poisson(np.exp(np.sin(X[:, 0])))
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=1.0))
    ...     f = gp.prior("f", X, reparameterize=False)
    ...     _ = pm.Poisson("y", mu=pm.math.exp(f), observed=y)
    ...     mode = lgm.papers.laplace_by_pcg(gp, random_seed=1).at({"eta": 1.0})
    ...     exact = lgm.laplace().log_evidence({"eta": 1.0})
    >>> abs(mode.log_evidence - exact) < 1e-3
    True
    """
    model = model_of(model, "lgm.papers.laplace_by_pcg(gp)")
    f = _vector_of(gp, model)
    if not find_latents(model, f).is_one_vector:
        raise ValueError(
            f"Conjugate gradients read {f.name} one element at a time, and a density of this model "
            "reads sums of them. Write observations that depend on one element each, or "
            "lgm.laplace()."
        )
    lgm = LatentGaussianModel.from_pymc(model, f, covariance=False)
    refuse_no_evidence(lgm, model)
    return IterativeEvidence(
        lgm,
        model,
        gp,
        preconditioner=preconditioner,
        rank=rank,
        probes=probes,
        rtol=rtol,
        jitter=jitter,
        random_seed=random_seed,
    )


def _vector_of(gp: Any, model: pm.Model) -> Any:
    """f of a process, if it is a free vector of the model."""
    if gp is None:
        raise ValueError(
            "laplace_by_pcg computes the covariance block by block, and a model has it as a whole "
            "only: pass the process, as in lgm.papers.laplace_by_pcg(gp)."
        )
    if is_nearest(gp):
        raise ValueError(
            f"{gp.name!r} is a lgm.gp.Vecchia, whose precision is sparse: laplace_by_pcg is for a "
            "dense covariance. Write lgm.PseudoMarginal()."
        )
    f = latent_of(gp, model)
    if f not in model.free_RVs:
        raise ValueError(
            f"{f.name!r} is computed from {f.name}_rotated_ by a factor of K, which is "
            f"never made here: write gp.prior({f.name!r}, X, reparameterize=False)."
        )
    if f.ndim != 1:
        raise ValueError(
            f"{f.name!r} has shape {f.type.shape}: laplace_by_pcg is for one process. "
            "Write lgm.PseudoMarginal(), which samples several."
        )
    return f


def jitter_of(latent: Any) -> float | None:
    """The ``jitter`` of ``gp.prior(..., reparameterize=False, jitter=)``, found in the graph.

    ``None`` if the covariance is not K + jitter · I.
    """
    _, cov = latent.owner.op.dist_params(latent.owner)
    for term in _inputs_of(cov):
        factors = _inputs_of(term)
        if any(isinstance(op_of(each), Eye) for each in factors):
            numbers = [x for x in map(constant_of, factors) if x is not None and np.size(x) == 1]
            return float(np.ravel(numbers[0])[0]) if numbers else None
    return None


def _inputs_of(variable: Any) -> list[Any]:
    return [] if variable.owner is None else list(variable.owner.inputs)
