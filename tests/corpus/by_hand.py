"""Programs of collectives that JAX has no names for: StableHLO text, compiled for replicas, partitions or both, with
groups in any form and any mode of XLA's. Each device passes one array and gets its results.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir

from corpus.meshes import place

ROWS, COLUMNS = 8, 4  # of a device's array, unless a program says otherwise
# NumPy's name: MLIR's.
TYPES = {
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "ui8",
    "uint16": "ui16",
    "uint32": "ui32",
    "uint64": "ui64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
}
Groups = Sequence[Sequence[int]]


def dense(groups: Groups) -> str:
    """Groups as an attribute; shorter ones are filled up, as StableHLO wants it."""
    columns = max((len(group) for group in groups), default=0)
    rows = [[*group, *[-1] * (columns - len(group))] for group in groups]
    return f"dense<{rows if rows else ''}> : tensor<{len(rows)}x{columns}xi64>"


def reduces(function: str, kind: str) -> str:
    return (
        f"({{\n^bb0(%a: tensor<{kind}>, %b: tensor<{kind}>):\n"
        f"  %c = stablehlo.{function} %a, %b : tensor<{kind}>\n"
        f"  stablehlo.return %c : tensor<{kind}>\n}})"
    )


class Program:
    """A module under construction. `mode` is "replicas" (ids are of replicas), "partitions", "flattened" (of both) or
    "mixed" (of replicas, and all their partitions meet). If it is `computed`, a device passes its rows in reverse, and
    the operands of collectives are results of the program itself.
    """

    def __init__(
        self,
        dtype: str,
        replicas: int,
        partitions: int,
        mode: str,
        groups: Groups,
        rows: int = ROWS,
        computed: bool = False,
    ):
        self._kind, self._replicas, self._partitions = TYPES[dtype], replicas, partitions
        self._mode, self._groups, self._rows, self._computed = mode, groups, rows, computed
        self._lines: list[str] = []
        self._results: list[tuple[str, tuple[int, int]]] = []

    def _shape(self, rows: int, columns: int) -> str:
        return f"tensor<{rows}x{columns}x{self._kind}>"

    def _add(
        self,
        operation: str,
        attributes: str,
        shape: tuple[int, int],
        region: str = "",
        operand: str = "%x",
    ) -> None:
        name = f"%y{len(self._results)}"
        self._lines.append(
            f'{name} = "stablehlo.{operation}"({operand}) {region} {{{attributes}}}'
            f" : ({self._shape(self._rows, COLUMNS)}) -> {self._shape(*shape)}"
        )
        self._results.append((name, shape))

    def _attributes(self, may_be_flattened: bool = True) -> str:
        channel = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
        parts = [f"replica_groups = {dense(self._groups)}"]
        if self._mode != "replicas":
            parts.append(channel)
        if self._mode == "flattened" and may_be_flattened:
            parts.append("use_global_device_ids")
        return ", ".join(parts)

    def all_reduce(self, function: str, operand: str = "%x") -> None:
        """`operand`: what the device passes, or a name that `identity` has returned."""
        region = reduces(function, self._kind)
        self._add("all_reduce", self._attributes(), (self._rows, COLUMNS), region, operand)

    def reduce_scatter(self, function: str, members: int) -> None:
        attributes = f"scatter_dimension = 0 : i64, {self._attributes()}"
        shape = (self._rows // members, COLUMNS)
        self._add("reduce_scatter", attributes, shape, reduces(function, self._kind))

    def all_gather(self, dimension: int, members: int) -> None:
        shape = (
            (self._rows * members, COLUMNS) if dimension == 0 else (self._rows, COLUMNS * members)
        )
        attributes = f"all_gather_dim = {dimension} : i64, {self._attributes()}"
        self._add("all_gather", attributes, shape)

    def all_to_all(self, members: int) -> None:
        attributes = (
            "split_dimension = 0 : i64, concat_dimension = 1 : i64, "
            f"split_count = {members} : i64, {self._attributes(may_be_flattened=False)}"
        )
        self._add("all_to_all", attributes, (self._rows // members, COLUMNS * members))

    def permute(self, pairs: Groups) -> None:
        attributes = f"source_target_pairs = {dense(pairs)}"
        if self._mode != "replicas":
            attributes += ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
        self._add("collective_permute", attributes, (self._rows, COLUMNS))

    def broadcast(self) -> None:
        self._add(
            "collective_broadcast", self._attributes(may_be_flattened=False), (self._rows, COLUMNS)
        )

    def ragged(self, members: int, entries: str, scale: int) -> None:
        """An exchange of rows; rows that do not arrive are the operand's own. Its first four rows are the lists: where
        the rows for each member begin, how many they are, where they go, and how many come, in units of `scale` rows.
        `entries`: the type of the lists.
        """
        kind, index, local = self._kind, TYPES[entries], self._shape(self._rows, COLUMNS)
        part = kind.removeprefix("complex<").removesuffix(">")
        row, array = f"tensor<1x{members}x{kind}>", f"tensor<{members}x{kind}>"
        real, entry = f"tensor<{members}x{part}>", f"tensor<{members}x{index}>"
        name = f"%y{len(self._results)}"
        self._lines.append(f"{name}s = stablehlo.constant dense<{scale}> : {entry}")
        for i in range(4):
            take = "real" if part != kind else "convert"
            self._lines += [
                f"{name}a{i} = stablehlo.slice %x [{i}:{i + 1}, 0:{members}] : ({local}) -> {row}",
                f"{name}b{i} = stablehlo.reshape {name}a{i} : ({row}) -> {array}",
                f"{name}c{i} = stablehlo.{take} {name}b{i} : ({array}) -> {real}",
                f"{name}d{i} = stablehlo.convert {name}c{i} : ({real}) -> {entry}",
                f"{name}l{i} = stablehlo.multiply {name}d{i}, {name}s : {entry}",
            ]
        # Without a channel id, XLA's reader of StableHLO ends the process; 0 is none in HLO.
        channel = 0 if self._mode == "replicas" else 1
        config = f"replica_groups = {dense(self._groups)}, channel_id = {channel} : i64"
        lists = ", ".join(f"{name}l{i}" for i in range(4))
        self._lines.append(
            f"{name} = stablehlo.custom_call @ragged_all_to_all(%x, %x, {lists}) "
            f"{{api_version = 4 : i32, backend_config = {{{config}}}}} : "
            f"({', '.join([local] * 2 + [entry] * 4)}) -> {local}"
        )
        self._results.append((name, (self._rows, COLUMNS)))

    def identity(self, operation: str) -> str:
        """An array of "replica_id" or "partition_id" as a result; returns its name."""
        name = f"%y{len(self._results)}"
        manual = '{mhlo.sharding = "{manual}"}'
        shape = self._shape(self._rows, COLUMNS)
        self._lines += [
            f"{name}i = stablehlo.{operation} {manual} : tensor<ui32>",
            f"{name}c = stablehlo.convert {name}i {manual} : (tensor<ui32>) -> tensor<{self._kind}>",
            f"{name} = stablehlo.broadcast_in_dim {name}c, dims = [] {manual}"
            f" : (tensor<{self._kind}>) -> {shape}",
        ]
        self._results.append((name, (self._rows, COLUMNS)))
        return name

    def text(self) -> str:
        """The partitioner believes that all arrays are replicated, and leaves what is between alone."""
        replicated, manual = (
            f'{{mhlo.sharding = "{{{sharding}}}"}}' for sharding in ("replicated", "manual")
        )

        def turn(call: str, name: str, sharding: str, shape: str) -> str:
            return f"stablehlo.custom_call @{call}({name}) {sharding} : ({shape}) -> {shape}"

        local = self._shape(self._rows, COLUMNS)
        passed = "%p" if self._computed else "%x"
        lines = [
            f"%s = {turn('Sharding', '%arg', replicated, local)}",
            f"{passed} = {turn('SPMDFullToShardShape', '%s', manual, local)}",
        ]
        if self._computed:
            lines.append(f"%x = stablehlo.reverse %p, dims = [0] {manual} : {local}")
        lines += self._lines
        shapes = [self._shape(*shape) for _, shape in self._results]
        for (name, _), shape in zip(self._results, shapes, strict=True):
            lines.append(f"{name}m = {turn('Sharding', name, manual, shape)}")
            lines.append(f"{name}f = {turn('SPMDShardToFullShape', name + 'm', replicated, shape)}")
        body = "\n".join(lines)
        return (
            f"module @by_hand attributes {{mhlo.num_partitions = {self._partitions} : i32, "
            f"mhlo.num_replicas = {self._replicas} : i32}} {{\n"
            f"func.func public @main(%arg: {local} {replicated}) -> "
            f"({', '.join(f'{shape} {replicated}' for shape in shapes)}) {{\n{body}\n"
            f"return {', '.join(f'{name}f' for name, _ in self._results)} : {', '.join(shapes)}\n}}\n}}"
        )

    def run(self, arrays: np.ndarray, order: Sequence[int] = range(8)) -> list[list[np.ndarray]]:
        passed = arrays[:, ::-1] if self._computed else arrays
        return run(self.text(), self._replicas, self._partitions, passed, order)


def run(
    text: str, replicas: int, partitions: int, arrays: np.ndarray, order: Sequence[int] = range(8)
) -> list[list[np.ndarray]]:
    """The results at each position (replica x partitions + partition), which is on the device `order[position]`, of
    the program on `arrays`, one for each position. Works on every backend that JAX has.
    """
    devices = [jax.devices()[device] for device in order]
    options = compiler.get_compile_options(
        num_replicas=replicas,
        num_partitions=partitions,
        device_assignment=np.array([device.id for device in devices]).reshape(replicas, partitions),
    )
    options.executable_build_options.use_spmd_partitioning = True
    options.executable_build_options.use_shardy_partitioner = False
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        code = mlir.module_to_bytecode(module)
    executable = devices[0].client.compile_and_load(
        code, xla_client.DeviceList(tuple(devices)), options
    )
    mesh = jax.sharding.Mesh(np.array(devices), ("i",))
    argument = place(mesh, arrays.reshape(-1, *arrays.shape[2:]), "i")
    results: Any = executable.execute_sharded([argument]).disassemble_into_single_device_arrays()
    return [[np.asarray(shard) for shard in result] for result in results]
