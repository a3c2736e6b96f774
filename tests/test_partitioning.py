"""Functions of the script that take part in the partitioning of a program: custom_partitioning, inspect_array_sharding;
and host callbacks that get what one device has. On a mesh of several workers, by the plugin's door.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from faultlib import Console
from harness import NIGHTLY, Cluster

SETUP = """
import jax, jax.numpy as jnp, numpy as np, functools
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.buffer_callback import buffer_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("a",))
grid = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
rows, columns = NamedSharding(mesh, P("a")), NamedSharding(mesh, P(None, "a"))
x = np.arange(128, dtype=np.float32).reshape(8, 16)
seen = []

def partitioned(function, rule, local=None, results=1, **static):
    # Cut along the first dimension of the first operand.
    f = custom_partitioning(function, **static)
    def partition(*args):
        *_, mesh, args, result = args
        seen.append(str(args[0].sharding.spec))
        lies = args[0].sharding
        return mesh, local or function, (lies,) * results if results > 1 else lies, (lies,) * len(args)
    f.def_partition(partition=partition, infer_sharding_from_operands=lambda *_: None, sharding_rule=rule)
    return f
"""


def define(console: Console, text: str) -> None:
    """Statements of several lines; a console reads one line."""
    console.do(f"exec({text!r}, globals())")


@pytest.fixture(scope="module", params=["", "xla"] if NIGHTLY else [""])
def island(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Four workers of two devices; with the device runtime's own collectives, one of eight."""
    running = Cluster(1, 1, 8, "--collectives", "xla") if request.param else Cluster(1, 4, 2)
    yield running.start()
    running.stop()


@pytest.fixture(scope="module")
def console(island: Cluster) -> Iterator[Console]:
    with Console(island, door="pjrt") as opened:
        define(opened, SETUP)
        yield opened


def test_a_script_partitions_its_own_calls(console: Console) -> None:
    console.do("triple = partitioned(lambda x: x * 3, 'i j -> i j')")
    for placed, spec in [("rows", "('a', None)"), ("columns", "(None, 'a')")]:
        console.do(f"seen.clear(); y = jax.jit(triple)(jax.device_put(x, {placed}))")
        assert console.do("result = np.array_equal(np.asarray(y), x * 3)")
        assert console.do(f"result = y.sharding.is_equivalent_to({placed}, 2)")
        assert console.do("result = seen") == [f"P{spec}"], placed
    console.do("text = jax.jit(triple).lower(jax.device_put(x, rows)).compile().as_text()")
    assert console.do("result = 'all-' in text") is False
    assert console.do("result = np.array_equal(np.asarray(jax.jit(triple)(x)), x * 3)")


def test_several_results_and_collectives_of_its_own(console: Console) -> None:
    console.do("def both(x, y): return x + y, x - y")
    console.do("f = partitioned(both, 'i j, i j -> i j, i j', results=2)")
    console.do("a, b = jax.jit(f)(jax.device_put(x, rows), jax.device_put(x * x, rows))")
    assert console.do("result = np.array_equal(a, x + x * x) and np.array_equal(b, x - x * x)")
    define(
        console,
        """
def centred(x): return x - x.mean(0)
g = custom_partitioning(centred)
def partition(mesh, args, result):
    lies = args[0].sharding
    return mesh, lambda x: x - jax.lax.pmean(x.mean(0), "a"), lies, (lies,)
g.def_partition(partition=partition, infer_sharding_from_operands=None, sharding_rule="i j -> i j")
placed = jax.device_put(x, NamedSharding(grid, P("a", "b")))
compiled = jax.jit(lambda x: g(g(x) * 2)).lower(placed).compile()
""",
    )
    assert console.do("result = 'all-reduce' in compiled.as_text()")
    assert console.do("result = np.allclose(compiled(placed), 2 * (x - x.mean(0)))")


