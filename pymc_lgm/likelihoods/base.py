"""The base classes of the likelihood distributions, with their checks of data."""

import inspect

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.distribution import (
    Distribution,
    PartialObservedRV,
    SymbolicRandomVariable,
)
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import (
    constant_fold,
    convert_observed_data,
    extract_obs_data,
    floatX,
    normalize_rng_param,
)
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_lgm.compile.graphs.nodes import op_of
from pymc_lgm.likelihoods.expected import Projected, observe, of_classes
from pymc_lgm.likelihoods.registry import mark, mark_expectation

__all__ = [
    "LatentGaussianLikelihood",
    "Likelihood",
    "LikelihoodRV",
    "as_float",
    "as_inputs",
    "check_constant",
    "fill",
    "is_latent_gaussian_likelihood",
    "refuse_no_rows",
    "unwrapped",
]


class LatentGaussianLikelihood:
    """Marks the op of a likelihood p(y_i | f_i) whose model opts in to the default step method.

    This is a mixin for the op (the `SymbolicRandomVariable` or `RandomVariable` class) and not for
    the distribution, because PyMC's cloning, `pm.do` and pickling preserve ops.
    """

    def probit_signs(self, y: Any) -> Any:
        """The graph of s if p(y_i | f_i) = Φ(s_i f_i), whose moments have a closed form."""
        return None


def is_latent_gaussian_likelihood(rv: Variable) -> bool:
    """Tell whether a random variable is one of the likelihoods that opt a model in.

    Parameters
    ----------
    rv : Variable
        For example an element of ``model.observed_RVs``.

    Examples
    --------
    >>> from pymc_lgm.likelihoods import Logistic, is_latent_gaussian_likelihood
    >>> is_latent_gaussian_likelihood(Logistic.dist(f=0.3))
    True
    """
    rv = unwrapped(rv)
    return isinstance(op_of(rv), LatentGaussianLikelihood)


def unwrapped(rv: Any) -> Any:
    """The variable that PyMC has split by missing data, or has rescaled by ``total_size``."""
    while isinstance(op_of(rv), PartialObservedRV | MinibatchRandomVariable):
        rv = rv.owner.inputs[0]
    return rv


class LikelihoodRV(LatentGaussianLikelihood, SymbolicRandomVariable):
    """The op of a likelihood, whose inner graph draws with PyTensor's own random variables.

    A subclass writes `draw`, ``name``, ``extended_signature`` and ``_print_name``.

    Attributes
    ----------
    is_log_concave : bool
        Whether log p(y | f) is concave in f, its first parameter, for all values of the others.
    bends_slowly : bool
        Whether the curvature of log p(y | f) is almost constant over a small part of a unit of f,
        for all values of the other parameters. It is not if one of them is a scale of f. Effects of
        single observations are integrated out only if it is, since the nodes of the quadrature are
        a good part of a unit apart.
    is_quadratic : bool
        Whether log p(y | f) is quadratic in f.
    is_softmax : bool
        Whether log p(y | f) is a weighted sum of log softmax(f)_c, with f its first parameter, the
        softmax along the last axis, and weights that are not negative.
    """

    is_log_concave: ClassVar[bool] = False
    bends_slowly: ClassVar[bool] = False
    is_quadratic: ClassVar[bool] = False
    is_softmax: ClassVar[bool] = False

    @classmethod
    def draw(cls, *params: Any, size: Any, rng: Any) -> Any:
        """Return the next random state and draws of shape `size`, as the op's inner graph."""
        raise NotImplementedError

    @classmethod
    def rv_op(cls, *params: Any, size: Any = None, rng: Any = None) -> TensorVariable:
        """Build a random variable of this type."""
        inputs = [
            normalize_rng_param(rng),
            normalize_size_param(size),
            *(pt.as_tensor(param) for param in params),
        ]
        rng, size, *tensors = inputs
        outputs = list(cls.draw(*tensors, size=size, rng=rng))
        return cls(inputs=inputs, outputs=outputs)(*inputs)


