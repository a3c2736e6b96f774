"""Bytes that are no program, by every format."""

from __future__ import annotations

from collections.abc import Iterator

from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from hostile.case import FAILS, HARMLESS, Case
from hostile.structure import right

TEXT = """module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<1.0> : tensor<4xf32>
  %y = stablehlo.add %x, %c : tensor<4xf32>
  return %y : tensor<4xf32>
} }"""


def artifact() -> bytes:
    """StableHLO as bytecode, as JAX sends it."""
    with mlir.make_ir_context():
        return bytes(stablehlo.serialize_portable_artifact_str(str(ir.Module.parse(TEXT)), "1.0.0"))


def cut(data: bytes) -> Iterator[tuple[str, bytes]]:
    for tenth in range(1, 10):
        yield f"cut-at-{tenth}-tenths", data[: len(data) * tenth // 10]


def flipped(data: bytes) -> Iterator[tuple[str, bytes]]:
    """One byte in each of ten parts is another."""
    for tenth in range(10):
        at = 1 + (len(data) - 2) * tenth // 10
        yield f"with-another-byte-{tenth}", data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def malformed() -> Iterator[Case]:
    module, code = right().SerializeToString(), artifact()
    programs = {
        "mlir": [
            ("empty", b""),
            ("zeros", bytes(4096)),
            ("magic-alone", b"ML\xefR"),
            ("header-of-huge-sizes", b"ML\xefR\x0dMLIR\x00" + b"\xff" * 40),
            (
                "sections-of-huge-sizes",
                code[:20] + b"\x01\x00\xff\xff\xff\xff\xff\xff\xff\x7f" + code[20:],
            ),
            ("version-99", code[:4] + b"\xc7" + code[5:]),
            ("unknown-operation", TEXT.replace("stablehlo.add", "stablehlo.explode").encode()),
            ("unknown-dialect", TEXT.replace("stablehlo.add", "llvm.inline_asm").encode()),
            ("ten-million-brackets", b"(" * 10_000_000),
            *((f"text-{name}", data) for name, data in cut(TEXT.encode())),
            *((f"code-{name}", data) for name, data in cut(code)),
        ],
        "hlo": [
            ("zeros", bytes(4096)),
            ("text", b"HloModule m\nENTRY e { ROOT p = f32[4]{0} parameter(0) }"),
            ("stablehlo", TEXT.encode()),
            ("group-without-end", b"\x0b" * 100_000),
            ("length-of-4-GiB", b"\x1a\xff\xff\xff\xff\x0f"),
            *cut(module),
        ],
        "hlo_with_config": [
            ("right-module", b"\x0a" + bytes([len(module) & 127 | 128, len(module) >> 7]) + module)
        ],
        "": [("right", module)],
        "pjrt": [("right", module)],
        "serialized_executable": [("zeros", bytes(4096))],
        "../../etc/passwd": [("right", module)],
        "x" * 100_000: [("right", module)],
    }
    for format_, made in programs.items():
        for name, data in made:
            shown = format_[:16].strip("./") or "no"
            yield Case(
                f"bytes-{shown}-{name}",
                f"Bytes that are no program of the format {shown}.",
                data,
                FAILS,
                format=format_,
            )
    yield Case("bytes-hlo-empty", "An empty module.", b"", FAILS, format="hlo")
    # A changed byte may leave a program that is right.
    for format_, name, data in [("hlo", "hlo", module), ("mlir", "code", code)]:
        for which, bytes_ in flipped(data):
            yield Case(
                f"bytes-{name}-{which}",
                "A program of which one byte is another.",
                bytes_,
                HARMLESS,
                format=format_,
            )


CASES = list(malformed())
