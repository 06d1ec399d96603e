"""Algorithms of the literature, each in one file, to compare with.

`pymc_lgm.PseudoMarginal` needs none of them, and nothing else in the package imports them. The
samplers are exact, except `ApproximateMarginal` and `ULISSE`, which label their traces. Their moves
have names in ``lgm.Sweep(move=..., latent_move=...)``:

- ``latent_move``: "metropolis" and "random-walk" are `NealMetropolis`, "smmala" `LatentSMMALA`,
  "hmc-position" `PositionHMC`, "hmc-class-frequency" `HomogeneousHMC`;
- ``move``: "smmala" is simplified manifold MALA on theta.

Examples
--------
>>> import pymc as pm, pymc_lgm as lgm
>>> lgm.papers.WhitenedMetropolis.__mro__[1] is lgm.Sweep
True
"""

from __future__ import annotations

from functools import partial

from pymc_lgm import samplers
from pymc_lgm.moves.latent import CurvatureHMC
from pymc_lgm.papers import scores as scores
from pymc_lgm.papers import solvers as solvers
from pymc_lgm.papers.approximate_marginal import ApproximateMarginal as ApproximateMarginal
from pymc_lgm.papers.homogeneous_hmc import HomogeneousHMC as HomogeneousHMC
from pymc_lgm.papers.homogeneous_hmc import class_frequency
from pymc_lgm.papers.iterative_laplace import laplace_by_pcg as laplace_by_pcg
from pymc_lgm.papers.knorr_held_rue import KnorrHeldRue as KnorrHeldRue
from pymc_lgm.papers.latent_smmala import LatentSMMALA as LatentSMMALA
from pymc_lgm.papers.latent_smmala import SMMALAMove
from pymc_lgm.papers.metropolis import SufficientMetropolis as SufficientMetropolis
from pymc_lgm.papers.metropolis import WhitenedMetropolis as WhitenedMetropolis
from pymc_lgm.papers.neal_metropolis import NealMetropolis as NealMetropolis
from pymc_lgm.papers.neal_metropolis import NealMove
from pymc_lgm.papers.position_hmc import PositionHMC as PositionHMC
from pymc_lgm.papers.position_hmc import PositionMove
from pymc_lgm.papers.random_features import ArcCosine as ArcCosine
from pymc_lgm.papers.random_features import RandomFeatures as RandomFeatures
from pymc_lgm.papers.smmala import SMMALA
from pymc_lgm.papers.ulisse import ULISSE as ULISSE
from pymc_lgm.steps.base import LatentGaussianStep

__all__ = [
    "SAMPLERS",
    "ULISSE",
    "ApproximateMarginal",
    "ArcCosine",
    "HomogeneousHMC",
    "KnorrHeldRue",
    "LatentSMMALA",
    "NealMetropolis",
    "PositionHMC",
    "RandomFeatures",
    "SufficientMetropolis",
    "WhitenedMetropolis",
    "laplace_by_pcg",
    "scores",
    "solvers",
]

SAMPLERS: tuple[type[LatentGaussianStep], ...] = (
    SufficientMetropolis,
    WhitenedMetropolis,
    KnorrHeldRue,
    NealMetropolis,
    LatentSMMALA,
    HomogeneousHMC,
    PositionHMC,
)
"""The registry of those that are exact: they are tested as `pymc_lgm.steps.SAMPLERS` are."""

samplers.LATENT_MOVES.update(
    {
        "metropolis": NealMove,
        "random-walk": partial(NealMove, proposal="random-walk"),
        "smmala": SMMALAMove,
        "hmc-class-frequency": partial(CurvatureHMC, search=class_frequency),
        "hmc-position": PositionMove,
    }
)
samplers.THETA_MOVES["smmala"] = SMMALA
