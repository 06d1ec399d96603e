"""Gaussian processes with many points, by inducing variables or by nearest neighbors."""

from __future__ import annotations

from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc.gp.util import JITTER_DEFAULT, stabilize
from pytensor.tensor.linalg import cholesky, solve_triangular

from pymc_lgm.inducing_points import place_inducing_points, with_spread_of_fit
from pymc_lgm.likelihoods.base import as_inputs, known_shape, refuse_no_rows
from pymc_lgm.likelihoods.expected import Expected, Projected
from pymc_lgm.likelihoods.registry import mark_inducing
from pymc_lgm.vecchia import Vecchia

__all__ = [
    "Expected",
    "Projected",
    "SparseLatent",
    "Vecchia",
    "place_inducing_points",
]

LEAST = 1e-10
"""Smallest variance γ_i, so that the derivative of its square root is finite."""


class SparseLatent(pm.gp.Latent):
    r"""A latent Gaussian process for thousands of points, through m inducing variables.

    .. math::

       u \sim N(m(Z), K_{uu}), \quad
       f_i \mid u \sim N(m(x_i) + a_i^\top v, \; k(x_i, x_i) - a_i^\top a_i), \quad
       A = R^{-1} K_{uf}, \; R R^\top = K_{uu} + \epsilon I, \; u = m(Z) + R v .

    The log likelihood is replaced by its expectation under the normal distribution of f_i given u.
    The sampled density is therefore

    .. math::

       \hat q(v, \theta) \propto p(\theta) \, N(v; 0, I) \,
       \exp \sum_i E\{\log p(y_i \mid f_i)\} .

    Among all distributions in which the data inform f through u alone, it is the closest to the
    posterior of f and theta in Kullback–Leibler divergence (Hensman et al. 2015). It differs from
    the posterior of the process itself unless Z = X.

    Parameters
    ----------
    cov_func, mean_func
        As for `pymc.gp.Latent`.

    Raises
    ------
    ValueError
        By `prior`, if `Xu` is missing, if `X` or `Xu` is not a matrix of finite numbers, if their
        columns differ, if `Xu` has more points than `X`, or if ``n_outputs`` is not 1.

    See Also
    --------
    papers.RandomFeatures : For more than two or three inputs.
    gp.place_inducing_points : Placement of the inducing points.
    gp.Expected : Any likelihood of PyMC for such a process.

    Notes
    -----
    A density and its gradient take O(n m²) operations and a few arrays of n × m: with n = 50 000
    and m = 500 an array has 200 MB. The model is an ordinary PyMC model, so NUTS can sample it,
    too.

    References
    ----------
    J. Hensman, A. G. de G. Matthews, M. Filippone, Z. Ghahramani (2015). MCMC for variationally
    sparse Gaussian processes. NIPS 28.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> X = np.random.default_rng(0).uniform(size=(200, 2))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> Z = pm.gp.util.kmeans_inducing_points(12, X)
    >>> with pm.Model() as model:
    ...     ls = pm.LogNormal("ls", -1.0, 0.5)
    ...     gp = lgm.gp.SparseLatent(cov_func=4 * pm.gp.cov.Matern52(2, ls=ls))
    ...     f = gp.prior("f", X, Xu=Z)
    ...     _ = lgm.Probit("y", f=f, observed=y)
    >>> lgm.read(model)
    LatentGaussianModel(
        f (200) seen through 12 inducing variables: samples the optimal variational posterior,
        theta=[ls_log__] (1),
        likelihood=[y]
    )
    """

    @override
    def prior(
        self, name: str, X: Any, Xu: Any = None, *, jitter: float = JITTER_DEFAULT, **kwargs: Any
    ) -> Projected:
        """Add the inducing variables to the model, and return f given them.

        Adds ``{name}_u`` to the model, the values at ``Xu``, and ``{name}_u_rotated_``, their
        standard normal coordinates, which are sampled.

        Parameters
        ----------
        name : str
        X : array_like, shape (n, d)
            Inputs of the data.
        Xu : array_like, shape (m, d)
            Inducing points: ``pymc.gp.util.kmeans_inducing_points(m, X)``, a grid, or the result of
            `place_inducing_points`.
        jitter : float
            ε, added to the diagonal of the covariance at Xu.
        **kwargs
            ``dims=`` of the inducing variables.

        Returns
        -------
        Projected
            f, the argument of a likelihood of this package or of `Expected`. `Softmax` and
            `RobustMax` take a list of them, one per class.
        """
        if Xu is None:
            raise ValueError(
                "SparseLatent.prior needs inducing points. Write "
                "Xu=pm.gp.util.kmeans_inducing_points(100, X), or a grid."
            )
        if kwargs.get("n_outputs", 1) != 1:
            raise ValueError(
                "A SparseLatent makes one process. For classes write a list, as f = "
                "[gp.prior(f'f{c}', X, Xu=Z) for c, gp in enumerate(gps)], of processes that may "
                "share a covariance function."
            )
        X, Xu = as_inputs(X), as_inputs(Xu, "Xu")
        _check_points(X, Xu)
        super().prior(f"{name}_u", Xu, jitter=jitter, **kwargs)
        v = pm.modelcontext(None)[f"{name}_u_rotated_"]
        mark_inducing(v)
        R = cholesky(stabilize(self.cov_func(Xu), jitter))
        A = solve_triangular(R, self.cov_func(Xu, X), lower=True)
        variance = self.cov_func(X, diag=True) - pt.sum(A**2, axis=0)
        self.name = name
        shape = known_shape(Xu)
        m = None if shape is None else shape[0]
        variance = with_spread_of_fit(pt.maximum(variance, LEAST), A, m)
        self.projected = Projected(self.mean_func(X) + pt.dot(A.T, v), variance)
        return self.projected


def _check_points(X: Any, Xu: Any) -> None:
    """Raise a ValueError for invalid points."""
    shapes = {"X": known_shape(X), "Xu": known_shape(Xu)}
    for name, shape in shapes.items():
        refuse_no_rows(name, shape)
    if shapes["X"] is None or shapes["Xu"] is None:
        return
    (n, d), (m, columns) = shapes["X"], shapes["Xu"]
    if columns != d:
        raise ValueError(f"Xu has {columns} column(s) and X has {d}: give them equal columns.")
    if m > n:
        raise ValueError(
            f"Xu has {m} points and X has {n}, but Xu must not have more. Write "
            "pm.gp.Latent, whose posterior is that of the process itself."
        )
    for name, points in (("X", X), ("Xu", Xu)):
        if isinstance(points, np.ndarray) and not np.isfinite(points).all():
            row = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
            raise ValueError(f"{name}[{row}] is {points[row]}: remove points that are not finite.")
