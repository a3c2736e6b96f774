#!/usr/bin/env bash
# Makes the venv with Ray that benchmarks compare with, outside of the repository, and prints the path of its Python. Does nothing
# where it is there already. Downloads some 75 MB the first time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly versions=tools/versions/ray.txt
folder="${GANGWAY_CACHE:-$HOME/.cache/gangway}/venvs/ray-$(sha256sum "$versions" | cut -c1-12)"
readonly folder
if [ ! -f "$folder/complete" ]; then
  rm -rf "$folder"
  .venv/bin/python -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check -r "$versions" >&2
  touch "$folder/complete"
fi
printf '%s\n' "$folder/bin/python"
