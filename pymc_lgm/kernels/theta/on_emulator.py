"""Hamiltonian trajectories on an emulator of the evidence, where a step costs no O(n³) operation.

Rasmussen (2003), *Gaussian processes to speed up hybrid Monte Carlo for expensive Bayesian
integrals*.
"""

from __future__ import annotations

import math

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_lgm.approximations.emulator import Emulator, Visits, emulate
from pymc_lgm.kernels.leapfrog import leapfrog, straight
from pymc_lgm.kernels.theta.prior_jump import prior_jump
from pymc_lgm.latent_gaussian import LatentGaussian
from pymc_lgm.linalg import Array
from pymc_lgm.state import State

__all__ = ["Point", "Surrogate", "rehearse"]


class Surface(NamedTuple):
    """Theta, log p*(y | theta), and the gradient of log π* in the emulator's coordinates."""

    theta: Array
    log_evidence: float
    kick: Array


class Point(NamedTuple):
    """Coordinates, log π* there, and what it is made of."""

    z: Array
    log_density: float
    surface: Surface

    @property
    def theta(self) -> Array:
        """Theta of z."""
        return self.surface.theta


@dataclass(frozen=True, eq=False)
class Surrogate:
    """π*(theta) = p*(y | theta) p(theta) in the emulator's coordinates."""

    emulator: Emulator
    model: LatentGaussian

    def at(self, z: Array) -> Point:
        """Look at z."""
        return self._point(z, self._surface(z))

    def trajectory(
        self, point: Point, momentum: Array, step: float, n_steps: int
    ) -> tuple[Point | None, Array]:
        """Where it ends, and the momentum there. On the way gradients are enough."""

        def force(z: Array) -> Surface | None:
            there = self._surface(z)
            return there if math.isfinite(there.kick @ there.kick) else None

        z, momentum, end, _ = leapfrog(
            point.z,
            momentum,
            point.surface,
            step_size=step,
            steps=n_steps,
            drift=straight(step),
            force=force,
        )
        return None if end is None else self._point(z, end), momentum

    def jump(self, rng: np.random.Generator, point: Point) -> Point:
        """Leave π* invariant by a `prior_jump` of one component of theta."""

        def look(theta: Array) -> Point:
            return self.at(self.emulator.coordinates(theta))

        return prior_jump(rng, point, look, self.model.log_prior)

    def _surface(self, z: Array) -> Surface:
        log_evidence, gradient = self.emulator.log_evidence(z)
        theta = self.emulator.theta(z)
        of_prior = self.emulator.root.T @ self.model.log_prior_gradient(theta)
        return Surface(theta, log_evidence, gradient + of_prior)

    def _point(self, z: Array, surface: Surface) -> Point:
        log_density = surface.log_evidence + self.model.log_prior(surface.theta)
        return Point(z, log_density, surface)


def rehearse(state: State) -> None:
    """Follow a trajectory on an emulator of one visit: what compiles itself, compiles itself now.

    The emulator's first draw comes late in tuning, when chains have their own processes.
    """
    p = state.theta.size
    visits = Visits(state.theta[None], np.zeros(1), np.zeros(1))
    surrogate = Surrogate(emulate(visits, state.theta, np.eye(p)), state.model)
    surrogate.trajectory(surrogate.at(np.zeros(p)), np.zeros(p), 1.0, 1)
