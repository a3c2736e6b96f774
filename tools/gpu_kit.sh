#!/usr/bin/env bash
# tools/gpu_kit.sh: makes build/gpu-kit, a folder to carry to a machine with a GPU and without a network: the wheel of
# Gangway, gangway_conformance, PyPI's pypjrt, and gpu_check.sh, which runs all of it there. At most 64 MiB.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly kit=build/gpu-kit limit_kib=$((64 * 1024))
rm -rf "$kit"
mkdir -p "$kit"
.venv/bin/python -m pip wheel -q --no-deps -w "$kit" \
  --config-settings build-dir=build/gpu-wheel --config-settings cmake.define.GANGWAY_WHEEL_CPU_PLUGIN=OFF .
tools/build.sh release gangway_conformance
strip -o "$kit/gangway_conformance" build/release/gangway_conformance
.venv/bin/python -m pip download -q --no-deps -d "$kit" -r tools/versions/gpu-kit.txt
cp -r tools/gpu_check.sh tools/gpu_check "$kit"
size_kib=$(du -sk "$kit" | cut -f1)
[ "$size_kib" -le "$limit_kib" ] || { echo "gpu_kit: $kit has $size_kib KiB, more than $limit_kib" >&2; exit 1; }
echo "$kit: $((size_kib / 1024)) MiB; there: gpu-kit/gpu_check.sh OUT"
