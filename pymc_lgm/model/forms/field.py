"""f is a field with coefficients beside it; effects of its single elements are integrated out.

    eta_i = c_i + e_i φ_i + b_iᵀ β + d_i w_i,   w_i ~ N(0, 1),

φ a series or the areas of a map, as in the model of Besag, York and Mollié; of a map in parts those
of each part, one part after another, and its islands. f = c + e φ + B β has the law of a sparse
field and few coefficients (`pymc_lgm.gaussian.field`), and the likelihood of f is without the w_i
(`pymc_lgm.approximations.own_effects`). So no n × n array is made, and q is close to the posterior
of f. φ, β and w are drawn back given f and y.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_lgm.approximations.gaussian import Effects
from pymc_lgm.gaussian import FieldPrior, Prior
from pymc_lgm.gaussian.field import Field
from pymc_lgm.gaussian.low_rank_update import PivotedColumns
from pymc_lgm.linalg import Array
from pymc_lgm.model.field_structure import FieldStructure, Pieces
from pymc_lgm.model.forms.base import (
    Direction,
    Form,
    FormModel,
    LikelihoodFunctions,
    PriorAt,
    Probe,
    Setting,
)
from pymc_lgm.model.forms.integrated import IntegratedEffects
from pymc_lgm.model.log_concave import are_log_concave

__all__ = ["FieldPredictor"]

Variable = Any


class FieldPredictor(Form):
    """f = c + e φ + B β.

    Attributes
    ----------
    structure : FieldStructure
    """

    by_covariance, has_sets, has_theta_gradient = False, False, False

    def __init__(self, setting: Setting, structure: FieldStructure):
        super().__init__(setting)
        self._setting, self.structure = setting, structure
        self.pattern = structure.maker.pattern
        # With the effects integrated out what is left is smooth.
        self.is_close, self.is_bent = structure.found.own is not None, structure.found.own is None
        self.n = self.rank = structure.n
        self.f = pt.vector("f", shape=(self.n,))
        self._eta = pt.vector("eta", shape=(structure.size,))
        seen = self._eta if structure.picks is None else structure.picks.whole(self._eta)
        self.cuts = {setting.reading.frontier[0]: seen}
        self._is_log_concave = are_log_concave(setting.reading.terms, self.cuts)
        self.mean = self.cov = pt.zeros(self.n)
        self.of_values, self.reads = structure.of_values, structure.outputs
        self._pieces: tuple[bytes, Pieces] | None = None
        self._integrated: IntegratedEffects | None = None

    def known(self, densities: list[Variable]) -> list[Variable] | None:
        """Of the likelihood, what is left when effects are integrated out."""
        (density,) = (each for each in densities if self._eta in set(ancestors([each])))
        if density.ndim != 1:
            return None
        structure = self.structure
        if structure.found.own is not None and not self._is_log_concave:
            return None
        # With effects f is what they have been added to, until `likelihood` integrates them out.
        read = structure.read_by(self.f)
        seen = clone_replace(density, {self._eta: read}, rebuild_strict=False)
        if structure.found.own is not None:
            seen = seen if structure.is_once else structure.gathered(seen)
            self._integrated = IntegratedEffects(
                *(self._setting, seen, self.f, lambda theta: self.at(theta).d, self.n),
                lambda values: structure.spread(values, 0.0),
            )
        return [seen if each is density else each for each in densities]

    def likelihood(self, graphs: LikelihoodFunctions) -> LikelihoodFunctions:
        """Without the effects, if there are some."""
        return graphs if self._integrated is None else self._integrated

    def forget(self) -> None:
        """The pieces at theta."""
        self._pieces = None

    @cached_property
    def _numbers(self) -> Callable[[Array], list[Array]]:
        return self._setting.compiled([self._setting.theta], self.structure.outputs)

    def at(self, theta: Array) -> Pieces:
        """c, e, d, B and the moments of the latents, kept for one theta."""
        key = theta.tobytes()
        if self._pieces is None or self._pieces[0] != key:
            self._pieces = key, self.structure.pieces(*self._numbers(theta))
        return self._pieces[1]

    def field(self, theta: Array) -> Field | None:
        """What the prior is made of; ``None`` where something is no number."""
        at = self.at(theta)
        if at.field is None or not _are_numbers(at):
            return None
        U, k = at.field.columns, len(at.field.covariance)
        S = np.diag(np.concatenate([np.zeros(k), at.variances]))
        S[:k, :k] = at.field.covariance
        mean, columns = at.c + at.e * at.field.mean, np.hstack([at.e[:, None] * U, at.columns])
        return Field(mean, at.field.precision, at.e, columns, S, at.field.factor)

    def prior_of(self, model: FormModel) -> PriorAt:
        """A sparse field and few coefficients."""
        return partial(FieldPrior.at, self)

    def f_of(self, prior_at: PriorAt, theta: Array, values: list[Array]) -> Array:
        """c + e φ + B β."""
        at, found = self.at(theta), self.structure.found
        x = np.concatenate([np.ravel(value) for value in values]) - at.means
        beta = x[found.few]
        phi = x[found.field] - at.within @ beta
        f: Array = at.c + at.e * phi + at.columns @ beta
        return f

    def values_of(self, rng: np.random.Generator, prior: Prior, f: Array) -> list[Array]:
        """β and φ given f; w given f and y, each by rejection.

        With C' = B F⁻¹, ψ and ẑ of `PivotedColumns`, f − m is E φ + B β for φ = ψ + Y c and
        F β + D c = ẑ, whatever c is: nothing is divided by an e that is next to zero. Beforehand
        c ~ N(−Λ⁻¹ Yᵀ K_φ⁻¹ ψ, Λ⁻¹), Λ = Yᵀ K_φ⁻¹ Y, and β ~ N(0, V). Both given ẑ by Matheron's
        rule, of whose matrix neither D nor V need have an inverse: F V Fᵀ + D Λ⁻¹ D.
        """
        at, found = self.at(prior.theta), self.structure.found
        assert at.field is not None
        C, V = PivotedColumns.of(at.columns, at.e), at.variances
        psi, total = C.apart(f - prior.mean)
        L = np.linalg.cholesky(C.Y @ at.field.inverse_times(C.Y.T))
        half = np.linalg.solve(L, C.D[:, None] * np.eye(C.D.size))  # D Λ⁻¹ D = halfᵀ half
        xi = np.linalg.solve(L, -C.Y @ at.field.inverse_times(psi)) + rng.standard_normal(C.D.size)
        beta = np.sqrt(V) * rng.standard_normal(V.size)
        missing = total - C.F @ beta - half.T @ xi
        gain = np.linalg.solve(C.F * V @ C.F.T + half.T @ half, missing)
        beta += V * (C.F.T @ gain)
        phi = psi + C.Y.T @ np.linalg.solve(L.T, xi + half @ gain) + at.field.mean
        x = np.array(at.means, dtype=np.float64)
        x[found.field] += phi + at.within @ beta
        x[found.few] += beta
        if found.own is not None:
            assert self._integrated is not None
            w, has = at.scale * self._integrated.draw(rng, f, prior.theta), found.own >= 0
            x[found.own[has]] += w[has]
        return self._shaped(x)

    def probe(self, model: FormModel, prior: Prior, rng: np.random.Generator) -> Probe | None:
        """φ and β along K w, and effects along a random direction."""
        at, found = self.at(prior.theta), self.structure.found
        assert at.field is not None
        means = np.array(at.means, dtype=np.float64)
        means[found.field] += at.field.mean
        U, factor = at.field.columns, at.field.factor
        if factor is None:
            return None
        w, u = rng.standard_normal(self.n), np.zeros(means.size)
        Kw, ew = prior.covariance_times(w), at.e * w
        beta = at.variances * (at.columns.T @ w)
        phi = factor.solve_transposed(factor.solve(ew)) + U @ (at.field.covariance @ (U.T @ ew))
        u[found.few], u[found.field] = beta, phi + at.within @ beta
        steps = [Direction(self._shaped(u), float(w @ Kw), Kw)]
        if found.own is not None:
            has = (found.own >= 0) & (at.scale > 0.0)
            xi, u = rng.standard_normal(self.n)[has], np.zeros(means.size)
            u[found.own[has]] = at.scale[has] * xi
            steps.append(Direction(self._shaped(u), float(xi @ xi), None))
        return Probe(self._shaped(means), steps)

    def log_likelihood_of(
        self, model: Any, prior: Prior, latents: list[Array], f: Array, theta: Array
    ) -> float:
        """With effects ℓ°(f + d w): their values are known here."""
        if self._integrated is None:
            return super().log_likelihood_of(model, prior, latents, f, theta)
        at, own = self.at(theta), self.structure.found.own
        assert own is not None
        x = np.concatenate([np.ravel(value) for value in latents]) - at.means
        has, w = (own >= 0) & (at.scale > 0.0), np.zeros(self.n)
        w[has] = x[own[has]] / at.scale[has]
        return self._integrated.log_likelihood_with(w, f, theta)

    def _shaped(self, x: Array) -> list[Array]:
        """Elements of all latents as the values of each."""
        each = zip(self.structure.parts, self._setting.shapes, strict=True)
        return [x[part].reshape(shape) for part, shape in each]

    def describe(self) -> list[str]:
        """Which latent variable is what."""
        names = [str(latent.rv.name) for latent in self._setting.reading.latents]
        field, few, own = ([names[k] for k in which] for which in self.structure.which)
        columns = f" + B(theta) ({', '.join(few)})" if few else ""
        one = field[0] if len(field) == 1 else f"({', '.join(field)})"
        lines = [f"f ({self.n}) = c(theta) + e(theta) {one}{columns}"]
        lines += [f"{name} ({self.n}): one per element, integrated out" for name in own]
        return lines

    def explain(self, model: FormModel, prior_at: PriorAt, theta: Array, where: str) -> str | None:
        """Say what is no number, or no field."""
        if prior_at(theta) is not None:
            return None
        if _are_numbers(self.at(theta)) and self.at(theta).e.any():
            return self.structure.improper(*self._numbers(theta)).explain(where)
        return (
            f"The scale of one of {self.label} is zero or no number {where}. Start it away from "
            "both, as with initval=1."
        )

    def effects(self, theta: Array) -> Effects | None:
        """d, and the likelihood of eta."""
        return None if self._integrated is None else self._integrated.effects(theta)


def _are_numbers(at: Pieces) -> bool:
    """Whether what multiplies the field, coefficients and effects is."""
    numbers = (at.c, at.e, at.d, at.columns, at.variances)
    return all(np.isfinite(x).all() for x in numbers)
