"""Host callbacks through the plugin: each kind of JAX's, under its transformations, over one device and eight, and what
a callback that raises, ends its script or uses the cluster leaves behind.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from faultlib import Console, elapsed
from harness import Cluster, run_client


def run_script(port: int, text: str) -> subprocess.CompletedProcess[str]:
    return run_client(PREAMBLE + text, port, "pjrt")


PREAMBLE = """
import gangway; gangway.connect()
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import io_callback
from jax.sharding import NamedSharding, PartitionSpec as P
"""


@pytest.fixture
def console(cluster: Cluster) -> Iterator[Console]:
    with Console(cluster, door="pjrt") as opened:
        prepare(opened)
        yield opened


def prepare(console: Console) -> None:
    console.do("from jax.experimental import io_callback")
    console.do("from jax.sharding import NamedSharding, PartitionSpec as P")
    console.do("import functools, time, threading")
    console.do("seen = []")
    console.do("f32 = jax.ShapeDtypeStruct((), np.float32)")
    console.do("mesh = jax.make_mesh((len(jax.devices()),), ('d',))")
    console.do("note = lambda *a: seen.append([np.asarray(x).tolist() for x in a])")


def check(port: int, text: str) -> str:
    """Runs a script, which asserts, and returns what it printed."""
    ran = run_script(port, text)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_debug_print(cluster: Cluster) -> None:
    printed = check(
        cluster.port,
        """
@jax.jit
def f(x):
    jax.debug.print("x is {x}", x=x)
    return x + 1
y = f(jnp.arange(3))
jax.effects_barrier()
print(y)
""",
    )
    assert printed.split("\n")[:2] == ["x is [0 1 2]", "[1 2 3]"]


def test_a_script_that_ends_has_printed(cluster: Cluster) -> None:
    """Without a barrier of its own, and from a program without results."""
    printed = check(cluster.port, "jax.jit(lambda x: jax.debug.print('last {}', x))(jnp.ones(2))")
    assert printed == "last [1. 1.]\n"


def test_each_kind_gets_and_returns_values(console: Console) -> None:
    console.do("x = jnp.arange(6, dtype=np.float32).reshape(2, 3)")
    console.do("host = lambda a: np.asarray(a) * 2")
    console.do("f = jax.jit(lambda x: jax.pure_callback(host, x, x) + 1)")
    assert console.do("result = f(x).tolist()") == [[1, 3, 5], [7, 9, 11]]
    console.do("f = jax.jit(lambda x: io_callback(host, x, x, ordered=True) + 1)")
    assert console.do("result = f(x).tolist()") == [[1, 3, 5], [7, 9, 11]]
    console.do("jax.jit(lambda x: jax.debug.callback(note, x, x[0, 1]))(x)")
    console.do("jax.effects_barrier()")
    assert console.do("result = seen") == [[[[0, 1, 2], [3, 4, 5]], 1]]


def test_large_arrays_come_whole(console: Console) -> None:
    """More than a frame, and more than the streams' queues."""
    console.do("x = jnp.arange(12 << 20, dtype=np.float32)")
    console.do("f = jax.jit(lambda x: jax.pure_callback(lambda a: np.asarray(a)[::-1], x, x))")
    assert console.do("result = bool((f(x) == x[::-1]).all())", 60)


def test_ordered_callbacks_keep_their_order(console: Console) -> None:
    console.do("tell = lambda i: io_callback(note, None, i, ordered=True)")
    console.do("f = jax.jit(lambda x: (tell(x), tell(x + 1), tell(x + 2), x * 1)[-1])")
    console.do("jax.block_until_ready([f(jnp.int32(10 * i)) for i in range(20)])")
    console.do("jax.effects_barrier()")
    assert console.do("result = seen") == [[10 * i + j] for i in range(20) for j in range(3)]


