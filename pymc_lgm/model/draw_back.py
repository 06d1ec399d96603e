"""Latent variables given the linear predictor: x | f, theta, drawn exactly.

x is independent of y given f and theta, so drawing it after a move of (theta, f) leaves
p(theta, x | y) invariant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.gradient import grad

from pymc_lgm.linalg import Array, CholeskyFactor, factorize
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.predictor import Predictor
from pymc_lgm.priors import Prior

__all__ = ["DrawBack"]


class DrawBack:
    """Draws x ~ N(0, Q⁻¹) given f = c + A x, and what the model's variables are then.

    By Matheron's rule: with x° ~ N(0, Q⁻¹),

        x = x° + Q⁻¹ Aᵀ K⁻¹ (f − c − A x°),   K = A Q⁻¹ Aᵀ,

    for one factorization of each dense block of Q⁻¹, once a theta. If f is x in some order, and its
    mean, there is nothing to draw.
    """

    def __init__(self, setting: Setting, predictor: Predictor):
        self._blocks, self._order = predictor.blocks, predictor.order
        self._is_identity = predictor.is_identity
        self.size = predictor.n_latents
        x, theta, v = predictor.x, setting.theta, pt.vector("v")
        self._covs = setting.compiled([theta], predictor.covs)
        self._predictor = setting.compiled([x, theta], predictor.predictor)
        back = grad(pt.sum(predictor.predictor * v), x, disconnected_inputs="ignore")
        self._transposed = setting.compiled([x, theta, v], back)
        self._values = setting.compiled([x, theta], predictor.values)
        self._known: tuple[bytes, list[Array], list[CholeskyFactor | None]] | None = None

    def forget(self) -> None:
        """What theta was at does not hold: another step has moved what it owns."""
        self._known = None

    def __call__(
        self, rng: np.random.Generator, prior: Prior, theta: Array, f: Array
    ) -> list[Array]:
        """The model's latent variables, one array each."""
        if self._order is None:
            x = self._given(rng, prior, theta, f)
        else:
            x = (f - prior.mean)[self._order]
        values = [np.array(value, dtype=np.float64) for value in self._values(x, theta)]
        for k, block in enumerate(self._blocks):
            if block.latent.root is not None:
                # The model has ν with L ν = x.
                root: Any = prior if self._is_identity else self._at(theta)[1][k]
                values[k] = root.solve(x[block.part])
        return values

    def _given(self, rng: np.random.Generator, prior: Prior, theta: Array, f: Array) -> Array:
        covs, factors = self._at(theta)
        x = np.empty(self.size)
        for block, cov, factor in zip(self._blocks, covs, factors, strict=True):
            xi = rng.standard_normal(block.part.stop - block.part.start)
            x[block.part] = np.sqrt(cov) * xi if factor is None else factor.multiply(xi)
        dual = prior.inverse_times(f - self._predictor(x, theta))
        back = self._transposed(x, theta, dual)
        for block, cov, factor in zip(self._blocks, covs, factors, strict=True):
            part = back[block.part]
            x[block.part] += cov * part if factor is None else cov @ part
        return x

    def _at(self, theta: Array) -> tuple[list[Array], list[CholeskyFactor | None]]:
        """Covariances of the blocks, or variances, and the factors of the former."""
        key = theta.tobytes()
        if self._known is None or self._known[0] != key:
            covs = [np.asarray(cov) for cov in self._covs(theta)]
            factors: list[CholeskyFactor | None] = []
            for block, cov in zip(self._blocks, covs, strict=True):
                factor = None if cov.ndim == 1 else factorize(np.array(cov, order="F"))
                if cov.ndim == 2 and factor is None:
                    raise np.linalg.LinAlgError(
                        f"The covariance of {block.latent.rv.name!r} is not positive definite "
                        "although that of the linear predictor is. Write a larger jitter."
                    )
                factors.append(factor)
            self._known = key, covs, factors
        return self._known[1], self._known[2]
