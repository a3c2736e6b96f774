"""Compares our subset of XLA's protocol messages with the descriptors inside the pinned jaxlib wheel.

Each message that gangway/xla declares must have the field numbers, wire types and labels of jaxlib's client; enum
numbers must mean the same. Names are ours and are not compared, except the service path and enum suffixes.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest
from google.protobuf import descriptor_pb2
from jaxlib_protos import files_in, wheel_files

ROOT = pathlib.Path(__file__).resolve().parent.parent
Field = descriptor_pb2.FieldDescriptorProto

# Our root message -> the client's. The messages in their fields are compared too.
PAIRS = {
    "xla.ifrt.proxy.IfrtRequest": "xla.ifrt.proxy.IfrtRequest",
    "xla.ifrt.proxy.IfrtResponse": "xla.ifrt.proxy.IfrtResponse",
    "xla.ifrt.proxy.GetVersionRequest": "xla.ifrt.proxy.GrpcGetVersionRequest",
    "xla.ifrt.proxy.GetVersionResponse": "xla.ifrt.proxy.GrpcGetVersionResponse",
    "xla.ifrt.proxy.SessionMetadata": "xla.ifrt.proxy.GrpcIfrtSessionMetadata",
    "xla.ifrt.proxy.HostBufferStoreMetadata": "xla.ifrt.proxy.GrpcHostBufferStoreMetadata",
    "xla.ifrt.proxy.HostBufferStoreRequest": "xla.ifrt.proxy.GrpcHostBufferStoreRequest",
    "xla.ifrt.proxy.HostBufferLookupRequest": "xla.ifrt.proxy.GrpcHostBufferLookupRequest",
    "xla.ifrt.proxy.HostBufferLookupResponse": "xla.ifrt.proxy.GrpcHostBufferLookupResponse",
    "xla.ifrt.proxy.HostBufferDeleteRequest": "xla.ifrt.proxy.GrpcHostBufferDeleteRequest",
    "xla.ifrt.proxy.HostBufferReadFromDiskRequest": "xla.ifrt.proxy.GrpcHostBufferReadFromDiskRequest",
    "gangway.xla.IfrtSingleDeviceShardingProto": "xla.ifrt.SingleDeviceShardingProto",
    "gangway.xla.IfrtHloShardingProto": "xla.ifrt.HloShardingProto",
    "gangway.xla.IfrtConcreteEvenShardingProto": "xla.ifrt.ConcreteEvenShardingProto",
    "gangway.xla.IfrtCompactLayoutProto": "xla.ifrt.CompactLayoutProto",
    "gangway.xla.IfrtPjRtLayoutProto": "xla.ifrt.PjRtLayoutProto",
    "gangway.xla.IfrtXlaCompileOptionsProto": "xla.ifrt.XlaCompileOptionsProto",
    "gangway.xla.HloModuleWithConfigProto": "xla.HloModuleProtoWithConfig",
    "gangway.xla.HloWithConfigTextProto": "xla.HloModuleProtoWithConfig",
    "gangway.xla.HloWithConfigCostProto": "xla.HloModuleProtoWithConfig",
    "gangway.xla.HloWithConfigEditProto": "xla.HloModuleProtoWithConfig",
    "gangway.xla.hlo.Module": "xla.HloModuleProto",
    "gangway.xla.HloEditProto": "xla.HloProto",
    "gangway.xla.XSpace": "tensorflow.profiler.XSpace",
}
UNSERVED = ".xla.ifrt.proxy.Unserved"
# Fields of XLA's newer versions, which the program check knows, and the pinned wheel does not.
NEWER = {
    ".gangway.xla.hlo.Instruction.block_scaling_config",
    ".gangway.xla.hlo.Instruction.comparison_order",
    ".gangway.xla.hlo.NamedSharding.reduction_op",
}


class Types:
    """All messages, enums and services of a set of files by full name, with the leading dot of field types."""

    def __init__(self, files: list[descriptor_pb2.FileDescriptorProto]):
        self.messages: dict[str, descriptor_pb2.DescriptorProto] = {}
        self.enums: dict[str, descriptor_pb2.EnumDescriptorProto] = {}
        self.services: dict[str, descriptor_pb2.ServiceDescriptorProto] = {}
        for file in files:
            prefix = f".{file.package}"
            for message in file.message_type:
                self._add(prefix, message)
            for enum in file.enum_type:
                self.enums[f"{prefix}.{enum.name}"] = enum
            for service in file.service:
                self.services[f"{prefix}.{service.name}"] = service

    def _add(self, prefix: str, message: descriptor_pb2.DescriptorProto) -> None:
        name = f"{prefix}.{message.name}"
        self.messages[name] = message
        for nested in message.nested_type:
            self._add(name, nested)
        for enum in message.enum_type:
            self.enums[f"{name}.{enum.name}"] = enum


def wheel_types() -> Types:
    return Types(list(wheel_files().values()))


def types_in(library: pathlib.Path) -> Types:
    return Types(list(files_in(library).values()))


def our_types(folder: pathlib.Path, rewrite: tuple[str, str] | None = None) -> Types:
    """Compiles our files; `rewrite` replaces one text in them first, to prove that the test can fail."""
    protoc = shutil.which("protoc")
    assert protoc, "protoc is not installed: run tools/setup.sh"
    names = []
    replaced = 0
    for source in sorted((ROOT / "gangway/xla").glob("*.proto")):
        if source.name in ("collectives.proto", "sharded_calls.proto"):  # our own
            continue
        text = source.read_text()
        if rewrite:
            replaced += text.count(rewrite[0])
            text = text.replace(*rewrite)
        target = folder / "gangway/xla" / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        names.append(f"gangway/xla/{source.name}")
    assert rewrite is None or replaced == 1, f"{rewrite[0]!r} occurs {replaced} times in our files"
    output = folder / "descriptors.bin"
    subprocess.run([protoc, f"-I{folder}", f"--descriptor_set_out={output}", *names], check=True)
    return Types(list(descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes()).file))


def compare_enum(
    ours: descriptor_pb2.EnumDescriptorProto, theirs: descriptor_pb2.EnumDescriptorProto
) -> list[str]:
    names = {value.number: value.name for value in theirs.value}
    problems = []
    for value in ours.value:
        # Only the ends of the names agree: ours always have a prefix, theirs sometimes.
        suffix = value.name.split("_", 1)[1]
        if value.number not in names:
            problems.append(f"enum {ours.name}: {value.name} = {value.number} does not exist")
        elif value.number != 0 and not names[value.number].endswith(suffix):
            problems.append(
                f"enum {ours.name}: {value.name} = {value.number} is {names[value.number]}"
            )
    return problems


def compare(ours: Types, theirs: Types) -> list[str]:
    problems: list[str] = []
    queue = [(f".{mine}", f".{yours}") for mine, yours in PAIRS.items()]
    seen = set()
    while queue:
        mine, yours = queue.pop()
        if (mine, yours) in seen or mine == UNSERVED:
            continue
        seen.add((mine, yours))
        if yours not in theirs.messages:
            problems.append(f"the client has no message {yours} (ours: {mine})")
            continue
        fields = {field.number: field for field in theirs.messages[yours].field}
        for field in ours.messages[mine].field:
            where = f"{mine}.{field.name} = {field.number}"
            other = fields.get(field.number)
            if other is None and f"{mine}.{field.name}" in NEWER:
                continue
            if other is None and is_reserved(theirs.messages[yours], field.number):
                continue  # older plugins still write it
            if other is None:
                problems.append(f"{where}: {yours} has no such field")
            elif mine.startswith(".gangway.xla.hlo.") and is_same_wire(field, other):
                continue
            elif (field.type, field.label) != (other.type, other.label):
                problems.append(
                    f"{where}: {Field.Type.Name(field.type)} {Field.Label.Name(field.label)}, but in {yours} "
                    f"{Field.Type.Name(other.type)} {Field.Label.Name(other.label)}"
                )
            elif field.type == Field.TYPE_MESSAGE:
                queue.append((field.type_name, other.type_name))
            elif field.type == Field.TYPE_ENUM and other.type_name in theirs.enums:
                problems += compare_enum(ours.enums[field.type_name], theirs.enums[other.type_name])
    return problems


def is_same_wire(
    field: descriptor_pb2.FieldDescriptorProto, other: descriptor_pb2.FieldDescriptorProto
) -> bool:
    """The program check reads enumerations as numbers, and packed elements as the bytes that they are packed into."""
    if field.label != other.label:
        return False
    if field.type == Field.TYPE_INT32:
        return other.type == Field.TYPE_ENUM
    unpacked = (Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE)
    is_packed = other.label == Field.LABEL_REPEATED and other.type not in unpacked
    return field.type == Field.TYPE_BYTES and is_packed


def is_reserved(message: descriptor_pb2.DescriptorProto, number: int) -> bool:
    return any(each.start <= number < each.end for each in message.reserved_range)


@pytest.fixture(scope="module")
def wheel() -> Types:
    return wheel_types()


def test_fields_match_the_wheel(wheel, tmp_path):
    ours = our_types(tmp_path)
    assert compare(ours, wheel) == []


def options_of(types: Types) -> dict[int, tuple[str, str]]:
    """The fields of DebugOptions by number: name, and kind as in the table of options."""
    kinds = {
        Field.TYPE_BOOL: "kBool",
        Field.TYPE_INT32: "kInt32",
        Field.TYPE_INT64: "kInt64",
        Field.TYPE_FLOAT: "kFloat",
        Field.TYPE_ENUM: "kEnum",
        Field.TYPE_STRING: "kText",
        Field.TYPE_MESSAGE: "kMessage",
    }
    options = {}
    for field in types.messages[".xla.DebugOptions"].field:
        kind = kinds[field.type]
        if field.type_name.endswith("Entry"):
            kind = "kMap"
        elif field.label == Field.LABEL_REPEATED and kind != "kMessage":
            kind += "s"
        options[field.number] = (field.name, kind)
    return options


def test_the_table_of_options_has_all_fields(wheel):
    text = (ROOT / "gangway" / "xla" / "option_table.h").read_text()
    rows = re.findall(r'\{(\d+),\s*"(\w+)",\s*(k\w+),', text)
    table = {int(number): (name, kind) for number, name, kind in rows}
    assert len(table) == len(rows) > 300
    plugins = sorted((ROOT / ".deps").glob("xla_cpu*/*.so"))
    assert plugins, "there is no plugin: run tools/setup.sh"
    for types in (wheel, *map(types_in, plugins)):
        options = options_of(types)
        assert {n: table.get(n) for n in options} == options


def test_every_message_is_reached(tmp_path):
    """A message that no root reaches would not be compared."""
    ours = our_types(tmp_path)
    reached, queue = set(), [f".{name}" for name in PAIRS]
    while queue:
        name = queue.pop()
        if name not in reached:
            reached.add(name)
            queue += [
                f.type_name for f in ours.messages[name].field if f.type == Field.TYPE_MESSAGE
            ]
    empty = {name for name, message in ours.messages.items() if not message.field}
    assert set(ours.messages) - reached - empty == set()


def test_all_requests_are_numbered(wheel, tmp_path):
    ours = our_types(tmp_path).messages[".xla.ifrt.proxy.IfrtRequest"]
    theirs = wheel.messages[".xla.ifrt.proxy.IfrtRequest"]
    assert {f.number for f in ours.field} == {f.number for f in theirs.field}


def test_service_path_and_streaming(wheel, tmp_path):
    name = ".xla.ifrt.proxy.GrpcIfrtService"

    def shape(types: Types) -> set:
        return {
            (m.name, m.client_streaming, m.server_streaming) for m in types.services[name].method
        }

    assert shape(our_types(tmp_path)) == shape(wheel)


@pytest.mark.parametrize(
    "rewrite",
    [
        ("fixed64 host_buffer_handle = 4;", "uint64 host_buffer_handle = 4;"),
        (
            "repeated fixed64 result_handles = 5;\n  fixed64 status_handle = 6;",
            "fixed64 status_handle = 6;\n  fixed64 result_handles = 5;",
        ),
        (
            "repeated OpShardingProto spmd_parameters_shardings = 14;",
            "repeated OpShardingProto spmd_parameters = 24;",
        ),
        ("repeated bytes f32s = 8;", "bytes f32s = 8;"),
        ("int32 fft_type = 31;", "int64 fft_type = 31;"),
        ("KIND_F4E2M1FN = 30;", "KIND_F4E2M1FN = 31;\n    option allow_alias = true;"),
    ],
    ids=["type", "label", "number", "packed elements", "number as enum", "enum"],
)
def test_a_difference_is_seen(wheel, tmp_path, rewrite):
    assert len(compare(our_types(tmp_path, rewrite), wheel)) == 1
