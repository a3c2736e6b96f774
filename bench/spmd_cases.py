"""The names, sizes and repetitions of bench/spmd.py's cases, which its clients read as well. Standard library only.

A case is a line of words: "scalar one", "scalar awaited" (bench/launch.py's), "scalar chain", "scalar fused",
"OPERATION BYTES", "OPERATION BYTES uploaded", "step SHARDING", "step SHARDING awaited", "example", "compile SHARDING",
"load SHARDING", "chain" (of nodes: bench/launch_programs.py's).

The bytes of a collective are those of the larger one of a device's operand and its result: of an all-gather, the
result; of a reduce-scatter, the operand. Its algorithm bandwidth is these bytes over the time.
"""

from __future__ import annotations

KIB, MIB = 1 << 10, 1 << 20
CHAIN = 128  # scalar all-reduces + additions in one chain, or in one program
SCALARS = ("scalar one", "scalar chain", "scalar fused")
OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute")
SIZES = (64 * KIB, MIB, 16 * MIB, 64 * MIB)
# Also with operands that were uploaded, and that no program has made.
UPLOADED = (("reduce-scatter", MIB), ("all-gather", 16 * MIB), ("reduce-scatter", 16 * MIB))
# One after the other in one program, so that what a call costs does not hide what a collective costs.
REPEATED = {64 * KIB: 64, MIB: 16, 16 * MIB: 4, 64 * MIB: 2}
IN_FLIGHT = 2  # calls whose results are memory of their own
SHARDINGS = ("tp", "fsdp", "sp", "mix")


def of_clients() -> list[str]:
    """All cases that a JAX client knows."""
    cases = [*SCALARS, "example"]
    cases += [f"{operation} {size}" for operation in OPERATIONS for size in SIZES]
    cases += [f"{operation} {size} uploaded" for operation, size in UPLOADED]
    for sharding in SHARDINGS:
        step = f"step {sharding}"
        cases += [step, f"{step} awaited", f"compile {sharding}", f"load {sharding}"]
    return cases


def size_name(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def units(case: str) -> int:
    """What one call of the case is worth: computations, collectives, copies, or steps."""
    words = case.split()
    if words[0] == "scalar":
        return 1 if words[1] in ("one", "awaited") else CHAIN
    if words[0] == "chain":
        return CHAIN
    return REPEATED[int(words[1])] if words[0] in (*OPERATIONS, "copy") else 1


def copied_bytes(operation: str, size: int, devices: int) -> float:
    """The traffic that all devices together need at least, in bytes of a copy, which reads and writes each of them: each
    operand is read once, and each result is written once.
    """
    if operation in ("all-gather", "reduce-scatter"):
        return (devices * size + size) / 2
    return devices * size
