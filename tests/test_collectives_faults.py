"""Faults of programs over several workers, other than a worker that ends (test_collectives): who fails, how soon, by
whose fault, and that all else goes on and nothing is left.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faultlib import REFUSED, Blocker, Console, elapsed, segments, the_cause
from harness import Cluster, wait_for
from test_collectives import SETUP, STEP
from test_faults import wait_for_restart

pytestmark = pytest.mark.faults
NewCluster = Callable[..., Cluster]
VICTIM = "island0/worker2"
# `around` runs on all workers but the victim.
GANGS = (
    STEP
    + """
around = Mesh(devices[[6, 0, 3, 2, 1, 7]], ("x",))
rest = jax.jit(lambda x: x * 0.5 + x.sum() / 12, out_shardings=NamedSharding(around, P("x")))
others = jax.device_put(np.ones(6, np.float32), NamedSharding(around, P("x")))
others.block_until_ready()
spoil = jax.jit(lambda x: x + 1)
start = ones()
pieces = [spoil(shard.data) for shard in start.addressable_shards]
jax.block_until_ready(pieces)
def joined(pieces): return jax.make_array_from_single_device_arrays((64, 32), both, pieces)
def chain(count, value):
    made = []
    for _ in range(count):
        value = step(value)
        made.append(value)
    return made
def errors(values):
    found = []
    for value in values:
        try: jax.block_until_ready(value)
        except Exception as error: found.append(str(error))
    return found
