"""Which living models use a likelihood of this package.

PyMC asks a step method about a random variable without saying which model it belongs to; in
``pm.sample(model=model)`` there is no context to look at either.
"""

import weakref

from pymc.model.core import Model

__all__ = ["opted_in_models", "remember"]

_models: weakref.WeakSet[Model] = weakref.WeakSet()


def remember(model: Model) -> None:
    """Note that a model uses a likelihood of this package."""
    _models.add(model)


def opted_in_models() -> list[Model]:
    """Models noted so far that are still alive."""
    return list(_models)
