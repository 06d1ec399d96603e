"""A PyMC model as graphs of a vector theta and a vector f, and as functions compiled from them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.distributions.distribution import PartialObservedRV, SymbolicRandomVariable
from pymc.logprob.basic import transformed_conditional_logp
from pymc.logprob.utils import replace_rvs_by_values
from pytensor.compile.mode import get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import DisconnectedInputError, NullTypeGradError
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.link.basic import PerformLinker
from pytensor.scan.op import Scan
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape

from pymc_lgm.compile.graphs.functions import DISTRIBUTED, compiled, shape_of
from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.likelihoods.base import LatentGaussianLikelihood
from pymc_lgm.linalg import Array
from pymc_lgm.model.allowed import in_rows
from pymc_lgm.model.amplitudes import find_amplitudes
from pymc_lgm.model.class_sets import logits_of
from pymc_lgm.model.forms import Form, Setting, forms_of
from pymc_lgm.model.log_concave import are_log_concave, are_quadratic, are_softmaxes
from pymc_lgm.model.missing import Missing
from pymc_lgm.model.normal_tails import with_log_ndtr
from pymc_lgm.model.operations import INDEXING, SETTING, Variable, depending
from pymc_lgm.model.parts import simplified
from pymc_lgm.model.reading import Reading
from pymc_lgm.model.reads import Evaluation, Reads, reads_of, terms_of
from pymc_lgm.model.refusals import shapes_disagree

__all__ = ["Block", "Graphs", "LikelihoodReads"]

Block = tuple[slice, tuple[int, ...]]
"""The part of theta that is a variable, and the variable's shape."""


def _compiled(
    graphs: Callable[[Any], tuple[list[Variable], Any]], excluding: tuple[str, ...] = ()
) -> cached_property[Any]:
    """Turn a method that returns inputs and outputs into the function, compiled once."""

    def function(self: Graphs) -> Callable[..., Any]:
        return self.compiled(*graphs(self), excluding)

    return cached_property(function)


def _of_gradient(graphs: Callable[[Any], tuple[list[Variable], Any]]) -> cached_property[Any]:
    """Do as `_compiled` for derivatives of `Graphs._gradient`, without distributing factors.

    The gradient is simplified already. To distribute the factors of its derivatives over sums takes
    longer than all else, and makes the code half as long again.
    """
    return _compiled(graphs, (DISTRIBUTED,))


def _setting_of(
    model: pm.Model,
    reading: Reading,
    blocks: Mapping[str, Block],
    point: Mapping[str, NDArray[Any]],
    function: Callable[..., Callable[..., Any]],
) -> Setting:
    """Inputs of all graphs: theta, and one shared variable per value variable of another step."""
    values = [np.ravel(point[name]) for name in blocks]
    at = np.concatenate(values).astype(np.float64) if values else np.empty(0)
    theta = pt.vector("theta", shape=(at.size,))
    latents = [model.rvs_to_values[latent.rv] for latent in reading.latents]
    missing = [model.rvs_to_values[rv] for rv in reading.missing]
    replacements: dict[Variable, Variable] = {}
    others: list[Variable] = []
    for value in model.value_vars:
        if value in missing:
            # Observed elements do not depend on it, though it may be in a graph of both.
            replacements[value] = pt.constant(point[value.name], dtype=value.dtype)
        elif value.name in blocks:
            part, shape = blocks[value.name]
            replacements[value] = theta[part].reshape(shape)
        elif value not in latents:
            # Only axes of length 1 broadcast, so only these lengths are part of the type.
            ones: Any = tuple(1 if length == 1 else None for length in value.type.shape)
            now = np.array(point[value.name])
            replacements[value] = pytensor.shared(now, name=value.name, shape=ones)
            others.append(replacements[value])

    def place(graphs: list[Variable]) -> list[Variable]:
        """Replace value variables by parts of theta and variables of other steps."""
        placed: list[Variable] = clone_replace(graphs, replacements, rebuild_strict=False)
        return placed

    # The point has an observed latent under its own name, as its data may have another name.
    names = [
        latent.rv.name if latent.rv in model.observed_RVs else value.name
        for latent, value in zip(reading.latents, latents, strict=True)
    ]
    shapes = [np.shape(point[name]) for name in names]
    return Setting(model, reading, theta, at, shapes, others, place, function)


