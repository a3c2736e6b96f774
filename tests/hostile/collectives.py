"""Collectives over groups that do not fit the program's positions. They run over four devices, of one worker and of two,
with the cluster's own collectives and with XLA's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hostile.case import FAILS, HARMLESS, REFUSED, RUNS, Case
from hostile.hlo import Computation, Instruction, Shape, f32, module_of, new, s32, shape

CASES: list[Case] = []
ALL = [[0, 1, 2, 3]]


def groups(*lists: Sequence[int]) -> list[dict[str, Sequence[int]]]:
    return [{"replica_ids": each} for each in lists]


def collective(
    name: str,
    tries: str,
    opcode: str,
    result: Shape,
    parameter: Shape | None = None,
    expect: str = REFUSED,
    words: str = "",
    partitions: int = 1,
    reduces: bool = False,
    **fields: Any,
) -> None:
    def build(c: Computation, x: Instruction) -> Instruction:
        calls = [c.module.binary("add")] if reduces else []
        return c.add(opcode, result, x, calls=calls, **fields)

    CASES.append(
        Case(
            name=f"collective-{name}",
            tries=tries,
            data=module_of(build, parameter or f32(4)).SerializeToString(),
            expect=expect,
            words=(words or opcode) if expect == REFUSED else "",
            format="hlo",
            devices=4,
            partitions=partitions,
        )
    )


def all_reduce(name: str, tries: str, *lists: Sequence[int], **fields: Any) -> None:
    collective(
        name, tries, "all-reduce", f32(4), replica_groups=groups(*lists), reduces=True, **fields
    )


all_reduce("right", "Nothing.", *ALL, expect=RUNS)
all_reduce("of-member-99", "A member that is not a position.", [0, 1, 2, 99])
all_reduce("of-member-minus-one", "A member before the first.", [0, 1, 2, -1])
all_reduce("of-member-2-to-the-40", "A member that 32 bits do not hold.", [0, 1, 2, (1 << 40) + 3])
all_reduce("of-a-member-twice", "A member twice in one group.", [0, 0, 1, 2])
all_reduce("of-a-member-in-two-groups", "A member in two groups.", [0, 1], [1, 2, 3])
all_reduce("of-an-empty-group", "A group without members.", [0, 1, 2, 3], [])
all_reduce(
    "of-uneven-groups", "Groups of one and of three members.", [0], [1, 2, 3], expect=HARMLESS
)
all_reduce("without-a-member", "Groups that leave a position out.", [0, 1, 2])
all_reduce("of-more-than-there-are", "A group of 4,096 members.", list(range(4096)))
all_reduce("by-channel-0", "Global ids without a channel.", *ALL, use_global_device_ids=True)
all_reduce(
    "by-a-huge-channel",
    "The largest number as a channel.",
    *ALL,
    channel_id=(1 << 63) - 1,
    expect=HARMLESS,
)
all_reduce("by-a-negative-channel", "A negative channel.", *ALL, channel_id=-5, expect=HARMLESS)
collective(
    "all-reduce-that-grows",
    "A result that is larger than the operand.",
    "all-reduce",
    f32(1 << 16),
    replica_groups=groups(*ALL),
    reduces=True,
)
collective(
    "all-reduce-without-function",
    "A reduction by nothing.",
    "all-reduce",
    f32(4),
    replica_groups=groups(*ALL),
)


def of_bf16(
    name: str, tries: str, finish: Callable[[Computation, Instruction], None], expect: str
) -> None:
    """XLA widens a collective of bf16 by the root of its reduction, which is an add that `finish` adds to."""
    array = shape("bf16", 8)

    def build(c: Computation, x: Instruction) -> Instruction:
        adds = c.module.binary("add", "bf16")
        finish(adds, adds.root)
        return c.add(
            *("all-reduce", array, x),
            replica_groups=groups(*ALL),
            calls=[adds],
            channel_id=1,
            use_global_device_ids=True,
        )

    CASES.append(
        Case(
            name=f"collective-all-reduce-of-bf16-{name}",
            tries=tries,
            data=module_of(build, array).SerializeToString(),
            expect=expect,
            words="its reduction is not one" if expect == REFUSED else "",
            format="hlo",
            devices=4,
            partitions=4,
        )
    )


of_bf16(
    "with-a-note",
    "A reduction that also says how its result is sharded, as JAX writes it.",
    lambda c, sum_: c.add(
        *("custom-call", shape("bf16"), sum_),
        custom_call_target="Sharding",
        sharding=new("OpSharding"),
    ),
    RUNS,
)
of_bf16(
    "by-more",
    "A reduction whose last operation has one operand.",
    lambda c, sum_: c.add("negate", shape("bf16"), sum_),
    REFUSED,
)
collective(
    "all-gather-that-grows",
    "A gather of more than the members have.",
    "all-gather",
    f32(1 << 16),
    replica_groups=groups(*ALL),
    dimensions=[0],
)
collective(
    "all-gather-along-no-dimension",
    "A gather along a dimension that is not.",
    "all-gather",
    f32(16),
    replica_groups=groups(*ALL),
    dimensions=[7],
)
collective(
    "reduce-scatter-that-grows",
    "Parts that are larger than the whole.",
    "reduce-scatter",
    f32(1 << 16),
    replica_groups=groups(*ALL),
    dimensions=[0],
    reduces=True,
)
collective(
    "reduce-scatter-unevenly",
    "Parts that do not make the whole.",
    "reduce-scatter",
    f32(2),
    f32(7),
    replica_groups=groups(*ALL),
    dimensions=[0],
    reduces=True,
)
collective(
    "all-to-all-that-grows",
    "An exchange whose result is larger.",
    "all-to-all",
    f32(1 << 16),
    replica_groups=groups(*ALL),
    dimensions=[0],
)
collective(
    "permute-with-two-sources",
    "Two sources for one target.",
    "collective-permute",
    f32(4),
    source_target_pairs=[{"source": 0, "target": 1}, {"source": 2, "target": 1}],
)
collective(
    "permute-with-one-source-twice",
    "One source for two targets.",
    "collective-permute",
    f32(4),
    source_target_pairs=[{"source": 0, "target": 1}, {"source": 0, "target": 2}],
)
collective(
    "permute-to-position-99",
    "A target that is not a position.",
    "collective-permute",
    f32(4),
    source_target_pairs=[{"source": 0, "target": 99}],
)
collective(
    "permute-from-minus-one",
    "A source before the first.",
    "collective-permute",
    f32(4),
    source_target_pairs=[{"source": -1, "target": 0}],
)
collective(
    "permute-that-grows",
    "A result that is larger.",
    "collective-permute",
    f32(1 << 16),
    source_target_pairs=[{"source": 0, "target": 1}],
)
collective(
    "broadcast-of-member-99",
    "A broadcast from nowhere.",
    "collective-broadcast",
    f32(4),
    replica_groups=groups([99, 0, 1, 2]),
)
CASES.append(
    Case(
        "collective-partition-id-of-floats",
        "A position that is not a number.",
        module_of(lambda c: c.add("partition-id", f32(4))).SerializeToString(),
        REFUSED,
        "partition-id",
        "hlo",
        devices=4,
    )
)
collective(
    "all-reduce-started-only",
    "A collective that begins and does not end.",
    "all-reduce-start",
    f32(4),
    replica_groups=groups(*ALL),
    reduces=True,
)
collective(
    "permute-started-only",
    "A permutation that begins and does not end.",
    "collective-permute-start",
    f32(4),
    source_target_pairs=[{"source": 0, "target": 1}],
)


def ragged(name: str, tries: str, fill: int) -> None:
    """Lists from the arguments: offsets and sizes far outside of the arrays."""

    def build(c: Computation, x: Instruction, y: Instruction, *lists: Instruction) -> Instruction:
        return c.add("ragged-all-to-all", f32(16), x, y, *lists, replica_groups=groups(*ALL))

    lists = [s32(4)] * 4
    CASES.append(
        Case(
            name=f"collective-ragged-{name}",
            tries=tries,
            data=module_of(build, f32(16), f32(16), *lists).SerializeToString(),
            expect=HARMLESS,
            format="hlo",
            devices=4,
            fill=fill,
        )
    )


ragged("by-huge-offsets", "An exchange whose offsets and sizes are huge.", 127)
ragged("by-negative-offsets", "An exchange whose offsets and sizes are negative.", 255)


def text(name: str, tries: str, body: str, expect: str = FAILS, partitions: int = 4) -> None:
    module = (
        f"module @m attributes {{mhlo.num_partitions = {partitions} : i32, "
        f"mhlo.num_replicas = {4 // partitions} : i32}} {{\n"
        f"func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n{body}\n}} }}\n"
    )
    CASES.append(
        Case(f"collective-{name}", tries, module.encode(), expect, devices=4, partitions=partitions)
    )


PLUS = "({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%s = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %s : tensor<f32>\n})"
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
text(
    "of-a-module-for-more-positions",
    "A module that says that it is for 4 partitions, compiled for others' devices too.",
    f'%y = "stablehlo.all_reduce"(%x) {PLUS} {{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : '
    f"tensor<1x8xi64>, {CHANNEL}, use_global_device_ids}} : (tensor<4xf32>) -> tensor<4xf32>\n"
    "return %y : tensor<4xf32>",
)
text(
    "of-padding-members",
    "A group with members -1, by which XLA pads groups of unequal sizes.",
    f'%y = "stablehlo.all_reduce"(%x) {PLUS} {{replica_groups = dense<[[0, 1, 2], [3, -1, -1]]> : '
    f"tensor<2x3xi64>, {CHANNEL}, use_global_device_ids}} : (tensor<4xf32>) -> tensor<4xf32>\n"
    "return %y : tensor<4xf32>",
    expect=HARMLESS,
)


def diverging(name: str, tries: str, others: str) -> Case:
    """Position 0 reduces; the others do not, or gather."""

    def build(c: Computation, x: Instruction) -> Instruction:
        module, adds = c.module, c.module.binary("add")
        first, rest = module.computation("first"), module.computation("rest")
        first.add(
            "all-reduce",
            f32(4),
            first.parameter(0, f32(4)),
            replica_groups=groups(*ALL),
            calls=[adds],
        )
        given = rest.parameter(0, f32(4))
        if others == "all-to-all":
            rest.add(others, f32(4), given, replica_groups=groups(*ALL), dimensions=[0])
        else:
            rest.add("negate", f32(4), given)
        number = c.add("replica-id", shape("u32"))
        zero = c.constant(shape("u32"), 0)
        is_first = c.add("compare", shape("pred"), number, zero, comparison_direction="EQ")
        return c.add("conditional", f32(4), is_first, x, x, calls=[first, rest])

    data = module_of(build, f32(4)).SerializeToString()
    return Case(f"collective-{name}", tries, data, HARMLESS, format="hlo", devices=4)


# Where the cluster's own collectives run. With XLA's, a worker that waits in one can only be ended.
DIVERGING = [
    diverging("for-one-position", "A collective that one position alone takes part in.", "negate"),
    diverging(
        "of-two-kinds", "Positions that wait for one another in two collectives.", "all-to-all"
    ),
]
