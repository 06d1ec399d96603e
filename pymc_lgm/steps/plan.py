"""The choices of a sampler for a model, as data: ``plan(facts, options) -> Plan``.

The facts are asked of the model once. The options are the user's. A plan follows each of them, or
raises an error. Nothing here moves f or theta: `pymc_lgm.steps.marginal` makes kernels of a plan.
"""

from __future__ import annotations

import textwrap

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from pymc_lgm.adaptation import FEWEST_DRAWS, LARGEST_NOISE, MOST_DRAWS, SMALL_NOISE
from pymc_lgm.approximations.emulator import MANY_HYPERPARAMETERS
from pymc_lgm.model import LatentGaussianModel, refusals
from pymc_lgm.moves.theta.emulated import SETTLED
from pymc_lgm.moves.theta.survey import MOST_COMPONENTS
from pymc_lgm.samplers import LATENT_MOVES
from pymc_lgm.samplers.interweaving import SHARE, SHARE_IF_LOW_NOISE
from pymc_lgm.steps.messages import listed
from pymc_lgm.steps.options import Importance, between, known_move, one_of, positive

__all__ = ["APPROXIMATIONS", "MOVES", "Facts", "MoveShare", "Options", "Plan", "plan"]

APPROXIMATIONS = ("laplace", "ep", "variational")
"""Names in ``approximation=``."""

MOVES = ("emulator", "nuts", "metropolis", "delayed-metropolis", "slice")
"""Names in ``move=``."""

FEW_THETAS = 3
"""Largest number of hyper-parameters for which an emulator learns enough from a random walk.

With NUTS in tuning instead, logistic data with two inputs had 62 to 74 effective draws per second,
and with a random walk 115 to 146.
"""

TRANSPORTED = 2
"""Fewest importance draws by a transport map. Each costs as much as the rest of a proposal, so
there are no more than f and one other until tuning asks for them."""

COSTLY = 0.02
"""Estimated seconds of a factorization from which on one importance draw is enough.

A proposal then takes two factorizations instead of three. The estimate is that of a loop over
columns. BLAS takes about a tenth of it, so the limit is some 2 ms. By hand, with counts of 100
areas in 20 years (estimate: 0.09), a draw took 29 ms instead of 42, with as many effective draws.
In a sum with a process at 200 places (0.009) it took 5.2 ms instead of 6.1, with 18% fewer
effective draws.
"""

EXACT = 2
"""Fewest importance draws if q is the posterior of f. Any number gives the exact evidence. f is one
of the draws, so with two it moves even if theta does not."""

CALLS = 2e-3
"""Seconds that the calls in Python of a draw take. If a factorization takes longer, importance
draws by a transport map are most of the time of a draw, so tuning is content with noisier
estimates."""

SEARCHES = {
    "laplace": (2, 4),
    "ep": (2, 8),
    "variational": (4, 12),
}
"""The least and the most O(n³) operations of a search for q that begins at predicted sites. A rough
guess."""

ASKED = "As asked."


