"""Programs that are right by the rules of HLO, where compilers have had holes: windows that lie in the padding, indices of
narrow types, elements of less than a byte, arrays without elements, and many operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hostile.case import HARMLESS, Case
from hostile.hlo import Computation, Instruction, Shape, f32, module_of, pred, s32, shape, tuple_of

CASES: list[Case] = []
Build = Callable[..., Any]
ONE = {"size": 1, "stride": 1, "window_dilation": 1, "base_dilation": 1}


def corner(
    name: str, tries: str, parameters: Sequence[Shape], build: Build, fills: Sequence[int] = (-1,)
) -> None:
    for fill in fills:
        suffix = f"-{fill}" if len(fills) > 1 else ""
        CASES.append(
            Case(
                f"corner-{name}{suffix}",
                tries,
                module_of(build, *parameters).SerializeToString(),
                HARMLESS,
                format="hlo",
                fill=fill,
            )
        )


def window(**fields: int) -> dict[str, Any]:
    return {"dimensions": [{**ONE, **fields}]}


def order_of(c: Computation, scalar: Shape) -> Computation:
    made = c.module.computation("order")
    a, b = made.parameter(0, scalar), made.parameter(1, scalar)
    made.add("compare", pred(), a, b, comparison_direction="LT")
    return made


def column_major(of: Shape) -> Shape:
    rank = len(of.dimensions)
    del of.layout.minor_to_major[:]
    of.layout.minor_to_major.extend([rank - 2, rank - 1, *reversed(range(rank - 2))])
    return of


def lapack(c: Computation, x: Instruction, matrices: Shape, info: Shape) -> Instruction:
    made = c.add(
        "custom-call",
        tuple_of(column_major(matrices), info),
        x,
        custom_call_target="lapack_spotrf_ffi",
        custom_call_api_version=4,
        backend_config=b"{uplo = 76 : ui8}",
        constrain_layout=True,
    )
    made.operand_shapes_with_layout.append(matrices)
    return made


def select_and_scatter(size: int, low: int, high: int) -> Build:
    def build(c: Computation, x: Instruction, source: Instruction) -> Instruction:
        zero = c.constant(f32(), 0.0)
        calls = [c.module.compares("GE"), c.module.binary("add")]
        return c.add(
            "select-and-scatter",
            f32(16),
            x,
            source,
            zero,
            window=window(size=size, padding_low=low, padding_high=high),
            calls=calls,
        )

    return build


corner(
    "window-in-the-padding",
    "Select from windows of which some lie in the padding alone, and scatter to what was selected.",
    [f32(16), f32(34)],
    select_and_scatter(3, 10, 10),
    (-1, 255),
)
for kind, fills in (("s8", (127, 255)), ("u8", (127, 255)), ("u64", (255,)), ("u32", (255,))):
    corner(
        f"dynamic-slice-by-{kind}",
        f"A dynamic slice of a long array by an index of type {kind}.",
        [f32(1024), shape(kind)],
        lambda c, x, i: c.add("dynamic-slice", f32(1000), x, i, dynamic_slice_sizes=[1000]),
        fills,
    )
    corner(
        f"dynamic-update-slice-by-{kind}",
        f"A dynamic update of a long array by an index of type {kind}.",
        [f32(1024), f32(1000), shape(kind)],
        lambda c, x, u, i: c.add("dynamic-update-slice", f32(1024), x, u, i),
        fills,
    )
    corner(
        f"gather-by-{kind}",
        f"A gather from a long array by indices of type {kind}.",
        [f32(1024), shape(kind, 300, 1)],
        lambda c, x, i: c.add(
            "gather",
            f32(300, 500),
            x,
            i,
            gather_slice_sizes=[500],
            gather_dimension_numbers={
                "offset_dims": [1],
                "start_index_map": [0],
                "index_vector_dim": 1,
            },
        ),
        fills,
    )
    corner(
        f"scatter-by-{kind}",
        f"A scatter into a long array by indices of type {kind}.",
        [f32(1024), shape(kind, 300, 1), f32(300, 500)],
        lambda c, x, i, u: c.add(
            "scatter",
            f32(1024),
            x,
            i,
            u,
            calls=[c.module.binary("add")],
            scatter_dimension_numbers={
                "update_window_dims": [1],
                "scatter_dims_to_operand_dims": [0],
                "index_vector_dim": 1,
            },
        ),
        fills,
    )
for kind, number in (("s4", 21), ("u4", 22), ("s2", 26), ("u2", 27)):

    def small(*dims: int, number: int = number) -> Shape:
        made = shape("u8", *dims)
        made.element_type = number
        return made

    corner(
        f"odd-count-of-{kind}",
        f"Arithmetic and slices of an odd number of elements of {kind}.",
        [small(7), small(7)],
        lambda c, x, y, small=small: c.add(
            "slice",
            small(3),
            c.add("add", small(7), x, y),
            slice_dimensions=[{"start": 3, "limit": 6, "stride": 1}],
        ),
        (255,),
    )
    corner(
        f"update-of-{kind}-at-odd-places",
        f"A dynamic update of elements of {kind} in the middle of a byte.",
        [small(15), small(3), s32()],
        lambda c, x, u, i, small=small: c.add("dynamic-update-slice", small(15), x, u, i),
        (127,),
    )
    corner(
        f"sort-of-{kind}",
        f"A sort of elements of {kind}.",
        [small(31)],
        lambda c, x, small=small: c.add(
            "sort", small(31), x, dimensions=[0], calls=[order_of(c, small())]
        ),
        (255,),
    )
    corner(
        f"cast-of-{kind}",
        f"Bytes as elements of {kind}, and back.",
        [shape("s32", 3)],
        lambda c, x, small=small, bits=int(kind[1]): c.add(
            "bitcast-convert",
            shape("s32", 3),
            c.add("bitcast-convert", small(3, 32 // bits), x),
        ),
    )


def nothing(
    name: str, opcode: str, result: Shape, parameters: Sequence[Shape], **fields: Any
) -> None:
    corner(
        f"{name}-of-nothing",
        f"A {opcode} of arrays without elements.",
        parameters,
        lambda c, *x: c.add(opcode, result, *x, **fields),
    )


EMPTY = f32(0, 4)
nothing("transpose", "transpose", f32(4, 0), [EMPTY], dimensions=[1, 0])
nothing("cholesky", "cholesky", f32(0, 0), [f32(0, 0)], cholesky_options={"lower": True})
nothing(
    "triangular-solve",
    "triangular-solve",
    f32(0, 4),
    [f32(0, 0), f32(0, 4)],
    triangular_solve_options={"left_side": True, "transpose_a": 1},
)
nothing("fft", "fft", shape("c64", 0), [shape("c64", 0)], fft_type=0, fft_length=[0])
nothing(
    "dot",
    "dot",
    f32(4, 4),
    [f32(4, 0), f32(0, 4)],
    dot_dimension_numbers={"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [0]},
)
nothing("concatenate", "concatenate", EMPTY, [EMPTY, EMPTY], dimensions=[0])
corner(
    "lapack-of-nothing",
    "A factorization of no matrices, whose layouts are given: XLA divides by their size.",
    [f32(0, 3, 3)],
    lambda c, x: lapack(c, x, f32(0, 3, 3), s32(0)),
)
corner(
    "lapack-of-matrices-of-nothing",
    "A factorization of matrices without elements.",
    [f32(2, 0, 0)],
    lambda c, x: lapack(c, x, f32(2, 0, 0), s32(2)),
)


EIGEN = {
    "kernel_output_feature_dimension": 3,
    "kernel_input_feature_dimension": 2,
    "kernel_spatial_dimensions": [0, 1],
    "input_feature_dimension": 3,
    "output_feature_dimension": 3,
    "input_spatial_dimensions": [1, 2],
    "output_spatial_dimensions": [1, 2],
}


def convolved(name: str, tries: str, **fields: int) -> None:
    corner(
        f"convolution-{name}",
        tries,
        [f32(1, 8, 8, 1), f32(1, 1, 1, 1)],
        lambda c, x, k: c.add(
            "convolution",
            f32(1, 8, 8, 1),
            x,
            k,
            window={"dimensions": [{**ONE, **fields}] * 2},
            convolution_dimension_numbers=EIGEN,
            feature_group_count=1,
            batch_group_count=1,
        ),
    )


convolved(
    "shifted-by-a-terabyte",
    "A convolution whose padding is huge on one side, and as negative on the other.",
    padding_low=1 << 40,
    padding_high=-(1 << 40),
)
convolved(
    "shifted-by-4-GiB",
    "The same by 2^32, which is 0 in 32 bits.",
    padding_low=-(1 << 32),
    padding_high=1 << 32,
)
convolved(
    "dilated-by-a-terabyte", "A window of one that is dilated hugely.", window_dilation=1 << 50
)
for distance in (1 << 32, 1 << 61):
    corner(
        f"pad-shifted-by-{distance}",
        "Padding that is huge on one side, and as negative on the other.",
        [f32(4), f32()],
        lambda c, x, p, distance=distance: c.add(
            "pad",
            f32(4),
            x,
            p,
            padding_config={
                "dimensions": [{"edge_padding_low": -distance, "edge_padding_high": distance}]
            },
        ),
    )
corner(
    "pad-with-huge-gaps",
    "Gaps of 2^40 between elements, cut down to two elements.",
    [f32(2), f32()],
    lambda c, x, p: c.add(
        "pad",
        f32(2),
        x,
        p,
        padding_config={
            "dimensions": [{"edge_padding_low": -(1 << 40), "interior_padding": 1 << 40}]
        },
    ),
)
corner(
    "window-shifted-by-a-terabyte",
    "A window over numbers that are all in the padding.",
    [f32(4)],
    lambda c, x: c.add(
        "reduce-window",
        f32(4),
        x,
        c.constant(f32(), 0.0),
        window=window(padding_low=1 << 40, padding_high=-(1 << 40)),
        calls=[c.module.binary("add")],
    ),
)


def sort_of_many(c: Computation, *x: Instruction) -> Instruction:
    order = c.module.computation("order")
    given = [order.parameter(i, f32()) for i in range(2 * len(x))]
    order.add("compare", pred(), given[0], given[1], comparison_direction="LT")
    return c.add("sort", tuple_of(*[f32(500)] * len(x)), *x, dimensions=[0], calls=[order])


corner(
    "sort-of-60-arrays", "A sort of 60 arrays by the first.", [f32(500)] * 60, sort_of_many, (255,)
)


def inside(opcode: str, result: Shape, takes: bool, **fields: Any) -> Build:
    """A reduction by a function that holds the instruction."""

    def build(c: Computation, x: Instruction) -> Instruction:
        function = c.module.computation("function")
        a, b = function.parameter(0, f32()), function.parameter(1, f32())
        made = function.add(opcode, result, *([a] if takes else []), **fields)
        function.add("add", f32(), a, b if result != f32() else made)
        return c.add("reduce", f32(), x, c.constant(f32(), 0.0), dimensions=[0], calls=[function])

    return build


corner(
    "reduction-by-a-callback",
    "A reduction whose function calls the client's process for each pair.",
    [f32(4)],
    inside(
        "custom-call",
        f32(),
        takes=True,
        custom_call_target="xla_ffi_python_cpu_callback",
        custom_call_api_version=4,
        backend_config=b"{index = 1 : ui64}",
    ),
)
corner(
    "reduction-by-a-collective",
    "A reduction whose function waits for other devices.",
    [f32(4)],
    inside("replica-id", shape("u32"), takes=False),
)


def joined(c: Computation, x: Instruction, y: Instruction) -> Instruction:
    both = shape("u8", 24)
    both.element_type = x.shape.element_type
    return c.add("concatenate", both, x, y, dimensions=[0])


for kind, number in (("s4", 21), ("s2", 26), ("u1", 31)):
    parts = [shape("u8", 8), shape("u8", 16)]
    for part in parts:
        part.element_type = number
    corner(f"concatenate-of-{kind}", f"Elements of {kind}, joined.", parts, joined)
