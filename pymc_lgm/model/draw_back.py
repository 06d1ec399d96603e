"""Draw the model's latent variables x given the linear predictor f = c + A x, exactly.

Samplers move f, and a trace needs x. x is independent of y given f and theta, so drawing it after a
move of (theta, f) leaves p(theta, x | y) invariant.

There are three ways. If A only reorders and scales x, f determines x. For a process z and few
coefficients β ~ N(0, S), f = c + z + B β, only the covariance K of f is factorized, which samplers
need anyway. With L Lᵀ = K and T = L⁻¹ B S^½,

    β | f ~ N(S^½ Tᵀ L⁻¹ (f − c), S^½ (I − TᵀT) S^½),   z = f − c − B β.

In all other models Matheron's rule draws x, with a factor of each block of its covariance.

If f is a process plus noise, the covariance of the process may be singular to rounding while that
of f is not. A draw is then right to the rounding error of the covariance: see `SymmetricRoot`.

If a covariance has negative eigenvalues, f may have a density at a theta where x has none. The
posterior then has no density there. A move asks `DrawBack.exists` before it draws anything.
Rejecting the draw of x afterwards, with all moves before it, would leave the posterior invariant
only if these moves together were reversible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import pytensor.tensor as pt

from pytensor.gradient import grad

from pymc_lgm.compile.graphs.functions import called_once
from pymc_lgm.gaussian import BlocksPrior, Prior
from pymc_lgm.linalg import Array, CholeskyFactor, factorize, tally
from pymc_lgm.model.forms.base import LastThetas, Setting
from pymc_lgm.model.operations import Variable
from pymc_lgm.model.predictor import Predictor

__all__ = ["DrawBack", "SymmetricRoot"]

ROUNDED = 1e-10
"""A negative eigenvalue counts as 0 up to this share of the largest eigenvalue.

