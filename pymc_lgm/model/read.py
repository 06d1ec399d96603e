"""Reading a `pymc.Model`: which variable is f, which are theta, and whether it can be sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor

from numpy.typing import NDArray
from pymc.distributions.multivariate import MvNormalRV

from pymc_lgm.model import refusals
from pymc_lgm.model.diagnose import check_model
from pymc_lgm.model.functions import ModelFunctions
from pymc_lgm.model.graphs import Variable
from pymc_lgm.threads import few_threads

__all__ = ["LatentGaussianModel", "find_latent", "is_latent"]


class LatentGaussianModel(ModelFunctions):
    """A latent Gaussian model as compiled functions of theta (p,) and f (n,).

        theta ~ p(theta),   f | theta ~ N(m(theta), K(theta)),
        p(y | f, theta) = ∏ p(y_i | f_i, theta)

    Make one with `from_pymc`; what it can compute is in `ModelFunctions`.
    """

    @classmethod
    def from_pymc(
        cls,
        model: pm.Model | None = None,
        latent: Variable | str | None = None,
        theta: Sequence[Variable] | None = None,
        *,
        initial_point: dict[str, NDArray[Any]] | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> LatentGaussianModel:
        """Read a PyMC model.

        Parameters
        ----------
        model : pymc.Model, optional
            By default the model of the context.
        latent : variable or str, optional
            f: a free `pymc.MvNormal`, which is what ``gp.prior(..., reparameterize=False)``
            makes. Needed only if there are several.
        theta : sequence of variables, optional
            Random or value variables; by default every continuous free one other than f.
        initial_point : dict, optional
            Point at which the model is checked; by default ``model.initial_point()``.
        compile_kwargs : dict, optional
            For PyTensor, as in `pymc.sample`.

        Raises
        ------
        ValueError
            If there is no latent or more than one candidate, if theta holds a discrete variable,
            if the likelihood couples the f_i, if a density or the covariance is not a number at
            the initial point, or under ``floatX="float32"``. The message says what to write
            instead.

        Examples
        --------
        >>> import numpy as np, pymc as pm
        >>> from pymc_lgm import LatentGaussianModel
        >>> X = np.linspace(0, 1, 4)[:, None]
        >>> with pm.Model() as model:
        ...     eta = pm.HalfNormal("eta", 2)
        ...     gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=0.3))
        ...     f = gp.prior("f", X, reparameterize=False)
        ...     y = pm.Poisson("y", mu=pm.math.exp(f), observed=[1, 0, 2, 1])
        >>> lgm_model = LatentGaussianModel.from_pymc(model)
        >>> lgm_model
        LatentGaussianModel(latent=f (4), theta=[eta_log__] (1), likelihood=[y])
        >>> round(lgm_model.log_likelihood(np.zeros(4), np.zeros(1)), 6)
        -4.693147
        """
        model = pm.modelcontext(model)
        refusals.refuse_float32(pytensor.config.floatX)
        rv = find_latent(model, latent)
        f = model.rvs_to_values[rv]
        if theta is None:
            theta = [v for v in model.continuous_value_vars if v is not f]
        theta = [model.rvs_to_values.get(v, v) for v in theta]
        for value in theta:
            if value is f or value not in model.continuous_value_vars:
                raise ValueError(refusals.not_a_hyperparameter(str(value.name)))
        point = model.initial_point() if initial_point is None else initial_point
        self = cls(model, rv, theta, point, compile_kwargs)
        with few_threads(self.n):
            check_model(self, self.theta_of(point), np.asarray(point[self.latent]))
        return self


def is_latent(rv: Variable) -> bool:
    """Whether a random variable is a multivariate normal, as f must be."""
    return isinstance(rv.owner.op, MvNormalRV)


def find_latent(model: pm.Model, latent: Variable | str | None = None) -> Variable:
    """Find f: the free random variable of a model that is a multivariate normal vector.

    Parameters
    ----------
    model : pymc.Model
    latent : variable, value variable or str, optional
        Which one, if there are several.
    """
    candidates = [rv for rv in model.free_RVs if is_latent(rv)]
    if latent is not None:
        rv = model.named_vars.get(latent) if isinstance(latent, str) else latent
        rv = model.values_to_rvs.get(rv, rv)
        if rv not in candidates:
            name = str(getattr(latent, "name", latent))
            raise ValueError(refusals.not_a_latent(name, [c.name for c in candidates]))
        candidates = [rv]
    if len(candidates) != 1:
        names = [str(rv.name) for rv in candidates]
        raise ValueError(refusals.which_latent(names, [v.name for v in model.free_RVs]))
    (rv,) = candidates
    if rv.ndim != 1:
        raise ValueError(refusals.not_a_vector(str(rv.name), rv.ndim))
    if model.rvs_to_transforms[rv] is not None:
        raise ValueError(refusals.transformed(str(rv.name)))
    return rv
