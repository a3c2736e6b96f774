"""The time of a training step through Gangway, beside JAX that drives the same CPU plugin in its own process, and
beside jaxlib's own CPU backend. Also page faults and context switches of the process that computes, and the memory that
the worker keeps resident.

Each backend has one client process, which compiles a case once (step_client.py). The backends take turns, one repeat
each, because the cores of a shared machine change their speed by the minute. Only one backend computes at a time.
XLA splits work by the size of its thread pool, so the plugin in-process runs with several sizes, and the fastest one of
a case is the peer. A client that ends, or gives no answer within `ANSWER_S`, ends the benchmark by name.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import IO

import benchlib
import harness

CLIENT = pathlib.Path(__file__).with_name("step_client.py")
CASES = {  # and the device counts of each
    "matrix step": (1, 8),
    "language model step": (1, 8),
    "convolution step": (1, 8),
    "3 ms step": (1, 8),
    "sum of 4 M floats": (1,),
}
POOLS = ("", "16", "64")  # NPROC of the plugin in-process; empty: its own choice
WARM_UP_STEPS = 10
REPEAT_S = 1.5
STEPS_MIN, STEPS_MAX = 3, 2000  # of a repeat
ANSWER_S = 300.0
REQUIRED, AIM = 0.9, 0.97  # of the speed of the plugin in-process
JAXLIB_FLAGS = "--xla_force_host_platform_device_count=8"
READ_BY_XLA_OR_JAX = ("JAX_PLATFORMS", "NPROC", "XLA_FLAGS")


@dataclasses.dataclass
class Usage:
    """What the kernel has counted for a process since its start."""

    page_faults: int
    switches: dict[str, int]  # by thread

    @staticmethod
    def of(pid: int) -> Usage:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        switches: dict[str, int] = {}
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                lines = (task / "status").read_text().splitlines()
                counts = [line.split()[1] for line in lines if "voluntary_ctxt_switches" in line]
                switches[task.name] = sum(map(int, counts))
        return Usage(int(fields[7]) + int(fields[9]), switches)

    def switches_since(self, before: Usage) -> int:
        """Without those of threads that ended in between."""
        return sum(
            count - before.switches.get(thread, 0) for thread, count in self.switches.items()
        )


@dataclasses.dataclass
class Found:
    """One value per repeat."""

    ms: list[float] = dataclasses.field(default_factory=list)
    page_faults: list[float] = dataclasses.field(default_factory=list)
    switches: list[float] = dataclasses.field(default_factory=list)


class Client:
    """One backend's process. `computes`: the process that runs the steps; by default the client's own."""

    def __init__(
        self,
        name: str,
        backend: str,
        environment: dict[str, str],
        errors: IO[str],
        computes: int | None = None,
    ) -> None:
        self.name = name
        self._errors = errors
        self._process = subprocess.Popen(
            [sys.executable, str(CLIENT), backend],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        self.computes = computes or self._process.pid

    def run(self, case: str, steps: int) -> float:
        """Seconds of `steps` chained steps, of which the last is awaited."""
        commands, answers = self._process.stdin, self._process.stdout
        assert commands and answers
        late = threading.Timer(ANSWER_S, self._process.kill)
        late.start()
        try:
            commands.write(f"{case} {steps}\n")
            commands.flush()
            for line in answers:
                if line.startswith("{"):
                    return float(json.loads(line)["seconds"])
        except BrokenPipeError:
            pass  # the client has ended; its words follow
        finally:
            late.cancel()
        code = self._process.wait()
        self._errors.seek(0)
        raise SystemExit(
            f"{self.name}: ended ({code}) in {case!r}, or took over {ANSWER_S:g} s\n"
            f"{self._errors.read()[-6000:]}"
        )

    def repeat(self, case: str, steps: int, found: Found) -> None:
        before = Usage.of(self.computes)
        seconds = self.run(case, steps)
        after = Usage.of(self.computes)
        found.ms.append(1e3 * seconds / steps)
        found.page_faults.append((after.page_faults - before.page_faults) / steps)
        found.switches.append(after.switches_since(before) / steps)

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


@dataclasses.dataclass
class Clients:
    gangway: Client
    in_process: list[Client]
    jaxlib: Client

    @property
    def in_turn(self) -> list[Client]:
        return [self.gangway, *self.in_process, self.jaxlib]


def without_settings(environment: dict[str, str]) -> dict[str, str]:
    return {name: to for name, to in environment.items() if name not in READ_BY_XLA_OR_JAX}


@contextlib.contextmanager
def running() -> Iterator[Clients]:
    with contextlib.ExitStack() as stack:
        cluster = harness.Cluster(1, 1, 8).start()
        stack.callback(cluster.stop)

        def start(
            name: str, backend: str, environment: dict[str, str], computes: int | None = None
        ) -> Client:
            errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            client = Client(name, backend, environment, errors, computes)
            stack.callback(client.stop)
            return client

        plain = without_settings(dict(os.environ))
        found = without_settings(harness.client_environment(cluster.port))
        gangway = start("Gangway", "gangway", found, cluster.workers()[0]["pid"])
        in_process = []
        for pool in POOLS:
            settings = {"NPROC": pool} if pool else {}
            name = f"plugin in-process, NPROC={pool or 'unset'}"
            in_process.append(start(name, "plugin", plain | settings))
        settings = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": JAXLIB_FLAGS}
        yield Clients(gangway, in_process, start("jaxlib's own CPU", "jaxlib", plain | settings))


def measure(clients: Clients, case: str, repeats: int) -> dict[str, Found]:
    """By the client's name. Each client makes as many steps as jaxlib makes in `REPEAT_S`."""
    for client in clients.in_turn:
        client.run(case, WARM_UP_STEPS)
    step_s = clients.jaxlib.run(case, WARM_UP_STEPS) / WARM_UP_STEPS
    steps = max(STEPS_MIN, min(STEPS_MAX, round(REPEAT_S / step_s)))
    found: dict[str, Found] = collections.defaultdict(Found)
    for _ in range(repeats):
        for client in clients.in_turn:
            client.repeat(case, steps, found[client.name])
    medians = [f"{name}: {statistics.median(each.ms):.4g} ms" for name, each in found.items()]
    print(f"{case}, {steps} steps a repeat; {'; '.join(medians)}", file=sys.stderr, flush=True)
    return found


