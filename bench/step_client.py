"""The client half of the step benchmark: training steps in plain JAX, the same on every backend.

    step_client.py gangway|plugin|jaxlib

Each line on stdin is a command, "CASE, N devices COUNT": make COUNT steps, wait for the last, and print one line of
JSON with the seconds. The first command of a case compiles it, before the clock starts. State is kept from command to
command, and goes when another case begins. The environment of the process says the rest: the number of jaxlib's
devices, and the plugin's thread pool (NPROC).
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent


def choose(backend: str) -> None:
    """Makes it JAX's default backend; call it before JAX is imported."""
    if backend == "gangway":
        import gangway

        gangway.connect()
    elif backend == "plugin":
        sys.path.insert(0, str(ROOT / "testing"))
        pool = os.environ.get("NPROC")
        import reference

        reference.register()
        # That set the pool of the tests. XLA reads it when JAX makes its client, which is later.
        del os.environ["NPROC"]
        if pool:
            os.environ["NPROC"] = pool
    elif backend != "jaxlib":
        raise SystemExit(f"{backend}: not a backend; gangway, plugin and jaxlib are")


choose(sys.argv[1])

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

sys.path.insert(0, str(ROOT / "examples"))
import train_lm  # noqa: E402

# XLA CPU has at most 32 executes in flight on a device. Steps that do not depend on each other may end in any order,
# so this many results are awaited.
LAST = 32
WARM_UP_STEPS = 2
RATE = 1e-3
LM_BATCH = 4
MATRICES = (64, 32, 32)
IMAGES, IMAGE_SIZE, CHANNELS, CLASSES = 128, 32, (3, 32, 32, 64), 10


class Case(NamedTuple):
    state: Any
    step: Callable[[Any], tuple[Any, jax.Array]]  # to the next state, and the loss


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def descend(parameters: Any, gradients: Any, shardings: Any) -> Any:
    """Gradient descent; each parameter keeps its sharding, and so its memory, which is donated."""
    moved = jax.tree.map(lambda value, gradient: value - RATE * gradient, parameters, gradients)
    return jax.tree.map(jax.lax.with_sharding_constraint, moved, shardings)


def perceptron(devices: list[jax.Device], batch: int, width: int, hidden: int) -> Case:
    """Two layers: the batch over `data`, the hidden units over `tensor`."""
    mesh = train_lm.make_mesh(devices, heads=4)
    shardings = (NamedSharding(mesh, P(None, "tensor")), NamedSharding(mesh, P("tensor", None)))
    rng = np.random.default_rng(0)
    weights = (
        normal(rng, width, hidden, scale=width**-0.5),
        normal(rng, hidden, width, scale=hidden**-0.5),
    )
    rows = NamedSharding(mesh, P("data", None))
    inputs = jax.device_put(normal(rng, batch, width), rows)
    targets = jax.device_put(normal(rng, batch, width), rows)

    def loss_of(weights: Any, inputs: jax.Array, targets: jax.Array) -> jax.Array:
        first, second = weights
        return jnp.mean((jax.nn.relu(inputs @ first) @ second - targets) ** 2)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(weights: Any, inputs: jax.Array, targets: jax.Array) -> tuple[Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, inputs, targets)
        return descend(weights, gradients, shardings), loss

    return Case(jax.device_put(weights, shardings), lambda state: step(state, inputs, targets))


def language_model(devices: list[jax.Device]) -> Case:
    """That of examples/train_lm.py, on one batch that stays on the devices."""
    model = train_lm.Model()
    mesh = train_lm.make_mesh(devices, model.heads)
    options = argparse.Namespace(rate=RATE, steps=1000, seed=0)
    start, step = train_lm.make_training(options, model, mesh)
    text = train_lm.standard_library()
    tokens = train_lm.sample_batch(np.random.default_rng(0), text, LM_BATCH, model.context)
    batch = jax.device_put(tokens, NamedSharding(mesh, P("data")))

    def next_step(state: Any) -> tuple[Any, jax.Array]:
        parameters, optimizer, loss = step(*state, batch)
        return (parameters, optimizer), loss

    return Case(start(), next_step)


