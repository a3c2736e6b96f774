"""Measures what a gang over all devices of a large cluster costs: the CPU time of all roles together, simulated devices
and network included, of 512 to 2,048 devices, 64 to a worker (gangway/simulation/gang_benchmark.cc).

All roles run in one thread, one process after the other, each until it has nothing to do. Repetitions of all sizes are
mixed, since the core's cache is shared with other machines.
"""

from __future__ import annotations

import json
import statistics
import subprocess

import benchlib
import harness

DEVICES = (512, 1024, 2048)
REPETITIONS = 7
LIMIT_S = 600
AIM = 2.2  # of twice the devices


def measure() -> dict[int, list[float]]:
    """CPU milliseconds per gang, by the number of devices."""
    binary = harness.GANGWAY.resolve().parents[1] / "simulation" / "simulation_gang_benchmark"
    command = [
        *[str(binary), "--benchmark_format=json", "--benchmark_min_time=0.5"],
        *[f"--benchmark_repetitions={REPETITIONS}", "--benchmark_enable_random_interleaving=true"],
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    found: dict[int, list[float]] = {devices: [] for devices in DEVICES}
    for run in json.loads(result.stdout)["benchmarks"]:
        if run["run_type"] == "iteration":
            found[int(run["name"].split("/")[1])].append(run["cpu_time"])
    return found


def main() -> None:
    found = measure()
    rows = []
    for devices in DEVICES:
        row = benchlib.Row(
            what=f"CPU of a gang over {devices} devices", unit="ms", values=found[devices]
        )
        if half := found.get(devices // 2):
            row.peer, row.peer_values = f"over {devices // 2} devices", half
            row.aim = f"<= {AIM}x"
            row.holds = statistics.median(row.values) <= AIM * statistics.median(half)
        rows.append(row)
    benchlib.write("gang", rows)


if __name__ == "__main__":
    main()
