"""Functions that close over large arrays: the arrays travel beside the program, or in it, and the memory of the
processes that they went through is given back.
"""

from __future__ import annotations

import os
import pathlib
import resource
import signal
from collections.abc import Callable

import pytest
from faultlib import Console
from harness import DOORS, Cluster, output_of_client, run_client, wait_for

NewCluster = Callable[..., Cluster]
MIB = 1 << 20

BEGIN = """
import gangway; gangway.connect()
import numpy as np, jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
"""

# Compiled twice, as two functions, each called twice.
WEIGHTS = (
    BEGIN
    + """
w = np.arange(256 << 18, dtype=np.float32).reshape(-1, 1024)
for k in range(2):
    f = jax.jit(lambda i: jnp.asarray(w)[i].sum() + k)
    for i in (3, 65535):
        assert np.allclose(f(i), w[i].sum(dtype=np.float64) + k, rtol=1e-4), (i, f(i))
    print(f.lower(3).compile().as_text().count("constant({...})"))
"""
)

# JAX's own way to call a function with effects passes all arguments anew each time.
EFFECTS = (
    BEGIN
    + """
w = np.arange(64 << 18, dtype=np.float32).reshape(-1, 1024)
seen = []
def tell(i):
    jax.debug.callback(seen.append, i)
    return jnp.asarray(w)[i].sum()
f = jax.jit(tell)
for i in range(3): assert np.allclose(f(i), w[i].sum(dtype=np.float64), rtol=1e-4)
jax.effects_barrier()
assert sorted(map(int, seen)) == [0, 1, 2], seen
"""
)

# Each form, called twice, against NumPy; `small` ends with those whose programs still hold the array.
FORMS = (
    BEGIN
    + """
mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
explicit = jax.make_mesh((8,), ("x",))
w = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024) / (1 << 20)
x = jax.device_put(w, NamedSharding(mesh, P(None, "x")))
on_5 = jax.device_put(w, jax.devices()[5])
here = jax.device_put(w, jax.devices("cpu")[0])
by_rows = jax.device_put(w, NamedSharding(mesh, P("x")))
typed = jax.device_put(w, NamedSharding(explicit, P("x")))
narrow = np.asarray(jnp.asarray(w, jnp.bfloat16))
add = jax.jit(lambda y: y + w)
rows = lambda y: y + jnp.asarray(w)[:128]
loop = lambda y: jax.lax.while_loop(lambda a: a[0] < 3, lambda a: (a[0] + 1, add(a[1])), (0, y))[1]

@jax.custom_vjp
def own(y): return add(y) * 2
own.defvjp(lambda y: (own(y), y), lambda y, t: (t * w,))

FORMS = {
    "a NumPy array": (lambda i: jnp.asarray(w)[i].sum(), 3, w[3].sum()),
    "in Fortran's order": (lambda i: jnp.asarray(np.asfortranarray(w))[i], 3, w[3]),
    "bfloat16": (lambda i: jnp.asarray(narrow)[i], 3, narrow[3].astype(np.float32)),
    "float64": (lambda i: jnp.asarray(w.astype(np.float64))[i], 3, w[3]),
    "on another device": (lambda i: on_5[i].sum(), 3, w[3].sum()),
    "on the local CPU": (lambda i: here[i].sum(), 3, w[3].sum()),
    "sharded, on one device": (lambda i: by_rows[i].sum(), 3, w[3].sum()),
    "sharded otherwise than the argument": (lambda y: by_rows * y, x, w * w),
    "over the argument's mesh": (lambda y: w * y, x, w * w),
    "of a type with a sharding": (lambda y: jnp.sin(typed) * y, typed, np.sin(w) * w),
    "returned": (lambda: jnp.asarray(w), None, w),
    "used twice": (lambda y: jnp.asarray(w) @ y + jnp.asarray(w), w, w @ w + w),
    "in a jit inside": (lambda y: add(y) * 2, x, 4 * w),
    "in a scan": (lambda y: jax.lax.scan(lambda c, _: (add(c) + w, None), y, None, 3)[0], w, 7 * w),
    "in a branch": (lambda y: jax.lax.cond(y[0, 1] > 0, add, lambda y: y, y), w, 2 * w),
    "in a loop": (loop, w, 4 * w),
    "under grad": (jax.grad(lambda v: (jnp.asarray(w) * v).sum()), np.float32(2), w.sum()),
    "under vmap": (jax.vmap(lambda v: (add(w) * v)[0, 1]), np.ones(3, np.float32), [2 * w[0, 1]] * 3),
    "under remat": (jax.grad(jax.checkpoint(lambda y: (jnp.sin(y) * w).sum())), w, np.cos(w) * w),
    "in a custom gradient": (jax.grad(lambda y: own(y).sum()), w, w),
    "in a shard_map": (
        jax.shard_map(rows, mesh=mesh, in_specs=P("x"), out_specs=P("x")), by_rows, w + np.tile(w[:128], (8, 1))
    ),
}
for name, (function, argument, expected) in FORMS.items():
    f = jax.jit(function)
    arguments = () if argument is None else (argument,)
    for _ in range(2):
        got = np.asarray(f(*arguments), np.float32)
        assert np.allclose(got, expected, rtol=1e-4, atol=1e-5), (name, got, expected)
    if len(f.lower(*arguments).as_text()) > 100_000: print("holds it:", name)
    plain = jax.jit(function).trace(*arguments).jaxpr
    assert plain.consts or "jit" in str(plain), name  # what users see of a function is as ever

donating = jax.jit(lambda y, n: y * n + w, donate_argnums=0, static_argnums=1)
for n in (1, 2):
    y = jax.device_put(w)
    assert np.allclose(donating(y, n), (n + 1) * w) and y.is_deleted()
assert np.allclose(jax.jit(lambda unused, y: y + w)(1, w), 2 * w)
compiled = add.lower(w).compile()
assert np.allclose(compiled(w), 2 * w) and np.allclose(compiled(w), 2 * w)
assert compiled.memory_analysis().argument_size_in_bytes == 8 << 20
assert np.allclose(jax.export.export(add)(w).call(w), 2 * w)
assert np.allclose(add(here), 2 * w)
print("done")
"""
)


