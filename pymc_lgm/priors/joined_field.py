"""Several fields that are independent, one after another: the parts of a map, and its islands.

Q is block-diagonal, and so is U: what is asked of the field is asked of each part.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from scipy.linalg import block_diag
from scipy.sparse import csc_array, eye_array

from pymc_lgm.linalg import Array
from pymc_lgm.priors.markov import FieldAt, FieldMaker, MarkovField
from pymc_lgm.priors.sparse import Pattern, SparseFactor

__all__ = ["IndependentMaker", "JoinedField", "JoinedMaker"]


class IndependentMaker:
    """φ ~ N(0, diag(v)): areas without neighbors."""

    def __init__(self, n: int):
        self.pattern, self._mean = Pattern.of(csc_array(eye_array(n))), np.zeros(n)

    def at(self, variances: Array) -> MarkovField | None:
        """Of v; ``None`` where one is zero or no number."""
        if not (np.isfinite(variances).all() and (variances > 0.0).all()):
            return None
        return MarkovField(self.pattern, 1.0 / variances, self._mean)


class JoinedField:
    """Fields as one: see `pymc_lgm.priors.markov.FieldAt`.

    Parameters
    ----------
    parts : sequence of FieldAt
    pattern : Pattern
        Of them all.
    """

    def __init__(self, parts: Sequence[FieldAt], pattern: Pattern):
        self._parts, self._pattern = parts, pattern
        self.mean = np.concatenate([part.mean for part in parts])
        self.precision = np.concatenate([part.precision for part in parts])
        self.columns = block_diag(*(part.columns for part in parts))
        self.covariance = block_diag(*(part.covariance for part in parts))
        self._ends = np.cumsum([part.mean.size for part in parts])[:-1]

    @cached_property
    def factor(self) -> SparseFactor | None:
        """Of Q."""
        return self._pattern.factorize(self.precision)

    def inverse_times(self, x: Array) -> Array:
        """(Q⁻¹ + U S Uᵀ)⁻¹ x."""
        return np.concatenate([part.inverse_times(own) for part, own in self._each(x)])

    def _each(self, x: Array) -> list[tuple[FieldAt, Array]]:
        return list(zip(self._parts, np.split(x, self._ends), strict=True))


class JoinedMaker:
    """Fields as a function of what a model says of each.

    Parameters
    ----------
    makers : sequence of FieldMaker
        With a `Pattern` each.
    counts : sequence of int
        How many values each takes.
    """

    def __init__(self, makers: Sequence[FieldMaker], counts: Sequence[int]):
        self._makers, self._ends = makers, np.cumsum([0, *counts])
        patterns = [maker.pattern for maker in makers]
        self.pattern = Pattern.joined([each for each in patterns if isinstance(each, Pattern)])

    def at(self, *values: Array) -> JoinedField | None:
        """Of the values of all; ``None`` where something is no number."""
        ends = self._ends
        parts = [maker.at(*values[ends[k] : ends[k + 1]]) for k, maker in enumerate(self._makers)]
        known = [part for part in parts if part is not None]
        return JoinedField(known, self.pattern) if len(known) == len(parts) else None