@dataclass(frozen=True)
class Facts:
    """Properties of a model that a plan depends on, each asked once.

    `LatentGaussianModel` and its form document those that they have under the same name.

    Attributes
    ----------
    splits : bool
        Whether the likelihood is a sum over the elements of f, or over sets of them.
    is_flat : bool
        Whether the likelihood of labels is flat where one f_i is far above the others, as that of a
        robust maximum is. It truncates f, so no Gaussian is near the posterior.
    is_close : bool
        Whether q is expected to be close to the posterior of f.
    has_transport : bool
        Whether a transport map can correct importance draws.
    integrates_effects : bool
        Whether observation-level random effects are integrated out of the likelihood.
    is_alone : bool
        Whether no other step moves what the densities depend on. If so, f need not be drawn in each
        draw of tuning, and tuning may stop early.
    climbs : bool
        Whether theta may climb to its mode before tuning. It may not if another step moves
        continuous variables, since given their start theta may have no mode: the density of a scale
        is not bounded if its effects start at 0.
    """

    latents: tuple[str, ...]
    likelihoods: tuple[str, ...]
    n: int
    p: int
    algebra: str = "a dense matrix"
    coupled: str | None = None
    splits: bool = True
    is_log_concave: bool = True
    is_quadratic: bool = False
    is_flat: bool = False
    is_close: bool = False
    has_transport: bool = False
    integrates_effects: bool = False
    fewest: int = FEWEST_DRAWS
    seconds: float = 0.0
    has_theta_gradient: bool = True
    has_evidence_gradient: bool = True
    has_prior_gradient: bool = True
    is_alone: bool = True
    climbs: bool = True

    @property
    def joins(self) -> bool:
        """Whether some densities read several elements of f together."""
        return self.coupled is not None

    @classmethod
    def of(cls, model: LatentGaussianModel) -> Facts:
        """Ask a model, whose likelihood must have a gradient, and sets that are not too large."""
        form, joins = model.form, model.sets is not None
        concave = model.is_log_concave
        return cls(
            latents=tuple(model.latent.split(" + ")),
            likelihoods=model.likelihood_names,
            n=model.n,
            p=model.p,
            algebra=form.algebra,
            coupled=model.coupled,
            splits=_splits(model),
            is_log_concave=concave,
            is_quadratic=model.is_quadratic,
            is_flat=form.is_close and joins and not concave and model.is_flat,
            # Labels of a robust maximum truncate f: q is then not close, however few elements
            # f has.
            is_close=form.is_close and (concave or not joins),
            has_transport=form.has_transport,
            integrates_effects=model.likelihood is not model.graphs,
            fewest=form.fewest,
            seconds=form.seconds,
            has_theta_gradient=model.has_theta_gradient,
            has_evidence_gradient=model.has_evidence_gradient,
            has_prior_gradient=model.has_prior_gradient,
            is_alone=not model.other_names,
            climbs=not any(v.dtype.startswith("float") for v in model.graphs.others.values()),
        )


def _splits(model: LatentGaussianModel) -> bool:
    """Whether the likelihood is a sum over the elements of f, or over sets of them."""
    try:
        model.site_log_likelihoods(np.zeros((1, model.n)), np.zeros(model.p))
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Options:
    """The options of a sampler that integrates f out, as the user gave them.

    `pymc_lgm.PseudoMarginal` documents them. ``None``, or "auto", leaves the choice to the plan.

    Raises
    ------
    ValueError
        If an option is unknown, or if two contradict each other, whatever the model is.
    """

    sampler: Literal["PseudoMarginal", "ApproximateMarginal", "ExactMarginal"] = "PseudoMarginal"
    approximation: str | None = None
    move: str | None = None
    n_importance: int | None = None
    latent_move: str | None = "auto"
    importance: Importance = Importance()
    sites: str | None = None
    interweave: bool | None = None
    target_accept: float | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        """Raise if an option is unknown, or if two contradict each other."""
        one_of("approximation", self.approximation, (None, *APPROXIMATIONS))
        exact = self.sampler == "ExactMarginal"
        one_of("move", self.move, (None, *(m for m in MOVES if not (exact and "delayed" in m))))
        known_move("latent_move", self.latent_move, LATENT_MOVES, None, "auto", "posterior")
        one_of("sites", self.sites, (None, "predicted", "optimized"))
        between("target_accept", self.target_accept, 1.0)
        between("scale", self.scale)
        if self.n_importance is not None:
            positive("n_importance", self.n_importance)
        if self.move == "slice" and self.importance.correlation not in (None, 1.0):
            raise ValueError(
                "move='slice' needs a target that is a function of theta. Write "
                "importance=lgm.Importance(correlation=1), or move='metropolis'."
            )
        if self.move == "slice" and (self.target_accept is not None or self.scale is not None):
            raise ValueError(
                "target_accept and scale are options of a random walk, and move='slice' has none: "
                "leave them out."
            )
        if self.carries_f and self.latent_move is None:
            raise ValueError(
                "With one importance draw, or one antithetic pair, and correlation=1, f moves only "
                "as theta carries it. Write latent_move='hmc', or "
                "importance=lgm.Importance(correlation=0.99)."
            )
        if self.sampler == "ApproximateMarginal" and self.importance.correlation is not None:
            raise ValueError(
                "The moves of an approximate chain use no estimate, so its importance draws are "
                "independent: leave out correlation=."
            )

    @property
    def keeps_coordinates(self) -> bool:
        """Whether moves of theta keep the coordinates of importance draws in q."""
        return self.importance.correlation == 1.0 or self.move == "slice"

    @property
    def has_one_draw(self) -> bool:
        """Whether f is the only importance draw, or all others are its mirror images."""
        is_pair = self.n_importance == 2 and self.importance.antithetic is True
        return self.n_importance == 1 or is_pair

    @property
    def carries_f(self) -> bool:
        """Whether f is one draw, whose coordinates in q never change."""
        return self.has_one_draw and self.keeps_coordinates


