#!/bin/sh
# Print the path of a Python that can hold this project's virtual environment (3.12 to 3.14).
# Otherwise print one line on standard error that says what to install, and fail.
# The order: $PYTHON, the PATH, pyenv, and last a Python that uv fetches into .uv/.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

# A name on the PATH proves nothing: a pyenv shim exists for every version and fails when that version is not
# selected. Debian's python3 comes without ensurepip, so `-m venv` would fail. Numba has no free-threaded build.
works() {
    "$1" -c '
import sys, venv, ensurepip
sys.exit(not (3, 12) <= sys.version_info[:2] <= (3, 14) or "t" in sys.abiflags)
' >/dev/null 2>&1
}

# Print the real path, not the shim's: a shim may lead elsewhere in another folder.
accept() {
    if works "$1"; then
        "$1" -c 'import sys; print(sys.executable)'
        exit 0
    fi
}

fail() {
    echo "$1" >&2
    exit 1
}

# Who names an interpreter wants that one or an error, not another one in silence.
if [ -n "${PYTHON:-}" ]; then
    accept "$PYTHON"
    fail "PYTHON=$PYTHON is not a working Python 3.12 to 3.14 with venv and pip: name another one, or none."
fi

for python in python3.14 python3.13 python3.12 python3 python; do
    accept "$python"
done

# pyenv keeps versions that are installed and not selected out of reach of the PATH.
for minor in 14 13 12; do
    for python in "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/3.$minor"[.-]*/bin/python; do
        accept "$python"
    done
done

# uv brings a Python of its own. It is installed here, not in the user's folders, and any Python 3 can install it.
find_uv() {
    command -v uv && return
    [ -x "$root/.uv/bin/uv" ] || {
        python3 -m venv "$root/.uv" && "$root/.uv/bin/python" -m pip install --quiet uv
    } >>"$root/.uv/log" 2>&1 && echo "$root/.uv/bin/uv"
}

echo "No Python 3.12 to 3.14 here: asking uv for one (kept in .uv/) ..." >&2
mkdir -p "$root/.uv"
if uv=$(find_uv); then
    export UV_PYTHON_INSTALL_DIR="$root/.uv/python" UV_PYTHON_PREFERENCE=only-managed
    if "$uv" python install 3.13 >>"$root/.uv/log" 2>&1; then
        accept "$("$uv" python find 3.13 2>>"$root/.uv/log")"
    fi
fi

fail "Please install Python 3.12, 3.13 or 3.14 with venv, or set PYTHON=/path/to/python (uv could not bring one: .uv/log)."
