#!/usr/bin/env bash
# tools/gpu_check.sh OUT [PLUGIN [--steps NAMES]]: what Gangway does on this machine's GPU, as a table in OUT/gpu.md
# (JSON beside). It runs in a kit that `make gpu-kit` made: the folder of this file with the wheel of Gangway and
# gangway_conformance. The machine has a Python whose JAX has a CUDA plugin, and needs no network. Steps
# (gpu_check/check.py) have limits of their own, and one that fails does not end the others; all take 8 minutes at most.
# PLUGIN: cuda (the default), or the path of a PJRT plugin, for a rehearsal. NAMES: of some steps, as gpu.md has them,
# with commas between them. Exit status: 0 if no step failed.
set -euo pipefail
kit=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?usage: tools/gpu_check.sh OUT [PLUGIN [--steps NAMES]]} plugin=${2:-cuda}
mkdir -p "$out"
exec python3 "$kit/gpu_check/check.py" --kit "$kit" --out "$(cd "$out" && pwd)" --plugin "$plugin" "${@:3}"
