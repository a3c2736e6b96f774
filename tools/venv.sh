#!/usr/bin/env bash
# tools/venv.sh NAME: makes the venv of tools/versions/NAME.txt outside the repository, unless it exists, and prints the
# path of its Python. For packages that must stay out of the repository's .venv: peers of benchmarks, other versions of
# JAX.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly versions=tools/versions/${1:?usage: tools/venv.sh NAME, of tools/versions/NAME.txt}.txt
folder="${GANGWAY_CACHE:-$HOME/.cache/gangway}/venvs/$1-$(sha256sum "$versions" | cut -c1-12)"
readonly folder
if [ ! -f "$folder/complete" ]; then
  rm -rf "$folder"
  .venv/bin/python -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check -r "$versions" >&2
  touch "$folder/complete"
fi
printf '%s\n' "$folder/bin/python"
