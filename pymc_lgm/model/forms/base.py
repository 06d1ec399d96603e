"""The base of a form of f, the vector that samplers move: how it follows from a model's latents.

A form has the graphs and the prior of f, and the maps between f and the model's variables.

To compute f in another way, add a file to this folder and a line to
`pymc_lgm.model.forms.forms_of`. No other code depends on which form a model has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pymc as pm

from numpy.typing import NDArray

from pymc_lgm.adaptation import FEWEST_DRAWS
from pymc_lgm.approximations.sites import Effects
from pymc_lgm.compile.graphs.functions import STABLE, called_once
from pymc_lgm.gaussian import Prior
from pymc_lgm.gaussian.base import EPSILON, Functions, GaussianModel
from pymc_lgm.linalg import Array
from pymc_lgm.model import refusals
from pymc_lgm.model.operations import Variable
from pymc_lgm.model.reading import Reading

__all__ = [
    "Direction",
    "Form",
    "FormModel",
    "LastThetas",
    "LikelihoodFunctions",
    "PriorAt",
    "Probe",
    "Setting",
    "vectors_to_probe",
]

SMALLEST = 1e-9
"""Share of the largest variance of f below which an error in the covariance need not be seen.

Rounding changes eigenvalues of K by 1e-16 times the largest one, and by 1e-10 if the length-scale
is a thousandth of the range of x.
"""

PriorAt = Callable[[Array], "Prior | None"]
"""theta -> N(m(theta), K(theta)); ``None`` if it cannot be computed."""


@dataclass(frozen=True, eq=False)
class Setting:
    """The model and the inputs of graphs, from which a form is built.

    Attributes
    ----------
    model : pymc.Model
    reading : Reading
    theta : variable
        The vector theta.
    at : ndarray, shape (p,)
        A theta at which all graphs can be computed.
    shapes : list of tuple of int
        Shapes of the latents.
    others : list of shared variable
        Values of variables that other steps move.
    place : callable
        Graphs of the model's value variables -> the same graphs of ``theta`` and ``others``.
    compiled : callable
        (inputs, outputs) -> a function of arrays.
    """

    model: pm.Model
    reading: Reading
    theta: Variable
    at: Array
    shapes: list[tuple[int, ...]]
    others: list[Variable]
    place: Callable[[list[Variable]], list[Variable]]
    compiled: Callable[[list[Variable], Any], Callable[..., Any]]

    @property
    def start(self) -> dict[Variable, Array]:
        """Theta and variables of other steps, with values at which all graphs can be computed."""
        return {self.theta: self.at} | {v: v.get_value() for v in self.others}

    def compiled_if_repeated(self, inputs: list[Variable], outputs: Any) -> Callable[..., Any]:
        """A function of a PyMC point: compiled only if there are other steps.

        These may move the point, so each draw calls the function; otherwise a chain calls it once.
        """
        if self.others:
            return self.compiled(inputs, outputs)
        return called_once(inputs, outputs, STABLE)

    @property
    def label(self) -> str:
        """The names of the latents, for messages."""
        return " + ".join(str(latent.rv.name) for latent in self.reading.latents)


class LastThetas[Result]:
    """Results of a function at the thetas for which it was last called.

    Two are enough for a chain: the theta of the state and that of the proposal.
    """

    def __init__(self, count: int = 2):
        self._count = count
        self._results: dict[bytes, Result] = {}

    @property
    def results(self) -> list[Result]:
        """The results, from the least to the most recent."""
        return list(self._results.values())

    def at(self, theta: Array, function: Callable[[Array], Result]) -> Result:
        """The result at theta, computed if it is not known."""
        key = theta.tobytes()
        result = self._results.pop(key) if key in self._results else function(theta)
        while len(self._results) >= self._count:
            self._results.pop(next(iter(self._results)))
        self._results[key] = result
        return result

    def forget(self) -> None:
        """Drop all results, since a variable of another step has moved."""
        self._results.clear()


class Direction(NamedTuple):
    """A direction u of the latents x in which the curvature of their prior, uᵀ K_x⁻¹ u, is known.

    K_x is the covariance of x given theta, and f = c + A x.

    Attributes
    ----------
    name : str
        u or A u, for a message.
    of_latents : list of ndarray
        u, in the shapes of the model's latent variables.
    quadratic_form : float
        uᵀ K_x⁻¹ u, or wᵀ K w if u = K_x Aᵀ w.
    of_f : ndarray, shape (n,), or None
        K w = A u, if the prior of f gives it.
    rounding : float
        The rounding error of the quadratic form, if it is known.
    """

    name: str
    of_latents: list[Array]
    quadratic_form: float
    of_f: Array | None
    rounding: float = 0.0

    @classmethod
    def along(
        cls, name: str, prior: Prior, w: Array, of_latents: list[Array] | None = None
    ) -> Direction:
        """The direction K w of f, by a prior that rounds the elements of K."""
        Kw = prior.covariance_times(w)
        rounding = EPSILON * float(prior.variances.max() * (w @ w))
        return cls(name, of_latents or [Kw], float(w @ Kw), Kw, rounding)


class Probe(NamedTuple):
    """Means and curvatures that the latents must have, compared in `pymc_lgm.model.check`.

    Attributes
    ----------
    means : list of ndarray
        Means of the latents, given theta.
    steps : list of Direction
    """

    means: list[Array]
    steps: list[Direction]


def vectors_to_probe(prior: Prior, rng: np.random.Generator) -> dict[str, Array]:
    """w ~ N(0, I), and v ~ N(0, (K + δ I)⁻¹).

    The largest variances make up almost all of wᵀ K w, while all degrees of freedom with a variance
    above δ have the same share of vᵀ K v. So the second shows an error in a small variance, too,
    beside an intercept of variance 10⁸. Below δ, rounding may have changed K.
    """
    w = rng.standard_normal(prior.n)
    delta = SMALLEST * float(prior.variances.max())
    posterior = prior.condition(np.full(prior.n, 1.0 / delta))
    if posterior is None:
        return {"K w": w}
    f = prior.multiply(rng.standard_normal(prior.rank))
    noise = posterior.weighted_residual(f / np.sqrt(delta) + rng.standard_normal(prior.n))
    return {"K w": w, "K v": noise / np.sqrt(delta)}


class LikelihoodFunctions(Protocol):
    """The likelihood as functions of (f, theta), or of (rows of f, theta)."""

    @property
    def log_likelihoods(self) -> Callable[..., Any]:
        """ℓ of each row of f."""

    @property
    def log_likelihood_gradient(self) -> Callable[..., Any]:
        """ℓ and g."""

    @property
    def likelihood_terms(self) -> Callable[..., Any]:
        """ℓ, g, W and the third derivative."""

    @property
    def elements(self) -> Callable[..., Any]:
        """Every element of every log density, for rows of f."""

    @property
    def term_values(self) -> Callable[..., Any]:
        """The log density of each observed variable, elementwise."""


class FormModel(GaussianModel, Protocol):
    """The functions of a model that a form needs for its prior."""

    @property
    def graphs(self) -> Functions:
        """The form's own ``mean`` and ``cov`` as functions of theta, with their derivatives."""

    def enters(self, names: Collection[str]) -> NDArray[np.bool_]:
        """Whether each component of theta belongs to one of these value variables, shape (p,)."""

    def are_fixed(self, names: Collection[str]) -> bool:
        """Whether none of these value variables belongs to another step."""


