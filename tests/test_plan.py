"""The default as a table: models and options, and the plan that follows from them."""

from dataclasses import replace
from itertools import product

import arviz as az
import numpy as np
import pymc as pm
import pytest
import test_fields
import test_gmrf
import test_inducing
import test_predictor
import test_random_features
import test_series
import test_sparse_classes

from models import MODELS, build, listed

import pymc_lgm as lgm

from pymc_lgm.adaptation import LARGEST_NOISE, SMALL_NOISE
from pymc_lgm.steps.plan import ASKED, Facts, Options, plan

pytestmark = pytest.mark.usefixtures("interpreted")

COUNTS = Facts(latents=("f",), likelihoods=("y",), n=50, p=3)
STUDENT = replace(COUNTS, is_log_concave=False)
SERIES = replace(COUNTS, has_transport=True, algebra="a banded matrix")
CLASSES = replace(COUNTS, coupled="y", has_theta_gradient=False)
INDUCING = replace(COUNTS, is_close=True, fewest=2, has_theta_gradient=False)
EFFECTS = replace(INDUCING, integrates_effects=True, fewest=4)
MANY = replace(COUNTS, p=13)
SUM = replace(SERIES, has_theta_gradient=False)
ONE_NUMBER = replace(COUNTS, splits=False)
OPAQUE_PRIOR = replace(COUNTS, has_theta_gradient=False, has_prior_gradient=False)
NO_THETA = replace(COUNTS, p=0)
ERRORS = replace(COUNTS, is_quadratic=True)

FACTS = {
    "counts": COUNTS,
    "student": STUDENT,
    "series": SERIES,
    "classes": CLASSES,
    "inducing": INDUCING,
    "effects": EFFECTS,
    "many": MANY,
    "sum": SUM,
    "sum of many": replace(SUM, p=13),
    "large sum": replace(SUM, seconds=0.1),
    "large sum, no theta": replace(SUM, seconds=0.1, p=0),
    "one number": ONE_NUMBER,
    "opaque prior": OPAQUE_PRIOR,
    "no theta": NO_THETA,
    "errors": ERRORS,
    "sum, one number": replace(SUM, splits=False),
    "sum with errors": replace(SUM, is_quadratic=True),
    "classes with errors": replace(CLASSES, is_quadratic=True),
}

SHOWN = (
    "approximation sites skewness fewest estimates theta_move warmup_move latent_move interweaves"
)
"""The fields of a row of the table."""

TUNED = "as tuning finds"

TABLE = {
    "counts": "ep predicted copula 8 tuned emulator metropolis posterior True",
    "student": "variational optimized None 8 tuned emulator metropolis posterior True",
    "series": "ep predicted transport 2 tuned emulator metropolis posterior True",
    "classes": "variational predicted None 8 tuned emulator survey posterior True",
    "inducing": "ep predicted None 2 cached emulator survey None False",
    "effects": "ep predicted None 4 cached emulator survey None False",
    "many": "ep predicted copula 8 tuned nuts None posterior True",
    "sum": "ep predicted transport 2 tuned emulator survey posterior True",
    "sum of many": "ep predicted transport 2 tuned nuts None posterior True",
    "large sum": "ep predicted transport 1 tuned emulator survey posterior True",
    "large sum, no theta": "ep predicted transport 2 tuned emulator survey posterior True",
    "one number": "laplace predicted None 8 tuned emulator metropolis posterior True",
    "sum, one number": "laplace predicted None 8 tuned emulator survey posterior True",
    "opaque prior": "ep predicted copula 8 tuned metropolis None posterior True",
    "no theta": "ep predicted copula 8 tuned emulator metropolis posterior True",
    "errors": "laplace exact None 2 cached emulator metropolis None False",
    "sum with errors": "laplace exact None 2 cached emulator survey None False",
    "classes with errors": "laplace exact None 2 cached emulator survey None False",
}


def row(made):
    values = [str(getattr(made, name)) for name in SHOWN.split()]
    return " ".join(values).replace(TUNED, "tuned")


@pytest.mark.parametrize("name", TABLE)
def test_the_default_of_each_kind_of_model(name):
    assert row(plan(FACTS[name], Options())) == TABLE[name]


