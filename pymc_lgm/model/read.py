"""A `pymc.Model` as a latent Gaussian model, with the checks of its reading.

`read` is the entry for users, `LatentGaussianModel.from_pymc` that of the package. Which variables
are f and which are theta is decided in `pymc_lgm.model.reading`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pymc as pm
import pytensor

from numpy.typing import NDArray
from pymc.data import MinibatchOp
from pytensor.graph.traversal import ancestors
from pytensor.xtensor.type import XTensorType

from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.likelihoods.registry import is_inducing
from pymc_lgm.model import refusals
from pymc_lgm.model.check import Audit
from pymc_lgm.model.data_read import DataRead
from pymc_lgm.model.diagnose import check_model
from pymc_lgm.model.functions import ModelFunctions
from pymc_lgm.model.latents import is_process
from pymc_lgm.model.operations import Variable
from pymc_lgm.model.points import start_of
from pymc_lgm.model.reading import (
    AS_IT_IS,
    Reading,
    find_latents,
    latents_beside,
    refuse_left_gaussians,
)
from pymc_lgm.threads import few_threads

__all__ = ["LatentGaussianModel", "read"]

MAKE_THE_STEP = "Make the step after {}, as in pm.sample(step=lgm.PseudoMarginal())."


class LatentGaussianModel(ModelFunctions):
    """A latent Gaussian model as compiled functions of theta (p,) and f (n,).

        theta ~ p(theta),   f | theta ~ N(m(theta), K(theta)),
        p(y | f, theta) = ∏ p(y_i | f_i, theta)

    `pymc_lgm.read` makes one. `ModelFunctions` documents its functions.

    Attributes
    ----------
    start : dict of str to ndarray
        The point at which the model was checked.
    data_read : DataRead
        Shared data that decide how the model was read: see `refuse_changes`.
    """

    _source: tuple[pm.Model, Reading]
    _terms: frozenset[str]
    _added_before: list[str]
    start: dict[str, NDArray[Any]]
    data_read: DataRead

    @classmethod
    def from_pymc(
        cls,
        model: pm.Model | None = None,
        latent: Any = None,
        theta: Sequence[Variable] | None = None,
        *,
        initial_point: dict[str, NDArray[Any]] | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        covariance: bool = True,
        collapse: bool = True,
        integrates: bool = True,
        as_sum: bool = False,
    ) -> LatentGaussianModel:
        """Read a PyMC model: `pymc_lgm.read` documents the arguments.

        With ``as_sum`` f is a sum of sparse families even if a dense form costs less. ``theta`` are
        here all hyper-parameters to read, as random or value variables; others belong
        to other steps, and only processes are latent unless ``latent`` names more.
        """
        model = pm.modelcontext(model)
        _refuse_other_kinds(model)
        candidates = None
        if theta is not None:
            candidates = [rv for rv in model.free_RVs if is_process(rv) or is_inducing(rv)]
        reading = find_latents(model, latent, candidates, collapse=collapse)
        if as_sum or not integrates:
            reading = replace(reading, integrates=integrates, as_sum=as_sum)
        if not reading.frontier and reading.latents[0].rv not in model.observed_RVs:
            name = reading.latents[0].rv.name
            raise ValueError(
                f"Nothing depends on the latent {name!r}: there is no likelihood to sample from. "
                f"Write one, for example lgm.Probit('y', f={name}, observed=y)."
            )
        values = [model.rvs_to_values[each.rv] for each in reading.latents]
        missing = [model.rvs_to_values[rv] for rv in reading.missing]
        if theta is None:
            theta = [v for v in model.continuous_value_vars if v not in values]
            if latent is None:
                refuse_left_gaussians(model, reading, theta)
        theta = [model.rvs_to_values.get(v, v) for v in theta]
        theta = [value for value in theta if value not in missing]
        for value in theta:
            if value in values or value not in model.continuous_value_vars:
                raise ValueError(refusals.not_a_hyperparameter(str(value.name)))
        point = start_of(model) if initial_point is None else initial_point
        self = cls(model, reading, theta, point, compile_kwargs)
        self._source = model, reading
        self._terms = frozenset(_terms_of(model))
        self.start = point
        self.data_read = DataRead(reading, self.graphs.picking)
        with few_threads(self.form.dense_rows):
            start = self.theta_of(point)
            f = self.f_of(start, point)
            check_model(self, start, f, covariance=covariance)
            if reading.latents[0].rv in model.observed_RVs:
                return self  # f is the data: no likelihood reads it
            self.find_reads(start, f)
        return self

    def refuse_changes(self, remedy: str = MAKE_THE_STEP) -> None:
        """Raise a `ValueError` if the model is no longer as it was read.

        Variables and potentials must not have been added, and data that decide how the model was
        read must not have been replaced. Observed values may be replaced, unless they decide which
        elements of f a density reads. ``remedy`` says what to write instead, and after what.
        """
        if added := self._added():
            raise ValueError(
                f"{', '.join(added)} was added to the model after it had been read: the result "
                f"would be that of the model without it. {remedy.format('the last variable')}"
            )
        names = self.data_read.changed()
        if not names and (picked := self.data_read.picked_anew()):
            names = [] if self._reads_as_before() else picked
        if names:
            raise ValueError(
                f"The data {', '.join(names)} were replaced after they had been read: the result "
                f"would mix old and new data. {remedy.format('pm.set_data')}"
            )

    def _added(self) -> list[str]:
        """Names of terms that the model has now, or had before this object was pickled."""
        if not hasattr(self, "_source"):
            return self._added_before
        return [name for name in _terms_of(self._source[0]) if name not in self._terms]

    def __getstate__(self) -> dict[str, Any]:
        # `_source` has random variables, which cannot be pickled. Only `audit` and `_added` need
        # it. A step is pickled after its audit has been made.
        kept = {name: value for name, value in self.__dict__.items() if name != "_source"}
        return kept | {"_added_before": self._added()}

    @cached_property
    def audit(self) -> Audit:
        """The comparison of this object's densities with PyMC's: see `check`."""
        if not hasattr(self, "_source"):
            raise ValueError(
                "A copy that was pickled has no pymc.Model to compare with. Read the model again: "
                "lgm.read(model).check()."
            )
        model, reading = self._source
        return Audit(model, reading, self)

    def check(self, draws: int = 100, *, random_seed: int = 0) -> dict[str, float]:
        """Compare the densities of this object with PyMC's own at points drawn from the prior.

        The comparison covers log p(theta), the likelihood, and the mean and covariance of f: see
        `pymc_lgm.model.check`. Each step already makes it at two points of the prior when it is
        constructed, and at four draws of each chain's tuning and six after it. Call this method to
        see the differences.

        Parameters
        ----------
        draws : int
            Number of points.
        random_seed : int

        Returns
        -------
        dict of str to float
            The largest difference of each quantity, relative to the sum of the absolute values of
            its terms.

        Raises
        ------
        ValueError
            If a quantity differs by more than rounding. The message names the variable.

        Examples
        --------
        >>> import pymc as pm, pymc_lgm as lgm
        >>> with pm.Model() as model:
        ...     s = pm.HalfNormal("s")
        ...     b = pm.Normal("b", 0, s, shape=3)
        ...     y = pm.Poisson("y", pm.math.exp(b), observed=[1, 0, 2])
        >>> checked = lgm.read(model).check(draws=10)
        >>> max(checked.values()) < 1e-6
        True
        """
        self.refuse_changes("Read the model after {}: lgm.read(model).check().")
        found: dict[str, float] = {}
        # Values of variables that other steps own: a point of the prior has values of its own.
        before = {name: variable.get_value() for name, variable in self.graphs.others.items()}
        try:
            for point in self.audit.prior_points(random_seed, draws):
                self.read(point)
                self.audit(point, moments=True)
                for each in self.audit.differences(point, moments=True):
                    key = f"{each.name}: {each.what}"
                    found[key] = max(found.get(key, 0.0), each.relative)
        finally:
            self.read(before)
        return found


def _terms_of(model: pm.Model) -> list[str]:
    """The names of all variables and potentials with a density."""
    return [str(term.name) for term in (*model.basic_RVs, *model.potentials)]


def read(
    model: pm.Model | None = None,
    latent: Any = None,
    theta: Sequence[Any] | str | None = None,
    *,
    initial_point: dict[str, NDArray[Any]] | None = None,
    compile_kwargs: dict[str, Any] | None = None,
    covariance: bool = True,
    collapse: bool = True,
    integrates: bool = True,
) -> LatentGaussianModel:
    """Read a PyMC model: which variables are f, which are theta, and what the samplers compute.

    Print the result to see how the model is read. Its method `check` compares it with PyMC's own
    density.

    Parameters
    ----------
    model : pymc.Model, optional
        By default the model of the context.
    latent : variable, str or list of them, optional
        f itself, or the latent variables whose linear predictor is f. By default every free
        variable that is Gaussian given theta and enters the densities through an affine map:
        processes from ``gp.prior``, whitened or not, walks and series, fields of areas or of
        `pymc_lgm.gmrf`, intercepts, coefficients, effects. An observed `pymc.MvNormal`, as in
        `pymc.gp.Marginal`, can also be f.
    theta : sequence of variables or names, optional
        Hyper-parameters that could be latent, as in the samplers. All other hyper-parameters are
        found as always: every continuous free variable other than f.
    initial_point : dict, optional
        Point at which the model is checked; by default ``model.initial_point()``.
    compile_kwargs : dict, optional
        Passed to PyTensor, as in `pymc.sample`.
    covariance : bool
        Whether to compute K at the initial point and check it. Pass ``False`` if f is one
        multivariate normal vector whose covariance does not fit into memory.
    collapse : bool
        Whether coefficients in the mean of a process are latent, as in `PseudoMarginal`.
        Otherwise they are hyper-parameters.
    integrates : bool
        Whether observation-level random effects are integrated out of the likelihood.
        Otherwise they are part of f.

    Returns
    -------
    LatentGaussianModel

    Raises
    ------
    ValueError
        If there is no latent variable, if theta names f or a discrete variable, if a density or
        the covariance is not finite at the initial point, or under ``floatX="float32"``. The
        message says what to write instead.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_lgm as lgm
    >>> X = np.linspace(0, 1, 4)[:, None]
    >>> with pm.Model() as model:
    ...     eta = pm.HalfNormal("eta", 2)
    ...     gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=0.3))
    ...     f = gp.prior("f", X, reparameterize=False)
    ...     y = pm.Poisson("y", mu=pm.math.exp(f), observed=[1, 0, 2, 1])
    >>> read = lgm.read(model)
    >>> read
    LatentGaussianModel(latent=f (4), theta=[eta_log__] (1), likelihood=[y])
    >>> round(read.log_likelihood(np.zeros(4), np.zeros(1)), 6)
    -4.693147
    """
    model = pm.modelcontext(model)
    return LatentGaussianModel.from_pymc(
        model,
        latents_beside(model, theta, latent, collapse=collapse),
        initial_point=initial_point,
        compile_kwargs=compile_kwargs,
        covariance=covariance,
        collapse=collapse,
        integrates=integrates,
    )


def _refuse_other_kinds(model: pm.Model) -> None:
    """Raise if variables or data are of a kind that this package does not read."""
    if (floatX := pytensor.config.floatX) != "float64":
        raise ValueError(
            f"pytensor.config.floatX is {floatX!r}; Cholesky factors of covariances need float64. "
            "Write pytensor.config.floatX = 'float64' before the model."
        )
    if labeled := [str(rv.name) for rv in model.basic_RVs if isinstance(rv.type, XTensorType)]:
        raise ValueError(
            f"This package does not read variables of pymc.dims, here "
            f"{', '.join(map(repr, labeled))}. Write them with PyMC's distributions, which take "
            "dims, too: pm.Normal('u', 0, sigma, dims='group'), not pymc.dims.Normal. "
            f"{AS_IT_IS}"
        )
    for v in ancestors([*model.basic_RVs, *model.potentials, *model.rvs_to_values.values()]):
        if isinstance(op_of(v), MinibatchOp):
            raise ValueError(
                "The data are a pm.Minibatch: each evaluation of the density sees other rows, and "
                "a chain on such a density has no posterior. Write all of the data, without "
                "total_size=, or fit this model with pm.fit()."
            )
