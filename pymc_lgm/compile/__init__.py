"""Everything whose subject is Numba or PyTensor's compiler.

`loops` has what compiled loops over arrays call: elementary functions, BLAS, and a model's own
functions by address. `graphs` compiles PyTensor's graphs, with rewrites and operations that compile
quickly, and has the names of other packages that these do not promise to keep.

One switch turns all compilation by Numba off, for a debugger: the environment variable
``NUMBA_DISABLE_JIT=1``. A PyMC model then needs ``PYTENSOR_FLAGS=linker=py``, too.
"""
