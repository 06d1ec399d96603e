"""Which elements of the latent variables are the field, its effects, and coefficients.

A field may be several, as a map in parts has one per part. Areas in none of them, islands, have an
independent effect in its place: one of their own, or that which every area has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray

from pymc_lgm.gaussian.gmrf import IndependentMaker
from pymc_lgm.model.latents import FieldLaw

__all__ = ["FieldParts", "Independent", "find_parts"]

Variable = Any
Index = NDArray[np.intp]

MOST = 200
"""Coefficients: with more they are no few columns."""


class Independent(NamedTuple):
    """A law of elements that are independent: see `pymc_lgm.model.latents.FieldLaw`.

    Attributes
    ----------
    variances : variable
    names : str
        Of the latents that have them.
    """

    variances: Variable
    names: str

    @property
    def reads(self) -> list[Variable]:
        """The variances."""
        return [self.variances]

    def covariance(self) -> Variable:
        """(n, n)."""
        return pt.diag(self.variances)

    def maker(self, n: int) -> IndependentMaker:
        """A diagonal."""
        return IndependentMaker(n)

    def explain(self, where: str) -> str:
        """A variance that is none."""
        return f"The scale of {self.names} is zero or no number {where}. Start it away from both."


@dataclass(frozen=True, eq=False)
class FieldParts:
    """Elements of x, the latent variables one after another.

    Attributes
    ----------
    laws : list of FieldLaw
        Of each part of the field.
    sizes : list of int
        Elements of each part.
    field : ndarray of int, shape (n,)
        Which elements of x they are, one part after another.
    own : ndarray of int, shape (n,), or None
        Which is the effect of each element of the field; -1 where it has none.
    few : ndarray of int, shape (k,)
        Coefficients.
    index : ndarray of int, shape (size,)
        Which element of the field each of the predictor reads.
    """

    laws: list[FieldLaw]
    sizes: list[int]
    field: Index
    own: Index | None
    few: Index
    index: Index


def find_parts(
    reads: Callable[[Index], Index | None],
    parts: Sequence[Index],
    laws: Sequence[FieldLaw | None],
    spread: Variable,
    names: Sequence[str],
) -> FieldParts | None:
    """Find them; ``None`` if the predictor has another structure.

    Parameters
    ----------
    reads : callable
        Elements of x -> which of these each element of the predictor reads, −1: none; ``None`` if
        one reads several.
    parts : sequence of ndarray of int
        Which elements of x each latent is.
    laws : sequence of FieldLaw or None
        Of each latent; ``None``: its elements are independent.
    spread : variable, shape (N,)
        Variances of the elements of x that are independent.
    names : sequence of str
        Of the latents.
    """
    fields = [(law, part) for law, part in zip(laws, parts, strict=True) if law is not None]
    index = reads(np.concatenate([part for _, part in fields]))
    if index is None:
        return None
    n = sum(part.size for _, part in fields)
    if index.size == n and (index == np.arange(n))[index >= 0].all() and (index >= 0).any():
        # Each reads its own, times a covariate that may be zero.
        index = np.arange(n)
    islands: dict[str, Index] = {}
    # What has the most elements first: effects of all areas, then those of islands.
    beside = sorted((k for k, law in enumerate(laws) if law is None), key=lambda k: -parts[k].size)
    own = which = None
    for k in [k for k in beside if parts[k].size >= n]:
        own, which = k, reads(parts[k])
        if which is not None:
            break
    for k in list(beside) if (index < 0).any() else []:
        here = reads(parts[k])
        at = np.empty(0, dtype=np.intp) if here is None else np.flatnonzero(here >= 0)
        if here is None or k == own or not at.size or (index[at] >= 0).any():
            continue
        if which is None or _follows(which[at], here[at]):
            islands[names[k]] = parts[k]
            beside.remove(k)
            index[at] = n + here[at]
            n += parts[k].size
    effects = None
    if own is not None and which is not None:
        paired = _paired(index, which, n, parts[own].size)
        if paired is None:
            return None
        index, pairs, alone = paired
        if alone.size:
            islands[names[own]] = parts[own][alone]
            n += alone.size
        effects = np.where(pairs < 0, -1, parts[own][pairs])
        beside.remove(own)
    few = np.concatenate([np.empty(0, dtype=np.intp), *(parts[k] for k in sorted(beside))])
    if (index < 0).any() or few.size > MOST or any(parts[k].size == n for k in beside):
        return None
    if islands:
        part = np.concatenate(list(islands.values()))
        fields.append((Independent(spread[part], " or ".join(islands)), part))
    laws_of, places = zip(*fields, strict=True)
    sizes = [part.size for part in places]
    return FieldParts(list(laws_of), sizes, np.concatenate(places), effects, few, index)


def _follows(what: Index, of: Index) -> bool:
    """Whether one index is a function of another."""
    return len(np.unique(np.stack([of, what]), axis=1).T) == np.unique(of).size


def _paired(index: Index, which: Index, n: int, size: int) -> tuple[Index, Index, Index] | None:
    """Pair the elements of a field with effects, of which each area has one.

    Parameters
    ----------
    index, which : ndarray of int
        Which element of the field, and which effect, each element of the predictor reads; -1: none.
    n, size : int
        Elements of the field, and effects, of which there are at least as many.

    Returns
    -------
    index, pairs, alone : ndarray of int, or None
        The effects ``alone`` go with no element: they follow those of the field in ``index``.
        ``pairs`` has the effect of each element, -1 of those. ``None`` if an element has two.
    """
    field = index >= 0
    pairs = np.full(n, -1, dtype=np.intp)
    pairs[index[field]] = which[field]
    taken = pairs[pairs >= 0]
    alone = np.unique(which[~field])
    rest = np.setdiff1d(np.arange(size), np.concatenate([taken, alone]))
    many = size - n - alone.size
    one_each = np.unique(taken).size == taken.size and not np.isin(alone, taken).any()
    if not one_each or many < 0 or (alone < 0).any() or (pairs[index[field]] != which[field]).any():
        return None
    # Of those that nothing reads, any goes with an element that has none.
    pairs[pairs < 0] = rest[many:]
    index = np.where(field, index, n + np.searchsorted(alone, which))
    none = np.full(size - n, -1, dtype=np.intp)
    return index, np.concatenate([pairs, none]), np.concatenate([alone, rest[:many]])