class Likelihood(Distribution):
    """A distribution of observations given f that refuses impossible data when it is built.

    Without these checks, PyMC would cast the observed value 0.5 of a discrete variable to 0 in
    silence, and shapes that disagree would raise an error deep inside the sampler. Data in arrays,
    data frames and `pm.Data` are checked; symbolic data cannot be. PyMC makes missing values (NaN
    or masked) variables of the model.

    A subclass writes `outside_support`. The names of the arguments of its ``dist`` appear in the
    messages.
    """

    core_ndims: Mapping[str, int] = {}
    """Number of trailing axes that a parameter does not share with the data; 0 if not listed."""

    reads_classes: ClassVar[bool] = False
    """Whether an observation reads a latent variable per class, which needs an `expected_logp`."""

    expected_logp: ClassVar[Callable[..., TensorVariable] | None] = None
    """(value, mean, variance, other parameters) -> E log p(y | f) for f ~ N(mean, variance).

    For classes, f has independent f_c along the last axis. ``None`` means quadrature.
    """

    def __new__(cls, name: str, *args: Any, observed: Any = None, **kwargs: Any) -> TensorVariable:
        """Check the observed values, then add the variable to the model as PyMC does."""
        bound = inspect.signature(cls.dist).bind(*args, **kwargs)
        bound.apply_defaults()
        options = bound.arguments.pop("kwargs", {})
        f = of_classes(bound.arguments.get("f"))
        if observed is not None and (data := concrete(observed)) is not None:
            given = bound.arguments | ({"f": f.mean} if isinstance(f, Projected) else {})
            shapes = {key: known_shape(value) for key, value in given.items()}
            cls.check_values(name, data, is_symbolic=isinstance(observed, Variable), shapes=shapes)
            if not isinstance(observed, Variable) or known_shape(observed) in (None, data.shape):
                cls.check_shapes(name, data, shapes)  # a minibatch is smaller than the data
            if isinstance(data, np.ma.MaskedArray):
                # A NaN behind the mask would make PyMC's cast to integers warn.
                observed = np.ma.MaskedArray(data.filled(0), np.ma.getmaskarray(data))
        if isinstance(f, Projected):
            return cls._expected(name, f, bound.arguments, observed, options)
        rv = super().__new__(cls, name, *args, observed=observed, **kwargs)
        mark(rv)
        return rv

    @classmethod
    def _expected(
        cls, name: str, f: Projected, given: Mapping[str, Any], observed: Any, options: Any
    ) -> TensorVariable:
        """Observe a process that is represented by inducing variables."""
        others = [key for key in given if key != "f"]

        def dist(f: Any, *values: Any) -> TensorVariable:
            return cls.dist(f=f, **dict(zip(others, values, strict=True)))

        values = [given[key] for key in others]
        of_f = int(cls.reads_classes)
        rv = observe(
            name,
            dist,
            f,
            values,
            expected_logp=cls.expected_logp,
            by_class=cls.reads_classes,
            observed=observed,
            ndims_params=[of_f, of_f, *(cls.core_ndims.get(key, 0) for key in others)],
            class_name=f"Expected{cls.__name__}",
            **options,
        )
        mark_expectation(rv, dist(f.mean, *values))
        return rv

    @classmethod
    def outside_support(
        cls, values: np.ndarray, shapes: Mapping[str, tuple[int, ...] | None]
    ) -> tuple[np.ndarray, str]:
        """Return which values are impossible, and words that say what is possible instead."""
        raise NotImplementedError

    @classmethod
    def check_values(
        cls,
        name: str,
        data: np.ndarray,
        *,
        is_symbolic: bool,
        shapes: Mapping[str, tuple[int, ...] | None],
    ) -> None:
        """Raise a ValueError for the first impossible value."""
        values = np.ma.getdata(data)
        wrong, legal = cls.outside_support(values, shapes)
        wrong = wrong & ~np.ma.getmaskarray(data)
        if not wrong.any():
            return
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        value = values[index]
        message = (
            f"{name}: observed{list(index) if index else ''} is {value} ({wrong.sum()} of "
            f"{wrong.size} values are impossible). {cls.__name__} needs {legal}."
        )
        if is_symbolic and np.isnan(value):
            message += " For PyMC, NaN is a missing value in an array, but not in pm.Data."
        raise ValueError(message)

    @classmethod
    def check_shapes(
        cls, name: str, data: np.ndarray, shapes: Mapping[str, tuple[int, ...] | None]
    ) -> None:
        """Raise a ValueError if a parameter does not broadcast to the shape of the data."""
        for parameter, shape in shapes.items():
            if shape is None:
                continue
            batch_shape = shape[: len(shape) - cls.core_ndims.get(parameter, 0)]
            try:
                agrees = np.broadcast_shapes(batch_shape, data.shape) == data.shape
            except ValueError:
                agrees = False
            if not agrees:
                raise ValueError(
                    f"{name}: {parameter} has shape {shape} and observed has shape {data.shape}: "
                    f"{cls.__name__} needs one value of {parameter} for each observation. "
                    "Index or reshape one of the two, such as f[group] for repeated measurements."
                )


