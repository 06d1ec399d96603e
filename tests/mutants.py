"""Objects that are wrong on purpose, and luck that accepts everything."""


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
