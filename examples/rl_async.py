"""Asynchronous reinforcement learning in one Python loop: a trainer mesh and several rollout meshes work at the same
time, and every step the new weights go from mesh to mesh.

    gangway up --islands 3 --workers 1 --devices 1 --detach
    gangway run examples/rl_async.py --rollouts 2 --staleness 1

Each rollout mesh samples answers of a small transformer to random prompts and rewards them: a symbol of the answer is
right if it is the successor of the prompt's symbol there. The trainer mesh improves the policy with GRPO's clipped objective; an answer's advantage at a
position is its reward there, compared with other answers to the same prompt. With staleness 1, rollouts answer with the
weights of the step before the last, so that they need not wait for the trainer; with staleness 0, each waits for the
other. The schedule is part of the program, so the rewards do not depend on timing: every run has the same bits.

The loop reads two numbers per step, several steps late. Prompts, answers and weights stay on the devices.
"""

import argparse
import collections
import functools
import json
import pathlib
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import train_lm as lm
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

SYMBOLS = 8  # of prompts and answers
PROBABILITY_RATIO_CLIP = 0.2
STEPS_AHEAD = 4  # steps that the host dispatches before it reads a reward


class Batch(NamedTuple):
    """Answers to prompts, and what the trainer needs to know about them. It never leaves the devices."""

    tokens: jax.Array  # [answers, 2 * length]: the prompt, then the answer
    log_probability: jax.Array  # [answers, length]: of each answered token, when it was sampled
    advantage: jax.Array  # [answers, length]


class Step(NamedTuple):
    """What the host reads of a step."""

    reward: float  # the share of tokens that are right
    loss: float
    seconds: float  # since the start of the training


def answer_logits(params: lm.Params, tokens: jax.Array, at: NamedSharding) -> jax.Array:
    """For each position, the logits of the next symbol."""
    return lm.apply(params, tokens, at)[..., :SYMBOLS]


def log_probability_of(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    return jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1)[..., 0]


