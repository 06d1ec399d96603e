"""The approximate evidence p(y | theta), its surface, and the theta that maximizes it.

Nothing is sampled. Theta is a point estimate (type-II maximum likelihood, or MAP), and f is
Gaussian given theta. Rasmussen and Williams (2006), §5.5: eq. (3.32) for Laplace's method, (3.65)
for EP.
"""

from __future__ import annotations

import math

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pymc as pm
import xarray as xr

from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from pymc_lgm.approximations.ep import ep as match_moments
from pymc_lgm.approximations.gaussian import GaussianApproximation
from pymc_lgm.approximations.laplace import laplace as find_mode
from pymc_lgm.drawn import model_of
from pymc_lgm.gaussian.sites import negative_part
from pymc_lgm.linalg import Array, factorize
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.model.diagnose import refuse_large_sets
from pymc_lgm.model.points import NaturalScale
from pymc_lgm.model.refusals import couples
from pymc_lgm.state import LikelihoodAt
from pymc_lgm.targets.approximate_evidence import gradient_of_laplace
from pymc_lgm.threads import few_threads

__all__ = ["Evidence", "Fit", "ep", "laplace", "refuse_no_evidence"]

Point = Mapping[str, ArrayLike]


class Approximation(Protocol):
    """q(f) as an evidence needs it, with its center f̂ and log q(y | theta)."""

    @property
    def center(self) -> Array: ...

    @property
    def log_evidence(self) -> float: ...


@dataclass(frozen=True, eq=False)
class Mode:
    """Laplace's approximation N(f̂, (K⁻¹ + W)⁻¹) where W is negative in some directions.

    Attributes
    ----------
    center, variances : ndarray, shape (n,)
    log_evidence : float
    """

    center: Array
    variances: Array
    log_evidence: float

    @classmethod
    def of(cls, q: GaussianApproximation, E: Array) -> Mode | None:
        """Correct a q that has W + E Eᵀ instead of W. ``None`` if f̂ is a saddle point.

        With Σ of q, log|Σ⁻¹ − E Eᵀ| = log|Σ⁻¹| + log|I − EᵀΣE|. O(n²) per column of E.
        """
        SE = np.column_stack([q.posterior.covariance_times(each) for each in E.T])
        C = factorize(np.eye(E.shape[1]) - E.T @ SE)
        if C is None:
            return None
        variances = q.posterior.variances + np.sum(C.solve(SE.T) ** 2, axis=0)
        return cls(q.center, variances, q.log_evidence - 0.5 * C.log_determinant)


TOLERANCES = {"laplace": 1e-16, "ep": 1e-9}
"""Nats by which q may still move when a search for it ends. Newton's method squares its error in
each step, so Laplace's costs little; moment matching converges linearly."""

DIFFERENCE = 1e-3
"""Step of a central difference in theta. The errors of two searches by EP add 1e-6 to it."""

SMALL_GRADIENT = 1e-3
"""Largest gradient, in nats per unit of theta, at which a stopped search has converged."""


@dataclass(frozen=True, eq=False)
class Fit:
    """The theta that maximizes the approximate evidence, and f there.

    Attributes
    ----------
    point : dict of str to ndarray
        theta on the natural scale, by name. It can be the ``initvals=`` of `pymc.sample`.
    log_evidence : float
        log q(y | theta), without the prior.
    f_mean, f_variance : ndarray, shape (n,)
        Mean and variance of f given y and this theta. They do not include the uncertainty of theta.
        The variance is ``None`` for `papers.laplace_by_pcg`, where each element takes the solution
        of a linear system.
    converged : bool
    message : str
        Message of the optimizer.
    evaluations : int
        Number of evaluations of the evidence and its gradient.
    """

    point: dict[str, NDArray[Any]]
    log_evidence: float
    f_mean: Array = field(repr=False)
    f_variance: Array | None = field(repr=False)
    converged: bool
    message: str
    evaluations: int


