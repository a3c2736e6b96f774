"""Transformers, dense and with experts, forward and backward, in the shardings that are used for them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from corpus.meshes import fetch, grid, mapped, permuted, place, values

WIDTH, HEADS, HIDDEN, WORDS, LENGTH = 32, 4, 64, 64, 16


def block_weights(seed=0):
    shapes = {
        "query": (WIDTH, WIDTH),
        "key": (WIDTH, WIDTH),
        "value": (WIDTH, WIDTH),
        "out": (WIDTH, WIDTH),
        "up": (WIDTH, HIDDEN),
        "down": (HIDDEN, WIDTH),
    }
    return {
        name: values(*shape, seed=seed + i, scale=0.2)
        for i, (name, shape) in enumerate(shapes.items())
    }


TENSOR_PARALLEL = {
    "query": P(None, "model"),
    "key": P(None, "model"),
    "value": P(None, "model"),
    "out": P("model", None),
    "up": P(None, "model"),
    "down": P("model", None),
}


def normalize(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


def attention(w, x):
    batch, length, width = x.shape

    def heads(name):
        return (x @ w[name]).reshape(batch, length, HEADS, width // HEADS)

    scores = jnp.einsum("bqhd,bkhd->bhqk", heads("query"), heads("key")) / 3
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), heads("value"))
    return mixed.reshape(batch, length, width) @ w["out"]


def block(w, x):
    x = x + attention(w, normalize(x))
    return x + jax.nn.gelu(normalize(x) @ w["up"]) @ w["down"]


def block_loss(w, x):
    return jnp.square(block(w, x)).mean()


def on(mesh, specs, weights):
    return {name: place(mesh, weights[name], *specs[name]) for name in weights}


def case_dense_forward():
    mesh = grid(data=2, model=4)
    x = place(mesh, values(4, LENGTH, WIDTH), "data")
    return fetch(jax.jit(block)(on(mesh, TENSOR_PARALLEL, block_weights()), x))


def case_dense_backward_tensor_parallel():
    mesh = grid(data=2, model=4)
    x = place(mesh, values(4, LENGTH, WIDTH), "data")
    return fetch(
        jax.jit(jax.value_and_grad(block_loss))(on(mesh, TENSOR_PARALLEL, block_weights()), x)
    )


def case_dense_backward_on_a_permuted_mesh():
    mesh = permuted(data=4, model=2)
    x = place(mesh, values(4, LENGTH, WIDTH), "data")
    return fetch(
        jax.jit(jax.value_and_grad(block_loss))(on(mesh, TENSOR_PARALLEL, block_weights()), x)
    )


def case_fully_sharded_data_parallel():
    """Every weight and the batch over all devices: gathers before use, scatters of gradients."""
    mesh = grid(data=8)
    specs = dict.fromkeys(TENSOR_PARALLEL, P("data", None))
    step = jax.jit(
        jax.value_and_grad(block_loss),
        out_shardings=(
            NamedSharding(mesh, P()),
            {name: NamedSharding(mesh, spec) for name, spec in specs.items()},
        ),
    )
    x = place(mesh, values(8, LENGTH, WIDTH), "data")
    return fetch(step(on(mesh, specs, block_weights()), x))


def case_sequence_parallel():
    mesh = grid(data=2, model=4)

    @jax.jit
    def step(w, x):
        def loss(w):
            def along(x):
                return jax.lax.with_sharding_constraint(
                    x, NamedSharding(mesh, P("data", "model", None))
                )

            y = along(x + attention(w, normalize(along(x))))
            y = along(y + jax.nn.gelu(normalize(y) @ w["up"]) @ w["down"])
            return jnp.square(y).mean()

        return jax.value_and_grad(loss)(w)

    x = place(mesh, values(4, LENGTH, WIDTH), "data", "model")
    return fetch(step(on(mesh, TENSOR_PARALLEL, block_weights()), x))


def case_layers_by_scan_with_remat():
    mesh = grid(data=2, model=4)
    layers = [block_weights(seed=10 * i) for i in range(3)]
    weights = {
        name: place(mesh, np.stack([w[name] for w in layers]), None, *spec)
        for name, spec in TENSOR_PARALLEL.items()
    }

    @jax.jit
    @jax.value_and_grad
    def step(weights, x):
        body = jax.checkpoint(lambda x, w: (block(w, x), None))
        return jnp.square(jax.lax.scan(body, x, weights)[0]).mean()

    return fetch(step(weights, place(mesh, values(4, LENGTH, WIDTH), "data")))


def route(x, gate, experts):
    """Each token's expert and weight."""
    chances = jax.nn.softmax(x @ gate)
    chosen = jnp.argmax(chances, -1)
    return jax.nn.one_hot(chosen, experts, dtype=x.dtype), jnp.max(chances, -1)


