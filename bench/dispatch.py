"""Measures dispatch and transfers of one script through both doors, beside JAX in-process on the same plugin: time and
CPU per call. What a script awaits is also measured on two clusters in turns, one of which runs without the latency
request. An argument `--only TEXT` restricts the run to the cases whose name contains TEXT ("latency request": those on
two clusters).

Also reports the frames that the controller sends to clients per call, since calls should make no round trip.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Sequence

import benchlib
import harness

CLIENT = pathlib.Path(__file__).with_name("dispatch_client.py")
AIM_CPU_US = 60.0
TIMEOUT_S = 600
JAX = "JAX on the plugin in-process"
SHOWN = (
    ("pjrt: call, 1 device, 1 in 1 out", JAX),
    ("pjrt: call, 8 devices sharded, 1 in 1 out", JAX),
    ("pjrt: call, 1 device, 100 in 100 out", JAX),
    ("pjrt: call and wait, 1 device", JAX),
    ("pjrt: call and fetch, 1 device", JAX),
    ("ifrt: call and wait, 1 device", JAX),
    ("pjrt: device_put and wait, 64 B", JAX),
    ("pjrt: device_put and wait, 64 MiB", JAX),
)


DOORS = ("pjrt", "ifrt")
# What a script awaits: each has several wakes of sleeping threads on its path.
AWAITED = (
    "call and wait, 1 device",
    "call and fetch, 1 device: float(f(x))",
    "device_put and wait, 64 B",
    "device_put and wait, 2 kB",
)
NO_REQUEST = ("--no-latency-request",)
TURNS = 3


def run_client(
    backend: str, environment: dict[str, str], only: str = "", cases: Sequence[str] = ()
) -> dict[str, dict]:
    """What the client measured, by case: of `cases`, or else all whose name contains `only`."""
    chosen = [word for case in cases for word in ("--case", case)] or ["--only", only]
    result = subprocess.run(
        [sys.executable, str(CLIENT), "--backend", backend, *chosen],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if result.returncode:
        raise SystemExit(f"{backend}: {result.stdout}{result.stderr}")
    measured = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return {case["case"]: case for case in measured}


def head_pid(cluster: harness.Cluster) -> int:
    for pid in cluster.processes():
        if b"\0head\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise SystemExit("no head process")


# Thread name -> its work, for head and worker. The head's controller and schedulers share one loop.
THREADS = {
    "head": {
        "gangway-grpc": "front door: requests and answers",
        "gw-client": "front door: events from the controller",
        "head": "controller, scheduler, and links to workers",
        "gangway-local": "links to workers: what did not fit",
    },
    "worker": {
        "worker": "worker: host-side work, and links",
        "device0": "worker: execute",
        "gangway-local": "worker: links, what did not fit",
    },
}


def thread_rows(case: str, threads: dict[str, dict[str, float]]) -> list[benchlib.Row]:
    rows = []
    for who, named in THREADS.items():
        for thread, what in named.items():
            value = threads[who].get(thread, 0.0)
            rows.append(
                benchlib.Row(what=f"{case}: CPU of {what}", unit="us per call", values=[value])
            )
        rest = sum(value for thread, value in threads[who].items() if thread not in named)
        rows.append(
            benchlib.Row(
                what=f"{case}: CPU of {who}'s other threads", unit="us per call", values=[rest]
            )
        )
    return rows


def door_rows(door: str, ours: dict[str, dict], theirs: dict[str, dict]) -> list[benchlib.Row]:
    """What one door costs beside JAX in-process."""
    rows = []
    for name, case in ours.items():
        peer = theirs[name]
        rows.append(
            benchlib.Row(
                what=f"{door}: {name}",
                unit="us per call",
                values=[value * 1e6 for value in case["seconds"]],
                peer=JAX,
                peer_values=[value * 1e6 for value in peer["seconds"]],
            )
        )
        cpu = case["cpu_us"]
        total = cpu["head"] + cpu["worker"]
        aimed = name == "call, 1 device, 1 in 1 out"
        rows.append(
            benchlib.Row(
                what=f"{door}: {name}: CPU of head {cpu['head']:.1f} + worker {cpu['worker']:.1f}, "
                f"client {cpu['client']:.1f}",
                unit="us per call",
                values=[total],
                aim=f"< {AIM_CPU_US:g}" if aimed else "",
                holds=total < AIM_CPU_US if aimed else None,
            )
        )
        if aimed:
            rows += thread_rows(f"{door}: {name}", case["threads_us"])
    return rows


def ratio_row(
    what: str, ours: list[float], peer: str, theirs: list[float], limit: float, aim: str
) -> benchlib.Row:
    """A row that holds if ours is at most `limit` times theirs; values in seconds."""
    return benchlib.Row(
        what=what,
        unit="us",
        values=[value * 1e6 for value in ours],
        peer=peer,
        peer_values=[value * 1e6 for value in theirs],
        aim=aim,
        holds=statistics.median(ours) <= limit * statistics.median(theirs),
    )


def comparison_rows(runs: dict[str, dict[str, dict]]) -> list[benchlib.Row]:
    """What the plugin is to reach, beside the IFRT door and beside JAX in-process."""
    pjrt, ifrt, reference = runs["pjrt"], runs["ifrt"], runs["reference"]
    rows = []
    call = "call, 1 device, 1 in 1 out"
    if call in pjrt:
        for limit, aim in ((5.0, "<= 5x"), (3.0, "aim: 3x")):
            ours, theirs = (run[call]["cpu_us"]["client"] / 1e6 for run in (pjrt, reference))
            what = "CPU of the script's process per call"
            rows.append(ratio_row(what, [ours], "in-process", [theirs], limit, aim))
    against_ifrt = {
        "call and wait, 1 device": 0.4,
        "device_put, 2 kB": 0.3,
        "pytree of 200 leaves of 4 KiB, up": 0.1,
        "pytree of 200 leaves of 4 KiB, down": 0.1,
    }
    for case, limit in against_ifrt.items():
        if case not in pjrt:
            continue
        ours, theirs = pjrt[case]["seconds"], ifrt[case]["seconds"]
        rows.append(ratio_row(case, ours, "IFRT door", theirs, limit, f"<= {limit:g}x"))
    eight = "call, 8 devices sharded, 1 in 1 out"
    if eight in pjrt:
        ours, theirs = pjrt[eight]["seconds"], reference[eight]["seconds"]
        rows.append(ratio_row(eight, ours, "in-process", theirs, 1.2, "<= 1.2x"))
    for case in ("device_put and wait, 64 MiB", "np.asarray, 64 MiB"):
        if case not in pjrt or "memcpy, 64 MiB" not in pjrt:
            continue
        ours, theirs = pjrt[case]["seconds"], pjrt["memcpy, 64 MiB"]["seconds"]
        for share, aim in ((0.4, ">= 0.4 of memcpy"), (0.7, "aim: 0.7 of memcpy")):
            rows.append(ratio_row(case, ours, "memcpy", theirs, 1 / share, aim))
    return rows


def latency_rows(only: str) -> list[benchlib.Row]:
    """Awaited work on a cluster that holds the host's latency request while something is under way, and on one that
    does not. JAX in-process takes its turn while both are idle, so neither holds anything.
    """
    variants = {"with the latency request": (), "without the latency request": NO_REQUEST}
    cases = [
        case
        for case in AWAITED
        if any(only in f"{door}: {case}, {what}" for door in DOORS for what in variants)
    ]
    if not cases:
        return []
    seconds: dict[str, list[float]] = {}

    def add(prefix: str, measured: dict[str, dict]) -> None:
        for name, case in measured.items():
            seconds.setdefault(prefix + name, []).extend(case["seconds"])

    with contextlib.ExitStack() as stack:
        clusters = {}
        for what, flags in variants.items():
            clusters[what] = harness.Cluster(1, 1, 8, *flags).start()
            stack.callback(clusters[what].stop)
        for _ in range(TURNS):
            for door in DOORS:
                for what, cluster in clusters.items():
                    environment = harness.client_environment(cluster.port)
                    add(f"{door}, {what}: ", run_client(door, environment, cases=cases))
            add("reference: ", run_client("reference", dict(os.environ), cases=cases))
    return [
        benchlib.Row(
            what=f"{door}: {case}, {what}",
            unit="us per call",
            values=[value * 1e6 for value in seconds[f"{door}, {what}: {case}"]],
            peer=JAX,
            peer_values=[value * 1e6 for value in seconds[f"reference: {case}"]],
        )
        for door in DOORS
        for case in cases
        for what in variants
    ]


def all_rows(only: str) -> list[benchlib.Row]:
    """Rows of one cluster as `gangway up` starts it."""
    runs: dict[str, dict[str, dict]] = {}
    cluster = harness.Cluster(1, 1, 8).start()
    sent = 0
    try:
        pids = f"head={head_pid(cluster)},worker={cluster.workers()[0]['pid']}"
        for door in DOORS:
            environment = harness.client_environment(cluster.port) | {"GANGWAY_BENCH_PIDS": pids}
            before = cluster.status()["counters"]
            runs[door] = run_client(door, environment, only)
            after = cluster.status()["counters"]
            if door == "ifrt":
                sent = after["frames_to_clients"] - before["frames_to_clients"]
    finally:
        cluster.stop()
    runs["reference"] = run_client("reference", dict(os.environ), only)
    rows = comparison_rows(runs)
    for door in DOORS:
        rows += door_rows(door, runs[door], runs["reference"])
    calls = sum(case["calls"] for case in runs["ifrt"].values())
    if calls == 0:
        sys.exit(
            f"no case's name contains {only!r}, without its door: bench/dispatch_client.py lists them"
        )
    rows.append(
        benchlib.Row(
            what=f"frames to the IFRT door per call, {calls} calls a repeat",
            unit="frames",
            values=[sent / (calls * 5)],
        )
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name contains this")
    only = parser.parse_args().only
    rows = [] if "latency request" in only else all_rows(only)
    benchlib.write("dispatch", rows + latency_rows(only), is_result=not only, shown=SHOWN)


if __name__ == "__main__":
    main()
