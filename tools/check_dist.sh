#!/bin/sh
# Build the sdist and, from it, the wheel. On each Python that is here, install the wheel into a fresh environment
# and run README's example there, with its progress bar and without a C compiler.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
python=$(sh tools/find_python.sh)
rm -rf dist build/dist
mkdir -p build/dist
"$python" -m venv build/dist/build
build/dist/build/bin/python -m pip install -q -q --disable-pip-version-check build
build/dist/build/bin/python -m build --outdir dist . >build/dist/log 2>&1 || { cat build/dist/log; exit 1; }

find_minor() {
    for python in "python3.$1" "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/3.$1"[.-]*/bin/python; do
        PYTHON="$python" sh tools/find_python.sh 2>/dev/null && return
    done
    return 1
}

# README's first Python block, with fewer draws. A script needs the guard where chains run in several processes.
"$python" - README.md >build/dist/example.py <<'PYTHON'
import re
import sys

readme = open(sys.argv[1], encoding="utf-8").read()
(code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
short = code.replace("pm.sample(2_000, chains=4,", "pm.sample(200, tune=200, chains=4,")
assert short != code, "README's example calls pm.sample in another way: change tools/check_dist.sh"
print("def main():")
print("".join(f"    {line}\n" for line in short.splitlines()))
print('if __name__ == "__main__":\n    main()')
PYTHON

tried=0
for minor in 12 13 14; do
    python=$(find_minor "$minor") || { echo "Python 3.$minor: not found here"; continue; }
    venv="$root/build/dist/3.$minor"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install -q -q --disable-pip-version-check -c constraints.txt dist/*.whl
    # Away from the checkout, what is imported is what was installed. PATH has the environment alone: no compiler,
    # and nothing that could find one. PyTensor compiles into a folder of its own, so no cache helps.
    (
        cd build/dist
        export PATH="$venv/bin" PYTENSOR_FLAGS="base_compiledir=$venv/pytensor" MPLBACKEND=Agg
        python -c '
import shutil
from importlib.metadata import version
from importlib.resources import files
import pymc_lgm as lgm
assert "site-packages" in lgm.__file__, lgm.__file__
assert version("pymc_lgm") == lgm.__version__
assert files(lgm).joinpath("py.typed").is_file()
assert not any(map(shutil.which, ("cc", "gcc", "g++", "c++", "clang", "clang++")))'
        python example.py
    )
    echo "Python 3.$minor: the wheel installs and runs README's example without a C compiler"
    tried=$((tried + 1))
done
[ "$tried" -gt 0 ]
