"""Approximations K ≈ Φ Φᵀ + R, computed once and used for every system with K.

    K ≈ Φ Φᵀ + R,   A = c I + S K S ≈ c I + S R S + (S Φ)(S Φ)ᵀ

`nystrom`, `fitc` and `pitc` use a subset U of the points: Φ = K_XU L⁻ᵀ with L Lᵀ = K_UU. As R,
`fitc` uses the diagonal of K − Φ Φᵀ, `pitc` its diagonal blocks, and `nystrom` 0. `block_jacobi`
has R alone; `random_features` and `randomized_svd` have Φ alone. Kernel interpolation on a grid is
not included, because Cutajar et al. (2016) found no gain from it, and its grid has d dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scipy.linalg import cholesky, qr, solve_triangular

from pymc_lgm.linalg import Array
from pymc_lgm.papers.solvers.kernel_matrix import KernelMatrix, KernelSystem
from pymc_lgm.papers.solvers.preconditioners import LowRankAndBlocks

__all__ = [
    "Approximation",
    "block_jacobi",
    "fitc",
    "nystrom",
    "pitc",
    "random_features",
    "randomized_svd",
]

TINY = 1e-11
"""The diagonal of K_UU is increased by this share times m, so that its factorization succeeds.

R keeps its sign: K − K_XU (K_UU + ε I)⁻¹ K_UX is positive semidefinite.
"""


@dataclass(frozen=True, eq=False)
class Approximation:
    """K ≈ Φ Φᵀ + R.

    Attributes
    ----------
    Phi : ndarray, shape (n, m)
    remainder : ndarray, shape (n,), or list of ndarray
        The diagonal of R, or its diagonal blocks in order.
    """

    Phi: Array
    remainder: Array | list[Array]

    def preconditioner(self, system: KernelSystem) -> LowRankAndBlocks:
        """P = c I + S R S + (S Φ)(S Φ)ᵀ: O(n m²)."""
        s = np.ones(system.n) if system.scale is None else system.scale
        blocks: Array | list[Array]
        if isinstance(self.remainder, np.ndarray):
            blocks = system.shift + s**2 * self.remainder
        else:
            ends = np.cumsum([len(block) for block in self.remainder])
            blocks = [
                system.shift * np.eye(len(block)) + np.outer(part, part) * block
                for block, part in zip(self.remainder, np.split(s, ends[:-1]), strict=True)
            ]
        return LowRankAndBlocks(blocks, system.scaled(self.Phi))


def nystrom(kernel: KernelMatrix, m: int, rng: np.random.Generator) -> Approximation:
    """K_XU K_UU⁻¹ K_UX with m points U drawn without replacement: O(n m²).

    With m = 4 √n it is the best in the comparison of Cutajar et al. (2016), §3.1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_lgm.papers.solvers import KernelMatrix, KernelSystem, conjugate_gradients, nystrom
    >>> x = np.linspace(0, 3, 200)
    >>> k = lambda a, b: np.exp(-((a[:, None] - b) ** 2))
    >>> system = KernelSystem(KernelMatrix.of_points(k, x), shift=1e-2)
    >>> P = nystrom(system.kernel, 20, np.random.default_rng(0)).preconditioner(system)
    >>> alone, with_P = (conjugate_gradients(system.times, np.sin(5 * x), p) for p in (None, P))
    >>> alone.iterations > 5 * with_P.iterations
    True
    """
    Phi = _inducing(kernel, m, rng)
    return Approximation(Phi, np.zeros(kernel.n))


def fitc(kernel: KernelMatrix, m: int, rng: np.random.Generator) -> Approximation:
    """`nystrom` with the exact diagonal of K: Cutajar et al. (2016), §3.1.1."""
    Phi = _inducing(kernel, m, rng)
    return Approximation(Phi, np.maximum(kernel.diagonal - (Phi**2).sum(axis=1), 0.0))


def pitc(
    kernel: KernelMatrix, m: int, rng: np.random.Generator, *, size: int | None = None
) -> Approximation:
    """`nystrom` with exact diagonal blocks of K, of m rows by default: §3.1.1."""
    Phi = _inducing(kernel, m, rng)
    parts = _parts(kernel.n, m if size is None else size)
    blocks = [kernel.entries(part, part) - Phi[part] @ Phi[part].T for part in parts]
    return Approximation(Phi, blocks)


def block_jacobi(kernel: KernelMatrix, size: int) -> Approximation:
    """The diagonal blocks of K: O(n size²), §3.3.1.

    Sort the data first, so that strongly correlated rows are neighbors.
    """
    blocks = [kernel.entries(part, part) for part in _parts(kernel.n, size)]
    return Approximation(np.zeros((kernel.n, 0)), blocks)


def random_features(
    X: Array, m: int, rng: np.random.Generator, *, variance: float = 1.0, nu: float | None = None
) -> Approximation:
    """m random Fourier features of a stationary covariance: O(n m), §3.2.1.

    Φ = √(variance / (m / 2)) [cos X Ω, sin X Ω], the frequencies Ω (d, m / 2) drawn from the
    covariance's spectral density.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Inputs, divided by the length-scales.
    m : int
        Number of features, even.
    rng : numpy.random.Generator
    variance : float
    nu : float, optional
        Smoothness of a Matérn covariance, such as 2.5: Ω has a Student t distribution with 2ν
        degrees of freedom. By default the covariance is squared exponential, and Ω is normal.
    """
    frequencies = rng.standard_normal((X.shape[1], m // 2))
    if nu is not None:
        frequencies /= np.sqrt(rng.chisquare(2.0 * nu, m // 2) / (2.0 * nu))
    phases = X @ frequencies
    Phi = np.sqrt(variance / (m // 2)) * np.hstack([np.cos(phases), np.sin(phases)])
    return Approximation(Phi, np.zeros(len(X)))


def randomized_svd(
    kernel: KernelMatrix, m: int, rng: np.random.Generator, *, oversampling: int = 10
) -> Approximation:
    """The m largest eigenvalues of K from the span of K Ω, with Ω normal: 2 (m + 10) products.

    Φ = Q V Λ^½ of QᵀK Q = V Λ Vᵀ, Q an orthonormal basis of K Ω (Halko et al. 2011, §5.3; §3.2.2).
    """
    columns = min(m + oversampling, kernel.n)
    Q = qr(kernel.times(rng.standard_normal((kernel.n, columns))), mode="economic")[0]
    values, vectors = np.linalg.eigh(Q.T @ kernel.times(Q))
    largest = np.maximum(values[-m:], 0.0)
    return Approximation(Q @ (vectors[:, -m:] * np.sqrt(largest)), np.zeros(kernel.n))


def _inducing(kernel: KernelMatrix, m: int, rng: np.random.Generator) -> Array:
    """Φ = K_XU L⁻ᵀ."""
    U = np.sort(rng.choice(kernel.n, size=min(m, kernel.n), replace=False))
    K_XU = kernel.columns(U)
    K_UU = K_XU[U]
    K_UU[np.diag_indices(U.size)] *= 1.0 + TINY * U.size
    L = cholesky(K_UU, lower=True)
    Phi: Array = solve_triangular(L, K_XU.T, lower=True).T
    return Phi


def _parts(n: int, size: int) -> list[slice]:
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]
