"""Which elements of f the observations read together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack
from scipy.sparse.csgraph import connected_components

from pymc_lgm.linalg import Array
from pymc_lgm.priors.class_blocks import ClassBlocks
from pymc_lgm.priors.precision import SiteBlocks

__all__ = ["MOST", "are_classes", "find_sets", "owners", "whether_sets"]

MOST = 12
"""Elements of a set, at most: expectations over more take too many nodes."""

DISTANCES = (-0.5, 0.7, -3.0, 4.0)
"""How far, in standard deviations: a log density that is flat up to one has a slope up to another.
"""

AT_ONCE = 2**20
"""Numbers in the rows that are evaluated together."""


def find_sets(
    elements: Callable[[Array], Array], mean: Array, scale: Array
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Find the smallest sets of f_i that no observation joins with others.

    Parameters
    ----------
    elements : callable
        Rows of f (N, n) -> elements of log densities (N, M).
    mean, scale : ndarray, shape (n,)
        Where f is, and how far it goes.

    Returns
    -------
    sets, of_element : ndarray of int, shapes (G, s), (M,)
        As in `SiteBlocks`, and in which set each element of the log densities is; one that reads
        no f_i in the first. ``None`` if a set has more than ``MOST`` f_i.

    Notes
    -----
    Each f_i is moved by itself, from two points, at four distances: a log density that is flat up
    to one has a slope up to another. 8 n evaluations of the likelihood, once.
    """
    n = mean.size
    step = max(1, AT_ONCE // n)
    count = elements(mean[None]).shape[1]
    reads = csr_array((n, count), dtype=bool)
    for start in _starts(mean, scale):
        before = np.nan_to_num(elements(start[None]))[0]
        for distance in DISTANCES:
            parts = []
            for begin in range(0, n, step):
                rows = np.tile(start, (min(step, n - begin), 1))
                moved = np.arange(len(rows))
                rows[moved, begin + moved] += distance * scale[begin : begin + len(rows)]
                parts.append(csr_array(np.nan_to_num(elements(rows)) != before))
            reads = reads + vstack(parts)
    # A graph of f and elements: the sets are its components.
    across = hstack([csr_array((n, n), dtype=bool), reads])
    below = csr_array((count, n + count), dtype=bool)
    _, label = connected_components(vstack([across, below]), directed=False)
    _, group = np.unique(label[:n], return_inverse=True)
    sizes = np.bincount(group)
    if sizes.max() > MOST:
        return None
    sets = np.full((sizes.size, sizes.max()), -1, dtype=np.intp)
    order = np.argsort(group, kind="stable")
    begins = np.cumsum(sizes) - sizes
    sets[group[order], np.arange(n) - begins[group[order]]] = order
    of_label = np.zeros(label.max() + 1, dtype=np.intp)
    of_label[label[:n]] = group
    return sets, of_label[label[n:]]


def whether_sets(
    elements: Callable[[Array], Array], sets: NDArray[np.intp], mean: Array, scale: Array
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Tell whether no observation joins f_i of different sets: as `find_sets`, of given sets.

    32 log₂ G evaluations of the likelihood, for thousands of f_i.
    """
    if sets.shape[1] > MOST:
        return None
    slots = np.arange(sets.shape[1])
    # Not all of a set in one direction: of that an observation of classes says nothing.
    along = np.where(sets >= 0, (1.0 + 0.3 * slots) * (-1.0) ** slots, np.nan)
    of_f, factor = np.empty(mean.size, dtype=np.intp), np.empty(mean.size)
    g, slot = np.nonzero(sets >= 0)
    of_f[sets[g, slot]], factor[sets[g, slot]] = g, along[g, slot]
    found = owners(elements, of_f, mean, factor * scale)
    return None if found is None else (sets, found)


def owners(
    elements: Callable[[Array], Array], of_f: NDArray[np.intp], mean: Array, scale: Array
) -> NDArray[np.intp] | None:
    """Find which set of f_i each element of the log densities reads, by binary digits of its index.

    Parameters
    ----------
    elements : callable
        Rows of f (N, n) -> elements of log densities (N, M).
    of_f : ndarray of int, shape (n,)
        In which set each f_i is.
    mean, scale : ndarray, shape (n,)
        Where f is, and how far it goes.

    Returns
    -------
    ndarray of int, shape (M,), or None
        ``None`` if an element reads several. One that reads none is of the first.
    """

    def at(f: Array) -> Array:
        values: Array = np.nan_to_num(elements(f[None])[0])
        return values

    index = np.zeros(1, dtype=np.intp)
    for start in _starts(mean, np.abs(scale)):
        before = at(start)
        for distance in DISTANCES:
            found = np.zeros(before.size, dtype=np.intp)
            for digit in range(int(of_f.max(initial=0)).bit_length()):
                one = (of_f >> digit) & 1 == 1
                by_one, by_zero = (
                    at(start + distance * scale * chosen) != before for chosen in (one, ~one)
                )
                if (by_one & by_zero).any():
                    return None
                found += by_one.astype(np.intp) << digit
            index = np.maximum(index, found)
    return index


def _starts(mean: Array, scale: Array) -> tuple[Array, Array]:
    """Where elements are moved from: m, and where no factor of another is 0 or 1 by symmetry."""
    return mean, mean + scale * np.random.default_rng(0).standard_normal(mean.size)


def are_classes(W: SiteBlocks) -> bool:
    """Whether blocks of a curvature have the form diag(D) − u uᵀ, and no row a sum."""
    if W.sets.shape[1] < 3 or (W.sets < 0).any() or not np.isfinite(W.values).all():
        return False
    nearest = ClassBlocks.nearest(W.sets, W.values)
    return bool((np.abs(nearest.values - W.values) <= 1e-6 * np.abs(W.values).max()).all())
