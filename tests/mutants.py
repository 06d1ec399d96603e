"""Modules with a line that has been broken on purpose, and luck that accepts everything."""

from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace


@cache
def mutated(
    module: ModuleType, right: str, wrong: str, everywhere: bool = False
) -> SimpleNamespace:
    """The names of a module in which one expression, there once, has been replaced."""
    text = Path(str(module.__file__)).read_text()
    assert right in text if everywhere else text.count(right) == 1, right
    namespace = {"__name__": module.__name__}
    # Numba looks up what it has kept by a function's own code, whatever that calls.
    text = text.replace(right, wrong).replace("cache=True", "cache=False")
    exec(compile(text, str(module.__file__), "exec"), namespace)
    return SimpleNamespace(**namespace)


class Instead:
    """An object with other values for some of its attributes: ``Instead(q, center=0.0)``."""

    def __init__(self, original, **others):
        self.__dict__.update(others)
        self._original = original

    def __getattr__(self, name):
        return getattr(self._original, name)


class Accepting:
    """A generator whose uniform numbers accept every proposal that has a density."""

    def __init__(self, rng):
        self.rng = rng

    def uniform(self):
        return 0.0

    def __getattr__(self, name):
        return getattr(self.rng, name)
