"""Positions of a program that wait for one another in different collectives: the gang fails within a second, and names
both collectives with a device in each; other sessions and later gangs go on. Slow members are no deadlock.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import time
from collections.abc import Callable, Iterator

import pytest
from faultlib import Console, Reachable, elapsed
from harness import DOORS, PATIENCE, Cluster
from hosts import Hosts

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
NewCluster = Callable[..., Cluster]
STREAMS = ("--shared-memory", "0")
# Each position decides by its own value of `way`. `size`: of each position's operand.
PROGRAM = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

COUNT = {count}
devices = jax.devices()[{first}:{first} + COUNT]
mesh = Mesh(np.array(devices), ("d",))
row = NamedSharding(mesh, P("d"))

def over_all(body):
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False))

def add(x):
    return jax.lax.psum(x, "d")

def gather(x):
    return jax.lax.all_gather(x, "d").sum(0)

def branch(x, way):
    return jax.lax.cond(way[0] == 0, add, gather, x)

def loop(x, way):
    halves = jax.lax.while_loop(lambda s: s[0] < way[0] + 2, lambda s: (s[0] + 1, add(s[1]) / COUNT), (0, x))[1]
    return gather(halves)

def in_one_loop(x, way):
    return jax.lax.fori_loop(0, 4, lambda i, v: jax.lax.cond((way[0] == 1) & (i == 2), gather, add, v) / COUNT, x)

def chain(x, way):
    neighbours = jax.lax.cond(way[0] == 0, lambda v: v, lambda v: jax.lax.ppermute(v, "d", ring), x)
    return add(neighbours)

ring = [(i, (i + 1) % COUNT) for i in range(COUNT)]
bodies = dict(branch=over_all(branch), loop=over_all(loop), in_one_loop=over_all(in_one_loop), chain=over_all(chain))
ways = lambda *odd: jax.device_put(np.isin(np.arange(COUNT), odd).astype("int32"), row)
ones = lambda size: jax.device_put(np.ones(COUNT * size, "float32"), row)
total = lambda name, size, *odd: float(np.asarray(bodies[name](ones(size), ways(*odd)))[0])

work = lambda x, seconds: jax.ffi.ffi_call("gangway_simulated_work", [jax.ShapeDtypeStruct(x.shape, x.dtype)] * 2)(
    x, x, microseconds=np.int64(seconds * 1e6))[1]

@over_all
def slow_member(x, way):
    x = jax.lax.cond(way[0] == 1, lambda v: work(v, 3), lambda v: v, add(x))
    return gather(x)

def stand(x, way):
    import time
    if way[0] == 1: time.sleep(3)
    return x

@over_all
def slow_callback(x, way):
    x = jax.pure_callback(stand, jax.ShapeDtypeStruct(x.shape, x.dtype), add(x), way)
    return gather(x)

one = jax.device_put(np.ones(4, "float32"), devices[0])
plus = jax.jit(lambda x: x + 1)
next_one = lambda: float(plus(one)[0])
"""
SMALL, LARGE = 4, 1 << 18


def line_of(words: str) -> int:
    return 1 + next(i for i, line in enumerate(PROGRAM.splitlines()) if words in line)


class Positions:
    """Two sessions with the program: `client`, which breaks it, and `other`."""

    def __init__(self, client: Console, other: Console, count: int) -> None:
        self.client, self.other, self.count = client, other, count

    def expect_right(self, *names: str, sizes: tuple[int, ...] = (SMALL,)) -> None:
        for name in names:
            for size in sizes:
                for odd in ("", ", *range(p.COUNT)"):
                    assert self.client.do(f"result = p.total({name!r}, {size}{odd})", 60) > 0

    def expect_deadlock(self, name: str, size: int, odd: int, lines: tuple[str, str]) -> float:
        """Position `odd` goes another way than the others. Returns how long that was unknown."""
        self.client.do(f"way = p.ways({odd}); x = p.ones({size}); jax.block_until_ready((way, x))")
        began = time.monotonic()
        self.client.send(f"jax.block_until_ready(p.bodies[{name!r}](x, way))")
        others_wait = 0.0
        while not self.client.answered() or others_wait == 0.0:
            asked = time.monotonic()
            assert self.other.do("result = p.next_one()", 400) == 2.0
            others_wait = max(others_wait, elapsed(asked))
            took = elapsed(began)
        answer = self.client.answer(1)
        assert "error" in answer, answer
        error = answer["error"]
        assert "INVALID_ARGUMENT" in error and "wait for one another in different" in error, error
        members = re.findall(
            r"device (\d+) of (island\d/worker\d+) waits in \S+ at \S*:(\d+)", error
        )
        assert len(members) == 2 and members[0][0] != members[1][0], error
        assert {int(line) for *_, line in members} == {line_of(words) for words in lines}, error
        assert took < 1 * PATIENCE, took
        assert others_wait < 1 * PATIENCE, others_wait
        return took


