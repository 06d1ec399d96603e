"""The forms of f in a model, one file each, with the prior of f and the graphs of densities."""

from collections.abc import Iterator

from pymc_lgm.model.forms.base import Form, Setting
from pymc_lgm.model.forms.inducing import ThroughInducing
from pymc_lgm.model.forms.linear import LinearPredictor
from pymc_lgm.model.forms.sum import SumPredictor
from pymc_lgm.model.forms.vector import Band, OneVector
from pymc_lgm.model.series import Series

__all__ = ["Form", "Setting", "forms_of"]


def forms_of(setting: Setting) -> Iterator[Form]:
    """The forms of f that a model can be read as, the most specific one first."""
    reading = setting.reading
    first = reading.latents[0]
    if first.through is not None:
        yield ThroughInducing(setting)
        return
    if reading.is_one_vector and isinstance(first.field, Series):
        band = Band(setting, first.field)
        if not reading.as_sum:
            yield band
        # A sum may have observations that read several elements of the series.
        if (of_sets := SumPredictor.of(setting)) is not None:
            yield from of_sets.alternatives()
        band.is_last = True
        yield band
        return
    if reading.is_one_vector and first.field is None:
        yield OneVector(setting)
        return
    of_sums = SumPredictor.of(setting) if SumPredictor.may_be_cheaper(setting) else None
    if of_sums is not None:
        yield from (form for form in of_sums.alternatives() if form.is_cheaper)
    if reading.is_one_vector:
        yield OneVector(setting)
        return
    # If the range of f depends on theta, or loses rank, or if a dense covariance has too few
    # digits, f alone cannot be sampled. The latent variables can.
    try:
        linear = LinearPredictor(setting)
    except ValueError:
        if (of_sums := of_sums or SumPredictor.of(setting)) is None:
            raise
        yield from of_sums.alternatives()
        raise
    if linear.loses_digits() and (of_sums := of_sums or SumPredictor.of(setting)) is not None:
        yield from of_sums.alternatives()
    yield linear