class Rollout:
    """Answers prompts on its mesh, with the weights that it was sent `staleness` steps ago."""

    def __init__(self, mesh: Mesh, index: int, args: argparse.Namespace) -> None:
        self.replicated = NamedSharding(mesh, P())
        rows, activations = (
            NamedSharding(mesh, P("data")),
            NamedSharding(mesh, P("data", None, None)),
        )
        length = args.length

        def generate(params: lm.Params, key: jax.Array) -> tuple[jax.Array, Batch, jax.Array]:
            key, ask, answer = jax.random.split(key, 3)
            prompts = jax.random.randint(ask, (args.prompts, length), 0, SYMBOLS)
            prompts = jnp.repeat(prompts, args.group, axis=0)
            empty = jnp.concatenate([prompts, jnp.zeros_like(prompts)], axis=1)
            tokens = jax.lax.with_sharding_constraint(empty, rows)

            def write(tokens: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
                logits = answer_logits(params, tokens, activations)[:, position - 1]
                token = jax.random.categorical(jax.random.fold_in(answer, position), logits)
                return tokens.at[:, position].set(token), log_probability_of(logits, token)

            tokens, sampled = jax.lax.scan(write, tokens, jnp.arange(length, 2 * length))
            reward = (tokens[:, length:] == (prompts + 1) % SYMBOLS).astype(jnp.float32)
            groups = reward.reshape(args.prompts, args.group, length)
            advantage = (groups - groups.mean(1, keepdims=True)) / (
                groups.std(1, keepdims=True) + 0.1
            )
            return key, Batch(tokens, sampled.T, advantage.reshape(reward.shape)), reward.mean()

        self._generate = jax.jit(generate, donate_argnums=(1,))
        self._key = jax.device_put(jax.random.key(args.seed + 1 + index), self.replicated)
        self._weights: collections.deque[lm.Params] = collections.deque()

    def start(self, weights: lm.Params, staleness: int) -> None:
        self._weights = collections.deque(
            [jax.device_put(weights, self.replicated)] * (staleness + 1)
        )

    def receive(self, weights: lm.Params) -> None:
        self._weights.append(jax.device_put(weights, self.replicated))

    def generate(self) -> tuple[Batch, jax.Array]:
        self._key, batch, reward = self._generate(self._weights.popleft(), self._key)
        return batch, reward


class Trainer:
    """Improves the policy on its mesh. `weights` are on all of its devices, ready to be sent."""

    def __init__(self, mesh: Mesh, model: lm.Model, args: argparse.Namespace) -> None:
        shardings = jax.tree.map(functools.partial(NamedSharding, mesh), lm.param_specs())
        replicated = NamedSharding(mesh, P())
        activations = NamedSharding(mesh, P("data", None, None))
        optimizer = optax.chain(optax.clip_by_global_norm(lm.CLIP), optax.adam(args.rate))
        self._rows = NamedSharding(mesh, P("data"))

        def loss_of(params: lm.Params, batch: Batch) -> jax.Array:
            logits = answer_logits(params, batch.tokens, activations)[:, args.length - 1 : -1]
            now = log_probability_of(logits, batch.tokens[:, args.length :])
            ratio = jnp.exp(now - batch.log_probability)
            low, high = 1 - PROBABILITY_RATIO_CLIP, 1 + PROBABILITY_RATIO_CLIP
            gain = jnp.minimum(
                ratio * batch.advantage, jnp.clip(ratio, low, high) * batch.advantage
            )
            return -gain.mean()

        def publish(params: lm.Params) -> lm.Params:
            return jax.tree.map(lambda p: jax.lax.with_sharding_constraint(p, replicated), params)

        def step(params: Any, state: Any, batches: list[Batch], rewards: list[jax.Array]) -> Any:
            batch = Batch(*(jnp.concatenate(parts) for parts in zip(*batches, strict=True)))
            loss, gradients = jax.value_and_grad(loss_of)(params, batch)
            updates, state = optimizer.update(gradients, state, params)
            params = jax.tree.map(
                jax.lax.with_sharding_constraint, optax.apply_updates(params, updates), shardings
            )
            return params, state, publish(params), jnp.stack([sum(rewards) / len(rewards), loss])

        def init(key: jax.Array) -> Any:
            params = lm.init_params(key, model)
            return params, optimizer.init(params), publish(params)

        key = jax.device_put(jax.random.key(args.seed), replicated)
        _, state, weights = jax.eval_shape(init, key)
        state = lm.shardings_of_state(optimizer, state, shardings, mesh)
        everywhere = jax.tree.map(lambda _: replicated, weights)
        start = jax.jit(init, out_shardings=(shardings, state, everywhere))
        self._params, self._state, self.weights = start(key)
        self._replicated = replicated
        self._step = jax.jit(step, donate_argnums=(0, 1))

    def step(self, batches: list[Batch], rewards: list[jax.Array]) -> jax.Array:
        """Returns the mean reward and the loss, on the devices."""
        self._params, self._state, self.weights, summary = self._step(
            self._params,
            self._state,
            jax.device_put(batches, self._rows),
            jax.device_put(rewards, self._replicated),
        )
        return summary


def train(args: argparse.Namespace, trainer: Trainer, rollouts: list[Rollout]) -> list[Step]:
    began = time.monotonic()
    progress = lm.Progress(args.steps, "reward")
    pending: collections.deque[jax.Array] = collections.deque()
    done: list[Step] = []
    for rollout in rollouts:
        rollout.start(trainer.weights, args.staleness)
    while len(done) < args.steps:
        if len(done) + len(pending) < args.steps:
            answered = [rollout.generate() for rollout in rollouts]
            batches, rewards = [batch for batch, _ in answered], [reward for _, reward in answered]
            pending.append(trainer.step(batches, rewards))
            for rollout in rollouts:
                rollout.receive(trainer.weights)
        if len(pending) > STEPS_AHEAD or len(done) + len(pending) == args.steps:
            reward, loss = map(float, np.asarray(pending.popleft()))
            done.append(Step(reward, loss, time.monotonic() - began))
            progress.update(len(done), reward)
    return done


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a policy while others sample from it.")
    parser.add_argument("--rollouts", type=int, default=2, help="rollout meshes")
    parser.add_argument("--staleness", type=int, default=1, help="steps; 0: synchronous")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--prompts", type=int, default=16, help="per step and rollout mesh")
    parser.add_argument("--group", type=int, default=8, help="answers per prompt")
    parser.add_argument("--length", type=int, default=6, help="symbols in a prompt")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rate", type=float, default=3e-3, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", help="write each step's reward, loss and time to this file, as JSON"
    )
    return parser.parse_args(arguments)


def make(args: argparse.Namespace) -> tuple[Trainer, list[Rollout]]:
    """The trainer on the first part of the devices, the rollouts on the others; all parts are equal."""
    devices = jax.devices()
    parts = args.rollouts + 1
    if (
        min(args.rollouts, args.steps, args.prompts, args.group, args.length) < 1
        or args.staleness < 0
    ):
        raise SystemExit("all counts must be positive, but for --staleness, which may be 0")
    if len(devices) % parts:
        raise SystemExit(
            f"{len(devices)} devices do not divide into {parts} equal meshes (--rollouts {args.rollouts}, and the trainer)"
        )
    model = lm.Model(args.layers, args.width, 4, 3 * args.width, 2 * args.length)
    # Devices are ordered by island and worker, so equal parts of the list follow that order.
    first, *others = [
        lm.make_mesh(list(part), model.heads) for part in np.split(np.array(devices), parts)
    ]
    if args.prompts * args.group % first.shape["data"]:
        raise SystemExit(f"{args.prompts} x {args.group} answers do not divide over {first.shape}")
    print(f"trainer and {args.rollouts} rollouts, each on a mesh {dict(first.shape)}")
    return Trainer(first, model, args), [
        Rollout(mesh, index, args) for index, mesh in enumerate(others)
    ]


def main() -> None:
    args = parse_args()
    steps = train(args, *make(args))
    ends = max(1, len(steps) // 10)
    first, last = (np.mean([s.reward for s in part]) for part in (steps[:ends], steps[-ends:]))
    print(
        f"{args.steps} steps in {steps[-1].seconds:.1f} s, reward {first:.3f} -> {last:.3f} "
        f"(staleness {args.staleness})"
    )
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps([step._asdict() for step in steps]))


if __name__ == "__main__":
    main()
