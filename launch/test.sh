#!/usr/bin/env bash
# Installs what is needed and runs every check: ruff, mypy, pytest.
#   bash launch/test.sh                  all of them
#   bash launch/test.sh tests/losses     arguments go to pytest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. launch/environment.sh test
echo "running: ruff"
python -m ruff check .
python -m ruff format --check .
echo "running: mypy"
python -m mypy
echo "running: pytest"
exec python -m pytest --numprocesses=auto --dist=worksteal "$@"
