# %% [markdown]
# # Writing a sampler, and finding out whether it is right
#
# A general sampler knows nothing of your likelihood. Sometimes you do. Here is a sampler for
# probit classification that uses what is special about it, in some forty lines: tuning,
# statistics and PyMC's contract come from the package, and so does the test that tells a right
# sampler from one that only looks right. [Extending](../extending.md) is the reference; this is a
# story.

# %%
import math
import sys

from dataclasses import dataclass
from functools import partial

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

from scipy.special import log_ndtr, ndtri_exp

import pymc_lgm as lgm

from pymc_lgm import kernels
from pymc_lgm.kernels.hold.target import Target
from pymc_lgm.steps import LatentGaussianStep

# %% [markdown]
# ## The idea
#
# A probit outcome is the sign of a *utility* z = f + ε with standard normal noise ε: y = 1 where
# z is positive. Suppose that z were known. Then everything else is Gaussian (Albert and Chib
# 1993):
#
# 1. z given f and y is normal with mean f, cut off at 0 on the wrong side: easy to draw;
# 2. theta given z: f can be *integrated out*, for z ~ N(m, K + I), and f no longer holds theta in
#    place;
# 3. f given z and theta is Gaussian.
#
# Each step leaves a conditional law of p(theta, f, z | y) invariant, so the three together leave
# the whole invariant, in this order: 2 and 3 are one move of (theta, f) given z, in which f has
# to come last (van Dyk and Park 2008).
#
# ## The parameterization
#
# In the words of this package, z is what is *held fixed* while theta moves: a parameterization,
# `fix(rng, state) -> target`. The target evaluates a theta: its log density, and the state there.
# Any move of theta then works on it, so we need not write one.
#
# Step 3 is Matheron's rule: draw f* and z* from the prior, then correct by what z says. Their
# random numbers are drawn once, which makes f a function of theta, as the target wants it.


# %%
def utilities(rng, state, *, noisy=True):
    """Hold z = f + ε, with f integrated out: log N(z; m, K + I) + log p(theta)."""
    n, sign = state.f.size, state.model.probit_signs()  # +1 where y = 1, -1 where y = 0
    # x is standard normal below sign f: its distribution function inverted, in logs.
    x = ndtri_exp(log_ndtr(sign * state.f) - rng.standard_exponential(n))
    z = state.f - sign * x
    xi = rng.standard_normal(n)
    noise = rng.standard_normal(n) if noisy else np.zeros(n)  # always noisy: see below

    def evaluate(theta):
        at = state.at.moved(theta)
        if at is None:  # outside the prior's support
            return -math.inf, None
        prior = at.prior
        posterior = prior.condition(np.ones(n))  # given z, whose noise has precision 1
        if posterior is None or not at.is_proper:
            return -math.inf, None
        fresh = prior.mean + prior.multiply(xi)  # f* = m + L xi
        there = at.state(fresh + posterior.given(z - (fresh + noise)))
        log_density = posterior.log_density_of_data(z - prior.mean) + at.log_prior
        return (-math.inf, None) if there is None else (log_density, there)

    log_density, here = evaluate(state.theta)  # a new f, even if theta will not move
    return Target(here or state, log_density, evaluate)


# %% [markdown]
# `state.at.moved` looks at another theta: its log prior and its prior of f, N(m, K). `condition`,
# `given`, `multiply` hide LAPACK, and count: an evaluation is two O(n³) operations, one for K + I
# and one for the factor of K. A value that cannot be computed is `None`, and the move is then
# rejected.
#
# ## The step method
#
# Two small classes. An *element* joins the kernel and its tuning; here the move brings the tuning
# along, so it only has to be passed on. A *step method* names its elements.


# %%
@dataclass(frozen=True)
class Utilities:
    """An element: moves theta with z held."""

    fix: object = utilities
    move: object = kernels.Metropolis(scale=0.5)
    stats = kernels.Metropolis.stats  # become sample_stats

    def start(self, state, tune):
        """Begin as the move does."""
        return self.move.start(state, tune)

    def run(self, rng, state, tuning, tune):
        """Draw z, and move."""
        return self.move.run(rng, self.fix(rng, state), tuning, tune)


class ProbitUtilities(LatentGaussianStep):
    """Move f and theta by data augmentation."""

    name = "probit_utilities"

    def __init__(self, vars=None, *, fix=utilities, **kwargs):
        self.element = Utilities(fix)
        super().__init__(vars, **kwargs)

    def _sweep(self):
        if self.lgm.probit_signs() is None:
            raise ValueError("ProbitUtilities needs one lgm.Probit of f. Write lgm.ASIS().")
        return [self.element]


# %% [markdown]
# ## Is it right?
#
# `lgm.testing.joint_test` draws (theta, f) from the prior and y given f, runs the sampler for
# some steps, and asks whether (theta, f, y) still has the law that it was drawn from. If the
# sampler leaves the posterior invariant, it must, whatever y is. The model is tiny, since it is
# drawn thousands of times; the mean is not zero and the amplitude not small, so that errors show;
# and the data are a `pm.Data`, so that they can be replaced.

# %%
with pm.Model() as tiny:
    mean = pm.Normal("mean", 1.2, 0.5)
    amplitude = pm.LogNormal("amplitude", 0.3, 0.4)
    cov = amplitude**2 * pm.gp.cov.Matern32(1, ls=1.0)
    gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(mean), cov_func=cov)
    f = gp.prior("f", np.array([[0.0], [0.5], [1.4]]), reparameterize=False)
    lgm.Probit("y", f=f, observed=pm.Data("classes", [0, 1, 1]))


