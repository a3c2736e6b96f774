"""The client of rl.py (mesh_clients.py says how it is asked): the loop of examples/rl_async.py, with its own trainer and
rollouts or with ones whose work is simulated; and copies of many arrays from mesh to mesh.
"""

from __future__ import annotations

import collections
import functools
import time
from typing import Any

import mesh_clients

mesh_clients.choose()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import rl_async  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

BATCH_FLOATS = 16 << 10


def on(device: jax.Device) -> NamedSharding:
    return NamedSharding(Mesh(np.array([device]), ("data",)), P())


class SimulatedTrainer:
    """Takes `seconds` per step. Every weight is the number of steps so far."""

    def __init__(self, device: jax.Device, arrays: int, size: int, seconds: float) -> None:
        self._sharding = on(device)
        self._clock = mesh_clients.Clock(self._sharding)
        self._start = [np.zeros(size // 4, np.float32)] * arrays

        def step(clock: Any, weights: Any, batches: Any) -> Any:
            version = sum(batch[0] for batch in batches) / len(batches)
            clock, summary = mesh_clients.work(clock, jnp.stack([version, version]), seconds)
            return clock, [w + (1 + 0 * summary[0]) for w in weights], summary

        self._step = jax.jit(step)
        self.restart()

    def restart(self) -> None:
        self.weights = jax.device_put(self._start, self._sharding)

    def step(self, batches: list[jax.Array], rewards: list[jax.Array]) -> jax.Array:
        batches = jax.device_put(batches, self._sharding)
        self._clock.value, self.weights, summary = self._step(
            self._clock.value, self.weights, batches
        )
        return summary


class SimulatedRollout:
    """Takes `seconds` per batch, which consists of the number of steps that its weights have seen."""

    def __init__(self, device: jax.Device, seconds: float) -> None:
        self._sharding = on(device)
        self._clock = mesh_clients.Clock(self._sharding)

        def generate(clock: Any, weights: Any) -> Any:
            version = sum(w[0] for w in weights) / len(weights)
            return mesh_clients.work(clock, jnp.full(BATCH_FLOATS, version), seconds)

        self._generate = jax.jit(generate)
        self._weights: collections.deque[Any] = collections.deque()

    def start(self, weights: Any, staleness: int) -> None:
        self._weights = collections.deque(
            [jax.device_put(weights, self._sharding)] * (staleness + 1)
        )

    def receive(self, weights: Any) -> None:
        self._weights.append(jax.device_put(weights, self._sharding))

    def generate(self) -> tuple[Any, Any]:
        self._clock.value, batch = self._generate(self._clock.value, self._weights.popleft())
        return batch, batch


@functools.cache
def made(simulated: str) -> tuple[Any, list[Any]]:
    """`simulated`: empty, or "ARRAYS SIZE TRAINER_S ROLLOUT_S"."""
    if not simulated:
        return rl_async.make(rl_async.parse_args([]))
    arrays, size, trainer_s, rollout_s = simulated.split()
    first, *others = jax.devices()
    trainer = SimulatedTrainer(first, int(arrays), int(size), float(trainer_s))
    return trainer, [SimulatedRollout(device, float(rollout_s)) for device in others]


def step_s(simulated: str, staleness: int, steps: int) -> float:
    """The seconds of all steps, by their number."""
    trainer, rollouts = made(simulated)
    args = rl_async.parse_args(["--staleness", str(staleness), "--steps", str(steps)])
    if simulated:
        trainer.restart()
    jax.block_until_ready(trainer.weights)
    done = rl_async.train(args, trainer, rollouts)
    if simulated:
        used = [step.reward for step in done]
        assert used == [max(0, step - staleness) for step in range(steps)], used
    return done[-1].seconds / steps


@functools.cache
def many(arrays: int, size: int) -> Any:
    return jax.block_until_ready(
        jax.device_put(
            [np.full(size // 4, i, np.float32) for i in range(arrays)], on(jax.devices()[0])
        )
    )


def copy_s(arrays: int, size: int) -> float:
    """The seconds of one `device_put` of many arrays to another mesh, awaited."""
    source = many(arrays, size)
    began = time.monotonic()
    copies = jax.block_until_ready(jax.device_put(source, on(jax.devices()[1])))
    seconds = time.monotonic() - began
    assert float(copies[-1][0]) == arrays - 1
    return seconds


if __name__ == "__main__":
    cases: dict[str, Any] = {"step": step_s, "copy": copy_s}
    mesh_clients.answer_commands(lambda command: cases[command.pop("case")](**command))
