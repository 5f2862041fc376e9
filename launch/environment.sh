# shellcheck shell=bash
# Sourced by the other launchers, after common.sh: an environment with the package and the extras
# in $1. Uses the active virtual environment, or makes one in $2 (.venv). With "oldest" as $3 every
# requirement is installed in the oldest version allowed. Does nothing that is done, and nothing
# at all where ANINFONCE_AS_IS is set: in a container, or an environment that others look after.

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  echo "aninfonce_jax: launch/environment.sh is for the other launchers; see bash launch/local.sh --help" >&2
  exit 2
fi

set_up() {
  # Nothing of this is left behind in the launcher but the active environment.
  local extras="${1:-}" folder="${2:-.venv}" versions="${3:-newest}"
  local base version stamp wanted bounds=""
  if [ -z "${VIRTUAL_ENV:-}" ] && [ -z "${CONDA_PREFIX:-}" ]; then
    if [ ! -x "$folder/bin/python" ]; then
      base="${PYTHON:-python3}"
      command -v "$base" >/dev/null ||
        fail "no $base found; install Python 3.11 or newer, or set PYTHON"
      version="$("$base" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" ||
        fail "$base can't be run; install Python 3.11 or newer, or set PYTHON to one"
      "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Python 3.11 or newer is needed, $base is $version; set PYTHON to a newer one"
      "$base" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$base has no venv module; install it (Debian: apt-get install python3-venv)"
      echo "making a virtual environment in $folder"
      "$base" -m venv "$folder" || fail "could not make a virtual environment in $folder"
    fi
    # shellcheck disable=SC1091
    . "$folder/bin/activate"
  fi

  python -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "the active environment has $(python --version 2>&1), Python 3.11 or newer is needed"

  # What is installed is a function of these files and the extras: skip pip if none changed.
  stamp="$(python -c 'import sys; print(sys.prefix)')/.aninfonce_jax${extras:+-$extras}"
  wanted="$(cat setup.cfg pyproject.toml | cksum) $PWD"
  if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "installing aninfonce_jax${extras:+ with extras: $extras} (a minute or two the first time)"
    if [ "$versions" = oldest ]; then
      bounds="$stamp-bounds.txt"
      python launch/lower_bounds.py >"$bounds" || fail "setup.cfg can't be read"
    fi
    python -m pip install --quiet --disable-pip-version-check ${bounds:+--constraint "$bounds"} \
      --editable ".${extras:+[$extras]}" || fail "installation failed; see pip's message above"
    echo "$wanted" >"$stamp"
  fi
}

if [ -z "${ANINFONCE_AS_IS:-}" ]; then
  set_up "$@"
fi
