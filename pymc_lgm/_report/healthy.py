"""All thresholds of the report as data, with their sources.

The ranges of sampler statistics are those of ``docs/sample_statistics.md``, and a test compares the
two.
"""

from dataclasses import dataclass
from math import inf

from pymc_lgm.adaptation import MOST_DRAWS

__all__ = [
    "CHAINS",
    "CHANCE",
    "EFFECTIVE",
    "EFFECTIVE_OF_A_CHAIN",
    "FEW_DRAWS",
    "FEW_EFFECTIVE",
    "HEALTHY",
    "LATENT_TRAJECTORY",
    "LONG_STAY",
    "LONG_STAY_SHARE",
    "MANY",
    "PARETO_K",
    "R_HAT",
    "R_HAT_LARGE",
    "SHOWN",
    "STILL",
    "Healthy",
    "healthy_ranges",
]

R_HAT = 1.01
"""Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), *Rank-normalization, folding, and
localization: an improved R-hat*, Bayesian Analysis 16, section 4.3."""

R_HAT_LARGE = 1.05
"""Our choice: above it the chains disagree so much that averages over them are meaningless."""

MANY = 20
"""Our choice: in a variable with this many elements an R-hat above `R_HAT` may be chance."""

CHANCE = 0.05
"""Our choice: the largest share of traces with agreeing chains in which such an R-hat is blamed."""

CHAINS = 4
"""Vehtari et al. (2021), section 4.3: run at least four chains."""

EFFECTIVE = 400
"""Vehtari et al. (2021), section 4.3: effective draws, bulk and tail, that are enough. With fewer,
the estimates of R-hat, ESS and Monte Carlo error are themselves unreliable."""

EFFECTIVE_OF_A_CHAIN = 100
"""The same per chain, if there are more than four."""

FEW_EFFECTIVE = 100
"""Our choice: with fewer, the Monte Carlo error of a posterior mean is a tenth of a standard
deviation or more."""

FEW_DRAWS = 100
"""Our choice: with fewer draws per chain R-hat, ESS and acceptances are too noisy to judge."""

PARETO_K = 0.7
"""Vehtari, Simpson, Gelman, Yao, Gabry (2024), *Pareto smoothed importance sampling*, JMLR 25:
above it importance sampling has practically no central limit theorem."""

STILL = 0.01
"""Our choice: a chain with a lower acceptance is stuck."""

LONG_STAY = 100
"""Our choice: draws in a row at one value that deserve a warning. At the lowest healthy acceptance,
one in five, 100 rejections in a row happen once in 5e9 draws."""

LONG_STAY_SHARE = 0.25
"""Our choice: a stay of this share of a chain, and of `LONG_STAY` / 2 draws, is a problem."""

LATENT_TRAJECTORY = "latent_trajectory"
"""Added to the names of statistics if the number of latent evaluations varies, as with HMC."""


@dataclass(frozen=True)
class Healthy:
    """The healthy range of a statistic's mean, for samplers that report `having` and not `lacking`.

    A value outside of the range *explains* poor R-hat and ESS. If those are good the value is
    harmless, unless ``always``.
    """

    statistic: str
    low: float = -inf
    high: float = inf
    below: str = ""
    above: str = ""
    having: frozenset[str] = frozenset()
    lacking: frozenset[str] = frozenset()
    per_parameter: bool = False
    always: bool = False

    def __str__(self) -> str:
        unit = " per hyper-parameter" if self.per_parameter else ""
        if self.high == 0.0:
            return "0"
        if self.high == inf:
            return f"above {self.low:g}{unit}"
        return (
            f"up to {self.high:g}{unit}" if self.low == -inf else f"{self.low:g} to {self.high:g}"
        )

    def applies(self, names: set[str]) -> bool:
        """Whether the range applies to a trace with these statistics."""
        return self.statistic in names and self.having <= names and not self.lacking & names


def healthy_ranges(names: set[str]) -> dict[str, Healthy]:
    """The first range of each statistic that applies to a trace with these statistics."""
    ranges: dict[str, Healthy] = {}
    for healthy in HEALTHY:
        if healthy.applies(names):
            ranges.setdefault(healthy.statistic, healthy)
    return ranges


def _set(*names: str) -> frozenset[str]:
    return frozenset(names)


NOT_A_WALK = _set("theta_evaluations", "theta_step_size")

