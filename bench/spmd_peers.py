"""The processes that bench/spmd.py measures: Gangway's clients and its peers, each with one way to run a case.

A group of processes (one, or the processes of a multi-controller) lives as long as a layout is measured, and waits for
commands without taking CPU. So all of them are started once, compile a case once, and take turns round by round. A
group that ends, or gives no answer within `ANSWER_S`, raises EndedError with its last words.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO, Any

import benchlib
import harness
import spmd_cases as cases

HERE = pathlib.Path(__file__).parent
CLIENT = HERE / "spmd_client.py"
BINARIES = harness.GANGWAY.resolve().parents[2] / "bench"  # of the same build
READ_BY_XLA_OR_JAX = ("JAX_PLATFORMS", "NPROC", "XLA_FLAGS")
ANSWER_S = 240.0
XLA_INSIDE = "a worker with XLA's"  # collectives
WORDS_MAX = 2500  # of a group that ended
POOL = "16"  # of the peers that are XLA: with fewer threads, 8 devices of one process hang (reference.py)


class EndedError(Exception):
    """With the group's name and its last words."""


@dataclasses.dataclass
class Layout:
    workers: int
    devices: int  # of each worker

    @property
    def name(self) -> str:
        return f"{self.workers}x{self.devices}"

    @property
    def count(self) -> int:
        return self.workers * self.devices


def forward(stdout: IO[str], lines: queue.SimpleQueue[str]) -> None:
    for line in stdout:
        lines.put(line)
    lines.put("")


class Group:
    """Processes that answer one command together. `handles`: the cases that they know. `again`, if a peer has it, makes
    the group that takes its place should it end.
    """

    again: Callable[[], Group] | None = None

    def __init__(self, name: str, handles: Callable[[str], bool]) -> None:
        self.name = name
        self.handles = handles
        self.processes: list[subprocess.Popen[str]] = []
        self._lines: list[queue.SimpleQueue[str]] = []  # of each process; an empty one is the end
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (`stop` closes it)

    def spawn(self, command: list[str], environment: dict[str, str]) -> None:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.processes.append(process)
        self._lines.append(queue.SimpleQueue())
        reader = threading.Thread(target=forward, args=(process.stdout, self._lines[-1]))
        reader.daemon = True
        reader.start()

    def ask(self, case: str, count: int) -> None:
        for process in self.processes:
            assert process.stdin
            process.stdin.write(f"{case}\t{count}\n")
            process.stdin.flush()

    def wait_ready(self) -> None:
        """Until each process has printed its first line."""
        self.answers("its start")

    def run(self, case: str, count: int) -> dict[str, Any]:
        """The answer of the slowest process."""
        with contextlib.suppress(BrokenPipeError):  # its words follow
            self.ask(case, count)
        return max(self.answers(case), key=lambda answer: float(answer["seconds"]))

    def answers(self, case: str) -> list[dict[str, Any]]:
        deadline = time.monotonic() + ANSWER_S
        return [self._answer(lines, case, deadline) for lines in self._lines]

    def _answer(self, lines: queue.SimpleQueue[str], case: str, deadline: float) -> dict[str, Any]:
        """Fails as soon as one process has ended: the others may wait for it."""
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                line = lines.get(timeout=0.5)
                if line.startswith("{"):
                    answer: dict[str, Any] = json.loads(line)
                    return answer
                if line:
                    continue
            if any(process.poll() is not None for process in self.processes):
                break
        raise self._ended(case)

    def _ended(self, case: str) -> EndedError:
        codes = [process.poll() for process in self.processes]
        self._errors.seek(0)
        return EndedError(
            f"{self.name}: ended ({codes}) in {case!r}, or took over {ANSWER_S:g} s\n"
            f"{self._errors.read()[-WORDS_MAX:]}"
        )

    def stop(self) -> None:
        """Also of one that has been stopped."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        self.processes.clear()
        self._errors.close()


def plain_environment() -> dict[str, str]:
    environment = {name: to for name, to in os.environ.items() if name not in READ_BY_XLA_OR_JAX}
    return environment | {"TF_CPP_MIN_LOG_LEVEL": "2"}


def gangway(
    cluster: harness.Cluster,
    door: str,
    handles: Callable[[str], bool],
    name: str = "",
    program: pathlib.Path = CLIENT,
) -> Group:
    group = Group(name or f"Gangway, {door} door", handles)
    inherited = harness.client_environment(cluster.port, door)
    environment = {name: to for name, to in inherited.items() if name not in READ_BY_XLA_OR_JAX}
    group.spawn([sys.executable, str(program), "gangway"], environment)
    return group


def gangway_cpp(cluster: harness.Cluster, layout: Layout) -> Group:
    """A client in C++ (bench/spmd_calls.cc)."""
    group = Group("Gangway, C++", lambda case: case.startswith("scalar"))
    command = [str(BINARIES / "spmd_calls"), cluster.control, cluster.token, str(layout.count)]
    group.spawn(command, plain_environment())
    return group


def stock(
    layout: Layout,
    handles: Callable[[str], bool],
    pool: str = POOL,
    program: pathlib.Path = CLIENT,
) -> Group:
    """XLA's own collectives: the same plugin, all devices in one process."""
    group = Group(f"stock XLA 1x{layout.count}", handles)
    command = [sys.executable, str(program), "plugin", str(layout.count)]
    group.spawn(command, plain_environment() | {"NPROC": pool})
    return group


