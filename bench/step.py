"""The time of a training step through Gangway, beside JAX that drives the same CPU plugin in its own process, and
beside jaxlib's own CPU backend. Also page faults and context switches of the process that computes, and the memory that
the worker keeps resident.

Each backend has one client process, which compiles a case once (step_client.py). The backends take turns, one repeat
each, because the cores of a shared machine change their speed by the minute. Only one backend computes at a time.
XLA splits work by the size of its thread pool, so a peer runs with several sizes, and its fastest one of a case counts.
With a pool of XLA's own choice, 8 devices of one process may stand in collectives on every thread of the pool, and XLA
aborts after 40 s. A peer's client that ends, or gives no answer within `ANSWER_S`, is left out of the case and named in
its rows; a client of Gangway that does so ends the benchmark.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable, Iterator
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
    "decompositions": (1, 8),
}
WITHOUT_LAPACK = ("decompositions",)  # the plugin in-process has no functions of LAPACK
PLUGIN_POOLS = ("", "10", "16")  # NPROC; empty: XLA's own choice
JAXLIB_POOLS = ("", "64")
WARM_UP_STEPS = 5
REPEAT_S = 1.5
STEPS_MIN, STEPS_MAX = 3, 2000  # of a repeat
ANSWER_S = 300.0
WORDS_MAX = 2000  # of a client that ended
REQUIRED, AIM = 0.9, 0.97  # of the speed of the plugin in-process
JAXLIB_FLAGS = "--xla_force_host_platform_device_count=8"
READ_BY_XLA_OR_JAX = ("JAX_PLATFORMS", "NPROC", "XLA_FLAGS")
SHOWN = tuple(
    (step, "plugin in-process")
    for step in (
        "matrix step, 1 device",
        "matrix step, 8 devices",
        "language model step, 1 device",
        "language model step, 8 devices",
        "convolution step, 1 device",
        "convolution step, 8 devices",
        "3 ms step, 1 device",
        "sum of 4 M floats, 1 device",
    )
)


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
    ended: bool = False  # the client did not survive all repeats


class ClientEndedError(Exception):
    """With the client's name, the case and its last words."""


