"""Read a `pymc.Model`: which variables are f, which are theta, and whether it can be sampled.

`read` is the entry for users, `LatentGaussianModel.from_pymc` that of the package. Both call
`find_latents`, which decides what f is, or says why nothing can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pymc as pm
import pytensor

from numpy.typing import NDArray
from pymc.data import MinibatchOp
from pymc.distributions.multivariate import KroneckerNormalRV, MvNormalRV, MvStudentTRV
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import LogNormalRV, NormalRV, StudentTRV
from pytensor.xtensor.type import XTensorType

from pymc_lgm.likelihoods.registry import is_inducing
from pymc_lgm.model import refusals
from pymc_lgm.model.check import Audit
from pymc_lgm.model.data_read import DataRead
from pymc_lgm.model.diagnose import check_model
from pymc_lgm.model.fields import is_structured
from pymc_lgm.model.functions import ModelFunctions
from pymc_lgm.model.latents import is_gaussian, is_process
from pymc_lgm.model.operations import Variable
from pymc_lgm.model.points import start_of
from pymc_lgm.model.reading import (
    Reading,
    read_latents,
    read_observed,
    refuse_left_gaussians,
)
from pymc_lgm.threads import few_threads

__all__ = ["LatentGaussianModel", "find_latent", "find_latents", "latents_beside", "read"]

AS_IT_IS = "To sample the model as it is, pass step=pm.NUTS()."

MAKE_THE_STEP = "Make the step after {}, as in pm.sample(step=lgm.PseudoMarginal())."

APPROXIMATED = "marginalapprox_loglik_"
"""`pymc.gp.MarginalApprox` names its potential with this prefix."""


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
        # it, and a step has computed the audit when it is pickled.
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
        `pymc.MvNormal` and `pymc.Normal` that enters the densities through an affine map:
        processes from ``gp.prior``, whitened or not, intercepts, coefficients, effects. An
        observed `pymc.MvNormal`, as in `pymc.gp.Marginal`, can also be f.
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


def find_latent(
    model: pm.Model, latent: Variable | str | None = None, reading: Reading | None = None
) -> Variable:
    """Find f, if it has to be the one free random variable that is a multivariate normal vector.

    ``latent`` names it if there are several. ``reading`` is an earlier one in which nothing was
    latent, for the reasons in a message.

    Raises
    ------
    ValueError
        If there is none or more than one, or if PyMC samples it through a transform.
    """
    candidates = [rv for rv in model.free_RVs if is_process(rv)]
    if latent is not None:
        rv = _named(model, latent)
        if rv not in candidates:
            name = str(getattr(latent, "name", latent))
            known = ", ".join(each.name for each in candidates)
            raise ValueError(
                f"{name!r} is not a latent Gaussian vector (a free pm.MvNormal). "
                f"This model has: {known or 'none; write reparameterize=False'}."
            )
        candidates = [rv]
    if not candidates:
        _refuse_other_processes(model)
        raise ValueError(_why_no_latent(model, {} if reading is None else reading.left))
    if len(candidates) > 1:
        several = [str(rv.name) for rv in candidates]
        raise ValueError(
            f"The model has {len(several)} latent Gaussian vectors: {', '.join(several)}. "
            f"Name the one to sample and its hyper-parameters: lgm.ASIS([{several[0]}, ...]); "
            "give each of the others a step of its own. If one is a gp.conditional, add it to the "
            "model after pm.sample()."
        )
    (rv,) = candidates
    if is_structured(rv) and not is_gaussian(model, rv):
        raise ValueError(
            f"{str(rv.name)!r} is a GMRF of lgm.gmrf with a transform other than its own, which "
            "keeps the constraints. Leave out transform= and default_transform=."
        )
    if model.rvs_to_transforms[rv] is not None and not is_structured(rv):
        raise ValueError(
            f"The latent {str(rv.name)!r} has a transform, so it is not Gaussian on the sampled "
            "scale. Remove transform= from it and apply the function in the likelihood."
        )
    return rv


def _why_no_latent(model: pm.Model, left: Mapping[Variable, str]) -> str:
    """Say why no Gaussian variable of the model is latent."""
    nothing = "The model has no latent Gaussian vector"
    logs = [rv.name for rv in model.free_RVs if isinstance(rv.owner.op, LogNormalRV) and rv.ndim]
    as_exp = "".join(
        f" {name!r} is log-normal, so its logarithm could be latent: write {name} = "
        f"pm.math.exp(pm.Normal('log_{name}', mu, sigma, shape=...))."
        for name in logs[:1]
    )
    if left:
        reasons = "; ".join(f"{str(rv.name)!r} is Gaussian, but {why}" for rv, why in left.items())
        return f"{nothing}: {reasons}.{as_exp} {AS_IT_IS}"
    read = set(ancestors([*model.observed_RVs, *model.potentials]))
    gaussians = [rv for rv in model.free_RVs if is_gaussian(model, rv)]
    if unread := [str(rv.name) for rv in gaussians if rv not in read]:
        return (
            f"No density depends on {', '.join(map(repr, unread))}: there is no likelihood to "
            f"sample from. Write one, as in lgm.Probit('y', f={unread[0]}, observed=y)."
        )
    if gaussians:
        names = [str(rv.name) for rv in gaussians]
        return (
            f"{', '.join(map(repr, names))} could be latent, but hyper-parameters are named and it "
            f"is not. Name it, too, as in lgm.PseudoMarginal([{names[0]}, ...]), or leave all "
            "names out."
        )
    for rv in model.free_RVs:
        if isinstance(rv.owner.op, NormalRV) and model.rvs_to_transforms[rv] is not None:
            return (
                f"{nothing}: {str(rv.name)!r} has a transform, so it is not Gaussian on the "
                f"sampled scale. Remove transform= from it. {AS_IT_IS}"
            )
    free = [str(rv.name) for rv in model.free_RVs]
    shown = ", ".join(free[:8]) + (", ..." if len(free) > 8 else "")
    instead = "Write effects, coefficients and processes as pm.Normal or pm.MvNormal."
    if whitened := [name.removesuffix("_rotated_") for name in free if name.endswith("_rotated_")]:
        instead = (
            f"{whitened[0]!r} is whitened in the model: write gp.prior({whitened[0]!r}, X, "
            "reparameterize=False), since the samplers whiten."
        )
    return (
        f"{nothing}: none of its free variables ({shown}) is a pm.MvNormal, or a Gaussian vector "
        f"that densities read through an affine map.{as_exp} {instead} {AS_IT_IS}"
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
        if v.owner is not None and isinstance(v.owner.op, MinibatchOp):
            raise ValueError(
                "The data are a pm.Minibatch: each evaluation of the density sees other rows, and "
                "a chain on such a density has no posterior. Write all of the data, without "
                "total_size=, or fit this model with pm.fit()."
            )


def _refuse_other_processes(model: pm.Model) -> None:
    """Raise if a process of the model is not Gaussian, or is already integrated out."""
    for rv in model.free_RVs:
        whitened = str(rv.name).endswith("_rotated_") and isinstance(rv.owner.op, StudentTRV)
        if isinstance(rv.owner.op, MvStudentTRV) or whitened:
            raise ValueError(
                f"{str(rv.name).removesuffix('_rotated_')!r} is a Student t process, as pm.gp.TP "
                "makes it. It is not Gaussian given the hyper-parameters, and this package does "
                "not integrate it out. Write pm.gp.Latent for a Gaussian process, or sample the "
                "model with step=pm.NUTS()."
            )
    integrated = "The process of this model is integrated out already"
    instead = "there is no latent vector to sample. Sample its hyper-parameters with step=pm.NUTS()"
    for rv in model.observed_RVs:
        if _is_vector(rv):
            raise ValueError(
                f"{integrated}: {str(rv.name)!r} is an observed pm.MvNormal, as pm.gp.Marginal "
                "makes it, and there is no latent vector to sample. Write lgm.ExactMarginal(), "
                "which samples its hyper-parameters."
            )
        if isinstance(rv.owner.op, KroneckerNormalRV):
            raise ValueError(
                f"{integrated}: {str(rv.name)!r} is an observed pm.KroneckerNormal, as "
                f"pm.gp.MarginalKron makes it, and {instead}."
            )
    for potential in model.potentials:
        if str(potential.name).startswith(APPROXIMATED):
            name = str(potential.name).removeprefix(APPROXIMATED)
            raise ValueError(
                f"{integrated}: {name!r} is a pm.Potential, as pm.gp.MarginalApprox makes it, and "
                f"{instead}."
            )


def find_observed(model: pm.Model) -> Variable:
    """Find the observed multivariate normal vector of a model; a ValueError if not exactly one."""
    found = [rv for rv in model.observed_RVs if _is_vector(rv)]
    if len(found) > 1:
        raise ValueError(
            f"The model observes {len(found)} multivariate normal vectors: "
            f"{', '.join(str(rv.name) for rv in found)}. lgm.ExactMarginal takes one: write them "
            "as one vector, or sample with pm.NUTS()."
        )
    if not found:
        observed = ", ".join(str(rv.name) for rv in model.observed_RVs) or "nothing"
        instead = (
            'for a process write y = gp.marginal_likelihood("y", X, y=y, sigma=sigma), and for '
            "effects, series and fields lgm.PseudoMarginal(), which integrates them out"
        )
        if free := [str(rv.name) for rv in model.free_RVs if is_process(rv)]:
            instead = f"lgm.PseudoMarginal() samples theta with {', '.join(free)}"
        raise ValueError(
            f"No vector that the model observes ({observed}) is a pm.MvNormal, as pm.gp.Marginal "
            f"makes it: {instead}."
        )
    return found[0]


def _is_vector(rv: Variable) -> bool:
    """Whether a random variable is one `pymc.MvNormal` vector, not a batch of them."""
    return rv.ndim == 1 and isinstance(rv.owner.op, MvNormalRV)


def _named(model: pm.Model, each: Any) -> Any:
    """The random variable that a user gives by its name, by its value variable, or as it is."""
    rv = model.named_vars.get(each) if isinstance(each, str) else each
    return model.values_to_rvs.get(rv, rv)


def all_but(model: pm.Model, theta: Sequence[Any] | str | None) -> list[Variable] | None:
    """Free variables other than those that the user names as hyper-parameters; ``None`` for none.

    Raises
    ------
    ValueError
        If a name is not that of a continuous free variable.
    """
    if theta is None:
        return None
    named = []
    for each in [theta] if isinstance(theta, str) else theta:
        rv = _named(model, each)
        if model.rvs_to_values.get(rv) not in model.continuous_value_vars:
            raise ValueError(refusals.not_a_hyperparameter(str(getattr(rv, "name", each))))
        named.append(rv)
    return [rv for rv in model.free_RVs if rv not in named]


def latents_beside(
    model: pm.Model, theta: Sequence[Any] | str | None, latent: Any = None, *, collapse: bool = True
) -> Any:
    """The reading if the user names hyper-parameters that could be latent; otherwise ``latent``.

    Raises
    ------
    ValueError
        If a name is not that of a continuous free variable, or is that of a latent variable.
    """
    candidates = all_but(model, theta)
    if candidates is None:
        return latent
    reading = find_latents(model, latent, candidates, collapse=collapse)
    latents = [each.rv for each in reading.latents]
    for rv in latents:
        if rv in model.free_RVs and rv not in candidates:
            raise ValueError(refusals.not_a_hyperparameter(str(rv.name)))
    if latent is None:
        found = [model.rvs_to_values[rv] for rv in candidates if rv not in latents]
        refuse_left_gaussians(model, reading, found)
    return reading


def find_latents(
    model: pm.Model,
    latent: Any = None,
    candidates: Sequence[Variable] | None = None,
    *,
    collapse: bool = True,
) -> Reading:
    """Find which variables of a model are latent, and what f is.

    They are those that the user has named in ``latent``; otherwise they are among ``candidates``,
    by default all. With ``collapse`` coefficients in the mean of a process may be latent. An
    earlier reading as ``latent`` stays as it is.
    """
    if isinstance(latent, Reading):
        return latent
    if latent is None:
        among = model.free_RVs if candidates is None else candidates
        gaussians = [rv for rv in among if is_gaussian(model, rv)]
        # Beside inducing variables, coefficients and effects are hyper-parameters.
        if inducing := [rv for rv in gaussians if is_inducing(rv)]:
            return _of_inducing(model, inducing, [rv for rv in gaussians if is_process(rv)])
        reading = read_latents(model, gaussians, collapse=collapse)
        if not reading.latents or not reading.frontier:
            # This message names the reason, if many elements would be hyper-parameters.
            if candidates is None and not any(map(is_process, model.free_RVs)):
                refuse_left_gaussians(model, reading, model.continuous_value_vars)
            # With one process as the only candidate, all other variables are hyper-parameters.
            return read_latents(model, [find_latent(model, reading=reading)])
        return reading
    several = latent if isinstance(latent, list | tuple) else [latent]
    chosen = []
    for each in several:
        rv = _named(model, each)
        if len(several) == 1 and rv in model.observed_RVs and _is_vector(rv):
            return read_observed(model, rv)
        if rv not in model.free_RVs or not is_gaussian(model, rv):
            rv = find_latent(model, each)
        chosen.append(rv)
    if inducing := [rv for rv in chosen if is_inducing(rv)]:
        return _of_inducing(model, inducing, [rv for rv in chosen if rv not in inducing])
    return read_latents(model, chosen, named=chosen)


def _of_inducing(
    model: pm.Model, inducing: Sequence[Variable], beside: Sequence[Variable]
) -> Reading:
    """Read a model whose latent variables are inducing variables; refuse others ``beside`` them."""
    for rv in beside:
        for inner in set(inducing).intersection(ancestors(rv.owner.inputs)):
            raise ValueError(refusals.hidden_layer(str(inner.name), str(rv.name)))
    if beside:
        names = ", ".join(str(rv.name) for rv in (*inducing, *beside))
        raise ValueError(
            f"The model has {names}: processes with inducing variables cannot be combined with "
            "other processes. Add the covariance functions of the processes and write one "
            "lgm.gp.SparseLatent; coefficients beside it are hyper-parameters. Or name the "
            "variables to sample, lgm.PseudoMarginal([...]), and give the others a step of their "
            "own."
        )
    reading = read_latents(model, inducing, named=inducing)
    for latent in reading.latents:
        if latent.through is None:
            raise ValueError(
                f"A density reads the inducing variables {latent.rv.name} themselves, and not only "
                "their process. Leave that density out, or sample the model with pm.NUTS()."
            )
    return reading