WITH_OPTIONS = [
    ("counts", {"approximation": "laplace"}, {"approximation": "laplace", "skewness": None}),
    (
        "counts",
        {"sites": "optimized"},
        {"sites": "optimized", "skewness": None, "fits_margins": False},
    ),
    ("student", {"sites": "predicted"}, {"sites": "predicted", "skewness": "copula"}),
    ("counts", {"move": "slice"}, {"correlation": 1.0, "estimates": "redrawn"}),
    ("inducing", {"interweave": True}, {"estimates": TUNED, "correlation": 0.0}),
    ("inducing", {"latent_move": "posterior"}, {"estimates": TUNED, "latent_move": "posterior"}),
    ("inducing", {"n_importance": 1, "move": "slice"}, {"latent_move": "hmc"}),
    ("counts", {"importance": lgm.Importance(correlation=0.5)}, {"estimates": "redrawn"}),
    ("series", {"importance": lgm.Importance(copula=False)}, {"skewness": None, "fewest": 8}),
    ("counts", {"importance": lgm.Importance(copula=True)}, {"skewness": "copula"}),
    ("sum", {"move": "nuts"}, {"has_slope": True, "theta_move": "nuts"}),
    ("many", {"move": "emulator"}, {"warmup_move": "nuts", "other_move": "nuts"}),
    ("classes", {"sampler": "ApproximateMarginal"}, {"sites": "optimized", "estimates": None}),
    ("errors", {"approximation": "ep"}, {"sites": "predicted", "skewness": "copula", "fewest": 8}),
    ("errors", {"approximation": "laplace"}, {"sites": "exact", "cost": (1.0, 2.0)}),
    ("errors", {"sites": "optimized"}, {"approximation": "ep", "sites": "optimized"}),
    ("sum with errors", {"interweave": True}, {"interweaves": True, "sites": "exact"}),
    ("counts", {"sampler": "ExactMarginal"}, {"approximation": None, "cost": (1.0, 1.0)}),
]


@pytest.mark.parametrize(("name", "options", "expected"), WITH_OPTIONS)
def test_options_change_the_plan(name, options, expected):
    made = plan(FACTS[name], Options(**options))
    assert {field: getattr(made, field) for field in expected} == expected


A_PAIR = {"n_importance": 2, "importance": lgm.Importance(antithetic=True)}

REFUSED = [
    ("classes", {"approximation": "ep"}, r"couples its elements.*approximation='ep'"),
    ("one number", {"approximation": "variational"}, r"sum over several.*approximation='laplace'"),
    ("sum", {"move": "nuts", "sampler": "ExactMarginal"}, r"one of them cannot be"),
    ("opaque prior", {"move": "emulator"}, r"Write move='metropolis'"),
    ("opaque prior", {"move": "nuts"}, None),  # the evidence has a gradient
    ("many", {"scale": 0.5}, r"scale= is that of a random walk.*NUTS"),
    ("many", {"scale": 0.5, "move": "metropolis"}, None),
    ("counts", {"scale": 0.5}, None),  # a random walk explores
    ("student", {"importance": lgm.Importance(copula=True)}, r"cannot be met.*predicted sites"),
    ("inducing", {"importance": lgm.Importance(copula=True)}, r"close to the posterior of f"),
    ("no theta", {"n_importance": 1, "latent_move": None}, r"would never move.*latent_move='hmc'"),
    ("no theta", {"n_importance": 1}, None),
    ("no theta", {"latent_move": None} | A_PAIR, r"or only to its mirror image"),
    ("errors", {"importance": lgm.Importance(copula=True)}, r"q is the posterior of f"),
]


def test_a_single_pair_is_drawn_only_if_theta_brings_others():
    """The partner of f is its mirror image, so f would go back and forth between two values."""
    assert plan(INDUCING, Options()).antithetic
    assert not plan(replace(INDUCING, p=0), Options()).antithetic
    assert not plan(INDUCING, Options(move="slice")).antithetic
    assert plan(NO_THETA, Options()).antithetic  # eight draws
    assert not plan(NO_THETA, Options(n_importance=2)).antithetic


