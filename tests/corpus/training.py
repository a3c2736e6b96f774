"""Training: optimizers, gradients that are reduced by hand, accumulation, normalization over a batch of all devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from corpus.meshes import fetch, grid, mapped, place, ring, values


def layers():
    return {"up": values(16, 32, scale=0.3), "down": values(32, 8, seed=1, scale=0.3)}


def loss(w, x):
    return jnp.square(jnp.tanh(x @ w["up"]) @ w["down"]).mean()


def case_adam():
    mesh = grid(data=2, model=4)
    specs = {"up": P(None, "model"), "down": P("model", None)}
    weights = {name: place(mesh, w, *specs[name]) for name, w in layers().items()}
    optimizer = optax.adam(1e-2)
    state = jax.jit(optimizer.init)(weights)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(w, state, x):
        value, gradients = jax.value_and_grad(loss)(w, x)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(w, updates), state, value

    losses = []
    for i in range(4):
        weights, state, value = step(weights, state, place(mesh, values(8, 16, seed=i), "data"))
        losses.append(value)
    return fetch((weights, losses))


def case_sgd_with_a_clipped_norm():
    mesh = ring("data")
    weights = {name: place(mesh, w, "data") for name, w in layers().items()}
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1, momentum=0.9))
    state = jax.jit(optimizer.init)(weights)

    @jax.jit
    def step(w, state, x):
        updates, state = optimizer.update(jax.grad(loss)(w, x), state)
        return optax.apply_updates(w, updates), state

    for i in range(3):
        weights, state = step(weights, state, place(mesh, values(16, 16, seed=i), "data"))
    return fetch(weights)


def case_data_parallel_by_hand():
    mesh = ring("data")

    @mapped(mesh, (P(), P("data")), P())
    def step(w, x):
        gradients = jax.lax.pmean(jax.grad(loss)(w, x), "data")
        return jax.tree.map(lambda w, g: w - 0.1 * g, w, gradients)

    weights = jax.tree.map(lambda w: place(mesh, w), layers())
    for i in range(3):
        weights = step(weights, place(mesh, values(16, 16, seed=i), "data"))
    return fetch(weights)


def case_sharded_optimizer_by_hand():
    """Gradients are scattered, the optimizer's part is updated, weights are gathered."""
    mesh = ring("data")

    @mapped(mesh, (P("data"), P("data"), P("data")), (P("data"), P("data")))
    def step(part, momentum, x):
        def local(part):
            w = jax.lax.all_gather(part, "data", tiled=True).reshape(16, 32)
            return jnp.square(jnp.tanh(x @ w)).mean()

        gradient = jax.grad(local)(part) / 8
        momentum = 0.9 * momentum + gradient
        return part - 0.1 * momentum, momentum

    part = place(mesh, values(512, scale=0.3), "data")
    momentum = place(mesh, np.zeros(512, np.float32), "data")
    for i in range(3):
        part, momentum = step(part, momentum, place(mesh, values(16, 16, seed=i), "data"))
    return fetch((part, momentum))


def case_gradient_accumulation():
    mesh = grid(data=4, model=2)
    specs = {"up": P(None, "model"), "down": P("model", None)}
    weights = {name: place(mesh, w, *specs[name]) for name, w in layers().items()}

    @jax.jit
    def step(w, batches):
        def add(total, x):
            value, gradients = jax.value_and_grad(loss)(w, x)
            return jax.tree.map(jnp.add, total, gradients), value

        total, losses = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, w), batches)
        return jax.tree.map(lambda w, g: w - 0.1 * g / 4, w, total), losses

    return fetch(step(weights, place(mesh, values(4, 8, 16), None, "data")))


def case_batch_norm_over_all_devices():
    mesh = ring("data")

    @mapped(mesh, (P("data"), P()), (P("data"), P()))
    def normalize(x, scale):
        def scaled(scale):
            mean = jax.lax.pmean(x.mean(0), "data")
            variance = jax.lax.pmean(jnp.square(x - mean).mean(0), "data")
            return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale

        y, pull = jax.vjp(scaled, scale)
        return y, jax.lax.psum(pull(jnp.cos(y))[0], "data")

    return fetch(normalize(place(mesh, values(64, 12), "data"), place(mesh, values(12, seed=1))))


