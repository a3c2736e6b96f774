"""Computations that call one another too deeply, too often, or in a circle."""

from __future__ import annotations

from hostile.case import BOUNDED, FAILS, REFUSED, Case
from hostile.hlo import Computation, Module, f32, pred


def calls_in_a_row(depth: int, each: int) -> bytes:
    """`depth` functions of which each calls the next `each` times."""
    module = Module()
    below: Computation | None = None
    for level in range(depth):
        made = module.computation(f"level{level}")
        value = made.parameter(0, f32())
        for _ in range(each if below else 0):
            assert below
            value = made.add("call", f32(), value, calls=[below])
        made.add("negate", f32(), value)
        below = made
    assert below
    x = module.entry.parameter(0, f32())
    module.entry.add("call", f32(), x, calls=[below])
    return bytes(module.finish().SerializeToString())


def whiles_in_a_row(depth: int) -> bytes:
    module = Module()
    below: Computation | None = None
    test = module.computation("test")
    test.parameter(0, f32())
    test.constant(pred(), False)
    for level in range(depth):
        made = module.computation(f"level{level}")
        value = made.parameter(0, f32())
        if below:
            value = made.add("while", f32(), value, calls=[below, test])
        made.add("negate", f32(), value)
        below = made
    assert below
    x = module.entry.parameter(0, f32())
    module.entry.add("while", f32(), x, calls=[below, test])
    return bytes(module.finish().SerializeToString())


def mutual() -> bytes:
    module = Module()
    first, second = module.computation("first"), module.computation("second")
    first.add("call", f32(), first.parameter(0, f32()), calls=[second])
    second.add("call", f32(), second.parameter(0, f32()), calls=[first])
    module.entry.add("call", f32(), module.entry.parameter(0, f32()), calls=[first])
    return bytes(module.finish().SerializeToString())


CASES = [
    Case(
        "calls-of-each-other",
        "Two functions that call each other.",
        mutual(),
        REFUSED,
        "which it calls",
        "hlo",
    ),
    Case(
        "calls-that-double-64-times",
        "A function that calls one twice, 64 times over: 2^64 calls.",
        calls_in_a_row(64, 2),
        FAILS,
        format="hlo",
    ),
    Case(
        "calls-that-double-12-times",
        "The same, 12 times over.",
        calls_in_a_row(12, 2),
        BOUNDED,
        format="hlo",
    ),
    Case(
        "calls-10000-deep",
        "Functions that call one another, 10,000 deep.",
        calls_in_a_row(10_000, 1),
        FAILS,
        format="hlo",
    ),
    Case(
        "whiles-1000-deep",
        "Loops in one another, 1,000 deep.",
        whiles_in_a_row(1000),
        FAILS,
        format="hlo",
    ),
    Case(
        "whiles-100-deep",
        "Loops in one another, 100 deep: XLA's passes take time with the cube of that.",
        whiles_in_a_row(100),
        REFUSED,
        "nested deeper than 64",
        "hlo",
    ),
    Case(
        "whiles-60-deep",
        "Loops in one another, 60 deep.",
        whiles_in_a_row(60),
        BOUNDED,
        format="hlo",
    ),
]
