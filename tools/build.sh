#!/usr/bin/env bash
# tools/build.sh PRESET [TARGET...]: configures build/PRESET if needed, and builds it; quiet unless a step fails.
# The dev build is linked as bin/gangway and bin/libgangway_pjrt.so. JOBS limits the parallel compiles (default: all
# cores).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:?usage: tools/build.sh PRESET [TARGET...]}
shift
tree=build/$preset
mkdir -p "$tree"

# Ninja reconfigures when a CMakeLists.txt changes, but does not track CMakePresets.json.
if [ ! -f "$tree/build.ninja" ] || [ CMakePresets.json -nt "$tree/build.ninja" ]; then
  if ! cmake --preset "$preset" > "$tree/configure.log" 2>&1; then
    cat "$tree/configure.log" >&2
    echo "build: configuring preset $preset failed; the log is $tree/configure.log" >&2
    exit 1
  fi
  touch "$tree/build.ninja"
fi

targets=()
[ $# -eq 0 ] || targets=(--target "$@")
NINJA_STATUS="[%f/%t %es] " cmake --build "$tree" -j "${JOBS:-$(nproc)}" "${targets[@]}"

if [ "$preset" = dev ] && [ -x "$tree/gangway/cli/gangway" ]; then
  mkdir -p bin
  ln -sfn "../$tree/gangway/cli/gangway" bin/gangway
  ln -sfn "../$tree/gangway/frontdoor/pjrt/libgangway_pjrt.so" bin/libgangway_pjrt.so
fi
