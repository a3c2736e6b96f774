"""Arrays: put on devices, moved between devices, fetched and deleted."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from cases.topology import mesh2d, worker_devices


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Values without a pattern that depend only on their positions."""
    count = int(np.prod(shape))
    return (np.sin(np.arange(count) * 12.9898) * 437.585).reshape(shape).astype(dtype)


def put(array: np.ndarray, *spec: Any, mesh: Mesh | None = None) -> jax.Array:
    return jax.device_put(array, NamedSharding(mesh or mesh2d(), P(*spec)))


def round_trip(array: np.ndarray) -> np.ndarray:
    result = np.asarray(jax.device_put(array))
    np.testing.assert_array_equal(result, array)
    return result


def case_put_contiguous():
    return round_trip(numbers(37, 53))


def case_put_scalar():
    return [
        round_trip(np.array(value, dtype)) for value, dtype in [(1.5, "f4"), (7, "i4"), (1, "?")]
    ]


def case_put_transposed():
    return round_trip(numbers(13, 7, 5).transpose(2, 0, 1))


def case_put_strided():
    return round_trip(numbers(40, 30)[3:33:3, ::2])


def case_put_negative_strides():
    reversed_view = numbers(16, 24)[::-1, ::-2]
    try:
        return round_trip(reversed_view)
    except jax.errors.JaxRuntimeError as error:  # jaxlib's proxy client rejects them itself
        assert "strides" in str(error), error
        return round_trip(np.ascontiguousarray(reversed_view))


def case_put_zero_size():
    result = round_trip(np.zeros((0, 5), np.float32))
    return result, np.asarray(jnp.sum(jax.device_put(result), axis=0))


def case_put_bfloat16():
    return round_trip(numbers(9, 11, dtype="bfloat16"))


def case_put_int8():
    return round_trip(np.arange(-128, 128, dtype=np.int8).reshape(16, 16))


def case_put_bool():
    return round_trip(np.arange(60).reshape(5, 12) % 7 < 3)


def case_put_uint32_and_float16():
    return round_trip(np.arange(2**32 - 50, 2**32, dtype=np.uint32)), round_trip(
        numbers(33, dtype="float16")
    )


def case_put_complex64():
    return round_trip((numbers(8, 8) + 1j * numbers(8, 8).T).astype(np.complex64))


def case_put_16_mib():
    array = numbers(4, 1024, 1024)
    doubled = jax.jit(lambda x: x + x)(jax.device_put(array))
    result = np.asarray(doubled)
    np.testing.assert_array_equal(result, array + array)
    return result[:, ::37, ::41]


def case_put_sharded():
    array = numbers(16, 24)
    results = []
    for spec in [(), ("x",), ("x", "y"), (None, "y"), (("x", "y"),), ("y", "x")]:
        on_devices = put(array, *spec)
        assert len(on_devices.addressable_shards) == mesh2d().size
        np.testing.assert_array_equal(np.asarray(on_devices), array)
        results.append([np.asarray(shard.data) for shard in on_devices.addressable_shards])
    return results


def case_put_between_devices():
    devices = jax.devices()
    x = jax.device_put(numbers(64), devices[0])
    for device in [devices[3], devices[7], devices[1]]:
        x = jax.device_put(x, device) + 1
        assert x.devices() == {device}
    return np.asarray(x)


def case_put_tree():
    tree = {f"leaf{i}": numbers(i + 1, 3) for i in range(40)}
    return jax.tree.map(lambda x: np.asarray(x + 1), jax.device_put(tree))


def case_reshard_by_device_put():
    array = numbers(16, 32)
    x = put(array, "x", "y")
    results = []
    for spec in [("y", "x"), (None, ("x", "y")), (), ("x",), ("x", "y")]:
        x = jax.device_put(x, NamedSharding(mesh2d(), P(*spec)))
        results.append([np.asarray(shard.data) for shard in x.addressable_shards])
    np.testing.assert_array_equal(np.asarray(x), array)
    return results


def case_reshard_by_jit():
    mesh, array = mesh2d(), numbers(16, 32)
    x = put(array, "x", "y")
    results = []
    for spec in [P("y", "x"), P(None, ("x", "y")), P(), P("y")]:
        x = jax.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh, spec))(x)
        assert x.sharding.is_equivalent_to(NamedSharding(mesh, spec), 2)
        results.append([np.asarray(shard.data) for shard in x.addressable_shards])
    return results


def case_make_array_from_callback():
    array = numbers(8, 12)
    sharding = NamedSharding(mesh2d(), P("x", "y"))
    x = jax.make_array_from_callback(array.shape, sharding, lambda index: array[index] * 2)
    return np.asarray(jax.jit(lambda x: x @ x.T)(x)), np.asarray(x)


def case_make_array_from_single_device_arrays():
    devices = jax.devices()
    parts = [jax.device_put(numbers(2, 6) + i, device) for i, device in enumerate(devices)]
    sharding = NamedSharding(Mesh(np.array(devices), "x"), P("x"))
    x = jax.make_array_from_single_device_arrays((16, 6), sharding, parts)
    here = jax.device_put(x, NamedSharding(Mesh(np.array(worker_devices()), "x"), P("x")))
    return np.asarray(x), np.asarray(here.sum(axis=0))


def case_shards_are_views():
    x = put(numbers(16, 8), "x", "y")
    shards = [shard.data for shard in x.addressable_shards]
    del x
    return [np.asarray(shard + 1) for shard in shards]


def case_shard_of_a_donated_array():
    x = put(numbers(16, 8), "x", "y")
    shard = x.addressable_shards[-3 % mesh2d().size].data
    shard.block_until_ready()
    y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    y.block_until_ready()
    assert x.is_deleted()
    try:
        np.asarray(shard)
    except RuntimeError as error:
        assert "deleted" in str(error) or "donated" in str(error), error
    else:
        raise AssertionError("the shard of a donated array could still be read")
    return np.asarray(y)


def case_delete():
    x = jax.device_put(numbers(32))
    y = x + 1
    assert not x.is_deleted()
    x.delete()
    assert x.is_deleted()
    try:
        np.asarray(x)
    except RuntimeError as error:
        assert "deleted" in str(error), error
    else:
        raise AssertionError("a deleted array could still be read")
    x.delete()  # twice is not an error
    return np.asarray(y)


def case_block_until_ready():
    f = jax.jit(lambda x: jnp.cumsum(x))
    xs = [f(jax.device_put(numbers(1000) + i)) for i in range(20)]
    jax.block_until_ready(xs)
    # is_ready() asks the cluster and returns what is known at once, so it may turn true a moment later.
    deadline = time.monotonic() + 10
    while not all(x.is_ready() for x in xs):
        assert time.monotonic() < deadline, "not ready 10 s after block_until_ready"
    return [np.asarray(x) for x in xs]


def case_copy_to_host_async():
    x = put(numbers(64, 8), "x")
    x.copy_to_host_async()
    return np.asarray(x)


def case_device_get_of_a_tree():
    tree = {"a": put(numbers(8, 4), "x"), "b": [jax.device_put(numbers(5)), put(numbers(6))]}
    return jax.device_get(tree)


def case_indexing_and_iteration():
    x = put(numbers(8, 6), "x")
    return [np.asarray(row) for row in x], np.asarray(x[2:5, ::2]), float(x[3, 3])
