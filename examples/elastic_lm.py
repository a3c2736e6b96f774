"""Trains the language model of train_lm.py on one island. When that island is lost, the script continues from
its last checkpoint on another island, and returns when the first island is back.

    gangway run examples/elastic_lm.py --checkpoint state.npz    # then kill a worker while it runs

The loss is an error (DATA_LOSS) on the arrays of that island only: the script and the arrays on other islands
survive. `pathwaysutils.elastic` catches the error, checks which islands answer, and calls `train` again.
"""

import argparse
import logging
import os
import pathlib
import time
from typing import Any

import jax
import numpy as np
import train_lm as lm
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from pathwaysutils.elastic import manager


def save(path: pathlib.Path, done: int, tree: Any) -> None:
    values = jax.device_get(jax.tree.leaves(tree))
    part = path.with_suffix(".part.npz")
    np.savez(part, *values, done=done)
    os.replace(part, path)  # atomic: the checkpoint is always complete


def restore(path: pathlib.Path, tree: Any) -> tuple[int, Any]:
    """Returns the number of completed steps and the saved tree, sharded like `tree`."""
    if not path.exists():
        return 0, tree
    saved = np.load(path)
    leaves, structure = jax.tree.flatten(tree)
    shardings = [leaf.sharding if leaf.committed else None for leaf in leaves]
    values = [jax.device_put(saved[f"arr_{i}"], s) for i, s in enumerate(shardings)]
    return int(saved["done"]), jax.tree.unflatten(structure, values)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a small language model that survives lost islands."
    )
    parser.add_argument("--checkpoint", type=pathlib.Path, required=True, help="a file (.npz)")
    parser.add_argument("--every", type=int, default=5, help="steps between checkpoints")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=16, help="sequences per step")
    parser.add_argument("--rate", type=float, default=4e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--losses", help="write each step's loss to this file")
    return parser.parse_args()


def main() -> None:
    args, model, text = parse_args(), lm.Model(), lm.standard_library()
    logging.getLogger("pathwaysutils").setLevel(logging.CRITICAL)  # its logs repeat our output
    elastic = manager.Manager()
    losses = np.zeros(args.steps)
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:5.1f} s  {what}", flush=True)

    def train_on(island: int) -> None:
        mesh = lm.make_mesh(list(elastic.slice_to_devices[island]), model.heads)
        start, step = lm.make_training(args, model, mesh)
        done, state = restore(args.checkpoint, start())
        say(f"island {island}: resumes after step {done}" if done else f"island {island}: starts")
        while done < args.steps:
            if any(other < island for other in elastic.available_inactive_slices):
                say(f"island {min(elastic.available_inactive_slices)} is back")
                save(args.checkpoint, done, state)
                raise manager.ScaleUpSignalError
            rng = np.random.default_rng((args.seed, done))  # the same batches after a restore
            batch = lm.sample_batch(rng, text, args.batch, model.context)
            batch = jax.device_put(batch, NamedSharding(mesh, P("data")))
            *state, loss = step(*state, batch)
            losses[done] = float(loss)
            done += 1
            if done % args.every == 0:
                save(args.checkpoint, done, state)
                say(f"island {island}: step {done}/{args.steps}, loss {loss:.3f}")

    @elastic.elastic_retry(minimum_slice_count=1, poll_interval=1)
    def train() -> None:
        island = min(elastic.active_slice_indices)
        try:
            train_on(island)
        except jax.errors.JaxRuntimeError as error:
            say(f"island {island} is lost: {str(error).partition(' [')[0]}")
            raise

    train()
    elastic.close()
    if args.losses:
        pathlib.Path(args.losses).write_text("".join(f"{loss.hex()}\n" for loss in losses))


if __name__ == "__main__":
    main()