def gloo(layout: Layout, handles: Callable[[str], bool], restarts: int = 2) -> Group:
    """JAX multi-controller: a process for each worker. A large reduce-scatter of it sometimes yields wrong sums, which
    ends it.
    """
    group = Group(f"JAX gloo {layout.name}", handles)
    if restarts:
        group.again = lambda: gloo(layout, handles, restarts - 1)
    address = f"127.0.0.1:{harness.free_port()}"
    for number in range(layout.workers):
        command = [
            *[sys.executable, str(CLIENT), "gloo", str(layout.devices), address],
            *[str(layout.workers), str(number)],
        ]
        group.spawn(command, plain_environment() | {"NPROC": POOL})
    return group


def bare(layout: Layout) -> Group:
    """FFI handlers that meet at a barrier in shared memory, under PJRT, without a control plane (spmd_bare.cc)."""
    group = BareGroup(f"bare handlers {layout.name}", lambda case: case.startswith("scalar"))
    for number in range(layout.workers):
        command = [
            *[str(BINARIES / "spmd_bare"), group.memory.name],
            *map(str, (number, layout.workers, layout.devices)),
        ]
        group.spawn(command, plain_environment())
    return group


class BareGroup(Group):
    def __init__(self, name: str, handles: Callable[[str], bool]) -> None:
        super().__init__(name, handles)
        self.memory = tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="gangway-bench-")  # noqa: SIM115
        self.memory.truncate(1 << 20)

    def stop(self) -> None:
        super().stop()
        self.memory.close()


class MpiGroup(Group):
    """Open MPI over shared memory: a rank for each device. It reads its commands from named pipes (spmd_mpi.c).

    `result_sets`: each call has arrays of its own, and this number of sets of results take turns. 0: all calls use two
    buffers, which may then stay in the caches.
    """

    def __init__(self, layout: Layout, binary: pathlib.Path, result_sets: int = 0) -> None:
        if result_sets:
            super().__init__("Open MPI, arrays of their own", self._knows_separate)
        else:
            super().__init__("Open MPI", self._knows)
        self._folder = tempfile.TemporaryDirectory(prefix="gangway-bench-")
        names = [pathlib.Path(self._folder.name) / str(rank) for rank in range(layout.count)]
        for name in names:
            os.mkfifo(name)
        # `vader` is its shared memory. Ranks that wait give their core away, as there are more ranks than cores.
        command = [
            *["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(layout.count)],
            *["--mca", "btl", "self,vader", "--mca", "mpi_yield_when_idle", "1"],
            *[str(binary), self._folder.name, str(result_sets)],
        ]
        self.spawn(command, plain_environment())
        self._names = names
        self._pipes: list[IO[str]] = []

    @staticmethod
    def _knows(case: str) -> bool:
        return case.split()[0] in (*cases.OPERATIONS, "copy") and not case.endswith("uploaded")

    @staticmethod
    def _knows_separate(case: str) -> bool:
        """Where the two buffers stay in the caches, and the arrays of the JAX program do not."""
        return case in (f"all-gather {cases.MIB}", f"reduce-scatter {cases.MIB}")

    def wait_ready(self) -> None:
        """Until each rank has opened its pipe."""
        deadline = time.monotonic() + ANSWER_S
        for name in self._names:
            while True:
                try:
                    self._pipes.append(os.fdopen(os.open(name, os.O_WRONLY | os.O_NONBLOCK), "w"))
                    break
                except OSError as error:  # no reader yet
                    ended = self.processes[0].poll() is not None or time.monotonic() > deadline
                    if error.errno != errno.ENXIO or ended:
                        raise self._ended("its start") from None
                    time.sleep(0.02)

    def ask(self, case: str, count: int) -> None:
        operation, size = case.split()
        for pipe in self._pipes:
            pipe.write(f"{operation} {size} {cases.REPEATED[int(size)]} {count}\n")
            pipe.flush()

    def stop(self) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()  # its end: the ranks finish
        with contextlib.suppress(subprocess.TimeoutExpired):
            for process in self.processes:
                process.wait(10)
        super().stop()
        self._folder.cleanup()


def build_mpi(folder: str) -> pathlib.Path | None:
    """The program; None, with a message, if Open MPI is not there and cannot be installed."""
    setup = [str(benchlib.ROOT / "tools" / "setup.sh"), "--packages", "openmpi"]
    installed = subprocess.run(setup, capture_output=True, text=True, timeout=900)
    binary = pathlib.Path(folder) / "spmd_mpi"
    if not installed.returncode:
        flags = ["-O3", "-march=native", "-Wall", "-Wextra", "-Werror"]
        command = ["mpicc", *flags, "-o", str(binary), str(HERE / "spmd_mpi.c")]
        installed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if installed.returncode:
        words = (installed.stdout + installed.stderr)[-1000:]
        print(f"spmd: no Open MPI to compare with: {words}", file=sys.stderr)
        return None
    return binary
