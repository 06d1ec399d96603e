"""A `pymc.Model` as numeric functions of (theta, f): `pymc_lgm.latent_gaussian.LatentGaussian`.

Their graphs are in `pymc_lgm.model.graphs`. One file of more than 300 lines: each function is
three, and says its shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm

from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from scipy.sparse import csr_array

from pymc_lgm.amplitudes import find_amplitudes
from pymc_lgm.linalg import Array
from pymc_lgm.model.draw_back import DrawBack
from pymc_lgm.model.graphs import Block, Graphs, Variable
from pymc_lgm.model.parts import Part
from pymc_lgm.model.reading import Reading
from pymc_lgm.model.sets import are_classes, find_sets
from pymc_lgm.priors import BandedPrior, BlocksPrior, DensePrior, InducingPrior, LowRankPrior, Prior
from pymc_lgm.priors.banded_models import OfPrecision, OfWhitener
from pymc_lgm.priors.class_blocks import ClassBlocks
from pymc_lgm.priors.precision import SiteBlocks

__all__ = ["ModelFunctions"]


class ModelFunctions:
    """A latent Gaussian model as compiled functions of theta (p,) and f (n,).

        theta ~ p(theta),   f | theta ~ N(m(theta), K(theta)),
        p(y | f, theta) = ∏ p(y_i | f_i, theta)

    Made by `LatentGaussianModel.from_pymc`. theta is the raveled vector of the unconstrained value
    variables it holds, in the model's order. Every other variable of the model is read from the
    point with `read`. Functions are compiled at their first use.

    Attributes
    ----------
    latents : tuple of str
        Names of the latent variables in a PyMC point: f, or what f is the linear predictor of.
    latent : str
        Their names, to be read.
    theta_names : tuple of str
        Names of theta's value variables, as in a PyMC point.
    other_names : tuple of str
        Value variables that f, theta's densities depend on and other step methods own.
    n, p : int
        Dimensions of f and theta.
    enters_cov : ndarray of bool, shape (p,)
        Components of theta that the covariance depends on.
    coupled : str or None
        A term of the likelihood that is no sum over the f_i.
    sets : ndarray of int, shape (G, s), or None
        If there is one, which f_i the observations read together, as in `SiteBlocks`; ``None`` if
        they are too many.
    graphs : Graphs
        What the functions are compiled of.
    """

    def __init__(
        self,
        model: pm.Model,
        reading: Reading,
        theta: Sequence[Variable],
        point: dict[str, NDArray[Any]],
        compile_kwargs: dict[str, Any] | None = None,
    ):
        values = [model.rvs_to_values[latent.rv] for latent in reading.latents]
        self.latents: tuple[str, ...] = tuple(value.name for value in values)
        self.latent: str = " + ".join(self.latents)
        self.is_one_vector = reading.is_one_vector
        self.theta_names: tuple[str, ...] = tuple(v.name for v in theta)
        self._blocks: dict[str, Block] = {}
        end = 0
        for name in self.theta_names:
            begin, end = end, end + int(np.size(point[name]))
            self._blocks[name] = slice(begin, end), np.shape(point[name])
        self.graphs = Graphs(model, reading, self._blocks, point, compile_kwargs or {})
        self.n, self.p = self.graphs.n, end
        self.observed: dict[str, Variable] = {
            rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs
        }
        self.likelihood_names: tuple[str, ...] = tuple(self.graphs.likelihood)
        self.prior_names: tuple[str, ...] = tuple(self.graphs.prior)
        self.other_names: tuple[str, ...] = tuple(self.graphs.others)
        self.enters_cov = np.zeros(self.p, dtype=bool)
        for name, (part, _) in self._blocks.items():
            self.enters_cov[part] = name in self.graphs.cov_reads
        self._moves_cov = self.graphs.cov_reads & set(self.other_names)
        self.coupled: str | None = None
        self.sets: NDArray[np.intp] | None = None
        self.classes = False
        self._site_index: NDArray[np.intp] | None = None

    def __repr__(self) -> str:
        theta = f"theta=[{', '.join(self.theta_names)}] ({self.p})"
        likelihood = f"likelihood=[{', '.join(self.likelihood_names)}]"
        predictor, inducing = self.graphs.predictor, self.graphs.inducing
        if inducing is not None:
            name = self.latent.removesuffix("_u_rotated_")
            seen = f"{name} ({inducing.n}) seen through {inducing.m} inducing variables"
            shown = f"{seen}: samples the optimal variational posterior,\n    {theta}"
            return f"LatentGaussianModel(\n    {shown},\n    {likelihood}\n)"
        if predictor is None:
            return f"LatentGaussianModel(latent={self.latent} ({self.n}), {theta}, {likelihood})"
        basis = predictor.basis
        free = "" if basis is None else f" with {basis.shape[1]} degrees of freedom"
        lines = [f"f ({self.n}){free} = c(theta) + A(theta) x", *predictor.describe()]
        shown = ",\n    ".join([*lines, theta, likelihood])
        return f"LatentGaussianModel(\n    {shown}\n)"

    # Points of PyMC <-> theta

    def theta_of(self, point: dict[str, NDArray[Any]]) -> Array:
        """Ravel theta's variables out of a PyMC point: a new array, shape (p,)."""
        pieces = [np.ravel(point[name]) for name in self.theta_names]
        return np.concatenate(pieces).astype(np.float64) if pieces else np.empty(0)

    def f_of(self, theta: Array, point: dict[str, NDArray[Any]]) -> Array:
        """f of a PyMC point, a new array, shape (n,)."""
        # Copies: the parallel driver writes the next point into the same memory.
        values = [np.array(point[name], dtype=np.float64) for name in self.latents]
        predictor = self.graphs.predictor
        if self.graphs.inducing is not None:
            prior = self.prior(theta)
            return np.full(self.n, np.nan) if prior is None else prior.multiply(values[0])
        if predictor is None:
            return values[0] if self.graphs.order is None else values[0][self.graphs.order]
        f: Array = np.asarray(self.graphs.of_values(theta, *values))[predictor.first]
        return f

    def point_of(self, theta: Array) -> dict[str, NDArray[Any]]:
        """The variables of a PyMC point that theta stands for (copies)."""
        # np.array, also for 0-d: PyMC's recorder does not take a NumPy scalar.
        return {
            name: np.array(theta[part]).reshape(shape)
            for name, (part, shape) in self._blocks.items()
        }

    def latents_of(
        self, rng: np.random.Generator, prior: Prior, f: Array
    ) -> dict[str, NDArray[Any]]:
        """The latent variables of a PyMC point (copies): f, or drawn given f and theta.

        ``rng`` is not used where f says what they are.
        """
        if self.graphs.inducing is not None:
            return {self.latent: f[-self.rank :].copy()}
        if self.graphs.predictor is None:
            order = self.graphs.order
            return {self.latent: f.copy() if order is None else f[np.argsort(order)]}
        values = self._draw_back(rng, prior, prior.theta, f)
        return dict(zip(self.latents, values, strict=True))

    @cached_property
    def _draw_back(self) -> DrawBack:
        return DrawBack(self.graphs)

    def read(self, point: dict[str, NDArray[Any]]) -> tuple[bool, bool]:
        """Take over the variables that other step methods own.

        Returns
        -------
        cov_moved, moved : bool
            Whether one has changed that the covariance depends on, and whether any has.
        """
        moved = set()
        for name, variable in self.graphs.others.items():
            value = np.asarray(point[name])
            if not np.array_equal(variable.get_value(borrow=True), value):
                variable.set_value(value.copy(), borrow=True)
                moved.add(name)
        if moved and self.sets is None:
            self._site_index = None
        if moved and self.graphs.inducing is not None:
            self.graphs.inducing.forget()
        if moved and "_draw_back" in self.__dict__:
            self._draw_back.forget()
        return bool(moved & self._moves_cov), bool(moved)

    # The five functions of `pymc_lgm.latent_gaussian.LatentGaussian`

    @cached_property
    def amplitudes(self) -> Array:
        """k (p,): the components of theta that multiply K by exp(k_j δ); 0 for all others.

        Zeros if K depends on a variable that another step method owns: it may change the form.
        """
        known = self._moves_cov or self.graphs.is_banded or self.graphs.inducing is not None
        return np.zeros(self.p) if known else find_amplitudes(self)

    def prior(self, theta: Array) -> Prior | None:
        """N(m(theta), K(theta)); ``None`` where K has no scale that is a number."""
        if self.graphs.is_banded:
            return BandedPrior.at(self._banded, theta)
        if self.graphs.inducing is not None:
            return InducingPrior.at(self.graphs.inducing, theta)
        if self.rank < self.n:
            return LowRankPrior.at(self, theta)
        return BlocksPrior.at(self, theta) if self.parts else DensePrior.at(self, theta)

    @cached_property
    def _banded(self) -> OfPrecision | OfWhitener:
        made = OfWhitener if self.graphs.order is None else OfPrecision
        return made(self.graphs, self.enters_cov)

    @cached_property
    def parts(self) -> list[tuple[NDArray[np.intp], Part]]:
        """The processes that f is made of, if they are several and it is nothing else."""
        predictor = self.graphs.predictor
        vectors = [] if predictor is None else predictor.vectors()
        parts = []
        for index, cov, of_values in vectors if len(vectors) > 1 else []:
            uses = {v.name for v in ancestors([of_values])}
            enters = np.zeros(self.p, dtype=bool)
            for name, (part, _) in self._blocks.items():
                enters[part] = name in uses
            fixed = not uses & set(self.other_names)
            parts.append((index, Part(self.graphs, index, cov, enters, fixed)))
        return parts

    @property
    def basis(self) -> Array:
        """U, shape (n, r), of an f = c + U w with fewer degrees of freedom than elements."""
        predictor = self.graphs.predictor
        if predictor is None or predictor.basis is None:
            raise ValueError(f"{self.latent!r} has as many degrees of freedom as elements.")
        return predictor.basis

    @cached_property
    def rank(self) -> int:
        """Degrees of freedom of f, n or fewer."""
        if self.graphs.inducing is not None:
            return self.graphs.inducing.m
        predictor = self.graphs.predictor
        full = predictor is None or predictor.basis is None
        return self.n if full else self.basis.shape[1]

    def mean(self, theta: Array) -> Array:
        """m(theta), shape (n,)."""
        prior = self.prior(theta) if self.graphs.is_banded else None
        return self.graphs.mean(theta) if prior is None else prior.mean

    def cov(self, theta: Array) -> Array:
        """K(theta), shape (n, n), or K_w(theta) where there is a basis: a new array.

        No sampler asks for that of a series, of areas or of inducing variables.
        """
        other = self.graphs.is_banded or self.graphs.inducing is not None
        prior = self.prior(theta) if other else None
        return self.graphs.cov(theta) if prior is None else prior.covariance_times(np.eye(self.n))

    def log_prior(self, theta: Array) -> float:
        """log p(theta) with the Jacobians of the transforms, up to what theta does not enter."""
        return float(self.graphs.log_prior(theta))

    def log_likelihood(self, f: Array, theta: Array) -> float:
        """ℓ(f, theta): the log density of everything that depends on f, but f itself."""
        return float(self.graphs.log_likelihood(f, theta))

    def log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ of each row of f, shape (N, n) -> (N,)."""
        return self.graphs.log_likelihoods(rows, theta)

    def log_likelihood_gradient(self, f: Array, theta: Array) -> tuple[float, Array]:
        """ℓ(f, theta) and g = ∂ℓ/∂f, shape (n,)."""
        value, gradient = self.graphs.log_likelihood_gradient(f, theta)
        return float(value), gradient

    # More derivatives, for approximations and for gradients in theta

    @property
    def has_gradient(self) -> bool:
        """Whether the likelihood can be differentiated in f."""
        return self.graphs.has_gradient

    @property
    def has_theta_gradient(self) -> bool:
        """Whether mean, covariance, prior and likelihood can be differentiated in theta."""
        return self.graphs.has_theta_gradient

    @property
    def has_prior_gradient(self) -> bool:
        """Whether the prior of theta can be differentiated."""
        return self.graphs.has_prior_gradient

    def likelihood_terms(self, f: Array, theta: Array) -> tuple[float, Array, Any, Array]:
        """ℓ, g = ∂ℓ/∂f, W = −∂²ℓ/∂f² and ∂³ℓ/∂f³, the last three of shape (n,).

        With ``sets``, W is in blocks, and of ∂³ℓ/∂f³ nothing is said.
        """
        if self.sets is not None:
            value, gradient, products = self.graphs.likelihood_products(f, theta, self._colors)
            W = SiteBlocks.of_products(self.sets, -products)
            W = ClassBlocks.nearest(self.sets, W.values) if self.classes else W
            return float(value), gradient, W, np.full(self.n, np.nan)
        value, gradient, curvature, third = self.graphs.likelihood_terms(f, theta)
        return float(value), gradient, curvature, third

    def site_log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ_i(f_i, theta) of each row of f, shape (N, n) -> (N, n): ℓ split over f's elements.

        An element of a log density belongs to the f_i that it depends on, an element that depends
        on none to the first. Which that is, evaluation finds out once. With ``sets``, (N, G).

        Raises
        ------
        ValueError
            If an element depends on several f_i, as the sum of a `pymc.Potential` may.
        """
        if self._site_index is None:
            self._site_index = self._find_sites(theta)
        elements, index = self.graphs.elements(rows, theta), self._site_index
        count = self.n if self.sets is None else len(self.sets)
        if np.array_equal(index, np.arange(count)):
            return elements
        sums = csr_array((np.ones(index.size), (index, np.arange(index.size))), (count, index.size))
        return np.ascontiguousarray((sums @ elements.T).T)

    def find_sets(self, theta: Array) -> None:
        """Find which f_i the observations read together."""
        mean, scale = self._extent(theta)
        found = find_sets(lambda rows: self.graphs.elements(rows, theta), mean, scale)
        if found is not None:
            self.sets, self._site_index = found
            f = mean + scale * np.random.default_rng(0).standard_normal(self.n)
            _, _, W, _ = self.likelihood_terms(f, theta)
            self.classes = are_classes(W)

    @cached_property
    def _colors(self) -> Array:
        """Rows v_k: 1 at the k-th element of each set, so that H v_k has the k-th columns."""
        assert self.sets is not None
        colors = np.zeros((self.sets.shape[1], self.n + 1))
        np.put_along_axis(colors, self.sets.T, 1.0, axis=1)
        return np.ascontiguousarray(colors[:, :-1])

    def _extent(self, theta: Array) -> tuple[Array, Array]:
        """m, and the standard deviations of f."""
        prior = self.prior(theta)
        return self.mean(theta), np.ones(self.n) if prior is None else np.sqrt(prior.variances)

    def probit_signs(self) -> Array | None:
        """s = ±1, shape (n,), if ℓ = Σ log Φ(s_i f_i): one `Probit` of f itself."""
        if self.graphs.probit_data is None:
            return None
        signs = 2.0 * self.graphs.probit_labels() - 1.0
        return signs if signs.shape == (self.n,) else None

    def cov_vjp(self, theta: Array, M: Array) -> Array:
        """⟨∂K/∂theta_j, M⟩ for each j, shape (p,); M is any (n, n) array."""
        return self.graphs.cov_vjp(theta, M)

    def mean_vjp(self, theta: Array, v: Array) -> Array:
        """⟨∂m/∂theta_j, v⟩ for each j, shape (p,)."""
        return self.graphs.mean_vjp(theta, v)

    def cov_jvp(self, theta: Array, v: Array) -> Array:
        """Σ_j v_j ∂K/∂theta_j, the derivative of K along v (p,), shape (n, n): a new array."""
        return self.graphs.cov_jvp(theta, v)

    def mean_jvp(self, theta: Array, v: Array) -> Array:
        """Σ_j v_j ∂m/∂theta_j, shape (n,)."""
        return self.graphs.mean_jvp(theta, v)

    def log_prior_gradient(self, theta: Array) -> Array:
        """∂ log p(theta)/∂theta, shape (p,)."""
        return self.graphs.log_prior_gradient(theta)

    def log_likelihood_theta_gradient(self, f: Array, theta: Array) -> Array:
        """∂ℓ/∂theta at fixed f, shape (p,)."""
        return self.graphs.log_likelihood_theta_gradient(f, theta)

    def log_likelihoods_theta_gradient(self, rows: Array, theta: Array, weights: Array) -> Array:
        """∂/∂theta of Σ_k w_k ℓ(f_k, theta) at fixed rows f_k, shape (p,)."""
        return self.graphs.log_likelihoods_theta_gradient(rows, theta, weights)

    def likelihood_terms_vjp(self, f: Array, theta: Array, v: Array, u: Array) -> Array:
        """∂/∂theta of ℓ + ⟨v, g⟩ + ⟨u, W⟩ at fixed f, shape (p,); v and u are any (n,) arrays."""
        return self.graphs.likelihood_terms_vjp(f, theta, v, u)

    def _find_sites(self, theta: Array) -> NDArray[np.intp]:
        """Find the f_i that each of the `_elements` depends on, digit by binary digit of i."""
        mean, scale = self._extent(theta)

        def elements(f: Array) -> Array:
            return np.nan_to_num(self.graphs.elements(f[None], theta)[0])

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
