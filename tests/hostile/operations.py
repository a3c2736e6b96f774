"""Instructions whose result has another shape than their operands give, or whose attributes lie. XLA's reader of protos
believes most of them, and the compiled code writes as much as the result's shape says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hostile.case import REFUSED, Case
from hostile.hlo import (
    Computation,
    Instruction,
    Shape,
    f32,
    module_of,
    pred,
    s32,
    shape,
    token,
    tuple_of,
)

BIG = 1 << 16
Build = Callable[..., Any]
CASES: list[Case] = []
FOUR = [f32(4)]


def lies(name: str, words: str, parameters: Sequence[Shape], build: Build, tries: str = "") -> None:
    CASES.append(
        Case(
            name=f"hlo-{name}",
            tries=tries or f"An instruction {words} whose shape or attributes lie.",
            data=module_of(build, *parameters).SerializeToString(),
            expect=REFUSED,
            words=words,
            format="hlo",
        )
    )


def plain(
    opcode: str, result: Shape, parameters: Sequence[Shape], name: str = "", **fields: Any
) -> None:
    """One instruction on the parameters; `reduces`: the opcode of the computation that it calls."""

    def build(c: Computation, *operands: Instruction) -> Instruction:
        reduces = fields.pop("reduces", "")
        calls = [c.module.binary(reduces)] if reduces else []
        return c.add(opcode, result, *operands, calls=calls, **fields)

    lies(name or opcode, opcode, parameters, build)


for unary in ("negate", "copy", "exponential", "abs", "not", "tanh", "optimization-barrier"):
    plain(unary, f32(BIG), FOUR, f"{unary}-that-grows")
for complex_ in ("acos", "asinh", "sinh"):
    plain(complex_, shape("c64", 4), [shape("c64", 4)], f"{complex_}-of-complex-numbers")
for binary in ("add", "multiply", "maximum", "power", "atan2", "complex"):
    plain(binary, f32(BIG), [f32(4), f32(BIG)], f"{binary}-of-unequal-sizes")
plain("add", f32(4), FOUR, "add-of-one")
plain("add", f32(4), [f32(4), s32(4)], "add-of-two-types")
plain("add", f32(4), [f32(4)] * 3, "add-of-three")
plain("compare", pred(BIG), [f32(4), f32(4)], "compare-that-grows", comparison_direction="LT")
plain("compare", pred(4), [f32(4), f32(4)], "compare-in-no-direction", comparison_direction="ZZ")
plain("select", f32(BIG), [pred(4), f32(BIG), f32(BIG)], "select-by-few")
plain("select", f32(4), [f32(4), f32(4), f32(4)], "select-by-numbers")
plain("clamp", f32(BIG), [f32(2), f32(BIG), f32(2)], "clamp-between-few")
plain("convert", shape("f64", BIG), FOUR, "convert-that-grows")
plain("bitcast-convert", shape("f64", BIG), FOUR, "bitcast-convert-that-grows")
plain("bitcast", f32(BIG), FOUR, "bitcast-that-grows")
plain("reshape", f32(BIG), FOUR, "reshape-that-grows")
plain("reshape", f32(1 << 40), FOUR, "reshape-to-a-terabyte")
plain("transpose", f32(BIG, 2), [f32(2, 2)], "transpose-that-grows", dimensions=[1, 0])
plain("transpose", f32(2, 2), [f32(2, 2)], "transpose-of-the-same-twice", dimensions=[0, 0])
plain("transpose", f32(2, 2), [f32(2, 2)], "transpose-of-no-dimension", dimensions=[7, -1])
plain("broadcast", f32(BIG), FOUR, "broadcast-of-another-size", dimensions=[0])
plain("broadcast", f32(4, 4), FOUR, "broadcast-to-no-dimension", dimensions=[9])
plain("iota", f32(4), [], "iota-along-no-dimension", dimensions=[3])
plain("reverse", f32(BIG), FOUR, "reverse-that-grows", dimensions=[0])
plain("reverse", f32(4), FOUR, "reverse-of-no-dimension", dimensions=[5])
plain("concatenate", f32(BIG), [f32(4), f32(4)], "concatenate-that-grows", dimensions=[0])
plain("concatenate", f32(8), [f32(4), f32(4)], "concatenate-along-no-dimension", dimensions=[2])
plain("concatenate", f32(8, 2), [f32(4, 2), f32(4, 9)], "concatenate-of-two-widths", dimensions=[0])
plain("slice", f32(BIG), FOUR, "slice-past-the-end", slice_dimensions=[{"limit": BIG, "stride": 1}])
plain(
    "slice",
    f32(4),
    FOUR,
    "slice-before-the-start",
    slice_dimensions=[{"start": -4096, "limit": -4092, "stride": 1}],
)
plain("slice", f32(4), FOUR, "slice-of-stride-0", slice_dimensions=[{"limit": 4, "stride": 0}])
plain(
    "slice", f32(4), FOUR, "slice-of-stride-minus-1", slice_dimensions=[{"limit": 4, "stride": -1}]
)
plain("slice", f32(4), FOUR, "slice-without-dimensions")
plain(
    "dynamic-slice",
    f32(BIG),
    [f32(4), s32()],
    "dynamic-slice-that-grows",
    dynamic_slice_sizes=[BIG],
)
plain("dynamic-slice", f32(4), [f32(64)], "dynamic-slice-without-index", dynamic_slice_sizes=[4])
plain(
    "dynamic-slice", f32(4), [f32(64), f32()], "dynamic-slice-by-a-float", dynamic_slice_sizes=[4]
)
plain("dynamic-slice", f32(4), [f32(64), s32(9)], "dynamic-slice-by-nine", dynamic_slice_sizes=[4])
plain("dynamic-update-slice", f32(4), [f32(4), f32(BIG), s32()], "dynamic-update-slice-of-more")
plain("dynamic-update-slice", f32(BIG), [f32(4), f32(4), s32()], "dynamic-update-slice-that-grows")
plain(
    "pad",
    f32(BIG),
    [f32(4), f32()],
    "pad-of-less",
    padding_config={"dimensions": [{"edge_padding_low": 1}]},
)
plain(
    "pad",
    f32(4),
    [f32(4), f32()],
    "pad-within-less-than-nothing",
    padding_config={"dimensions": [{"interior_padding": -5}]},
)
plain("pad", f32(4), [f32(4), f32()], "pad-of-no-dimension")
plain(
    "dot",
    f32(512, 512),
    [f32(2, 3), f32(3, 2)],
    "dot-that-grows",
    dot_dimension_numbers={"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [0]},
)
plain(
    "dot",
    f32(2, 2),
    [f32(2, 3), f32(4096, 2)],
    "dot-over-unequal-sizes",
    dot_dimension_numbers={"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [0]},
)
plain(
    "dot",
    f32(2, 2),
    [f32(2, 3), f32(3, 2)],
    "dot-over-no-dimension",
    dot_dimension_numbers={"lhs_contracting_dimensions": [8], "rhs_contracting_dimensions": [-2]},
)
plain("dot", f32(2, 2), [f32(2, 3), f32(3, 2)], "dot-without-dimensions")
CONVOLVES = {
    "kernel_output_feature_dimension": 3,
    "kernel_input_feature_dimension": 2,
    "kernel_spatial_dimensions": [0, 1],
    "input_feature_dimension": 3,
    "output_feature_dimension": 3,
    "input_spatial_dimensions": [1, 2],
    "output_spatial_dimensions": [1, 2],
}
WINDOW = [{"size": 3, "stride": 1, "window_dilation": 1, "base_dilation": 1}] * 2


def convolves(name: str, result: Shape, **fields: Any) -> None:
    plain(
        "convolution",
        result,
        [f32(1, 8, 8, 1), f32(3, 3, 1, 1)],
        f"convolution-{name}",
        **{
            "window": {"dimensions": WINDOW},
            "convolution_dimension_numbers": CONVOLVES,
            "feature_group_count": 1,
            "batch_group_count": 1,
            **fields,
        },
    )


convolves("that-grows", f32(1, 512, 512, 1))
convolves(
    "with-a-huge-window",
    f32(1, 6, 6, 1),
    window={"dimensions": [{**WINDOW[0], "size": 1 << 40}] * 2},
)
convolves("with-stride-0", f32(1, 6, 6, 1), window={"dimensions": [{**WINDOW[0], "stride": 0}] * 2})
convolves("in-fewer-than-no-groups", f32(1, 6, 6, 1), feature_group_count=-3)
convolves(
    "of-no-dimension",
    f32(1, 6, 6, 1),
    convolution_dimension_numbers={**CONVOLVES, "input_spatial_dimensions": [9, 9]},
)
plain("reduce", f32(BIG), [f32(4), f32()], "reduce-that-grows", dimensions=[0], reduces="add")
plain("reduce", f32(), [f32(4), f32()], "reduce-along-no-dimension", dimensions=[6], reduces="add")
plain("reduce", f32(), [f32(4), f32()], "reduce-without-function", dimensions=[0])
plain("reduce", f32(), [f32(4), f32(64)], "reduce-from-an-array", dimensions=[0], reduces="add")
plain(
    "reduce-window",
    f32(BIG),
    [f32(4), f32()],
    "reduce-window-that-grows",
    window={"dimensions": [WINDOW[0]]},
    reduces="add",
)
plain(
    "reduce-window",
    f32(2),
    [f32(4), f32()],
    "reduce-window-dilated-by-0",
    window={"dimensions": [{**WINDOW[0], "window_dilation": 0, "base_dilation": 0}]},
    reduces="add",
)
plain("fft", shape("c64", BIG), [shape("c64", 4)], "fft-that-grows", fft_type=0, fft_length=[4])
plain(
    "fft",
    shape("c64", 4),
    [shape("c64", 4)],
    "fft-of-a-long-length",
    fft_type=0,
    fft_length=[1 << 40],
)
plain("fft", shape("c64", 4), [shape("c64", 4)], "fft-of-no-type", fft_type=9, fft_length=[4])
plain("fft", shape("c64", 4), [shape("c64", 4)], "fft-of-length-0", fft_type=0, fft_length=[0])
plain(
    "cholesky", f32(256, 256), [f32(4, 4)], "cholesky-that-grows", cholesky_options={"lower": True}
)
plain("cholesky", f32(4, 9), [f32(4, 9)], "cholesky-of-no-square")
plain(
    "triangular-solve",
    f32(256, 256),
    [f32(4, 4), f32(256, 256)],
    "triangular-solve-of-unequal-sizes",
    triangular_solve_options={"left_side": True, "transpose_a": 1},
)
plain(
    "rng-bit-generator",
    tuple_of(shape("u64", 3), shape("u32", BIG)),
    [shape("u64", 1)],
    "rng-bit-generator-of-a-short-state",
    rng_algorithm=1,
)
plain(
    "rng-bit-generator",
    tuple_of(shape("u64", 3), shape("u32", 4)),
    [shape("u64", 3)],
    "rng-bit-generator-of-no-algorithm",
    rng_algorithm=77,
)
plain("rng", f32(BIG), [s32(), s32()], "rng-between-integers", distribution=9)
plain("tuple", tuple_of(f32(BIG)), FOUR, "tuple-of-another-shape")
plain("tuple", tuple_of(f32(4), f32(4)), FOUR, "tuple-of-more")
plain("get-tuple-element", f32(4), [tuple_of(f32(4))], "get-tuple-element-beyond", tuple_index=77)
plain(
    "get-tuple-element", f32(BIG), [tuple_of(f32(4))], "get-tuple-element-that-grows", tuple_index=0
)
plain("get-tuple-element", f32(4), FOUR, "get-tuple-element-of-no-tuple", tuple_index=0)
plain("map", f32(BIG), [f32(4), f32(4)], "map-that-grows", dimensions=[0], reduces="add")
plain("sort", f32(BIG), FOUR, "sort-that-grows", dimensions=[0])
plain(
    "batch-norm-inference",
    f32(BIG),
    [f32(4, 4), f32(4), f32(4), f32(4), f32(4)],
    "batch-norm-of-no-feature",
    feature_index=9,
)
plain(
    "stochastic-convert",
    shape("s8", BIG),
    [f32(4), shape("u32", 4)],
    "stochastic-convert-that-grows",
)
plain(
    "reduce-precision",
    f32(4),
    FOUR,
    "reduce-precision-to-999-bits",
    exponent_bits=999,
    mantissa_bits=-3,
)
plain("add-dependency", f32(BIG), [f32(4), token()], "add-dependency-that-grows")
plain("set-dimension-size", f32(4), [f32(4), s32()], "set-dimension-size-of-none", dimensions=[3])
plain("get-dimension-size", s32(), FOUR, "get-dimension-size-of-none", dimensions=[3])
plain("domain", f32(BIG), FOUR, "domain")
plain("after-all", token(), FOUR, "after-all-of-numbers")
plain("an-opcode-of-nobody", f32(4), FOUR, "an-opcode-of-nobody")
plain("fusion", f32(BIG), FOUR, "fusion-that-grows", fusion_kind="kLoop", reduces="add")
plain("async-start", tuple_of(tuple_of(f32(4)), f32(4)), FOUR, "async-start-without-done")
plain("copy-start", tuple_of(f32(BIG), f32(4), shape("u32")), FOUR, "copy-start-without-done")
plain("scan", tuple_of(f32(4)), FOUR, "scan-without-function", dimensions=[0])

GATHERS = {"collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1}


def gathers(name: str, result: Shape, sizes: list[int], **numbers: Any) -> None:
    plain(
        "gather",
        result,
        [f32(4), s32(64, 1)],
        f"gather-{name}",
        gather_slice_sizes=sizes,
        gather_dimension_numbers={**GATHERS, **numbers},
    )


gathers("that-grows", f32(BIG), [1])
gathers("of-slices-past-the-end", f32(64), [BIG])
gathers("without-slices", f32(64), [])
gathers("by-no-dimension", f32(64), [1], start_index_map=[9])
gathers("by-an-index-of-no-dimension", f32(64), [1], index_vector_dim=7)


def scatters(
    name: str, result: Shape, updates: Shape, reduces: str = "add", **numbers: Any
) -> None:
    plain(
        "scatter",
        result,
        [f32(4), s32(64, 1), updates],
        f"scatter-{name}",
        reduces=reduces,
        scatter_dimension_numbers={
            "inserted_window_dims": [0],
            "scatter_dims_to_operand_dims": [0],
            "index_vector_dim": 1,
            **numbers,
        },
    )


scatters("that-grows", f32(BIG), f32(64))
scatters("of-more-updates", f32(4), f32(BIG))
scatters("without-function", f32(4), f32(64), reduces="")
scatters("to-no-dimension", f32(4), f32(64), scatter_dims_to_operand_dims=[9])
scatters("of-wide-updates", f32(4), f32(64, BIG), inserted_window_dims=[], update_window_dims=[1])


def literal(name: str, of: Shape, count: int, declared: Shape | None = None) -> None:
    """A constant with `count` numbers."""

    def build(c: Computation) -> Instruction:
        made = c.constant(of)
        made.literal.f32s.extend([1.0] * count)
        if declared is not None:
            made.literal.shape.CopyFrom(declared)
        return made

    lies(f"constant-{name}", "constant", [], build)


literal("of-fewer-numbers", f32(BIG), 4)
literal("of-more-numbers", f32(4), 5000)
literal("of-another-shape", f32(BIG), 4, declared=f32(4))
literal("of-another-type", s32(4), 4)


def ends_with(c: Computation, of: Shape) -> None:
    """Makes a value of the shape the computation's result."""
    kind = "pred" if of.element_type == pred().element_type else "f32"
    c.add("broadcast", of, c.constant(shape(kind), 0))


