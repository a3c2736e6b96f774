"""Moves arrays from actor to actor through Ray's object store, for bench/transfer.py; runs in Ray's own venv."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import ray
from transfer_cases import MANY, MIB, SIZES, measure


@ray.remote(num_cpus=0)
class Holder:
    def __init__(self) -> None:
        self.array = np.ones(1, "uint8")
        self.room = np.ones(1, "uint8")

    def make(self, size: int) -> None:
        self.array, self.room = np.ones(size, "uint8"), np.ones(size, "uint8")

    def give(self) -> np.ndarray:
        return self.array  # Ray puts it in the store

    def give_ref(self) -> list[Any]:
        return [ray.put(self.array)]

    def view(self, *arrays: np.ndarray) -> int:
        return sum(int(array[0]) + int(array[-1]) for array in arrays)

    def view_ref(self, refs: list[Any]) -> int:
        return self.view(ray.get(refs[0]))

    def copied(self, *arrays: np.ndarray) -> None:
        for array in arrays:
            np.copyto(self.room, array)  # into warm memory


def main(folder: str) -> None:
    ray.init(
        num_cpus=2,
        object_store_memory=2048 * MIB,
        include_dashboard=False,
        logging_level="ERROR",
        _temp_dir=folder,
    )
    actor: Any = Holder  # the decorator changes its type
    a, b = actor.remote(), actor.remote()
    for size in SIZES:
        ray.get([a.make.remote(size), b.make.remote(size)])
        measure("one, view", size, lambda: ray.get(b.view.remote(a.give.remote())))
        measure(
            "one, view, put and get", size, lambda: ray.get(b.view_ref.remote(a.give_ref.remote()))
        )
        measure("one, copied", size, lambda: ray.get(b.copied.remote(a.give.remote())))
    for size, count in MANY.items():
        ray.get([a.make.remote(size), b.make.remote(size)])

        def many(function: Any, count: int = count) -> None:
            ray.get(function.remote(*[a.give.remote() for _ in range(count)]))

        measure(f"{count} at once, view", size, lambda: many(b.view), count)  # noqa: B023
        measure(f"{count} at once, copied", size, lambda: many(b.copied), count)  # noqa: B023
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
