"""Extensions of Gangway's own in the chain of the plugin's API, by their numbers."""

from __future__ import annotations

import ctypes
import pathlib
from typing import TypeVar


class Base(ctypes.Structure):
    """The first fields of each extension."""


Base._fields_ = [
    ("struct_size", ctypes.c_size_t),
    ("type", ctypes.c_int),
    ("next", ctypes.POINTER(Base)),
]

Extension = TypeVar("Extension", bound=ctypes.Structure)


class _Api(ctypes.Structure):
    """The first fields of PJRT_Api."""

    _fields_ = (("struct_size", ctypes.c_size_t), ("extensions", ctypes.POINTER(Base)))


def find(library: pathlib.Path, number: int, extension: type[Extension]) -> Extension | None:
    """None: the plugin is of an older Gangway, which has no such extension."""
    get_api = ctypes.CDLL(str(library)).GetPjrtApi
    get_api.restype = ctypes.POINTER(_Api)
    found = get_api().contents.extensions
    while found:
        if found.contents.type == number:
            return ctypes.cast(found, ctypes.POINTER(extension)).contents
        found = found.contents.next
    return None
