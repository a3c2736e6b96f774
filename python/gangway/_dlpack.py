"""DLPack imports through the plugin: `jax.dlpack.from_dlpack`, `jnp.from_dlpack`.

JAX imports memory of the host to the backend that it finds as `cpu` (_platform.py). This makes its
option `copy` work where that is the cluster.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

ALIGNMENT = 64  # of memory that XLA's CPU devices use as it is


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_size_t),
        ("device", ctypes.c_int32 * 2),
        ("dimensions", ctypes.c_int32),
        ("type", ctypes.c_uint8 * 4),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


# By a capsule's name: where the tensor is in what the capsule points to.
TENSORS = {b"dltensor": 0, b"dltensor_versioned": 32}


def _address(capsule: Any) -> int | None:
    """Of the first byte. None: not a capsule of DLPack's, which jaxlib refuses."""
    find = ctypes.pythonapi.PyCapsule_GetPointer
    find.restype, find.argtypes = ctypes.c_size_t, [ctypes.py_object, ctypes.c_char_p]
    for name, offset in TENSORS.items():
        if f'"{name.decode()}"' in repr(capsule):
            tensor = _Tensor.from_address(find(capsule, name) + offset)
            return int(tensor.data + tensor.byte_offset)
    return None


def install(name: str) -> None:
    """For the backend `name`, once."""
    import jax
    from jax._src import xla_bridge
    from jaxlib import _jax

    make = _jax.dlpack_managed_tensor_to_buffer

    @functools.wraps(make)
    def to_buffer(tensor: Any, device: Any, stream: Any, copy: Any = None, *rest: Any) -> Any:
        if device.client is not xla_bridge.backends().get(name) or copy is None:
            return make(tensor, device, stream, copy, *rest)
        # JAX looks for these words, and says what to do.
        if not copy and (_address(tensor) or 0) % ALIGNMENT:
            raise jax.errors.JaxRuntimeError(
                f"INVALID_ARGUMENT: the memory is not aligned to {ALIGNMENT} bytes."
            )
        # The plugin always copies; jaxlib's own way to do so is one that no plugin can offer.
        return make(tensor, device, stream, None, *rest)

    _jax.dlpack_managed_tensor_to_buffer = to_buffer