class Evidence:
    """log q(y | theta), approximately log ∫ p(y | f, theta) N(f; m(theta), K(theta)) df.

    y are all observations: also those that depend on theta alone, whose density is a factor of the
    evidence. A `pymc.Potential` of theta alone belongs to the prior.

    `laplace`, `ep` and `papers.laplace_by_pcg` return it. It is a function of theta alone, since
    searches start at the prior mean.
    """

    def __init__(self, approximation: str, lgm: LatentGaussianModel, model: pm.Model):
        self.approximation, self.lgm = approximation, lgm
        self._scale = NaturalScale(lgm, model)
        # The formula ignores the clipping of blocks, so it may be the gradient of another function.
        has_formula = lgm.has_evidence_gradient and (lgm.sets is None or lgm.classes)
        self._has_gradient = approximation == "laplace" and has_formula
        # Densities of observations that depend on theta alone are factors of the prior of `lgm`.
        observed = {str(rv.name) for rv in model.observed_RVs}
        self._of_theta_alone = [k for k, name in enumerate(lgm.prior_names) if name in observed]

    def __repr__(self) -> str:
        latent = f"{self.lgm.latent} ({self.lgm.n})"
        theta = ", ".join(self._scale.initial)
        return f"{type(self).__name__}({self.approximation}, latent={latent}, theta=[{theta}])"

    def log_evidence(self, point: Point | None = None) -> float:
        """Approximate log p(y | theta).

        Parameters
        ----------
        point : mapping of str to array_like, optional
            Variables of theta on their natural scale, such as ``{"ls": [1, 2], "eta": 0.5}``.
            Missing variables have the value of the model's initial point.

        Returns
        -------
        float
            NaN if the mean, the covariance or the likelihood is NaN, if q(f) was not found, or if
            f̂ is a saddle point, as it can be if the likelihood is not log-concave.
        """
        self._refuse_changes()
        theta = self._scale.theta_of(point or {})
        with few_threads(self.lgm.form.dense_rows):
            return self._value(theta, prior=False)

    def surface(self, grid: Mapping[str, ArrayLike], at: Point | None = None) -> xr.DataArray:
        """`log_evidence` over a grid of scalar variables.

        Parameters
        ----------
        grid : mapping of str to array_like
            Values of each variable, on its natural scale.
        at : mapping of str to array_like, optional
            The other variables, such as ``fit().point``.

        Returns
        -------
        xarray.DataArray
            Log evidences, with a dimension and a coordinate for each variable.
        """
        axes = {name: np.atleast_1d(np.asarray(values, float)) for name, values in grid.items()}
        surface = np.empty([axis.size for axis in axes.values()])
        for index in np.ndindex(surface.shape):
            here = {name: axis[i] for (name, axis), i in zip(axes.items(), index, strict=True)}
            surface[index] = self.log_evidence({**(at or {}), **here})
        return xr.DataArray(surface, axes, tuple(axes), "log_evidence")

    def fit(self, prior: bool = True, start: Point | None = None, **options: Any) -> Fit:
        """Maximize the approximate evidence over theta.

        Parameters
        ----------
        prior : bool
            Add the log prior of theta on the unconstrained scale, with Jacobians. The result is the
            mode of the density that the samplers use (MAP). ``False`` gives type-II maximum
            likelihood.
        start : mapping of str to array_like, optional
            Start of the search, as ``point`` of `log_evidence`. There may be several maxima, so
            compare fits from several starts.
        **options
            Options of SciPy's L-BFGS-B, such as ``maxiter=50`` or ``gtol=1e-4``.

        Returns
        -------
        Fit

        Notes
        -----
        Without a prior the maximum can lie at infinity, for example if an amplitude goes to zero.
        Then the fit ends where the evidence is flat.
        """
        self._refuse_changes()
        begin = self._scale.theta_of(start or {})
        if not begin.size:
            raise ValueError(
                "The model has no hyper-parameters to fit. Write log_evidence() for its evidence."
            )
        with few_threads(self.lgm.form.dense_rows):
            return self._fit(begin, prior, options)

    def _fit(self, begin: Array, prior: bool, options: dict[str, Any]) -> Fit:
        first = self._value_and_gradient(begin, prior)
        if first is None:
            raise ValueError(
                f"The evidence or its gradient is not finite at {self._scale.point_of(begin)}: a "
                "density, the mean or the covariance is not, or q(f) was not found. Start "
                f"elsewhere, as in fit(start={{{next(iter(self._scale.initial))!r}: ...}})."
            )
        # Instead of a value that is not finite: worse than the start, so that the line search takes
        # a shorter step, and not so bad that it gives up.
        bad = first[0] - max(1e3, abs(first[0])), np.zeros_like(begin)

        def negative(theta: Array) -> tuple[float, Array]:
            value, gradient = self._value_and_gradient(theta, prior) or bad
            return -value, -gradient

        options = {"ftol": 1e-12 if self._has_gradient else 1e-9} | options
        result = minimize(negative, begin, jac=True, method="L-BFGS-B", options=options)
        q = self._approximate(result.x)
        assert q is not None  # it was evaluated, and is no worse than the start
        return Fit(
            point=self._scale.point_of(result.x),
            log_evidence=self._of(q, result.x, prior=False),
            f_mean=q.center,
            f_variance=_variances(q),
            # At a maximum a line search ends when rounding hides it, which depends on the
            # processor.
            converged=bool(result.success or np.abs(result.jac).max() < SMALL_GRADIENT),
            message=str(result.message),
            evaluations=int(result.nfev),
        )

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def _approximate(self, theta: Array) -> Approximation | None:
        """Find q(f) to many digits; ``None`` if that fails."""
        prior = self.lgm.prior(theta)
        if prior is None:
            return None
        problem = LikelihoodAt(self.lgm, theta), prior
        tolerance = TOLERANCES[self.approximation]
        if self.approximation == "ep":
            q = match_moments(*problem, tolerance=tolerance)
        else:
            q = find_mode(*problem, tolerance=tolerance)
            # The last B belongs to an earlier f, but log|B| and the gradient need B at the mode.
            q = q and find_mode(*problem, start=q.center, tolerance=tolerance)
        if q is None or not math.isfinite(q.log_evidence):
            return None
        if self.approximation == "ep" or self.lgm.is_log_concave:
            return q
        # `find_mode` has the q of a sampler, without negative curvature. Laplace's method has it.
        E = negative_part(problem[0](q.center)[2])
        return Mode.of(q, E) if E.shape[1] else q

    def _refuse_changes(self) -> None:
        self.lgm.refuse_changes("Make the evidence after {}, as in lgm.laplace().")

    def _value(self, theta: Array, prior: bool) -> float:
        """log q(y | theta), plus log p(theta) if ``prior``; NaN if there is no q(f)."""
        q = self._approximate(theta)
        return math.nan if q is None else self._of(q, theta, prior)

    def _of(self, q: Approximation, theta: Array, prior: bool) -> float:
        """The same from q. The log prior has the densities of y that depend on theta alone."""
        if prior:
            return q.log_evidence + self.lgm.log_prior(theta)
        if not self._of_theta_alone:
            return q.log_evidence
        densities = np.array(self.lgm.graphs.prior_sums(theta))
        return q.log_evidence + float(densities[self._of_theta_alone].sum())

    def _value_and_gradient(self, theta: Array, prior: bool) -> tuple[float, Array] | None:
        """`_value` and its gradient; ``None`` if they are not finite."""
        lgm = self.lgm
        q = self._approximate(theta)
        if q is None:
            return None
        value = self._of(q, theta, prior)
        gradient: Array | None
        # Without the prior there is no formula for densities that depend on theta alone.
        has_formula = self._has_gradient and not isinstance(q, Mode)
        if has_formula and (prior or not self._of_theta_alone):
            assert isinstance(q, GaussianApproximation)
            gradient = gradient_of_laplace(LikelihoodAt(lgm, theta), q)
            if gradient is not None and prior:
                gradient = gradient + lgm.log_prior_gradient(theta)
        else:
            steps = DIFFERENCE * np.eye(theta.size)
            ends = [self._value(theta + h, prior) - self._value(theta - h, prior) for h in steps]
            gradient = np.array(ends) / (2.0 * DIFFERENCE)
        if gradient is None or not np.isfinite([value, *gradient]).all():
            return None
        return value, gradient