def test_calls_within_control_flow_and_beside_other_cuts(console: Console) -> None:
    console.do(
        "triple = partitioned(lambda x: x * 3, 'i j -> i j'); placed = jax.device_put(x, rows)"
    )
    console.do("f = lambda x: jax.lax.scan(lambda c, _: (triple(c), None), x, None, length=3)[0]")
    assert console.do("result = np.array_equal(jax.jit(f)(placed), x * 27)")
    console.do("f = lambda x: jax.lax.cond(x[0, 0] < 1, triple, lambda x: x, x)")
    assert console.do("result = np.array_equal(jax.jit(f)(placed), x * 3)")
    console.do(
        "f = lambda x: jnp.linalg.qr(triple(x.reshape(8, 4, 4)))[1]; "
        "f3 = lambda x: jnp.linalg.qr(3 * x.reshape(8, 4, 4))[1]"
    )
    console.do("triple = partitioned(lambda x: x * 3, 'i j k -> i j k')")
    assert console.do("result = np.allclose(jax.jit(f)(placed), f3(x), atol=1e-3)")
    console.do(
        "s = partitioned(lambda n, x: x * n, 'i j -> i j', static_argnums=(0,)) if 0 else None"
    )
    console.do(
        "h = jax.custom_vjp(triple); h.defvjp(lambda x: (triple(x), ()), lambda _, g: (triple(g),))"
    )
    console.do("triple = partitioned(lambda x: x * 3, 'i j -> i j')")
    console.do("d = jax.jit(jax.grad(lambda x: h(x).sum()))(placed)")
    assert console.do("result = np.array_equal(d, np.full_like(x, 3))")


def test_what_a_partition_function_raises_is_the_error(console: Console) -> None:
    define(
        console,
        """
bad = custom_partitioning(lambda x: x + 1)
def refuse(mesh, args, result): raise ValueError("not this one")
bad.def_partition(partition=refuse, infer_sharding_from_operands=None, sharding_rule="i j -> i j")
""",
    )
    said = console.ask("jax.jit(bad)(jax.device_put(x, rows))")["error"]
    assert "not this one" in said and "partition function" in said
    define(
        console,
        """
short = custom_partitioning(lambda x: x + 1)
def cut(mesh, args, result): return mesh, lambda x: x[:1], args[0].sharding, (args[0].sharding,)
short.def_partition(partition=cut, infer_sharding_from_operands=None, sharding_rule="i j -> i j")
""",
    )
    assert "Mismatch" in console.ask("jax.jit(short)(jax.device_put(x, columns))")["error"]
    assert console.do("result = float(jnp.ones(3).sum())") == 3  # the session goes on


def test_a_sharding_is_looked_at_once_per_compile(console: Console) -> None:
    define(
        console,
        """
def f(x):
    y = x * 2
    jax.debug.inspect_array_sharding(y, callback=seen.append)
    return y.T
""",
    )
    for placed in ("rows", "columns"):
        console.do(f"seen.clear(); g = jax.jit(f); y = g(jax.device_put(x, {placed}))")
        console.do(f"y = g(jax.device_put(x, {placed}))")
        assert console.do("result = np.array_equal(y, 2 * x.T) and len(seen)") == 1
        assert console.do(f"result = seen[0].is_equivalent_to({placed}, 2)")
    console.do("def fail(s): raise ValueError('do not look')")
    console.do("def f(x): jax.debug.inspect_array_sharding(x, callback=fail); return x + 1")
    assert "do not look" in console.ask("jax.jit(f)(jax.device_put(x, rows))")["error"]


def test_the_other_door_says_which_to_use(island: Cluster) -> None:
    with Console(island, door="ifrt") as console:
        define(console, SETUP)
        console.do("triple = partitioned(lambda x: x * 3, 'i j -> i j')")
        said = console.ask("jax.jit(triple)(jax.device_put(x, rows))")["error"]
        assert "custom_partitioning" in said and "--door pjrt" in said
        console.do("def f(x): jax.debug.inspect_array_sharding(x * 2, callback=print); return x")
        assert "--door pjrt" in console.ask("jax.jit(f)(jax.device_put(x, rows))")["error"]


