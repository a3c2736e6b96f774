"""What a JAX script meets on a cluster and not in-process: each row of docs/reference/jax.md that a test can show. A
row whose test fails because JAX or the plugin has become better is corrected, with its test.
"""

from __future__ import annotations

import json
import subprocess

import pytest
from harness import PATIENCE, PYTHON, Cluster, client_environment

# Every function runs in one process with a backend of its own. `x` is an array on one device of the cluster.
PRELUDE = """
import json, os, pathlib, sys
import gangway
gangway.connect()
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import serialize_executable
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

mesh = Mesh(np.array(jax.devices()), ("x",))
one = SingleDeviceSharding(jax.devices()[0])
host = NamedSharding(mesh, P("x"), memory_kind="pinned_host")
x = jax.device_put(np.arange(32, dtype="float32").reshape(8, 4), one)
f = jax.jit(lambda x: x + 1)
columns = Format(Layout((1, 0)), one)

def on_the_host():
    with jax.default_device(jax.devices("host")[0]):
        return jnp.ones((8, 4))

def of_kind(kind, x):
    assert x.sharding.memory_kind == kind, x.sharding
    return x

def donate():
    old = jnp.ones((8, 4)) * 2  # uncommitted, so that a jit may move it
    new = jax.jit(lambda x: x + 1, in_shardings=NamedSharding(mesh, P()), donate_argnums=0)(old)
    assert not old.is_deleted(), "is_deleted() tells the truth now"
    return np.asarray(old), new
"""
# Row: expression, and words of its error.
REFUSED = {
    # The server, because wrong values would come otherwise, or because the plugin lacks it.
    "device_put to another layout": ("jax.device_put(x, columns)", "not the row-major {1,0}"),
    "another layout in in_shardings": (
        "jax.jit(lambda x: x + 1, in_shardings=columns).lower(np.ones((8, 4), 'float32')).compile()",
        "parameter 0: its layout {0,1}",
    ),
    "another layout in out_shardings": (
        "jax.jit(lambda x: x + 1, out_shardings=columns)(x)",
        "output 0: its layout {0,1}",
    ),
    # jaxlib's proxy client, which asks no server.
    "memory_stats": ("x.devices().pop().memory_stats()", "MemoryStats is only supported"),
    "unsafe_buffer_pointer": ("x.unsafe_buffer_pointer()", "PjRt-compatible backend only"),
    "DLPack export": ("np.from_dlpack(x)", "PjRt-compatible backend only"),
    "memoryview": ("memoryview(x)", "Only local arrays are supported"),
    "cost of a lowered function": ("f.lower(x).cost_analysis()", "PjRt-compatible backend only"),
    "serialize_executable": (
        "serialize_executable.serialize(f.lower(x).compile())",
        "does not support `Serialize`",
    ),
    "NumPy array with negative strides": (
        "f(np.ones((8, 4), 'float32')[::-1])",
        "Negative or zero strides",
    ),
    "NumPy array with zero strides": (
        "f(np.broadcast_to(np.float32(1), (8, 4)))",
        "Negative or zero strides",
    ),
    "array of the local CPU beside one of the cluster": (
        "x + on_the_host()",
        "CopyArrays only supports",
    ),
    "array of the local CPU in a jit for the cluster": (
        "jax.jit(lambda x: x + 1, in_shardings=one)(on_the_host())",
        "must be first fetched to the host",
    ),
    "argument donated through a reshard": ("donate()", "deleted or donated"),
}
# What each row of the table proposes instead; its value, with the sum of its elements.
INSTEAD = {
    "the default layout by name": ("jax.device_put(x, Format(Layout((0, 1)), one))", 496),
    "a layout that the compiler chooses": (
        "jax.jit(lambda x: x.T, out_shardings=Format(Layout.AUTO)).lower(x).compile()(x)",
        496,
    ),
    "memory kind in out_shardings": (
        "of_kind('pinned_host', jax.jit(lambda x: x + 1,"
        " out_shardings=one.with_memory_kind('pinned_host'))(x))",
        528,
    ),
    "memory kind in sharded out_shardings": (
        "of_kind('pinned_host', jax.jit(lambda x: x + 1, out_shardings=host)"
        "(np.ones((8, 4), 'float32')))",
        64,
    ),
    "pinned_host outside of the jit": (
        "jax.device_put(f(x), one.with_memory_kind('pinned_host'))",
        528,
    ),
    "pinned_host as an argument": (
        "jax.jit(lambda x: x * 2)(jax.device_put(np.ones((8, 4), 'float32'), host))",
        64,
    ),
    "DLPack import": ("jax.dlpack.from_dlpack(np.ones((8, 4), 'float32'))", 32),
    "cost of a compiled function": ("[f.lower(x).compile().cost_analysis()['flops']]", 32),
    "a compiled function of an int4": (
        "(lambda x: jax.jit(lambda x: x + x).lower(x).compile()(x).astype('int32'))"
        "(jax.device_put(np.full(5, 3).astype('int4')))",
        30,
    ),
    "contiguous NumPy array": ("f(np.ascontiguousarray(np.ones((8, 4), 'float32')[::-1]))", 64),
    "array of the local CPU, fetched first": ("x + np.asarray(on_the_host())", 528),
}


