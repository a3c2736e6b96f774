"""Programs as objects (ahead of time, exported), their errors, devices, several threads,
checkpoints.
"""

import tempfile
import threading
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from cases.arrays import numbers, put
from cases.topology import mesh2d


def raises(action, *texts: str) -> str:
    """The message of the error that `action` raises, which must contain one of `texts`."""
    try:
        jax.block_until_ready(action())
    except (RuntimeError, ValueError, TypeError) as error:
        message = str(error)
        assert any(text.lower() in message.lower() for text in texts), message
        return message
    raise AssertionError("no error")


def case_ahead_of_time():
    x = put(numbers(16, 16), "x", "y")
    lowered = jax.jit(lambda x: jnp.sin(x) @ x).lower(x)
    assert "stablehlo" in lowered.as_text()
    compiled = lowered.compile()
    assert "HloModule" in str(compiled.as_text())
    assert compiled.input_shardings[0][0].is_equivalent_to(x.sharding, 2)
    return np.asarray(compiled(x))


def case_ahead_of_time_abstract():
    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    compiled = jax.jit(lambda x: x * 2).lower(shape).compile()
    raises(lambda: compiled(np.zeros((4, 4), np.float32)), "shape", "float32[8,8]")
    return np.asarray(compiled(numbers(8, 8)))


def case_export_round_trip():
    f = jax.jit(lambda x: jnp.cos(x) @ x.T)
    exported = jax.export.export(f, platforms=["cpu"])(jax.ShapeDtypeStruct((6, 4), jnp.float32))
    again = jax.export.deserialize(exported.serialize())
    return np.asarray(jax.jit(again.call)(numbers(6, 4)))


def case_compile_error():
    def call(x):
        return jax.ffi.ffi_call("no_such_target", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    message = raises(lambda: jax.jit(call)(numbers(4)), "no_such_target")
    assert "no_such_target" in message
    return np.asarray(jnp.sin(numbers(4)))  # the client still works


def case_shape_errors():
    raises(lambda: jax.jit(lambda a, b: a @ b)(numbers(3, 4), numbers(3, 4)), "shape", "dimension")
    raises(lambda: put(numbers(7, 4), ("x", "y")), "evenly divide")
    raises(lambda: jnp.reshape(numbers(6), (4, 2)), "reshape")
    return np.asarray(jnp.ones(3) + 1)


def case_device_mismatch():
    a = jax.device_put(numbers(4), jax.devices()[0])
    b = jax.device_put(numbers(4), jax.devices()[1])
    raises(lambda: jax.jit(lambda a, b: a + b)(a, b), "incompatible devices")
    return np.asarray(a + jax.device_put(b, jax.devices()[0]))


def case_checked_function():
    from jax.experimental import checkify

    def positive(x):
        checkify.check(x > 0, "must be positive")
        return x

    checked = jax.jit(checkify.checkify(positive))
    error, _ = checked(-1.0)
    assert "must be positive" in str(error.get())
    return np.asarray(checked(2.0)[1])


def case_devices():
    devices = jax.devices()
    assert len(devices) == 8 and [device.id for device in devices] == list(range(8))
    assert jax.device_count() == jax.local_device_count() == 8
    assert jax.process_count() == 1 and jax.process_index() == 0
    assert {device.platform for device in devices} == {"cpu"}
    return {}


def case_memory_kinds():
    device = jax.devices()[0]
    kinds = {memory.kind for memory in device.addressable_memories()}
    assert device.default_memory().kind in kinds
    return {}


def case_four_threads():
    results: list = [None] * 4
    mesh = mesh2d()

    def work(index: int) -> None:
        x = jax.device_put(
            numbers(16, 16) / 400 + index, jax.sharding.NamedSharding(mesh, jax.P("x", "y"))
        )
        step = jax.jit(lambda x: jnp.tanh(x @ x.T / (index + 1)))
        for _ in range(
            8
        ):  # of all threads together at most 32, see sharded.case_chained_collectives
            x = step(x)
        results[index] = np.asarray(x)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result is not None for result in results)
    return results


def case_orbax_checkpoint():
    import orbax.checkpoint as ocp

    state = {
        "params": {"w": put(numbers(16, 8), "x", "y"), "b": put(numbers(8), "y")},
        "step": jax.device_put(np.int32(7)),
    }
    with tempfile.TemporaryDirectory() as folder, ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(f"{folder}/state", state)
        checkpointer.wait_until_finished()
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        restored = checkpointer.restore(f"{folder}/state", abstract)
    assert restored["params"]["w"].sharding == state["params"]["w"].sharding
    return jax.device_get(jax.tree.map(lambda x: x + 1, restored))


def case_tokens():
    """Tokens as arguments and results: JAX passes an empty array of booleans for one that it makes itself."""
    step = jax.jit(lambda x, token: (x + 1, token))
    x, token = step(jnp.arange(4.0), jax.lax.create_token())
    for _ in range(3):
        x, token = step(x, token)
    both = jax.jit(lambda a, b: jax.lax.after_all(a, b))(token, jax.lax.create_token())
    both.block_until_ready()
    return np.asarray(x)


def case_formats_of_a_compiled_function():
    """What JAX tells about arguments and results before a call: shapes, types, layouts and shardings."""

    def described(compiled: Any) -> list[Any]:
        (arguments, _), results = compiled.input_formats, compiled.output_formats
        formats = [*arguments, *jax.tree.leaves(results)]
        specs = [getattr(each.sharding, "spec", None) for each in formats]
        info = jax.tree.leaves(compiled.out_info)
        assert [each.sharding for each in info] == [each.sharding for each in formats[-len(info) :]]
        return [
            [np.array(each.layout.major_to_minor) for each in formats],
            [np.array(each.shape) for each in info],
            repr([(each.layout.tiling, spec) for each, spec in zip(formats, specs, strict=True)]),
            repr([each.dtype for each in info]),
        ]

    mesh = mesh2d()
    split = jax.device_put(numbers(8, 4, 8), NamedSharding(mesh, P("x", None, "y")))
    small = jax.device_put(numbers(4, 5).astype("int8"), mesh.devices.flat[0])
    found = []
    for function, x in [
        (lambda x: (x.sum(), x.transpose(2, 0, 1)), split),
        (lambda x: {"sum": x + x, "flags": x > 1}, small),
        (lambda x: x[:0], split),
    ]:
        compiled = jax.jit(function).lower(x).compile()
        found.append(described(compiled))
        results = [np.asarray(each) for each in jax.tree.leaves(compiled(x))]
        found.append([each.astype("f4") for each in results])
    return found
