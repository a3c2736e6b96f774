"""Host callbacks through the plugin: jax.debug.print, debug.callback, pure_callback, io_callback,
and buffer_callback.

JAX emits a call of a function of jaxlib for them. A worker has one of the same name, which wants
the number of the Python function instead: it is put into the calls for the cluster's backend.
Numbers count the callbacks that this process has compiled: the text of a program names only
functions of the session that runs it, so that programs may be cached by their text.

Calls come through an extension of the plugin's API (gangway/frontdoor/pjrt/callbacks.h), on threads
of the plugin.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import itertools
import logging
import pathlib
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np

from gangway import _buffer_callback, _extensions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TARGETS = ("xla_ffi_python_cpu_callback", "xla_ffi_python_gpu_callback")
LOCAL_TARGET = "xla_ffi_partitioned_python_cpu_callback"  # once per shard
EXTENSION_TYPE = 0x47575943
KEPT_S = 1200.0  # after its program is dropped: calls of it may be pending
ENDING_MS = 5000  # for callbacks that run when the interpreter ends

_HANDLER = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_uint64,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
)

_logger = logging.getLogger(__name__)


class _Extension(ctypes.Structure):
    _fields_ = (
        ("base", _extensions.Base),
        ("set_handler", ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t)),
        ("add_result", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)),
        ("fail", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)),
        ("traffic", ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint64))),
    )


class _Function:
    """A function that programs may call: what they pass, and what they expect."""

    def __init__(
        self,
        call: Callable[..., Any],
        operands: Sequence[Any],
        results: Sequence[Any],
        *,
        is_local: bool = False,
    ):
        self.call = call
        self.is_local = is_local
        self.is_exact = getattr(call, "is_exact", False)  # returns arrays of the results' types
        self.operands = [(tuple(aval.shape), np.dtype(aval.dtype)) for aval in operands]
        self.results = [(tuple(aval.shape), np.dtype(aval.dtype)) for aval in results]

    def run(self, operands: Sequence[bytes]) -> list[np.ndarray]:
        shapes = [shape for shape, _ in self.operands]
        if self.is_local and len(operands) == len(shapes) + 1:  # gangway/compiler/sharded_calls.h
            shapes = _read_shapes(operands[-1])
            operands = operands[:-1]
        if not len(operands) == len(shapes) == len(self.operands):
            raise RuntimeError(f"{len(operands)} operands, expected: {len(self.operands)}")
        arrays = [
            np.frombuffer(data, dtype).reshape(shape) if data else np.empty(shape, dtype)
            for data, shape, (_, dtype) in zip(operands, shapes, self.operands, strict=True)
        ]
        returned = self.call(*arrays)
        if len(returned) != len(self.results):
            raise RuntimeError(
                f"the callback returned {len(returned)} values, expected: {len(self.results)}"
            )
        values = []
        for index, (value, (shape, dtype)) in enumerate(zip(returned, self.results, strict=True)):
            array = np.asarray(value) if self.is_exact else _canonical(value)
            if array.shape != shape or array.dtype != dtype:
                raise RuntimeError(
                    f"value {index} of the callback has shape {array.shape} and type {array.dtype}"
                    f", expected: {shape}, {dtype}"
                )
            values.append(np.ascontiguousarray(array))
        return values


def _read_shapes(data: bytes) -> list[tuple[int, ...]]:
    """The rank and the dimensions of each array, from s32[n]."""
    numbers = np.frombuffer(data, np.int32).tolist()
    shapes = []
    while numbers:
        rank = numbers[0]
        shapes.append(tuple(numbers[1 : rank + 1]))
        numbers = numbers[rank + 1 :]
    return shapes


class _Keeper:
    """Lives as long as the program that calls the function."""

    def __init__(self, number: int):
        self.number = number

    def __del__(self) -> None:
        _retired.append((time.monotonic(), self.number))


WORKERS = 0  # the number that is called when a worker is lost, and when one is back

when_workers_change: list[Callable[[], None]] = []
_functions: dict[int, _Function] = {}
_retired: collections.deque[tuple[float, int]] = collections.deque()
_numbers = itertools.count(1)
_lock = threading.Lock()
_extension: Any = None


def _canonical(value: Any) -> np.ndarray:
    from jax._src import dtypes

    array = np.asarray(value)
    return array.astype(dtypes.canonicalize_dtype(array.dtype), copy=False)


def _add(function: _Function) -> _Keeper:
    with _lock:
        number = next(_numbers)
        _functions[number] = function
        while _retired and _retired[0][0] < time.monotonic() - KEPT_S:
            _functions.pop(_retired.popleft()[1], None)
    return _Keeper(number)


def _run(call: int, number: int, count: int, data: Any, sizes: Any) -> None:
    try:
        if number == WORKERS:
            for listener in when_workers_change:
                listener()
            return
        function = _functions.get(number)
        if function is None:
            raise RuntimeError(f"this process has no host callback {number}")
        operands = [ctypes.string_at(data[i], sizes[i]) if sizes[i] else b"" for i in range(count)]
        for value in function.run(operands):
            _extension.add_result(call, value.ctypes.data, value.nbytes)
    except BaseException as error:  # KeyboardInterrupt and SystemExit, too, end the program only
        raised = "".join(traceback.format_exception_only(type(error), error)).strip()
        where = "".join(traceback.format_tb(error.__traceback__))
        encoded = f"the host callback raised {raised}\n{where}".encode(errors="replace")
        _extension.fail(call, encoded, len(encoded))


_handler = _HANDLER(_run)


def _lower(original: Callable[..., Any], is_cluster: Callable[[Any], bool]) -> Callable[..., Any]:
    """JAX's emit_python_callback, for the cluster's programs with our target."""

    def emit(
        ctx: Any,
        callback: Callable[..., Any],
        token: Any,
        operands: Any,
        operand_avals: Any,
        result_avals: Any,
        **options: Any,
    ) -> Any:
        module = ctx.module_context
        if len(module.platforms) > 1 or not is_cluster(module.get_backend()):
            return original(ctx, callback, token, operands, operand_avals, result_avals, **options)
        from jax._src import core
        from jaxlib.mlir import ir

        callbacks = list(module.host_callbacks)
        emitted = original(ctx, callback, token, operands, operand_avals, result_avals, **options)
        module.host_callbacks[:] = callbacks  # jaxlib would pass it to its own handler
        operation = ir.InsertionPoint.current.block.operations[-1]
        target = ir.StringAttr(operation.attributes["call_target_name"]).value
        if target not in (*TARGETS, LOCAL_TARGET):
            raise NotImplementedError(f"callbacks of the kind {target} are not known to Gangway")
        function = _Function(
            callback,
            [core.physical_aval(aval) for aval in operand_avals],
            [core.physical_aval(aval) for aval in result_avals],
            is_local=target == LOCAL_TARGET,
        )
        keeper = _add(function)
        module.add_keepalive(keeper)
        i64 = ir.IntegerType.get_signless(64)
        config = ir.DictAttr.get({"callback": ir.IntegerAttr.get(i64, keeper.number)})
        operation.attributes["mhlo.backend_config"] = config
        return emitted

    return emit


def _end() -> None:
    """Before the interpreter ends: waits for the callbacks of programs that are still running."""
    import jax

    try:
        jax.effects_barrier()  # type: ignore[no-untyped-call]
    except Exception:  # the script has ended, with its own result
        _logger.debug("a program with host callbacks failed", exc_info=True)
    _extension.set_handler(None, ENDING_MS)


def install(library: pathlib.Path, backend: str) -> None:
    """Serves the callbacks of programs that JAX lowers for `backend`, the plugin in `library`."""
    global _extension
    from jax._src import callback as jax_callback
    from jax._src import xla_bridge

    if _extension is not None:
        return
    _extension = _extensions.find(library, EXTENSION_TYPE, _Extension)
    if _extension is None:
        return  # a plugin of an older Gangway

    def is_cluster(client: Any) -> bool:
        return client is xla_bridge._backends.get(backend)

    jax_callback.emit_python_callback = _lower(jax_callback.emit_python_callback, is_cluster)
    _buffer_callback.install(is_cluster)
    _extension.set_handler(ctypes.cast(_handler, ctypes.c_void_p), 0)
    atexit.register(_end)
