"""Bad input gets an error that says what, where and what to write instead, before a chain starts;
what goes wrong during sampling is a counted rejection, and the chain goes on."""

from __future__ import annotations

import warnings

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from models import QUICK
from pymc.exceptions import SamplingError
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_lgm as lgm

from pymc_lgm.evidence import ep
from pymc_lgm.model import LatentGaussianModel
from pymc_lgm.steps import ASIS

pytestmark = pytest.mark.usefixtures("interpreted")

X = np.linspace(0, 1, 4)[:, None]
Y = [0, 1, 1, 0]
AS_WRITTEN = {"mode": Mode(linker="py", optimizer="fast_compile")}
"""The mode of Python in which log exp(f) is f, and exp(f) / (1 + exp(f)) overflows."""
SHORT: dict[str, Any] = {
    "chains": 1,
    "tune": 50,
    "draws": 50,
    "progressbar": False,
    "compute_convergence_checks": False,
    "random_seed": 1,
}


def latent(name: str = "f", X: Any = X, **kwargs: Any) -> Any:
    eta = pm.HalfNormal(f"eta_{name}")
    gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=0.3))
    return gp.prior(name, X, **({"reparameterize": False} | kwargs))


def read(**kwargs: Any) -> None:
    LatentGaussianModel.from_pymc(compile_kwargs=QUICK, **kwargs)


def step(vars: Any = None, sampler: Any = lgm.ASIS, **kwargs: Any) -> None:
    sampler(vars, compile_kwargs=QUICK, **kwargs)


CASES: list[Any] = []


def refused(
    *says: str, error: type[Exception] = ValueError, slow: bool = False
) -> Callable[[Any], Any]:
    """List a function as bad input; the message must match every one of `says`, in that order."""

    def listed(build: Callable[[], None]) -> Callable[[], None]:
        marks = [pytest.mark.slow] * slow
        said = "(?s)" + ".*".join(says)
        CASES.append(pytest.param(build, error, said, id=build.__name__, marks=marks))
        return build

    return listed


# Which latent


@refused("no latent Gaussian vector: 'm' is Gaussian, but 'y' reads one number", r"pm.NUTS\(\)")
def no_latent() -> None:
    pm.Normal("y", pm.Normal("m"), 1, observed=[1.0])
    step()


@refused(r"none of its free variables \(s, b\)", "effects, .* as pm.Normal", r"pm.NUTS\(\)")
def effects_that_are_not_gaussian() -> None:
    b = pm.Laplace("b", 0, pm.HalfNormal("s"), shape=4)
    pm.Poisson("y", pm.math.exp(b), observed=Y)
    step()


@refused("'b' is Gaussian, but 'k', which is discrete, decides how it enters")
def effects_of_classes_that_are_not_known() -> None:
    k, b = pm.Categorical("k", p=np.full(3, 1 / 3), shape=4), pm.Normal("b", shape=3)
    pm.Normal("y", b[k], 1, observed=Y)
    step()


@refused("'b' could be latent, but hyper-parameters are named", r"PseudoMarginal\(\[b, \.\.\.")
def effects_that_are_not_named() -> None:
    s = pm.HalfNormal("s")
    pm.Poisson("y", pm.math.exp(pm.Normal("b", 0, s, shape=4)), observed=Y)
    step([s])


@refused("does not read variables of pymc.dims, here 's'", r"pm.Normal\('u'", r"pm.NUTS\(\)")
def variables_with_labels() -> None:
    from pymc import dims

    s = dims.HalfNormal("s", sigma=1)
    pm.Poisson("y", pm.math.exp(pm.Normal("b", 0, s.values, shape=4)), observed=Y)
    step()


@refused("'b' has a transform, so it is not Gaussian", "Remove transform=")
def effects_with_bounds() -> None:
    within = pm.distributions.transforms.Interval(-3, 3)
    pm.Poisson("y", pm.math.exp(pm.Normal("b", shape=4, transform=within)), observed=Y)
    step()