@dataclass(frozen=True)
class MoveShare:
    """A move, and the share of the draws after tuning that make it.

    Attributes
    ----------
    move : str
    least, most : float
        The share, between 0 and 1. They differ if tuning decides.
    """

    move: str
    least: float
    most: float

    def __str__(self) -> str:
        least = "" if self.least == self.most else f"{self.least:.0%} to "
        return f"{self.move} ({least}{self.most:.0%})"


@dataclass(frozen=True, repr=False)
class Plan:
    """The choices of a sampler for a model, with a reason for each: ``step.plan``.

    Print it, or read its fields. It depends on the model and on the options, and is known before
    the first draw. If tuning decides, the plan says between which choices.

    Attributes
    ----------
    sampler : str
    facts : Facts
        Properties of the model.
    approximation : {"laplace", "ep", "variational"} or None
        The Gaussian approximation q(f | theta); ``None`` if nothing is approximated.
    sites : {"predicted", "optimized", "exact"} or None
        How q is found after tuning.
    skewness : {"copula", "transport"} or None
        The skewness correction of importance draws.
    fits_margins : bool
        Whether tuning fits the marginals of q, which a copula needs, and by which predicted sites
        are checked.
    n_importance : int or None
        Number of importance draws per estimate; ``None`` if tuning chooses it.
    fewest : int
        The smallest number that tuning may choose.
    noise : float
        The largest variance of a log ratio of two estimates with which tuning is content.
    antithetic : bool
        Whether importance draws come in pairs.
    defensive : float
        Share of importance draws from the prior.
    estimates : {"cached", "redrawn", "as tuning finds"} or None
        Whether an importance sample is cached until an independent one is accepted, or redrawn
        around f in each draw; tuning may find which by the noise.
    correlation : float
        Correlation of the random numbers of two successive estimates, if they are redrawn.
    theta_move : str
        The move on theta, by its name in ``move=``. It does not run if there is no hyper-parameter.
    other_move : {"nuts", "metropolis"} or None
        The move that helps an emulator, and replaces it if its jumps are rejected.
    warmup_move : {"nuts", "metropolis", "survey"} or None
        The move in tuning until there is an emulator.
    has_slope : bool
        Whether moves use a gradient in theta.
    latent_move : str or None
        The move of f given theta; ``None`` if f is only drawn with theta.
    interweaves : bool
        Whether a walk without estimates moves theta in some draws.
    moves : tuple of MoveShare
        The moves of a draw after tuning. For an emulator these are the shares if at least 0.7 of
        its jumps are accepted.
    cost : tuple of float
        A rough estimate of the least and the most O(n³) operations per draw after tuning, on
        average over draws. It is up to four times as large if jumps on an emulator are often
        rejected.
    why : dict of str to str
        A reason for each field that is a choice.

    Examples
    --------
    >>> import pymc as pm, pymc_lgm as lgm
    >>> with pm.Model():
    ...     eta = pm.HalfNormal("eta")
    ...     f = pm.MvNormal("f", mu=[0.0, 0.0], cov=eta * pm.math.stack([[1, 0.5], [0.5, 1]]))
    ...     y = lgm.Probit("y", f=f, observed=[0, 1])
    ...     plan = lgm.PseudoMarginal(n_importance=16).plan
    >>> plan.approximation, plan.sites, plan.skewness, plan.n_importance
    ('ep', 'predicted', 'copula', 16)
    >>> plan.why["n_importance"]
    'As asked.'
    """

    sampler: str
    facts: Facts
    approximation: str | None = None
    sites: str | None = None
    skewness: str | None = None
    fits_margins: bool = False
    n_importance: int | None = None
    fewest: int = FEWEST_DRAWS
    noise: float = SMALL_NOISE
    antithetic: bool = False
    defensive: float = 0.0
    estimates: str | None = None
    correlation: float = 0.0
    theta_move: str = "emulator"
    other_move: str | None = None
    warmup_move: str | None = None
    has_slope: bool = False
    latent_move: str | None = None
    interweaves: bool = False
    moves: tuple[MoveShare, ...] = ()
    cost: tuple[float, float] = (0.0, 0.0)
    why: dict[str, str] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        shown = [f"Plan of {self.sampler}: f ({self.facts.n}), theta ({self.facts.p})"]
        for name, value in self._lines():
            text = f"  {name:14} {value}. {self.why.get(name.replace(' ', '_'), '')}".rstrip()
            shown.append(textwrap.fill(text, 96, **LAYOUT))
        return "\n".join(shown)

    @property
    def integrated(self) -> tuple[str, ...]:
        """Variables that are integrated out as f while theta moves, and drawn given theta."""
        return () if self.sampler == "ExactMarginal" else self.facts.latents

    @property
    def stops_early(self) -> bool:
        """Whether tuning may stop early."""
        return self.facts.is_alone and self.facts.p > 0 and self.theta_move == "emulator"

    def _lines(self) -> Iterator[tuple[str, str]]:
        """Names and values of what is printed, in order."""
        effects = ("observation-level effects",) if self.facts.integrates_effects else ()
        yield "integrated", listed((*self.integrated, *effects) or ("nothing",))
        if self.approximation is not None:
            N = self.n_importance
            pairs = ", in pairs" if self.antithetic and (N is None or N % 2 == 0) else ""
            prior = f", {self.defensive:.0%} of them from the prior" if self.defensive else ""
            many = f"{self.fewest} to {MOST_DRAWS}" if N is None else N
            drawn = "draw" if N == 1 else "draws"
            yield "approximation", self.approximation
            yield "sites", str(self.sites)
            yield "skewness", str(self.skewness).lower()
            yield "n_importance", f"{many} {drawn} of f per estimate{pairs}{prior}"
        if self.estimates is not None:
            redrawn = f"redrawn in each draw, with correlation {self.correlation:g}"
            tuned = f"cached if tuning finds little noise, otherwise {redrawn}"
            cached = "cached until another is accepted"
            yield "estimates", {"cached": cached, "redrawn": redrawn}.get(self.estimates, tuned)
        if self.facts.p:
            warmup = "a survey" if self.warmup_move == "survey" else self.warmup_move
            after = f", after {warmup} in tuning" if warmup else ""
            yield "theta_move", f"{self.theta_move}{after}"
        if self.estimates is not None:
            yield "latent_move", str(self.latent_move).lower()
        if self.facts.p and self.estimates is not None:
            yield "interweaves", "yes" if self.interweaves else "no"
        yield "moves", "; ".join(map(str, self.moves)) or "none"
        yield "tuning", "may stop early" if self.stops_early else "never stops early"
        least, most = self.cost
        number = f"{least:.3g}" if least == most else f"{least:.3g} to {most:.3g}"
        number += f" factorizations of {self.facts.algebra}"
        yield "cost", f"roughly {number} per draw after tuning"


