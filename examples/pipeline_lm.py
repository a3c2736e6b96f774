"""The language model of train_lm.py as a pipeline: each stage holds some of the layers on its own mesh, and
passes its results to the next stage.

The script uses only `jit` and `device_put`. Each stage is a few jitted functions over its own mesh, and a
`device_put` that keeps the PartitionSpec carries arrays from mesh to mesh, from worker to worker. One Python
loop dispatches all work without waiting: while the devices execute one step, the next steps are already
dispatched.

    gangway up --islands 2 --workers 1 --devices 8 --detach
    gangway run examples/pipeline_lm.py --schedule 1f1b

With --program, each step is a block `gangway.program()`: from the third step on, all of its calls and copies reach the
cluster as one message. The losses are the same, bit by bit.
"""

import argparse
import collections
import contextlib
import functools
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import train_lm as lm
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# --- Schedules ---

FORWARD, BACKWARD = "forward", "backward"
Order = list[tuple[str, int]]  # a stage's calls in order: (direction, microbatch)


def gpipe(stage: int, stages: int, microbatches: int) -> Order:
    """All microbatches forward, then all backward: keeps the inputs of all microbatches."""
    everything = range(microbatches)
    return [(FORWARD, m) for m in everything] + [(BACKWARD, m) for m in everything]


def one_forward_one_backward(
    stage: int, stages: int, microbatches: int, per_stage: int = 1
) -> Order:
    """Each microbatch goes backward as soon as it can: a stage keeps one input per stage from itself to the
    last. With `per_stage` 2 it keeps two per later stage, so stages need not wait for arrays in transit.
    """
    ahead = min(per_stage * (stages - stage - 1) + 1, microbatches)
    order = [(FORWARD, m) for m in range(ahead)]
    for m in range(microbatches):
        order.append((BACKWARD, m))
        if m + ahead < microbatches:
            order.append((FORWARD, m + ahead))
    return order


SCHEDULES = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "eager-1f1b": functools.partial(one_forward_one_backward, per_stage=2),
}


def run(schedule: Any, stages: list["Stage"], tokens: list, targets: list) -> list[jax.Array]:
    """Dispatches each stage's calls in the schedule's order. `tokens` are on the first stage's devices, `targets` on
    those of the last. Returns the microbatches' losses.
    """
    count = len(stages)
    queues = [collections.deque(schedule(s, count, len(tokens))) for s in range(count)]
    arrived: dict[Any, Any] = {(0, FORWARD, m): x for m, x in enumerate(tokens)}
    losses = []
    while any(queues):
        for s, stage in enumerate(stages):
            while queues[s] and (s, *queues[s][0]) in arrived:
                direction, m = queues[s].popleft()
                value = arrived.pop((s, direction, m))
                if direction == BACKWARD:
                    value = stage.backward(m, value)
                    if s > 0:
                        arrived[s - 1, BACKWARD, m] = stages[s - 1].put(value)
                elif s + 1 < count:
                    arrived[s + 1, FORWARD, m] = stages[s + 1].put(stage.forward(m, value))
                else:
                    losses.append(stage.forward(m, value, targets[m]))
                    arrived[s, BACKWARD, m] = None  # the gradient of the loss is 1
    return losses


# --- Stages ---


class Stage:
    """Some layers of the model on one mesh. The first stage embeds; the last computes the loss."""

    def __init__(self, model: lm.Model, mesh: Mesh, index: int, args: argparse.Namespace) -> None:
        self.mesh = mesh
        first, last = index == 0, index == args.stages - 1
        each = model.layers // args.stages
        here = NamedSharding(mesh, P())
        activations = NamedSharding(mesh, P("data", None, None))
        names = [*["embed"] * first, "layers", *["final_norm", "unembed"] * last]
        shardings = jax.tree.map(
            functools.partial(NamedSharding, mesh), {name: lm.param_specs()[name] for name in names}
        )
        optimizer = lm.make_optimizer(args.rate, args.steps)

        def constrain(tree: Any) -> Any:
            return jax.tree.map(jax.lax.with_sharding_constraint, tree, shardings)

        def zeros(params: lm.Params) -> lm.Params:
            return constrain(jax.tree.map(jnp.zeros_like, params))

        def init(key: jax.Array) -> Any:
            params = lm.init_params(key, model)
            mine = slice(index * each, (index + 1) * each)
            params["layers"] = jax.tree.map(lambda p: p[mine], params["layers"])
            params = constrain({name: params[name] for name in names})
            return params, optimizer.init(params), zeros(params)

        def apply(params: lm.Params, x: jax.Array, labels: jax.Array | None) -> jax.Array:
            x = lm.embed(params, x, activations) if first else x
            x = lm.blocks(params["layers"], x, activations)
            return lm.mean_loss(lm.unembed(params, x), labels) if last else x

        def backward(params: Any, total: Any, x: Any, labels: Any, gradient: Any) -> Any:
            """Adds to the gradients of the parameters. Recomputes `apply` instead of keeping its residuals."""
            arguments = (params,) if first else (params, x)  # tokens have no gradient
            y, vjp = jax.vjp(lambda params, x=x: apply(params, x, labels), *arguments)
            mine, *before = vjp(jnp.ones_like(y) if gradient is None else gradient)
            total = jax.tree.map(jnp.add, total, mine)
            return total, [jax.lax.with_sharding_constraint(g, activations) for g in before]

        def update(params: Any, state: Any, total: Any, squares: list) -> Any:
            norm = jnp.sqrt(sum(squares)) / args.microbatches
            scale = jnp.minimum(1.0, lm.CLIP / norm) / args.microbatches
            total = jax.tree.map(lambda g: g * scale, total)
            updates, state = optimizer.update(total, state, params)
            params = constrain(optax.apply_updates(params, updates))
            return params, state, zeros(params)

        self._apply = jax.jit(apply)
        self._backward = jax.jit(backward, donate_argnums=(1,))
        self._squares = jax.jit(lambda total: optax.global_norm(total) ** 2)
        self._update = jax.jit(update, donate_argnums=(0, 1))
        key = jax.device_put(jax.random.key(args.seed), here)
        _, state, _ = jax.eval_shape(init, key)
        state_shardings = lm.shardings_of_state(optimizer, state, shardings, mesh)
        start = jax.jit(init, out_shardings=(shardings, state_shardings, shardings))
        self.params, self.state, self.total = start(key)
        self._kept: dict[int, Any] = {}  # each microbatch's inputs, for `backward`

    def put(self, x: Any) -> jax.Array:
        """`x` on this stage's devices, with its PartitionSpec."""
        sharding = getattr(x, "sharding", None)  # host arrays have none
        spec = sharding.spec if sharding else P("data")
        return jax.device_put(x, NamedSharding(self.mesh, spec))

    def forward(self, m: int, x: jax.Array, labels: jax.Array | None = None) -> jax.Array:
        self._kept[m] = x, labels
        return self._apply(self.params, x, labels)

    def backward(self, m: int, gradient: jax.Array | None) -> jax.Array | None:
        kept = self._kept.pop(m)
        self.total, before = self._backward(self.params, self.total, *kept, gradient)
        return before[0] if before else None

    def squares(self) -> jax.Array:
        """The sum of the squares of all gradients of this stage."""
        return self._squares(self.total)

    def update(self, squares: list[jax.Array]) -> None:
        self.params, self.state, self.total = self._update(
            self.params, self.state, self.total, [self.put(square) for square in squares]
        )


