"""The forms that f has in a model, one file each: what is read, and the prior made of it."""

from collections.abc import Iterator

from pymc_lgm.model.field_structure import FieldStructure
from pymc_lgm.model.forms.band import Band
from pymc_lgm.model.forms.base import Form, Setting
from pymc_lgm.model.forms.field import FieldOfAreas
from pymc_lgm.model.forms.inducing import ThroughInducing
from pymc_lgm.model.forms.linear import LinearPredictor
from pymc_lgm.model.forms.vector import OneVector

__all__ = ["Form", "Setting", "forms_of"]


def forms_of(setting: Setting) -> Iterator[Form]:
    """The forms of f that a model can be read as, the one that knows most of it first."""
    latents = setting.reading.latents
    if len(latents) == 1 and latents[0].through is not None:
        yield ThroughInducing(setting)
        return
    if (structure := FieldStructure.of(setting)) is not None:
        yield FieldOfAreas(setting, structure)
    if not setting.reading.is_one_vector:
        yield LinearPredictor(setting)
    else:
        yield Band(setting) if latents[0].is_banded else OneVector(setting)
