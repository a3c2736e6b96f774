#!/usr/bin/env bash
# tools/debian_source.sh NAME: fetches the Debian source package of tools/versions/debian_sources.txt, unless it is
# cached, checks its hashes, unpacks it with Debian's patches outside the repository, and prints the folder.
# apt-get works on a list and folders of its own: the system's package lists stay as they are, and root is not needed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly name=${1:?usage: tools/debian_source.sh NAME} versions=tools/versions/debian_sources.txt
readonly cache="${GANGWAY_CACHE:-$HOME/.cache/gangway}"
fail() { printf 'debian_source: %s\n' "$*" >&2; exit 1; }

read -r _ version orig_sha256 debian_sha256 _ < <(grep "^$name " $versions) || fail "$versions has no $name"
readonly folder="$cache/sources/$orig_sha256-${debian_sha256:0:12}"

# Trusted, because the hashes in the list of versions decide, whatever key the mirror signs with.
fetch() {
  local apt=$cache/apt attempt
  mkdir -p "$apt/lists/partial" "$apt/archives"
  printf 'deb-src [trusted=yes] http://deb.debian.org/%s main\n' \
    'debian bookworm' 'debian bookworm-updates' 'debian-security bookworm-security' > "$apt/sources.list"
  local get=(apt-get -qq -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt" -o APT::Sandbox::User="$(id -un)")
  for attempt in 1 2 3; do
    # shellcheck disable=SC2015  # both may fail, and both are tried again
    "${get[@]}" update && (cd "$folder" && "${get[@]}" source --download-only --only-source "$name=$version") && return
    [ "$attempt" -eq 3 ] || sleep $((attempt * 2))
  done
  fail "apt-get could not fetch the source of $name $version: is the mirror reachable? If Debian has a newer version," \
    "put that into $versions, with its hashes"
}

if [ ! -f "$folder/complete" ]; then
  rm -rf "$folder"
  mkdir -p "$folder"
  fetch >&2
  printf '%s  %s\n' "$orig_sha256" "$(echo "$folder/${name}_${version%-*}".orig.tar.*)" \
    "$debian_sha256" "$folder/${name}_$version.debian.tar.xz" | sha256sum -c --quiet - >&2 ||
    fail "the source of $name $version does not have the hashes in $versions; was it replaced upstream?"
  dpkg-source --no-check --no-copy -x "$folder/${name}_$version.dsc" "$folder/unpacked" > "$folder/unpack.log" 2>&1 ||
    fail "dpkg-source could not unpack $name: see $folder/unpack.log"
  touch "$folder/complete"
fi
printf '%s\n' "$folder/unpacked"
