"""Modules whose parts do not fit together, and shapes that no array has: edits of a module that is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hostile.case import HARMLESS, REFUSED, RUNS, Case
from hostile.hlo import (
    Computation,
    Instruction,
    f32,
    module_of,
)

BIG = 1 << 16
CASES: list[Case] = []


def sums(c: Computation, x: Instruction, y: Instruction) -> Instruction:
    """What is edited: a call of a function, in whose result both arguments are."""
    callee = c.module.binary("add")
    total = c.add("add", f32(4), x, y)
    zero = c.constant(f32(), 0.0)
    reduced = c.add("reduce", f32(), total, zero, dimensions=[0], calls=[callee])
    wide = c.add("broadcast", f32(4), reduced)
    return c.add("multiply", f32(4), wide, total)


def right() -> Any:
    return module_of(sums, f32(4), f32(4))


def edited(
    name: str,
    tries: str,
    words: str,
    edit: Callable[[Any], Any],
    expect: str = REFUSED,
    run: bool = True,
) -> None:
    module = right()
    edit(module)
    CASES.append(
        Case(
            name=f"module-{name}",
            tries=tries,
            data=module.SerializeToString(),
            expect=expect,
            words=words if expect == REFUSED else "",
            format="hlo",
            run=run,
        )
    )


def entry(module: Any) -> Any:
    return module.computations[-1]


def instruction(module: Any, opcode: str) -> Any:
    return next(
        i for each in reversed(module.computations) for i in each.instructions if i.opcode == opcode
    )


def assign(path: str, value: Any) -> Callable[[Any], Any]:
    """Sets a field of the first instruction of an opcode of the entry: "reduce.operand_ids"."""
    opcode, field = path.split(".")

    def edit(module: Any) -> None:
        of = instruction(module, opcode)
        if isinstance(value, list):
            del getattr(of, field)[:]
            getattr(of, field).extend(value)
        elif isinstance(value, (int, str, bytes, float)):
            setattr(of, field, value)
        else:
            getattr(of, field).CopyFrom(value)

    return edit


edited("right", "Nothing: the module that the others are edits of.", "", lambda m: None, RUNS)
edited(
    "of-no-callee",
    "Call a computation that is not there.",
    "reduce",
    assign("reduce.called_computation_ids", [77]),
)
edited(
    "of-two-callees",
    "Call two computations.",
    "reduce",
    assign("reduce.called_computation_ids", [1001, 1001]),
)
edited(
    "that-calls-itself",
    "A computation that calls itself.",
    "which it calls",
    assign("reduce.called_computation_ids", [1000]),
)
edited(
    "of-unknown-operands",
    "An operand that is not there.",
    "multiply",
    assign("multiply.operand_ids", [4321, 4321]),
)
edited(
    "of-another-computations-operands",
    "An operand of another computation.",
    "multiply",
    lambda m: assign("multiply.operand_ids", [m.computations[0].instructions[0].id] * 2)(m),
)
edited(
    "in-a-circle",
    "Operands in a circle.",
    "operand",
    lambda m: assign("add.operand_ids", [instruction(m, "multiply").id] * 2)(m),
)
edited(
    "that-waits-in-a-circle",
    "Control predecessors in a circle.",
    "predecessor",
    lambda m: assign("add.control_predecessor_ids", [instruction(m, "multiply").id])(m),
)
edited(
    "that-waits-for-itself",
    "An instruction that waits for itself.",
    "predecessor",
    lambda m: assign("add.control_predecessor_ids", [instruction(m, "add").id])(m),
)
edited(
    "that-waits-for-nothing",
    "A control predecessor that is not there.",
    "predecessor",
    assign("add.control_predecessor_ids", [9999]),
)
edited(
    "without-root",
    "A root that is not there.",
    "root",
    lambda m: setattr(entry(m), "root_id", 7777),
)
edited(
    "of-one-id",
    "Two instructions of one id.",
    "does not come before",
    lambda m: assign("add.id", instruction(m, "multiply").id)(m),
)
edited(
    "of-two-computations-of-one-id",
    "Two computations of one id.",
    "does not come before",
    lambda m: setattr(m.computations[0], "id", 1000),
)
edited(
    "without-entry",
    "An entry that is not there.",
    "entry",
    lambda m: setattr(m, "entry_computation_id", 5),
)
edited(
    "whose-entry-is-called",
    "The entry is a function that others call.",
    "entry",
    lambda m: setattr(m, "entry_computation_id", 1001),
)
edited(
    "without-computations",
    "No computation at all.",
    "entry",
    lambda m: m.ClearField("computations"),
)
edited(
    "of-an-empty-computation",
    "A computation without instructions.",
    "root",
    lambda m: m.computations[0].ClearField("instructions"),
)
edited(
    "of-parameter-minus-one",
    "A parameter of a negative number.",
    "parameter",
    assign("parameter.parameter_number", -1),
)
edited(
    "of-parameter-0-twice",
    "Two parameters of one number.",
    "parameter",
    lambda m: assign("parameter.parameter_number", 1 - entry(m).instructions[0].parameter_number)(
        m
    ),
)
edited(
    "of-parameter-2147483648",
    "A parameter far beyond the others.",
    "parameter",
    assign("parameter.parameter_number", 1 << 31),
)
edited(
    "of-larger-parameters",
    "An entry that is said to take more than its parameters have.",
    "parameter",
    lambda m: m.host_program_shape.parameters[0].CopyFrom(f32(BIG)),
)
edited(
    "of-a-smaller-result",
    "An entry that is said to give less than its root.",
    "result",
    lambda m: m.host_program_shape.result.CopyFrom(f32(1)),
)
edited(
    "of-more-parameters",
    "An entry that is said to have more parameters.",
    "parameter",
    lambda m: m.host_program_shape.parameters.append(f32(4)),
)
edited(
    "of-larger-callee-parameters",
    "A function whose shape is not its parameters'.",
    "parameter",
    lambda m: m.computations[0].program_shape.parameters[0].CopyFrom(f32(BIG)),
)
edited(
    "of-unknown-fields",
    "A field that no version of XLA has.",
    "field",
    lambda m: m.MergeFromString(b"\xfa\x3f\x04evil"),
)
edited(
    "of-unknown-fields-below",
    "Such a field in an instruction.",
    "field",
    lambda m: instruction(m, "add").MergeFromString(b"\xfa\x3f\x04evil"),
)
edited(
    "of-metadata-of-10-MB",
    "Metadata of 10 MB.",
    "metadata",
    lambda m: setattr(instruction(m, "add").metadata, "op_name", "x" * 10_000_000),
    HARMLESS,
)
edited(
    "of-names-of-control-characters",
    "Names that write to a terminal.",
    "",
    lambda m: setattr(instruction(m, "add"), "name", "\x1b[2J\nforged\x07"),
    HARMLESS,
)
edited(
    "of-a-name-of-1-MB",
    "A name of 1 MB.",
    "",
    lambda m: setattr(m, "name", "n" * 1_000_000),
    HARMLESS,
)
edited(
    "without-names",
    "Instructions without names.",
    "",
    lambda m: [i.ClearField("name") for i in entry(m).instructions],
    HARMLESS,
)
edited(
    "that-is-dynamic",
    "A module that says that it is dynamic.",
    "dynamic",
    lambda m: setattr(m, "is_dynamic", True),
)
edited(
    "with-a-device-assignment",
    "A device assignment of its own, on others' devices.",
    "device",
    lambda m: m.device_assignment.computation_devices.add().replica_device_ids.append(7),
)


def scheduled(order: list[int]) -> Callable[[Any], Any]:
    def edit(module: Any) -> None:
        for each in module.computations:
            ids = [i.id for i in each.instructions]
            module.schedule.sequences[each.id].instruction_ids.extend(
                order if each.id == 1000 else ids
            )

    return edit


edited(
    "of-a-schedule-backwards",
    "A schedule in which results come before operands.",
    "schedule",
    lambda m: scheduled(list(reversed([i.id for i in entry(m).instructions])))(m),
)
edited(
    "of-a-schedule-of-nothing",
    "A schedule of instructions that are not there.",
    "schedule",
    scheduled([999, 998]),
)
edited("of-an-empty-schedule", "A schedule that leaves all out.", "schedule", scheduled([]))


def alias(
    output: list[int], parameter: int, path: list[int], kind: int = 2
) -> Callable[[Any], Any]:
    def edit(module: Any) -> None:
        added = module.input_output_alias.entries.add()
        added.output_shape_index.extend(output)
        added.parameter_number = parameter
        added.parameter_shape_index.extend(path)
        added.kind = kind

    return edit


edited(
    "of-aliases-of-no-result",
    "A result that is not there in an argument's memory.",
    "shares memory",
    alias([5], 0, []),
)
edited(
    "of-aliases-of-no-argument",
    "The result in the memory of an argument that is not there.",
    "it donates",
    alias([], 99, []),
)
edited(
    "of-aliases-of-argument-minus-one",
    "The same before the first argument.",
    "it donates",
    alias([], -1, []),
)
edited(
    "of-aliases-of-no-part",
    "The result in a part that the argument does not have.",
    "it donates",
    alias([], 0, [3, 3]),
)
edited(
    "of-aliases-twice",
    "The result in the memory of two arguments.",
    "shares memory",
    lambda m: (alias([], 0, [])(m), alias([], 1, [])(m)),
)
edited(
    "of-aliases-of-no-kind",
    "An alias of a kind that does not exist.",
    "alias",
    alias([], 0, [], kind=9),
)


def donor(parameter: int, path: list[int]) -> Callable[[Any], Any]:
    def edit(module: Any) -> None:
        module.buffer_donor.entries.add(parameter_number=parameter, parameter_shape_index=path)

    return edit


edited(
    "of-a-donor-that-is-not",
    "An argument that is not there gives its memory.",
    "it donates",
    donor(50, []),
)
edited(
    "of-a-donors-part-that-is-not",
    "A part that is not there gives its memory.",
    "it donates",
    donor(0, [9]),
)


def grows(c: Computation, x: Instruction) -> Instruction:
    return c.constant(f32(1024), 3.0)


def aliased_smaller() -> Any:
    module = module_of(grows, f32(4))
    alias([], 0, [])(module)
    return module


CASES.append(
    Case(
        name="module-of-aliases-of-another-size",
        tries="A result in the memory of an argument that is smaller.",
        data=aliased_smaller().SerializeToString(),
        expect=REFUSED,
        words="shares memory",
        format="hlo",
    )
)
for name, config in [
    ("of-a-parallel-task", '{"outer_dimension_partitions":["4096"]}'),
    ("of-a-fusion-kind", '{"fusion_backend_config":{"kind":"__custom"}}'),
    ("of-onednn", '{"onednn_matmul_config":{"transpose_a":true}}'),
    ("of-bytes", "\x01\x02\x03"),
    ("of-1-MB", "x" * 1_000_000),
]:
    edited(
        f"with-a-config-{name}",
        "An instruction with the text that drives XLA's code generator.",
        "backend_config",
        assign("add.backend_config", config.encode()),
    )


def attribute(of: str, key: str, value: str) -> Callable[[Any], Any]:
    def edit(module: Any) -> None:
        target = module if of == "module" else instruction(module, of)
        target.frontend_attributes.map[key] = value

    return edit


for of, key, value in [
    ("module", "xla.sdy.meshes", "{"),
    ("module", "xla.sdy.python_callback_inst_map", "x"),
    ("add", "_xla_compute_type", "host"),
    ("add", "_xla_host_transfer_handler_name", "x"),
    ("add", "_xla_send_recv_source_target_pairs", "{{0,7}}"),
    ("add", "_xla_stream_annotation", "5"),
    ("add", "xla.sdy.sharding", "#sdy.sharding<@nobody, [{}]>"),
    ("add", "mhlo.no-such-thing", "y" * 1_000_000),
]:
    edited(
        f"with-{key.strip('_').replace('.', '-')}",
        f"The attribute {key} where JAX puts none.",
        "attribute",
        attribute(of, key, value),
        HARMLESS,
    )
