"""A PyMC model as graphs of one vector theta and one vector f, and the functions made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.pytensorf import compile as pymc_compile
from pytensor.gradient import DisconnectedInputError, NullTypeGradError
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors

from pymc_lgm.likelihoods.probit import ProbitRV
from pymc_lgm.model.refusals import shapes_disagree

__all__ = ["Block", "Graphs", "Variable"]

Variable = Any
"""A PyTensor variable: PyTensor's own types do not say which operators one has."""

Block = tuple[slice, tuple[int, ...]]
"""Where in theta a variable is, and its shape."""


def _compiled(graphs: Callable[[Any], tuple[list[Variable], Any]]) -> cached_property[Any]:
    """Turn a method that returns inputs and outputs into the function, compiled once."""

    def function(self: Graphs) -> Callable[..., Any]:
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


class Graphs:
    """Mean, covariance and log densities as graphs of theta (p,) and f (n,).

    The functions are those of `pymc_lgm.model.functions.ModelFunctions`, compiled at their first
    use. What other step methods own is a variable that all of them share.

    Attributes
    ----------
    others : dict of str to shared variable
        Value variables that are neither f nor in theta, and that a graph depends on.
    cov_reads : set of str
        Names of the value variables that the covariance depends on.
    likelihood, prior : dict of str to variable
        Log densities, elementwise: those that depend on f, and those that depend on theta alone.
    """

    def __init__(
        self,
        model: pm.Model,
        latent: Variable,
        blocks: Mapping[str, Block],
        point: Mapping[str, NDArray[Any]],
        compile_kwargs: dict[str, Any],
    ):
        self._compile_kwargs = compile_kwargs
        f_value = model.rvs_to_values[latent]
        n = int(np.size(point[f_value.name]))
        mean, cov = model.replace_rvs_by_values(latent.owner.op.dist_params(latent.owner))
        # Users write integers, and PyTensor makes some constants float32.
        mean = pt.broadcast_to(mean, (n,)).astype("float64")
        cov = cov.astype("float64")
        cov_uses = set(ancestors([cov]))
        self.cov_reads = {value.name for value in model.value_vars if value in cov_uses}
        terms = [rv for rv in model.basic_RVs if rv is not latent] + list(model.potentials)
        # One graph for all: a separate logp for each term would read the model again each time.
        try:
            densities = model.logp(vars=terms, sum=False) if terms else []
        except ValueError as error:
            shapes = {rv.name: rv.type.shape for rv in model.observed_RVs}
            raise ValueError(shapes_disagree(f_value.name, n, shapes, error)) from error

        # Coordinates: theta is one vector, f another, and what others own is shared with them.
        self._theta, self._f = pt.vector("theta"), f_value.type("f")
        self._f_theta = [self._f, self._theta]
        # Many f at once, one a row: an importance estimate's draws, or a quadrature's nodes.
        self._rows = pt.matrix("rows", shape=(None, n))
        replacements: dict[Variable, Variable] = {f_value: self._f}
        others: dict[str, Variable] = {}
        for value in model.value_vars:
            if value.name in blocks:
                part, shape = blocks[value.name]
                replacements[value] = self._theta[part].reshape(shape)
            elif value is not f_value:
                shared = pytensor.shared(np.array(point[value.name]), name=value.name)
                replacements[value] = others[value.name] = shared
        graphs = clone_replace([mean, cov, *densities], replacements, rebuild_strict=False)
        self._mean, self._cov, densities = graphs[0], graphs[1], graphs[2:]

        self.likelihood: dict[str, Variable] = {}
        self.prior: dict[str, Variable] = {}
        for rv, density in zip(terms, densities, strict=True):
            depends_on = set(ancestors([density]))
            if self._f in depends_on:
                self.likelihood[rv.name] = density
            elif self._theta in depends_on:
                self.prior[rv.name] = density
        self._log_likelihood = _total(list(self.likelihood.values()))
        self._log_prior = _total(list(self.prior.values()))
        read = set(ancestors([self._mean, self._cov, self._log_likelihood, self._log_prior]))
        self.others = {name: shared for name, shared in others.items() if shared in read}

        probits = [
            rv
            for rv in model.observed_RVs
            if isinstance(rv.owner.op, ProbitRV) and rv.owner.inputs[-1] is latent
        ]
        alone = len(probits) == 1 and set(self.likelihood) == {probits[0].name}
        self.probit_data: Variable | None = model.rvs_to_values[probits[0]] if alone else None
        """y of a likelihood that is one probit of f itself."""

    # Of theta, of (f, theta), or of (rows of f, theta)

    mean = _compiled(lambda self: ([self._theta], self._mean))
    cov = _compiled(lambda self: ([self._theta], self._cov))
    log_prior = _compiled(lambda self: ([self._theta], self._log_prior))
    log_prior_gradient = _compiled(lambda self: ([self._theta], self._theta_grad(self._log_prior)))
    log_likelihood = _compiled(lambda self: (self._f_theta, self._log_likelihood))
    log_likelihoods = _compiled(lambda self: self._of_rows(self._log_likelihood))
    log_likelihood_gradient = _compiled(
        lambda self: (self._f_theta, [self._log_likelihood, self._f_grad(self._log_likelihood)])
    )
    log_likelihood_theta_gradient = _compiled(
        lambda self: (self._f_theta, self._theta_grad(self._log_likelihood))
    )
    cov_jvp = _compiled(lambda self: self._forward(self._cov))
    mean_jvp = _compiled(lambda self: self._forward(self._mean))
    probit_labels = _compiled(lambda self: ([], self.probit_data))

    @_compiled
    def elements(self) -> Any:
        """Every element of every log density that ℓ is the sum of, as one vector."""
        return self._of_rows(pt.concatenate([term.ravel() for term in self.likelihood.values()]))

    @_compiled
    def likelihood_terms(self) -> Any:
        """ℓ, g, W and the third derivative."""
        # The likelihood factorizes, so the derivative of the summed gradient is the diagonal of
        # the Hessian, and once more the third derivative.
        gradient = self._f_grad(self._log_likelihood)
        hessian = self._f_grad(gradient.sum())
        third = self._f_grad(hessian.sum())
        return self._f_theta, [self._log_likelihood, gradient, -hessian, third]

    @_compiled
    def likelihood_terms_vjp(self) -> Any:
        """∂/∂theta of ℓ + ⟨v, g⟩ + ⟨u, W⟩."""
        v, u = pt.vector("v"), pt.vector("u")
        gradient = self._f_grad(self._log_likelihood)
        hessian = self._f_grad(gradient.sum())
        weighted = self._log_likelihood + pt.sum(v * gradient) - pt.sum(u * hessian)
        return [*self._f_theta, v, u], self._theta_grad(weighted)

    @_compiled
    def cov_vjp(self) -> Any:
        """⟨∂K/∂theta_j, M⟩."""
        M = pt.matrix("M")
        return [self._theta, M], self._theta_grad(pt.sum(self._cov * M))

    @_compiled
    def mean_vjp(self) -> Any:
        """⟨∂m/∂theta_j, v⟩."""
        v = pt.vector("v")
        return [self._theta, v], self._theta_grad(pt.sum(self._mean * v))

    # For error messages: the log density of each variable in ``prior``, of each in ``likelihood``,
    # and the latter elementwise.
    prior_sums = _compiled(lambda self: ([self._theta], [pt.sum(t) for t in self.prior.values()]))
    term_sums = _compiled(
        lambda self: (self._f_theta, [pt.sum(t) for t in self.likelihood.values()])
    )
    term_values = _compiled(lambda self: (self._f_theta, list(self.likelihood.values())))

    # What can be differentiated

    @cached_property
    def has_gradient(self) -> bool:
        """Whether the likelihood can be differentiated in f."""
        return _differentiable(lambda: pt.grad(self._log_likelihood, self._f))

    @cached_property
    def has_theta_gradient(self) -> bool:
        """Whether mean, covariance, prior and likelihood can be differentiated in theta."""
        terms = [self._mean, self._cov, self._log_prior, self._log_likelihood]
        return _differentiable(lambda: self._theta_grad(_total(terms)))

    @cached_property
    def has_prior_gradient(self) -> bool:
        """Whether the prior of theta can be differentiated."""
        return _differentiable(lambda: self._theta_grad(self._log_prior))

    def _of_rows(self, output: Variable) -> tuple[list[Variable], Variable]:
        return [self._rows, self._theta], vectorize_graph(output, {self._f: self._rows})

    def _theta_grad(self, scalar: Variable) -> Variable:
        return pt.grad(scalar, self._theta, disconnected_inputs="ignore")

    def _f_grad(self, scalar: Variable) -> Variable:
        return pt.grad(scalar, self._f, disconnected_inputs="ignore")

    def _forward(self, output: Variable) -> tuple[list[Variable], Variable]:
        # ⟨∂output/∂theta, weights⟩ is linear in the weights: its gradient in them, paired with v,
        # is the derivative along v. Every operation that has a gradient has this one too.
        v, weights = pt.vector("v"), pt.zeros_like(output)
        backward = self._theta_grad(pt.sum(output * weights))
        return [self._theta, v], pt.grad(
            pt.sum(backward * v), weights, disconnected_inputs="ignore"
        )


def _differentiable(gradient: Callable[[], Variable]) -> bool:
    """Whether every operation of a graph has a gradient."""
    try:
        gradient()
    except (NotImplementedError, NullTypeGradError, DisconnectedInputError):
        return False
    return True
