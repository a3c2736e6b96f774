#!/usr/bin/env bash
# tools/source.sh NAME: fetches the source package of tools/versions/sources.txt, unless it is cached, checks its hash,
# unpacks it outside the repository, and prints the folder of its sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly name=${1:?usage: tools/source.sh NAME, of tools/versions/sources.txt} versions=tools/versions/sources.txt
read -r requirement sha256 < <(grep "^$name==" $versions) || { echo "source: $versions has no $name" >&2; exit 1; }
folder="${GANGWAY_CACHE:-$HOME/.cache/gangway}/sources/$sha256"
readonly folder
if [ ! -f "$folder/complete" ]; then
  rm -rf "$folder"
  mkdir -p "$folder/unpacked"
  .venv/bin/pip download -q --disable-pip-version-check --no-deps --no-binary :all: -d "$folder" "$requirement" >&2
  archive=$(find "$folder" -maxdepth 1 -name '*.tar.gz' -print -quit)
  echo "$sha256  $archive" | sha256sum -c --quiet - >&2 ||
    { echo "source: $archive does not have the sha256 in $versions; was it replaced upstream?" >&2; exit 1; }
  tar -xzf "$archive" -C "$folder/unpacked" --strip-components=1
  touch "$folder/complete"
fi
printf '%s\n' "$folder/unpacked"
