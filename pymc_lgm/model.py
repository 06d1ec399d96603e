"""LatentGaussianModel: a `pymc.Model` read into numeric functions of (theta, f).

This is the only module that reads PyMC graphs. Everything else sees
`pymc_lgm.state.LatentGaussian`: functions of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.distributions.multivariate import MvNormalRV
from pymc.pytensorf import compile as pymc_compile
from pytensor.gradient import NullTypeGradError
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_lgm import checks
from pymc_lgm.linalg import Array

__all__ = ["LatentGaussianModel", "find_latent", "is_latent"]

Variable = Any
"""A PyTensor variable: PyTensor's own types do not say which operators one has."""


class LatentGaussianModel:
    """A latent Gaussian model as compiled functions of theta (p,) and f (n,).

        theta ~ p(theta),   f | theta ~ N(m(theta), K(theta)),   p(y | f, theta) = ∏ p(y_i | f_i, theta)

    Make one with `from_pymc`. theta is the raveled vector of the unconstrained value variables it
    holds, in the model's order. Every other variable of the model is read from the point with
    `read`. Functions are compiled at their first use.

    Attributes
    ----------
    latent : str
        Name of f's value variable.
    theta_names : tuple of str
        Names of theta's value variables, as in a PyMC point.
    other_names : tuple of str
        Value variables that f, theta's densities depend on and other step methods own.
    n, p : int
        Dimensions of f and theta.
    enters_cov : ndarray of bool, shape (p,)
        Components of theta that the covariance depends on.
    has_gradient : bool
        Whether the likelihood can be differentiated in f.
    """

    def __init__(
        self,
        model: pm.Model,
        latent: Variable,
        theta: Sequence[Variable],
        point: dict[str, NDArray[Any]],
        compile_kwargs: dict[str, Any] | None = None,
    ):
        self._compile_kwargs = compile_kwargs or {}
        f_value = model.rvs_to_values[latent]
        self.latent: str = f_value.name
        self.theta_names: tuple[str, ...] = tuple(v.name for v in theta)
        self._shapes = [np.shape(point[name]) for name in self.theta_names]
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        self._ends = np.cumsum([0, *sizes])
        self.n = int(np.size(point[self.latent]))
        self.p = int(self._ends[-1])

        mean, cov = model.replace_rvs_by_values(latent.owner.op.dist_params(latent.owner))
        mean = pt.broadcast_to(mean, (self.n,))
        terms = [rv for rv in model.basic_RVs if rv is not latent] + list(model.potentials)
        # One graph for all: a separate logp for each term would read the model again each time.
        densities = model.logp(vars=terms, sum=False) if terms else []

        # Coordinates: theta is one vector, f another, and what others own is shared with them.
        self._theta, self._f = pt.vector("theta"), pt.vector("f")
        replacements: dict[Variable, Variable] = {f_value: self._f}
        for value, shape, begin, end in zip(
            theta, self._shapes, self._ends[:-1], self._ends[1:], strict=True
        ):
            replacements[value] = self._theta[begin:end].reshape(shape)
        self._others: dict[str, Variable] = {}
        for value in model.value_vars:
            if value not in replacements:
                shared = pytensor.shared(np.array(point[value.name]), name=value.name)
                self._others[value.name] = shared
                replacements[value] = shared
        graphs = clone_replace([mean, cov, *densities], replacements, rebuild_strict=False)
        self._mean, self._cov, densities = graphs[0], graphs[1], graphs[2:]

        self.observed: dict[str, Variable] = {
            rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs
        }
        self.likelihood_names: tuple[str, ...] = ()
        self._likelihood: list[Variable] = []
        self._prior: list[Variable] = []
        for rv, density in zip(terms, densities, strict=True):
            depends_on = set(ancestors([density]))
            if self._f in depends_on:
                self.likelihood_names += (rv.name,)
                self._likelihood.append(density)
            elif self._theta in depends_on:
                self._prior.append(density)

        cov_uses = set(ancestors([cov]))
        self.enters_cov = np.repeat([v in cov_uses for v in theta], sizes).astype(bool)
        read = set(ancestors([self._mean, self._cov, *self._likelihood, *self._prior]))
        self.other_names = tuple(name for name, v in self._others.items() if v in read)
        cov_reads = set(ancestors([self._cov]))
        self._moves_cov = {n for n in self.other_names if self._others[n] in cov_reads}

    @classmethod
    def from_pymc(
        cls,
        model: pm.Model | None = None,
        latent: Variable | str | None = None,
        theta: Sequence[Variable] | None = None,
        *,
        initial_point: dict[str, NDArray[Any]] | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> LatentGaussianModel:
        """Read a PyMC model.

        Parameters
        ----------
        model : pymc.Model, optional
            By default the model of the context.
        latent : variable or str, optional
            f: a free `pymc.MvNormal`, which is what ``gp.prior(..., reparameterize=False)``
            makes. Needed only if there are several.
        theta : sequence of value variables, optional
            By default every continuous free variable other than f.
        initial_point : dict, optional
            Point at which the model is checked; by default ``model.initial_point()``.
        compile_kwargs : dict, optional
            For PyTensor, as in `pymc.sample`.

        Raises
        ------
        ValueError
            If there is no latent or more than one candidate, if the likelihood couples the f_i,
            if a density or the covariance is not a number at the initial point, or under
            ``floatX="float32"``. The message says what to write instead.

        Examples
        --------
        >>> import numpy as np, pymc as pm
        >>> from pymc_lgm import LatentGaussianModel
        >>> X = np.linspace(0, 1, 4)[:, None]
        >>> with pm.Model() as model:
        ...     eta = pm.HalfNormal("eta", 2)
        ...     gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=0.3))
        ...     f = gp.prior("f", X, reparameterize=False)
        ...     y = pm.Poisson("y", mu=pm.math.exp(f), observed=[1, 0, 2, 1])
        >>> lgm_model = LatentGaussianModel.from_pymc(model)
        >>> lgm_model
        LatentGaussianModel(latent=f (4), theta=[eta_log__] (1), likelihood=[y])
        >>> lgm_model.log_likelihood(np.zeros(4), np.zeros(1)).round(6)
        -4.693147
        """
        model = pm.modelcontext(model)
        checks.refuse_float32(pytensor.config.floatX)
        rv = find_latent(model, latent)
        if theta is None:
            theta = [v for v in model.continuous_value_vars if v is not model.rvs_to_values[rv]]
        point = model.initial_point() if initial_point is None else initial_point
        self = cls(model, rv, theta, point, compile_kwargs)
        checks.check_model(self, self.theta_of(point), np.asarray(point[self.latent]))
        return self

    def __repr__(self) -> str:
        return (
            f"LatentGaussianModel(latent={self.latent} ({self.n}), "
            f"theta=[{', '.join(self.theta_names)}] ({self.p}), "
            f"likelihood=[{', '.join(self.likelihood_names)}])"
        )

    # Points of PyMC <-> theta

    def theta_of(self, point: dict[str, NDArray[Any]]) -> Array:
        """Ravel theta's variables out of a PyMC point: a new array, shape (p,)."""
        pieces = [np.ravel(point[name]) for name in self.theta_names]
        return np.concatenate(pieces).astype(np.float64) if pieces else np.empty(0)

    def point_of(self, theta: Array, f: Array) -> dict[str, NDArray[Any]]:
        """The variables of a PyMC point that theta and f stand for (copies)."""
        point: dict[str, NDArray[Any]] = {self.latent: f.copy()}
        for name, shape, begin, end in zip(
            self.theta_names, self._shapes, self._ends[:-1], self._ends[1:], strict=True
        ):
            # np.array, also for 0-d: PyMC's recorder does not take a NumPy scalar.
            point[name] = np.array(theta[begin:end]).reshape(shape)
        return point

    def read(self, point: dict[str, NDArray[Any]]) -> tuple[bool, bool]:
        """Take over the variables that other step methods own.

        Returns
        -------
        cov_moved, moved : bool
            Whether one has changed that the covariance depends on, and whether any has.
        """
        moved = set()
        for name in self.other_names:
            variable = self._others[name]
            value = np.asarray(point[name])
            if not np.array_equal(variable.get_value(borrow=True), value):
                variable.set_value(value.copy(), borrow=True)
                moved.add(name)
        return bool(moved & self._moves_cov), bool(moved)

    # The five functions of `pymc_lgm.state.LatentGaussian`

    def mean(self, theta: Array) -> Array:
        """m(theta), shape (n,)."""
        return self._mean_function(theta)

    def cov(self, theta: Array) -> Array:
        """K(theta), shape (n, n): a new array."""
        return self._cov_function(theta)

    def log_prior(self, theta: Array) -> float:
        """log p(theta) with the Jacobians of the transforms, up to what theta does not enter."""
        return float(self._log_prior_function(theta))

    def log_likelihood(self, f: Array, theta: Array) -> float:
        """ℓ(f, theta): the log density of everything that depends on f, but f itself."""
        return float(self._log_likelihood_function(f, theta))

    def log_likelihood_gradient(self, f: Array, theta: Array) -> tuple[float, Array]:
        """ℓ(f, theta) and g = ∂ℓ/∂f, shape (n,)."""
        value, gradient = self._gradient_function(f, theta)
        return float(value), gradient

    # More derivatives, for approximations and for gradients in theta

    def likelihood_terms(self, f: Array, theta: Array) -> tuple[float, Array, Array, Array]:
        """ℓ, g = ∂ℓ/∂f, W = −∂²ℓ/∂f² and ∂³ℓ/∂f³, the last three of shape (n,)."""
        value, gradient, curvature, third = self._terms_function(f, theta)
        return float(value), gradient, curvature, third

    def cov_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂K/∂theta_j, M⟩ for each j, shape (p,); M is any (n, n) array."""
        return self._cov_vjp_function(theta, M)

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        """⟨∂m/∂theta_j, v⟩ for each j, shape (p,)."""
        return self._mean_vjp_function(theta, v)

    def log_prior_gradient(self, theta: Array) -> Array:
        """∂ log p(theta)/∂theta, shape (p,)."""
        return self._log_prior_gradient_function(theta)

    def log_likelihood_theta_gradient(self, f: Array, theta: Array) -> Array:
        """∂ℓ/∂theta at fixed f, shape (p,)."""
        return self._theta_gradient_function(f, theta)

    # Graphs, compiled at first use

    @cached_property
    def has_gradient(self) -> bool:
        """Whether the likelihood can be differentiated in f."""
        try:
            pt.grad(self._log_likelihood, self._f)
        except (NotImplementedError, NullTypeGradError):
            return False
        return True

    @cached_property
    def _log_likelihood(self) -> Variable:
        return sum((pt.sum(term) for term in self._likelihood), start=pt.constant(0.0))

    @cached_property
    def _log_prior(self) -> Variable:
        return sum((pt.sum(term) for term in self._prior), start=pt.constant(0.0))

    @cached_property
    def _mean_function(self) -> Callable[..., Any]:
        return self._compile([self._theta], self._mean)

    @cached_property
    def _cov_function(self) -> Callable[..., Any]:
        return self._compile([self._theta], self._cov)

    @cached_property
    def _log_prior_function(self) -> Callable[..., Any]:
        return self._compile([self._theta], self._log_prior)

    @cached_property
    def _log_likelihood_function(self) -> Callable[..., Any]:
        return self._compile([self._f, self._theta], self._log_likelihood)

    @cached_property
    def _gradient_function(self) -> Callable[..., Any]:
        gradient = pt.grad(self._log_likelihood, self._f)
        return self._compile([self._f, self._theta], [self._log_likelihood, gradient])

    @cached_property
    def _terms_function(self) -> Callable[..., Any]:
        # The likelihood factorizes, so the derivative of the summed gradient is the diagonal of
        # the Hessian, and once more the third derivative.
        gradient = pt.grad(self._log_likelihood, self._f)
        hessian = pt.grad(gradient.sum(), self._f, disconnected_inputs="ignore")
        third = pt.grad(hessian.sum(), self._f, disconnected_inputs="ignore")
        return self._compile(
            [self._f, self._theta], [self._log_likelihood, gradient, -hessian, third]
        )

    @cached_property
    def _cov_vjp_function(self) -> Callable[..., Any]:
        M = pt.matrix("M")
        return self._compile([self._theta, M], self._theta_grad(pt.sum(self._cov * M)))

    @cached_property
    def _mean_vjp_function(self) -> Callable[..., Any]:
        v = pt.vector("v")
        return self._compile([self._theta, v], self._theta_grad(pt.sum(self._mean * v)))

    @cached_property
    def _log_prior_gradient_function(self) -> Callable[..., Any]:
        return self._compile([self._theta], self._theta_grad(self._log_prior))

    @cached_property
    def _theta_gradient_function(self) -> Callable[..., Any]:
        return self._compile([self._f, self._theta], self._theta_grad(self._log_likelihood))

    @cached_property
    def term_sums(self) -> Callable[[Array, Array], list[Array]]:
        """(f, theta) -> the log density of each variable in ``likelihood_names``."""
        return self._compile([self._f, self._theta], [pt.sum(term) for term in self._likelihood])

    @cached_property
    def term_values(self) -> Callable[[Array, Array], list[Array]]:
        """(f, theta) -> the same elementwise, for error messages."""
        return self._compile([self._f, self._theta], self._likelihood)

    def _theta_grad(self, scalar: Variable) -> Variable:
        return pt.grad(scalar, self._theta, disconnected_inputs="ignore")

    def _compile(self, inputs: list[Variable], outputs: Any) -> Callable[..., Any]:
        function = pymc_compile(inputs, outputs, on_unused_input="ignore", **self._compile_kwargs)
        # Kernels pass float64 arrays of the right shape, thousands of times a second.
        function.trust_input = True
        return function


def is_latent(rv: Variable) -> bool:
    """Whether a random variable is a multivariate normal, as f must be."""
    return isinstance(rv.owner.op, MvNormalRV)


def find_latent(model: pm.Model, latent: Variable | str | None = None) -> Variable:
    """Find f: the free random variable of a model that is a multivariate normal vector.

    Parameters
    ----------
    model : pymc.Model
    latent : variable, value variable or str, optional
        Which one, if there are several.
    """
    candidates = [rv for rv in model.free_RVs if is_latent(rv)]
    if latent is not None:
        rv = model[latent] if isinstance(latent, str) else latent
        rv = model.values_to_rvs.get(rv, rv)
        if rv not in candidates:
            raise ValueError(checks.not_a_latent(str(rv.name), [c.name for c in candidates]))
        candidates = [rv]
    if len(candidates) != 1:
        names = [str(rv.name) for rv in candidates]
        raise ValueError(checks.which_latent(names, [v.name for v in model.free_RVs]))
    (rv,) = candidates
    if rv.ndim != 1:
        raise ValueError(checks.not_a_vector(str(rv.name), rv.ndim))
    if model.rvs_to_transforms[rv] is not None:
        raise ValueError(checks.transformed(str(rv.name)))
    return rv
