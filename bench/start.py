"""Measures what processes cost to start. A command that asks no cluster, in turns with a Python that does nothing: CPU
time. Clusters without work: the time until they are ready, the time to their end, and the CPU time of their processes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import benchlib
import harness

COMMANDS, CLUSTERS = 40, 7  # how many of each are started
WORKERS = (1, 4)
TIMEOUT_S = 60
GANGWAY = str(harness.GANGWAY)


@contextlib.contextmanager
def cpu_ms_into(values: list[float]) -> Iterator[None]:
    """Appends the CPU time of the child processes, and theirs, that were started and ended within the block, in ms."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return 1e3 * (usage.ru_utime + usage.ru_stime)

    before = used()
    yield
    values.append(used() - before)


def command_row() -> benchlib.Row:
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(COMMANDS):
        for values, command in ((ours, [GANGWAY, "--help"]), (theirs, [sys.executable, "-c", ""])):
            with cpu_ms_into(values):
                subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)
    return benchlib.Row(
        what="`gangway --help`: CPU time",
        unit="ms",
        values=ours,
        peer="`python -c ''`",
        peer_values=theirs,
    )


def run_cluster(workers: int, ready_ms: list[float], end_ms: list[float]) -> None:
    with tempfile.TemporaryDirectory(prefix="gangway-bench-") as state:
        command = [GANGWAY, "up", "--workers", str(workers), "--port", str(harness.free_port())]
        began = time.monotonic()
        up = subprocess.Popen(
            command,
            env=os.environ | {"GANGWAY_STATE_DIR": state},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        late = threading.Timer(TIMEOUT_S, up.terminate)  # then it ends its workers, and its output
        late.start()
        try:
            assert up.stdout
            said = ""
            for line in up.stdout:
                said += line
                if line.startswith("ready"):
                    break
            else:
                raise SystemExit(f"{' '.join(command)}: {said}")
            ready = time.monotonic()
            up.terminate()
            up.communicate(timeout=TIMEOUT_S)
        finally:
            late.cancel()
            if up.poll() is None:
                up.kill()
                up.communicate()
    ready_ms.append(1e3 * (ready - began))
    end_ms.append(1e3 * (time.monotonic() - ready))


def cluster_rows(workers: int) -> list[benchlib.Row]:
    ready_ms: list[float] = []
    end_ms: list[float] = []
    cpu_ms: list[float] = []
    for _ in range(CLUSTERS):
        with cpu_ms_into(cpu_ms):
            run_cluster(workers, ready_ms, end_ms)
    what = f"a cluster of {workers} worker{'s' if workers > 1 else ''}"
    found = (
        ("from `gangway up` until it is ready", ready_ms),
        ("from the signal until it has ended", end_ms),
        ("CPU time of all processes", cpu_ms),
    )
    return [benchlib.Row(what=f"{what}, {part}", unit="ms", values=ms) for part, ms in found]


def main() -> None:
    rows = [command_row(), *(row for workers in WORKERS for row in cluster_rows(workers))]
    benchlib.write("start", rows)


if __name__ == "__main__":
    main()