def case_mixture_of_experts_by_einsum():
    mesh = grid(data=2, expert=4)
    weights = {
        "gate": place(mesh, values(WIDTH, 8, seed=1)),
        "up": place(mesh, values(8, WIDTH, HIDDEN, seed=2, scale=0.2), "expert"),
        "down": place(mesh, values(8, HIDDEN, WIDTH, seed=3, scale=0.2), "expert"),
    }

    @jax.jit
    @jax.value_and_grad
    def step(w, x):
        tokens = x.reshape(-1, WIDTH)
        mask, weight = route(tokens, w["gate"], 8)
        inputs = jnp.einsum("te,td->etd", mask, tokens)
        hidden = jax.nn.relu(jnp.einsum("etd,edh->eth", inputs, w["up"]))
        outputs = jnp.einsum("eth,ehd,te->td", hidden, w["down"], mask)
        return jnp.square(outputs * weight[:, None] + tokens).mean()

    return fetch(step(weights, place(mesh, values(4, 8, WIDTH), "data")))


def case_mixture_of_experts_by_all_to_all():
    """An expert per device; each device sends every expert a buffer of fixed capacity."""
    mesh = grid(expert=8)
    capacity = 3

    def layer(x, gate, up, down):
        mask, weight = route(x, gate, 8)
        place_in_buffer = (jnp.cumsum(mask, 0) - 1) * mask
        fits = mask * (place_in_buffer < capacity)
        slot = jax.nn.one_hot(place_in_buffer.sum(-1).astype(int), capacity, dtype=x.dtype)
        dispatch = jnp.einsum("te,tc->tec", fits, slot)
        buffers = jnp.einsum("tec,td->ecd", dispatch, x)
        arrived = jax.lax.all_to_all(buffers, "expert", 0, 0, tiled=True)
        worked = jax.nn.relu(arrived.reshape(-1, WIDTH) @ up[0]) @ down[0]
        back = jax.lax.all_to_all(worked.reshape(8, capacity, WIDTH), "expert", 0, 0, tiled=True)
        return jnp.einsum("tec,ecd->td", dispatch, back) * weight[:, None]

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 2))
    def step(x, gate, up, down):
        experts = jax.shard_map(
            layer,
            mesh=mesh,
            in_specs=(P("expert"), P(), P("expert"), P("expert")),
            out_specs=P("expert"),
            check_vma=False,
        )
        return jnp.square(experts(x, gate, up, down)).sum()

    return fetch(
        step(
            place(mesh, values(64, WIDTH), "expert"),
            place(mesh, values(WIDTH, 8, seed=1)),
            place(mesh, values(8, WIDTH, HIDDEN, seed=2, scale=0.2), "expert"),
            place(mesh, values(8, HIDDEN, WIDTH, seed=3, scale=0.2), "expert"),
        )
    )


