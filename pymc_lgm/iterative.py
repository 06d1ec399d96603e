"""Laplace's evidence of a process with many points, by conjugate gradients.

`pymc_lgm.laplace` returns it with ``solver="pcg"``. K is never stored.
"""

from __future__ import annotations

import math

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from numpy.typing import ArrayLike, NDArray

from pymc_lgm import solvers
from pymc_lgm.approximations.laplace_by_solves import (
    LaplaceBySolves,
    Preconditioned,
    laplace_by_solves,
)
from pymc_lgm.conditionals import vector_of
from pymc_lgm.linalg import Array
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.model.compiling import compiled
from pymc_lgm.model.jitter import jitter_of
from pymc_lgm.model.natural_scale import NaturalScale
from pymc_lgm.solvers import Approximation, KernelMatrix
from pymc_lgm.state import LikelihoodAt
from pymc_lgm.threads import few_threads

__all__ = ["PRECONDITIONERS", "IterativeEvidence", "IterativeMode"]

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
        mean = mean + cross.T @ self._q.dual
        with few_threads(len(cross)):
            return mean, np.maximum(own - self._q.reduction(cross), 0.0) if variance else None


class IterativeEvidence:
    """log q(y | theta) of Laplace's method for a process with many points.

    ``pymc_lgm.laplace(solver="pcg", gp=gp)`` returns it. It uses random numbers: the points of the
    preconditioner and the probes for log|B|. They are the same for every theta, so that evidences
    can be compared.
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
        self.lgm = lgm
        self.preconditioner, self.probes, self.rtol = preconditioner, probes, rtol
        self.rank = min(lgm.n, 4 * math.isqrt(lgm.n)) if rank is None else rank
        self._seed = int(np.random.default_rng(random_seed).integers(2**63))
        self._scale = NaturalScale(lgm, model)
        self._X = np.asarray(pt.as_tensor(gp.X).eval(), dtype=np.float64)
        self._jitter = self._jitter_of(vector_of(gp, model), jitter)
        A, B = pt.matrix("A", dtype="float64"), pt.matrix("B", dtype="float64")
        inputs = [model[name] for name in self._scale.initial]

        self._k = compiled([A, B, *inputs], gp.cov_func(A, B).astype("float64"), {})
        own = [gp.cov_func(A, diag=True), gp.mean_func(A)]
        own = [pt.broadcast_to(x, (A.shape[0],)).astype("float64") for x in own]
        self._own = compiled([A, *inputs], own, {})

    def __repr__(self) -> str:
        latent, theta = f"{self.lgm.latent} ({self.lgm.n})", ", ".join(self._scale.initial)
        return f"IterativeEvidence(laplace, latent={latent}, theta=[{theta}])"

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
        theta = self._scale.theta_of(point or {})
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

    def log_evidence(self, point: Mapping[str, ArrayLike] | None = None) -> float:
        """Approximate log p(y | theta). `at` also gives its standard error.

        Parameters
        ----------
        point : mapping of str to array_like, optional
            Variables of theta on their natural scale. Missing variables have the value of the
            model's initial point.

        Returns
        -------
        float
            NaN if q(f) was not found.
        """
        mode = self.at(point)
        return math.nan if mode is None else mode.log_evidence

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
        rng, kernel = np.random.default_rng(self._seed), self.kernel(point)
        with few_threads(self.lgm.n), np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(kernel.diagonal).all():
                return None
            q = laplace_by_solves(
                LikelihoodAt(self.lgm, theta),
                self.lgm.mean(theta),
                kernel,
                self._preconditioned(kernel, rng),
                rng,
                rtol=self.rtol,
                probes=self.probes,
            )
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
            log_evidence=q.log_evidence,
            log_evidence_sd=q.log_evidence_sd,
            f_mean=q.center,
            newton_steps=q.newton_steps,
            iterations=q.iterations,
            products=kernel.products,
            converged=q.converged,
            _q=q,
            _cross=cross,
        )

    def surface(
        self, grid: Mapping[str, ArrayLike], at: Mapping[str, ArrayLike] | None = None
    ) -> xr.Dataset:
        """``log_evidence`` and ``log_evidence_sd`` over a grid of scalar variables.

        Parameters
        ----------
        grid : mapping of str to array_like
            Values of each variable, on its natural scale.
        at : mapping of str to array_like, optional
            The other variables.
        """
        axes = {name: np.atleast_1d(np.asarray(values, float)) for name, values in grid.items()}
        surface = np.full((2, *(axis.size for axis in axes.values())), np.nan)
        for index in np.ndindex(surface.shape[1:]):
            here = {name: axis[i] for (name, axis), i in zip(axes.items(), index, strict=True)}
            if (mode := self.at({**(at or {}), **here})) is not None:
                surface[(slice(None), *index)] = mode.log_evidence, mode.log_evidence_sd
        names = "log_evidence", "log_evidence_sd"
        return xr.Dataset(
            {name: (tuple(axes), of) for name, of in zip(names, surface, strict=True)}, axes
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
