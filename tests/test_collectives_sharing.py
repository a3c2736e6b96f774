"""Gangs of many sessions over the same devices, on the smallest pools that workers start with: none starves, whatever
their order, size and kind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import pytest
from faultlib import Console
from harness import Cluster, wait_for, why
from test_collectives import SETUP

NewCluster = Callable[..., Cluster]
CORES = os.cpu_count() or 1
# `turned`: the mesh of every second session lists the devices from the other end, so its program's first member is on
# the last worker. `heavy` has many collectives with products between them; `scalar` runs inside the call that starts
# it, on the device's own thread; `near` runs on one worker's two devices, with the runtime's own collectives.
GANGS = """
def gangs(index):
    order = devices[::-1] if index % 2 else devices
    mesh = Mesh(order.reshape(4, 2), ("a", "b"))
    sharding = NamedSharding(mesh, P(("a", "b")))
    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=P(("a", "b")), out_specs=P(("a", "b")))
    def heavy(x):
        parts = [jnp.tanh(jax.lax.psum((x[0] * i) @ x[0], ("a", "b")) / 8) for i in range(6)]
        return jnp.stack([part + jnp.roll(jax.lax.all_gather(x[0], "b")[0], i) for i, part in enumerate(parts)])[None]
    scalar = jax.jit(lambda x: x - x.mean())
    two = Mesh(devices[2 * index : 2 * index + 2], ("n",))
    @jax.jit
    @partial(jax.shard_map, mesh=two, in_specs=P("n"), out_specs=P("n"))
    def near(x):
        return jnp.stack([jnp.tanh(jax.lax.psum((x[0] * i) @ x[0], "n")) for i in range(6)])[None]
    x = draw((8, 64, 64)).astype(np.float32)
    wide = jax.device_put(x, sharding)
    small = jax.device_put(x[:, 0, 0], sharding)
    close = jax.device_put(x[:2], NamedSharding(two, P("n")))
    programs = [(heavy, wide), (scalar, small), (near, close)]
    return programs[::-1] if index % 2 else programs
def begin(programs, count):
    return [[program(x) for program, x in programs] for _ in range(count)]
def check(results, first):
    for each in results:
        for value, right in zip(each, first):
            np.testing.assert_array_equal(np.asarray(value), right)
    return len(results)
"""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("own", [pytest.param("xla", marks=pytest.mark.nightly), "gangway"])
def test_sixteen_gangs_of_four_sessions_in_flight(new_cluster: NewCluster, own: str) -> None:
    """Gangs with Gangway's collectives over all workers, with starts from opposite ends, run inline, and beside gangs
    inside of a worker, with the runtime's own collectives (`xla`) or with Gangway's.
    """
    running = new_cluster(1, 4, 2, "--threads", str(2 + CORES), "--collectives", own).start()
    with contextlib.ExitStack() as ends:
        clients = [
            ends.enter_context(Console(running, door="ifrt" if i == 3 else "pjrt"))
            for i in range(4)
        ]
        for i, client in enumerate(clients):
            client.do(f"exec({SETUP!r}, globals())")
            client.do(f"exec({GANGS!r}, globals())")
            client.do(
                f"mine = gangs({i}); first = [np.asarray(p(x)) for p, x in mine]", timeout_s=90
            )
        for _ in range(3):
            for client in clients:
                client.send("ys = begin(mine, 16)")
            for client in clients:
                assert "ok" in client.answer(60)
            for client in clients:
                client.send("result = check(ys, first)")
            for client in clients:
                assert client.answer(60) == {"ok": 16}


def test_a_pool_that_is_too_small_is_refused_at_the_start(new_cluster: NewCluster) -> None:
    result = new_cluster(1, 1, 8, "--threads", str(7 + CORES)).up()
    assert result.returncode != 0
    assert f"at least {8 + CORES} threads" in result.stdout + result.stderr


# `loop` stands in `steps` of the runtime's collectives, on four devices from `first` on.
FIRST_WORKER = SETUP.replace("devices.reshape", "devices[:8].reshape")
TURNS = """
def loop(first, steps):
    mesh = Mesh(devices[first : first + 4], ("n",))
    @partial(jax.shard_map, mesh=mesh, in_specs=P("n"), out_specs=P("n"))
    def run(x):
        body = lambda i, c: jax.lax.psum(c, "n") * 0.25 + x * 0
        return jax.lax.fori_loop(0, steps, body, x)
    return jax.jit(run), jax.device_put(np.ones(4, np.float32), NamedSharding(mesh, P("n")))
def relay(rounds):
    halves = [loop(first, 20) for first in (0, 4)]
    away = NamedSharding(Mesh(devices[8:12], ("n",)), P("n"))
    for f, x in halves:
        f(x).block_until_ready()
    x = halves[0][1]
    for i in range(rounds):
        x = jax.device_put(jax.device_put(halves[i % 2][0](x), away), halves[(i + 1) % 2][1].sharding)
    return np.asarray(x).tolist()
"""


def test_gangs_of_the_runtime_on_disjoint_devices_take_turns_and_why_says_so(
    new_cluster: NewCluster,
) -> None:
    running = new_cluster(1, 2, 8, "--collectives", "xla").start()
    with Console(running, door="pjrt") as long, Console(running, door="pjrt") as short:
        for client in (long, short):
            client.do(f"exec({FIRST_WORKER!r}, globals())")
            client.do(f"exec({TURNS!r}, globals())")
        long.do("f, x = loop(0, 40_000); f = f.lower(x).compile()")
        short.do("g, y = loop(4, 3); right = np.asarray(g(y)).tolist()")
        long.send("result = np.asarray(f(x)).tolist()")
        wait_for("the long gang", lambda: any(w["kind"] == "call" for w in why(running)), 20)
        short.send("result = np.asarray(g(y)).tolist() == right")

        def is_explained() -> bool:
            return any(
                wait["reason"] == "runtime_turn" and wait["for_gang"] > 0 for wait in why(running)
            )

        wait_for("the short gang behind the long one", is_explained, 20)
        assert short.answer(60)["ok"] is True
        assert long.answer(60)["ok"] == [1.0] * 4


def test_gangs_of_the_runtime_whose_bytes_come_by_way_of_another_worker_reach_it_in_order(
    new_cluster: NewCluster,
) -> None:
    """Each reads what the one before it made on the other half of the worker, through another worker."""
    running = new_cluster(1, 2, 8, "--collectives", "xla").start()
    with Console(running, door="pjrt") as client:
        client.do(f"exec({FIRST_WORKER!r}, globals())")
        client.do(f"exec({TURNS!r}, globals())")
        assert client.do("result = relay(60)", timeout_s=90) == [1.0] * 4
