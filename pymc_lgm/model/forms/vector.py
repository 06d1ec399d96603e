"""The forms of f as one vector of the model: a multivariate normal, or a series with a banded T."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytensor.tensor as pt

from pymc_lgm.gaussian import BandedPrior, DensePrior, Prior
from pymc_lgm.gaussian.banded import BandedModel
from pymc_lgm.linalg import Array
from pymc_lgm.model.forms.base import Form, FormModel, PriorAt, Setting
from pymc_lgm.model.operations import Variable
from pymc_lgm.model.reads import reads_of_densities
from pymc_lgm.model.series import Series

__all__ = ["Band", "OneVector"]


class _Itself(Form):
    """f = x, where x is one random variable, with graphs of its mean and its spread."""

    def __init__(self, setting: Setting, mean: Variable, spread: Variable):
        super().__init__(setting)
        (latent,) = setting.reading.latents
        model = setting.model
        self.n = self.rank = int(np.prod(setting.shapes[0]))
        mean, spread = model.replace_rvs_by_values([mean, spread])
        # Users may write integers, and PyTensor makes some constants float32.
        mean = pt.broadcast_to(mean, (self.n,)).astype("float64")
        self.mean, self.cov = setting.place([mean, spread.astype("float64")])
        self.of_values = [spread]
        self.f = model.rvs_to_values[latent.rv].type("f")
        self.cuts = {latent.node: self.f}

    def f_of(self, prior_at: PriorAt, theta: Array, values: list[Array]) -> Array:
        """The value of x."""
        return values[0]

    def values_of(self, rng: np.random.Generator, prior: Prior, f: Array) -> list[Array]:
        """f."""
        return [f.copy()]


class OneVector(_Itself):
    """f = x ~ N(m, K)."""

    def __init__(self, setting: Setting):
        (latent,) = setting.reading.latents
        super().__init__(setting, latent.mean, latent.covariance)

    def prior_of(self, model: FormModel) -> PriorAt:
        """A prior with a dense covariance."""
        return partial(DensePrior.at, model)


class Band(_Itself):
    """f = x with T x = u + ε, where ``cov`` is T in bands, and ``mean`` is u.

    Attributes
    ----------
    is_last : bool
        Whether there is no other form for observations that read several elements of f.
    """

    algebra = "a banded matrix"
    by_covariance, has_sets, has_transport = False, False, True
    is_last = False

    @property
    def dense_rows(self) -> int:
        """None: loops factorize the bands."""
        return 0

    def __init__(self, setting: Setting, series: Series):
        whitener, drive = series.reads
        super().__init__(setting, drive, whitener)
        self._setting, self._series = setting, series

    def prepare(self, densities: list[Variable]) -> list[Variable] | None:
        """The densities unchanged, if observations read one element each or too many."""
        values = {self.f: np.zeros(self.n)} | self._setting.start
        found = [] if self.is_last else reads_of_densities(densities, self.f, values)
        are_few = not any(each.many.any() for each in found)
        together = any((each.counts > 1).any() for each in found)
        return None if together and are_few else densities

    def prior_of(self, model: FormModel) -> PriorAt:
        """A prior with a banded precision."""
        return partial(BandedPrior.at, BandedModel(model.graphs, model.enters_cov))

    def explain(self, model: FormModel, prior_at: PriorAt, theta: Array, where: str) -> str | None:
        """Say that T has no inverse."""
        return None if prior_at(theta) is not None else self._series.explain(where)