HEALTHY = (
    Healthy(
        "theta_acceptance",
        0.2,  # a random walk; 0.3 for the emulator, but a trace does not distinguish the two
        below="Look at log_evidence_sd and pareto_k; tune longer, pm.sample(tune={tune}); raise "
        "n_importance. If it stays below 0.1, write lgm.ASIS().",
        having=_set("log_evidence"),
        lacking=NOT_A_WALK,
    ),
    Healthy(
        "theta_acceptance",
        0.2,
        0.5,
        below="The steps of the random walk are too long: tune longer, pm.sample(tune={tune}).",
        above="The steps of the random walk are short: tune longer, pm.sample(tune={tune}).",
        having=_set("theta_scale"),
        lacking=NOT_A_WALK | {"log_evidence", "theta_steps"},
    ),
    Healthy(
        "theta_acceptance",
        0.3,  # the emulator of an exact evidence
        below="The emulator is poor where the chain is: tune longer, pm.sample(tune={tune}), or "
        'write lgm.ExactMarginal(move="nuts").',
        having=_set("theta_steps"),
        lacking=_set("log_evidence"),
    ),
    Healthy(
        "theta_evaluations",
        high=4.0,
        above="The interval widths have not been learned: tune longer, pm.sample(tune={tune}).",
        lacking=_set("theta_step_size"),
        per_parameter=True,
    ),
    Healthy(
        "latent_acceptance",
        0.6,
        below='Raise target_accept of lgm.LatentHMC, or write latent_move="slice" in a sweep.',
        having=_set("latent_step_size", LATENT_TRAJECTORY),
    ),
    Healthy(
        "latent_acceptance",
        0.15,  # SMMALA, Metropolis; 0.4 for AuxiliaryGradient, which a trace does not show
        below="Tune longer, pm.sample(tune={tune}), or move f by lgm.LatentHMC.",
        having=_set("latent_step_size"),
        lacking=_set(LATENT_TRAJECTORY),
    ),
    Healthy(
        "latent_acceptance",
        0.05,
        below='The data determine f closely: move it by HMC, latent_move="hmc" or lgm.LatentHMC.',
        lacking=_set("latent_step_size"),
    ),
    Healthy(
        "latent_evaluations",
        high=50.0,
        above="The data determine f closely: draws are right but take many evaluations. Try "
        'lgm.LatentHMC(metric="curvature"), or bound them by max_steps.',
    ),
    Healthy(
        "latent_step_size",
        0.01,
        below='f moves little: write lgm.LatentHMC(metric="curvature").',
    ),
    Healthy(
        "log_evidence_sd",
        high=0.7,
        above="Estimates are noisy: raise n_importance, and keep the default correlation.",
    ),
    Healthy(
        "pareto_k",
        high=PARETO_K,
        above="q has too light a tail, so a chain can stick to one high estimate: add draws from "
        "the prior, importance=lgm.Importance(defensive=0.1).",
        always=True,
    ),
    Healthy(
        "n_importance",
        high=MOST_DRAWS / 2,
        above="Tuning chose the most importance draws: estimates are noisy. It does no harm "
        "if theta_acceptance is healthy.",
    ),
    Healthy(
        "mode_iterations",
        high=3.0,
        above="theta is far from where tuning ended: tune longer, pm.sample(tune={tune}).",
    ),
    Healthy(
        "numerical_rejections",
        high=0.1,
        above="Proposals are lost because the covariance cannot be factorized: raise the jitter of "
        "gp.prior, or bound the prior of the length-scale.",
        always=True,
    ),
    # PyMC's NUTS, with PyMC's own limits.
    Healthy(
        "diverging",
        high=0.0,
        above="NUTS diverges: raise target_accept, or let the model whiten f, gp.prior('f', X).",
        always=True,
    ),
    Healthy(
        "reached_max_treedepth",
        high=0.05,
        above="NUTS needs trajectories longer than it may make: let the model whiten f, "
        "gp.prior('f', X), or use a sampler of this package.",
    ),
)

SHOWN = (
    *dict.fromkeys(healthy.statistic for healthy in HEALTHY),
    "theta_scale",
    "theta_step_size",
    "log_evidence",
    "approximate_log_evidence",
    "approximate_step_size",
    "cubic_ops",
    "acceptance_rate",
    "tree_depth",
)
"""Statistics that the table shows, if the trace has them."""
