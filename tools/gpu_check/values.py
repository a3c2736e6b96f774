"""Values that JAX gives, case by case."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from results import GIB, WIDE, attempt, say, words_of

Case = Callable[[], Any]
CASES: dict[str, Case] = {}
SHOWN_MAX = 100_000  # elements of an array whose values are said


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


@case
def add() -> Any:
    return jax.jit(lambda x: x * 2 + 1)(jnp.arange(8.0))


@case
def what_a_device_says() -> Any:
    device = jax.devices()[0]
    return f"{device.platform}, {device.device_kind}, {jax.default_backend()}, {len(jax.devices())} devices"


@case
def what_memory_says() -> Any:
    stats = jax.devices()[0].memory_stats() or {}
    kinds = [memory.kind for memory in jax.devices()[0].addressable_memories()]
    return f"limit {stats.get('bytes_limit', 0) / GIB:.1f} GiB, kinds {kinds}"


@case
def matrix_product() -> Any:
    x = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    return jax.jit(lambda x: x @ x)(x)


@case
def large_bf16_product() -> Any:
    x = jax.random.normal(jax.random.key(0), (WIDE, WIDE), jnp.bfloat16)
    return jax.jit(lambda x: (x @ x)[:64, :64].astype(jnp.float32))(x)


@case
def gradient() -> Any:
    def loss(w: Any, x: Any) -> Any:
        return jnp.mean(jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) ** 2)

    keys = jax.random.split(jax.random.key(1), 3)
    w = [jax.random.normal(key, (256, 256)) / 16 for key in keys[:2]]
    return jax.jit(jax.grad(loss))(w, jax.random.normal(keys[2], (64, 256)))


@case
def scan() -> Any:
    return jax.jit(lambda x: jax.lax.scan(lambda c, a: (c * 0.9 + a, c), x[0], x))(
        jnp.arange(256.0).reshape(16, 16)
    )


@case
def while_loop() -> Any:
    return jax.jit(lambda n: jax.lax.while_loop(lambda i: i < n, lambda i: i * 2, 1))(1000)


@case
def random() -> Any:
    key = jax.random.key(7)
    return (
        jax.random.normal(key, (1000,)),
        jax.random.randint(key, (100,), 0, 9),
        jax.random.permutation(key, 64),
    )


@case
def convolution() -> Any:
    x = jax.random.normal(jax.random.key(2), (4, 32, 32, 8))
    w = jax.random.normal(jax.random.key(3), (3, 3, 8, 16))
    return jax.jit(
        lambda x, w: jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    )(x, w)


@case
def sort_fft_and_top_k() -> Any:
    x = jax.random.normal(jax.random.key(4), (64, 256))
    return jnp.sort(x), jnp.abs(jnp.fft.fft(x)), jax.lax.top_k(x, 5)


@case
def element_types() -> Any:
    names = ["int8", "uint8", "int16", "int32", "float16", "bfloat16", "float32", "complex64"]
    names += ["bool", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"]
    found = []
    for name in names:
        x = jnp.arange(24).reshape(4, 6) % 5
        there = jax.device_put(np.asarray(x).astype(jnp.dtype(name)))
        found.append(np.asarray(jax.jit(lambda x: x.T)(there)).astype(np.float32))
    return found


@case
def transfers_of_many_shapes() -> Any:
    shapes = [(), (0,), (1,), (3, 5), (1 << 20,), (7, 1, 9), (128, 1024)]
    arrays = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes]
    arrays += [
        np.arange(64.0, dtype=np.float32).reshape(8, 8)[::2, ::-1],
        np.ones((9, 5), np.float32).T,
    ]
    for array in arrays:
        back = np.asarray(jax.device_put(array))
        assert back.tobytes() == np.ascontiguousarray(array.astype(back.dtype)).tobytes(), (
            array.shape
        )
    return len(arrays)


@case
def donation() -> Any:
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.zeros(1 << 20)
    for _ in range(20):
        old, x = x, step(x)
    assert old.is_deleted()
    return x[:8]


@case
def a_failing_program_is_an_error_and_the_next_one_works() -> Any:
    said = words_of(lambda: jax.jit(lambda: jnp.ones((256, 1 << 28)))().block_until_ready())
    say(part="said", case="a result of 256 GiB", text=said[:500])
    return jnp.arange(4) + 1


@case
def debug_print() -> Any:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        jax.jit(lambda x: (jax.debug.print("x is {}", x), x)[1])(jnp.arange(3)).block_until_ready()
        jax.effects_barrier()
    return printed.getvalue()


@case
def pure_callback() -> Any:
    return jax.jit(lambda x: jax.pure_callback(lambda a: np.asarray(a) * 2, x, x) + 1)(
        jnp.arange(4.0)
    )


@case
def many_callbacks() -> Any:
    seen: list[float] = []
    step = jax.jit(
        lambda c, i: (
            jax.debug.callback(lambda v: seen.append(float(v)), c[0], ordered=True),
            c + i,
        )[1]
    )
    x = jnp.zeros(1 << 20)
    for i in range(20):
        x = step(x, i)
    x.block_until_ready()
    jax.effects_barrier()
    return seen, x[:4]


@case
def a_callback_that_raises() -> Any:
    def fail(a: Any) -> Any:
        raise ValueError("not today")

    said = words_of(
        lambda: jax.jit(lambda x: jax.pure_callback(fail, x, x))(
            jnp.arange(3.0)
        ).block_until_ready()
    )
    return "ValueError: not today" in said, jax.jit(lambda x: x + 1)(jnp.arange(3.0))


@case
def names_of_the_platform() -> Any:
    device = jax.devices()[0]
    names = {device.platform, jax.default_backend(), device.client.platform}
    for name in names - {"cpu"}:
        assert jax.devices(name)[0] is device, name
    assert float(jax.jit(lambda x: x + 1, backend=device.platform)(1.0)) == 2
    return getattr(device, "compute_capability", "none")


@case
def pinned_host_memory() -> Any:
    device = jax.devices()[0]
    there = jax.device_put(
        jnp.arange(8.0), jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    )
    back = jax.device_put(there, jax.sharding.SingleDeviceSharding(device))
    return there.sharding.memory_kind, back


@case
def linear_algebra() -> Any:
    a = 2 * jnp.eye(4) + 0.1
    return jnp.linalg.cholesky(a), jnp.linalg.det(a), jnp.linalg.eigvalsh(a)


@case
def cudnn_attention() -> Any:
    q, k, v = (
        jax.random.normal(jax.random.key(i), (2, 256, 4, 64), jnp.bfloat16) for i in range(3)
    )
    attend = functools.partial(jax.nn.dot_product_attention, is_causal=True, implementation="cudnn")
    return jax.jit(attend)(q, k, v).astype(jnp.float32)


@case
def pallas_kernel() -> Any:
    from jax.experimental import pallas as pl

    def double(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    x = jnp.arange(1024.0)
    return pl.pallas_call(double, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@case
def what_a_compiled_program_says() -> Any:
    compiled = jax.jit(lambda x: jnp.tanh(x @ x)).lower(jnp.ones((256, 256))).compile()
    cost, memory = compiled.cost_analysis() or {}, compiled.memory_analysis()
    say(part="said", case="cost analysis", text=f"flops {cost.get('flops')}, {memory}"[:300])
    return "HloModule" in (compiled.as_text() or "")


@case
def a_serialized_program() -> Any:
    from jax.experimental.serialize_executable import deserialize_and_load, serialize

    compiled = jax.jit(lambda x: x * 3).lower(jnp.arange(3.0)).compile()
    payload, inputs, outputs = serialize(compiled)
    again = deserialize_and_load(payload, inputs, outputs, execution_devices=jax.devices()[:1])
    return again(jnp.arange(3.0))


@case
def profiler() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.jit(lambda x: x * 5)(jnp.arange(3.0)).block_until_ready()
        return any(name.endswith(".xplane.pb") for _, _, names in os.walk(folder) for name in names)


def _leaves(found: Any) -> list[Any]:
    shown = []
    for leaf in jax.tree.leaves(found):
        if isinstance(leaf, str | bool | int):
            shown.append(leaf)
        elif np.asarray(leaf).size <= SHOWN_MAX:
            shown.append(np.asarray(leaf).astype(np.float64).tolist())
    return shown


def run_all(left_out: list[str]) -> None:
    for name, run in CASES.items():
        if name not in left_out:
            attempt(name, lambda run=run: _leaves(run()))  # type: ignore[misc]
