"""Measures the cost of the flight recorder: a chain of calls through the whole path, with recording on and off.

Rounds alternate between two clusters, so that both see the same machine. On a busy machine their noise
exceeds the effect. So the cost is also computed: records of all processes per call, times the cost of
one record (gangway/base/trace_benchmark, same run), relative to the CPU of a call. If `perf` is
installed, it also samples the share of the processes' CPU time in the recorder and in all reads of a
clock. Other load on the machine affects neither number.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys

import benchlib
import harness

SAMPLED_CALLS = int(os.environ.get("TRACE_SAMPLED_CALLS", "60000"))
RECORDER = re.compile(r"gangway::(\(anonymous namespace\)::)?(Trace(At)?|IsOn|ReadSetting)\b")
ROUNDS = int(os.environ.get("TRACE_ROUNDS", "10"))
AIM = 1.01
BENCHMARK = benchlib.ROOT / "build" / "release" / "gangway" / "base" / "trace_benchmark"
CLIENT = """
import json, os, pathlib, sys, time
import gangway
gangway.connect()
import jax, jax.numpy as jnp
step = jax.jit(lambda x: x + 1)
x = jax.device_put(jnp.zeros((8,), jnp.float32), jax.devices()[0])
pids = [int(pid) for pid in sys.argv[1].split(",")]
def cpu():
    tasks = [task for pid in pids for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
def run(count):
    y = x
    for _ in range(count): y = step(y)
    y.block_until_ready()
run(2000)
print("ready", flush=True)
for line in sys.stdin:
    count = int(line)
    before, started = cpu(), time.perf_counter()
    run(count)
    print(json.dumps([(time.perf_counter() - started) / count * 1e6, (cpu() - before) / count * 1e6]), flush=True)
"""


class Side:
    """One cluster, and its client, which waits for rounds."""

    def __init__(self, recording: str) -> None:
        self.cluster = harness.Cluster(1, 1, 1)
        self.cluster.environment["GANGWAY_TRACE"] = recording
        self.cluster.start()
        pids = [*self.cluster.processes()]
        self.client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, ",".join(map(str, pids))],
            env=harness.client_environment(self.cluster.port),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.wall: list[float] = []
        self.cpu: list[float] = []
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.client.stdout
        return self.client.stdout.readline().strip()

    def round(self, count: int) -> None:
        assert self.client.stdin
        self.client.stdin.write(f"{count}\n")
        self.client.stdin.flush()
        wall, cpu = json.loads(self._line())
        self.wall.append(wall)
        self.cpu.append(cpu)

    def recorded(self) -> int:
        """The number of records of all processes since their start."""
        out = pathlib.Path(self.cluster.state_dir) / "trace.json"
        text = self.cluster.command(
            "trace", "--out", str(out), "--port", str(self.cluster.port)
        ).stdout
        kept = re.findall(r"pid \d+ +(\d+) records", text)
        overwritten = re.findall(r"(\d+) older ones", text)
        return sum(map(int, kept)) + sum(map(int, overwritten))

    def stop(self) -> None:
        self.client.kill()
        self.client.wait(10)
        self.cluster.stop()


def sampled_share(side: Side) -> float | None:
    """The share of the recorder and of all reads of a clock in the CPU time of the cluster's processes,
    during a chain of calls. None: perf is missing or not permitted."""
    if not shutil.which("perf"):
        return None
    data = str(pathlib.Path(side.cluster.state_dir) / "perf.data")
    pids = ",".join(map(str, side.cluster.processes()))
    recorder = subprocess.Popen(
        ["perf", "record", "-q", "-e", "cpu-clock", "-F", "4000", "-p", pids, "-o", data],
        stderr=subprocess.DEVNULL,
    )
    side.round(SAMPLED_CALLS)
    recorder.send_signal(signal.SIGINT)
    recorder.wait(60)
    command = [
        "perf",
        "report",
        "-i",
        data,
        "--no-children",
        "-F",
        "sample,symbol,dso",
        "--stdio",
        "-q",
    ]
    report = subprocess.run(command, capture_output=True, text=True, timeout=300).stdout
    rows = re.findall(r"^\s*(\d+)\s+\[.\]\s+(.*)$", report, re.MULTILINE)
    total = sum(int(count) for count, _ in rows)
    ours = sum(int(count) for count, place in rows if RECORDER.match(place) or "[vdso]" in place)
    return ours / total if total > 1000 else None


def cost_of_a_record() -> float:
    """CPU nanoseconds per record."""
    result = subprocess.run(
        [str(BENCHMARK), "--benchmark_filter=BM_Record/threads:2", "--benchmark_format=json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return float(json.loads(result.stdout)["benchmarks"][0]["cpu_time"])


def main() -> None:
    sides: list[Side] = []
    try:
        sides = [Side("on"), Side("off")]
        on, off = sides
        for number in range(ROUNDS):
            for side in (on, off) if number % 2 else (off, on):
                side.round(5000)
        before = on.recorded()
        on.round(5000)
        records = (on.recorded() - before) / 5000
        share = sampled_share(on)
    finally:
        for side in sides:
            side.stop()
    record_ns = cost_of_a_record()
    reckoned = records * record_ns / 1000
    rows = [
        benchlib.Row(
            what=f"recording: {records:.1f} records of {record_ns:.0f} ns CPU, per call",
            unit="us per call",
            values=[reckoned],
            peer="CPU of a call, recording off",
            peer_values=off.cpu,
            aim=f"ratio <= {AIM - 1:.2f}",
            holds=reckoned <= (AIM - 1) * statistics.median(off.cpu),
        )
    ]
    if share is not None:
        rows.append(
            benchlib.Row(
                what="recording and all reads of a clock, share of the CPU of the cluster's processes",
                unit="ratio",
                values=[share],
                aim=f"<= {AIM - 1:.2f}",
                holds=share <= AIM - 1,
            )
        )
    for what, ours, theirs in (
        ("call, 1 device, in a chain, recording on", on.wall, off.wall),
        ("CPU of the cluster's processes, per call, recording on", on.cpu, off.cpu),
    ):
        ratio = statistics.median(ours) / statistics.median(theirs)
        rows.append(
            benchlib.Row(
                what=what,
                unit="us per call",
                values=ours,
                peer="recording off",
                peer_values=theirs,
                aim=f"ratio <= {AIM:g}",
                holds=ratio <= AIM,
            )
        )
    benchlib.write("trace", rows)


if __name__ == "__main__":
    main()
