"""Every sampler of the registry, with the options that make it another kernel.

A new sampler is tested by being listed in `pymc_lgm.steps.SAMPLERS` or `pymc_lgm.papers.SAMPLERS`;
a new option by a row here.
"""

from models import build

import pymc_lgm as lgm

from pymc_lgm import papers, steps

VARIANTS = {
    "LatentHMC": [
        {},
        {"integrator": "leapfrog", "repeats": 2, "max_steps": 3},
        {"metric": "identity", "step_size": 0.3},
        {"metric": "curvature"},
        {"metric": "curvature", "integrator": "leapfrog", "step_size": 0.5},
    ],
    "AuxiliaryGradient": [{"step_size": 0.3, "repeats": 2}],
    "LatentSMMALA": [{"step_size": 0.8}],
    "NealMetropolis": [{"step_size": 0.5}, {"step_size": 0.5, "proposal": "random-walk"}],
    "EllipticalSlice": [{"repeats": 2}],
    "ASIS": [{}, {"latent_move": "slice"}],
    "SurrogateSlice": [{}, {"noise": "taylor", "move": "metropolis"}],
    "Sweep": [
        {"move": "slice", "theta_repeats": 2, "latent_move": "slice"},
        {"move": "hmc", "scale": 0.1},
        {"move": "hmc", "scale": 0.05, "parameterization": "sufficient"},
        {"move": "smmala", "scale": 0.8, "latent_move": "hmc-curvature"},
        {"move": "smmala", "scale": 0.8, "parameterization": "sufficient"},
        {"parameterization": "posterior-site", "move": "slice"},
        {"parameterization": "posterior-taylor", "latent_move": "mgrad"},
        {"parameterization": ("surrogate-site", "whitened"), "latent_repeats": 2},
    ],
    "PseudoMarginal": [
        {},
        {"move": "slice", "n_importance": 4, "latent_move": "hmc"},
        {"move": "nuts", "n_importance": 4, "approximation": "laplace"},
        {
            "move": "metropolis",
            "n_importance": 1,
            "latent_move": "hmc",
            "importance": lgm.Importance(correlation=1.0),
        },
        {
            "n_importance": 3,
            "importance": lgm.Importance(correlation=0.5, defensive=0.2),
            "sites": "optimized",
        },
        {
            "move": "delayed-metropolis",
            "n_importance": 4,
            "importance": lgm.Importance(correlation=0.0),
        },
        {"approximation": "laplace", "n_importance": 2, "latent_move": "slice"},
        {"approximation": "variational", "n_importance": 4, "sites": "predicted"},
    ],
}

SAMPLERS = (*steps.SAMPLERS, *(s for s in papers.SAMPLERS if s is not papers.PositionHMC))
"""Those of both registries; tests/test_position_hmc.py has the one that takes seconds."""

CASES = [
    (sampler, options) for sampler in SAMPLERS for options in VARIANTS.get(sampler.__name__, [{}])
]

ONE_OF_EACH = [*{sampler: (sampler, options) for sampler, options in CASES}.values()]
"""The last variant of each sampler, for what does not depend on most options."""

TWINS = {"counts": "log_gaussian_cox", "labels": "probit", "errors": "student_t"}
"""A model of the list for each toy, from which a step knows what it may do."""


def elements_of(case, toy):
    """The kernels of a sampler as it runs them on a toy: those of its step method."""
    sampler, options = case
    return build(sampler, TWINS[toy], **options).elements


def label(case):
    sampler, options = case
    return "-".join([sampler.__name__, *(f"{k}={v}" for k, v in options.items())])
