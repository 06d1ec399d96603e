"""LatentGaussianModel: a `pymc.Model` read into numeric functions of (theta, f).

This is the only module that reads PyMC graphs. Everything else sees
`pymc_lgm.state.LatentGaussian`: functions of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from numpy.typing import ArrayLike, NDArray
from pymc.distributions.multivariate import MvNormalRV
from pymc.pytensorf import compile as pymc_compile
from pytensor.gradient import DisconnectedInputError, NullTypeGradError
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors

from pymc_lgm import checks
from pymc_lgm.amplitudes import find_amplitudes
from pymc_lgm.likelihoods.probit import ProbitRV
from pymc_lgm.linalg import Array

__all__ = ["LatentGaussianModel", "NaturalScale", "find_latent", "is_latent"]

Variable = Any
"""A PyTensor variable: PyTensor's own types do not say which operators one has."""


def _compiled(graphs: Callable[[Any], tuple[list[Variable], Any]]) -> cached_property[Any]:
    """Turn a method that returns inputs and outputs into the function, compiled once."""

    def function(self: LatentGaussianModel) -> Callable[..., Any]:
        inputs, outputs = graphs(self)
        kwargs = {"on_unused_input": "ignore"} | self._compile_kwargs
        compiled = pymc_compile(inputs, outputs, **kwargs)
        # Kernels pass float64 arrays of the right shape, thousands of times a second.
        compiled.trust_input = True
        return compiled

    return cached_property(function)


def _total(terms: Sequence[Variable]) -> Variable:
    """Add up log densities of any shape; a float64 zero if there are none."""
    zero = pt.constant(0.0, dtype="float64")
    return sum((pt.sum(term, dtype="float64") for term in terms), start=zero)


