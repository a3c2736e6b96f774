"""Measures a script's calls by the number of devices that an array is sharded over, through both doors: the numbers
behind the default door (docs/internals/pjrt-door.md). Arguments: numbers of devices.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import benchlib
import harness

CLIENT = pathlib.Path(__file__).with_name("doors_client.py")
COUNTS = (1, 8, 32, 64, 128, 256)
DOORS = ("pjrt", "ifrt")
TIMEOUT_S = 600
SHOWN = tuple(
    (f"{devices} devices, 1 in 1 out{awaited}", "IFRT door")
    for devices in (1, 8, 32, 128)
    for awaited in ("", ", awaited")
)


def run_client(cluster: harness.Cluster, door: str) -> dict[str, dict]:
    environment = harness.client_environment(cluster.port, door)
    ran = subprocess.run(
        [sys.executable, str(CLIENT)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if ran.returncode:
        raise SystemExit(f"{door}: {ran.stdout}{ran.stderr}")
    cases = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return {case["case"]: case for case in cases}


def rows_of(count: int) -> list[benchlib.Row]:
    cluster = harness.Cluster(1, 1, count).start()
    try:
        runs = {door: run_client(cluster, door) for door in DOORS}
    finally:
        cluster.stop()
    rows = []
    for name, ours in runs["pjrt"].items():
        theirs = runs["ifrt"][name]
        for what, key in (("", "seconds"), (": CPU of the script's process", "cpu_seconds")):
            rows.append(
                benchlib.Row(
                    what=f"{count} devices, {name}{what}",
                    unit="us per call",
                    values=[value * 1e6 for value in ours[key]],
                    peer="IFRT door",
                    peer_values=[value * 1e6 for value in theirs[key]],
                )
            )
    return rows


def main() -> None:
    counts = [int(word) for word in sys.argv[1:]] or COUNTS
    rows = [row for count in counts for row in rows_of(count)]
    benchlib.write("doors", rows, is_result=counts == COUNTS, shown=SHOWN)


if __name__ == "__main__":
    main()
