"""Find the variances of K whose law given f is inverse gamma, from the model's graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from numpy.typing import NDArray
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.transforms import LogTransform
from pytensor.tensor.random.basic import ExponentialRV, GammaRV, InvGammaRV

from pymc_lgm.linalg import Array
from pymc_lgm.model.operations import Variable
from pymc_lgm.model.theta_gradient import parts_of

__all__ = ["Law", "find_conjugate", "laws_of"]

POWERS: dict[type, float] = {InvGammaRV: 1.0, GammaRV: -1.0, ExponentialRV: -1.0}
"""k with which x^k is inverse gamma, for the law of x; theta_j is log x."""

FLAT = ((FlatRV, type(None)), (HalfFlatRV, LogTransform))
"""Laws and transforms with which the density of theta_j is constant, or exp(theta_j)."""


class Law(NamedTuple):
    """The prior of a part of theta, without the distribution's op: not every op can be pickled.

    Attributes
    ----------
    rv : str
    is_flat : bool
        Whether the density of theta_j is constant, or exp(theta_j): see `FLAT`.
    power : float
        exp(k theta_j) is inverse gamma for this k: see `POWERS`. NaN if it is for no k.
    """

    rv: str
    is_flat: bool
    power: float


def laws_of(model: pm.Model, names: Collection[str]) -> dict[str, Law]:
    """Return the law of each value variable with one of these names."""
    laws = {}
    for rv, value in model.rvs_to_values.items():
        if value.name in names:
            op, transform = type(rv.owner.op), type(model.rvs_to_transforms.get(rv))
            power = POWERS.get(op, np.nan) if transform is LogTransform else np.nan
            laws[str(value.name)] = Law(str(rv.name), (op, transform) in FLAT, power)
    return laws


def find_conjugate(
    laws: Mapping[str, Law],
    blocks: Mapping[str, tuple[slice, tuple[int, ...]]],
    theta: Variable,
    amplitudes: Array,
    prior: Mapping[str, Variable],
    others: Sequence[Variable],
) -> NDArray[np.bool_]:
    """Find the amplitudes theta_j whose variance v = exp(k_j theta_j) is inverse gamma given f.

    Its prior has to be inverse gamma, or flat in theta_j, and v must enter nothing but K. The prior
    of v may depend on the other components. Nothing is evaluated.

    Parameters
    ----------
    laws, blocks : mapping
        The law and the part of theta of each of its value variables.
    theta : variable
    amplitudes : ndarray, shape (p,)
        k: see `pymc_lgm.model.amplitudes.find_amplitudes`.
    prior : mapping
        The log densities of theta's random variables, and of potentials, as graphs of theta.
    others : sequence of variable
        The mean and the log likelihood, as graphs of theta.
    """
    found = np.zeros(amplitudes.size, dtype=bool)
    if not amplitudes.any():
        return found
    elsewhere = _read(others, theta, blocks)
    by_term = {name: _read([density], theta, blocks) for name, density in prior.items()}
    for name, (part, _) in blocks.items():
        law = laws[name]
        readers = {term for term, read in by_term.items() if name in read}
        if name not in elsewhere and readers <= {law.rv}:
            # The log density of x = log v is then −a x − b e^(−x) + constant, with b ≥ 0.
            k = amplitudes[part]
            found[part] = k != 0.0 if law.is_flat else k == law.power
    return found


def _read(
    graphs: Sequence[Variable], theta: Variable, blocks: Mapping[str, tuple[slice, Any]]
) -> set[str]:
    """The value variables that graphs read through their parts of theta; all if that is unclear."""
    names = {(part.start, part.stop): name for name, (part, _) in blocks.items()}
    parts = parts_of(graphs, theta)
    if parts is None or not parts.keys() <= names.keys():
        return set(blocks)
    return {names[part] for part in parts}