def load(client: Console, folder: pathlib.Path, first: int, count: int) -> None:
    program = folder / "deadlock_program.py"
    program.write_text(PROGRAM.format(first=first, count=count))
    client.do(f"import sys; sys.path.insert(0, {str(folder)!r}); import deadlock_program as p", 60)
    assert client.do("result = p.next_one()", 60) == 2.0


@contextlib.contextmanager
def positions(
    cluster: Reachable, folder: pathlib.Path, door: str, first: int = 0, count: int = 8
) -> Iterator[Positions]:
    with Console(cluster, door=door) as client, Console(cluster, door=door) as other:
        for each in (client, other):
            load(each, folder, first, count)
        yield Positions(client, other, count)


PSUM, GATHER = 'return jax.lax.psum(x, "d")', 'return jax.lax.all_gather(x, "d")'


# One worker reads its members' operands where they are; two exchange messages in shared memory or by streams.
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("workers", "devices", "flags"),
    [(1, 8, ()), (4, 2, ()), (4, 2, STREAMS)],
    ids=["one-worker", "shared-memory", "streams"],
)
def test_positions_that_disagree_fail_within_a_second_with_both_collectives(
    new_cluster: NewCluster,
    tmp_path: pathlib.Path,
    workers: int,
    devices: int,
    flags: tuple[str, ...],
    door: str,
) -> None:
    cluster = new_cluster(1, workers, devices, *flags).start()
    with positions(cluster, tmp_path, door) as both:
        names = ("branch", "loop", "in_one_loop")
        both.expect_right(*names, sizes=(SMALL, LARGE))
        took = [
            both.expect_deadlock(name, size, odd, (PSUM, GATHER))
            for name, size, odd in (
                ("branch", SMALL, 0),
                ("branch", LARGE, 5),
                ("loop", SMALL, 7),
                ("loop", LARGE, 3),
                ("in_one_loop", LARGE, 2),
            )
        ]
        print("known after", [round(each, 2) for each in took])
        both.expect_right(*names)
        assert "is aborted: positions of the program wait for one another" in cluster.logs()


# The one position that permutes waits for its neighbour, which waits for all in the sum.
def test_a_ring_of_two_members_is_found_among_many(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(1, 4, 2).start()
    with positions(cluster, tmp_path, "pjrt") as both:
        both.expect_right("chain")
        both.expect_deadlock("chain", SMALL, 4, (PSUM, 'jax.lax.ppermute(v, "d", ring)'))
        both.expect_right("chain")


# Each island's workers are on hosts of their own.
def test_positions_on_hosts_of_their_own(tmp_path: pathlib.Path) -> None:
    hosts = Hosts(
        tmp_path,
        tls=False,
        islands=((2, 2), (2, 2)),
        schedulers=True,
        settings="collectives = 'gangway'\n",
    )
    try:
        hosts.start_controller()
        hosts.wait_for_token()
        hosts.start_schedulers()
        hosts.start_workers()
        hosts.wait_for("controller", "ready: ")
        folder = tmp_path / "programs"
        folder.mkdir()
        with positions(hosts.client(), folder, "pjrt", first=4, count=4) as both:
            both.expect_right("branch", "loop")
            both.expect_deadlock("branch", SMALL, 1, (PSUM, GATHER))
            both.expect_deadlock("loop", SMALL, 2, (PSUM, GATHER))
            both.expect_right("branch", "loop")
        assert "island1" in hosts.log("scheduler1") and "is aborted" in hosts.log("scheduler1")
        assert "is aborted" not in hosts.log("scheduler0")
    finally:
        hosts.stop()


# The others wait for 3 s in a collective, or in line for the devices, and get what they wait for: two clusters at once.
def test_slow_members_are_no_deadlock(new_cluster: NewCluster, tmp_path: pathlib.Path) -> None:
    clusters = [new_cluster(1, 4, 2, *flags).start() for flags in ((), STREAMS)]
    with contextlib.ExitStack() as ends:
        sessions = []
        for number, cluster in enumerate(clusters):
            folder = tmp_path / str(number)
            folder.mkdir()
            both = ends.enter_context(positions(cluster, folder, "pjrt"))
            sessions += [both.client, both.other]
        for each in sessions:
            each.do(
                "v = [p.slow_member(p.ones(4), p.ways()), p.slow_callback(p.ones(4), p.ways())]", 60
            )
            each.do("jax.block_until_ready(v)", 60)
        began = time.monotonic()
        for each in sessions:
            each.send(
                "result = [float(np.asarray(f(p.ones(4), p.ways(3)))[0]) for f in (p.slow_member, p.slow_callback)]"
            )
        for each in sessions:
            assert each.answer(60) == {"ok": [64.0, 64.0]}
        assert elapsed(began) >= 6
        for cluster in clusters:
            assert "is aborted" not in cluster.logs()
