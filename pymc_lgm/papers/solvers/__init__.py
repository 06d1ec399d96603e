"""Linear systems in a kernel matrix, solved by matrix products without a large factorization.

`KernelMatrix` multiplies vectors with K block by block, and need not store it. `KernelSystem` is A
= c I + S K S, the system of regression and of Laplace's method. An `Approximation` of K is computed
once, and preconditions every such system.
"""

from pymc_lgm.papers.solvers.approximations import Approximation as Approximation
from pymc_lgm.papers.solvers.approximations import block_jacobi as block_jacobi
from pymc_lgm.papers.solvers.approximations import fitc as fitc
from pymc_lgm.papers.solvers.approximations import nystrom as nystrom
from pymc_lgm.papers.solvers.approximations import pitc as pitc
from pymc_lgm.papers.solvers.approximations import random_features as random_features
from pymc_lgm.papers.solvers.approximations import randomized_svd as randomized_svd
from pymc_lgm.papers.solvers.kernel_matrix import Index as Index
from pymc_lgm.papers.solvers.kernel_matrix import KernelMatrix as KernelMatrix
from pymc_lgm.papers.solvers.kernel_matrix import KernelSystem as KernelSystem
from pymc_lgm.papers.solvers.lanczos import LogDeterminant as LogDeterminant
from pymc_lgm.papers.solvers.lanczos import log_determinant as log_determinant
from pymc_lgm.papers.solvers.pcg import Shifted as Shifted
from pymc_lgm.papers.solvers.pcg import Solution as Solution
from pymc_lgm.papers.solvers.pcg import conjugate_gradients as conjugate_gradients
from pymc_lgm.papers.solvers.preconditioners import Identity as Identity
from pymc_lgm.papers.solvers.preconditioners import LowRankAndBlocks as LowRankAndBlocks
from pymc_lgm.papers.solvers.preconditioners import Preconditioner as Preconditioner
from pymc_lgm.papers.solvers.ulisse import UnbiasedSolution as UnbiasedSolution
from pymc_lgm.papers.solvers.ulisse import ulisse as ulisse
