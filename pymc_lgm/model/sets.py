"""Elements of f that observations read together, as blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors

from pymc_lgm.linalg import Array
from pymc_lgm.model.reads import MOST, Reads, reads_of, terms_of
from pymc_lgm.priors.class_blocks import ClassBlocks
from pymc_lgm.priors.precision import SiteBlocks

__all__ = ["are_classes", "groups_of", "reads_of_densities", "sets_of"]

Variable = Any
Index = NDArray[np.intp]


def reads_of_densities(
    densities: Sequence[Variable], f: Variable, values: Mapping[Variable, Array]
) -> list[Reads]:
    """Which elements of f each term of some log densities reads."""
    reading = [density for density in densities if f in set(ancestors([density]))]
    terms = [term for density in reading for term in terms_of(density, f)]
    with np.errstate(all="ignore"):
        return reads_of(terms, f, values)


def sets_of(group: Index) -> Index | None:
    """Sets (G, s), as `SiteBlocks` has them, of which each f_i is in one.

    ``None`` if one has more than `MOST` elements.
    """
    sizes = np.bincount(group)
    if sizes.max() > MOST:
        return None
    sets = np.full((sizes.size, sizes.max()), -1, dtype=np.intp)
    order = np.argsort(group, kind="stable")
    begins = np.cumsum(sizes) - sizes
    sets[group[order], np.arange(group.size) - begins[group[order]]] = order
    return sets


def groups_of(sets: Index, n: int) -> Index:
    """In which set each f_i is."""
    group = np.empty(n, dtype=np.intp)
    g, slot = np.nonzero(sets >= 0)
    group[sets[g, slot]] = g
    return group


def are_classes(W: SiteBlocks) -> bool:
    """Whether blocks of a curvature have the form diag(D) − u uᵀ, and no row a sum."""
    if W.sets.shape[1] < 3 or (W.sets < 0).any() or not np.isfinite(W.values).all():
        return False
    nearest = ClassBlocks.nearest(W.sets, W.values)
    return bool((np.abs(nearest.values - W.values) <= 1e-6 * np.abs(W.values).max()).all())
