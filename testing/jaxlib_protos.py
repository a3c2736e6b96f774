"""XLA's protocol messages, from the descriptors inside the pinned jaxlib wheel."""

from __future__ import annotations

import functools
import importlib.util
import pathlib
import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def parse_at(data: bytes, start: int) -> descriptor_pb2.FileDescriptorProto | None:
    """The FileDescriptorProto that starts at `start`; it ends where the bytes stop being its fields."""
    position = start
    known = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14}

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value, at
            if shift > 63:
                raise ValueError

    try:
        while True:
            key, after = varint(position)
            number, wire = key >> 3, key & 7
            if number not in known or (number == 1 and position != start):
                break
            if wire == 2:
                size, after = varint(after)
                after += size
            elif wire == 0:
                _, after = varint(after)
            else:
                break
            position = after
        return descriptor_pb2.FileDescriptorProto.FromString(data[start:position])
    except Exception:  # Bytes that only looked like a descriptor.
        return None


def files_in(library: pathlib.Path) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """The files whose descriptors are in the library, by name."""
    data = library.read_bytes()
    files = {}
    for match in re.finditer(
        rb"\x0a([\x01-\x7f])([A-Za-z0-9_/.\-]+?\.proto)[\x12\x1a\x22\x2a\x32\x62]", data
    ):
        if match.group(1)[0] == len(match.group(2)):
            file = parse_at(data, match.start())
            if file is not None:
                files[file.name] = file
    return files


@functools.cache
def wheel_files() -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """The files whose descriptors are in the wheel, by name."""
    spec = importlib.util.find_spec("jaxlib")
    assert spec is not None and spec.origin is not None, (
        "jaxlib is not installed: run tools/setup.sh"
    )
    return files_in(pathlib.Path(spec.origin).parent / "libjax_common.so")


@functools.cache
def _pool_with(file: str) -> descriptor_pool.DescriptorPool:
    pool, known = descriptor_pool.DescriptorPool(), set()

    def add(file_name: str) -> None:
        if file_name in known:
            return
        known.add(file_name)
        for dependency in wheel_files()[file_name].dependency:
            add(dependency)
        pool.AddSerializedFile(wheel_files()[file_name].SerializeToString())

    add(file)
    return pool


@functools.cache
def message_class(file: str, name: str) -> Any:
    """The class of the message with this full name, which `file` or one that it imports declares. Messages of classes
    that were found by different files do not fit into one another.
    """
    return message_factory.GetMessageClass(_pool_with(file).FindMessageTypeByName(name))
