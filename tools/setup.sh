#!/usr/bin/env bash
# Brings a Debian 12 machine to the versions in tools/versions/: packages, .venv/ and .deps/. A step whose result is in
# place does nothing, so that setup can run before every build. Downloads are cached in ~/.cache/gangway and tried 3
# times. GANGWAY_SETUP_PYTHON names the Python 3.11 to use if `python3` is another version.
#
#   tools/setup.sh [--packages NAME | --deps | --missing]
#     --packages    only the Debian packages of tools/versions/NAME.txt
#     --deps        only .deps/, with a .venv/ that has no packages yet
#     --missing     changes nothing, and prints the missing Debian packages as apt-get takes them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly versions=tools/versions
packages=$versions/apt.txt
readonly cache="${GANGWAY_CACHE:-$HOME/.cache/gangway}"

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

retry() {  # only for downloads: retrying anything else would hide a fault
  local attempt
  for attempt in 1 2 3; do
    "$@" && return 0
    say "attempt $attempt of 3 failed: $*"
    [ "$attempt" -eq 3 ] || sleep $((attempt * 2))
  done
  return 1
}

# Prints "name=pattern" for each package that is missing or has another version.
packages_missing() {
  local name pattern installed
  declare -A have
  # shellcheck disable=SC2016  # dpkg-query expands them
  while read -r name installed; do have[$name]=$installed; done < <(
    sed -n 's/^\([^# ][^ ]*\) .*/\1/p' "$packages" |
      xargs dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n' 2>/dev/null | sed -n 's/ installed$//p')
  while read -r name pattern; do
    case "$name" in ''|'#'*) continue ;; esac
    # shellcheck disable=SC2053  # the right side is a pattern
    [[ ${have[$name]:-} == $pattern ]] || printf '%s=%s\n' "$name" "$pattern"
  done < "$packages"
}

install_packages() {
  local missing as_root=()
  command -v dpkg-query >/dev/null || fail "this machine has no dpkg; Gangway's build is pinned to Debian 12's packages"
  mapfile -t missing < <(packages_missing)
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "packages are missing; run as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
  retry "${apt[@]}" update || fail "apt-get update failed; is the package mirror reachable?"
  retry "${apt[@]}" install --no-install-recommends "${missing[@]}" ||
    fail "apt-get could not install ${missing[*]}; $packages is written for Debian 12 (bookworm)"
  mapfile -t missing < <(packages_missing)
  [ ${#missing[@]} -eq 0 ] || fail "installed packages do not match $packages: ${missing[*]}"
}

is_python_311() { "$1" -c 'import sys; raise SystemExit(sys.version_info[:2] != (3, 11))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${GANGWAY_SETUP_PYTHON:-python3 python3.11 /usr/bin/python3}; do
    if is_python_311 "$candidate"; then echo "$candidate"; return 0; fi
  done
  fail "Python 3.11 is needed (the pinned wheels are built for it), but ${GANGWAY_SETUP_PYTHON:-python3} is" \
    "$("${GANGWAY_SETUP_PYTHON:-python3}" --version 2>&1); set GANGWAY_SETUP_PYTHON to a Python 3.11"
}

# The index of which pip knows; uv does not read its configuration.
package_index() {
  local index
  index=$(.venv/bin/pip config list | sed -n "s/^[^ ]*\.index-url='\(.*\)'\$/\1/p" | tail -1)
  echo "${index:-https://pypi.org/simple}"
}

make_bare_venv() {
  if is_python_311 .venv/bin/python; then return 0; fi
  say "making .venv with $("$1" --version)"
  rm -rf .venv
  "$1" -m venv .venv
}

# pip takes a minute of CPU to install what uv takes from its cache in a second, in every new clone. The bytecode is
# made here, since each process would make its own where PYTHONDONTWRITEBYTECODE is set.
make_venv() {
  local wanted uv
  wanted=$(sha256sum < $versions/requirements.txt)
  if is_python_311 .venv/bin/python && [ "$(cat .venv/gangway-stamp 2>/dev/null)" = "$wanted" ]; then return 0; fi
  make_bare_venv "$1"
  say "installing the wheels of $versions/requirements.txt into .venv"
  uv=$(sed -n '/^uv==/p' $versions/requirements.txt)
  retry .venv/bin/pip install -q --disable-pip-version-check --cache-dir "$cache/pip" "$uv" &&
    retry env UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$(package_index)}" UV_CACHE_DIR="${UV_CACHE_DIR:-$cache/uv}" \
      .venv/bin/uv pip install -q --compile-bytecode --python .venv/bin/python -r $versions/requirements.txt ||
    fail "could not install $versions/requirements.txt; is the package index reachable?"
  .venv/bin/uv pip check -q --python .venv/bin/python || fail "the wheels of $versions/requirements.txt conflict"
  echo "$wanted" > .venv/gangway-stamp
}

# Prints the path of the cached wheel with the pinned hash; downloads the wheel if it is missing.
fetch_wheel() {
  local requirement=$1 sha256=$2 wheel
  mkdir -p "$cache/wheels/$sha256"
  wheel=$(find "$cache/wheels/$sha256" -name '*.whl' -print -quit)
  if [ -z "$wheel" ] || ! echo "$sha256  $wheel" | sha256sum -c --quiet - >/dev/null 2>&1; then
    rm -rf "${cache:?}/wheels/$sha256"
    say "downloading $requirement" >&2
    retry .venv/bin/pip download -q --disable-pip-version-check --no-deps --only-binary :all: \
      --platform manylinux_2_27_x86_64 --python-version 3.11 --implementation cp --abi cp311 --abi none \
      -d "$cache/wheels/$sha256" "$requirement" >&2 || fail "pip could not download $requirement"
    wheel=$(find "$cache/wheels/$sha256" -name '*.whl' -print -quit)
    echo "$sha256  $wheel" | sha256sum -c --quiet - >&2 ||
      fail "$wheel does not have the sha256 in $versions/wheels.txt; was it replaced upstream?"
  fi
  echo "$wheel"
}

# Into FOLDER/NAME: what the build compiles of each source package.
unpack_debian_sources() {
  local name version inside source
  while read -r name version _ _ inside; do
    case "$name" in ''|'#'*) continue ;; esac
    say "unpacking the source of $name $version into .deps/$name"
    source=$(tools/debian_source.sh "$name")
    mkdir -p "$1/$name"
    (cd "$source" && IFS=, && cp -a $inside "$OLDPWD/$1/$name/")
  done < $versions/debian_sources.txt
}