def test_scan_cond_while_grad_and_vmap(console: Console) -> None:
    console.do("say = lambda x: jax.debug.callback(note, x, ordered=True)")
    console.do("f = jax.jit(lambda x: jax.lax.scan(lambda c, a: (say(a), (c + a, a))[1], 0.0, x))")
    assert console.do("result = float(f(jnp.arange(4.0))[0])") == 6
    console.do("jax.effects_barrier()")
    assert console.do("result = seen") == [[0], [1], [2], [3]]
    console.do("seen.clear()")
    console.do("g = lambda x: jax.lax.cond(x > 0, lambda x: (say(x), x)[1], lambda x: -x, x)")
    assert console.do("result = [float(jax.jit(g)(v)) for v in (2.0, -3.0)]") == [2, 3]
    console.do("jax.effects_barrier()")
    assert console.do("result = seen") == [[2]]
    console.do("less = lambda x: jax.pure_callback(lambda a: np.asarray(a) < 5, np.bool_(0), x)")
    assert (
        console.do(
            "result = int(jax.jit(lambda x: jax.lax.while_loop(less, lambda x: x + 1, x))(0))"
        )
        == 5
    )
    console.do("seen.clear()")
    console.do("h = lambda x: (jax.debug.callback(note, x), x * x)[1]")
    assert console.do("result = float(jax.jit(jax.grad(h))(3.0))") == 6
    console.do("jax.effects_barrier()")
    assert console.do("result = seen") == [[3]]
    for method in ("sequential", "expand_dims", "broadcast_all"):
        console.do(
            "k = lambda x: jax.pure_callback(lambda a: np.asarray(a) + 1, x, x, "
            f"vmap_method='{method}')"
        )
        assert console.do("result = jax.jit(jax.vmap(k))(jnp.arange(3.0)).tolist()") == [1, 2, 3]


def test_sharded_programs_call_once_with_the_whole_array(console: Console) -> None:
    console.do("x = jax.device_put(np.arange(16.0, dtype=np.float32), NamedSharding(mesh, P('d')))")
    console.do("host = lambda a: (note(a), np.asarray(a) * 2)[1]")
    console.do("f = jax.jit(lambda x: jax.pure_callback(host, x, x) + 1)")
    assert console.do("result = f(x).tolist()") == [2 * i + 1 for i in range(16)]
    assert console.do("result = seen") == [[list(range(16))]]
    console.do("seen.clear(); f = jax.jit(lambda x: (jax.debug.callback(note, x), x.sum())[1])")
    assert console.do("result = float(f(x))") == 120
    console.do("jax.effects_barrier()")
    assert console.do("result = seen") == [[list(range(16))]]
    console.do("seen.clear(); ordered = functools.partial(io_callback, note, None, ordered=True)")
    console.do("f = jax.jit(lambda x: (ordered(x), ordered(x + 1), x * 2)[-1])")
    console.do("f(x).block_until_ready(); jax.effects_barrier()")
    assert console.do("result = [s[0][0] for s in seen]") == [0, 1]


def test_manual_programs_call_from_each_device(console: Console) -> None:
    console.do("x = jax.device_put(np.arange(16.0, dtype=np.float32), NamedSharding(mesh, P('d')))")
    console.do("host = lambda a: (note(a), np.asarray(a) * 2)[1]")
    console.do("g = lambda x: jax.lax.psum(jax.pure_callback(host, x, x), 'd')")
    console.do("f = jax.jit(jax.shard_map(g, mesh=mesh, in_specs=P('d'), out_specs=P()))")
    assert console.do("result = f(x).tolist()") == [112, 128]
    assert sorted(console.do("result = seen")) == [[[2 * i, 2 * i + 1]] for i in range(8)]


def test_the_local_cpu_keeps_its_callbacks(console: Console) -> None:
    console.do("cpu = jax.devices('host')[0]")
    console.do("f = jax.jit(lambda x: jax.pure_callback(lambda a: np.asarray(a) + 1, x, x))")
    console.do("local = jax.device_put(jnp.ones(2), cpu); remote = jnp.ones(2)")
    assert console.do("result = (f(local).tolist(), f(remote).tolist())") == [[2, 2], [2, 2]]
    assert "callback = " not in console.do("result = f.lower(local).as_text()")
    assert "callback = " in console.do("result = f.lower(remote).as_text()")


def test_sessions_with_the_same_program_run_their_own_functions(cluster: Cluster) -> None:
    """Their texts name the same number, and the cluster compiles one of them."""
    text = "print(jax.jit(lambda x: jax.pure_callback(lambda a: a * {}, x, x))(jnp.float32(1)))"
    assert [check(cluster.port, text.format(factor)) for factor in (2, 3)] == ["2.0\n", "3.0\n"]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_callback_returns_from_a_jit_over_a_mesh_can_be_read(
    new_cluster: Callable[..., Cluster], workers: int
) -> None:
    """A loss often comes from the host. Older plugins leave it on the first device alone, as plain JAX shows."""
    with Console(new_cluster(1, workers, 2).start(), door="pjrt") as console:
        prepare(console)
        console.do("x = jax.device_put(np.arange(8.0).reshape(4, 2), NamedSharding(mesh, P('d')))")
        console.do(
            "loss = jax.jit(lambda x: jax.pure_callback(lambda a: np.float32(a.sum()), f32, x))(x)"
        )
        assert console.do("result = [float(loss), loss.item()]") == [28, 28]
        assert console.do("result = loss.sharding.spec == P()")
        for call in ("jax.pure_callback", "io_callback"):
            console.do(f"f = lambda x: {call}(lambda a: np.asarray(a) * 2, x, x)")
            console.do("y = jax.jit(f)(x)")
            assert console.do("result = np.asarray(y).tolist()") == [
                [0, 2],
                [4, 6],
                [8, 10],
                [12, 14],
            ]
        console.do("moved = jax.device_put(y, NamedSharding(mesh, P('d')))")
        assert console.do("result = np.asarray(moved + 1).tolist()") == [
            [1, 3],
            [5, 7],
            [9, 11],
            [13, 15],
        ]


