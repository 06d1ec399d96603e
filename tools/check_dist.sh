#!/bin/sh
# Build the sdist and, from it, the wheel; install the wheel into a fresh environment and sample there.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
python=$(sh tools/find_python.sh)
rm -rf dist build/dist
"$python" -m venv build/dist
build/dist/bin/python -m pip install -q -q --disable-pip-version-check build
build/dist/bin/python -m build --outdir dist . >build/dist/log 2>&1 || { cat build/dist/log; exit 1; }
build/dist/bin/python -m pip install -q -q --disable-pip-version-check -c constraints.txt dist/*.whl
# Away from the checkout: what is imported is what was installed.
cd build/dist
bin/python - <<'PYTHON'
from importlib.metadata import version
from importlib.resources import files

import numpy as np
import pymc as pm

import pymc_lgm as lgm

assert "site-packages" in lgm.__file__, lgm.__file__
assert version("pymc_lgm") == lgm.__version__
assert files(lgm).joinpath("py.typed").is_file()
table = lgm.datasets.load_coal_mining(bins=112)
with pm.Model():
    length = pm.InverseGamma("length", 3, 60)
    gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern52(1, ls=length))
    f = gp.prior("f", table[["year_mid"]].to_numpy(), reparameterize=False)
    lgm.LogGaussianCox("y", f=f, observed=table["y"])
    idata = pm.sample(50, tune=50, chains=1, cores=1, random_seed=1, progressbar=False)
assert np.isfinite(idata.posterior["f"]).all()
print(f"pymc_lgm {lgm.__version__}: sdist and wheel build, install and sample")
PYTHON
