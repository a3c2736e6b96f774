"""DrJAX: rounds of federated averaging, whose clients are mapped over a mesh, and the gradient of a whole round."""

import drjax
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

CLIENTS, BATCHES, ROWS, WIDTH = 16, 4, 8, 8
draw = np.random.default_rng(0)


def loss_of(weights, batch):
    x, y = batch
    return ((jnp.tanh(x @ weights["up"]) @ weights["down"] - y) ** 2).mean()


def train(weights_and_batches):
    def step(weights, batch):
        loss, gradient = jax.value_and_grad(loss_of)(weights, batch)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient), loss

    return jax.lax.scan(step, *weights_and_batches)


@drjax.program(clients=CLIENTS)
def one_round(weights, batches, importance):
    everywhere = drjax.broadcast(weights)
    new, losses = drjax.map_fn(train, ((everywhere, batches),))
    moved = jax.tree.map(jnp.subtract, new, everywhere)
    mean = jax.tree.map(lambda leaf: drjax.reduce_weighted_mean(leaf, importance), moved)
    return jax.tree.map(jnp.add, weights, mean), drjax.reduce_mean(losses)


def random(*shape):
    return draw.normal(size=shape).astype(np.float32)


mesh = jax.make_mesh((8,), ("clients",), axis_types=(jax.sharding.AxisType.Auto,))
clients = NamedSharding(mesh, P("clients"))
weights = {"up": random(WIDTH, 16), "down": random(16, 1)}
inputs = random(CLIENTS, BATCHES, ROWS, WIDTH)
batches = jax.device_put((inputs, np.sin(inputs.sum(-1, keepdims=True))), clients)
importance = jax.device_put(np.arange(1, CLIENTS + 1, dtype=np.float32), clients)
with jax.set_mesh(mesh):
    run = jax.jit(one_round)
    assert "all-reduce" in str(run.lower(weights, batches, importance).compile().as_text())
    losses = []
    for _ in range(4):
        weights, loss = run(weights, batches, importance)
        losses.append(loss)
    total = jax.jit(jax.grad(lambda w: one_round(w, batches, importance)[1].sum()))(weights)