def check(fix, seed):
    with tiny:
        step = ProbitUtilities(fix=fix)
    rng = np.random.default_rng(seed)
    return lgm.testing.joint_test(step, tiny, replicates=2_000, steps=3, rng=rng)


right = check(utilities, seed=1)
print(right)

# %% [markdown]
# The p-value is honest, with independent replicates and corrected for the number of test
# functions: below 0.001 there would be a mistake, and this is far above.
#
# ## Would it have noticed?
#
# A test that cannot fail says nothing. So make a mistake, and a natural one. Matheron's rule
# compares z with *fresh utilities*, f* plus noise, and whoever forgets that noise still has the
# right mean:

# %%
without_noise = partial(utilities, noisy=False)
wrong = check(without_noise, seed=2)
print(wrong)

# %% [markdown]
# Caught. Now the same mistake on real data, without the test: would the diagnostics have told?
#
# ## On real data
#
# 100 Pima women of whom nothing is missing: diabetes given glucose, body mass and age. Plain
# `pm.sample()` is the reference, and `lgm.ASIS` one to compare with.

# %%
women = lgm.datasets.load_pima()
measured = ["glucose", "pressure", "triceps", "insulin", "mass"]  # 0 stands for a missing value
women = women[(women[measured] > 0).all(axis=1)].head(100)
features = women[["glucose", "mass", "age"]]
X = ((features - features.mean()) / features.std()).to_numpy()

with pm.Model(coords={"woman": women.index}) as model:
    mean = pm.Normal("mean", 0, 1)
    length = pm.InverseGamma("length", 3, 4)
    amplitude = pm.HalfNormal("amplitude", 2)
    cov = amplitude**2 * pm.gp.cov.ExpQuad(3, ls=length)
    gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(mean), cov_func=cov)
    f = gp.prior("f", X, reparameterize=False, dims="woman")
    lgm.Probit("diabetes", f=f, observed=women["y"].to_numpy(), dims="woman")

THETA = ["mean", "length", "amplitude"]


def sample(draws, make=lambda: None):
    with model:
        return pm.sample(draws, chains=4, cores=1, step=make(), random_seed=1, progressbar=False)


idata = sample(3_000, ProbitUtilities)
traces = {
    "ProbitUtilities": idata,
    "without noise": sample(3_000, lambda: ProbitUtilities(fix=without_noise)),
    "ASIS": sample(3_000, lgm.ASIS),
    "pm.sample()": sample(1_000),
}
print(az.summary(idata, var_names=THETA))

# %%
groups = {"theta": THETA, "f": "f"}
tables = {name: lgm.efficiency(trace, groups).T for name, trace in traces.items()}
print(pd.concat(tables, axis=1).round(3).to_string())

# %% [markdown]
# The first two are twins. R-hat, effective draws, acceptance: none of them distinguishes the wrong
# sampler from the right one. These statistics measure whether chains *mix*, and the wrong sampler
# mixes well, but towards another distribution. Only a comparison with an exact answer shows the
# error:

# %%
spread = {name: trace.posterior["f"].std(("chain", "draw")) for name, trace in traces.items()}
figure, (left, middle) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
for result, label, color in ((right, "right", "C0"), (wrong, "without noise", "C3")):
    pvalues = np.sort(list(result.pvalues.values()))
    left.plot(np.arange(1, pvalues.size + 1), pvalues, "o", ms=4, color=color, label=label)
left.axhline(1e-3 / pvalues.size, color="0.5", lw=1, ls="--", label="fails below")
left.set_yscale("log")
left.set(xlabel="test function, by rank", ylabel="p-value", title="The joint test")
left.legend(frameon=False)
for name, label, color in (
    ("ProbitUtilities", "right", "C0"),
    ("without noise", "without noise", "C3"),
):
    middle.plot(spread["pm.sample()"], spread[name], "o", ms=3, color=color, label=label)
middle.axline((1, 1), slope=1, color="0.5", lw=1)
middle.set(
    xlabel="sd of f by pm.sample()", ylabel="sd of f", title="What would have been published"
)
_ = middle.legend(frameon=False)
print({name: round(float(value.mean()), 3) for name, value in spread.items()})

# %% tags=["remove-cell"]
# As a script, `python examples/writing_a_sampler.py picture.png` saves the picture.
if "__file__" in globals() and len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=120)

# %% [markdown]
# ## Was it worth writing?
#
# `ess_per_1000_ops` of theta in the table answers. Beside `ASIS`, which holds f and then f
# whitened, yes: knowing the likelihood pays, since a utility says of f what its observation does
# and no more, and f is drawn afresh each time. Beside the default, no. That one integrates f out
# as well, by importance sampling, for any likelihood, and jumps.
#
# ## What next
#
# - The same skeleton, another target: any density of theta with something held fixed.
# - A move of f alone: [Extending](../extending.md), with tuning of its own.
# - To contribute one: CONTRIBUTING.md. It needs what this page had: a proof in print, a test that
#   it passes, and a mistake that the test catches.
#
# J. H. Albert and S. Chib (1993), *Bayesian analysis of binary and polychotomous response data*,
# JASA 88. D. A. van Dyk and T. Park (2008), *Partially collapsed Gibbs samplers*, JASA 103.
