"""Chains of calls of Monarch's actors, for bench/launch_programs.py; runs in Monarch's own venv.

    launch_monarch_client.py PROCESSES

One node is one call of an endpoint of an actor on each process, which adds 1 to its number. An awaited call is a `call`
whose answer is waited for; what is not awaited is broadcast, which has no answer, and Monarch delivers in order.
Commands and answers are those of spmd_client.py, COUNT is of nodes, and cases are those of chain_cases.py.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import chain_cases
import spmd_client
from monarch.actor import Actor, endpoint, this_host


class Adder(Actor):
    def __init__(self) -> None:
        self.x = 0

    @endpoint
    async def add(self) -> int:
        self.x += 1
        return self.x

    @endpoint
    async def reset(self) -> None:
        self.x = 0


def make(actors: Any, case: str) -> Callable[[int], float]:
    wanted = chain_cases.parse(case)

    def block(nodes: int) -> list[int]:
        for _ in range(nodes - 1):
            actors.add.broadcast()
        return list(actors.add.call().get().values())

    def run(count: int) -> float:
        actors.reset.call().get()
        began = time.perf_counter()
        for nodes in chain_cases.blocks(count, wanted.nodes if wanted.is_awaited else count):
            counted = block(nodes)
        took = time.perf_counter() - began
        chain_cases.check(count, counted)
        return took

    run(wanted.nodes)
    return run


def main(processes: str) -> None:
    mesh = this_host().spawn_procs(per_host={"processes": int(processes)})
    actors = mesh.spawn("adder", Adder)
    actors.reset.call().get()
    spmd_client.answer_commands(lambda case: make(actors, case))
    mesh.stop().get()


if __name__ == "__main__":
    main(*sys.argv[1:])