def case_layer_norm_over_a_sharded_axis():
    mesh = grid(data=2, model=4)

    @jax.jit
    @jax.value_and_grad
    def f(x):
        y = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return jnp.sum(jnp.sin(y))

    return fetch(f(place(mesh, values(8, 64), "data", "model")))


def case_remat_of_collectives():
    mesh = grid(data=2, model=4)

    @jax.jit
    @jax.value_and_grad
    def step(w, x):
        @functools.partial(
            jax.shard_map,
            mesh=mesh,
            in_specs=(P("data"), P(None, "model")),
            out_specs=P("data"),
        )
        def layer(x, w):
            return jax.lax.psum(jnp.tanh(x @ w) @ w.T, "model")

        for _ in range(3):
            x = jax.checkpoint(layer)(x, w)
        return jnp.square(x).mean()

    return fetch(
        step(
            place(mesh, values(16, 32, scale=0.2), None, "model"),
            place(mesh, values(8, 16), "data"),
        )
    )


def case_loss_scaling():
    """Gradients of half precision that overflow at first: the step is skipped, and the scale halved."""
    mesh = ring("data")

    @jax.jit
    def step(w, scale, x):
        def scaled(w):
            return (jnp.square(x @ w).mean() * scale).astype(jnp.float16).astype(jnp.float32)

        gradients = jax.grad(scaled)(w).astype(jnp.float16)
        good = jnp.isfinite(gradients).all()
        newer = w - 0.01 * (gradients / scale.astype(jnp.float16)).astype(jnp.float32)
        return jnp.where(good, newer, w), jnp.where(good, scale, scale / 2)

    w, scale = place(mesh, values(16, 8), "data"), place(mesh, np.float32(2**24))
    x = place(mesh, values(32, 16, seed=1), "data")
    for _ in range(6):
        w, scale = step(w, scale, x)
    return fetch((w, scale))


def case_pmap_training():
    weights = layers()
    replicated = jax.tree.map(lambda w: np.broadcast_to(w, (8, *w.shape)).copy(), weights)

    @functools.partial(jax.pmap, axis_name="batch")
    def step(w, x):
        value, gradients = jax.value_and_grad(loss)(w, x)
        gradients = jax.lax.pmean(gradients, "batch")
        return jax.tree.map(lambda w, g: w - 0.1 * g, w, gradients), jax.lax.pmax(value, "batch")

    for i in range(3):
        replicated, value = step(replicated, values(8, 4, 16, seed=i))
    return fetch((replicated, value))


def case_vector_hessian_products():
    mesh = ring("data")

    @jax.jit
    def product(w, x, v):
        return jax.jvp(lambda w: jax.grad(loss)(w, x), (w,), (v,))[1]

    weights = jax.tree.map(lambda w: place(mesh, w), layers())
    direction = jax.tree.map(lambda w: place(mesh, np.cos(w)), layers())
    return fetch(product(weights, place(mesh, values(16, 16), "data"), direction))


def case_replicas_that_average_parameters():
    """Local steps on each device, then one mean of the weights: the sum is over the rows of a permuted order."""
    mesh = grid(a=2, b=4)

    @mapped(mesh, (P(("a", "b")), P(("a", "b"))), P(("a", "b")))
    def rounds(w, x):
        def local(_, w):
            return w - 0.05 * jax.grad(lambda w: jnp.square(x @ w).mean())(w)

        def outer(_, w):
            return jax.lax.pmean(jax.lax.fori_loop(0, 3, local, w), ("b", "a"))

        return jax.lax.fori_loop(0, 2, outer, w[0])[None]

    return fetch(
        rounds(
            place(mesh, np.tile(values(1, 16, 8), (8, 1, 1)), ("a", "b")),
            place(mesh, values(32, 16, seed=1), ("a", "b")),
        )
    )


def case_out_shardings_of_a_whole_state():
    mesh = grid(data=2, model=4)
    optimizer = optax.adamw(1e-3)

    def shardings(tree):
        return jax.tree.map(lambda a: NamedSharding(mesh, P("model") if a.ndim == 2 else P()), tree)

    def begin():
        w = {
            name: jax.random.normal(jax.random.key(i), (32, 8 * (i + 1)))
            for i, name in enumerate("abc")
        }
        return w, optimizer.init(w)

    state = jax.jit(begin, out_shardings=shardings(jax.eval_shape(begin)))()
    return fetch(state)