def case_megatron_by_hand():
    """A pair of functions with derivatives of their own: identity and sum, sum and identity."""
    mesh = grid(data=2, model=4)

    @jax.custom_vjp
    def enter(x):
        return x

    enter.defvjp(lambda x: (x, None), lambda _, g: (jax.lax.psum(g, "model"),))

    @jax.custom_vjp
    def leave(x):
        return jax.lax.psum(x, "model")

    leave.defvjp(lambda x: (jax.lax.psum(x, "model"), None), lambda _, g: (g,))

    @mapped(
        mesh,
        (P("data"), P(None, "model"), P("model")),
        (P(), (P("data"), P(None, "model"), P("model"))),
    )
    def step(x, up, down):
        def loss(x, up, down):
            return jnp.square(leave(jnp.tanh(enter(x) @ up) @ down)).mean()

        value, gradients = jax.value_and_grad(loss, argnums=(0, 1, 2))(x, up, down)
        data, *weights = gradients
        return jax.lax.pmean(value, ("data", "model")), (data, *jax.lax.pmean(weights, "data"))

    return fetch(
        step(
            place(mesh, values(8, WIDTH), "data"),
            place(mesh, values(WIDTH, HIDDEN, seed=1, scale=0.2), None, "model"),
            place(mesh, values(HIDDEN, WIDTH, seed=2, scale=0.2), "model"),
        )
    )


def ring_attention(q, k, v, axis, size):
    """Blocks of keys and values go around; the softmax is combined as they come."""
    turn = [(i, (i + 1) % size) for i in range(size)]

    def body(state, _):
        k, v, best, total, out = state
        scores = q @ k.T / 3
        newer = jnp.maximum(best, scores.max(-1))
        scale, weights = jnp.exp(best - newer), jnp.exp(scores - newer[:, None])
        out = out * scale[:, None] + weights @ v
        total = total * scale + weights.sum(-1)
        k, v = jax.lax.ppermute((k, v), axis, turn)
        return (k, v, newer, total, out), None

    begin = (k, v, jnp.full(q.shape[0], -1e30), jnp.zeros(q.shape[0]), jnp.zeros_like(v))
    (*_, total, out), _ = jax.lax.scan(body, begin, None, length=size)
    return out / total[:, None]


def case_ring_attention_forward():
    mesh = grid(sequence=8)
    attend = mapped(mesh, P("sequence"), P("sequence"))(
        lambda q, k, v: ring_attention(q, k, v, "sequence", 8)
    )
    return fetch(
        attend(*(place(mesh, values(64, WIDTH, seed=seed), "sequence") for seed in range(3)))
    )


def case_ring_attention_backward():
    mesh = permuted(sequence=8)
    attend = jax.shard_map(
        lambda q, k, v: ring_attention(q, k, v, "sequence", 8),
        mesh=mesh,
        in_specs=P("sequence"),
        out_specs=P("sequence"),
        check_vma=False,
    )
    step = jax.jit(jax.grad(lambda *qkv: jnp.square(attend(*qkv)).sum(), argnums=(0, 1, 2)))
    return fetch(
        step(*(place(mesh, values(32, WIDTH, seed=seed), "sequence") for seed in range(3)))
    )


def case_embedding_and_cross_entropy_over_the_vocabulary():
    mesh = grid(data=2, vocabulary=4)

    @jax.jit
    @jax.value_and_grad
    def step(table, words):
        x = jnp.take(table, words[:, :-1], axis=0)
        logits = x @ table.T
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), words[:, 1:, None], -1)
        return -chosen.mean()

    table = place(mesh, values(WORDS, WIDTH, scale=0.3), "vocabulary")
    words = np.random.default_rng(0).integers(0, WORDS, (4, 9)).astype(np.int32)
    return fetch(step(table, place(mesh, words, "data")))


def case_cross_entropy_by_hand():
    """Each device has a part of the vocabulary: the maximum, the sum and the chosen logit are reduced."""
    mesh = grid(data=2, vocabulary=4)

    def loss(table, x, words):
        first = jax.lax.axis_index("vocabulary") * table.shape[0]
        logits = x @ table.T
        best = jax.lax.stop_gradient(
            jax.lax.pmax(jax.lax.stop_gradient(logits.max(-1)), "vocabulary")
        )
        total = jax.lax.psum(jnp.exp(logits - best[:, None]).sum(-1), "vocabulary")
        here = (words >= first) & (words < first + table.shape[0])
        local = jnp.take_along_axis(
            logits, jnp.clip(words - first, 0, table.shape[0] - 1)[:, None], 1
        )
        chosen = jax.lax.psum(jnp.where(here, local[:, 0], 0), "vocabulary")
        return jax.lax.pmean((jnp.log(total) + best - chosen).mean(), "data")

    whole = jax.shard_map(
        loss,
        mesh=mesh,
        in_specs=(P("vocabulary"), P("data"), P("data")),
        out_specs=P(),
        check_vma=False,
    )
    words = np.random.default_rng(0).integers(0, WORDS, 16).astype(np.int32)
    return fetch(
        jax.jit(jax.value_and_grad(whole, argnums=(0, 1)))(
            place(mesh, values(WORDS, WIDTH, scale=0.3), "vocabulary"),
            place(mesh, values(16, WIDTH, seed=1), "data"),
            place(mesh, words, "data"),
        )
    )


