"""A `pymc.Model` read into functions of arrays: the only room that reads PyMC's graphs."""

from pymc_lgm.model.read import LatentGaussianModel as LatentGaussianModel
from pymc_lgm.model.read import find_latent as find_latent
from pymc_lgm.model.read import is_latent as is_latent