class Form:
    """The map from a model's latent variables to f.

    Attributes
    ----------
    f : variable
        The vector f in the graphs of densities.
    n, rank : int
        Number of elements of f, and its degrees of freedom.
    mean, cov : variable
        Graphs of theta that define the prior: mean and covariance of f, if ``by_covariance``.
    of_values : list of variable
        Graphs of the model's value variables, from which ``cov`` is computed.
    cuts : mapping
        Where the graphs of densities are cut off: variables of the model, and graphs of ``f`` that
        replace them. Emptied after the densities have been built.
    theta_graphs : sequence of variable
        Further graphs of theta that the form computes, for its prior or for densities.
    algebra : str
        The kind of matrix that an O(n³) operation factorizes.
    by_covariance : bool
        Whether ``mean`` and ``cov`` are those of f. Only then can amplitudes be found.
    has_sets : bool
        Whether the prior can be conditioned on sites of several elements.
    has_theta_gradient : bool
        Whether the prior has derivatives in theta if its graphs have.
    has_evidence_gradient : bool
        Whether the evidence has derivatives in theta, which need no differentiable root of K.
    can_fix_f : bool
        Whether f can be held fixed while theta moves.
    has_transport : bool
        Whether a transport map can correct importance draws, all elements jointly.
    is_close : bool
        Whether the posterior of f is close to a Gaussian, because f has few degrees of freedom for
        its data, or because effects are integrated out. Importance draws then need no other move of
        f.
    fewest : int
        Number of importance draws at which tuning begins, without a transport map.
    seconds : float
        The time of a factorization, roughly; 0 if it takes less than the calls in Python of a draw,
        or if importance draws need none.
    caveats : mapping of str to bool
        Statistics that every draw reports if the draws are not from p(f, theta | y).
    """

    algebra: ClassVar[str] = "a dense matrix"
    by_covariance: ClassVar[bool] = True
    has_theta_gradient: ClassVar[bool] = True
    has_evidence_gradient: bool = False
    can_fix_f: bool = True
    has_sets: bool = True
    has_transport: bool = False
    is_close: bool = False
    fewest: int = FEWEST_DRAWS
    seconds: float = 0.0
    caveats: Mapping[str, bool] = {}

    f: Variable
    n: int
    rank: int
    mean: Variable
    cov: Variable
    of_values: list[Variable]
    cuts: Mapping[Variable, Variable]
    theta_graphs: Sequence[Variable] = ()

    @property
    def dense_rows(self) -> int:
        """Rows of the largest matrix that BLAS factorizes, by which it gets one thread or more."""
        return self.n

    def __init__(self, setting: Setting):
        self.label = setting.label
        processes = [each.rv.name for each in setting.reading.latents if each.variances is None]
        self._process = str(processes[0]).removesuffix("_rotated_") if processes else None

    def prepare(self, densities: list[Variable]) -> list[Variable] | None:
        """Return densities, given as graphs of f; ``None`` if the form does not fit the model."""
        return densities

    def wrap(
        self, function: Callable[..., Any], inputs: list[Variable], outputs: list[Variable]
    ) -> Callable[..., Any]:
        """A compiled function that is preceded by the form's own computations at theta."""
        return function

    def prior_of(self, model: FormModel) -> PriorAt:
        """The prior of f as a function of theta."""
        raise NotImplementedError

    def f_of(self, prior_at: PriorAt, theta: Array, values: list[Array]) -> Array:
        """f at values of the model's latent variables: a new array, shape (n,)."""
        raise NotImplementedError

    def values_of(self, rng: np.random.Generator, prior: Prior, f: Array) -> list[Array] | None:
        """Values of the model's latent variables: f itself, or a draw given f and theta.

        ``None`` if one of them has no density at this theta although f has one: see `has_values`.
        """
        raise NotImplementedError

    def has_values(self, prior: Prior) -> bool:
        """Whether the latent variables have a density at this theta if f has one."""
        return True

    def probe(self, prior: Prior, rng: np.random.Generator) -> Probe | None:
        """Means and curvatures of the latents' prior at one theta, to compare with PyMC's."""
        vectors = vectors_to_probe(prior, rng).items()
        directions = [Direction.along(name, prior, w) for name, w in vectors]
        return Probe([prior.mean.copy()], directions)

    def log_likelihood_of(self, model: Any, latents: list[Array], f: Array, theta: Array) -> float:
        """ℓ at values of the latents and their f, without integrating effects out."""
        ell: float = model.log_likelihood(f, theta)
        return ell

    @property
    def of_eta(self) -> slice:
        """The elements of f that observations may read: all, unless f contains the latents."""
        return slice(0, self.n)

    def sets(self) -> NDArray[np.intp] | None:
        """Sets of f_i that observations may read together; ``None`` to find them from densities."""
        return None

    def likelihood(self, graphs: LikelihoodFunctions) -> LikelihoodFunctions:
        """The functions of the likelihood of f: the graphs', or with effects integrated out."""
        return graphs

    def effects(self, theta: Array) -> Effects | None:
        """Observation-level random effects that the form integrates out."""
        return None

    def describe(self) -> list[str]:
        """Lines that describe f."""
        return [f"latent={self.label} ({self.n})"]

    def is_infinite(self, theta: Array, f: Array) -> bool:
        """Whether f = c + A x is infinite: samplers then reject, although PyMC has a density."""
        return bool(np.isinf(f).any())

    def forget(self) -> None:
        """Clear cached results, since a variable of another step has moved."""

    def explain(self, model: FormModel, prior_at: PriorAt, theta: Array, where: str) -> str | None:
        """Say why there is no proper prior at theta; ``None`` if there is."""
        mean = model.mean(theta)
        if not np.isfinite(mean).all():
            i = int(np.flatnonzero(~np.isfinite(mean))[0])
            return refusals.not_finite(f"The mean of {self.label!r}", mean[i], i, where)
        return self._explain_covariance(model.cov(theta), where)

    def _explain_covariance(self, K: Array, where: str) -> str | None:
        name = self.label
        if K.shape != (self.rank, self.rank):
            return (
                f"The covariance of {name!r} has shape {K.shape}, but {name!r} has {self.n} "
                "elements. Give its mean and its covariance the same n."
            )
        if not np.isfinite(K).all():
            # A NaN in X spreads to a row and a column of K, which cross at the diagonal.
            bad = np.argwhere(~np.isfinite(K))
            i, j = min(bad.tolist(), key=lambda at: at[0] != at[1])
            rows = f"Row {i} of X gives" if i == j else f"Rows {i} and {j} of X give"
            return (
                f"The covariance of {name!r} is {K[i, j]} at ({i}, {j}) {where}. {rows} it: remove "
                "or impute a NaN or an infinity there."
            )
        if (none := np.flatnonzero(K.diagonal() <= 0.0)).size:
            return (
                f"The variance of {name!r} is {K[none[0], none[0]]} at index {none[0]} {where}. A "
                f"standard deviation or a factor that is 0 there does this: start elsewhere, "
                f"{refusals.ELSEWHERE}."
            )
        try:
            np.linalg.cholesky(K)
        except np.linalg.LinAlgError:
            eigenvalues = np.linalg.eigvalsh(K)
            # Twice the deficit and the rounding error of the largest eigenvalue, as a power of ten.
            deficit = 2 * max(-eigenvalues[0], 0.0) + self.rank * np.spacing(eigenvalues[-1])
            jitter = 10.0 ** np.ceil(np.log10(deficit))
            condition = eigenvalues[-1] / np.abs(eigenvalues).min()
            return (
                f"The covariance of {name!r} is not positive definite {where}: its eigenvalues run "
                f"from {eigenvalues[0]:.2g} to {eigenvalues[-1]:.2g} (condition number "
                f"{condition:.1g}). {self._remedy(jitter)}"
            )
        return None

    def _remedy(self, jitter: float) -> str:
        """How to make a covariance positive definite."""
        if self._process is None:
            return (
                "Basis functions or effects that are almost the same, or factors near zero, do "
                f"this. Leave some out, or start elsewhere, {refusals.ELSEWHERE}."
            )
        return (
            "Repeated rows of X or long length-scales do this. Write "
            f"gp.prior({self._process!r}, X, reparameterize=False, jitter={jitter:.0e}), or add as "
            "much to the diagonal of a covariance of your own."
        )