def resident_bytes(pid: int) -> int:
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def rows_of(clients: Clients, case: str, repeats: int) -> list[benchlib.Row]:
    found = measure(clients, case, repeats)
    ours, jaxlib = found[clients.gangway.name], found[clients.jaxlib.name]
    pools = [client.name for client in clients.in_process]
    best = min(pools, key=lambda name: statistics.median(found[name].ms))
    peer = found[best]
    speed = statistics.median(peer.ms) / statistics.median(ours.ms)
    return [
        benchlib.Row(
            what=case,
            unit="ms per step",
            values=ours.ms,
            peer=f"{best} (best)",
            peer_values=peer.ms,
            aim=f">= {REQUIRED:g} of its speed, better {AIM:g}",
            holds=speed >= REQUIRED,
        ),
        benchlib.Row(
            what=case,
            unit="ms per step",
            values=ours.ms,
            peer=clients.jaxlib.name,
            peer_values=jaxlib.ms,
        ),
        benchlib.Row(
            what=f"{case}: page faults of the worker",
            unit="per step",
            values=ours.page_faults,
            peer=best,
            peer_values=peer.page_faults,
        ),
        benchlib.Row(
            what=f"{case}: context switches of the worker",
            unit="per step",
            values=ours.switches,
            peer=best,
            peer_values=peer.switches,
        ),
        benchlib.Row(
            what=f"{case}: resident in the worker afterwards",
            unit="MiB",
            values=[resident_bytes(clients.gangway.computes) / (1 << 20)],
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this; may recur")
    args = parser.parse_args()
    rows = []
    with running() as clients:
        for name in args.case or CASES:
            for devices in CASES[name]:
                case = f"{name}, {devices} device{'s' if devices > 1 else ''}"
                rows += rows_of(clients, case, args.repeats)
    benchlib.write("step", rows)


if __name__ == "__main__":
    main()
