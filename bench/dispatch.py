"""Measures dispatch through the whole path, beside JAX in-process on the same plugin: time and CPU per call.

Also reports the frames that the controller sends to clients per call, since calls should make no round trip.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import benchlib
import harness

CLIENT = pathlib.Path(__file__).with_name("dispatch_client.py")
AIM_CPU_US = 60.0
TIMEOUT_S = 600


def run_client(backend: str, environment: dict[str, str]) -> dict[str, dict]:
    result = subprocess.run(
        [sys.executable, str(CLIENT), "--backend", backend],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if result.returncode:
        raise SystemExit(f"{backend}: {result.stdout}{result.stderr}")
    cases = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return {case["case"]: case for case in cases}


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


def main() -> None:
    cluster = harness.Cluster(1, 1, 8).start()
    try:
        pids = f"head={head_pid(cluster)},worker={cluster.workers()[0]['pid']}"
        environment = harness.client_environment(cluster.port) | {"GANGWAY_BENCH_PIDS": pids}
        before = cluster.status()["counters"]
        ours = run_client("gangway", environment)
        after = cluster.status()["counters"]
    finally:
        cluster.stop()
    theirs = run_client("reference", dict(os.environ))
    rows = []
    for name, case in ours.items():
        peer = theirs[name]
        rows.append(
            benchlib.Row(
                what=name,
                unit="us per call",
                values=[value * 1e6 for value in case["seconds"]],
                peer="JAX on the plugin in-process",
                peer_values=[value * 1e6 for value in peer["seconds"]],
            )
        )
        cpu = case["cpu_us"]
        total = cpu["head"] + cpu["worker"]
        aimed = name == "call, 1 device, 1 in 1 out"
        rows.append(
            benchlib.Row(
                what=f"{name}: CPU of head {cpu['head']:.1f} + worker {cpu['worker']:.1f}, client {cpu['client']:.1f}",
                unit="us per call",
                values=[total],
                aim=f"< {AIM_CPU_US:g}" if aimed else "",
                holds=total < AIM_CPU_US if aimed else None,
            )
        )
        if aimed:
            rows += thread_rows(name, case["threads_us"])
    calls = sum(case["calls"] for case in ours.values())
    sent = after["frames_to_clients"] - before["frames_to_clients"]
    rows.append(
        benchlib.Row(
            what=f"frames to the client per call, {calls} calls a repeat",
            unit="frames",
            values=[sent / (calls * 5)],
        )
    )
    benchlib.write("dispatch", rows)


if __name__ == "__main__":
    main()
