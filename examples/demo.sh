#!/usr/bin/env bash
# Starts a cluster of real processes, trains a small language model on it with an unmodified JAX
# script, and brings the cluster down, however this ends. `make demo` runs this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

gangway=${GANGWAY_BIN:-bin/gangway}
python=${GANGWAY_PYTHON:-.venv/bin/python}
out=${GANGWAY_DEMO_OUT:-examples/out}
steps=${GANGWAY_DEMO_STEPS:-250}
for needed in "$gangway" "$python"; do
  command -v "$needed" >/dev/null || { echo "demo: $needed is missing: run \`make\` first" >&2; exit 1; }
done
export GANGWAY_PYTHON=$python

# A port that is free now, so that the demo never meets somebody's running cluster.
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
down() { "$gangway" down --port "$port" || echo "demo: \`gangway down --port $port\` failed" >&2; }
trap down EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }

mkdir -p "$out"
say "$gangway" up --islands 1 --workers 1 --devices 8 --port "$port" --detach
say "$gangway" run --port "$port" examples/train_lm.py --steps "$steps" --out "$out/train_lm.png" &
training=$!
# Training takes the cluster's time; one look at it from outside, once its session is there.
for _ in $(seq 100); do
  "$gangway" status --json --port "$port" 2>/dev/null | grep -q '"arrays": *[1-9]' && break
  kill -0 "$training" 2>/dev/null || break
  sleep 0.5
done
say "$gangway" status --port "$port" || true
wait "$training"
echo "The loss curve is in $out/train_lm.png"
