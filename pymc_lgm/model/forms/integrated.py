"""The likelihood of f with one independent effect per observation integrated out.

    ℓ_i(f_i) = log ∫ exp(ℓ°_i(f_i + d_i w)) N(w; 0, 1) dw

by quadrature (`pymc_lgm.approximations.observation_effects`). The effects are drawn given f and y.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_lgm.approximations.log_concave import draw_log_concave
from pymc_lgm.approximations.observation_effects import Derivatives, ObservationEffects
from pymc_lgm.approximations.sites import Effects
from pymc_lgm.linalg import Array
from pymc_lgm.model.allowed import in_rows
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.operations import Variable

__all__ = ["IntegratedEffects"]


class IntegratedEffects:
    """The `LikelihoodFunctions` of a form, with effects integrated out.

    Only the last E elements of f, its linear predictor, have a likelihood. If there are elements
    before them, these are latent variables.

    Parameters
    ----------
    setting : Setting
        Compiles the graphs.
    density : variable, shape (m,)
        ℓ° as a graph of ``eta`` and theta.
    eta : variable, shape (E,)
        The predictor with its effects.
    d : callable
        theta -> standard deviations of the effects in the predictor, shape (E,).
    n : int
        Number of elements of f, at least E.
    """

    def __init__(
        self,
        setting: Setting,
        density: Variable,
        eta: Variable,
        d: Callable[[Array], Array],
        n: int,
    ):
        self._setting, self._density, self._eta = setting, density, eta
        self._d, self._n = d, n
        self._begin = n - int(eta.type.shape[0])

    @cached_property
    def _value(self) -> Callable[[Array, Array], Array]:
        """ℓ° for rows of eta and theta."""
        return self._compiled(self._density)

    @cached_property
    def _derivatives(self) -> Callable[[Array, Array], list[Array]]:
        """ℓ° for rows of eta and theta, with three derivatives."""
        graphs = [self._density]
        for _ in range(3):
            graphs.append(pt.grad(graphs[-1].sum(), self._eta, disconnected_inputs="ignore"))
        return self._compiled(graphs)

    def _compiled(self, graphs: Any) -> Callable[..., Any]:
        rows = pt.matrix("rows", shape=(None, self._eta.type.shape[0]))
        inputs = [rows, self._setting.theta]
        return self._setting.compiled(inputs, in_rows(graphs, self._eta, rows))

    def _at(self, theta: Array) -> ObservationEffects:
        def derivatives(rows: Array) -> Derivatives:
            value, first, second, third = self._derivatives(rows, theta)
            return value, first, second, third

        return ObservationEffects(lambda rows: self._value(rows, theta), derivatives)

    def _whole(self, of_eta: Array) -> Array:
        """Put zeros before ``of_eta`` for the elements of f that have no likelihood."""
        if not self._begin:
            return of_eta
        whole = np.zeros((*of_eta.shape[:-1], self._n))
        whole[..., self._begin :] = of_eta
        return whole

    def elements(self, rows: Array, theta: Array) -> Array:
        """ℓ_i of each row of f, shape (N, n) -> (N, n)."""
        of_eta = np.ascontiguousarray(rows[:, self._begin :])
        return self._whole(self._at(theta).elements(of_eta, self._d(theta)))

    def log_likelihoods(self, rows: Array, theta: Array) -> Array:
        """ℓ of each row of f."""
        total: Array = self.elements(rows, theta).sum(axis=1)
        return total

    def likelihood_terms(self, f: Array, theta: Array) -> tuple[float, Array, Array, Array]:
        """ℓ, g, W and the third derivative."""
        terms = self._at(theta).terms(f[self._begin :], self._d(theta))
        value, gradient, curvature, third = (self._whole(each) for each in terms)
        return float(value.sum()), gradient, -curvature, third

    def log_likelihood_gradient(self, f: Array, theta: Array) -> tuple[float, Array]:
        """ℓ and g."""
        return self.likelihood_terms(f, theta)[:2]

    def term_values(self, f: Array, theta: Array) -> list[Array]:
        """The elements of ℓ, for messages."""
        return [self.elements(f[None], theta)[0]]

    def effects(self, theta: Array) -> Effects:
        """d, and the likelihood with effects, for approximations."""

        def sites(rows: Array) -> Array:
            of_eta = np.ascontiguousarray(rows[:, self._begin :])
            return self._whole(self._value(of_eta, theta))

        return Effects(self._whole(self._d(theta)), sites)

    def log_likelihood_with(self, w: Array, f: Array, theta: Array) -> float:
        """ℓ°(f + d w) at known effects w, shape (E,)."""
        eta = f[self._begin :] + self._d(theta) * w
        return float(self._value(eta[None], theta).sum())

    def draw(self, rng: np.random.Generator, f: Array, theta: Array) -> Array:
        """Draw w, shape (E,), given f, theta and y, each by rejection."""
        at = self._at(theta)
        d = self._d(theta)
        eta = f[self._begin :]

        def log_density(w: Array) -> tuple[Array, Array]:
            value, slope, *_ = at.derivatives(eta + d * w)
            return value - 0.5 * w**2, d * slope - w

        center, scale = at.center_and_scale(eta[None], d)
        return draw_log_concave(rng, log_density, center[0], scale[0])
