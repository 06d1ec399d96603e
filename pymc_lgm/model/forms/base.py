"""What a form of f answers: its graphs, its prior, and the way between f and the model's variables.

A model whose f is made in another way is one more file in this folder, and one more line in
`pymc_lgm.model.forms.forms_of`; nothing else asks which form a model has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pymc as pm

from numpy.typing import NDArray

from pymc_lgm.adaptation import FEWEST
from pymc_lgm.approximations.gaussian import Effects
from pymc_lgm.gaussian import Prior
from pymc_lgm.gaussian.banded import Functions
from pymc_lgm.gaussian.protocols import GaussianModel
from pymc_lgm.linalg import Array
from pymc_lgm.model.reading import Reading

__all__ = ["Direction", "Form", "FormModel", "LikelihoodFunctions", "PriorAt", "Probe", "Setting"]

Variable = Any

PriorAt = Callable[[Array], "Prior | None"]
"""N(m(theta), K(theta)); ``None`` where that is no number."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What the graphs of a form are made in.

    Attributes
    ----------
    model : pymc.Model
    reading : Reading
    theta : variable
        The vector theta.
    at : ndarray, shape (p,)
        A theta at which all can be computed.
    shapes : list of tuple of int
        Of the latents.
    others : list of shared variable
        What other steps own.
    place : callable
        Puts theta, and what other steps own, in the place of the model's value variables.
    compiled : callable
        Inputs and outputs -> a function of arrays.
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
        """Theta and what other steps own, with values at which all can be computed."""
        return {self.theta: self.at} | {v: v.get_value() for v in self.others}

    @property
    def label(self) -> str:
        """The names of the latents, to be read."""
        return " + ".join(str(latent.rv.name) for latent in self.reading.latents)


class Direction(NamedTuple):
    """A direction u of the latents in which their prior is known: uᵀ K_x⁻¹ u.

    Attributes
    ----------
    of_latents : list of ndarray
        u, in the shapes of the model's latent variables.
    quadratic_form : float
        uᵀ K_x⁻¹ u, or wᵀ K w if u = K_x Aᵀ w.
    of_f : ndarray, shape (n,), or None
        K w = A u if the prior of f says so.
    """

    of_latents: list[Array]
    quadratic_form: float
    of_f: Array | None


class Probe(NamedTuple):
    """What the prior of f claims of the model's latent variables, for `pymc_lgm.model.check`.

    Attributes
    ----------
    means : list of ndarray
        Of the latents, given theta.
    steps : list of Direction
    """

    means: list[Array]
    steps: list[Direction]


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
        """Every element of every log density, of rows of f."""

    @property
    def term_sums(self) -> Callable[..., Any]:
        """The log density of each observed variable."""

    @property
    def term_values(self) -> Callable[..., Any]:
        """The same elementwise."""


class FormModel(GaussianModel, Protocol):
    """A model as a form sees it when its prior is made."""

    @property
    def graphs(self) -> Functions:
        """The form's own ``mean`` and ``cov`` as functions of theta, with their derivatives."""

    def enters(self, names: Collection[str]) -> NDArray[np.bool_]:
        """Which components of theta are one of these value variables, shape (p,)."""

    def are_fixed(self, names: Collection[str]) -> bool:
        """Whether none of these value variables belongs to another step."""