@pytest.mark.parametrize("sharded", [False, True])
def test_what_a_callback_raises_is_the_error(
    cluster: Cluster, console: Console, sharded: bool
) -> None:
    console.do("def fail(a): raise ValueError('not today')")
    console.do("f = jax.jit(lambda x: jax.pure_callback(fail, x, x).sum())")
    console.do("x = jnp.arange(16, dtype=np.float32)")
    if sharded:
        console.do("x = jax.device_put(x, NamedSharding(mesh, P('d')))")
    workers = [worker["incarnation"] for worker in cluster.workers()]
    said = console.ask("f(x).block_until_ready()")
    assert said["type"] == "JaxRuntimeError", said
    assert "ValueError: not today" in said["error"]
    assert "gang" in said["error"] and "worker" in said["error"]
    assert console.do("result = float(jnp.sum(x))") == 120
    assert [worker["incarnation"] for worker in cluster.workers()] == workers


def test_what_a_callback_without_results_raises_is_told_by_the_barrier(console: Console) -> None:
    console.do("def fail(a): raise ValueError('not today')")
    console.do("jax.jit(lambda x: jax.debug.callback(fail, x))(jnp.ones(2))")
    assert "ValueError: not today" in console.ask("jax.effects_barrier()")["error"]


def test_a_callback_may_use_the_cluster(console: Console) -> None:
    """Other arrays of the script, and programs with callbacks of their own."""
    console.do("big = jnp.arange(1000.0)")
    console.do("inner = jax.jit(lambda x: jax.pure_callback(lambda a: a + 1, x, x) * big[2])")
    console.do("host = lambda a: np.asarray(inner(float(np.asarray(big)[5]) + jnp.float32(1)))")
    console.do("f = jax.jit(lambda x: jax.pure_callback(host, f32, x))")
    assert console.do("result = float(f(big[0]))") == 14


def test_equinox_error_if_has_what_it_needs(console: Console) -> None:
    """A callback inside a branch that is taken only for an error."""
    console.do("def fail(a): raise RuntimeError('x must be positive')")
    console.do("bad = lambda x: jax.pure_callback(fail, x, x)")
    console.do("f = jax.jit(lambda x: jax.lax.cond(x <= 0, bad, lambda x: x * 2, x))")
    assert console.do("result = float(f(3.0))") == 6
    assert "x must be positive" in console.ask("f(-1.0).block_until_ready()")["error"]


def test_a_script_killed_in_a_callback_leaves_nothing(cluster: Cluster) -> None:
    def use() -> None:
        with Console(cluster, door="pjrt") as client:
            prepare(client)
            client.do("begun = threading.Event()")
            client.do("stay = lambda a: (begun.set(), time.sleep(600), a)[2]")
            client.do("f = jax.jit(lambda x: jax.pure_callback(stay, x, x))")
            client.do("y = f(jnp.ones(1 << 16)); begun.wait(20)")
        # The console is killed here.

    with cluster.left_as_found(use):
        use()
        with Console(cluster, door="pjrt") as after:
            began = time.monotonic()
            assert after.do("result = float(jax.jit(lambda x: x + 1)(1.0))") == 2
            assert elapsed(began) < 10


def test_a_script_that_exits_in_a_callback_ends(cluster: Cluster) -> None:
    ran = run_script(
        cluster.port,
        """
import sys
def leave(a):
    sys.exit(3)
try:
    jax.jit(lambda x: jax.pure_callback(leave, x, x))(jnp.ones(2)).block_until_ready()
except jax.errors.JaxRuntimeError as error:
    assert "SystemExit: 3" in str(error), error
    print("went on")
""",
    )
    assert (ran.returncode, ran.stdout) == (0, "went on\n"), ran.stderr
