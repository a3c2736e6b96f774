"""What a hostile program is, and the list that each module of this package adds to."""

from __future__ import annotations

import dataclasses
import pathlib

from jaxlib_protos import message_class

PROGRAMS = pathlib.Path(__file__).parent / "programs"
SPLIT = "// -----\n"  # between programs of one file, as MLIR's own tests have it

REFUSED = "refused"  # an error of the compile whose text names the thing; no process ends
FAILS = "fails"  # an error of the compile, of any text; no process ends
RUNS = "runs"  # it does, and its results are there
HARMLESS = "harmless"  # it runs, or it fails with an error; no process ends
BOUNDED = (
    "bounded"  # as harmless, but it may cost the compiler process that compiles it, and no other
)


@dataclasses.dataclass
class Case:
    """A program, and what must become of it."""

    name: str
    tries: str
    data: bytes
    expect: str
    words: str = ""  # of the refusal
    format: str = "mlir"
    devices: int = 1
    partitions: int = 1  # the rest of the devices are replicas
    run: bool = True
    arguments: str = (
        "right"  # "same": one array for all parameters; "short": of half of the elements
    )
    fill: int = -1  # each byte of its arguments; -1: small numbers
    limit_s: float = 20

    def options(self) -> bytes:
        options = message_class("xla/pjrt/proto/compile_options.proto", "xla.CompileOptionsProto")()
        build = options.executable_build_options
        build.num_replicas = self.devices // self.partitions
        build.num_partitions = self.partitions
        build.use_spmd_partitioning = self.partitions > 1
        return bytes(options.SerializeToString())


def from_file(path: pathlib.Path) -> list[Case]:
    """The programs of a file, each below lines of the form `// key: value`. `tries` may go on over further lines."""
    cases = []
    for text in path.read_text().split(SPLIT):
        fields: dict[str, str] = {}
        key = ""
        for line in text.splitlines():
            if not line.startswith("//"):
                break
            name, colon, value = line[2:].strip().partition(": ")
            if colon and name in FIELDS:
                key, fields[name] = name, value
            else:
                fields[key] += " " + line[2:].strip()
        expect, _, words = fields.pop("expect").partition(" ")
        numbers = {name: int(fields.pop(name)) for name in NUMBERS if name in fields}
        run = fields.pop("run", "yes") == "yes"
        cases.append(
            Case(data=text.encode(), expect=expect, words=words, run=run, **fields, **numbers)  # type: ignore[arg-type]
        )
    return cases


NUMBERS = ("devices", "partitions", "fill")
FIELDS = ("name", "tries", "expect", "run", "arguments", *NUMBERS)
