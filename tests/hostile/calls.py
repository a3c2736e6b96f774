"""Custom calls that a client has no business to make, or that lie to their handlers."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from hostile.case import FAILS, HARMLESS, REFUSED, Case
from hostile.hlo import Computation, Instruction, f32, module_of, new, s32, tuple_of

HUGE = (1 << 63) - 1


def call(
    target: str, operands: Sequence[str], results: Sequence[str], attributes: str = ""
) -> bytes:
    """A program that is one custom call, all of whose results it returns."""
    arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(operands))
    names = ", ".join(f"%a{i}" for i in range(len(operands)))
    many = f":{len(results)}" if len(results) != 1 else ""
    returned = ", ".join(f"%r#{i}" if len(results) != 1 else "%r" for i, _ in enumerate(results))
    types = ", ".join(results)
    bound = f"%r{many} = " if results else ""
    return (
        f"module @m {{ func.func public @main({arguments}) -> ({types}) {{\n"
        f'  {bound}"stablehlo.custom_call"({names}) {{call_target_name = "{target}"{attributes}}} : '
        f"({', '.join(operands)}) -> ({types})\n"
        f"  return {returned}{' : ' + types if results else ''}\n}} }}\n"
    ).encode()


def ffi(config: str, extra: str = "") -> str:
    """The attributes of a typed-FFI call."""
    return f", api_version = 4 : i32, backend_config = {{{config}}}{extra}"


def layouts(operands: Sequence[int], results: Sequence[int]) -> str:
    """Column-major matrices, and vectors, by the ranks of operands and results."""

    def one(rank: int) -> str:
        order = [*range(rank - 2, rank)] + [*reversed(range(rank - 2))] if rank > 1 else [0] * rank
        return f"dense<{order if rank else ''}> : tensor<{rank}xindex>"

    def many(ranks: Sequence[int]) -> str:
        return ", ".join(one(rank) for rank in ranks)

    return f", operand_layouts = [{many(operands)}], result_layouts = [{many(results)}]"


# Names that XLA's compilers and runtimes know, or that jaxlib or the cluster's own processes register.
INTERNAL = [
    "AllocateBuffer",
    "CreateBuffer",
    "Pin",
    "Unpin",
    "PadToStatic",
    "SliceToDynamic",
    "MoveToHost",
    "MoveToDevice",
    "X64SplitLow",
    "X64SplitHigh",
    "X64Combine",
    "PartialReduce",
    "HouseholderProduct",
    "ProductOfElementaryHouseholderReflectors",
    "Qr",
    "Eigh",
    "ResizeNearest",
    "SPMDInternalOp_MultiRotate",
    "__onednn$matmul",
    "__onednn$softmax",
    "__onednn$layernorm",
    "__onednn$convolution",
    "__cublas$gemm",
    "__cudnn$convForward",
    "__xla_cpu_runtime_EigenMatMulF32",
    "__xla_cpu_runtime_AcquireInfeedBufferForDequeue",
    "__xla_cpu_runtime_AllReduce",
    "__xla_cpu_ExpV4F32",
    "__gpu$xla.gpu.triton",
    "triton_kernel_call",
    "mosaic_gpu",
    "tpu_custom_call",
    "xla_python_cpu_callback",
    "xla_python_gpu_callback",
    "cusolver_getrf_ffi",
    "gangway.collective",
    "gangway.position",
    "free",
    "system",
    "strlen",
    "a target of no registry",
    "",
    "x" * 100_000,
]


def internal() -> Iterator[Case]:
    """The old interface (a function of that name with raw pointers) and the typed one."""
    for target in INTERNAL:
        words = target[:40] or "custom"
        shown = target[:40] or "the empty name"
        name = target[:40].strip("_").replace(" ", "-") or "empty"
        for version in (1, 4):
            # XLA's reader makes nothing of version 1 without a text, and of version 4 without a dictionary.
            config = ', api_version = 1 : i32, backend_config = "1"' if version == 1 else ffi("")
            yield Case(
                name=f"call-{name}-v{version}",
                tries=f"Call {shown} by interface {version}.",
                data=call(target, ["tensor<4xf32>"], ["tensor<65536xf32>"], config),
                # MLIR's verifier knows these, and refuses them with a code of its own.
                expect=FAILS if target in ("CreateBuffer", "Pin", "Unpin") else REFUSED,
                words=words,
            )


def versions() -> Iterator[Case]:
    """Interfaces of custom calls that exist, or do not."""
    for version in (0, 2, 3, 5, 77):
        yield Case(
            name=f"cholesky-by-interface-{version}",
            tries="LAPACK's target by an interface that it does not have.",
            data=call(
                "lapack_spotrf_ffi",
                ["tensor<3x3xf32>"],
                ["tensor<3x3xf32>", "tensor<i32>"],
                f', api_version = {version} : i32, backend_config = "uplo"',
            ),
            # What MLIR's parser does not take does not reach the rule of the target.
            expect=FAILS if version > 4 else REFUSED,
            words="" if version > 4 else "lapack_spotrf_ffi",
        )


M33, M44, M55 = "tensor<3x3xf32>", "tensor<4x4xf32>", "tensor<64x64xf32>"
INFO = "tensor<i32>"
LOWER = "uplo = 76 : ui8"
LIES: list[tuple[str, str, list[str], list[str], str]] = [
    ("result-of-another-size", "lapack_spotrf_ffi", [M33], [M55, INFO], LOWER),
    ("result-that-is-smaller", "lapack_spotrf_ffi", [M55], [M33, INFO], LOWER),
    ("not-square", "lapack_spotrf_ffi", ["tensor<3x64xf32>"], ["tensor<3x64xf32>", INFO], LOWER),
    ("info-of-another-type", "lapack_spotrf_ffi", [M33], [M33, "tensor<i8>"], LOWER),
    ("info-of-a-batch", "lapack_spotrf_ffi", [M33], [M33, "tensor<64xi32>"], LOWER),
    ("info-that-is-missing", "lapack_spotrf_ffi", [M33], [M33], LOWER),
    ("operands-that-are-missing", "lapack_spotrf_ffi", [], [M33, INFO], LOWER),
    ("operands-of-another-type", "lapack_spotrf_ffi", ["tensor<3x3xi8>"], [M33, INFO], LOWER),
    ("vector", "lapack_spotrf_ffi", ["tensor<3xf32>"], ["tensor<3xf32>", INFO], LOWER),
    ("scalar", "lapack_spotrf_ffi", ["tensor<f32>"], ["tensor<f32>", INFO], LOWER),
    (
        "batches-that-differ",
        "lapack_spotrf_ffi",
        ["tensor<2x3x3xf32>"],
        ["tensor<64x3x3xf32>", "tensor<64xi32>"],
        LOWER,
    ),
    ("attribute-that-is-missing", "lapack_spotrf_ffi", [M33], [M33, INFO], ""),
    ("attribute-of-no-letter", "lapack_spotrf_ffi", [M33], [M33, INFO], "uplo = 255 : ui8"),
    ("attribute-of-another-type", "lapack_spotrf_ffi", [M33], [M33, INFO], f"uplo = {HUGE} : i64"),
    ("attribute-that-is-a-text", "lapack_spotrf_ffi", [M33], [M33, INFO], 'uplo = "L"'),
    ("attribute-too-many", "lapack_spotrf_ffi", [M33], [M33, INFO], LOWER + ", extra = 1 : i64"),
    ("pivots-that-are-few", "lapack_sgetrf_ffi", [M55], [M55, "tensor<1xi32>", INFO], ""),
    ("pivots-of-another-type", "lapack_sgetrf_ffi", [M33], [M33, "tensor<3xi8>", INFO], ""),
    ("tau-that-is-short", "lapack_sgeqrf_ffi", [M55], [M55, "tensor<1xf32>"], ""),
    ("more-reflectors-than-columns", "lapack_sorgqr_ffi", [M33, "tensor<64xf32>"], [M33], ""),
    (
        "values-that-are-few",
        "lapack_ssyevd_ffi",
        [M55],
        [M55, "tensor<1xf32>", INFO],
        "mode = 86 : ui8, " + LOWER,
    ),
    (
        "mode-of-no-letter",
        "lapack_ssyevd_ffi",
        [M33],
        [M33, "tensor<3xf32>", INFO],
        "mode = 0 : ui8, " + LOWER,
    ),
    (
        "vectors-that-are-small",
        "lapack_sgesdd_ffi",
        [M55],
        [M55, "tensor<64xf32>", "tensor<1x1xf32>", "tensor<1x1xf32>", INFO],
        "mode = 83 : ui8",
    ),
    (
        "solve-of-unequal-sizes",
        "lapack_strsm_ffi",
        [M33, M55],
        [M55],
        "diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8",
    ),
    (
        "diagonals-of-unequal-sizes",
        "lapack_sgtsv_ffi",
        ["tensor<1xf32>", "tensor<64xf32>", "tensor<1xf32>", "tensor<64x1xf32>"],
        ["tensor<1xf32>", "tensor<64xf32>", "tensor<1xf32>", "tensor<64x1xf32>", INFO],
        "",
    ),
    (
        "rows-outside-the-matrix",
        "lapack_sgehrd_ffi",
        [M33],
        [M33, "tensor<2xf32>", INFO],
        "high = 2147483647 : i32, low = -5 : i32",
    ),
    ("target-of-no-type", "lapack_xpotrf_ffi", [M33], [M33, INFO], LOWER),
    ("target-that-is-old", "lapack_spotrf", [M33], [M33, INFO], LOWER),
]


def linear_algebra() -> Iterator[Case]:
    for name, target, operands, results, attributes in LIES:
        ranks = [[kind.count("x") for kind in kinds] for kinds in (operands, results)]
        yield Case(
            name=f"lapack-{name}",
            tries=f"{target} with operands, results or attributes that its handler must not believe.",
            data=call(target, operands, results, ffi(attributes, layouts(*ranks))),
            expect=REFUSED,
            words=target,
        )
    yield Case(
        name="lapack-row-major",
        tries="A factorization whose matrices are said to be row-major.",
        data=call("lapack_sgetrf_ffi", [M44], [M44, "tensor<4xi32>", INFO], ffi("")),
        expect=HARMLESS,
    )
    yield Case(
        name="lapack-alias-of-another-shape",
        tries="A result that is said to lie in an operand which is smaller.",
        data=call(
            "lapack_sgetrf_ffi",
            [M33],
            [M55, "tensor<64xi32>", INFO],
            ffi(
                "",
                ", output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], "
                "operand_index = 0, operand_tuple_indices = []>]",
            ),
        ),
        expect=FAILS,
    )


def aliased(
    index: list[int], operand: int, path: list[int], c: Computation, x: Instruction
) -> Instruction:
    """Cholesky with one entry of aliasing."""
    made = c.add(
        "custom-call",
        tuple_of(f32(3, 3), s32()),
        x,
        custom_call_target="lapack_spotrf_ffi",
        custom_call_api_version=4,
        backend_config=b"{uplo = 76 : ui8}",
    )
    made.output_operand_aliasing.append(
        new(
            "OutputOperandAliasing",
            output_shape_index=index,
            operand_index=operand,
            operand_shape_index=path,
        )
    )
    return made


def aliases() -> Iterator[Case]:
    for name, index, operand, path in [
        ("result-that-is-not", [7], 0, []),
        ("operand-that-is-not", [0], 9, []),
        ("operand-minus-one", [0], -1, []),
        ("part-of-no-tuple", [0], 0, [0, 0]),
        ("info-in-the-matrix", [1], 0, []),
        ("deep-path", [0] * 1000, 0, []),
    ]:
        yield Case(
            name=f"alias-{name}",
            tries="A custom call whose results are said to lie where they cannot.",
            data=module_of(
                functools.partial(aliased, index, operand, path), f32(3, 3)
            ).SerializeToString(),
            expect=REFUSED,
            words="shares a result",
            format="hlo",
        )


def callbacks() -> Iterator[Case]:
    """Functions of the client's process by their numbers. This client serves none, so they fail where they run."""
    for target in ("xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback"):
        for name, config, expect in [
            ("by-a-pointer", "callback = 140737488355327 : ui64", REFUSED),
            ("without-a-number", "", REFUSED),
            ("by-a-text", 'index = "0"', REFUSED),
            ("of-a-huge-number", "index = 18446744073709551615 : ui64", HARMLESS),
            ("of-a-negative-number", "index = -1 : i64", REFUSED),
        ]:
            yield Case(
                name=f"callback-{target.split('_')[2]}-{name}",
                tries="A callback whose number is none that the client may call.",
                data=call(target, ["tensor<4xf32>"], ["tensor<4xf32>"], ffi(config)),
                expect=expect,
                words=target,
            )


