"""Moves arrays from worker to worker through Gangway, for bench/transfer.py: one device per worker."""

from __future__ import annotations

import sys

import gangway

gangway.connect()

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402
from transfer_cases import MANY, MIB, PYTREE, SIZES, measure  # noqa: E402

UPLOADS = [64 * MIB]


def transfers(size_max: int = max(SIZES)) -> None:
    a, b = jax.devices()[:2]
    for size in [size for size in SIZES if size <= size_max]:
        x = jax.device_put(np.ones(size, "uint8"), a)
        x.block_until_ready()

        def one(x: jax.Array = x) -> None:
            jax.device_put(x, b).block_until_ready()

        def hops(x: jax.Array = x) -> None:
            for _ in range(4):
                x = jax.device_put(jax.device_put(x, b), a)
            x.block_until_ready()

        measure("one", size, one)
        if size_max == max(SIZES):
            measure("hops", size, hops, 8)
        del x
    for size, count in [item for item in MANY.items() if item[0] <= size_max]:
        xs = [jax.device_put(np.full(size, i, "uint8"), a) for i in range(count)]
        jax.block_until_ready(xs)

        def many(xs: list[jax.Array] = xs, count: int = count) -> None:
            jax.block_until_ready(jax.device_put(xs, [b] * count))

        measure(f"{count} at once", size, many, count)
        del xs


def meshes() -> None:
    """Many arrays, and one of their size, from a mesh of half of the devices to one of the others."""
    devices = jax.devices()
    half = len(devices) // 2
    here, there = (
        NamedSharding(Mesh(np.array(part), "x"), PartitionSpec("x"))
        for part in (devices[:half], devices[half:])
    )
    total = sum(PYTREE)
    for what, sizes in {"many": PYTREE, "whole": [total]}.items():
        xs = [jax.device_put(np.ones(size, "uint8"), here) for size in sizes]
        jax.block_until_ready(xs)

        def move(xs: list[jax.Array] = xs) -> None:
            jax.block_until_ready(jax.device_put(xs, there))

        measure(what, total, move)
        del xs, move


def client_bytes() -> None:
    device = jax.devices()[0]
    add = jax.jit(lambda v: v + 1, donate_argnums=0)
    for size in UPLOADS:
        host = np.ones(size, "uint8")

        def up(host: np.ndarray = host) -> None:
            jax.device_put(host, device).block_until_ready()

        measure("upload", size, up)
        fresh = [jax.device_put(host, device)]

        def down(fresh: list[jax.Array] = fresh) -> None:
            fresh[0] = add(fresh[0])  # a fetched array keeps its bytes: each fetch needs a new one
            np.asarray(fresh[0])

        measure("download", size, down)


if __name__ == "__main__":
    what = {
        "transfers": transfers,
        "some": lambda: transfers(16 * MIB),
        "meshes": meshes,
        "clients": client_bytes,
    }
    what[sys.argv[1]]()
