"""Mean and variance of a process at new inputs, given one posterior draw of f and theta.

They are those of a conditional normal distribution: Rasmussen and Williams (2006), eq. (2.19).
"""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from scipy.spatial import cKDTree

from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.drawn import Evaluator
from pymc_lgm.gmrf import MaternRV
from pymc_lgm.linalg import Array, factorize
from pymc_lgm.model import gaussian, is_process
from pymc_lgm.vecchia import at_new_points, is_nearest

__all__ = ["Conditional", "NearestConditional", "latent_of"]


class Conditional:
    """Mean and variances of a process at new points, given f, draw by draw.

    At a new point x with covariances k_X to X, they are m(x) + k_Xᵀ K⁻¹ (f − m) and
    k(x, x) − k_Xᵀ K⁻¹ k_X. K is the covariance of f, with the jitter of the model.

    Parameters
    ----------
    gp, latent
        The process, and its f: shape (n,), or (outputs, n) if several outputs share one covariance.
    points : ndarray, shape (points, d)
        The new points.
    posterior : Dataset
        Draws of f and of the hyper-parameters.
    model, compile_kwargs
        As in `pymc_lgm.predict`.

    Attributes
    ----------
    prior : list of variable
        Graphs of the mean and covariance of f.
    """

    def __init__(
        self,
        gp: Any,
        latent: Any,
        points: Array,
        posterior: xr.Dataset,
        model: pm.Model,
        compile_kwargs: dict[str, Any] | None,
    ):
        self.name: str = latent.name
        self._points = points
        self._draws = posterior["draw"].values
        # `pm.gp.mean.Linear` drops the axis of a single column only if its length is known.
        inputs = pt.matrix("Xnew", shape=(None, points.shape[1]), dtype="float64")
        if is_process(latent):
            m, K = latent.owner.op.dist_params(latent.owner)
        else:
            # PyMC has f = m + L v for a v with the suffix _rotated_. This K has gp.prior's jitter.
            m, K = gp.mean_func(gp.X), gaussian(model[f"{latent.name}_rotated_"], [latent]).cov
        self.prior = [m, K]
        covs = [K, gp.cov_func(gp.X, inputs), gp.cov_func(inputs, diag=True)]
        args = inputs, posterior, model, compile_kwargs
        self._covariances = Evaluator(covs, *args)
        self._means = Evaluator([m, gp.mean_func(inputs)], *args)
        self._f = posterior[latent.name].transpose("chain", "draw", ...).values
        self._theta: Any = None

    def __call__(self, i: tuple[int, ...]) -> tuple[Array, Array]:
        """Mean and variance in draw i = (chain, draw), each (points,) or (outputs, points).

        It costs one factorization of K, O(n³) operations. If the hyper-parameters of K are the same
        as in the previous call, the factor is used again.
        """
        theta = self._covariances.theta(i)
        if self._theta is None or not all(map(np.array_equal, self._theta, theta)):
            self._theta = theta
            K, K_cross, K_new = self._covariances(self._points, i)
            factor = factorize(K.astype(np.float64, copy=False))
            if factor is None:
                raise np.linalg.LinAlgError(
                    f"The covariance of {self.name} is not positive definite in chain {i[0]}, draw "
                    f"{self._draws[i[1]]}, at {self._covariances.names} = {theta}."
                )
            self._factor = factor
            self._A = factor.solve(np.asfortranarray(K_cross, dtype=np.float64))  # L⁻¹ k_X
            self._variance = np.maximum(K_new - np.einsum("ij,ij->j", self._A, self._A), 0.0)
        m, m_new = self._means(self._points, i)
        z = np.asarray(self._f[i] - m, dtype=np.float64)
        mean = m_new + (self._factor.solve(np.asfortranarray(z.T)).T @ self._A)
        return mean, np.broadcast_to(self._variance, mean.shape)


