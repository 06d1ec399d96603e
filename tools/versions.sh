#!/bin/sh
# Run the fast tests on every Python that this project supports and that is found here, each in an
# environment of its own below build/versions/. Arguments go to pytest: tools/versions.sh tests/test_workflow.py
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root" || exit 1
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

find_minor() {
    for python in "python3.$1" "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/3.$1"[.-]*/bin/python; do
        PYTHON="$python" sh tools/find_python.sh 2>/dev/null && return
    done
    return 1
}

failed=0
summary=""
for minor in 12 13 14; do
    if ! python=$(find_minor "$minor"); then
        summary="$summary
3.$minor  not found here"
        continue
    fi
    venv="build/versions/3.$minor"
    echo "Python 3.$minor: installing into $venv ..."
    "$python" -m venv "$venv" &&
        "$venv/bin/python" -m pip install -q -q --disable-pip-version-check -c constraints.txt -e ".[test]" &&
        "$venv/bin/python" -m pytest -q -n 2 --dist worksteal -m "not slow and not mutant and not whole" "$@"
    status=$?
    [ "$status" -eq 0 ] || failed=1
    versions=$("$venv/bin/python" -c '
from importlib.metadata import version
print(*(f"{name} {version(name)}" for name in ("pymc", "pytensor", "arviz", "numpy", "scipy")), sep=", ")')
    summary="$summary
3.$minor  $([ "$status" -eq 0 ] && echo passed || echo FAILED)  $versions"
done
echo "$summary"
exit "$failed"
