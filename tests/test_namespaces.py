"""A cluster over several hosts, each with its own address, host name and state folder (testing/namespaces.py): workers
claim their places from any host, over TLS, and bytes and collectives cross a network that can be slow, cut or lost.
"""

from __future__ import annotations

import contextlib
import pathlib
import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from harness import GANGWAY, PATIENCE, wait_for
from namespaces import Network, needs_namespaces
from places import PlacesOnHosts

pytestmark = [needs_namespaces, pytest.mark.faults, pytest.mark.timeout(300)]

NAMES = ("node0", "node1", "node2", "node3")
SILENT_S = 5  # after which a worker is dead
WORKER_LOST_S = 10  # after which a worker gives up its controller

# Each line of standard input is evaluated, and answered by one line.
PRELUDE = """
import sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = sorted(jax.devices(), key=lambda device: device.id)
mesh = Mesh(np.asarray(devices), ("x",))
rows = NamedSharding(mesh, P("x"))
data = np.random.default_rng(7).standard_normal((24, 8), dtype=np.float32)
goal = data @ np.arange(8, dtype=np.float32)

@jax.jit
def step(w, x, y):
    return w - 0.05 * jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)

def train(steps=20):
    # As far from the same steps by numpy as the last bits are.
    w, expected = jnp.zeros(8), np.zeros(8, np.float32)
    x, y = jax.device_put(data, rows), jax.device_put(goal, rows)
    for _ in range(steps):
        w = step(w, x, y)
        expected = expected - 0.05 * 2 / 24 * data.T @ (data @ expected - goal)
    return float(np.abs(np.asarray(w) - expected).max()) < 1e-4

def copy(mib, source=0, target=1):
    # Seconds of a copy between two devices, whose bytes are compared.
    value = np.random.default_rng(mib).integers(0, 255, mib << 20, dtype=np.uint8)
    here = jax.block_until_ready(jax.device_put(value, devices[source]))
    began = time.monotonic()
    there = jax.block_until_ready(jax.device_put(here, devices[target]))
    seconds = time.monotonic() - began
    assert (np.asarray(there) == value).all()
    return seconds

def collectives(count=1000):
    n = len(devices)
    value = np.arange(n * n * count, dtype=np.float32).reshape(n, n, count)
    def of(body, out_specs=P("x")):
        return np.asarray(jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=out_specs))(value))
    turn = [(i, (i + 1) % n) for i in range(n)]
    assert np.array_equal(of(lambda v: jax.lax.psum(v, "x"), P())[0], value.sum(0))
    assert np.array_equal(of(lambda v: jax.lax.ppermute(v, "x", turn)), np.roll(value, 1, 0))
    assert np.array_equal(of(lambda v: jax.lax.all_to_all(v, "x", 1, 0)), value.swapaxes(0, 1).reshape(n * n, 1, count))
    assert np.array_equal(of(lambda v: jax.lax.psum_scatter(v[0], "x", tiled=True)), value.sum(0))
    return True

def until(attempt, within_s):
    # The value, once there is one, or the last error.
    deadline = time.monotonic() + within_s
    while True:
        try:
            return attempt()
        except Exception as error:
            if time.monotonic() > deadline:
                return repr(error)

for line in sys.stdin:
    try:
        print(repr(eval(line)), flush=True)
    except Exception as error:
        print("ERROR " + str(error).replace("\\n", " "), flush=True)
"""


