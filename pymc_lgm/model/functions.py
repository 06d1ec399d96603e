"""A `pymc.Model` as numeric functions of (theta, f), which samplers use as a `LatentGaussian`.

The protocol is in `pymc_lgm.latent_gaussian`, and the graphs are in `pymc_lgm.model.graphs`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import pymc as pm

from numpy.typing import NDArray
from pymc.pytensorf import extract_obs_data

from pymc_lgm.approximations.sites import Effects
from pymc_lgm.compile.graphs.functions import with_address
from pymc_lgm.compile.loops.callbacks import LogDensity
from pymc_lgm.gaussian import Prior
from pymc_lgm.gaussian.sites import ClassBlocks, SiteBlocks, add_columns, scattered
from pymc_lgm.linalg import Array
from pymc_lgm.model import refusals
from pymc_lgm.model.forms.base import PriorAt
from pymc_lgm.model.graphs import Block, Graphs, LikelihoodReads
from pymc_lgm.model.operations import Variable
from pymc_lgm.model.reading import Reading
from pymc_lgm.model.reads import groups_of, joined, sets_of, within
from pymc_lgm.model.refutations import generator, is_flat, thetas_near

__all__ = ["ModelFunctions"]


def _of_graphs(name: str) -> Any:
    """An attribute that is one of the model's graphs, too."""
    known = getattr(Graphs, name).__doc__ or f"See `Graphs.{name}`."
    return property(attrgetter(f"graphs.{name}"), doc=known)


