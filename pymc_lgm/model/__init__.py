"""Read a `pymc.Model` into functions of arrays. Only this package reads PyMC's graphs."""

from pymc_lgm.model.data_read import data_behind as data_behind
from pymc_lgm.model.data_read import is_apart_from_data as is_apart_from_data
from pymc_lgm.model.data_read import matrix_functions as matrix_functions
from pymc_lgm.model.data_read import observed_behind as observed_behind
from pymc_lgm.model.latents import gaussian as gaussian
from pymc_lgm.model.latents import is_gaussian as is_gaussian
from pymc_lgm.model.latents import is_process as is_process
from pymc_lgm.model.latents import whitened_processes as whitened_processes
from pymc_lgm.model.observations import Observations as Observations
from pymc_lgm.model.read import LatentGaussianModel as LatentGaussianModel
from pymc_lgm.model.reading import all_but as all_but
from pymc_lgm.model.reading import find_latents as find_latents
from pymc_lgm.model.reading import find_observed as find_observed
from pymc_lgm.model.reading import latents_beside as latents_beside
from pymc_lgm.model.reading import refuse_left_gaussians as refuse_left_gaussians
from pymc_lgm.model.series import Recursion as Recursion
from pymc_lgm.model.series import recursion_of as recursion_of
