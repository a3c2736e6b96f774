#!/usr/bin/env bash
# tools/debian_root.sh SUITE [COMMAND...]: makes a bare Debian (bookworm, trixie) in a folder outside the repository,
# unless it exists: what debootstrap calls minimal, with Python and its venv. Without a command, prints that folder.
# Else runs the command in it, by chroot, in a mount namespace of its own, with the host's /proc, /dev, name service and
# certificates, and with the folders of GANGWAY_ROOT_BINDS (with colons between them) at the same paths. Needs root and
# the package mirror.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly suite=${1:?usage: tools/debian_root.sh SUITE [COMMAND...]} versions=$here/tools/versions/debootstrap.txt
shift
cache="${GANGWAY_CACHE:-$HOME/.cache/gangway}/roots"
read -r _ version sha256 < <(grep '^debootstrap ' "$versions")
readonly root="$cache/$suite-${sha256:0:12}" mirror=http://deb.debian.org/debian
fail() { printf 'debian_root: %s\n' "$*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || fail "a bare Debian is made and entered by root only"

# Prints the folder of the unpacked debootstrap.
debootstrap() {
  local folder="$cache/debootstrap-${sha256:0:12}" package
  package="$folder/package.deb"
  if [ ! -f "$folder/complete" ]; then
    mkdir -p "$folder"
    python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' \
      "$mirror/pool/main/d/debootstrap/debootstrap_${version}_all.deb" "$package" ||
      fail "debootstrap $version could not be fetched; if Debian has a newer one, put that into $versions"
    echo "$sha256  $package" | sha256sum -c --quiet - >&2 || fail "debootstrap does not have the hash in $versions"
    dpkg -x "$package" "$folder"
    touch "$folder/complete"
  fi
  echo "$folder"
}

make_root() {
  local folder
  folder=$(debootstrap)
  rm -rf "$root"
  mkdir -p "$root"
  DEBOOTSTRAP_DIR="$folder/usr/share/debootstrap" sh "$folder/usr/sbin/debootstrap" --variant=minbase \
    --include=python3,python3-venv,ca-certificates "$suite" "$root" "$mirror" > "$root.log" 2>&1 ||
    fail "debootstrap could not make Debian $suite: see $root.log"
  touch "$root.complete"
}

mkdir -p "$cache"
exec 9> "$cache/$suite.lock"
flock 9
[ -f "$root.complete" ] || make_root
exec 9>&-
if [ $# -eq 0 ]; then
  printf '%s\n' "$root"
  exit
fi
export root
# shellcheck disable=SC2016  # the inner shell expands it
exec unshare --mount bash -ec '
  mount --make-rprivate /
  for folder in /proc /dev ${GANGWAY_ROOT_BINDS//:/ }; do
    mkdir -p "$root$folder"
    mount --rbind "$folder" "$root$folder"
  done
  for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do
    [ ! -e "$file" ] || { touch "$root$file" && mount --bind "$(realpath "$file")" "$root$file"; }
  done
  exec chroot "$root" /usr/bin/env -u root -u LD_LIBRARY_PATH HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
' bash "$@"
