#!/usr/bin/env bash
# Runs the tests with the oldest version of every requirement that setup.cfg allows, in an
# environment of its own, .venv-oldest. Set PYTHON to a Python 3.11, the oldest supported.
#
#   bash launch/test_oldest.sh                  all of them
#   bash launch/test_oldest.sh tests/losses     arguments go to pytest
#
#   --dry-run   print the commands and end
#   --help      this page
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset VIRTUAL_ENV CONDA_PREFIX
. launch/common.sh
read_test_words launch/test_oldest.sh "$@"
checked . launch/environment.sh test .venv-oldest oldest
# Packages of last year warn of this year's packages beneath them, which is not for us to mend.
checked python -m pytest --numprocesses=auto --dist=worksteal -W ignore::DeprecationWarning \
  ${words[@]+"${words[@]}"}
