"""Blocks of JAX code whose operations reach the cluster as one program: through the plugin's
extension of gangway/frontdoor/pjrt/program_blocks.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import warnings
from collections.abc import Iterator

from gangway import _extensions, _plugin

EXTENSION_TYPE = 0x47575950
CUT_BY_BYTES = 64


@dataclasses.dataclass
class ProgramCapture:
    """What became of the operations of a block, once it has ended."""

    launches: int = 0
    """Each stood for all operations of a run that the cluster knew."""
    operations_sent_as_they_came: int = 0
    cut_by: str = ""
    """What first ended a run before the block's end, such as "fetch"; empty: nothing."""


class _Capture(ctypes.Structure):
    _fields_ = (
        ("launches", ctypes.c_uint64),
        ("operations_sent_as_they_came", ctypes.c_uint64),
        ("cut_by", ctypes.c_char * CUT_BY_BYTES),
    )


class _Extension(ctypes.Structure):
    _fields_ = (
        ("base", _extensions.Base),
        ("begin", ctypes.CFUNCTYPE(None)),
        ("end", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Capture))),
    )


@functools.cache
def _find() -> _Extension | None:
    return _extensions.find(_plugin.library(), EXTENSION_TYPE, _Extension)


@functools.cache
def _warn(backends: tuple[str, ...]) -> None:
    warnings.warn(
        f"gangway.program() does nothing here: JAX runs on {', '.join(backends)}, and programs are "
        "captured by Gangway's PJRT plugin only: gangway.connect(door='pjrt')",
        stacklevel=5,  # the caller of the context manager
    )


def _extension() -> _Extension | None:
    from jax._src import xla_bridge

    backends = xla_bridge.backends()  # connects, if the script has not used JAX before
    found = _find() if _plugin.NAME in backends else None
    if found is None:
        _warn(tuple(backends))
    return found


@contextlib.contextmanager
def program() -> Iterator[ProgramCapture]:
    """The jitted calls and device_puts of the block, or of the decorated function, reach the
    cluster as one message, once the cluster knows a block of the same operations: from its third
    run on, as the first one compiles. Arrays and their values may differ from run to run.

        @gangway.program()
        def step(parameters, batch):
            ...

    What the block computes, and when an error is seen, is as without it. A value that the block
    reads (`float(loss)`), bytes that it uploads, and a new compilation end the message there, and
    the next one begins. Until the end of the block nothing else is sent, so devices wait for a
    block that computes for long on the host. Blocks nest, where the outermost counts, and concern
    all threads.

    Through another door than "pjrt" it does nothing, and warns once.

    Yields:
      what became of the operations, filled at the end of the block.
    """
    capture = ProgramCapture()
    extension = _extension()
    if extension is None:
        yield capture
        return
    extension.begin()
    try:
        yield capture
    finally:
        told = _Capture()
        extension.end(ctypes.byref(told))
        capture.launches = told.launches
        capture.operations_sent_as_they_came = told.operations_sent_as_they_came
        capture.cut_by = told.cut_by.decode()