@refused("density of 'y' draws random numbers", "Write the density of the data")
def data_that_are_simulated() -> None:
    b = pm.Normal("b", shape=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of PyTensor, about PyMC
        pm.Simulator("y", lambda rng, b, size: rng.normal(b, 1.0), b, observed=np.zeros(4))
    step()


@refused("density of 'p' draws random numbers")
def a_potential_that_draws_a_number() -> None:
    """It was a random coefficient of the predictor."""
    b = pm.Normal("b", 0, pm.HalfNormal("s"), shape=4)
    pm.Potential("p", 0.1 * pm.Normal.dist() * pm.math.sum(b))
    pm.Poisson("y", pm.math.exp(b), observed=Y)
    step()


@refused("'xx' is Gaussian and has 20 elements, but the prior of 'f' depends on it")
def inputs_that_are_uncertain() -> None:
    inputs = pm.Normal("xx", np.arange(20.0), 0.1, shape=20)
    pm.Poisson("y", pm.math.exp(latent(X=inputs[:, None])), observed=np.ones(20))
    step()


@refused("No density depends on 'b'", "no likelihood to sample from. Write one")
def effects_without_a_likelihood() -> None:
    pm.Normal("b", 0, pm.HalfNormal("s"), shape=4)
    step()


def student(reparameterize: bool) -> None:
    gp = pm.gp.TP(scale_func=pm.gp.cov.ExpQuad(1, 0.3), nu=4)
    pm.Poisson("y", pm.math.exp(gp.prior("f", X, reparameterize=reparameterize)), observed=Y)
    step()


@refused("'f' is a Student t process", "pm.gp.Latent", r"step=pm.NUTS\(\)")
def student_process() -> None:
    student(False)


@refused("'f' is a Student t process", "pm.gp.Latent", r"step=pm.NUTS\(\)")
def whitened_student_process() -> None:
    student(True)


@refused("integrated out already: 'y' is a pm.Potential", "pm.gp.MarginalApprox", "NUTS")
def process_that_is_approximated() -> None:
    gp = pm.gp.MarginalApprox(cov_func=pm.gp.cov.ExpQuad(1, 0.3))
    gp.marginal_likelihood("y", X, X[:2], np.zeros(len(X)), sigma=pm.HalfNormal("s"))
    step()


@refused("integrated out already: 'y' is an observed pm.KroneckerNormal", "MarginalKron", "NUTS")
def process_on_a_grid() -> None:
    gp = pm.gp.MarginalKron(cov_funcs=[pm.gp.cov.ExpQuad(1, 0.3)] * 2)
    gp.marginal_likelihood("y", [X, X], np.zeros(len(X) ** 2), sigma=pm.HalfNormal("s"))
    step()


@refused("'eta_f' is not a latent Gaussian vector", "This model has: f")
def named_latent_is_no_mvnormal() -> None:
    lgm.Probit("y", f=latent(), observed=Y)
    read(latent="eta_f")


@refused("'h' is not a latent Gaussian vector", "This model has: f")
def named_latent_does_not_exist() -> None:
    lgm.Probit("y", f=latent(), observed=Y)
    read(latent="h")


@refused("'f' has a transform", "Remove transform=")
def transformed_latent() -> None:
    log = pm.distributions.transforms.log
    f = pm.MvNormal("f", mu=np.zeros(4), cov=np.eye(4), transform=log, initval=np.ones(4))
    pm.Poisson("y", f, observed=Y)
    step()


@refused("Nothing depends on the latent 'f'", r"lgm.Probit\('y', f=f")
def no_likelihood() -> None:
    latent()
    step()


@refused("Nothing depends on the latent 'f'", r"lgm.Probit\('y', f=f")
def no_likelihood_of_a_field() -> None:
    lgm.gmrf.RandomWalk("f", sigma=pm.HalfNormal("s"), shape=4)
    step()


# The likelihood and theta


@refused("'y' joins more than 12 elements of 'f'", r"lgm.ASIS\(\)")
def coupled_likelihood() -> None:
    f = pm.MvNormal("f", np.zeros(13), np.eye(13))
    lgm.Probit("y", f=f**2 - (f**2).mean(), observed=np.ones(13))
    lgm.PseudoMarginal(compile_kwargs=QUICK)


@refused("'y' joins more than 12 elements of 'f'", "a pm.AR for example", r"lgm.ExactMarginal\(\)")
def correlated_errors() -> None:
    f = pm.MvNormal("f", np.zeros(13), np.eye(13))
    pm.MvNormal("y", f, cov=0.5 + 0.5 * np.eye(13), observed=np.ones(13))
    lgm.PseudoMarginal(compile_kwargs=QUICK)


@refused("'smooth' joins more than 12 elements", r"latent_move='smmala' approximates", slow=True)
def coupled_potential() -> None:
    f = pm.MvNormal("f", np.zeros(13), np.eye(13))
    lgm.Probit("y", f=f, observed=np.ones(13))
    pm.Potential("smooth", -pm.math.logsumexp(f))
    lgm.Sweep(latent_move="smmala", compile_kwargs=QUICK)


@refused(
    "joins more than 12 elements", "'surrogate-site' approximates", r"lgm.LatentHMC\(\)", slow=True
)
def coupled_likelihood_and_surrogate_data() -> None:
    f = pm.MvNormal("f", np.zeros(13), np.eye(13))
    lgm.Probit("y", f=f**2 - (f**2).mean(), observed=np.ones(13))
    lgm.SurrogateSlice(compile_kwargs=QUICK)


@refused("does not factorize over 'f'", "approximate evidence needs", slow=True)
def coupled_likelihood_and_an_evidence() -> None:
    lgm.Softmax("y", f=pm.MvNormal("f", np.zeros(2), np.eye(2), shape=(2, 2)), observed=[0, 1])
    ep()


@refused("observed.2. is 3", "class from 0 to 2", "return_inverse=True")
def a_label_of_no_class() -> None:
    lgm.Softmax("y", f=np.zeros((3, 4)), observed=[0, 1, 3, 2])


@refused(
    "'y' is -inf at index 2 .1 of 4",
    "value there is 3",
    "outside the support",
    "correct it",
    slow=True,
)
def a_categorical_label_above_all() -> None:
    pm.Categorical("y", logit_p=latent(n_outputs=3).T, observed=[0, 1, 3, 2])
    step(sampler=lgm.PseudoMarginal)


@refused(
    "'y' is -inf at index 1 .1 of 4",
    "value there is -1",
    "outside the support",
    "correct it",
    slow=True,
)
def a_categorical_label_below_all() -> None:
    pm.Categorical("y", logit_p=latent(n_outputs=3).T, observed=pm.Data("seen", [0, -1, 1, 2]))
    step()


@refused("f has shape .5,", r"observed has shape \(4,\)")
def classes_of_other_points() -> None:
    lgm.Softmax("y", f=np.zeros((3, 5)), observed=[0, 1, 2, 2])


@refused("one row per class, or a list of C vectors")
def classes_of_a_number() -> None:
    lgm.Softmax("y", f=0.5, observed=[0, 1])


@refused("cannot move 'k'", "discrete", "Leave it out", "step of its own")
def discrete_theta() -> None:
    k, f = pm.Poisson("k", 2), latent()
    lgm.Probit("y", f=f * k, observed=Y)
    step([f, k])


@refused("'k' cannot be part of theta", "continuous", "Leave it out")
def discrete_theta_for_the_reader() -> None:
    k, f = pm.Poisson("k", 2), latent()
    lgm.Probit("y", f=f * k, observed=Y)
    read(theta=[k])


@refused("'f' cannot be part of theta", "other than f", "Leave it out")
def latent_as_theta() -> None:
    f = latent()
    lgm.Probit("y", f=f, observed=Y)
    read(theta=[f])


class Opaque(Op):
    """NumPy code without a gradient."""

    def make_node(self, x: Any) -> Apply:
        x = pt.as_tensor_variable(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        outputs[0][0] = np.sinh(inputs[0])


@refused(
    "likelihood .y. cannot be differentiated", "gradient in 'f'", "latent_move='slice'", slow=True
)
def hmc_without_a_gradient() -> None:
    pm.Normal("y", Opaque()(latent()), 1, observed=Y)
    step(latent_move="hmc")


# Data


@refused("y: observed.1. is 0.5", "Probit needs 0 or 1", "recode")
def half_in_a_binary_outcome() -> None:
    lgm.Probit("y", f=latent(), observed=[0, 0.5, 1, 1])


@refused("y: observed.1. is -1", "LogGaussianCox needs counts")
def negative_count() -> None:
    lgm.LogGaussianCox("y", f=latent(), observed=[0, -1, 1, 1])


@refused("'y' is -inf at index 1 .1 of 4", "value there is -1", "choose another likelihood")
def negative_count_in_a_poisson() -> None:
    pm.Poisson("y", pm.math.exp(latent()), observed=[0, -1, 1, 1])
    step()


@refused(
    "'y' is -inf at index 2 .1 of 4", "value there is 1.5", "choose another likelihood", slow=True
)
def share_above_one() -> None:
    pm.Beta("y", mu=pm.math.sigmoid(latent()), sigma=0.1, observed=[0.1, 0.2, 1.5, 0.3])
    step()


@refused("'y' is nan at index 1 .1 of 4", "value there is nan", "mask it as missing")
def nan_in_y() -> None:
    # As an array it would be a missing value; PyMC refuses NaN when pm.Data is made.
    data = pm.Data("data", np.zeros(4))
    pm.Normal("y", latent(), 1, observed=data)
    data.set_value(np.array([0, np.nan, 0, 0]))
    step()


@refused("covariance of 'f' is nan at .2, 2.", "Row 2 of X", "remove or impute")
def nan_in_X() -> None:
    lgm.Probit("y", f=latent(X=np.where(X[2] == X, np.nan, X)), observed=Y)
    step()


@refused("mean of 'f' is nan at index 2", "Remove or impute", "row of X")
def nan_in_the_mean() -> None:
    x = np.where(X[2] == X, np.nan, X)[:, 0]
    f = pm.MvNormal("f", mu=pm.HalfNormal("slope") * x, cov=np.eye(4))
    lgm.Probit("y", f=f, observed=Y)
    step()


@refused(r"'slope \+ f' is nan at index 2", "Remove or impute", "row of X")
def nan_beside_a_coefficient_of_the_mean() -> None:
    x = np.where(X[2] == X, np.nan, X)[:, 0]
    f = pm.MvNormal("f", mu=pm.Normal("slope") * x, cov=np.eye(4))
    lgm.Probit("y", f=f, observed=Y)
    step(sampler=lgm.PseudoMarginal)


@refused("joins more than 12 elements of 'e'", "A pytensor.scan reads 'e'", "pm.AR", r"ASIS\(\)")
def recursion_in_a_scan() -> None:
    e, rho = pm.Normal("e", shape=14), pm.Beta("rho", 2.0, 2.0)
    x = pytensor.scan(
        lambda now, before, rho: rho * before + now,
        sequences=[e],
        outputs_info=[pt.zeros(())],
        non_sequences=[rho],
        return_updates=False,
    )
    pm.Poisson("y", pm.math.exp(x), observed=np.ones(14, dtype=int))
    step(sampler=lgm.PseudoMarginal)


def with_exposures_of_zero(latent: Any) -> None:
    exposure = pm.Data("exposure", [2.0, 1.0, 0.0, 3.0])
    pm.Poisson("y", pm.math.exp(latent + pm.math.log(exposure)), observed=[1, 2, 0, 1])
    step(sampler=lgm.PseudoMarginal)


OF_EXPOSURES = "-inf at index 2", "The log of 0 is -inf", r"mu=exposure \* pm.math.exp\(eta\)"


@refused("predictor of 'u . b'", *OF_EXPOSURES)
def log_of_exposures_of_zero() -> None:
    u = pm.Normal("u", 0, pm.HalfNormal("s"), shape=2)
    with_exposures_of_zero(pm.Normal("b") + u[[0, 0, 1, 1]])


@refused("predictor of 'f_rotated_'", *OF_EXPOSURES)
def log_of_exposures_of_zero_beside_a_process() -> None:
    with_exposures_of_zero(latent(reparameterize=True))


@refused(r"'f' has shape \(4,\)", r"'y': \(5,\)", r"f\[group\]")
def more_observations_than_latents() -> None:
    pm.Bernoulli("y", logit_p=latent(), observed=[0, 1, 1, 0, 1])
    step()


@refused(r"'f' has shape \(4,\)", r"'y': \(5,\)", r"f\[group\]", slow=True)
def more_observations_than_latents_in_data() -> None:
    data = pm.Data("data", [0, 1, 1, 0, 1])
    pm.Bernoulli("y", logit_p=latent(X=pm.Data("X", X)), observed=data)
    step()


@refused("y: f has shape .4,. and observed has shape .5,.", r"f\[group\]")
def more_observations_than_latents_in_ours() -> None:
    lgm.Probit("y", f=latent(), observed=[0, 1, 1, 0, 1])


@refused(r"covariance of 'f' has shape \(3, 3\)", "'f' has 4 elements", "the same n")
def covariance_smaller_than_the_mean() -> None:
    K = pm.HalfNormal("eta") * pm.Data("K", np.eye(3))
    f = pm.MvNormal("f", mu=pm.Data("m", np.zeros(4)), cov=K, shape=4)
    pm.Bernoulli("y", logit_p=f, observed=Y)
    step()


# Starting points, options, configuration


@refused("variance of 'b' is 0.0 at index 0", "d=0", "start elsewhere, with initval=")
def a_standard_deviation_that_starts_at_zero() -> None:
    b = pm.Normal("b", 0, abs(pm.Normal("d")), shape=2)
    pm.Poisson("y", pm.math.exp(b[[0, 0, 1, 1]] + b[[1, 0, 1, 0]]), observed=Y)
    read()


@refused("not positive definite", "eta_f_log__=0", "condition number", r"jitter=1e-1\d\)")
def covariance_without_jitter() -> None:
    lgm.Probit("y", f=latent(X=np.zeros((4, 1)), jitter=0), observed=Y)
    step()


@refused("covariance of 'f . a' is not positive", r"gp.prior\('f', X", slow=True)
def a_process_without_jitter_beside_an_effect() -> None:
    f = latent(X=np.zeros((4, 1)), jitter=0)
    pm.Poisson("y", pm.math.exp(pm.Normal("a") + f + 0.0 * X[:, 0]), observed=Y)
    read()


@refused("'root' is nan", "a=0", "Start inside", "initval= .* and no step=", slow=True)
def nan_in_a_prior() -> None:
    pm.Potential("root", pt.sqrt(pm.Normal("a") - 1))
    lgm.Probit("y", f=latent(), observed=Y)
    step()


@refused("'f' is nan at index 3", "finite values, with initval=")
def nan_in_the_starting_f() -> None:
    lgm.Probit("y", f=latent(), observed=Y)
    start = pm.modelcontext(None).initial_point()
    step(initial_point=start | {"f": np.array([0, 0, 0, np.nan])})


@refused("floatX is 'float32'", "need float64", "floatX = 'float64' before the model")
def single_precision() -> None:
    with pytensor.config.change_flags(floatX="float32"):
        lgm.Probit("y", f=latent(), observed=Y)
        step()


@refused("latent_move='nuts' is unknown", "Choose from", "'hmc', 'slice'")
def unknown_value_of_an_option() -> None:
    lgm.Probit("y", f=latent(), observed=Y)
    step(latent_move="nuts")


@refused(r"lgm.ASIS has no option 'latnet'. It has: .*latent_move, latent_rep", error=TypeError)
def unknown_option() -> None:
    lgm.Probit("y", f=latent(), observed=Y)
    step(latnet="slice")


@refused(r"lgm.LatentHMC has no option 'latent'. It has", error=TypeError)
def advice_that_cannot_be_followed() -> None:
    lgm.Probit("y", f=latent(), observed=Y)
    step(sampler=lgm.LatentHMC, latent="slice")


@refused("KnorrHeldRue has no option 'n_importance'. It has: approximation, ", error=TypeError)
def two_draws_of_one() -> None:
    lgm.Probit("y", f=latent(), observed=Y)
    step(sampler=lgm.papers.KnorrHeldRue, n_importance=2)


@refused("latent_repeats must be a whole number of at least 1, not 0")
def no_repeats() -> None:
    lgm.Probit("y", f=latent(), observed=Y)
    step(latent_repeats=0)


@refused("target_accept must be between 0 and 1, not 1.2")
def a_target_that_no_walk_reaches() -> None:
    lgm.Probit("y", f=latent(), observed=Y)
    step(target_accept=1.2)


@refused("scale must be positive, not 0")
def a_slice_without_width() -> None:
    lgm.Probit("y", f=latent(), observed=Y)
    step(sampler=lgm.Sweep, move="slice", scale=0)


@refused("step_size must be positive, not 0.0")
def a_trajectory_that_goes_nowhere() -> None:
    lgm.Probit("y", f=latent(), observed=Y)
    step(sampler=lgm.LatentHMC, step_size=0.0)


@refused("options of a random walk", "move='slice' has none", "leave them out", slow=True)
def options_of_a_walk_for_a_slice() -> None:
    lgm.Probit("y", f=latent(), observed=Y)
    step(sampler=lgm.PseudoMarginal, move="slice", scale=0.5)


@refused("nowhere strictly concave in 'f'", r"Write lgm.LatentHMC\(\) or lgm.EllipticalSlice\(\)")
def a_metric_of_a_likelihood_without_curvature() -> None:
    pm.Potential("y", latent() * np.array([1.0, -1.0, 1.0, -1.0]))
    step(sampler=lgm.LatentHMC, metric="curvature")


@refused("Theta cannot move while f is fixed", "parameterization='whitened'", slow=True)
def f_of_random_features_for_a_move_that_holds_f() -> None:
    ls = pm.LogNormal("ls", 0.0, 0.5)
    gp = lgm.papers.RandomFeatures(3, cov_func=pm.gp.cov.ExpQuad(1, ls=ls))
    lgm.Probit("y", f=gp.prior("f", X), observed=Y)
    step(sampler=lgm.ASIS)


@refused("LatentHMC moves the latent 'f' only", "not eta_f_log__", r"lgm.ASIS\(\)")
def theta_for_a_move_of_f() -> None:
    f = latent()
    lgm.Probit("y", f=f, observed=Y)
    step([f, pm.modelcontext(None)["eta_f"]], lgm.LatentHMC)


@refused("given no hyper-parameters", r"lgm.ASIS\(\)", r"lgm.EllipticalSlice\(f\)")
def f_alone_for_a_sweep() -> None:
    f = latent()
    lgm.Probit("y", f=f, observed=Y)
    step([f])


@pytest.mark.parametrize(("build", "error", "says"), CASES)
def test_bad_input_is_refused(build: Callable[[], None], error: type[Exception], says: str) -> None:
    with pm.Model(), pytest.raises(error, match=says):
        build()


def test_the_jitter_that_the_error_suggests_will_do() -> None:
    def build(jitter: float) -> None:
        with pm.Model():
            lgm.Probit("y", f=latent(X=np.zeros((4, 1)), jitter=jitter), observed=Y)
            read()

    with pytest.raises(ValueError, match="jitter") as refusal:
        build(0.0)
    build(float(str(refusal.value).partition("jitter=")[2].partition(")")[0]))


# During sampling


def sample(model: pm.Model, **kwargs: Any) -> Any:
    with model:
        sweep = ASIS(compile_kwargs=AS_WRITTEN, **kwargs)
        idata = pm.sample(step=sweep, **SHORT)
    for values in idata["posterior"].values():
        assert np.isfinite(values).all()
    assert idata["posterior"].sizes["draw"] == SHORT["draws"]
    return idata


def rejections(idata: Any) -> int:
    return int(idata["sample_stats"]["numerical_rejections"].sum())


@pytest.mark.slow
@pytest.mark.parametrize("latent_move", ["hmc", pytest.param("slice", marks=pytest.mark.slow)])
def test_covariances_that_fail_for_long_length_scales(latent_move: str) -> None:
    with pm.Model() as model:
        ls = pm.LogNormal("ls", 0.5, 2.0, initval=0.2)
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=ls))
        x = np.linspace(0, 1, 12)[:, None]
        f = gp.prior("f", x, reparameterize=False, jitter=0.0)
        lgm.Probit("y", f=f, observed=np.arange(12) % 2)
    idata = sample(model, latent_move=latent_move, scale=2.0)
    assert rejections(idata) > 0
    assert idata["posterior"]["ls"].std() > 0