unpack_deps() {
  local requirement sha256 inside under wheel wanted
  wanted=$(cat $versions/wheels.txt $versions/debian_sources.txt | sha256sum)
  if [ "$(cat .deps/gangway-stamp 2>/dev/null)" = "$wanted" ]; then return 0; fi
  [ "$(uname -m)" = x86_64 ] || fail "the pinned PJRT plugin is for x86_64, this machine is $(uname -m)"
  rm -rf .cache/deps.new
  while read -r requirement sha256 inside under; do
    case "$requirement" in ''|'#'*) continue ;; esac
    wheel=$(fetch_wheel "$requirement" "$sha256")
    say "unpacking $requirement into .deps/$under"
    python3 - "$wheel" "$inside/" ".cache/deps.new/$under" <<'PYTHON'
import pathlib, shutil, sys, zipfile
wheel, inside, under = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for member in archive.namelist():
        if member.startswith(inside) and not member.endswith("/"):
            path = pathlib.Path(under) / member[len(inside):]
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
PYTHON
  done < $versions/wheels.txt
  unpack_debian_sources .cache/deps.new
  echo "$wanted" > .cache/deps.new/gangway-stamp
  # Complete or absent: an interrupted run leaves only .cache/deps.new, which the next run removes.
  rm -rf .deps
  mv .cache/deps.new .deps
}

main() {
  local python
  if [ "${1:-}" = --missing ]; then
    packages_missing
    return
  fi
  mkdir -p .cache "$cache"
  exec 9> .cache/setup.lock  # `make test` and `make demo` may start together
  flock -w 1800 9 || fail "another tools/setup.sh has held .cache/setup.lock for half an hour"
  if [ "${1:-}" = --packages ]; then
    packages=$versions/${2:?usage: tools/setup.sh [--packages NAME]}.txt
    install_packages
    return
  fi
  if [ "${1:-}" = --deps ]; then
    python=$(find_python)
    make_bare_venv "$python"
    unpack_deps
    return
  fi
  install_packages
  python=$(find_python)
  make_venv "$python"
  unpack_deps
}

main "$@"
