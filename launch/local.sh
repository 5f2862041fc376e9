#!/usr/bin/env bash
# Installs what is needed and runs the main job on this machine.
#   bash launch/local.sh                                        the quickstart, with its report
#   bash launch/local.sh --config=configs/synthetic.py:linear   any arguments of the main module
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. launch/environment.sh ""
echo "running: python -m aninfonce_jax.main $*"
exec python -m aninfonce_jax.main "$@"
