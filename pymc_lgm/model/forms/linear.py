"""The form of f as the linear predictor of several latent variables, which are drawn given f."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors

from pymc_lgm.compile.graphs.functions import called_once
from pymc_lgm.gaussian import BlocksPrior, DensePrior, LowRankPrior, Prior
from pymc_lgm.linalg import Array
from pymc_lgm.model import refutations
from pymc_lgm.model.draw_back import DrawBack
from pymc_lgm.model.forms.base import (
    Direction,
    Form,
    FormModel,
    PriorAt,
    Probe,
    Setting,
    vectors_to_probe,
)
from pymc_lgm.model.parts import Part, covariances
from pymc_lgm.model.predictor import AffineGraph, Predictor

__all__ = ["LinearPredictor"]


class LinearPredictor(Form):
    """f = c(theta) + A(theta) x: see `Predictor`.

    The prior of f has fewer degrees of freedom than elements, or consists of independent processes,
    or is dense. The latent variables x are drawn given f and theta after each draw of f.
    """

    def __init__(self, setting: Setting):
        super().__init__(setting)
        self._setting = setting
        graph = AffineGraph(setting)
        predictor = self.predictor = Predictor(setting, graph)
        self.n = predictor.size
        basis = predictor.basis
        self.rank = self.n if basis is None else basis.shape[1]
        self.mean, self.cov = predictor.mean, predictor.cov
        self.of_values = predictor.cov_of_values
        self.f = pt.vector("f", shape=(self.n,))
        frontier = setting.reading.frontier
        model = setting.model
        elements = predictor.elements
        is_each = np.array_equal(elements.index, np.arange(self.n))
        flat = self.f if is_each else self.f[elements.read]
        self.cuts = graph.cuts(flat, elements.is_free)
        flat = pt.concatenate([v.astype("float64").ravel() for v in frontier])
        (flat,) = setting.place(model.replace_rvs_by_values([flat]))
        values = [model.rvs_to_values[latent.rv] for latent in setting.reading.latents]
        self._inputs = [setting.theta, *values]
        self._flat = flat

    def loses_digits(self) -> bool:
        """Whether K cannot be factorized in floating point at one of a few theta."""
        latents = self._setting.reading.latents
        is_dense = self.predictor.basis is None
        are_effects = is_dense and all(latent.variances is not None for latent in latents)
        if not are_effects and not any(block.moves for block in self.predictor.blocks):
            return False
        largest = refutations.VAGUE if are_effects else np.inf
        cov = called_once([self._setting.theta], self.cov)
        return refutations.loses_digits(cov, self._setting.at, largest)

    def prior_of(self, model: FormModel) -> PriorAt:
        """A prior of low rank, of independent parts, or with a dense covariance."""
        if (basis := self.predictor.basis) is not None:
            return partial(LowRankPrior.at, model, basis)
        if parts := self.parts(model):
            models = [part for _, part in parts]
            return partial(BlocksPrior.at, parts, alike=[part.first_of(models) for part in models])
        return partial(DensePrior.at, model)

    def f_of(self, prior_at: PriorAt, theta: Array, values: list[Array]) -> Array:
        """The predictor at these values."""
        f: Array = np.asarray(self._frontier(theta, *values))[self.predictor.first]
        return f

    def has_values(self, prior: Prior) -> bool:
        """False if a covariance of the latents has no root although that of f has one."""
        return self._draw_back.exists(prior, prior.theta)

    def values_of(self, rng: np.random.Generator, prior: Prior, f: Array) -> list[Array] | None:
        """A draw of the latents given f and theta."""
        return self._draw_back(rng, prior, prior.theta, f)

    def probe(self, prior: Prior, rng: np.random.Generator) -> Probe | None:
        """K w from the prior of f, and Q⁻¹ Aᵀ w for the model's latents."""
        vectors = vectors_to_probe(prior, rng)
        found = self._draw_back.means_and_steps(prior, prior.theta, list(vectors.values()))
        if found is None:
            return None
        means, steps = found
        pairs = zip(vectors.items(), steps, strict=True)
        return Probe(means, [Direction.along(name, prior, w, u) for (name, w), u in pairs])

    @cached_property
    def _frontier(self) -> Callable[..., Array]:
        return self._setting.compiled_if_repeated(self._inputs, self._flat)

    @cached_property
    def _draw_back(self) -> DrawBack:
        return DrawBack(self._setting, self.predictor)

    def describe(self) -> list[str]:
        """The predictor, and a line per latent variable."""
        degrees = "1 degree" if self.rank == 1 else f"{self.rank} degrees"
        free = "" if self.rank == self.n else f" with {degrees} of freedom"
        return [f"f ({self.n}){free} = c(theta) + A(theta) x", *self.predictor.describe()]

    def forget(self) -> None:
        """Clear the cached covariances."""
        if "_draw_back" in self.__dict__:
            self._draw_back.forget()

    def parts(self, model: FormModel) -> list[tuple[NDArray[np.intp], Part]]:
        """The independent processes of f, if f consists of several and of nothing else."""
        vectors = self.predictor.vectors()
        if len(vectors) < 2:
            return []
        covs = covariances(self._setting, [cov for _, cov, _ in vectors])
        parts = []
        for (index, _, of_values), (cov, own) in zip(vectors, covs, strict=True):
            uses = {str(v.name) for v in ancestors(of_values)}
            enters, fixed = model.enters(uses), model.are_fixed(uses)
            parts.append((index, Part(model, self.n, index, cov, own, enters, fixed)))
        return parts
