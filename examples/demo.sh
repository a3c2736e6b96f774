#!/usr/bin/env bash
# Starts two islands of eight devices each, as real processes on this machine, and runs three unmodified JAX scripts:
# training on one mesh, a pipeline over both islands, and a script that loses its worker. Always ends the cluster.
# `make demo` runs this; GANGWAY_DEMO_STEPS is the number of steps of the first script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

gangway=${GANGWAY_BIN:-bin/gangway}
python=${GANGWAY_PYTHON:-.venv/bin/python}
out=${GANGWAY_DEMO_OUT:-examples/out}
steps=${GANGWAY_DEMO_STEPS:-60}
for needed in "$gangway" "$python"; do
  command -v "$needed" >/dev/null || { echo "demo: $needed is missing: run \`make build\` first" >&2; exit 1; }
done
export GANGWAY_PYTHON=$python

# A free port, so that the demo does not disturb a running cluster.
GANGWAY_PORT=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export GANGWAY_PORT
mkdir -p "$out"
rm -f "$out/elastic.npz" "$out/elastic.log"
script=
down() {
  [ -z "$script" ] || kill "$script" 2>/dev/null || true
  "$gangway" down --port "$GANGWAY_PORT" || echo "demo: \`gangway down --port $GANGWAY_PORT\` failed" >&2
}
trap down EXIT
trap 'exit 130' INT TERM

title() { printf '\n\033[1;34m%s\033[0m\n' "$*"; }
say() { printf '\033[1m$ %s\033[0m\n' "$*"; "$@"; }

# The pid of island 0's worker, from `gangway status`.
worker_pid() {
  "$gangway" status --json |
    "$python" -c 'import json, sys; print(json.load(sys.stdin)["islands"][0]["workers"][0]["pid"])'
}

both_islands_work() {
  "$gangway" status --json | "$python" -c '
import json, sys
workers = [w for island in json.load(sys.stdin)["islands"] for w in island["workers"]]
sys.exit(not all(w["nodes"] and any(d["bytes_in_use"] for d in w["devices"]) for w in workers))'
}

title "1. A cluster: two islands, a worker process with eight devices in each"
say "$gangway" up --islands 2 --workers 1 --devices 8 --port "$GANGWAY_PORT" --detach

title "2. A JAX script trains on the eight devices of one worker"
say "$gangway" run examples/train_lm.py --devices 8 --steps "$steps" --sample 120 --out "$out/train_lm.png"

title "3. The same model as a pipeline: a stage on each island, joined by device_put"
say "$gangway" run examples/pipeline_lm.py --schedule 1f1b --steps 8 &
script=$!
# The status shows something only while calls run: compiling takes the first part of a script's time.
until both_islands_work || ! kill -0 "$script" 2>/dev/null; do sleep 0.1; done
say "$gangway" status
wait "$script"
script=
say "$gangway" trace --out "$out/trace.json"

title "4. A worker is killed, and its script continues from the last checkpoint"
say "$gangway" run examples/elastic_lm.py --checkpoint "$out/elastic.npz" --steps 20 >"$out/elastic.log" 2>&1 &
script=$!
tail -n +1 -f --pid="$script" "$out/elastic.log" 2>/dev/null &
until grep -q 'step 10/' "$out/elastic.log" || ! kill -0 "$script" 2>/dev/null; do sleep 0.1; done
say kill -9 "$(worker_pid)"
say "$gangway" why
wait "$script" || { echo "demo: the script did not survive" >&2; exit 1; }
script=
wait

title "Look at"
echo "  $out/train_lm.png   the loss curve"
echo "  $out/trace.json     the pipeline, device by device: open it at https://ui.perfetto.dev"