@pytest.mark.parametrize(("name", "options", "message"), REFUSED)
def test_an_option_that_cannot_be_met_is_refused(name, options, message):
    if message is None:
        plan(FACTS[name], Options(**options))
        return
    with pytest.raises(ValueError, match=message):
        plan(FACTS[name], Options(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"move": "slice", "scale": 1.0}, "move='slice' has none"),
        ({"n_importance": 1, "move": "slice", "latent_move": None}, "only as theta carries it"),
        (A_PAIR | {"move": "slice", "latent_move": None}, "only as theta carries it"),
        (
            {"sampler": "ApproximateMarginal", "importance": lgm.Importance(correlation=0.9)},
            "leave out correlation=",
        ),
        ({"sampler": "ExactMarginal", "move": "delayed-metropolis"}, "is unknown"),
    ],
)
def test_options_that_contradict_each_other_are_refused_without_a_model(options, message):
    with pytest.raises(ValueError, match=message):
        Options(**options)


CHOICES = {
    "approximation": (None, "laplace", "ep", "variational"),
    "move": (None, "emulator", "nuts", "metropolis", "slice"),
    "n_importance": (None, 1, 4),
    "latent_move": ("auto", "posterior", "hmc", None),
    "sites": (None, "predicted", "optimized"),
    "interweave": (None, True, False),
    "correlation": (None, 0.0, 1.0),
    "copula": (None, True, False),
}


def test_no_option_is_overwritten():
    """All options of every kind of model: a plan has them as they are, or refuses one."""
    rng, made_of = np.random.default_rng(1), list(product(*CHOICES.values()))
    planned = 0
    for name, facts in FACTS.items():
        for k in rng.choice(len(made_of), 300, replace=False):
            given = dict(zip(CHOICES, made_of[k], strict=True))
            importance = lgm.Importance(given.pop("correlation"), copula=given.pop("copula"))
            try:
                made = plan(facts, Options(importance=importance, **given))
            except ValueError:
                continue
            planned += 1
            assert given["approximation"] in (None, made.approximation), name
            assert given["move"] in (None, made.theta_move), name
            assert given["n_importance"] == made.n_importance, name
            assert given["latent_move"] in ("auto", made.latent_move), name
            assert given["sites"] in (None, made.sites), name
            assert given["interweave"] in (None, made.interweaves), name
            if importance.correlation is not None:
                assert (made.correlation, made.estimates) == (importance.correlation, "redrawn")
            if importance.copula is not None:
                assert (made.skewness is not None) == importance.copula, name
            assert all(made.why.values())
    assert planned > 800


@pytest.mark.parametrize("options", [{}, {"interweave": True}, {"move": "slice"}])
@pytest.mark.parametrize("name", FACTS)
def test_shares_add_up(name, options):
    made = plan(FACTS[name], Options(**options))
    of_theta = [each for each in made.moves if each.move.startswith("theta")]
    if not made.facts.p:
        assert not of_theta
        return
    walk = [each for each in of_theta if "whitened" in each.move]
    others = [each for each in of_theta if each not in walk]
    for least, most in (("least", "most"), ("most", "least")):
        total = sum(getattr(each, most) for each in others)
        assert total + sum(getattr(each, least) for each in walk) == pytest.approx(1.0)


@pytest.mark.parametrize("name", FACTS)
def test_a_plan_can_be_read(name):
    text = str(plan(FACTS[name], Options()))
    assert max(map(len, text.splitlines())) <= 96
    assert "approximation  " in text
    assert "None" not in text


def of_fields(name):
    return lambda: test_fields.build(test_fields.MODELS[name])


def of_predictor(name):
    return lambda: test_predictor.build(name)


def of_series(name):
    return lambda: test_series.build(name)


def of_gmrf(name):
    return lambda: test_gmrf.built(name)


PLANNED = {name: lambda name=name: listed(name) for name in MODELS}
PLANNED |= {f"field {name}": of_fields(name) for name in list(test_fields.MODELS)[:5]}
PLANNED |= {f"predictor {name}": of_predictor(name) for name in list(test_predictor.MODELS)[:7]}
PLANNED |= {f"series {name}": of_series(name) for name in list(test_series.MODELS)[:4]}
PLANNED |= {f"gmrf {name}": of_gmrf(name) for name in list(test_gmrf.MODELS)[:4]}
PLANNED |= {
    "features": lambda: test_random_features.counts()[0],
    "inducing": test_inducing.model,
    "softmax": lambda: test_sparse_classes.classes_model("Softmax")[0],
}

