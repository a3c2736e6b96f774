"""A program of 10,000 nodes on the workers of two islands, and a fault in the middle of its launch: a killed worker,
nodes that fail, a killed client, a lost scheduler. What depends on the fault fails by name and in time, all else goes
on, and nothing is left. The simulation has the same faults at chosen moments (program_faults_test.cc).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from faultlib import Blocker
from harness import PATIENCE, Cluster, wait_for
from native_programs import Driven

pytestmark = [pytest.mark.alone, pytest.mark.faults]
CHAINS = 4  # one on each device, which is a worker's only one
NODES = 2500  # of a chain, its last one a copy to the next device
MIDDLE = NODES // 2 - 1  # of a chain: its long call
WINDOW = 64  # more than a worker gives its device ahead of a call that has not ended
FAILED_S = 2  # from the fault until all that it spoils has failed
FREED_S = 2  # from the death of a client until nothing of it is left


class Failure(NamedTuple):
    program: str
    node: int
    source: str
    worker: str
    message: str


class Program:
    """A client with a program of its name."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.client = Driven("large_program_client", cluster, name)
        assert self.client.ask("trace") == f"{CHAINS * NODES} nodes, {NODES} in a chain"

    def launch(self) -> None:
        """Until each chain stands in its middle."""
        assert self.client.ask("launch") == "middle"

    def expect_done(self, *chains: int) -> None:
        for chain in chains:
            assert self.client.ask(f"result {chain}") == str(chain + NODES - 2)

    def failure(self, chain: int) -> Failure:
        answer = self.client.ask(f"result {chain}")
        assert answer.count("|") >= 4, answer
        program, node, source, worker, message = answer.split("|", 4)
        return Failure(program, int(node), source, worker, message)


def node_of(chain: int, index: int) -> int:
    """Of a node of a chain, its number in the program, in which the chains' arguments come first."""
    return CHAINS + chain * NODES + index


def start(cluster: Cluster) -> Cluster:
    """A first client then makes what workers keep, such as the links by which they copy to one another."""
    cluster.start()
    program = Program(cluster, "first")
    program.launch()
    program.expect_done(*range(CHAINS))
    program.client.end()
    wait_for("the first client gone", lambda: not cluster.status()["sessions"], 10)
    return cluster


@contextlib.contextmanager
def programs(cluster: Cluster, *names: str) -> Iterator[list[Program]]:
    """At the end, no program holds anything any more, and of their clients nothing is left. The cluster is from `start`."""
    with cluster.left_as_found(lambda: None), contextlib.ExitStack() as ends:
        made = []
        for name in names:
            made.append(Program(cluster, name))
            ends.callback(made[-1].client.end)
        yield made
        for each in made:
            if each.client.is_running:
                each.client.ask("drop")
        wait_for("nothing held", lambda: not held(cluster), FREED_S)


def held(cluster: Cluster) -> list[Any]:
    """What programs and their launches hold in the cluster."""
    status = cluster.status()
    counts = [
        session[name]
        for session in status["sessions"]
        for name in ("arrays", "programs", "pending_nodes")
    ]
    counts += [status["counters"][name] for name in ("storages", "nodes")]
    counts += [worker["nodes"] for island in status["islands"] for worker in island["workers"]]
    return [count for count in counts if count]


def pid_of(cluster: Cluster, name: str) -> int:
    return next(int(worker["pid"]) for worker in cluster.workers() if worker["name"] == name)


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Cluster, Blocker]]:
    # Its workers are killed from outside, which looks like a program that ends them.
    cluster = Cluster(2, 2, 1, *Blocker.FLAGS, "--quarantine", "0")
    blocker = Blocker(cluster)
    yield start(cluster), blocker
    cluster.stop()


def test_a_killed_worker_fails_what_needs_it_by_name_ER_1_ER_2(
    running: tuple[Cluster, Blocker],
) -> None:
    cluster, _ = running
    victim = pid_of(cluster, "island0/worker1")
    with programs(cluster, "killed", "other") as (killed, other):
        killed.launch()
        began = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        computes, copies_there = killed.failure(1), killed.failure(0)
        assert time.monotonic() - began < FAILED_S * PATIENCE
        for failure in (computes, copies_there):
            assert failure.program == "killed", failure
            assert failure.worker == "island0/worker1", failure
        assert node_of(1, MIDDLE) <= computes.node < node_of(1, NODES), computes
        assert copies_there.node == node_of(0, NODES - 1), copies_there
        killed.expect_done(2, 3)
        other.launch()  # on the worker's next process, too
        other.expect_done(*range(CHAINS))


def test_a_failed_node_fails_its_dependents_by_name_ER_1_ER_2(
    running: tuple[Cluster, Blocker],
) -> None:
    cluster, blocker = running
    victim = pid_of(cluster, "island1/worker0")
    with programs(cluster, "failing") as (failing,):
        failing.launch()
        with blocker.refused(victim, 0):
            failure = failing.failure(2)
            assert failure.program == "failing", failure
            assert failure.worker == "island1/worker0", failure
            assert node_of(2, MIDDLE) < failure.node <= node_of(2, MIDDLE) + WINDOW, failure
            assert "large_program_client.cc:" in failure.source, failure
            assert "Execution supplied" in failure.message, failure
            failing.expect_done(0, 1, 3)
        failing.launch()
        failing.expect_done(*range(CHAINS))


def test_a_killed_client_takes_its_launch_with_it_OB_2(running: tuple[Cluster, Blocker]) -> None:
    cluster, _ = running
    with programs(cluster, "leaves", "other") as (leaves, other):
        leaves.launch()
        leaves.client.end()
        # What is left is the program of the other one.
        wait_for("nothing of it left", lambda: held(cluster) == [1], FREED_S)
        (session,) = cluster.status()["sessions"]
        assert session["client"] == "other"
        other.launch()
        other.expect_done(*range(CHAINS))


def test_a_lost_scheduler_fails_its_islands_nodes_by_name_ER_1_ER_2(
    new_cluster: Callable[..., Cluster],
) -> None:
    cluster = start(new_cluster(2, 2, 1, "--separate-schedulers", "--quarantine", "0"))
    victim = int(cluster.status()["schedulers"][1]["pid"])
    with programs(cluster, "cut") as (cut,):
        cut.launch()
        began = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        failures = [cut.failure(chain) for chain in (1, 2, 3)]  # the first copies there
        assert time.monotonic() - began < FAILED_S * PATIENCE
        for failure in failures:
            assert failure.program == "cut", failure
            assert "island1/scheduler" in failure.message, failure
        cut.expect_done(0)
        cut.launch()  # with the next scheduler and its workers
        cut.expect_done(*range(CHAINS))
