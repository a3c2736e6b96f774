"""Serving with prefill and decoding on two meshes (examples/serve_pd.py): p50 and p99 of a tick, from the tokens of one
tick to those of the next, beside the alternative, in which each mesh does both for half of the requests.

Two cores cannot show what two busy meshes do, so the work is simulated: a tick and a prompt take time but no CPU, as
they do on accelerators. The rest is real: prompts go up, keys and values go from mesh to mesh, and the script reads each
tick's tokens. The example itself, whose work is real, runs beside JAX in one process on the same plugin. Other load on
the machine delays each tick. Every run must give the same answers.
"""

from __future__ import annotations

import json
import pathlib
import statistics
from typing import Any

import benchlib
import mesh_clients

CLIENT = pathlib.Path(__file__).with_name("serve_client.py")
TICK_MS, PREFILL_MS = 10.0, 40.0
OVER_P50_MS, OVER_P99_MS = 0.3, 1.0  # aims: what a tick takes beyond its work
REPEATS = 3
EXAMPLE = ""
# A prompt of 256 tokens has 128 KiB of keys and values.
SIMULATED = "--layers 1 --width 64 --prompt 256 --tokens 48 --slots 8 --requests 24 --every 8"
BACKENDS = {SIMULATED: ["gangway"], EXAMPLE: ["gangway", "plugin"]}
IN_PROCESS = "JAX in-process, same plugin"
VARIANTS = {
    "apart, one tick ahead": ("", 1),
    "apart, none ahead": ("", 0),
    "aggregated, one tick ahead": ("--aggregated", 1),
}
SHOWN = (
    ("simulated work, apart, one tick ahead: tick p99", "aggregated"),
    ("simulated work, apart, one tick ahead: first token p50", "aggregated"),
    ("simulated work, apart, one tick ahead: tick p50", "its work"),
    ("simulated work, apart, one tick ahead: tick p99", "its work"),
    ("simulated work, apart, none ahead: tick p99", "its work"),
    ("the example, apart, one tick ahead: tick p50", "aggregated"),
    ("the example, apart, one tick ahead: tick p99", "aggregated"),
    ("the example, apart, one tick ahead: tick p50", "JAX in-process"),
)
WHATS = {"p50": "tick p50", "p99": "tick p99", "first": "first token p50"}
Runs = list[dict[str, Any]]


def measure(clients: dict[str, mesh_clients.Client], flags: str) -> dict[tuple[str, str], Runs]:
    """The runs of each variant on each backend, which take turns."""
    seconds = (PREFILL_MS / 1e3, TICK_MS / 1e3) if flags else (0, 0)
    found: dict[tuple[str, str], Runs] = {}
    answers: dict[str, Any] = {}
    for repeat in range(REPEATS + 1):  # the first compiles
        for name, (more, ahead) in VARIANTS.items():
            for backend in BACKENDS[flags]:
                run = clients[backend].ask(
                    flags=f"{flags} {more}",
                    prefill_s=seconds[0],
                    tick_s=seconds[1],
                    ahead=ahead,
                )
                if answers.setdefault(backend, run["answers"]) != run["answers"]:
                    raise SystemExit(f"{backend}, {name}: other answers than before")
                if repeat:
                    found.setdefault((name, backend), []).append(run)
    return found


def values(found: dict[tuple[str, str], Runs], name: str, backend: str, what: str) -> list[float]:
    return [run[what] for run in found.get((name, backend), [])]


def rows_of(found: dict[tuple[str, str], Runs], flags: str) -> list[benchlib.Row]:
    kind = "simulated work" if flags else "the example"
    apart, _, aggregated = VARIANTS
    rows = []
    for what, words in WHATS.items():
        row = benchlib.Row(f"{kind}, {apart}: {words}", "ms", values(found, apart, "gangway", what))
        row.peer, row.peer_values = aggregated, values(found, aggregated, "gangway", what)
        if what == "p99":
            row.aim = "lower"
            row.holds = statistics.median(row.values) < statistics.median(row.peer_values)
        rows.append(row)
    for name in VARIANTS:
        for what, limit in {"p50": TICK_MS + OVER_P50_MS, "p99": TICK_MS + OVER_P99_MS}.items():
            row = benchlib.Row(
                f"{kind}, {name}: {WHATS[what]}", "ms", values(found, name, "gangway", what)
            )
            row.peer, row.peer_values = IN_PROCESS, values(found, name, "plugin", what)
            if flags:
                row.peer, row.peer_values = "its work", [TICK_MS]
            if flags and name != aggregated:
                row.aim = f"<= {limit:g}"
                row.holds = statistics.median(row.values) <= limit
            rows.append(row)
    return rows


def main() -> None:
    rows, ticks = [], {}
    with mesh_clients.running(CLIENT, meshes=2) as clients:
        for flags in BACKENDS:
            found = measure(clients, flags)
            rows += rows_of(found, flags)
            if flags:
                ticks = {name: runs[-1]["ticks"] for (name, _), runs in found.items()}
    for row in rows:
        row.devices = "cpu, work simulated" if "simulated" in row.what else "cpu"
    benchlib.write("serve", rows, shown=SHOWN)
    (benchlib.OUT / "serve-ticks.json").write_text(json.dumps(ticks))


if __name__ == "__main__":
    main()