def resident_bytes(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def test_weights_travel_beside_their_program_once_for_each_function(
    new_cluster: NewCluster,
) -> None:
    cluster = new_cluster(1, 4, 2).start()

    def uploaded() -> int:
        return sum(worker["data_bytes"]["from_clients"] for worker in cluster.workers())

    for door in ("pjrt", "ifrt"):
        assert output_of_client(WEIGHTS, cluster.port, door).split() == ["0", "0"]
    output_of_client(EFFECTS, cluster.port, "pjrt")
    expected = (2 * 2 * 256 + 64) * MIB
    wait_for("counts of all uploads", lambda: uploaded() >= expected, 20)
    assert uploaded() < expected + MIB


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mib", [64, pytest.param(256, marks=pytest.mark.nightly)])
def test_a_program_may_hold_weights_and_head_and_compiler_give_the_memory_back(
    mib: int, new_cluster: NewCluster
) -> None:
    cluster = new_cluster(1, 4, 2).start()
    head, compiler = cluster.head_pid, cluster.status()["compiler"]["pid"]
    text = WEIGHTS.replace("256 << 18", f"{mib} << 18").replace("65535", "-1")
    inside = {"GANGWAY_CONSTANT_BYTES": str(512 * MIB)}
    done = run_client(text, cluster.port, "pjrt", inside, timeout_s=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(int(constants) > 0 for constants in done.stdout.split())

    def is_back() -> bool:
        return resident_bytes(head) < 88 * MIB and resident_bytes(compiler) < 320 * MIB

    wait_for("memory of head and compiler to be given back", is_back, 60)


@pytest.mark.parametrize("door", DOORS)  # the package does it before a door is involved
def test_each_way_to_close_over_an_array_has_numpys_values(door: str, cluster: Cluster) -> None:
    assert output_of_client(FORMS, cluster.port, door).splitlines() == ["done"]


def test_the_first_program_of_a_script_is_one_of_them(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, jax, jax.numpy as jnp\n"
        "w = np.arange(1 << 20, dtype=np.float32)\n"
        "f = jax.jit(lambda i: jnp.asarray(w)[i])\n"
        "print(float(f(3)), len(f.lower(3).as_text()))\n"
    )
    port = str(cluster.port)
    done = cluster.command("run", "--port", port, str(script), env={"GANGWAY_PYTHON": ""})
    value, size = done.stdout.split()
    assert value == "3.0" and int(size) < 10_000

    wrong = {"GANGWAY_CONSTANT_BYTES": "1 MiB"}
    done = cluster.command("run", "--port", port, str(script), env=wrong)
    assert done.returncode == 2
    assert "GANGWAY_CONSTANT_BYTES='1 MiB' is not a number of bytes" in done.stderr


def test_after_the_loss_of_a_worker_they_travel_again(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 2, 1).start()
    with Console(cluster, door="pjrt") as client:
        client.do("w = np.arange(1 << 19, dtype=np.float32)")
        client.do("f = jax.jit(lambda i: jnp.asarray(w)[i])")
        assert client.do("result = float(f(3))") == 3
        os.kill(cluster.workers()[0]["pid"], signal.SIGKILL)
        wait_for("the function", lambda: client.ask("result = float(f(7))").get("ok") == 7, 30)