@pytest.mark.slow
@pytest.mark.parametrize("latent_move", ["hmc", "slice"])
def test_nan_from_user_code(latent_move: str) -> None:
    with pm.Model() as model:
        a = pm.Normal("a", 1, 1)
        f = latent()
        pm.Potential("theta_root", pt.sqrt(a))
        pm.Potential("f_root", pt.sqrt(f + 1))
        pm.Normal("y", f, 1, observed=Y)
    idata = sample(model, latent_move=latent_move, scale=1.0)
    assert rejections(idata) > 0
    assert (idata["posterior"]["a"] >= 0).all()
    assert (idata["posterior"]["f"] >= -1).all()


@pytest.mark.slow
def test_overflow_of_exp_f() -> None:
    """exp(f) overflows at 710: inf / inf from user code is counted, a density of zero is not."""
    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=1e6 * np.eye(3))
        rate = pm.math.exp(f)
        pm.Normal("y", rate / (1 + rate), 1, observed=[1, 2, 3])
    idata = sample(model, latent_move="slice")
    assert rejections(idata) > 0
    assert (idata["posterior"]["f"] < 710).all()

    with pm.Model() as model:
        f = pm.MvNormal("f", mu=np.zeros(3), cov=1e6 * np.eye(3))
        pm.Poisson("y", pm.math.exp(f), observed=[1, 2, 3])
    idata = sample(model, latent_move="slice")
    assert rejections(idata) == 0
    assert (idata["posterior"]["f"] < 710).all()


def test_a_chain_that_starts_where_the_density_is_undefined() -> None:
    with pm.Model():
        a = pm.Normal("a", 1, 1)
        pm.Potential("root", pt.sqrt(a))
        lgm.Probit("y", f=latent(), observed=Y)
        sweep = lgm.ASIS(compile_kwargs=QUICK)
        with pytest.raises(SamplingError, match=r"(?s)'root' is nan .*a=-1.*initvals"):
            pm.sample(step=sweep, initvals={"a": -1.0}, **SHORT)


@pytest.mark.slow
def test_a_chain_that_starts_outside_a_prior() -> None:
    with pm.Model():
        lgm.Probit("y", f=latent(), observed=Y)
        sweep = lgm.ASIS(compile_kwargs=QUICK)
        with (
            np.errstate(invalid="ignore"),
            pytest.raises(SamplingError, match=r"(?s)'eta_f' is nan .*eta_f_log__=nan.*initvals"),
        ):
            pm.sample(step=sweep, initvals={"eta_f": -1.0}, **SHORT)