def _variances(q: Approximation) -> Array | None:
    """Variances of f under q; ``None`` if it does not have them."""
    if isinstance(q, Mode):
        return q.variances
    return q.posterior.variances if isinstance(q, GaussianApproximation) else None


def laplace(model: pm.Model | None = None, latent: Any = None) -> Evidence:
    """Approximate the evidence by Laplace's method: log q(y) = ℓ(f̂) − ½ ẑᵀa − ½ log|I + KW|.

    Parameters
    ----------
    model : pymc.Model, optional
        By default the model of the context.
    latent : variable or str, optional
        f, if the model has several latent Gaussian vectors.

    Returns
    -------
    Evidence
        Its methods are ``log_evidence``, ``surface`` and ``fit``. An evidence takes 2 to 8 O(n³)
        operations, and its gradient one more, or 2p times as many if the curvature W of the
        likelihood is negative in some direction.

    Raises
    ------
    ValueError
        If variables that depend on f are not observed, if a hyper-parameter is discrete, or if the
        likelihood cannot be differentiated in f.

    See Also
    --------
    ep : The same by expectation propagation.
    papers.laplace_by_pcg : The same by conjugate gradients, for n above about ten thousand.
    reweight : Weights that make approximate draws exact.
    PseudoMarginal : Samples the exact posterior.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> from pymc_lgm.evidence import laplace
    >>> with pm.Model():
    ...     mu = pm.Normal("mu")
    ...     f = pm.MvNormal("f", mu=[mu, mu], cov=[[1e-6, 0], [0, 1e-6]])
    ...     y = lgm.LogGaussianCox("y", f=f, observed=[3, 5])
    ...     evidence = laplace()
    >>> evidence
    Evidence(laplace, latent=f (2), theta=[mu])
    >>> evidence.surface({"mu": [1.0, 1.4, 1.8]}).round(3).values
    array([-4.016, -3.49 , -4.279])
    >>> round(float(evidence.fit(prior=False).point["mu"]), 3)  # the logarithm of the average
    1.386
    """
    return _evidence("laplace", model, latent)