def plan(facts: Facts, options: Options) -> Plan:
    """Plan what a sampler does with a model.

    Parameters
    ----------
    facts : Facts
        Properties of the model: see `Facts.of`.
    options : Options
        The plan follows each option that is not ``None`` or "auto".

    Returns
    -------
    Plan
        A function of facts and options alone.

    Raises
    ------
    ValueError
        If an option cannot be met for this model. The message says why, and what to write.

    Examples
    --------
    >>> from pymc_lgm.steps.plan import Facts, Options, plan
    >>> counts = Facts(latents=("f",), likelihoods=("y",), n=100, p=3)
    >>> plan(counts, Options()).theta_move
    'emulator'
    >>> plan(counts, Options(move="nuts")).why["theta_move"]
    'As asked.'
    """
    fields: dict[str, Any] = {"sampler": options.sampler, "facts": facts}
    why = {"integrated": "Given theta it is Gaussian."}
    if len(facts.latents) > 1:
        why["integrated"] = (
            "Given theta they are Gaussian, and enter the densities through an affine map."
        )
    choices = [_approximation, _estimates, _latent_move, _theta_move]
    if options.sampler == "ExactMarginal":
        why["integrated"] = "The observations are multivariate normal, with f integrated out."
        choices = [_theta_move]
    for choose in choices:
        chosen = choose(facts, options, fields)
        fields |= {name: value for name, (value, _) in chosen.items()}
        why |= {name: reason for name, (_, reason) in chosen.items() if reason}
    fields["moves"] = _shares(facts, fields)
    fields["cost"] = _cost(facts.p, fields)
    made = Plan(**fields)
    if made.stops_early:
        why["tuning"] = f"It stops once {SETTLED:g} of the jumps on the emulator are accepted."
    elif facts.is_alone:
        why["tuning"] = "Only jumps on an emulator show that it may."
    else:
        why["tuning"] = "Another step moves variables that the densities depend on."
    return replace(made, why=why)