class Script:
    """A script on one of the hosts that answers what it is asked, one line each."""

    def __init__(self, places: PlacesOnHosts, host: str) -> None:
        path = places.folder / "script.py"
        path.write_text(PRELUDE)
        command = [str(GANGWAY), "run", "--connect", places.address, *places.tls_flags(), str(path)]
        self._process = subprocess.Popen(
            places.network[host].entering(*command),
            env=places.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._answers.put(line.rstrip("\n"))

    def send(self, text: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def answer(self, within_s: float = 60) -> str:
        return self._answers.get(timeout=within_s * PATIENCE)

    def ask(self, text: str, within_s: float = 60) -> str:
        self.send(text)
        return self.answer(within_s)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def cluster(folder: pathlib.Path) -> Iterator[PlacesOnHosts]:
    """Three workers on three hosts, and their controller on another, whose name no name server knows."""
    with Network(*NAMES) as network:
        places = PlacesOnHosts(folder, network)
        try:
            places.start_controller("--workers", "3", "--host", "node0", listen="0.0.0.0:0")
            assert places.address.startswith("node0:"), places.address
            for index in range(3):
                places.start_worker(index)
            yield places
        finally:
            places.stop()


def says(places: PlacesOnHosts, name: str, words: str) -> bool:
    return words in places.log(name)


def workers(places: PlacesOnHosts) -> list[tuple[str, int]]:
    found = places.status()["islands"][0]["workers"]
    return [(worker["state"], worker["incarnation"]) for worker in found]


def only_worker1_is_new(before: list[tuple[str, int]], after: list[tuple[str, int]]) -> None:
    assert after[1] != before[1] and [after[0], after[2]] == [before[0], before[2]]
    assert after[1][0] == "up"


def test_a_cluster_over_hosts_trains_copies_and_outlives_a_host(tmp_path: pathlib.Path) -> None:
    with cluster(tmp_path) as places, contextlib.closing(Script(places, "node3")) as script:
        assert script.ask("train()") == "True"
        assert float(script.ask("copy(8)")) > 0
        before = workers(places)
        assert [state for state, _ in before] == ["up"] * 3
        # A host vanishes: nothing tells the others, and another host takes the place.
        places.network.cut("node2")
        places.processes.pop("worker1").kill()
        script.send("train()")
        began = time.monotonic()
        places.moved["worker1"] = "node3"
        places.start_worker(1)
        error = script.answer()
        assert "island0/worker1" in error, error
        print(f"the error came {time.monotonic() - began:.1f} s after the host had vanished")
        assert script.ask("until(train, 30)") == "True"
        only_worker1_is_new(before, workers(places))


@pytest.mark.nightly
def test_slow_links_carry_copies_and_collectives_and_no_process_is_lost(
    tmp_path: pathlib.Path,
) -> None:
    with cluster(tmp_path) as places, contextlib.closing(Script(places, "node3")) as script:
        before = workers_up(places)
        assert script.ask("collectives()") == "True"
        for name in NAMES:
            places.network.shape(name, "50mbit")
        assert script.ask("collectives(20000)", 120) == "True"
        seconds = float(script.ask("copy(32)", 120))
        print(
            f"32 MiB at 50 Mbit/s took {seconds:.2f} s; the wire alone takes {32 * 8.389 / 50:.2f} s"
        )
        assert seconds > 32 * 8.389 / 50 * 0.8, "the link was not slow"
        assert seconds < 60 * PATIENCE
        assert workers(places) == before, "heartbeats pass while the links are full"
        for name in NAMES:
            places.network.unshape(name)
        assert float(script.ask("copy(32)")) < seconds


def workers_up(places: PlacesOnHosts) -> list[tuple[str, int]]:
    result = places.ready()
    assert result.returncode == 0, result.stdout + result.stderr
    return workers(places)


@pytest.mark.nightly
def test_a_link_that_comes_back_in_time_costs_nothing_and_later_a_worker(
    tmp_path: pathlib.Path,
) -> None:
    with cluster(tmp_path) as places, contextlib.closing(Script(places, "node3")) as script:
        before = workers_up(places)
        assert script.ask("train()") == "True"
        script.send("train(300)")
        places.network.cut("node2")
        time.sleep(2)  # below SILENT_S
        places.network.mend("node2")
        assert script.answer() == "True"
        assert workers(places) == before
        script.send("train(300)")
        places.network.cut("node2")
        error = script.answer(SILENT_S + 20)
        assert "island0/worker1" in error, error
        wait_for(
            "its worker gives the controller up",
            lambda: "is gone" in places.log("worker1") or "silent" in places.log("worker1"),
            WORKER_LOST_S + 10,
        )
        places.network.mend("node2")
        assert script.ask("until(train, 60)", 90) == "True"
        only_worker1_is_new(before, workers_up(places))


@pytest.mark.nightly
def test_a_controllers_host_that_is_cut_off_is_missed_and_found_again(
    tmp_path: pathlib.Path,
) -> None:
    with cluster(tmp_path) as places, contextlib.closing(Script(places, "node3")) as script:
        workers_up(places)
        assert script.ask("train()") == "True"
        places.network.cut("node0")
        error = script.ask("train()", 60)
        assert error.startswith("ERROR") and f"the controller at {places.address}" in error, error
        for index in range(3):
            wait_for(
                f"worker {index} waits for the controller",
                partial(says, places, f"worker{index}", "waiting for the controller"),
                WORKER_LOST_S + 20,
            )
        places.network.mend("node0")
        workers_up(places)
        with contextlib.closing(Script(places, "node1")) as another:
            assert another.ask("train()") == "True"
