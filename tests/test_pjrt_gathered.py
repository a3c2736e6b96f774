"""Arrays that JAX uploads shard by shard, as arguments of calls on many devices: results, memory, donation and loss are
those of arrays that one call made, also once the plugin names them by an array of its own (from the second call on).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from faultlib import Console
from harness import Cluster, wait_for

START = """
from jax.sharding import NamedSharding, PartitionSpec as P
s = NamedSharding(jax.make_mesh((len(jax.devices()),), ('d',)), P('d'))
def put(seed):
    values = np.random.default_rng(seed).standard_normal(64).astype(np.float32)
    return jax.device_put(values, s)
f = jax.jit(lambda x, y: (x * y + x, jnp.sin(x) - jnp.sum(y)))
g = jax.jit(lambda x, y: x * 3 + y, donate_argnums=0)
def bits(values):
    return [np.asarray(each).tobytes().hex() for each in values]
def agree(seed):
    x = put(seed)
    return len({tuple(bits(f(x, y))) for _ in range(4)}) == 1
def in_use():
    return [d.memory_stats()['bytes_in_use'] for d in jax.devices()]
"""


def started(client: Console) -> Console:
    client.do(f"exec({START!r})")
    return client


@pytest.fixture
def console(cluster: Cluster) -> Iterator[Console]:
    with Console(cluster, door="pjrt") as opened:
        yield started(opened)


def test_each_call_gives_the_same_bits_DF_1_DF_3(console: Console) -> None:
    console.do("x, y = put(1), put(2); first = bits(f(x, y))")
    assert console.do("result = [bits(f(x, y)) == first for _ in range(5)]") == [True] * 5
    # Other lists of the same shards, and the same list twice.
    console.do("other = jax.device_put(np.asarray(y), s); swapped = bits(f(y, x))")
    assert console.do("result = [bits(f(y, x)) == swapped for _ in range(3)]") == [True] * 3
    assert console.do("result = [bits(f(x, other)) == first for _ in range(3)]") == [True] * 3
    console.do("square = bits(f(x, x))")
    assert console.do("result = [bits(f(x, x)) == square for _ in range(3)]") == [True] * 3


def test_memory_is_free_with_the_last_reference_OB_1(console: Console) -> None:
    console.do("jax.block_until_ready(f(put(3), put(4))); before = in_use()")
    for end in ("del x, y", "x.delete(); y.delete()"):
        console.do("x, y = put(5), put(6)")
        console.do("for _ in range(4): jax.block_until_ready(f(x, y))")
        assert console.do("result = min(a - b for a, b in zip(in_use(), before)) > 0")
        console.do(end)
        wait_for("memory is free", lambda: console.do("result = in_use() == before"), 10)


def test_a_shard_that_lives_on_keeps_its_memory_alone_OB_1(console: Console) -> None:
    console.do("jax.block_until_ready(f(put(3), put(4))); before = in_use()")
    console.do("x, y = put(7), put(8)")
    console.do("for _ in range(3): jax.block_until_ready(f(x, y))")
    console.do("one = x.addressable_shards[2].data; right = bits([one])")
    console.do("del x, y")
    kept = [0, 0, 32, 0, 0, 0, 0, 0]

    def more() -> object:
        return console.do("result = [a - b for a, b in zip(in_use(), before)]")

    wait_for("the others are free", lambda: more() == kept, 10)
    assert console.do("result = bits([one]) == right")


def test_copies_to_other_devices_keep_no_memory_OB_1(console: Console) -> None:
    console.do("half = lambda ds: NamedSharding(jax.sharding.Mesh(np.array(ds), ('d',)), P('d'))")
    console.do("a, b = half(jax.devices()[:4]), half(jax.devices()[4:])")
    console.do("h = jax.jit(lambda x: x + 1); x = jax.device_put(np.arange(64.0), a)")
    console.do("jax.block_until_ready(x); before = in_use(); y = h(x); right = bits([y])")
    console.do("copies = [jax.device_put(y, b) for _ in range(4)]")
    assert console.do("result = [bits([each]) == right for each in copies]") == [True] * 4
    assert console.do("result = [bits([h(each)]) == bits([h(y)]) for each in copies]") == [True] * 4
    console.do("del y")

    def more() -> object:
        return console.do("result = [a - b for a, b in zip(in_use(), before)]")

    wait_for("what was copied is free", lambda: more() == [0] * 4 + [4 * 64] * 4, 10)
    console.do("del copies")
    wait_for("memory is free", lambda: more() == [0] * 8, 10)


def test_donation_consumes_the_shards(console: Console) -> None:
    console.do("x, y = put(9), put(10); right = bits([g(x + 0, y)])")
    console.do("jax.block_until_ready([f(x, y) for _ in range(3)])")
    console.do("shards = [each.data for each in x.addressable_shards]; z = g(x, y)")
    assert console.do("result = bits([z]) == right")
    assert console.do("result = [x.is_deleted(), y.is_deleted()]") == [True, False]
    assert "deleted" in console.ask("np.asarray(x)")["error"]
    assert "deleted" in console.ask("np.asarray(shards[3])")["error"]
    assert "deleted" in console.ask("f(x, y)")["error"]
    # What was not donated is as good as before.
    console.do("x = put(9)")
    assert console.do("result = [bits([g(x, y)]) == right]") == [True]
    # One of two names of the same shards cannot be donated.
    console.do("x = put(9); jax.block_until_ready([f(x, x) for _ in range(3)])")
    assert "donate" in console.ask("g(x, x)")["error"]


def test_many_lists_leave_nothing(cluster: Cluster) -> None:
    def use() -> None:
        with Console(cluster, door="pjrt") as client:
            started(client)
            client.do("y = jax.block_until_ready(put(0)); before = in_use()")
            client.do("for i in range(100): x = put(i); f(x, y); f(x, y); f(x, y)", 120)
            client.do("jax.block_until_ready(f(x, y)); del x")
            wait_for("memory is free", lambda: client.do("result = in_use() == before"), 10)
            client.do("from concurrent.futures import ThreadPoolExecutor")
            client.do("assert all(ThreadPoolExecutor(8).map(agree, range(64)))", 120)
            client.do("xs = [put(i) for i in range(40)]")
            client.do("for _ in range(3): jax.block_until_ready([f(x, y) for x in xs])", 120)

    with cluster.left_as_found(use):
        use()


@pytest.mark.faults
def test_a_lost_shard_is_the_same_error_as_without_an_array_ER_1() -> None:
    cluster = Cluster(1, 2, 2).start()
    try:
        with Console(cluster, door="pjrt") as client:
            started(client)
            client.do("double = jax.jit(lambda x: x * 2); x, y = put(11), put(12)")
            client.do("jax.block_until_ready([double(x) for _ in range(3)] + [double(y)])")
            victim = next(each for each in cluster.workers() if each["name"] == "island0/worker1")
            os.kill(victim["pid"], signal.SIGKILL)
            failed = client.ask("np.asarray(x)")
            assert "DATA_LOSS" in failed["error"], failed
            named = client.ask("double(x).block_until_ready()")["error"]
            listed = client.ask("double(y).block_until_ready()")["error"]
            assert "DATA_LOSS" in named and "island0/worker1" in named, named
            assert named == listed
            # Also where the array is made of lost shards.
            assert client.ask("double(y).block_until_ready()")["error"] == listed
            for shard in (0, 1):
                assert client.do(
                    f"result = np.asarray(x.addressable_shards[{shard}].data).size"
                ) == (16)
    finally:
        cluster.stop()