Chosen = dict[str, tuple[Any, str]]
"""Fields of a plan with their reasons; no reason if another field's says it."""


def _is_exact(facts: Facts, options: Options) -> bool:
    """Whether q is the posterior of f, which one Newton step from anywhere finds."""
    as_asked = options.approximation in (None, "laplace") and options.sites is None
    return facts.is_quadratic and as_asked


def _why_close(facts: Facts, options: Options) -> str:
    """Why q is expected to be close to the posterior of f."""
    if _is_exact(facts, options):
        return "q is the posterior of f"
    if facts.integrates_effects:
        return "q is expected to be close to the posterior of f, since effects are integrated out"
    return "q is expected to be close to the posterior of f, which has few elements for its data"


def _approximation(facts: Facts, options: Options, _: dict[str, Any]) -> Chosen:
    """q, how its sites are found, and how importance draws of it are corrected."""
    names = ", ".join(facts.likelihoods)
    latent = " + ".join(facts.latents)
    name, why = options.approximation, ASKED
    exact = _is_exact(facts, options)
    if name is None and facts.is_flat and options.sampler == "PseudoMarginal":
        raise ValueError(
            f"The likelihood ({names}) is not log-concave in the processes of its classes, as "
            "lgm.likelihoods.RobustMax is not, and few importance draws of a Gaussian hit the "
            "region of high likelihood. Write step=lgm.Sweep(latent_move='hmc-curvature'), or "
            "lgm.Softmax instead of it. To try importance draws nevertheless, write "
            "lgm.PseudoMarginal(approximation='variational')."
        )
    if name == "ep" and facts.coupled is not None:
        raise ValueError(refusals.couples(latent, facts.coupled, "approximation='ep'"))
    if name in ("ep", "variational") and not facts.splits:
        raise ValueError(refusals.does_not_split(facts.likelihoods, latent))
    if name is None and exact:
        name = "laplace"
        why = f"The log-likelihood ({names}) is quadratic in f, so q is the posterior of f."
    elif name is None and not facts.splits:
        name, why = "laplace", f"A log density ({names}) is a sum over several elements of f."
    elif name is None and facts.joins:
        name, why = "variational", "Some densities read several elements of f together."
    elif name is None and not facts.is_log_concave:
        name, why = "variational", f"The likelihood ({names}) is not known to be log-concave."
    elif name is None:
        name = "ep"
        why = f"The likelihood ({names}) is log-concave, and splits over the elements of f."
    chosen: Chosen = {"approximation": (name, why)}
    if exact:
        sites, of_sites = "exact", "The likelihood has the same sites at any f: no search."
    elif options.sampler == "ApproximateMarginal":
        sites, of_sites = "optimized", "The chain is on the evidence of q, which must be accurate."
    elif options.sites is not None:
        sites, of_sites = options.sites, ASKED
    elif name == "variational" and not facts.is_log_concave:
        sites = "optimized"
        of_sites = "Without log-concavity sites may appear and vanish as theta moves."
    else:
        sites = "predicted"
        of_sites = "A linear model in theta, fitted in tuning, replaces the search for q."
    return chosen | {"sites": (sites, of_sites)} | _skewness(facts, options, str(name), sites)


