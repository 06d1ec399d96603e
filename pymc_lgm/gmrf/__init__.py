r"""Gaussian Markov random fields as priors: walks, seasons, maps, interactions, fields on a mesh.

`RandomWalk`, `Seasonal`, `ICAR`, `Interaction` and `Intrinsic` are intrinsic: distributions of a
vector x with density

.. math::

   p(x \mid \sigma) = (2\pi\sigma^2)^{-(n-k)/2} \, |R|_*^{1/2}
   \exp\left(-\tfrac{1}{2\sigma^2} x^\top R x\right), \quad A x = 0,

with a sparse structure matrix R of rank n − k, and k linear constraints that set to zero what R
does not penalize. `BYM2` is a sum of an `ICAR` and independent effects. `Leroux` and `Matern` are
not constrained. The samplers of this package use the sparse precision: one sparse factorization per
value of theta for all terms of a model. NUTS samples n − k coordinates.

Examples
--------
A smooth trend of monthly counts, with a level and a slope of their own:

>>> import numpy as np, pymc as pm, pymc_lgm as lgm
>>> t = np.linspace(-1, 1, 24)
>>> y = np.random.default_rng(0).poisson(np.exp(1 + np.sin(3 * t)))
>>> with pm.Model() as model:
...     sigma = lgm.gmrf.pc_prior("sigma", upper=1.0, alpha=0.05)
...     trend = lgm.gmrf.RandomWalk("trend", order=2, sigma=sigma, shape=24)
...     beta = pm.Normal("beta", 0, 2, shape=2)
...     _ = pm.Poisson("y", pm.math.exp(beta[0] + beta[1] * t + trend), observed=y)
>>> lgm.read(model).check(draws=2).keys() >= {"sigma: the log prior"}
True
"""

from pymc_lgm.gaussian.structure import Structure as Structure
from pymc_lgm.gmrf.intrinsic import BYM2 as BYM2
from pymc_lgm.gmrf.intrinsic import ICAR as ICAR
from pymc_lgm.gmrf.intrinsic import ConstraintTransform as ConstraintTransform
from pymc_lgm.gmrf.intrinsic import Interaction as Interaction
from pymc_lgm.gmrf.intrinsic import Intrinsic as Intrinsic
from pymc_lgm.gmrf.intrinsic import IntrinsicRV as IntrinsicRV
from pymc_lgm.gmrf.intrinsic import Leroux as Leroux
from pymc_lgm.gmrf.intrinsic import RandomWalk as RandomWalk
from pymc_lgm.gmrf.intrinsic import Seasonal as Seasonal
from pymc_lgm.gmrf.intrinsic import pc_prior as pc_prior
from pymc_lgm.gmrf.matern import Matern as Matern
from pymc_lgm.gmrf.matern import MaternRV as MaternRV
from pymc_lgm.gmrf.matern import kappa_and_tau as kappa_and_tau
from pymc_lgm.gmrf.meshes import Mesh as Mesh

__all__ = [
    "BYM2",
    "ICAR",
    "Interaction",
    "Intrinsic",
    "Leroux",
    "Matern",
    "Mesh",
    "RandomWalk",
    "Seasonal",
    "Structure",
    "pc_prior",
]
