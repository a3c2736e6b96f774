"""One function over all devices of a worker: partitioned by XLA, or by hand with shard_map."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from cases.arrays import numbers, put
from cases.topology import mesh2d, two_halves, worker_devices


def shards(x: jax.Array) -> list[np.ndarray]:
    return [np.asarray(shard.data) for shard in x.addressable_shards]


def manual(body, x, in_spec, out_spec, mesh=None):
    """The shards of `body(x)`, mapped over the mesh."""
    mesh = mesh or mesh2d()
    f = jax.jit(
        jax.shard_map(body, mesh=mesh, in_specs=in_spec, out_specs=out_spec, check_vma=False)
    )
    return shards(f(jax.device_put(x, NamedSharding(mesh, in_spec))))


def case_elementwise():
    x = put(numbers(16, 32), "x", "y")
    return shards(jax.jit(lambda x: jnp.exp(x / 500) + 1)(x))


def case_matmul_2d():
    f = jax.jit(lambda a, b: a @ b)
    return shards(f(put(numbers(32, 64) / 400, "x", "y"), put(numbers(64, 16) / 400, "y", None)))


def case_mesh_with_constraints():
    mesh = mesh2d()

    @jax.jit
    def f(x, w1, w2):
        h = jax.lax.with_sharding_constraint(x @ w1, NamedSharding(mesh, P("x", "y")))
        out = jax.lax.with_sharding_constraint(jnp.tanh(h) @ w2, NamedSharding(mesh, P("x", None)))
        return out, out.sum()

    out, total = f(
        put(numbers(16, 32) / 400, "x", None),
        put(numbers(32, 64) / 400, None, "y"),
        put(numbers(64, 8) / 400, "y", None),
    )
    return shards(out), np.asarray(total)


def case_grad_2d():
    @jax.jit
    def loss(params, x):
        return jnp.mean((jnp.tanh(x @ params["w1"]) @ params["w2"]) ** 2)

    params = {
        "w1": put(numbers(16, 32) / 400, None, "y"),
        "w2": put(numbers(32, 8) / 400, "y", None),
    }
    value, gradients = jax.value_and_grad(loss)(params, put(numbers(24, 16) / 400, "x"))
    return np.asarray(value), jax.tree.map(shards, gradients)


def case_output_shardings():
    mesh = mesh2d()
    out_shardings = (
        NamedSharding(mesh, P("x", "y")),
        NamedSharding(mesh, P()),
        NamedSharding(mesh, P(None, "x")),
    )
    f = jax.jit(lambda x: (x + 1, x.sum(axis=0), x.T), out_shardings=out_shardings)
    results = f(put(numbers(8, 16), "y", "x"))
    for result, expected in zip(results, out_shardings, strict=True):
        assert result.sharding.is_equivalent_to(expected, result.ndim)
    return [shards(result) for result in results]


def case_uneven_dimension():
    f = jax.jit(lambda x: jnp.cumsum(x, axis=0))
    return np.asarray(f(put(numbers(8, 3), "x"))), np.asarray(f(put(numbers(5, 16), None, "y")))


def case_sharded_random():
    mesh = mesh2d()
    draw = jax.jit(
        lambda key: jax.random.normal(key, (16, 16)), out_shardings=NamedSharding(mesh, P("x", "y"))
    )
    return shards(draw(jax.random.key(5)))


def case_sharded_donation():
    step = jax.jit(lambda x: x * 1.01 + 1, donate_argnums=0)
    x = first = put(numbers(64, 64), "x", "y")
    for _ in range(20):
        x = step(x)
    assert first.is_deleted()
    return shards(x)


def case_sharded_scan():
    def body(x, w):
        x = jax.lax.with_sharding_constraint(jnp.tanh(x @ w), NamedSharding(mesh2d(), P("x", None)))
        return x, x.mean()

    f = jax.jit(lambda x, ws: jax.lax.scan(body, x, ws))
    x, means = f(put(numbers(8, 16) / 400, "x"), put(numbers(5, 16, 16) / 1000, None, None, "y"))
    return shards(x), np.asarray(means)


def case_sort_across_devices():
    return np.asarray(jax.jit(lambda x: jnp.sort(x, axis=0))(put(numbers(64, 4), ("x", "y"))))


def case_psum():
    return (
        manual(lambda x: jax.lax.psum(x, "y"), numbers(8, 16), P("x", "y"), P("x", None)),
        manual(lambda x: jax.lax.psum(x, ("x", "y")), numbers(8, 16), P("x", "y"), P()),
        manual(lambda x: jax.lax.pmax(x, "x"), numbers(8, 16), P("x", "y"), P(None, "y")),
        manual(lambda x: jax.lax.pmean(x, "x"), numbers(8, 16), P("x", "y"), P(None, "y")),
    )


def case_psum_integers():
    x = np.arange(128, dtype=np.int32).reshape(8, 16)
    return manual(lambda x: jax.lax.psum(x, ("x", "y")), x, P("x", "y"), P())


def case_all_gather():
    return (
        manual(
            lambda x: jax.lax.all_gather(x, "y", axis=1, tiled=True),
            numbers(8, 16),
            P("x", "y"),
            P("x"),
        ),
        manual(
            lambda x: jax.lax.all_gather(x, "x"), numbers(8, 16), P("x", "y"), P(None, None, "y")
        ),
    )


def case_ppermute():
    size = mesh2d().shape["y"]
    ring = [(i, (i + 1) % size) for i in range(size)]
    partial = [(0, size // 2), (size - 1, 1)][: size // 2]  # without a source: zeros
    return (
        manual(lambda x: jax.lax.ppermute(x, "y", ring), numbers(8, 16), P("x", "y"), P("x", "y")),
        manual(
            lambda x: jax.lax.ppermute(x, "y", partial), numbers(8, 16), P("x", "y"), P("x", "y")
        ),
    )


def case_all_to_all():
    def body(x):
        return jax.lax.all_to_all(x, "y", split_axis=0, concat_axis=1, tiled=True)

    return manual(body, numbers(16, 8), P("x", "y"), P("x", "y"))


def case_psum_scatter():
    def body(x):
        return jax.lax.psum_scatter(x, "y", scatter_dimension=0, tiled=True)

    return manual(body, numbers(16, 8), P(None, "y"), P("y"))


def case_axis_index():
    def body(x):
        return x + 100 * jax.lax.axis_index("x") + jax.lax.axis_index("y")

    return manual(body, np.zeros((2, 4), np.int32), P("x", "y"), P("x", "y"))


def case_collectives_in_a_loop():
    def body(x):
        return jax.lax.fori_loop(0, 16, lambda _, x: jax.lax.pmean(x, ("x", "y")) + x / 2, x)

    return manual(body, numbers(8, 8), P("x", "y"), P("x", "y"))


def case_grad_through_shard_map():
    mesh = mesh2d()

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("x", "y"), P("y")), out_specs=P("x"))
    def matmul(x, w):
        return jax.lax.psum(x @ w, "y")

    f = jax.jit(jax.grad(lambda w, x: (matmul(x, w) ** 2).sum()))
    return np.asarray(f(put(numbers(16, 4) / 400, "y"), put(numbers(8, 16) / 400, "x", "y")))


def case_chained_collectives():
    mesh = mesh2d()
    step = jax.jit(
        jax.shard_map(
            lambda x: jax.lax.pmean(x, ("x", "y")) * 0.5 + x,
            mesh=mesh,
            in_specs=P("x", "y"),
            out_specs=P("x", "y"),
        )
    )
    x = put(numbers(8, 8), "x", "y")
    for _ in range(4):
        for _ in range(
            25
        ):  # beyond 32 in flight, XLA in-process blocks threads of its pool, and may hang
            x = step(x)
        x.block_until_ready()
    return shards(x)


def case_submesh():
    devices = worker_devices()
    devices = devices[len(devices) // 4 : max(1, len(devices) * 3 // 4)]
    x = put(numbers(8, 6), "z", mesh=Mesh(np.array(devices), ("z",)))
    y = jax.jit(lambda x: (x - x.mean(axis=0)) @ x.T)(x)
    assert y.devices() <= set(devices)
    return np.asarray(y)


def case_reversed_mesh():
    mesh = Mesh(np.array(worker_devices()[::-1]).reshape(-1, 2), ("x", "y"))
    x = put(numbers(8, 16), "x", "y", mesh=mesh)
    y = jax.jit(lambda x: x @ x.T)(x)
    return [
        (shard.device.id, np.asarray(shard.data)) for shard in x.addressable_shards
    ], np.asarray(y)


def case_two_disjoint_meshes():
    first, second = (Mesh(np.array(half), ("x",)) for half in two_halves())
    stage1 = jax.jit(lambda x, w: jnp.tanh(x @ w))
    stage2 = jax.jit(lambda x, w: (x @ w).sum(axis=0))
    w1 = put(numbers(16, 32) / 400, None, "x", mesh=first)
    w2 = put(numbers(32, 8) / 400, "x", None, mesh=second)
    results = []
    for i in range(6):
        x = stage1(put(numbers(4, 16) / 400 + i, mesh=first), w1)
        x = jax.device_put(x, NamedSharding(second, x.sharding.spec))
        results.append(stage2(x, w2))
    return jax.device_get(results)


def case_device_put_to_more_devices():
    devices = np.array(jax.devices())
    x = put(numbers(8, 8), "x", mesh=Mesh(devices[:2], ("x",)))
    y = jax.device_put(x, NamedSharding(Mesh(devices, ("x",)), P("x")))
    z = jax.device_put(y, NamedSharding(Mesh(np.array(worker_devices()), ("x",)), P("x")))
    return shards(y), shards(jax.jit(lambda z: z * 2)(z))


def case_mixed_committed_devices():
    x = put(numbers(8, 8), "x", "y")
    return np.asarray(jax.jit(lambda a, b: a * b)(x, np.float32(3))), np.asarray(x + jnp.ones(8))


def case_unreduced():
    """P(unreduced=...): shards that share a tile are addends of it, until a program adds them up."""
    explicit = (jax.sharding.AxisType.Explicit,) * 2
    devices = worker_devices()
    mesh = Mesh(np.array(devices).reshape(-1, 1 if len(devices) < 4 else 2), ("x", "y"), explicit)
    rows = numbers(16, 8)
    with jax.set_mesh(mesh):
        x = jax.device_put(rows, P("x", "y"))
        addends = jax.jit(
            lambda x: jax.lax.reduce_sum(x, [0], out_sharding=P("y", unreduced={"x"}))
        )(x)
        total = jax.jit(lambda a: jax.sharding.reshard(a, P("y")))(addends)
        everywhere = jax.jit(
            lambda x: jax.lax.reduce_sum(x, [0, 1], out_sharding=P(unreduced={"x", "y"}))
        )
        all_of_it = jax.jit(lambda a: jax.sharding.reshard(a, P()))(everywhere(x))
    return shards(addends), shards(total), shards(all_of_it), addends.is_fully_replicated


def case_donation_that_cannot_be_used():
    """No result has room for the argument, which lives on; a result of another sharding takes its memory."""
    mesh = Mesh(np.array(worker_devices()), ("x",))
    square = jax.jit(lambda x: x @ x.T, donate_argnums=0)
    found = []
    for at in (NamedSharding(mesh, P("x")), worker_devices()[0]):
        x = jax.device_put(numbers(16, 2), at)
        y = square(x)
        assert not x.is_deleted()
        found += [shards(x), shards(y), shards(square(x))]
    turn = jax.jit(
        lambda x: x + 1, donate_argnums=0, out_shardings=NamedSharding(mesh, P(None, "x"))
    )
    x = jax.device_put(numbers(16, 16), NamedSharding(mesh, P("x")))
    found.append(shards(turn(x)))
    return found, x.is_deleted()


def case_donation_through_a_reshard():
    """A jit that replicates its donated argument takes the shard that stays in place; one that splits it copies."""
    mesh = Mesh(np.array(worker_devices()), ("x",))
    found: list[Any] = []
    for spec, taken in ((P(), True), (P("x"), False)):
        with jax.default_device(worker_devices()[0]):
            x = jnp.asarray(numbers(16, 2)) * 3
        step = jax.jit(lambda x: x + 1, donate_argnums=0, in_shardings=NamedSharding(mesh, spec))
        found.append(shards(step(x)))
        try:
            found.append(np.asarray(x))
            assert not taken, "a donated array could be used"
        except RuntimeError as error:
            assert taken and ("deleted" in str(error) or "donated" in str(error)), error
    return found


def case_gradient_of_a_psum_of_a_reduced_array():
    mesh = jax.make_mesh(
        (2, 2),
        ("x", "y"),
        devices=jax.devices()[:4],
        axis_types=(jax.sharding.AxisType.Explicit,) * 2,
    )

    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=P("x", "y"), out_specs=P(None, None, reduced={"x"})
    )
    def total(x):
        return jax.lax.psum(jax.lax.all_gather(x, "x", tiled=True, to="reduced"), "y")

    with jax.set_mesh(mesh):
        x = jax.device_put(numbers(4, 4), NamedSharding(mesh, P("x", "y")))
        return np.asarray(jax.jit(jax.grad(lambda x: total(x).sum()))(x))
