#!/usr/bin/env bash
# tools/bench.sh [NAME...]: runs bench/NAME.py (all benchmarks without a name) against the release build. Each writes
# bench/out/NAME.json and NAME.md. With GANGWAY_BENCH_RECORD=1 in the environment, each also replaces its table in
# docs/internals/measurements.md, and adds its run to bench/history/. GANGWAY_BIN tells a benchmark which gangway to
# start, GANGWAY_PJRT_PLUGIN a script which plugin to load.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
tools/build.sh release gangway gangway_pjrt transport_benchmark spmd_bare spmd_calls launch_calls program_calls pipeline_dispatch simulated_calls simulation_gang_benchmark trace_benchmark || exit 1
mkdir -p bench/out
export GANGWAY_BIN="$PWD/build/release/gangway/cli/gangway"
export GANGWAY_PJRT_PLUGIN="$PWD/build/release/gangway/frontdoor/pjrt/libgangway_pjrt.so"
export PYTHONPATH="$PWD/python${PYTHONPATH:+:$PYTHONPATH}"

names=("$@")
# A file without a main, or NAME_client.py, is a part of another benchmark; turns.py compares two checkouts, and
# plots.py draws results.
if [ ${#names[@]} -eq 0 ]; then
  mapfile -t names < <(grep -l '__name__ == "__main__"' bench/*.py 2>/dev/null |
    grep -v '_client\.py$\|/turns\.py$\|/plots\.py$' | xargs -r -n1 basename -s .py)
  [ ${#names[@]} -gt 0 ] || { echo "bench: bench/ holds no benchmark" >&2; exit 1; }
fi

failed=()
for name in "${names[@]}"; do
  script=bench/${name//-/_}.py
  if [ ! -f "$script" ]; then
    echo "bench: $script does not exist; see bench/ for the names" >&2
    failed+=("$name")
    continue
  fi
  echo "== bench $name"
  timeout --kill-after=10 "${BENCH_TIMEOUT_S:-3600}" .venv/bin/python "$script" || failed+=("$name")
done
[ ${#failed[@]} -eq 0 ] || { echo "bench: failed: ${failed[*]}" >&2; exit 1; }
