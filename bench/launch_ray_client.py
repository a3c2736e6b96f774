"""Chains of calls of Ray actors, for bench/launch_programs.py; runs in Ray's own venv.

    launch_ray_client.py ACTORS

One node is a call of each actor, which adds 1. Commands and answers are those of spmd_client.py, COUNT is of nodes, and
a case is one of chain_cases.py behind "tasks" or "graph".

tasks: calls of actors. The number stays in the actor, which takes less than half of the time of passing references.
graph: a program of N nodes is a compiled graph, in which N calls pass the number on. Executions that are not awaited do
not depend on each other, because a graph takes values only. Each graph has actors of its own: an actor runs one graph.
"""

from __future__ import annotations

import collections
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import chain_cases
import ray
import spmd_client
from ray.dag import InputNode, MultiOutputNode

IN_FLIGHT = 64  # executions of a compiled graph
STORE_BYTES = 512 << 20


@ray.remote(num_cpus=0)
class Adder:
    def __init__(self) -> None:
        self.x = 0

    def reset(self) -> None:
        self.x = 0

    def step(self) -> int:
        self.x += 1
        return self.x

    def add(self, x: int) -> int:
        return x + 1


def start(actors: int) -> list[Any]:
    actor: Any = Adder  # the decorator changes its type
    started = [actor.remote() for _ in range(actors)]
    ray.get([each.reset.remote() for each in started])
    return started


class Chains:
    def __init__(self, actors: int) -> None:
        self.count = actors
        self.actors = start(actors)
        self.graphs: dict[int, Any] = {}

    def make(self, case: str) -> Callable[[int], float]:
        engine, _, chain = case.partition(" ")
        wanted = chain_cases.parse(chain)
        make = {"tasks": self.tasks, "graph": self.graph}[engine](wanted)

        def run(count: int) -> float:
            ray.get([actor.reset.remote() for actor in self.actors])
            began = time.perf_counter()
            counted = make(chain_cases.blocks(count, wanted.nodes))
            took = time.perf_counter() - began
            chain_cases.check(count, counted)
            return took

        run(wanted.nodes)
        return run

    def tasks(self, wanted: chain_cases.ChainCase) -> Callable[[list[int]], list[int]]:
        def make(blocks: list[int]) -> list[int]:
            last: list[Any] = []
            for nodes in blocks:
                for _ in range(nodes):
                    last = [actor.step.remote() for actor in self.actors]
                if wanted.is_awaited:
                    ray.get(last)
            return ray.get(last)

        return make

    def compiled(self, nodes: int) -> Any:
        if nodes not in self.graphs:
            actors = start(self.count)
            with InputNode() as first:
                xs = [first] * self.count
                for _ in range(nodes):
                    xs = [actor.add.bind(x) for actor, x in zip(actors, xs, strict=True)]
                graph = MultiOutputNode(xs)
            self.graphs[nodes] = graph.experimental_compile(_max_inflight_executions=IN_FLIGHT)
        return self.graphs[nodes]

    def graph(self, wanted: chain_cases.ChainCase) -> Callable[[list[int]], list[int]]:
        compiled = self.compiled(wanted.nodes)

        def awaited(blocks: list[int]) -> list[int]:
            xs = [0]
            for _ in blocks:
                xs = ray.get(compiled.execute(xs[0]))
            return xs

        def independent(blocks: list[int]) -> list[int]:
            in_flight: collections.deque[Any] = collections.deque()
            made = 0
            for nodes in blocks:
                in_flight.append(compiled.execute(made))
                made += nodes
                if len(in_flight) == IN_FLIGHT:
                    ray.get(in_flight.popleft())
            return [ray.get(each) for each in in_flight][-1]

        return awaited if wanted.is_awaited else independent


def main(actors: str) -> None:
    ray.init(
        num_cpus=int(actors),
        object_store_memory=STORE_BYTES,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=tempfile.gettempdir(),
    )
    spmd_client.answer_commands(Chains(int(actors)).make)
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
