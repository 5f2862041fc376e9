#!/usr/bin/env bash
# Sets up the environment (.venv, unless one is active) and ends: what other launchers do first.
#
#   bash launch/install.sh                  what training on CPUs needs
#   bash launch/install.sh --extras=gpu     more: gpu, tpu, test, docs, wandb; commas between them
#
#   --get-python   fetch Python 3.12 through uv where python3 is older than 3.11, as on the hosts
#                  of Cloud TPUs
#   --dry-run      print what would be done
#   --help         this page
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. launch/common.sh

extras="" fetch="" dry=""
for word in "$@"; do
  case "$word" in
    --extras=*) extras="${word#--extras=}" ;;
    --get-python) fetch=1 ;;
    --dry-run) dry=1 ;;
    --help) help_of launch/install.sh && exit 0 ;;
    *) fail "unknown argument '$word'; see --help" ;;
  esac
done
check_extras --extras "$extras"
is_old() {
  ! "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

if [ -n "$dry" ]; then
  [ -z "$fetch" ] || echo "python3 -m pip install --user uv && python3 -m uv python install 3.12"
  echo ". launch/environment.sh $(quoted "$extras")"
  exit 0
fi
if [ -n "$fetch" ] && [ ! -x .venv/bin/python ] && is_old; then
  python3 -m pip install --quiet --user uv || fail "uv, which fetches Python 3.12, can't be installed" 1
  python3 -m uv python install --quiet 3.12 || fail "Python 3.12 can't be fetched" 1
  PYTHON="$(python3 -m uv python find 3.12)"
fi
. launch/environment.sh "$extras"
