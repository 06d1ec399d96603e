"""The likelihood of a model whose effects, one an element of f, are integrated out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_lgm.approximations.own_effects import Derivatives, OwnEffects
from pymc_lgm.linalg import Array

__all__ = ["Integrated"]


class Integrated:
    """Of `Graphs` the functions of the likelihood, by a rule (`OwnEffects`).

    Parameters
    ----------
    value, derivatives : callable
        (rows, theta) -> ℓ° with effects in f, elementwise, and the same with three derivatives.
    d : callable
        theta -> what multiplies the effects, shape (n,).
    """

    def __init__(
        self,
        value: Callable[[Array, Array], Array],
        derivatives: Callable[[Array, Array], Derivatives],
        d: Callable[[Array], Array],
    ):
        self._value, self._derivatives, self._d = value, derivatives, d

    def at(self, theta: Array) -> OwnEffects:
        """The rule, of the likelihood at theta."""
        return OwnEffects(
            lambda rows: self._value(rows, theta), lambda rows: self._derivatives(rows, theta)
        )

    def elements(self, rows: Array, theta: Array) -> Array:
        """ℓ_i of each row of f, shape (N, n) -> (N, n)."""
        return self.at(theta).elements(rows, self._d(theta))

    def log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ of each row of f."""
        total: Array = self.elements(rows, theta).sum(axis=1)
        return total

    def likelihood_terms(self, f: Array, theta: Array) -> tuple[float, Array, Array, Array]:
        """ℓ, g, W and the third derivative."""
        value, gradient, curvature, third = self.at(theta).terms(f, self._d(theta))
        return float(value.sum()), gradient, -curvature, third

    def log_likelihood_gradient(self, f: Array, theta: Array) -> tuple[float, Array]:
        """ℓ and g."""
        return self.likelihood_terms(f, theta)[:2]

    def term_values(self, f: Array, theta: Array) -> list[Array]:
        """ℓ elementwise, for messages."""
        return [self.elements(f[None], theta)[0]]

    def term_sums(self, f: Array, theta: Array) -> list[Any]:
        """ℓ, for messages."""
        return [np.sum(self.term_values(f, theta)[0])]