class NearestConditional:
    """Mean and variances of a `pymc_lgm.gp.Vecchia` process at new points, given f, draw by draw.

    Each new point is conditioned on its m nearest neighbors in X, as many as a point of X has. With
    f_N the values there, the mean is B f_N and the variance D. The process has mean 0.

    Parameters
    ----------
    f : variable
    points, posterior, model, compile_kwargs
        As for `Conditional`.

    Attributes
    ----------
    prior : list of variable
        Graphs of B and D, whose rows belong to the new points.
    """

    def __init__(
        self,
        f: Any,
        points: Array,
        posterior: xr.Dataset,
        model: pm.Model,
        compile_kwargs: dict[str, Any] | None,
    ):
        X, cov_func, jitter, _ = f.tag.process
        _, nearest = cKDTree(X).query(points, k=range(1, f.owner.op.neighbors.m + 1))
        self._nearest = nearest
        blocks = np.concatenate([X[nearest], points[:, None]], axis=1)
        inputs = pt.matrix("Xnew", dtype="float64")  # not read: the points are constants in B and D
        self.prior = list(at_new_points(cov_func, blocks, jitter))
        self._graphs = Evaluator(self.prior, inputs, posterior, model, compile_kwargs)
        self._points = points
        self._draws = posterior["draw"].values
        self._f = posterior[f.name].transpose("chain", "draw", ...).values
        self._theta: Any = None

    def __call__(self, i: tuple[int, ...]) -> tuple[Array, Array]:
        """Mean and variance in draw i = (chain, draw), each (points,): O(points m³) operations."""
        theta = self._graphs.theta(i)
        if self._theta is None or not all(map(np.array_equal, self._theta, theta)):
            self._theta = theta
            self._B, D = self._graphs(self._points, i)
            if not np.isfinite(D).all():
                raise np.linalg.LinAlgError(
                    "A covariance of the neighbors of a new point is not positive definite in "
                    f"chain {i[0]}, draw {self._draws[i[1]]}, at {self._graphs.names} = {theta}."
                )
            self._variance = np.maximum(D, 0.0)
        return np.einsum("ij,ij->i", self._B, self._f[i][self._nearest]), self._variance


def latent_of(gp: Any, model: pm.Model) -> Any:
    """Return the variable f of a process that `pymc_lgm.predict` can continue.

    Parameters
    ----------
    gp : pymc.gp.Latent, or variable
        A process on which ``prior`` was called, or the result of `pymc_lgm.gp.Vecchia`.
    model : pymc.Model
        It must contain f.

    Raises
    ------
    ValueError
        For anything else. The message says what to pass instead.
    """
    if is_nearest(gp):
        B, _ = gp.owner.op.dist_params(gp.owner)
        if model.named_vars.get(gp.name) is not gp:
            raise ValueError(
                f"{gp.name} is not a variable of this model (variables: "
                f"{sorted(model.named_vars)}): pass what lgm.gp.Vecchia returned in this model."
            )
        if not hasattr(gp.tag, "process") or gp.tag.process.B is not B:
            raise ValueError(
                f"{gp.name} is of a copy of a model, which does not know its covariance function: "
                "pass the variable of the original model, and model= that model."
            )
        return gp
    if isinstance(op_of(gp), MaternRV):
        raise ValueError(
            f"{gp.name} is a field on a mesh, which is linear on each triangle. Write "
            f"mesh.at(Xnew, idata.posterior[{gp.name!r}]): its values at new points, in each draw."
        )
    if not isinstance(gp, pm.gp.Latent) or isinstance(gp, pm.gp.TP):
        raise ValueError(
            f"gp is a {type(gp).__name__}: predict takes the pm.gp.Latent whose prior made f, or "
            "steps= and a series. For other processes use gp.conditional and "
            "pm.sample_posterior_predictive."
        )
    f = getattr(gp, "f", None)
    if f is None:
        raise ValueError(
            "gp has no f: pass the process on which gp.prior('f', X) was called. For one part of "
            "a sum of processes use gp.conditional(..., given=...)."
        )
    if model.named_vars.get(f.name) is not f:
        raise ValueError(
            f"gp made {f.name}, which is not a variable of this model (variables: "
            f"{sorted(model.named_vars)}): pass the gp of this model, or model= of this gp."
        )
    return f