def convolution(devices: list[jax.Device]) -> Case:
    """Three layers of 3 x 3, the second and third with stride 2, then a mean and classes; the batch over `data`."""
    mesh = Mesh(np.array(devices), ("data",))
    rng = np.random.default_rng(0)
    kernels = [
        normal(rng, 3, 3, before, after, scale=(9 * before) ** -0.5)
        for before, after in zip(CHANNELS, CHANNELS[1:], strict=False)
    ]
    last = normal(rng, CHANNELS[-1], CLASSES, scale=CHANNELS[-1] ** -0.5)
    parameters = {"kernels": kernels, "last": last}
    shardings = jax.tree.map(lambda _: NamedSharding(mesh, P()), parameters)
    split = NamedSharding(mesh, P("data"))
    images = jax.device_put(normal(rng, IMAGES, IMAGE_SIZE, IMAGE_SIZE, CHANNELS[0]), split)
    labels = jax.device_put(rng.integers(0, CLASSES, IMAGES).astype(np.int32), split)

    def loss_of(parameters: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        x = images
        for layer, kernel in enumerate(parameters["kernels"]):
            strides = (2, 2) if layer else (1, 1)
            x = jax.nn.relu(
                jax.lax.conv_general_dilated(
                    x, kernel, strides, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
            )
        return train_lm.mean_loss(jnp.mean(x, axis=(1, 2)) @ parameters["last"], labels)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(parameters: Any, images: jax.Array, labels: jax.Array) -> tuple[Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, images, labels)
        return descend(parameters, gradients, shardings), loss

    return Case(jax.device_put(parameters, shardings), lambda state: step(state, images, labels))


def large_sum(devices: list[jax.Device]) -> Case:
    """Nothing is fed back: each step has the same input."""
    step = jax.jit(lambda v: (v + 1).sum())
    values = jax.device_put(np.ones(4 << 20, np.float32), devices[0])
    return Case(values, lambda state: (state, step(state)))


def decompositions(devices: list[jax.Device]) -> Case:
    """Of matrices whose batch lies over `data`: no device needs those of another one."""
    mesh = Mesh(np.array(devices), ("data",))
    split = NamedSharding(mesh, P("data"))

    @functools.partial(jax.jit, donate_argnums=0, out_shardings=(split, None))
    def step(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        u, s, v = jnp.linalg.svd(x, full_matrices=False)
        return (u * s[:, None]) @ v, s.mean()

    return Case(jax.device_put(normal(np.random.default_rng(0), *MATRICES), split), step)


CASES: dict[str, Callable[[list[jax.Device]], Case]] = {
    "matrix step": lambda devices: perceptron(devices, batch=512, width=1024, hidden=3072),
    "language model step": language_model,
    "convolution step": convolution,
    "3 ms step": lambda devices: perceptron(devices, batch=128, width=256, hidden=768),
    "sum of 4 M floats": large_sum,
    "decompositions": decompositions,
}


def make(name: str) -> Case:
    """Of "CASE, N devices"; compiled and run."""
    case, _, devices = name.rpartition(", ")
    made = CASES[case](jax.devices()[: int(devices.split()[0])])
    return run(made, WARM_UP_STEPS)[0]


def run(case: Case, count: int) -> tuple[Case, float]:
    """The case with its state after `count` steps, and the seconds that they took."""
    state = case.state
    losses: collections.deque[jax.Array] = collections.deque(maxlen=LAST)
    started = time.perf_counter()
    for _ in range(count):
        state, loss = case.step(state)
        losses.append(loss)
    jax.block_until_ready((state, list(losses)))
    seconds = time.perf_counter() - started
    if not math.isfinite(float(losses[-1])):
        raise SystemExit(f"the loss is {float(losses[-1])} after {count} steps more")
    return case._replace(state=state), seconds


def main() -> None:
    name = ""
    case: Case | None = None
    for line in sys.stdin:
        wanted, _, count = line.strip().rpartition(" ")
        if case is None or wanted != name:
            case = None  # its arrays go before those of the next one come
            name, case = wanted, make(wanted)
        case, seconds = run(case, int(count))
        print(json.dumps({"case": name, "count": int(count), "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