def ep(model: pm.Model | None = None, latent: Any = None) -> Evidence:
    """Approximate the evidence by expectation propagation.

    It is more accurate than Laplace's method for binary data. Each observation must depend on one
    element of f.

    Parameters
    ----------
    model, latent
        As in `laplace`.

    Returns
    -------
    Evidence
        As of `laplace`. An evidence takes 4 to 40 O(n³) operations, and its gradient 2p times as
        many.

    See Also
    --------
    laplace : The same by Laplace's method.
    PseudoMarginal : Samples the exact posterior.

    References
    ----------
    M. Filippone, M. Girolami (2014). Pseudo-marginal Bayesian inference for Gaussian processes.
    IEEE Transactions on Pattern Analysis and Machine Intelligence 36, 2214-2226, section 2.1.2.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> from pymc_lgm.evidence import ep
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     evidence = ep()
    >>> round(evidence.log_evidence({"eta": 1e-9}), 4)  # f = 0: two coin tosses
    -1.3863
    >>> evidence.surface({"eta": [0.5, 1.0, 2.0]}).round(3).values
    array([-1.499, -1.562, -1.63 ])
    """
    return _evidence("ep", model, latent)


def _evidence(approximation: str, model: pm.Model | None, latent: Any) -> Evidence:
    model = model_of(model, f"lgm.{approximation}()")
    lgm = LatentGaussianModel.from_pymc(model, latent, collapse=False)
    refuse_no_evidence(lgm, model, joined=approximation == "laplace")
    return Evidence(approximation, lgm, model)


def refuse_no_evidence(lgm: LatentGaussianModel, model: pm.Model, *, joined: bool = False) -> None:
    """Raise if a variable is neither f, theta nor observed, or if a derivative is missing.

    With ``joined`` an observation may read several f_i if their sets are small.
    """
    free = {rv.name for rv in model.free_RVs}
    if unobserved := [name for name in lgm.likelihood_names if name in free]:
        raise ValueError(
            f"{unobserved} depend on {lgm.latent!r}, and other densities on them, but they are not "
            "observed. The evidence is that of data: observe them, as in pm.observe(model, {...}), "
            "or sample the model."
        )
    if lgm.other_names:
        raise ValueError(
            f"{list(lgm.other_names)} are discrete: the evidence is a function of continuous "
            "hyper-parameters. Observe them, as in pm.observe(model, {...}), or sample the model."
        )
    if not lgm.has_gradient:
        raise ValueError(
            f"The likelihood ({', '.join(lgm.likelihood_names)}) cannot be differentiated in "
            f"{lgm.latent!r}. Write it with PyTensor's own functions."
        )
    if joined:
        refuse_large_sets(lgm, "Laplace's evidence")
    elif lgm.coupled is not None:
        raise ValueError(couples(lgm.latent, lgm.coupled, "An approximate evidence"))