@dataclasses.dataclass
class Client:
    """One backend with one setting. The process starts with the first run, and again with the next run after one that
    raised.
    """

    backend: str  # of step_client.py
    setting: str
    environment: dict[str, str]
    worker: int | None = None  # the process that runs the steps, where it is not the client
    _process: subprocess.Popen[str] | None = None
    _errors: IO[str] = dataclasses.field(
        default_factory=lambda: tempfile.TemporaryFile("w+")  # noqa: SIM115 (`stop` closes it)
    )

    @property
    def name(self) -> str:
        return f"{self.backend}, {self.setting}" if self.setting else self.backend

    def usage(self) -> Usage:
        assert self._process
        return Usage.of(self.worker or self._process.pid)

    def _started(self) -> subprocess.Popen[str]:
        if not self._process:
            self._process = subprocess.Popen(
                [sys.executable, str(CLIENT), self.backend],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        return self._process

    def run(self, case: str, steps: int) -> float:
        """Seconds of `steps` chained steps, of which the last is awaited."""
        process = self._started()
        assert process.stdin and process.stdout
        late = threading.Timer(ANSWER_S, process.kill)
        late.start()
        try:
            process.stdin.write(f"{case} {steps}\n")
            process.stdin.flush()
            for line in process.stdout:
                if line.startswith("{"):
                    return float(json.loads(line)["seconds"])
        except BrokenPipeError:
            pass  # the client has ended; its words follow
        finally:
            late.cancel()
        code = process.wait()
        self._process = None
        self._errors.seek(0)
        raise ClientEndedError(
            f"{self.name}: ended ({code}) in {case!r}, or took over {ANSWER_S:g} s\n"
            f"{self._errors.read()[-WORDS_MAX:]}"
        )

    def repeat(self, case: str, steps: int, found: Found) -> None:
        before = self.usage()
        seconds = self.run(case, steps)
        after = self.usage()
        found.ms.append(1e3 * seconds / steps)
        found.page_faults.append((after.page_faults - before.page_faults) / steps)
        found.switches.append(after.switches_since(before) / steps)

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
        self._errors.close()


@dataclasses.dataclass
class Clients:
    gangway: Client
    in_process: list[Client]
    jaxlib: list[Client]

    @property
    def in_turn(self) -> list[Client]:
        return [self.gangway, *self.in_process, *self.jaxlib]


def without_settings(environment: dict[str, str]) -> dict[str, str]:
    return {name: to for name, to in environment.items() if name not in READ_BY_XLA_OR_JAX}


def pools(backend: str, sizes: tuple[str, ...], settings: dict[str, str]) -> list[Client]:
    """A client for each size of the thread pool."""
    plain = without_settings(dict(os.environ)) | settings
    return [
        Client(backend, f"NPROC={size or 'unset'}", plain | ({"NPROC": size} if size else {}))
        for size in sizes
    ]


def gangway(cluster: harness.Cluster) -> Client:
    """On a cluster with one worker."""
    ours = without_settings(harness.client_environment(cluster.port))
    return Client("gangway", "", ours, cluster.workers()[0]["pid"])


@contextlib.contextmanager
def running() -> Iterator[Clients]:
    cluster = harness.Cluster(1, 1, 8).start()
    try:
        clients = Clients(
            gangway(cluster),
            pools("plugin", PLUGIN_POOLS, {}),
            pools("jaxlib", JAXLIB_POOLS, {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": JAXLIB_FLAGS}),
        )
        try:
            yield clients
        finally:
            for client in clients.in_turn:
                client.stop()
    finally:
        cluster.stop()


def measure(clients: Clients, case: str, repeats: int) -> dict[str, Found]:
    """By the client's name. All make as many steps as the fastest makes in `REPEAT_S`."""
    live = [
        client
        for client in clients.in_turn
        if client not in clients.in_process or not case.startswith(WITHOUT_LAPACK)
    ]
    found = {client.name: Found() for client in live}

    def each(act: Callable[[Client], None]) -> None:
        for client in list(live):
            try:
                act(client)
            except ClientEndedError as error:
                if client is clients.gangway:
                    raise
                print(error, file=sys.stderr, flush=True)
                found[client.name].ended = True
                live.remove(client)

    step_s: list[float] = []
    each(lambda client: step_s.append(client.run(case, WARM_UP_STEPS)))  # compiles
    step_s.clear()
    each(lambda client: step_s.append(client.run(case, WARM_UP_STEPS) / WARM_UP_STEPS))
    steps = max(STEPS_MIN, min(STEPS_MAX, round(REPEAT_S / min(step_s))))
    for _ in range(repeats):
        each(lambda client: client.repeat(case, steps, found[client.name]))
    medians = [
        f"{name} {statistics.median(each.ms):.4g}" for name, each in found.items() if each.ms
    ]
    print(f"{case}: {steps} steps a repeat; ms: {'; '.join(medians)}", file=sys.stderr, flush=True)
    return found


def resident_bytes(pid: int) -> int:
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def best_of(clients: list[Client], found: dict[str, Found], what: str) -> tuple[str, Found]:
    """The fastest that survived a repeat, with the words for its row; nothing if none did."""
    ended = [client.setting for client in clients if found.get(client.name, Found()).ended]
    words = f"; ended: {' and '.join(ended)}" if ended else ""
    survivors = [client for client in clients if client.name in found and found[client.name].ms]
    if not survivors:
        return f"{what}{words}", Found()
    best = min(survivors, key=lambda client: statistics.median(found[client.name].ms))
    return f"{what}, {best.setting} (best{words})", found[best.name]


def rows_of(clients: Clients, case: str, repeats: int) -> list[benchlib.Row]:
    found = measure(clients, case, repeats)
    ours = found[clients.gangway.name]
    plugin_name, plugin = best_of(clients.in_process, found, "plugin in-process")
    jaxlib_name, jaxlib = best_of(clients.jaxlib, found, "jaxlib's own CPU")

    def row(
        what: str, unit: str, values: list[float], peer: str, peer_values: list[float]
    ) -> benchlib.Row:
        return benchlib.Row(what=what, unit=unit, values=values, peer=peer, peer_values=peer_values)

    aimed = row(case, "ms per step", ours.ms, plugin_name, plugin.ms)
    aimed.aim = f">= {REQUIRED:g} of its speed, better {AIM:g}"
    if plugin.ms:
        aimed.holds = statistics.median(plugin.ms) / statistics.median(ours.ms) >= REQUIRED
    faults = f"{case}: page faults of the worker"
    switches = f"{case}: context switches of the worker"
    resident = resident_bytes(clients.gangway.worker or 0) / (1 << 20)
    return [
        aimed,
        row(case, "ms per step", ours.ms, jaxlib_name, jaxlib.ms),
        row(faults, "per step", ours.page_faults, plugin_name, plugin.page_faults),
        row(switches, "per step", ours.switches, plugin_name, plugin.switches),
        row(f"{case}: resident in the worker afterwards", "MiB", [resident], "", []),
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
                try:
                    rows += rows_of(clients, case, args.repeats)
                except ClientEndedError as error:
                    raise SystemExit(str(error)) from None
    benchlib.write("step", rows, is_result=not args.case, shown=SHOWN)


if __name__ == "__main__":
    main()
