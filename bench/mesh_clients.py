"""Clients of the benchmarks of several meshes (rl.py, serve.py): one process per backend, which compiles a case once and
then answers commands, so that the backends can take turns. Only one of them works at a time.

    gangway     a cluster with a worker per mesh, as real processes
    plugin      JAX in one process, on the same XLA CPU plugin

A command is a line of JSON on stdin, its answer a line of JSON on stdout. Work is simulated by the custom call of
device/pjrt/simulated_work.h: it takes time but no CPU, so that two cores can stand for several devices. Only workers
have it. In one process it would be no peer: jaxlib runs programs with custom calls within the script's own calls.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any

import benchlib
import harness

WORK = "gangway_simulated_work"
POOL = "16"  # threads; fewer than the devices and the programs in flight may wait for each other
ANSWER_S = 300.0
WORDS_MAX = 3000  # of a client that ended


@dataclasses.dataclass
class Client:
    backend: str
    cluster: harness.Cluster
    process: subprocess.Popen[str]
    errors: IO[str]

    def ask(self, **command: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        late = threading.Timer(ANSWER_S, self.process.kill)
        late.start()
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line.startswith("answer "):
                    return json.loads(line.removeprefix("answer "))
        except BrokenPipeError:
            pass  # it has ended; the error follows
        finally:
            late.cancel()
        self.errors.seek(0)
        raise SystemExit(
            f"{self.backend}: ended in {command}, or took over {ANSWER_S:g} s\n"
            f"{self.errors.read()[-WORDS_MAX:]}\n{self.cluster.logs()}"
        )


@contextlib.contextmanager
def running(program: pathlib.Path, meshes: int) -> Iterator[dict[str, Client]]:
    """A client of each backend, with a device per mesh."""
    os.environ["GANGWAY_SIMULATED_WORK"] = "1"
    cluster = harness.Cluster(meshes, 1, 1, "--threads", POOL).start()
    environments = {
        "gangway": harness.client_environment(cluster.port, "pjrt"),
        "plugin": dict(os.environ),
    }
    clients: dict[str, Client] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.stop)
        for backend, environment in environments.items():
            errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            process = subprocess.Popen(
                [sys.executable, str(program), backend, str(meshes)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            clients[backend] = Client(backend, cluster, process, errors)
        yield clients


# --- In the client's process ---


def choose() -> None:
    """Makes the backend of the command line JAX's default; call it before JAX is imported."""
    backend, meshes = sys.argv[1], int(sys.argv[2])
    sys.path[:0] = [str(benchlib.ROOT / "examples"), str(benchlib.ROOT / "python")]
    if backend == "gangway":
        import gangway

        gangway.connect(door="pjrt")
    else:
        import reference

        reference.register(meshes)


class Clock:
    """Orders the simulated work of a device: each call takes its time after the previous one."""

    def __init__(self, sharding: Any) -> None:
        import jax
        import numpy as np

        self.value = jax.device_put(np.zeros(1, np.float32), sharding)


def work(clock: Any, x: Any, seconds: float) -> Any:
    """Within a jit: (clock, x) after `seconds`."""
    import jax
    import numpy as np

    results = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in (clock, x)]
    return tuple(jax.ffi.ffi_call(WORK, results)(clock, x, microseconds=np.int64(seconds * 1e6)))


def answer_commands(answer: Callable[[dict[str, Any]], Any]) -> None:
    for line in sys.stdin:
        print("answer " + json.dumps(answer(json.loads(line))), flush=True)