def _skewness(facts: Facts, options: Options, approximation: str, sites: str) -> Chosen:
    """How importance draws are corrected, or what prevents a copula of them."""
    asked = options.importance.copula
    obstacle = None
    exact = _is_exact(facts, options)
    transports = facts.has_transport and facts.splits and not exact
    if exact:
        obstacle = f"{_why_close(facts, options)}."
    elif not facts.splits:
        obstacle = "A correction needs densities that are split over the elements of f."
    elif options.sampler == "ApproximateMarginal":
        obstacle = "The draws of an approximate chain are those of q."
    elif sites != "predicted":
        obstacle = "A copula needs predicted sites."
    elif approximation == "laplace":
        obstacle = "A copula needs sites of expectation propagation or of the lower bound."
    elif facts.joins:
        obstacle = "A copula needs densities that read one element of f each."
    elif facts.is_close and not facts.has_transport:
        obstacle = f"{_why_close(facts, options)}."
    fits = asked is not False and obstacle is None
    if asked is False:
        skewness, why = None, ASKED
    elif transports and options.sampler == "ApproximateMarginal":
        skewness, why = "transport", "Tuning measures the noise with it; f is drawn from q itself."
    elif transports:
        skewness = "transport"
        why = "The precision of f is sparse, so one map corrects all elements of a draw jointly."
    elif obstacle is None:
        skewness, why = "copula", "Each element of a draw gets the skewed marginal of its own data."
    elif asked:
        raise ValueError(
            f"copula=True cannot be met. {obstacle} Leave it out, or write copula=False."
        )
    else:
        skewness, why = None, obstacle
    return {"skewness": (skewness, why), "fits_margins": (fits, "")}


