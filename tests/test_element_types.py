"""Wherever the bytes of an array meet a host format, every element type has NumPy's values, in each shape and whatever
the strides: uploads, fetches, copies, DLPack, operands and results of host callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from faultlib import Console
from harness import DOORS, NIGHTLY, Cluster

TYPES = (
    ["bool", "int2", "uint4", "float4_e2m1fn", "int8", "bfloat16", "float32", "complex128"]
    if not NIGHTLY
    else ["bool", "int2", "uint2", "int4", "uint4", "float4_e2m1fn"]
    + ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    + ["float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e4m3fnuz"]
    + ["float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "bfloat16", "float16", "float32"]
    + ["float64", "complex64", "complex128"]
)
SETUP = """
import ml_dtypes
from jax.sharding import NamedSharding, PartitionSpec as P
jax.config.update("jax_enable_x64", True)
devices = jax.devices()
over_all = NamedSharding(jax.sharding.Mesh(np.array(devices), "x"), P("x"))
BITS = {"bool": 1, "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}
SHAPES = [(), (0, 3), (1,), (3, 5), (2, 3, 4), (8, 7), (1001,)]

def noise(name, shape, random=np.random.default_rng(7)):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    raw = random.integers(0, 256, (*shape, dtype.itemsize), dtype="uint8")
    return (raw & 255 >> 8 - BITS.get(name, 8)).view(dtype)[..., 0]

def forms(x, door="pjrt"):
    yield "row-major", x
    yield "column-major", np.asfortranarray(x)
    yield "of a larger one", np.repeat(x[..., None], 3, -1)[..., 1]
    if door == "ifrt": return  # jaxlib's client refuses the strides of the rest
    yield "reversed", x[tuple(slice(None, None, -1) for _ in x.shape)]
    yield "repeated", np.broadcast_to(x[:1], x.shape) if x.ndim else x

found = []
def check(what, got, want):
    got, want = np.asarray(got), np.ascontiguousarray(want).reshape(want.shape)
    if (got.dtype, got.shape, got.tobytes()) != (want.dtype, want.shape, want.tobytes()):
        found.append(what)

def moved(name, sizes, door):
    for shape in SHAPES + [(n,) for n in sizes]:
        for form, x in forms(noise(name, shape), door):
            what = f"{name} {shape} {form}: "
            y = jax.device_put(x, devices[0])
            check(what + "one device", y, x)
            check(what + "another worker's", jax.device_put(y, devices[-1]), x)
            if shape and shape[0] % len(devices) == 0:
                z = jax.device_put(x, over_all)
                check(what + "all devices", z, x)
                check(what + "gathered", jax.device_put(z, devices[1]), x)
        if door == "pjrt" and x.dtype.isbuiltin == 1:  # NumPy's own types
            check(what + "DLPack", np.from_dlpack(y), x)

def called(name, shape):
    xs = [x for _, x in forms(noise(name, shape))]
    host = lambda *seen: [check(f"{name} {shape} operand {i}", a, b) for i, (a, b) in enumerate(zip(seen, xs))] and xs
    like = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in xs]
    got = jax.jit(lambda *xs: jax.pure_callback(host, like, *xs))(*map(jnp.asarray, xs))
    for i, (y, x) in enumerate(zip(got, xs)): check(f"{name} {shape} result {i}", y, x)
