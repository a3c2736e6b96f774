"""Programs over the devices of several workers, which do not communicate (test_collectives has the others): one compile, a part on each worker."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import textwrap
from collections.abc import Callable, Iterator

import pytest
from faultlib import Console
from harness import DOORS, NIGHTLY, PATIENCE, PYTHON, Cluster, client_environment, output_of_client
from test_faults import wait_for_restart

NewCluster = Callable[..., Cluster]
WORKERS, DEVICES = 4, 2
SETUP = """
import gangway; gangway.connect()
import jax, jax.numpy as jnp, numpy as np
from functools import partial
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = np.array(jax.devices())
mesh = Mesh(devices, ("x",))
rows = NamedSharding(mesh, P("x"))
def alike(f, *arguments, sharding=rows, **flags):
    # What one device gives, bit for bit.
    here = [jax.device_put(a, sharding) for a in arguments]
    ours = jax.jit(f, out_shardings=sharding, **flags)(*here)
    assert ours.sharding.device_set == set(sharding.device_set), ours.sharding
    theirs = jax.jit(f)(*[jax.device_put(a, devices[0]) for a in arguments])
    a, b = np.asarray(ours), np.asarray(theirs)
    assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), (a, b)
    return ours
x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
"""
MESH = """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rows = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
step = jax.jit(lambda x: x * 2 + 1)
"""


@pytest.fixture(scope="module", params=["together", "apart"] if NIGHTLY else ["together"])
def island(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    flags = ["--separate-schedulers", "--shared-memory", "0"] if request.param == "apart" else []
    running = Cluster(1, WORKERS, DEVICES, *flags).start()
    yield running
    running.stop()


def run(cluster: Cluster, door: str, text: str) -> str:
    """The output of a JAX script, which must succeed."""
    return output_of_client(SETUP + textwrap.dedent(text), cluster.port, door, timeout_s=120)


@pytest.mark.parametrize("door", DOORS)
def test_parts_run_on_each_worker(island: Cluster, door: str) -> None:
    run(
        island,
        door,
        """
        alike(lambda x: jnp.tanh(x) * 3 + x.sum(axis=1, keepdims=True), x)
        alike(lambda x: jax.lax.scan(lambda c, _: (c * 0.5 + x, None), x, None, length=5)[0], x)
        alike(lambda x: jax.vmap(lambda v: jnp.sort(v @ jnp.outer(v, v)))(x), x)
        # A chain of calls, each of which takes its argument's memory.
        step = jax.jit(lambda x: x * 0.5 + 1, donate_argnums=0)
        value, expected = jax.device_put(x, rows), x
        for _ in range(30):
            before, value = value, step(value)
            expected = expected * np.float32(0.5) + np.float32(1)
        assert before.is_deleted()
        np.testing.assert_array_equal(np.asarray(value), expected)
        """,
    )


@pytest.mark.parametrize("door", DOORS)
def test_a_part_knows_its_position(island: Cluster, door: str) -> None:
    """A position is not a device: meshes list devices in any order, and may be of some workers only."""
    run(
        island,
        door,
        """
        alike(lambda x: x + jnp.arange(64.0)[:, None] * 3, x)
        draw = lambda k: jax.random.normal(k, (64, 4))
        drawn = jax.jit(draw, out_shardings=rows)(jax.random.key(3))
        np.testing.assert_array_equal(np.asarray(drawn), np.asarray(jax.jit(draw)(jax.random.key(3))))
        for order in ([7, 0, 5, 2, 1, 6, 3, 4], [3, 2, 5, 4], [6, 1]):
            some = NamedSharding(Mesh(devices[order], ("x",)), P("x"))
            ours = alike(lambda x: x * 2 + jnp.arange(64.0)[:, None], x, sharding=some)
            assert [s.device for s in sorted(ours.addressable_shards, key=lambda s: s.index[0].start)] == list(devices[order])
        grid = NamedSharding(Mesh(devices.reshape(4, 2), ("x", "y")), P("y", "x"))
        alike(lambda x: x + jnp.arange(64.0)[:, None] - jnp.arange(32.0), x, sharding=grid)
        """,
    )


def test_several_islands_are_refused(new_cluster: NewCluster) -> None:
    islands = new_cluster(2, 1, 2).start()
    output = run(
        islands,
        "pjrt",
        """
        try:
            jax.block_until_ready(jax.jit(lambda x: x + 1)(jax.device_put(x, rows)))
        except jax.errors.JaxRuntimeError as refused:
            print(refused)
        """,
    )
    assert "devices of several islands: island0/worker0, island1/worker0" in output


def test_two_clients_take_turns(island: Cluster, tmp_path: pathlib.Path) -> None:
    """Gangs over all workers keep one order (GS-1), whoever sends them."""
    script = tmp_path / "turns.py"
    script.write_text(
        SETUP
        + textwrap.dedent("""
        import sys
        step = jax.jit(lambda x: x * 0.5 + jnp.arange(64.0)[:, None])
        value, expected = jax.device_put(x, rows), x
        for _ in range(300):
            value = step(value)
            expected = expected * np.float32(0.5) + np.arange(64, dtype=np.float32)[:, None]
        np.testing.assert_array_equal(np.asarray(value), expected)
        """)
    )
    clients = [
        subprocess.Popen(
            [PYTHON, str(script)],
            env=client_environment(island.port, "pjrt"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    for client in clients:
        output, _ = client.communicate(timeout=120 * PATIENCE)
        assert client.returncode == 0, output


def test_a_lost_worker_takes_its_part(new_cluster: NewCluster) -> None:
    """What a lost worker held is lost, by its name; the rest of the array stays, and the program runs again."""
    running = new_cluster(1, 2, 2).start()
    with Console(running, door="pjrt") as client:
        client.do(f"exec({MESH!r}, globals())")
        client.do(
            "exec('y = step(jax.device_put(np.arange(8, dtype=np.float32), rows))', globals())"
        )
        client.do("jax.block_until_ready(y)")
        victim = running.workers()[1]
        os.kill(victim["pid"], signal.SIGKILL)
        wait_for_restart(running, victim)
        answer = client.ask("jax.block_until_ready(step(y))")
        assert "island0/worker1" in str(answer), answer
        left = "result = [float(v) for v in np.asarray(y.addressable_shards[0].data)]"
        assert client.do(left) == [1.0, 3.0]
        again = "jax.device_put(np.ones(8, np.float32), rows)"
        assert client.do(f"result = [float(v) for v in np.asarray(step({again}))]") == [3.0] * 8