def _estimates(facts: Facts, options: Options, fields: dict[str, Any]) -> Chosen:
    """Importance draws of one estimate, those of two, and a walk that needs none."""
    given = options.importance
    exact = _is_exact(facts, options)
    is_transported = fields["skewness"] == "transport"
    if exact:
        fewest = EXACT
    elif is_transported:
        # In a model without theta only another importance draw moves f.
        fewest = 1 if facts.seconds > COSTLY and facts.p else TRANSPORTED
    else:
        fewest = facts.fewest
    noise = LARGEST_NOISE if is_transported and facts.seconds > CALLS else SMALL_NOISE
    N = None if options.n_importance is None else int(options.n_importance)
    why_N = (
        f"Tuning doubles it until a log ratio of two estimates has a variance of {noise} or less."
        if N is None
        else ASKED
    )
    pairs = given.antithetic
    if pairs is None:
        # With a single pair f can only move to its mirror image, unless a new theta brings others.
        stays = (N or fewest) == 2 and (facts.p == 0 or options.keeps_coordinates)
        pairs = not (stays or exact or facts.has_transport)
    chosen: Chosen = {
        "n_importance": (N, why_N),
        "fewest": (fewest, ""),
        "noise": (noise, ""),
        "antithetic": (pairs, ""),
        "defensive": (given.defensive, ""),
    }
    if options.sampler == "ApproximateMarginal":
        return chosen
    close = facts.is_close or exact
    walks = not close if options.interweave is None else options.interweave
    why = "A walk that needs no estimate frees a chain whose estimate is far too high."
    if options.interweave is not None:
        why = ASKED
    elif close:
        why = f"{_why_close(facts, options)}: a walk is not worth its time."
    chosen["interweaves"] = walks, why
    estimates, correlation, why = "redrawn", given.correlation, ASKED
    if correlation is None and options.move == "slice":
        correlation, why = 1.0, "A slice needs an estimate that is a function of theta."
    elif correlation is None:
        correlation = 0.0 if close else 0.99
        is_settled = close and not walks and options.latent_move != "posterior"
        estimates = "cached" if is_settled else "as tuning finds"
        why = "Errors of correlated estimates cancel in their ratio."
        why = f"{_why_close(facts, options)}." if close else why
    return chosen | {"estimates": (estimates, why), "correlation": (correlation, "")}


def _latent_move(facts: Facts, options: Options, _: dict[str, Any]) -> Chosen:
    """How f moves given theta, besides being drawn with theta."""
    move, why = options.latent_move, ASKED
    close = facts.is_close or _is_exact(facts, options)
    if options.sampler == "ApproximateMarginal":
        return {}
    stays = options.carries_f or (facts.p == 0 and options.has_one_draw)
    if move is None and stays:
        raise ValueError(
            "With one importance draw, or one antithetic pair, and no hyper-parameter, f would "
            "never move, or only to its mirror image. Write latent_move='hmc', or sample with "
            "lgm.PseudoMarginal() and its default of n_importance."
        )
    if move == "auto" and stays and close:
        move, why = "hmc", "The only importance draw is f itself, so f needs a move of its own."
    elif move == "auto" and close:
        move, why = None, f"{_why_close(facts, options)}, so f is drawn with theta."
    elif move == "auto":
        move, why = "posterior", "HMC with the covariance of q as metric factorizes nothing more."
    return {"latent_move": (move, why)}


def _theta_move(facts: Facts, options: Options, _: dict[str, Any]) -> Chosen:
    """How theta moves, and what helps an emulator."""
    move, p, why = options.move, facts.p, ASKED
    slope = facts.has_theta_gradient
    if not slope and options.sampler != "ExactMarginal":
        # The gradient of the evidence of a sum takes long to compile. With few hyper-parameters a
        # survey of the evidence by differences does without it.
        slope = (move == "nuts" or p > MANY_HYPERPARAMETERS) and facts.has_evidence_gradient
    if move is None and not facts.has_prior_gradient:
        move, why = "metropolis", "The prior of theta has no gradient, which an emulator needs."
    elif move is None and slope and p > MANY_HYPERPARAMETERS:
        move, why = "nuts", f"An emulator is for at most {MANY_HYPERPARAMETERS} hyper-parameters."
    elif move is None and slope:
        move, why = "emulator", f"There are at most {MANY_HYPERPARAMETERS} hyper-parameters."
    elif move is None:
        move, why = "emulator", "No gradient in theta is compiled, and jumps need none."
    if move == "emulator" and not facts.has_prior_gradient:
        raise ValueError(
            "move='emulator' differentiates the prior of theta, and it cannot be. Write "
            "move='metropolis'."
        )
    if move == "nuts" and not slope:
        raise ValueError(
            "move='nuts' differentiates mean, covariance, likelihood and prior in theta, "
            "and one of them cannot be. Write move='metropolis'."
        )
    other = warmup = None
    if move == "emulator":
        other = "nuts" if slope else "metropolis"
        warmup = "metropolis" if p <= FEW_THETAS else other
        if not slope and facts.climbs and p <= MOST_COMPONENTS and options.scale is None:
            warmup = "survey"
    if options.scale is not None and p and "metropolis" not in str((move, warmup)):
        raise ValueError(
            "scale= is that of a random walk, and here NUTS moves theta until its own steps are "
            "tuned. Leave it out, or write move='metropolis'."
        )
    return {
        "theta_move": (move, why),
        "other_move": (other, ""),
        "warmup_move": (warmup, ""),
        "has_slope": (slope, ""),
    }


