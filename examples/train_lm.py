"""Train a small language model on the source code of Python's standard library, on every device
that JAX sees.

Plain JAX and optax: a byte-level decoder-only transformer (RMSNorm, rotary embedding, SwiGLU) on a
2-D mesh, batch split over `data`, heads and hidden units over `tensor`. The script does not depend on
the kind or the location of the devices:

    python examples/train_lm.py                     # JAX's own backend
    gangway run examples/train_lm.py                # the devices of a Gangway cluster

The host runs several steps ahead: it reads a loss only when newer steps are in flight behind it.
"""

import argparse
import collections
import functools
import os
import pathlib
import random
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

VOCABULARY = 256  # bytes
CLIP = 1.0  # the largest global norm of a gradient
STEPS_AHEAD = 8  # steps that the host dispatches before it reads a loss

Params = dict[str, Any]


class Model(NamedTuple):
    layers: int = 4
    width: int = 128
    heads: int = 4
    hidden: int = 384
    context: int = 128


def make_mesh(devices: list[jax.Device], heads: int, shape: str | None = None) -> Mesh:
    """A mesh data x tensor, 2x4 on eight devices. Without a `shape`, `tensor` is the largest power of two that
    divides both counts.
    """
    if shape:
        data, tensor = map(int, shape.split("x"))
        return Mesh(np.array(devices).reshape(data, tensor), ("data", "tensor"))
    tensor = 1
    while len(devices) % (tensor * 2) == 0 and heads % (tensor * 2) == 0:
        tensor *= 2
    return Mesh(np.array(devices).reshape(-1, tensor), ("data", "tensor"))


# --- Model ---


def param_specs() -> Params:
    """One PartitionSpec per parameter. Layers are stacked along axis 0, so that `scan` compiles one
    of them.
    """
    return {
        "embed": P(None, "tensor"),
        "layers": {
            "attention_norm": P(),
            "query_key_value": P(None, None, None, "tensor"),  # layer, width, 3, heads, head size
            "attention_out": P(None, "tensor"),  # layer, heads, head size, width
            "mlp_norm": P(),
            "gate_up": P(None, None, None, "tensor"),  # layer, width, 2, hidden
            "down": P(None, "tensor"),  # layer, hidden, width
        },
        "final_norm": P(),
        "unembed": P(None, "tensor"),
    }


def init_params(key: jax.Array, model: Model) -> Params:
    head = model.width // model.heads
    keys = iter(jax.random.split(key, 6))

    def normal(shape: tuple[int, ...], fan_in: int) -> jax.Array:
        return jax.random.normal(next(keys), shape) * fan_in**-0.5

    residual = model.width * 2 * model.layers  # two residual additions per layer
    return {
        "embed": normal((VOCABULARY, model.width), 50 * model.width),
        "layers": {
            "attention_norm": jnp.ones((model.layers, model.width)),
            "query_key_value": normal(
                (model.layers, model.width, 3, model.heads, head), model.width
            ),
            "attention_out": normal((model.layers, model.heads, head, model.width), residual),
            "mlp_norm": jnp.ones((model.layers, model.width)),
            "gate_up": normal((model.layers, model.width, 2, model.hidden), model.width),
            "down": normal((model.layers, model.hidden, model.width), residual),
        },
        "final_norm": jnp.ones((model.width,)),
        "unembed": normal((model.width, VOCABULARY), 16 * model.width),
    }


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def rotate(x: jax.Array) -> jax.Array:
    """Rotary position embedding of [batch, time, heads, head size]."""
    half = x.shape[-1] // 2
    frequency = 10_000.0 ** (-jnp.arange(half) / half)
    angle = (jnp.arange(x.shape[1])[:, None] * frequency)[:, None, :]
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def attention(x: jax.Array, layer: Params) -> jax.Array:
    query, key, value = jnp.moveaxis(
        jnp.einsum("btd,dchk->btchk", x, layer["query_key_value"]), 2, 0
    )
    scores = jnp.einsum("bqhk,bshk->bhqs", rotate(query), rotate(key)) * query.shape[-1] ** -0.5
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
    return jnp.einsum("bhqs,bshk,hkd->bqd", weights, value, layer["attention_out"])


def mlp(x: jax.Array, layer: Params) -> jax.Array:
    gate, up = jnp.moveaxis(jnp.einsum("btd,dch->btch", x, layer["gate_up"]), 2, 0)
    return (jax.nn.silu(gate) * up) @ layer["down"]


def embed(params: Params, tokens: jax.Array, activations: NamedSharding) -> jax.Array:
    return jax.lax.with_sharding_constraint(params["embed"][tokens] * 50**0.5, activations)