class LatentGaussianModel:
    """A latent Gaussian model as compiled functions of theta (p,) and f (n,).

        theta ~ p(theta),   f | theta ~ N(m(theta), K(theta)),
        p(y | f, theta) = ∏ p(y_i | f_i, theta)

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
        # Users write integers, and PyTensor makes some constants float32.
        mean = pt.broadcast_to(mean, (self.n,)).astype("float64")
        cov = cov.astype("float64")
        terms = [rv for rv in model.basic_RVs if rv is not latent] + list(model.potentials)
        # One graph for all: a separate logp for each term would read the model again each time.
        try:
            densities = model.logp(vars=terms, sum=False) if terms else []
        except ValueError as error:
            shapes = {rv.name: rv.type.shape for rv in model.observed_RVs}
            raise ValueError(checks.shapes_disagree(self.latent, self.n, shapes, error)) from error

        # Coordinates: theta is one vector, f another, and what others own is shared with them.
        self._theta, self._f = pt.vector("theta"), f_value.type("f")
        self._f_theta = [self._f, self._theta]
        # Many f at once, one a row: an importance estimate's draws, or a quadrature's nodes.
        self._rows = pt.matrix("rows", shape=(None, self.n))
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
        likelihood: dict[str, Variable] = {}
        prior: dict[str, Variable] = {}
        for rv, density in zip(terms, densities, strict=True):
            depends_on = set(ancestors([density]))
            if self._f in depends_on:
                likelihood[rv.name] = density
            elif self._theta in depends_on:
                prior[rv.name] = density
        self.likelihood_names: tuple[str, ...] = tuple(likelihood)
        self.prior_names: tuple[str, ...] = tuple(prior)
        self._likelihood, self._prior = list(likelihood.values()), list(prior.values())
        self._log_likelihood, self._log_prior = _total(self._likelihood), _total(self._prior)
        # y of a likelihood that is one probit of f itself.
        probits = [
            rv
            for rv in model.observed_RVs
            if isinstance(rv.owner.op, ProbitRV) and rv.owner.inputs[-1] is latent
        ]
        alone = len(probits) == 1 and self.likelihood_names == (probits[0].name,)
        self._probit_data = model.rvs_to_values[probits[0]] if alone else None
        self._site_index: NDArray[np.intp] | None = None

        cov_uses = set(ancestors([cov]))
        self.enters_cov = np.repeat([v in cov_uses for v in theta], sizes).astype(bool)
        read = set(ancestors([self._mean, self._cov, self._log_likelihood, self._log_prior]))
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
        theta : sequence of variables, optional
            Random or value variables; by default every continuous free one other than f.
        initial_point : dict, optional
            Point at which the model is checked; by default ``model.initial_point()``.
        compile_kwargs : dict, optional
            For PyTensor, as in `pymc.sample`.

        Raises
        ------
        ValueError
            If there is no latent or more than one candidate, if theta holds a discrete variable,
            if the likelihood couples the f_i, if a density or the covariance is not a number at
            the initial point, or under ``floatX="float32"``. The message says what to write
            instead.

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
        >>> round(lgm_model.log_likelihood(np.zeros(4), np.zeros(1)), 6)
        -4.693147
        """
        model = pm.modelcontext(model)
        checks.refuse_float32(pytensor.config.floatX)
        rv = find_latent(model, latent)
        f = model.rvs_to_values[rv]
        if theta is None:
            theta = [v for v in model.continuous_value_vars if v is not f]
        theta = [model.rvs_to_values.get(v, v) for v in theta]
        for value in theta:
            if value is f or value not in model.continuous_value_vars:
                raise ValueError(checks.not_a_hyperparameter(str(value.name)))
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
        if moved:
            self._site_index = None
        return bool(moved & self._moves_cov), bool(moved)

    # The five functions of `pymc_lgm.state.LatentGaussian`

    @cached_property
    def amplitudes(self) -> Array:
        """k (p,): the components of theta that multiply K by exp(k_j δ); 0 for all others.

        Zeros if K depends on a variable that another step method owns: it may change the form.
        """
        return np.zeros(self.p) if self._moves_cov else find_amplitudes(self)

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

    def log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ of each row of f, shape (N, n) -> (N,)."""
        return self._log_likelihoods_function(rows, theta)

    def log_likelihood_gradient(self, f: Array, theta: Array) -> tuple[float, Array]:
        """ℓ(f, theta) and g = ∂ℓ/∂f, shape (n,)."""
        value, gradient = self._gradient_function(f, theta)
        return float(value), gradient

    # More derivatives, for approximations and for gradients in theta

    def likelihood_terms(self, f: Array, theta: Array) -> tuple[float, Array, Array, Array]:
        """ℓ, g = ∂ℓ/∂f, W = −∂²ℓ/∂f² and ∂³ℓ/∂f³, the last three of shape (n,)."""
        value, gradient, curvature, third = self._terms_function(f, theta)
        return float(value), gradient, curvature, third

    def site_log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ_i(f_i, theta) of each row of f, shape (N, n) -> (N, n): ℓ split over f's elements.

        An element of a log density belongs to the f_i that it depends on, an element that depends
        on none to the first. Which that is, evaluation finds out once.

        Raises
        ------
        ValueError
            If an element depends on several f_i, as the sum of a `pymc.Potential` may.
        """
        if self._site_index is None:
            self._site_index = self._find_sites(theta)
        elements, index = self._elements_function(rows, theta), self._site_index
        if np.array_equal(index, np.arange(self.n)):
            return elements
        sites = np.zeros_like(rows)
        np.add.at(sites.T, index, elements.T)
        return sites

    def probit_signs(self) -> Array | None:
        """s = ±1, shape (n,), if ℓ = Σ log Φ(s_i f_i): one `Probit` of f itself."""
        if self._probit_data is None:
            return None
        signs = 2.0 * self._probit_data_function() - 1.0
        return signs if signs.shape == (self.n,) else None

    def cov_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂K/∂theta_j, M⟩ for each j, shape (p,); M is any (n, n) array."""
        return self._cov_vjp_function(theta, M)

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        """⟨∂m/∂theta_j, v⟩ for each j, shape (p,)."""
        return self._mean_vjp_function(theta, v)

    def cov_jvp(self, theta: Array, v: Array) -> Array:
        """Σ_j v_j ∂K/∂theta_j, the derivative of K along v (p,), shape (n, n): a new array."""
        return self._cov_jvp_function(theta, v)

    def mean_jvp(self, theta: Array, v: Array) -> Array:
        """Σ_j v_j ∂m/∂theta_j, shape (n,)."""
        return self._mean_jvp_function(theta, v)

    def log_prior_gradient(self, theta: Array) -> Array:
        """∂ log p(theta)/∂theta, shape (p,)."""
        return self._log_prior_gradient_function(theta)

    def log_likelihood_theta_gradient(self, f: Array, theta: Array) -> Array:
        """∂ℓ/∂theta at fixed f, shape (p,)."""
        return self._theta_gradient_function(f, theta)

    def likelihood_terms_vjp(self, f: Array, theta: Array, v: Array, u: Array) -> Array:
        """∂/∂theta of ℓ + ⟨v, g⟩ + ⟨u, W⟩ at fixed f, shape (p,); v and u are any (n,) arrays."""
        return self._terms_vjp_function(f, theta, v, u)

    def _find_sites(self, theta: Array) -> NDArray[np.intp]:
        """Find the f_i that each of the `_elements` depends on, digit by binary digit of i."""
        mean, scale = self.mean(theta), np.sqrt(np.diagonal(self.cov(theta)))

        def elements(f: Array) -> Array:
            return np.nan_to_num(self._elements_function(f[None], theta)[0])

        before = elements(mean)
        index = np.zeros(before.size, dtype=np.intp)
        # A log density that is flat up to one distance has a slope up to another.
        for distance in (-0.5, 0.7, -3.0, 4.0):
            found = np.zeros_like(index)
            for digit in range(max(self.n - 1, 0).bit_length()):
                one = (np.arange(self.n) >> digit) & 1 == 1
                by_one, by_zero = (
                    elements(mean + distance * scale * chosen) != before for chosen in (one, ~one)
                )
                if (by_one & by_zero).any():
                    raise ValueError(
                        f"A log density ({', '.join(self.likelihood_names)}) is a sum over "
                        f"several elements of {self.latent!r}: expectation propagation needs them "
                        "one by one, p(y_i | f_i). Write a pm.Potential without its sum, or "
                        "approximation='laplace'."
                    )
                found += by_one.astype(np.intp) << digit
            index = np.maximum(index, found)
        return index

    # Graphs, compiled at first use

    _mean_function = _compiled(lambda self: ([self._theta], self._mean))
    _cov_function = _compiled(lambda self: ([self._theta], self._cov))
    _log_prior_function = _compiled(lambda self: ([self._theta], self._log_prior))
    _log_likelihood_function = _compiled(lambda self: (self._f_theta, self._log_likelihood))
    _log_likelihoods_function = _compiled(lambda self: self._of_rows(self._log_likelihood))
    # Every element of every log density that ℓ is the sum of, as one vector.
    _elements_function = _compiled(
        lambda self: self._of_rows(pt.concatenate([term.ravel() for term in self._likelihood]))
    )
    _log_prior_gradient_function = _compiled(
        lambda self: ([self._theta], self._theta_grad(self._log_prior))
    )
    _theta_gradient_function = _compiled(
        lambda self: (self._f_theta, self._theta_grad(self._log_likelihood))
    )
    _gradient_function = _compiled(
        lambda self: (self._f_theta, [self._log_likelihood, self._f_grad(self._log_likelihood)])
    )

    @_compiled
    def _terms_function(self) -> Any:
        # The likelihood factorizes, so the derivative of the summed gradient is the diagonal of
        # the Hessian, and once more the third derivative.
        gradient = self._f_grad(self._log_likelihood)
        hessian = self._f_grad(gradient.sum())
        third = self._f_grad(hessian.sum())
        return self._f_theta, [self._log_likelihood, gradient, -hessian, third]

    @_compiled
    def _terms_vjp_function(self) -> Any:
        v, u = pt.vector("v"), pt.vector("u")
        gradient = self._f_grad(self._log_likelihood)
        hessian = self._f_grad(gradient.sum())
        weighted = self._log_likelihood + pt.sum(v * gradient) - pt.sum(u * hessian)
        return [*self._f_theta, v, u], self._theta_grad(weighted)

    @_compiled
    def _cov_vjp_function(self) -> Any:
        M = pt.matrix("M")
        return [self._theta, M], self._theta_grad(pt.sum(self._cov * M))

    @_compiled
    def _mean_vjp_function(self) -> Any:
        v = pt.vector("v")
        return [self._theta, v], self._theta_grad(pt.sum(self._mean * v))

    _cov_jvp_function = _compiled(lambda self: self._forward(self._cov))
    _mean_jvp_function = _compiled(lambda self: self._forward(self._mean))

    # For error messages. theta -> the log density of each variable in ``prior_names``;
    # (f, theta) -> the same for ``likelihood_names``, and those elementwise.
    prior_sums = _compiled(lambda self: ([self._theta], [pt.sum(t) for t in self._prior]))
    term_sums = _compiled(lambda self: (self._f_theta, [pt.sum(t) for t in self._likelihood]))
    term_values = _compiled(lambda self: (self._f_theta, self._likelihood))
    _probit_data_function = _compiled(lambda self: ([], self._probit_data))

    @cached_property
    def has_gradient(self) -> bool:
        """Whether the likelihood can be differentiated in f."""
        try:
            pt.grad(self._log_likelihood, self._f)
        except (NotImplementedError, NullTypeGradError, DisconnectedInputError):
            return False
        return True

    @cached_property
    def has_theta_gradient(self) -> bool:
        """Whether mean, covariance, prior and likelihood can be differentiated in theta."""
        terms = [self._mean, self._cov, self._log_prior, self._log_likelihood]
        try:
            self._theta_grad(_total(terms))
        except (NotImplementedError, NullTypeGradError):
            return False
        return True

    @cached_property
    def has_prior_gradient(self) -> bool:
        """Whether the prior of theta can be differentiated."""
        try:
            self._theta_grad(self._log_prior)
        except (NotImplementedError, NullTypeGradError):
            return False
        return True

    def _of_rows(self, output: Variable) -> tuple[list[Variable], Variable]:
        return [self._rows, self._theta], vectorize_graph(output, {self._f: self._rows})

    def _theta_grad(self, scalar: Variable) -> Variable:
        return pt.grad(scalar, self._theta, disconnected_inputs="ignore")

    def _forward(self, output: Variable) -> tuple[list[Variable], Variable]:
        # ⟨∂output/∂theta, weights⟩ is linear in the weights: its gradient in them, paired with v,
        # is the derivative along v. Every operation that has a gradient has this one too.
        v, weights = pt.vector("v"), pt.zeros_like(output)
        backward = self._theta_grad(pt.sum(output * weights))
        return [self._theta, v], pt.grad(
            pt.sum(backward * v), weights, disconnected_inputs="ignore"
        )

    def _f_grad(self, scalar: Variable) -> Variable:
        return pt.grad(scalar, self._f, disconnected_inputs="ignore")


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
        rv = model.named_vars.get(latent) if isinstance(latent, str) else latent
        rv = model.values_to_rvs.get(rv, rv)
        if rv not in candidates:
            name = str(getattr(latent, "name", latent))
            raise ValueError(checks.not_a_latent(name, [c.name for c in candidates]))
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


class NaturalScale:
    """theta by the names and on the scale that a user writes: the model's variables themselves.

    Attributes
    ----------
    initial : dict of str to ndarray
        The variables that theta holds, at the model's initial point.
    """

    def __init__(self, lgm: LatentGaussianModel, model: pm.Model):
        self._lgm = lgm
        by_name = {value.name: value for value in model.value_vars}
        values = [by_name[name] for name in lgm.theta_names]
        variables = [model.values_to_rvs[value] for value in values]
        transforms = [model.rvs_to_transforms[rv] for rv in variables]
        forward = [
            rv if transform is None else transform.forward(rv, *rv.owner.inputs)
            for rv, transform in zip(variables, transforms, strict=True)
        ]
        backward = model.replace_rvs_by_values(variables)
        self._unconstrain = pymc_compile(variables, forward, on_unused_input="ignore")
        self._constrain = pymc_compile(values, backward, on_unused_input="ignore")
        self._names = [rv.name for rv in variables]
        self.initial = self.point_of(lgm.theta_of(model.initial_point()))

    def point_of(self, theta: Array) -> dict[str, NDArray[Any]]:
        """The variables that theta (p,) stands for."""
        point = self._lgm.point_of(theta, np.empty(0))
        values = self._constrain(*(point[name] for name in self._lgm.theta_names))
        return {name: np.array(value) for name, value in zip(self._names, values, strict=True)}

    def theta_of(self, point: Mapping[str, ArrayLike]) -> Array:
        """Theta, shape (p,), of variables; what ``point`` leaves out is as in ``initial``.

        Raises
        ------
        ValueError
            For a name, a shape or a value that is none of theta's.
        """
        if unknown := [name for name in point if name not in self._names]:
            raise ValueError(
                f"{unknown} are no hyper-parameters of this model. Write values of {self._names}, "
                "on their natural scale."
            )
        values = []
        for name, initial in self.initial.items():
            value = np.asarray(point.get(name, initial), dtype=initial.dtype)
            if value.shape != initial.shape:
                raise ValueError(
                    f"{name} has shape {value.shape}. Write a value of shape {initial.shape}."
                )
            values.append(value)
        with np.errstate(invalid="ignore", divide="ignore"):
            unconstrained = self._unconstrain(*values)
        for name, value, moved in zip(self._names, values, unconstrained, strict=True):
            if not np.isfinite(moved).all():
                raise ValueError(
                    f"{name} = {value} is not inside the support of its prior. Write a value like "
                    f"{self.initial[name]}, on the natural scale of {name}."
                )
        return self._lgm.theta_of(dict(zip(self._lgm.theta_names, unconstrained, strict=True)))