def _total(terms: Sequence[Variable]) -> Variable:
    """Add up log densities of any shape; a float64 zero if there are none."""
    zero = pt.constant(0.0, dtype="float64")
    return sum((pt.sum(term, dtype="float64") for term in terms), start=zero)


def _log_densities(
    model: pm.Model, reading: Reading, cuts: Mapping[Variable, Variable]
) -> list[Variable]:
    """Elementwise log densities of random variables and potentials, after replacing ``cuts``.

    They are built together, because a separate logp for each term would walk through the model each
    time. Missing elements of an observed variable are included, since they share its distribution.
    """
    partial = [rv for rv in reading.missing if isinstance(rv.owner.op, PartialObservedRV)]
    terms = [*reading.terms, *partial]
    # Parameters have normal probabilities, too. PyMC rewrites them below, and would hide them.
    latents = [latent.rv for latent in reading.latents]
    instead = dict(cuts) | _shapes_of_latents(terms, latents, cuts)
    copies = with_log_ndtr(clone_replace(list(terms), instead, rebuild_strict=False))
    copy_of = dict(zip(terms, copies, strict=True))
    rvs = [rv for rv in terms if rv in model.rvs_to_values]
    values = {copy_of[rv]: model.rvs_to_values[rv] for rv in rvs}
    transforms = {copy_of[rv]: model.rvs_to_transforms[rv] for rv in rvs}
    densities: dict[Variable, Variable] = {}
    if rvs:
        of_rvs = transformed_conditional_logp(
            list(values), rvs_to_values=values, rvs_to_transforms=transforms
        )
        densities |= zip(rvs, of_rvs, strict=True)
    potentials = [term for term in terms if term not in model.rvs_to_values]
    densities |= zip(
        potentials,
        replace_rvs_by_values(
            [copy_of[v] for v in potentials], rvs_to_values=values, rvs_to_transforms=transforms
        ),
        strict=True,
    )
    return with_log_ndtr([densities[term] for term in reading.terms])


def _shapes_of_latents(
    graphs: Sequence[Variable], latents: Collection[Variable], cuts: Collection[Variable]
) -> dict[Variable, Variable]:
    """The shapes that graphs read of latents, and not of the predictor, as constants.

    A latent would be drawn for its shape otherwise. The density of a `pymc.MvNormal` in a potential
    reads the shape of its value, for example.
    """
    own = set(latents).difference(cuts)
    shapes = [v for v in ancestors(graphs, cuts) if isinstance(op_of(v), Shape)]
    read = [v for v in shapes if not own.isdisjoint(ancestors(v.owner.inputs, cuts))]
    return {v: pt.constant(np.array(shape_of(v.owner.inputs[0]), dtype=v.dtype)) for v in read}


def _refuse_draws(densities: Mapping[str, Variable], known: Collection[Variable] = ()) -> None:
    """Raise if a log density contains a random variable other than the ``known`` ones."""

    def is_random(outputs: list[Variable]) -> bool:
        found = (v for v in ancestors(outputs, blockers=known) if v not in known)
        return any(isinstance(op_of(v), RandomVariable | SymbolicRandomVariable) for v in found)

    if is_random(list(densities.values())):  # one walk, unless there is such a density
        name = next(k for k, density in densities.items() if is_random([density]))
        raise ValueError(
            f"The log density of {name!r} draws random numbers: each evaluation gives another "
            "value, and a chain on it has no posterior. Write the density of the data, or make the "
            "random numbers a variable of the model."
        )


def _in_the_first_form_that_fits(setting: Setting) -> tuple[Form, list[Variable]]:
    """The first form that fits the model, and the log densities of the terms in this form."""
    model = setting.model
    for form in forms_of(setting):
        try:
            densities = setting.place(_log_densities(model, setting.reading, form.cuts))
        except ValueError as error:
            values = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs}
            shapes = {name: tuple(v.shape.eval().tolist()) for name, v in values.items()}
            raise ValueError(shapes_disagree(form.label, form.n, shapes, error)) from error
        if (prepared := form.prepare(densities)) is not None:
            return form, prepared
    raise AssertionError("the last form fits every model")


