"""Measures copies of arrays between two workers of one host, 1 KiB to 256 MiB, one and many, beside memcpy, Ray's
object store and JAX's gloo collectives, all in one run. Then uploads and downloads of a client. In GB/s of received
bytes.

"one": moved and awaited, including a round trip through the controller. "hops": moved eight times back and forth, each
move depending on the previous one, and awaited once. "N at once": moved in one call, awaited together. "mesh to mesh":
from four workers to four others, arrays that are sharded over the four.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory

import benchlib
import harness
import numpy as np
import peer_venvs
import transfer_cases as cases
from transfer_cases import MANY, MIB, PYTREE, SIZES

HERE = pathlib.Path(__file__).parent
CLIENT_LIMIT_S = 300
SHOWN = (
    ("one, 1 KiB", "memcpy to another process"),
    ("one, 1 MiB", "Ray, view"),
    ("one, 64 MiB", "memcpy"),
    ("hops, 64 MiB", "memcpy"),
    ("one, 64 MiB", "Ray, copied out"),
    ("mesh to mesh, 1000 arrays of 1 KiB to 1 MiB", "one array of their size"),
    ("upload 64 MiB", "Gangway over gRPC"),
    ("download 64 MiB", "a bare gRPC stream"),
)
Found = dict[str, list[float]]


def parse(output: str) -> Found:
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {line["case"]: line["values"] for line in lines}


def run(command: list[str], environment: dict[str, str]) -> Found:
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=CLIENT_LIMIT_S
    )
    if result.returncode:
        raise SystemExit(f"{command}: {result.stdout[-3000:]}{result.stderr[-3000:]}")
    return parse(result.stdout)


@contextlib.contextmanager
def cluster(*arguments: int | str, over: str = "") -> Iterator[harness.Cluster]:
    """`over`: "gRPC" disables unix sockets, by a folder whose name is too long for them."""
    folder = "gangway-bench-" + (100 * "x" if over else "")
    running = harness.Cluster(*arguments, folder=folder).start()  # type: ignore[arg-type]
    try:
        yield running
    finally:
        running.stop()


def gangway(what: str, *flags: str, over: str = "", workers: int = 2) -> Found:
    with cluster(1, workers, 1, *flags, over=over) as running:
        command = [sys.executable, str(HERE / "transfer_client.py"), what]
        try:
            return run(command, harness.client_environment(running.port))
        except SystemExit as failed:
            raise SystemExit(f"{failed}\n{running.logs()}") from None


def memcpy_here() -> Found:
    """One thread, between two warm arrays."""
    for size in SIZES:
        source, target = np.ones(size, "uint8"), np.ones(size, "uint8")
        cases.measure("memcpy", size, lambda: np.copyto(target, source))  # noqa: B023
    return {}


def answer(pipe: Connection, memory_name: str) -> None:
    """The other process of `memcpy_there`: reads both ends of the memory, as a process with a view does."""
    memory = SharedMemory(memory_name)
    view = np.ndarray(memory.size, "uint8", memory.buf)
    while size := int.from_bytes(pipe.recv_bytes(), "little"):
        pipe.send_bytes(bytes([view[0], view[size - 1]]))
    del view
    memory.close()


def memcpy_there() -> Found:
    """Into memory shared with another process, which is notified and answers."""
    memory = SharedMemory(create=True, size=max(SIZES))
    mine, theirs = multiprocessing.Pipe()
    other = multiprocessing.Process(target=answer, args=(theirs, memory.name), daemon=True)
    other.start()
    try:
        room = np.ndarray(memory.size, "uint8", memory.buf)
        for size in SIZES:
            source = np.ones(size, "uint8")

            def move(
                source: np.ndarray = source, size: int = size, room: np.ndarray = room
            ) -> None:
                room[:size] = source
                mine.send_bytes(size.to_bytes(8, "little"))
                if not mine.poll(30) or mine.recv_bytes() != b"\1\1":
                    raise SystemExit("the other process does not answer")

            cases.measure("shared memcpy", size, move)
        mine.send_bytes((0).to_bytes(8, "little"))
        other.join(10)
        del room, move
    finally:
        memory.close()
        memory.unlink()
    return {}


def ray() -> Found:
    """Ray's results. Empty, with a message, if Ray cannot be installed."""
    python = peer_venvs.python_of("ray")
    if not python:
        return {}
    with tempfile.TemporaryDirectory(prefix="gw-ray-") as folder:
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(HERE)}
        try:
            command = [python, str(HERE / "transfer_ray_client.py"), folder]
            return run(command, environment)
        finally:
            peer_venvs.end_all_of(folder)


