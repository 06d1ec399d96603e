"""Latent variables given the linear predictor: x | f, theta, drawn exactly.

x is independent of y given f and theta, so drawing it after a move of (theta, f) leaves
p(theta, x | y) invariant.

A process z with few coefficients β ~ N(0, S) beside it, f = c + z + B β, needs no matrix factorized
but that of f: with L Lᵀ = K and T = L⁻¹ B S^½

    β | f ~ N(S^½ Tᵀ L⁻¹ (f − c), S^½ (I − TᵀT) S^½),   z = f − c − B β.
"""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt

from pytensor.gradient import grad

from pymc_lgm.linalg import Array, CholeskyFactor, factorize, tally
from pymc_lgm.model.forms.base import Setting
from pymc_lgm.model.predictor import Predictor
from pymc_lgm.priors import BlocksPrior, Prior

__all__ = ["DrawBack"]


class DrawBack:
    """Draws x ~ N(0, Q⁻¹) given f = c + A x, and what the model's variables are then.

    By Matheron's rule: with x° ~ N(0, Q⁻¹),

        x = x° + Q⁻¹ Aᵀ K⁻¹ (f − c − A x°),   K = A Q⁻¹ Aᵀ,

    for one factorization of each dense block of Q⁻¹, once a theta. If f is x in some order, and its
    mean, there is nothing to draw; with one process and few coefficients, nothing to factorize.
    """

    def __init__(self, setting: Setting, predictor: Predictor):
        self._blocks, self._order = predictor.blocks, predictor.order
        self._is_identity = predictor.is_identity
        self.size = predictor.n_latents
        x, theta = predictor.x, setting.theta
        v = pt.vector("v", shape=predictor.predictor.type.shape)
        self._covs = setting.compiled([theta], predictor.covs)
        self._predictor = setting.compiled([x, theta], predictor.predictor)
        back = grad(pt.sum(predictor.predictor * v), x, disconnected_inputs="ignore")
        self._transposed = setting.compiled([x, theta, v], back)
        self._values = setting.compiled([x, theta], predictor.values)
        self._known: tuple[bytes, list[Array], list[CholeskyFactor | None]] | None = None
        self._few = predictor.process_and_few()
        if self._few is not None:
            few = [k for k in range(len(self._blocks)) if k != self._few]
            graphs = [predictor.columns(self._blocks[k]) for k in few]
            variances = [predictor.covs[k] for k in few]
            self._beside = setting.compiled([theta], [pt.concatenate(graphs, axis=1)])
            self._variances = setting.compiled([theta], [pt.concatenate(variances)])
            parts = [np.arange(self.size)[self._blocks[k].part] for k in few]
            self._at_few = np.concatenate(parts)

    def forget(self) -> None:
        """What theta was at does not hold: another step has moved what it owns."""
        self._known = None

    def __call__(
        self, rng: np.random.Generator, prior: Prior, theta: Array, f: Array
    ) -> list[Array]:
        """The model's latent variables, one array each."""
        if self._order is not None:
            x = (f - prior.mean)[self._order]
        else:
            few = None if self._few is None else self._few_given(rng, prior, theta, f)
            x = self._given(rng, prior, theta, f) if few is None else few
        values = [np.array(value, dtype=np.float64) for value in self._values(x, theta)]
        whitened = [k for k, block in enumerate(self._blocks) if block.latent.root is not None]
        if whitened:
            # The model has ν with L ν = x.
            nu = self._whitened(prior, theta, x, whitened)
            for k in whitened:
                values[k] = nu[self._blocks[k].part].reshape(self._blocks[k].shape)
        return values

    def along(self, prior: Prior, theta: Array, w: Array) -> tuple[list[Array], list[Array]] | None:
        """Means of the model's latent variables, and K_x Aᵀ w in their coordinates.

        ``None`` if the covariance of one of them is not positive definite.
        """
        zero = np.zeros(self.size)
        back = self._transposed(zero, theta, w)
        u = np.empty(self.size)
        try:
            covs, _ = self._at(theta)
            for block, cov in zip(self._blocks, covs, strict=True):
                part = back[block.part]
                u[block.part] = cov * part if cov.ndim == 1 else cov @ part
            means = [np.array(x, dtype=np.float64) for x in self._values(zero, theta)]
            there = [np.array(x, dtype=np.float64) for x in self._values(u, theta)]
            steps = [b - a for a, b in zip(means, there, strict=True)]
            whitened = [k for k, block in enumerate(self._blocks) if block.latent.root is not None]
            if whitened:
                nu = self._whitened(prior, theta, u, whitened)
                for k in whitened:
                    steps[k] = nu[self._blocks[k].part].reshape(self._blocks[k].shape)
                    means[k] = np.zeros(self._blocks[k].shape)
        except np.linalg.LinAlgError:
            return None
        return means, steps

    def _whitened(self, prior: Prior, theta: Array, x: Array, which: list[int]) -> Array:
        """ν of these blocks, by the factors of f where its processes are those of x."""
        if self._is_identity:
            return prior.solve(x)
        nu = np.empty(x.size)
        if self._order is not None and isinstance(prior, BlocksPrior):
            nu[self._order] = x
            return prior.solve(nu)[self._order]
        for k in which:
            part, factor = self._blocks[k].part, self._at(theta)[1][k]
            assert factor is not None
            nu[part] = factor.solve(x[part])
        return nu

    def _few_given(
        self, rng: np.random.Generator, prior: Prior, theta: Array, f: Array
    ) -> Array | None:
        """Coefficients first; ``None`` where rounding leaves them no variance."""
        assert self._few is not None
        (B,), (variances,) = self._beside(theta), self._variances(theta)
        roots, nu = np.sqrt(variances), prior.solve(f - prior.mean)
        T = prior.solve(np.asfortranarray(B * roots))
        tally.cubic_ops += round(3 * roots.size / f.size)  # n² k against n³/3
        try:
            root = np.linalg.cholesky(np.eye(roots.size) - T.T @ T)
        except np.linalg.LinAlgError:
            return None
        beta = roots * (T.T @ nu + root @ rng.standard_normal(roots.size))
        x = np.empty(self.size)
        x[self._at_few] = beta
        x[self._blocks[self._few].part] = f - prior.mean - B @ beta
        return x

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
