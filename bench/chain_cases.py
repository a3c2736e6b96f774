"""The cases of chains of nodes, which the clients of bench/launch_programs.py read as well; as in chain_cases.h. Standard
library only.

A chain is made of single calls, or of programs of N nodes, and each node takes the result of the one before it:
"single", "single awaited", "program N", "program N awaited". An awaited call or program is waited for before the next
one begins. A peer without programs makes N single calls in place of one.
"""

from __future__ import annotations

import dataclasses

CHAIN = 128  # nodes
SIZES = (1, 8, 128)  # nodes of a program


@dataclasses.dataclass(frozen=True)
class ChainCase:
    nodes: int  # of a program; of a single call, 1
    is_awaited: bool


def parse(case: str) -> ChainCase:
    kind, *rest = case.split()
    is_awaited = rest[-1:] == ["awaited"]
    sizes = rest[:-1] if is_awaited else rest
    if (kind, len(sizes)) == ("single", 0):
        return ChainCase(1, is_awaited)
    if (kind, len(sizes)) == ("program", 1) and int(sizes[0]) > 0:
        return ChainCase(int(sizes[0]), is_awaited)
    raise ValueError(f"not a case of chains: {case}")


def all_cases() -> list[str]:
    kinds = ["single", *(f"program {size}" for size in SIZES)]
    return kinds + [f"{kind} awaited" for kind in kinds]


def blocks(count: int, nodes: int) -> list[int]:
    """What `count` nodes are made of, in blocks of `nodes`, of which it is a multiple."""
    if count % nodes:
        raise SystemExit(f"{count} nodes are not made of blocks of {nodes}")
    return [nodes] * (count // nodes)


def check(made: int, counted: list[int]) -> None:
    """Ends the client unless each number, to which each node adds 1, says how many nodes were made."""
    if any(each != made for each in counted):
        raise SystemExit(f"{made} nodes counted to {counted}")
