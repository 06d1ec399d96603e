"""Every sampler of the registry, with the options that make it another kernel.

A new sampler is tested by being listed in `pymc_lgm.steps.SAMPLERS`; a new option by a row here.
"""

from pymc_lgm.steps import SAMPLERS

VARIANTS = {
    "LatentHMC": [
        {},
        {"integrator": "leapfrog"},
        {"metric": "identity", "step_size": 0.3},
        {"repeats": 2, "max_steps": 3},
    ],
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
        {"parameterization": ("surrogate-site", "whitened"), "scale": 0.4, "latent_repeats": 2},
    ],
    "PseudoMarginal": [
        {"scale": 0.4},
        {"scale": 0.4, "n_importance": 1, "correlation": 1.0, "latent": "slice"},
        {"scale": 0.4, "n_importance": 16, "correlation": 0.0, "latent": None},
        {"scale": 0.4, "n_importance": 3, "correlation": 0.5, "defensive": 0.2, "latent": None},
        {"scale": 0.4, "n_importance": 4, "delayed": True, "tolerance": 3.0, "latent": None},
        {"scale": 0.4, "approximation": "ep", "n_importance": 2, "latent": None},
    ],
    "KnorrHeldRue": [{"scale": 0.4}],
}

CASES = [
    (sampler, options) for sampler in SAMPLERS for options in VARIANTS.get(sampler.__name__, [{}])
]


def label(case):
    sampler, options = case
    return "-".join([sampler.__name__, *(f"{k}={v}" for k, v in options.items())])