class ModelFunctions:
    """The functions of a `pymc_lgm.model.read.LatentGaussianModel`.

    theta is the raveled vector of the unconstrained value variables ``theta_names``, in their
    order. `read` takes every other variable from a point. Functions are compiled when they are
    first used.

    Attributes
    ----------
    latents : tuple of str
        Names of the latent variables in a PyMC point: f, or the variables whose linear predictor
        is f.
    latent : str
        These names joined, for messages.
    theta_names : tuple of str
        Names of theta's value variables, as in a PyMC point.
    other_names : tuple of str
        Value variables that other step methods own and that the densities of f or theta depend on.
    form : Form
        How f is computed from the latent variables.
    n, p : int
        Dimensions of f and theta.
    rank : int
        Degrees of freedom of f, at most n.
    enters_cov : ndarray of bool, shape (p,)
        Components of theta that the covariance depends on.
    coupled : str or None
        Name of a term of the likelihood that is not a sum over the f_i.
    sets : ndarray of int, shape (G, s), or None
        If ``coupled``, the sets of f_i that observations read together, as in `SiteBlocks`;
        ``None`` if the sets are too large.
    graphs : Graphs
        The graphs that the functions are compiled from.
    likelihood : LikelihoodFunctions
        The likelihood as functions of f: ``graphs``, or with effects integrated out by the form.
    """

    def __init__(
        self,
        model: pm.Model,
        reading: Reading,
        theta: Sequence[Variable],
        point: dict[str, NDArray[Any]],
        compile_kwargs: dict[str, Any] | None = None,
    ):
        rvs = [latent.rv for latent in reading.latents]
        values = [rv if rv in model.observed_RVs else model.rvs_to_values[rv] for rv in rvs]
        self.latents: tuple[str, ...] = tuple(str(v.name) for v in values)
        self._data = {
            str(rv.name): model.rvs_to_values[rv] for rv in rvs if rv in model.observed_RVs
        }
        # PyMC calls a whitened process f_rotated_, and its users f.
        names = [str(rv.name).removesuffix("_rotated_") for rv in rvs]
        self.latent: str = " + ".join(names)
        self.is_one_vector = reading.is_one_vector
        self.theta_names: tuple[str, ...] = tuple(v.name for v in theta)
        self.missing: tuple[str, ...] = tuple(model.rvs_to_values[v].name for v in reading.missing)
        self._blocks: dict[str, Block] = {}
        end = 0
        for name in self.theta_names:
            begin, end = end, end + int(np.size(point[name]))
            self._blocks[name] = slice(begin, end), np.shape(point[name])
        point = point | {name: extract_obs_data(data) for name, data in self._data.items()}
        self.graphs = Graphs(model, reading, self._blocks, point, compile_kwargs or {})
        self.form = self.graphs.form
        self.likelihood = self.form.likelihood(self.graphs)
        self.n, self.p, self.rank = self.form.n, end, self.form.rank
        self.observed: dict[str, Variable] = {
            rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs
        }
        self.likelihood_names: tuple[str, ...] = tuple(self.graphs.likelihood)
        self.prior_names: tuple[str, ...] = tuple(self.graphs.prior)
        self.other_names: tuple[str, ...] = tuple(self.graphs.others)
        self.enters_cov = self.enters(self.graphs.cov_reads)
        self._moves_cov = self.graphs.cov_reads & set(self.other_names)
        self.coupled: str | None = None
        self.sets: NDArray[np.intp] | None = None
        self.classes = False
        self._site_index: NDArray[np.intp] | None = None
        self._reads: LikelihoodReads | None = None
        self._found: tuple[Array, Array, LikelihoodReads] | None = None
        self._start = self.theta_of(point)

    def __repr__(self) -> str:
        theta = f"theta=[{', '.join(self.theta_names)}] ({self.p})"
        likelihood = f"likelihood=[{', '.join(self.likelihood_names)}]"
        lines = [*self.form.describe(), theta, likelihood]
        if self.is_one_vector:
            return f"LatentGaussianModel({', '.join(lines)})"
        shown = ",\n    ".join(lines)
        return f"LatentGaussianModel(\n    {shown}\n)"

    # PyMC points <-> theta and f

    def theta_of(self, point: dict[str, NDArray[Any]]) -> Array:
        """theta, raveled from the variables of a PyMC point: a new array, shape (p,)."""
        pieces = [np.ravel(point[name]) for name in self.theta_names]
        return np.concatenate(pieces).astype(np.float64) if pieces else np.empty(0)

    def f_of(self, theta: Array, point: dict[str, NDArray[Any]]) -> Array:
        """f at a PyMC point, or the observed values of f: a new array, shape (n,)."""
        point = point | {name: extract_obs_data(data) for name, data in self._data.items()}
        # Copies, because the parallel driver writes the next point into the same memory.
        values = [np.array(point[name], dtype=np.float64) for name in self.latents]
        return self.form.f_of(self.prior, theta, values)

    def point_of(self, theta: Array) -> dict[str, NDArray[Any]]:
        """Theta's variables as in a PyMC point (copies)."""
        # Numbers are 0-d arrays: PyMC's recorder does not take a NumPy scalar.
        return {
            name: np.array(theta[part]).reshape(shape)
            for name, (part, shape) in self._blocks.items()
        }

    def latents_of(
        self, rng: np.random.Generator, prior: Prior, f: Array
    ) -> dict[str, NDArray[Any]] | None:
        """The latent variables as in a PyMC point (copies): f, or a draw given f and theta.

        ``rng`` is not used if f determines them. The result is ``None`` if one of them has no
        density at this theta although f has one.
        """
        values = self.form.values_of(rng, prior, f)
        return None if values is None else dict(zip(self.latents, values, strict=True))

    def has_latents(self, prior: Prior) -> bool:
        """Whether the latent variables have a density at a theta where f has one."""
        return self.form.has_values(prior)

    def missing_of(
        self, rng: np.random.Generator, theta: Array, latents: dict[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        """Draw variables that no density reads, such as missing observations, given all others."""
        if not self.missing:
            return {}
        free = [latents[name] for name in self.latents if name not in self._data]
        values = self.graphs.missing.draw(rng, theta, *free)
        return dict(zip(self.missing, values, strict=True))

    def enters(self, names: Collection[str]) -> NDArray[np.bool_]:
        """Whether each component of theta belongs to one of these value variables, shape (p,)."""
        found = np.zeros(self.p, dtype=bool)
        for name, (part, _) in self._blocks.items():
            found[part] = name in names
        return found

    def are_fixed(self, names: Collection[str]) -> bool:
        """Whether none of these value variables belongs to another step."""
        return not set(names) & set(self.other_names)

    def read(self, point: dict[str, NDArray[Any]]) -> tuple[bool, bool]:
        """Copy the values of variables that other step methods own from a PyMC point.

        Returns
        -------
        cov_moved, moved : bool
            Whether a variable of the covariance has changed, and whether any variable has.
        """
        moved = set()
        for name, variable in self.graphs.others.items():
            value = np.asarray(point[name])
            if not np.array_equal(variable.get_value(borrow=True), value):
                variable.set_value(value.copy(), borrow=True)
                moved.add(name)
        if moved:
            self.form.forget()
        return bool(moved & self._moves_cov), bool(moved)

    # The five functions of `pymc_lgm.latent_gaussian.LatentGaussian`

    @cached_property
    def amplitudes(self) -> Array:
        """k (p,): component j of theta multiplies K by exp(k_j δ) if it moves by δ; 0 for others.

        All are 0 if K depends on a variable of another step method, which may change this.
        """
        fixed = self.form.by_covariance and not self._moves_cov
        return self.graphs.amplitudes if fixed else np.zeros(self.p)

    def prior(self, theta: Array) -> Prior | None:
        """N(m(theta), K(theta)); ``None`` if it cannot be computed."""
        return self._prior_at(theta)

    @cached_property
    def _prior_at(self) -> PriorAt:
        return self.form.prior_of(self)

    def mean(self, theta: Array) -> Array:
        """m(theta), shape (n,)."""
        prior = None if self.form.by_covariance else self.prior(theta)
        return self.graphs.mean(theta) if prior is None else prior.mean

    def cov(self, theta: Array) -> Array:
        """K(theta), shape (n, n), or K_w(theta) if there is a basis: a new array.

        No sampler computes it for a series, for areas or for inducing variables.
        """
        prior = None if self.form.by_covariance else self.prior(theta)
        return self.graphs.cov(theta) if prior is None else prior.covariance_times(np.eye(self.n))

    def log_prior(self, theta: Array) -> float:
        """log p(theta) with the Jacobians of the transforms, without terms that theta is not in."""
        return float(self.graphs.log_prior(theta)[0])

    def log_likelihood(self, f: Array, theta: Array) -> float:
        """ℓ(f, theta): the log density of everything that depends on f, except f itself."""
        # As one row: compiling a function of one f would take longer than many such calls.
        return float(self.log_likelihoods(f[None], theta)[0])

    def log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ of each row of f, shape (N, n) -> (N,)."""
        return self.likelihood.log_likelihoods(rows, theta)

    def log_likelihood_gradient(self, f: Array, theta: Array) -> tuple[float, Array]:
        """ℓ(f, theta) and g = ∂ℓ/∂f, shape (n,)."""
        value, gradient = self.likelihood.log_likelihood_gradient(f, theta)
        return float(value), gradient

    # More derivatives, for approximations and for gradients in theta. `Graphs` documents those that
    # it has under the same name.

    has_gradient = _of_graphs("has_gradient")
    has_third_derivative = _of_graphs("has_third_derivative")
    has_theta_gradient = _of_graphs("has_theta_gradient")
    has_evidence_gradient = _of_graphs("has_evidence_gradient")
    has_prior_gradient = _of_graphs("has_prior_gradient")
    theta_in_likelihood = _of_graphs("theta_in_likelihood")
    mean_vjp = _of_graphs("mean_vjp")
    log_likelihood_theta_gradient = _of_graphs("log_likelihood_theta_gradient")
    log_likelihoods_theta_gradient = _of_graphs("log_likelihoods_theta_gradient")

    @property
    def is_log_concave(self) -> bool:
        """Whether the likelihood is declared to be log-concave in f."""
        return self.graphs.log_concave

    @property
    def is_quadratic(self) -> bool:
        """Whether ℓ is declared to be quadratic in f, so that f is Gaussian given theta and y."""
        return self.graphs.quadratic and self.likelihood is self.graphs

    def likelihood_terms(self, f: Array, theta: Array) -> tuple[float, Array, Any, Array]:
        """ℓ, g = ∂ℓ/∂f, W = −∂²ℓ/∂f² and ∂³ℓ/∂f³, the last three of shape (n,).

        With ``sets``, W is in blocks, and the third derivative is NaN.
        """
        if self.sets is not None:
            value, gradient, products = self.graphs.likelihood_products(f, theta, self._colors)
            W = SiteBlocks.of_products(self.sets, -products)
            W = ClassBlocks.nearest(self.sets, W.values) if self.classes else W
            return float(value), gradient, W, np.full(self.n, np.nan)
        value, gradient, curvature, third = self.likelihood.likelihood_terms(f, theta)
        return float(value), gradient, curvature, third

    def curvature_gradient(self, f: Array, theta: Array, M: Array) -> Array:
        """∂/∂f of Σ_g ⟨M_g, W_g(f)⟩, shape (n,), for symmetric blocks M (G, s, s), with ``sets``.

        If each observation reads one f_i, this is −M_ii ∂³ℓ/∂f_i³.
        """
        return self.graphs.curvature_gradient(f, theta, self._colors, self._rows_of(M))

    def _rows_of(self, M: Array) -> Array:
        """Rows u_k, (s, n), with Σ_k ⟨u_k, H v_k⟩ = Σ_g ⟨M_g, H_g⟩ for the colors v."""
        assert self.sets is not None
        return np.ascontiguousarray(scattered(self.sets, M, self.n).T)

    def site_log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ_i(f_i, theta) of each row of f, shape (N, n) -> (N, n): ℓ split over f's elements.

        An element of a log density is added to the f_i that it depends on. An element that depends
        on none is added to the first. With ``sets`` the shape is (N, G).

        Raises
        ------
        ValueError
            If an element depends on several f_i, as a sum in a `pymc.Potential` may.
        """
        if self._site_index is None:
            raise ValueError(refusals.does_not_split(self.likelihood_names, self.latent))
        elements = self.likelihood.elements(rows, theta)
        if self._elements_are_sites:
            return elements
        sums = np.zeros((len(rows), self._count_of_sites))
        add_columns(np.ascontiguousarray(elements), self._site_index, sums)
        return sums

    @property
    def _count_of_sites(self) -> int:
        return self.n if self.sets is None else len(self.sets)

    @cached_property
    def _elements_are_sites(self) -> bool:
        """Whether the i-th element of the log densities is all that reads the i-th site."""
        assert self._site_index is not None
        return np.array_equal(self._site_index, np.arange(self._count_of_sites))

    @property
    def element_reads(self) -> NDArray[np.intp] | None:
        """The f_i that each of ``likelihood.elements`` may read, shape (E, s), padded with −1.

        They are one f_i, or with ``sets`` all of its set, and those of the first if an element
        reads none. ``None`` if one reads several and there are no sets.
        """
        if self._site_index is None:
            return None
        return self._site_index[:, None] if self.sets is None else self.sets[self._site_index]

    @property
    def free_elements(self) -> NDArray[np.bool_]:
        """Whether each of ``likelihood.elements`` reads no f_i."""
        if self._reads is None:  # effects are integrated out
            return np.zeros(self.n, dtype=bool)
        return self._reads.elements.counts == 0

    @property
    def element_counts(self) -> NDArray[np.intp]:
        """The number of f_i that each of ``likelihood.elements`` reads."""
        if self._reads is None:
            return np.ones(self.n, dtype=np.intp)
        return self._reads.elements.counts

    @cached_property
    def generic_theta(self) -> Array:
        """A theta (p,) near the initial one, at which structure shows.

        A coefficient may start at 0, where a density that has it as a factor reads no f_i.
        """
        _, *near = thetas_near(self._start, 4, generator())
        f = np.zeros(self.n)
        with np.errstate(all="ignore"):
            fit = (theta for theta in near if np.isfinite(self.log_likelihood(f, theta)))
            chosen: Array = next(fit, near[0])
        return chosen

    @property
    def is_flat(self) -> bool:
        """Whether ∂ℓ/∂f vanishes if one f_i of each set is far above the others."""
        assert self.sets is not None
        theta = self.generic_theta
        return is_flat(lambda f: self.likelihood_terms(f, theta)[1], self.sets, self.n)

    def find_reads(self, theta: Array, f: Array) -> None:
        """Find which f_i each observation reads, from the graph of the likelihood."""
        if self.graphs.picking:
            self._found = theta, f, self.graphs.reads(f, theta)
        if self.likelihood is not self.graphs:
            # Effects are integrated out, so each observation reads one f_i.
            self._site_index = np.arange(self.n)
            return
        reads = self.graphs.reads(f, theta) if self._found is None else self._found[2]
        self._reads = reads
        joining = (
            name
            for name, terms in reads.terms.items()
            if any((each.counts > 1).any() for each in terms)
        )
        self.coupled = next(joining, None)
        if self.coupled is None:
            self._site_index = within(reads.elements, np.arange(self.n))
        elif self.form.has_sets:
            self._find_sets(reads, theta, f)

    def _reads_as_before(self) -> bool:
        """Whether observations read the same elements of f after data have been replaced."""
        if self._found is None:
            return True
        theta, f, before = self._found
        now = self.graphs.reads(f, theta)
        return before.elements.equals(now.elements) and all(
            a.equals(b)
            for name, terms in before.terms.items()
            for a, b in zip(terms, now.terms[name], strict=True)
        )

    def _find_sets(self, reads: LikelihoodReads, theta: Array, f: Array) -> None:
        terms, sets = [each for found in reads.terms.values() for each in found], self.form.sets()
        if sets is None:
            group = joined(terms)
            sets = None if group is None else sets_of(group)
        else:
            group = groups_of(sets, self.n)
            sets = sets if all(within(each, group) is not None for each in terms) else None
        if group is None or sets is None:
            return
        self.sets, self._site_index = sets, within(reads.elements, group)
        self.classes = self.has_gradient and self.graphs.are_classes(sets, f, theta)

    @cached_property
    def _colors(self) -> Array:
        """Rows v_k, 1 at the k-th element of each set: H v_k has the k-th columns of the blocks."""
        assert self.sets is not None
        colors = np.zeros((self.sets.shape[1], self.n + 1))
        np.put_along_axis(colors, self.sets.T, 1.0, axis=1)
        return np.ascontiguousarray(colors[:, :-1])

    def probit_signs(self) -> Array | None:
        """s = ±1, shape (n,), if ℓ = Σ log Φ(s_i f_i), that is, one `Probit` of f itself."""
        if self.graphs.signs is None:
            return None
        signs = self.graphs.probit_signs()
        return signs if signs.shape == (self.n,) else None

    def effects(self, theta: Array) -> Effects | None:
        """Observation-level random effects that have been integrated out of ℓ."""
        return self.form.effects(theta)

    def cov_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂K/∂theta_j, M⟩ for each j, shape (p,); M is any (n, n) array."""
        # K is symmetric, so Mᵀ gives the same. Loops over an array in row order are vectorized.
        return self.graphs.cov_vjp(theta, np.ascontiguousarray(M.T if M.flags.f_contiguous else M))

    def log_prior_gradient(self, theta: Array) -> Array:
        """∂ log p(theta)/∂theta, shape (p,)."""
        gradient: Array = self.graphs.log_prior(theta)[1]
        return gradient

    @cached_property
    def prior_density(self) -> LogDensity:
        """log p(theta) and its gradient, for compiled loops."""
        compiled = with_address(self.graphs.log_prior, self.p)
        return LogDensity(self.log_prior, self.log_prior_gradient, self.p, compiled)

    def likelihood_terms_vjp(self, f: Array, theta: Array, v: Array, u: Array) -> Array:
        """∂/∂theta of ℓ + ⟨v, g⟩ + ⟨u, W⟩ at fixed f, shape (p,).

        v and u are any (n,) arrays; with ``sets`` u is any of blocks (G, s, s).
        """
        if self.sets is not None:
            if not self.theta_in_likelihood:
                return np.zeros(self.p)
            rows = self._rows_of(u)
            return self.graphs.likelihood_products_vjp(f, theta, self._colors, v, rows)
        return self.graphs.likelihood_terms_vjp(f, theta, v, u)