def concrete(observed: Any) -> np.ndarray | None:
    """Return observed data as a (masked) array, or None if they are symbolic."""
    if not isinstance(observed, Variable) and _has_strings(observed):
        raise ValueError(
            "observed holds strings, which are not numbers. Write labels as numbers, as in "
            "np.unique(y, return_inverse=True)[1]."
        )
    # Twice, as in PyMC: the second pass masks NaN in data that the first converted to an array.
    data = convert_observed_data(convert_observed_data(observed))
    if isinstance(data, Variable):
        try:
            data = extract_obs_data(data)
        except TypeError:
            return None
    return data if isinstance(data, np.ndarray) else None


def _has_strings(values: Any) -> bool:
    """Whether an array, a series or a list has text, also as a column of objects."""
    array = np.ma.asarray(values)
    if array.dtype.kind == "O":
        return any(isinstance(value, str) for value in array.ravel())
    return array.dtype.kind in "SUT"


def as_inputs(X: Any, name: str = "X") -> Any:
    """Return inputs of a process as an array, from a data frame, list or array; keep a variable."""
    if isinstance(X, Variable):
        return X
    array = np.asarray(X)
    if array.dtype.kind not in "fiub":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} is not an array of numbers: give numbers, one row per point, and write "
                "categories as numbers."
            ) from error
    refuse_no_rows(name, array.shape)
    return array


def refuse_no_rows(name: str, shape: tuple[int, ...] | None) -> None:
    """Raise a ValueError if inputs of a process are known not to have one row per point."""
    if shape is not None and len(shape) != 2:
        raise ValueError(f"{name} has shape {shape}: write one row per point, as {name}[:, None].")


def known_shape(parameter: Any) -> tuple[int, ...] | None:
    """Return the present shape of a parameter, or None if it is not known without evaluation.

    A shape that comes from `pm.Data` or from dims counts as known, with its present value.
    """
    parameter = pt.as_tensor_variable(parameter)
    [shape] = constant_fold([parameter.shape], raise_not_constant=False)
    if isinstance(shape, Variable):
        known = Constant | TensorSharedVariable
        if not all(isinstance(root, known) for root in graph_inputs([shape])):
            return None
        shape = shape.eval(mode=Mode(linker="py", optimizer=None))
    return tuple(int(length) for length in shape)


def check_constant(condition: TensorVariable, message: str) -> None:
    """Raise a ValueError if a condition on parameters is a constant that is false."""
    [truth] = constant_fold([condition], raise_not_constant=False)
    if not isinstance(truth, Variable) and not truth:
        raise ValueError(message)


def as_float(parameter: Any) -> TensorVariable:
    """Make a tensor of floats, since an integer f would make the logp integer arithmetic."""
    return floatX(pt.as_tensor_variable(parameter))


def fill(size: Any, value: TensorVariable) -> TensorVariable:
    """Broadcast a support point to the size of its variable."""
    return value if rv_size_is_none(size) else pt.full(size, value)
