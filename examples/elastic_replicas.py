"""Data-parallel training that survives the loss of a worker without a checkpoint: the parameters are replicated over all
workers, and those that are left have them.

    gangway up --islands 2 --workers 2 --devices 1 &
    gangway run examples/elastic_replicas.py            # then kill a worker while it runs

Each device computes the gradients of its part of the batch, and all of them apply the same mean. When a worker is lost,
the step in flight fails, and so do the shards on that worker (DATA_LOSS). The script builds its mesh from the devices
whose replica can still be used, moves the parameters to it without the host, and takes the step again.
"""

import argparse
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

WIDTHS = (16, 64, 64, 1)
BATCH = 12  # divides over 4, 3, 2 and 1 devices
RATE = 0.05

Params = list[tuple[jax.Array, jax.Array]]


def init_params(key: jax.Array) -> Params:
    keys = jax.random.split(key, len(WIDTHS))
    return [
        (jax.random.normal(k, (a, b)) * a**-0.5, jnp.zeros(b))
        for k, a, b in zip(keys, WIDTHS, WIDTHS[1:], strict=False)
    ]


def apply(params: Params, x: jax.Array) -> jax.Array:
    for weight, bias in params[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = params[-1]
    return x @ weight + bias


@jax.jit
def gradients(params: Params, x: jax.Array, y: jax.Array) -> tuple[jax.Array, Params]:
    return jax.value_and_grad(lambda p: jnp.mean((apply(p, x) - y) ** 2))(params)


@jax.jit
def update(params: Params, several: list[Params]) -> Params:
    return jax.tree.map(lambda p, *g: p - RATE * sum(g) / len(g), params, *several)


def batch_of(step: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng((seed, step)).standard_normal((BATCH, WIDTHS[0]), np.float32)
    return x, np.sin(x.sum(axis=1, keepdims=True))


def replicated(devices: list[jax.Device]) -> NamedSharding:
    return NamedSharding(Mesh(np.array(devices), ("replica",)), P())


def replica(params: Params, device: jax.Device) -> Params:
    """The copy on one device, which needs no other device."""

    def on_device(x: jax.Array) -> jax.Array:
        return next(shard.data for shard in x.addressable_shards if shard.device == device)

    return jax.tree.map(on_device, params)


def is_alive(params: Params, device: jax.Device) -> bool:
    """Copies it: of an array that was ready once, `block_until_ready` alone may not ask again."""
    try:
        jax.block_until_ready(jax.tree.map(jnp.copy, replica(params, device)))
    except jax.errors.JaxRuntimeError:
        return False
    return True


def train_step(params: Params, step: int, seed: int) -> tuple[Params, float]:
    sharding = params[0][0].sharding
    assert isinstance(sharding, NamedSharding)
    devices = list(sharding.mesh.devices)
    replicas = [replica(params, device) for device in devices]
    parts = [np.split(part, len(devices)) for part in batch_of(step, seed)]
    results = [
        gradients(mine, jax.device_put(x, device), jax.device_put(y, device))
        for mine, x, y, device in zip(replicas, *parts, devices, strict=True)
    ]
    several = [each for _, each in results]
    updated = [
        update(mine, jax.device_put(several, device))
        for mine, device in zip(replicas, devices, strict=True)
    ]

    def join(*copies: jax.Array) -> jax.Array:
        return jax.make_array_from_single_device_arrays(copies[0].shape, sharding, list(copies))

    joined: Params = jax.tree.map(join, *updated)
    jax.block_until_ready(joined)  # or an error: then `params` is what is left
    return joined, float(np.mean([float(loss) for loss, _ in results]))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on replicas, some of which may be lost.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--losses", help="write each step's loss to this file")
    parser.add_argument(
        "--leave-out",
        action="append",
        default=[],
        metavar="STEP:DEVICE",
        help="leave a device out from this step on, as if it were lost then",
    )
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    leave_out: dict[int, set[int]] = {}
    for each in args.leave_out:
        at, _, number = each.partition(":")
        leave_out.setdefault(int(at), set()).add(int(number))
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:5.1f} s  {what}", flush=True)

    devices = jax.devices()
    params: Any = jax.device_put(init_params(jax.random.key(args.seed)), replicated(devices))
    losses: list[float] = []
    while len(losses) < args.steps:
        step = len(losses)
        left = [device for device in devices if device.id not in leave_out.get(step, ())]
        if left != devices:
            params, devices = jax.device_put(params, replicated(left)), left
        try:
            params, loss = train_step(params, step, args.seed)
        except jax.errors.JaxRuntimeError as error:
            left = [device for device in devices if is_alive(params, device)]
            lost = [device.id for device in devices if device not in left]
            if not lost or not left:
                raise
            say(f"step {step}: lost device {lost[0]}: {str(error).partition(' [')[0]}")
            leave_out.setdefault(step, set()).update(lost)
            continue
        losses.append(loss)
        if len(losses) % 10 == 0:
            say(f"step {len(losses)}/{args.steps} on {len(devices)} devices, loss {loss:.4f}")
    if args.losses:
        pathlib.Path(args.losses).write_text("".join(f"{loss.hex()}\n" for loss in losses))


if __name__ == "__main__":
    main()
