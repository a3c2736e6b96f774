"""The training steps of bench/spmd.py: a small transformer with four shardings, and the step of examples/train_lm.py.

tp: heads and hidden units over 4 devices, the batch over 2. fsdp: parameters and batch over all 8. sp: positions over
4, the batch over 2, whole parameters. mix: as tp, and a block of shard_map with a ring of permutes, an exchange of
blocks, a scattered sum and sums inside of a loop.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

VOCABULARY, WIDTH, HEADS, HIDDEN, LAYERS = 64, 64, 4, 128, 2
BATCH, POSITIONS = 8, 32
RATE = 1e-3

Step = Callable[[Any], tuple[Any, jax.Array]]  # to the next state, and the loss
Parameters = dict[str, Any]


def put(host: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """An array of which each process of a multi-controller makes its own shards."""
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def mesh_of(sharding: str) -> Mesh:
    devices = np.array(jax.devices())
    if sharding == "fsdp":
        return Mesh(devices.reshape(-1, 1), ("data", "model"))
    return Mesh(devices.reshape(2, -1), ("data", "model"))


def parameter_specs(sharding: str) -> Parameters:
    layer = {"attention": P(), "out": P(), "up": P(), "down": P()}
    specs: Parameters = {"embed": P(), "unembed": P()}
    if sharding == "fsdp":
        layer = dict.fromkeys(layer, P("data")) | {"out": P(None, "data")}
        specs = dict.fromkeys(specs, P("data"))
    elif sharding in ("tp", "mix"):
        layer = {
            "attention": P(None, None, "model"),
            "out": P("model"),
            "up": P(None, "model"),
            "down": P("model"),
        }
        specs = {"embed": P(), "unembed": P(None, "model")}
    return specs | {"layers": [layer] * LAYERS}


def make_parameters() -> Parameters:
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (draw.standard_normal(shape) * shape[0] ** -0.5).astype(np.float32)

    head = WIDTH // HEADS
    return {
        "embed": normal(VOCABULARY, WIDTH),
        "unembed": normal(WIDTH, VOCABULARY),
        "layers": [
            {
                "attention": normal(WIDTH, 3, HEADS, head),
                "out": normal(HEADS, head, WIDTH),
                "up": normal(WIDTH, HIDDEN),
                "down": normal(HIDDEN, WIDTH),
            }
            for _ in range(LAYERS)
        ],
    }


def norm(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def attention(x: jax.Array, layer: Parameters) -> jax.Array:
    query, key, value = jnp.moveaxis(jnp.einsum("btd,dchk->btchk", x, layer["attention"]), 2, 0)
    scores = jnp.einsum("bqhk,bshk->bhqs", query, key) * query.shape[-1] ** -0.5
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
    return jnp.einsum("bhqs,bshk,hkd->bqd", weights, value, layer["out"])


def exchanged(x: jax.Array, mesh: Mesh) -> jax.Array:
    """The block of collectives that `mix` names itself; x[batch, position, width], the batch over `data`."""

    def block(x: jax.Array) -> jax.Array:
        ring = [(i, (i + 1) % mesh.shape["model"]) for i in range(mesh.shape["model"])]
        x = x + 0.1 * jax.lax.ppermute(x, "model", ring)
        parts = jax.lax.psum_scatter(x, "model", scatter_dimension=1, tiled=True)
        parts = jax.lax.all_to_all(parts, "model", 2, 1, tiled=True)
        parts = jax.lax.all_to_all(parts, "model", 1, 2, tiled=True)
        whole = jax.lax.all_gather(parts, "model", axis=1, tiled=True)

        def body(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
            return 0.5 * carry + 0.1 * jax.lax.pmean(carry, "data"), None

        return jax.lax.scan(body, whole * 0.1, None, length=2)[0]

    spec = P("data", None, None)
    return jax.shard_map(block, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(x)


def loss_function(sharding: str, mesh: Mesh) -> Callable[[Parameters, jax.Array], jax.Array]:
    positions = "model" if sharding == "sp" else None
    activations = NamedSharding(mesh, P("data", positions, None))
    constrain = functools.partial(jax.lax.with_sharding_constraint, shardings=activations)

    def loss(parameters: Parameters, tokens: jax.Array) -> jax.Array:
        x = constrain(parameters["embed"][tokens])
        for layer in parameters["layers"]:
            x = constrain(x + attention(norm(x), layer))
            if sharding == "mix":
                x = constrain(x + exchanged(norm(x), mesh))
            x = constrain(x + jax.nn.relu(norm(x) @ layer["up"]) @ layer["down"])
        logits = jax.nn.log_softmax(norm(x) @ parameters["unembed"])
        targets = jnp.roll(tokens, -1, axis=1)
        chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)
        return -jnp.mean(chosen[:, :-1])

    return loss


def make_step(sharding: str, rate: float) -> tuple[Any, Any, Parameters, jax.Array]:
    """The jitted step, its mesh, the parameters and the tokens."""
    mesh = mesh_of(sharding)
    shardings = jax.tree.map(
        functools.partial(NamedSharding, mesh),
        parameter_specs(sharding),
        is_leaf=lambda leaf: isinstance(leaf, P),
    )
    loss_of = loss_function(sharding, mesh)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(parameters: Parameters, tokens: jax.Array) -> tuple[Parameters, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, tokens)
        moved = jax.tree.map(lambda value, slope: value - rate * slope, parameters, gradients)
        return jax.tree.map(jax.lax.with_sharding_constraint, moved, shardings), loss

    parameters = jax.tree.map(put, make_parameters(), shardings)
    drawn = np.random.default_rng(1).integers(0, VOCABULARY, (BATCH, POSITIONS)).astype(np.int32)
    positions = "model" if sharding == "sp" else None
    tokens = put(drawn, NamedSharding(mesh, P("data", positions)))
    return step, mesh, parameters, tokens


def training(sharding: str) -> tuple[Any, Step]:
    step, _, parameters, tokens = make_step(sharding, RATE)
    return parameters, lambda state: step(state, tokens)


def lowered(sharding: str, rate: float) -> jax.stages.Lowered:
    step, _, parameters, tokens = make_step(sharding, rate)
    return step.lower(parameters, tokens)


def example() -> tuple[Any, Step]:
    """That of examples/train_lm.py, on one batch that stays on the devices."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
    import train_lm

    model = train_lm.Model()
    mesh = train_lm.make_mesh(jax.devices(), model.heads)
    options = argparse.Namespace(rate=RATE, steps=1000, seed=0)
    start, step = train_lm.make_training(options, model, mesh)
    text = train_lm.standard_library()
    tokens = train_lm.sample_batch(np.random.default_rng(0), text, 4, model.context)
    batch = put(tokens, NamedSharding(mesh, P("data")))

    def next_step(state: Any) -> tuple[Any, jax.Array]:
        parameters, optimizer, loss = step(*state, batch)
        return (parameters, optimizer), loss

    return start(), next_step
