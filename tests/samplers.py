"""Every sampler of the registry, with the options that make it another kernel.

A new sampler is tested by being listed in `pymc_lgm.steps.SAMPLERS`; a new option by a row here.
"""

import pytest

from pymc_lgm.steps import SAMPLERS

VARIANTS = {
    "LatentHMC": [
        {},
        {"integrator": "leapfrog"},
        {"metric": "identity", "step_size": 0.3},
        {"repeats": 2, "max_steps": 3},
        {"metric": "curvature"},
        {"metric": "curvature", "integrator": "leapfrog", "step_size": 0.5},
    ],
    "AuxiliaryGradient": [{"step_size": 1.0}, {"step_size": 0.3, "repeats": 2}],
    "LatentSMMALA": [{"step_size": 0.8}, {"step_size": 1.2, "repeats": 2}],
    "NealMetropolis": [{"step_size": 0.5}, {"step_size": 0.5, "proposal": "random-walk"}],
    "EllipticalSlice": [{}, {"repeats": 2}],
    "ASIS": [{"scale": 0.4}, {"scale": 0.4, "latent": "slice"}],
    "SufficientMetropolis": [{"scale": 0.4}],
    "WhitenedMetropolis": [{"scale": 0.4}],
    "SurrogateSlice": [{}, {"noise": "taylor"}, {"move": "metropolis", "scale": 0.4}],
    "Sweep": [
        {"move": "slice", "theta_repeats": 2, "latent": "slice"},
        {"move": "slice", "parameterization": "sufficient"},
        {"move": "hmc", "scale": 0.2},
        {"move": "hmc", "scale": 0.05, "parameterization": "sufficient"},
        {"move": "smmala", "scale": 0.8},
        {"move": "smmala", "scale": 0.8, "parameterization": "sufficient"},
        {"parameterization": "posterior-site", "move": "slice"},
        {"parameterization": "posterior-taylor", "scale": 0.4},
        {"scale": 0.4, "latent": "mgrad"},
        {"scale": 0.4, "latent": "hmc-curvature", "latent_repeats": 2},
        {"parameterization": ("surrogate-site", "whitened"), "scale": 0.4, "latent_repeats": 2},
    ],
    "PseudoMarginal": [
        {"scale": 0.4},
        {"move": "slice", "n_importance": 4, "latent": "hmc"},
        {
            "move": "metropolis",
            "scale": 0.4,
            "n_importance": 1,
            "correlation": 1.0,
            "latent": "hmc",
        },
        {"move": "metropolis", "scale": 0.4, "n_importance": 16, "correlation": 0.0},
        {"scale": 0.4, "n_importance": 3, "correlation": 0.5, "defensive": 0.2, "recall": False},
        {"move": "metropolis", "scale": 0.4, "n_importance": 4, "delayed": True, "recall": False},
        {"approximation": "laplace", "scale": 0.4, "n_importance": 2, "latent": "slice"},
    ],
    "KnorrHeldRue": [{"scale": 0.4}],
}

CASES = [
    (sampler, options) for sampler in SAMPLERS for options in VARIANTS.get(sampler.__name__, [{}])
]


def ends_first(cases):
    """The same, with all but the first and the last variant of each sampler left to slow runs."""

    def marked(case):
        sampler, options = case
        variants = VARIANTS.get(sampler.__name__, [{}])
        ends = options in (variants[0], variants[-1])
        return case if ends else pytest.param(case, marks=pytest.mark.slow)

    return [marked(case) for case in cases]


def label(case):
    sampler, options = case
    return "-".join([sampler.__name__, *(f"{k}={v}" for k, v in options.items())])
