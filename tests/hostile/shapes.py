"""Shapes that no array has, as parameters and as results."""

from __future__ import annotations

from typing import Any

from hostile.case import REFUSED, Case
from hostile.hlo import Computation, Instruction, Shape, f32, module_of, new, token, tuple_of
from hostile.structure import BIG, right

CASES: list[Case] = []


def shaped(
    name: str, tries: str, words: str, bad: Shape, expect: str = REFUSED, as_result: bool = False
) -> None:
    """A program that has a parameter of the shape, or whose root has it."""

    def build(c: Computation, x: Instruction) -> Instruction:
        return c.add("negate", bad, x)

    CASES.append(
        Case(
            name=f"shape-{name}",
            tries=tries,
            data=module_of(build, f32(4) if as_result else bad).SerializeToString(),
            expect=expect,
            words=words if expect == REFUSED else "",
            format="hlo",
        )
    )


def changed(made: Shape, **fields: Any) -> Shape:
    for name, value in fields.items():
        if isinstance(value, list):
            del getattr(made, name)[:]
            getattr(made, name).extend(value)
        else:
            setattr(made, name, value)
    return made


def laid_out(made: Shape, **fields: Any) -> Shape:
    changed(made.layout, **fields)
    return made


def nested(depth: int) -> Shape:
    made = f32(4)
    for _ in range(depth):
        made = tuple_of(made)
    return made


shaped(
    "of-2-to-the-80", "2^80 elements, which are 0 in 64 bits.", "larger than", f32(*[1 << 20] * 4)
)
shaped(
    "of-2-to-the-62",
    "2^62 floats, whose bytes are 0 in 64 bits.",
    "larger than",
    f32(1 << 31, 1 << 31),
)
shaped("of-2-to-the-63-minus-1", "The largest dimension.", "larger than", f32((1 << 63) - 1))
shaped("of-0-and-huge", "No element, of huge dimensions.", "larger than", f32(0, 1 << 62, 1 << 62))
shaped("of-minus-one", "A negative dimension.", "dimension", f32(-1))
shaped("of-the-most-negative", "The most negative dimension.", "dimension", f32(-(1 << 63)))
shaped(
    "of-two-negatives",
    "Two negative dimensions, whose product is positive.",
    "dimension",
    f32(-4, -4),
)
shaped("of-rank-1000", "1,000 dimensions.", "dimension", f32(*[1] * 1000))
shaped(
    "of-a-result-of-rank-1000",
    "1,000 dimensions of the result.",
    "dimension",
    f32(*[1] * 1000),
    as_result=True,
)
shaped(
    "of-no-type", "An element type that does not exist.", "type", changed(f32(4), element_type=0)
)
shaped("of-opaque", "An opaque value.", "element type", new("ShapeProto", element_type=14))
shaped(
    "of-a-token-with-dimensions",
    "A token of 4 elements.",
    "token",
    changed(token(), dimensions=[4]),
)
shaped(
    "of-a-tuple-with-dimensions",
    "A tuple of 4 elements.",
    "tuple",
    changed(tuple_of(f32(4)), dimensions=[4]),
)
shaped(
    "of-an-array-with-parts",
    "An array that has parts.",
    "parts",
    changed(f32(4), tuple_shapes=[f32(4)]),
)
shaped(
    "of-dynamic-dimensions",
    "A dynamic dimension.",
    "dynamic",
    changed(f32(4), is_dynamic_dimension=[True]),
)
shaped(
    "of-many-dynamic-flags",
    "More flags than dimensions.",
    "dynamic",
    changed(f32(4), is_dynamic_dimension=[False] * 9),
)
shaped(
    "laid-out-in-no-order",
    "A layout that is no permutation.",
    "layout",
    laid_out(f32(4, 4), minor_to_major=[0, 0]),
)
shaped(
    "laid-out-by-few",
    "A layout of fewer dimensions.",
    "layout",
    laid_out(f32(4, 4), minor_to_major=[0]),
)
shaped(
    "laid-out-by-many",
    "A layout of more dimensions.",
    "layout",
    laid_out(f32(4), minor_to_major=[0, 1, 2]),
)
shaped(
    "laid-out-by-minus-one",
    "A layout of negative dimensions.",
    "layout",
    laid_out(f32(4, 4), minor_to_major=[-1, 5]),
)
shaped(
    "laid-out-in-tiles",
    "A layout of tiles.",
    "layout",
    laid_out(f32(4, 4), tiles=[new("TileProto", dimensions=[3, 1 << 40])]),
)
shaped(
    "laid-out-in-tiles-of-0",
    "A layout of tiles of nothing.",
    "layout",
    laid_out(f32(4, 4), tiles=[new("TileProto", dimensions=[0])]),
)
shaped(
    "laid-out-in-memory-77",
    "A memory that does not exist.",
    "memory",
    laid_out(f32(4), memory_space=77),
)
shaped(
    "laid-out-in-1-bit", "Elements of one bit.", "layout", laid_out(f32(4), element_size_in_bits=1)
)
shaped(
    "laid-out-in-huge-elements",
    "Elements of 2^40 bits.",
    "layout",
    laid_out(f32(4), element_size_in_bits=1 << 40),
)
shaped(
    "laid-out-with-padding",
    "A tail of padding.",
    "layout",
    laid_out(f32(4), tail_padding_alignment_in_elements=1 << 40),
)
shaped(
    "laid-out-with-a-prefix",
    "Metadata before the array.",
    "field 15",
    laid_out(f32(4), dynamic_shape_metadata_prefix_bytes=1 << 40),
)
shaped("nested-50-times", "A tuple in a tuple, 50 times.", "", nested(50))


def deep() -> bytes:
    """A tuple 10,000 deep, written from the inside, since protobuf's own writer has a limit."""
    inner = f32(4).SerializeToString()
    for _ in range(10_000):
        size, varint = len(inner), b""
        while size > 127:
            varint, size = varint + bytes([size & 127 | 128]), size >> 7
        inner = b"\x10\x0d\x22" + varint + bytes([size]) + inner
    module = right()
    data = module.SerializeToString()
    size, varint = len(inner), b""
    while size > 127:
        varint, size = varint + bytes([size & 127 | 128]), size >> 7
    # Field 4 of the module, host_program_shape, whose field 2 is the result: merged into what is there.
    body = b"\x12" + varint + bytes([size]) + inner
    size, varint = len(body), b""
    while size > 127:
        varint, size = varint + bytes([size & 127 | 128]), size >> 7
    return bytes(data + b"\x22" + varint + bytes([size]) + body)


CASES.append(
    Case(
        "shape-nested-10000-times",
        "A tuple in a tuple, 10,000 times.",
        deep(),
        "fails",
        format="hlo",
    )
)
shaped(
    "of-a-result-that-is-a-tuple",
    "A tuple as the result of arithmetic.",
    "negate",
    tuple_of(f32(4)),
    as_result=True,
)
shaped(
    "of-a-result-that-is-large",
    "A result that is larger than its operand.",
    "negate",
    f32(BIG),
    as_result=True,
)
shaped(
    "of-a-result-of-a-terabyte", "A result of a terabyte.", "negate", f32(1 << 38), as_result=True
)
