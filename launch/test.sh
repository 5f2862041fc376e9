#!/usr/bin/env bash
# Installs what is needed and runs every check: ruff, mypy, shellcheck, the documentation, pytest.
#
#   bash launch/test.sh                  all of them
#   bash launch/test.sh tests/losses     arguments go to pytest
#
#   --dry-run   print the commands and end
#   --help      this page
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. launch/common.sh
read_test_words launch/test.sh "$@"
checked . launch/environment.sh test,docs
checked python -m ruff check .
checked python -m ruff format --check .
checked python -m mypy
checked shellcheck --external-sources launch/*.sh launch/*.sbatch .ci/run
checked python -m sphinx -W --keep-going -q docs build/docs
checked python -m pytest --numprocesses=auto --dist=worksteal ${words[@]+"${words[@]}"}
