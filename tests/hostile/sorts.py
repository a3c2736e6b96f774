"""Comparators that are no strict order: XLA's sort reads and writes outside its buffers with some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hostile.case import HARMLESS, Case
from hostile.hlo import Computation, Instruction, f32, module_of, pred, s32, shape, tuple_of

SIZES = (0, 17, 1_000, 100_000)
Order = Callable[[Computation, Instruction, Instruction], object]


def compared(direction: str) -> Order:
    def order(c: Computation, a: Instruction, b: Instruction) -> object:
        return c.add("compare", pred(), a, b, comparison_direction=direction)

    return order


def always(value: bool) -> Order:
    def order(c: Computation, a: Instruction, b: Instruction) -> object:
        return c.constant(pred(), value)

    return order


def of_one_side(c: Computation, a: Instruction, b: Instruction) -> object:
    """True for every negative left side."""
    return c.add("compare", pred(), a, c.constant(f32(), 2.0), comparison_direction="LT")


def by_mixed_bits(c: Computation, a: Instruction, b: Instruction) -> object:
    """A truth value that looks drawn by chance, the same for the same two values."""
    bits = [c.add("bitcast-convert", shape("u32"), each) for each in (a, b)]
    factor = c.constant(shape("u32"), 2654435761)
    left = c.add("multiply", shape("u32"), bits[0], factor)
    mixed = c.add("xor", shape("u32"), left, bits[1])
    mixed = c.add("multiply", shape("u32"), mixed, factor)
    high = c.add("shift-right-logical", shape("u32"), mixed, c.constant(shape("u32"), 31))
    return c.add("compare", pred(), high, c.constant(shape("u32"), 0), comparison_direction="NE")


def in_a_circle(c: Computation, a: Instruction, b: Instruction) -> object:
    """0 < 1 < 2 < 3 < 4 < 0: each is less than the next, and no order is transitive."""
    n = c.constant(f32(), 5.0)
    next_ = c.add("remainder", f32(), c.add("add", f32(), a, c.constant(f32(), 1.0)), n)
    return c.add("compare", pred(), next_, b, comparison_direction="EQ")


def by_a_random_number(c: Computation, a: Instruction, b: Instruction) -> object:
    """Another truth value at each call, where the backend has such numbers."""
    zero, one = c.constant(f32(), 0.0), c.constant(f32(), 1.0)
    drawn = c.add("rng", f32(), zero, one, distribution=1)
    return c.add("compare", pred(), drawn, c.constant(f32(), 0.5), comparison_direction="LT")


ORDERS: dict[str, Order] = {
    "le": compared("LE"),
    "ge": compared("GE"),
    "ne": compared("NE"),
    "eq": compared("EQ"),
    "true": always(True),
    "false": always(False),
    "one-side": of_one_side,
    "mixed-bits": by_mixed_bits,
    "circle": in_a_circle,
    "random": by_a_random_number,
}


def program(order: Order, size: int, stable: bool) -> bytes:
    def build(c: Computation, x: Instruction) -> Instruction:
        comparator = c.module.computation("order")
        a, b = comparator.parameter(0, f32()), comparator.parameter(1, f32())
        order(comparator, a, b)
        return c.add("sort", f32(size), x, dimensions=[0], is_stable=stable, calls=[comparator])

    return bytes(module_of(build, f32(size)).SerializeToString())


def pairs(size: int) -> bytes:
    """Keys and values, ordered by the values' equality with the keys of another element."""

    def build(c: Computation, x: Instruction, y: Instruction) -> Instruction:
        comparator = c.module.computation("order")
        a, b = comparator.parameter(0, f32()), comparator.parameter(1, f32())
        i, j = comparator.parameter(2, s32()), comparator.parameter(3, s32())
        left = comparator.add("compare", pred(), a, b, comparison_direction="LE")
        right = comparator.add("compare", pred(), j, i, comparison_direction="LE")
        comparator.add("or", pred(), left, right)
        result = tuple_of(f32(size), s32(size))
        return c.add("sort", result, x, y, dimensions=[0], calls=[comparator])

    return bytes(module_of(build, f32(size), s32(size)).SerializeToString())


def sorts() -> Iterator[Case]:
    for name, order in ORDERS.items():
        for size in SIZES if name in ("le", "true", "mixed-bits") else (1_000,):
            for stable in (False, True) if size == 1_000 else (False,):
                yield Case(
                    name=f"sort-{name}-of-{size}{'-stable' if stable else ''}",
                    tries=f"A sort of {size} numbers whose comparator is no strict order.",
                    data=program(order, size, stable),
                    expect=HARMLESS,
                    format="hlo",
                )
    yield Case(
        name="sort-le-of-one-value",
        tries="A sort of equal numbers, each of which is less than or equal to the others.",
        data=program(ORDERS["le"], 100_000, False),
        expect=HARMLESS,
        format="hlo",
        fill=0,
    )
    yield Case(
        name="sort-le-of-nans",
        tries="A sort of NaN.",
        data=program(ORDERS["ge"], 10_000, False),
        expect=HARMLESS,
        format="hlo",
        fill=255,
    )
    yield Case(
        name="sort-of-pairs-by-either",
        tries="A sort of pairs by two conditions of which one always holds.",
        data=pairs(10_000),
        expect=HARMLESS,
        format="hlo",
    )


CASES = list(sorts())