def test_a_print_of_shards(console: Console) -> None:
    console.do(
        "show = lambda x: (jax.debug.callback(lambda a: seen.append(np.asarray(a)), x, partitioned=True), x + 1)[1]"
    )
    for placed, shape in [("rows", [1, 16]), ("columns", [8, 2]), ("jax.devices()[1]", [8, 16])]:
        console.do(
            f"seen.clear(); jax.jit(show)(jax.device_put(x, {placed})); jax.effects_barrier()"
        )
        count = 1 if placed.startswith("jax") else 8
        assert console.do("result = [list(a.shape) for a in seen]") == [shape] * count, placed
        axis = 0 if placed == "rows" else 1
        console.do(f"whole = np.concatenate(sorted(seen, key=lambda a: a[0, 0]), axis={axis})")
        assert console.do("result = np.array_equal(whole, x)"), placed
    # What cannot be cut evenly is whole, and a call without operands runs once per device, too.
    console.do(
        "uneven = lambda x: show(jnp.concatenate([x, x[:1]])); seen.clear(); "
        "jax.jit(uneven)(jax.device_put(x, rows)); jax.effects_barrier()"
    )
    assert console.do("result = [list(a.shape) for a in seen]") == [[9, 16]] * 8
    console.do(
        "bare = lambda x: (jax.debug.callback(lambda: seen.append(1), partitioned=True), x + 1)[1]; "
        "seen.clear(); jax.jit(bare)(jax.device_put(x, rows)); jax.effects_barrier()"
    )
    assert console.do("result = seen") == [1] * 8
    console.do(
        "each = jax.shard_map(show, mesh=mesh, in_specs=P('a'), out_specs=P('a')); "
        "seen.clear(); jax.jit(each)(jax.device_put(x, rows)); jax.effects_barrier()"
    )
    assert console.do("result = [list(a.shape) for a in seen]") == [[1, 16]] * 8


def test_buffer_callbacks_fill_their_results(console: Console) -> None:
    console.do(
        "def add(ctx, out, x, *, y): np.asarray(out['sum'])[...] = np.asarray(x) + np.asarray(y)"
    )
    console.do("f = buffer_callback(add, {'sum': jax.ShapeDtypeStruct(x.shape, x.dtype)})")
    assert console.do("result = np.array_equal(jax.jit(f)(x, y=x)['sum'], x + x)")
    console.do(
        "def one(ctx, out, x): assert out.writeable and not x.writeable; np.asarray(out)[0] = 5"
    )
    console.do("s = jax.ShapeDtypeStruct((4,), np.int32)")
    console.do("g = buffer_callback(one, s, input_output_aliases={0: 0}, vmap_method='sequential')")
    assert console.do("result = jax.jit(g)(np.arange(4, dtype=np.int32)).tolist()") == [5, 1, 2, 3]
    console.do("n = np.arange(8, dtype=np.int32).reshape(2, 4)")
    assert console.do("result = jax.jit(jax.vmap(g))(n).tolist()") == [[5, 1, 2, 3], [5, 5, 6, 7]]
    console.do("def wide(ctx, out, x): np.asarray(out)[...] = np.asarray(x)")
    console.do("w = buffer_callback(wide, jax.ShapeDtypeStruct((4,), np.int64))")
    assert console.do("result = jax.jit(w)(np.arange(4, dtype=np.int32)).tolist()") == [0, 1, 2, 3]
    console.do("def fail(ctx, out, x): raise ValueError('not today')")
    console.do("h = buffer_callback(fail, s)")
    assert "not today" in console.ask("jax.jit(h)(n[0]).block_until_ready()")["error"]