"""


@pytest.fixture(scope="module")
def workers() -> Iterator[Cluster]:
    running = Cluster(2, 2, 2).start()
    yield running
    running.stop()


@pytest.mark.parametrize("door", DOORS)
def test_arrays_of_every_type_have_numpys_bytes(workers: Cluster, door: str) -> None:
    with Console(workers, door=door) as client:
        client.do(f"exec({SETUP!r}, globals())")
        for name in TYPES:
            sizes = [100_003, 3_000_001] if NIGHTLY else []
            client.do(f"moved({name!r}, {sizes}, {door!r})", 60)
        assert client.do("result = found") == []


def test_callbacks_of_every_type_get_and_return_numpys_values(workers: Cluster) -> None:
    with Console(workers, door="pjrt") as client:
        client.do(f"exec({SETUP!r}, globals())")
        for name in TYPES:
            for shape in [(3, 5), (2, 3, 4), (1001,), (0, 3), ()] if NIGHTLY else [(3, 5), (0, 3)]:
                client.do(f"called({name!r}, {shape!r})", 60)
        assert client.do("result = found") == []


COLLECTIVES = """
def collected(name, n, count):
    mesh = jax.sharding.Mesh(np.array(devices[:count]), "x")
    def over(f, x, spec=P("x"), out=None):
        y = jax.device_put(x, NamedSharding(mesh, spec))
        out = spec if out is None else out
        return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=out, check_vma=False))(y)
    x = noise(name, (count, n * count))
    what = f"{name} {n} over {count}: "
    gather = lambda v: jax.lax.all_gather(v, "x", tiled=True)
    check(what + "all_gather", over(gather, x, out=P()), x)
    shift = lambda v: jax.lax.ppermute(v, "x", [(i, (i + 1) % count) for i in range(count)])
    check(what + "ppermute", over(shift, x), np.roll(x, 1, 0))
    check(what + "one element", over(lambda v: shift(v)[:, :1], x), np.roll(x, 1, 0)[:, :1])
    exchange = lambda v: jax.lax.all_to_all(v.reshape(count, n), "x", 0, 0, tiled=True).reshape(1, -1)
    exchanged = x.reshape(count, count, n).swapaxes(0, 1).reshape(count, -1)
    check(what + "all_to_all", over(exchange, x), exchanged)
    shifts = lambda v: jax.lax.scan(lambda c, _: (shift(c), None), v, length=3)[0]
    check(what + "in a loop", over(shifts, x), np.roll(x, 3, 0))
    rows = noise(name, (300, count * count))  # over 256 small pieces: XLA gets larger types in slices
    swap = lambda v: jax.lax.all_to_all(v, "x", 1, 1, tiled=True)
    swapped = rows.reshape(300, count, count).swapaxes(1, 2).reshape(300, -1)
    check(what + "slices", over(swap, rows, P(None, "x")), swapped)
"""


# Elements of a device, and devices: those of a worker, or of two. Nightly, each of both with each type.
PACKED = ["int2", "uint2", "int4", "uint4"]
SMALL = (
    [(name, n, count) for name in PACKED for n in (1, 3, 1001) for count in (2, 4)]
    if NIGHTLY
    else [("int2", 1, 4), ("int2", 1001, 2), ("uint4", 3, 2), ("uint4", 1001, 4)]
)


def test_collectives_carry_integers_of_less_than_a_byte(workers: Cluster) -> None:
    """Inside of a worker, and over two of an island."""
    with Console(workers, door="pjrt") as client:
        client.do(f"exec({(SETUP + COLLECTIVES)!r}, globals())")
        for name, n, count in SMALL:
            client.do(f"collected({name!r}, {n}, {count})", 60)
        assert client.do("result = found") == []
        one = client.ask("collected('int2', 1001, 1)")["error"]  # the runtime's own
        assert "all_gather" in one and "its elements are s2" in one


def test_a_runtimes_collective_of_packed_elements_is_refused(
    new_cluster: Callable[..., Cluster],
) -> None:
    """XLA CPU would write past the end of the array, in the memory of everybody's arrays."""
    cluster = new_cluster(1, 1, 2, "--collectives", "xla").start()
    with Console(cluster, door="pjrt") as client:
        client.do(f"exec({(SETUP + COLLECTIVES)!r}, globals())")
        refused = client.ask("collected('int2', 1001, 2)")["error"]
        assert "all_gather" in refused and "its elements are s2" in refused
        assert "convert them to a type of a byte" in refused