FOUR_THETAS = TABLE["counts"].replace("metropolis", "nuts")
PLANS = dict.fromkeys(PLANNED, TABLE["counts"])
PLANS |= dict.fromkeys(("ordinal_probit", "negative_binomial"), FOUR_THETAS)
PLANS |= {"student_t": TABLE["student"].replace("metropolis", "nuts")}
PLANS |= {name: TABLE["series"] for name in PLANNED if name.startswith("series")}
PLANS |= {name: TABLE["sum"] for name in PLANNED if name.startswith("gmrf")}
PLANS |= {name: TABLE["effects"] for name in PLANNED if name.startswith("field")}
PLANS |= {"field a_field_alone": TABLE["sum"]}  # no effects beside it
PLANS |= dict.fromkeys(("features", "inducing"), TABLE["inducing"])
PLANS |= {"softmax": TABLE["inducing"].replace("ep", "variational")}


def test_costly_draws_of_a_transport_map_may_be_noisier():
    """If a factorization takes a second. Other draws cost none."""
    costly, plain = replace(SERIES, seconds=1.0), Options(importance=lgm.Importance(copula=False))
    assert plan(SERIES, Options()).noise == SMALL_NOISE
    assert plan(costly, Options()).noise == LARGEST_NOISE
    assert plan(costly, plain).noise == SMALL_NOISE


@pytest.mark.slow
@pytest.mark.fast("probit", "student_t", "series stationary")
@pytest.mark.parametrize("name", PLANNED)
def test_the_default_of_a_model(name):
    step = build(lgm.PseudoMarginal, PLANNED[name]())
    assert row(step.plan) == PLANS[name]
    assert step.plan == plan(Facts.of(step.lgm), Options())
    element = step.elements[-1]
    assert (element.fewest, element.copula) == (step.plan.fewest, step.plan.fits_margins)
    assert element.noise == step.plan.noise
    assert (element.latent is None) == (step.plan.latent_move is None)
    assert (element.interweave is None) != step.plan.interweaves


def test_a_plan_names_variables_as_the_user_does():
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.HalfNormal("eta") * pm.gp.cov.ExpQuad(1, ls=1.0))
        level = pm.Normal("level")
        f = gp.prior("f", np.arange(3.0)[:, None])
        pm.Poisson("y", pm.math.exp(level + f), observed=[1, 0, 2])
    made = build(lgm.PseudoMarginal, model).plan
    assert set(made.integrated) == {"f", "level"}
    assert made.why["integrated"].startswith("Given theta they are Gaussian")
    asked = build(lgm.PseudoMarginal, model, approximation="laplace").plan
    assert asked.why["approximation"] == ASKED


MOVES = [{}, {"move": "nuts"}, {"move": "slice", "n_importance": 4}]
MEASURED = [
    pytest.param(name, options, marks=[pytest.mark.whole] * (i != j or name == "probit"))
    for i, name in enumerate(["series stationary", "student_t", "probit"])
    for j, options in enumerate(MOVES)
]
"""Two moves, and each on one model; before a release all pairs."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), MEASURED)
def test_the_estimated_cost_is_near_the_one_measured(name, options):
    model = PLANNED[name]()
    step = build(lgm.PseudoMarginal, model, compiled=True, **options)
    step.setup_chain(np.random.default_rng(1), 300, 100)
    point, ops = model.initial_point(), []
    for i in range(400):
        if i == 300:
            step.stop_tuning()
        point, (stats,) = step.step(point)
        ops.append(stats["cubic_ops"])
    least, most = step.plan.cost
    assert 0.7 * least <= np.mean(ops[300:]) <= 1.5 * most


def test_a_report_prints_the_plan():
    made, rng = plan(COUNTS, Options()), np.random.default_rng(1)
    idata = az.from_dict({"posterior": {"eta": rng.normal(size=(2, 100))}})
    found = lgm.report(idata, backend="none", plan=made)
    assert str(made) in str(found)
    assert "Plan of PseudoMarginal" in found._repr_html_()
    assert "Plan of" not in str(lgm.report(idata, backend="none"))
