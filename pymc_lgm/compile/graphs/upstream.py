"""Names of PyMC, PyTensor and Numba that these packages do not promise to keep.

No other file imports them. If a release moves one, the import is mended here.
`tests/test_upstream.py` tests what is expected of each name, and runs with every version that
`make versions` installs.
"""

from pymc.distributions.distribution import _support_point as support_point_of
from pymc.distributions.transforms import _default_transform as default_transform_of
from pymc.logprob.abstract import _logprob as log_density_of
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch.basic import (
    cache_key_for_constant,
    numba_funcify,
    numba_funcify_ensure_cache,
    numba_njit,
    numba_typify,
    register_funcify_and_cache_key,
    register_funcify_default_op_cache_key,
)
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor import _as_tensor_variable as tensor_variable_of

__all__ = [
    "NumbaLinker",
    "cache_key_for_constant",
    "compile_numba_function_src",
    "default_transform_of",
    "log_density_of",
    "numba_core_rv_funcify",
    "numba_funcify",
    "numba_funcify_ensure_cache",
    "numba_njit",
    "numba_typify",
    "register_funcify_and_cache_key",
    "register_funcify_default_op_cache_key",
    "support_point_of",
    "tensor_variable_of",
]
