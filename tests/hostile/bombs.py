"""Programs that are right, and cost much: to the compiler's folding of constants, to its passes, or to the device."""

from __future__ import annotations

from hostile.case import BOUNDED, HARMLESS, Case
from hostile.hlo import Computation, Instruction, f32, module_of, s32

CASES: list[Case] = []


def bomb(
    name: str, tries: str, text: str, expect: str = BOUNDED, run: bool = False, limit_s: float = 30
) -> None:
    CASES.append(Case(f"bomb-{name}", tries, text.encode(), expect, run=run, limit_s=limit_s))


def main(body: str, result: str, arguments: str = "") -> str:
    return f"module @m {{ func.func public @main({arguments}) -> {result} {{\n{body}\n}} }}\n"


bomb(
    "iota-chain",
    "Constants of 256 MiB that the compiler may compute for itself, 40 times.",
    main(
        "\n".join(
            ["%v0 = stablehlo.iota dim = 0 : tensor<67108864xf32>"]
            + [f"%v{i + 1} = stablehlo.sine %v{i} : tensor<67108864xf32>" for i in range(40)]
            + [
                "%r = stablehlo.slice %v40 [0:1] : (tensor<67108864xf32>) -> tensor<1xf32>",
                "return %r : tensor<1xf32>",
            ]
        ),
        "tensor<1xf32>",
    ),
)
bomb(
    "sum-of-an-iota",
    "A sum over 2^31 numbers that the compiler may compute for itself.",
    main(
        "%v = stablehlo.iota dim = 0 : tensor<2147483648xf32>\n"
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "%r = stablehlo.reduce(%v init: %z) applies stablehlo.add across dimensions = [0] : "
        "(tensor<2147483648xf32>, tensor<f32>) -> tensor<f32>\nreturn %r : tensor<f32>",
        "tensor<f32>",
    ),
)
bomb(
    "splat-of-a-terabyte",
    "A constant of one value, 2^38 times.",
    main(
        "%c = stablehlo.constant dense<1.0> : tensor<274877906944xf32>\n"
        "%r = stablehlo.slice %c [0:1] : (tensor<274877906944xf32>) -> tensor<1xf32>\nreturn %r : tensor<1xf32>",
        "tensor<1xf32>",
    ),
)
bomb(
    "splat-of-4-GiB",
    "A constant of one value, 2^30 times.",
    main(
        "%c = stablehlo.constant dense<1.0> : tensor<1073741824xf32>\n"
        "%y = stablehlo.multiply %c, %c : tensor<1073741824xf32>\n"
        "%r = stablehlo.slice %y [0:1] : (tensor<1073741824xf32>) -> tensor<1xf32>\nreturn %r : tensor<1xf32>",
        "tensor<1xf32>",
    ),
)
bomb(
    "result-of-a-terabyte",
    "A result of a terabyte, which no device holds.",
    main(
        "%r = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<274877906944xf32>\n"
        "return %r : tensor<274877906944xf32>",
        "tensor<274877906944xf32>",
        "%x: tensor<f32>",
    ),
    run=True,
)
bomb(
    "doublings",
    "A value that is added to itself 64 times over, each time twice.",
    main(
        "\n".join(
            [f"%v{i + 1} = stablehlo.add %v{i}, %v{i} : tensor<4xf32>" for i in range(64)]
            + ["return %v64 : tensor<4xf32>"]
        )
        .replace("%v0,", "%x,")
        .replace(", %v0 ", ", %x "),
        "tensor<4xf32>",
        "%x: tensor<4xf32>",
    ),
    run=True,
    expect=HARMLESS,
)
bomb(
    "fusions",
    "A chain in which each value uses the last one three times, by shapes that want to be fused.",
    main(
        "\n".join(
            line
            for i in range(40)
            for line in (
                f"%a{i} = stablehlo.slice %v{i} [0:{4000 - 100 * i - 100}] : "
                f"(tensor<{4000 - 100 * i}xf32>) -> tensor<{3900 - 100 * i}xf32>"
                if i < 39
                else "",
                f"%b{i} = stablehlo.slice %v{i} [100:{4000 - 100 * i}] : "
                f"(tensor<{4000 - 100 * i}xf32>) -> tensor<{3900 - 100 * i}xf32>"
                if i < 39
                else "",
                f"%v{i + 1} = stablehlo.multiply %a{i}, %b{i} : tensor<{3900 - 100 * i}xf32>"
                if i < 39
                else "",
            )
        ).replace("%v0 ", "%x ")
        + "\nreturn %v39 : tensor<100xf32>",
        "tensor<100xf32>",
        "%x: tensor<4000xf32>",
    ),
    run=True,
    expect=BOUNDED,
)
bomb(
    "many-operations",
    "4,000 operations.",
    main(
        "\n".join(
            [f"%v{i + 1} = stablehlo.sine %v{i} : tensor<4xf32>" for i in range(4_000)]
        ).replace("%v0 ", "%x ")
        + "\nreturn %v4000 : tensor<4xf32>",
        "tensor<4xf32>",
        "%x: tensor<4xf32>",
    ),
)
bomb(
    "wide-window",
    "A window of 2^16 numbers over 2^16.",
    main(
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        '%r = "stablehlo.reduce_window"(%x, %z) <{padding = dense<[[65535, 0]]> : tensor<1x2xi64>, '
        "window_dimensions = array<i64: 65536>}> ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
        "%s = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %s : tensor<f32>\n}) : "
        "(tensor<65536xf32>, tensor<f32>) -> tensor<65536xf32>\nreturn %r : tensor<65536xf32>",
        "tensor<65536xf32>",
        "%x: tensor<65536xf32>",
    ),
)
bomb(
    "scatter-into-a-terabyte",
    "A scatter into 2^40 numbers.",
    main(
        "%z = stablehlo.constant dense<0.0> : tensor<1099511627776xf32>\n"
        '%s = "stablehlo.scatter"(%z, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<'
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({\n"
        "^bb0(%a: tensor<f32>, %b: tensor<f32>):\nstablehlo.return %b : tensor<f32>\n}) : "
        "(tensor<1099511627776xf32>, tensor<4x1xi64>, tensor<4xf32>) -> tensor<1099511627776xf32>\n"
        "%r = stablehlo.slice %s [0:1] : (tensor<1099511627776xf32>) -> tensor<1xf32>\nreturn %r : tensor<1xf32>",
        "tensor<1xf32>",
        "%i: tensor<4x1xi64>, %u: tensor<4xf32>",
    ),
    run=True,
)
bomb(
    "nested-regions",
    "Conditions in one another, 3,000 deep, in the text.",
    main(
        '%r = "stablehlo.case"(%i) ({\n' * 3000
        + "stablehlo.return %x : tensor<f32>\n"
        + "}) : (tensor<i32>) -> tensor<f32>\nstablehlo.return %r : tensor<f32>\n" * 2999
        + "}) : (tensor<i32>) -> tensor<f32>\nreturn %r : tensor<f32>",
        "tensor<f32>",
        "%i: tensor<i32>, %x: tensor<f32>",
    ),
)


def many_parameters(c: Computation, *parameters: Instruction) -> Instruction:
    return c.add("negate", f32(), parameters[0])


CASES += [
    Case(
        "bomb-5000-parameters",
        "5,000 parameters, of which one is used.",
        module_of(many_parameters, *[f32()] * 5_000).SerializeToString(),
        BOUNDED,
        format="hlo",
        run=False,
    ),
    Case(
        "bomb-gather-of-gigabytes",
        "A gather of more than the device has.",
        module_of(
            lambda c, x, i: c.add(
                "gather",
                f32(1 << 20, 1 << 16),
                x,
                i,
                gather_slice_sizes=[1 << 16],
                gather_dimension_numbers={
                    "offset_dims": [1],
                    "start_index_map": [0],
                    "index_vector_dim": 1,
                },
            ),
            f32(1 << 16),
            s32(1 << 20, 1),
        ).SerializeToString(),
        BOUNDED,
        format="hlo",
    ),
]

# Programs that never end. They hold a device until their session is ended.
ENDLESS = [
    Case(
        "endless-loop",
        "A loop whose condition is always true.",
        main(
            "%r = stablehlo.while(%v = %x) : tensor<4xf32>\ncond {\n"
            "%t = stablehlo.constant dense<true> : tensor<i1>\nstablehlo.return %t : tensor<i1>\n} do {\n"
            "%w = stablehlo.add %v, %v : tensor<4xf32>\nstablehlo.return %w : tensor<4xf32>\n}\n"
            "return %r : tensor<4xf32>",
            "tensor<4xf32>",
            "%x: tensor<4xf32>",
        ).encode(),
        HARMLESS,
        limit_s=3,
    ),
    Case(
        "endless-count",
        "A loop of 2^62 steps.",
        main(
            "%n = stablehlo.constant dense<4611686018427387904> : tensor<i64>\n"
            "%o = stablehlo.constant dense<1> : tensor<i64>\n"
            "%z = stablehlo.constant dense<0> : tensor<i64>\n"
            "%r:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i64>, tensor<4xf32>\ncond {\n"
            "%t = stablehlo.compare LT, %i, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>\n"
            "stablehlo.return %t : tensor<i1>\n} do {\n"
            "%j = stablehlo.add %i, %o : tensor<i64>\n%w = stablehlo.sine %v : tensor<4xf32>\n"
            "stablehlo.return %j, %w : tensor<i64>, tensor<4xf32>\n}\nreturn %r#1 : tensor<4xf32>",
            "tensor<4xf32>",
            "%x: tensor<4xf32>",
        ).encode(),
        HARMLESS,
        limit_s=3,
    ),
]
