"""f is a series: its precision is a band."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytensor.tensor as pt

from pymc_lgm.linalg import Array
from pymc_lgm.model.forms.base import Form, FormModel, PriorAt, Setting
from pymc_lgm.model.series import Series
from pymc_lgm.priors import BandedPrior, Prior
from pymc_lgm.priors.banded_models import OfWhitener

__all__ = ["Band"]


class Band(Form):
    """f = x, T x = u + ε: ``cov`` is T in bands, and ``mean`` u."""

    by_covariance, has_sets, is_bent = False, False, True

    def __init__(self, setting: Setting, series: Series):
        super().__init__(setting)
        (latent,), model = setting.reading.latents, setting.model
        self.n = self.rank = int(np.prod(setting.shapes[0]))
        self._series = series
        drive, bands = model.replace_rvs_by_values([series.drive, series.whitener])
        self.mean, self.cov = setting.place([pt.broadcast_to(drive, (self.n,)), bands])
        self.of_values = [bands]
        self.f = model.rvs_to_values[latent.rv].type("f")
        self.cuts = {latent.node: self.f}

    def prior_of(self, model: FormModel) -> PriorAt:
        """In bands."""
        return partial(BandedPrior.at, OfWhitener(model.graphs, model.enters_cov))

    def f_of(self, prior_at: PriorAt, theta: Array, values: list[Array]) -> Array:
        """The series."""
        return values[0]

    def values_of(self, rng: np.random.Generator, prior: Prior, f: Array) -> list[Array]:
        """f."""
        return [f.copy()]

    def explain(self, model: FormModel, prior_at: PriorAt, theta: Array, where: str) -> str | None:
        """Say that T has no inverse."""
        return None if prior_at(theta) is not None else self._series.explain(where)