def top_k(k: int, kept: int, calls: bool, operand: str = "tensor<16xf32>") -> bytes:
    """TopK as XLA's reader of StableHLO knows it from older versions of JAX."""
    text = call(
        "TopK",
        [operand],
        [f"tensor<{kept}xf32>", f"tensor<{kept}xi32>"],
        f', api_version = 1 : i32, backend_config = ""'
        f"{', called_computations = [@greater]' if calls else ''}"
        f", mhlo.attributes = {{k = {k} : i64, largest = true}}, mhlo.version = 1 : i64",
    ).decode()
    greater = (
        "func.func private @greater(%a: tensor<f32>, %b: tensor<f32>) -> tensor<i1> {\n"
        "  %c = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "  return %c : tensor<i1>\n}\n"
    )
    return text.replace("module @m {", "module @m { " + greater).encode()


def top_ks() -> Iterator[Case]:
    for name, data in {
        "more-than-there-are": top_k(1 << 20, 1 << 20, calls=True),
        "fewer-than-the-result": top_k(1, 1 << 16, calls=True),
        "negative": top_k(-1, 1, calls=True),
        "without-comparator": top_k(4, 1 << 16, calls=False),
        "of-integers": top_k(1 << 16, 1 << 16, calls=True, operand="tensor<16xi8>"),
    }.items():
        yield Case(
            name=f"top-k-{name}",
            tries="The k largest, of fewer than k numbers or into a result of another size.",
            data=data,
            # The text's own number is not read: the results have it.
            expect=HARMLESS if name == "negative" else FAILS,
        )
    for name, k, kept, operand in [
        ("of-4-into-65536", 4, 1 << 16, f32(16)),
        ("of-1000-of-16", 1000, 1000, f32(16)),
        ("of-a-scalar", 1, 1, f32()),
    ]:

        def build(c: Computation, x: Instruction, k: int = k, kept: int = kept) -> Instruction:
            return c.add(
                "topk",
                tuple_of(f32(kept), s32(kept)),
                x,
                k=k,
                largest=True,
                calls=[c.module.compares("GT")],
            )

        yield Case(
            name=f"topk-instruction-{name}",
            tries="XLA's own instruction of the k largest, with a result that it does not have.",
            data=module_of(build, operand).SerializeToString(),
            expect=REFUSED,
            words="topk",
            format="hlo",
        )


CASES = [
    *internal(),
    *versions(),
    *linear_algebra(),
    *aliases(),
    *callbacks(),
    *top_ks(),
]
