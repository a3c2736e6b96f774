"""How fast it is."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from results import GIB, LARGE, REHEARSAL, WIDE, per_second, say


def transformer() -> tuple[Callable[..., Any], Any, Any]:
    """A step of a decoder of 12 layers, width 1024, 8 x 1024 tokens, in bf16 with float32 parameters."""
    layers, width, heads, batch, context, words = 12, 1024, 16, 8, 1024, 32768
    if REHEARSAL:
        layers, width, batch, context, words = 2, 64, 2, 64, 256
    keys = jax.random.split(jax.random.key(0), 6)

    def draw(key: Any, *shape: int) -> Any:
        return jax.random.normal(key, shape, jnp.float32) * 0.02

    params = {
        "embed": draw(keys[0], words, width),
        "qkv": draw(keys[1], layers, width, 3 * width),
        "out": draw(keys[2], layers, width, width),
        "up": draw(keys[3], layers, width, 4 * width),
        "down": draw(keys[4], layers, 4 * width, width),
    }
    tokens = jax.random.randint(keys[5], (batch, context + 1), 0, words)

    def norm(x: Any) -> Any:
        return x * jax.lax.rsqrt(
            jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6
        ).astype(x.dtype)

    def block(x: Any, layer: Any) -> Any:
        layer = jax.tree.map(lambda w: w.astype(jnp.bfloat16), layer)
        q, k, v = jnp.split(norm(x) @ layer["qkv"], 3, -1)
        split = [a.reshape(batch, context, heads, width // heads) for a in (q, k, v)]
        x += jax.nn.dot_product_attention(*split, is_causal=True).reshape(x.shape) @ layer["out"]
        return x + jax.nn.gelu(norm(x) @ layer["up"]) @ layer["down"], None

    def loss(params: Any, tokens: Any) -> Any:
        x = params["embed"].astype(jnp.bfloat16)[tokens[:, :-1]]
        stack = {name: params[name] for name in ("qkv", "out", "up", "down")}
        x, _ = jax.lax.scan(jax.checkpoint(block), x, stack)
        logits = (norm(x) @ params["embed"].astype(jnp.bfloat16).T).astype(jnp.float32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1))

    @functools.partial(jax.jit, donate_argnums=0)
    def step(params: Any, tokens: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step, params, tokens


def small_calls(f: Any) -> None:
    x = f(jnp.zeros(16))
    x.block_until_ready()

    def burst() -> None:
        y = x
        for _ in range(100):
            y = f(y)
        y.block_until_ready()

    burst()
    say(part="speed", what="call, not awaited", unit="us", value=1e6 / per_second(burst) / 100)
    say(
        part="speed",
        what="call, awaited",
        unit="us",
        value=1e6 / per_second(lambda: f(x).block_until_ready()),
    )
    fetches = []
    for _ in range(200):
        y = f(x)
        y.block_until_ready()
        began = time.perf_counter()
        np.asarray(y)
        fetches.append(time.perf_counter() - began)
    say(part="speed", what="fetch of 64 B", unit="us", value=statistics.median(fetches) * 1e6)
    puts = [np.full(512, i, np.float32) for i in range(8)]
    say(
        part="speed",
        what="device_put of 2 kB, awaited",
        unit="us",
        value=1e6 / per_second(lambda: jax.device_put(puts[0]).block_until_ready()),
    )


def large_arrays(f: Any) -> None:
    big = np.random.default_rng(0).random(LARGE // 4, dtype=np.float32)
    up, down = [], []
    for _ in range(4):
        began = time.perf_counter()
        there = jax.device_put(big)
        there.block_until_ready()
        up.append(time.perf_counter() - began)
        there = f(there)
        there.block_until_ready()
        began = time.perf_counter()
        np.asarray(there)
        down.append(time.perf_counter() - began)
        del there
    say(part="speed", what="1 GiB up, the first time", unit="GiB/s", value=LARGE / GIB / up[0])
    say(part="speed", what="1 GiB up", unit="GiB/s", value=LARGE / GIB / min(up))
    say(part="speed", what="1 GiB down", unit="GiB/s", value=LARGE / GIB / min(down))


def products() -> None:
    a = jax.random.normal(jax.random.key(0), (WIDE, WIDE), jnp.bfloat16)
    product = jax.jit(lambda a, b: a @ b * 0.01)

    def some() -> None:
        b = a
        for _ in range(20):
            b = product(a, b)
        b.block_until_ready()

    some()
    rate = per_second(some, 2.0) * 20 * 2 * WIDE**3 / 1e12
    say(part="speed", what=f"bf16 products of {WIDE}^3", unit="TFLOP/s", value=rate)


def steps() -> None:
    step, params, tokens = transformer()
    for _ in range(2):
        params, value = step(params, tokens)
    value.block_until_ready()
    times = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(5):
            params, value = step(params, tokens)
        value.block_until_ready()
        times.append((time.perf_counter() - began) / 5)
    say(part="speed", what="transformer step", unit="ms", value=statistics.median(times) * 1e3)
    say(part="said", case="loss after 27 steps", text=f"{float(value):.6f}")


def measure_all() -> None:
    f = jax.jit(lambda x: x + 1)
    small_calls(f)
    large_arrays(f)
    products()
    steps()
