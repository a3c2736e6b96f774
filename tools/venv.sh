#!/usr/bin/env bash
# tools/venv.sh NAME [SUITE]: makes the venv of tools/versions/NAME.txt outside the repository, unless it exists, and
# prints the path of its Python. With SUITE, it is one of the bare Debian of that name (tools/debian_root.sh), which
# needs the venv's folder in GANGWAY_ROOT_BINDS. It also removes the venvs of NAME that were made of earlier versions of
# that file and that nobody has used for a month. For packages that must stay out of the repository's .venv: peers of
# benchmarks, other versions of JAX.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly versions=tools/versions/${1:?usage: tools/venv.sh NAME [SUITE], NAME of tools/versions/NAME.txt}.txt
folder="${GANGWAY_CACHE:-$HOME/.cache/gangway}/venvs/$1-$(sha256sum "$versions" | cut -c1-12)${2:+-$2}"
readonly folder
mkdir -p "${folder%/*}"
exec 9> "$folder.lock"
flock 9  # another process may be making it
if [ ! -f "$folder/complete" ]; then
  rm -rf "$folder"
  mkdir -p "$folder"
  python=("$PWD/.venv/bin/python") within=()
  [ -z "${2:-}" ] || python=(python3) within=(env "GANGWAY_ROOT_BINDS=$folder" tools/debian_root.sh "$2")
  cp "$versions" "$folder/requirements.txt"
  "${within[@]}" "${python[@]}" -m venv "$folder" 9>&-
  "${within[@]}" "$folder/bin/pip" install --quiet --disable-pip-version-check -r "$folder/requirements.txt" >&2 9>&-
fi
touch "$folder/complete"
# Errors do not matter here: another process may be removing the same environments.
find "${folder%/*}" -ignore_readdir_race -mindepth 2 -maxdepth 2 -path "${folder%/*}/$1-????????????${2:+-$2}/complete" ! -path "$folder/*" \
  -mtime +30 -printf '%h\0' | xargs -0 -r rm -rf || true
printf '%s\n' "$folder/bin/python"