def while_of(name: str, state: Shape, condition: Shape, body: Shape, result: Shape) -> None:
    def build(c: Computation, x: Instruction) -> Instruction:
        test, step = c.module.computation("test"), c.module.computation("step")
        test.parameter(0, state)
        ends_with(test, condition)
        step.parameter(0, state)
        ends_with(step, body)
        return c.add("while", result, x, calls=[step, test])

    lies(f"while-{name}", "while", FOUR, build)


while_of("whose-body-grows", f32(4), pred(), f32(BIG), f32(4))
while_of("whose-result-grows", f32(4), pred(), f32(4), f32(BIG))
while_of("whose-condition-is-a-number", f32(4), f32(), f32(4), f32(4))
while_of("over-another-state", f32(BIG), pred(), f32(BIG), f32(BIG))


def conditional(name: str, index: Shape, branches: list[Shape], operands: int) -> None:
    def build(c: Computation, i: Instruction, x: Instruction) -> Instruction:
        calls = []
        for n, each in enumerate(branches):
            branch = c.module.computation(f"branch{n}")
            branch.parameter(0, f32(4))
            ends_with(branch, each)
            calls.append(branch)
        return c.add("conditional", f32(4), i, *[x] * operands, calls=calls)

    lies(f"conditional-{name}", "conditional", [index, f32(4)], build)