def gloo() -> Found:
    address = f"127.0.0.1:{harness.free_port()}"
    environment = {
        **os.environ,
        **{"JAX_PLATFORMS": "cpu", "NPROC": "16", "TF_CPP_MIN_LOG_LEVEL": "2"},
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "transfer_gloo_client.py"), address, str(number)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        deadline = time.monotonic() + CLIENT_LIMIT_S
        ended = [p.communicate(timeout=max(1.0, deadline - time.monotonic())) for p in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise SystemExit(f"gloo: {ended[0][1][-2000:]}{ended[1][1][-2000:]}")
    return parse(ended[0][0])


def grpc_stream() -> list[float]:
    """GB/s of 64 MiB in frames of 1 MiB on one stream of the gRPC transport over TCP, both ends in one process."""
    binary = harness.GANGWAY.parent.parent / "transport" / "transport_benchmark"
    if not binary.exists():
        print(f"transfer: no bare stream to compare with: {binary} is missing", file=sys.stderr)
        return []
    command = [
        *[str(binary), "--benchmark_filter=BulkBytes/1/1048576/", "--benchmark_format=json"],
        *[f"--benchmark_repetitions={cases.ROUNDS}", "--benchmark_min_time=0.1"],
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_LIMIT_S)
    runs = json.loads(result.stdout)["benchmarks"]
    return [run["bytes_per_second"] / 1e9 for run in runs if run["run_type"] == "iteration"]


def client_rows(table: Table) -> None:
    """A JAX client's uploads and downloads. Our path and plain gRPC alternate, because the machine's load changes."""
    ours: Found = {}
    plain: Found = {}
    stream: list[float] = []
    for _ in range(2):
        for case, values in gangway("clients").items():
            ours.setdefault(case, []).extend(values)
        for case, values in gangway("clients", "--shared-memory", "0", over="gRPC").items():
            plain.setdefault(case, []).extend(values)
        stream += grpc_stream()
    for case in ours:
        up = case.startswith("upload")
        table.add(case, ours[case], "Gangway over gRPC", plain[case], 3 if up else 0)
        table.add(case, ours[case], "a bare gRPC stream", stream, 0 if up else 0.9)


class Table:
    """Builds rows from the results, each ours beside one peer."""

    def __init__(self) -> None:
        self.rows: list[benchlib.Row] = []

    def add(
        self, what: str, ours: list[float], peer: str, theirs: list[float], aim: float = 0
    ) -> None:
        row = benchlib.Row(what=what, unit="GB/s", values=ours, peer=peer, peer_values=theirs)
        if aim and theirs:
            row.aim = f">= {aim:g}x"
            row.holds = float(str(row.as_dict()["ratio"])) >= aim
        self.rows.append(row)


def best(found: Found, *names: str) -> list[float]:
    """The fastest of a peer's several methods."""
    there = [found[name] for name in names if name in found]
    return max(there, key=lambda values: sorted(values)[len(values) // 2], default=[])


def mesh_row(table: Table, found: Found) -> None:
    total = cases.name(sum(PYTREE))
    what = f"mesh to mesh, {len(PYTREE)} arrays of 1 KiB to 1 MiB"
    table.add(what, found[f"many {total}"], "one array of their size", found[f"whole {total}"], 0.7)


def rows(ours: Found, streams: Found, memory: Found, rays: Found, gloos: Found) -> Table:
    table = Table()
    for size in SIZES:
        label = cases.name(size)
        one, hops = ours[f"one {label}"], ours[f"hops {label}"]
        view = best(rays, f"one, view {label}", f"one, view, put and get {label}")
        copied = rays.get(f"one, copied {label}", [])
        large = size == 64 * MIB
        table.add(f"one, {label}", one, "memcpy", memory[f"memcpy {label}"], 0.8 * large)
        table.add(f"hops, {label}", hops, "memcpy", memory[f"memcpy {label}"])
        shared = memory[f"shared memcpy {label}"]
        table.add(f"one, {label}", one, "memcpy to another process", shared)
        table.add(f"one, {label}", one, "Ray, view", view, 3 * (size == MIB))
        table.add(f"one, {label}", one, "Ray, copied out", copied, 1.3 * large)
        table.add(f"one, {label}", one, "JAX gloo", gloos.get(f"one {label}", []))
        table.add(f"one, {label}", one, "Gangway over gRPC", streams.get(f"one {label}", []))
    for size, count in MANY.items():
        case = f"{count} at once"
        values, label = ours[f"{case} {cases.name(size)}"], cases.name(size)
        for peer, theirs in [
            ("memcpy", memory[f"memcpy {label}"]),
            ("Ray, view", rays.get(f"{case}, view {label}", [])),
            ("Ray, copied out", rays.get(f"{case}, copied {label}", [])),
            ("JAX gloo", gloos.get(f"{case} {label}", [])),
            ("Gangway over gRPC", streams.get(f"{case} {label}", [])),
        ]:
            table.add(f"{case}, {label}", values, peer, theirs)
    return table


def memory_copies() -> Found:
    """Runs the memcpy cases in a separate process."""
    command = [sys.executable, __file__, "memcpy"]
    return run(command, dict(os.environ))


def main() -> None:
    if sys.argv[1:] == ["memcpy"]:
        memcpy_here()
        memcpy_there()
        return
    memory = memory_copies()
    ours = gangway("transfers")
    streams = gangway("some", "--shared-memory", "0", over="gRPC")
    table = rows(ours, streams, memory, ray(), gloo())
    mesh_row(table, gangway("meshes", workers=8))
    benchlib.write("transfer", table.rows, is_result=False)
    client_rows(table)
    benchlib.write("transfer", table.rows, shown=SHOWN)


if __name__ == "__main__":
    main()