def other_gang(): return float(np.asarray(rest(others)).sum())
result = other_gang()
"""
)


def load_in(client: Console) -> None:
    client.do(f"exec({SETUP!r}, globals())")
    assert client.do(f"exec({GANGS!r}, globals())", timeout_s=60) == 6.0


def victim_of(cluster: Cluster) -> dict[str, Any]:
    return next(worker for worker in cluster.workers() if worker["name"] == VICTIM)


def pids(cluster: Cluster) -> dict[str, int]:
    return {worker["name"]: worker["pid"] for worker in cluster.workers()}


class Faulty:
    """A cluster of 4 x 2 devices whose parts can be blocked, with two clients that have run their programs."""

    def __init__(self, running: Cluster, blocker: Blocker, client: Console, other: Console) -> None:
        self.running = running
        self.blocker = blocker
        self.client = client
        self.other = other

    @property
    def victim_pid(self) -> int:
        return int(victim_of(self.running)["pid"])

    def expect_all_fail(self, values: str, count: int, cause: str, since: float) -> None:
        """All `values` of the client fail within a second, and each member's arrays carry the record of this cause.
        An empty `cause` means that the victim was lost: each array then has a record of its own.
        """
        found = self.client.do(f"result = errors({values})")
        took = elapsed(since)
        assert len(found) == count, found
        assert took < 1, took
        found += self.client.do(
            f"result = errors(shard.data for i in (0, -1) for shard in {values}[i].addressable_shards)"
        )
        assert len(found) == count + 16, found
        if cause:
            assert re.fullmatch(cause, the_cause(found, VICTIM)), found[0]
        else:
            assert all(VICTIM in each and "DATA_LOSS" in each for each in found), found

    def expect_others_go_on(self, since: float) -> None:
        assert self.other.do("result = other_gang()") == 6.0
        assert elapsed(since) < 1

    def expect_good_again(self) -> None:
        for client in (self.client, self.other):
            assert client.do("result = float(run(3).sum())") == 2047.0


def start_faulty(new_cluster: NewCluster, *flags: str) -> tuple[Cluster, Blocker]:
    # Its workers are killed from outside, which looks like a program that ends them.
    running = new_cluster(1, 4, 2, *Blocker.FLAGS, "--quarantine", "0", *flags)
    blocker = Blocker(running)
    return running.start(), blocker


@contextlib.contextmanager
def faulty_cluster(new_cluster: NewCluster, *flags: str, opens: str = "") -> Iterator[Faulty]:
    """A cluster of its own, as two_clients has it."""
    with two_clients(*start_faulty(new_cluster, *flags), opens) as made:
        yield made


# The workers of a cluster, by its port, that have run the statements of two_clients.
_opened: dict[tuple[int, str], dict[str, int]] = {}


@contextlib.contextmanager
def two_clients(running: Cluster, blocker: Blocker, opens: str = "") -> Iterator[Faulty]:
    """At the end, all that the block's clients and lost workers had must be gone. `opens`: statements after which the
    cluster has what it keeps.
    """
    before: dict[str, int] = {}

    def first() -> None:  # memory for collectives is made once and stays
        workers = pids(running)
        if _opened.get((running.port, opens)) != workers:
            with Console(running, door="pjrt") as client:
                load_in(client)
                client.do(f"exec({opens!r}, globals())", timeout_s=60)
            _opened[running.port, opens] = workers
        before.update(segments(running.workers()))

    with running.left_as_found(first):
        with Console(running, door="pjrt") as client, Console(running, door="ifrt") as other:
            load_in(client)
            load_in(other)
            yield Faulty(running, blocker, client, other)

        def returned() -> bool:
            now = segments(running.workers())
            return all(count <= before.get(name, 0) for name, count in now.items())

        wait_for("no memory of workers that are gone", returned, 10)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Cluster, Blocker]]:
    made = start_faulty(Cluster)
    yield made
    made[0].stop()


@pytest.fixture
def faulty(shared: tuple[Cluster, Blocker]) -> Iterator[Faulty]:
    with two_clients(*shared) as made:
        yield made


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_a_failed_execute_fails_its_gang_and_what_depends_on_it(faulty: Faulty) -> None:
    before = pids(faulty.running)
    with faulty.blocker.refused(faulty.victim_pid, 1):
        began = time.monotonic()
        faulty.client.do("vs = chain(100, start)")
        faulty.expect_all_fail("vs", 100, REFUSED, began)
        faulty.expect_others_go_on(time.monotonic())
    faulty.expect_good_again()
    assert pids(faulty.running) == before, "no process ends because a gang did"


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_a_shard_that_fails_late_fails_the_gang_that_waits_for_it(faulty: Faulty) -> None:
    """The gang has been released, and its other members wait in their first collective."""
    before = pids(faulty.running)
    with faulty.blocker.refused(faulty.victim_pid, 0):
        with faulty.blocker.blocked(faulty.victim_pid):
            faulty.client.do(
                "pieces[4] = spoil(start.addressable_shards[4].data); vs = chain(100, joined(pieces))"
            )
            time.sleep(0.2)  # so that members wait; earlier is a case, too
        faulty.expect_all_fail("vs", 100, REFUSED, time.monotonic())
    faulty.expect_good_again()
    assert pids(faulty.running) == before


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_a_slow_member_is_waited_for_and_an_ended_session_is_not(faulty: Faulty) -> None:
    before = pids(faulty.running)
    with faulty.blocker.blocked(faulty.victim_pid):
        faulty.client.do("vs = chain(20, start)")
        time.sleep(1)
    assert faulty.client.do("result = float(vs[-1].sum())") == 2047.0
    with faulty.blocker.blocked(faulty.victim_pid):
        faulty.client.do("vs = chain(10, start)")  # fewer than a device has slots for
        faulty.other.send("result = other_gang()")  # behind the first of them
        time.sleep(0.2)
        os.kill(faulty.client.pid, signal.SIGKILL)
        killed = time.monotonic()
        assert faulty.other.answer(20)["ok"] == 6.0
        assert elapsed(killed) < 1
    assert faulty.other.do("result = float(run(3).sum())") == 2047.0
    assert pids(faulty.running) == before


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_a_load_that_fails_on_one_worker_fails_the_gang_everywhere_by_its_name(
    faulty: Faulty,
) -> None:
    faulty.client.do("fresh = jax.jit(lambda x: x * 3 - x.sum())")
    with faulty.blocker.refused_loads(faulty.victim_pid):
        faulty.client.do("vs = [fresh(start)]", timeout_s=60)
        found = faulty.client.do("result = errors(s.data for s in vs[0].addressable_shards)")
        assert len(found) == 8, found
        assert "No program shape found" in the_cause(found, VICTIM, of="load"), found
        faulty.expect_others_go_on(time.monotonic())
    # A load is tried again at the next use, once its failure is a second old.
    wait_for(
        "the program loaded",
        lambda: "ok" in faulty.client.ask("fresh(start).block_until_ready()"),
        10,
    )
    faulty.expect_good_again()


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_a_worker_killed_in_a_load_ends_the_wait_of_all(faulty: Faulty) -> None:
    """And survivors run a cached gang of the smaller slice at once."""
    old = victim_of(faulty.running)
    faulty.client.do("fresh = jax.jit(lambda x: x * 5 - x.sum())")
    with faulty.blocker.blocked(old["pid"], ".load"):
        faulty.client.do("vs = chain(100, fresh(start))", timeout_s=60)
        time.sleep(0.2)
        os.kill(old["pid"], signal.SIGKILL)
        killed = time.monotonic()
        faulty.expect_others_go_on(killed)
        faulty.expect_all_fail("vs", 100, "", killed)
    wait_for_restart(faulty.running, old)
    faulty.client.do("start = ones()")
    faulty.expect_good_again()
    assert faulty.client.do("result = float(np.asarray(fresh(start))[0, 0])") == 5 - 2048