def case_decoding_with_a_cache():
    """Tokens one by one: a cache that is sharded over heads, written at a position that moves, and donated."""
    mesh = grid(data=2, model=4)
    weights = on(mesh, TENSOR_PARALLEL, block_weights())
    cache = place(
        mesh,
        np.zeros((2, 4, LENGTH, HEADS, WIDTH // HEADS), np.float32),
        None,
        "data",
        None,
        "model",
    )

    @functools.partial(jax.jit, donate_argnums=1)
    def step(w, cache, x, at):
        q, k, v = ((x @ w[name]).reshape(4, HEADS, -1) for name in ("query", "key", "value"))
        cache = jax.lax.dynamic_update_slice(cache, jnp.stack([k, v])[:, :, None], (0, 0, at, 0, 0))
        scores = jnp.einsum("bhd,bthd->bht", q, cache[0])
        scores = jnp.where(jnp.arange(LENGTH) <= at, scores, -1e9)
        out = jnp.einsum("bht,bthd->bhd", jax.nn.softmax(scores), cache[1])
        return cache, jnp.tanh(out.reshape(4, WIDTH) @ w["out"])

    x = place(mesh, values(4, WIDTH), "data")
    for at in range(5):
        cache, x = step(weights, cache, x, np.int32(at))
    return fetch((cache, x))


def case_pipeline_of_stages():
    """A stage per device; microbatches enter at the first, and leave at the last."""
    mesh = grid(stage=8)
    count = 4

    def run(w, inputs):
        stage = jax.lax.axis_index("stage")
        forward = [(i, i + 1) for i in range(7)]

        def body(carry, t):
            x, outputs = carry
            x = jnp.where(stage == 0, inputs[jnp.minimum(t, count - 1)], x)
            y = jnp.tanh(x @ w[0])
            done = t - 7
            kept = outputs.at[jnp.maximum(done, 0)].set(y)
            outputs = jnp.where((stage == 7) & (done >= 0), kept, outputs)
            return (jax.lax.ppermute(y, "stage", forward), outputs), None

        begin = (jnp.zeros_like(inputs[0]), jnp.zeros_like(inputs))
        (_, outputs), _ = jax.lax.scan(body, begin, jnp.arange(count + 7))
        return jax.lax.psum(jnp.where(stage == 7, outputs, 0), "stage")

    pipeline = jax.shard_map(
        run, mesh=mesh, in_specs=(P("stage"), P()), out_specs=P(), check_vma=False
    )
    step = jax.jit(jax.value_and_grad(lambda w, x: jnp.square(pipeline(w, x)).mean()))
    return fetch(
        step(
            place(mesh, values(8, WIDTH, WIDTH, scale=0.3), "stage"),
            place(mesh, values(count, 4, WIDTH, seed=1)),
        )
    )


def case_bfloat16_step():
    mesh = grid(data=2, model=4)
    weights = {name: w.astype(jnp.bfloat16) for name, w in block_weights().items()}

    @jax.jit
    @jax.value_and_grad
    def step(w, x):
        return jnp.square(block(w, x).astype(jnp.float32)).mean()

    x = place(mesh, values(4, LENGTH, WIDTH).astype(jnp.bfloat16), "data")
    return fetch(step(on(mesh, TENSOR_PARALLEL, weights), x))