conditional("of-two-shapes", pred(), [f32(4), f32(BIG)], 2)
conditional("of-few-operands", pred(), [f32(4), f32(4)], 1)
conditional("of-three-by-a-truth-value", pred(), [f32(4)] * 3, 3)
conditional("without-branches", s32(), [], 0)


def called(name: str, words: str, opcode: str, parameter: Shape, **fields: Any) -> None:
    def build(c: Computation, x: Instruction) -> Instruction:
        callee = c.module.computation("callee")
        callee.add("negate", parameter, callee.parameter(0, parameter))
        return c.add(opcode, f32(4), x, calls=[callee], **fields)

    lies(name, words, FOUR, build)


called("call-of-another-signature", "call", "call", f32(BIG))
called("map-of-arrays", "map", "map", f32(BIG), dimensions=[0])
called("reduce-with-one-parameter", "reduce", "reduce", f32(), dimensions=[0])

lies(
    "tuple-beside-a-parameter",
    "tuple",
    [tuple_of(f32(4), f32(8)), f32(4)],
    lambda c, x, y: c.add("get-tuple-element", f32(4), x, tuple_index=0),
    "A parameter that is a tuple, which ends XLA's compiler.",
)
lies(
    "tuple-in-a-parameter",
    "tuple",
    [tuple_of(tuple_of(f32(4)))],
    lambda c, x: c.add("get-tuple-element", tuple_of(f32(4)), x, tuple_index=0),
    "A parameter that is a tuple of tuples, which ends XLA's compiler.",
)
lies(
    "tuple-in-the-result",
    "tuple",
    FOUR,
    lambda c, x: c.add(
        "tuple", tuple_of(tuple_of(f32(4)), f32(4)), c.add("tuple", tuple_of(f32(4)), x), x
    ),
    "A result that is a tuple of tuples.",
)
for narrow in ("pred", "s8"):
    plain(
        "rng",
        shape(narrow, 4),
        [shape(narrow), shape(narrow)],
        f"rng-of-{narrow}",
        distribution=1,
    )
