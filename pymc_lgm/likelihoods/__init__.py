"""Likelihoods p(y | f) of latent Gaussian models, as PyMC distributions.

Each takes the latent f of a model, does prior and posterior predictive sampling, and works with
``dims``, ``observed``, missing values, `pm.Data` and `pm.compute_log_likelihood` like any other
distribution of PyMC. They differ from others in three ways:

- **Three accurate derivatives in f.** The log density and its first, second and third derivative
  are finite for abs(f) up to 1000, and right to many digits also if the probability underflows.
- **Impossible data are refused when the model is built**, with the place and the value.
- **`pm.sample` chooses the default sampler of this package** if f is a `pymc.MvNormal`, or a
  process of `pymc.gp.Latent` or `pymc_lgm.gp.SparseLatent`, or random features. In any other model,
  write ``step=lgm.PseudoMarginal()``.

=====================  ==========================  =================================================
observations           likelihood                  model
=====================  ==========================  =================================================
yes or no              `Logistic`                  p(y = 1) = 1 / (1 + exp(-f))
yes or no              `Probit`                    p(y = 1) = Phi(f)
counts                 `LogGaussianCox`            y ~ Poisson(exposure * exp(f + offset))
returns                `CopulaVolatility`          y ~ Normal(0, exp(f))
ordered categories     `OrdinalProbit`             p(y <= k) = Phi((cutpoints[k] - f) / noise)
one of C classes       `Softmax`                   p(y = c) = exp(f_c) / sum_k exp(f_k)
one of C classes       `RobustMax`                 p(y = argmax f) = 1 - epsilon
=====================  ==========================  =================================================

How to choose: for yes or no, choose `Logistic` if f is to be the log-odds, or if some data are
mislabeled; `Probit` if y tells whether a measurement is above a threshold. They hardly differ near
f = 0. If counts vary more than a Poisson variable around exp(f), add a white-noise kernel to f.
For classes, `Softmax` is smooth; `RobustMax` has sharp boundaries, is robust against wrong labels,
and is meant for sparse processes. `CopulaVolatility` has mean zero: subtract the mean from returns
first.

To write a likelihood of your own, write an op that draws and a distribution with its ``logp``:

>>> import numpy as np
>>> import pymc as pm
>>> import pytensor.tensor as pt
>>> from pymc_lgm.likelihoods import Likelihood, LikelihoodRV
>>> class ExponentialRV(LikelihoodRV):
...     name = "log_gaussian_exponential"
...     extended_signature = "[rng],[size],()->[rng],()"
...     _print_name = ("LogGaussianExponential", "Exp")
...     is_log_concave = True  # in f; otherwise the samplers assume that it is not
...     bends_slowly = True  # no parameter is a scale of f: see `LikelihoodRV`
...
...     @classmethod
...     def draw(cls, f, *, size, rng):
...         return pt.random.exponential(pt.exp(f), size=size, rng=rng, return_next_rng=True)
>>> class LogGaussianExponential(Likelihood, pm.Continuous):
...     rv_type = ExponentialRV
...     rv_op = ExponentialRV.rv_op
...
...     @classmethod
...     def dist(cls, f, **kwargs):
...         return super().dist([f], **kwargs)
...
...     @classmethod
...     def outside_support(cls, values, shapes):
...         return ~(values >= 0), "non-negative numbers"
...
...     @staticmethod
...     def support_point(rv, size, f):
...         return pt.exp(f) + pt.zeros_like(rv)
...
...     @staticmethod
...     def logp(value, f):
...         return pt.switch(value >= 0, -f - value * pt.exp(-f), -np.inf)
>>> pm.logp(LogGaussianExponential.dist(f=0.0), 2.0).eval()
array(-2.)

An op of another kind opts in by inheriting from the mixin `LatentGaussianLikelihood`.
"""

from pymc_lgm.likelihoods.base import LatentGaussianLikelihood as LatentGaussianLikelihood
from pymc_lgm.likelihoods.base import Likelihood as Likelihood
from pymc_lgm.likelihoods.base import LikelihoodRV as LikelihoodRV
from pymc_lgm.likelihoods.base import (
    is_latent_gaussian_likelihood as is_latent_gaussian_likelihood,
)
from pymc_lgm.likelihoods.binary import Logistic as Logistic
from pymc_lgm.likelihoods.binary import Probit as Probit
from pymc_lgm.likelihoods.copula_volatility import CopulaVolatility as CopulaVolatility
from pymc_lgm.likelihoods.log_gaussian_cox import LogGaussianCox as LogGaussianCox
from pymc_lgm.likelihoods.ordinal_probit import OrdinalProbit as OrdinalProbit
from pymc_lgm.likelihoods.robust_max import RobustMax as RobustMax
from pymc_lgm.likelihoods.softmax import Softmax as Softmax

__all__ = [
    "CopulaVolatility",
    "LatentGaussianLikelihood",
    "Likelihood",
    "LikelihoodRV",
    "LogGaussianCox",
    "Logistic",
    "OrdinalProbit",
    "Probit",
    "RobustMax",
    "Softmax",
    "is_latent_gaussian_likelihood",
]
