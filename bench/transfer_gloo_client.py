"""Moves arrays from process to process by JAX's gloo collectives, for bench/transfer.py: two processes of one device,
a jitted ppermute from the first to the second. Arguments: the coordinator's address, this process's number.
"""

from __future__ import annotations

import contextlib
import io
import sys

import jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))

import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402
from transfer_cases import MANY, MIB, SIZES, measure  # noqa: E402

ROUND_CALLS = {size: max(1, min(200, 24 * MIB // size)) for size in SIZES}


def main() -> None:
    mesh = Mesh(np.array(jax.devices()), ("p",))
    sharding = NamedSharding(mesh, PartitionSpec("p"))

    def move(*xs: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jax.lax.ppermute(x, "p", [(0, 1)]) for x in xs)

    spec = PartitionSpec("p")
    for size, count in [(size, 1) for size in SIZES] + list(MANY.items()):
        if size * count > 256 * MIB:
            continue  # would take over a minute
        moved = jax.jit(jax.shard_map(move, mesh=mesh, in_specs=spec, out_specs=spec))
        xs = [
            jax.make_array_from_process_local_data(sharding, np.ones(size, "uint8"))
            for _ in range(count)
        ]

        def run(xs: list[jax.Array] = xs, moved: jax.stages.Wrapped = moved) -> None:
            jax.block_until_ready(moved(*xs))

        what = "one" if count == 1 else f"{count} at once"
        quiet = contextlib.redirect_stdout(io.StringIO() if jax.process_index() else sys.stdout)
        with quiet:
            measure(what, size, run, count, calls=max(1, ROUND_CALLS[size] // count))


if __name__ == "__main__":
    main()