@pytest.fixture(scope="module")
def found(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The sum of each expression's value, or its error; run in one process."""
    rows = {name: row[0] for name, row in {**REFUSED, **INSTEAD}.items()}
    script = tmp_path_factory.mktemp("limits") / "rows.py"
    script.write_text(
        PRELUDE
        + f"""
found = {{}}
for name, expression in {rows!r}.items():
    try:
        found[name] = ["value", str(float(np.sum(np.asarray(eval(expression)))))]
    except Exception as error:
        found[name] = ["error", str(error)]
pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
"""
    )
    out = script.with_suffix(".json")
    result = subprocess.run(
        [PYTHON, str(script), str(out)],
        env=client_environment(cluster.port),
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
    )
    assert result.returncode == 0, result.stderr
    outcomes: dict[str, list[str]] = json.loads(out.read_text())
    return outcomes


@pytest.mark.parametrize("row", REFUSED)
def test_refused(row: str, found: dict[str, list[str]]) -> None:
    kind, text = found[row]
    assert kind == "error" and REFUSED[row][1] in text, text


@pytest.mark.parametrize("row", INSTEAD)
def test_works_instead(row: str, found: dict[str, list[str]]) -> None:
    kind, text = found[row]
    assert kind == "value" and float(text) == INSTEAD[row][1], text


FORK = """
import gangway
gangway.connect()
import os, select, signal, warnings
import jax, numpy as np

f = jax.jit(lambda x: x * 3)
x = jax.device_put(np.ones(8, "float32"))
f(x).block_until_ready()
warnings.simplefilter("ignore")  # of a fork beside threads
ended, begun = os.pipe()
child = os.fork()
if child == 0:
    os.close(ended)
    try:
        f.clear_cache()  # the client requests that the compiled function be deleted
    finally:
        os._exit(0)
os.close(begun)
signal.alarm(100)
# A child that inherited a lock hangs; it has sent by then what it sends.
select.select([ended], [], [], 3)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
print("sum", float(np.asarray(f(x)).sum()), float((x + 1).sum()))
"""


def test_a_forked_child_does_not_disturb_its_parent(cluster: Cluster) -> None:
    result = subprocess.run(
        [PYTHON, "-c", FORK],
        env=client_environment(cluster.port),
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
    )
    assert "sum 24.0 16.0" in result.stdout, result.stdout + result.stderr


MUTATE = """
import gangway
gangway.connect()
import jax, numpy as np

f = jax.jit(lambda x: x + 1)
found = []
for count in (4, 1 << 20):
    array = np.zeros(count, "float32")
    for value in range(10):
        array[:] = value
        result = f(array)
        result.block_until_ready()
        array[:] = -1
        found.append((np.asarray(result) == value + 1).all())
        array[:] = value
        result = f(array.copy())
        array[:] = -1
        found.append((np.asarray(result) == value + 1).all())
print("right", sum(found), "of", len(found))
"""


def test_an_array_that_changes_after_its_result_is_ready_or_was_copied(cluster: Cluster) -> None:
    result = subprocess.run(
        [PYTHON, "-c", MUTATE],
        env=client_environment(cluster.port),
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
    )
    assert "right 40 of 40" in result.stdout, result.stdout + result.stderr
