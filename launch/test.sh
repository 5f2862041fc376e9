#!/usr/bin/env bash
# Installs what is needed and runs every check: ruff, mypy, shellcheck, the documentation, pytest.
#   bash launch/test.sh                  all of them
#   bash launch/test.sh tests/losses     arguments go to pytest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. launch/common.sh
. launch/environment.sh test,docs
echo "running: ruff"
python -m ruff check .
python -m ruff format --check .
echo "running: mypy"
python -m mypy
echo "running: shellcheck"
shellcheck --external-sources launch/*.sh launch/*.sbatch .ci/run
echo "running: sphinx"
python -m sphinx -W --keep-going -q docs build/docs
echo "running: pytest"
exec python -m pytest --numprocesses=auto --dist=worksteal "$@"
