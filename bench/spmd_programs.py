"""The JAX programs of bench/spmd.py, on all devices of the chosen backend. Import it after the backend is chosen.

`make` returns a function that makes a number of calls and returns their seconds. Data come from fixed seeds, so that
all processes of a multi-controller have the same.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import spmd_steps
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from spmd_cases import CHAIN, IN_FLIGHT, REPEATED, units

Case = Callable[[int], float]


def line_mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("d",))


def timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


# --- Scalars ---


def scalar(kind: str) -> Case:
    """x_d <- sum(x) / D + b_d, where the mean of b is 1: the mean of x counts the computations."""
    mesh = line_mesh()
    sharding = NamedSharding(mesh, P("d"))
    count = len(jax.devices())
    biases = np.arange(count, dtype=np.float32) - (count - 1) / 2 + 1
    b = spmd_steps.put(biases, sharding)

    def node(x: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.psum(x, "d") * np.float32(1 / count) + b

    def looped(x: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, CHAIN, lambda _, y: node(y, b), x)

    body = looped if kind == "fused" else node
    step = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(P("d"), P("d")), out_specs=P("d")))

    def run(calls: int) -> float:
        start = spmd_steps.put(np.zeros(count, np.float32), sharding)
        start.block_until_ready()
        last = start

        def chain() -> None:
            nonlocal last
            for _ in range(calls):
                for _ in range(CHAIN if kind == "chain" else 1):
                    last = step(last, b)
                if kind in ("chain", "awaited"):
                    last.block_until_ready()
            last.block_until_ready()

        seconds = timed(chain)
        first = last.addressable_shards[0]
        mean = float(np.asarray(first.data)[0]) - float(biases[first.index[0].start or 0]) + 1
        made = calls * units(f"scalar {kind}")
        if made < 1 << 22 and abs(mean - made) > 0.5:
            raise SystemExit(f"scalar {kind}: {made} computations counted to {mean}")
        return seconds

    run(1)
    return run


# --- Collectives ---


def chained(operation: str, size: int) -> Case:
    """Each collective takes what the one before it gave. The first argument is donated: no result is memory of its own."""
    mesh = line_mesh()
    count = len(jax.devices())

    def one(x: jax.Array) -> jax.Array:
        if operation == "all-reduce":
            # Without this, the sum of equal operands becomes a multiplication.
            return jax.lax.psum(x.at[0].set(jax.lax.axis_index("d").astype(x.dtype)), "d")
        if operation == "all-to-all":
            return jax.lax.all_to_all(x, "d", 0, 0, tiled=True)
        return jax.lax.ppermute(x, "d", [(i, (i + 1) % count) for i in range(count)])

    def body(x: jax.Array) -> jax.Array:
        for _ in range(REPEATED[size]):
            x = one(x)
        return x

    step = jax.jit(
        jax.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False),
        donate_argnums=0,
    )
    elements = size // 4
    x = spmd_steps.put(np.ones(count * elements, np.float32), NamedSharding(mesh, P("d")))

    def run(calls: int) -> float:
        def all_calls() -> None:
            nonlocal x
            for _ in range(calls):
                x = step(x)
            x.block_until_ready()

        return timed(all_calls)

    run(1)
    check(operation, x, elements, count)
    check_sources(one, operation, elements)
    return run


def separate(operation: str, size: int, uploaded: bool) -> Case:
    """Each collective has an operand and a result of its own, because they are not of one size. Operands are results
    of a program, as gradients are, unless they are uploaded: a worker may keep uploaded bytes elsewhere.
    """
    mesh = line_mesh()
    sharding = NamedSharding(mesh, P("d"))
    count = len(jax.devices())

    def one(x: jax.Array) -> jax.Array:
        if operation == "all-gather":
            return jax.lax.all_gather(x, "d", tiled=True)
        return jax.lax.psum_scatter(x, "d", scatter_dimension=0, tiled=True)

    def body(xs: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(one(x) for x in xs)

    step = jax.jit(
        jax.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    )
    large = size // 4  # elements
    operand, result = (
        (large // count, large) if operation == "all-gather" else (large, large // count)
    )
    host = np.ones(count * operand, np.float32)
    xs = tuple(spmd_steps.put(host, sharding) for _ in range(REPEATED[size]))
    if not uploaded:
        xs = tuple(jax.jit(jnp.sqrt)(x) for x in xs)

    def run(calls: int) -> float:
        def all_calls() -> None:
            in_flight: list[Any] = []
            for _ in range(calls):
                if len(in_flight) == IN_FLIGHT:
                    jax.block_until_ready(in_flight.pop(0))
                in_flight.append(step(xs))
            jax.block_until_ready(in_flight)

        return timed(all_calls)

    run(1)
    check(operation, step(xs)[-1], result, count)
    check_sources(one, operation, operand)
    return run


def check(operation: str, array: jax.Array, elements: int, count: int) -> None:
    """Of operands that were all ones."""
    shard = np.asarray(array.addressable_shards[0].data)
    expected = {
        "all-gather": 1.0,
        "reduce-scatter": float(count),
        "all-to-all": 1.0,
        "permute": 1.0,
    }
    if operation == "all-reduce":
        expected[operation] = float(count) ** REPEATED[elements * 4]
    with np.errstate(over="ignore"):  # a long chain of sums ends at infinity
        value = np.float32(expected[operation])
    if shard.shape != (elements,) or not np.all(shard[1:] == value):
        raise SystemExit(f"{operation} of {elements} elements: {shard.shape} {shard[1]}")


def check_sources(one: Callable[[jax.Array], jax.Array], operation: str, elements: int) -> None:
    """One call, in which the operand of position p has p + 1 in all its elements: what comes from where is seen."""
    mesh = line_mesh()
    call = jax.jit(
        jax.shard_map(one, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    )
    count = len(jax.devices())
    sources = np.arange(1, count + 1, dtype=np.float32)
    operands = np.repeat(sources, elements)
    result = call(spmd_steps.put(operands, NamedSharding(mesh, P("d"))))
    for shard in result.addressable_shards:
        got = np.asarray(shard.data)
        position = (shard.index[0].start or 0) // got.size
        expected = {
            "all-reduce": np.full(got.size, sources.sum()),
            "all-gather": operands,
            "reduce-scatter": np.full(got.size, sources.sum()),
            "all-to-all": np.repeat(sources, elements // count),
            "permute": np.full(got.size, sources[position - 1]),
        }[operation]
        # The first element of an all-reduce's operand is the program's own.
        if got.shape != expected.shape or not np.array_equal(got[1:], expected[1:]):
            raise SystemExit(
                f"{operation} of {elements} elements: {got.shape} {got[:: max(1, got.size // 9)]}"
            )


# --- Steps ---


def steps(sharding: str, awaited: bool) -> Case:
    state, step = spmd_steps.training(sharding)

    def run(calls: int) -> float:
        def all_steps() -> None:
            nonlocal state
            for _ in range(calls):
                state, loss = step(state)
                if awaited:
                    loss.block_until_ready()
            jax.block_until_ready((state, loss))
            if not math.isfinite(float(np.asarray(loss.addressable_shards[0].data))):
                raise SystemExit(f"{sharding}: the loss is not finite")

        return timed(all_steps)

    run(2)
    return run


def example() -> Case:
    state, step = spmd_steps.example()

    def run(calls: int) -> float:
        def all_steps() -> None:
            nonlocal state
            for _ in range(calls):
                state, loss = step(state)
            jax.block_until_ready((state, loss))

        return timed(all_steps)

    run(2)
    return run


# --- Compiling ---


def compiles(sharding: str) -> Case:
    """Each call compiles a program that no compiler has seen."""

    def run(calls: int) -> float:
        seconds = 0.0
        for _ in range(calls):
            rate = 1e-3 * (1 + time.time_ns() % 10**9 / 1e10)
            lowered = spmd_steps.lowered(sharding, rate)
            seconds += timed(lowered.compile)
        return seconds

    return run


def loads(sharding: str) -> Case:
    """Each call compiles what was compiled before, when no executable of it is left, and makes one step: the compiler
    has it in its cache, and the step waits until it is loaded everywhere. The first call fills the cache: a program is
    the same only if the stack of its caller is.
    """

    def once() -> float:
        jax.clear_caches()  # else JAX itself answers
        gc.collect()
        step, _, parameters, tokens = spmd_steps.make_step(sharding, spmd_steps.RATE)
        lowered = step.lower(parameters, tokens)
        jax.block_until_ready((parameters, tokens))
        return timed(lambda: jax.block_until_ready(lowered.compile()(parameters, tokens)))

    def run(calls: int) -> float:
        return sum(once() for _ in range(calls))

    return run


def make(case: str) -> Case:
    """Compiled, and run once."""
    first, *rest = case.split()
    if first in ("all-gather", "reduce-scatter"):
        return separate(first, int(rest[0]), rest[1:] == ["uploaded"])
    makers: dict[str, Callable[[], Case]] = {
        "scalar": lambda: scalar(rest[0]),
        "step": lambda: steps(rest[0], awaited=rest[1:] == ["awaited"]),
        "example": example,
        "compile": lambda: compiles(rest[0]),
        "load": lambda: loads(rest[0]),
    }
    return makers[first]() if first in makers else chained(first, int(rest[0]))
