"""f is a series or a vector of areas: its precision is a band."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytensor.tensor as pt

from pymc_lgm.linalg import Array
from pymc_lgm.model.forms.base import Form, FormModel, PriorAt, Setting
from pymc_lgm.priors import BandedPrior, Prior
from pymc_lgm.priors.banded_models import OfPrecision, OfWhitener

__all__ = ["Band"]


class Band(Form):
    """f = x, or x in another order, by the bands of T, T f = u + ε, or of Q.

    ``cov`` is T or Q in bands, and ``mean`` u or m.

    Attributes
    ----------
    order : ndarray of int, shape (n,), or None
        Of areas: which area of the model is the i-th element of f.
    """

    by_covariance, has_sets, is_bent = False, False, True

    def __init__(self, setting: Setting):
        super().__init__(setting)
        (latent,), model = setting.reading.latents, setting.model
        self.n = self.rank = int(np.prod(setting.shapes[0]))
        self.order = latent.order
        bands = latent.whitener if latent.whitener is not None else latent.precision
        mean, bands = model.replace_rvs_by_values([latent.mean, bands])
        mean = pt.broadcast_to(mean, (self.n,)).astype("float64")
        mean = mean if self.order is None else mean[self.order]
        self.mean, self.cov = setting.place([mean, bands.astype("float64")])
        self.of_values = [bands]
        self.f = model.rvs_to_values[latent.rv].type("f")
        self._back = None if self.order is None else np.argsort(self.order)
        self.cuts = {latent.node: self.f if self._back is None else self.f[self._back]}

    def prior_of(self, model: FormModel) -> PriorAt:
        """In bands."""
        made = OfWhitener if self.order is None else OfPrecision
        return partial(BandedPrior.at, made(model.graphs, model.enters_cov))

    def f_of(self, prior_at: PriorAt, theta: Array, values: list[Array]) -> Array:
        """The latent, in the order of the band."""
        return values[0] if self.order is None else values[0][self.order]

    def values_of(self, rng: np.random.Generator, prior: Prior, f: Array) -> list[Array]:
        """f, in the model's order."""
        return [f.copy() if self._back is None else f[self._back]]

    def explain(self, model: FormModel, prior_at: PriorAt, theta: Array, where: str) -> str | None:
        """Say that the band is not one of a precision."""
        if prior_at(theta) is not None:
            return None
        if self.order is not None:
            return (
                f"The precision of {self.label!r}, tau (D - alpha W), is not positive definite "
                f"{where}: it needs tau > 0 and -1 < alpha < 1. Give alpha a pm.Beta prior."
            )
        return (
            f"The series {self.label!r} has a standard deviation that is not a positive number "
            f"{where}. A stationary start, sigma / sqrt(1 - rho**2), needs |rho| < 1: give rho a "
            "prior on (-1, 1), as pm.Uniform('rho', -1, 1) or a pm.Beta."
        )
