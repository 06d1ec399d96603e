"""Gaussian processes with many points as linear models in random features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.gp.cov import BaseCovariance, Covariance
from pymc.gp.gp import Base

from pymc_lgm.likelihoods.base import as_inputs
from pymc_lgm.likelihoods.registry import RANDOM_FEATURES, mark_inducing

__all__ = ["ArcCosine", "RandomFeatures"]

Variable = Any

DEGREES = {pm.gp.cov.ExpQuad: np.inf, pm.gp.cov.Matern52: 5.0, pm.gp.cov.Matern32: 3.0}
"""Degrees of freedom of the t distribution of a covariance's frequencies: twice its smoothness."""


class ArcCosine(Covariance):
    r"""The arc-cosine covariance of order 1: a layer of infinitely many rectified linear units.

    .. math::

       k(x, x') = \frac{1}{\pi} |z| |z'| \{\sin\phi + (\pi - \phi) \cos\phi\}, \quad
       \cos\phi = \frac{z^\top z'}{|z| |z'|}, \quad z = x / \ell .

    It is not stationary: :math:`k(x, x) = |z|^2`. Add a column of ones to X; without it all kinks
    of a function are at 0.

    Parameters
    ----------
    input_dim, active_dims
        As for the covariances of `pymc.gp.cov`.
    ls : variable or array_like
        ℓ, one for all columns or one per column.

    See Also
    --------
    papers.RandomFeatures : A process with this covariance.

    References
    ----------
    Y. Cho and L. K. Saul (2009). Kernel methods for deep learning. NIPS 22, eq. (6).

    Examples
    --------
    >>> import numpy as np, pymc_lgm as lgm
    >>> cov = lgm.papers.ArcCosine(2, ls=1.0)
    >>> cov(np.array([[1.0, 0.0], [0.0, 2.0]])).eval().round(4)
    array([[1.    , 0.6366],
           [0.6366, 4.    ]])
    """

    def __init__(self, input_dim: int, ls: Any, active_dims: Any = None):
        super().__init__(input_dim, active_dims)
        self.ls = pt.as_tensor_variable(ls)

    @override
    def full(self, X: Any, Xs: Any = None) -> Variable:
        """k(x, x') for each pair of rows."""
        X, Xs = self._slice(X, X if Xs is None else Xs)
        z, other = X / self.ls, Xs / self.ls
        lengths = pt.outer(pt.sqrt(pt.sum(z**2, axis=1)), pt.sqrt(pt.sum(other**2, axis=1)))
        # At ±1 the angle has no derivative, and for a row of zeros the angle is not defined.
        cosine = pt.dot(z, other.T) / pt.maximum(lengths, 1e-300)
        cosine = pt.clip(cosine, -1 + 1e-14, 1 - 1e-14)
        angle = pt.arccos(cosine)
        return lengths / np.pi * (pt.sin(angle) + (np.pi - angle) * cosine)

    @override
    def diag(self, X: Any) -> Variable:
        """|z|²."""
        X, _ = self._slice(X)
        return pt.sum((X / self.ls) ** 2, axis=1)