LAYOUT: dict[str, Any] = {"subsequent_indent": " " * 17, "break_on_hyphens": False}

NAMES = {
    "emulator": "theta: jumps on an emulator of the evidence",
    "nuts": "theta: NUTS",
    "metropolis": "theta: a random walk",
    "delayed-metropolis": "theta: a random walk with delayed acceptance",
    "slice": "theta: a slice per component",
}
"""Moves on theta, as a printed plan calls them."""

JUMP_SHARE = 0.1
"""Share of moves that are jumps of one component, if observations read several elements of f: a
choice, not measured."""


def _shares(facts: Facts, fields: dict[str, Any]) -> tuple[MoveShare, ...]:
    """The moves of a draw after tuning."""
    estimates = fields.get("estimates")
    shares = []
    low = high = 0.0
    if facts.p and fields.get("interweaves"):
        low = SHARE if estimates == "redrawn" else SHARE_IF_LOW_NOISE
        high = SHARE_IF_LOW_NOISE if estimates == "cached" else SHARE
    if facts.p:
        move = fields["theta_move"]
        jumps = JUMP_SHARE if move == "emulator" and facts.joins else 0.0
        shares = [MoveShare(NAMES[move], (1 - jumps) * (1 - high), (1 - jumps) * (1 - low))]
        if jumps:
            name = "theta: a jump of one component"
            shares.append(MoveShare(name, jumps * (1 - high), jumps * (1 - low)))
        if high:
            shares.append(MoveShare("theta: a whitened random walk", low, high))
    latent = fields.get("latent_move")
    if latent == "posterior":
        every = estimates == "redrawn"
        never = estimates == "cached"
        name = "f: HMC with the covariance of q"
        shares.append(MoveShare(name, 1.0 if every else low, high if never else 1.0))
    elif latent is not None:
        shares.append(MoveShare(f"f: {latent}", 1.0, 1.0))
    return tuple(shares)


TRAJECTORY = 3, 15
"""Few and many leapfrog steps of a draw of NUTS, each of two O(n³) operations. A rough guess."""

SLICE = 2, 4
"""Few and many evaluations of the target per component of a move of `pymc_lgm.moves.theta.slice`. A
rough guess."""


def _cost(p: int, fields: dict[str, Any]) -> tuple[float, float]:
    """The least and the most O(n³) operations per draw: for K, q, transport and the move."""
    if not p:
        return 0.0, 0.0
    least, most = 1.0, 1.0
    if fields.get("approximation"):
        # Sites are predicted by one operation, and optimized again far from the thetas of tuning.
        searches = {"optimized": SEARCHES[fields["approximation"]], "exact": (1, 1)}
        search = searches.get(fields["sites"], (1, 2))
        # A proposal that q rejects needs no factor of K.
        least, most = search[0], search[1] + 1
    if fields.get("skewness") == "transport":
        most += 3  # importance draws by the map, each of one factorization
    move = fields["theta_move"]
    if move == "slice":
        return SLICE[0] * p * least, SLICE[1] * p * most
    if move == "nuts":
        return least + 2 * TRAJECTORY[0], most + 2 * TRAJECTORY[1]
    return least, most
