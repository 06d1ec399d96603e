"""f is one multivariate normal vector of the model."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytensor.tensor as pt

from pymc_lgm.linalg import Array
from pymc_lgm.model.forms.base import Form, FormModel, PriorAt, Setting
from pymc_lgm.priors import DensePrior, Prior

__all__ = ["OneVector"]


class OneVector(Form):
    """f = x ~ N(m, K), one free random variable."""

    def __init__(self, setting: Setting):
        super().__init__(setting)
        (latent,), model = setting.reading.latents, setting.model
        self.n = self.rank = int(np.prod(setting.shapes[0]))
        # Users write integers, and PyTensor makes some constants float32.
        mean, cov = model.replace_rvs_by_values([latent.mean, latent.covariance])
        mean = pt.broadcast_to(mean, (self.n,)).astype("float64")
        self.mean, self.cov = setting.place([mean, cov.astype("float64")])
        self.of_values = [cov]
        self.f = model.rvs_to_values[latent.rv].type("f")
        self.cuts = {latent.node: self.f}

    def prior_of(self, model: FormModel) -> PriorAt:
        """Dense."""
        return partial(DensePrior.at, model)

    def f_of(self, prior_at: PriorAt, theta: Array, values: list[Array]) -> Array:
        """The latent."""
        return values[0]

    def values_of(self, rng: np.random.Generator, prior: Prior, f: Array) -> list[Array]:
        """f."""
        return [f.copy()]