PyMC computes squared distances as x² + y² − 2 x y. In units of the squared length-scale their
rounding error is (range / length-scale)² times 1e-16: 1e-12 for a range of a hundred length-scales,
and 1e-10 for a thousand.
"""


class SymmetricRoot:
    """The root U Λ^½ of a covariance C = U Λ Uᵀ that is singular to rounding.

    Negative eigenvalues are replaced by 0, so the root times its transpose differs from C by at
    most `ROUNDED` times the largest eigenvalue.
    """

    def __init__(self, root: Array):
        self._root = root

    @classmethod
    def of(cls, C: Array) -> SymmetricRoot | None:
        """The root of an array; ``None`` if it is not a covariance.

        It counts as ten O(n³) operations: by hand, for n from 200 to 1000 it takes 9 to 16 times as
        long as a Cholesky factorization.
        """
        if not np.isfinite(C).all():
            return None
        tally.cubic_ops += 10
        eigenvalues, vectors = np.linalg.eigh(C)
        if eigenvalues[0] < -ROUNDED * eigenvalues[-1]:
            return None
        return cls(vectors * np.sqrt(np.maximum(eigenvalues, 0.0)))

    def multiply(self, xi: Array) -> Array:
        """U Λ^½ ξ."""
        result: Array = self._root @ xi
        return result


Root = CholeskyFactor | SymmetricRoot


class DrawBack:
    """Draws x ~ N(0, Q⁻¹) given f = c + A x, and computes the model's variables from x.

    By Matheron's rule, with x° ~ N(0, Q⁻¹),

        x = x° + Q⁻¹ Aᵀ K⁻¹ (f − c − A x°),   K = A Q⁻¹ Aᵀ.

    This factorizes each dense block of Q⁻¹, once per theta. If each element of f is one of x times
    a factor (`Predictor.order`), or for a process with few coefficients, it is not needed: see the
    docstring of this module.

    Parameters
    ----------
    setting : Setting
    predictor : Predictor
    """

    def __init__(self, setting: Setting, predictor: Predictor):
        self._setting = setting
        self._predictor = predictor
        self._graph = predictor.graph
        self._blocks = predictor.blocks
        self._order = predictor.order
        # f is x, element by element, apart from factors.
        self._is_in_order = (
            len(predictor.blocks) == 1 and predictor.blocks[0].structure == "identity"
        )
        self.size = self._graph.size
        self._last = LastThetas[tuple[list[Array], list[Root | None]] | None]()
        whitened = [block.latent.is_whitened for block in self._blocks]
        self._whitened_blocks = np.flatnonzero(whitened).tolist()
        self._process = predictor.main_process()
        self._others = [k for k in range(len(self._blocks)) if k != self._process]
        parts = [np.arange(self.size)[self._blocks[k].part] for k in self._others]
        self._coefficients = np.concatenate(parts or [np.arange(0)])

    # These are compiled when first used: most models need only some of them.

    @cached_property
    def _covs(self) -> Callable[..., list[Array]]:
        return self._setting.compiled([self._setting.theta], self._predictor.covs)

    @cached_property
    def _f_of(self) -> Callable[..., Array]:
        inputs = [self._graph.x, self._setting.theta]
        return self._setting.compiled(inputs, self._predictor.predictor)

    @cached_property
    def _transposed(self) -> Callable[..., Array]:
        return self._setting.compiled(*self._transposed_graphs())

    @cached_property
    def _values_of(self) -> Callable[..., list[Array]]:
        return self._setting.compiled([self._graph.x, self._setting.theta], self._graph.values)

    @cached_property
    def _factors(self) -> Callable[..., Array]:
        """The factors of A, if it has some: 1 otherwise."""
        factors = self._predictor.factors
        if factors is None:
            return lambda theta: np.ones(self.size)
        return self._setting.compiled([self._setting.theta], factors)

    @cached_property
    def _columns_and_variances(self) -> Callable[..., list[Array]]:
        B = [self._predictor.columns(self._blocks[k]) for k in self._others]
        variances = [self._predictor.covs[k] for k in self._others]
        graphs = [pt.concatenate(B, axis=1), pt.concatenate(variances)]
        return self._setting.compiled([self._setting.theta], graphs)

    @cached_property
    def _for_audit(self) -> tuple[Callable[..., list[Array]], Callable[..., Array]]:
        """Blocks of Q⁻¹, and Aᵀ v, for `means_and_steps`, which calls them a few times."""
        covs = called_once([self._setting.theta], self._predictor.covs)
        return covs, called_once(*self._transposed_graphs())

    def _transposed_graphs(self) -> tuple[list[Variable], Variable]:
        """Inputs and output of Aᵀ v."""
        f, x = self._predictor.predictor, self._graph.x
        v = pt.vector("v", shape=f.type.shape)
        back = grad(pt.sum(f * v), x, disconnected_inputs="ignore")
        return [x, self._setting.theta, v], back

    def forget(self) -> None:
        """Clear the cache by theta, since a variable of another step has moved."""
        self._last.forget()

    def exists(self, prior: Prior, theta: Array) -> bool:
        """Whether x can be drawn at this theta, for every f.

        It takes at most one factorization of each dense block of Q⁻¹, which a draw needs, too.
        """
        if self._order is not None:
            return self._whitens_as(prior) or self._has_factors(theta)
        if self._process is not None and self._coefficients_at(prior, theta) is not None:
            return True
        return self._at(theta) is not None and self._has_factors(theta)

    def __call__(
        self, rng: np.random.Generator, prior: Prior, theta: Array, f: Array
    ) -> list[Array] | None:
        """Draw the model's latent variables, one array each; ``None`` if not `exists`."""
        if self._order is not None:
            x: Array | None = (f - prior.mean)[self._order] / self._factors(theta)
        else:
            x = None if self._process is None else self._by_coefficients(rng, prior, theta, f)
            x = self._by_matheron(rng, prior, theta, f) if x is None else x
        return None if x is None else self._in_the_model(prior, theta, x)

    def _in_the_model(self, prior: Prior, theta: Array, x: Array) -> list[Array] | None:
        """The model's latent variables: ν with L ν = x if whitened, ``None`` if there is no L."""
        values = [np.array(value, dtype=np.float64) for value in self._values_of(x, theta)]
        whitened = self._whitened(prior, theta, x)
        if whitened is None:
            return None
        for k, nu in whitened.items():
            values[k] = nu
        return values

    def means_and_steps(
        self, prior: Prior, theta: Array, vectors: Sequence[Array]
    ) -> tuple[list[Array], list[list[Array]]] | None:
        """Means of the latent variables, and steps Q⁻¹ Aᵀ w from them, for `pymc_lgm.model.check`.

        The audit compares PyMC's density at these points with that of f. All have the shapes of the
        model's variables. ``None`` if a covariance among them is not positive definite.
        """
        covs_at, transposed = self._for_audit
        covs = [np.asarray(cov) for cov in covs_at(theta)]
        # If a covariance is singular, PyMC has no density to compare with.
        dense = [cov for cov in covs if cov.ndim == 2]
        if not self._is_in_order and any(
            factorize(np.array(cov, order="F")) is None for cov in dense
        ):
            return None
        zero = np.zeros(self.size)
        if (means := self._in_the_model(prior, theta, zero)) is None:
            return None
        steps = []
        for w in vectors:
            back, u = transposed(zero, theta, w), np.empty(self.size)
            for block, cov in zip(self._blocks, covs, strict=True):
                part = back[block.part]
                u[block.part] = cov * part if cov.ndim == 1 else cov @ part
            there = self._in_the_model(prior, theta, u)
            assert there is not None
            steps.append([b - a for a, b in zip(means, there, strict=True)])
        return means, steps

    def _whitens_as(self, prior: Prior) -> bool:
        """Whether factors of K give ν = L⁻¹ x, because the processes of f are those of x."""
        return self._is_in_order or isinstance(prior, BlocksPrior) or not self._whitened_blocks

    def _has_factors(self, theta: Array) -> bool:
        """Whether each block of x that is whitened in the model has an L at theta."""
        if not self._whitened_blocks:
            return True
        known = self._at(theta)
        return known is not None and all(
            isinstance(known[1][k], CholeskyFactor) for k in self._whitened_blocks
        )

    def _whitened(self, prior: Prior, theta: Array, x: Array) -> dict[int, Array] | None:
        """ν of each whitened block; ``None`` if one has no L, so that the model has no x there."""
        if not self._whitened_blocks:
            return {}
        nu = np.empty(x.size)
        if self._order is not None and self._whitens_as(prior):
            # f = S x with factors S = |S| D and signs D. The prior of f has S K S, with the factor
            # |S| D L D, so L⁻¹ x = D (|S| D L D)⁻¹ S x.
            s = self._factors(theta)
            nu[self._order] = s * x
            nu = np.sign(s) * prior.solve(nu)[self._order]
        else:
            known = self._at(theta)
            for k in self._whitened_blocks:
                part = self._blocks[k].part
                factor = None if known is None else known[1][k]
                if not isinstance(factor, CholeskyFactor):
                    return None
                nu[part] = factor.solve(x[part])
        blocks = {k: self._blocks[k] for k in self._whitened_blocks}
        return {k: nu[block.part].reshape(block.shape) for k, block in blocks.items()}

    def _coefficients_at(
        self, prior: Prior, theta: Array
    ) -> tuple[Array, Array, Array, Array] | None:
        """B, S^½, T and a root of I − TᵀT: O(n² k) for k coefficients.

        ``None`` if I − TᵀT is not positive definite in floating point.
        """
        B, variances = self._columns_and_variances(theta)
        roots = np.sqrt(variances)
        T = prior.solve(np.asfortranarray(B * roots))
        tally.cubic_ops += round(3 * roots.size / B.shape[0])  # n² k multiplications; one is n³/3
        try:
            root = np.linalg.cholesky(np.eye(roots.size) - T.T @ T)
        except np.linalg.LinAlgError:
            return None
        return B, roots, T, root

    def _by_coefficients(
        self, rng: np.random.Generator, prior: Prior, theta: Array, f: Array
    ) -> Array | None:
        """Draw x by drawing the coefficients β first; ``None`` if rounding prevents it."""
        assert self._process is not None
        known = self._coefficients_at(prior, theta)
        if known is None:
            return None
        B, roots, T, root = known
        nu = prior.solve(f - prior.mean)
        beta = roots * (T.T @ nu + root @ rng.standard_normal(roots.size))
        x = np.empty(self.size)
        x[self._coefficients] = beta
        x[self._blocks[self._process].part] = f - prior.mean - B @ beta
        return x

    def _by_matheron(
        self, rng: np.random.Generator, prior: Prior, theta: Array, f: Array
    ) -> Array | None:
        """Draw x by Matheron's rule; ``None`` if a block of Q⁻¹ is not a covariance."""
        known = self._at(theta)
        if known is None:
            return None
        covs, factors = known
        x = np.empty(self.size)
        for block, cov, factor in zip(self._blocks, covs, factors, strict=True):
            xi = rng.standard_normal(block.part.stop - block.part.start)
            x[block.part] = np.sqrt(cov) * xi if factor is None else factor.multiply(xi)
        alpha = prior.inverse_times(f - self._f_of(x, theta))
        back = self._transposed(x, theta, alpha)
        for block, cov, factor in zip(self._blocks, covs, factors, strict=True):
            part = back[block.part]
            x[block.part] += cov * part if factor is None else cov @ part
        return x

    def _at(self, theta: Array) -> tuple[list[Array], list[Root | None]] | None:
        """Blocks of Q⁻¹, as covariances or as variances, and the roots of the covariances.

        ``None`` if a block is not a covariance, although that of f is.
        """
        return self._last.at(theta, self._computed_at)

    def _computed_at(self, theta: Array) -> tuple[list[Array], list[Root | None]] | None:
        covs = [np.asarray(cov) for cov in self._covs(theta)]
        roots = list[Root | None]()
        before = [known for known in self._last.results if known is not None]
        for k, cov in enumerate(covs):
            same = next((b[1][k] for b in before if np.array_equal(b[0][k], cov)), None)
            root = None if cov.ndim == 1 else same or _root_of(cov)
            if cov.ndim == 2 and root is None:
                return None
            roots.append(root)
        return covs, roots


def _root_of(C: Array) -> Root | None:
    return factorize(np.array(C, order="F")) or SymmetricRoot.of(C)
