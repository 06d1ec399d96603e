"""The forms that f has in a model, one file each: what is read, and the prior made of it."""

from pymc_lgm.model.forms.band import Band
from pymc_lgm.model.forms.base import Form, Setting
from pymc_lgm.model.forms.inducing import ThroughInducing
from pymc_lgm.model.forms.linear import LinearPredictor
from pymc_lgm.model.forms.vector import OneVector

__all__ = ["Form", "Setting", "form_of"]


def form_of(setting: Setting) -> Form:
    """The form of f that a model is read as."""
    latents = setting.reading.latents
    if len(latents) == 1 and latents[0].through is not None:
        return ThroughInducing(setting)
    if not setting.reading.is_one_vector:
        return LinearPredictor(setting)
    return Band(setting) if latents[0].is_banded else OneVector(setting)
