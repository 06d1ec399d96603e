"""Refuse models in which Gaussian vectors with many elements would be hyper-parameters.

A Gaussian variable that the samplers cannot integrate out would be a part of theta, which is meant
for a dozen numbers. It becomes one only if the user names the variables.
"""

from __future__ import annotations

import logging

from collections.abc import Container
from typing import Any

import pymc as pm

from pymc.distributions.multivariate import (
    CARRV,
    ICARRV,
    KroneckerNormalRV,
    MatrixNormalRV,
    MvNormalRV,
    PrecisionMvNormalRV,
    ZeroSumNormalRV,
)
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NormalRV

from pymc_lgm.gmrf import IntrinsicRV, MaternRV
from pymc_lgm.model import refusals
from pymc_lgm.model.hyperparameters import MOST_LEFT, elements_of
from pymc_lgm.model.latents import is_gaussian
from pymc_lgm.model.reading import Reading
from pymc_lgm.vecchia import VecchiaRV

__all__ = ["refuse_left_gaussians"]

Variable = Any

ALWAYS = (
    *(NormalRV, MvNormalRV, PrecisionMvNormalRV, MatrixNormalRV, KroneckerNormalRV),
    *(CARRV, ICARRV, MaternRV, VecchiaRV),
)
"""Distributions that are normal for all values of their parameters.

An autoregression or a walk is normal only if its innovations are.
"""

_log = logging.getLogger("pymc.lgm")  # PyMC shows its lines


def refuse_left_gaussians(model: pm.Model, reading: Reading, theta: Container[Variable]) -> None:
    """Raise if theta holds Gaussian vectors that cannot be integrated out and have many elements.

    Parameters
    ----------
    model : pymc.Model
    reading : Reading
        The reading of a model in which the user has not named the latent variables.
    theta : container of variables
        Value variables that would be hyper-parameters.

    Raises
    ------
    ValueError
        If there are such vectors. The message names them, and says why and what to write.
    """
    reached = set(ancestors([*model.observed_RVs, *model.potentials, *reading.terms]))
    left = [
        rv
        for rv in model.free_RVs
        if model.rvs_to_values[rv] in theta and rv in reached and rv not in reading.missing
        if rv.ndim and _is_normal(model, rv)
    ]
    sizes = {rv: elements_of(rv) for rv in left}
    left = [rv for rv in left if sizes[rv] > 1]
    if not left:
        return
    unknown = [rv for rv in left if not is_gaussian(model, rv)]
    reasons = {rv: reading.left.get(rv) or refusals.not_integrated() for rv in left}
    reasons |= {rv: refusals.not_known(_called(rv)) for rv in unknown}
    total = sum(sizes.values())
    if unknown or total > MOST_LEFT:
        rv = (unknown or sorted(left, key=lambda each: -sizes[each]))[0]
        names = [str(each.name) for each in left]
        beside = [str(each.rv.name) for each in reading.latents]
        raise ValueError(
            refusals.left_gaussian(str(rv.name), sizes[rv], reasons[rv], names, beside)
        )
    for rv in left:
        _log.info(refusals.left_few(str(rv.name), sizes[rv], reasons[rv]))


def _is_normal(model: pm.Model, rv: Variable) -> bool:
    """Whether a random variable is jointly normal on the scale of the model."""
    op = rv.owner.op
    if isinstance(op, ZeroSumNormalRV | IntrinsicRV):  # normal with any transform
        return True
    if model.rvs_to_transforms[rv] is not None:
        return False
    if isinstance(op, ALWAYS):
        return True
    if isinstance(op, AutoRegressiveRV):
        return _is_innovation(rv.owner.inputs[2])
    return isinstance(op, RandomWalkRV) and all(map(_is_innovation, rv.owner.inputs[:2]))


def _is_innovation(v: Variable) -> bool:
    return v.owner is not None and isinstance(v.owner.op, ALWAYS)


def _called(rv: Variable) -> str:
    """PyMC's name of a distribution, and why this package does not read this one."""
    op = rv.owner.op
    if isinstance(op, RandomWalkRV):
        return "a batch of pm.MvGaussianRandomWalk"
    if isinstance(op, IntrinsicRV):
        return "an intrinsic GMRF of lgm.gmrf with a transform other than its own"
    if isinstance(op, VecchiaRV):
        return "a batch of lgm.gp.Vecchia"
    name = "pm." + type(op).__name__.removesuffix("RV")
    if isinstance(op, ZeroSumNormalRV):
        return f"{name} with a transform other than PyMC's own"
    if isinstance(op, CARRV | ICARRV):
        return f"a batch of {name}" if rv.ndim > 1 else f"{name} of a map that may change"
    return name
