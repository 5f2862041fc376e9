#!/usr/bin/env bash
# Makes a release ready: builds wheel and source archive, installs the wheel in a clean environment
# and tries it there, and prints the changelog's section. Uploads nothing and tags nothing: the last
# lines say how.
#
#   bash launch/release.sh               the version in setup.cfg
#
#   --output=DIR   where the archives go (dist)
#   --dry-run      print the commands and end
#   --help         this page
#
# The changelog needs a section "## VERSION", aninfonce_jax.__version__ the same version, and the
# checkout no changes that are not committed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. launch/common.sh
output=dist dry=""
for word in "$@"; do
  case "$word" in
    --output | --output=*) output="$(value_of "$word")" ;;
    --dry-run) dry=1 ;;
    --help) help_of launch/release.sh && exit 0 ;;
    *) fail "unknown argument '$word'; see --help" ;;
  esac
done

version="$(sed -n 's/^version = //p' setup.cfg)"
need "version" "$version" "setup.cfg has none"
if [ -z "$dry" ]; then
  grep -q "^__version__ = \"$version\"$" aninfonce_jax/__init__.py ||
    fail "aninfonce_jax.__version__ is not $version, as setup.cfg has it; make them the same"
  section="$(awk -v head="## $version" \
    'index($0, head) == 1 { on = 1; next } /^## / { on = 0 } on' CHANGELOG.md)"
  [ -n "$section" ] || fail "CHANGELOG.md has no section '## $version'; rename '## Unreleased' to it"
  [ -z "$(git status --porcelain)" ] || fail "some changes are not committed; commit them first"
  [ ! -e "$output" ] || fail "$output is there already; remove it, or give another --output"
fi

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
python="${PYTHON:-python3}"
checked "$python" -m venv "$scratch/build"
checked "$scratch/build/bin/pip" install --quiet --disable-pip-version-check build
checked "$scratch/build/bin/python" -m build --outdir "$output" .
wheel="$output/aninfonce_jax-$version-py3-none-any.whl"
[ -n "$dry" ] || [ -e "$wheel" ] || fail "the build made no $wheel" 1
checked "$python" -m venv "$scratch/clean"
checked "$scratch/clean/bin/pip" install --quiet --disable-pip-version-check "$wheel"
# Away from the checkout, so that nothing is imported from it.
checked env --unset=PYTHONPATH --chdir="$scratch" "$scratch/clean/bin/python" -c \
  "import aninfonce_jax as an; assert an.__version__ == '$version'; assert all(hasattr(an, x) for x in an.__all__)"
checked env --unset=PYTHONPATH --chdir="$scratch" "$scratch/clean/bin/aninfonce" --config=quickstart --workdir=try \
  --config.train.steps=2 --config.eval.every=2 --config.source.mixing.candidates=10 \
  --config.encoder.widths=8 --config.train.batch_size=16 --config.eval.samples=128 --progress=off

[ -z "$dry" ] || exit 0
say "$version is ready in $output. Its section of the changelog:"
printf '%s\n' "$section"
say "to publish it: git tag v$version && git push origin v$version && twine upload $output/*"
