#!/usr/bin/env bash
# Sets up the environment (.venv, unless one is active) and ends: what other launchers do first.
#
#   bash launch/install.sh                  what training on CPUs needs
#   bash launch/install.sh --extras=gpu     more: gpu, tpu, test, docs, wandb; commas between them
#
#   --dry-run   print what would be done
#   --help      this page
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. launch/common.sh

extras="" dry=""
for word in "$@"; do
  case "$word" in
    --extras=*) extras="${word#--extras=}" ;;
    --dry-run) dry=1 ;;
    --help) help_of launch/install.sh && exit 0 ;;
    *) fail "unknown argument '$word'; see --help" ;;
  esac
done
if [ -n "$dry" ]; then
  echo ". launch/environment.sh $(quoted "$extras")"
  exit 0
fi
. launch/environment.sh "$extras"