class LikelihoodReads(NamedTuple):
    """The f_i that the log densities of a likelihood read.

    Attributes
    ----------
    terms : dict of str to list of Reads
        For each density, the reads of the functions whose sum it is.
    elements : Reads
        The reads of every element of every density, as one vector.
    """

    terms: dict[str, list[Reads]]
    elements: Reads


class Graphs:
    """Mean, covariance and log densities as graphs of theta (p,) and f (n,).

    The functions of `pymc_lgm.model.functions.ModelFunctions` are compiled here when first used.
    Variables of other step methods are shared variables of all functions.

    Attributes
    ----------
    form : Form
        How f is computed from the latent variables. It defines ``mean`` and ``cov``.
    n : int
        Number of elements of f.
    theta : variable
        The vector theta.
    others : dict of str to shared variable
        Value variables that a graph depends on, and that are neither latent nor in theta.
    cov_reads : set of str
        Names of the value variables that the covariance depends on.
    log_concave : bool
        Whether the likelihood is declared to be log-concave in f.
    quadratic : bool
        Whether its logarithm is declared to be quadratic in f.
    likelihood, prior : dict of str to variable
        Elementwise log densities: those that depend on f, and those that depend only on theta.
    cuts : dict of variable to variable
        Variables of the model that densities read, and their graphs of the form's f.
    """

    def __init__(
        self,
        model: pm.Model,
        reading: Reading,
        blocks: Mapping[str, Block],
        point: Mapping[str, NDArray[Any]],
        compile_kwargs: dict[str, Any],
    ):
        self._compile_kwargs = compile_kwargs
        # PyMC refuses random parameters of a variable, but not of a potential.
        _refuse_draws({str(term.name): term for term in model.potentials}, set(model.basic_RVs))
        setting = _setting_of(model, reading, blocks, point, self._function)
        self.theta = setting.theta
        self.missing = Missing(setting)
        self.form, densities = _in_the_first_form_that_fits(setting)
        self.n, self._f = self.form.n, self.form.f
        self._mean, self._cov = self.form.mean, self.form.cov
        self._f_theta = [self._f, self.theta]
        # Many f at once, one per row: importance draws, or the nodes of a quadrature rule.
        self._rows = pt.matrix("rows", shape=(None, self.n))
        self.likelihood, self.prior = self._split(reading, densities)
        _refuse_draws(self.prior | self.likelihood)
        self._log_likelihood = _total(list(self.likelihood.values()))
        self._log_prior = _total(list(self.prior.values()))
        data = set(ancestors([*model.named_vars.values(), *model.rvs_to_values.values()]))
        self._moving = [
            v
            for v in ancestors(list(self.likelihood.values()))
            if isinstance(v, SharedVariable) and v not in data
        ]
        graphs = [
            self._mean,
            self._cov,
            self._log_likelihood,
            self._log_prior,
            *self.form.theta_graphs,
        ]
        used = set(ancestors([*graphs, *self.missing.graphs]))
        self.others = {v.name: v for v in setting.others if v in used}
        cov_uses = set(ancestors(self.form.of_values))
        self.cov_reads = {value.name for value in model.value_vars if value in cov_uses}
        self.log_concave = are_log_concave(reading.terms, self.form.cuts)
        self.quadratic = are_quadratic(reading.terms, self.form.cuts)
        is_softmax = are_softmaxes(reading.terms, self.form.cuts)
        self._logits = logits_of([*self.likelihood.values()], self._f) if is_softmax else None
        self.signs: Variable | None = self._signs_of(model)
        """s, if the likelihood is one probit of f itself, ∏ Φ(s_i f_i)."""
        self.cuts = dict(self.form.cuts)
        self.form.cuts = {}  # A chain does not need the random variables, which cannot be pickled.

    def _split(
        self, reading: Reading, densities: list[Variable]
    ) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """The log densities that depend on f, and those that depend on theta alone."""
        likelihood, prior = {}, {}
        for rv, density in zip(reading.terms, densities, strict=True):
            depends_on = set(ancestors([density]))
            if self._f in depends_on:
                likelihood[rv.name] = density
            elif self.theta in depends_on:
                prior[rv.name] = density
        return likelihood, prior

    def _signs_of(self, model: pm.Model) -> Variable | None:
        signs = {
            rv.name: rv.owner.op.probit_signs(model.rvs_to_values[rv])
            for rv in model.observed_RVs
            if isinstance(rv.owner.op, LatentGaussianLikelihood)
            and self.form.cuts.get(rv.owner.inputs[-1]) is self._f
        }
        return signs.popitem()[1] if len(signs) == 1 and {*signs} == {*self.likelihood} else None

    def is_scanned(self) -> bool:
        """Whether a `Scan` stands between f and a density."""
        scans = [v for v in ancestors([self._log_likelihood]) if isinstance(op_of(v), Scan)]
        return any(self._f in ancestors(v.owner.inputs) for v in scans)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "cuts"}

    # Functions of theta, of (f, theta), or of (rows of f, theta)

    mean = _compiled(lambda self: ([self.theta], self._mean))
    cov = _compiled(lambda self: ([self.theta], self._simplified))
    _score = _compiled(lambda self: (self._f_theta, [self._log_likelihood, self._gradient]))
    log_likelihood_theta_gradient = _compiled(
        lambda self: (self._f_theta, self._theta_grad(self._log_likelihood))
    )
    probit_signs = _compiled(lambda self: ([], self.signs))

    @_compiled
    def log_prior(self) -> Any:
        """log p(theta), and its gradient if it has one, in one function to compile it once."""
        value = self._log_prior
        gradient = [self._theta_grad(value)] if self.has_prior_gradient else []
        return [self.theta], [value, *gradient]

    def log_likelihood_gradient(self, f: Array, theta: Array) -> tuple[Array, Array]:
        """ℓ and g, from `likelihood_terms` if these are compiled.

        Compiling a function of two terms would take as long as it saves in 300 000 calls.
        """
        terms = self.likelihood_terms if "likelihood_terms" in vars(self) else self._score
        value, gradient, *_ = terms(f, theta)
        return value, gradient

    @_compiled
    def elements(self) -> Any:
        """Every element of every log density of the sum ℓ, as one vector."""
        terms = [term.ravel() for term in self.likelihood.values()]
        return self._of_rows(pt.concatenate(terms or [self._f[:0]]))

    def log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ of each row of f."""
        values: Array = self.elements(rows, theta).sum(axis=1)
        return values

    @_of_gradient
    def likelihood_terms(self) -> Any:
        """ℓ, g, W and the third derivative."""
        # The likelihood factorizes over f, so the derivative of the summed gradient is the diagonal
        # of the Hessian, and the derivative of its sum is the third derivative.
        gradient = self._gradient
        hessian = self._f_grad(gradient.sum())
        third = self._f_grad(hessian.sum())
        return self._f_theta, [self._log_likelihood, gradient, -hessian, third]

    @_compiled
    def log_likelihoods_theta_gradient(self) -> Any:
        """∂/∂theta of Σ_k w_k ℓ(f_k, theta) for rows f_k."""
        inputs, values = self._of_rows(self._log_likelihood)
        weights = pt.vector("weights")
        return [*inputs, weights], self._theta_grad(pt.sum(weights * values))

    @_of_gradient
    def likelihood_products(self) -> Any:
        """ℓ, g, and H v for rows v with H = ∂²ℓ/∂f², the columns of its blocks by colors."""
        rows, gradient, product = self._hessian_products()
        return [*self._f_theta, rows], [self._log_likelihood, gradient, product]

    @_of_gradient
    def curvature_gradient(self) -> Any:
        """∂/∂f of −Σ_k ⟨u_k, H v_k⟩ for rows v and u."""
        rows, _, product = self._hessian_products()
        weights = pt.matrix("weights", shape=(None, self.n))
        return [*self._f_theta, rows, weights], -self._f_grad(pt.sum(weights * product))

    @_compiled
    def likelihood_products_vjp(self) -> Any:
        """∂/∂theta of ℓ + ⟨w, g⟩ − Σ_k ⟨u_k, H v_k⟩ for rows v and u."""
        rows, gradient, product = self._hessian_products()
        w, weights = pt.vector("w", shape=(self.n,)), pt.matrix("weights", shape=(None, self.n))
        total = self._log_likelihood + pt.sum(w * gradient) - pt.sum(weights * product)
        return [*self._f_theta, rows, w, weights], self._theta_grad(total)

    @_compiled
    def likelihood_terms_vjp(self) -> Any:
        """∂/∂theta of ℓ + ⟨v, g⟩ + ⟨u, W⟩."""
        v, u = pt.vector("v", shape=(self.n,)), pt.vector("u", shape=(self.n,))
        gradient = self._gradient
        hessian = self._f_grad(gradient.sum())
        weighted = self._log_likelihood + pt.sum(v * gradient) - pt.sum(u * hessian)
        return [*self._f_theta, v, u], self._theta_grad(weighted)

    @_compiled
    def cov_vjp(self) -> Any:
        """⟨∂K/∂theta_j, M⟩."""
        M = pt.matrix("M", shape=self._cov.type.shape)
        return [self.theta, M], self._theta_grad(pt.sum(self._simplified * M))

    @_compiled
    def mean_vjp(self) -> Any:
        """⟨∂m/∂theta_j, v⟩."""
        v = pt.vector("v", shape=self._mean.type.shape)
        return [self.theta, v], self._theta_grad(pt.sum(self._mean * v))

    # For error messages: the log densities of ``prior``, and those of ``likelihood`` elementwise.
    prior_sums = _compiled(lambda self: ([self.theta], [pt.sum(t) for t in self.prior.values()]))
    term_values = _compiled(lambda self: (self._f_theta, list(self.likelihood.values())))

    @property
    def is_compiled(self) -> bool:
        """Whether functions are compiled, and not run in Python as in some tests."""
        # Numba's linker is a subclass of the one that runs in Python.
        return type(get_mode(self._compile_kwargs.get("mode")).linker) is not PerformLinker

    def compiled(
        self, inputs: list[Variable], outputs: Any, excluding: tuple[str, ...] = ()
    ) -> Callable[..., Any]:
        """A function that does not check its inputs, float64 arrays of the right shape.

        PyTensor's rewrites with the names ``excluding`` are left out.
        """
        of = outputs if isinstance(outputs, list) else [outputs]
        return self.form.wrap(self._function(inputs, outputs, excluding), inputs, of)

    def _function(
        self, inputs: list[Variable], outputs: Any, excluding: tuple[str, ...] = ()
    ) -> Callable[..., Any]:
        mode = get_mode(self._compile_kwargs.get("mode")).excluding(*excluding)
        return compiled(inputs, outputs, self._compile_kwargs | {"mode": mode})

    @property
    def _simplified(self) -> Variable:
        """K, simplified. It is not cached, since it may have constants as large as K."""
        return simplified(self._cov)

    @property
    def picking(self) -> list[Variable]:
        """Shared data by which a density selects elements of a variable that depends on f."""
        densities = list(self.likelihood.values())
        of_f = depending(densities, [self._f])
        indices = [
            index
            for node in toposort(densities)
            if isinstance(node.op, (*INDEXING, *SETTING)) and node.inputs[0] in of_f
            for index in node.inputs[1:]
        ]
        found = dict.fromkeys(v for v in ancestors(indices) if isinstance(v, SharedVariable))
        return [v for v in found if v not in self._moving]

    def reads(self, f: Array, theta: Array) -> LikelihoodReads:
        """The f_i that the likelihood reads. Shapes are evaluated at (f, theta)."""
        densities, values = list(self.likelihood.values()), self._values(f, theta)
        terms = [terms_of(density, self._f) for density in densities]
        elements = pt.concatenate([density.ravel() for density in densities] or [self._f[:0]])
        graphs = [elements, *(v for each in terms for v in each)]
        found = reads_of(Evaluation(graphs, values), self._f)
        rest = iter(found[1:])
        each = {
            name: [next(rest) for _ in of] for name, of in zip(self.likelihood, terms, strict=True)
        }
        return LikelihoodReads(each, found[0])

    def are_classes(self, sets: NDArray[np.intp], f: Array, theta: Array) -> bool:
        """Whether W's blocks are diag(D) − u uᵀ at every f. Shapes are evaluated at (f, theta)."""
        values = self._values(f, theta)
        return self._logits is not None and self._logits.are_classes(sets, self._f, values)

    def _values(self, f: Array, theta: Array) -> dict[Variable, Array]:
        """Values of f, theta and variables of other steps in the likelihood's graph."""
        return {self._f: f, self.theta: theta} | {v: v.get_value() for v in self._moving}

    @cached_property
    def amplitudes(self) -> Array:
        """The result of `find_amplitudes` for K."""
        return find_amplitudes(self._cov, self.theta)

    # Whether there are derivatives

    @cached_property
    def has_gradient(self) -> bool:
        """Whether the likelihood can be differentiated in f."""
        return _differentiable(lambda: pt.grad(self._log_likelihood, self._f))

    @cached_property
    def has_third_derivative(self) -> bool:
        """Whether the curvature of the likelihood can be differentiated in f."""

        def third() -> Variable:
            return self._f_grad(self._f_grad(self._gradient.sum()).sum())

        return _differentiable(third)

    @cached_property
    def has_theta_gradient(self) -> bool:
        """Whether mean, covariance, prior and likelihood can be differentiated in theta."""
        if not self.form.has_theta_gradient:
            return False
        terms = [self._mean, self._cov, self._log_prior, self._log_likelihood]
        return _differentiable(lambda: self._theta_grad(_total(terms)))

    @cached_property
    def has_evidence_gradient(self) -> bool:
        """Whether the evidence of a Gaussian approximation can be differentiated in theta."""
        if self.form.has_theta_gradient or not self.form.has_evidence_gradient:
            return self.has_theta_gradient
        terms = [
            *(pt.sum(v) for v in self.form.theta_graphs),
            self._log_prior,
            self._log_likelihood,
        ]
        return _differentiable(lambda: self._theta_grad(_total(terms)))

    @cached_property
    def theta_in_likelihood(self) -> bool:
        """Whether ℓ depends on theta, directly or through ``theta_graphs`` of the form."""
        return bool(self.form.theta_graphs) or self.theta in set(ancestors([self._log_likelihood]))

    @cached_property
    def has_prior_gradient(self) -> bool:
        """Whether the prior of theta can be differentiated."""
        return _differentiable(lambda: self._theta_grad(self._log_prior))

    def _of_rows(self, output: Variable) -> tuple[list[Variable], Variable]:
        return [self._rows, self.theta], in_rows(output, self._f, self._rows)

    @cached_property
    def _gradient(self) -> Variable:
        """∂ℓ/∂f, simplified: its own derivatives are half as large then, and lose fewer digits."""
        (copy,) = clone_replace([self._f_grad(self._log_likelihood)])  # ℓ shares its nodes
        return simplified(copy, is_stabilized=True)

    def _hessian_products(self) -> tuple[Variable, Variable, Variable]:
        """Rows v, g and H v."""
        rows, v = pt.matrix("directions", shape=(None, self.n)), pt.vector("v", shape=(self.n,))
        product = self._f_grad(pt.sum(self._gradient * v))
        return rows, self._gradient, in_rows(product, v, rows)

    def _theta_grad(self, scalar: Variable) -> Variable:
        return pt.grad(scalar, self.theta, disconnected_inputs="ignore")

    def _f_grad(self, scalar: Variable) -> Variable:
        return pt.grad(scalar, self._f, disconnected_inputs="ignore")


def _differentiable(gradient: Callable[[], Variable]) -> bool:
    """Whether every operation of a graph has a gradient."""
    try:
        gradient()
    except (NotImplementedError, NullTypeGradError, DisconnectedInputError):
        return False
    return True