# --- Training ---


def step(schedule: Any, stages: list[Stage], tokens: list, targets: list) -> list[jax.Array]:
    """Dispatches one step, as `run`, and the stages' updates."""
    losses = run(schedule, stages, tokens, targets)
    squares = [stage.squares() for stage in stages]
    for stage in stages:
        stage.update(squares)
    return losses


def train(args: argparse.Namespace, model: lm.Model, meshes: list[Mesh]) -> list[float]:
    block = program_block() if args.program else contextlib.nullcontext
    stages = [Stage(model, mesh, index, args) for index, mesh in enumerate(meshes)]
    text = lm.standard_library()
    rng = np.random.default_rng(args.seed)
    progress = lm.Progress(args.steps)
    pending: collections.deque[list[jax.Array]] = collections.deque()
    losses: list[float] = []
    captures: list[Any] = []
    while len(losses) < args.steps:
        if len(losses) + len(pending) < args.steps:
            batch = lm.sample_batch(rng, text, args.batch, model.context)
            batches = np.split(batch, args.microbatches)
            # Before the block, which an upload would cut in two.
            tokens = [stages[0].put(b[:, :-1]) for b in batches]
            targets = [stages[-1].put(b[:, 1:]) for b in batches]
            with block() as capture:
                pending.append(step(SCHEDULES[args.schedule], stages, tokens, targets))
            captures.append(capture)
        if len(pending) > lm.STEPS_AHEAD or len(losses) + len(pending) == args.steps:
            losses.append(float(np.mean(jax.device_get(pending.popleft()))))
            progress.update(len(losses), losses[-1])
    if args.program:
        single = [c.launches == 1 and not c.operations_sent_as_they_came for c in captures]
        print(f"{sum(single)} of {args.steps} steps reached the cluster as one message each")
    return losses


def program_block() -> Any:
    """`gangway.program`; other JAX than Gangway's has none."""
    try:
        import gangway
    except ImportError:
        raise SystemExit(
            "--program needs a Gangway cluster: `gangway run examples/pipeline_lm.py --program`; with other JAX, leave "
            "it out"
        ) from None
    return gangway.program


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small language model in a pipeline.")
    parser.add_argument("--schedule", choices=list(SCHEDULES), default="1f1b")
    parser.add_argument("--stages", type=int, help="default: one per island, and at least two")
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=16, help="sequences per step")
    parser.add_argument("--rate", type=float, default=4e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--losses", help="write each step's loss to this file")
    parser.add_argument(
        "--program", action="store_true", help="each step is one message to the Gangway cluster"
    )
    return parser.parse_args()


def main() -> None:
    args, model = parse_args(), lm.Model()
    devices = jax.devices()
    islands = {getattr(device, "slice_index", 0) for device in devices}
    args.stages = args.stages or max(2, len(islands))
    if len(devices) % args.stages or model.layers % args.stages:
        raise SystemExit(
            f"{args.stages} stages divide neither {len(devices)} devices nor {model.layers} layers"
        )
    # Devices are ordered by island and worker, so equal parts of the list follow that order.
    meshes = [
        lm.make_mesh(list(part), model.heads) for part in np.split(np.array(devices), args.stages)
    ]
    each = args.microbatches * meshes[0].shape["data"]
    args.batch = -(-args.batch // each) * each
    print(
        f"{args.stages} stages of {model.layers // args.stages} layers, each on a mesh "
        f"{dict(meshes[0].shape)}; {args.microbatches} microbatches, {args.schedule}"
    )
    began = time.monotonic()
    losses = train(args, model, meshes)
    took = time.monotonic() - began
    print(f"{args.steps} steps in {took:.1f} s, loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    if args.losses:
        pathlib.Path(args.losses).write_text("".join(f"{loss.hex()}\n" for loss in losses))


if __name__ == "__main__":
    main()
