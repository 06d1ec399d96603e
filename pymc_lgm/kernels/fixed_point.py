"""Anderson acceleration of the fixed-point iteration x = g(x).

Anderson (1965), *Iterative procedures for nonlinear integral equations*, Journal of the ACM 12;
Walker and Ni (2011), *Anderson acceleration for fixed-point iterations*, SIAM Journal on Numerical
Analysis 49.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pymc_lgm.linalg import Array

__all__ = ["fixed_point"]

MEMORY = 8
"""Number of earlier iterates that are used."""


def fixed_point[T](
    image: Callable[[Array], tuple[Array, T] | None],
    start: Array,
    *,
    tolerance: float = 1e-10,
    most: int = 30,
) -> tuple[Array, T] | None:
    """Solve x = g(x) by iteration, until no |g(x) − x| exceeds tolerance (1 + max |x|).

    With residuals r_k = g(x_k) − x_k the next iterate is g(x_k) − ΔG γ, where γ minimizes
    |r_k − ΔR γ| and the columns of ΔR and ΔG are differences of the last residuals and images.

    Parameters
    ----------
    image : callable
        x -> g(x) and anything else computed at x; ``None`` if g(x) does not exist.
    start : ndarray, shape (n,)
    tolerance : float
    most : int
        Evaluations of g before giving up.

    Returns
    -------
    x : ndarray, shape (n,)
    what : object
        Whatever ``image`` computed at x. Both are ``None`` if the iteration did not converge.

    Examples
    --------
    >>> import numpy as np
    >>> x, evaluated_at = fixed_point(lambda x: (np.cos(x), x), np.zeros(1))
    >>> round(float(x[0]), 8)
    0.73908513
    """
    x = start
    residuals: list[Array] = []
    images: list[Array] = []
    for _ in range(most):
        found = image(x)
        if found is None:
            return None
        y, what = found
        r = y - x
        if not np.isfinite(r).all():
            return None
        if np.abs(r).max(initial=0.0) <= tolerance * (1.0 + np.abs(x).max(initial=0.0)):
            return x, what
        residuals, images = [*residuals[-MEMORY:], r], [*images[-MEMORY:], y]
        x = y
        if len(images) > 1:
            share = np.linalg.lstsq(np.diff(residuals, axis=0).T, r, rcond=None)[0]
            x = y - np.diff(images, axis=0).T @ share
    return None
