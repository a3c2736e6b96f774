"""The sizes, rounds and measuring function of bench/transfer.py and its clients. Needs the standard library only."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

KIB, MIB = 1 << 10, 1 << 20
SIZES = [KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB]
MANY = {KIB: 64, 64 * KIB: 64, MIB: 64, 16 * MIB: 16, 64 * MIB: 4}  # bytes -> arrays at once
# Of the arrays that move from one mesh to another: together half a GiB.
PYTREE = [max(KIB, MIB * i // 1000 // KIB * KIB) for i in range(1, 1001)]
ROUNDS = 7
ROUND_S = 0.12


def name(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def measure(
    what: str, size: int, run: Callable[[], object], arrays: int = 1, calls: int | None = None
) -> None:
    """Prints GB/s of ROUNDS rounds of `run`, which moves `arrays` arrays of `size` bytes. A trial determines `calls`
    per round, unless it is given because several processes must agree on it.
    """
    run()
    began = time.perf_counter()
    run()
    calls = calls or max(1, int(ROUND_S / max(time.perf_counter() - began, 1e-7)))
    values = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(calls):
            run()
        values.append(size * arrays * calls / (time.perf_counter() - began) / 1e9)
    print(json.dumps({"case": f"{what} {name(size)}", "values": values}))
    sys.stdout.flush()