class RandomFeatures(Base):
    r"""A Gaussian process for thousands of points, as a linear model in random features.

    .. math::

       f = m(X) + \Phi w, \quad w \sim N(0, I), \quad
       \Phi = \sqrt{\sigma^2 / N} \, [\cos X \Omega, \; \sin X \Omega],

    where the N columns of :math:`\Omega` are draws from the spectral density of the covariance:
    normal vectors divided by ℓ for the squared exponential, and vectors of a t distribution with 2ν
    degrees of freedom divided by ℓ for a Matérn covariance. They are drawn once, for length-scale
    1, so that f is a smooth function of theta. For `ArcCosine` :math:`\Phi = \sqrt{2 \sigma^2 / N}
    \max(0, X \Omega)`.

    E ΦΦᵀ = K, and the error of an element of ΦΦᵀ is about :math:`\sigma^2 / \sqrt{2N}`. Chains
    sample the posterior of the model with these features exactly.

    In a deep process the f of one layer is the X of the next. Such a model can be fitted by
    `pymc.fit`, which finds the weights of all layers. The samplers of this package do not support
    it, because f is normal only given the weights of the other layers.

    Parameters
    ----------
    n_features : int
        N, the number for each covariance of a sum.
    cov_func : pymc.gp.cov.Covariance
        `pymc.gp.cov.ExpQuad`, `pymc.gp.cov.Matern32`, `pymc.gp.cov.Matern52` or `ArcCosine`,
        times numbers or variables, or a sum of such products.
    mean_func : pymc.gp.mean.Mean
    random_seed : int, optional
        Seed of Ω, which is part of the model.

    Raises
    ------
    ValueError
        If `n_features` is below 1, or if there are no features of the covariance.

    See Also
    --------
    gp.SparseLatent : Inducing variables, for one to three inputs.

    Notes
    -----
    An evaluation of the likelihood takes O(n N) operations per output. The posterior of w given
    theta takes O(n N²), or O(n C² N²) if an observation reads C outputs together.

    References
    ----------
    A. Rahimi and B. Recht (2007). Random features for large-scale kernel machines. NIPS 20.
    K. Cutajar, E. V. Bonilla, P. Michiardi, M. Filippone (2017). Random feature expansions for
    deep Gaussian processes. ICML, §2.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> X = np.random.default_rng(0).uniform(size=(200, 2))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> with pm.Model() as model:
    ...     ls = pm.LogNormal("ls", -1.0, 0.5)
    ...     gp = lgm.papers.RandomFeatures(20, cov_func=4 * pm.gp.cov.Matern52(2, ls=ls))
    ...     f = gp.prior("f", X)
    ...     _ = lgm.Probit("y", f=f, observed=y)
    >>> lgm.read(model)
    LatentGaussianModel(
        f (200) by 40 random features,
        theta=[ls_log__] (1),
        likelihood=[y]
    )

    A deep process of two layers, and the inputs handed on to the second:

    >>> cov = pm.gp.cov.ExpQuad
    >>> with pm.Model() as deep:
    ...     hidden = lgm.papers.RandomFeatures(20, cov_func=cov(2, ls=1.0)).prior(
    ...         "hidden", X, n_outputs=3
    ...     )
    ...     hidden = pm.math.concatenate([hidden, X], axis=1)
    ...     f = lgm.papers.RandomFeatures(20, cov_func=cov(5, ls=2.0)).prior("f", hidden)
    ...     _ = pm.Bernoulli("y", logit_p=f, observed=y)
    ...     fitted = pm.fit(100, progressbar=False)
    """

    def __init__(
        self, n_features: int = 200, *, cov_func: Any, mean_func: Any = None, random_seed: Any = 0
    ):
        if n_features < 1:
            raise ValueError(f"n_features is {n_features}: write a number that is at least 1.")
        mean = pm.gp.mean.Zero() if mean_func is None else mean_func
        super().__init__(mean_func=mean, cov_func=cov_func)
        self.n_features = n_features
        rng = np.random.default_rng(random_seed)
        self._terms = [
            (variance, cov, _frequencies(cov, n_features, rng))
            for variance, cov in _products(cov_func)
        ]

    def features(self, X: Any) -> Variable:
        """Φ, one row per row of X."""
        X = pt.as_tensor_variable(X)
        N = self.n_features
        columns = []
        for variance, cov, omega in self._terms:
            inner = pt.dot(X[:, cov.active_dims] / cov.ls, omega)
            if isinstance(cov, ArcCosine):
                columns.append(pt.sqrt(2.0 * variance / N) * pt.maximum(inner, 0.0))
            else:
                scale = pt.sqrt(variance / N)
                columns += [scale * pt.cos(inner), scale * pt.sin(inner)]
        return pt.concatenate(columns, axis=1)

    @override
    def prior(self, name: str, X: Any, n_outputs: int | None = None) -> Variable:
        """f at the inputs of the data.

        Adds the weights w to the model as ``{name}_weights``.

        Parameters
        ----------
        name : str
        X : tensor_like, shape (n, d)
            Inputs, a `pymc.Minibatch` of them, or the f of another layer.
        n_outputs : int, optional
            Number C of independent processes, each with a column of weights. By default f is a
            vector.

        Returns
        -------
        tensor, shape (n,) or (n, C)
            f, with one column per process, for any likelihood. ``pm.Categorical("y", logit_p=f)``
            and a next layer take f. Likelihoods with one row per class, such as `pymc_lgm.Softmax`,
            take ``f.T``.
        """
        if n_outputs is not None and n_outputs < 1:
            raise ValueError(
                f"n_outputs is {n_outputs}: write a number of processes, or leave it out."
            )
        each = [1 if isinstance(cov, ArcCosine) else 2 for _, cov, _ in self._terms]
        shape = (self.n_features * sum(each), *([] if n_outputs is None else [n_outputs]))
        self._weights = pm.Normal(f"{name}_weights", 0.0, 1.0, shape=shape)
        mark_inducing(self._weights, RANDOM_FEATURES)
        return self._at(X)

    @override
    def conditional(self, name: str, Xnew: Any) -> Variable:
        """f at other inputs: a deterministic variable, for `pymc.sample_posterior_predictive`.

        For a deep process, evaluate each layer at the result of the previous one.
        """
        if not hasattr(self, "_weights"):
            raise ValueError("This process has no weights yet: call gp.prior('f', X) first.")
        return pm.Deterministic(name, self._at(Xnew))

    def _at(self, X: Any) -> Variable:
        X = as_inputs(X)
        mean = self.mean_func(X)
        f = pt.dot(self.features(X), self._weights)
        return (mean if f.ndim == 1 else mean[:, None]) + f


def _products(cov: Any) -> Iterator[tuple[Variable, Any]]:
    """The factor and the covariance of each term of a sum."""
    if isinstance(cov, pm.gp.cov.Add):
        for each in cov._factor_list:
            yield from _products(each)
        return
    factors = cov._factor_list if isinstance(cov, pm.gp.cov.Prod) else [cov]
    kinds = [each for each in factors if isinstance(each, BaseCovariance)]
    variance = pt.as_tensor_variable(1.0)
    for each in factors:
        if not isinstance(each, BaseCovariance):
            variance = variance * pt.as_tensor_variable(each)
    if len(kinds) != 1 or type(kinds[0]) not in (*DEGREES, ArcCosine) or variance.ndim:
        names = ", ".join(kind.__name__ for kind in DEGREES)
        what = " * ".join(type(each).__name__ for each in kinds) or type(cov).__name__
        raise ValueError(
            f"RandomFeatures has no features of {what}. Supported are {names} and ArcCosine, "
            "times numbers, and sums of these. Write lgm.gp.SparseLatent for another covariance."
        )
    yield variance, kinds[0]


def _frequencies(cov: Covariance, N: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Ω, shape (d, N), for length-scale 1."""
    omega = rng.standard_normal((cov.n_dims, N))
    degrees = DEGREES.get(type(cov), np.inf)
    return omega if degrees == np.inf else omega / np.sqrt(rng.chisquare(degrees, N) / degrees)
