"""The base of likelihoods of classes: one latent variable per class, and checks of data."""

from collections.abc import Mapping
from typing import Any, override

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.variable import TensorVariable

from pymc_lgm.likelihoods.base import Likelihood, as_float

__all__ = ["Classes", "class_rows", "of_class"]


class Classes(Likelihood, Discrete):
    """One of C classes, each with a latent variable of its own: f has shape (C, n).

    A subclass writes `logp`, which takes f with classes along the last axis, `expected_logp`, and
    ``support_point = Classes.support_point``: PyMC does not look for it in a base class.
    """

    reads_classes = True

    @override
    @classmethod
    def outside_support(
        cls, values: np.ndarray, shapes: Mapping[str, tuple[int, ...] | None]
    ) -> tuple[np.ndarray, str]:
        shape = shapes["f"]
        if shape == ():
            raise ValueError(of_a_number(cls.__name__))
        classes = np.inf if shape is None else shape[0]
        wrong = (values < 0) | (values >= classes) | (values != np.floor(values))
        known = "" if shape is None else f" from 0 to {shape[0] - 1}"
        return wrong, (
            f"the number of a class{known}, one row of f each: recode labels, as in "
            "np.unique(labels, return_inverse=True)[1]"
        )

    @override
    @classmethod
    def check_shapes(
        cls, name: str, data: np.ndarray, shapes: Mapping[str, tuple[int, ...] | None]
    ) -> None:
        # Classes are the first axis of f, like the outputs of gp.prior.
        shape = shapes["f"]
        rows = {"f": None if shape is None else shape[1:]}
        try:
            super().check_shapes(name, data, dict(shapes) | rows)
        except ValueError as error:
            if shape is None:
                raise
            raise ValueError(
                f"{error} The first axis of f, of length {shape[0]}, is left out here, since it is "
                "that of the classes: write f.T if another one is."
            ) from error

    @staticmethod
    def support_point(
        rv: TensorVariable, size: Any, f: TensorVariable, *params: Any
    ) -> TensorVariable:
        """Return the most probable class."""
        likely = pt.argmax(f, axis=-1)
        return likely if rv_size_is_none(size) else pt.broadcast_to(likely, size)


def class_rows(f: Any, likelihood: str) -> TensorVariable:
    """Move the classes of f, its first axis or the elements of a list, to the last axis."""
    if isinstance(f, list | tuple) and all(isinstance(each, TensorVariable) for each in f):
        return pt.stack([as_float(each) for each in f], axis=-1)
    f = as_float(f)
    if f.type.ndim == 0:
        raise ValueError(of_a_number(likelihood))
    return pt.moveaxis(f, 0, -1)


def of_class(value: TensorVariable, rows: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Whether each element of rows (..., C) belongs to the class ``value``, and if any does."""
    chosen = pt.eq(value[..., None], pt.arange(rows.shape[-1]))
    return chosen, pt.any(chosen, axis=-1)


def of_a_number(likelihood: str) -> str:
    """Return the message for an f without an axis of classes."""
    return (
        f"{likelihood} needs f of shape (C, n), one row per class, or a list of C vectors: f is "
        "one number."
    )