class Form:
    """How f is made of a model's latent variables.

    Attributes
    ----------
    f : variable
        The vector f of the graphs.
    n, rank : int
        Its elements, and its degrees of freedom.
    mean, cov : variable
        Graphs of theta that its prior is made of: those of f, if ``by_covariance``.
    of_values : list of variable
        What ``cov`` is made of, as graphs of the model's value variables.
    cuts : mapping
        What densities read, made of ``f``; empty when they have been made.
    reads : list of variable
        Further graphs of theta that densities read, computed by the form.
    by_covariance : bool
        Whether ``mean`` and ``cov`` are those of f: an amplitude can be found then.
    has_sets : bool
        Whether its prior can be conditioned on sites of several elements.
    has_theta_gradient : bool
        Whether its prior has derivatives in theta, if its graphs have.
    has_evidence_gradient : bool
        Whether the evidence has, although its prior may have no root that can be differentiated.
    stays : bool
        Whether f can be held while theta moves.
    is_bent : bool
        Whether importance draws are bent by a transport along the series, not one by one.
    is_close : bool
        Whether a Gaussian is close to the posterior of f: it has few degrees of freedom for its
        data, or its effects are integrated out. Then its importance draws need no other move of f.
    fewest : int
        Importance draws, if they are not bent together.
    whose : mapping of str to bool
        Statistics of every draw that label it where it is not one of p(f, theta | y).
    """

    by_covariance: ClassVar[bool] = True
    has_theta_gradient: ClassVar[bool] = True
    has_evidence_gradient: bool = False
    stays: bool = True
    has_sets: bool = True
    is_bent: bool = False
    is_close: bool = False
    fewest: int = FEWEST
    whose: Mapping[str, bool] = {}

    f: Variable
    n: int
    rank: int
    mean: Variable
    cov: Variable
    of_values: list[Variable]
    cuts: Mapping[Variable, Variable]
    reads: Sequence[Variable] = ()

    def __init__(self, setting: Setting):
        self.label = setting.label

    def known(self, densities: list[Variable]) -> list[Variable] | None:
        """Densities of ``cuts`` as densities of ``f``; ``None`` if the form does not fit them."""
        return densities

    def placed(
        self, function: Callable[..., Any], inputs: list[Variable], outputs: list[Variable]
    ) -> Callable[..., Any]:
        """A compiled function, after what the form computes of theta alone."""
        return function

    def prior_of(self, model: FormModel) -> PriorAt:
        """The prior of f as a function of theta."""
        raise NotImplementedError

    def f_of(self, prior_at: PriorAt, theta: Array, values: list[Array]) -> Array:
        """f, of the values of the model's latent variables: a new array, shape (n,)."""
        raise NotImplementedError

    def values_of(self, rng: np.random.Generator, prior: Prior, f: Array) -> list[Array] | None:
        """Values of the model's latent variables: f, or drawn given f and theta.

        ``None`` if one of them has no density at this theta, although f has one: see `has_values`.
        """
        raise NotImplementedError

    def has_values(self, prior: Prior) -> bool:
        """Whether the latent variables have a density at this theta, where f has one."""
        return True

    def probe(self, model: FormModel, prior: Prior, rng: np.random.Generator) -> Probe | None:
        """Claims about the prior of the latents that PyMC's density can refute, at one theta."""
        w = rng.standard_normal(self.n)
        Kw = prior.covariance_times(w)
        return Probe([prior.mean.copy()], [Direction([Kw], float(w @ Kw), Kw)])

    def log_likelihood_of(
        self, model: Any, prior: Prior, latents: list[Array], f: Array, theta: Array
    ) -> float:
        """ℓ at values of the latents, of which ``f`` is made; effects are not integrated out."""
        ell: float = model.log_likelihood(f, theta)
        return ell

    @property
    def of_eta(self) -> slice:
        """Which elements of f observations may read: all, unless f has the latent variables."""
        return slice(0, self.n)

    def sets(self) -> NDArray[np.intp] | None:
        """Which f_i observations read together if they do; ``None``: they are looked for."""
        return None

    def likelihood(self, graphs: LikelihoodFunctions) -> LikelihoodFunctions:
        """The functions of f that are the likelihood: those of the graphs, or of what is left."""
        return graphs

    def effects(self, theta: Array) -> Effects | None:
        """Effects, one per observation, that the form integrates out."""
        return None

    def describe(self) -> list[str]:
        """What f is, a line each."""
        return [f"latent={self.label} ({self.n})"]

    def forget(self) -> None:
        """What has been computed does not hold: another step has moved what it owns."""

    def explain(self, model: FormModel, prior_at: PriorAt, theta: Array, where: str) -> str | None:
        """Say why there is no proper prior at theta; ``None`` if there is."""
        mean = model.mean(theta)
        if not np.isfinite(mean).all():
            i = int(np.flatnonzero(~np.isfinite(mean))[0])
            return (
                f"The mean of {self.label!r} is {mean[i]} at index {i} {where}. Remove or impute a "
                "NaN or an infinity in that row of X."
            )
        return self._explain_covariance(model.cov(theta), where)

    def _explain_covariance(self, K: Array, where: str) -> str | None:
        name = self.label
        if K.shape != (self.rank, self.rank):
            return (
                f"The covariance of {name!r} has shape {K.shape}, but {name!r} has {self.n} "
                "elements. Give its mean and its covariance the same n."
            )
        if not np.isfinite(K).all():
            # A NaN in X spreads over its row and column: the diagonal tells which row it is in.
            bad = np.argwhere(~np.isfinite(K))
            i, j = min(bad.tolist(), key=lambda at: at[0] != at[1])
            rows = f"Row {i} of X gives" if i == j else f"Rows {i} and {j} of X give"
            return (
                f"The covariance of {name!r} is {K[i, j]} at ({i}, {j}) {where}. {rows} it: remove "
                "or impute a NaN or an infinity there."
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
                f"{condition:.1g}). Repeated rows of X or long length-scales do this. Write "
                f"gp.prior({name!r}, X, reparameterize=False, jitter={jitter:.0e})."
            )
        return None
