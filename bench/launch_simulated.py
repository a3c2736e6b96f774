"""The rows of bench/launch.py about large clusters: hundreds of workers with simulated devices, under the real head and
its sockets, on this machine. Part of that benchmark.

All workers are in one process, but for the last one, which is lost. What is called are declared functions that take no
time (bench/simulated_calls.cc): "gang" has nothing to tell between devices, "communicates" passes a word to the next
one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import benchlib
import harness
import launch_counts as counts
import spmd_peers as peers
import spmd_profile

DEVICES = 4  # of each worker
SIZES = (256, 512)  # workers
GANGS = 48
ARRAYS = 10_000
WELCOMES = 5
IDLE_S = 5.0
READY_LIMIT_S = 50
NAME = "simulated"


def limited(what: str, unit: str, value: float, aim: float, required: float = 0) -> benchlib.Row:
    """`required`: what must hold; 0: the aim."""
    holds = value <= (required or aim)
    text = f"<= {aim:g}" + (f"; required <= {required:g}" if required else "")
    return benchlib.Row(
        what=what,
        unit=unit,
        values=[value],
        devices="sim",
        aim=text + (": MISSED" if required and not holds else ""),
        holds=holds,
    )


def plain(what: str, unit: str, value: float) -> benchlib.Row:
    return benchlib.Row(what=what, unit=unit, values=[value], devices="sim")


def refused(what: str, unit: str, answer: dict[str, Any], aim: str = "") -> benchlib.Row:
    """Of a program that the cluster does not have; `answer` says why."""
    why = answer["refused"].partition(":")[0]
    row = plain(f"{what}: refused: {why}", unit, 0)
    row.aim, row.holds = aim, False if aim else None
    return row


class Simulated:
    """A cluster, and the script that calls it."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        flags = ("--simulate", str(workers - 1), "--ready-limit", str(READY_LIMIT_S))
        self.cluster = harness.Cluster(1, workers, DEVICES, *flags, folder="gangway-bench-")
        self.script = peers.Group("C++", lambda case: True)

    @contextmanager
    def running(self) -> Iterator[float]:
        """Yields the seconds until all workers were registered."""
        began = time.monotonic()
        self.cluster.start()
        try:
            up_s = time.monotonic() - began
            binary = str(peers.BINARIES / "simulated_calls")
            command = [binary, self.cluster.control, self.cluster.token]
            self.script.spawn(command, peers.plain_environment())
            self.script.wait_ready()
            yield up_s
        except BaseException:
            print(self.cluster.logs(), file=sys.stderr, flush=True)
            raise
        finally:
            self.script.stop()
            self.cluster.stop()

    def status(self) -> dict[str, Any]:
        return self.cluster.status()

    def pids(self) -> dict[str, int]:
        processes = sorted({worker["pid"] for worker in self.cluster.workers()})
        workers = {f"worker {number}": pid for number, pid in enumerate(processes)}
        return {"script": self.script.processes[0].pid, "head": self.cluster.head_pid, **workers}

    def what(self, text: str) -> str:
        return f"{self.workers}x{DEVICES} simulated: {text}"


def shares(parts: counts.ByRole) -> str:
    return ", ".join(f"{part} {value:.4g}" for part, value in parts.items())


def gang_cpu_ms(simulated: Simulated, case: str) -> counts.ByRole:
    """Of one gang over all devices, by role."""
    simulated.script.run(case, GANGS)  # what is done once is done
    pids = simulated.pids()
    counted = counts.without_perf(pids, GANGS, lambda: simulated.script.run(case, GANGS))
    return {role: us / 1000 for role, us in counted.cpu_us.items()}


def gang_rows(simulated: Simulated, cpu_of: dict[int, float]) -> Iterator[benchlib.Row]:
    """Adds the CPU of a gang to `cpu_of`, by the number of workers."""
    what = simulated.what(f"a gang over all {simulated.workers * DEVICES} devices")
    first = simulated.script.run("gang", 1)
    if "refused" in first:
        yield refused(f"{what}: CPU", "ms", first, "<= 10; required <= 15: MISSED")
        return
    yield plain(
        f"{what}: its program compiled, loaded and run for the first time",
        "ms",
        1000 * first["seconds"],
    )
    parts = gang_cpu_ms(simulated, "gang")
    cpu_of[simulated.workers] = sum(parts.values())
    yield limited(f"{what}: CPU: {shares(parts)}", "ms", sum(parts.values()), 10, 15)
    if cpu_of.get(simulated.workers // 2):
        yield benchlib.Row(
            what=f"{what}: CPU",
            unit="ms",
            values=[cpu_of[simulated.workers]],
            devices="sim",
            peer="half of the workers",
            peer_values=[cpu_of[simulated.workers // 2]],
            aim="<= 2.2x",
            holds=cpu_of[simulated.workers] <= 2.2 * cpu_of[simulated.workers // 2],
        )


def communication_rows(simulated: Simulated) -> Iterator[benchlib.Row]:
    what = simulated.what("a program that communicates")
    first = simulated.script.run("gang communicates", 1)
    if "refused" in first:
        yield refused(what, "ms", first)
        return
    yield plain(
        f"{what}: compiled, loaded and run for the first time", "ms", 1000 * first["seconds"]
    )
    parts = gang_cpu_ms(simulated, "gang communicates")
    yield plain(f"{what}: CPU of a gang: {shares(parts)}", "ms", sum(parts.values()))


def loss_row(simulated: Simulated) -> benchlib.Row:
    """The last worker is alone in its process."""
    last = simulated.cluster.workers()[-1]
    os.kill(last["pid"], signal.SIGKILL)
    began = time.monotonic()
    answer = simulated.script.run("again", 1)
    took_s = time.monotonic() - began
    what = simulated.what(f"a worker lost with {ARRAYS} arrays on all devices: the next gang")
    if "refused" in answer:
        return refused(what, "s", answer, "<= 2")
    return limited(what, "s", took_s, 2)


def idle_row(simulated: Simulated) -> benchlib.Row:
    """Of head and workers."""
    pids = {name: pid for name, pid in simulated.pids().items() if name != "script"}
    before, _ = spmd_profile.counted(pids)
    began = time.monotonic()
    time.sleep(IDLE_S)
    after, _ = spmd_profile.counted(pids)
    share = (after - before).total() / 1e6 / (time.monotonic() - began)
    of_64 = 100 * share * 64 / simulated.workers
    return limited(
        simulated.what("CPU of the idle cluster, per 64 workers"), "% of a core", of_64, 1
    )


def measure(rows: list[benchlib.Row], sizes: tuple[int, ...] = SIZES) -> None:
    cpu_of: dict[int, float] = {}
    for workers in sizes:
        simulated = Simulated(workers)
        with simulated.running() as up_s:
            rows.append(
                limited(simulated.what("from `gangway up` until all are registered"), "s", up_s, 10)
            )
            rows.append(idle_row(simulated))
            rows.extend(gang_rows(simulated, cpu_of))
            rows.extend(communication_rows(simulated))
            welcomes = simulated.script.run("welcome", WELCOMES)["seconds"] / WELCOMES
            rows.append(plain(simulated.what("a session's welcome"), "ms", 1000 * welcomes))
            simulated.script.run("arrays", ARRAYS)
            rows.append(loss_row(simulated))