def blocks(layers: Params, x: jax.Array, activations: NamedSharding) -> jax.Array:
    def block(x: jax.Array, layer: Params) -> tuple[jax.Array, None]:
        x = x + attention(rms_norm(x, layer["attention_norm"]), layer)
        x = x + mlp(rms_norm(x, layer["mlp_norm"]), layer)
        return jax.lax.with_sharding_constraint(x, activations), None

    return jax.lax.scan(block, x, layers)[0]


def unembed(params: Params, x: jax.Array) -> jax.Array:
    return rms_norm(x, params["final_norm"]) @ params["unembed"]


def apply(params: Params, tokens: jax.Array, activations: NamedSharding) -> jax.Array:
    """Logits [batch, time, vocabulary] of int32 tokens [batch, time]."""
    return unembed(
        params, blocks(params["layers"], embed(params, tokens, activations), activations)
    )


def mean_loss(logits: jax.Array, targets: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


# --- Training ---


def standard_library() -> np.ndarray:
    """The bytes of all *.py files directly in the standard library's folder, in name order."""
    folder = pathlib.Path(os.__file__).parent
    return np.frombuffer(
        b"\n".join(path.read_bytes() for path in sorted(folder.glob("*.py"))), np.uint8
    )


def sample_batch(
    rng: np.random.Generator, text: np.ndarray, batch: int, context: int
) -> np.ndarray:
    starts = rng.integers(0, len(text) - context - 1, batch)
    return np.stack([text[start : start + context + 1] for start in starts]).astype(np.int32)


class Progress:
    """On a terminal, one line that redraws itself; in a log, one line per tenth of the steps."""

    def __init__(self, steps: int, what: str = "loss") -> None:
        self._steps = steps
        self._what = what
        self._began = time.monotonic()
        self._live = sys.stderr.isatty()

    def update(self, step: int, value: float) -> None:
        if not self._live and step % max(1, self._steps // 10) and step != self._steps:
            return
        bar = "━" * (24 * step // self._steps)
        rate = step / max(1e-9, time.monotonic() - self._began)
        line = (
            f"step {step:4d}/{self._steps} {bar:╌<24} {self._what} {value:.3f}  {rate:.1f} steps/s"
        )
        end = "" if self._live and step != self._steps else "\n"
        print(("\r" if self._live else "") + line, end=end, file=sys.stderr, flush=True)


def make_optimizer(rate: float, steps: int) -> optax.GradientTransformation:
    """The optimizer for gradients whose global norm is already clipped to CLIP."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, 20, max(steps, 21), rate * 0.1)
    return optax.adamw(schedule, b2=0.98, weight_decay=0.01)


def shardings_of_state(
    optimizer: optax.GradientTransformation, state: Any, shardings: Params, mesh: Mesh
) -> Any:
    """What belongs to a parameter lies where the parameter lies; the rest is on every device. Without them, the state
    would start on one device, and the second step would be compiled anew.
    """
    return optax.tree_utils.tree_map_params(
        optimizer,
        lambda _, sharding: sharding,
        state,
        shardings,
        transform_non_params=lambda _: NamedSharding(mesh, P()),
    )


def make_training(args: argparse.Namespace, model: Model, mesh: Mesh) -> tuple[Any, Any]:
    """The functions `start() -> params, state` and `step(params, state, batch) -> params, state, loss`."""
    shardings = jax.tree.map(functools.partial(NamedSharding, mesh), param_specs())
    activations = NamedSharding(mesh, P("data", None, None))
    optimizer = optax.chain(optax.clip_by_global_norm(CLIP), make_optimizer(args.rate, args.steps))

    def loss_of(params: Params, batch: jax.Array) -> jax.Array:
        return mean_loss(apply(params, batch[:, :-1], activations), batch[:, 1:])

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Params, state: Any, batch: jax.Array) -> tuple[Params, Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        params = jax.tree.map(
            jax.lax.with_sharding_constraint, optax.apply_updates(params, updates), shardings
        )
        return params, state, loss

    def init(key: jax.Array) -> tuple[Params, Any]:
        params = init_params(key, model)
        return params, optimizer.init(params)

    def start() -> tuple[Params, Any]:
        key = jax.device_put(jax.random.key(args.seed), NamedSharding(mesh, P()))
        _, state = jax.eval_shape(init, key)
        state_shardings = shardings_of_state(optimizer, state, shardings, mesh)
        return jax.jit(init, out_shardings=(shardings, state_shardings))(key)

    return start, step


def train(args: argparse.Namespace, model: Model, mesh: Mesh) -> tuple[Params, list[float]]:
    batch_sharding = NamedSharding(mesh, P("data"))
    start, step = make_training(args, model, mesh)
    params, state = start()

    text = standard_library()
    rng = np.random.default_rng(args.seed)
    print(f"training on {len(text) / 1e6:.1f} MB of Python source")
    progress = Progress(args.steps)
    pending: collections.deque[jax.Array] = collections.deque()
    losses: list[float] = []
    for _ in range(args.steps):
        batch = jax.device_put(sample_batch(rng, text, args.batch, model.context), batch_sharding)
        params, state, loss = step(params, state, batch)
        pending.append(loss)
        if len(pending) > STEPS_AHEAD:
            losses.append(float(pending.popleft()))
            progress.update(len(losses), losses[-1])
    for loss in pending:
        losses.append(float(loss))
        progress.update(len(losses), losses[-1])
    return params, losses


# --- Sampling ---


def generate(params: Params, model: Model, mesh: Mesh, prompt: str, count: int, seed: int) -> str:
    """Returns `prompt` with `count` sampled characters. Steps are dispatched ahead of their results."""

    @functools.partial(jax.jit, donate_argnums=(1,))
    def decode(
        params: Params, carry: tuple[jax.Array, ...]
    ) -> tuple[tuple[jax.Array, ...], jax.Array]:
        window, length, key = carry
        logits = apply(params, window[None], NamedSharding(mesh, P()))[0, length - 1]
        key, sampled = jax.random.split(key)
        token = jax.random.categorical(sampled, logits / 0.7).astype(jnp.int32)
        full = length == model.context
        window = jnp.where(full, jnp.roll(window, -1), window)
        length = jnp.where(full, length, length + 1)
        return (window.at[length - 1].set(token), length, key), token

    tokens = np.frombuffer(prompt.encode(), np.uint8).astype(np.int32)[-model.context :]
    window = np.zeros(model.context, np.int32)
    window[: len(tokens)] = tokens
    carry: Any = (window, np.int32(len(tokens)), jax.random.key(seed))
    carry = jax.device_put(carry, NamedSharding(mesh, P()))
    produced = []
    for _ in range(count):
        carry, token = decode(params, carry)
        produced.append(token)
        if len(produced) > 2 * STEPS_AHEAD:
            produced[-2 * STEPS_AHEAD].block_until_ready()
    return prompt + bytes(int(token) for token in produced).decode("utf-8", "replace")


def plot(losses: list[float], path: str, title: str) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    smooth = np.convolve(losses, np.ones(min(20, len(losses))) / min(20, len(losses)), "valid")
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(losses, color="#9ecae1", linewidth=1, label="each step")
    axes.plot(
        np.arange(len(losses) - len(smooth), len(losses)),
        smooth,
        color="#08519c",
        label="mean of 20",
    )
    axes.set(xlabel="step", ylabel="loss (nats per byte)", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    pathlib.Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"loss curve: {path}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a small language model on Python's standard library."
    )
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument(
        "--batch", type=int, default=16, help="sequences per step (rounded up to the data axis)"
    )
    parser.add_argument("--devices", type=int, help="use only the first N devices")
    parser.add_argument("--mesh", help="DATAxTENSOR, as 4x2 (default: chosen for the devices)")
    parser.add_argument("--shuffle", type=int, help="seed of the devices' order in the mesh")
    parser.add_argument("--rate", type=float, default=4e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--sample", type=int, default=240, help="characters to generate at the end (0: none)"
    )
    parser.add_argument("--out", help="write the loss curve to this PNG")
    parser.add_argument(
        "--losses", help="write each step's exact loss to this file, as hexadecimal floats"
    )
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    model = Model()
    began = time.monotonic()
    devices = jax.devices()[: args.devices]
    if args.shuffle is not None:
        random.Random(args.shuffle).shuffle(devices)
    mesh = make_mesh(devices, model.heads, args.mesh)
    if model.heads % mesh.shape["tensor"]:
        model = model._replace(heads=mesh.shape["tensor"])
    args.batch = -(-args.batch // mesh.shape["data"]) * mesh.shape["data"]
    print(
        f"{len(devices)} devices of {devices[0].client.platform_version!r}, mesh {dict(mesh.shape)}"
    )

    params, losses = train(args, model, mesh)
    print(
        f"{args.steps} steps in {time.monotonic() - began:.1f} s, "
        f"loss {losses[0]:.3f} -> {losses[-1]:.3f}"
    )
    if args.losses:
        pathlib.Path(args.losses).write_text("".join(f"{loss.hex()}\n" for loss in losses))
    if args.sample:
        print("-" * 100)
        print(generate(params, model, mesh, "def ", args.sample, args.seed))
        print("-" * 100)
    if args.out:
        plot(
            losses,
            args.out,
            f"byte-level transformer, {len(devices)} devices, mesh {dict(mesh.shape)}",
        )


if __name__ == "__main__":
    main()
