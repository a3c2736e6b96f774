"""Writes HLO modules as protos, right or wrong: nothing here checks a shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jaxlib_protos import message_class

FILE = "xla/service/hlo.proto"
TYPES = {
    "pred": 1,
    "s8": 2,
    "s32": 4,
    "s64": 5,
    "u8": 6,
    "u32": 8,
    "u64": 9,
    "f32": 11,
    "f64": 12,
    "tuple": 13,
    "opaque": 14,
    "c64": 15,
    "bf16": 16,
    "token": 17,
}
Shape = Any  # xla.ShapeProto
Instruction = Any  # xla.HloInstructionProto


def new(message: str, /, **fields: Any) -> Any:
    return message_class(FILE, f"xla.{message}")(**fields)


def shape(kind: str, *dims: int) -> Shape:
    """A dense row-major array."""
    made = new("ShapeProto", element_type=TYPES[kind], dimensions=dims)
    made.is_dynamic_dimension.extend([False] * len(dims))
    made.layout.minor_to_major.extend(reversed(range(len(dims))))
    made.layout.SetInParent()
    return made


def f32(*dims: int) -> Shape:
    return shape("f32", *dims)


def s32(*dims: int) -> Shape:
    return shape("s32", *dims)


def pred(*dims: int) -> Shape:
    return shape("pred", *dims)


def tuple_of(*parts: Shape) -> Shape:
    return new("ShapeProto", element_type=TYPES["tuple"], tuple_shapes=parts)


def token() -> Shape:
    return new("ShapeProto", element_type=TYPES["token"])


class Computation:
    """Instructions in their order; the last one is the root, unless `root` is set."""

    def __init__(self, module: Module, name: str, id_: int) -> None:
        self.module = module
        self.proto = new("HloComputationProto", name=name, id=id_)
        self.root: Instruction | None = None

    @property
    def id(self) -> int:
        return int(self.proto.id)

    def add(self, opcode: str, result: Shape, *operands: Instruction, **fields: Any) -> Instruction:
        """Appends an instruction. `calls`: the computations that it calls."""
        calls = [each.id for each in fields.pop("calls", ())]
        number = self.module.next_id()
        made = self.proto.instructions.add()
        made.CopyFrom(
            new(
                "HloInstructionProto",
                name=f"{opcode}.{number}",
                opcode=opcode,
                shape=result,
                id=number,
                operand_ids=[each.id for each in operands],
                called_computation_ids=calls,
                **fields,
            )
        )
        self.root = made
        return made

    def parameter(self, number: int, of: Shape) -> Instruction:
        return self.add("parameter", of, parameter_number=number)

    def constant(self, of: Shape, *values: float) -> Instruction:
        """A constant with these values, repeated if they are too few."""
        literal = new("LiteralProto", shape=of)
        count = math.prod(of.dimensions)
        repeated = (list(values) * count)[:count]
        kind = next(name for name, number in TYPES.items() if number == of.element_type)
        if kind in ("s8", "u8"):
            setattr(literal, f"{kind}s", bytes(int(v) & 255 for v in repeated))
        else:
            getattr(literal, f"{kind}s").extend(repeated)
        return self.add("constant", of, literal=literal)

    def finish(self) -> None:
        if self.root is None:
            return
        parameters = [i for i in self.proto.instructions if i.opcode == "parameter"]
        parameters.sort(key=lambda each: each.parameter_number)
        self.proto.root_id = self.root.id
        program = self.proto.program_shape
        program.parameters.extend(each.shape for each in parameters)
        program.parameter_names.extend(each.name for each in parameters)
        program.result.CopyFrom(self.root.shape)


class Module:
    def __init__(self, name: str = "hostile") -> None:
        self.proto = new("HloModuleProto", name=name, id=1)
        self._ids = 0
        self.others: list[Computation] = []
        self.entry = Computation(self, "entry", 1000)

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def computation(self, name: str) -> Computation:
        made = Computation(self, name, 1001 + len(self.others))
        self.others.append(made)
        return made

    def binary(self, opcode: str, kind: str = "f32") -> Computation:
        """`opcode` of two scalars."""
        made = self.computation(opcode)
        scalar = shape(kind)
        made.add(opcode, scalar, made.parameter(0, scalar), made.parameter(1, scalar))
        return made

    def compares(self, direction: str, kind: str = "f32", type_: str = "") -> Computation:
        made = self.computation(f"compares_{direction.lower()}")
        scalar = shape(kind)
        left, right = made.parameter(0, scalar), made.parameter(1, scalar)
        made.add(
            "compare", pred(), left, right, comparison_direction=direction, comparison_type=type_
        )
        return made

    def finish(self) -> Any:
        """The proto; callees come before their callers, as far as they were made in that order."""
        for each in (*self.others, self.entry):
            each.finish()
            self.proto.computations.append(each.proto)
        self.proto.entry_computation_name = self.entry.proto.name
        self.proto.entry_computation_id = self.entry.id
        self.proto.host_program_shape.CopyFrom(self.entry.proto.program_shape)
        return self.proto


Build = Callable[..., Any]


def module_of(build: Build, *parameters: Shape) -> Any:
    """The module whose entry is what `build(entry, *parameters)` adds to it."""
    made = Module()
    build(made.entry, *(made.entry.parameter(i, each) for i, each in enumerate(parameters)))
    return made.finish()
